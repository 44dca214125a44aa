//! An inner packet's headers, read byte by byte from the front.

use std::net::IpAddr;

/// What the rules need to know of a packet.
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// Behind the IPv6 extension headers.
    pub(crate) protocol: u8,
    pub(crate) ports: Ports,
    /// Where a fragment belongs.
    pub(crate) part: Option<Part>,
    /// Bytes by its own header.
    pub(crate) length: usize,
    /// The ECN field.
    pub(crate) ecn: u8,
    /// It has a label in it, or what cannot be searched for one.
    pub(crate) names_label: bool,
}

/// A part of a datagram.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// The same in all parts.
    pub(crate) name: u32,
    /// Octets before it, in it.
    pub(crate) at: usize,
    pub(crate) octets: usize,
    /// It is not the last.
    pub(crate) more: bool,
    /// Octets in it of the transport's header and data.
    pub(crate) transport: usize,
}

/// The ports of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// Source and destination.
    Both(u16, u16),
    /// Its protocol has none.
    None,
    /// It is a later fragment, which does not say.
    Elsewhere,
}

/// TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// Hop-by-hop options, routing, destination options, mobility, HIP, shim6: length in octet 1, in units of 8 after the first.
const EXTENSIONS: [u8; 6] = [0, 43, 60, 135, 139, 140];
/// The fragment header.
const FRAGMENT: u8 = 44;
/// More extension headers than this are taken for an attack.
const MOST_EXTENSIONS: usize = 8;

/// Takes bytes from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn skip(&mut self, octets: usize) -> Option<()> {
        self.0 = self.0.get(octets..)?;
        Some(())
    }

    fn number(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }
}

impl Packet {
    /// The packet at the start of `bytes`; `None` if it is not a whole one that can be followed to its ports.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Self::read_4(bytes),
            6 => Self::read_6(bytes),
            _ => None,
        }
    }

    /// RFC 791 3.1.
    fn read_4(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let [first, class] = reader.take()?;
        let length = usize::from(reader.number()?);
        let identification = reader.number()?;
        let flags_and_offset = reader.number()?;
        let [_time, protocol] = reader.take()?;
        let _checksum = reader.number()?;
        let (source, destination) = (reader.take::<4>()?, reader.take::<4>()?);
        // Neither fewer octets than stand before the options, nor more than the packet has.
        let header = usize::from(first & 15) * 4;
        let whole = bytes.get(..length)?;
        let mut body = Reader(whole.get(header..)?);
        let names_label = finds(whole.get(20..header)?, &Options::of_4());
        let (at, more) = (usize::from(flags_and_offset & 0x1fff) * 8, flags_and_offset & 0x2000 != 0);
        let octets = length - header;
        let part = Part { name: identification.into(), at, octets, more, transport: octets };
        let part = (at > 0 || more).then_some(part);
        let ports = ports(protocol, at > 0, &mut body)?;
        let (source, destination) = (IpAddr::from(source), IpAddr::from(destination));
        Some(Self { source, destination, protocol, ports, part, length, ecn: class & 3, names_label })
    }

    /// RFC 8200 3, 4.
    fn read_6(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let [_, class, _, _] = reader.take()?;
        let body = usize::from(reader.number()?);
        let [mut protocol, _hops] = reader.take()?;
        let (source, destination) = (reader.take::<16>()?, reader.take::<16>()?);
        let mut rest = Reader(reader.0.get(..body)?);
        let (mut later, mut seen, mut fragmented) = (false, 0, false);
        let (mut part, mut names_label) = (None, false);
        while !later && (protocol == FRAGMENT || EXTENSIONS.contains(&protocol)) {
            seen += 1;
            if seen > MOST_EXTENSIONS {
                return None;
            }
            let [next, units, offset_high, offset_low, n0, n1, n2, n3] = rest.take()?;
            if protocol == FRAGMENT {
                // Fragments are not cut again.
                if std::mem::replace(&mut fragmented, true) {
                    return None;
                }
                let field = usize::from(u16::from_be_bytes([offset_high, offset_low]));
                let (at, more) = (field >> 3 << 3, field & 1 == 1);
                later = at != 0;
                let name = u32::from_be_bytes([n0, n1, n2, n3]);
                let all = Part { name, at, octets: rest.0.len(), more, transport: 0 };
                part = (later || more).then_some(all);
            } else {
                let own = rest.0;
                rest.skip(usize::from(units) * 8)?;
                // The six octets that were read as a fragment's begin the options.
                let begins = [offset_high, offset_low, n0, n1, n2, n3];
                if protocol == 0 || protocol == 60 {
                    let all = [&begins[..], own.get(..usize::from(units) * 8)?].concat();
                    names_label |= finds(&all, &Options::of_6());
                }
            }
            protocol = next;
        }
        let part = part.map(|part| Part { transport: rest.0.len(), ..part });
        let ports = ports(protocol, later, &mut rest)?;
        let (source, destination) = (IpAddr::from(source), IpAddr::from(destination));
        let (length, ecn) = (40 + body, class >> 4 & 3);
        Some(Self { source, destination, protocol, ports, part, length, ecn, names_label })
    }

    /// ESP's next header for it.
    pub(crate) fn next_header(&self) -> u8 {
        if self.source.is_ipv4() { 4 } else { 41 }
    }
}

/// How options are written in a version.
struct Options {
    /// Types that are one octet, with whether all ends there.
    short: &'static [(u8, bool)],
    /// Types that are labels.
    labels: &'static [u8],
    /// What the length does not count.
    uncounted: usize,
}

impl Options {
    /// RFC 791 3.1; RFC 1108 2.1 and 3.1, and CIPSO.
    fn of_4() -> Self {
        Self { short: &[(0, true), (1, false)], labels: &[130, 133, 134], uncounted: 0 }
    }

    /// RFC 8200 4.2; RFC 5570 5.1.
    fn of_6() -> Self {
        Self { short: &[(0, false)], labels: &[7], uncounted: 2 }
    }
}

/// Whether there is a label among the options, or one that is not whole.
fn finds(options: &[u8], written: &Options) -> bool {
    let mut at = 0;
    while let Some(kind) = options.get(at) {
        if let Some((_, ends)) = written.short.iter().find(|(short, _)| short == kind) {
            if *ends {
                return false;
            }
            at += 1;
            continue;
        }
        let whole = options.get(at + 1).map(|length| usize::from(*length) + written.uncounted);
        let Some(whole) = whole.filter(|whole| *whole >= 2 && at + whole <= options.len()) else {
            return true;
        };
        if written.labels.contains(kind) {
            return true;
        }
        at += whole;
    }
    false
}

/// The ports at the start of `body`; `None` where they should be and are not.
fn ports(protocol: u8, later: bool, body: &mut Reader<'_>) -> Option<Ports> {
    Some(match (WITH_PORTS.contains(&protocol), later) {
        (true, false) => Ports::Both(body.number()?, body.number()?),
        (_, true) => Ports::Elsewhere,
        (false, false) => Ports::None,
    })
}

/// RFC 6040 4.2: carries a mark from the outer header over; `None` if the packet takes no part in ECN and must go.
pub(crate) fn mark_congestion(packet: &mut [u8], outer: u8) -> Option<()> {
    let [first, second, ..] = *packet else { return None };
    let is_4 = first >> 4 == 4;
    let inner = if is_4 { second & 3 } else { second >> 4 & 3 };
    let after = match (inner, outer & 3) {
        (0, 3) => return None,
        (0, _) => 0,
        (_, 3) => 3,
        // ECT(0) inside, ECT(1) outside.
        (2, 1) => 1,
        (inner, _) => inner,
    };
    if after == inner {
        return Some(());
    }
    let place = packet.get_mut(1)?;
    if !is_4 {
        *place = second & 0b1100_1111 | after << 4;
        return Some(());
    }
    *place = second & 0b1111_1100 | after;
    // RFC 1624, equation 3: the checksum is afterwards as right or wrong as it was before.
    let field: &mut [u8; 2] = packet.get_mut(10..12)?.try_into().ok()?;
    let word = |low: u8| u64::from(u16::from_be_bytes([first, low]));
    let mut sum = u64::from(u16::from_be_bytes(*field) ^ 0xffff)
        + (word(second) ^ 0xffff)
        + word(second & 0xfc | after);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    *field = u16::try_from(sum ^ 0xffff).ok()?.to_be_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_that_was_right_is_right_behind_every_mark() {
        let sum = |packet: &[u8]| {
            let words = packet.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(pair[1]));
            let sum: u64 = words.sum();
            (sum % 0xffff, sum > 0)
        };
        for (class, outer, after) in [(2, 3, 3), (1, 3, 3), (2, 1, 1), (0xfe, 3, 0xff)] {
            for id in 0..=u16::MAX {
                let mut packet = vec![0x45, class, 0, 20];
                packet.extend(id.to_be_bytes());
                packet.extend([0x40, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 9, 0, 1]);
                let right = u16::try_from(0xffff - sum(&packet).0).unwrap();
                packet[10..12].copy_from_slice(&right.to_be_bytes());
                assert_eq!(sum(&packet), (0, true));
                assert!(mark_congestion(&mut packet, outer).is_some());
                assert_eq!((packet[1], sum(&packet)), (after, (0, true)), "{id}");
            }
        }
    }
}
