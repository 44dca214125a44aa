//! Links: a network of two partitions at one label. Both interfaces are made, each in its partition's network, when the second of the two
//! starts; they go with the first that ends, and are made anew with its next start.

use crate::Fatal;
use crate::compartment::Interface;
use crate::partition::Partition;
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
            // It may go by itself at any time, with the network of its other end.
            if left.find(name)?.is_some()
                && let Err(e) = left.delete(name)
                && left.find(name)?.is_some()
            {
                return Err(e);
            }
            one.net()?.add_veth(name, name, Some(other.ns()))?;
            let interface = |(_, address): &(_, _)| Interface {
                name: name.to_owned(),
                mtu: MTU,
                addresses: vec![*address],
                routes: Vec::new(),
            };
            let [first, second] = ends.each_ref().map(interface);
            one.configure(&first)?;
            other.configure(&second)
        };
        laid().map_err(|e| Fatal::new(format!("lay the link {name}"), e))?;
    }
    Ok(())
}
