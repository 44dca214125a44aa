//! What stands at a label's tunnel, be it a vault, a gate or a stack: from its first instruction to the sandbox, and the
//! channels that it has afterwards.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use levee_session::SessionId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::agree::{FromStack, ToStack};
use crate::vault::{VaultToKeyer, VaultToSessiond};
use crate::warden::{Attachment, FromWarden, Place, Role, ToWarden};
use crate::{Channel, Outbox, Received, RecvError};

/// Why the process ends.
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

/// Gives `take` each attachment with its descriptor until the warden says that it is time to begin; answers where.
///
/// # Errors
/// When the warden is gone or says something else, and what `take` finds wrong.
pub fn attachments(
    control: &Channel,
    mut take: impl FnMut(Attachment, OwnedFd) -> Result<(), Fatal>,
) -> Result<Place, Fatal> {
    loop {
        let received: Received<FromWarden> =
            control.recv().map_err(|why| Fatal::new("hear the warden", why))?;
        let Received { message, mut fds } = received;
        let attachment = match message {
            FromWarden::Begin(place) => return Ok(place),
            FromWarden::Attach(attachment) => attachment,
            other => {
                return Err(Fatal::new("hear the warden", format!("{other:?} before the beginning")));
            }
        };
        match (fds.pop(), fds.is_empty()) {
            (Some(fd), true) => take(attachment, fd)?,
            _ => {
                let why = format!("{attachment:?} needs exactly one descriptor");
                return Err(Fatal::new("take an attachment", why));
            }
        }
    }
}

/// What is wrong with an attachment that a process of this kind does not take.
pub fn not_for(kind: &str, attachment: &Attachment) -> Fatal {
    Fatal::new("take an attachment", format!("{attachment:?} is not for a {kind}"))
}

/// Makes a descriptor non-blocking.
///
/// # Errors
/// The kernel's.
pub fn unblock(fd: &OwnedFd) -> Result<(), Fatal> {
    let set = || fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK);
    set().map_err(|why| Fatal::new("make a descriptor non-blocking", why))
}

/// A UDP socket of a steering group.
#[derive(Debug)]
pub struct Socket {
    /// Its descriptor, non-blocking.
    pub fd: OwnedFd,
    /// The local address.
    pub address: SocketAddr,
}

impl Socket {
    /// The most of one process: one for each outer address of the server.
    pub const MOST: usize = 32;

    /// Adds a socket to those that came before it.
    ///
    /// # Errors
    /// When there are too many.
    pub fn attach(to: &mut Vec<Self>, fd: OwnedFd, address: SocketAddr) -> Result<(), Fatal> {
        if to.len() >= Self::MOST {
            return Err(Fatal::new("take an attachment", format!("more than {} UDP sockets", Self::MOST)));
        }
        unblock(&fd)?;
        to.push(Self { fd, address });
        Ok(())
    }

    /// The number of the socket by which `address` is reached; `None` when there is none of its family.
    pub fn reaching(all: &[Self], address: SocketAddr) -> Option<usize> {
        all.iter().position(|socket| socket.address.is_ipv4() == address.is_ipv4())
    }
}

/// The channels of a vault or gate that works. When sessiond or the keyer is gone, what is established runs on; when the
/// warden is gone, it is time to end.
#[derive(Debug)]
pub struct Peers {
    control: Channel,
    /// To sessiond; on a workstation to the TPE.
    pub sessiond: Outbox<VaultToSessiond>,
    /// To the keyer.
    pub keyer: Outbox<VaultToKeyer>,
    /// Sessions named on this channel to sessiond, until it says that it has named all.
    named: Option<BTreeSet<SessionId>>,
}

impl Peers {
    /// With these channels.
    pub fn new(control: Channel, sessiond: Option<Channel>, keyer: Option<Channel>) -> Self {
        let mut peers =
            Self { control, sessiond: Outbox::new(), keyer: Outbox::new(), named: Some(BTreeSet::new()) };
        if let Some(channel) = sessiond {
            peers.sessiond.replace(channel);
        }
        if let Some(channel) = keyer {
            peers.keyer.replace(channel);
        }
        peers
    }

    /// The channel to the warden.
    pub fn control(&self) -> &Channel {
        &self.control
    }

    /// Does what the warden says. False when it is time to end.
    ///
    /// # Errors
    /// When it says what is not for a process that works.
    pub fn hear_warden(&mut self) -> Result<bool, Fatal> {
        loop {
            let Received { message, fds } = match self.control.try_recv::<FromWarden>() {
                Ok(received) => received,
                Err(RecvError::Empty) => return Ok(true),
                Err(RecvError::Closed) => return Ok(false),
                Err(why) => return Err(Fatal::new("hear the warden", why)),
            };
            let mut fds = fds.into_iter();
            match (message, fds.next(), fds.next()) {
                (FromWarden::Stop, ..) => return Ok(false),
                (FromWarden::Attach(Attachment::Peer { role, .. }), Some(fd), None) => match role {
                    Role::Sessiond | Role::Tpe => {
                        // It names every session anew; those that it does not name end with `Synced`.
                        self.named = Some(BTreeSet::new());
                        self.sessiond.replace(Channel::from_fd(fd));
                    }
                    Role::Keyer => self.keyer.replace(Channel::from_fd(fd)),
                    _ => {
                        let why = format!("a {role:?} is no peer of a process at a tunnel");
                        return Err(Fatal::new("hear the warden", why));
                    }
                },
                (message, ..) => {
                    let why = format!("{message:?} is not for a process that works");
                    return Err(Fatal::new("hear the warden", why));
                }
            }
        }
    }

    /// Tells sessiond that a session is open.
    pub fn opened(&mut self, id: SessionId) {
        if let Some(named) = &mut self.named {
            named.insert(id);
        }
        self.sessiond.send(VaultToSessiond::Opened(id));
    }

    /// Tells sessiond that a session is closed: nothing of it is left.
    pub fn closed(&mut self, id: SessionId) {
        if let Some(named) = &mut self.named {
            named.remove(&id);
        }
        self.sessiond.send(VaultToSessiond::Closed(id));
    }

    /// Of the sessions that are open, those that sessiond has not named: to be closed, now that it has named all.
    pub fn unnamed(&mut self, open: impl IntoIterator<Item = SessionId>) -> Vec<SessionId> {
        let Some(named) = self.named.take() else { return Vec::new() };
        open.into_iter().filter(|id| !named.contains(id)).collect()
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        self.sessiond.flush();
        self.keyer.flush();
    }
}

/// All that a stack has, where two must agree: a channel to the warden, one to the gate that asks, and the label's slot.
#[derive(Debug)]
pub struct Seat {
    control: Channel,
    gate: Channel,
    slot: Option<u16>,
}

impl Seat {
    /// Takes what the warden hands out on `control` until it is time to begin.
    ///
    /// # Errors
    /// As [`attachments`]; or what is missing.
    pub fn take(control: OwnedFd) -> Result<Self, Fatal> {
        let control = Channel::from_fd(control);
        let mut gate = None;
        let place = attachments(&control, |attachment, fd| match attachment {
            Attachment::Peer { role: Role::Vault, slot, .. } => {
                gate = Some((Channel::from_fd(fd), slot));
                Ok(())
            }
            other => Err(not_for("stack", &other)),
        })?;
        match (place, gate) {
            (Place::Server, Some((gate, slot))) => Ok(Self { control, gate, slot }),
            (Place::Server, None) => Err(Fatal::new("begin", "no channel to the gate was attached")),
            (Place::Workstation, _) => Err(Fatal::new("begin", "stacks are a server's")),
        }
    }

    /// The label's steering slot.
    pub fn slot(&self) -> Option<u16> {
        self.slot
    }

    /// Says that the stack is sandboxed and at work, and has `answer` answer the gate until the warden says that it is over,
    /// or warden or gate is gone.
    ///
    /// # Errors
    /// When a channel fails, and what `answer` finds wrong.
    pub fn serve(self, mut answer: impl FnMut(ToStack) -> Result<FromStack, Fatal>) -> Result<(), Fatal> {
        let Self { control, gate, .. } = self;
        control.send(&ToWarden::Ready).map_err(|why| Fatal::new("tell the warden", why))?;
        gate.send(&FromStack::Ready).map_err(|why| Fatal::new("tell the gate", why))?;
        loop {
            let mut fds = [PollFd::new(&control, PollFlags::IN), PollFd::new(&gate, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(why) => return Err(Fatal::new("wait", why)),
            }
            let [told, asked] = fds.map(|fd| !fd.revents().is_empty());
            if told {
                // It says nothing to a running stack but that it is over.
                return Ok(());
            }
            if !asked {
                continue;
            }
            match gate.try_recv::<ToStack>() {
                Ok(Received { message, .. }) => {
                    let said = answer(message)?;
                    gate.send(&said).map_err(|why| Fatal::new("answer the gate", why))?;
                }
                Err(RecvError::Empty) => {}
                Err(RecvError::Closed) => return Ok(()),
                Err(why) => return Err(Fatal::new("hear the gate", why)),
            }
        }
    }
}
