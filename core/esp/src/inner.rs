//! What the selectors need to know of an inner packet.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::DropReason;

/// Which way a packet goes, seen from this end of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It came through the tunnel.
    In,
    /// It leaves through the tunnel.
    Out,
}

/// The version of an inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

impl IpVersion {
    /// The value of ESP's next header field in tunnel mode.
    #[must_use]
    pub const fn next_header(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 41,
        }
    }
}

/// Which part of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// The whole.
    Whole,
    /// The first fragment: it begins with the next layer's header.
    First,
    /// A later fragment: it has no ports.
    Later,
}

/// Where a fragment belongs in its datagram; of a whole packet all is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// What the fragments of one datagram have in common (RFC 791 3.2, RFC 8200 4.5).
    pub id: u32,
    /// Octets of the datagram before it.
    pub offset: u16,
    /// Octets of the datagram in it.
    pub length: u16,
    /// Others follow.
    pub more: bool,
}

/// An inner packet's headers, checked once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// IP version.
    pub version: IpVersion,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Next layer protocol, behind the IPv6 extension headers.
    pub protocol: u8,
    /// Source and destination port of TCP, UDP, UDP-Lite, SCTP and DCCP, unless a later fragment.
    pub ports: Option<(u16, u16)>,
    /// Whole or fragment.
    pub fragment: Fragment,
    /// Which one.
    pub piece: Piece,
    /// Bytes up to the next layer's header.
    pub header: usize,
    /// Bytes of the packet by its own header; what follows is padding (RFC 4303 2.7).
    pub length: usize,
    /// It carries a label of its own (CIPSO, RFC 1108's, CALIPSO), or options in which one cannot be looked for.
    pub labelled: bool,
}

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
pub(crate) const UDP_LITE: u8 = 136;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HIP: u8 = 139;
const SHIM6: u8 = 140;

/// The most IPv6 extension headers followed; a packet with more is malformed to us.
const MAX_EXTENSIONS: usize = 8;

impl Inner {
    /// Reads the headers of the packet at the start of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] when it is not a whole IPv4 or IPv6 packet by its own length field, when its header
    /// chain does not come to an end within the packet and 8 extension headers, or when a whole packet or first
    /// fragment of a protocol with ports is too short to have them. Jumbograms (RFC 2675) are among these.
    pub fn parse(bytes: &[u8]) -> Result<Self, DropReason> {
        let parsed = match bytes.first().ok_or(DropReason::Malformed)? >> 4 {
            4 => Self::parse_v4(bytes),
            6 => Self::parse_v6(bytes),
            _ => None,
        };
        parsed.ok_or(DropReason::Malformed)
    }

    /// Whether the checksum over all from `start` on, whose field is at `offset` from there, is TCP's or UDP's own. To complete another one would change
    /// the packet behind what was decided about it.
    #[must_use]
    pub fn has_checksum(&self, start: usize, offset: usize) -> bool {
        let field = match self.protocol {
            TCP => 16,
            UDP => 6,
            _ => return false,
        };
        self.fragment == Fragment::Whole && (start, offset) == (self.header, field)
    }

    fn parse_v4(bytes: &[u8]) -> Option<Self> {
        let fixed: &[u8; 20] = bytes.first_chunk()?;
        let &[first, _, l0, l1, i0, i1, f0, f1, _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = fixed;
        let header = usize::from(first & 0xf) * 4;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        // Neither goes on behind what there is, nor ends before it begins.
        let (options, payload) = (bytes.get(20..header)?, bytes.get(header..length)?);
        let flags = u16::from_be_bytes([f0, f1]);
        let fragment = match (flags & 0x1fff, flags & 0x2000 != 0) {
            (0, false) => Fragment::Whole,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        };
        let ports = ports(protocol, fragment, payload)?;
        let id = u32::from(u16::from_be_bytes([i0, i1]));
        // 13 bits and three more.
        let piece = Piece::new(fragment, id, (flags & 0x1fff) << 3, payload.len(), flags & 0x2000 != 0)?;
        Some(Self {
            version: IpVersion::V4,
            source: Ipv4Addr::new(s0, s1, s2, s3).into(),
            destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
            protocol,
            ports,
            fragment,
            piece,
            header,
            length,
            labelled: has_label_v4(options),
        })
    }

    fn parse_v6(bytes: &[u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<40>()?;
        let (&[_, _, _, _, l0, l1, next, _], addresses) = fixed.split_first_chunk::<8>()?;
        let (source, destination) = addresses.split_first_chunk::<16>()?;
        let destination: &[u8; 16] = destination.first_chunk()?;
        let body = rest.get(..usize::from(u16::from_be_bytes([l0, l1])))?;
        let (mut protocol, mut at, mut fragment) = (next, 0, Fragment::Whole);
        let (mut extensions, mut piece, mut labelled) = (0, None, false);
        while matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION | MOBILITY | HIP | SHIM6) {
            // What follows a later fragment's header is the middle of something.
            if fragment == Fragment::Later {
                break;
            }
            extensions += 1;
            if extensions > MAX_EXTENSIONS {
                return None;
            }
            let extension: &[u8; 8] = body.get(at..)?.first_chunk()?;
            let &[next, length, o0, o1, i0, i1, i2, i3] = extension;
            if protocol == FRAGMENT {
                // A fragment of a fragment is nobody's.
                if piece.is_some() {
                    return None;
                }
                let offset = u16::from_be_bytes([o0, o1]);
                fragment = match (offset & 0xfff8, offset & 1 != 0) {
                    // An atomic fragment (RFC 6946) is a whole packet.
                    (0, false) => fragment,
                    (0, true) => Fragment::First,
                    _ => Fragment::Later,
                };
                at += 8;
                let id = u32::from_be_bytes([i0, i1, i2, i3]);
                let behind = body.len().checked_sub(at)?;
                piece = Some(Piece::new(fragment, id, offset & 0xfff8, behind, offset & 1 != 0)?);
            } else {
                let end = at + 8 + usize::from(length) * 8;
                if matches!(protocol, HOP_BY_HOP | DESTINATION) {
                    labelled |= has_label_v6(body.get(at + 2..end)?);
                }
                at = end;
            }
            protocol = next;
        }
        let ports = ports(protocol, fragment, body.get(at..)?)?;
        Some(Self {
            version: IpVersion::V6,
            source: Ipv6Addr::from(*source).into(),
            destination: Ipv6Addr::from(*destination).into(),
            protocol,
            ports,
            fragment,
            piece: piece.unwrap_or_default(),
            header: 40 + at,
            length: 40 + body.len(),
            labelled,
        })
    }
}

impl Piece {
    /// `None` if there are more octets than a packet can have.
    fn new(fragment: Fragment, id: u32, offset: u16, length: usize, more: bool) -> Option<Self> {
        let piece = Self { id, offset, length: u16::try_from(length).ok()?, more };
        Some(if fragment == Fragment::Whole { Self::default() } else { piece })
    }
}

/// Whether there is a label among IPv4 options (RFC 791 3.1): CIPSO (134), or RFC 1108's basic (130) and extended (133) security. So it
/// is, too, where an option goes on behind the header's end.
fn has_label_v4(mut options: &[u8]) -> bool {
    loop {
        options = match *options {
            [] | [0, ..] => return false,
            [1, ref rest @ ..] => rest,
            [130 | 133 | 134, ..] => return true,
            [_, length, ..] if length >= 2 => match options.get(usize::from(length)..) {
                Some(rest) => rest,
                None => return true,
            },
            _ => return true,
        };
    }
}

/// Whether there is a label among IPv6 options (RFC 8200 4.2): CALIPSO (7, RFC 5570). So it is, too, where an option goes on behind the
/// header's end.
fn has_label_v6(mut options: &[u8]) -> bool {
    loop {
        options = match *options {
            [] => return false,
            [0, ref rest @ ..] => rest,
            [7, ..] => return true,
            [_, length, ref rest @ ..] => match rest.get(usize::from(length)..) {
                Some(rest) => rest,
                None => return true,
            },
            [_] => return true,
        };
    }
}

/// The ports, `Some(None)` where there are none to have, `None` where they are cut off.
fn ports(protocol: u8, fragment: Fragment, payload: &[u8]) -> Option<Option<(u16, u16)>> {
    if fragment == Fragment::Later || !matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE) {
        return Some(None);
    }
    let &[s0, s1, d0, d1] = payload.first_chunk()?;
    Some(Some((u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]))))
}
