//! Links: a network of two partitions at one label. Both interfaces are made, each in its partition's network, when the second of the two
//! starts; they go with the first that ends, and are made anew with its next start. Where the site says that one of the two forwards, the
//! other gets routes to that one's networks, and what may pass is in that one's rules ([`crate::rules`]).

use crate::Fatal;
use crate::compartment::{Interface, Network, set};
use crate::partition::Partition;
use crate::pinned::{LINKS, remove};
use levee_policy::site::Link;
use levee_policy::{PartitionName, Site};

/// The largest packet of a link, in bytes: Ethernet's.
const MTU: u32 = 1500;

/// Lays the links of a partition that has begun to others that have. One that is left of an earlier start goes.
///
/// # Errors
/// The kernel's; then the partition is not to run.
pub fn lay(site: &Site, partitions: &[Partition], begun: &PartitionName) -> Result<(), Fatal> {
    for link in site.links() {
        let ends = link.ends();
        let Some(here) = ends.iter().position(|(name, _)| name == begun) else { continue };
        let network = |(name, _): &(PartitionName, _)| {
            partitions.iter().find(|partition| partition.name() == name).and_then(Partition::network)
        };
        let [Some(one), Some(other)] = ends.each_ref().map(network) else { continue };
        let name = link.name().as_str();
        let laid = || -> levee_sys::Result<()> {
            let mut left = if here == 0 { other } else { one }.net()?;
            if left.find(name)?.is_some() {
                remove(&mut left, name)?;
            }
            one.net()?.add_veth_of_group(name, name, Some(other.ns()), LINKS)?;
            let interface = |(_, address): &(_, _)| Interface {
                name: name.to_owned(),
                mtu: MTU,
                addresses: vec![*address],
                routes: Vec::new(),
            };
            let [first, second] = ends.each_ref().map(interface);
            one.configure(&first)?;
            other.configure(&second)?;
            match site.forwarder(link) {
                Some(0) => forward(site, link, 0, one, other),
                Some(_) => forward(site, link, 1, other, one),
                None => Ok(()),
            }
        };
        laid().map_err(|e| Fatal::new(format!("lay the link {name}"), e))?;
    }
    Ok(())
}

/// Lets the kernel forward at one end of a link, within the rules that are there, and gives the other end the way.
fn forward(site: &Site, link: &Link, at: usize, router: &Network, behind: &Network) -> levee_sys::Result<()> {
    let name = link.name().as_str();
    let Some((partition, address)) = link.ends().get(at) else { return Ok(()) };
    let is_ipv4 = address.addr().is_ipv4();
    let mut settings = vec![(format!("ipv4/conf/{name}/forwarding"), "1")];
    let mut net = behind.net()?;
    for network in site.networks_of(partition) {
        settings.push((format!("ipv4/conf/{}/forwarding", network.interface()), "1"));
        for own in network.addresses().iter().filter(|own| own.addr().is_ipv4() == is_ipv4) {
            net.add_route(own.trunc(), Some(address.addr()), name)?;
        }
    }
    if !is_ipv4 {
        // IPv6 knows only one switch for all.
        settings = vec![("ipv6/conf/all/forwarding".to_owned(), "1")];
    }
    set(router.ns(), &settings)
}
