//! The IPv4 header (RFC 791 3.1) and its options.

use std::net::IpAddr;

use crate::Drop;
use crate::cipso;
use crate::fragments::Key;
use crate::icmp;

const HEAD: usize = 20;
const ICMP: u8 = 1;

/// A packet in its parts.
pub(crate) struct Packet<'a> {
    head: &'a [u8; HEAD],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Octets behind the packet's own length are the link's padding.
    pub(crate) fn parse(octets: &'a [u8]) -> Result<Self, Drop> {
        let (head, _) = octets.split_first_chunk::<HEAD>().ok_or(Drop::Malformed)?;
        let length = usize::from(head[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let whole = octets.get(..total).ok_or(Drop::Malformed)?;
        let (header, payload) = whole.split_at_checked(length).ok_or(Drop::Malformed)?;
        let options = header.get(HEAD..).ok_or(Drop::Malformed)?;
        if head[0] >> 4 != 4 {
            return Err(Drop::Malformed);
        }
        if sum(header) != 0xffff {
            return Err(Drop::Checksum);
        }
        Ok(Self { head, options, payload })
    }

    /// The one CIPSO option; `None` if there is none. Beside it only octets that say nothing are taken.
    pub(crate) fn label(&self) -> Result<Option<&'a [u8]>, Drop> {
        let mut found = None;
        for option in options(self.options) {
            let option = option?;
            match option.first() {
                Some(&cipso::TYPE) if found.is_some() => return Err(Drop::Duplicate),
                Some(&cipso::TYPE) => found = Some(option),
                _ => return Err(Drop::OtherOption),
            }
        }
        Ok(found)
    }

    pub(crate) fn source(&self) -> IpAddr {
        self.address(12)
    }

    pub(crate) fn destination(&self) -> IpAddr {
        self.address(16)
    }

    fn address(&self, at: usize) -> IpAddr {
        let octets = self.head.get(at..).and_then(|rest| rest.first_chunk::<4>());
        IpAddr::from(octets.copied().unwrap_or_default())
    }

    /// The datagram that it is a fragment of, if it is one.
    pub(crate) fn datagram(&self) -> Option<Key> {
        let head = self.head;
        let is_fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0;
        let wide = |at: usize| {
            let mut address = [0; 16];
            for (to, from) in address.iter_mut().zip(head.iter().skip(at).take(4)) {
                *to = *from;
            }
            address
        };
        let id = u32::from(u16::from_be_bytes([head[4], head[5]]));
        is_fragment.then(|| (wide(12), wide(16), head[9], id))
    }

    /// The packet as a compartment gets it, without options.
    ///
    /// An error that says what size passes (RFC 1191 4) says it of packets with their label, and the compartment's have none yet: so
    /// much less passes as the packet that it quotes has options.
    pub(crate) fn inward(&self) -> Result<Vec<u8>, Drop> {
        let mut packet = self.with(&[])?;
        if self.head[9] == ICMP
            && self.datagram().is_none()
            && let Some(([3, 4, c0, c1, _, _, m0, m1, quoted], _)) =
                packet.get_mut(HEAD..).and_then(|body| body.split_first_chunk_mut::<9>())
            && *quoted >> 4 == 4
        {
            let cost = u16::from(*quoted & 15).saturating_mul(4).saturating_sub(HEAD as u16);
            icmp::less((c0, c1), (m0, m1), cost);
        }
        Ok(packet)
    }

    /// The same packet with this option alone, or with none.
    pub(crate) fn with(&self, option: &[u8]) -> Result<Vec<u8>, Drop> {
        let padded = option.len().next_multiple_of(4);
        let header = HEAD + padded;
        let total = u16::try_from(header + self.payload.len()).map_err(|_| Drop::TooLarge)?;
        let mut head = *self.head;
        head[0] = 0x40 | u8::try_from(header / 4).ok().filter(|n| *n <= 15).ok_or(Drop::TooLarge)?;
        head[2..4].copy_from_slice(&total.to_be_bytes());
        head[10..12].fill(0);
        let mut packet = Vec::with_capacity(usize::from(total));
        packet.extend(head);
        packet.extend(option);
        // 0 is the end of the options.
        packet.resize(header, 0);
        let checksum = !sum(&packet);
        if let Some(place) = packet.get_mut(10..12) {
            place.copy_from_slice(&checksum.to_be_bytes());
        }
        packet.extend(self.payload);
        Ok(packet)
    }
}

/// Options in their order, without those that say nothing (0, the end, and 1).
fn options(mut rest: &[u8]) -> impl Iterator<Item = Result<&[u8], Drop>> {
    std::iter::from_fn(move || {
        loop {
            match *rest {
                [] | [0, ..] => return None,
                [1, ref more @ ..] => rest = more,
                [_, length, ..] if length >= 2 && usize::from(length) <= rest.len() => {
                    let (option, more) = rest.split_at(usize::from(length));
                    rest = more;
                    return Some(Ok(option));
                }
                _ => {
                    rest = &[];
                    return Some(Err(Drop::Truncated));
                }
            }
        }
    })
}

/// The ones' complement sum (RFC 1071); 0xffff over a header with its checksum. A header is at most 60 octets.
fn sum(header: &[u8]) -> u16 {
    let (words, _) = header.as_chunks::<2>();
    let mut sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(0)
}
