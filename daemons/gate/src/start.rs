//! From the first instruction to the sandbox.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use levee_ipc::agree::FromStack;
use levee_ipc::warden::{Attachment, CONTROL_FD, FromWarden, Place, Role, ToWarden};
use levee_ipc::{Channel, Received};
use levee_sys::sandbox::Sandbox;
use levee_sys::seccomp;
use rustix::fs::OFlags;

use crate::stacks::Stack;

/// The most UDP sockets: one for each outer address of the server.
const MOST_SOCKETS: usize = 32;
/// How long a stack may take to start.
const BEGINNING: Duration = Duration::from_secs(20);

/// Why the gate ends.
#[derive(Debug)]
pub struct Fatal {
    step: &'static str,
    why: String,
}

impl Fatal {
    /// `step` failed because of `why`.
    pub fn new(step: &'static str, why: impl fmt::Display) -> Self {
        Self { step, why: why.to_string() }
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.why)
    }
}

/// A UDP socket of a steering group.
pub struct Socket {
    /// Its descriptor, non-blocking.
    pub fd: OwnedFd,
    /// The local address.
    pub address: SocketAddr,
}

/// Everything that the gate works with.
pub struct Started {
    /// Channel to the warden.
    pub control: Channel,
    /// Channel to sessiond.
    pub sessiond: Option<Channel>,
    /// Channel to the keyer.
    pub keyer: Option<Channel>,
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
    loop {
        let received: Received<FromWarden> =
            control.recv().map_err(|why| Fatal::new("hear the warden", why))?;
        let Received { message, mut fds } = received;
        let attachment = match message {
            FromWarden::Begin(Place::Server) => break,
            FromWarden::Attach(attachment) => attachment,
            other => {
                return Err(Fatal::new("hear the warden", format!("{other:?} before the beginning")));
            }
        };
        let (Some(fd), true) = (fds.pop(), fds.is_empty()) else {
            return Err(Fatal::new(
                "take an attachment",
                format!("{attachment:?} needs exactly one descriptor"),
            ));
        };
        match attachment {
            Attachment::Peer { role: Role::Sessiond, .. } => sessiond = Some(Channel::from_fd(fd)),
            Attachment::Peer { role: Role::Keyer, .. } => keyer = Some(Channel::from_fd(fd)),
            Attachment::Peer { role: Role::Stack, .. } => first = Some(Channel::from_fd(fd)),
            Attachment::Peer { role: Role::Witness, .. } => second = Some(Channel::from_fd(fd)),
            Attachment::Tun { .. } => tun = Some(whole_packets(fd)?),
            Attachment::Udp(address) if sockets.len() < MOST_SOCKETS => {
                unblock(&fd)?;
                sockets.push(Socket { fd, address });
            }
            other => return Err(Fatal::new("take an attachment", format!("{other:?} is not for a gate"))),
        }
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
    Ok(Started { control, sessiond, keyer, tun, sockets, first, second })
}

/// A queue whose packets come one by one, with nothing before them: what two stacks are to agree about must be one thing.
fn whole_packets(fd: OwnedFd) -> Result<OwnedFd, Fatal> {
    unblock(&fd)?;
    match levee_sys::tun::has_vnet_header(fd.as_fd()) {
        Ok(false) => Ok(fd),
        Ok(true) => Err(Fatal::new("take the TUN queue", "it has offloads, which a gate cannot do with")),
        Err(why) => Err(Fatal::new("ask the TUN queue", why)),
    }
}

fn unblock(fd: &OwnedFd) -> Result<(), Fatal> {
    let set = || rustix::fs::fcntl_setfl(fd, rustix::fs::fcntl_getfl(fd)? | OFlags::NONBLOCK);
    set().map_err(|why| Fatal::new("make a descriptor non-blocking", why))
}
