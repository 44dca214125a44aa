//! From the first instruction to the sandbox: collect what the warden hands out, then give up the rest.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use levee_aead::Library;
use levee_daemon::tunnel::{Peers, Socket, unblock};
use levee_daemon::{Descriptors, Events, Fatal, Kit, Many, One, Warden, begin};
use levee_esp::Suite;
use levee_ipc::Channel;
use levee_ipc::warden::Place;
use levee_ipc::warden::vault::VaultPart;
use levee_sys::sandbox::Sandbox;

use crate::device::Tun;

/// The system calls that a vault may make.
const FILTER: &str = include_str!("../../../conf/seccomp/vault.toml");

/// What the warden gives.
#[derive(Default)]
struct Given {
    tun: One<(OwnedFd, u16)>,
    sockets: Many<(OwnedFd, SocketAddr), { Socket::MOST }>,
    sessiond: One<Channel>,
    keyer: One<Channel>,
}

impl Kit for Given {
    type Part = VaultPart;

    fn take(&mut self, part: VaultPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            VaultPart::Tun { mtu } => self.tun.put((with.one()?, mtu)),
            VaultPart::Udp(address) => self.sockets.put((with.one()?, address)),
            VaultPart::Sessiond => self.sessiond.put(with.channel()?),
            VaultPart::Keyer => self.keyer.put(with.channel()?),
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
}

/// Everything that the vault works with.
pub struct Started {
    /// What is waited for.
    pub events: Events<Source>,
    /// The channel to the warden.
    pub warden: Warden<VaultPart>,
    /// The channels to sessiond (on a workstation the TPE) and keyer.
    pub peers: Peers,
    /// The TUN queue.
    pub tun: Tun,
    /// The UDP sockets, in the order in which they came.
    pub sockets: Vec<Socket>,
    /// Server or workstation.
    pub place: Place,
    /// The library for each suite, in the order of [`Suite::ALL`].
    pub libraries: [Library; 3],
    /// The longest time to look for more before sleeping.
    pub poll: Duration,
}

/// Takes the kit, chooses the AEAD libraries, enters the sandbox and tells the warden. `None`: it needs no vault any more.
///
/// # Errors
/// The step that failed; the process must then end.
pub fn start() -> Result<Option<Started>, Fatal> {
    let Options { libraries, poll } = options(std::env::args().skip(1))?;
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(None) };
    let mut events = Events::new()?;
    let (tun, mtu) = given.tun.needed("TUN queue")?;
    unblock(&tun)?;
    let vnet =
        levee_sys::tun::has_vnet_header(tun.as_fd()).map_err(|why| Fatal::new("ask the TUN queue", why))?;
    let tun = events.watch(tun, Source::Tun).map_err(|why| Fatal::new("wait for the TUN queue", why))?;
    let sockets = Socket::all(given.sockets.needed("UDP socket")?, &mut events, Source::Socket)?;
    let place = beginning.place;
    let warden = beginning.confine(&Sandbox::new(FILTER))?.ready(&mut events, Source::Warden)?;
    let sources = [Source::Sessiond, Source::Keyer];
    let peers = Peers::given(given.sessiond, given.keyer, &mut events, sources)?;
    let tun = Tun { fd: tun, mtu, vnet };
    Ok(Some(Started { events, warden, peers, tun, sockets, place, libraries, poll }))
}

/// What the warden says on the command line.
#[derive(Debug)]
struct Options {
    libraries: [Library; 3],
    poll: Duration,
}

/// The longest time that may be asked for; more would burn a processor for next to nothing.
const LONGEST_POLL: Duration = Duration::from_millis(10);

/// Unless it is said: what a wake costs at both ends of a round trip between two vaults of one host, and more.
const POLL: Duration = Duration::from_micros(100);

/// `--aead NAME` takes one library for every suite, else the faster one for each; `--poll MICROSECONDS` is the longest time to
/// look for more before sleeping, where that pays ([`Looking`](crate::looking::Looking)); with 0 it sleeps at once.
fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, Fatal> {
    let (mut named, mut poll) = (None, POLL);
    while let Some(flag) = arguments.next() {
        let value =
            arguments.next().ok_or_else(|| Fatal::new("read the arguments", format!("{flag} alone")))?;
        match flag.as_str() {
            "--aead" => {
                named = Some(value.parse::<Library>().map_err(|why| Fatal::new("read --aead", why))?);
            }
            "--poll" => {
                let time = value.parse().map(Duration::from_micros).ok().filter(|time| *time <= LONGEST_POLL);
                poll = time.ok_or_else(|| Fatal::new("read --poll", "microseconds, up to 10000"))?;
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
    Ok(Options { libraries, poll })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, Fatal> {
        options(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_library_and_a_time_to_poll_are_read_in_any_order() {
        let read = read("--poll 20 --aead aws-lc").unwrap();
        assert_eq!(read.libraries, [Library::AwsLc; 3]);
        assert_eq!(read.poll, Duration::from_micros(20));
    }

    #[test]
    fn without_arguments_a_library_is_chosen_and_it_looks_for_as_long_as_a_wake_costs() {
        assert_eq!(read("").unwrap().poll, POLL);
        assert_eq!(read("--poll 0").unwrap().poll, Duration::ZERO);
        assert_eq!(read("--poll 10000").unwrap().poll, LONGEST_POLL);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["--aead", "--aead openssl", "--poll -1", "--poll 10001", "--poll x", "--fast 1"] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
