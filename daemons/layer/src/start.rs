//! From the first instruction to the sandbox.

use crate::crypto::{Believed, Own};
use crate::quic::Quic;
use crate::serve::{Side, Source, Started};
use levee_daemon::tunnel::Socket;
use levee_daemon::{Descriptors, Events, Fatal, Kit, Many, One, begin, pem};
use levee_ipc::warden::Place;
use levee_ipc::warden::layer::LayerPart;
use levee_policy::DomainName;
use levee_sys::sandbox::Sandbox;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The system calls that it may make.
const FILTER: &str = include_str!("../../../conf/seccomp/layer.toml");

/// What the warden gives.
#[derive(Default)]
struct Given {
    outer: Many<(OwnedFd, SocketAddr), { Socket::MOST }>,
    inner: One<OwnedFd>,
    tunnel: One<SocketAddr>,
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
            LayerPart::Server { address, name } => self.server.put((address, name)),
            LayerPart::Chain => self.chain.put(with.one()?),
            LayerPart::Authority => self.authority.put(with.one()?),
            LayerPart::Key => self.key.put(with.one()?),
            LayerPart::Session(address) => self.sessions.put(address),
        }
    }
}

/// Takes what the warden gives, enters the sandbox and says so. `None`: the warden does not need us any more.
///
/// # Errors
/// Why it cannot begin.
pub fn start() -> Result<Option<Started>, Fatal> {
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(None) };
    let fault = |why: String| Fatal::new("begin", why);
    let chain = pem(&given.chain.needed("certificate")?)?;
    let authority = pem(&given.authority.needed("authority")?)?;
    let key = pem(&given.key.needed("private key")?)?;
    let own = Own::read(&chain, &key).map_err(fault)?;
    let (quic, side) = match beginning.place {
        Place::Server => {
            let tunnel = given.tunnel.needed("tunnel")?;
            let SocketAddr::V4(tunnel) = tunnel else {
                return Err(Fatal::new("begin", "the steering group has no IPv4 address"));
            };
            let clients = Believed::clients(&authority).map_err(fault)?;
            (Quic::server(own, clients).map_err(fault)?, Side::server(tunnel))
        }
        Place::Workstation => {
            let (address, name) = given.server.needed("server")?;
            let server = Believed::server(&authority, name.as_str()).map_err(fault)?;
            (Quic::client(own, server).map_err(fault)?, Side::workstation(address, name))
        }
    };
    let mut events = Events::new()?;
    let outer = Socket::all(given.outer.needed("outer socket")?, &mut events, Source::Outer)?;
    let inner = given.inner.needed("inner socket")?;
    levee_daemon::tunnel::unblock(&inner)?;
    let inner = events.watch(inner, Source::Inner).map_err(|why| Fatal::new("wait for a socket", why))?;
    let warden = beginning.confine(&Sandbox::new(FILTER))?.ready(&mut events, Source::Warden)?;
    Ok(Some(Started { events, warden, outer, inner, quic, side, sessions: given.sessions.all() }))
}
