//! Traffic selectors (RFC 7296 3.13) and security labels among them (RFC 9478).

use super::{Malformed, Reader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Selectors in one payload beyond which it is malformed (the field would allow 255).
const MOST_SELECTORS: usize = 64;
/// Octets of a label beyond which it is malformed. SELinux contexts and site labels are far shorter.
const LONGEST_LABEL: usize = 1024;

/// A security label as RFC 9478 carries it: the site's label string. Never empty, no NUL inside; the trailing NUL of the wire
/// form is not part of it, so that labels with and without one are equal, as strongSwan compares them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecurityLabel(Box<[u8]>);

/// A string that cannot be a label: empty, over 1,024 octets, or with a NUL inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidLabel;

impl std::fmt::Display for InvalidLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a security label has 1 to 1,024 octets and no NUL")
    }
}

impl std::error::Error for InvalidLabel {}

impl SecurityLabel {
    /// A label from its octets, with or without one trailing NUL.
    pub fn new(octets: &[u8]) -> Result<Self, InvalidLabel> {
        let octets = octets.strip_suffix(&[0]).unwrap_or(octets);
        if octets.is_empty() || octets.len() > LONGEST_LABEL || octets.contains(&0) {
            return Err(InvalidLabel);
        }
        Ok(Self(octets.into()))
    }

    /// The octets without the trailing NUL.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The label as text, when it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl std::fmt::Display for SecurityLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl std::fmt::Debug for SecurityLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecurityLabel({self})")
    }
}

/// A range of addresses, one protocol or all, and a range of ports (RFC 7296 3.13.1). `start` and `end` are of one family and
/// in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Selector {
    protocol: u8,
    ports: (u16, u16),
    start: IpAddr,
    end: IpAddr,
}

impl Selector {
    /// A selector of `protocol` (0 means all), ports `ports.0..=ports.1` and addresses `start..=end`. The pair (65535, 0) is the
    /// RFC's OPAQUE. Gives nothing when the families differ or a range is the wrong way round.
    pub fn new(protocol: u8, ports: (u16, u16), start: IpAddr, end: IpAddr) -> Option<Self> {
        let families = start.is_ipv4() == end.is_ipv4();
        let order = start <= end && (ports.0 <= ports.1 || ports == (u16::MAX, 0));
        // RFC 7296 3.13.1: with no protocol, ports are all.
        let ports = if protocol == 0 { (0, u16::MAX) } else { ports };
        (families && order).then_some(Self { protocol, ports, start, end })
    }

    /// All protocols and ports of `address/prefix_length`.
    pub fn subnet(address: IpAddr, prefix_length: u8) -> Option<Self> {
        let (start, end) = match address {
            IpAddr::V4(a) => {
                let host = u32::MAX.checked_shr(u32::from(prefix_length)).unwrap_or(0);
                (prefix_length <= 32).then_some(())?;
                let a = u32::from(a);
                (IpAddr::V4(Ipv4Addr::from(a & !host)), IpAddr::V4(Ipv4Addr::from(a | host)))
            }
            IpAddr::V6(a) => {
                let host = u128::MAX.checked_shr(u32::from(prefix_length)).unwrap_or(0);
                (prefix_length <= 128).then_some(())?;
                let a = u128::from(a);
                (IpAddr::V6(Ipv6Addr::from(a & !host)), IpAddr::V6(Ipv6Addr::from(a | host)))
            }
        };
        Self::new(0, (0, u16::MAX), start, end)
    }

    /// One address, all protocols and ports.
    pub fn host(address: IpAddr) -> Self {
        Self { protocol: 0, ports: (0, u16::MAX), start: address, end: address }
    }

    /// The protocol number; 0 means all.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// First and last port; (65535, 0) means OPAQUE.
    pub fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// First and last address.
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.start, self.end)
    }

    /// What both selectors match, if anything.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        if self.start.is_ipv4() != other.start.is_ipv4() {
            return None;
        }
        let protocol = match (self.protocol, other.protocol) {
            (a, b) if a == b => a,
            (0, p) | (p, 0) => p,
            _ => return None,
        };
        let any = (0, u16::MAX);
        let opaque = (u16::MAX, 0);
        let ports = match (self.ports, other.ports) {
            (a, b) if a == b => a,
            (a, b) if a == any => b,
            (a, b) if b == any => a,
            (a, b) if a == opaque || b == opaque => return None,
            (a, b) => {
                let (first, last) = (a.0.max(b.0), a.1.min(b.1));
                // Before it is a pair: port 65535 alone and port 0 alone would have OPAQUE in common.
                (first <= last).then_some((first, last))?
            }
        };
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start <= end).then_some(Self { protocol, ports, start, end })
    }

    /// Whether all that `self` matches, `other` matches too.
    pub fn is_within(&self, other: &Self) -> bool {
        self.intersect(other).as_ref() == Some(self)
    }
}

/// Selectors that a payload says with a label beside.
const MOST_SAID: usize = MOST_SELECTORS - 1;

/// The part of `offered` that `allowed` has room for (RFC 7296 2.9), in the order of `allowed`, at most 63 selectors: as many as an answer says.
pub(crate) fn narrow(offered: &[Selector], allowed: &[Selector]) -> Vec<Selector> {
    let mut out: Vec<Selector> = Vec::new();
    for a in allowed.iter().take(MOST_SELECTORS) {
        for o in offered.iter().take(MOST_SELECTORS) {
            if let Some(both) = a.intersect(o)
                && out.len() < MOST_SAID
                && !out.iter().any(|have| both.is_within(have))
            {
                out.push(both);
            }
        }
    }
    out
}

/// Whether each selector of `inner` lies within one of `outer`.
pub(crate) fn within(inner: &[Selector], outer: &[Selector]) -> bool {
    inner.iter().all(|i| outer.iter().any(|o| i.is_within(o)))
}

/// A TS payload: its address selectors, and its labels apart (RFC 9478 2: they are not alternatives to address selectors).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TrafficSelectors {
    pub(crate) ranges: Vec<Selector>,
    pub(crate) labels: Vec<SecurityLabel>,
    /// Selectors of types that levee does not know: they match nothing.
    pub(crate) unknown: usize,
}

impl TrafficSelectors {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(body, "traffic selector payload");
        let count = r.u8()?;
        r.take(3)?;
        if count == 0 || usize::from(count) > MOST_SELECTORS {
            return r.fail();
        }
        let mut out = Self::default();
        for _ in 0..count {
            let (kind, protocol, length) = (r.u8()?, r.u8()?, r.u16()?);
            let mut s = r.counted(length, 4)?;
            match kind {
                7 | 8 => {
                    let ports = (s.u16()?, s.u16()?);
                    let (start, end) = if kind == 7 {
                        (IpAddr::V4(s.array::<4>()?.into()), IpAddr::V4(s.array::<4>()?.into()))
                    } else {
                        (IpAddr::V6(s.array::<16>()?.into()), IpAddr::V6(s.array::<16>()?.into()))
                    };
                    match Selector::new(protocol, ports, start, end) {
                        Some(selector) if s.is_empty() => out.ranges.push(selector),
                        _ => return r.fail(),
                    }
                }
                // RFC 9478 2.1: type 10, a reserved octet, the length, the label. Zero-length labels are refused (3.1).
                10 => match SecurityLabel::new(s.rest()) {
                    Ok(label) => out.labels.push(label),
                    Err(InvalidLabel) => return r.fail(),
                },
                _ => out.unknown += 1,
            }
        }
        if !r.is_empty() {
            return r.fail();
        }
        Ok(out)
    }

    pub(crate) fn write(ranges: &[Selector], label: Option<&SecurityLabel>, out: &mut Vec<u8>) {
        let ranges = ranges.get(..MOST_SAID).unwrap_or(ranges);
        let count = ranges.len() + usize::from(label.is_some());
        out.extend_from_slice(&[u8::try_from(count).unwrap_or(0), 0, 0, 0]);
        for s in ranges {
            let (kind, length) = if s.start.is_ipv4() { (7, 16u16) } else { (8, 40) };
            out.extend_from_slice(&[kind, s.protocol]);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&s.ports.0.to_be_bytes());
            out.extend_from_slice(&s.ports.1.to_be_bytes());
            for a in [s.start, s.end] {
                match a {
                    IpAddr::V4(a) => out.extend_from_slice(&a.octets()),
                    IpAddr::V6(a) => out.extend_from_slice(&a.octets()),
                }
            }
        }
        if let Some(label) = label {
            let length = u16::try_from(label.0.len() + 5).unwrap_or(u16::MAX);
            out.extend_from_slice(&[10, 0]);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&label.0);
            out.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_on_the_wire_has_type_10_and_a_trailing_nul() {
        let label = SecurityLabel::new(b"SECRET").expect("a label");
        let mut out = Vec::new();
        TrafficSelectors::write(&[Selector::host([10, 0, 0, 1].into())], Some(&label), &mut out);
        assert_eq!(&out[out.len() - 11..], b"\x0a\x00\x00\x0bSECRET\x00");
        let back = TrafficSelectors::parse(&out).expect("parses");
        assert_eq!(back.labels, vec![label]);
        assert_eq!(back.ranges, vec![Selector::host([10, 0, 0, 1].into())]);
    }

    #[test]
    fn labels_are_equal_with_and_without_the_trailing_nul_and_no_other_way() {
        let l = |s: &[u8]| SecurityLabel::new(s);
        assert_eq!(l(b"SECRET"), l(b"SECRET\0"));
        assert_ne!(l(b"SECRET"), l(b"SECRE"));
        assert_ne!(l(b"SECRET"), l(b"secret"));
        for bad in [&b""[..], b"\0", b"SEC\0RET", b"SECRET\0\0", &[b'x'; 1025]] {
            assert_eq!(l(bad), Err(InvalidLabel));
        }
    }

    #[test]
    fn narrowing_gives_what_both_sides_have() {
        let all = Selector::subnet([0, 0, 0, 0].into(), 0).expect("all");
        let net = Selector::subnet([10, 1, 0, 0].into(), 16).expect("net");
        let web = Selector::new(6, (80, 443), [10, 1, 2, 0].into(), [10, 1, 2, 255].into()).expect("web");
        assert_eq!(narrow(&[all], &[net]), vec![net]);
        assert_eq!(narrow(&[net], &[web]), vec![web]);
        let other = Selector::subnet([192, 168, 0, 0].into(), 16).expect("other");
        assert_eq!(narrow(&[net], &[other]), vec![]);
        assert!(within(&[web], &[all]) && !within(&[all], &[web]));
        let v6 = Selector::subnet("::".parse().expect("v6"), 0).expect("v6");
        assert_eq!(narrow(&[all], &[v6]), vec![]);
        let udp = Selector::new(17, (53, 53), [10, 1, 2, 3].into(), [10, 1, 2, 3].into()).expect("udp");
        assert_eq!(udp.intersect(&web), None);
        // The first port and the last have nothing in common, and not OPAQUE, which (65535, 0) says (RFC 7296 3.13.1).
        let host = || [10, 1, 2, 3].into();
        let [first, last] =
            [0, u16::MAX].map(|port| Selector::new(6, (port, port), host(), host()).expect("a port"));
        assert_eq!((first.intersect(&last), last.intersect(&first)), (None, None));
    }
}
