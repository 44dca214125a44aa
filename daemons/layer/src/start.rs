//! From the first instruction to the sandbox.

use crate::crypto::{Believed, Own};
use crate::quic::Quic;
use crate::relay::Relay;
use crate::serve::{Side, Source, Started, To};
use levee_daemon::tunnel::Socket;
use levee_daemon::{Beginning, Descriptors, Events, Fatal, Kit, Many, One, Watched, begin, pem};
use levee_ipc::warden::Place;
use levee_ipc::warden::layer::LayerPart;
use levee_policy::DomainName;
use levee_sys::sandbox::Sandbox;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

/// The system calls that it may make.
const FILTER: &str = include_str!("../../../conf/seccomp/layer.toml");

/// What the warden gives.
#[derive(Default)]
struct Given {
    outer: Outer,
    inner: One<OwnedFd>,
    tunnel: One<SocketAddr>,
    gateway: One<SocketAddr>,
    behind: One<SocketAddr>,
    server: One<(SocketAddr, DomainName)>,
    chain: One<OwnedFd>,
    authority: One<OwnedFd>,
    key: One<OwnedFd>,
    sessions: Many<SocketAddr, 16>,
}

impl Kit for Given {
    type Part = LayerPart;

    fn take(&mut self, part: LayerPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            LayerPart::Outer(address) => self.outer.put((with.one()?, address)),
            LayerPart::Inner => self.inner.put(with.one()?),
            LayerPart::Tunnel(address) => self.tunnel.put(address),
            LayerPart::Gateway(address) => self.gateway.put(address),
            LayerPart::Behind(address) => self.behind.put(address),
            LayerPart::Server { address, name } => self.server.put((address, name)),
            LayerPart::Chain => self.chain.put(with.one()?),
            LayerPart::Authority => self.authority.put(with.one()?),
            LayerPart::Key => self.key.put(with.one()?),
            LayerPart::Session(address) => self.sessions.put(address),
        }
    }
}

/// What it is to do.
pub enum Work {
    /// One end of tunnels.
    End(Box<Started>),
    /// A gateway has that, and this is the server.
    Relay(Box<Relay>),
}

/// Takes what the warden gives, enters the sandbox and says so. `None`: the warden does not need us any more.
///
/// # Errors
/// Why it cannot begin.
pub fn start() -> Result<Option<Work>, Fatal> {
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(None) };
    let fault = |why: String| Fatal::new("begin", why);
    if let Some(gateway) = given.gateway.as_ref().copied() {
        return relay(given, beginning, gateway).map(Some);
    }
    let chain = pem(&given.chain.needed("certificate")?)?;
    let authority = pem(&given.authority.needed("authority")?)?;
    let key = pem(&given.key.needed("private key")?)?;
    let own = Own::read(&chain, &key).map_err(fault)?;
    let (quic, side) = match beginning.place {
        Place::Server => {
            let to = match given.behind.get() {
                Some(server) => To::Beyond(server),
                None => To::Here(steering(given.tunnel.needed("tunnel")?)?),
            };
            let clients = Believed::clients(&authority).map_err(fault)?;
            (Quic::server(own, clients).map_err(fault)?, Side::server(to))
        }
        Place::Workstation => {
            let (address, name) = given.server.needed("server")?;
            let server = Believed::server(&authority, name.as_str()).map_err(fault)?;
            (Quic::client(own, server).map_err(fault)?, Side::workstation(address, name))
        }
    };
    let mut events = Events::new()?;
    let (outer, inner) = sockets(given.outer, given.inner, &mut events)?;
    let warden = beginning.confine(&Sandbox::new(FILTER))?.ready(&mut events, Source::Warden)?;
    let sessions = given.sessions.all();
    Ok(Some(Work::End(Box::new(Started { events, warden, outer, inner, quic, side, sessions }))))
}

fn steering(tunnel: SocketAddr) -> Result<SocketAddrV4, Fatal> {
    match tunnel {
        SocketAddr::V4(tunnel) => Ok(tunnel),
        SocketAddr::V6(_) => Err(Fatal::new("begin", "the steering group has no IPv4 address")),
    }
}

/// A server's whose second tunnel ends at a gateway. It has no key.
fn relay(given: Given, beginning: Beginning<LayerPart>, gateway: SocketAddr) -> Result<Work, Fatal> {
    if beginning.place != Place::Server || given.key.as_ref().is_some() {
        return Err(Fatal::new("begin", "behind a gateway a server is given no key"));
    }
    let tunnel = steering(given.tunnel.needed("tunnel")?)?;
    let mut events = Events::new()?;
    let (outer, inner) = sockets(given.outer, given.inner, &mut events)?;
    let outer = outer.into_iter().next().ok_or_else(|| Fatal::new("begin", "there is no outer socket"))?;
    let warden = beginning.confine(&Sandbox::new(FILTER))?.ready(&mut events, Source::Warden)?;
    Ok(Work::Relay(Box::new(Relay { events, warden, outer, inner, gateway, tunnel })))
}

type Outer = Many<(OwnedFd, SocketAddr), { Socket::MOST }>;

fn sockets(
    outer: Outer,
    inner: One<OwnedFd>,
    events: &mut Events<Source>,
) -> Result<(Vec<Socket>, Watched<OwnedFd>), Fatal> {
    let outer = Socket::all(outer.needed("outer socket")?, events, Source::Outer)?;
    let inner = inner.needed("inner socket")?;
    levee_daemon::tunnel::unblock(&inner)?;
    let inner = events.watch(inner, Source::Inner).map_err(|why| Fatal::new("wait for a socket", why))?;
    Ok((outer, inner))
}
