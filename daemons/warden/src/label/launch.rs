//! How a label's services are started, and where they listen.

use crate::below::Below;
use crate::compartment::Network;
use crate::compartment::service::{Launch, Nginx};
use ipnet::IpNet;
use levee_policy::site::{Mode, Program, Service};
use levee_policy::{LabelName, Site};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

pub(super) fn inner_addresses(site: &Site) -> Vec<IpNet> {
    site.server().inner_addresses().iter().map(|address| IpNet::from(*address)).collect()
}

/// Where a service listens: at the server's inner addresses, the same for every label.
pub(super) fn addresses(site: &Site, service: &Service) -> Vec<SocketAddr> {
    site.server().inner_addresses().iter().map(|address| SocketAddr::new(*address, service.port())).collect()
}

/// How a service is started.
pub(super) fn launch(name: &LabelName, below: &Below, site: &Site, service: &Service) -> Launch {
    let mut launch = match nginx(name, below, site, service) {
        Some(nginx) => nginx.launch(),
        None if service.mode() == Mode::Itself => itself(site, service),
        None => inherit(service, site.server().inner_addresses().len()),
    };
    launch.env.push(said_label(name));
    launch
}

/// How a service's program is told its label.
pub(super) fn said_label(name: &LabelName) -> String {
    format!("LEVEE_LABEL={name}")
}

/// The nginx of a service that is one.
pub(super) fn nginx(name: &LabelName, below: &Below, site: &Site, service: &Service) -> Option<Nginx> {
    if !matches!(service.program(), Program::Nginx) {
        return None;
    }
    let named = below.names().iter().map(|name| (name.file_name(), name.clone())).collect();
    let listen = addresses(site, service);
    Some(Nginx {
        service: service.name().clone(),
        label: name.clone(),
        below: named,
        more: !below.is_whole(),
        listen,
        uploads: service.uploads(),
        needs: service.needs().clone(),
    })
}

/// A service given as a command that binds its port itself, and is told which.
fn itself(site: &Site, service: &Service) -> Launch {
    let addresses: Vec<String> =
        addresses(site, service).iter().map(|address| address.ip().to_string()).collect();
    let told = [format!("LEVEE_PORT={}", service.port()), format!("LEVEE_ADDRESSES={}", addresses.join(" "))];
    command(service, told)
}

/// A service given as a command: its listeners are descriptors 3, 4, …, as systemd passes them (sd_listen_fds(3)).
fn inherit(service: &Service, listeners: usize) -> Launch {
    command(service, [format!("LISTEN_FDS={listeners}")])
}

/// A service given as a command, with this in its environment.
pub(crate) fn command(service: &Service, told: impl IntoIterator<Item = String>) -> Launch {
    let argv = match service.program() {
        Program::Nginx => Vec::new(),
        Program::Command(argv) => argv.to_vec(),
    };
    Launch {
        program: argv.first().cloned().unwrap_or_default(),
        argv,
        env: told.into_iter().chain(["PATH=/usr/bin:/usr/sbin".to_owned()]).collect(),
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
