//! Connections that came to nothing: how they ended, and the network that each came from.

use ipnet::IpNet;
use levee_ipc::client::Dropped;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The most ways of ending and networks told apart in one report.
const MOST: usize = 256;
/// Of one network of IPv6 that one holder commonly has (a /48) so many parts (/64) are told apart, for each way of ending; the others are
/// counted with the whole. So who has all of one hides none of another.
const PARTS: usize = 2;

/// What has not been told yet.
#[derive(Debug, Default)]
pub struct Ended(BTreeMap<(&'static str, Option<IpNet>), u64>);

/// The /24 of an IPv4 address; the /64 of another, and the /48 that this is in.
fn networks(address: IpAddr) -> [Option<IpNet>; 2] {
    let address = address.to_canonical();
    let lengths = if address.is_ipv4() { [24, 24] } else { [64, 48] };
    lengths.map(|length| IpNet::new(address, length).ok().map(|net| net.trunc()))
}

impl Ended {
    /// One more.
    pub fn count(&mut self, reason: &'static str, from: Option<IpAddr>) {
        let [part, whole] = from.map_or([None, None], networks);
        let is_near = |net: &IpNet| Some(*net) != whole && whole.is_some_and(|whole| whole.contains(net));
        let near =
            self.0.keys().filter(|(of, net)| *of == reason && net.as_ref().is_some_and(is_near)).count();
        let room = self.0.len() < MOST;
        let has = |net: Option<IpNet>| self.0.contains_key(&(reason, net));
        let told = match (part, whole) {
            (part, _) if has(part) || room && near < PARTS => part,
            (_, whole) if has(whole) || room => whole,
            _ => None,
        };
        let count = self.0.entry((reason, told)).or_default();
        *count = count.saturating_add(1);
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// It has been told.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// What there is to tell.
    pub fn told(&self) -> Vec<Dropped> {
        let one = |((reason, from), count): (&(&'static str, Option<IpNet>), &u64)| Dropped {
            reason: (*reason).to_owned(),
            from: *from,
            count: *count,
        };
        self.0.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ended: &Ended) -> Vec<(String, u64)> {
        let from = |one: &Dropped| one.from.map_or_else(String::new, |from| from.to_string());
        ended.told().iter().map(|one| (format!("{} {}", one.reason, from(one)), one.count)).collect()
    }

    #[test]
    fn who_has_all_of_a_network_hides_none_of_another() {
        let mut ended = Ended::default();
        for part in 0..5_000 {
            ended.count("lost", Some(IpAddr::from([0x2001, 0xdb8, 0, part, 0, 0, 0, 1])));
        }
        for other in ["2001:db8:1:7::1", "192.0.2.1", "::ffff:192.0.2.2", "2001:db8:0:1::2"] {
            ended.count("lost", Some(other.parse().unwrap()));
        }
        ended.count("handshake", Some("2001:db8:0:9::1".parse().unwrap()));
        ended.count("accept", None);
        let all = [
            ("accept ", 1),
            ("handshake 2001:db8:0:9::/64", 1),
            ("lost 192.0.2.0/24", 2),
            ("lost 2001:db8::/48", 4_998),
            ("lost 2001:db8::/64", 1),
            ("lost 2001:db8:0:1::/64", 2),
            ("lost 2001:db8:1:7::/64", 1),
        ];
        assert_eq!(told(&ended), all.map(|(what, count)| (what.to_owned(), count)));
    }

    #[test]
    fn of_more_networks_than_are_told_apart_the_others_are_counted_as_one() {
        let mut ended = Ended::default();
        for network in 0..=255 {
            for more in 0..2 {
                ended.count("lost", Some(IpAddr::from([10, more, network, 1])));
            }
        }
        assert_eq!(told(&ended).len(), MOST + 1);
        assert_eq!(told(&ended)[0], ("lost ".to_owned(), 256));
        assert!(!ended.is_empty());
        ended.clear();
        assert!(ended.is_empty());
    }
}
