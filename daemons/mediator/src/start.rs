//! From the first instruction to the sandbox.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use levee_daemon::{Descriptors, Events, Fatal, Kit, Many, One, Outbox, Warden, Watched, begin};
use levee_ipc::Channel;
use levee_ipc::mediator::{MediatorToSessiond, ToStarter};
use levee_ipc::warden::Place;
use levee_ipc::warden::mediator::MediatorPart;
use levee_policy::ServiceName;
use levee_policy::site::Mode;
use levee_sys::sandbox::Sandbox;
use rustix::event::epoll;
use rustix::process::{Resource, getrlimit};

/// The system calls that a mediator may make.
const FILTER: &str = include_str!("../../../conf/seccomp/mediator.toml");

/// The most listeners of a label.
const MOST_LISTENERS: usize = 256;

/// A service's listener.
pub struct Listener {
    /// The service.
    pub service: ServiceName,
    /// Whether its connections are relayed and not handed off.
    pub relayed: bool,
    /// Where it listens, and in the mediator's own network the daemon.
    pub address: SocketAddr,
    /// The listener, non-blocking.
    pub fd: Watched<OwnedFd>,
    /// When a process to hand a connection to was last asked for.
    pub prepared: Option<Instant>,
}

/// Connections that are relayed at a time, at most, however many descriptors there may be: 10,000 for one person alone.
const MOST_RELAYED: u64 = 12_500;

/// Descriptors for each: two sockets, and a pipe for each way in which something waits.
const FOR_EACH: u64 = 6;

/// Descriptors beside those: channels, listeners, connections that come.
const BESIDE: u64 = 1_024;

/// What the warden gives.
#[derive(Default)]
struct Given {
    sessiond: One<Channel>,
    starter: One<Channel>,
    listeners: Many<(ServiceName, bool, SocketAddr, OwnedFd), MOST_LISTENERS>,
}

impl Kit for Given {
    type Part = MediatorPart;

    fn take(&mut self, part: MediatorPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            MediatorPart::Sessiond => self.sessiond.put(with.channel()?),
            MediatorPart::Starter => self.starter.put(with.channel()?),
            MediatorPart::Service { name, mode, address } => {
                let relayed = match mode {
                    Mode::Handoff(_) => false,
                    Mode::Relay => true,
                    Mode::Direct | Mode::Itself => {
                        return Err(Fatal::new("take a listener", "nothing mediates `direct`"));
                    }
                };
                self.listeners.put((name, relayed, address, with.one()?))
            }
        }
    }
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    Warden,
    Sessiond,
    Starter,
    /// By its number.
    Listener(usize),
    /// Something at relayed connections.
    Relayed,
}

/// Everything that the mediator works with.
pub struct Started {
    /// What is waited for.
    pub events: Events<Source>,
    /// To the warden.
    pub warden: Warden<MediatorPart>,
    /// To sessiond.
    pub sessiond: Outbox<MediatorToSessiond>,
    /// To process 1 of the compartment.
    pub starter: Outbox<ToStarter>,
    /// The services' listeners.
    pub listeners: Vec<Listener>,
    /// Waits for relayed connections.
    pub epoll: Watched<OwnedFd>,
    /// Connections that are handed off at a time, at most.
    pub most: usize,
    /// Connections that are relayed at a time, at most.
    pub most_relayed: usize,
}

/// Takes the kit, enters the sandbox and tells the warden. `None`: it needs no mediator any more.
///
/// # Errors
/// The step that failed; the process must then end.
pub fn start() -> Result<Option<Started>, Fatal> {
    let most = most(std::env::args().skip(1))?;
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(None) };
    if beginning.place != Place::Server {
        return Err(Fatal::new("begin", "a mediator is a server's"));
    }
    let most_relayed = relayed(getrlimit(Resource::Nofile).current, most);
    let mut events = Events::new()?;
    let fault = |why| Fatal::new("wait", why);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|why| Fatal::new("make an epoll", why))?;
    let epoll = events.watch(epoll, Source::Relayed).map_err(fault)?;
    let watch = |(number, (service, relayed, address, fd)): (_, (_, _, _, OwnedFd))| {
        if relayed {
            // What it accepts has that from it, without a call for each (tcp(7)).
            rustix::net::sockopt::set_tcp_nodelay(&fd, true)?;
        }
        let fd: Watched<OwnedFd> = events.watch(fd, Source::Listener(number))?;
        // Nobody is accepted who could not be granted anything.
        fd.wait_for(false, false)?;
        Ok(Listener { service, relayed, address, fd, prepared: None })
    };
    let listeners = given.listeners.all().into_iter().enumerate().map(watch);
    let listeners = listeners.collect::<std::io::Result<Vec<_>>>().map_err(fault)?;
    // Only to the daemons in a network of its own; one that relays nothing connects to nobody.
    let tcp = listeners.iter().any(|listener| listener.relayed);
    let sandbox = Sandbox { tcp, ..Sandbox::new(FILTER) };
    let warden = beginning.confine(&sandbox)?.ready(&mut events, Source::Warden)?;
    let (mut sessiond, mut starter) = (Outbox::new(), Outbox::new());
    starter.replace(given.starter.needed("channel to the compartment")?, &mut events, Source::Starter)?;
    if let Some(channel) = given.sessiond.get() {
        sessiond.replace(channel, &mut events, Source::Sessiond)?;
    }
    Ok(Some(Started { events, warden, sessiond, starter, listeners, epoll, most, most_relayed }))
}

/// How many connections can be relayed with so many descriptors, of which those that are handed off have one each: there
/// must never be none for the next connection, or for what waits in one.
fn relayed(descriptors: Option<u64>, handed: usize) -> usize {
    let handed = u64::try_from(handed).unwrap_or(u64::MAX);
    let left = descriptors.unwrap_or(u64::MAX).saturating_sub(BESIDE).saturating_sub(handed);
    usize::try_from((left / FOR_EACH).min(MOST_RELAYED)).unwrap_or(0)
}

/// The one argument, `--most N`.
fn most(mut arguments: impl Iterator<Item = String>) -> Result<usize, Fatal> {
    let wrong = |what: &str| Fatal::new("read the arguments", what);
    match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (Some("--most"), Some(number), None) => {
            number.parse().ok().filter(|most| *most > 0).ok_or_else(|| wrong("--most takes a number from 1"))
        }
        _ => Err(wrong("they must be --most and a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_relayed_as_there_are_descriptors_for_and_12_500_at_most() {
        assert_eq!(relayed(Some(80_000), 128), 12_500);
        assert_eq!(relayed(None, 0), 12_500);
        assert_eq!(relayed(Some(1_024 + 128 + 6 * 50), 128), 50);
        assert_eq!(relayed(Some(1_024), 128), 0);
    }

    #[test]
    fn the_most_connections_must_be_said_and_nothing_else() {
        let read = |words: &[&str]| most(words.iter().map(|word| (*word).to_owned()));
        assert_eq!(read(&["--most", "128"]).ok(), Some(128));
        for wrong in [&[][..], &["--most"], &["--most", "0"], &["--most", "x"], &["--most", "1", "2"], &["5"]]
        {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
