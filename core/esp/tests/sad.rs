//! The database at its edges: how much it holds, what it counts, and what becomes of what waits.

mod common;

use std::time::Duration;

use common::*;
use levee_aead::Library;
use levee_esp::aggfrag::Aggregation;
use levee_esp::{
    DropReason, Inner, Install, OutboundSa, Route, SaKeys, Sad, SelectorSet, SessionError, SessionPolicy,
    Side, Spi, Suite, WaitQueue, sealed_length,
};

fn policy(addresses: &[&str]) -> SessionPolicy {
    let inner = addresses.iter().map(|address| ip(address)).collect();
    SessionPolicy { inner, selectors: SelectorSet::new(everything()), only: None }
}

fn keys() -> SaKeys {
    SaKeys::new(Suite::Aes128Gcm, &[9; 20]).unwrap()
}

fn pair(session: u32, inbound: Spi, aggregation: Option<Aggregation>) -> Install<u32> {
    let peer = Some(server_address());
    Install {
        session,
        extended: true,
        inbound: (inbound, keys()),
        outbound: (inbound, keys()),
        answered: false,
        peer,
        aggregation,
    }
}

/// Up from the session's inner address.
fn up(from: &str, length: usize) -> Vec<u8> {
    packet(UDP, from, "10.9.0.1", Some((5_000, 7)), &vec![7; length])
}

#[test]
fn there_are_16384_sessions_and_one_more_is_refused_but_not_one_that_is_there() {
    let mut sad: Sad<u32> = Sad::new(Side::Server);
    let most = Sad::<u32>::SESSIONS as u32;
    for id in 0..most {
        sad.open_session(id, policy(&[])).unwrap();
    }
    assert_eq!(sad.open_session(most, policy(&[])), Err(SessionError::Full));
    assert_eq!(sad.open_session(7, policy(&["10.0.0.9"])), Ok(()), "it is there already");
    assert!(sad.close_session(3));
    assert_eq!(sad.open_session(most, policy(&[])), Ok(()));
    assert_eq!(sad.sessions().count(), Sad::<u32>::SESSIONS);
}

#[test]
fn an_address_that_a_session_gives_up_is_free_and_those_that_it_keeps_are_its_own() {
    let mut sad: Sad<u32> = Sad::new(Side::Server);
    sad.open_session(1, policy(&["10.0.0.1", "10.0.0.2"])).unwrap();
    sad.open_session(1, policy(&["10.0.0.2", "10.0.0.3"])).unwrap();
    for (address, free) in [("10.0.0.1", true), ("10.0.0.2", false), ("10.0.0.3", false)] {
        let taken = if free { Ok(()) } else { Err(SessionError::AddressInUse) };
        assert_eq!(sad.open_session(2, policy(&[address])), taken, "{address}");
    }
}

#[test]
fn what_waits_longer_than_ten_seconds_is_dropped_and_counted_for_each_session() {
    let mut sad: Sad<u32> = Sad::new(Side::Workstation);
    let at = |second: u64| NOW + Duration::from_secs(second);
    sad.open_session(1, policy(&["10.0.0.1"])).unwrap();
    sad.open_session(2, policy(&["10.0.0.2"])).unwrap();
    assert!(!sad.has_waiting());
    sad.hold(at(0), 1, &up("10.0.0.1", 1));
    sad.hold(at(0), 1, &up("10.0.0.1", 2));
    sad.hold(at(1), 2, &up("10.0.0.2", 3));
    sad.hold(at(5), 2, &up("10.0.0.2", 4));
    let waited = |sad: &Sad<u32>| (sad.counters.dropped(DropReason::WaitedTooLong), sad.has_waiting());
    assert_eq!(waited(&sad), (0, true));
    let patience = WaitQueue::PATIENCE.as_secs();
    sad.expire(at(patience));
    assert_eq!(waited(&sad), (0, true), "as long as they may");
    sad.expire(at(patience + 1));
    assert_eq!(waited(&sad), (2, true), "the second session's first has waited as long as it may");
    sad.expire(at(patience + 2));
    assert_eq!(waited(&sad), (3, true));
    assert_eq!(
        (sad.release(1), sad.release(2).map(|packet| packet.to_vec())),
        (None, Some(up("10.0.0.2", 4)))
    );
    sad.expire(at(patience + 3));
    assert_eq!(waited(&sad), (3, false));
    // What comes later is looked at again.
    sad.hold(at(100), 1, &up("10.0.0.1", 1));
    sad.expire(at(101 + patience));
    assert_eq!(waited(&sad), (4, false));
}

#[test]
fn packets_and_octets_are_counted_by_pair_and_all_together() {
    let mut tunnel = Tunnel::new(Suite::Aes256Gcm, true, everything());
    let packets: Vec<_> = (0..5).map(|n| up("10.0.0.2", 10 * n)).collect();
    let octets: usize = packets.iter().map(Vec::len).sum();
    for packet in &packets {
        let (datagram, _) = seal(&mut tunnel.client, packet).unwrap().unwrap();
        open(&mut tunnel.server, &datagram, client_address()).unwrap();
    }
    let (sent, received) = (tunnel.client.pairs().next().unwrap(), tunnel.server.pairs().next().unwrap());
    let all = (5, octets as u64);
    assert_eq!((received.packets, received.bytes), ((all.0, 0), (all.1, 0)));
    assert_eq!((sent.packets, sent.bytes), ((0, all.0), (0, all.1)));
    assert_eq!((tunnel.server.counters.packets_in, tunnel.server.counters.bytes_in), all);
    assert_eq!((tunnel.client.counters.packets_out, tunnel.client.counters.bytes_out), all);
}

#[test]
fn a_datagram_of_an_spi_alone_is_nobodys_and_a_shorter_one_is_a_stump() {
    let mut tunnel = Tunnel::new(Suite::Aes256Gcm, true, everything());
    for (datagram, expected) in [
        (&[0, 9, 9, 9][..], DropReason::UnknownSpi),
        (&[0, 9, 9], DropReason::Truncated),
        (&[], DropReason::Truncated),
    ] {
        assert_eq!(open(&mut tunnel.server, datagram, client_address()), Err(expected), "{datagram:?}");
    }
}

/// A workstation's database with two sessions, each with a pair that gathers.
fn gathering(one: Aggregation, other: Aggregation) -> Sad<u32> {
    let mut sad = Sad::new(Side::Workstation);
    for (id, aggregation) in [(1, one), (2, other)] {
        sad.open_session(id, policy(&[&format!("10.0.0.{id}")])).unwrap();
        let selectors = SelectorSet::new(vec![any_selector(&format!("10.0.0.{id}/32"), "10.9.0.0/16")]);
        let policy = SessionPolicy { inner: vec![ip(&format!("10.0.0.{id}"))], selectors, only: None };
        sad.open_session(id, policy).unwrap();
        sad.install(NOW, pair(id, spi(id as u16, 1), Some(aggregation)), &Library::Ring).unwrap();
    }
    sad
}

fn gather(sad: &mut Sad<u32>, now: Duration, packet: &[u8]) {
    let Route::Gather(id) = sad.route(now, &Inner::parse(packet).unwrap()).unwrap() else {
        panic!("it gathers")
    };
    let write = |place: &mut [u8]| {
        place.copy_from_slice(packet);
        true
    };
    sad.gather(now, id, packet.len(), write).unwrap();
}

/// Whose datagrams leave now, and how long each is.
fn leave(sad: &mut Sad<u32>, now: Duration) -> Vec<(u32, usize)> {
    let mut buffer = vec![0; 70_000];
    let next = || sad.next_gathered(now, true, &mut buffer).map(|one| (one.session, one.sealed.length));
    std::iter::from_fn(next).collect()
}

const PLAIN: Aggregation = Aggregation { packet: 1_400, interval: None, fragment: true };

#[test]
fn what_gathered_is_counted_by_pair_and_all_together() {
    let (mut sad, packets) = (gathering(PLAIN, PLAIN), [up("10.0.0.1", 10), up("10.0.0.1", 90)]);
    packets.iter().for_each(|packet| gather(&mut sad, NOW, packet));
    let all = (2, packets.concat().len() as u64);
    let one = sad.pairs().find(|pair| pair.session == 1).unwrap();
    assert_eq!((one.packets, one.bytes), ((0, all.0), (0, all.1)));
    assert_eq!((sad.counters.packets_out, sad.counters.bytes_out), all);
    // Both come in one datagram, and count as two.
    let mut server: Sad<u32> = Sad::new(Side::Server);
    server.open_session(1, policy(&["10.0.0.1"])).unwrap();
    let selectors = SelectorSet::new(vec![any_selector("10.9.0.0/16", "10.0.0.1/32")]);
    server.open_session(1, SessionPolicy { inner: vec![ip("10.0.0.1")], selectors, only: None }).unwrap();
    server.install(NOW, pair(1, spi(1, 1), Some(PLAIN)), &Library::AwsLc).unwrap();
    let mut buffer = vec![0; 2_000];
    let length = sad.next_gathered(NOW, true, &mut buffer).unwrap().sealed.length;
    let mut passed = Vec::new();
    let pass = |_, _: &Inner, packet: &mut [u8]| passed.push(packet.to_vec());
    server.open_aggregate(NOW, &mut buffer[..length], 0, client_address(), 0, pass).unwrap();
    assert_eq!(passed, packets);
    let one = server.pairs().next().unwrap();
    assert_eq!((one.packets, one.bytes), ((all.0, 0), (all.1, 0)));
    assert_eq!((server.counters.packets_in, server.counters.bytes_in), all);
}

#[test]
fn which_datagrams_have_many_packets_is_said_of_no_other() {
    let mut sad = gathering(PLAIN, PLAIN);
    let datagram = |spi: Spi| [&spi.get().to_be_bytes()[..], &[0; 40]].concat();
    assert!(sad.is_aggregate(&datagram(spi(1, 1))) && sad.is_aggregate(&datagram(spi(2, 1))));
    sad.open_session(3, policy(&["10.0.0.3"])).unwrap();
    sad.install(NOW, pair(3, spi(3, 1), None), &Library::Ring).unwrap();
    for other in [datagram(spi(3, 1)), datagram(spi(1, 2)), vec![], vec![0; 3]] {
        assert!(!sad.is_aggregate(&other), "{other:?}");
    }
    sad.delete(spi(1, 1)).unwrap();
    assert!(!sad.is_aggregate(&datagram(spi(1, 1))));
}

#[test]
fn a_dummy_among_payloads_is_counted_as_one_and_another_protocol_is_refused() {
    let mut server: Sad<u32> = Sad::new(Side::Server);
    server.open_session(1, policy(&["10.0.0.1"])).unwrap();
    server.install(NOW, pair(1, spi(1, 1), Some(PLAIN)), &Library::AwsLc).unwrap();
    let mut peer = OutboundSa::new(spi(1, 1), &keys(), true, &Library::Ring).unwrap();
    for (next_header, expected) in
        [(59, DropReason::Dummy), (4, DropReason::BadNextHeader), (41, DropReason::BadNextHeader)]
    {
        let mut buffer = vec![0; sealed_length(40)];
        peer.seal(&mut buffer, 40, next_header).unwrap();
        let opened = server
            .open_aggregate(NOW, &mut buffer, 0, client_address(), 0, |_, _, _| panic!("nothing passes"));
        assert_eq!(opened, Err(expected), "{next_header}");
        assert_eq!(server.counters.dropped(DropReason::Dummy), 1);
    }
}

#[test]
fn the_end_of_one_session_keeps_anothers_packets_from_nothing_and_counts_its_own() {
    let mut sad = gathering(PLAIN, PLAIN);
    for _ in 0..3 {
        gather(&mut sad, NOW, &up("10.0.0.1", 100));
    }
    gather(&mut sad, NOW, &up("10.0.0.2", 50));
    assert!(sad.close_session(1));
    assert_eq!(sad.counters.dropped(DropReason::NoSession), 3, "what had not gone");
    assert_eq!(leave(&mut sad, NOW).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2]);
    // One that has gone in part is lost, too.
    gather(&mut sad, NOW, &up("10.0.0.2", 2_000));
    assert!(sad.next_gathered(NOW, false, &mut [0; 2_000]).is_some());
    assert!(sad.close_session(2));
    assert_eq!(sad.counters.dropped(DropReason::NoSession), 4);
}

#[test]
fn with_new_keys_what_waits_goes_as_they_say_and_what_cannot_is_counted() {
    let rate = Aggregation { interval: Some(Duration::from_millis(10)), ..PLAIN };
    let small = Aggregation { packet: 600, ..PLAIN };
    for (before, after, lost) in [
        (PLAIN, PLAIN, 0),
        (PLAIN, small, 2),
        (small, PLAIN, 2),
        (PLAIN, rate, 2),
        (rate, PLAIN, 2),
        (rate, Aggregation { packet: 600, ..rate }, 2),
    ] {
        let mut sad = gathering(before, PLAIN);
        gather(&mut sad, NOW, &up("10.0.0.1", 100));
        gather(&mut sad, NOW, &up("10.0.0.1", 100));
        sad.install(NOW, pair(1, spi(1, 2), Some(after)), &Library::Ring).unwrap();
        sad.delete(spi(1, 1)).unwrap();
        let later = NOW + Sad::<u32>::SETTLE + Duration::from_secs(1);
        gather(&mut sad, later, &up("10.0.0.1", 100));
        assert_eq!(sad.counters.dropped(DropReason::NoSa), lost, "{before:?} {after:?}");
        let left = leave(&mut sad, later + Duration::from_secs(1));
        let lengths: Vec<usize> = left.iter().map(|(_, length)| *length).collect();
        if after.interval.is_some() {
            assert!(!lengths.is_empty() && lengths.iter().all(|length| *length == usize::from(after.packet)));
        } else {
            let packets = 3 - lost as usize;
            assert_eq!(
                lengths,
                [sealed_length(4 + packets * up("10.0.0.1", 100).len())],
                "{before:?} {after:?}"
            );
        }
    }
}

#[test]
fn what_waits_when_packets_are_to_go_otherwise_leaves_at_once_as_it_was_gathered() {
    let rate = Aggregation { interval: Some(Duration::from_millis(10)), ..PLAIN };
    let small = Aggregation { packet: 600, ..PLAIN };
    for (before, after) in
        [(rate, None), (rate, Some(PLAIN)), (PLAIN, Some(rate)), (PLAIN, Some(small)), (small, None)]
    {
        let mut sad = gathering(before, PLAIN);
        for _ in 0..20 {
            gather(&mut sad, NOW, &up("10.0.0.1", 100));
        }
        // The beginning has gone, and with it a part of a packet.
        assert!(sad.next_gathered(NOW, true, &mut [0; 2_048]).is_some());
        sad.install(NOW, pair(1, spi(1, 2), after), &Library::Ring).unwrap();
        let later = NOW + Sad::<u32>::SETTLE;
        leave(&mut sad, later);
        sad.delete(spi(1, 1)).unwrap();
        leave(&mut sad, later);
        assert_eq!(sad.counters.dropped(DropReason::NoSa), 0, "{before:?} {after:?}");
    }
}

#[test]
fn the_next_moment_is_the_first_of_all_rates_and_of_none_where_nothing_has_one() {
    let rate = |millis| Aggregation { interval: Some(Duration::from_millis(millis)), ..PLAIN };
    let mut sad = gathering(rate(30), rate(20));
    assert_eq!(sad.next_due(), None, "neither has begun");
    // The first of each leaves at once, and those behind it by their rates.
    assert_eq!(leave(&mut sad, NOW), [(1, 1_400), (2, 1_400)]);
    let at = |millis| NOW + Duration::from_millis(millis);
    assert_eq!(sad.next_due(), Some(at(20)));
    assert_eq!(leave(&mut sad, at(20)), [(2, 1_400)]);
    assert_eq!(sad.next_due(), Some(at(30)));
    sad.close_session(1);
    assert_eq!(sad.next_due(), Some(at(40)));
    let mut plain = gathering(PLAIN, PLAIN);
    gather(&mut plain, NOW, &up("10.0.0.1", 100));
    assert_eq!(plain.next_due(), None);
}
