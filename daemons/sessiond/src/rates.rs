//! How often one session, or one host of a single-level network, is given a mediated connection: each leaves a record. Beyond the
//! site's rate it is refused and counted.

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

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Session(SessionId),
    Host(String, IpAddr),
    OtherHosts,
}

/// Those who have used some of what they may: sessions that live, and hosts.
#[derive(Debug, Default)]
pub struct Rates(BTreeMap<Who, Rate>);

impl Rates {
    /// Whether this client may have one more, where so many a second are allowed. A client is one that the site knows.
    pub fn take(&mut self, client: &Client, from: IpAddr, a_second: u32, now: Time) -> bool {
        let now = Duration::from_millis(now.as_millis());
        let who = match client {
            Client::Session(id) => Who::Session(*id),
            Client::Network(interface) => Who::Host(interface.to_string(), from),
        };
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
    fn of_1024_hosts_each_is_known_and_those_beyond_share_one_rate() {
        let mut rates = Rates::default();
        let network = Client::Network("eth1".parse().unwrap());
        let all = A_SECOND * BURST;
        for n in 0..MOST_HOSTS as u32 {
            assert_eq!(taken(&mut rates, &network, host(n), 0), all, "{n}");
        }
        assert_eq!(taken(&mut rates, &network, host(5_000), 0), all);
        assert_eq!(taken(&mut rates, &network, host(5_001), 0), 0, "the share is used");
        // A session is no host, and those that are known go on by themselves.
        let session = Client::Session(SessionId::from_random([1; 16]));
        assert_eq!(taken(&mut rates, &session, host(1), 0), all);
        assert_eq!(taken(&mut rates, &network, host(7), 1_000), A_SECOND);
        // Who has all there is again is forgotten when another comes.
        assert_eq!(taken(&mut rates, &network, host(5_002), 100_000), all);
        assert_eq!(rates.0.len(), 1);
    }
}
