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

/// What process 1 is told of a service.
pub(super) fn served(name: &LabelName, below: &Below, site: &Site, service: &Service) -> Served {
    let is_nginx = *service.program() == Program::Nginx;
    Served {
        name: service.name().clone(),
        label: name.clone(),
        program: service.program().clone(),
        mode: service.mode(),
        protocol: service.protocol(),
        addresses: addresses(site, service),
        uploads: service.uploads(),
        below: if is_nginx { below.names().to_vec() } else { Vec::new() },
        more: is_nginx && !below.is_whole(),
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
