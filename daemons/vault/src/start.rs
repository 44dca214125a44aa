//! From the first instruction to the sandbox: collect what the warden hands out, then give up the rest.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use levee_aead::Library;
use levee_esp::Suite;
use levee_ipc::Channel;
use levee_ipc::tunnel::{self, Fatal, Peers, Socket};
use levee_ipc::warden::{Attachment, CONTROL_FD, Place, Role, ToWarden};
use levee_sys::sandbox::Sandbox;
use levee_sys::seccomp;

use crate::device::Tun;

/// Everything that the vault works with.
pub struct Started {
    /// The channels to warden, sessiond (on a workstation the TPE) and keyer.
    pub peers: Peers,
    /// The TUN queue.
    pub tun: Tun,
    /// The UDP sockets, in the order in which they came.
    pub sockets: Vec<Socket>,
    /// Our slot, where the warden says it.
    pub slot: Option<u16>,
    /// Server or workstation.
    pub place: Place,
    /// The library for each suite, in the order of [`Suite::ALL`].
    pub libraries: [Library; 3],
    /// How long to look for more before blocking.
    pub latency: Duration,
}

/// Collects the attachments, chooses the AEAD libraries, enters the sandbox and tells the warden.
///
/// # Errors
/// The step that failed; the process must then end.
pub fn start() -> Result<Started, Fatal> {
    let Options { libraries, latency } = options(std::env::args().skip(1))?;
    let control =
        levee_sys::fork::inherited(CONTROL_FD).map_err(|why| Fatal::new("take over the channel", why))?;
    let control = Channel::from_fd(control);
    let (mut sessiond, mut keyer, mut tun, mut sockets, mut slot) = (None, None, None, Vec::new(), None);
    let place = tunnel::attachments(&control, |attachment, fd| {
        match attachment {
            Attachment::Peer { role: Role::Sessiond | Role::Tpe, slot: given, .. } => {
                slot = given.or(slot);
                sessiond = Some(Channel::from_fd(fd));
            }
            Attachment::Peer { role: Role::Keyer, slot: given, .. } => {
                slot = given.or(slot);
                keyer = Some(Channel::from_fd(fd));
            }
            Attachment::Tun { mtu } => tun = Some(open_tun(fd, mtu)?),
            Attachment::Udp(address) => Socket::attach(&mut sockets, fd, address)?,
            other => return Err(tunnel::not_for("vault", &other)),
        }
        Ok(())
    })?;
    let tun = tun.ok_or_else(|| Fatal::new("begin", "no TUN queue was attached"))?;
    if sockets.is_empty() {
        return Err(Fatal::new("begin", "no UDP socket was attached"));
    }
    Sandbox::new(seccomp::VAULT).enter().map_err(|why| Fatal::new("enter the sandbox", why))?;
    control.send(&ToWarden::Ready).map_err(|why| Fatal::new("tell the warden", why))?;
    let peers = Peers::new(control, sessiond, keyer);
    Ok(Started { peers, tun, sockets, slot, place, libraries, latency })
}

fn open_tun(fd: OwnedFd, mtu: u16) -> Result<Tun, Fatal> {
    tunnel::unblock(&fd)?;
    let vnet =
        levee_sys::tun::has_vnet_header(fd.as_fd()).map_err(|why| Fatal::new("ask the TUN queue", why))?;
    Ok(Tun { fd, mtu, vnet })
}

/// What the warden says on the command line.
#[derive(Debug)]
struct Options {
    libraries: [Library; 3],
    latency: Duration,
}

/// Longest time to poll before blocking; more would burn a processor for next to nothing.
const LONGEST_POLL: Duration = Duration::from_millis(10);

/// `--aead NAME` takes one library for every suite, else the faster one for each; `--latency MICROSECONDS` polls for
/// so long before it blocks, else not at all.
fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, Fatal> {
    let (mut named, mut latency) = (None, Duration::ZERO);
    while let Some(flag) = arguments.next() {
        let value =
            arguments.next().ok_or_else(|| Fatal::new("read the arguments", format!("{flag} alone")))?;
        match flag.as_str() {
            "--aead" => {
                named = Some(value.parse::<Library>().map_err(|why| Fatal::new("read --aead", why))?);
            }
            "--latency" => {
                let time = value.parse().map(Duration::from_micros).ok().filter(|time| *time <= LONGEST_POLL);
                latency = time.ok_or_else(|| Fatal::new("read --latency", "microseconds, up to 10000"))?;
            }
            _ => return Err(Fatal::new("read the arguments", format!("{flag} is unknown"))),
        }
    }
    let mut libraries = [named.unwrap_or(Library::Ring); 3];
    if named.is_none() {
        for (place, suite) in libraries.iter_mut().zip(Suite::ALL) {
            *place = levee_aead::fastest(suite).ok_or_else(|| {
                Fatal::new("choose an AEAD library", format!("none passes its own test of {suite:?}"))
            })?;
        }
    }
    Ok(Options { libraries, latency })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, Fatal> {
        options(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_library_and_a_time_to_poll_are_read_in_any_order() {
        let read = read("--latency 100 --aead aws-lc").unwrap();
        assert_eq!(read.libraries, [Library::AwsLc; 3]);
        assert_eq!(read.latency, Duration::from_micros(100));
    }

    #[test]
    fn without_arguments_a_library_is_chosen_and_nothing_is_polled() {
        assert_eq!(read("").unwrap().latency, Duration::ZERO);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["--aead", "--aead openssl", "--latency -1", "--latency 10001", "--latency x", "--fast 1"]
        {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
