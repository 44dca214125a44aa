//! Segmenting and coalescing undo each other.

mod common;

use common::*;
use levee_esp::aggfrag::{Packer, Reassembler};
use levee_esp::offload::{Gso, GsoKind, Joint, Run, Segments, VNET_HEADER, Vnet, complete_checksum};
use levee_esp::{DropReason, Inner};
use proptest::prelude::*;

const FIN: u8 = 1;
const PSH: u8 = 8;
const ACK: u8 = 16;
const ECE: u8 = 64;
const CWR: u8 = 128;

/// What makes a TCP packet or super-segment.
#[derive(Clone, Debug)]
struct Tcp {
    v6: bool,
    sequence: u32,
    flags: u8,
    options: Vec<u8>,
    payload: Vec<u8>,
    id: u16,
    class: u8,
}

impl Tcp {
    /// With every checksum but TCP's right.
    fn bytes(&self) -> Vec<u8> {
        let mut tcp = vec![];
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend(77_u32.to_be_bytes());
        tcp.extend([(((20 + self.options.len()) / 4) << 4) as u8, self.flags, 1, 0, 0, 0, 0xaa, 0xbb]);
        tcp.extend(&self.options);
        tcp.extend(&self.payload);
        if self.v6 {
            let mut bytes = packet(TCP, "fd00::2", "fd00:9::1", Some((999, 80)), &tcp);
            bytes[1] |= self.class << 4;
            bytes
        } else {
            let mut bytes = packet(TCP, "10.0.0.2", "10.9.0.1", Some((999, 80)), &tcp);
            bytes[1] = self.class;
            bytes[4..6].copy_from_slice(&self.id.to_be_bytes());
            bytes[10..12].copy_from_slice(&[0, 0]);
            let sum = checksum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes
        }
    }

    fn header(&self) -> usize {
        if self.v6 { 40 } else { 20 }
    }

    /// As the kernel hands it over: TCP's checksum is the pseudo-header's sum.
    fn unfinished(&self) -> Vec<u8> {
        let mut bytes = self.bytes();
        let pseudo = !checksum(&self.pseudo(&bytes));
        let field = self.header() + 16;
        bytes[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        bytes
    }

    fn pseudo(&self, bytes: &[u8]) -> Vec<u8> {
        let mut pseudo = if self.v6 { bytes[8..40].to_vec() } else { bytes[12..20].to_vec() };
        pseudo.extend(((bytes.len() - self.header()) as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, TCP]);
        pseudo
    }

    /// As it is on a wire.
    fn finished(&self) -> Vec<u8> {
        let mut bytes = self.bytes();
        let sum = checksum(&[self.pseudo(&bytes), bytes[self.header()..].to_vec()].concat());
        let field = self.header() + 16;
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn kind(&self) -> GsoKind {
        if self.v6 { GsoKind::TcpV6 } else { GsoKind::TcpV4 }
    }
}

/// Independent of the code under test: RFC 1071, two bytes at a time.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn super_segment() -> impl Strategy<Value = Tcp> {
    let flags =
        prop::sample::select(vec![ACK, ACK | PSH, ACK | FIN, ACK | CWR, ACK | ECE, ACK | PSH | CWR | ECE]);
    let options = (0_usize..=10).prop_flat_map(|words| prop::collection::vec(any::<u8>(), words * 4));
    (any::<bool>(), any::<u32>(), flags, options, 1_usize..20_000, any::<u16>(), 0_u8..4, any::<u8>())
        .prop_map(|(v6, sequence, flags, options, length, id, class, seed)| {
            let payload = (0..length).map(|n| (n * 7 + n / 251) as u8 ^ seed).collect();
            Tcp { v6, sequence, flags, options, payload, id, class }
        })
}

fn segments(bytes: &[u8], gso: Gso) -> Vec<Vec<u8>> {
    let segments = Segments::new(bytes, Inner::parse(bytes).unwrap(), gso).unwrap();
    (0..segments.count())
        .map(|number| {
            let mut out = vec![0; segments.length(number)];
            assert_eq!(segments.write(number, &mut out), Some(out.len()));
            assert!(out.len() <= segments.longest());
            assert_eq!(segments.write(number, &mut vec![0; out.len() - 1]), None);
            out
        })
        .collect()
}

/// What a device would be given for these packets, in order: headers and bytes.
fn coalesced(packets: &[Vec<u8>]) -> Vec<([u8; VNET_HEADER], Vec<u8>)> {
    let mut out = Vec::new();
    let mut run: Option<(Run, Vec<u8>)> = None;
    let finish = |run: Option<(Run, Vec<u8>)>, out: &mut Vec<_>| {
        if let Some((run, mut bytes)) = run {
            assert_eq!(run.length(), bytes.len());
            out.push((run.finish(&mut bytes), bytes));
        }
    };
    for packet in packets {
        let inner = Inner::parse(packet).unwrap();
        if let Some((current, bytes)) = &mut run
            && current.append(bytes, packet, &inner)
        {
            let headers = current.headers();
            bytes.extend(&packet[headers..]);
            continue;
        }
        finish(run.take(), &mut out);
        match Run::start(packet, inner) {
            Some(started) => run = Some((started, packet.clone())),
            None => out.push(([0; VNET_HEADER], packet.clone())),
        }
    }
    finish(run, &mut out);
    assert_eq!(out, put_together(packets), "it makes no difference where the packets lie");
    out
}

/// The same by way of a buffer of its own.
fn put_together(packets: &[Vec<u8>]) -> Vec<([u8; VNET_HEADER], Vec<u8>)> {
    let mut out = Vec::new();
    let mut joint = Joint::new();
    let take = |joint: &mut Joint, out: &mut Vec<_>| {
        if let Some(whole) = joint.take() {
            let (header, packet) = whole.bytes.split_first_chunk::<VNET_HEADER>().unwrap();
            let gso = Vnet::parse(header).unwrap().gso;
            let count = gso
                .map_or(1, |gso| Segments::new(packet, Inner::parse(packet).unwrap(), gso).unwrap().count());
            assert_eq!(whole.packets, count);
            out.push((*header, packet.to_vec()));
        }
    };
    for packet in packets {
        let inner = Inner::parse(packet).unwrap();
        if !joint.add(packet, &inner, true) {
            take(&mut joint, &mut out);
            assert!(joint.add(packet, &inner, true), "an empty one takes any packet");
        }
        if joint.is_closed() {
            take(&mut joint, &mut out);
        }
    }
    take(&mut joint, &mut out);
    assert!(joint.take().is_none() && !joint.is_closed());
    out
}

/// What comes out at the other end of an association that carries AGGFRAG payloads of this size.
fn through_aggfrag(packets: &[Vec<u8>], size: usize) -> Vec<Vec<u8>> {
    let mut packer = Packer::new(size, true);
    let mut reassembler = Reassembler::new();
    let (mut out, mut sequence) = (Vec::new(), 0);
    let mut payload = vec![0; size];
    for packet in packets {
        packer.push(packet).unwrap();
        while packer.waiting() > 0 {
            let length = packer.payload(&mut payload, false, false).unwrap();
            sequence += 1;
            let pass = |packet: &mut [u8], _| out.push(packet.to_vec());
            reassembler.take(&mut payload[..length], sequence, 0, pass, |why| panic!("{why:?}"));
        }
    }
    out
}

proptest! {
    #[test]
    fn segmenting_then_coalescing_gives_the_super_segment_back(whole in super_segment(), size in 1_usize..3_000) {
        let bytes = whole.unfinished();
        let gso = Gso { kind: whole.kind(), size };
        let pieces = segments(&bytes, gso);
        prop_assert_eq!(pieces.len(), whole.payload.len().div_ceil(size));
        let mut at = 0;
        for (number, piece) in pieces.iter().enumerate() {
            let last = number + 1 == pieces.len();
            let payload = whole.payload[at..(at + size).min(whole.payload.len())].to_vec();
            let mut flags = whole.flags;
            if number > 0 {
                flags &= !CWR;
            }
            if !last {
                flags &= !(FIN | PSH);
            }
            let expected = Tcp {
                sequence: whole.sequence.wrapping_add(at as u32),
                id: whole.id.wrapping_add(number as u16),
                flags,
                payload,
                ..whole.clone()
            };
            prop_assert_eq!(piece, &expected.finished());
            at += size;
        }
        let back = coalesced(&pieces);
        prop_assert_eq!(back.len(), 1);
        let (header, joined) = &back[0];
        if pieces.len() == 1 {
            prop_assert_eq!(*header, [0; VNET_HEADER]);
            prop_assert_eq!(joined, &whole.finished());
        } else {
            prop_assert_eq!(joined, &bytes);
            let vnet = Vnet::parse(header).unwrap();
            prop_assert_eq!(vnet, Vnet { checksum: Some((whole.header(), 16)), gso: Some(gso) });
            prop_assert_eq!(usize::from(u16::from_ne_bytes([header[2], header[3]])), whole.header() + 20 + whole.options.len());
        }
    }

    #[test]
    fn coalescing_then_segmenting_gives_every_stream_back(
        streams in prop::collection::vec((super_segment(), 100_usize..3_000), 1..4),
        harm in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..8)),
        swap in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut packets: Vec<Vec<u8>> = streams
            .iter()
            .flat_map(|(whole, size)| segments(&whole.unfinished(), Gso { kind: whole.kind(), size: *size }))
            .collect();
        if let Some((which, byte, bit)) = harm {
            let which = which.index(packets.len());
            let byte = byte.index(packets[which].len());
            packets[which][byte] ^= 1_u8 << bit;
            if Inner::parse(&packets[which]).is_err() {
                packets[which][byte] ^= 1_u8 << bit;
            }
            let length = Inner::parse(&packets[which]).unwrap().length;
            packets[which].truncate(length);
        }
        if let Some(at) = swap {
            let at = at.index(packets.len());
            packets.rotate_left(at);
        }
        let mut back = Vec::new();
        for (header, bytes) in coalesced(&packets) {
            match Vnet::parse(&header).unwrap() {
                Vnet { gso: Some(gso), checksum: Some(_) } => back.extend(segments(&bytes, gso)),
                other => {
                    prop_assert_eq!(other, Vnet::default());
                    back.push(bytes);
                }
            }
        }
        prop_assert_eq!(back, packets);
    }

    #[test]
    fn streams_that_went_in_aggfrag_payloads_are_put_together_and_taken_apart_again(
        streams in prop::collection::vec((super_segment(), 100_usize..3_000), 1..4),
        size in 300_usize..2_000,
    ) {
        let wholes: Vec<Vec<u8>> = streams.iter().map(|(whole, _)| whole.unfinished()).collect();
        let gsos = streams.iter().map(|(whole, size)| Gso { kind: whole.kind(), size: *size });
        let packets: Vec<Vec<u8>> = wholes.iter().zip(gsos).flat_map(|(whole, gso)| segments(whole, gso)).collect();
        let arrived = through_aggfrag(&packets, size);
        prop_assert_eq!(&arrived, &packets);
        let mut back = Vec::new();
        let mut writes = 0;
        for (header, bytes) in put_together(&arrived) {
            writes += 1;
            match Vnet::parse(&header).unwrap() {
                Vnet { gso: Some(gso), checksum: Some(_) } => back.extend(segments(&bytes, gso)),
                other => {
                    prop_assert_eq!(other, Vnet::default());
                    back.push(bytes);
                }
            }
        }
        prop_assert_eq!(back, packets);
        // One write for each of the super-segments, as with ordinary packets.
        prop_assert!(writes <= streams.len(), "{} writes for {} super-segments", writes, streams.len());
    }

    #[test]
    fn datagrams_of_one_size_are_put_together_and_taken_apart_again(
        v6 in any::<bool>(),
        size in 1_usize..1_400,
        length in 1_usize..30_000,
        seed in any::<u8>(),
        harm in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..8)),
    ) {
        let (from, to) = if v6 { ("fd00::2", "fd00:9::1") } else { ("10.0.0.2", "10.9.0.1") };
        let mut udp = ((length + 8) as u16).to_be_bytes().to_vec();
        udp.extend([0, 0]);
        udp.extend((0..length).map(|n| (n * 13 + n / 256) as u8 ^ seed));
        let bytes = packet(UDP, from, to, Some((5, 53)), &udp);
        let gso = Gso { kind: GsoKind::Udp, size };
        let mut pieces = segments(&bytes, gso);
        let whole = harm.is_none();
        if let Some((which, byte, bit)) = harm {
            let which = which.index(pieces.len());
            let at = byte.index(pieces[which].len());
            pieces[which][at] ^= 1_u8 << bit;
            // What is no packet any more never gets this far.
            if !Inner::parse(&pieces[which]).is_ok_and(|inner| inner.length == pieces[which].len()) {
                pieces[which][at] ^= 1_u8 << bit;
            }
        }
        let joined = coalesced(&pieces);
        if whole {
            prop_assert_eq!(joined.len(), pieces.len().div_ceil(64));
        }
        let mut back = Vec::new();
        for (header, bytes) in joined {
            match Vnet::parse(&header).unwrap() {
                Vnet { gso: Some(gso), checksum: Some(_) } => back.extend(segments(&bytes, gso)),
                _ => back.push(bytes),
            }
        }
        prop_assert_eq!(back, pieces);
    }

    #[test]
    fn any_bytes_are_safe_to_segment_and_coalesce(
        header in any::<[u8; VNET_HEADER]>(),
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        version in prop::sample::select(vec![0x45_u8, 0x46, 0x60]),
        protocol in prop::sample::select(vec![6_u8, 17, 0, 44]),
        out in 0_usize..400,
    ) {
        if bytes.len() >= 40 {
            let length = bytes.len() as u16;
            bytes[0] = version;
            if version == 0x60 {
                bytes[4..6].copy_from_slice(&(length - 40).to_be_bytes());
                bytes[6] = protocol;
            } else {
                bytes[2..4].copy_from_slice(&length.to_be_bytes());
                bytes[6..8].copy_from_slice(&[0, 0]);
                bytes[9] = protocol;
            }
        }
        let Ok(vnet) = Vnet::parse(&header) else { return Ok(()) };
        let Ok(inner) = Inner::parse(&bytes) else { return Ok(()) };
        if let Some(gso) = vnet.gso
            && let Ok(segments) = Segments::new(&bytes, inner, gso)
        {
            for number in [0, 1, segments.count() - 1, segments.count(), usize::MAX] {
                let _ = segments.write(number, &mut vec![0; out]);
                let _ = segments.write(number, &mut vec![0; segments.longest()]);
            }
        }
        if let Some((start, offset)) = vnet.checksum {
            let _ = complete_checksum(&mut bytes.clone(), start, offset, inner.protocol);
        }
        let mut first = bytes.clone();
        if let Some(mut run) = Run::start(&bytes, inner) {
            run.append(&mut first, &bytes, &inner);
            run.finish(&mut first);
        }
    }
}

#[test]
fn a_udp_super_segment_becomes_datagrams_with_lengths_and_checksums_of_their_own() {
    let payload: Vec<u8> = (0..1_000_u32).map(|n| n as u8).collect();
    for (from, to) in [("10.0.0.2", "10.9.0.1"), ("fd00::2", "fd00:9::1")] {
        let mut udp = vec![0x03, 0xf0, 0, 0];
        udp.extend(&payload);
        let bytes = packet(UDP, from, to, Some((5, 53)), &udp);
        let header = bytes.len() - 1_008;
        let pieces = segments(&bytes, Gso { kind: GsoKind::Udp, size: 300 });
        assert_eq!(pieces.len(), 4);
        let mut got: Vec<u8> = Vec::new();
        for piece in &pieces {
            let inner = Inner::parse(piece).unwrap();
            assert_eq!((inner.length, inner.ports), (piece.len(), Some((5, 53))));
            let length = piece.len() - header;
            assert_eq!(piece[header + 4..header + 6], (length as u16).to_be_bytes());
            let addresses = if header == 40 { &piece[8..40] } else { &piece[12..20] };
            let pseudo =
                [addresses, &(length as u32).to_be_bytes(), &[0, 0, 0, UDP], &piece[header..]].concat();
            assert_eq!(checksum(&pseudo), 0);
            got.extend(&piece[header + 8..]);
        }
        assert_eq!(got, payload);
    }
}

#[test]
fn a_checksum_that_was_left_to_us_is_completed() {
    let whole =
        Tcp { v6: false, sequence: 1, flags: ACK, options: vec![], payload: vec![1, 2, 3], id: 9, class: 0 };
    let mut bytes = whole.unfinished();
    complete_checksum(&mut bytes, 20, 16, TCP).unwrap();
    assert_eq!(bytes, whole.finished());
    for (start, offset) in [(20, 40), (44, 0), (0, usize::MAX), (usize::MAX, 0)] {
        assert_eq!(complete_checksum(&mut bytes, start, offset, TCP), Err(DropReason::Malformed));
    }
}

#[test]
fn what_is_no_plain_data_segment_goes_alone() {
    let plain =
        Tcp { v6: false, sequence: 1, flags: ACK, options: vec![], payload: vec![1; 100], id: 9, class: 0 };
    let starts = |tcp: &Tcp| {
        let bytes = tcp.finished();
        Run::start(&bytes, Inner::parse(&bytes).unwrap()).is_some()
    };
    assert!(starts(&plain));
    assert!(!starts(&Tcp { payload: vec![], ..plain.clone() }), "an acknowledgement alone");
    for flags in [0, 2, 2 | ACK, 4 | ACK, 32 | ACK, FIN | ACK, PSH | ACK] {
        assert!(!starts(&Tcp { flags, ..plain.clone() }), "{flags:#x}");
    }
    let bytes = plain.unfinished();
    assert!(
        Run::start(&bytes, Inner::parse(&bytes).unwrap()).is_none(),
        "a wrong checksum is not made right"
    );
}

#[test]
fn a_super_segment_that_is_not_what_its_header_says_is_malformed() {
    let udp = packet(UDP, "10.0.0.2", "10.9.0.1", Some((5, 53)), &[0; 100]);
    let mut fragment = packet(TCP, "10.0.0.2", "10.9.0.1", Some((5, 53)), &[0x50; 100]);
    let tcp = fragment.clone();
    fragment[6] |= 0x20;
    let refuses = |bytes: &[u8], kind, size| {
        Segments::new(bytes, Inner::parse(bytes).unwrap(), Gso { kind, size }).err()
            == Some(DropReason::Malformed)
    };
    assert!(!refuses(&tcp, GsoKind::TcpV4, 10));
    assert!(refuses(&tcp, GsoKind::TcpV4, 0));
    assert!(refuses(&tcp, GsoKind::TcpV6, 10));
    assert!(refuses(&tcp, GsoKind::Udp, 10));
    assert!(refuses(&udp, GsoKind::TcpV4, 10));
    assert!(refuses(&fragment, GsoKind::TcpV4, 10));
    assert!(Vnet::parse(&[0, 3, 0, 0, 1, 1, 0, 0, 0, 0]).is_err(), "fragmentation offload was not asked for");
    assert!(Vnet::parse(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 0]).is_err(), "pieces of nothing");
}

#[test]
fn the_hint_of_header_length_is_not_believed() {
    let whole =
        Tcp { v6: false, sequence: 1, flags: ACK, options: vec![], payload: vec![7; 500], id: 9, class: 0 };
    let bytes = whole.unfinished();
    let honest = Vnet { checksum: Some((20, 16)), gso: Some(Gso { kind: GsoKind::TcpV4, size: 100 }) };
    for hint in [0, 1, 20, 54, 1_000, 65_535] {
        let mut header = honest.to_bytes(40);
        header[2..4].copy_from_slice(&u16::to_ne_bytes(hint));
        // The flag beside the kind says that CWR is set; the packet itself says whether.
        header[1] |= 0x80;
        assert_eq!(Vnet::parse(&header), Ok(honest));
        assert_eq!(segments(&bytes, honest.gso.unwrap()).len(), 5);
    }
}

#[test]
fn fragments_options_and_extension_headers_go_alone() {
    let payload = [1; 64];
    let tcp = Tcp {
        v6: false,
        sequence: 1,
        flags: ACK,
        options: vec![],
        payload: payload.to_vec(),
        id: 9,
        class: 0,
    };
    let alone = |bytes: &[u8]| Run::start(bytes, Inner::parse(bytes).unwrap()).is_none();
    let plain = tcp.finished();
    assert!(!alone(&plain));
    let fixed = |mut bytes: Vec<u8>| {
        let header = usize::from(bytes[0] & 15) * 4;
        let length = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes[10..12].fill(0);
        let sum = checksum(&bytes[..header]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    for flags in [[0x20, 0], [0, 1], [0x20, 9]] {
        let mut fragment = plain.clone();
        fragment[6..8].copy_from_slice(&flags);
        assert!(alone(&fixed(fragment)), "a fragment");
    }
    let mut options = plain[..20].to_vec();
    options.extend([1, 1, 1, 0]);
    options.extend(&plain[20..]);
    options[0] = 0x46;
    assert!(alone(&fixed(options)), "IP options");
    let six = Tcp { v6: true, ..tcp }.finished();
    assert!(!alone(&six));
    for kind in [0_u8, 43, 44, 60] {
        // Routing with nothing left, destination options, an atomic fragment: whole packets all the same.
        let mut body = vec![TCP, 0, 0, 0, 0, 0, 0, 0];
        if kind != 44 {
            body[2..8].copy_from_slice(&[1, 4, 0, 0, 0, 0]);
        }
        body.extend(&six[40..]);
        assert!(alone(&v6(kind, "fd00::2", "fd00:9::1", &body)), "extension header {kind}");
    }
    // RFC 2675: a length of zero, and the true one in an option.
    let mut jumbo = v6(0, "fd00::2", "fd00:9::1", &[TCP, 0, 0xc2, 4, 0, 1, 0, 0]);
    jumbo[4..6].fill(0);
    assert_eq!(Inner::parse(&jumbo), Err(DropReason::Malformed));
}
