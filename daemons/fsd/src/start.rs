//! From the first instruction to the sandbox.

use crate::etcd::Place;
use crate::http::Target;
use levee_ipc::warden::{Attachment, CONTROL_FD, FromWarden, Role, ToWarden};
use levee_ipc::{Channel, Received, RecvError};
use levee_policy::site::Suites;
use levee_policy::{DomainName, SiteName};
use levee_sys::sandbox::Sandbox;
use levee_tls::SignerHandle;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Files with certificates are not larger.
const MAX_PEM: u64 = 1024 * 1024;

/// What it begins with.
pub struct Started {
    pub control: Channel,
    pub sessiond: Channel,
    pub signer: SignerHandle,
    pub target: Target,
    pub place: Place,
}

fn contents(fd: OwnedFd) -> Result<Vec<u8>, String> {
    let fault = |e: std::io::Error| format!("a memory file: {e}");
    let (mut file, mut bytes) = (File::from(fd), Vec::new());
    file.rewind().map_err(fault)?;
    file.take(MAX_PEM).read_to_end(&mut bytes).map_err(fault)?;
    Ok(bytes)
}

/// Collects the attachments, enters the sandbox and tells the warden. `None`: the warden does not need us any more.
pub fn start(suites: Suites) -> Result<Option<Started>, String> {
    let control = Channel::from_fd(levee_sys::fork::inherited(CONTROL_FD).map_err(|e| e.to_string())?);
    let (mut chain, mut authority, mut sessiond) = (None, None, None);
    let signer = SignerHandle::new();
    let mut members: Vec<(SocketAddr, DomainName)> = Vec::new();
    let mut place: Option<(SiteName, DomainName)> = None;
    loop {
        let Received { message, mut fds } = match control.recv::<FromWarden>() {
            Ok(received) => received,
            Err(RecvError::Closed) => return Ok(None),
            Err(error) => return Err(format!("from the warden: {error}")),
        };
        match (message, fds.pop()) {
            (FromWarden::Begin(_), _) => break,
            (FromWarden::Stop, _) => return Ok(None),
            (FromWarden::Attach(Attachment::Server { address, name }), None) => members.push((address, name)),
            (FromWarden::Attach(Attachment::Member { site, server }), None) => place = Some((site, server)),
            (FromWarden::Attach(Attachment::Chain), Some(fd)) => chain = Some(contents(fd)?),
            (FromWarden::Attach(Attachment::Authority), Some(fd)) => authority = Some(contents(fd)?),
            (FromWarden::Attach(Attachment::Peer { role: Role::Sessiond, .. }), Some(fd)) => {
                sessiond = Some(Channel::from_fd(fd));
            }
            (FromWarden::Attach(Attachment::Peer { role: Role::Signer, .. }), Some(fd))
            | (FromWarden::Attach(Attachment::SignerClient(_)), Some(fd)) => {
                signer.set(Channel::from_fd(fd));
            }
            (other, _) => return Err(format!("the warden sent {other:?}")),
        }
    }
    let missing = |what: &str| format!("the warden attached no {what}");
    let (chain, authority) =
        (chain.ok_or_else(|| missing("chain"))?, authority.ok_or_else(|| missing("authority"))?);
    let (site, me) = place.ok_or_else(|| missing("place"))?;
    let name = members.first().map(|(_, name)| name.clone()).ok_or_else(|| missing("etcd"))?;
    let target = Target {
        config: levee_tls::client(&chain, &authority, None, &signer, suites).map_err(|e| e.to_string())?,
        name: levee_tls::server_name(&name).map_err(|e| e.to_string())?,
        members: members.into_iter().map(|(address, _)| address).collect(),
    };
    let Some(sessiond) = sessiond else { return Err(missing("sessiond")) };
    Sandbox { tcp: true, ..Sandbox::new(levee_sys::seccomp::FSD) }.enter().map_err(|e| e.to_string())?;
    control.send(&ToWarden::Ready).map_err(|e| format!("to the warden: {e}"))?;
    Ok(Some(Started { control, sessiond, signer, target, place: Place { site, me } }))
}
