//! Who may reach what: the records that sessiond gave, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use levee_ipc::mediator::{Client, MediatedSession, NetworkRecord};
use levee_policy::{ServiceName, UserName};
use levee_session::SessionId;

/// Why a connection is for nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no record of the peer.
    NoRecord,
    /// The service is not in its record.
    NoService,
}

/// The records.
#[derive(Debug, Default)]
pub struct Records {
    sessions: BTreeMap<SessionId, MediatedSession>,
    by_address: BTreeMap<IpAddr, SessionId>,
    networks: Vec<NetworkRecord>,
    /// Sessions named since all had been named the last time.
    named: BTreeSet<SessionId>,
}

impl Records {
    /// Takes the label's networks in the place of what was.
    pub fn networks(&mut self, networks: Vec<NetworkRecord>) {
        self.networks = networks;
    }

    /// Takes a session's record in the place of one before; whether that one was another.
    pub fn open(&mut self, record: MediatedSession) -> bool {
        let id = record.id;
        self.named.insert(id);
        if self.sessions.get(&id) == Some(&record) {
            return false;
        }
        let other = self.forget(id);
        self.by_address.extend(record.inner.iter().map(|address| (address.to_canonical(), id)));
        self.sessions.insert(id, record);
        other
    }

    /// A session is over.
    pub fn close(&mut self, id: SessionId) {
        self.named.remove(&id);
        self.forget(id);
    }

    /// sessiond begins to name every session anew.
    pub fn anew(&mut self) {
        self.named.clear();
    }

    /// Every session has been named: those that have not are over.
    pub fn synced(&mut self) -> Vec<SessionId> {
        let named = std::mem::take(&mut self.named);
        let over: Vec<SessionId> = self.sessions.keys().copied().filter(|id| !named.contains(id)).collect();
        for id in &over {
            self.forget(*id);
        }
        over
    }

    /// Whether there was such a session.
    fn forget(&mut self, id: SessionId) -> bool {
        let Some(record) = self.sessions.remove(&id) else { return false };
        for address in record.inner.iter().map(IpAddr::to_canonical) {
            if self.by_address.get(&address) == Some(&id) {
                self.by_address.remove(&address);
            }
        }
        true
    }

    /// For whom a connection from `peer` to `service` is, and whose session that is.
    ///
    /// # Errors
    /// Why it is for nobody.
    pub fn find(&self, peer: IpAddr, service: &ServiceName) -> Result<(Client, Option<UserName>), Refused> {
        let peer = peer.to_canonical();
        if let Some(session) = self.by_address.get(&peer).and_then(|id| self.sessions.get(id)) {
            let may = session.services.contains(service);
            return may
                .then(|| (Client::Session(session.id), Some(session.user.clone())))
                .ok_or(Refused::NoService);
        }
        // An own address is no host on the network: programs of the compartment can connect from it.
        let is_host = |network: &&NetworkRecord| {
            network.addresses.iter().any(|own| own.contains(&peer))
                && !network.addresses.iter().any(|own| own.addr() == peer)
        };
        let network = self.networks.iter().find(is_host).ok_or(Refused::NoRecord)?;
        let may = network.services.contains(service);
        may.then(|| (Client::Network(network.interface.clone()), None)).ok_or(Refused::NoService)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> SessionId {
        SessionId::from_random([n; 16])
    }

    fn record(n: u8, inner: &[&str], services: &[&str]) -> MediatedSession {
        MediatedSession {
            id: id(n),
            user: "ada".parse().unwrap(),
            inner: inner.iter().map(|address| address.parse().unwrap()).collect(),
            services: services.iter().map(|name| name.parse().unwrap()).collect(),
        }
    }

    fn find(records: &Records, peer: &str, service: &str) -> Result<Client, Refused> {
        records.find(peer.parse().unwrap(), &service.parse().unwrap()).map(|(client, _)| client)
    }

    #[test]
    fn a_connection_is_for_the_session_of_its_address_and_for_a_service_in_its_record() {
        let mut records = Records::default();
        assert_eq!(find(&records, "10.80.1.1", "shell"), Err(Refused::NoRecord));
        records.open(record(1, &["10.80.1.1", "fd80::1"], &["shell"]));
        records.open(record(2, &["10.80.1.2"], &["git"]));
        assert_eq!(find(&records, "10.80.1.1", "shell"), Ok(Client::Session(id(1))));
        assert_eq!(find(&records, "fd80::1", "shell"), Ok(Client::Session(id(1))));
        assert_eq!(find(&records, "::ffff:10.80.1.1", "shell"), Ok(Client::Session(id(1))));
        assert_eq!(find(&records, "10.80.1.2", "shell"), Err(Refused::NoService));
        assert_eq!(find(&records, "10.80.1.3", "shell"), Err(Refused::NoRecord));
        // Another record in the place of the first has another address and other services.
        assert!(!records.open(record(1, &["10.80.1.1", "fd80::1"], &["shell"])));
        assert!(records.open(record(1, &["10.80.1.9"], &["git"])));
        assert_eq!(find(&records, "10.80.1.1", "shell"), Err(Refused::NoRecord));
        assert_eq!(find(&records, "10.80.1.9", "shell"), Err(Refused::NoService));
        records.close(id(1));
        assert_eq!(find(&records, "10.80.1.9", "git"), Err(Refused::NoRecord));
    }

    #[test]
    fn a_session_that_is_not_named_again_is_over() {
        let mut records = Records::default();
        records.open(record(1, &["10.80.1.1"], &["shell"]));
        records.open(record(2, &["10.80.1.2"], &["shell"]));
        assert!(records.synced().is_empty());
        records.anew();
        records.open(record(2, &["10.80.1.2"], &["shell"]));
        assert_eq!(records.synced(), [id(1)]);
        assert_eq!(find(&records, "10.80.1.1", "shell"), Err(Refused::NoRecord));
        assert_eq!(find(&records, "10.80.1.2", "shell"), Ok(Client::Session(id(2))));
    }

    #[test]
    fn a_host_of_a_single_level_network_needs_no_session_and_the_compartments_own_programs_have_none() {
        let mut records = Records::default();
        records.networks(vec![NetworkRecord {
            interface: "ship0".parse().unwrap(),
            addresses: vec!["192.168.7.1/24".parse().unwrap()],
            services: vec!["git".parse().unwrap()],
        }]);
        assert_eq!(find(&records, "192.168.7.9", "git"), Ok(Client::Network("ship0".parse().unwrap())));
        assert_eq!(find(&records, "192.168.7.9", "shell"), Err(Refused::NoService));
        for own in ["192.168.7.1", "127.0.0.1", "10.80.0.1"] {
            assert_eq!(find(&records, own, "git"), Err(Refused::NoRecord), "{own}");
        }
    }
}
