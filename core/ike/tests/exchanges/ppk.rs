//! Post-quantum preshared keys (RFC 8784).

use super::*;

/// A pair in which each side has the PPK of this name, as mandatory or not, and holds this key for it.
fn ppk_pair(sides: [Option<(&str, bool, &str)>; 2], prf: Prf) -> Pair {
    let mut configs = psk_configs();
    for (config, side) in configs.iter_mut().zip(sides) {
        config.ike[0].prf = vec![prf];
        config.peers[0].ppk = side.map(|(id, mandatory, _)| Ppk { id: id.into(), former: None, mandatory });
    }
    let mut p = Pair::new(configs, 7);
    for (shell, side) in p.sides.iter_mut().zip(sides) {
        shell.ppks = side.into_iter().map(|(id, _, key)| (id.into(), key.into())).collect();
    }
    p
}

/// Whether each IKE SA that a side has told of has a PPK in its keys.
fn with_ppk(p: &mut Pair, side: Side) -> Vec<bool> {
    p.take(side, |e| match e {
        Event::IkeEstablished { ppk, .. } => Some(ppk.is_some()),
        _ => None,
    })
}

#[test]
fn a_ppk_that_both_know_is_in_the_keys_and_who_has_another_or_none_is_refused() {
    const ONE: Option<(&str, bool, &str)> = Some(("the key", true, "one"));
    for prf in [Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512] {
        for (a, b, works) in [
            (ONE, ONE, true),
            (ONE, Some(("the key", true, "two")), false),
            (ONE, Some(("the key", false, "two")), false),
            (ONE, Some(("another key", true, "one")), false),
            (ONE, Some(("another key", false, "one")), false),
            (ONE, None, false),
            (None, ONE, false),
        ] {
            let mut p = ppk_pair([a, b], prf);
            let child = p.child(A, Some("SECRET"));
            p.connect(A, Some(child));
            p.run();
            let expected: &[bool] = if works { &[true] } else { &[] };
            assert_eq!((&*with_ppk(&mut p, A), &*with_ppk(&mut p, B)), (expected, expected), "{a:?} {b:?}");
            assert_eq!(p.children(B).len(), usize::from(works));
            p.assert_children_agree();
        }
    }
}

#[test]
fn a_ppk_that_is_not_mandatory_is_used_by_who_has_it_and_not_missed_in_who_has_none() {
    for has in [true, false] {
        let side = |mandatory| Some(("the key", mandatory, "one"));
        let mut p = ppk_pair([side(false).filter(|_| has), side(false)], Prf::HmacSha256);
        let child = p.child(A, Some("SECRET"));
        p.connect(A, Some(child));
        p.run();
        assert_eq!((with_ppk(&mut p, A), with_ppk(&mut p, B)), (vec![has], vec![has]));
        p.assert_children_agree();
        assert_eq!(p.children(B).len(), 1);
    }
}

#[test]
fn a_ppk_stays_in_the_keys_of_what_follows_and_a_key_exchange_before_it_too() {
    let mut p = ppk_pair([Some(("the key", true, "one")); 2], Prf::HmacSha256);
    for side in &mut p.sides {
        let mut config = psk_configs().into_iter().next().expect("two");
        config.ike[0].additional = vec![vec![KeyExchange::MlKem768]];
        config.peers = side.endpoint.config().peers.clone();
        side.endpoint = Endpoint::new(config);
    }
    let child = p.child(A, Some("SECRET"));
    let ike = p.connect(A, Some(child));
    p.run();
    assert_eq!((with_ppk(&mut p, A), with_ppk(&mut p, B)), (vec![true], vec![true]));
    p.command(A, Command::RekeyIke { ike });
    p.run();
    let child = p.child(A, Some("CONFIDENTIAL"));
    p.command(A, Command::CreateChild { ike, child });
    p.run();
    assert_eq!(p.children(A).len(), 2);
    p.assert_children_agree();
}

#[test]
fn without_keys_from_who_holds_the_ppk_there_is_no_ike_sa_and_nothing_waits_for_ever() {
    let ppk = Some(("the key", true, "one"));
    for holder in [A, B] {
        // It has none of this name.
        let mut p = ppk_pair([ppk; 2], Prf::HmacSha256);
        p.sides[holder].ppks.clear();
        p.connect(A, None);
        p.pass(Duration::from_secs(120));
        assert!(p.established(A).is_empty() && p.established(B).is_empty());
        assert!(p.closed(holder).contains(&&CloseReason::PpkNotMixed), "{:?}", p.closed(holder));
        assert!(p.sides.iter().all(|side| side.endpoint.is_empty()));
    }
    // It says nothing at all, or gives keys of another prf.
    for (side, wrong) in [(A, false), (A, true), (B, false), (B, true)] {
        let mut p = ppk_pair([ppk; 2], Prf::HmacSha256);
        p.sides[side].ppks.clear();
        p.sides[side].silent = true;
        p.connect(A, None);
        p.run();
        let asked = p.take(side, |e| match e {
            Event::MixPpk { request, .. } => Some(*request),
            _ => None,
        });
        let [request] = asked[..] else { panic!("{asked:?}") };
        if wrong {
            let short = || vec![7; 31].into();
            let keys = Some(PpkKeys { d: short(), pi: short(), pr: short() });
            p.command(side, Command::PpkMixed { request, keys });
            assert_eq!(
                p.try_command(side, Command::PpkMixed { request, keys: None }),
                Err(CommandError::NoSuchRequest)
            );
        }
        p.pass(Duration::from_secs(120));
        let reason = if wrong { CloseReason::PpkNotMixed } else { CloseReason::TimedOut };
        assert_eq!(p.closed(side), [&reason]);
        assert!(p.established(A).is_empty() && p.established(B).is_empty());
        assert!(p.sides.iter().all(|side| side.endpoint.is_empty()));
    }
}

/// Has B take the PPK before its own, or not.
fn take_former(p: &mut Pair, former: bool) {
    let mut config = psk_configs().into_iter().last().expect("two");
    config.ike[0].prf = vec![Prf::HmacSha256];
    config.peers = p.sides[B].endpoint.config().peers.clone();
    config.peers[0].ppk.as_mut().expect("it has one").former = former.then(|| b"old".to_vec());
    p.sides[B].endpoint = Endpoint::new(config);
}

#[test]
fn while_one_ppk_follows_another_either_is_taken_and_the_one_before_it_no_more_when_that_is_over() {
    const KEYS: [(&str, &str); 2] = [("old", "one"), ("new", "two")];
    let pair = |begins: &str, former: bool| {
        let mut p = ppk_pair([Some((begins, true, "")), Some(("new", true, ""))], Prf::HmacSha256);
        take_former(&mut p, former);
        for side in &mut p.sides {
            side.ppks = KEYS.map(|(id, key)| (id.into(), key.into())).into();
        }
        let child = p.child(A, Some("SECRET"));
        p.connect(A, Some(child));
        p.run();
        p
    };
    let names = |p: &mut Pair, side: Side| {
        p.take(side, |e| match e {
            Event::IkeEstablished { ppk, .. } => ppk.clone(),
            _ => None,
        })
    };
    for (begins, former, works) in
        [("old", true, true), ("new", true, true), ("new", false, true), ("old", false, false)]
    {
        let mut p = pair(begins, former);
        let expected: &[Vec<u8>] = if works { &[begins.into()] } else { &[] };
        assert_eq!((&*names(&mut p, A), &*names(&mut p, B)), (expected, expected), "{begins} {former}");
        assert_eq!(p.children(B).len(), usize::from(works));
        p.assert_children_agree();
    }
    // The name of one and the key of the other prove nothing.
    let mut p = ppk_pair([Some(("old", true, "two")), Some(("new", true, "two"))], Prf::HmacSha256);
    take_former(&mut p, true);
    p.sides[B].ppks = KEYS.map(|(id, key)| (id.into(), key.into())).into();
    p.connect(A, None);
    p.run();
    assert!(p.established(A).is_empty() && p.established(B).is_empty());
}
