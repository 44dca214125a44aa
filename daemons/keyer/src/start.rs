//! From the first instruction to the sandbox: collect what the warden hands out, then give up the rest.

use crate::net::Sockets;
use crate::source::Source;
use levee_daemon::{Descriptors, Events, Fatal, Kit, Many, One, Warden, begin};
use levee_esp::Steering;
use levee_ike::{
    ChildProposal, Childless, Config, Identity, IkeProposal, KeyExchange, LocalAuth, Peer, Ppk, RemoteAuth,
    RemoteId, SignatureScheme, TrustAnchors, dns_names,
};
use levee_ipc::warden::Place;
use levee_ipc::warden::keyer::KeyerPart;
use levee_policy::site::Suites;
use levee_policy::{DomainName, HostName, PpkId};
use levee_sys::sandbox::Sandbox;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The system calls that the keyer may make.
const FILTER: &str = include_str!("../../../conf/seccomp/keyer.toml");

/// How long a workstation goes without a word from its server before it asks whether it lives, and how often it asks.
const LIVENESS: Duration = Duration::from_secs(20);
const TRIES: u32 = 4;

/// The program's arguments, each once at most.
#[derive(Debug, Default)]
struct Arguments {
    /// `--liveness SECONDS`; the warden gives none.
    liveness: Option<Duration>,
    /// `--tries NUMBER`; the warden gives none.
    tries: Option<u32>,
    /// `--suites NAME`, as the site says.
    suites: Option<Suites>,
}

fn arguments(arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut read = Arguments::default();
    let mut arguments = arguments;
    while let Some(flag) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        let number = || {
            let number = value.parse::<u32>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| format!("{flag} needs a number above 0"))
        };
        match flag.as_str() {
            "--liveness" if read.liveness.is_none() => {
                read.liveness = Some(Duration::from_secs(number()?.into()))
            }
            "--tries" if read.tries.is_none() => read.tries = Some(number()?),
            "--suites" if read.suites.is_none() => {
                read.suites = Some(value.parse().map_err(|e| format!("{flag}: {e}"))?)
            }
            _ => return Err(format!("unknown argument {flag}")),
        }
    }
    Ok(read)
}

/// What the keyer begins with.
#[derive(Debug)]
pub struct Started {
    /// What is waited for.
    pub events: Events<Source>,
    /// Channel to the warden.
    pub warden: Warden<KeyerPart>,
    /// Server or workstation.
    pub place: Place,
    /// Whom to believe, and how.
    pub config: Config,
    /// The site's authority.
    pub authority: Authority,
    /// The sockets.
    pub sockets: Sockets,
    /// Which worker of which vault an SPI reaches.
    pub steering: Steering,
    /// Channels to other daemons, to be taken like any that come later.
    pub channels: Vec<(KeyerPart, Descriptors)>,
}

/// The site's authority, and what it takes to believe it.
#[derive(Debug, Default)]
pub struct Authority {
    certificates: Vec<Vec<u8>>,
    suites: Suites,
}

impl Authority {
    #[cfg(test)]
    pub(crate) fn of(certificates: Vec<Vec<u8>>) -> Self {
        Self { certificates, suites: Suites::default() }
    }

    /// The authority with these revocation lists, in DER.
    ///
    /// # Errors
    /// One of them is malformed.
    pub fn anchors(&self, lists: &[Vec<u8>]) -> Result<Arc<TrustAnchors>, String> {
        let anchors = TrustAnchors::new(&self.certificates, lists).map_err(|e| e.to_string())?;
        let anchors = match self.suites {
            Suites::Default => anchors,
            Suites::Cnsa | Suites::CnsaMlKem => anchors.accepting(schemes(self.suites)),
        };
        // They take a fraction of the portable ones' time; which algorithms are believed does not change.
        let ring = [
            webpki::ring::ECDSA_P256_SHA256,
            webpki::ring::ECDSA_P256_SHA384,
            webpki::ring::ECDSA_P384_SHA256,
            webpki::ring::ECDSA_P384_SHA384,
            webpki::ring::ED25519,
        ];
        Ok(Arc::new(anchors.verified_by(&ring)))
    }
}

/// Reads revocation lists out of a sealed memory file that is positioned at its beginning. In the sandbox too.
///
/// # Errors
/// It cannot be read, or has no list in it.
pub fn revocations(fd: &OwnedFd) -> Result<Vec<Vec<u8>>, Fatal> {
    let fault = |e: &dyn std::fmt::Display| Fatal::new("read a revocation list", e);
    let text = levee_daemon::revocations(fd)?;
    let lists: Vec<Vec<u8>> = CertificateRevocationListDer::pem_slice_iter(&text)
        .map(|der| der.map(|der| der.to_vec()))
        .collect::<Result<_, _>>()
        .map_err(|e| fault(&e))?;
    if lists.is_empty() { Err(fault(&"there is none in the file")) } else { Ok(lists) }
}

/// The most sockets: two for each outer address of the server.
const MOST_SOCKETS: usize = 64;
/// The most channels to begin with: sessiond, the signer, and each worker of each label that runs.
const MOST_CHANNELS: usize = 8_192;
/// The most hosts with a PPK.
const MOST_PPKS: usize = 16_384;

#[derive(Default)]
struct Given {
    lists: One<Vec<Vec<u8>>>,
    chain: One<Vec<Vec<u8>>>,
    authority: One<Vec<Vec<u8>>>,
    server: One<DomainName>,
    steering: One<Steering>,
    ppks: Many<SharedPpk, MOST_PPKS>,
    /// Each with its address, and whether it carries ESP too.
    sockets: Many<(OwnedFd, SocketAddr, bool), MOST_SOCKETS>,
    channels: Many<(KeyerPart, Descriptors), MOST_CHANNELS>,
}

impl Kit for Given {
    type Part = KeyerPart;

    fn take(&mut self, part: KeyerPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            KeyerPart::Ppk { host, id, mandatory } => self.ppks.put(SharedPpk { host, id, mandatory }),
            KeyerPart::Server(name) => self.server.put(name),
            KeyerPart::Steering { key, slots } => {
                let steering = key.expose().try_into().ok().and_then(|key| Steering::new(key, slots));
                let sound = steering.ok_or_else(|| Fatal::new("begin", "the steering key makes no sense"))?;
                self.steering.put(sound)
            }
            KeyerPart::Chain => self.chain.put(certificates(&with.one()?)?),
            KeyerPart::Authority => self.authority.put(certificates(&with.one()?)?),
            KeyerPart::Revocations => self.lists.put(revocations(&with.one()?)?),
            KeyerPart::Udp(address) => self.sockets.put((with.one()?, address, true)),
            KeyerPart::Ike(address) => self.sockets.put((with.one()?, address, false)),
            part @ (KeyerPart::Sessiond | KeyerPart::Signer | KeyerPart::Vault { .. }) => {
                self.channels.put((part, with))
            }
        }
    }
}

/// A PPK that the signer has.
pub(crate) struct SharedPpk {
    /// Who shares it: on a server this host, on a workstation the server.
    host: Option<HostName>,
    id: PpkId,
    mandatory: bool,
}

/// Takes the kit, enters the sandbox and tells the warden. `None`: the warden does not need us any more.
///
/// # Errors
/// What is missing or wrong; the process must then end.
pub fn start() -> Result<Option<Started>, Fatal> {
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(None) };
    let place = beginning.place;
    let fault = |why: String| Fatal::new("begin", why);
    let arguments = arguments(std::env::args().skip(1)).map_err(fault)?;
    let certificates = given.authority.needed("authority")?;
    let steering = given.steering.needed("steering key")?;
    let authority = Authority { certificates, suites: arguments.suites.unwrap_or_default() };
    let (lists, chain) = (given.lists.get().unwrap_or_default(), given.chain.needed("certificate")?);
    let anchors = authority.anchors(&lists).map_err(fault)?;
    let believed = Believed { chain, anchors, suites: authority.suites, server: given.server.get() };
    let mut config = config(believed, &given.ppks.all(), place).map_err(fault)?;
    config.timers.liveness = arguments.liveness.or(config.timers.liveness);
    config.timers.tries = arguments.tries.unwrap_or(config.timers.tries);
    let (mut events, mut sockets) = (Events::new()?, Sockets::default());
    for (fd, address, marker) in given.sockets.all() {
        sockets.add(fd, address, marker, &mut events)?;
    }
    let warden = beginning.confine(&Sandbox::new(FILTER))?.ready(&mut events, Source::Warden)?;
    let channels = given.channels.all();
    Ok(Some(Started { events, warden, place, config, authority, sockets, steering, channels }))
}

fn certificates(fd: &OwnedFd) -> Result<Vec<Vec<u8>>, Fatal> {
    CertificateDer::pem_slice_iter(&levee_daemon::pem(fd)?)
        .map(|der| der.map(|der| der.to_vec()).map_err(|e| Fatal::new("read a file with certificates", e)))
        .collect()
}

/// Between levee hosts ML-KEM is in every IKE SA beside an elliptic curve (RFC 9370), so that who records today learns nothing with a
/// quantum computer tomorrow: a workstation asks for nothing less. Other clients may do without.
fn proposals(place: Place, suites: Suites) -> Vec<IkeProposal> {
    let default = |additional| IkeProposal { additional, ..IkeProposal::default() };
    let (small, large) = (KeyExchange::MlKem768, KeyExchange::MlKem1024);
    match (suites, place) {
        (Suites::Default, Place::Workstation) => vec![default(vec![vec![small]])],
        (Suites::Default, Place::Server) => vec![default(vec![vec![small, large]]), default(vec![])],
        (Suites::Cnsa, Place::Server) => {
            vec![IkeProposal::cnsa(vec![vec![large]]), IkeProposal::cnsa(vec![])]
        }
        (Suites::Cnsa | Suites::CnsaMlKem, _) => vec![IkeProposal::cnsa(vec![vec![large]])],
    }
}

/// The signatures that a peer, and whoever vouches for it, is believed by.
fn schemes(suites: Suites) -> &'static [SignatureScheme] {
    match suites {
        Suites::Default => &SignatureScheme::DEFAULT,
        Suites::Cnsa | Suites::CnsaMlKem => &[SignatureScheme::EcdsaP384Sha384],
    }
}

/// A host that shares a PPK with us is a peer of its own, found before the one that stands for all others. Its second PPK is the one
/// before the first.
fn peers(all: Peer, ppks: &[SharedPpk]) -> Vec<Peer> {
    let octets = |id: &PpkId| id.as_str().as_bytes().to_vec();
    let sharing = |(at, SharedPpk { host, id, mandatory }): (usize, &SharedPpk)| {
        let mut of_host = ppks.iter().enumerate().filter(|(_, ppk)| ppk.host == *host);
        if of_host.next()?.0 != at {
            return None;
        }
        let remote_id = host.as_ref().map(|host| RemoteId::Exactly(Identity::Fqdn(host.to_string())));
        let former = of_host.next().map(|(_, ppk)| octets(&ppk.id));
        let ppk = Ppk { id: octets(id), former, mandatory: *mandatory };
        let remote_id = remote_id.unwrap_or_else(|| all.remote_id.clone());
        Some(Peer { remote_id, ppk: Some(ppk), ..all.clone() })
    };
    ppks.iter().enumerate().filter_map(sharing).chain([all.clone()]).collect()
}

/// By what we are believed, and what we believe.
pub(crate) struct Believed {
    pub(crate) chain: Vec<Vec<u8>>,
    pub(crate) anchors: Arc<TrustAnchors>,
    pub(crate) suites: Suites,
    /// On a workstation: the server.
    pub(crate) server: Option<DomainName>,
}

pub(crate) fn config(believed: Believed, ppks: &[SharedPpk], place: Place) -> Result<Config, String> {
    let Believed { chain, anchors, suites, server } = believed;
    let own = chain.first().ok_or("the warden attached no certificate")?;
    let [name] = &*dns_names(own) else { return Err("our certificate does not have one name".into()) };
    let scheme = SignatureScheme::of_certificate(own)
        .filter(|scheme| {
            [SignatureScheme::EcdsaP256Sha256, SignatureScheme::EcdsaP384Sha384].contains(scheme)
        })
        .ok_or("our certificate's key is neither for ECDSA on P-256 nor on P-384")?;
    if !schemes(suites).contains(&scheme) {
        return Err(format!(
            "the suites are `{suites}`, and our certificate's key does not fit them: enrol anew"
        ));
    }
    let remote_id = match place {
        Place::Server => RemoteId::AnyCertified,
        Place::Workstation => {
            let server = server.ok_or("the warden attached no server")?;
            RemoteId::Exactly(Identity::Fqdn(server.to_string()))
        }
    };
    let peer = Peer {
        local_id: Identity::Fqdn(name.clone()),
        remote_id,
        local_auth: LocalAuth::Certificate { chain, schemes: vec![scheme] },
        remote_auth: RemoteAuth::Certificate { anchors, schemes: schemes(suites).to_vec() },
        // Between levee hosts every child has a key exchange of its own (RFC 6023); others may do without at first.
        childless: match place {
            Place::Server => Childless::Allow,
            Place::Workstation => Childless::Force,
        },
        ppk: None,
    };
    let mut config = Config::new(peers(peer, ppks));
    config.ike = proposals(place, suites);
    config.child = match suites {
        Suites::Default => config.child,
        Suites::Cnsa | Suites::CnsaMlKem => vec![ChildProposal::cnsa()],
    };
    if place == Place::Workstation {
        config.timers.liveness = Some(LIVENESS);
        config.timers.tries = TRIES;
    }
    Ok(config)
}
