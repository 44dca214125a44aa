//! From the first instruction to the sandbox.

use crate::etcd::OwnKeys;
use crate::http::{Configured, Target};
use levee_daemon::{Descriptors, Events, Fatal, Kit, Many, One, Warden, begin, pem};
use levee_ipc::Channel;
use levee_ipc::warden::fsd::FsdPart;
use levee_policy::site::Suites;
use levee_policy::{DomainName, SiteName};
use levee_sys::sandbox::Sandbox;
use levee_tls::SignerHandle;
use rustls::ClientConfig;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

/// The system calls that fsd may make.
const FILTER: &str = include_str!("../../../conf/seccomp/fsd.toml");

/// The most members of etcd.
const MEMBERS: usize = 16;

/// What the warden gives.
#[derive(Default)]
struct Given {
    members: Many<(SocketAddr, DomainName), MEMBERS>,
    own: One<(SiteName, DomainName)>,
    chain: One<OwnedFd>,
    authority: One<OwnedFd>,
    sessiond: One<Channel>,
    signer: One<Channel>,
}

impl Kit for Given {
    type Part = FsdPart;

    fn take(&mut self, part: FsdPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            FsdPart::Server { address, name } => self.members.put((address, name)),
            FsdPart::Member { site, server } => self.own.put((site, server)),
            FsdPart::Chain => self.chain.put(with.one()?),
            FsdPart::Authority => self.authority.put(with.one()?),
            FsdPart::Sessiond => self.sessiond.put(with.channel()?),
            FsdPart::Signer => self.signer.put(with.channel()?),
        }
    }
}

/// Whom the loop hears.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    Warden,
    Sessiond,
}

/// Who it is to etcd, and whom it believes there.
pub struct Keys {
    /// PEM, own certificate first.
    pub chain: Vec<u8>,
    /// PEM.
    pub authority: Vec<u8>,
    /// Who signs.
    pub signer: SignerHandle,
    /// What the site lets TLS use.
    pub suites: Suites,
}

impl Keys {
    /// TLS by these.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub fn config(&self) -> Result<Arc<ClientConfig>, levee_tls::Error> {
        levee_tls::client(&self.chain, &self.authority, None, &self.signer, self.suites)
    }
}

/// What it works with.
pub struct Started {
    pub events: Events<Source>,
    pub warden: Warden<FsdPart>,
    /// To hear sessiond, and to tell it: two descriptors of one channel.
    pub sessiond: (Channel, Channel),
    pub keys: Keys,
    pub target: Target,
    pub own: OwnKeys,
}

/// Takes what the warden gives, enters the sandbox and says so. `None`: the warden does not need us any more.
///
/// # Errors
/// Why it cannot begin.
pub fn start(suites: Suites) -> Result<Option<Started>, Fatal> {
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(None) };
    let members = given.members.needed("etcd")?;
    let (site, me) = given.own.needed("own")?;
    let chain = pem(&given.chain.needed("chain")?)?;
    let authority = pem(&given.authority.needed("authority")?)?;
    let sessiond = given.sessiond.needed("channel to levee-sessiond")?;
    let signer = SignerHandle::new();
    if let Some(channel) = given.signer.get() {
        signer.set(channel);
    }
    let fault = |why: &dyn std::fmt::Display| Fatal::new("begin", why);
    let name = members.first().map(|(_, name)| name.clone()).ok_or_else(|| fault(&"there is no etcd"))?;
    let keys = Keys { chain, authority, signer, suites };
    let target = Target {
        config: Configured::new(keys.config().map_err(|e| fault(&e))?),
        name: levee_tls::server_name(&name).map_err(|e| fault(&e))?,
        members: members.into_iter().map(|(address, _)| address).collect(),
    };
    let other = sessiond.as_fd().try_clone_to_owned().map_err(|e| fault(&e))?;
    let mut events = Events::new()?;
    let sandbox = Sandbox { tcp: true, ..Sandbox::new(FILTER) };
    let warden = beginning.confine(&sandbox)?.ready(&mut events, Source::Warden)?;
    let sessiond = (sessiond, Channel::from_fd(other));
    Ok(Some(Started { events, warden, sessiond, keys, target, own: OwnKeys { site, me } }))
}
