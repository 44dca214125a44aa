//! Half-open IKE SAs by where they come from.

use crate::api::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How many are drawn when one has to give way; the oldest of them does.
const DRAWN: usize = 4;

/// A network by its first address and the length of its prefix.
type Network = (IpAddr, u8);

/// The smallest network that one owner has (an IPv4 address; an IPv6 /64, of which one host can have every address), and the next
/// larger that one owner often has (/24; /48).
fn networks(address: IpAddr) -> [Network; 2] {
    match address {
        IpAddr::V4(a) => {
            let wide = Ipv4Addr::from_bits(a.to_bits() & (u32::MAX << 8));
            [(a.into(), 32), (wide.into(), 24)]
        }
        IpAddr::V6(a) => {
            let first = |prefix: u32| Ipv6Addr::from_bits(a.to_bits() & (u128::MAX << (128 - prefix)));
            [(first(64).into(), 64), (first(48).into(), 48)]
        }
    }
}

/// How many half-open IKE SAs there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) all: usize,
    /// Of one IPv4 address or IPv6 /64.
    pub(crate) narrow: usize,
    /// Of one IPv4 /24 or IPv6 /48.
    pub(crate) wide: usize,
}

/// Half-open IKE SAs, by the SPI that we chose.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// Where each came from, and its turn.
    all: BTreeMap<u64, (IpAddr, u64)>,
    networks: BTreeMap<Network, BTreeSet<u64>>,
    turns: u64,
}

impl Crowd {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn has(&self, spi: u64) -> bool {
        self.all.contains_key(&spi)
    }

    /// How many there are of the smallest network around an address.
    pub(crate) fn near(&self, address: IpAddr) -> usize {
        let [narrow, _] = networks(address);
        self.networks.get(&narrow).map_or(0, BTreeSet::len)
    }

    pub(crate) fn enter(&mut self, spi: u64, address: IpAddr) {
        self.turns += 1;
        self.all.insert(spi, (address, self.turns));
        for network in networks(address) {
            self.networks.entry(network).or_default().insert(spi);
        }
    }

    pub(crate) fn leave(&mut self, spi: u64) {
        let Some((address, _)) = self.all.remove(&spi) else { return };
        for network in networks(address) {
            if let Some(there) = self.networks.get_mut(&network) {
                there.remove(&spi);
                if there.is_empty() {
                    self.networks.remove(&network);
                }
            }
        }
    }

    /// Whether one more from this address exceeds a bound; then who could give way, best first: of a few drawn at random, the oldest
    /// first. Of those of the newcomer's own network, where that is what is full.
    pub(crate) fn full(&self, address: IpAddr, bounds: Bounds, rng: &mut dyn Random) -> Option<Vec<u64>> {
        let [narrow, wide] = networks(address);
        for (network, most) in [(narrow, bounds.narrow), (wide, bounds.wide)] {
            if let Some(there) = self.networks.get(&network).filter(|there| there.len() >= most) {
                let next = |from| there.range(from..).next().or_else(|| there.first()).copied();
                return Some(self.draw(next, rng));
            }
        }
        let next = |from| self.all.range(from..).next().or_else(|| self.all.first_key_value());
        let next = |from| next(from).map(|(spi, _)| *spi);
        (self.all.len() >= bounds.all).then(|| self.draw(next, rng))
    }

    /// SPIs are random and spread evenly, so the next above a random number is drawn at random too.
    fn draw(&self, next: impl Fn(u64) -> Option<u64>, rng: &mut dyn Random) -> Vec<u64> {
        let drawn = (0..DRAWN).filter_map(|_| {
            let mut octets = [0; 8];
            rng.fill(&mut octets);
            next(u64::from_be_bytes(octets))
        });
        let mut drawn: Vec<u64> = drawn.collect();
        drawn.sort_by_key(|spi| self.all.get(spi).map(|(_, turn)| *turn));
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { all: 100, narrow: 4, wide: 10 };

    /// xorshift64.
    fn random() -> impl FnMut(&mut [u8]) {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        move |out: &mut [u8]| {
            for octet in out {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *octet = (state >> 32) as u8;
            }
        }
    }

    fn spi(rng: &mut dyn Random) -> u64 {
        let mut octets = [0; 8];
        rng.fill(&mut octets);
        u64::from_be_bytes(octets)
    }

    #[test]
    fn one_ipv6_64_and_one_ipv4_address_are_one_owner_each() {
        let (mut crowd, mut rng) = (Crowd::default(), random());
        for (one, same, other) in [
            ("2001:db8:1:1::1", "2001:db8:1:1:ffff:ffff:ffff:ffff", "2001:db8:1:2::1"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ] {
            let (one, same, other) = (one.parse().unwrap(), same.parse().unwrap(), other.parse().unwrap());
            for _ in 0..4 {
                assert!(crowd.full(same, BOUNDS, &mut rng).is_none());
                let spi = spi(&mut rng);
                crowd.enter(spi, one);
            }
            assert_eq!((crowd.near(same), crowd.near(other)), (4, 0));
            let gives_way = crowd.full(same, BOUNDS, &mut rng).unwrap();
            assert!(gives_way.iter().all(|spi| crowd.all[spi].0 == one), "another owner's gives way");
            assert!(crowd.full(other, BOUNDS, &mut rng).is_none());
        }
    }

    #[test]
    fn an_ipv4_24_and_an_ipv6_48_are_bounded_as_well_and_their_neighbours_are_not() {
        let (mut crowd, mut rng) = (Crowd::default(), random());
        for n in 0..10_u16 {
            for address in [format!("192.0.2.{}", 200 + n), format!("2001:db8:ffff:{n:x}::1")] {
                let address = address.parse().unwrap();
                assert!(crowd.full(address, BOUNDS, &mut rng).is_none());
                let spi = spi(&mut rng);
                crowd.enter(spi, address);
            }
        }
        for (full, room) in [("192.0.2.1", "192.0.3.1"), ("2001:db8:ffff:abcd::1", "2001:db8:fffe::1")] {
            let family = full.parse::<IpAddr>().unwrap().is_ipv4();
            let gives_way = crowd.full(full.parse().unwrap(), BOUNDS, &mut rng).unwrap();
            assert!(gives_way.iter().all(|spi| crowd.all[spi].0.is_ipv4() == family));
            assert!(crowd.full(room.parse().unwrap(), BOUNDS, &mut rng).is_none());
        }
    }

    #[test]
    fn what_leaves_leaves_nothing_behind() {
        let (mut crowd, mut rng) = (Crowd::default(), random());
        let spis: Vec<u64> = (0..50_u32)
            .map(|n| {
                let spi = spi(&mut rng);
                crowd.enter(spi, IpAddr::from(Ipv4Addr::from_bits(n << 4)));
                spi
            })
            .collect();
        for spi in spis {
            crowd.leave(spi);
            crowd.leave(spi);
        }
        assert_eq!(crowd.len(), 0);
        assert!(crowd.networks.is_empty());
    }

    #[test]
    fn at_the_bound_of_all_the_old_give_way_and_the_newest_stay() {
        let (mut crowd, mut rng) = (Crowd::default(), random());
        let mut newest = Vec::new();
        for n in 0..2_000_u32 {
            let address = IpAddr::from(Ipv4Addr::from_bits(n << 8));
            if let Some(gives_way) = crowd.full(address, BOUNDS, &mut rng) {
                assert_eq!(crowd.len(), 100);
                let came = |spi: &u64| newest.iter().position(|one| one == spi);
                assert!(gives_way.is_sorted_by_key(came), "of those drawn, the oldest first");
                crowd.leave(gives_way[0]);
            }
            let spi = spi(&mut rng);
            crowd.enter(spi, address);
            newest.push(spi);
        }
        assert_eq!(crowd.len(), 100);
        // By chance alone, of the last ten one in ten would be gone; the oldest of four is hardly ever one of them.
        assert!(newest.iter().rev().take(10).all(|spi| crowd.all.contains_key(spi)));
    }
}
