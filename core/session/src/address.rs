//! Inner addresses: each belongs to one session at a time, and rests before the next one has it.

use crate::Time;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// How long a released address is given to nobody, so that a late packet or connection of the session that had
/// it finds no other session there.
pub const REST: Duration = Duration::from_secs(10 * 60);

/// The site's inner addresses: at most one network of each family.
pub struct Pool {
    nets: Vec<IpNet>,
    reserved: BTreeSet<IpAddr>,
    used: BTreeSet<IpAddr>,
    resting: BTreeMap<IpAddr, Time>,
}

impl Pool {
    /// Addresses of these networks; those in `reserved` are never given out, nor are a network's first and last.
    pub fn new(nets: &[IpNet], reserved: impl IntoIterator<Item = IpAddr>) -> Self {
        let mut families = BTreeSet::new();
        Self {
            nets: nets.iter().filter(|net| families.insert(net.addr().is_ipv4())).copied().collect(),
            reserved: reserved.into_iter().collect(),
            used: BTreeSet::new(),
            resting: BTreeMap::new(),
        }
    }

    /// One address of each network; `None` if some network has none free.
    ///
    /// `random` picks where the search begins: addresses given out in order would tell a low session how many
    /// sessions higher labels open.
    pub fn take(&mut self, random: u64, now: Time) -> Option<Vec<IpAddr>> {
        self.resting.retain(|_, until| *until > now);
        let taken: Option<Vec<IpAddr>> = self.nets.iter().map(|net| self.find(net, random)).collect();
        let taken = taken.filter(|taken| !taken.is_empty())?;
        self.used.extend(taken.iter().copied());
        Some(taken)
    }

    fn find(&self, net: &IpNet, random: u64) -> Option<IpAddr> {
        let size = size(net);
        // One more than could be occupied is enough to find a free one.
        let occupied = self.used.len() + self.resting.len() + self.reserved.len() + 2;
        (0..=occupied as u128)
            .take_while(|step| *step < size)
            .filter_map(|step| nth(net, u128::from(random).checked_add(step)? % size))
            .find(|address| self.is_free(net, address))
    }

    fn is_free(&self, net: &IpNet, address: &IpAddr) -> bool {
        *address != net.network()
            && *address != net.broadcast()
            && !self.reserved.contains(address)
            && !self.used.contains(address)
            && !self.resting.contains_key(address)
    }

    /// Takes the addresses of a session that is restored; `false`, and nothing taken, if one of them is in use
    /// or not of this pool.
    pub fn retake(&mut self, addresses: &[IpAddr]) -> bool {
        let fits = !addresses.is_empty()
            && addresses.iter().all(|address| {
                self.nets.iter().any(|net| net.contains(address) && self.is_free(net, address))
            })
            && addresses.iter().collect::<BTreeSet<_>>().len() == addresses.len();
        if fits {
            self.used.extend(addresses.iter().copied());
        }
        fits
    }

    /// Whether one of them belongs to a session.
    pub fn is_held(&self, addresses: &[IpAddr]) -> bool {
        addresses.iter().any(|address| self.used.contains(address))
    }

    /// Gives back addresses that nobody has used.
    pub fn put_back(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            self.used.remove(address);
        }
    }

    /// Gives back addresses that a session had; they rest until the time returned.
    pub fn rest(&mut self, addresses: &[IpAddr], now: Time) -> Time {
        let until = now.after(REST);
        for address in addresses {
            self.used.remove(address);
            self.resting.insert(*address, until);
        }
        until
    }

    /// Lets an address rest as the store says, but not longer than [`REST`] from now.
    pub fn still_resting(&mut self, address: IpAddr, until: Time, now: Time) {
        if until > now {
            self.resting.insert(address, until.min(now.after(REST)));
        }
    }
}

fn size(net: &IpNet) -> u128 {
    1u128.checked_shl(u32::from(net.max_prefix_len() - net.prefix_len())).unwrap_or(u128::MAX)
}

fn nth(net: &IpNet, offset: u128) -> Option<IpAddr> {
    Some(match net.network() {
        IpAddr::V4(first) => {
            Ipv4Addr::from_bits(first.to_bits().checked_add(u32::try_from(offset).ok()?)?).into()
        }
        IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits().checked_add(offset)?).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T: Time = Time::from_millis(1_000_000);

    fn nets(text: &[&str]) -> Vec<IpNet> {
        text.iter().map(|net| net.parse().unwrap()).collect()
    }

    #[test]
    fn every_address_but_the_reserved_is_given_out_once_and_then_none() {
        let mut pool = Pool::new(&nets(&["10.1.0.0/28"]), ["10.1.0.1".parse().unwrap()]);
        let mut seen = BTreeSet::new();
        while let Some(taken) = pool.take(seen.len() as u64 * 977, T) {
            assert!(seen.insert(taken[0]), "{taken:?} twice");
        }
        assert_eq!(seen.len(), 16 - 3);
    }

    #[test]
    fn a_released_address_rests_ten_minutes() {
        let mut pool = Pool::new(&nets(&["10.1.0.0/30"]), []);
        let one = pool.take(0, T).unwrap();
        let two = pool.take(0, T).unwrap();
        assert_ne!(one, two);
        pool.rest(&one, T);
        assert!(pool.take(0, T.after(REST).before(Duration::from_millis(1))).is_none());
        assert_eq!(pool.take(0, T.after(REST)).unwrap(), one);
    }

    #[test]
    fn a_session_gets_an_address_of_each_family() {
        let mut pool = Pool::new(&nets(&["10.1.0.0/16", "fd00::/64"]), []);
        let taken = pool.take(u64::MAX, T).unwrap();
        assert!(matches!(taken[..], [IpAddr::V4(_), IpAddr::V6(_)]), "{taken:?}");
    }

    #[test]
    fn without_a_network_there_is_no_address() {
        assert!(Pool::new(&[], []).take(1, T).is_none());
    }

    proptest! {
        #[test]
        fn no_address_is_ever_held_twice_or_given_out_while_it_rests(
            steps in prop::collection::vec((any::<u64>(), any::<bool>(), 0u64..400_000), 1..200)
        ) {
            let mut pool = Pool::new(&nets(&["10.1.0.0/27"]), []);
            let mut held: Vec<Vec<IpAddr>> = Vec::new();
            let mut released: BTreeMap<IpAddr, Time> = BTreeMap::new();
            let mut now = T;
            for (random, release, pause) in steps {
                now = now.after(Duration::from_millis(pause));
                if release && !held.is_empty() {
                    let gone = held.remove(random as usize % held.len());
                    pool.rest(&gone, now);
                    released.insert(gone[0], now);
                } else if let Some(taken) = pool.take(random, now) {
                    prop_assert!(!held.contains(&taken));
                    if let Some(at) = released.get(&taken[0]) {
                        prop_assert!(now.since(*at) >= REST);
                    }
                    held.push(taken);
                }
            }
        }
    }
}
