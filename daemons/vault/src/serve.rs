//! The loop: messages first, then packets.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use levee_esp::{Outer, Sad, Side};
use levee_ipc::vault::{KeyerToVault, Report, SessiondToVault, VaultToKeyer, VaultToSessiond};
use levee_ipc::warden::{Attachment, FromWarden, Place, Role};
use levee_ipc::{Channel, Received, RecvError};
use levee_session::SessionId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::convert;
use crate::outbox::Outbox;
use crate::plane::{Libraries, Plane, Turn};
use crate::start::{Fatal, Started};

/// Rows of security associations in a report.
const REPORTED: usize = 256;

struct Vault {
    control: Channel,
    sessiond: Outbox<VaultToSessiond>,
    keyer: Outbox<VaultToKeyer>,
    plane: Plane,
    libraries: Libraries,
    /// Sessions named on this channel to sessiond, until it says that it has named all.
    named: Option<BTreeSet<SessionId>>,
    began: Instant,
    swept: Duration,
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
        control: started.control,
        sessiond: Outbox::new(),
        keyer: Outbox::new(),
        plane: Plane::new(started.tun, started.sockets, Sad::new(side, started.slot)),
        libraries: Libraries(started.libraries),
        named: Some(BTreeSet::new()),
        began: Instant::now(),
        swept: Duration::ZERO,
    };
    if let Some(channel) = started.sessiond {
        vault.sessiond.replace(channel);
    }
    if let Some(channel) = started.keyer {
        vault.keyer.replace(channel);
    }
    let mut ready = Ready { busy: true, ..Ready::default() };
    loop {
        ready = vault.wait(ready)?;
        if ready.control && !vault.hear_warden()? {
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
        vault.carry(&mut ready)?;
        vault.sweep();
    }
}

/// What the last turn left and the next wait found.
#[derive(Default)]
struct Ready {
    /// Something was left to read: do not wait.
    busy: bool,
    /// A socket that must be writable before anything more is read from the TUN queue.
    blocked: Option<usize>,
    control: bool,
    sessiond: bool,
    keyer: bool,
    tun: bool,
    sockets: Vec<usize>,
}

impl Vault {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wait(&mut self, last: Ready) -> Result<Ready, Fatal> {
        let reading = PollFlags::IN;
        // The channels in this order, as far as they are there; then the TUN queue; then the sockets.
        let channels = [Some((self.control.as_fd(), false)), self.sessiond.watch(), self.keyer.watch()];
        let mut fds = Vec::with_capacity(channels.len() + 1 + self.plane.sockets().len());
        for &(fd, writing) in channels.iter().flatten() {
            fds.push(PollFd::from_borrowed_fd(fd, if writing { reading | PollFlags::OUT } else { reading }));
        }
        let first = fds.len();
        let tun = if last.blocked.is_some() { PollFlags::empty() } else { reading };
        fds.push(PollFd::new(&self.plane.tun().fd, tun));
        for (number, socket) in self.plane.sockets().iter().enumerate() {
            let writing = if last.blocked == Some(number) { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::new(&socket.fd, reading | writing));
        }
        let limit = if last.busy {
            Some(Timespec { tv_sec: 0, tv_nsec: 0 })
        } else if self.plane.sad.has_waiting() {
            Some(Timespec { tv_sec: 1, tv_nsec: 0 })
        } else {
            None
        };
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Fatal::new("wait", error)),
        }
        let mut ready = Ready { blocked: last.blocked, ..Ready::default() };
        let mut events = fds.iter().map(PollFd::revents);
        // Readable, or gone, which only a look shows.
        let mut look =
            |there: bool| there && events.next().is_some_and(|events| !(events - PollFlags::OUT).is_empty());
        let [control, sessiond, keyer] = channels.map(|channel| channel.is_some());
        (ready.control, ready.sessiond, ready.keyer) = (look(control), look(sessiond), look(keyer));
        for (n, fd) in fds.iter().enumerate().skip(first) {
            let events = fd.revents();
            if n == first {
                ready.tun = !events.is_empty();
                continue;
            }
            let number = n - first - 1;
            if events.intersects(reading | PollFlags::ERR) {
                ready.sockets.push(number);
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
        let now = self.now();
        for &number in &ready.sockets {
            ready.busy |= self.plane.turn_socket(number) == Turn::More;
        }
        if ready.blocked.is_none() {
            ready.blocked = self.plane.flush();
        }
        if ready.tun && ready.blocked.is_none() {
            match self.plane.turn_tun(now).map_err(|why| Fatal::new("read the TUN queue", why))? {
                Turn::Drained => {}
                Turn::More => ready.busy = true,
                Turn::Blocked(socket) => ready.blocked = Some(socket),
            }
        }
        for session in std::mem::take(&mut self.plane.acquire) {
            self.keyer.send(VaultToKeyer::Acquire(session));
        }
        while let Some((spi, session)) = self.plane.sad.next_expiring() {
            self.keyer.send(VaultToKeyer::Expiring { spi: spi.get(), session });
        }
        Ok(())
    }

    fn sweep(&mut self) {
        self.sessiond.flush();
        self.keyer.flush();
        let now = self.now();
        if now.saturating_sub(self.swept) >= Duration::from_secs(1) {
            self.swept = now;
            self.plane.sad.expire(now);
        }
    }

    /// False when it is time to end.
    fn hear_warden(&mut self) -> Result<bool, Fatal> {
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
                        return Err(Fatal::new(
                            "hear the warden",
                            format!("a {role:?} is no peer of a vault"),
                        ));
                    }
                },
                (message, ..) => {
                    return Err(Fatal::new(
                        "hear the warden",
                        format!("{message:?} is not for a running vault"),
                    ));
                }
            }
        }
    }

    fn hear_sessiond(&mut self) {
        while let Some(message) = self.sessiond.receive::<SessiondToVault>() {
            match message {
                SessiondToVault::Open(record) => {
                    let id = record.id;
                    // What cannot be taken as it stands is not taken; a record it would have replaced goes as well,
                    // because sessiond no longer means that.
                    let taken = convert::policy(record)
                        .is_some_and(|policy| self.plane.sad.open_session(id, policy).is_ok());
                    if taken {
                        if let Some(named) = &mut self.named {
                            named.insert(id);
                        }
                        self.sessiond.send(VaultToSessiond::Opened(id));
                    } else {
                        self.plane.close(id);
                        self.sessiond.send(VaultToSessiond::Closed(id));
                    }
                }
                SessiondToVault::Close(id) => {
                    self.plane.close(id);
                    if let Some(named) = &mut self.named {
                        named.remove(&id);
                    }
                    self.sessiond.send(VaultToSessiond::Closed(id));
                }
                SessiondToVault::Synced => {
                    if let Some(named) = self.named.take() {
                        let gone: Vec<_> =
                            self.plane.sad.sessions().filter(|id| !named.contains(id)).collect();
                        for id in gone {
                            self.plane.close(id);
                        }
                    }
                }
                SessiondToVault::Ping(number) => self.sessiond.send(VaultToSessiond::Pong(number)),
                SessiondToVault::Report => {
                    let report = self.report();
                    self.sessiond.send(VaultToSessiond::Report(report));
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
        while let Some(message) = self.keyer.receive::<KeyerToVault>() {
            match message {
                KeyerToVault::Install { session, suite, esn, inbound, outbound, peer } => {
                    let spi = inbound.spi;
                    let peer = peer.and_then(|peer| self.reach(peer));
                    let now = self.now();
                    let installed = convert::install(session, suite, esn, &inbound, &outbound, peer)
                        .and_then(|pair| {
                            self.plane.sad.install(now, pair, &self.libraries).map_err(convert::refusal)
                        });
                    match installed {
                        Ok(()) => {
                            self.keyer.send(VaultToKeyer::Installed { spi });
                            self.plane.release(now, session);
                        }
                        Err(reason) => self.keyer.send(VaultToKeyer::Refused { spi, reason }),
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
        Some(Outer { address, socket: self.plane.socket_for(address)? })
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
