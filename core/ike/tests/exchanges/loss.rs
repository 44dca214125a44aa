//! What is lost or comes twice, and peers that say nothing any more.

use super::*;

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
