//! The exchanges of RFC 7296 between two endpoints, over a wire that delivers everything.

mod pair;

use levee_ike::*;
use pair::*;
use std::net::IpAddr;
use std::time::Duration;

fn connected(child: Option<&str>) -> (Pair, IkeId, IkeId) {
    let mut p = Pair::new(psk_configs(), 7);
    let first = child.map(|l| p.child(A, Some(l)));
    p.connect(A, first);
    p.run();
    let (a, b) = (p.established(A), p.established(B));
    assert_eq!((a.len(), b.len()), (1, 1), "A {:?}, B {:?}", p.sides[A].events, p.sides[B].events);
    let (a, b) = (a[0], b[0]);
    (p, a, b)
}

#[test]
fn two_endpoints_with_a_shared_key_make_a_childless_sa() {
    let (p, ..) = connected(None);
    assert!(p.children(A).is_empty() && p.children(B).is_empty());
    assert_eq!(p.log.len(), 4, "IKE_SA_INIT and IKE_AUTH are two messages each");
}

#[test]
fn a_labelled_child_has_its_label_on_both_sides_and_a_key_exchange_of_its_own() {
    let (p, ..) = connected(Some("SECRET"));
    p.assert_children_agree();
    let c = p.children(A);
    assert_eq!(c[0].label, Some(label("SECRET")));
    assert_eq!(c[0].suite.key_exchange, Some(KeyExchange::X25519));
    assert_eq!(c[0].role, Role::Initiator);
}

#[test]
fn a_first_child_in_ike_auth_comes_where_childless_sas_are_not_wanted() {
    let mut configs = psk_configs();
    configs[0].peers[0].childless = Childless::Never;
    let mut p = Pair::new(configs, 7);
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    p.assert_children_agree();
    assert_eq!(p.children(A).len(), 1);
    assert_eq!(p.children(A)[0].suite.key_exchange, None);
    assert_eq!(p.log.len(), 4);
}

#[test]
fn aggfrag_comes_where_both_ends_want_it_and_nowhere_else() {
    for (a, b) in [(true, true), (true, false), (false, true), (false, false)] {
        for childless in [Childless::Allow, Childless::Never] {
            let mut configs = psk_configs();
            (configs[0].aggfrag, configs[1].aggfrag) = (a, b);
            configs[0].peers[0].childless = childless;
            let mut p = Pair::new(configs, 7);
            let child = p.child(A, Some("SECRET"));
            p.connect(A, Some(child));
            p.run();
            let agreed = (a && b).then_some(Aggfrag { fragments: true });
            for side in [A, B] {
                assert_eq!(p.children(side).len(), 1);
                assert_eq!(p.children(side)[0].aggfrag, agreed, "{a} {b} {childless:?}");
            }
        }
    }
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
fn an_ike_sa_has_so_many_children_and_no_more() {
    let mut configs = psk_configs();
    configs[1].limits.children = 2;
    let mut p = Pair::new(configs, 7);
    let ike = p.connect(A, None);
    p.run();
    for _ in 0..3 {
        let child = p.child(A, Some("SECRET"));
        p.command(A, Command::CreateChild { ike, child });
        p.run();
    }
    assert_eq!((p.children(A).len(), p.children(B).len()), (2, 2));
    assert_eq!(p.failed(A), [&ChildError::Notified("NO_ADDITIONAL_SAS".into())]);
    // One that goes makes room.
    let inbound = p.children(A)[0].inbound;
    p.command(A, Command::CloseChild { ike, inbound });
    let child = p.child(A, Some("SECRET"));
    p.command(A, Command::CreateChild { ike, child });
    p.run();
    assert_eq!(p.children(B).len(), 3);
}

#[test]
fn an_ike_sa_that_has_lived_its_time_says_so_once_and_its_successor_has_a_time_of_its_own() {
    let mut configs = psk_configs();
    configs[0].timers.ike_rekey = Some(Duration::from_secs(600));
    let mut p = Pair::new(configs, 7);
    let ike = p.connect(A, None);
    p.run();
    let due = |p: &mut Pair| p.take(A, |e| matches!(e, Event::IkeRekeyDue { .. }).then_some(())).len();
    p.pass(Duration::from_secs(599));
    assert_eq!(due(&mut p), 0);
    p.pass(Duration::from_secs(900));
    assert_eq!(due(&mut p), 1);
    p.command(A, Command::RekeyIke { ike });
    p.pass(Duration::from_secs(599));
    assert_eq!(due(&mut p), 1);
    p.pass(Duration::from_secs(2));
    assert_eq!(due(&mut p), 2);
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
fn a_label_that_the_responder_does_not_grant_leaves_the_ike_sa_without_the_child() {
    let (mut p, a, _) = connected(None);
    let child = p.child(A, Some("TOPSECRET"));
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    assert_eq!(p.failed(A), [&ChildError::Notified("TS_UNACCEPTABLE".into())]);
    let child = p.child(A, Some("SECRET"));
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    p.assert_children_agree();
    assert_eq!(p.children(A).len(), 1);
}

#[test]
fn a_missing_label_is_refused_where_labels_are_demanded() {
    let (mut p, a, _) = connected(None);
    p.sides[B].allowed.retain(Option::is_some);
    let child = p.child(A, None);
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    assert_eq!(p.failed(A), [&ChildError::Notified("TS_UNACCEPTABLE".into())]);
    assert!(p.children(B).is_empty());
}

#[test]
fn two_children_with_the_same_selectors_and_different_labels_live_side_by_side() {
    let (mut p, a, _) = connected(Some("SECRET"));
    let child = p.child(A, Some("CONFIDENTIAL"));
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    p.assert_children_agree();
    assert_eq!(p.children(A).len(), 2);
    assert!(p.gone(A).is_empty() && p.gone(B).is_empty());
    assert!(p.children(A)[0].outbound_keys != p.children(A)[1].outbound_keys);
}

#[test]
fn children_for_a_resource_each_live_side_by_side_until_the_peer_wants_no_more() {
    let (mut p, a, b) = connected(Some("SECRET"));
    for n in 0..4u8 {
        let mut child = p.child(A, Some("SECRET"));
        child.resource = Resource::new(&[n]);
        p.command(A, Command::CreateChild { ike: a, child });
        p.run();
    }
    p.assert_children_agree();
    let told = |p: &Pair, side| p.children(side).iter().map(|c| c.resource.clone()).collect::<Vec<_>>();
    // The first was one that nobody named a resource for; of four more the responder takes three.
    assert_eq!(
        told(&p, A),
        [None, Some(resource("there")), Some(resource("there")), Some(resource("there"))]
    );
    assert_eq!(told(&p, B), [None, Resource::new(&[0]), Resource::new(&[1]), Resource::new(&[2])]);
    assert_eq!(p.failed(A), [&ChildError::Notified("TS_MAX_QUEUE".into())]);
    assert!(p.closed(A).is_empty() && p.gone(A).is_empty());
    // A successor is for the same resource, whoever asks, and is not counted again.
    for (side, ike) in [(A, a), (B, b)] {
        let old = p.children(side)[1].inbound;
        let spi = p.spi(side);
        p.command(side, Command::RekeyChild { ike, inbound: old, spi });
        p.run();
        if side == A {
            assert_eq!(p.children(B).last().map(|c| c.resource.clone()), Some(Resource::new(&[0])));
            // B's next is the one that has just come.
            p.sides[B].events.retain(|e| !matches!(e, Event::ChildEstablished(c) if c.outbound == old));
        }
    }
    assert_eq!((p.gone(A).len(), p.gone(B).len()), (2, 2));
    assert_eq!(told(&p, A).last(), Some(&Some(resource("there"))));
}

#[test]
fn a_resource_is_told_to_no_peer_that_named_none_and_its_name_is_short() {
    let (p, ..) = connected(Some("SECRET"));
    assert!(p.children(A)[0].resource.is_none() && p.children(B)[0].resource.is_none());
    assert!(Resource::new(&[0; 64]).is_some() && Resource::new(&[0; 65]).is_none());
}

#[test]
fn the_responder_narrows_the_selectors() {
    let (mut p, a, _) = connected(None);
    p.sides[B].local = net(2);
    p.sides[B].remote = net(3);
    let child = p.child(A, Some("SECRET"));
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    p.assert_children_agree();
    assert_eq!((&p.children(A)[0].local, &p.children(A)[0].remote), (&net(3), &net(2)));
}

#[test]
fn selectors_without_anything_in_common_are_refused() {
    let (mut p, a, _) = connected(None);
    p.sides[B].local = net(2);
    let mut child = p.child(A, Some("SECRET"));
    child.remote = net(9);
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    assert_eq!(p.failed(A), [&ChildError::Notified("TS_UNACCEPTABLE".into())]);
}

#[test]
fn a_rekeyed_child_keeps_label_and_selectors_and_replaces_the_old_one() {
    for side in [A, B] {
        let (mut p, a, b) = connected(Some("SECRET"));
        let old = p.children(side)[0].inbound;
        let spi = p.spi(side);
        p.command(side, Command::RekeyChild { ike: [a, b][side], inbound: old, spi });
        p.run();
        p.assert_children_agree();
        let c = p.children(side);
        assert_eq!(c.len(), 2);
        assert_eq!((&c[1].label, &c[1].local, c[1].rekeys), (&c[0].label, &c[0].local, Some(old)));
        assert!(c[0].inbound_keys != c[1].inbound_keys);
        assert_eq!(p.gone(side), [(old, ChildClosed::Rekeyed)]);
        assert_eq!(p.gone(1 - side).len(), 1);
        assert_eq!(p.gone(1 - side)[0].1, ChildClosed::Rekeyed);
    }
}

#[test]
fn of_two_simultaneous_rekeyings_of_one_child_one_child_stays() {
    for seed in 1..40 {
        let (mut p, a, b) = connected(Some("SECRET"));
        p.rng = Seeded(seed * 7919);
        let (ia, ib) = (p.children(A)[0].inbound, p.children(B)[0].inbound);
        let (sa, sb) = (p.spi(A), p.spi(B));
        p.command(A, Command::RekeyChild { ike: a, inbound: ia, spi: sa });
        p.command(B, Command::RekeyChild { ike: b, inbound: ib, spi: sb });
        p.pass(Duration::from_secs(5));
        p.assert_children_agree();
        let live = |p: &Pair, side| {
            let gone: Vec<u32> = p.gone(side).into_iter().map(|(i, _)| i).collect();
            p.children(side)
                .into_iter()
                .filter(|c| !gone.contains(&c.inbound))
                .map(|c| (c.inbound, c.outbound))
                .collect::<Vec<_>>()
        };
        let (la, lb) = (live(&p, A), live(&p, B));
        assert_eq!((la.len(), lb.len()), (1, 1), "seed {seed}: A {la:?} B {lb:?}");
        assert_eq!((la[0].0, la[0].1), (lb[0].1, lb[0].0));
        assert_ne!(la[0].0, ia, "the old child is gone");
    }
}

#[test]
fn deleting_a_child_ends_it_on_both_sides_and_frees_its_spi() {
    let (mut p, a, _) = connected(Some("SECRET"));
    let old = p.children(A)[0].inbound;
    p.command(A, Command::CloseChild { ike: a, inbound: old });
    p.run();
    assert_eq!(p.gone(A), [(old, ChildClosed::Local)]);
    assert_eq!(p.gone(B)[0].1, ChildClosed::Peer);
    let mut child = p.child(A, Some("SECRET"));
    child.spi = old;
    p.command(A, Command::CreateChild { ike: a, child });
    p.run();
    assert_eq!(p.children(A).len(), 2);
}

#[test]
fn a_child_deleted_by_both_sides_at_once_is_gone_once() {
    let (mut p, a, b) = connected(Some("SECRET"));
    let (ia, ib) = (p.children(A)[0].inbound, p.children(B)[0].inbound);
    p.command(A, Command::CloseChild { ike: a, inbound: ia });
    p.command(B, Command::CloseChild { ike: b, inbound: ib });
    p.run();
    assert_eq!((p.gone(A).len(), p.gone(B).len()), (1, 1));
}

#[test]
fn rekeying_the_ike_sa_keeps_its_children_and_its_name() {
    for side in [A, B] {
        let (mut p, a, b) = connected(Some("SECRET"));
        p.command(side, Command::RekeyIke { ike: [a, b][side] });
        p.run();
        for s in [A, B] {
            assert!(p.sides[s].events.iter().any(|e| matches!(e, Event::IkeRekeyed { .. })));
            assert!(p.closed(s).is_empty());
            assert_eq!(p.sides[s].endpoint.len(), 1, "the old IKE SA is gone");
        }
        let old = p.children(A)[0].inbound;
        let spi = p.spi(A);
        p.command(A, Command::RekeyChild { ike: a, inbound: old, spi });
        let child = p.child(B, Some("CONFIDENTIAL"));
        p.command(B, Command::CreateChild { ike: b, child });
        p.pass(Duration::from_secs(3));
        p.assert_children_agree();
        assert_eq!(p.children(A).len(), 3);
    }
}

#[test]
fn of_two_simultaneous_rekeyings_of_the_ike_sa_one_has_the_children() {
    let mut winners = [0, 0];
    for seed in 1..24 {
        let (mut p, a, b) = connected(Some("SECRET"));
        p.rng = Seeded(seed * 104_729);
        p.command(A, Command::RekeyIke { ike: a });
        p.command(B, Command::RekeyIke { ike: b });
        // No time passes: the two cross, and nobody has to try again.
        p.run();
        for s in [A, B] {
            let rekeyed = p.take(s, |e| matches!(e, Event::IkeRekeyed { .. }).then_some(()));
            assert_eq!((rekeyed.len(), p.sides[s].endpoint.len()), (1, 1), "seed {seed}, side {s}");
            assert!(p.closed(s).is_empty() && p.gone(s).is_empty());
        }
        // Who won is seen by who is the original initiator of the SA that is left.
        p.log.clear();
        p.command(A, Command::Probe { ike: a });
        p.run();
        let a_began = p.log[0].1[4 + 19] & 8 != 0;
        winners[usize::from(!a_began)] += 1;
        let (ia, ib) = (p.children(A)[0].inbound, p.children(B)[0].inbound);
        let spi = p.spi(B);
        p.command(B, Command::RekeyChild { ike: b, inbound: ib, spi });
        p.run();
        p.assert_children_agree();
        assert_eq!(p.gone(A), [(ia, ChildClosed::Rekeyed)]);
        p.command(A, Command::CloseIke { ike: a });
        p.run();
        assert_eq!((p.closed(A).len(), p.closed(B).len()), (1, 1));
    }
    assert!(winners.iter().all(|n| *n > 0), "the nonces decide, not the roles: {winners:?}");
}

#[test]
fn of_two_crossing_rekeyings_of_the_ike_sa_one_wins_whatever_is_lost() {
    for seed in 1..60 {
        let (mut p, a, b) = connected(Some("SECRET"));
        p.rng = Seeded(seed * 104_729);
        let mut dice = Seeded(seed * 37 + 1);
        p.command(A, Command::RekeyIke { ike: a });
        p.command(B, Command::RekeyIke { ike: b });
        for _ in 0..40 {
            p.run_with(|_| {
                let mut byte = [0];
                dice.fill(&mut byte);
                [0, 0, 1, 2][usize::from(byte[0] % 4)]
            });
            p.time += Duration::from_millis(700);
        }
        p.pass(Duration::from_secs(400));
        for s in [A, B] {
            assert_eq!(p.sides[s].endpoint.len(), 1, "seed {seed}, side {s}");
            assert!(p.closed(s).is_empty() && p.gone(s).is_empty(), "seed {seed}: {:?}", p.closed(s));
        }
        let child = p.child(B, Some("CONFIDENTIAL"));
        p.command(B, Command::CreateChild { ike: b, child });
        p.pass(Duration::from_secs(2));
        p.assert_children_agree();
        assert_eq!(p.children(A).len(), 2, "seed {seed}");
    }
}

#[test]
fn closing_the_ike_sa_takes_its_children_with_it() {
    let (mut p, a, _) = connected(Some("SECRET"));
    p.command(A, Command::CloseIke { ike: a });
    p.run();
    assert_eq!(p.closed(A), [&CloseReason::Local]);
    assert_eq!(p.closed(B), [&CloseReason::Peer]);
    assert!(p.sides[A].endpoint.is_empty() && p.sides[B].endpoint.is_empty());
    assert_eq!(p.try_command(A, Command::Probe { ike: a }), Err(CommandError::NoSuchIke));
}

#[test]
fn a_silent_peer_is_noticed_by_liveness_and_the_sa_ends() {
    let (mut p, ..) = connected(Some("SECRET"));
    // From now on nothing arrives.
    for _ in 0..200 {
        p.drain(A);
        p.wire.clear();
        p.time += Duration::from_secs(1);
    }
    assert_eq!(p.closed(A), [&CloseReason::PeerSilent]);
}

#[test]
fn a_living_peer_answers_probes_for_ever() {
    let (mut p, ..) = connected(Some("SECRET"));
    p.pass(Duration::from_secs(1000));
    assert!(p.closed(A).is_empty() && p.closed(B).is_empty());
}

#[test]
fn lost_messages_are_sent_again_and_duplicates_change_nothing() {
    for seed in 0u64..60 {
        let mut p = Pair::new(psk_configs(), seed + 3);
        let child = p.child(A, Some("SECRET"));
        p.connect(A, Some(child));
        let mut dice = Seeded(seed * 31 + 5);
        for _ in 0..60 {
            p.run_with(|_| {
                let mut b = [0];
                dice.fill(&mut b);
                match b[0] % 4 {
                    0 => 0,
                    1 => 2,
                    _ => 1,
                }
            });
            p.time += Duration::from_millis(500);
        }
        p.pass(Duration::from_secs(1));
        p.assert_children_agree();
        assert_eq!(p.children(A).len(), 1, "seed {seed}: {:?}", p.sides[A].events);
    }
}

#[test]
fn loss_and_duplicates_do_not_hinder_additional_key_exchanges() {
    for seed in 0u64..30 {
        let mut configs = psk_configs();
        for c in &mut configs {
            c.ike[0].additional = vec![vec![KeyExchange::MlKem768]];
            c.limits.fragment_above = 600;
            c.timers.half_open = Duration::from_secs(300);
        }
        let mut p = Pair::new(configs, seed + 3);
        p.connect(A, None);
        let mut dice = Seeded(seed * 77 + 5);
        for _ in 0..80 {
            p.run_with(|_| {
                let mut b = [0];
                dice.fill(&mut b);
                [0, 0, 2, 2, 1, 1, 1, 1][usize::from(b[0] % 8)]
            });
            p.time += Duration::from_millis(500);
        }
        p.pass(Duration::from_secs(250));
        assert_eq!(
            (p.established(A).len(), p.established(B).len()),
            (1, 1),
            "seed {seed}: {:?}",
            p.closed(A)
        );
    }
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
fn a_responder_that_wants_another_group_gets_it() {
    let mut configs = psk_configs();
    configs[1].ike[0].key_exchange = vec![KeyExchange::P384];
    configs[1].child[0].key_exchange = vec![KeyExchange::P256];
    let mut p = Pair::new(configs, 7);
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    p.assert_children_agree();
    assert_eq!(p.children(A)[0].suite.key_exchange, Some(KeyExchange::P256));
}

#[test]
fn no_common_algorithm_fails_with_the_peers_reason() {
    let mut configs = psk_configs();
    configs[1].ike[0].encryption = vec![Encryption::ChaCha20Poly1305];
    configs[0].ike[0].encryption = vec![Encryption::Aes256Gcm16];
    let mut p = Pair::new(configs, 7);
    p.connect(A, None);
    p.pass(Duration::from_secs(3));
    assert_eq!(p.closed(A), [&CloseReason::Notified("NO_PROPOSAL_CHOSEN".into())]);
    assert!(p.sides[B].endpoint.is_empty());
}

#[test]
fn every_suite_works() {
    use Encryption::*;
    for (encryption, integrity) in [
        (Aes128Gcm16, None),
        (Aes256Gcm16, None),
        (ChaCha20Poly1305, None),
        (Aes128Cbc, Some(Integrity::HmacSha256)),
        (Aes256Cbc, Some(Integrity::HmacSha512)),
    ] {
        for prf in [Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512] {
            for ke in [KeyExchange::P256, KeyExchange::P384, KeyExchange::X25519, KeyExchange::MlKem768] {
                let mut configs = psk_configs();
                for c in &mut configs {
                    c.ike[0].encryption = vec![encryption];
                    c.ike[0].integrity = integrity.into_iter().collect();
                    c.ike[0].prf = vec![prf];
                    c.ike[0].key_exchange = vec![ke];
                    c.child[0].encryption = vec![encryption];
                    c.child[0].integrity = integrity.into_iter().collect();
                }
                let mut p = Pair::new(configs, 7);
                let child = p.child(A, Some("SECRET"));
                p.connect(A, Some(child));
                p.run();
                p.assert_children_agree();
                assert_eq!(p.children(A).len(), 1, "{encryption:?} {prf:?} {ke:?}");
            }
        }
    }
}

#[test]
fn an_additional_post_quantum_key_exchange_is_mixed_in() {
    let mut configs = psk_configs();
    for c in &mut configs {
        c.ike[0].additional = vec![vec![KeyExchange::MlKem768], vec![KeyExchange::MlKem1024]];
    }
    let mut p = Pair::new(configs, 7);
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    p.assert_children_agree();
    assert_eq!(p.children(A).len(), 1);
    let suites: Vec<_> = p.take(A, |e| match e {
        Event::IkeEstablished { suite, .. } => Some(suite.additional.clone()),
        _ => None,
    });
    assert_eq!(suites, [vec![(0, KeyExchange::MlKem768), (1, KeyExchange::MlKem1024)]]);
}

#[test]
fn rekeyings_of_the_ike_sa_repeat_its_additional_key_exchanges() {
    let additional = vec![vec![KeyExchange::MlKem768], vec![KeyExchange::P256]];
    for seed in 0..20 {
        let mut configs = psk_configs();
        for c in &mut configs {
            c.ike[0].additional = additional.clone();
            c.timers.half_open = Duration::from_secs(300);
        }
        let mut p = Pair::new(configs, seed + 3);
        let child = p.child(A, Some("SECRET"));
        let a = p.connect(A, Some(child));
        p.run();
        let b = p.established(B)[0];
        p.log.clear();
        let side = usize::from(seed % 2 == 1);
        p.command(side, Command::RekeyIke { ike: [a, b][side] });
        if seed > 5 {
            // Both, and a network that loses a third: one comes through.
            p.command(1 - side, Command::RekeyIke { ike: [b, a][side] });
            let mut dice = Seeded(seed * 71 + 9);
            for _ in 0..60 {
                p.run_with(|_| {
                    let mut byte = [0];
                    dice.fill(&mut byte);
                    [0, 0, 1, 1, 1, 2][usize::from(byte[0] % 6)]
                });
                p.time += Duration::from_millis(700);
            }
            p.pass(Duration::from_secs(900));
        } else {
            p.run();
            // Large messages go in fragments: what tells them apart is flags and message ID.
            let followups: std::collections::BTreeSet<_> = p
                .log
                .iter()
                .filter(|(_, d)| d[4 + 18] == 44)
                .map(|(_, d)| d[4 + 19..4 + 24].to_vec())
                .collect();
            assert_eq!(followups.len(), 4, "two exchanges of IKE_FOLLOWUP_KE");
        }
        for s in [A, B] {
            let suites = p.take(s, |e| match e {
                Event::IkeRekeyed { suite, .. } => Some(suite.additional.clone()),
                _ => None,
            });
            assert!(!suites.is_empty(), "seed {seed}");
            for suite in suites {
                assert_eq!(suite, [(0, KeyExchange::MlKem768), (1, KeyExchange::P256)]);
            }
            assert_eq!(p.sides[s].endpoint.len(), 1, "seed {seed}: one IKE SA is left");
            assert!(p.closed(s).is_empty(), "seed {seed}: {:?}", p.closed(s));
        }
        let child = p.child(B, Some("CONFIDENTIAL"));
        p.command(B, Command::CreateChild { ike: b, child });
        p.pass(Duration::from_secs(2));
        p.assert_children_agree();
        assert_eq!(p.children(A).len(), 2);
    }
}

/// A pair in which each side has the PPK of this name, as mandatory or not, and holds this key for it.
fn ppk_pair(sides: [Option<(&str, bool, &str)>; 2], prf: Prf) -> Pair {
    let mut configs = psk_configs();
    for (config, side) in configs.iter_mut().zip(sides) {
        config.ike[0].prf = vec![prf];
        config.peers[0].ppk = side.map(|(id, mandatory, _)| Ppk { id: id.into(), mandatory });
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
        Event::IkeEstablished { ppk, .. } => Some(*ppk),
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

#[test]
fn an_address_is_assigned_to_who_asks() {
    let mut configs = psk_configs();
    configs[0].peers[0].childless = Childless::Never;
    let mut p = Pair::new(configs, 7);
    let (four, six): ([IpAddr; 2], [IpAddr; 2]) = (
        [[10, 9, 8, 7].into(), [10, 9, 8, 1].into()],
        [[0xfd00, 9, 0, 0, 0, 0, 8, 7].into(), [0xfd00, 9, 0, 0, 0, 0, 8, 1].into()],
    );
    let wide: IpAddr = [0_u16; 8].into();
    for (n, given) in [vec![four], vec![six], vec![four, six], vec![]].into_iter().enumerate() {
        let assign: Vec<_> = given
            .iter()
            .flat_map(|[address, dns]| [InnerAddress::Address(*address), InnerAddress::Dns(*dns)])
            .collect();
        let hosts: Vec<_> = given.iter().map(|[address, _]| Selector::host(*address)).collect();
        p.sides[B].assign = assign.clone();
        p.sides[B].remote = if hosts.is_empty() { any() } else { hosts.clone() };
        for asks in [true, false] {
            let mut child = p.child(A, Some("SECRET"));
            child.local.extend(Selector::subnet(wide, 0));
            child.want_address = asks;
            p.connect(A, Some(child));
            p.run();
            let got = p.take(A, |e| match e {
                Event::IkeEstablished { assigned, .. } => Some(assigned.clone()),
                _ => None,
            });
            assert_eq!(got.last(), Some(&if asks { assign.clone() } else { vec![] }), "{given:?} {asks}");
            let local = &p.children(A).last().expect("a child").local;
            assert_eq!(*local, if hosts.is_empty() { any() } else { hosts.clone() }, "{n}");
        }
    }
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
