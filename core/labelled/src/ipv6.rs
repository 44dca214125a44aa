//! The IPv6 header and those behind it (RFC 8200 3, 4).

use std::net::IpAddr;
use std::ops::Range;

use crate::Drop;
use crate::calipso;
use crate::fragments::Key;
use crate::icmp;

const HEAD: usize = 40;
const HOP_BY_HOP: u8 = 0;
/// Octets of an ICMPv6 error up to the length of the hop-by-hop header of what it quotes.
pub(crate) const QUOTED: usize = 8 + HEAD + 2;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const ICMP: u8 = 58;
const DESTINATION: u8 = 60;
/// Octets of a hop-by-hop header, at most: the longest label, and padding.
pub(crate) const MOST_OPTIONS: usize = 160;
const _: () = assert!(2 + calipso::MOST <= MOST_OPTIONS);
/// Options in it, at most, with each that is padding.
pub(crate) const MOST_STEPS: usize = 12;

/// A packet in its parts.
pub(crate) struct Packet<'a> {
    head: &'a [u8; HEAD],
    /// The options of the hop-by-hop header.
    options: &'a [u8],
    /// What the hop-by-hop header, or without one the packet's, says to come next.
    next: u8,
    payload: &'a [u8],
    fragment: Option<u32>,
    neighbour: bool,
}

impl<'a> Packet<'a> {
    pub(crate) fn parse(octets: &'a [u8]) -> Result<Self, Drop> {
        let (head, rest) = octets.split_first_chunk::<HEAD>().ok_or(Drop::Malformed)?;
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let body = rest.get(..length).ok_or(Drop::Malformed)?;
        if head[0] >> 4 != 6 {
            return Err(Drop::Malformed);
        }
        let (next, options, payload): (_, &[u8], _) = if head[6] == HOP_BY_HOP {
            let (next, header, payload) = hop_by_hop(body)?;
            (next, header.get(2..).unwrap_or_default(), payload)
        } else {
            (head[6], &[], body)
        };
        let (fragment, neighbour) = look_through(next, payload, head[7])?;
        Ok(Self { head, options, next, payload, fragment, neighbour })
    }

    /// The one CALIPSO option; `None` if there is none. Beside it only padding is taken.
    pub(crate) fn label(&self) -> Result<Option<&'a [u8]>, Drop> {
        let mut found = None;
        for place in options(self.options) {
            let option = self.options.get(place?).ok_or(Drop::Truncated)?;
            match option.first() {
                Some(&calipso::TYPE) if found.is_some() => return Err(Drop::Duplicate),
                Some(&calipso::TYPE) => found = Some(option),
                _ => return Err(Drop::OtherOption),
            }
        }
        Ok(found)
    }

    pub(crate) fn source(&self) -> IpAddr {
        self.address(8)
    }

    pub(crate) fn destination(&self) -> IpAddr {
        self.address(24)
    }

    fn address(&self, at: usize) -> IpAddr {
        let octets = self.head.get(at..).and_then(|rest| rest.first_chunk::<16>());
        IpAddr::from(octets.copied().unwrap_or_default())
    }

    /// The datagram that it is a fragment of, if it is one.
    pub(crate) fn datagram(&self) -> Option<Key> {
        let address = |at: usize| {
            let mut address = [0; 16];
            for (to, from) in address.iter_mut().zip(self.head.iter().skip(at)) {
                *to = *from;
            }
            address
        };
        self.fragment.map(|id| (address(8), address(24), 0, id))
    }

    /// Whether it speaks of the link (RFC 4861 4): solicitations, advertisements, redirects.
    pub(crate) fn is_neighbours(&self) -> bool {
        self.neighbour
    }

    /// The packet as a compartment gets it, without a hop-by-hop header.
    ///
    /// An error that says what size passes (RFC 4443 3.2) says it of packets with their label, and the compartment's have none yet: so
    /// much less passes as the packet that it quotes has of a hop-by-hop header.
    pub(crate) fn inward(&self) -> Result<Vec<u8>, Drop> {
        let mut packet = self.with(&[])?;
        if self.next == ICMP
            && let Some((message, _)) =
                packet.get_mut(HEAD..).and_then(|body| body.split_first_chunk_mut::<QUOTED>())
            && let [2, _, c0, c1, 0, 0, m0, m1, version, _, _, _, _, _, HOP_BY_HOP, .., length] = message
            && *version >> 4 == 6
        {
            icmp::less((c0, c1), (m0, m1), (u16::from(*length) + 1) * 8);
        }
        Ok(packet)
    }

    /// The same packet with a hop-by-hop header of this option alone, or with none.
    pub(crate) fn with(&self, option: &[u8]) -> Result<Vec<u8>, Drop> {
        let mut head = *self.head;
        let mut header = Vec::new();
        if option.is_empty() {
            head[6] = self.next;
        } else {
            head[6] = HOP_BY_HOP;
            header = hop_by_hop_with(self.next, option).ok_or(Drop::TooLarge)?;
        }
        let length = u16::try_from(header.len() + self.payload.len()).map_err(|_| Drop::TooLarge)?;
        head[4..6].copy_from_slice(&length.to_be_bytes());
        Ok([&head[..], &header, self.payload].concat())
    }
}

/// A hop-by-hop header of one option; `None` if it is longer than one can be.
pub(crate) fn hop_by_hop_with(next: u8, option: &[u8]) -> Option<Vec<u8>> {
    let length = (2 + option.len()).next_multiple_of(8);
    let mut header = vec![next, u8::try_from(length / 8 - 1).ok()?];
    header.extend(option);
    // Pad1 for one octet, PadN for more (RFC 8200 4.2).
    match length - header.len() {
        0 => {}
        1 => header.push(0),
        more => header.extend([1, u8::try_from(more - 2).ok()?]),
    }
    header.resize(length, 0);
    Some(header)
}

/// What comes behind the hop-by-hop header, the header, and the rest.
fn hop_by_hop(body: &[u8]) -> Result<(u8, &[u8], &[u8]), Drop> {
    let &[next, length, ..] = body else { return Err(Drop::Malformed) };
    let (header, rest) = body.split_at_checked((usize::from(length) + 1) * 8).ok_or(Drop::Malformed)?;
    if header.len() > MOST_OPTIONS { Err(Drop::OtherOption) } else { Ok((next, header, rest)) }
}

/// Looks at what is behind the hop-by-hop header: the identification of a fragment, and whether it is neighbours' talk.
fn look_through(next: u8, body: &[u8], hop_limit: u8) -> Result<(Option<u32>, bool), Drop> {
    may_follow(next)?;
    match next {
        FRAGMENT => {
            let Some((&[after, _, _, _, a, b, c, d], _)) = body.split_first_chunk::<8>() else {
                return Err(Drop::Malformed);
            };
            if after == FRAGMENT {
                return Err(Drop::Malformed);
            }
            may_follow(after)?;
            Ok((Some(u32::from_be_bytes([a, b, c, d])), false))
        }
        ICMP => {
            // RFC 4861 6.1, 7.1, 8.1: a hop limit of 255 shows that no router forwarded it; RFC 6980: it is in one piece.
            let of_link = body.first().is_some_and(|kind| (133..=137).contains(kind));
            Ok((None, of_link && hop_limit == 255))
        }
        _ => Ok((None, false)),
    }
}

/// Of the headers that tell the network or a host what to do with a packet, none but the hop-by-hop header is taken.
fn may_follow(next: u8) -> Result<(), Drop> {
    match next {
        // It stands first or nowhere (RFC 8200 4.1).
        HOP_BY_HOP => Err(Drop::Malformed),
        // One names other destinations, one's sum covers the option that is put on and taken off, and one's options would have to be
        // looked through for labels.
        ROUTING | AUTHENTICATION | DESTINATION => Err(Drop::OtherOption),
        _ => Ok(()),
    }
}

/// Places of the options, without padding. Beyond [`MOST_STEPS`] it is no label with what fills up behind it.
fn options(all: &[u8]) -> impl Iterator<Item = Result<Range<usize>, Drop>> {
    let (mut at, mut steps) = (0, 0);
    std::iter::from_fn(move || {
        loop {
            steps += 1;
            match *all.get(at..)? {
                [] => return None,
                [..] if steps > MOST_STEPS => {
                    at = all.len();
                    return Some(Err(Drop::OtherOption));
                }
                [0, ..] => at += 1,
                [kind, length, ref rest @ ..] if usize::from(length) <= rest.len() => {
                    let place = at..at + 2 + usize::from(length);
                    at = place.end;
                    if kind != 1 {
                        return Some(Ok(place));
                    }
                }
                _ => {
                    at = all.len();
                    return Some(Err(Drop::Truncated));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8200 4.2: one octet is Pad1, more are one PadN.
    #[test]
    fn a_header_of_one_option_is_as_short_as_can_be_and_filled_up_as_the_rfc_wants() {
        for length in 0..=150usize {
            let option: Vec<u8> = (0..length).map(|n| n as u8 | 0x80).collect();
            let header = hop_by_hop_with(58, &option).unwrap();
            assert_eq!(header.len(), (2 + length).div_ceil(8) * 8);
            assert_eq!((header[0], usize::from(header[1])), (58, header.len() / 8 - 1));
            let (said, padding) = header[2..].split_at(length);
            assert_eq!(said, option);
            match padding {
                [] | [0] => {}
                [1, more, rest @ ..] => {
                    assert!(
                        usize::from(*more) == rest.len() && rest.iter().all(|octet| *octet == 0),
                        "{padding:?}"
                    );
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
