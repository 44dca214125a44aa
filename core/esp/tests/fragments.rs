//! Inner fragments where selectors name ports (RFC 4301 7.3): which pass, and which do not.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::*;
use levee_esp::{
    DropReason, ESP_HEADER, Inner, PortRange, Route, Sad, Selector, SelectorSet, SessionPolicy, Suite,
};
use proptest::prelude::*;

/// The service that the session may speak with, by UDP.
const PORT: u16 = 53;
const LIFE: Duration = Duration::from_secs(2);

fn dns() -> Vec<Selector> {
    let mut rows = everything();
    for row in &mut rows {
        row.protocol = Some(UDP);
        row.local_ports = PortRange::only(PORT);
    }
    rows
}

fn tunnel() -> Tunnel {
    Tunnel::new(Suite::Aes256Gcm, true, dns())
}

/// A fragment of datagram `id` with so many octets, to or from port `port` of the server.
#[derive(Clone, Copy, Debug)]
struct Cut {
    id: u16,
    offset: u16,
    length: usize,
    more: bool,
}

const fn cut(id: u16, offset: u16, length: usize, more: bool) -> Cut {
    Cut { id, offset, length, more }
}

impl Cut {
    fn up(self, port: u16) -> Vec<u8> {
        self.packet("10.0.0.2", "10.9.0.1", [5_000, port])
    }

    fn packet(self, from: &str, to: &str, ports: [u16; 2]) -> Vec<u8> {
        let mut body: Vec<u8> = (0..self.length).map(|n| n as u8).collect();
        if self.offset == 0 {
            for (place, port) in body.chunks_mut(2).zip(ports) {
                place.copy_from_slice(&port.to_be_bytes()[..place.len()]);
            }
        }
        let mut bytes = packet(UDP, from, to, None, &body);
        bytes[4..6].copy_from_slice(&self.id.to_be_bytes());
        bytes[6..8].copy_from_slice(&((self.offset / 8) | (u16::from(self.more) << 13)).to_be_bytes());
        bytes
    }
}

/// Sends a packet to the server by a client that is not asked what it may send; whether it came out.
fn arrives(tunnel: &mut Tunnel, now: Duration, packet: &[u8]) -> Result<(), DropReason> {
    let mut datagram = seal_anyway(&mut tunnel.client, packet);
    tunnel.server.open(now, &mut datagram, 0, client_address(), 0).map(drop)
}

/// The client's own selectors may be any.
fn seal_anyway(client: &mut Sad<u32>, packet: &[u8]) -> Vec<u8> {
    let policy = SessionPolicy { inner: inner(), selectors: SelectorSet::new(turned()), only: None };
    client.open_session(1, policy).unwrap();
    seal(client, packet).unwrap().unwrap().0
}

/// Everything, as the client sees it.
fn turned() -> Vec<Selector> {
    let turn = |row: Selector| Selector { local: row.remote, remote: row.local, ..row };
    everything().into_iter().map(turn).collect()
}

/// Whether the server would send this packet.
fn leaves(server: &mut Sad<u32>, now: Duration, packet: &[u8]) -> Result<(), DropReason> {
    let inner = Inner::parse(packet)?;
    match server.route(now, &inner)? {
        Route::Through(mut lane) => {
            let mut buffer = vec![0; levee_esp::sealed_length(packet.len())];
            buffer[ESP_HEADER..][..packet.len()].copy_from_slice(packet);
            lane.seal(&mut buffer, packet.len()).map(drop)
        }
        _ => Err(DropReason::NoSa),
    }
}

const NO: Result<(), DropReason> = Err(DropReason::Fragment);

#[test]
fn a_later_fragment_passes_behind_its_first_one_in_any_order_and_never_without() {
    let mut tunnel = tunnel();
    let [first, second, third] = [cut(1, 0, 16, true), cut(1, 16, 24, true), cut(1, 40, 5, false)];
    let mut arrives = |cut: Cut| arrives(&mut tunnel, NOW, &cut.up(PORT));
    assert_eq!(arrives(second), NO, "nothing came before it");
    assert_eq!(arrives(first), Ok(()));
    assert_eq!(arrives(third), Ok(()));
    assert_eq!(arrives(Cut { id: 2, ..second }), NO, "of another datagram");
    assert_eq!(arrives(second), Ok(()));
    assert_eq!(arrives(second), NO, "the datagram is whole");
    assert_eq!(arrives(first), Ok(()), "another one of this name");
    assert_eq!(arrives(first), NO, "it is under way");
}

#[test]
fn the_first_fragment_must_be_for_a_port_that_the_session_may_use() {
    let mut tunnel = tunnel();
    assert_eq!(arrives(&mut tunnel, NOW, &cut(1, 0, 16, true).up(80)), Err(DropReason::Selector));
    assert_eq!(arrives(&mut tunnel, NOW, &cut(1, 16, 8, false).up(PORT)), NO);
    // Another protocol, and another way.
    assert_eq!(arrives(&mut tunnel, NOW, &cut(2, 0, 16, true).up(PORT)), Ok(()));
    let mut tcp = cut(2, 16, 8, false).up(PORT);
    tcp[9] = TCP;
    assert_eq!(arrives(&mut tunnel, NOW, &tcp), Err(DropReason::Selector));
    let back = cut(2, 16, 8, false).packet("10.9.0.1", "10.0.0.2", [PORT, 5_000]);
    assert_eq!(leaves(&mut tunnel.server, NOW, &back), NO);
}

#[test]
fn what_leaves_is_held_to_the_same_and_what_waits_for_keys_has_not_passed() {
    let mut tunnel = tunnel();
    let down = |cut: Cut| cut.packet("10.9.0.1", "10.0.0.2", [PORT, 5_000]);
    let (first, second) = (down(cut(7, 0, 24, true)), down(cut(7, 24, 100, false)));
    assert_eq!(leaves(&mut tunnel.server, NOW, &first), Err(DropReason::NoPeer), "it is not known where to");
    assert_eq!(leaves(&mut tunnel.server, NOW, &second), NO);
    arrives(&mut tunnel, NOW, &cut(1, 0, 8, false).up(PORT)).unwrap();
    assert_eq!(leaves(&mut tunnel.server, NOW, &second), NO);
    assert_eq!(leaves(&mut tunnel.server, NOW, &first), Ok(()));
    assert_eq!(leaves(&mut tunnel.server, NOW, &second), Ok(()));
}

#[test]
fn tiny_overlapping_ragged_and_endless_fragments_do_not_pass() {
    let mut tunnel = tunnel();
    let mut arrives = |cut: Cut| arrives(&mut tunnel, NOW, &cut.up(PORT));
    // RFC 3128: not even UDP's header.
    let mut tiny = cut(1, 0, 4, true);
    assert_eq!(arrives(tiny), NO);
    tiny.length = 8;
    assert_eq!(arrives(tiny), Ok(()));
    for (wrong, why) in [
        (cut(1, 8, 0, true), "nothing in it"),
        (cut(1, 8, 12, true), "not to an octet that another can begin at"),
        (cut(1, 0, 16, true), "the first one again"),
        (cut(1, 65_528, 16, false), "beyond what a datagram can be"),
    ] {
        assert_eq!(arrives(wrong), NO, "{why}");
    }
    assert_eq!(arrives(cut(1, 32, 16, true)), Ok(()));
    for (wrong, why) in [
        (cut(1, 24, 16, true), "over the beginning of another"),
        (cut(1, 40, 16, true), "over its end"),
        (cut(1, 8, 40, true), "around it"),
        (cut(1, 16, 16, false), "an end before what has passed"),
    ] {
        assert_eq!(arrives(wrong), NO, "{why}");
    }
    assert_eq!(arrives(cut(1, 56, 7, false)), Ok(()));
    assert_eq!(arrives(cut(1, 48, 8, false)), NO, "a second end");
    assert_eq!(arrives(cut(1, 64, 8, true)), NO, "behind the end");
    assert_eq!(arrives(cut(1, 8, 24, true)), Ok(()));
    assert_eq!(arrives(cut(1, 48, 8, true)), Ok(()), "the last that was missing");
    assert_eq!(arrives(cut(1, 8, 24, true)), NO);
    // Scattered: nine stretches.
    assert_eq!(arrives(cut(2, 0, 8, true)), Ok(()));
    for n in 1..8 {
        assert_eq!(arrives(cut(2, n * 16, 8, true)), Ok(()), "{n}");
    }
    assert_eq!(arrives(cut(2, 8 * 16, 8, true)), NO);
    assert_eq!(arrives(cut(2, 8, 8, true)), Ok(()));
    assert_eq!(arrives(cut(2, 8 * 16, 8, true)), Ok(()));
}

/// RFC 3128: a first fragment has all of the next layer's header that is decided on, whatever protocol that is.
#[test]
fn a_first_fragment_without_the_whole_of_its_next_header_does_not_pass() {
    const DCCP: u8 = 33;
    const SCTP: u8 = 132;
    const UDP_LITE: u8 = 136;
    for (protocol, least) in [(TCP, 24), (UDP, 8), (UDP_LITE, 8), (SCTP, 16), (DCCP, 16)] {
        let mut rows = dns();
        rows.iter_mut().for_each(|row| row.protocol = Some(protocol));
        let mut tunnel = Tunnel::new(Suite::Aes256Gcm, true, rows);
        for (id, length) in (1..).zip([8, 16, 24, 32]) {
            let mut first = cut(id, 0, length, true).up(PORT);
            first[9] = protocol;
            let expected = if length < least { NO } else { Ok(()) };
            assert_eq!(arrives(&mut tunnel, NOW, &first), expected, "{length} octets of {protocol}");
            let mut second = cut(id, length as u16, 16, false).up(PORT);
            second[9] = protocol;
            assert_eq!(arrives(&mut tunnel, NOW, &second), expected, "behind {length} octets of {protocol}");
        }
    }
}

#[test]
fn the_longest_datagram_passes_whole() {
    let mut tunnel = tunnel();
    let mut arrives = |cut: Cut| arrives(&mut tunnel, NOW, &cut.up(PORT));
    let middle = 32_760;
    assert_eq!(arrives(cut(1, 0, 8, true)), Ok(()));
    assert_eq!(arrives(cut(1, 65_528, 8, false)), NO, "an octet beyond what a datagram can be");
    assert_eq!(arrives(cut(1, 65_528, 7, false)), Ok(()));
    assert_eq!(arrives(cut(1, 8, middle, true)), Ok(()));
    assert_eq!(arrives(cut(1, 8 + middle as u16, 65_520 - middle, true)), Ok(()));
    assert_eq!(arrives(cut(1, 0, 8, true)), Ok(()), "the one before is whole");
}

#[test]
fn a_datagram_is_remembered_for_two_seconds_and_so_many_at_most_of_a_session() {
    let mut tunnel = tunnel();
    let mut at = |now: Duration, cut: Cut| arrives(&mut tunnel, now, &cut.up(PORT));
    assert_eq!(at(NOW, cut(1, 0, 8, true)), Ok(()));
    let soon = NOW + LIFE - Duration::from_nanos(1);
    assert_eq!(at(soon, cut(1, 8, 8, true)), Ok(()));
    assert_eq!(at(NOW + LIFE, cut(1, 16, 8, true)), NO);
    assert_eq!(at(NOW + LIFE, cut(1, 0, 8, true)), Ok(()), "the name is free again");
    let later = NOW + LIFE * 2;
    for id in 100..132 {
        assert_eq!(at(later, cut(id, 0, 8, true)), Ok(()));
    }
    assert_eq!(at(later, cut(100, 8, 8, true)), Ok(()));
    assert_eq!(at(later, cut(200, 0, 8, true)), NO, "there are 32");
    assert_eq!(at(later, cut(100, 16, 8, false)), Ok(()), "one is whole");
    assert_eq!(at(later, cut(200, 0, 8, true)), Ok(()));
    assert_eq!(at(later, cut(201, 0, 8, true)), NO);
    assert_eq!(at(later + LIFE, cut(201, 0, 8, true)), Ok(()), "the others are too old");
}

#[test]
fn of_datagrams_that_leave_the_oldest_gives_way_and_none_that_comes() {
    let mut tunnel = tunnel();
    let down = |cut: Cut| cut.packet("10.9.0.1", "10.0.0.2", [PORT, 5_000]);
    arrives(&mut tunnel, NOW, &cut(1, 0, 8, true).up(PORT)).unwrap();
    for id in 0..33 {
        assert_eq!(leaves(&mut tunnel.server, NOW, &down(cut(id, 0, 8, true))), Ok(()), "{id}");
    }
    assert_eq!(leaves(&mut tunnel.server, NOW, &down(cut(0, 8, 8, true))), NO);
    assert_eq!(leaves(&mut tunnel.server, NOW, &down(cut(1, 8, 8, true))), Ok(()));
    assert_eq!(arrives(&mut tunnel, NOW, &cut(1, 8, 8, true).up(PORT)), Ok(()));
}

#[test]
fn ipv6_fragments_go_by_the_same_rules_and_are_not_cut_again() {
    let mut tunnel = tunnel();
    let fragment = |offset: u16, more: u16, length: usize| {
        let head = [UDP, 0, (offset >> 8) as u8, (offset & 0xf8) as u8 | more as u8, 1, 2, 3, 4];
        let mut body = vec![9; length];
        if offset == 0 {
            body[..4].copy_from_slice(&[1, 1, 0, PORT as u8]);
        }
        v6(44, "fd00::2", "fd00:9::1", &[&head[..], &body].concat())
    };
    let mut arrives = |bytes: &[u8]| arrives(&mut tunnel, NOW, bytes);
    assert_eq!(arrives(&fragment(24, 0, 9)), NO);
    assert_eq!(arrives(&fragment(0, 1, 24)), Ok(()));
    assert_eq!(arrives(&fragment(16, 0, 9)), NO);
    assert_eq!(arrives(&fragment(24, 0, 9)), Ok(()));
    let twice = [44, 0, 0, 1, 0, 0, 0, 9, UDP, 0, 0, 9, 0, 0, 0, 9];
    let twice = v6(44, "fd00::2", "fd00:9::1", &[&twice[..], &[0; 24]].concat());
    assert_eq!(Inner::parse(&twice), Err(DropReason::Malformed));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever comes: without its first one nothing of a datagram passes, no octet passes twice while it is under way, and nothing
    /// behind its end.
    #[test]
    fn no_octet_of_a_datagram_passes_twice(
        cuts in prop::collection::vec((0_u16..12, prop::sample::select(vec![4_usize, 8, 16, 24]), any::<bool>()), 1..40),
    ) {
        let mut tunnel = tunnel();
        let (mut seen, mut end): (BTreeSet<usize>, Option<usize>) = (BTreeSet::new(), None);
        for (units, length, more) in cuts {
            let cut = cut(1, units * 8, length, more);
            if units == 0 && !more {
                // Whole, and no fragment.
                continue;
            }
            if arrives(&mut tunnel, NOW, &cut.up(PORT)).is_err() {
                continue;
            }
            let octets = usize::from(cut.offset)..usize::from(cut.offset) + length;
            prop_assert_eq!(seen.is_empty(), units == 0, "the first one first, and once");
            prop_assert!(end.is_none_or(|end| octets.end <= end));
            prop_assert!(octets.clone().all(|octet| seen.insert(octet)), "{:?}", cut);
            if !more {
                prop_assert!(end.is_none());
                end = Some(octets.end);
                prop_assert!(seen.iter().all(|octet| *octet < octets.end));
            }
            if end.is_some_and(|end| seen.len() == end) {
                (seen, end) = (BTreeSet::new(), None);
            }
        }
    }

    /// A datagram that was cut in any way arrives whole, its first piece first and the others in any order.
    #[test]
    fn every_datagram_that_was_cut_as_it_should_be_passes(
        pieces in prop::collection::vec(1_usize..40, 1..8),
        rest in 1_usize..64,
        seed in any::<u64>(),
    ) {
        let mut tunnel = tunnel();
        let mut all = Vec::new();
        let mut offset = 0;
        for units in pieces {
            all.push(cut(9, offset, units * 8, true));
            offset += units as u16 * 8;
        }
        all.push(cut(9, offset, rest, false));
        // The first stays where it is.
        let mut order: Vec<usize> = (1..all.len()).collect();
        order.sort_by_key(|n| (seed >> (n * 7)) & 0x7f);
        for n in std::iter::once(0).chain(order) {
            prop_assert_eq!(arrives(&mut tunnel, NOW, &all[n].up(PORT)), Ok(()), "{} of {:?}", n, all);
        }
    }
}
