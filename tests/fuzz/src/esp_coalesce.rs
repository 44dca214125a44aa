//! Any sequence of packets, put together and taken apart again: the same packets in the same order.
//!
//! Input: packets, each behind two bytes of length. The first byte says whether checksums are made right, which random
//! bytes hardly ever are.

use levee_esp::Inner;
use levee_esp::offload::{Gso, GsoKind, Joint, Run, Segments, VNET_HEADER, Vnet};

/// The packet with right checksums, made by cutting it into one piece.
fn corrected(packet: &[u8], inner: Inner) -> Option<Vec<u8>> {
    let kind = match (inner.protocol, packet.first()? >> 4) {
        (6, 4) => GsoKind::TcpV4,
        (6, _) => GsoKind::TcpV6,
        (17, _) => GsoKind::Udp,
        _ => return None,
    };
    let segments = Segments::new(packet, inner, Gso { kind, size: 65_535 }).ok()?;
    let mut out = vec![0; segments.longest()];
    segments.write(0, &mut out)?;
    Some(out)
}

/// The packets that a device makes of what was put together.
fn taken_apart((run, mut bytes): (Run, Vec<u8>)) -> Vec<Vec<u8>> {
    assert_eq!(run.length(), bytes.len());
    let header: [u8; VNET_HEADER] = run.finish(&mut bytes);
    let Some(gso) = Vnet::parse(&header).unwrap().gso else { return vec![bytes] };
    let segments = Segments::new(&bytes, Inner::parse(&bytes).unwrap(), gso).unwrap();
    assert_eq!(segments.count(), run.packets());
    let piece = |number| {
        let mut out = vec![0; segments.length(number)];
        segments.write(number, &mut out).unwrap();
        out
    };
    (0..segments.count()).map(piece).collect()
}

/// Without what has no meaning in a packet that is no fragment and must not become one (RFC 6864 4.1).
fn meaning(packet: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    if bytes[0] >> 4 == 4 && bytes[6] & 0x40 != 0 {
        bytes[4..6].fill(0);
        bytes[10..12].fill(0);
    }
    bytes
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((&options, mut rest)) = input.split_first() else { return };
    let mut packets = Vec::new();
    while let Some((&[high, low], tail)) = rest.split_first_chunk::<2>() {
        let (packet, tail) = tail.split_at(tail.len().min(usize::from(u16::from_be_bytes([high & 7, low]))));
        rest = tail;
        let Ok(inner) = Inner::parse(packet) else { continue };
        let packet = packet[..inner.length].to_vec();
        packets.push(if options & 1 != 0 { corrected(&packet, inner).unwrap_or(packet) } else { packet });
    }
    let mut back = Vec::new();
    let mut run: Option<(Run, Vec<u8>)> = None;
    for packet in &packets {
        let inner = Inner::parse(packet).unwrap();
        if let Some((current, bytes)) = &mut run
            && current.append(bytes, packet, &inner)
        {
            bytes.extend(&packet[current.headers()..]);
            continue;
        }
        back.extend(run.take().map(taken_apart).into_iter().flatten());
        match Run::start(packet, inner) {
            Some(started) => run = Some((started, packet.clone())),
            None => back.push(packet.clone()),
        }
    }
    back.extend(run.map(taken_apart).into_iter().flatten());
    // The same by way of a buffer of its own.
    let (mut joint, mut count) = (Joint::new(), 0);
    for packet in &packets {
        let inner = Inner::parse(packet).unwrap();
        if !joint.add(packet, &inner, true) {
            count += joint.take().unwrap().packets;
            assert!(joint.add(packet, &inner, true));
        }
        if joint.is_closed() {
            count += joint.take().unwrap().packets;
        }
    }
    count += joint.take().map_or(0, |whole| whole.packets);
    assert_eq!(count, packets.len());
    assert_eq!(back.len(), packets.len());
    for (back, packet) in back.iter().zip(&packets) {
        assert_eq!(meaning(back), meaning(packet));
    }
}
