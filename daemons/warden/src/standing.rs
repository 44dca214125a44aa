//! What the standing processes of a server and of a workstation have in common.

use crate::key::Key;
use crate::layer::Layer;
use crate::options::Options;
use crate::process::{Process, Started};
use crate::supervisor::Processes;
use crate::{Fatal, state};
use levee_ipc::warden::layer::LayerPart;
use levee_ipc::warden::{Part, Role};
use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// How long the signer may take to decrypt its keys.
const DECRYPTION: Duration = Duration::from_secs(120);

/// A process with its kit, or the step that failed.
pub type Equipped = Result<Process, Box<dyn Error>>;

/// What goes wrong as a process of this role is started.
pub fn not_started(role: Role, why: &dyn std::fmt::Display) -> Fatal {
    Fatal::new(format!("start {}", role.program()), why)
}

/// With a passphrase the signer takes its time, and whether it was the right one is known before anything else is started.
///
/// # Errors
/// It cannot use its keys, which are in `directory`.
pub fn wait_for_signer(processes: &mut Processes, options: &Options, directory: &Path) -> Result<(), Fatal> {
    let signer = processes.get_mut(&Key::of(Role::Signer)).filter(|_| options.passphrase);
    let why = signer.and_then(|signer| signer.begins_within(DECRYPTION));
    why.map_or(Ok(()), |why| Err(Fatal::keys(directory, why)))
}

/// The sockets of a second tunnel.
///
/// # Errors
/// The process is gone.
pub fn give_sockets(layer: &Started<LayerPart>, sockets: &Layer) -> Result<(), Box<dyn Error>> {
    for (address, socket) in &sockets.outer {
        layer.give(LayerPart::Outer(*address), socket)?;
    }
    Ok(layer.give(LayerPart::Inner, &sockets.inner)?)
}

/// Who one end of it is, from a directory of its own.
///
/// # Errors
/// What is not there, or the process is gone.
pub fn give_keys(layer: &Started<LayerPart>, directory: &Path) -> Result<(), Box<dyn Error>> {
    layer.give(LayerPart::Chain, state::copy(&directory.join("chain.pem"))?)?;
    layer.give(LayerPart::Authority, state::copy(&directory.join("authority.pem"))?)?;
    layer.give(LayerPart::Key, state::secret(&directory.join("layer.key"))?)?;
    Ok(())
}

/// Gives a process that begins the revocation list that there is, if there is one.
///
/// # Errors
/// It cannot be read, or the process is gone.
pub fn give_list<P: Part>(process: &Started<P>, part: P, list: &Path) -> Result<(), Box<dyn Error>> {
    state::revocations(list)?.map_or(Ok(()), |list| Ok(process.give(part, list)?))
}

/// Gives a process a list of certificates that are believed no more.
pub type Revoking = fn(&Process, &[BorrowedFd<'_>]) -> bool;

/// Hands these the revocation list that there is now. One that does not read what it is told is killed, and reads the list when it is
/// started again.
///
/// # Errors
/// There is none, or it is not read: why, in words.
pub fn revoke(processes: &Processes, to: &[(Role, Revoking)], list: &Path) -> Result<(), String> {
    for (role, give) in to {
        let list = state::revocations(list).map_err(|e| e.to_string())?.ok_or_else(|| {
            format!("there is no {}", list.file_name().unwrap_or_default().to_string_lossy())
        })?;
        if let Some(process) = processes.get(&Key::of(*role)) {
            give(process, &[list.as_fd()]);
        }
    }
    Ok(())
}
