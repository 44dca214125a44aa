//! The authentication header: what it covers, octet by octet, and what is behind it in tunnel mode.

mod common;

use std::ops::Range;

use common::*;
use levee_aead::Library;
use levee_esp::ah::{AH, AhInbound, AhOutbound};
use levee_esp::{DropReason, ICV, Inner, MacProvider as _, Spi, ecn};

const NONE: Range<usize> = 0..0;
const KEY: [u8; 32] = [7; 32];
const SPI: u32 = 0x1234;
const UNBOUND: (&str, &str) = ("10.0.0.2", "10.9.0.1");

fn outbound(extended: bool) -> AhOutbound {
    AhOutbound::new(Spi::new(SPI).unwrap(), &KEY, extended, &Library::Ring).unwrap()
}

fn inbound(extended: bool) -> AhInbound {
    AhInbound::new(Spi::new(SPI).unwrap(), &KEY, extended, &Library::AwsLc).unwrap()
}

/// An IPv4 packet with these options.
fn four(options: &[u8]) -> Vec<u8> {
    let mut packet = packet(UDP, UNBOUND.0, UNBOUND.1, Some((5, 9)), b"what is said");
    packet.splice(20..20, options.iter().copied());
    packet[0] = 0x45 + (options.len() / 4) as u8;
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[10..12].fill(0);
    let words = packet[..20 + options.len()].chunks(2);
    let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}

/// An IPv6 packet with these extension headers, each with its number.
fn six(headers: &[(u8, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (at, (_, content)) in headers.iter().enumerate() {
        let next = headers.get(at + 1).map_or(UDP, |(kind, _)| *kind);
        body.extend([next, ((content.len() + 2) / 8 - 1) as u8]);
        body.extend(*content);
    }
    body.extend([0, 5, 0, 9]);
    body.extend(b"what is said");
    v6(headers.first().map_or(UDP, |(kind, _)| *kind), "fd00::2", "fd00:9::1", &body)
}

/// Bits that may change on the way, by the octet that they are in (RFC 4302 3.3.3.1), of a header without options.
fn of_the_way(packet: &[u8], at: usize) -> u8 {
    match (packet[0] >> 4, at) {
        // Type of service, time to live, checksum; of the flags what makes no fragment of it.
        (4, 1 | 8 | 10 | 11) => 0xff,
        (4, 6) => 0xc0,
        // Class and flow label, hop limit.
        (6, 0) => 0x0f,
        (6, 1..=3 | 7) => 0xff,
        _ => 0,
    }
}

/// That every bit of the signed packet is covered, but for those that may change on the way and those at `free`. Of those at `open`, which
/// say what an option is that may change, some are and some are not.
fn covers(packet: &[u8], free: Range<usize>, open: Range<usize>) {
    let signed = outbound(true).protect(packet).unwrap();
    assert_eq!(inbound(true).verify(&signed).as_deref(), Ok(packet), "{packet:02x?}");
    let octets = (0..signed.len()).filter(|at| !open.contains(at));
    for (at, bit) in octets.flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut other = signed.clone();
        other[at] ^= 1 << bit;
        let may = of_the_way(&signed, at) >> bit & 1 == 1 || free.contains(&at);
        assert_eq!(inbound(true).verify(&other).is_ok(), may, "octet {at}, bit {bit} of {signed:02x?}");
    }
}

#[test]
fn every_bit_is_covered_but_what_routers_change() {
    covers(&four(&[]), NONE, NONE);
    covers(&six(&[]), NONE, NONE);
    // RFC 4302 A1: these options do not change. No operation, a security label, router alert; behind the end there is nothing.
    covers(&four(&[1, 148, 4, 0, 0, 1, 1, 0]), NONE, NONE);
    covers(&four(&[130, 3, 7, 1, 134, 6, 0, 0, 0, 16, 1, 0]), NONE, NONE);
    // All others do: nothing of them is covered but how long they are.
    covers(&four(&[148, 4, 0, 0, 7, 4, 9, 9, 149, 4, 1, 1]), 26..28, 24..26);
    covers(&four(&[9, 2, 148, 4, 0, 0, 0, 0]), NONE, 20..22);
    // RFC 4302 A2: an option says of itself whether it may change.
    covers(&six(&[(0, &[0x05, 2, 0, 0, 1, 0])]), NONE, NONE);
    covers(&six(&[(0, &[0, 0x3e, 3, 9, 9, 9])]), 45..48, NONE);
    covers(&six(&[(0, &[0x1e, 2, 9, 9, 0x3e, 4, 9, 9, 9, 9, 0x1e, 0, 0, 0])]), 48..52, NONE);
    // Behind them a routing header that is at its end.
    covers(&six(&[(0, &[0x3e, 4, 9, 9, 9, 9]), (43, &[0, 0, 0, 0, 0, 0])]), 44..48, NONE);
}

#[test]
fn a_packet_that_is_still_routed_or_whose_options_have_no_end_is_not_for_it() {
    let refused = |packet: &[u8]| {
        assert_eq!(outbound(true).protect(packet), Err(DropReason::Malformed), "{packet:02x?}")
    };
    for options in [
        [131, 3, 4, 0],
        [137, 3, 4, 0],
        [1, 131, 3, 4],
        // Shorter than themselves, and beyond the header.
        [7, 0, 1, 1],
        [7, 1, 1, 1],
        [1, 1, 7, 3],
        [1, 1, 1, 7],
    ] {
        refused(&four(&options));
    }
    for left in 1..=255 {
        refused(&six(&[(43, &[0, left, 0, 0, 0, 0])]));
        refused(&six(&[(0, &[1, 4, 0, 0, 0, 0]), (43, &[0, left, 0, 0, 0, 0])]));
    }
    refused(&six(&[(0, &[1, 5, 0, 0, 0, 0])]));
    refused(&six(&[(0, &[0, 0, 0, 0, 0, 1])]));
    // As long as the header there may be options.
    outbound(true).protect(&four(&[1, 1, 7, 2])).unwrap();
    outbound(true).protect(&six(&[(0, &[1, 4, 0, 0, 0, 0])])).unwrap();
}

/// A peer that aligns to 8 octets in IPv4, too, puts four more behind the value.
#[test]
fn in_ipv4_a_header_aligned_to_4_or_to_8_octets_is_taken_and_no_other() {
    let plain = packet(UDP, UNBOUND.0, UNBOUND.1, Some((5, 9)), b"what is said");
    for padding in (0..=16).step_by(4) {
        let words = ((12 + ICV + padding) / 4 - 2) as u8;
        let header =
            [&[UDP, words, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 1][..], &vec![0; ICV + padding]].concat();
        let mut signed = [&plain[..20], &header, &plain[20..]].concat();
        signed[9] = AH;
        let length = signed.len() as u16;
        signed[2..4].copy_from_slice(&length.to_be_bytes());
        let mut covered = signed.clone();
        for octet in [1, 6, 7, 8, 10, 11] {
            covered[octet] = 0;
        }
        let value = Library::Ring.mac(&KEY).unwrap().sum(&[&covered]);
        signed[32..32 + ICV].copy_from_slice(&value);
        let expected = if padding <= 4 { Ok(plain.clone()) } else { Err(DropReason::Truncated) };
        assert_eq!(inbound(false).verify(&signed), expected, "{padding}");
    }
}

#[test]
fn in_tunnel_mode_the_outer_header_says_what_the_inner_one_wants_on_the_way() {
    let inner = |six: bool, class: u8, whole: bool| {
        let (from, to) = if six { ("fd00::2", "fd00:9::1") } else { UNBOUND };
        let mut packet = packet(UDP, from, to, Some((5, 9)), b"what is said");
        if six {
            (packet[0], packet[1]) = (0x60 | class >> 4, class << 4);
        } else {
            (packet[1], packet[6]) = (class, if whole { 0x40 } else { 0 });
        }
        packet
    };
    for (is_six, class, whole) in [0, 0x02, 0xb9, 0xff]
        .into_iter()
        .flat_map(|class| [(true, class, true), (false, class, true), (false, class, false)])
    {
        let packet = inner(is_six, class, whole);
        let next = if is_six { 41 } else { 4 };
        let (mut sender, mut receiver) = (outbound(true), inbound(true));
        for number in 0..3_u8 {
            let signed = sender.protect_in_tunnel(&packet, ip("192.0.2.1"), ip("192.0.2.2")).unwrap();
            assert_eq!((signed[0], signed[1]), (0x45, class));
            // Whether it may be cut is the inner packet's to say; who sends IPv6 does not expect it.
            assert_eq!(
                (signed[6], signed[7], signed[8], signed[9]),
                (if whole { 0x40 } else { 0 }, 0, 64, AH)
            );
            assert_eq!((signed[4], signed[5], signed[20]), (0, number.max(1), next));
            assert_eq!(Inner::parse(&signed).unwrap().length, signed.len());
            let signed = sender.protect_in_tunnel(&packet, ip("2001:db8::1"), ip("2001:db8::2")).unwrap();
            assert_eq!(signed[..4], [0x60 | class >> 4, class << 4, 0, 0]);
            assert_eq!((signed[6], signed[7], signed[40]), (AH, 64, next));
            assert_eq!(receiver.verify_in_tunnel(&signed), Ok(packet.clone()));
            // (Each of a pair has a number of its own.)
            sender = outbound(true);
            receiver = inbound(true);
            for _ in 0..=number {
                sender.protect(&packet).unwrap();
            }
        }
    }
    let mixed = outbound(true).protect_in_tunnel(&inner(false, 0, true), ip("192.0.2.1"), ip("2001:db8::2"));
    assert_eq!(mixed, Err(DropReason::Malformed));
}

#[test]
fn congestion_marked_outside_arrives_inside() {
    for (before, outer) in (0..4).flat_map(|before| (0..4).map(move |outer| (before, outer))) {
        let mut packet = packet(UDP, UNBOUND.0, UNBOUND.1, Some((5, 9)), b"what is said");
        ecn::set(&mut packet, before);
        let mut signed = outbound(true).protect_in_tunnel(&packet, ip("192.0.2.1"), ip("192.0.2.2")).unwrap();
        ecn::set(&mut signed, outer);
        let arrived = inbound(true).verify_in_tunnel(&signed);
        match ecn::decapsulated(before, outer) {
            Ok(after) => {
                ecn::set(&mut packet, after);
                assert_eq!(arrived, Ok(packet), "{before} in {outer}");
            }
            Err(reason) => assert_eq!(arrived, Err(reason), "{before} in {outer}"),
        }
    }
}
