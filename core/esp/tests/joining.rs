//! Which packets are put together: none that differs from what would follow in anything that a receiver would lose.

mod common;

use common::*;
use levee_esp::offload::{Gso, GsoKind, Joint, Run, Segments, complete_checksum};
use levee_esp::{DropReason, Inner};

const FIN: u8 = 1;
const PSH: u8 = 8;
const ACK: u8 = 16;
const CWR: u8 = 128;

/// Independent of the code under test: RFC 1071, two bytes at a time.
fn checksum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Bytes of the IP header, and where behind it the checksum is.
fn places(packet: &[u8]) -> (usize, u8, usize) {
    let (header, protocol) = if packet[0] >> 4 == 6 { (40, packet[6]) } else { (20, packet[9]) };
    (header, protocol, header + if protocol == TCP { 16 } else { 6 })
}

/// What the checksum behind the IP header is to be, as far as the packet's own lengths go.
fn sum_behind(packet: &[u8]) -> u16 {
    let (header, protocol, field) = places(packet);
    let mut covered = packet[if header == 40 { 8..40 } else { 12..20 }].to_vec();
    covered.extend(((packet.len() - header) as u32).to_be_bytes());
    covered.extend([0, 0, 0, protocol]);
    let at = covered.len() + field - header;
    covered.extend(&packet[header..]);
    covered[at..at + 2].fill(0);
    checksum(&covered)
}

/// The packet with its checksums right.
fn right(mut packet: Vec<u8>) -> Vec<u8> {
    let (header, _, field) = places(&packet);
    if header == 20 {
        packet[10..12].fill(0);
        let sum = checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let sum = sum_behind(&packet).to_be_bytes();
    packet[field..field + 2].copy_from_slice(&sum);
    packet
}

/// Packet `number` of a stream, with so many octets each before it.
fn of_stream(v6: bool, protocol: u8, number: usize, size: usize, length: usize) -> Vec<u8> {
    let (from, to) = if v6 { ("fd00::2", "fd00:9::1") } else { ("10.0.0.2", "10.9.0.1") };
    let mut body = Vec::new();
    if protocol == TCP {
        body.extend((0xffff_ff00_u32.wrapping_add((number * size) as u32)).to_be_bytes());
        body.extend([0, 0, 0, 77, 0x80, ACK, 1, 0, 0, 0, 0, 0]);
        // An option.
        body.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    } else {
        body.extend(((8 + length) as u16).to_be_bytes());
        body.extend([0, 0]);
    }
    body.extend((0..length).map(|n| (n * 7 + number) as u8));
    let mut bytes = packet(protocol, from, to, Some((999, 80)), &body);
    if !v6 {
        let id = 0xffff_u16.wrapping_add(number as u16);
        bytes[4..6].copy_from_slice(&id.to_be_bytes());
    }
    right(bytes)
}

fn begin(packet: &[u8]) -> Option<(Run, Vec<u8>)> {
    Some((Run::start(packet, Inner::parse(packet).unwrap())?, packet.to_vec()))
}

/// Whether it goes behind what there is.
fn goes((run, bytes): &mut (Run, Vec<u8>), packet: &[u8]) -> bool {
    let Ok(inner) = Inner::parse(packet) else { return false };
    let taken = run.append(bytes, packet, &inner);
    if taken {
        bytes.extend(&packet[run.headers()..inner.length]);
        assert_eq!(run.length(), bytes.len());
    }
    taken
}

const KINDS: [(bool, u8); 4] = [(false, TCP), (true, TCP), (false, UDP), (true, UDP)];

#[test]
fn what_differs_in_any_bit_from_the_packet_that_would_follow_goes_alone() {
    for (v6, protocol) in KINDS {
        let first = of_stream(v6, protocol, 0, 100, 100);
        let second = of_stream(v6, protocol, 1, 100, 100);
        let run = || begin(&first).unwrap();
        assert!(goes(&mut run(), &second), "{v6} {protocol}");
        let (header, _, field) = places(&second);
        let length = if v6 { 4..6 } else { 2..4 };
        for (at, bit) in (0..run().0.headers()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            // Lengths and checksums are its own; a length that is wrong is no packet.
            if length.contains(&at) || (field..field + 2).contains(&at) || (!v6 && (10..12).contains(&at)) {
                continue;
            }
            let mut other = second.clone();
            other[at] ^= 1 << bit;
            if Inner::parse(&other).is_err()
                || [places(&other).0, places(&other).1.into()] != [header, protocol.into()]
            {
                assert!(!goes(&mut run(), &other), "octet {at}, bit {bit}");
                continue;
            }
            // FIN and PSH are the last packet's to say, and the first has them then.
            let is_last = protocol == TCP && at == header + 13 && [FIN, PSH].contains(&(1 << bit));
            assert_eq!(
                goes(&mut run(), &right(other.clone())),
                is_last,
                "octet {at}, bit {bit} of {v6} {protocol}"
            );
            assert!(!goes(&mut run(), &other) || is_last, "its checksums are wrong");
        }
        // One octet of its content is another, and its checksum is not.
        let mut harmed = second.clone();
        *harmed.last_mut().unwrap() ^= 1;
        assert!(!goes(&mut run(), &harmed));
        // Of another version, or protocol.
        for (other_v6, other_protocol) in KINDS.into_iter().filter(|kind| *kind != (v6, protocol)) {
            assert!(!goes(&mut run(), &of_stream(other_v6, other_protocol, 1, 100, 100)));
        }
    }
}

#[test]
fn a_header_of_ipv4_with_a_wrong_checksum_is_not_made_right() {
    for protocol in [TCP, UDP] {
        let (first, mut second) =
            (of_stream(false, protocol, 0, 100, 100), of_stream(false, protocol, 1, 100, 100));
        second[10] ^= 1;
        assert!(!goes(&mut begin(&first).unwrap(), &second));
        assert!(begin(&second).is_none());
    }
}

/// RFC 6864 4.1: where nothing is to be cut the identification may be the same in all.
#[test]
fn identifications_are_in_step_or_where_they_mean_nothing_all_the_same() {
    for (dont_fragment, id, expected) in [
        (false, 0x0000, true),
        (true, 0x0000, true),
        (false, 0xffff, false),
        (true, 0xffff, true),
        (false, 0x0001, false),
        (true, 0x0001, false),
    ] {
        let with = |number: usize, id: u16| {
            let mut packet = of_stream(false, TCP, number, 100, 100);
            packet[4..6].copy_from_slice(&id.to_be_bytes());
            packet[6] = if dont_fragment { 0x40 } else { 0 };
            right(packet)
        };
        assert_eq!(
            goes(&mut begin(&with(0, 0xffff)).unwrap(), &with(1, id)),
            expected,
            "{dont_fragment} {id:#x}"
        );
    }
}

#[test]
fn behind_a_short_packet_or_one_that_ends_something_nothing_goes() {
    for (v6, protocol) in KINDS {
        let packet = |number: usize, length: usize| of_stream(v6, protocol, number, 100, length);
        let run = || begin(&packet(0, 100)).unwrap();
        for wrong in [0, 101] {
            assert!(!goes(&mut run(), &packet(1, wrong)), "{wrong} octets");
        }
        let mut short = run();
        assert!(goes(&mut short, &packet(1, 99)) && short.0.is_closed());
        assert!(!goes(&mut short, &packet(2, 100)) && !goes(&mut short, &packet(2, 99)));
        let mut whole = run();
        assert!(goes(&mut whole, &packet(1, 100)) && !whole.0.is_closed());
        for flags in [FIN, PSH, FIN | PSH] {
            if protocol == TCP {
                let (mut run, mut last, header) = (run(), packet(1, 100), if v6 { 40 } else { 20 });
                last[header + 13] |= flags;
                assert!(goes(&mut run, &right(last)) && run.0.is_closed());
                assert_eq!(run.1[header + 13], ACK | flags);
                assert!(!goes(&mut run, &packet(2, 100)));
            }
        }
        // CWR is the first packet's.
        if protocol == TCP {
            let header = if v6 { 40 } else { 20 };
            let with = |number: usize| {
                let mut packet = packet(number, 100);
                packet[header + 13] |= CWR;
                right(packet)
            };
            assert!(goes(&mut begin(&with(0)).unwrap(), &packet(1, 100)));
            assert!(!goes(&mut begin(&with(0)).unwrap(), &with(1)));
        }
    }
}

#[test]
fn together_they_have_65535_octets_and_datagrams_are_64() {
    // Behind 52 octets of headers there is room for five of 13,096, and not for five of 13,097.
    for (size, most) in [(13_096, 5), (13_097, 4), (65_483, 1)] {
        let mut run = begin(&of_stream(false, TCP, 0, size, size)).unwrap();
        let mut count = 1;
        while goes(&mut run, &of_stream(false, TCP, count, size, size)) {
            count += 1;
        }
        assert_eq!((count, run.0.is_closed()), (most, true), "{size}");
    }
    // To the last octet: eleven of 5,953.
    let mut run = begin(&of_stream(false, TCP, 0, 5_953, 5_953)).unwrap();
    assert!((1..11).all(|number| goes(&mut run, &of_stream(false, TCP, number, 5_953, 5_953))));
    assert_eq!((run.0.length(), run.0.is_closed()), (65_535, true));
    let mut run = begin(&of_stream(true, UDP, 0, 10, 10)).unwrap();
    for number in 1..70 {
        assert_eq!(goes(&mut run, &of_stream(true, UDP, number, 10, 10)), number < 64, "{number}");
    }
    assert_eq!(run.0.packets(), 64);
}

#[test]
fn a_datagram_without_a_checksum_or_of_another_length_than_it_says_goes_alone() {
    for v6 in [false, true] {
        let header = if v6 { 40 } else { 20 };
        // One whose checksum comes to nothing, written as if there were none.
        let mut packet = of_stream(v6, UDP, 0, 100, 100);
        let [high, low] = (!sum_behind(&{
            let mut packet = packet.clone();
            packet[header + 8..header + 10].fill(0);
            packet
        }) ^ 0xffff)
            .to_be_bytes();
        packet[header + 8..header + 10].copy_from_slice(&[high, low]);
        packet[header + 6..header + 8].fill(0);
        assert!([0, 0xffff].contains(&sum_behind(&packet)));
        assert!(begin(&packet).is_none());
        // What is left to us is not left at that.
        let mut left = packet.clone();
        let addresses = &packet[if v6 { 8..40 } else { 12..20 }];
        let pseudo = !checksum(&[addresses, &108_u32.to_be_bytes(), &[0, 0, 0, UDP]].concat());
        left[header + 6..header + 8].copy_from_slice(&pseudo.to_be_bytes());
        complete_checksum(&mut left, header, 6, UDP).unwrap();
        assert_eq!(left[header + 6..header + 8], [0xff, 0xff]);
        // As another protocol's it stays what it is.
        left[header + 6..header + 8].copy_from_slice(&pseudo.to_be_bytes());
        complete_checksum(&mut left, header, 6, TCP).unwrap();
        assert_eq!(left[header + 6..header + 8], [0, 0]);
        let gso = Gso { kind: GsoKind::Udp, size: 100 };
        let segments = Segments::new(&packet, Inner::parse(&packet).unwrap(), gso).unwrap();
        let mut out = vec![0; packet.len()];
        assert_eq!(segments.write(0, &mut out), Some(packet.len()));
        assert_eq!(out[header + 6..header + 8], [0xff, 0xff]);
        // Shorter than there is, with a checksum over all of it.
        let mut longer = of_stream(v6, UDP, 0, 100, 100);
        longer[header + 5] -= 1;
        assert!(begin(&right(longer)).is_none());
    }
}

#[test]
fn what_is_joined_is_closed_when_nothing_can_follow_and_empty_when_it_is_taken_or_erased() {
    let mut joint = Joint::default();
    let add = |joint: &mut Joint, packet: &[u8], joins: bool| {
        joint.add(packet, &Inner::parse(packet).unwrap(), joins)
    };
    assert!(!joint.is_closed() && joint.take().is_none(), "nothing is here");
    let (first, second) = (of_stream(false, TCP, 0, 100, 100), of_stream(false, TCP, 1, 100, 100));
    assert!(add(&mut joint, &first, true) && !joint.is_closed());
    assert!(add(&mut joint, &second, true) && !joint.is_closed());
    assert_eq!(joint.take().map(|whole| whole.packets), Some(2));
    assert!(!joint.is_closed());
    // Alone, since it may not be joined; and closed by a short one.
    assert!(add(&mut joint, &first, false) && joint.is_closed());
    assert_eq!(joint.take().map(|whole| whole.packets), Some(1));
    assert!(add(&mut joint, &first, true) && add(&mut joint, &of_stream(false, TCP, 1, 100, 9), true));
    assert!(joint.is_closed());
    joint.clear();
    assert!(!joint.is_closed() && joint.take().is_none());
    assert!(add(&mut joint, &first, true), "as if nothing had been");
}

#[test]
fn a_super_segment_of_headers_alone_is_one_packet_and_of_less_is_none() {
    for (v6, kind) in [(false, GsoKind::TcpV4), (true, GsoKind::TcpV6)] {
        let bytes = of_stream(v6, TCP, 0, 0, 0);
        let gso = Gso { kind, size: 10 };
        let segments = Segments::new(&bytes, Inner::parse(&bytes).unwrap(), gso).unwrap();
        assert_eq!((segments.count(), segments.longest(), segments.length(0)), (1, bytes.len(), bytes.len()));
        let mut out = vec![0; bytes.len()];
        assert_eq!((segments.write(0, &mut out), &out), (Some(bytes.len()), &bytes));
        // Its own header says more than there is.
        for words in [9, 15] {
            let mut beyond = bytes.clone();
            let at = places(&bytes).0 + 12;
            beyond[at] = words << 4;
            let inner = Inner::parse(&beyond).unwrap();
            assert_eq!(Segments::new(&beyond, inner, gso).err(), Some(DropReason::Malformed), "{words}");
        }
        let long = of_stream(v6, TCP, 0, 0, 95);
        let segments = Segments::new(&long, Inner::parse(&long).unwrap(), gso).unwrap();
        assert_eq!((segments.count(), segments.longest()), (10, long.len() - 85));
        assert_eq!((segments.length(0), segments.length(9)), (long.len() - 85, long.len() - 90));
    }
}
