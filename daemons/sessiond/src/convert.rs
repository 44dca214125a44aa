//! Between the state machine's words and the messages on the channels.

use crate::offer::offer;
use ipnet::IpNet;
use levee_ipc::client::{self, Opened};
use levee_ipc::keyer;
use levee_ipc::mediator::{self, SessiondToMediator};
use levee_ipc::vault::{Carriage, Selector, SessionRecord, SessiondToVault};
use levee_policy::decision::Message;
use levee_policy::site::{Colour, Destination, Peer, Protected, Protocol, Reach};
use levee_policy::{HostName, Label, LabelName, ServiceName, Site, UserName};
use levee_session::{KeyRecord, Reply, SessionId, Status, Time, ToVault, Waiting};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// To a vault.
pub fn to_vault(message: ToVault) -> SessiondToVault {
    match message {
        ToVault::Open { id, inner, owner, reach, ciphers, layered } => {
            let selectors = selectors(&inner, &reach);
            let record = SessionRecord { id, inner, selectors, ciphers, layered };
            match owner {
                Some(owner) => SessiondToVault::OpenTheirs { record, owner },
                None => SessiondToVault::Open(record),
            }
        }
        ToVault::Close(id) => SessiondToVault::Close(id),
        ToVault::Synced => SessiondToVault::Synced,
        ToVault::Ping(number) => SessiondToVault::Ping(number),
        ToVault::Ciphers(number, ciphers, anew) => SessiondToVault::Ciphers { number, ciphers, anew },
        ToVault::Sever(number) => SessiondToVault::Sever(number),
    }
}

/// To a label's mediator, which hears of a session what concerns it; `user` says whose it is, if it lives.
pub fn to_mediator(
    site: &Site,
    message: &ToVault,
    user: impl FnOnce(SessionId) -> Option<UserName>,
) -> Option<SessiondToMediator> {
    Some(match message {
        ToVault::Open { id, inner, reach, .. } => {
            SessiondToMediator::Open(mediated(site, *id, user(*id)?, inner.clone(), reach))
        }
        ToVault::Close(id) => SessiondToMediator::Close(*id),
        ToVault::Synced => SessiondToMediator::Synced,
        ToVault::Ping(number) => SessiondToMediator::Ping(*number),
        // A mediator has no keys.
        ToVault::Ciphers(..) | ToVault::Sever(_) => return None,
    })
}

/// A session as its label's mediator knows it.
pub fn mediated(
    site: &Site,
    id: SessionId,
    user: UserName,
    inner: Vec<IpAddr>,
    reach: &[Reach],
) -> mediator::MediatedSession {
    let services = reach.iter().filter_map(|reach| match &reach.destination {
        Destination::Service(name) => Some(name),
        Destination::Network(_) => None,
    });
    let services: BTreeSet<&ServiceName> = services.filter(|name| is_mediated(site, name)).collect();
    mediator::MediatedSession { id, user, inner, services: services.into_iter().cloned().collect() }
}

/// The single-level networks at a label, as its mediator knows them.
pub fn networks(site: &Site, label: &Label) -> Vec<mediator::NetworkRecord> {
    let record = |network: &levee_policy::site::Network| mediator::NetworkRecord {
        interface: network.interface().clone(),
        addresses: network.addresses().to_vec(),
        services: network.services().iter().filter(|name| is_mediated(site, name)).cloned().collect(),
    };
    site.networks_at(label).map(record).collect()
}

fn is_mediated(site: &Site, name: &ServiceName) -> bool {
    site.service(name).is_some_and(|service| service.mode().is_mediated())
}

/// To the keyer.
pub fn key_record(record: KeyRecord) -> keyer::KeyRecord {
    let keys = record.keys();
    keyer::KeyRecord {
        carriage: carriage(&record.protected),
        ciphers: record.protected.ciphers.clone(),
        key_life: record.protected.key_life,
        session: record.id,
        device: keys.host().clone(),
        label: keys.label().clone(),
        reach: keys.reach().iter().copied().map(IpNet::from).collect(),
        inner: record.inner,
    }
}

/// How a session's packets go, by what its tunnel must have.
fn carriage(protected: &Protected) -> Carriage {
    match protected.interval {
        Some(interval) => Carriage::Constant { interval },
        None if protected.aggfrag => Carriage::Aggfrag,
        None => Carriage::Each,
    }
}

/// One selector for each thing that may be reached from each inner address of its family (RFC 4301 4.4.1).
fn selectors(inner: &[IpAddr], reach: &[Reach]) -> Vec<Selector> {
    let mut all = Vec::new();
    for remote in inner {
        for reach in reach.iter().filter(|reach| reach.address.is_ipv4() == remote.is_ipv4()) {
            all.push(Selector {
                local: IpNet::from(reach.address),
                remote: IpNet::from(*remote),
                protocol: Some(reach.protocol.number()),
                local_ports: (reach.port, reach.port),
                remote_ports: (0, u16::MAX),
            });
        }
    }
    all
}

/// Whom an answer goes to.
pub struct Asker<'a> {
    /// The TPE.
    pub device: &'a HostName,
    /// Now.
    pub now: Time,
}

/// To a client; `None` if the site does not know what the state machine speaks of, which is a fault of ours.
pub fn reply(site: &Site, asker: &Asker<'_>, reply: Reply) -> Option<client::Reply> {
    Some(match reply {
        Reply::LoggedIn(user) => client::Reply::LoggedIn(login(site, user, asker.device)?),
        Reply::Opened { id, label, inner, reach, protected } => {
            client::Reply::Opened(Box::new(opened(site, id, label, (inner, reach), protected)?))
        }
        Reply::Resumed(now) => client::Reply::Resumed(status(now, asker.now)),
        Reply::PasswordChanged => client::Reply::PasswordChanged,
        Reply::Status(now) => client::Reply::Status(status(now, asker.now)),
        Reply::Carried => client::Reply::Carried,
        Reply::Releases(waiting) => client::Reply::Releases(waiting.into_iter().map(to_release).collect()),
        Reply::Part(content) => client::Reply::Part(content),
        Reply::Released(released) => client::Reply::Released(released),
        Reply::Accesses(services) => client::Reply::Accesses(services),
        Reply::AccessChanged => client::Reply::AccessChanged,
        Reply::Alive => client::Reply::Alive,
        Reply::Locked => client::Reply::Locked,
        Reply::Unlocked => client::Reply::Unlocked,
        Reply::LockedUnasked(reason) => client::Reply::LockedUnasked { reason },
        Reply::LoggedOut => client::Reply::LoggedOut,
        Reply::Refused(kind, reason) => client::Reply::Refused { kind, reason },
        Reply::Ended(reason) => client::Reply::Ended { reason },
        Reply::Notice(reason) => client::Reply::Notice { reason },
        Reply::SignedOff(reason) => client::Reply::SignedOff { reason },
        // The passes are put in where they are kept.
        Reply::Renew(protected) => {
            client::Reply::Renew { passes: Vec::new(), carriage: carriage(&protected) }
        }
    })
}

fn to_release(waiting: Waiting) -> client::Release {
    let Waiting { id, message, to, left, by } = waiting;
    let Message { channel, digest, octets } = message;
    client::Release { id, channel, digest, octets, to, left, by }
}

fn login(site: &Site, user: UserName, device: &HostName) -> Option<client::Login> {
    let clearance = site.vocabulary().print_range(site.user(&user)?.clearance())?;
    let (labels, lattice) = offer(site, &user, device);
    Some(client::Login { user, labels, lattice, clearance })
}

/// A session that has opened, with its inner addresses and what its grant lets it reach.
fn opened(
    site: &Site,
    session: SessionId,
    label: LabelName,
    (inner, reach): (Vec<IpAddr>, Vec<Reach>),
    protected: Protected,
) -> Option<Opened> {
    let point = site.label(&label)?;
    let one =
        |address, protocol: Protocol, port| client::Reached { address, protocol: protocol.number(), port };
    let offered = offered(&reach);
    let reach: BTreeSet<_> =
        reach.iter().map(|reach| one(reach.address, reach.protocol, reach.port)).collect();
    // The same services are at every server.
    let at = |address: IpAddr| site.services_at(&point).map(move |s| one(address, s.protocol(), s.port()));
    let elsewhere =
        |peer: &Peer| -> BTreeSet<_> { peer.inner_addresses().iter().copied().flat_map(&at).collect() };
    Some(Opened {
        session,
        label,
        colour: site.colour(&point).map(|colour| colour_name(colour).to_owned()),
        inner,
        services: site.server().inner_addresses().to_vec(),
        names: site.server().all_names().cloned().collect(),
        reach: reach.into_iter().collect(),
        offered,
        mtu: site.vault().inner_mtu(&point),
        carriage: carriage(&protected),
        protected,
        // Put in where the prices are kept.
        costs: Err(levee_prices::Unpriced::Absent),
        tunnel_port: site.server().tunnel_port(),
        grace: site.server().grace(),
        others: site.federation().map_or_else(Vec::new, |federation| {
            federation.peers().iter().map(|peer| other(peer, elsewhere(peer))).collect()
        }),
        passes: Vec::new(),
    })
}

/// What the services are called that are reached: as many as have room.
fn offered(reach: &[Reach]) -> Vec<client::Offered> {
    let services = reach.iter().filter_map(|reach| match &reach.destination {
        Destination::Service(name) => Some((name, reach.protocol.number(), reach.port)),
        Destination::Network(_) => None,
    });
    let mut room = client::MAX_OFFERED;
    // At each of a server's addresses it is one service.
    let named = services.collect::<BTreeSet<_>>().into_iter().map_while(|(name, protocol, port)| {
        // Beside the name: its length, the protocol, and a port of up to three octets.
        room = room.checked_sub(name.as_str().len() + 5)?;
        Some(client::Offered { service: name.clone(), protocol, port })
    });
    named.collect()
}

fn other(peer: &Peer, reach: BTreeSet<client::Reached>) -> client::OtherServer {
    client::OtherServer {
        name: peer.name().clone(),
        tunnel: peer.tunnel(),
        services: peer.inner_addresses().to_vec(),
        names: peer.all_names().cloned().collect(),
        reach: reach.into_iter().collect(),
    }
}

fn colour_name(colour: Colour) -> &'static str {
    match colour {
        Colour::Red => "red",
        Colour::Green => "green",
        Colour::Yellow => "yellow",
        Colour::Blue => "blue",
        Colour::Magenta => "magenta",
        Colour::Cyan => "cyan",
        Colour::White => "white",
        Colour::Orange => "orange",
    }
}

fn status(status: Status, now: Time) -> client::Status {
    client::Status {
        user: status.user,
        locked: status.locked,
        age: status.session.as_ref().map_or(0, |(_, _, opened)| now.since(*opened).as_secs()),
        session: status.session.map(|(id, label, _)| (id, label)),
    }
}
