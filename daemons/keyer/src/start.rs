//! From the first instruction to the sandbox: collect what the warden hands out, then give up the rest.

use crate::net::Sockets;
use levee_ike::{
    ChildProposal, Childless, Config, Identity, IkeProposal, KeyExchange, LocalAuth, Peer, Ppk, RemoteAuth,
    RemoteId, SignatureScheme, TrustAnchors, dns_names,
};
use levee_ipc::warden::{Attachment, CONTROL_FD, FromWarden, Place, ToWarden};
use levee_ipc::{Channel, Received, RecvError};
use levee_policy::site::Suites;
use levee_policy::{DomainName, HostName, PpkId};
use levee_sys::sandbox::Sandbox;
use levee_sys::seccomp;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Files with certificates are not larger.
const MAX_PEM: u64 = 1024 * 1024;

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
    /// Channel to the warden.
    pub control: Channel,
    /// Server or workstation.
    pub place: Place,
    /// Whom to believe, and how.
    pub config: Config,
    /// The site's authority.
    pub authority: Authority,
    /// The sockets.
    pub sockets: Sockets,
    /// Channels to other daemons, to be taken like any that come later.
    pub channels: Vec<(Attachment, OwnedFd)>,
}

/// The site's authority, and what it takes to believe it.
#[derive(Debug, Default)]
pub struct Authority {
    certificates: Vec<Vec<u8>>,
    suites: Suites,
}

impl Authority {
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
pub fn revocations(fd: OwnedFd) -> Result<Vec<Vec<u8>>, String> {
    let fault = |e: &dyn std::fmt::Display| format!("a revocation list: {e}");
    let text = levee_ipc::revocations(&fd).map_err(|e| fault(&e))?;
    let lists: Vec<Vec<u8>> = CertificateRevocationListDer::pem_slice_iter(&text)
        .map(|der| der.map(|der| der.to_vec()))
        .collect::<Result<_, _>>()
        .map_err(|e| fault(&e))?;
    if lists.is_empty() { Err(fault(&"there is none in the file")) } else { Ok(lists) }
}

#[derive(Default)]
struct Given {
    lists: Vec<Vec<u8>>,
    chain: Vec<Vec<u8>>,
    authority: Authority,
    server: Option<DomainName>,
    ppks: Vec<SharedPpk>,
    channels: Vec<(Attachment, OwnedFd)>,
}

/// A PPK that the signer has.
struct SharedPpk {
    /// Who shares it: on a server this host, on a workstation the server.
    host: Option<HostName>,
    id: PpkId,
    mandatory: bool,
}

/// Collects the attachments, enters the sandbox and tells the warden. `None`: the warden does not need us any more.
///
/// # Errors
/// What is missing or wrong; the process must then end.
pub fn start() -> Result<Option<Started>, String> {
    let control = Channel::from_fd(levee_sys::fork::inherited(CONTROL_FD).map_err(|e| e.to_string())?);
    let (mut given, mut sockets) = (Given::default(), Sockets::new());
    let place = loop {
        let received = match control.recv::<FromWarden>() {
            Ok(received) => received,
            Err(RecvError::Closed) => return Ok(None),
            Err(error) => return Err(format!("from the warden: {error}")),
        };
        let Received { message, mut fds } = received;
        match (message, fds.pop()) {
            (FromWarden::Begin(place), _) => break place,
            (FromWarden::Stop, _) => return Ok(None),
            (FromWarden::Ppk { host, id, mandatory }, None) => {
                given.ppks.push(SharedPpk { host, id, mandatory })
            }
            (FromWarden::Attach(Attachment::Server { name, .. }), None) => given.server = Some(name),
            (FromWarden::Attach(Attachment::Chain), Some(fd)) => given.chain = certificates(fd)?,
            (FromWarden::Attach(Attachment::Authority), Some(fd)) => {
                given.authority.certificates = certificates(fd)?
            }
            (FromWarden::Attach(Attachment::Revocations), Some(fd)) => given.lists = revocations(fd)?,
            (FromWarden::Attach(Attachment::Udp(address)), Some(fd)) => sockets.add(fd, address, true),
            (FromWarden::Attach(Attachment::Ike(address)), Some(fd)) => sockets.add(fd, address, false),
            (FromWarden::Attach(attachment), Some(fd)) => given.channels.push((attachment, fd)),
            (other, _) => return Err(format!("the warden sent {other:?}")),
        }
    };
    let arguments = arguments(std::env::args().skip(1))?;
    given.authority.suites = arguments.suites.unwrap_or_default();
    let mut config = config(&given, place)?;
    config.timers.liveness = arguments.liveness.or(config.timers.liveness);
    config.timers.tries = arguments.tries.unwrap_or(config.timers.tries);
    Sandbox::new(seccomp::KEYER).enter().map_err(|e| e.to_string())?;
    control.send(&ToWarden::Ready).map_err(|e| format!("to the warden: {e}"))?;
    let Given { authority, channels, .. } = given;
    Ok(Some(Started { control, place, config, authority, sockets, channels }))
}

fn certificates(fd: OwnedFd) -> Result<Vec<Vec<u8>>, String> {
    let mut bytes = Vec::new();
    let file = File::from(fd);
    let fault = |e: &dyn std::fmt::Display| format!("a file with certificates: {e}");
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).map_err(|e| fault(&e))?;
    file.take(MAX_PEM).read_to_end(&mut bytes).map_err(|e| fault(&e))?;
    CertificateDer::pem_slice_iter(&bytes)
        .map(|der| der.map(|der| der.to_vec()).map_err(|e| fault(&e)))
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

/// A host that shares a PPK with us is a peer of its own, found before the one that stands for all others.
fn peers(all: Peer, ppks: &[SharedPpk]) -> Vec<Peer> {
    let sharing = |SharedPpk { host, id, mandatory }: &SharedPpk| {
        let remote_id = host.as_ref().map(|host| RemoteId::Exactly(Identity::Fqdn(host.to_string())));
        let ppk = Ppk { id: id.as_str().as_bytes().to_vec(), mandatory: *mandatory };
        Peer { remote_id: remote_id.unwrap_or_else(|| all.remote_id.clone()), ppk: Some(ppk), ..all.clone() }
    };
    ppks.iter().map(sharing).chain([all.clone()]).collect()
}

fn config(given: &Given, place: Place) -> Result<Config, String> {
    let own = given.chain.first().ok_or("the warden attached no certificate")?;
    let [name] = &*dns_names(own) else { return Err("our certificate does not have one name".into()) };
    let scheme = SignatureScheme::of_certificate(own)
        .filter(|scheme| {
            [SignatureScheme::EcdsaP256Sha256, SignatureScheme::EcdsaP384Sha384].contains(scheme)
        })
        .ok_or("our certificate's key is neither for ECDSA on P-256 nor on P-384")?;
    let suites = given.authority.suites;
    if !schemes(suites).contains(&scheme) {
        return Err(format!(
            "the suites are `{suites}`, and our certificate's key does not fit them: enrol anew"
        ));
    }
    let anchors = given.authority.anchors(&given.lists)?;
    let remote_id = match place {
        Place::Server => RemoteId::AnyCertified,
        Place::Workstation => {
            let server = given.server.as_ref().ok_or("the warden attached no server")?;
            RemoteId::Exactly(Identity::Fqdn(server.to_string()))
        }
    };
    let peer = Peer {
        local_id: Identity::Fqdn(name.clone()),
        remote_id,
        local_auth: LocalAuth::Certificate { chain: given.chain.clone(), schemes: vec![scheme] },
        remote_auth: RemoteAuth::Certificate { anchors, schemes: schemes(suites).to_vec() },
        // Between levee hosts every child has a key exchange of its own (RFC 6023); others may do without at first.
        childless: match place {
            Place::Server => Childless::Allow,
            Place::Workstation => Childless::Force,
        },
        ppk: None,
    };
    let mut config = Config::new(peers(peer, &given.ppks));
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
