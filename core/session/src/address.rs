//! Inner addresses: at one label, each belongs to one session at a time, and rests before somebody else has it.

use crate::Time;
use ipnet::IpNet;
use levee_policy::{HostName, LabelName, UserName};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// How long nobody else has the address of a session that is over. When a session is over its keys are erased and its sockets are
/// destroyed, so nothing sends for it any more; what was on its way is gone after the three probes that a packet may wait for a
/// neighbour, a second each, and one second more for the network. Its own person at its own workstation may have it at once: what
/// comes late was theirs.
pub const REST: Duration = Duration::from_secs(4);
/// The most addresses of one workstation that rest at one label: as many people may have signed off there within [`REST`].
const SHARE: usize = 8;
/// So many addresses that have rested are remembered at a label, to be used again last, the oldest first.
const REMEMBERED: usize = 1024;

/// Whose session it is or was.
pub type Owner = (UserName, HostName);

/// Why there is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAddress {
    /// So many sessions at one label fill the site's pool.
    UsedUp,
    /// Too many people have signed off at this workstation a moment ago.
    TooMany,
}

/// The site's inner addresses. Labels are separate networks: each has all of them for itself, and none sees what another uses.
pub struct Pools {
    nets: Vec<IpNet>,
    reserved: BTreeSet<IpAddr>,
    labels: BTreeMap<LabelName, Pool>,
}

/// The addresses of one label.
#[derive(Default)]
struct Pool {
    used: BTreeSet<IpAddr>,
    /// In the order in which they were released.
    resting: VecDeque<Resting>,
}

struct Resting {
    addresses: Vec<IpAddr>,
    owner: Option<Owner>,
    until: Time,
}

impl Pools {
    /// Addresses of these networks, one of each family; those in `reserved` are never given out, nor are a network's first and last.
    pub fn new(nets: &[IpNet], reserved: impl IntoIterator<Item = IpAddr>) -> Self {
        let mut families = BTreeSet::new();
        Self {
            nets: nets.iter().filter(|net| families.insert(net.addr().is_ipv4())).copied().collect(),
            reserved: reserved.into_iter().collect(),
            labels: BTreeMap::new(),
        }
    }

    /// One address of each network for a session at this label.
    ///
    /// Whoever was there a moment ago has the same again; otherwise it is one that nobody has had, or that has rested longest.
    /// `random` picks where the search begins: addresses in order would tell how many sessions there were.
    ///
    /// # Errors
    /// If there is none, and why.
    pub fn take(
        &mut self,
        label: &LabelName,
        owner: &Owner,
        random: u64,
        now: Time,
    ) -> Result<Vec<IpAddr>, NoAddress> {
        let pool = self.labels.entry(label.clone()).or_default();
        pool.forget(now);
        // What the store remembered is of one family, and nobody's: it only rests.
        pool.resting.retain(|resting| resting.owner.is_some() || resting.until > now);
        let own = |resting: &Resting| resting.owner.as_ref() == Some(owner);
        let again = pool.resting.iter().position(own).and_then(|at| pool.resting.remove(at));
        let taken = match again {
            Some(again) => again.addresses,
            None if pool.resting_at(&owner.1, now) >= SHARE => return Err(NoAddress::TooMany),
            None => {
                let fresh: Option<Vec<IpAddr>> =
                    self.nets.iter().map(|net| pool.find(net, &self.reserved, random)).collect();
                let fresh = fresh.filter(|fresh| !fresh.is_empty());
                fresh.or_else(|| pool.rested(now)).ok_or(NoAddress::UsedUp)?
            }
        };
        pool.used.extend(taken.iter().copied());
        Ok(taken)
    }

    /// Takes the addresses of a session that is restored; `false`, and nothing taken, if one of them is in use
    /// or not of this pool.
    pub fn retake(&mut self, label: &LabelName, addresses: &[IpAddr]) -> bool {
        let ours = |address: &IpAddr| {
            !self.reserved.contains(address) && self.nets.iter().any(|net| is_given(net, address))
        };
        let fits = !addresses.is_empty()
            && addresses.iter().all(ours)
            && !self.is_held(label, addresses)
            && addresses.iter().collect::<BTreeSet<_>>().len() == addresses.len();
        if fits {
            let pool = self.labels.entry(label.clone()).or_default();
            pool.resting.retain(|resting| resting.addresses.iter().all(|one| !addresses.contains(one)));
            pool.used.extend(addresses.iter().copied());
        }
        fits
    }

    /// Whether one of them belongs to a session at this label.
    pub fn is_held(&self, label: &LabelName, addresses: &[IpAddr]) -> bool {
        let pool = self.labels.get(label);
        pool.is_some_and(|pool| addresses.iter().any(|address| pool.used.contains(address)))
    }

    /// Gives back addresses that nobody has used.
    pub fn put_back(&mut self, label: &LabelName, addresses: &[IpAddr]) {
        if let Some(pool) = self.labels.get_mut(label) {
            pool.release(addresses);
        }
    }

    /// Gives back addresses that a session had; they rest for [`REST`].
    pub fn rest(&mut self, label: &LabelName, owner: Owner, addresses: &[IpAddr], now: Time) {
        let Some(pool) = self.labels.get_mut(label) else { return };
        pool.release(addresses);
        let (addresses, owner) = (addresses.to_vec(), Some(owner));
        pool.resting.push_back(Resting { addresses, owner, until: now.after(REST) });
        pool.forget(now);
    }

    /// Lets an address rest as the store says, but not longer than [`REST`] from now.
    pub fn still_resting(&mut self, label: LabelName, address: IpAddr, until: Time, now: Time) {
        if until > now {
            let resting =
                Resting { addresses: vec![address], owner: None, until: until.min(now.after(REST)) };
            self.labels.entry(label).or_default().resting.push_back(resting);
        }
    }
}

impl Pool {
    fn release(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            self.used.remove(address);
        }
    }

    /// Of what has rested, only so much is remembered.
    fn forget(&mut self, now: Time) {
        while self.resting.len() > REMEMBERED
            && self.resting.front().is_some_and(|oldest| oldest.until <= now)
        {
            self.resting.pop_front();
        }
    }

    /// How many addresses of a workstation's sessions rest still.
    fn resting_at(&self, host: &HostName, now: Time) -> usize {
        let theirs = |resting: &&Resting| {
            resting.until > now && resting.owner.as_ref().is_some_and(|(_, at)| at == host)
        };
        self.resting.iter().filter(theirs).count()
    }

    /// The addresses that have rested longest, if any have rested enough.
    fn rested(&mut self, now: Time) -> Option<Vec<IpAddr>> {
        let at = self.resting.iter().position(|resting| resting.until <= now)?;
        self.resting.remove(at).map(|resting| resting.addresses)
    }

    /// An address that nobody has or is remembered to have had.
    fn find(&self, net: &IpNet, reserved: &BTreeSet<IpAddr>, random: u64) -> Option<IpAddr> {
        let resting: BTreeSet<&IpAddr> = self.resting.iter().flat_map(|resting| &resting.addresses).collect();
        let size = size(net);
        // One more than could be occupied is enough to find a free one.
        let occupied = self.used.len() + resting.len() + reserved.len() + 2;
        (0..=occupied as u128)
            .take_while(|step| *step < size)
            .filter_map(|step| nth(net, u128::from(random).checked_add(step)? % size))
            .find(|address| {
                is_given(net, address)
                    && !reserved.contains(address)
                    && !self.used.contains(address)
                    && !resting.contains(address)
            })
    }
}

/// Whether an address may be a session's: a network's first and last never are.
fn is_given(net: &IpNet, address: &IpAddr) -> bool {
    net.contains(address) && *address != net.network() && *address != net.broadcast()
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

    fn label(text: &str) -> LabelName {
        text.parse().unwrap()
    }

    fn owner(user: usize, host: usize) -> Owner {
        (format!("u{user}").parse().unwrap(), format!("ws{host}").parse().unwrap())
    }

    #[test]
    fn every_address_but_the_reserved_is_given_out_once_at_each_label_and_then_none() {
        let mut pools = Pools::new(&nets(&["10.1.0.0/28"]), ["10.1.0.1".parse().unwrap()]);
        for at in ["LOW", "HIGH"] {
            let mut seen = BTreeSet::new();
            let mut n = 0;
            while let Ok(taken) = pools.take(&label(at), &owner(n, n), n as u64 * 977, T) {
                assert!(seen.insert(taken[0]), "{taken:?} twice");
                n += 1;
            }
            assert_eq!(seen.len(), 16 - 3, "whatever another label has used");
        }
    }

    #[test]
    fn a_released_address_rests_four_seconds_for_others_and_not_for_whose_it_was() {
        let mut pools = Pools::new(&nets(&["10.1.0.0/30"]), []);
        let low = label("LOW");
        let one = pools.take(&low, &owner(1, 1), 0, T).unwrap();
        let two = pools.take(&low, &owner(2, 2), 0, T).unwrap();
        assert_ne!(one, two);
        pools.rest(&low, owner(1, 1), &one, T);
        let soon = T.after(REST).before(Duration::from_millis(1));
        for other in [owner(3, 3), owner(1, 3), owner(3, 1)] {
            assert_eq!(pools.take(&low, &other, 0, soon), Err(NoAddress::UsedUp), "{other:?}");
        }
        assert_eq!(pools.take(&low, &owner(1, 1), 7, soon).as_ref(), Ok(&one));
        pools.rest(&low, owner(1, 1), &one, soon);
        assert_eq!(pools.take(&low, &owner(3, 3), 0, soon.after(REST)).as_ref(), Ok(&one));
    }

    #[test]
    fn whoever_comes_and_goes_as_often_as_they_like_has_one_address() {
        let mut pools = Pools::new(&nets(&["10.1.0.0/29"]), []);
        let low = label("LOW");
        for n in 0..10_000 {
            let taken = pools.take(&low, &owner(1, 1), n, T).unwrap();
            pools.rest(&low, owner(1, 1), &taken, T);
        }
        for n in 0..5 {
            assert!(pools.take(&low, &owner(2, n), 0, T).is_ok(), "{n}");
        }
    }

    #[test]
    fn many_people_at_one_workstation_leave_others_their_addresses() {
        let mut pools = Pools::new(&nets(&["10.1.0.0/24"]), []);
        let low = label("LOW");
        for n in 0..SHARE {
            let taken = pools.take(&low, &owner(n, 1), n as u64, T).unwrap();
            pools.rest(&low, owner(n, 1), &taken, T);
        }
        assert_eq!(pools.take(&low, &owner(SHARE, 1), 0, T), Err(NoAddress::TooMany));
        assert!(pools.take(&low, &owner(SHARE, 1), 0, T.after(REST)).is_ok());
        assert!(pools.take(&low, &owner(SHARE, 2), 0, T).is_ok());
    }

    #[test]
    fn what_has_rested_longest_is_used_again_first_and_only_when_nothing_else_is_left() {
        let mut pools = Pools::new(&nets(&["10.1.0.0/29"]), []);
        let low = label("LOW");
        let taken: Vec<_> = (0..6).map(|n| pools.take(&low, &owner(n, n), 3, T).unwrap()).collect();
        for (n, at) in [(4, 0), (1, 1), (2, 2)] {
            pools.rest(&low, owner(n, n), &taken[n], T.after(Duration::from_secs(at)));
        }
        let later = T.after(REST).after(Duration::from_secs(9));
        let again: Vec<_> = (6..9).map(|n| pools.take(&low, &owner(n, n), 0, later).unwrap()).collect();
        assert_eq!(again, [taken[4].clone(), taken[1].clone(), taken[2].clone()]);
    }

    #[test]
    fn a_session_gets_an_address_of_each_family() {
        let mut pools = Pools::new(&nets(&["10.1.0.0/16", "fd00::/64"]), []);
        let taken = pools.take(&label("LOW"), &owner(1, 1), u64::MAX, T).unwrap();
        assert!(matches!(taken[..], [IpAddr::V4(_), IpAddr::V6(_)]), "{taken:?}");
    }

    #[test]
    fn without_a_network_there_is_no_address() {
        assert_eq!(Pools::new(&[], []).take(&label("LOW"), &owner(1, 1), 1, T), Err(NoAddress::UsedUp));
    }

    #[test]
    fn a_restored_session_has_addresses_of_the_pool_that_nobody_else_has_and_all_or_none_of_them() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let (low, high) = (label("LOW"), label("HIGH"));
        let fresh = || Pools::new(&nets(&["10.1.0.0/29", "fd00::/64"]), [address("10.1.0.1")]);
        for (wanted, good) in [
            (vec!["10.1.0.2", "fd00::2"], true),
            (vec!["10.1.0.6"], true),
            (vec![], false),
            // A network's first and last, what is reserved, and what is no part of it.
            (vec!["10.1.0.0"], false),
            (vec!["10.1.0.7"], false),
            (vec!["10.1.0.1"], false),
            (vec!["10.1.0.8"], false),
            (vec!["10.1.0.2", "fd01::2"], false),
            (vec!["10.1.0.2", "10.1.0.2"], false),
        ] {
            let mut pools = fresh();
            let wanted: Vec<IpAddr> = wanted.into_iter().map(address).collect();
            assert_eq!(pools.retake(&low, &wanted), good, "{wanted:?}");
            assert_eq!(pools.is_held(&low, &wanted), good, "{wanted:?}");
            assert!(!pools.is_held(&high, &wanted), "labels are separate networks");
            assert!(!pools.retake(&low, &wanted), "{wanted:?}: a second time");
            // One of two is somebody's already: neither is taken.
            if good {
                let both = [wanted[0], address("10.1.0.3")];
                assert!(!pools.retake(&low, &both) && !pools.is_held(&low, &both[1..]));
                assert!(pools.retake(&high, &wanted));
                pools.put_back(&low, &wanted);
                assert!(!pools.is_held(&low, &wanted) && pools.is_held(&high, &wanted));
                assert!(pools.retake(&low, &wanted));
            }
        }
    }

    #[test]
    fn a_restored_session_has_its_address_back_from_where_it_rested_and_nobody_has_it_besides() {
        let mut pools = Pools::new(&nets(&["10.1.0.0/30"]), []);
        let low = label("LOW");
        let one = pools.take(&low, &owner(1, 1), 0, T).unwrap();
        pools.rest(&low, owner(1, 1), &one, T);
        assert!(pools.retake(&low, &one));
        // Its owner, come again, has another.
        let two = pools.take(&low, &owner(1, 1), 0, T).unwrap();
        assert_ne!(one, two);
        assert_eq!(pools.take(&low, &owner(2, 2), 0, T.after(REST)), Err(NoAddress::UsedUp));
    }

    #[test]
    fn what_the_store_says_rests_still_does_until_then_and_not_for_longer_than_anything_does() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let low = label("LOW");
        for (until, rests) in [
            (T.before(Duration::from_secs(1)), Duration::ZERO),
            (T, Duration::ZERO),
            (T.after(Duration::from_secs(2)), Duration::from_secs(2)),
            (T.after(Duration::from_secs(3_600)), REST),
        ] {
            let mut pools = Pools::new(&nets(&["10.1.0.0/30", "fd00::/126"]), []);
            for text in ["10.1.0.1", "10.1.0.2", "fd00::1", "fd00::2"] {
                pools.still_resting(low.clone(), address(text), until, T);
            }
            if !rests.is_zero() {
                let soon = T.after(rests).before(Duration::from_millis(1));
                assert_eq!(pools.take(&low, &owner(1, 1), 0, soon), Err(NoAddress::UsedUp));
            }
            let taken = pools.take(&low, &owner(1, 1), 0, T.after(rests)).unwrap();
            assert_eq!(taken.len(), 2, "one of each family");
        }
    }

    #[test]
    fn so_many_that_have_rested_are_remembered_and_none_that_rests_is_forgotten() {
        let mut pools = Pools::new(&nets(&["10.1.0.0/16"]), []);
        let low = label("LOW");
        // Each is of somebody else, and from another workstation.
        let held: Vec<_> = (0..2 * REMEMBERED)
            .map(|n| (owner(n, n), pools.take(&low, &owner(n, n), n as u64, T).unwrap()))
            .collect();
        for (owner, addresses) in &held {
            pools.rest(&low, owner.clone(), addresses, T);
        }
        let resting = |pools: &Pools| pools.labels[&low].resting.len();
        assert_eq!(resting(&pools), 2 * REMEMBERED, "they all rest");
        let later = T.after(REST);
        let again = pools.take(&low, &held[2 * REMEMBERED - 1].0, 0, later).unwrap();
        assert_eq!(
            (&again, resting(&pools)),
            (&held[2 * REMEMBERED - 1].1, REMEMBERED - 1),
            "the newest are"
        );
        assert_ne!(pools.take(&low, &held[0].0, 5, later).unwrap(), held[0].1, "the oldest is forgotten");
    }

    proptest! {
        #[test]
        fn no_address_is_ever_held_twice_or_given_to_another_while_it_rests(
            steps in prop::collection::vec((any::<u64>(), any::<bool>(), 0u64..2_000), 1..200)
        ) {
            let mut pools = Pools::new(&nets(&["10.1.0.0/27"]), []);
            let low = label("LOW");
            let mut held: Vec<(Owner, Vec<IpAddr>)> = Vec::new();
            let mut released: BTreeMap<IpAddr, (Owner, Time)> = BTreeMap::new();
            let mut now = T;
            for (random, release, pause) in steps {
                now = now.after(Duration::from_millis(pause));
                let who = owner(random as usize % 5, random as usize % 3);
                if release && !held.is_empty() {
                    let (whose, gone) = held.remove(random as usize % held.len());
                    pools.rest(&low, whose.clone(), &gone, now);
                    released.insert(gone[0], (whose, now));
                } else if let Ok(taken) = pools.take(&low, &who, random, now) {
                    prop_assert!(held.iter().all(|(_, other)| *other != taken));
                    if let Some((whose, at)) = released.get(&taken[0]) {
                        prop_assert!(*whose == who || now.since(*at) >= REST);
                    }
                    held.push((who, taken));
                }
            }
        }
    }
}
