//! Whatever arrives: no panic, nothing kept beyond the bounds, and those who are well stay well.

mod pair;

use levee_ike::*;
use pair::*;
use std::net::SocketAddr;
use std::time::Duration;

/// Every datagram of a rich conversation, by sender.
fn conversation() -> Vec<(Side, Vec<u8>)> {
    let mut configs = psk_configs();
    for c in &mut configs {
        c.limits.fragment_above = 300;
    }
    let mut p = Pair::new(configs, 99);
    let child = p.child(A, Some("SECRET"));
    let ike = p.connect(A, Some(child));
    p.run();
    let (inbound, spi) = (p.children(A)[0].inbound, p.spi(A));
    p.command(A, Command::RekeyChild { ike, inbound, spi });
    p.run();
    p.command(A, Command::RekeyIke { ike });
    p.run();
    p.command(A, Command::CloseIke { ike });
    p.run();
    p.log
}

fn stranger(n: u32) -> Path {
    let remote = SocketAddr::from(([203, 0, (n >> 8) as u8, n as u8], 4500));
    Path { local: SocketAddr::from(([192, 0, 2, 3], 4500)), remote, marker: true }
}

#[test]
fn changed_cut_and_invented_datagrams_disturb_nothing() {
    let log = conversation();
    let mut p = Pair::new(psk_configs(), 3);
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    let mut dice = Seeded(12345);
    let mut roll = |n: usize| {
        let mut b = [0; 4];
        dice.fill(&mut b);
        u32::from_be_bytes(b) as usize % n
    };
    for round in 0..20_000u32 {
        let (_, datagram) = &log[roll(log.len())];
        let mut d = datagram.clone();
        match roll(5) {
            0 => d.truncate(roll(d.len() + 1)),
            1 => d.extend((0..roll(64)).map(|i| i as u8)),
            2 => d.iter_mut().skip(4).for_each(|b| *b = (*b).wrapping_mul(31).wrapping_add(7)),
            _ => {}
        }
        for _ in 0..roll(6) {
            if !d.is_empty() {
                let at = roll(d.len());
                d[at] = roll(256) as u8;
            }
        }
        // Often with a right length, so that the parser behind the header is reached.
        if d.len() >= 32 && roll(3) > 0 {
            let length = (d.len() as u32 - 4).to_be_bytes();
            d[28..32].copy_from_slice(&length);
        }
        // From strangers and from the peer's own address.
        let path = if roll(2) == 0 {
            stranger(round % 300)
        } else {
            Path { local: p.sides[B].address, ..p.path(B) }
        };
        let now = p.now();
        p.sides[B].endpoint.handle(&d, path, now, &mut p.rng);
        p.drain(B);
        p.wire.clear();
        p.time += Duration::from_millis(1);
        assert!(p.sides[B].endpoint.half_open() <= 4096 && p.sides[B].endpoint.len() <= 16_384);
    }
    let counted: u64 = p.sides[B].endpoint.counters().iter().map(|(_, n)| n).sum();
    assert!(counted > 10_000, "drops are counted: {:?}", p.sides[B].endpoint.counters());
    // The SA that was there is there, and works.
    p.pass(Duration::from_secs(100));
    assert!(p.closed(A).is_empty(), "{:?}", p.closed(A));
    let ike = p.established(A)[0];
    let child = p.child(A, Some("CONFIDENTIAL"));
    p.command(A, Command::CreateChild { ike, child });
    p.run();
    assert_eq!(p.children(A).len(), 2);
    p.assert_children_agree();
    assert_eq!(p.sides[B].endpoint.half_open(), 0, "what was half-open is forgotten");
    assert_eq!(p.sides[B].endpoint.len(), 1);
}

/// A first message as `n` different initiators send it.
fn floods(p: &mut Pair, n: u32) -> usize {
    let first = {
        let mut q = Pair::new(psk_configs(), 5);
        q.connect(A, None);
        q.drain(A);
        q.log[0].1.clone()
    };
    let mut answers = 0;
    for i in 0..n {
        let mut d = first.clone();
        d[4..8].copy_from_slice(&(i + 1).to_be_bytes());
        let now = p.now();
        p.sides[B].endpoint.handle(&d, stranger(i), now, &mut p.rng);
        p.drain(B);
        answers += p.wire.len();
        p.wire.clear();
    }
    answers
}

#[test]
fn a_flood_of_first_messages_is_met_with_cookies_and_a_real_peer_still_gets_through() {
    let mut p = Pair::new(psk_configs(), 3);
    let answers = floods(&mut p, 5_000);
    assert_eq!(answers, 5_000, "each gets one small answer");
    let limit = p.sides[B].endpoint.config().limits.cookie_above;
    assert_eq!(p.sides[B].endpoint.half_open(), limit);
    assert_eq!(p.sides[B].endpoint.counters().get(Drop::Cookie), 5_000 - limit as u64);
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    assert_eq!(p.children(A).len(), 1);
    p.pass(Duration::from_secs(60));
    assert_eq!(p.sides[B].endpoint.half_open(), 0);
}

#[test]
fn half_open_sas_are_bounded_in_all_and_old_ones_give_way() {
    let mut configs = psk_configs();
    configs[1].limits.cookie_above = usize::MAX;
    configs[1].limits.half_open = 100;
    let mut p = Pair::new(configs, 3);
    floods(&mut p, 500);
    assert_eq!(p.sides[B].endpoint.half_open(), 100);
    let (gave_way, busy) = (Drop::GaveWay, Drop::Busy);
    let counted = [gave_way, busy].map(|why| p.sides[B].endpoint.counters().get(why));
    assert_eq!(counted, [300, 100], "400 a second begin");
}

#[test]
fn ike_sas_are_bounded_in_all() {
    let mut configs = psk_configs();
    configs[1].limits.cookie_above = usize::MAX;
    configs[1].limits.ike_sas = 10;
    let mut p = Pair::new(configs, 3);
    floods(&mut p, 50);
    assert_eq!(p.sides[B].endpoint.len(), 10);
    assert_eq!(p.sides[B].endpoint.counters().get(Drop::Full), 40);
}

#[test]
fn a_cookie_is_good_for_where_it_was_sent_to_and_for_a_short_time() {
    for (seconds, elsewhere, good) in
        [(0, false, true), (100, false, true), (130, false, false), (0, true, false)]
    {
        let mut configs = psk_configs();
        configs[1].limits.cookie_above = 0;
        let mut p = Pair::new(configs, 3);
        p.connect(A, None);
        // The request to B, the cookie to A, and the request with it.
        for side in [A, B] {
            p.drain(side);
            let (to, path, d) = p.wire.pop_front().expect("a message");
            p.deliver(to, path, &d);
        }
        p.drain(A);
        let (to, mut path, d) = p.wire.pop_front().expect("a request");
        assert!(p.sides[B].endpoint.is_empty());
        p.time += Duration::from_secs(seconds);
        if elsewhere {
            path.local.set_port(4501);
        }
        p.deliver(to, path, &d);
        assert_eq!(p.sides[B].endpoint.len(), usize::from(good), "{seconds} {elsewhere}");
    }
}

#[test]
fn a_higher_major_version_is_told_which_one_is_spoken() {
    let mut p = Pair::new(psk_configs(), 3);
    p.connect(A, None);
    p.drain(A);
    let (to, path, mut d) = p.wire.pop_front().expect("a request");
    d[4 + 17] = 0x30;
    p.deliver(to, path, &d);
    p.drain(B);
    let (_, _, answer) = p.wire.pop_front().expect("an answer");
    assert_eq!(&answer[4 + 28..][..8], [0, 0, 0, 8, 0, 0, 0, 5], "INVALID_MAJOR_VERSION");
    assert_eq!(answer[4 + 17], 0x20);
    assert!(p.sides[B].endpoint.is_empty());
}

#[test]
fn an_unknown_critical_payload_is_named_and_an_uncritical_one_is_skipped() {
    for critical in [true, false] {
        let mut p = Pair::new(psk_configs(), 3);
        p.connect(A, None);
        p.drain(A);
        let (to, path, mut d) = p.wire.pop_front().expect("a request");
        // Put a payload of type 200 in front.
        let first = std::mem::replace(&mut d[4 + 16], 200);
        let extra = [first, if critical { 0x80 } else { 0 }, 0, 4];
        d.splice(4 + 28..4 + 28, extra);
        let length = (d.len() as u32 - 4).to_be_bytes();
        d[28..32].copy_from_slice(&length);
        p.deliver(to, path, &d);
        p.drain(B);
        let (_, _, answer) = p.wire.pop_front().expect("an answer");
        let named = answer[4 + 28..].starts_with(&[0, 0, 0, 9, 0, 0, 0, 1, 200]);
        assert_eq!(named, critical);
        assert_eq!(p.sides[B].endpoint.is_empty(), critical);
    }
}

#[test]
fn a_repeated_first_message_gets_the_same_answer_and_no_second_sa() {
    let mut p = Pair::new(psk_configs(), 3);
    p.connect(A, None);
    p.drain(A);
    let (to, path, d) = p.wire.pop_front().expect("a request");
    let mut answers = Vec::new();
    for _ in 0..5 {
        p.deliver(to, path, &d);
        p.drain(B);
        answers.extend(p.wire.drain(..).map(|(_, _, d)| d));
    }
    assert_eq!(answers.len(), 5);
    assert!(answers.iter().all(|a| *a == answers[0]));
    assert_eq!(p.sides[B].endpoint.len(), 1);
}

#[test]
fn many_children_of_a_wrong_label_leave_nothing_behind() {
    let mut p = Pair::new(psk_configs(), 3);
    let ike = p.connect(A, None);
    p.run();
    for _ in 0..500 {
        let child = p.child(A, Some("NOBODY"));
        p.command(A, Command::CreateChild { ike, child });
        p.run();
    }
    assert_eq!(p.failed(A).len(), 500);
    assert!(p.children(A).is_empty() && p.children(B).is_empty());
}
