//! From the first instruction to the sandbox.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use levee_daemon::tunnel::{Peers, Socket, unblock};
use levee_daemon::{Descriptors, Events, Fatal, Kit, Many, One, Warden, Watched, begin};
use levee_ipc::Channel;
use levee_ipc::agree::FromStack;
use levee_ipc::warden::Place;
use levee_ipc::warden::vault::GatePart;
use levee_sys::sandbox::Sandbox;
use levee_sys::tun::VNET_HEADER;

use crate::stacks::Stack;

/// The system calls that a gate may make.
const FILTER: &str = include_str!("../../../conf/seccomp/gate.toml");

/// How long a stack may take to start.
const BEGINNING: Duration = Duration::from_secs(20);

/// What the warden gives.
#[derive(Default)]
struct Given {
    tun: One<OwnedFd>,
    sockets: Many<(OwnedFd, SocketAddr), { Socket::MOST }>,
    sessiond: One<Channel>,
    keyer: One<Channel>,
    first: One<Channel>,
    second: One<Channel>,
}

impl Kit for Given {
    type Part = GatePart;

    fn take(&mut self, part: GatePart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            GatePart::Tun => self.tun.put(with.one()?),
            GatePart::Udp(address) => self.sockets.put((with.one()?, address)),
            GatePart::Sessiond => self.sessiond.put(with.channel()?),
            GatePart::Keyer => self.keyer.put(with.channel()?),
            GatePart::First => self.first.put(with.channel()?),
            GatePart::Second => self.second.put(with.channel()?),
        }
    }
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    Warden,
    Sessiond,
    Keyer,
    Tun,
    /// By its number.
    Socket(usize),
    First,
    Second,
}

/// Everything that the gate works with.
pub struct Started {
    /// What is waited for.
    pub events: Events<Source>,
    /// The channel to the warden.
    pub warden: Warden<GatePart>,
    /// The channels to sessiond and keyer.
    pub peers: Peers,
    /// The TUN queue, non-blocking: each read and write is one packet behind its header.
    pub tun: Watched<OwnedFd>,
    /// What is before each packet there: a vnet header of zeros, or nothing.
    pub header: &'static [u8],
    /// The UDP sockets, in the order in which they came.
    pub sockets: Vec<Socket>,
    /// The stack that opens and seals.
    pub first: Stack,
    /// The stack that opens and checks.
    pub second: Stack,
}

/// Takes the kit, waits for both stacks, enters the sandbox and tells the warden. `None`: it needs no gate any more.
///
/// # Errors
/// The step that failed; the process must then end.
pub fn start() -> Result<Option<Started>, Fatal> {
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(None) };
    if beginning.place != Place::Server {
        return Err(Fatal::new("begin", "a gate is a server's"));
    }
    let mut events = Events::new()?;
    let fault = |why| Fatal::new("wait", why);
    let (tun, header) = checked(given.tun.needed("TUN queue")?)?;
    let tun = events.watch(tun, Source::Tun).map_err(fault)?;
    let sockets = Socket::all(given.sockets.needed("UDP socket")?, &mut events, Source::Socket)?;
    let mut stack =
        |name, channel, source| Ok(Stack::new(name, events.watch(channel, source).map_err(fault)?));
    let first = stack("the first stack", given.first.needed("channel to the first stack")?, Source::First)?;
    let second =
        stack("the second stack", given.second.needed("channel to the second stack")?, Source::Second)?;
    let confined = beginning.confine(&Sandbox::new(FILTER))?;
    for stack in [&first, &second] {
        match stack.answer_within(BEGINNING)? {
            FromStack::Ready => {}
            other => return Err(stack.out_of_turn(&other)),
        }
    }
    let warden = confined.ready(&mut events, Source::Warden)?;
    let sources = [Source::Sessiond, Source::Keyer];
    let peers = Peers::given(given.sessiond, given.keyer, &mut events, sources)?;
    Ok(Some(Started { events, warden, peers, tun, header, sockets, first, second }))
}

/// A queue, and what is before each of its packets: a vnet header in which there is nothing, as long as the warden has the kernel leave
/// nothing to its reader, or none.
fn checked(fd: OwnedFd) -> Result<(OwnedFd, &'static [u8]), Fatal> {
    unblock(&fd)?;
    match levee_sys::tun::has_vnet_header(fd.as_fd()) {
        Ok(has) => Ok((fd, if has { &[0; VNET_HEADER] } else { &[] })),
        Err(why) => Err(Fatal::new("ask the TUN queue", why)),
    }
}
