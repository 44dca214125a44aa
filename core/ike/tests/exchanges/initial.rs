//! IKE_SA_INIT and IKE_AUTH (RFC 7296 1.2), and what each side knows of IKE SAs before.

use super::*;

#[test]
fn two_endpoints_with_a_shared_key_make_a_childless_sa() {
    let (p, ..) = connected(None);
    assert!(p.children(A).is_empty() && p.children(B).is_empty());
    assert_eq!(p.log.len(), 4, "IKE_SA_INIT and IKE_AUTH are two messages each");
}

#[test]
fn a_host_that_forces_childless_sas_gives_no_child_in_ike_auth() {
    let mut configs = psk_configs();
    configs[0].peers[0].childless = Childless::Never;
    configs[1].peers[0].childless = Childless::Force;
    let mut p = Pair::new(configs, 7);
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    assert_eq!(p.established(A).len(), 1);
    assert_eq!(p.failed(A), [&ChildError::Notified("NO_PROPOSAL_CHOSEN".into())]);
    assert!(p.children(B).is_empty());
}

#[test]
fn who_wants_a_childless_sa_has_none_with_a_peer_that_knows_of_none() {
    for (ours, child) in
        [(Childless::Force, Some("SECRET")), (Childless::Force, None), (Childless::Allow, None)]
    {
        let mut configs = psk_configs();
        configs[0].peers[0].childless = ours;
        configs[1].peers[0].childless = Childless::Never;
        let mut p = Pair::new(configs, 7);
        let child = child.map(|l| p.child(A, Some(l)));
        p.connect(A, child);
        p.run();
        let reason = CloseReason::Authentication("the peer does not support childless IKE SAs");
        assert_eq!(p.closed(A), [&reason], "{ours:?}");
        assert!(p.established(B).is_empty() && p.children(B).is_empty());
    }
}

#[test]
fn another_shared_key_establishes_nothing() {
    let mut configs = psk_configs();
    configs[1].peers[0] = psk_peer("b.test", "a.test", b"another");
    let mut p = Pair::new(configs, 7);
    p.connect(A, None);
    p.run();
    assert_eq!(p.closed(A), [&CloseReason::Notified("AUTHENTICATION_FAILED".into())]);
    assert_eq!(p.closed(B), [&CloseReason::Authentication("the shared key differs")]);
    assert!(p.sides[A].endpoint.is_empty() && p.sides[B].endpoint.is_empty());
}

#[test]
fn an_sa_given_up_before_it_was_made_frees_its_childs_spi() {
    let mut p = Pair::new(psk_configs(), 7);
    let child = p.child(A, Some("SECRET"));
    let ike = p.connect(A, Some(child.clone()));
    p.command(A, Command::CloseIke { ike });
    p.drain(A);
    p.wire.clear();
    p.connect(A, Some(child));
    p.run();
    assert_eq!(p.children(A).len(), 1);
}

#[test]
fn nothing_secret_is_printed() {
    let (p, ..) = connected(Some("SECRET"));
    let text = format!("{:?} {:?}", p.sides[A].endpoint, p.sides[A].events);
    let child = p.children(A)[0];
    for secret in
        [&b"a shared key of some length"[..], &child.inbound_keys.encryption, &child.outbound_keys.encryption]
    {
        let as_list = format!("{secret:?}");
        assert!(!text.contains(as_list.trim_matches(['[', ']'])));
    }
    assert!(text.contains("Secret(..)"));
}

#[test]
fn the_first_ike_sa_with_a_peer_says_that_it_is_and_no_other_does() {
    let (mut p, ..) = connected(None);
    // Whoever began: what counts is whether there is one.
    for side in [A, B] {
        p.connect(side, None);
        p.run();
    }
    let told = |p: &mut Pair, side| {
        p.take(side, |e| match e {
            Event::IkeEstablished { role: Role::Responder, initial_contact, .. } => Some(*initial_contact),
            _ => None,
        })
    };
    assert_eq!((told(&mut p, B), told(&mut p, A)), (vec![true, false], vec![false]));
    let numbers: std::collections::BTreeSet<u64> = p.established(A).iter().map(|ike| ike.number()).collect();
    assert_eq!(numbers.len(), 3, "each has a number of its own for the log");
    for ike in p.established(A) {
        p.command(A, Command::CloseIke { ike });
    }
    p.run();
    p.connect(B, None);
    p.run();
    assert_eq!(told(&mut p, A), [false, true]);
}

#[test]
fn an_ike_sa_that_the_peer_has_no_more_is_forgotten_at_once_and_without_a_word() {
    let (mut p, a, _) = connected(Some("SECRET"));
    let inbound = p.children(A)[0].inbound;
    // Whatever is under way and to come.
    let child = p.child(A, Some("CONFIDENTIAL"));
    p.command(A, Command::CreateChild { ike: a, child: child.clone() });
    p.command(A, Command::RekeyIke { ike: a });
    p.drain(A);
    p.wire.clear();
    p.log.clear();
    p.command(A, Command::ForgetIke { ike: a });
    p.pass(Duration::from_secs(20));
    assert!(p.log.iter().all(|(side, _)| *side == B) && p.sides[A].endpoint.is_empty());
    let told = p.take(A, |e| match e {
        Event::IkeClosed { ike, reason, children } => Some((*ike, reason.clone(), children.clone())),
        _ => None,
    });
    assert_eq!(told, [(a, CloseReason::Local, vec![inbound])]);
    assert_eq!(p.try_command(A, Command::ForgetIke { ike: a }), Err(CommandError::NoSuchIke));
    // The SPIs are free again.
    p.connect(A, Some(child));
    p.run();
    assert_eq!(p.children(A).len(), 2);
}

#[test]
fn two_hosts_that_force_childless_sas_make_each_child_with_a_key_exchange_of_its_own() {
    let mut configs = psk_configs();
    for config in &mut configs {
        config.peers[0].childless = Childless::Force;
    }
    let mut p = Pair::new(configs, 7);
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    p.assert_children_agree();
    assert_eq!((p.established(A).len(), p.children(A).len(), p.log.len()), (1, 1, 6));
    assert!(p.children(A)[0].suite.key_exchange.is_some());
}
