//! The mediator of a label: its listeners, the network in which it reaches the daemons that it relays to, and the server
//! processes that it may have started.
//!
//! The listeners are in the compartment's network, but the mediator is not: it holds them, and lives in a network of its own.
//! There the daemons of its relayed services listen, and nobody else is there to reach them. The pools of inner addresses
//! and the single-level networks are local in it, so that the mediator connects to a daemon from the client's own address.

use crate::compartment::proto::Handoff;
use crate::compartment::service::Served;
use crate::compartment::{Compartment, Network, listener, set};
use crate::key::Key;
use crate::logs::Logs;
use crate::options::Options;
use crate::process::{Process, Start};
use crate::uids::Uids;
use crate::{Fatal, log};
use ipnet::IpNet;
use levee_ipc::Channel;
use levee_ipc::warden::Role;
use levee_ipc::warden::mediator::MediatorPart;
use levee_policy::site::Mode;
use levee_policy::{Label, LabelName, ServiceName, Site};
use levee_sys::{Result, sockdiag, tcp};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Server processes of a service that are ready while it is used, at most.
const READY: u32 = 2;

/// Of the connections that may be handed off at a time, the part that processes which are ready may have.
const PART: u32 = 8;

/// What a label's mediator works with; it outlives the process.
#[derive(Debug)]
pub struct Mediation {
    fronts: Vec<Front>,
    servers: Vec<Handoff>,
    /// Its own network, where there is something to relay to.
    network: Option<Network>,
    /// Server processes and connections that are handed off at a time, at most.
    most: u32,
}

/// A listener that is the mediator's.
#[derive(Debug)]
struct Front {
    service: ServiceName,
    mode: Mode,
    address: SocketAddr,
    listener: OwnedFd,
}

impl Mediation {
    /// What the site wants of a label's mediator; `None` if it needs none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(site: &Site, label: &Label) -> Result<Option<Self>> {
        if !site.mediates(label) {
            return Ok(None);
        }
        let relays = site.services_at(label).any(|service| service.mode() == Mode::Relay);
        let network = if relays { Some(own_network(site, label)?) } else { None };
        // So that as many again remain for what those start, and for the label's other services.
        let most = (site.limits().processes / 2).max(1);
        Ok(Some(Self { fronts: Vec::new(), servers: Vec::new(), network, most }))
    }

    /// Takes a listener of a service, which is in the compartment's network.
    pub fn take(&mut self, service: &ServiceName, mode: Mode, address: SocketAddr, listener: OwnedFd) {
        self.fronts.push(Front { service: service.clone(), mode, address, listener });
    }

    /// Has a process of this service started for each connection to it.
    pub fn hand_off_to(&mut self, served: Served) {
        self.servers.push(Handoff { served, ready: 0 });
    }

    /// A listener for the daemon of a relayed service, where the mediator alone reaches it: what the daemon has of that network connects to
    /// nobody.
    ///
    /// # Errors
    /// The kernel's.
    pub fn listen(&self, address: SocketAddr) -> Result<OwnedFd> {
        let network = self.network.as_ref();
        let listener = network
            .ok_or_else(|| levee_sys::Error::invalid("listen", "nothing is relayed here"))?
            .listen(address)?;
        tcp::only_accept(listener.as_fd())
            .map_err(|e| levee_sys::Error::new("have a listener accept alone", e))?;
        Ok(listener)
    }

    /// Starts the mediator, with a channel to process 1 of its compartment, which has this network.
    ///
    /// # Errors
    /// The step that failed, and why.
    pub fn start(
        &self,
        name: &LabelName,
        slot: u16,
        (compartment, compartment_network): (&Compartment, &Network),
        logs: &Logs,
        options: &Options,
        uids: &Uids,
    ) -> std::result::Result<Process, Fatal> {
        let failed = |e: &dyn std::fmt::Display| Fatal::new(format!("start the mediator at {name}"), e);
        self.fronts.iter().try_for_each(|front| listener::offer(&front.listener)).map_err(|e| failed(&e))?;
        let most = self.most.to_string();
        let start = Start::new(Key::at(Role::Mediator, name), slot, uids, options, logs);
        let (arguments, network) = (["--most", &most], self.network.as_ref().map(Network::ns));
        let process = Process::start_as::<MediatorPart>(Start { arguments: &arguments, network, ..start })
            .map_err(|e| failed(&e))?;
        // The one end goes into the compartment, and so is of its network. All that somebody has may end in one moment.
        let pair = compartment_network.make(Channel::pair_with_room).map_err(|e| failed(&e))?;
        let (ours, theirs) = pair.map_err(|e| failed(&e))?;
        let log = logs.end("handoff", uids.service(slot), true).map_err(|e| failed(&e))?;
        compartment.mediate(self.servers(), ours, log.as_fd()).map_err(|e| failed(&e))?;
        let attach = || -> std::result::Result<(), levee_ipc::SendError> {
            process.give(MediatorPart::Starter, theirs.into_fd())?;
            self.fronts.iter().try_for_each(|front| {
                let (name, mode, address) = (front.service.clone(), front.mode, front.address);
                process.give(MediatorPart::Service { name, mode, address }, &front.listener)
            })
        };
        attach().map_err(|e| failed(&e))?;
        Ok(process.into_process())
    }

    /// Those to start. Where a label may have few processes, none is ready: it would take the place of one that serves.
    fn servers(&self) -> Vec<Handoff> {
        let services = u32::try_from(self.servers.len()).unwrap_or(u32::MAX).max(1);
        let ready = (self.most / PART / services).min(READY);
        self.servers.iter().map(|server| Handoff { ready, ..server.clone() }).collect()
    }

    /// Refuses who connects, until [`Mediation::start`].
    pub fn refuse(&self) {
        if let Err(e) = self.fronts.iter().try_for_each(|front| listener::refuse(&front.listener)) {
            log!("connections to mediated services cannot be refused: {e}");
        }
    }

    /// The mediator is dead: what it had handed off in the network `compartment` ends. What it relayed has ended with it.
    pub fn ended(&self, compartment: BorrowedFd<'_>) {
        for front in self.fronts.iter().filter(|front| front.mode != Mode::Relay) {
            if let Err(e) = sockdiag::destroy_connections(compartment, front.address) {
                log!("connections to {} cannot be destroyed: {e}", front.service);
            }
        }
    }
}

fn own_network(site: &Site, label: &Label) -> Result<Network> {
    let network = Network::new()?;
    // What a daemon says to somebody who does not read waits in its own memory and not in the kernel's: the mediator is near.
    let kept = [("ipv4/tcp_wmem", "4096 16384 131072"), ("ipv4/tcp_rmem", "4096 131072 262144")];
    set(network.ns(), &kept)?;
    let inner = site.server().inner_addresses().iter().map(|address| IpNet::from(*address));
    let single = site.networks_at(label).flat_map(|n| n.addresses().iter().map(IpNet::trunc));
    let mut net = network.net()?;
    // Sessions of the site's other servers have addresses of their pools.
    inner.chain(site.session_pools()).chain(single).try_for_each(|range| net.add_local(range, "lo"))?;
    network.allow_foreign_sources()?;
    Ok(network)
}
