//! The header that a TUN device with IFF_VNET_HDR puts before each packet (virtio 1.2, 5.1.6; Linux
//! `include/uapi/linux/virtio_net.h`), in the machine's byte order.

use crate::DropReason;

/// Bytes of the header, without `num_buffers`.
pub const VNET_HEADER: usize = 10;

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Set beside the type when the packet has CWR; the flag itself says as much.
const GSO_ECN: u8 = 0x80;

/// What is to be cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over either, each piece a datagram of its own.
    Udp,
}

/// A super-segment's kind and the payload bytes of each piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Kind.
    pub kind: GsoKind,
    /// Bytes of payload in each piece but the last, which may have fewer; never 0.
    pub size: usize,
}

/// What the header says. Its `hdr_len` is a hint that may be wrong; the packet's own headers are parsed instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vnet {
    /// The checksum is incomplete: where what it covers starts, and where the field is from there.
    pub checksum: Option<(usize, usize)>,
    /// The packet is a super-segment.
    pub gso: Option<Gso>,
}

impl Vnet {
    /// Reads the header.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] for a kind that was not asked for, or a super-segment of pieces of 0 bytes.
    pub fn parse(bytes: &[u8; VNET_HEADER]) -> Result<Self, DropReason> {
        let &[flags, kind, _, _, s0, s1, c0, c1, o0, o1] = bytes;
        let number = |a, b| usize::from(u16::from_ne_bytes([a, b]));
        let kind = match kind & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCPV4 => Some(GsoKind::TcpV4),
            GSO_TCPV6 => Some(GsoKind::TcpV6),
            GSO_UDP_L4 => Some(GsoKind::Udp),
            _ => return Err(DropReason::Malformed),
        };
        let gso = match (kind, number(s0, s1)) {
            (None, _) => None,
            (Some(_), 0) => return Err(DropReason::Malformed),
            (Some(kind), size) => Some(Gso { kind, size }),
        };
        let checksum = (flags & NEEDS_CSUM != 0).then(|| (number(c0, c1), number(o0, o1)));
        Ok(Self { checksum, gso })
    }

    /// The header, with `headers` the bytes of the packet's headers where it is a super-segment.
    #[must_use]
    pub fn to_bytes(self, headers: usize) -> [u8; VNET_HEADER] {
        // All of these are offsets into one packet's headers or a segment's size: 16 bits.
        let number = |value: usize| (value as u16).to_ne_bytes();
        let (kind, [s0, s1], [h0, h1]) = match self.gso {
            None => (GSO_NONE, [0, 0], [0, 0]),
            Some(Gso { kind, size }) => {
                let kind = match kind {
                    GsoKind::TcpV4 => GSO_TCPV4,
                    GsoKind::TcpV6 => GSO_TCPV6,
                    GsoKind::Udp => GSO_UDP_L4,
                };
                (kind, number(size), number(headers))
            }
        };
        let (flags, [c0, c1], [o0, o1]) = match self.checksum {
            None => (0, [0, 0], [0, 0]),
            Some((start, offset)) => (NEEDS_CSUM, number(start), number(offset)),
        };
        [flags, kind, h0, h1, s0, s1, c0, c1, o0, o1]
    }
}
