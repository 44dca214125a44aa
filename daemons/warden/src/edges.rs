//! The interfaces of a label's compartment, or of a partition, on networks of its own. What may pass by them are the rules that levee-rules
//! makes of the same ([`crate::rules`]).

use ipnet::IpNet;
use levee_policy::site::{Link, Network, NetworkHost, Protocol};
use levee_policy::{InterfaceName, Label, LabelName, PartitionName, Site};

/// The TUN device of a compartment.
pub const TUNNEL: &str = "levee0";

/// What a partition's name begins with where a label's may stand: no label's name has one slash.
pub const PARTITION: &str = "partition/";

/// What the name of a channel's wire begins with there: no label's name has one slash.
pub const CHANNEL: &str = "channel/";

/// What the name of a labelled network's own rules begins with there; its place in the site file follows.
pub const NETWORK: &str = "network/";

/// The interfaces of one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edges {
    /// On networks.
    pub networks: Vec<Edge>,
    /// Of a partition, its name, and whether it has links; `None` for a label's compartment.
    pub partition: Option<(PartitionName, bool)>,
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
    /// What the site says for a label, or for a partition whose name stands behind [`PARTITION`]; `None` for what the site has not.
    pub fn named(site: &Site, name: &LabelName) -> Option<Self> {
        let Some(partition) = name.as_str().strip_prefix(PARTITION) else {
            let label = site.label(name)?;
            let networks = site.networks_at(&label).map(|network| Edge::of(site, network, &label));
            return Some(Self { networks: networks.collect(), partition: None });
        };
        let known = site.partitions().iter().find(|known| known.name().as_str() == partition)?;
        let networks = site.networks_of(known.name()).map(|network| Edge::of(site, network, known.label()));
        let is_end = |link: &Link| link.ends().iter().any(|(end, _)| end == known.name());
        let partition = Some((known.name().clone(), site.links().iter().any(is_end)));
        Some(Self { networks: networks.collect(), partition })
    }

    /// Whether there are any, on networks or links.
    pub fn is_any(&self) -> bool {
        !self.networks.is_empty() || self.partition.as_ref().is_some_and(|(_, linked)| *linked)
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
