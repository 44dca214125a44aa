//! What stands at a label's tunnel, be it a vault, a gate or a stack.

mod ciphers;

pub use ciphers::Ciphers;

use crate::{Descriptors, Events, Fatal, Kit, One, Order, Outbox, Warden, Watched, begin};
use levee_ipc::Channel;
use levee_ipc::agree::{FromStack, ToStack};
use levee_ipc::vault::{VaultToKeyer, VaultToSessiond};
use levee_ipc::warden::{Place, stack};
use levee_session::SessionId;
use levee_sys::sandbox::Sandbox;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The system calls that a stack of two that must agree may make.
const STACK: &str = include_str!("../../../conf/seccomp/stack.toml");

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
    pub fd: Watched<OwnedFd>,
    /// The local address.
    pub address: SocketAddr,
}

impl Socket {
    /// The most of one process: one for each outer address of the server.
    pub const MOST: usize = 32;

    /// Those that the warden has given; each is waited for as `source` says of its number.
    ///
    /// # Errors
    /// The kernel's.
    pub fn all<T: Clone>(
        given: Vec<(OwnedFd, SocketAddr)>,
        events: &mut Events<T>,
        source: impl Fn(usize) -> T,
    ) -> Result<Vec<Self>, Fatal> {
        let watch = |(number, (fd, address)): (usize, (OwnedFd, SocketAddr))| {
            unblock(&fd)?;
            let fd = events.watch(fd, source(number)).map_err(|why| Fatal::new("wait for a socket", why))?;
            Ok(Self { fd, address })
        };
        given.into_iter().enumerate().map(watch).collect()
    }

    /// Whether it is on the loopback interface, where the second tunnel's end is: nothing else comes or goes by it.
    pub fn is_within(&self) -> bool {
        self.address.ip().is_loopback()
    }

    /// The number of the socket by which `address` is reached; `None` when there is none of its family.
    pub fn reaching(all: &[Self], address: SocketAddr) -> Option<usize> {
        let family = |socket: &Self| socket.address.is_ipv4() == address.is_ipv4();
        let near = |socket: &Self| family(socket) && socket.is_within() == address.ip().is_loopback();
        all.iter().position(near).or_else(|| all.iter().position(family))
    }
}

/// The channels of a vault or gate that works, but the warden's. When sessiond or the keyer is gone, what is established runs on.
#[derive(Debug)]
pub struct Peers {
    /// To sessiond; on a workstation to the TPE.
    pub sessiond: Outbox<VaultToSessiond>,
    /// To the keyer.
    pub keyer: Outbox<VaultToKeyer>,
    /// Sessions named on this channel to sessiond, until it says that it has named all.
    named: Option<BTreeSet<SessionId>>,
}

impl Default for Peers {
    fn default() -> Self {
        Self { sessiond: Outbox::new(), keyer: Outbox::new(), named: Some(BTreeSet::new()) }
    }
}

impl Peers {
    /// Those that the warden has given; either may come later.
    ///
    /// # Errors
    /// One of them cannot be waited for.
    pub fn given<T: Clone>(
        sessiond: One<Channel>,
        keyer: One<Channel>,
        events: &mut Events<T>,
        [of_sessiond, of_keyer]: [T; 2],
    ) -> Result<Self, Fatal> {
        let mut peers = Self::default();
        if let Some(channel) = sessiond.get() {
            peers.sessiond_came(channel, events, of_sessiond)?;
        }
        if let Some(channel) = keyer.get() {
            peers.keyer.replace(channel, events, of_keyer)?;
        }
        Ok(peers)
    }

    /// Takes the channel to sessiond. It names every session anew; those that it does not name end with `Synced`.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn sessiond_came<T: Clone>(
        &mut self,
        channel: Channel,
        events: &mut Events<T>,
        source: T,
    ) -> Result<(), Fatal> {
        self.named = Some(BTreeSet::new());
        self.sessiond.replace(channel, events, source)
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
}

/// All that a stack is given, where two must agree: a channel to the gate that asks.
#[derive(Debug, Default)]
struct Seat {
    gate: One<Channel>,
}

impl Kit for Seat {
    type Part = stack::StackPart;

    fn take(&mut self, part: stack::StackPart, with: Descriptors) -> Result<(), Fatal> {
        let stack::StackPart::Gate = part;
        self.gate.put(with.channel()?)
    }
}

/// A stack that answers.
pub trait Stack {
    /// In its sandbox.
    fn new() -> Self;

    /// Its answer to the gate.
    ///
    /// # Errors
    /// What it cannot be asked.
    fn answer(&mut self, question: ToStack) -> Result<FromStack, Fatal>;
}

/// Has a stack answer the gate until the warden says that it is over, or warden or gate is gone.
///
/// # Errors
/// When a channel fails, and what the stack cannot be asked.
pub fn answer<S: Stack>() -> Result<(), Fatal> {
    #[derive(Clone)]
    enum Source {
        Warden,
        Gate,
    }
    let Some((seat, beginning)) = begin::<Seat>()? else { return Ok(()) };
    if beginning.place != Place::Server {
        return Err(Fatal::new("begin", "stacks are a server's"));
    }
    let channel = seat.gate.needed("channel to the gate")?;
    let mut events = Events::new()?;
    let confined = beginning.confine(&Sandbox::new(STACK))?;
    let mut stack = S::new();
    let mut warden: Warden<stack::StackPart> = confined.ready(&mut events, Source::Warden)?;
    let mut gate = Outbox::new();
    gate.replace(channel, &mut events, Source::Gate)?;
    gate.send(FromStack::Ready);
    loop {
        for (source, _) in events.wait(None)? {
            match source {
                Source::Warden => match warden.hear()? {
                    None => {}
                    Some(Order::Stop) => return Ok(()),
                    Some(Order::Take(part, _)) => return Err(Warden::unwanted(&part)),
                },
                Source::Gate => match gate.hear::<ToStack>() {
                    Ok(Some(question)) => gate.send(stack.answer(question)?),
                    Ok(None) => {}
                    Err(crate::Lost::Gone) => return Ok(()),
                    Err(why) => return Err(Fatal::new("hear the gate", why)),
                },
            }
        }
    }
}
