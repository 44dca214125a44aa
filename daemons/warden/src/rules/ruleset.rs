//! What may pass between a label's compartment and its single-level networks, or a partition and its own: the whole nftables ruleset of the
//! namespace, as data.
//!
//! Everything that is not listed is dropped and counted. A listed service answers at the interface's own addresses,
//! which are translated to the service's inner address, so that hosts on the network need no route. Sessions reach
//! listed hosts under the interface's address (masquerade), for the same reason. Traffic of the tunnel is not
//! filtered again: the vault has checked every packet of it against its session's selectors.
//!
//! In a partition the listed ports are its programs' own, which may begin connections to listed hosts, too. By a link it hears and speaks
//! to the other end alone. What the link lists is forwarded, under the interface's address one way and translated to the other
//! end's address the other way; nothing else is.

use crate::edges::{Edge, Edges};
use ipnet::IpNet;
use levee_policy::site::{Link, NetworkHost, Protocol};
use levee_policy::{LabelName, PartitionName, Site};
use std::net::IpAddr;

/// The table's name; there is no other in the namespace.
pub(super) const TABLE: &str = "levee";

/// What one namespace lets pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    /// Where services listen, at most one address of each family.
    pub inner: Vec<IpAddr>,
    /// Where sessions' own addresses come from.
    pub pools: Vec<IpNet>,
    /// The networks.
    pub edges: Vec<Edge>,
    /// Of a partition, its links; `None` for a label's compartment.
    pub links: Option<Vec<LinkEdge>>,
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEdge {
    /// The link's name, which its interface has.
    pub interface: String,
    /// The partition's address there.
    pub own: IpAddr,
    /// The other end's.
    pub peer: IpAddr,
    /// Ports of the other end that hosts on the partition's networks reach.
    pub ports: Vec<(Protocol, u16)>,
    /// Hosts on the partition's networks that the other end reaches.
    pub hosts: Vec<NetworkHost>,
    /// The other end's networks, where that one forwards: their hosts are reached through it, under their own addresses.
    pub beyond: Vec<IpNet>,
}

fn alike(one: IpAddr, other: IpAddr) -> bool {
    one.is_ipv4() == other.is_ipv4()
}

impl LinkEdge {
    /// The end that a partition has of a link, if it has one.
    fn of(site: &Site, link: &Link, partition: &PartitionName) -> Option<Self> {
        let at = link.ends().iter().position(|(name, _)| name == partition)?;
        let ((_, own), (other, peer)) = (link.ends().get(at)?, link.ends().get(1 - at)?);
        let forwards = site.forwarder(link) == Some(at);
        let theirs = site.networks_of(other).flat_map(|network| network.addresses());
        let theirs =
            theirs.filter(|net| site.forwarder(link) == Some(1 - at) && alike(net.addr(), peer.addr()));
        let (ports, hosts) = if forwards { (link.ports(), link.hosts()) } else { (&[][..], &[][..]) };
        Some(Self {
            interface: link.name().to_string(),
            own: own.addr(),
            peer: peer.addr(),
            ports: ports.to_vec(),
            hosts: hosts.to_vec(),
            beyond: theirs.map(IpNet::trunc).collect(),
        })
    }

    /// Whom it hears and speaks to: the other end, and who is reached through it.
    pub fn others(&self) -> impl Iterator<Item = IpNet> {
        std::iter::once(IpNet::from(self.peer)).chain(self.beyond.iter().copied())
    }

    /// Whether anything is forwarded.
    pub fn forwards(&self) -> bool {
        !(self.ports.is_empty() && self.hosts.is_empty())
    }
}

impl Ruleset {
    /// What the site says for a label, or for a partition, as [`Edges::named`].
    pub fn named(site: &Site, name: &LabelName) -> Option<Self> {
        let Edges { networks: edges, partition } = Edges::named(site, name)?;
        let Some(partition) = partition else {
            let inner = site.server().inner_addresses().to_vec();
            return Some(Self { inner, pools: site.session_pools(), edges, links: None });
        };
        let links = site.links().iter().filter_map(|link| LinkEdge::of(site, link, &partition));
        Some(Self { inner: Vec::new(), pools: Vec::new(), edges, links: Some(links.collect()) })
    }

    /// The name of the counter of what was dropped at the interface at `index` for this reason.
    pub(super) fn counter(index: usize, reason: Reason) -> String {
        let reason = match reason {
            Reason::Service => "service",
            Reason::Through => "through",
            Reason::Host => "host",
            Reason::Own => "own",
            Reason::Options => "options",
            Reason::Many => "many",
            Reason::Crowd => "crowd",
        };
        format!("n{index}_{reason}")
    }

    /// The names of all counters, interface by interface, and what operators are told that each is.
    pub fn counters(&self) -> impl Iterator<Item = (String, String)> {
        let links = self.links.iter().flatten().map(|link| link.interface.as_str());
        let names = self.edges.iter().map(|edge| edge.interface.as_str()).chain(links);
        names.enumerate().flat_map(|(index, name)| {
            Reason::ALL.map(|reason| {
                (Self::counter(index, reason), format!("dropped at {name}: {}", reason.as_str()))
            })
        })
    }
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// From the network, for nothing that the site lists.
    Service,
    /// From the network, for somewhere beyond the compartment.
    Through,
    /// From a session, to a host or port that the site does not list.
    Host,
    /// From a program in the compartment that answers nobody.
    Own,
    /// Either way, with options in its header (hop-by-hop ones, in IPv6): a label is one, and a network of one label has none in its packets.
    Options,
    /// From a session, to a host: a connection beyond those that it may begin.
    Many,
    /// From the network: a flow of UDP beyond those that its hosts may begin together.
    Crowd,
}

impl Reason {
    /// All of them.
    pub(super) const ALL: [Self; 7] =
        [Self::Service, Self::Through, Self::Host, Self::Own, Self::Options, Self::Many, Self::Crowd];

    /// In words, for operators.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "no listed service",
            Self::Through => "beyond the compartment",
            Self::Host => "no listed host",
            Self::Own => "a program of the compartment",
            Self::Options => "options, such as a label",
            Self::Many => "more connections of one session than it may begin",
            Self::Crowd => "more connections of a network's hosts than they may begin",
        }
    }
}
