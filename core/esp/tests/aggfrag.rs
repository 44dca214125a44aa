//! AGGFRAG payloads: what goes in comes out, whatever happens between.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::*;
use levee_esp::aggfrag::{Aggregation, HEADER, Packer, Reassembler};
use levee_esp::{DropReason, Inner, Route, Suite};
use proptest::prelude::*;

/// An inner packet that says which it is.
fn numbered(number: u32, payload: usize, v6: bool) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    body.extend((0..payload).map(|n| (n * 7 + number as usize) as u8));
    if v6 {
        packet(UDP, "fd00::2", "fd00:9::1", Some((1, 2)), &body)
    } else {
        packet(UDP, "10.0.0.2", "10.9.0.1", Some((1, 2)), &body)
    }
}

fn take(reassembler: &mut Reassembler, payload: &[u8], sequence: u64) -> (Vec<Vec<u8>>, Vec<DropReason>) {
    let (mut out, mut drops) = (Vec::new(), Vec::new());
    let mut payload = payload.to_vec();
    reassembler.take(&mut payload, sequence, 0, |packet, _| out.push(packet.to_vec()), |why| drops.push(why));
    (out, drops)
}

/// Every packet packed, a few at a time.
fn packed(packets: &[Vec<u8>], size: usize, fragment: bool, fixed: bool, at_once: usize) -> Vec<Vec<u8>> {
    let mut packer = Packer::new(size, fragment);
    let mut out = Vec::new();
    let mut buffer = vec![0xee; size];
    for some in packets.chunks(at_once) {
        for packet in some {
            while packer.push(packet) == Err(DropReason::QueueFull) {
                let length = packer.payload(&mut buffer, fixed, false).unwrap();
                out.push(buffer[..length].to_vec());
            }
        }
        while packer.is_full() {
            let length = packer.payload(&mut buffer, fixed, false).unwrap();
            out.push(buffer[..length].to_vec());
        }
        if some.len() < at_once || some.len() % 2 == 0 {
            while packer.waiting() > 0 {
                let length = packer.payload(&mut buffer, fixed, false).unwrap();
                out.push(buffer[..length].to_vec());
            }
        }
    }
    while packer.waiting() > 0 {
        let length = packer.payload(&mut buffer, fixed, false).unwrap();
        out.push(buffer[..length].to_vec());
    }
    out
}

fn packets() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let length = prop_oneof![6 => 0_usize..200, 3 => 1_000_usize..1_500, 1 => 0_usize..40_000];
    prop::collection::vec((length, any::<bool>()), 1..40).prop_map(|lengths| {
        lengths.into_iter().enumerate().map(|(n, (length, v6))| numbered(n as u32, length, v6)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_is_packed_comes_out_again_in_order(
        packets in packets(),
        size in 60_usize..3_000,
        fixed in any::<bool>(),
        at_once in 1_usize..10,
    ) {
        // The pieces of one packet must lie within 256 payloads.
        let size = size.max(200);
        let payloads = packed(&packets, size, true, fixed, at_once);
        prop_assert!(payloads.iter().all(|payload| payload.len() <= size && (!fixed || payload.len() == size)));
        let mut reassembler = Reassembler::new();
        let mut back = Vec::new();
        for (n, payload) in payloads.iter().enumerate() {
            let (out, drops) = take(&mut reassembler, payload, n as u64 + 1);
            prop_assert_eq!(drops, vec![]);
            back.extend(out);
        }
        prop_assert_eq!(back, packets);
    }

    #[test]
    fn in_any_order_within_the_window_every_packet_comes_out_once(
        packets in packets(),
        size in 300_usize..3_000,
        seed in prop::collection::vec(0_u64..30, 1..50),
        padding in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let mut payloads = packed(&packets, size, true, true, 3);
        // RFC 9347 2.2.3: padding may stand anywhere between pieces.
        let mut at = 0;
        for pad in padding {
            at += 2;
            if pad && at < payloads.len() {
                payloads.insert(at, vec![0; size]);
            }
        }
        let mut order: Vec<(u64, u64)> =
            (1..=payloads.len() as u64).map(|n| (n + seed[n as usize % seed.len()], n)).collect();
        order.sort_unstable();
        let mut reassembler = Reassembler::new();
        let mut back = Vec::new();
        for (_, sequence) in order {
            let (out, drops) = take(&mut reassembler, &payloads[sequence as usize - 1], sequence);
            prop_assert_eq!(drops, vec![]);
            back.extend(out);
        }
        back.sort();
        let mut expected = packets;
        expected.sort();
        prop_assert_eq!(back, expected);
    }

    #[test]
    fn with_losses_every_packet_comes_out_right_or_not_at_all_and_those_whose_payloads_came_do(
        packets in packets(),
        size in 300_usize..3_000,
        lost in prop::collection::vec(0_u8..100, 1..60),
    ) {
        let payloads = packed(&packets, size, true, false, 4);
        let mut reassembler = Reassembler::new();
        let mut back = BTreeSet::new();
        let (mut gone, mut sequences) = (0, Vec::new());
        for n in 0..payloads.len() {
            if lost[n % lost.len()] < 15 {
                gone += 1;
            } else {
                sequences.push(n as u64 + 1);
            }
        }
        for sequence in sequences {
            let (out, drops) = take(&mut reassembler, &payloads[sequence as usize - 1], sequence);
            prop_assert!(drops.iter().all(|why| *why == DropReason::FragmentLost), "{drops:?}");
            for packet in out {
                prop_assert!(packets.contains(&packet));
                prop_assert!(back.insert(packet), "twice");
            }
        }
        // One lost payload costs at most the packets that had an octet in it.
        let longest = size / 33 + 2;
        prop_assert!(packets.len() - back.len() <= gone * longest);
        if gone == 0 {
            prop_assert_eq!(back.len(), packets.len());
        }
    }

    #[test]
    fn any_payloads_are_safe_and_what_is_kept_is_bounded(
        payloads in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..600), 0_u64..700, 0_u8..4, prop::option::of(0_u16..700)), 0..60),
    ) {
        let mut reassembler = Reassembler::new();
        let mut seen = BTreeSet::new();
        for (mut payload, sequence, kind, offset) in payloads {
            if !seen.insert(sequence) {
                continue;
            }
            if let (Some(offset), [first, _, o0, o1, rest @ ..]) = (offset, &mut payload[..]) {
                *first = 0;
                [*o0, *o1] = offset.to_be_bytes();
                for byte in rest.iter_mut().step_by(20) {
                    *byte = if kind & 1 == 0 { 0x45 } else { 0x60 };
                }
            }
            let (out, _) = take(&mut reassembler, &payload, sequence);
            prop_assert!(out.iter().all(|packet| packet.len() >= 20));
            prop_assert!(reassembler.held() <= 256 * 1024);
        }
    }
}

#[test]
fn a_header_cut_in_two_is_no_obstacle() {
    for size in 205..=260 {
        let packets: Vec<_> = (0..20).map(|n| numbered(n, 40, n % 2 == 0)).collect();
        let payloads = packed(&packets, size, true, false, 20);
        let mut reassembler = Reassembler::new();
        let mut back = Vec::new();
        for (n, payload) in payloads.iter().enumerate() {
            back.extend(take(&mut reassembler, payload, n as u64 + 1).0);
        }
        assert_eq!(back, packets, "{size}");
    }
}

#[test]
fn the_longest_packet_goes_through_payloads_of_the_usual_size() {
    let longest = numbered(1, 65_535 - 20 - 8, false);
    assert_eq!(longest.len(), 65_535);
    let payloads = packed(std::slice::from_ref(&longest), 1_400, true, true, 1);
    assert_eq!(payloads.len(), 65_535_usize.div_ceil(1_400 - HEADER));
    let mut reassembler = Reassembler::new();
    let mut back = Vec::new();
    for (n, payload) in payloads.iter().enumerate() {
        back.extend(take(&mut reassembler, payload, n as u64 + 1).0);
    }
    assert_eq!(back, [longest]);
}

#[test]
fn without_fragments_each_packet_lies_whole_in_one_payload() {
    let packets: Vec<_> = (0..30).map(|n| numbered(n, n as usize * 17 % 300, false)).collect();
    let payloads = packed(&packets, 400, false, true, 7);
    let mut back = Vec::new();
    for payload in payloads.iter().rev() {
        assert_eq!(payload[..4], [0; 4]);
        // Each by itself.
        back.extend(take(&mut Reassembler::new(), payload, 1).0);
    }
    back.sort();
    let mut expected = packets;
    expected.sort();
    assert_eq!(back, expected);
    let mut packer = Packer::new(400, false);
    assert_eq!(packer.push(&numbered(1, 396 - 28 + 1, false)), Err(DropReason::Oversize));
    assert_eq!(packer.push(&numbered(1, 396 - 28, false)), Ok(()));
}

#[test]
fn a_sender_with_nothing_to_say_fills_every_payload_and_looks_the_same() {
    let mut packer = Packer::new(500, true);
    let mut buffer = [0xee; 500];
    assert_eq!(packer.payload(&mut buffer, false, false), None, "at no rate, nothing");
    assert_eq!(packer.payload(&mut buffer, true, false), Some(500));
    assert_eq!(buffer, [0; 500]);
    let (out, drops) = take(&mut Reassembler::new(), &buffer, 1);
    assert!(out.is_empty() && drops.is_empty());
}

#[test]
fn the_end_of_a_packet_can_be_sent_alone_before_its_way_is_given_up() {
    let mut packer = Packer::new(200, true);
    let (first, second) = (numbered(1, 300, false), numbered(2, 10, false));
    packer.push(&first).unwrap();
    packer.push(&second).unwrap();
    let mut buffer = [0; 200];
    let mut reassembler = Reassembler::new();
    let mut sequence = 0;
    let mut back = Vec::new();
    let mut send = |packer: &mut Packer, finish| {
        let length = packer.payload(&mut buffer, true, finish).unwrap();
        sequence += 1;
        back.extend(take(&mut reassembler, &buffer[..length], sequence).0);
    };
    send(&mut packer, false);
    assert!(packer.is_amid_a_packet());
    send(&mut packer, true);
    assert!(!packer.is_amid_a_packet(), "332 octets, 196 each");
    assert_eq!(packer.waiting(), second.len());
    send(&mut packer, false);
    assert_eq!(back, [first.clone(), second]);

    packer.push(&first).unwrap();
    packer.payload(&mut [0; 200], true, false).unwrap();
    assert!(packer.abandon() && packer.waiting() == 0 && !packer.abandon());
}

#[test]
fn no_more_waits_than_the_limit() {
    let mut packer = Packer::new(1_000, true);
    let one = numbered(1, 1_000, false);
    let mut count = 0;
    while packer.push(&one).is_ok() {
        count += 1;
    }
    assert_eq!(count, Packer::LIMIT / one.len());
    let mut buffer = [0; 1_000];
    for _ in 0..5_000 {
        packer.payload(&mut buffer, false, false).unwrap();
        while packer.push(&one).is_ok() {}
        assert!(packer.waiting() <= Packer::LIMIT);
    }
}

#[test]
fn a_peer_that_breaks_the_rules_is_dropped_and_counted() {
    let malformed = |payload: &[u8]| {
        let (out, drops) = take(&mut Reassembler::new(), payload, 1);
        assert!(out.is_empty());
        assert_eq!(drops, [DropReason::Malformed], "{payload:?}");
    };
    malformed(&[]);
    malformed(&[0, 0, 0]);
    malformed(&[2, 0, 0, 0]);
    malformed(&[0, 0, 0, 0, 0x50, 0, 0, 0]);
    malformed(&[0, 0, 0, 0, 0x45, 0, 0, 19]);
    // An end that does not fit its beginning.
    let packet = numbered(1, 100, false);
    let mut first = vec![0, 0, 0, 0];
    first.extend(&packet[..80]);
    let mut second = vec![0, 0, 0, 30];
    second.extend(&packet[80..110]);
    let mut reassembler = Reassembler::new();
    assert_eq!(take(&mut reassembler, &first, 1), (vec![], vec![]));
    assert_eq!(take(&mut reassembler, &second, 2), (vec![], vec![DropReason::Malformed]));
}

#[test]
fn figures_that_make_no_sense_are_refused() {
    let good = Aggregation { packet: 1_400, interval: None, fragment: true };
    assert!(good.is_sound());
    assert!(!Aggregation { packet: 63, ..good }.is_sound());
    assert!(Aggregation { packet: 64, ..good }.is_sound());
    let fastest = Duration::from_micros(10);
    assert!(Aggregation { interval: Some(fastest), ..good }.is_sound());
    assert!(!Aggregation { interval: Some(fastest - Duration::from_nanos(1)), ..good }.is_sound());
    assert!(!Aggregation { interval: Some(Duration::ZERO), ..good }.is_sound());
}

/// A tunnel whose second pair carries AGGFRAG payloads, the first one gone.
fn tunnel(aggregation: Aggregation) -> Tunnel {
    let mut tunnel = Tunnel::new(Suite::Aes256Gcm, true, everything());
    let (first, theirs) = tunnel.spis();
    tunnel.aggregation = Some(aggregation);
    tunnel.rekey(Suite::Aes256Gcm, true);
    // SPIs count up: the first pair's are one below.
    for (sad, spi) in [(&mut tunnel.server, first), (&mut tunnel.client, theirs)] {
        sad.delete(levee_esp::Spi::new(spi.get() - 1).unwrap());
    }
    tunnel
}

fn gather(tunnel: &mut Tunnel, now: Duration, packet: &[u8]) {
    match tunnel.client.route(now, &Inner::parse(packet).unwrap()).unwrap() {
        Route::Gather(id) => tunnel
            .client
            .gather(now, id, packet.len(), |place| {
                place.copy_from_slice(packet);
                true
            })
            .unwrap(),
        _ => panic!("an AGGFRAG pair"),
    }
}

/// Everything that may leave now, opened at the other end.
fn carry(tunnel: &mut Tunnel, now: Duration, rest: bool) -> (Vec<usize>, Vec<Vec<u8>>) {
    let (mut lengths, mut packets, mut buffer) = (Vec::new(), Vec::new(), vec![0; 70_000]);
    while let Some(gathered) = tunnel.client.next_gathered(now, rest, &mut buffer) {
        let length = gathered.sealed.length;
        lengths.push(length);
        let mut datagram = buffer[..length].to_vec();
        assert!(tunnel.server.is_aggregate(&datagram));
        tunnel
            .server
            .open_aggregate(NOW, &mut datagram, 0, client_address(), 0, |_, _, packet| {
                packets.push(packet.to_vec())
            })
            .unwrap();
    }
    (lengths, packets)
}

#[test]
fn at_a_constant_rate_moments_and_sizes_are_the_same_whatever_there_is_to_send() {
    let rate = Aggregation { packet: 600, interval: Some(Duration::from_millis(10)), fragment: true };
    let (mut idle, mut busy) = (tunnel(rate), tunnel(rate));
    let mut back = Vec::new();
    let mut sent = Vec::new();
    for step in 0..2_000_u32 {
        // Looked at irregularly, as a loop with other things to do would.
        let now = NOW + Duration::from_micros(u64::from(step) * 3_700 + u64::from(step % 7) * 311);
        if step % 50 < 10 {
            let packet = numbered(step, (step as usize * 131) % 1_200, step % 2 == 0);
            gather(&mut busy, now, &packet);
            sent.push(packet);
        }
        let (quiet, nothing) = carry(&mut idle, now, true);
        let (loud, packets) = carry(&mut busy, now, true);
        assert_eq!(quiet, loud, "step {step}");
        assert!(quiet.iter().all(|length| *length == 600) && nothing.is_empty());
        back.extend(packets);
    }
    assert!(sent.len() > 300 && back.len() > 100, "{} of {}", back.len(), sent.len());
    assert_eq!(back[..], sent[..back.len()], "in order, none missing");
}

#[test]
fn a_rekey_amid_a_packet_sends_its_end_by_the_old_pair_and_loses_nothing() {
    let mut tunnel = tunnel(Aggregation { packet: 600, interval: None, fragment: true });
    let first = numbered(1, 3_000, false);
    gather(&mut tunnel, NOW, &first);
    // Full ones alone: the end still waits.
    let (lengths, packets) = carry(&mut tunnel, NOW, false);
    assert!(lengths.len() > 4 && packets.is_empty());
    tunnel.rekey(Suite::ChaCha20Poly1305, true);
    let later = NOW + levee_esp::Sad::<u32>::SETTLE;
    let second = numbered(2, 100, true);
    gather(&mut tunnel, later, &second);
    let (_, packets) = carry(&mut tunnel, later, true);
    assert_eq!(packets, [first, second]);
    assert_eq!(dropped(&tunnel.server.counters), 0);
    assert!(tunnel.server.pairs().all(|pair| pair.packets.0 == 1), "one by each pair");
}

#[test]
fn selectors_are_checked_for_every_packet_in_a_payload() {
    let mut tunnel = tunnel(Aggregation { packet: 1_400, interval: None, fragment: true });
    let good = numbered(1, 20, false);
    gather(&mut tunnel, NOW, &good);
    let (_, packets) = carry(&mut tunnel, NOW, true);
    assert_eq!(packets, [good]);
    // What the far end's session no longer allows is dropped there, one packet at a time.
    tunnel
        .server
        .open_session(
            1,
            levee_esp::SessionPolicy {
                inner: inner(),
                selectors: levee_esp::SelectorSet::new(vec![any_selector("10.9.0.0/16", "10.0.0.2/32")]),
                only: None,
            },
        )
        .unwrap();
    let (four, six) = (numbered(2, 20, false), numbered(3, 20, true));
    gather(&mut tunnel, NOW, &four);
    gather(&mut tunnel, NOW, &six);
    let (lengths, packets) = carry(&mut tunnel, NOW, true);
    assert_eq!((lengths.len(), packets), (1, vec![four]));
    assert_eq!(tunnel.server.counters.dropped(DropReason::Selector), 1);
}

#[test]
fn what_has_been_put_together_is_kept_no_longer() {
    let packets: Vec<_> = (0..50).map(|n| numbered(n, 9_000, n % 2 == 0)).collect();
    let mut reassembler = Reassembler::new();
    let mut passed = Vec::new();
    for (n, payload) in packed(&packets, 1_400, true, false, 50).iter().enumerate() {
        let (out, drops) = take(&mut reassembler, payload, n as u64 + 1);
        passed.extend(out);
        assert_eq!(drops, []);
        assert!(
            reassembler.held() < 9_000 + 2 * 1_400,
            "{} octets are held after {n} payloads",
            reassembler.held()
        );
    }
    assert_eq!(passed, packets);
    assert_eq!(reassembler.held(), 0);
}
