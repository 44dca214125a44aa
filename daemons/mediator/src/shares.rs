//! How many connections there may be, and how many of them one person's or one host's.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use levee_policy::UserName;

/// Of what is left, nobody may have more than so many times that: then one alone has at most four fifths, and there is room for
/// whoever comes next (a dynamic threshold, as switches bound their queues: Choudhury and Hahne 1998).
const TIMES_WHAT_IS_LEFT: usize = 4;

/// A host of a network may have many addresses. So the connections of all hosts together count as those of so many.
const HOSTS: usize = 4;

/// Whose a connection is when it is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// All sessions of one person are one.
    Person(UserName),
    /// A host of a single-level network: its address, or the /64 of it, in which a host has as many as it likes.
    Host(IpAddr),
}

impl Holder {
    /// The person, or where there is none the host that connects.
    pub fn of(user: Option<&UserName>, from: IpAddr) -> Self {
        match (user, from.to_canonical()) {
            (Some(user), _) => Self::Person(user.clone()),
            (None, IpAddr::V6(address)) => {
                Self::Host(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into())
            }
            (None, address) => Self::Host(address),
        }
    }

    const fn is_host(&self) -> bool {
        matches!(self, Self::Host(_))
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// For nobody.
    All,
    /// For this one, who has a share already.
    Share,
}

/// The connections of one kind.
#[derive(Debug)]
pub struct Shares {
    most: usize,
    all: usize,
    /// Of them, those of hosts.
    hosts: usize,
    by: BTreeMap<Holder, usize>,
}

impl Shares {
    /// So many at a time.
    pub fn new(most: usize) -> Self {
        Self { most, all: 0, hosts: 0, by: BTreeMap::new() }
    }

    /// Counts another one of this holder's. Who has none is always given one where there is any.
    ///
    /// # Errors
    /// There is no room, and it is not counted.
    pub fn take(&mut self, holder: &Holder) -> Result<(), Full> {
        let left = self.most.checked_sub(self.all).and_then(|left| left.checked_sub(1)).ok_or(Full::All)?;
        match self.by.get_mut(holder) {
            Some(own) if *own >= left.saturating_mul(TIMES_WHAT_IS_LEFT) => return Err(Full::Share),
            Some(own) => *own += 1,
            None => drop(self.by.insert(holder.clone(), 1)),
        }
        self.all += 1;
        self.hosts += usize::from(holder.is_host());
        Ok(())
    }

    /// How many are this holder's.
    fn of(&self, holder: &Holder) -> usize {
        self.by.get(holder).copied().unwrap_or(0)
    }

    /// By how many it goes how much is kept of each: a holder's own, or as many as a host has where all of them had as many.
    pub fn crowd(&self, holder: &Holder) -> usize {
        let hosts = if holder.is_host() { self.hosts } else { 0 };
        self.of(holder).max(hosts.div_ceil(HOSTS))
    }

    /// One of this holder's is over.
    pub fn give_back(&mut self, holder: &Holder) {
        let Some(own) = self.by.get_mut(holder) else { return };
        *own = own.saturating_sub(1);
        if *own == 0 {
            self.by.remove(holder);
        }
        self.all = self.all.saturating_sub(1);
        self.hosts = self.hosts.saturating_sub(usize::from(holder.is_host()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(name: &str) -> Holder {
        Holder::Person(name.parse().unwrap())
    }

    /// How many one can have until there is no room, and why there is none.
    fn fill(shares: &mut Shares, holder: &Holder) -> (usize, Full) {
        for had in 0.. {
            if let Err(full) = shares.take(holder) {
                return (had, full);
            }
        }
        unreachable!()
    }

    #[test]
    fn one_alone_has_four_fifths_and_whoever_comes_next_has_room() {
        let mut shares = Shares::new(12_500);
        assert_eq!(fill(&mut shares, &person("ada")), (10_000, Full::Share));
        assert_eq!((shares.of(&person("ada")), shares.of(&person("ben"))), (10_000, 0));
        assert_eq!(fill(&mut shares, &person("ben")), (2_000, Full::Share));
        assert_eq!(fill(&mut shares, &person("cyd")), (400, Full::Share));
        assert_eq!(shares.take(&person("ada")), Err(Full::Share));
        for n in 0..10 {
            assert_eq!(shares.take(&person(&format!("p{n}"))), Ok(()));
        }
    }

    #[test]
    fn of_few_the_last_is_for_somebody_who_has_none() {
        for (most, ada) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4), (6, 4), (7, 5)] {
            let mut shares = Shares::new(most);
            let (had, full) = fill(&mut shares, &person("ada"));
            assert_eq!((most, had), (most, ada));
            assert_eq!(full, if most == 1 { Full::All } else { Full::Share });
            assert_eq!(shares.take(&person("ben")).is_ok(), most > 1, "{most}");
        }
        assert_eq!(Shares::new(0).take(&person("ada")), Err(Full::All));
    }

    #[test]
    fn what_is_over_makes_room_and_nothing_is_given_back_twice() {
        let mut shares = Shares::new(4);
        assert_eq!(fill(&mut shares, &person("ada")), (3, Full::Share));
        shares.take(&person("ben")).unwrap();
        assert_eq!(shares.take(&person("cyd")), Err(Full::All));
        shares.give_back(&person("cyd"));
        assert_eq!(shares.take(&person("cyd")), Err(Full::All));
        shares.give_back(&person("ada"));
        shares.take(&person("cyd")).unwrap();
        for holder in ["ada", "ada", "ben", "cyd", "cyd"] {
            shares.give_back(&person(holder));
        }
        assert_eq!(fill(&mut shares, &person("dan")), (3, Full::Share));
    }

    #[test]
    fn as_little_is_kept_of_a_hosts_connections_by_many_addresses_as_by_one() {
        let mut shares = Shares::new(12_500);
        let host = |number: u8| Holder::Host([192, 168, 7, number].into());
        let crowds: Vec<usize> = (0..200)
            .map(|number| {
                shares.take(&host(number)).unwrap();
                shares.crowd(&host(number))
            })
            .collect();
        assert_eq!((crowds[0], crowds[15], crowds[16], crowds[127], crowds[128]), (1, 4, 5, 32, 33));
        // A person's are their own, whoever else has some.
        (0..3).for_each(|_| shares.take(&person("ada")).unwrap());
        assert_eq!(shares.crowd(&person("ada")), 3);
        (0..100).for_each(|_| shares.take(&host(0)).unwrap());
        assert_eq!((shares.crowd(&host(0)), shares.crowd(&host(1))), (101, 75));
        (0..100).for_each(|_| shares.give_back(&host(0)));
        assert_eq!((shares.crowd(&host(0)), shares.crowd(&host(1))), (50, 50));
    }

    #[test]
    fn a_person_is_one_wherever_they_sit_and_a_host_is_one_by_whatever_address_of_its_64() {
        let of = |user: Option<&str>, from: &str| {
            Holder::of(user.map(|user| user.parse().unwrap()).as_ref(), from.parse().unwrap())
        };
        assert_eq!(of(Some("ada"), "10.80.1.1"), of(Some("ada"), "fd80::1"));
        assert_eq!(of(None, "fd80::1"), of(None, "fd80::ffff:2"));
        assert_ne!(of(None, "fd80::1"), of(None, "fd80:0:0:1::1"));
        assert_eq!(of(None, "192.168.7.9"), of(None, "::ffff:192.168.7.9"));
        assert_ne!(of(None, "192.168.7.9"), of(None, "192.168.7.8"));
        assert_ne!(of(None, "10.80.1.1"), of(Some("ada"), "10.80.1.1"));
    }
}
