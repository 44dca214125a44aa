//! How often one person, or one host of a single-level network, is given a mediated connection: each leaves a record. Beyond the
//! site's rate it is refused and counted. A person has as many sessions as they may open, one after another and at several
//! workstations; and a host as many addresses as it likes, so all of a network have a bound, too.

use levee_ipc::Rate;
use levee_policy::{InterfaceName, UserName};
use levee_session::Time;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// So many seconds' worth may be used at once.
const BURST: u32 = 10;
/// The most hosts of a network that are told apart; those beyond share one rate. What one network has takes nothing of another's, which may be
/// another label's.
const MOST_HOSTS: usize = 1_024;
/// All hosts of a network together are given as many as so many of them.
const OF_A_NETWORK: u32 = 16;

/// Whose connections count together.
#[derive(Clone, Copy, Debug)]
pub enum Whose<'a> {
    /// All that somebody has.
    Person(&'a UserName),
    /// Those that come from an address of a network.
    Host(&'a InterfaceName, IpAddr),
}

/// Those who have used some of what they may: persons, and networks with their hosts.
#[derive(Debug, Default)]
pub struct Rates {
    persons: BTreeMap<UserName, Rate>,
    networks: BTreeMap<String, Network>,
}

#[derive(Debug)]
struct Network {
    /// What all of its hosts have.
    all: Rate,
    hosts: BTreeMap<IpAddr, Rate>,
    others: Rate,
}

/// A host: its address, or the /64 of it, in which a host has as many as it likes.
fn host(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Rates {
    /// Whether these may have one more, where so many a second are allowed. They are some that the site knows.
    pub fn take(&mut self, whose: Whose<'_>, a_second: u32, now: Time) -> bool {
        let now = Duration::from_millis(now.as_millis());
        match whose {
            Whose::Person(user) => one(&mut self.persons, user.clone(), a_second, now).take(now),
            Whose::Host(interface, from) => {
                let fresh = |times: u32| fresh(a_second.saturating_mul(times), now);
                let network = self.networks.entry(interface.to_string()).or_insert_with(|| Network {
                    all: fresh(OF_A_NETWORK),
                    hosts: BTreeMap::new(),
                    others: fresh(1),
                });
                network.take(host(from), a_second, now)
            }
        }
    }
}

impl Network {
    fn take(&mut self, host: IpAddr, a_second: u32, now: Duration) -> bool {
        let Self { all, hosts, others } = self;
        if hosts.len() >= MOST_HOSTS && !hosts.contains_key(&host) {
            hosts.retain(|_, rate| !rate.is_full(now));
        }
        let is_known = hosts.len() < MOST_HOSTS || hosts.contains_key(&host);
        let own = if is_known { one(hosts, host, a_second, now) } else { others };
        own.take(now) && all.take(now)
    }
}

fn fresh(a_second: u32, now: Duration) -> Rate {
    Rate::new(a_second.saturating_mul(BURST), a_second, now)
}

/// The rate of one; those that have all there is again are forgotten when another comes.
fn one<K: Ord>(all: &mut BTreeMap<K, Rate>, who: K, a_second: u32, now: Duration) -> &mut Rate {
    if !all.contains_key(&who) {
        all.retain(|_, rate| !rate.is_full(now));
    }
    all.entry(who).or_insert_with(|| fresh(a_second, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A_SECOND: u32 = 3;

    fn host(n: u32) -> IpAddr {
        IpAddr::from([10, 0, (n >> 8) as u8, n as u8])
    }

    fn times(rates: &mut Rates, whose: Whose<'_>, at: u64) -> u32 {
        (0..1_000).take_while(|_| rates.take(whose, A_SECOND, Time::from_millis(at))).count() as u32
    }

    fn taken(rates: &mut Rates, network: &str, from: IpAddr, at: u64) -> u32 {
        times(rates, Whose::Host(&network.parse().unwrap(), from), at)
    }

    #[test]
    fn each_person_and_each_host_has_ten_seconds_worth_at_once_and_then_the_sites_rate() {
        let mut rates = Rates::default();
        let [ada, mia]: [UserName; 2] = ["ada", "mia"].map(|name| name.parse().unwrap());
        let all = A_SECOND * BURST;
        // Hosts are told apart by network and address.
        for (user, has) in [(&ada, all), (&ada, 0), (&mia, all)] {
            assert_eq!(times(&mut rates, Whose::Person(user), 0), has, "{user}");
        }
        for (name, from) in [("eth1", 1), ("eth1", 2), ("eth2", 1)] {
            assert_eq!(taken(&mut rates, name, host(from), 0), all, "{name} {from}");
        }
        assert_eq!(times(&mut rates, Whose::Person(&ada), 2_000), 2 * A_SECOND);
        assert_eq!(taken(&mut rates, "eth1", host(1), 1_000_000), all);
    }

    #[test]
    fn whoever_has_many_addresses_on_a_network_has_no_more_than_all_its_hosts() {
        let mut rates = Rates::default();
        let all = |rates: &mut Rates, at| (0..200).map(|n| taken(rates, "eth1", host(n), at)).sum();
        let (at_once, later): (u32, u32) = (all(&mut rates, 0), all(&mut rates, 1_000));
        assert_eq!((at_once, later), (OF_A_NETWORK * A_SECOND * BURST, OF_A_NETWORK * A_SECOND));
        assert_eq!(taken(&mut rates, "eth2", host(1), 0), A_SECOND * BURST);
    }

    #[test]
    fn of_1024_hosts_of_a_network_each_is_known_and_no_network_takes_anything_of_anothers() {
        let (mut rates, eth1) = (Rates::default(), "eth1".parse().unwrap());
        let all = A_SECOND * BURST;
        assert_eq!(taken(&mut rates, "eth2", host(1), 0), all);
        // As many as there may be known, and as many again; also where nothing is given to anybody any more.
        for n in 0..2 * MOST_HOSTS as u32 {
            (0..4).for_each(|_| {
                rates.take(Whose::Host(&eth1, host(n)), A_SECOND, Time::from_millis(0));
            });
        }
        assert_eq!(rates.networks["eth1"].hosts.len(), MOST_HOSTS);
        assert_eq!(taken(&mut rates, "eth1", host(5_000), 1_000), A_SECOND, "they share one rate");
        assert_eq!(taken(&mut rates, "eth1", host(5_001), 1_000), 0);
        // Another label's.
        for n in 2..4 {
            assert_eq!(taken(&mut rates, "eth2", host(n), 0), all, "{n}");
        }
        // Who has all there is again is forgotten when another comes.
        assert_eq!(taken(&mut rates, "eth1", host(5_002), 100_000), all);
        assert_eq!(rates.networks["eth1"].hosts.len(), 1);
    }

    #[test]
    fn a_host_is_one_by_whatever_address_of_its_64() {
        let mut rates = Rates::default();
        let of = |rates: &mut Rates, from: &str| taken(rates, "eth1", from.parse().unwrap(), 0);
        assert_eq!(of(&mut rates, "fd80::1"), A_SECOND * BURST);
        assert_eq!((of(&mut rates, "fd80::ffff:2"), of(&mut rates, "fd80:0:0:1::1")), (0, A_SECOND * BURST));
        assert_eq!((of(&mut rates, "10.0.0.1"), of(&mut rates, "::ffff:10.0.0.1")), (A_SECOND * BURST, 0));
    }
}
