//! Rekeying of child and IKE SAs, from one side and from both (RFC 7296 2.8).

use super::*;

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

#[test]
fn a_label_that_is_narrowed_is_rekeyed_to_what_is_left_by_either_side_and_others_keep_theirs() {
    let suites = |p: &Pair| p.children(B).iter().map(|child| child.suite.encryption).collect::<Vec<_>>();
    for side in [A, B] {
        let (mut p, a, b) = connected(Some("SECRET"));
        assert_eq!(suites(&p), [Encryption::Aes256Gcm16]);
        let label = SecurityLabel::new(b"SECRET").unwrap();
        p.sides[B].endpoint.narrow(label, &[Encryption::ChaCha20Poly1305], None);
        let (ia, ib) = (p.children(A)[0].inbound, p.children(B)[0].inbound);
        let spi = p.spi(side);
        p.command(side, Command::RekeyChild { ike: [a, b][side], inbound: [ia, ib][side], spi });
        p.run();
        p.assert_children_agree();
        assert_eq!(suites(&p).last(), Some(&Encryption::ChaCha20Poly1305), "side {side}");
        // Another label is as before.
        let child = p.child(A, Some("CONFIDENTIAL"));
        p.command(A, Command::CreateChild { ike: a, child });
        p.run();
        assert_eq!(suites(&p).last(), Some(&Encryption::Aes256Gcm16), "side {side}");
    }
}

#[test]
fn a_peer_that_has_nothing_of_what_a_label_is_narrowed_to_keeps_its_child_and_gets_no_other() {
    let mut configs = psk_configs();
    configs[A].child[0].encryption = vec![Encryption::Aes256Gcm16];
    let mut p = Pair::new(configs, 7);
    let child = p.child(A, Some("SECRET"));
    let a = p.connect(A, Some(child));
    p.run();
    let label = SecurityLabel::new(b"SECRET").unwrap();
    p.sides[B].endpoint.narrow(label.clone(), &[Encryption::ChaCha20Poly1305], None);
    let inbound = p.children(A)[0].inbound;
    let spi = p.spi(A);
    p.command(A, Command::RekeyChild { ike: a, inbound, spi });
    p.run();
    assert_eq!(p.children(A).len(), 1);
    // Nothing at all is left: nothing is agreed.
    p.sides[B].endpoint.narrow(label, &[], None);
    let spi = p.spi(A);
    p.command(A, Command::RekeyChild { ike: a, inbound, spi });
    p.run();
    assert_eq!(p.children(A).len(), 1);
}

#[test]
fn who_rekeys_faster_than_it_deletes_is_put_off_and_others_are_not() {
    let (mut p, a, _) = connected(Some("SECRET"));
    // Others of this endpoint are no kin.
    for _ in 0..8 {
        p.connect(A, None);
        p.run();
    }
    assert_eq!(p.sides[B].endpoint.len(), 9);
    let rekeyed = |p: &mut Pair| p.take(B, |e| matches!(e, Event::IkeRekeyed { .. }).then_some(())).len();
    for n in 1..=9 {
        p.command(A, Command::RekeyIke { ike: a });
        // No deletion arrives (INFORMATIONAL is exchange 37).
        p.run_with(|datagram| usize::from(datagram[4 + 18] != 37));
        // The one that it has, and five more.
        assert_eq!((rekeyed(&mut p), p.sides[B].endpoint.len()), (n.min(5), 9 + n.min(5)), "{n}");
    }
}
