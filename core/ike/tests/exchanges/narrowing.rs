//! IKE SAs whose keys may be replaced by less than the configuration has.

use super::*;

/// What levee's servers have: both with ML-KEM and without.
fn configs() -> [Config; 2] {
    let mut configs = psk_configs();
    let hybrid = |proposal: &IkeProposal| IkeProposal {
        additional: vec![vec![KeyExchange::MlKem768]],
        ..proposal.clone()
    };
    configs[B].ike = vec![hybrid(&configs[B].ike[0]), configs[B].ike[0].clone()];
    configs[A].ike = configs[B].ike.clone();
    configs
}

fn narrowed(key_exchange: KeyExchange, additional: Vec<Vec<KeyExchange>>) -> Option<Vec<IkeProposal>> {
    Some(vec![IkeProposal { key_exchange: vec![key_exchange], additional, ..IkeProposal::default() }])
}

/// What an IKE SA was rekeyed by, each time.
fn rekeyed(p: &mut Pair, side: Side) -> Vec<(KeyExchange, usize)> {
    p.take(side, |event| match event {
        Event::IkeRekeyed { suite, .. } => Some((suite.key_exchange, suite.additional.len())),
        _ => None,
    })
}

#[test]
fn an_ike_sa_that_is_narrowed_is_rekeyed_to_what_is_left_by_either_side_and_back() {
    for side in [A, B] {
        let mut p = Pair::new(configs(), 7);
        let child = p.child(A, Some("SECRET"));
        let a = p.connect(A, Some(child));
        p.run();
        let b = p.established(B)[0];
        let proposals = narrowed(KeyExchange::P384, vec![vec![KeyExchange::MlKem768]]);
        p.command(B, Command::NarrowIke { ike: b, proposals });
        assert!(rekeyed(&mut p, B).is_empty(), "what it has stays");
        // Its successors are as narrow as it was.
        for n in 1..=2 {
            p.command(side, Command::RekeyIke { ike: [a, b][side] });
            p.run();
            assert_eq!(rekeyed(&mut p, B), vec![(KeyExchange::P384, 1); n], "side {side}");
            assert_eq!(rekeyed(&mut p, A), vec![(KeyExchange::P384, 1); n], "side {side}");
        }
        p.command(B, Command::NarrowIke { ike: b, proposals: narrowed(KeyExchange::X25519, vec![]) });
        p.command(B, Command::RekeyIke { ike: b });
        p.run();
        assert_eq!(rekeyed(&mut p, A).last(), Some(&(KeyExchange::X25519, 0)));
        p.command(B, Command::NarrowIke { ike: b, proposals: None });
        p.command(A, Command::RekeyIke { ike: a });
        p.run();
        assert_eq!(rekeyed(&mut p, B).last(), Some(&(KeyExchange::X25519, 1)));
        assert_eq!((p.sides[A].endpoint.len(), p.sides[B].endpoint.len()), (1, 1));
        assert!(p.closed(A).is_empty() && p.gone(A).is_empty(), "its children stay");
    }
}

#[test]
fn a_peer_that_has_nothing_of_it_keeps_its_ike_sa_as_it_is_and_who_asked_hears_of_it() {
    let mut configs = configs();
    configs[A].ike = vec![IkeProposal::default()];
    let mut p = Pair::new(configs, 7);
    let child = p.child(A, Some("SECRET"));
    let a = p.connect(A, Some(child));
    p.run();
    let b = p.established(B)[0];
    let proposals = narrowed(KeyExchange::X25519, vec![vec![KeyExchange::MlKem768]]);
    p.command(B, Command::NarrowIke { ike: b, proposals });
    let refused = |p: &mut Pair, side| {
        p.take(side, |event| match event {
            Event::IkeNotRekeyed { reason, .. } => Some(reason.clone()),
            _ => None,
        })
    };
    for (side, ike) in [(B, b), (A, a)] {
        p.command(side, Command::RekeyIke { ike });
        p.run();
        assert_eq!(refused(&mut p, side), ["NO_PROPOSAL_CHOSEN"], "{side}");
    }
    assert!(rekeyed(&mut p, A).is_empty() && rekeyed(&mut p, B).is_empty());
    assert!(p.closed(A).is_empty() && p.gone(A).is_empty());
    // Narrowed to nothing it could not live on.
    let nothing = Command::NarrowIke { ike: b, proposals: Some(Vec::new()) };
    assert_eq!(p.try_command(B, nothing), Err(CommandError::Impossible));
}

/// The two may cross: what was offered before is what the answer is held to, and the IKE SA lives on.
#[test]
fn an_ike_sa_that_is_narrowed_while_it_is_rekeyed_lives_and_is_rekeyed_again() {
    for seed in 1..12 {
        let mut p = Pair::new(configs(), 7 * seed);
        let child = p.child(A, Some("SECRET"));
        let a = p.connect(A, Some(child));
        p.run();
        let b = p.established(B)[0];
        // Both rekey it; nothing has arrived yet when it is narrowed.
        p.command(B, Command::RekeyIke { ike: b });
        if seed % 2 == 0 {
            p.command(A, Command::RekeyIke { ike: a });
        }
        p.drain(A);
        p.drain(B);
        let proposals = narrowed(KeyExchange::P384, vec![vec![KeyExchange::MlKem768]]);
        p.command(B, Command::NarrowIke { ike: b, proposals });
        p.command(B, Command::RekeyIke { ike: b });
        p.pass(Duration::from_secs(10));
        assert_eq!(rekeyed(&mut p, B).last(), Some(&(KeyExchange::P384, 1)), "seed {seed}");
        assert!(p.closed(A).is_empty() && p.closed(B).is_empty() && p.gone(A).is_empty(), "seed {seed}");
        assert_eq!((p.sides[A].endpoint.len(), p.sides[B].endpoint.len()), (1, 1), "seed {seed}");
    }
}

#[test]
fn a_child_that_is_put_off_is_asked_for_again_and_made_by_the_key_exchange_that_its_label_is_narrowed_to() {
    let (mut p, a, _) = connected(None);
    p.sides[B].later = 2;
    p.sides[B].endpoint.narrow(label("SECRET"), &[Encryption::Aes256Gcm16], Some(&[KeyExchange::P384]));
    let child = p.child(A, Some("SECRET"));
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    assert!(p.children(A).is_empty() && p.failed(A).is_empty(), "put off, and not refused");
    p.pass(Duration::from_secs(5));
    p.assert_children_agree();
    assert_eq!(p.children(A).len(), 1);
    assert_eq!(p.children(B)[0].suite.key_exchange, Some(KeyExchange::P384));
    // In the first exchange too: the IKE SA stays, and its child comes later.
    let mut configs = psk_configs();
    configs[A].peers[0].childless = Childless::Never;
    let mut p = Pair::new(configs, 7);
    p.sides[B].later = 1;
    let child = p.child(A, Some("SECRET"));
    let a = p.connect(A, Some(child));
    p.run();
    assert_eq!((p.established(A).len(), p.children(A).len(), p.failed(A).len()), (1, 0, 1));
    let child = p.child(A, Some("SECRET"));
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    p.assert_children_agree();
}

#[test]
fn what_is_proposed_from_now_on_is_what_the_next_ike_sa_has() {
    let mut p = Pair::new(psk_configs(), 7);
    let only = |key_exchange| vec![IkeProposal { key_exchange, ..IkeProposal::default() }];
    // The first of what one prefers is asked for with INVALID_KE_PAYLOAD.
    p.sides[B].endpoint.propose(only(vec![KeyExchange::P384, KeyExchange::X25519]));
    p.connect(A, None);
    p.run();
    let suites = p.take(A, |event| match event {
        Event::IkeEstablished { suite, .. } => Some(suite.key_exchange),
        _ => None,
    });
    assert_eq!(suites, [KeyExchange::P384]);
}

/// Messages of an exchange that one side has sent.
fn sent(p: &Pair, side: Side, exchange: u8) -> usize {
    p.log.iter().filter(|(from, datagram)| *from == side && datagram[4 + 18] == exchange).count()
}

const CREATE_CHILD_SA: u8 = 36;
const IKE_FOLLOWUP_KE: u8 = 44;

#[test]
fn whichever_of_two_rekeyings_that_cross_is_kept_what_was_narrowed_stays_narrow() {
    let mut kept = [0; 2];
    for seed in 1..16 {
        let mut p = Pair::new(psk_configs(), 11 * seed);
        let child = p.child(A, Some("SECRET"));
        let a = p.connect(A, Some(child));
        p.run();
        let b = p.established(B)[0];
        p.command(B, Command::NarrowIke { ike: b, proposals: narrowed(KeyExchange::X25519, vec![]) });
        p.log.clear();
        p.command(A, Command::RekeyIke { ike: a });
        p.command(B, Command::RekeyIke { ike: b });
        p.run();
        // Each asks once, and answers once.
        assert_eq!((sent(&p, A, CREATE_CHILD_SA), sent(&p, B, CREATE_CHILD_SA)), (2, 2), "seed {seed}");
        assert_eq!((rekeyed(&mut p, A).len(), rekeyed(&mut p, B).len()), (1, 1), "seed {seed}");
        // The peer prefers another curve from now on, and has it not.
        p.sides[A].endpoint.propose(vec![IkeProposal {
            key_exchange: vec![KeyExchange::P384, KeyExchange::X25519],
            ..IkeProposal::default()
        }]);
        p.log.clear();
        p.command(A, Command::RekeyIke { ike: a });
        p.run();
        // Who began the IKE SA says so in each message over it.
        kept[if p.log[0].1[4 + 19] & 8 != 0 { A } else { B }] += 1;
        assert_eq!(rekeyed(&mut p, B)[1..], [(KeyExchange::X25519, 0)], "seed {seed}");
        p.sides[A]
            .endpoint
            .propose(vec![IkeProposal { key_exchange: vec![KeyExchange::P384], ..IkeProposal::default() }]);
        p.command(A, Command::RekeyIke { ike: a });
        p.pass(Duration::from_secs(10));
        assert_eq!(rekeyed(&mut p, B).len(), 2, "seed {seed}: it is narrow still");
        assert_eq!((p.sides[A].endpoint.len(), p.sides[B].endpoint.len()), (1, 1), "seed {seed}");
    }
    assert!(kept[A] > 0 && kept[B] > 0, "either is kept: {kept:?}");
}

/// Who forgets a series before it is whole has the whole tried again, a few times; then who asked hears of it.
#[test]
fn a_peer_that_knows_no_series_each_time_keeps_its_ike_sa_as_it_is_and_who_asked_hears_of_it() {
    let mut configs = configs();
    configs[A].timers.half_open = Duration::from_millis(300);
    let mut p = Pair::new(configs, 7);
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    let b = p.established(B)[0];
    p.log.clear();
    p.command(B, Command::RekeyIke { ike: b });
    let refused = |p: &mut Pair| {
        p.take(B, |event| match event {
            Event::IkeNotRekeyed { reason, .. } => Some(reason.clone()),
            _ => None,
        })
    };
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        // Each is lost at first, and comes when its peer has forgotten it.
        p.run_with(|datagram| {
            usize::from(datagram[4 + 18] != IKE_FOLLOWUP_KE || !seen.insert(datagram.to_vec()))
        });
        if !refused(&mut p).is_empty() {
            break;
        }
        p.time = [p.drain(A), p.drain(B)].into_iter().flatten().min().expect("it is tried again");
    }
    assert_eq!(refused(&mut p), ["STATE_NOT_FOUND"]);
    assert_eq!(sent(&p, B, CREATE_CHILD_SA), 9, "the first time, and eight times more");
    assert!(rekeyed(&mut p, A).is_empty() && rekeyed(&mut p, B).is_empty());
    assert!(p.closed(A).is_empty() && p.gone(A).is_empty(), "what it has stays");
}
