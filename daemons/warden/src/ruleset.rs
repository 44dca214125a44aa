//! What may pass between a label's compartment and its single-level networks. [`crate::rules`] makes it the whole nftables ruleset of the
//! compartment's namespace.
//!
//! Everything that is not listed is dropped and counted. A listed service answers at the interface's own addresses,
//! which are translated to the service's inner address, so that hosts on the network need no route. Sessions reach
//! listed hosts under the interface's address (masquerade), for the same reason. Traffic of the tunnel is not
//! filtered again: the vault has checked every packet of it against its session's selectors.

use ipnet::IpNet;
use levee_policy::site::{Network, NetworkHost, Protocol};
use levee_policy::{InterfaceName, Label, Site};
use std::net::IpAddr;

/// The TUN device of a compartment.
pub const TUNNEL: &str = "levee0";

/// The table's name; there is no other in the namespace.
pub const TABLE: &str = "levee";

/// What one label's namespace lets pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    /// Where services listen, at most one address of each family.
    pub inner: Vec<IpAddr>,
    /// Where sessions' own addresses come from.
    pub pools: Vec<IpNet>,
    /// The networks.
    pub edges: Vec<Edge>,
}

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Its name.
    pub interface: InterfaceName,
    /// Its addresses with prefix lengths.
    pub addresses: Vec<IpNet>,
    /// Services that hosts on the network reach.
    pub services: Vec<(Protocol, u16)>,
    /// Hosts on the network that sessions reach.
    pub hosts: Vec<NetworkHost>,
    /// Its packets carry labels: what the label's namespace has is the end of a wire.
    pub is_labelled: bool,
}

impl Edge {
    /// What the site says of a network at a label.
    pub fn of(site: &Site, network: &Network, label: &Label) -> Self {
        Self {
            interface: network.interface().clone(),
            addresses: network.addresses().to_vec(),
            services: (network.services().iter())
                .filter_map(|name| site.service(name))
                .filter(|service| service.range().contains(label))
                .map(|service| (service.protocol(), service.port()))
                .collect(),
            hosts: network.hosts().to_vec(),
            is_labelled: network.domain().is_some(),
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
        }
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
        (0..self.edges.len()).flat_map(|index| Reason::ALL.map(|reason| Self::counter(index, reason)))
    }
}
