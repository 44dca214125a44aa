//! Any vnet header with any packet, as a TUN device would hand it over: cut up, checksums completed.

use levee_esp::Inner;
use levee_esp::offload::{Segments, VNET_HEADER, Vnet, complete_checksum};

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((header, packet)) = input.split_first_chunk::<VNET_HEADER>() else { return };
    let (Ok(vnet), Ok(inner)) = (Vnet::parse(header), Inner::parse(packet)) else { return };
    assert!(inner.header <= inner.length && inner.length <= packet.len());
    if let Some((start, offset)) = vnet.checksum {
        let _ = complete_checksum(&mut packet.to_vec(), start, offset, inner.protocol);
    }
    let Some(gso) = vnet.gso else { return };
    let Ok(segments) = Segments::new(packet, inner, gso) else { return };
    let mut total = 0;
    let mut out = vec![0; segments.longest()];
    for number in 0..segments.count() {
        let length = segments.write(number, &mut out).expect("the longest fits");
        assert_eq!(length, segments.length(number));
        let piece = Inner::parse(&out[..length]).expect("each piece is a packet");
        assert_eq!((piece.length, piece.source, piece.ports), (length, inner.source, inner.ports));
        total += length;
    }
    assert!(total >= inner.length, "nothing is left out");
}
