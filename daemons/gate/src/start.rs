//! From the first instruction to the sandbox.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use levee_ipc::Channel;
use levee_ipc::agree::FromStack;
use levee_ipc::tunnel::{self, Fatal, Peers, Socket};
use levee_ipc::warden::{Attachment, CONTROL_FD, Place, Role, ToWarden};
use levee_sys::sandbox::Sandbox;
use levee_sys::seccomp;

use crate::stacks::Stack;

/// How long a stack may take to start.
const BEGINNING: Duration = Duration::from_secs(20);

/// Everything that the gate works with.
pub struct Started {
    /// The channels to warden, sessiond and keyer.
    pub peers: Peers,
    /// The TUN queue, non-blocking: each read and write is one packet.
    pub tun: OwnedFd,
    /// The UDP sockets, in the order in which they came.
    pub sockets: Vec<Socket>,
    /// The stack that opens and seals.
    pub first: Stack,
    /// The stack that opens and checks.
    pub second: Stack,
}

/// Collects the attachments, waits for both stacks, enters the sandbox and tells the warden.
///
/// # Errors
/// The step that failed; the process must then end.
pub fn start() -> Result<Started, Fatal> {
    let control =
        levee_sys::fork::inherited(CONTROL_FD).map_err(|why| Fatal::new("take over the channel", why))?;
    let control = Channel::from_fd(control);
    let (mut sessiond, mut keyer, mut tun, mut sockets) = (None, None, None, Vec::new());
    let (mut first, mut second) = (None, None);
    let place = tunnel::attachments(&control, |attachment, fd| {
        match attachment {
            Attachment::Peer { role: Role::Sessiond, .. } => sessiond = Some(Channel::from_fd(fd)),
            Attachment::Peer { role: Role::Keyer, .. } => keyer = Some(Channel::from_fd(fd)),
            Attachment::Peer { role: Role::Stack, .. } => first = Some(Channel::from_fd(fd)),
            Attachment::Peer { role: Role::Witness, .. } => second = Some(Channel::from_fd(fd)),
            Attachment::Tun { .. } => tun = Some(whole_packets(fd)?),
            Attachment::Udp(address) => Socket::attach(&mut sockets, fd, address)?,
            other => return Err(tunnel::not_for("gate", &other)),
        }
        Ok(())
    })?;
    if place != Place::Server {
        return Err(Fatal::new("begin", "a gate is a server's"));
    }
    let needed = |what: &'static str| move || Fatal::new("begin", format!("no {what} was attached"));
    let tun = tun.ok_or_else(needed("TUN queue"))?;
    let first = Stack::new("the first stack", first.ok_or_else(needed("channel to the first stack"))?);
    let second = Stack::new("the second stack", second.ok_or_else(needed("channel to the second stack"))?);
    if sockets.is_empty() {
        return Err(needed("UDP socket")());
    }
    Sandbox::new(seccomp::GATE).enter().map_err(|why| Fatal::new("enter the sandbox", why))?;
    for stack in [&first, &second] {
        match stack.answer_within(BEGINNING)? {
            FromStack::Ready => {}
            other => return Err(stack.out_of_turn(&other)),
        }
    }
    control.send(&ToWarden::Ready).map_err(|why| Fatal::new("tell the warden", why))?;
    Ok(Started { peers: Peers::new(control, sessiond, keyer), tun, sockets, first, second })
}

/// A queue whose packets come one by one, with nothing before them: what two stacks are to agree about must be one thing.
fn whole_packets(fd: OwnedFd) -> Result<OwnedFd, Fatal> {
    tunnel::unblock(&fd)?;
    match levee_sys::tun::has_vnet_header(fd.as_fd()) {
        Ok(false) => Ok(fd),
        Ok(true) => Err(Fatal::new("take the TUN queue", "it has offloads, which a gate cannot do with")),
        Err(why) => Err(Fatal::new("ask the TUN queue", why)),
    }
}
