//! The time that those take who have not proved anything yet. What a handshake costs they choose, by the groups and certificates that they show.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// All strangers have one of so many parts of the time.
const OF_ALL: u32 = 3;
/// And those of one network one of so many.
const OF_A_NETWORK: u32 = 12;
/// Who has not shown an address has one of so many, and as much again who has a connection ID from here, which may be from elsewhere: it goes on
/// while others ask for theirs.
const OF_UNKNOWN: u32 = 6;
/// So much of what they will have they can have at once.
const AHEAD: Duration = Duration::from_millis(300);

/// The network that one stranger may have many addresses of: a /24 of IPv4, a /48 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network(IpAddr);

impl Network {
    /// That of an address.
    pub fn of(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(v4) => Ipv4Addr::from(u32::from(v4) & !0xff).into(),
            IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) >> 80 << 80).into(),
        })
    }
}

/// What strangers have had.
#[derive(Debug, Default)]
pub struct Strangers {
    /// When all of them will have had no more than their part.
    all: Option<Instant>,
    /// And those of one network; those that have had none lately are not kept.
    networks: BTreeMap<Network, Instant>,
    /// And those of whom it is not known from where they are: who has no connection ID from here, and who has one.
    unknown: [Option<Instant>; 2],
}

impl Strangers {
    /// Whether a handshake of this network may go on.
    pub fn may_go_on(&self, network: Network, now: Instant) -> bool {
        self.ahead(network, now) < AHEAD
    }

    /// Whether one may begin: what has begun goes first.
    pub fn may_begin(&self, network: Network, now: Instant) -> bool {
        self.ahead(network, now) < AHEAD / 2
    }

    /// Whether a packet that would begin a handshake is looked at.
    pub fn may_ask(&self, has_id: bool, now: Instant) -> bool {
        let [without, with] = self.unknown;
        let paid = if has_id { with } else { without };
        paid.is_none_or(|paid| paid.saturating_duration_since(now) < AHEAD)
    }

    /// One took so long, and showed no address.
    pub fn asked(&mut self, has_id: bool, took: Duration, now: Instant) {
        let [without, with] = &mut self.unknown;
        let paid = if has_id { with } else { without };
        *paid = Some(paid.unwrap_or(now).max(now) + took.min(AHEAD) * OF_UNKNOWN);
    }

    fn ahead(&self, network: Network, now: Instant) -> Duration {
        let paid = self.all.into_iter().chain(self.networks.get(&network).copied());
        paid.map(|paid| paid.saturating_duration_since(now)).max().unwrap_or_default()
    }

    /// Something for this network took so long. No one thing takes longer than [`AHEAD`]: what did was not at work all the time.
    pub fn spend(&mut self, network: Network, took: Duration, now: Instant) {
        let took = took.min(AHEAD);
        self.all = Some(self.all.unwrap_or(now).max(now) + took * OF_ALL);
        self.networks.retain(|_, paid| *paid > now);
        let paid = self.networks.entry(network).or_insert(now);
        *paid = (*paid).max(now) + took * OF_A_NETWORK;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(third: u8) -> Network {
        Network::of([192, 0, third, 7].into())
    }

    #[test]
    fn one_address_of_a_network_has_the_part_of_all_and_another_network_its_own() {
        assert_eq!(network(2), Network::of([192, 0, 2, 200].into()));
        let v6 = |text: &str| Network::of(text.parse::<Ipv6Addr>().unwrap().into());
        assert_eq!(v6("2001:db8:1:2::3"), v6("2001:db8:1:ffff::"));
        assert_ne!(v6("2001:db8:1::"), v6("2001:db8:2::"));
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        strangers.spend(network(2), Duration::from_millis(25), now);
        assert!(!strangers.may_go_on(network(2), now), "a twelfth of 300 ms");
        assert!(strangers.may_begin(network(3), now), "and of all a third");
        let later = now + Duration::from_millis(1);
        assert!(strangers.may_go_on(network(2), later) && !strangers.may_begin(network(2), later));
        assert!(strangers.may_begin(network(2), now + Duration::from_millis(151)));
    }

    #[test]
    fn all_networks_together_have_their_part_and_what_is_paid_is_forgotten() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        for third in 0..100 {
            strangers.spend(network(third), Duration::from_millis(1), now);
        }
        assert!(!strangers.may_go_on(network(200), now));
        let later = now + Duration::from_millis(1);
        assert!(strangers.may_go_on(network(200), later) && !strangers.may_begin(network(200), later));
        strangers.spend(network(200), Duration::ZERO, now + Duration::from_millis(12));
        assert_eq!(strangers.networks.len(), 1);
    }

    #[test]
    fn what_stood_still_counts_no_longer_than_what_they_may_have_at_once() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        strangers.spend(network(2), Duration::from_secs(3_600), now);
        assert!(strangers.may_begin(network(3), now + AHEAD * OF_ALL));
        assert!(strangers.may_begin(network(2), now + AHEAD * OF_A_NETWORK));
    }
}
