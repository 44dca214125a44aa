//! How often one session, or one host of a single-level network, is given a mediated connection: each leaves a record. Beyond the
//! site's rate it is refused and counted. A host has as many addresses as it likes, so all of a network have a bound, too.

use levee_ipc::Rate;
use levee_ipc::mediator::Client;
use levee_session::{SessionId, Time};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// So many seconds' worth may be used at once.
const BURST: u32 = 10;
/// The most hosts of networks that are told apart; those beyond share one rate.
const MOST_HOSTS: usize = 1_024;
/// All hosts of a network together are given as many as so many of them.
const OF_A_NETWORK: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Session(SessionId),
    Host(String, IpAddr),
    OtherHosts,
    Network(String),
}

/// Those who have used some of what they may: sessions that live, hosts, and networks.
#[derive(Debug, Default)]
pub struct Rates(BTreeMap<Who, Rate>);

impl Rates {
    /// Whether this client may have one more, where so many a second are allowed. A client is one that the site knows.
    pub fn take(&mut self, client: &Client, from: IpAddr, a_second: u32, now: Time) -> bool {
        let now = Duration::from_millis(now.as_millis());
        match client {
            Client::Session(id) => self.one(Who::Session(*id), a_second, now),
            Client::Network(interface) => {
                let network = interface.to_string();
                let host = self.one(Who::Host(network.clone(), from), a_second, now);
                host && self.one(Who::Network(network), a_second.saturating_mul(OF_A_NETWORK), now)
            }
        }
    }

    fn one(&mut self, who: Who, a_second: u32, now: Duration) -> bool {
        if !self.0.contains_key(&who) {
            self.0.retain(|_, rate| !rate.is_full(now));
        }
        let hosts = self.0.keys().filter(|other| matches!(other, Who::Host(..)));
        let who = match who {
            Who::Host(..) if !self.0.contains_key(&who) && hosts.count() >= MOST_HOSTS => Who::OtherHosts,
            who => who,
        };
        let fresh = || Rate::new(a_second.saturating_mul(BURST), a_second, now);
        self.0.entry(who).or_insert_with(fresh).take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A_SECOND: u32 = 3;

    fn host(n: u32) -> IpAddr {
        IpAddr::from([10, 0, (n >> 8) as u8, n as u8])
    }

    fn taken(rates: &mut Rates, client: &Client, from: IpAddr, at: u64) -> u32 {
        (0..1_000).take_while(|_| rates.take(client, from, A_SECOND, Time::from_millis(at))).count() as u32
    }

    #[test]
    fn each_session_and_each_host_has_ten_seconds_worth_at_once_and_then_the_sites_rate() {
        let mut rates = Rates::default();
        let session = |n: u8| Client::Session(SessionId::from_random([n; 16]));
        let network = |name: &str| Client::Network(name.parse().unwrap());
        let all = A_SECOND * BURST;
        // A session is one wherever its connections come from, and hosts are told apart by network and address.
        assert_eq!(taken(&mut rates, &session(1), host(1), 0), all);
        assert_eq!(taken(&mut rates, &session(1), host(2), 0), 0);
        assert_eq!(taken(&mut rates, &session(2), host(1), 0), all);
        for (name, from) in [("eth1", 1), ("eth1", 2), ("eth2", 1)] {
            assert_eq!(taken(&mut rates, &network(name), host(from), 0), all, "{name} {from}");
        }
        assert_eq!(taken(&mut rates, &session(1), host(1), 2_000), 2 * A_SECOND);
        assert_eq!(taken(&mut rates, &network("eth1"), host(1), 1_000_000), all);
    }

    #[test]
    fn whoever_has_many_addresses_on_a_network_has_no_more_than_all_its_hosts() {
        let mut rates = Rates::default();
        let network = |name: &str| Client::Network(name.parse().unwrap());
        let all = |rates: &mut Rates, at| (0..200).map(|n| taken(rates, &network("eth1"), host(n), at)).sum();
        let (at_once, later): (u32, u32) = (all(&mut rates, 0), all(&mut rates, 1_000));
        assert_eq!((at_once, later), (OF_A_NETWORK * A_SECOND * BURST, OF_A_NETWORK * A_SECOND));
        assert_eq!(taken(&mut rates, &network("eth2"), host(1), 0), A_SECOND * BURST);
    }

    #[test]
    fn of_1024_hosts_each_is_known_and_those_beyond_share_one_rate() {
        let mut rates = Rates::default();
        let network = |n: u32| Client::Network(format!("eth{}", n / OF_A_NETWORK).parse().unwrap());
        let all = A_SECOND * BURST;
        for n in 0..MOST_HOSTS as u32 {
            assert_eq!(taken(&mut rates, &network(n), host(n), 0), all, "{n}");
        }
        assert_eq!(taken(&mut rates, &network(5_000), host(5_000), 0), all);
        assert_eq!(taken(&mut rates, &network(5_001), host(5_001), 0), 0, "the share is used");
        // A session is no host, and those that are known go on by themselves.
        let session = Client::Session(SessionId::from_random([1; 16]));
        assert_eq!(taken(&mut rates, &session, host(1), 0), all);
        assert_eq!(taken(&mut rates, &network(7), host(7), 1_000), A_SECOND);
        // Who has all there is again is forgotten when another comes.
        assert_eq!(taken(&mut rates, &network(5_002), host(5_002), 100_000), all);
        assert_eq!(rates.0.len(), 2);
    }
}
