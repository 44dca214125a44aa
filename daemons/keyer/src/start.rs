//! From the first instruction to the sandbox: collect what the warden hands out, then give up the rest.

use crate::net::Sockets;
use levee_ike::{
    Childless, Config, Identity, LocalAuth, Peer, RemoteAuth, RemoteId, SignatureScheme, TrustAnchors,
    dns_names,
};
use levee_ipc::warden::{Attachment, CONTROL_FD, FromWarden, Place, ToWarden};
use levee_ipc::{Channel, Received, RecvError};
use levee_policy::DomainName;
use levee_sys::sandbox::Sandbox;
use levee_sys::seccomp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
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

/// What the keyer begins with.
#[derive(Debug)]
pub struct Started {
    /// Channel to the warden.
    pub control: Channel,
    /// Server or workstation.
    pub place: Place,
    /// Whom to believe, and how.
    pub config: Config,
    /// The sockets.
    pub sockets: Sockets,
    /// Channels to other daemons, to be taken like any that come later.
    pub channels: Vec<(Attachment, OwnedFd)>,
}

#[derive(Default)]
struct Given {
    chain: Vec<Vec<u8>>,
    authority: Vec<Vec<u8>>,
    server: Option<DomainName>,
    channels: Vec<(Attachment, OwnedFd)>,
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
            (FromWarden::Attach(Attachment::Server { name, .. }), None) => given.server = Some(name),
            (FromWarden::Attach(Attachment::Chain), Some(fd)) => given.chain = certificates(fd)?,
            (FromWarden::Attach(Attachment::Authority), Some(fd)) => given.authority = certificates(fd)?,
            (FromWarden::Attach(Attachment::Udp(address)), Some(fd)) => sockets.add(fd, address, true),
            (FromWarden::Attach(Attachment::Ike(address)), Some(fd)) => sockets.add(fd, address, false),
            (FromWarden::Attach(attachment), Some(fd)) => given.channels.push((attachment, fd)),
            (other, _) => return Err(format!("the warden sent {other:?}")),
        }
    };
    let config = config(&given, place)?;
    Sandbox::new(seccomp::KEYER).enter().map_err(|e| e.to_string())?;
    control.send(&ToWarden::Ready).map_err(|e| format!("to the warden: {e}"))?;
    Ok(Some(Started { control, place, config, sockets, channels: given.channels }))
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

fn config(given: &Given, place: Place) -> Result<Config, String> {
    let own = given.chain.first().ok_or("the warden attached no certificate")?;
    let [name] = &*dns_names(own) else { return Err("our certificate does not have one name".into()) };
    let anchors = TrustAnchors::new(&given.authority, &[]).map_err(|e| e.to_string())?;
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
        // The signer's keys are all of this kind.
        local_auth: LocalAuth::Certificate {
            chain: given.chain.clone(),
            schemes: vec![SignatureScheme::EcdsaP256Sha256],
        },
        remote_auth: RemoteAuth::Certificate {
            anchors: Arc::new(anchors),
            schemes: SignatureScheme::DEFAULT.to_vec(),
        },
        // Between levee hosts every child has a key exchange of its own (RFC 6023); others may do without at first.
        childless: match place {
            Place::Server => Childless::Allow,
            Place::Workstation => Childless::Force,
        },
        ppk: None,
    };
    let mut config = Config::new(vec![peer]);
    if place == Place::Workstation {
        config.timers.liveness = Some(LIVENESS);
        config.timers.tries = TRIES;
    }
    Ok(config)
}
