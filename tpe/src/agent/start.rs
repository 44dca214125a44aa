//! From the first instruction to the sandbox.

use super::link::{Device, Link};
use super::people::People;
use super::seat::Seat;
use super::{Agent, Certificates, Due, Mail, Source, acceptor};
use levee_daemon::{Descriptors, Events, Fatal, Kit, Many, One, Outbox, Warden, begin};
use levee_ipc::Channel;
use levee_ipc::device::Sealed;
use levee_ipc::warden::tpe::TpePart;
use levee_policy::site::Suites;
use levee_policy::{DomainName, HostName};
use levee_sys::sandbox::Sandbox;
use levee_tls::SignerHandle;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The system calls that the agent may make.
const FILTER: &str = include_str!("../../../conf/seccomp/tpe.toml");

/// The most addresses of the server.
const MOST_ADDRESSES: usize = 16;

/// What the warden gives.
#[derive(Default)]
struct Given {
    chain: One<Vec<u8>>,
    authority: One<Vec<u8>>,
    revocations: One<Vec<u8>>,
    commands: One<OwnedFd>,
    server: Many<(SocketAddr, DomainName), MOST_ADDRESSES>,
    through: One<SocketAddr>,
    signer: One<Channel>,
    keyer: One<Channel>,
}

impl Kit for Given {
    type Part = TpePart;

    fn take(&mut self, part: TpePart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            TpePart::Chain => self.chain.put(levee_daemon::pem(&with.one()?)?),
            TpePart::Authority => self.authority.put(levee_daemon::pem(&with.one()?)?),
            TpePart::Revocations => self.revocations.put(levee_daemon::revocations(&with.one()?)?),
            TpePart::Commands => self.commands.put(with.one()?),
            TpePart::Server { address, name } => self.server.put((address, name)),
            TpePart::Tunnel(address) => self.through.put(address),
            TpePart::Signer => self.signer.put(with.channel()?),
            TpePart::Keyer => self.keyer.put(with.channel()?),
            TpePart::Vault(_) | TpePart::Workstation(_) => {
                Err(Fatal::new("take a part", "nobody has opened a session yet"))
            }
        }
    }
}

/// Takes part in the warden's start-up, then serves until the warden says stop or is gone.
///
/// With a `seat`, who sits there alone is heard, and root.
///
/// With `no_tunnel` it holds the trusted path and nothing else: another IPsec client of this host makes the tunnel.
///
/// # Errors
/// What is missing or wrong with what the warden gave or says, or a sandbox that cannot be entered.
pub fn serve(no_tunnel: bool, seat: Option<Seat>, suites: Suites) -> Result<(), Fatal> {
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(()) };
    let acceptor = acceptor::start(given.commands.needed("listener")?, seat)
        .map_err(|why| Fatal::new("have connections of commands accepted", why))?;
    let mut events = Events::new()?;
    let signer = SignerHandle::default();
    if let Some(channel) = given.signer.get() {
        signer.set(channel);
    }
    let mut keyer = Outbox::new();
    if let Some(channel) = given.keyer.get() {
        keyer.replace(channel, &mut events, Source::Keyer)?;
    }
    let chain = given.chain.needed("certificate chain")?;
    let authority = given.authority.needed("authority")?;
    let certificates = Certificates { chain, authority, suites };
    let device = own_name(&certificates.chain)?;
    let link = link(&certificates, given.revocations.get(), given.server.needed("server")?, &signer)?;
    let people = People::new(acceptor, &mut events)?;
    let sandbox = Sandbox { tcp: true, ..Sandbox::new(FILTER) };
    let warden: Warden<TpePart> = beginning.confine(&sandbox)?.ready(&mut events, Source::Warden)?;
    let mut agent = Agent {
        events,
        warden,
        keyer,
        vault: None,
        signer,
        certificates,
        link,
        device,
        no_tunnel,
        people,
        spools: BTreeMap::new(),
        over: VecDeque::new(),
        person: None,
        login: None,
        session: None,
        ended: None,
        notice: None,
        mail: Mail::default(),
        due: Due::default(),
        down: None,
        heard: Duration::ZERO,
        tunnel: SocketAddr::from(([0; 4], 0)),
        through: given.through.get(),
        stop: false,
    };
    agent.run()
}

/// The trusted path, to the addresses of the server that is named first.
fn link(
    certificates: &Certificates,
    revoked: Option<Vec<u8>>,
    servers: Vec<(SocketAddr, DomainName)>,
    signer: &SignerHandle,
) -> Result<Link, Fatal> {
    const NONE: &str =
        "the bundle has no passport of this device: enrol the host anew on the server (levee enrol host)";
    let fault = |why: levee_tls::Error| Fatal::new("prepare the trusted path", why);
    let Certificates { chain, authority, suites } = certificates;
    let config = levee_tls::client(chain, authority, revoked.as_deref(), signer, *suites).map_err(fault)?;
    let sealed = Sealed::from_text(chain).ok_or_else(|| Fatal::new("prepare the trusted path", NONE))?;
    let device = Device { sealed, signer: signer.clone() };
    let first = servers.first().map(|(_, name)| name.clone());
    let name = first.ok_or_else(|| Fatal::new("prepare the trusted path", "there is no server"))?;
    let addresses = servers.into_iter().filter(|(_, other)| *other == name).map(|(address, _)| address);
    Link::new(config, &name, device, addresses.collect()).map_err(fault)
}

/// The name in our own certificate, the first of the chain.
fn own_name(chain: &[u8]) -> Result<HostName, Fatal> {
    let fault = |why: &dyn std::fmt::Display| Fatal::new("read the certificate chain", why);
    let own = CertificateDer::pem_slice_iter(chain).next().ok_or_else(|| fault(&"it is empty"))?;
    let own = own.map_err(|why| fault(&why))?;
    levee_tls::device(&own).map(|device| device.name).map_err(|why| fault(&why))
}
