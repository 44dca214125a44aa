//! What may pass between a label's compartment and its single-level networks, or a partition and its own. [`crate::rules`] makes it the
//! whole nftables ruleset of the namespace.
//!
//! Everything that is not listed is dropped and counted. A listed service answers at the interface's own addresses,
//! which are translated to the service's inner address, so that hosts on the network need no route. Sessions reach
//! listed hosts under the interface's address (masquerade), for the same reason. Traffic of the tunnel is not
//! filtered again: the vault has checked every packet of it against its session's selectors.
//!
//! In a partition the listed ports are its programs' own, which may begin connections to listed hosts, too. By a link it hears and speaks
//! to the other end alone. What the link lists is forwarded, under the interface's address one way and translated to the other
//! end's address the other way; nothing else is.

use ipnet::IpNet;
use levee_policy::site::{Link, Network, NetworkHost, Protocol};
use levee_policy::{InterfaceName, Label, LabelName, PartitionName, Site};
use std::net::IpAddr;

/// The TUN device of a compartment.
pub const TUNNEL: &str = "levee0";

/// What a partition's name begins with where a label's may stand: no label's name has one slash.
pub const PARTITION: &str = "partition/";

/// What the name of a channel's wire begins with there: no label's name has one slash.
pub const CHANNEL: &str = "channel/";

/// What the name of a labelled network's own rules begins with there; its place in the site file follows.
pub const NETWORK: &str = "network/";

/// The table's name; there is no other in the namespace.
pub const TABLE: &str = "levee";

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

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Its name.
    pub interface: InterfaceName,
    /// Its addresses with prefix lengths.
    pub addresses: Vec<IpNet>,
    /// Services, or ports of the partition, that hosts on the network reach.
    pub services: Vec<(Protocol, u16)>,
    /// Hosts on the network that sessions, or the partition's programs, reach.
    pub hosts: Vec<NetworkHost>,
    /// On a network whose packets carry labels, its hosts whose packets carry none, and their labels.
    pub unlabelled: Vec<(IpNet, Label)>,
    /// Its packets carry labels: what the label's namespace has is the end of a wire.
    pub is_labelled: bool,
    /// How many of its hosts are known at once, of each family; on a labelled network at this label.
    pub neighbours: u16,
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

impl Edge {
    /// What the site says of a network at a label.
    pub fn of(site: &Site, network: &Network, label: &Label) -> Self {
        let ports = network.ports().iter().copied();
        let services = (network.services().iter())
            .filter_map(|name| site.service(name))
            .filter(|service| service.range().contains(label))
            .map(|service| (service.protocol(), service.port()));
        Self {
            interface: network.interface().clone(),
            addresses: network.addresses().to_vec(),
            services: services.chain(ports).collect(),
            hosts: network.hosts().to_vec(),
            unlabelled: network.unlabelled().to_vec(),
            is_labelled: network.domain().is_some(),
            neighbours: site.neighbours_of_each(network),
        }
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
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Service, Self::Through, Self::Host, Self::Own];

    /// In words, for operators.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "no listed service",
            Self::Through => "beyond the compartment",
            Self::Host => "no listed host",
            Self::Own => "a program of the compartment",
        }
    }
}

impl Ruleset {
    /// What the site says for a label.
    pub fn of(site: &Site, label: &Label) -> Self {
        let edges = site.networks_at(label).map(|network| Edge::of(site, network, label));
        Self {
            inner: site.server().inner_addresses().to_vec(),
            pools: site.session_pools(),
            edges: edges.collect(),
            links: None,
        }
    }

    /// What the site says for a label, or for a partition whose name stands behind [`PARTITION`]; `None` for what the site has not.
    pub fn named(site: &Site, name: &LabelName) -> Option<Self> {
        let Some(partition) = name.as_str().strip_prefix(PARTITION) else {
            return Some(Self::of(site, &site.label(name)?));
        };
        let known = site.partitions().iter().find(|known| known.name().as_str() == partition)?;
        Some(Self::of_partition(site, known.label(), known.name()))
    }

    fn of_partition(site: &Site, label: &Label, partition: &PartitionName) -> Self {
        let edges = site.networks_of(partition).map(|network| Edge::of(site, network, label));
        let links = site.links().iter().filter_map(|link| LinkEdge::of(site, link, partition));
        Self { inner: Vec::new(), pools: Vec::new(), edges: edges.collect(), links: Some(links.collect()) }
    }

    /// Every interface that has rules, in the order of their counters.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        let links = self.links.iter().flatten().map(|link| link.interface.as_str());
        self.edges.iter().map(|edge| edge.interface.as_str()).chain(links)
    }

    /// The name of the counter of what was dropped at the interface at `index` for this reason.
    pub(crate) fn counter(index: usize, reason: Reason) -> String {
        let reason = match reason {
            Reason::Service => "service",
            Reason::Through => "through",
            Reason::Host => "host",
            Reason::Own => "own",
        };
        format!("n{index}_{reason}")
    }

    /// The names of all counters, interface by interface.
    pub fn counters(&self) -> impl Iterator<Item = String> {
        (0..self.interfaces().count())
            .flat_map(|index| Reason::ALL.map(|reason| Self::counter(index, reason)))
    }
}
