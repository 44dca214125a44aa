//! The loop: messages first, then packets.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use levee_daemon::tunnel::{Ciphers, Peers, Socket};
use levee_daemon::{Can, Events, Fatal, Order, TURN, Warden};
use levee_esp::{Aead, Outer, Sad, Side, Spi};
use levee_ipc::vault::{
    Held, KeyerToVault, Refusal, Report, SessionRecord, SessiondToVault, VaultToKeyer, VaultToSessiond,
};
use levee_ipc::warden::Place;
use levee_ipc::warden::vault::VaultPart;
use levee_policy::DomainName;
use levee_session::SessionId;
use levee_sys::clock::monotonic;

use crate::batch::Full;
use crate::convert;
use crate::lease::Leases;
use crate::looking::Looking;
use crate::plane::{Libraries, Plane, Turn};
use crate::start::{Source, Started};

/// While it looks on, every so many looks the channels are asked for as well.
const ASK_CHANNELS: u32 = 32;

struct Vault {
    events: Events<Source>,
    /// What the last wait has found; kept for its memory.
    turn: Vec<(Source, Can)>,
    warden: Warden<VaultPart>,
    peers: Peers,
    plane: Plane,
    libraries: Libraries,
    began: Instant,
    swept: Duration,
    /// Whether to look for more before sleeping.
    looking: Looking,
    /// Looks so far.
    looks: u32,
    leases: Leases,
    ciphers: Ciphers,
    /// How long packets have been here: in, and out.
    held: [Held; 2],
}

/// Works until the warden says stop or is gone. An AEAD key is used as what the function makes of it.
///
/// # Errors
/// When the warden sends what is no message, or the TUN queue fails.
pub fn serve(started: Started, aead: fn(Box<dyn Aead>) -> Box<dyn Aead>) -> Result<(), Fatal> {
    let side = match started.place {
        Place::Server => Side::Server,
        Place::Workstation => Side::Workstation,
    };
    let mut vault = Vault {
        events: started.events,
        turn: Vec::new(),
        warden: started.warden,
        peers: started.peers,
        plane: Plane::new(started.tun, started.sockets, Sad::new(side)),
        libraries: Libraries { by_suite: started.libraries, aead },
        began: Instant::now(),
        swept: Duration::ZERO,
        looking: Looking::new(started.poll),
        looks: 0,
        leases: Leases::default(),
        ciphers: Ciphers::default(),
        held: Default::default(),
    };
    let mut ready = Ready { busy: true, ..Ready::default() };
    loop {
        ready = vault.wait(ready)?;
        if ready.warden && !vault.hear_warden()? {
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
        if (ready.sessiond || ready.keyer)
            && let Some(answer) = vault.ciphers.answer(|| spis(&vault.plane.sad))
        {
            vault.peers.sessiond.send(answer);
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
    blocked: Option<Full>,
    warden: bool,
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

    /// Without a lease no packet passes, whatever has become of sessiond.
    fn keep_lease(&mut self) {
        let Some(next) = self.leases.next() else { return };
        let now = monotonic();
        if next <= now {
            let late = self.plane.sad.sessions().filter(|id| self.leases.is_late(*id, now));
            for id in late.collect::<Vec<_>>() {
                self.close(id);
            }
        }
    }

    fn close(&mut self, id: SessionId) {
        self.plane.close(id);
        self.leases.forget(id);
        self.ciphers.protect(id, None);
    }

    /// What cannot be taken as it stands is not taken; a record it would have replaced goes as well, because sessiond no longer means
    /// that.
    fn open(&mut self, record: SessionRecord, owner: Option<DomainName>) {
        let id = record.id;
        self.ciphers.protect(id, record.ciphers.clone());
        // Without the second tunnel nothing passes of a session that goes within it.
        let within = self.plane.sockets().iter().position(Socket::is_within).filter(|_| record.layered);
        let taken = self.leases.take(id, owner, monotonic())
            && record.layered == within.is_some()
            && convert::policy(record, within)
                .is_some_and(|policy| self.plane.sad.open_session(id, policy).is_ok());
        if taken {
            self.peers.opened(id);
        } else {
            self.close(id);
            self.peers.closed(id);
        }
    }

    /// What to do without waiting: to try the queue and the sockets costs less than to ask first whether there is something.
    /// Every so often it asks all the same, for the channels.
    fn look_on(&mut self, looks_on: bool) -> Option<Ready> {
        if !looks_on {
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
        let looks_on = !last.busy
            && last.blocked.is_none()
            && self.looking.looks(self.now())
            && self.plane.sad.next_due().is_none()
            && !self.plane.sad.has_waiting();
        if let Some(ready) = self.look_on(looks_on) {
            return Ok(ready);
        }
        // While a socket is full nothing is read that would have to go there.
        let fault = |why| Fatal::new("wait", why);
        self.plane.tun().fd.wait_for(last.blocked.is_none(), false).map_err(fault)?;
        for (number, socket) in self.plane.sockets().iter().enumerate() {
            socket.fd.wait_for(true, last.blocked == Some(Full { socket: number })).map_err(fault)?;
        }
        let limit = if last.busy || looks_on {
            Some(Duration::ZERO)
        } else if let (None, Some(due)) = (last.blocked, self.plane.sad.next_due()) {
            // At a constant rate.
            Some(due.saturating_sub(self.now()))
        } else if self.plane.sad.has_waiting() {
            Some(Duration::from_secs(1))
        } else {
            None
        };
        // Keys are erased at the lease's end even if nothing comes.
        let left =
            self.leases.next().map(|until| until.saturating_sub(monotonic())).filter(|left| !left.is_zero());
        let limit = limit.or_else(|| Some(left?.saturating_add(Duration::from_millis(1))));
        self.events.wait_into(&mut self.turn, limit)?;

        let mut ready = Ready { blocked: last.blocked, ..Ready::default() };
        for (source, can) in &self.turn {
            match *source {
                Source::Warden => ready.warden = true,
                Source::Sessiond => ready.sessiond = true,
                Source::Keyer => ready.keyer = true,
                Source::Tun => ready.tun = true,
                Source::Socket(number) => {
                    if can.reads || can.gone {
                        ready.sockets |= 1 << number;
                    }
                    if ready.blocked == Some(Full { socket: number }) && (can.writes || can.gone) {
                        ready.blocked = None;
                        // Whatever was kept goes now, and the queue is looked at again.
                        ready.tun = true;
                    }
                }
            }
        }
        Ok(ready)
    }

    /// Does what the warden says. False when it is time to end.
    fn hear_warden(&mut self) -> Result<bool, Fatal> {
        while let Some(order) = self.warden.hear()? {
            match order {
                Order::Stop => return Ok(false),
                Order::Take(VaultPart::Sessiond, with) => {
                    self.peers.sessiond_came(with.channel()?, &mut self.events, Source::Sessiond)?;
                }
                Order::Take(VaultPart::Keyer, with) => {
                    self.peers.keyer.replace(with.channel()?, &mut self.events, Source::Keyer)?;
                }
                Order::Take(part, _) => return Err(Warden::unwanted(&part)),
            }
        }
        Ok(true)
    }

    fn carry(&mut self, ready: &mut Ready) -> Result<(), Fatal> {
        let (now, before) = (self.now(), self.plane.moved);
        let [came, left] = &mut self.held;
        for number in 0..self.plane.sockets().len() {
            if ready.sockets & (1 << number) != 0 {
                ready.busy |= self.plane.turn_socket(now, number) == Turn::More;
            }
        }
        let middle = self.plane.moved;
        if middle != before {
            came.count(middle.wrapping_sub(before), self.began.elapsed().saturating_sub(now));
        }
        if ready.blocked.is_none() {
            ready.blocked = self.plane.send_rest(now).err();
        }
        if ready.tun && ready.blocked.is_none() {
            match self.plane.turn_tun(now).map_err(|why| Fatal::new("read the TUN queue", why))? {
                Turn::Drained => {}
                Turn::More => ready.busy = true,
                Turn::Blocked(full) => ready.blocked = Some(full),
            }
        }
        for session in std::mem::take(&mut self.plane.acquire) {
            self.peers.keyer.send(VaultToKeyer::Acquire(session));
        }
        while let Some((spi, session)) = self.plane.sad.next_expiring() {
            self.peers.keyer.send(VaultToKeyer::Expiring { spi: spi.get(), session });
        }
        if self.plane.moved != before {
            let done = self.began.elapsed();
            left.count(self.plane.moved.wrapping_sub(middle), done.saturating_sub(now));
            self.looking.came(now, done);
        } else if ready.looked {
            let offered = self.now();
            std::thread::yield_now();
            let back = self.now();
            self.looking.offered(back.saturating_sub(offered), back);
        }
        Ok(())
    }

    fn sweep(&mut self) {
        let now = self.now();
        if now.saturating_sub(self.swept) >= Duration::from_secs(1) {
            self.swept = now;
            self.plane.sad.expire(now);
        }
    }

    fn hear_sessiond(&mut self) {
        for _ in 0..TURN {
            // One that is gone is not needed for what is established; the next one names every session.
            let Ok(Some(message)) = self.peers.sessiond.hear::<SessiondToVault>() else { return };
            match message {
                SessiondToVault::Open(record) => self.open(record, None),
                SessiondToVault::OpenTheirs { record, owner } => self.open(record, Some(owner)),
                SessiondToVault::Close(id) => {
                    self.close(id);
                    self.peers.closed(id);
                }
                SessiondToVault::Synced => {
                    for id in self.peers.unnamed(self.plane.sad.sessions()) {
                        self.close(id);
                    }
                }
                SessiondToVault::Until { owner, until } => self.leases.set(owner, until),
                SessiondToVault::Ping(number) => self.peers.sessiond.send(VaultToSessiond::Pong(number)),
                SessiondToVault::Ciphers { number, ciphers, anew } => {
                    self.ciphers.set(number, (ciphers, anew), spis(&self.plane.sad));
                }
                SessiondToVault::Sever(number) => {
                    let (old, sad) = (self.ciphers.sever(number), &mut self.plane.sad);
                    let spis = old.into_iter().filter_map(Spi::new);
                    let whose = spis.filter_map(|spi| sad.delete(spi)).collect();
                    self.ciphers.erased(whose, sad.pairs().map(|pair| pair.session));
                }
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
            sas: sad.pairs().take(Report::ROWS).map(convert::report).collect(),
            sa_count: sad.pair_count() as u64,
            held: self.held,
        }
    }

    fn hear_keyer(&mut self) {
        for _ in 0..TURN {
            let Ok(Some(message)) = self.peers.keyer.hear::<KeyerToVault>() else { return };
            match message {
                KeyerToVault::Install {
                    session,
                    cipher,
                    esn,
                    inbound,
                    outbound,
                    answered,
                    peer,
                    aggregation,
                } => {
                    let spi = inbound.spi;
                    let peer = peer.and_then(|peer| self.reach(peer));
                    let now = self.now();
                    let allowed = self.ciphers.allow(session, cipher).then_some(()).ok_or(Refusal::Cipher);
                    let installed = allowed
                        .and_then(|()| {
                            convert::install(
                                session,
                                cipher,
                                esn,
                                [&inbound, &outbound],
                                answered,
                                peer,
                                aggregation,
                            )
                        })
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
                KeyerToVault::Retire { spi } => {
                    if let Some(spi) = Spi::new(spi) {
                        let now = self.now();
                        self.plane.sad.retire(now, spi);
                    }
                }
                KeyerToVault::Delete { spi } => {
                    if let Some(spi) = Spi::new(spi) {
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

/// The inbound SPIs of all pairs.
fn spis(sad: &Sad<SessionId>) -> impl Iterator<Item = u32> {
    sad.pairs().map(|pair| pair.inbound.get())
}

impl Drop for Vault {
    fn drop(&mut self) {
        let all: Vec<_> = self.plane.sad.sessions().collect();
        for id in all {
            self.plane.close(id);
        }
    }
}
