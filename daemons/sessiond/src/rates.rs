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
