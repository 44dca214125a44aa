//! The loop: messages first, then packets.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use levee_esp::{Outer, Sad, Side};
use levee_ipc::tunnel::{Fatal, Peers, Socket};
use levee_ipc::vault::{KeyerToVault, Report, SessiondToVault, VaultToKeyer, VaultToSessiond};
use levee_ipc::warden::Place;
use levee_sys::clock::monotonic;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::convert;
use crate::plane::{Libraries, Plane, Turn};
use crate::start::Started;

/// Control, sessiond, keyer, the TUN queue, the sockets.
const MOST_DESCRIPTORS: usize = 4 + Socket::MOST;

/// While it looks on, every so many looks the channels are asked for as well.
const ASK_CHANNELS: u32 = 32;

/// Rows of security associations in a report.
const REPORTED: usize = 256;

struct Vault {
    peers: Peers,
    plane: Plane,
    libraries: Libraries,
    began: Instant,
    swept: Duration,
    /// How long to look for more before blocking.
    latency: Duration,
    /// When there was last something on the TUN queue or a socket, where it matters.
    active: Option<Instant>,
    /// Looks since then.
    looks: u32,
    /// Until when sessions may pass packets, on the host's monotonic clock; `None` if they need no lease.
    until: Option<Duration>,
}

/// Works until the warden says stop or is gone.
///
/// # Errors
/// When the warden sends what is no message, or the TUN queue fails.
pub fn serve(started: Started) -> Result<(), Fatal> {
    let side = match started.place {
        Place::Server => Side::Server,
        Place::Workstation => Side::Workstation,
    };
    let mut vault = Vault {
        peers: started.peers,
        plane: Plane::new(started.tun, started.sockets, Sad::new(side, started.slot)),
        libraries: Libraries(started.libraries),
        began: Instant::now(),
        swept: Duration::ZERO,
        latency: started.latency,
        active: None,
        looks: 0,
        until: None,
    };
    let mut ready = Ready { busy: true, ..Ready::default() };
    loop {
        ready = vault.wait(ready)?;
        if ready.control && !vault.peers.hear_warden()? {
            return Ok(());
        }
        // Each look at a channel clears a whole message's room, so none is taken without need. A channel that has
        // just come is looked at in the next turn.
        if ready.sessiond {
            vault.hear_sessiond();
        }
        if ready.keyer {
            vault.hear_keyer();
        }
        vault.keep_lease();
        vault.carry(&mut ready)?;
        vault.sweep();
    }
}

/// What the last turn left and the next wait found.
#[derive(Default)]
struct Ready {
    /// Something was left to read: do not wait.
    busy: bool,
    /// Nobody has said that there is something.
    looked: bool,
    /// A socket that must be writable before anything more is read from the TUN queue.
    blocked: Option<usize>,
    control: bool,
    sessiond: bool,
    keyer: bool,
    tun: bool,
    /// Socket `n` by bit `n`.
    sockets: u32,
}

impl Vault {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether the lease that sessions need has run out.
    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| until <= monotonic())
    }

    /// Without a lease no packet passes, whatever has become of sessiond.
    fn keep_lease(&mut self) {
        if self.is_late() {
            for id in self.plane.sad.sessions().collect::<Vec<_>>() {
                self.plane.close(id);
            }
        }
    }

    /// A wake from idle costs more than the way through the vault: for a while it is worth not to sleep. To try the queue
    /// and the sockets then costs less than to ask first whether there is something.
    fn look_on(&mut self, last: &Ready) -> Option<Ready> {
        let active = self.active.filter(|_| !last.busy && last.blocked.is_none())?;
        if active.elapsed() >= self.latency
            || self.plane.sad.next_due().is_some()
            || self.plane.sad.has_waiting()
        {
            self.active = None;
            return None;
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(ASK_CHANNELS) {
            return None;
        }
        let sockets = u32::MAX >> (u32::BITS - self.plane.sockets().len().clamp(1, Socket::MOST) as u32);
        Some(Ready { looked: true, tun: true, sockets, ..Ready::default() })
    }

    fn wait(&mut self, last: Ready) -> Result<Ready, Fatal> {
        if let Some(ready) = self.look_on(&last) {
            return Ok(ready);
        }
        let reading = PollFlags::IN;
        let with = |writing| if writing { reading | PollFlags::OUT } else { reading };
        let channels = [self.peers.sessiond.watch(), self.peers.keyer.watch()];
        // The channels, the TUN queue and the sockets, each in its place; an array, since this is done for each wake.
        // What is not there stands for the warden's channel, of which nothing is asked.
        let nothing = || PollFd::new(self.peers.control(), PollFlags::empty());
        let mut fds: [PollFd<'_>; MOST_DESCRIPTORS] = std::array::from_fn(|_| nothing());
        let watched = channels.map(|channel| {
            channel.map_or_else(nothing, |(fd, writing)| PollFd::from_borrowed_fd(fd, with(writing)))
        });
        let [sessiond, keyer] = watched;
        let tun = if last.blocked.is_some() { PollFlags::empty() } else { reading };
        let first = [
            PollFd::new(self.peers.control(), reading),
            sessiond,
            keyer,
            PollFd::new(&self.plane.tun().fd, tun),
        ];
        let sockets = self
            .plane
            .sockets()
            .iter()
            .enumerate()
            .map(|(number, socket)| PollFd::new(&socket.fd, with(last.blocked == Some(number))));
        let mut used = 0;
        for (place, fd) in fds.iter_mut().zip(first.into_iter().chain(sockets)) {
            *place = fd;
            used += 1;
        }
        let fds = fds.get_mut(..used).unwrap_or_default();

        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let limit = if last.busy {
            Some(now)
        } else if let (None, Some(due)) = (last.blocked, self.plane.sad.next_due()) {
            // At a constant rate.
            Timespec::try_from(due.saturating_sub(self.now())).ok()
        } else if self.plane.sad.has_waiting() {
            Some(Timespec { tv_sec: 1, tv_nsec: 0 })
        } else {
            None
        };
        let looking_on = limit.is_none() && self.active.is_some();
        // Keys are erased at the lease's end even if nothing comes.
        let left = self.until.map(|until| until.saturating_sub(monotonic())).filter(|left| !left.is_zero());
        let limit = limit.or_else(|| Timespec::try_from(left?.saturating_add(Duration::from_millis(1))).ok());
        match poll(fds, if looking_on { Some(&now) } else { limit.as_ref() }) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Fatal::new("wait", error)),
        }

        let mut ready = Ready { blocked: last.blocked, ..Ready::default() };
        // Readable, or gone, which only a look shows.
        let look = |place: usize, there: bool| {
            there && fds.get(place).is_some_and(|fd| !(fd.revents() - PollFlags::OUT).is_empty())
        };
        ready.control = look(0, true);
        ready.sessiond = look(1, channels[0].is_some());
        ready.keyer = look(2, channels[1].is_some());
        ready.tun = look(3, true);
        for (number, fd) in fds.iter().skip(4).enumerate() {
            let events = fd.revents();
            if events.intersects(reading | PollFlags::ERR) {
                ready.sockets |= 1 << number;
            }
            if ready.blocked == Some(number) && events.intersects(PollFlags::OUT | PollFlags::ERR) {
                ready.blocked = None;
                // Whatever was kept goes now, and the queue is looked at again.
                ready.tun = true;
            }
        }
        Ok(ready)
    }

    fn carry(&mut self, ready: &mut Ready) -> Result<(), Fatal> {
        let (now, before) = (self.now(), self.plane.moved);
        for number in 0..self.plane.sockets().len() {
            if ready.sockets & (1 << number) != 0 {
                ready.busy |= self.plane.turn_socket(number) == Turn::More;
            }
        }
        if ready.blocked.is_none() {
            ready.blocked = self.plane.send_rest(now);
        }
        if ready.tun && ready.blocked.is_none() {
            match self.plane.turn_tun(now).map_err(|why| Fatal::new("read the TUN queue", why))? {
                Turn::Drained => {}
                Turn::More => ready.busy = true,
                Turn::Blocked(socket) => ready.blocked = Some(socket),
            }
        }
        for session in std::mem::take(&mut self.plane.acquire) {
            self.peers.keyer.send(VaultToKeyer::Acquire(session));
        }
        while let Some((spi, session)) = self.plane.sad.next_expiring() {
            self.peers.keyer.send(VaultToKeyer::Expiring { spi: spi.get(), session });
        }
        if self.plane.moved != before {
            self.active = (!self.latency.is_zero()).then(Instant::now);
        } else if ready.looked {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn sweep(&mut self) {
        self.peers.flush();
        let now = self.now();
        if now.saturating_sub(self.swept) >= Duration::from_secs(1) {
            self.swept = now;
            self.plane.sad.expire(now);
        }
    }

    fn hear_sessiond(&mut self) {
        while let Some(message) = self.peers.sessiond.receive::<SessiondToVault>() {
            match message {
                SessiondToVault::Open(record) => {
                    let id = record.id;
                    // What cannot be taken as it stands is not taken; a record it would have replaced goes as well,
                    // because sessiond no longer means that.
                    let taken = !self.is_late()
                        && convert::policy(record)
                            .is_some_and(|policy| self.plane.sad.open_session(id, policy).is_ok());
                    if taken {
                        self.peers.opened(id);
                    } else {
                        self.plane.close(id);
                        self.peers.closed(id);
                    }
                }
                SessiondToVault::Close(id) => {
                    self.plane.close(id);
                    self.peers.closed(id);
                }
                SessiondToVault::Synced => {
                    for id in self.peers.unnamed(self.plane.sad.sessions()) {
                        self.plane.close(id);
                    }
                }
                SessiondToVault::Until(until) => self.until = Some(until),
                SessiondToVault::Ping(number) => self.peers.sessiond.send(VaultToSessiond::Pong(number)),
                SessiondToVault::Report => {
                    let report = self.report();
                    self.peers.sessiond.send(VaultToSessiond::Report(report));
                }
            }
        }
    }

    fn report(&self) -> Report {
        let sad = &self.plane.sad;
        Report {
            counters: sad.counters.iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            sas: sad.pairs().take(REPORTED).map(convert::report).collect(),
            sa_count: sad.pair_count() as u64,
        }
    }

    fn hear_keyer(&mut self) {
        while let Some(message) = self.peers.keyer.receive::<KeyerToVault>() {
            match message {
                KeyerToVault::Install { session, suite, esn, inbound, outbound, peer, aggregation } => {
                    let spi = inbound.spi;
                    let peer = peer.and_then(|peer| self.reach(peer));
                    let now = self.now();
                    let installed =
                        convert::install(session, suite, esn, &inbound, &outbound, peer, aggregation)
                            .and_then(|pair| {
                                self.plane.sad.install(now, pair, &self.libraries).map_err(convert::refusal)
                            });
                    match installed {
                        Ok(()) => {
                            self.peers.keyer.send(VaultToKeyer::Installed { spi });
                            self.plane.release(now, session);
                        }
                        Err(reason) => self.peers.keyer.send(VaultToKeyer::Refused { spi, reason }),
                    }
                }
                KeyerToVault::Only { session, spis } => {
                    let pairs = self.plane.sad.pairs().filter(|pair| pair.session == session);
                    let others = pairs.map(|pair| pair.inbound).filter(|spi| !spis.contains(&spi.get()));
                    for spi in others.collect::<Vec<_>>() {
                        self.plane.sad.delete(spi);
                    }
                }
                KeyerToVault::Delete { spi } => {
                    if let Some(spi) = levee_esp::Spi::new(spi) {
                        self.plane.sad.delete(spi);
                    }
                }
            }
        }
    }

    fn reach(&self, address: SocketAddr) -> Option<Outer> {
        Some(Outer { address, socket: Socket::reaching(self.plane.sockets(), address)? })
    }
}

impl Drop for Vault {
    fn drop(&mut self) {
        let all: Vec<_> = self.plane.sad.sessions().collect();
        for id in all {
            self.plane.close(id);
        }
    }
}
