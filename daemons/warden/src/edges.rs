//! The interfaces of a label's compartment, or of a partition, on networks of its own. What may pass by them are the rules that levee-rules
//! makes of the same ([`crate::rules`]).

use ipnet::IpNet;
use levee_policy::site::{Link, Network, NetworkHost, Protocol};
use levee_policy::{InterfaceName, Label, LabelName, PartitionName, Site};
use levee_sys::{Error, Result};
use std::fmt::Display;

/// The TUN device of a compartment.
pub const TUNNEL: &str = "levee0";

/// What a partition's name begins with where a label's may stand: no label's name has one slash.
pub const PARTITION: &str = "partition/";

/// What the name of a channel's wire begins with there: no label's name has one slash.
pub const CHANNEL: &str = "channel/";

/// What the name of a labelled network's own rules begins with there; its place in the site file follows.
pub const NETWORK: &str = "network/";

/// What a name begins with that is a guard's.
pub const GUARD: &str = "guard/";

/// A name that stands where a label's may: what begins so, and is of this.
///
/// # Errors
/// It cannot be named, which of a site that has been read is not so.
pub fn name(kind: &str, of: impl Display) -> Result<LabelName> {
    LabelName::new(&format!("{kind}{of}"))
        .map_err(|e| Error::invalid(format!("name {kind}{of}"), e.to_string()))
}

/// The interfaces of one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edges {
    /// On networks. A partition that has none has links.
    pub networks: Vec<Edge>,
    /// The partition whose they are; `None` for a label's compartment.
    pub partition: Option<PartitionName>,
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

impl Edges {
    /// What the site says for a label, or for a partition whose name stands behind [`PARTITION`]; `None` where there is neither network nor link.
    pub fn named(site: &Site, name: &LabelName) -> Option<Self> {
        let Some(partition) = name.as_str().strip_prefix(PARTITION) else {
            let label = site.label(name)?;
            let networks = site.networks_at(&label).map(|network| Edge::of(site, network, &label));
            let edges = Self { networks: networks.collect(), partition: None };
            return (!edges.networks.is_empty()).then_some(edges);
        };
        let known = site.partitions().iter().find(|known| known.name().as_str() == partition)?;
        let networks = site.networks_of(known.name()).map(|network| Edge::of(site, network, known.label()));
        let is_end = |link: &Link| link.ends().iter().any(|(end, _)| end == known.name());
        let edges = Self { networks: networks.collect(), partition: Some(known.name().clone()) };
        (!edges.networks.is_empty() || site.links().iter().any(is_end)).then_some(edges)
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
