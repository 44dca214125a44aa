//! What process 1 is told of a label's services, and where they listen.

use crate::below::Below;
use crate::compartment::Network;
use crate::compartment::service::Served;
use ipnet::IpNet;
use levee_policy::site::{Program, Service};
use levee_policy::{LabelName, Site};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

pub(super) fn inner_addresses(site: &Site) -> Vec<IpNet> {
    site.server().inner_addresses().iter().map(|address| IpNet::from(*address)).collect()
}

/// Where a service listens: at the server's inner addresses, the same for every label.
fn addresses(site: &Site, service: &Service) -> Vec<SocketAddr> {
    site.server().inner_addresses().iter().map(|address| SocketAddr::new(*address, service.port())).collect()
}

/// So many labels below a page names; where there are more it lists what is there. Each costs the message in which process 1 is told of them.
const NAMED: usize = 128;

/// What process 1 is told of a service.
pub(super) fn served(name: &LabelName, below: &Below, site: &Site, service: &Service) -> Served {
    let is_nginx = *service.program() == Program::Nginx;
    let names = Some(below.names()).filter(|names| is_nginx && names.len() <= NAMED);
    Served {
        name: service.name().clone(),
        label: name.clone(),
        program: service.program().clone(),
        mode: service.mode(),
        protocol: service.protocol(),
        addresses: addresses(site, service),
        uploads: service.uploads(),
        below: names.unwrap_or_default().to_vec(),
        more: is_nginx && (names.is_none() || !below.is_whole()),
        needs: service.needs().clone(),
    }
}

/// A non-blocking UDP socket in the namespace, for a service to inherit.
pub(crate) fn datagrams(network: &Network, address: SocketAddr) -> levee_sys::Result<OwnedFd> {
    let open = || -> std::io::Result<OwnedFd> {
        let socket = std::net::UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    network.make(open)?.map_err(|e| levee_sys::Error::new(format!("listen on {address}"), e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compartment::proto::ToInit;
    use levee_ipc::Channel;

    #[test]
    fn however_many_labels_below_have_run_process_1_is_told_of_a_service_in_one_message() {
        let categories = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K"];
        let site = include_str!("../../../../conf/small/site.toml");
        let quoted = categories.map(|name| format!("\"{name}\"")).join(", ");
        let site = site.replace("\"MED\"]", &format!("\"MED\", {quoted}]"));
        let top = format!("SECRET//NATO,MED,{}", categories.join(","));
        let site = site.replace("SECRET//NATO,MED\"\nmode", &format!("{top}\"\nmode"));
        let site = Site::parse(&site).unwrap();
        let label = site.vocabulary().parse(&top).unwrap();
        let name = LabelName::new(&top).unwrap();
        let place = tempfile::tempdir().unwrap();
        let is_nginx = |service: &&Service| *service.program() == Program::Nginx;
        let service = site.services().find(is_nginx).unwrap();
        for (from, most, is_named) in [(1, 100, true), (100, 2_048, false)] {
            for number in from..most {
                let has = (0..).zip(categories).filter(|(bit, _)| number >> bit & 1 == 1);
                let has: Vec<&str> = has.map(|(_, category)| category).collect();
                std::fs::write(place.path().join(format!("CONFIDENTIAL++{}.img", has.join(","))), "")
                    .unwrap();
            }
            let below = Below::of(&label, &site, place.path());
            assert_eq!(below.names().len(), most - 1);
            let served = served(&name, &below, &site, service);
            assert_eq!((served.below.is_empty(), served.more), (!is_named, true));
            let (ours, _theirs) = Channel::pair().unwrap();
            ours.try_send(&ToInit::Service { served, off: false }).unwrap();
        }
    }
}
