//! Traffic selectors (RFC 4301 4.4.1.1), from the tunnel's point of view: `local` is this end's side.

use core::net::IpAddr;

use crate::inner::{Direction, Fragment, Inner};

/// Addresses of one family, first to last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

impl AddressRange {
    /// From `first` to `last`; `None` when they are of two families or the wrong way round.
    #[must_use]
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(Self { first, last })
    }

    /// The addresses that share the first `length` bits with `address`; `None` when it has not so many.
    #[must_use]
    pub fn prefix(address: IpAddr, length: u8) -> Option<Self> {
        match address {
            IpAddr::V4(v4) => {
                let host = 32_u32.checked_sub(u32::from(length))?;
                let mask = u32::MAX.checked_shl(host).unwrap_or(0);
                let bits = v4.to_bits();
                Self::new(IpAddr::V4((bits & mask).into()), IpAddr::V4((bits | !mask).into()))
            }
            IpAddr::V6(v6) => {
                let host = 128_u32.checked_sub(u32::from(length))?;
                let mask = u128::MAX.checked_shl(host).unwrap_or(0);
                let bits = v6.to_bits();
                Self::new(IpAddr::V6((bits & mask).into()), IpAddr::V6((bits | !mask).into()))
            }
        }
    }

    /// Whether `address` is one of them.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        // IpAddr's order puts every IPv4 address before every IPv6 one, and both ends are of one family.
        self.first <= address && address <= self.last
    }
}

/// Ports, first to last, both included; the whole range stands for ANY and also lets pass what has no ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Every port, and packets that have none.
    pub const ANY: Self = Self { first: 0, last: u16::MAX };

    /// From `first` to `last`; `None` when they are the wrong way round.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// This port alone.
    #[must_use]
    pub const fn only(port: u16) -> Self {
        Self { first: port, last: port }
    }

    fn is_any(self) -> bool {
        self == Self::ANY
    }

    fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

/// One row of what may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Inner addresses on this side.
    pub local: AddressRange,
    /// Inner addresses on the peer's side.
    pub remote: AddressRange,
    /// Next layer protocol (IPv6: behind the extension headers); `None` for any.
    pub protocol: Option<u8>,
    /// Ports on this side.
    pub local_ports: PortRange,
    /// Ports on the peer's side.
    pub remote_ports: PortRange,
}

/// What selectors make of a packet by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may pass, whatever its ports.
    Freely,
    /// It may pass for the ports that it has.
    ByPorts,
    /// A later fragment, which has none: it depends on what the first one had.
    ByTrail,
    /// It may not.
    No,
}

/// How far one selector goes with a packet.
#[derive(PartialEq, Eq)]
enum Match {
    /// Whatever its ports.
    Freely,
    /// For its ports.
    ByPorts,
    /// All but the ports match, which this fragment does not carry.
    NeedsPorts,
    No,
}

impl Selector {
    fn matches(&self, packet: &Inner, direction: Direction) -> Match {
        let (local, remote) = match direction {
            Direction::In => (packet.destination, packet.source),
            Direction::Out => (packet.source, packet.destination),
        };
        if !self.local.contains(local)
            || !self.remote.contains(remote)
            || self.protocol.is_some_and(|protocol| protocol != packet.protocol)
        {
            return Match::No;
        }
        if self.local_ports.is_any() && self.remote_ports.is_any() {
            return Match::Freely;
        }
        match packet.ports {
            Some((source, destination)) => {
                let (local, remote) = match direction {
                    Direction::In => (destination, source),
                    Direction::Out => (source, destination),
                };
                if self.local_ports.contains(local) && self.remote_ports.contains(remote) {
                    Match::ByPorts
                } else {
                    Match::No
                }
            }
            None if packet.fragment == Fragment::Later => Match::NeedsPorts,
            None => Match::No,
        }
    }
}

/// Everything that may pass; an empty set lets nothing pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectorSet(Vec<Selector>);

impl SelectorSet {
    /// The set of these rows.
    #[must_use]
    pub fn new(selectors: Vec<Selector>) -> Self {
        Self(selectors)
    }

    /// What these rows say of a packet that leaves through the tunnel (RFC 4301 5.1) or arrives through it (5.2, step 4): the most
    /// that one of them does.
    #[must_use]
    pub fn verdict(&self, packet: &Inner, direction: Direction) -> Verdict {
        let mut verdict = Verdict::No;
        for selector in &self.0 {
            match selector.matches(packet, direction) {
                Match::Freely => return Verdict::Freely,
                Match::ByPorts => verdict = Verdict::ByPorts,
                // It has no ports, so that no row says otherwise.
                Match::NeedsPorts => verdict = Verdict::ByTrail,
                Match::No => {}
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn a_prefix_has_the_addresses_that_share_its_bits_and_no_other_in_both_families() {
        for length in 0..=128_u32 {
            let address = Ipv6Addr::from_bits(0x2001_0db8_5555_aaaa_1234_5678_9abc_def1);
            let range = AddressRange::prefix(address.into(), length as u8).unwrap();
            // Each bit turned by itself: within exactly when it is behind the prefix.
            for bit in 0..128 {
                let other = Ipv6Addr::from_bits(address.to_bits() ^ 1 << (127 - bit));
                assert_eq!(range.contains(other.into()), bit >= length, "{other} in {address}/{length}");
            }
            let host = u128::MAX.checked_shr(length).unwrap_or(0);
            let (first, last) = (address.to_bits() & !host, address.to_bits() | host);
            for (inside, address) in [
                (true, Some(first)),
                (true, Some(last)),
                (false, first.checked_sub(1)),
                (false, last.checked_add(1)),
            ] {
                let Some(address) = address else { continue };
                assert_eq!(range.contains(Ipv6Addr::from_bits(address).into()), inside, "/{length}");
            }
            assert!(!range.contains(Ipv4Addr::new(32, 1, 13, 184).into()), "the other family");
        }
        for length in 0..=32_u32 {
            let address = Ipv4Addr::new(192, 0, 2, 129);
            let range = AddressRange::prefix(address.into(), length as u8).unwrap();
            for bit in 0..32 {
                let other = Ipv4Addr::from_bits(address.to_bits() ^ 1 << (31 - bit));
                assert_eq!(range.contains(other.into()), bit >= length, "{other} in {address}/{length}");
            }
            assert!(!range.contains(address.to_ipv6_mapped().into()), "the other family");
        }
        assert_eq!(AddressRange::prefix(Ipv6Addr::LOCALHOST.into(), 129), None);
        assert_eq!(AddressRange::prefix(Ipv4Addr::LOCALHOST.into(), 33), None);
    }
}
