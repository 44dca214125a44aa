//! A service of a label that runs: its listeners, when it is started, and the truth about what came of it.

use crate::compartment::Compartment;
use crate::compartment::service::Launch;
use crate::log;
use crate::rest::Rest;
use crate::waits::{Source, Waits, WatchedFd};
use levee_policy::decision::Connect;
use levee_policy::{Grant, ServiceName};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, SocketType, listen, recv, shutdown, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What runs so long after its start has started.
const SETTLED: Duration = Duration::from_secs(2);
/// How long a service that ended well rests before a connection may start it again.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// Starts are told one by one no more often than this; those between are counted.
const TOLD: Duration = Duration::from_secs(60);
/// Connections that may wait at a listener.
const BACKLOG: i32 = 511;
/// Datagrams that are thrown away at most when who waits is refused.
const DATAGRAMS: usize = 1_024;

/// What was done, for the audit log.
#[derive(Debug, PartialEq, Eq)]
pub struct Note {
    /// About what.
    pub object: String,
    /// Whether it was done.
    pub done: bool,
    /// Why, or why not.
    pub reason: String,
}

/// Why there is a service.
#[derive(Debug)]
enum Right {
    /// It may be reached at this label.
    Granted(Grant<Connect>),
    /// This is a machine of a label's, whose warden has the grant.
    Outside(ServiceName),
}

/// A service's listeners, and whether it runs.
#[derive(Debug)]
pub struct Service {
    right: Right,
    launch: Launch,
    listeners: Vec<Arc<OwnedFd>>,
    /// Those that are waited for.
    watched: Vec<WatchedFd>,
    /// Its standard output and error.
    log: OwnedFd,
    life: Life,
}

/// What a service does, without its descriptors.
#[derive(Debug, Default)]
struct Life {
    /// It binds its port itself, and runs as long as its label does.
    itself: bool,
    ticket: Option<u64>,
    starts: u32,
    /// When it was started, as long as it is not clear whether it runs.
    unsettled: Option<Instant>,
    /// How it ended, and whether well; as long as nothing has been made of it.
    ended: Option<(String, bool)>,
    /// Why it does not run, where it could not be started; told once.
    trouble: Option<String>,
    rest: Rest,
    /// After a good end.
    pause: Option<Instant>,
    /// When a start was told last, and how many were not since.
    told: Option<Instant>,
    untold: u32,
}

/// What is to become of a service that has settled.
#[derive(Debug, PartialEq, Eq)]
enum Settled {
    /// Nothing is to be done.
    No,
    /// It has started, and this is to be told of it.
    Started(String),
    /// It did not start: who waits is refused; told where it is new.
    Failed(Option<String>),
}

impl Life {
    fn begin(&mut self, now: Instant) {
        self.starts = self.starts.saturating_add(1);
        self.rest.began(now);
        (self.unsettled, self.pause) = (Some(now), None);
    }

    fn settle(&mut self, now: Instant) -> Settled {
        let soon = self.unsettled.is_some_and(|since| now.saturating_duration_since(since) < SETTLED);
        match self.ended.take() {
            Some((why, false)) if soon => {
                self.unsettled = None;
                self.rest.ended(now);
                let told = self.trouble.replace(why.clone()).is_some();
                Settled::Failed((!told).then(|| format!("failed to start: {why}")))
            }
            Some(_) => {
                self.pause = Some(now + PAUSE);
                self.has_started(now)
            }
            None if soon => Settled::No,
            None => self.has_started(now),
        }
    }

    fn has_started(&mut self, now: Instant) -> Settled {
        if self.unsettled.take().is_none() {
            return Settled::No;
        }
        let was_in_trouble = self.trouble.take().is_some();
        let recently = self.told.is_some_and(|at| now.saturating_duration_since(at) < TOLD);
        if recently && !was_in_trouble {
            self.untold = self.untold.saturating_add(1);
            return Settled::No;
        }
        self.told = Some(now);
        let by = if self.itself { "with its label" } else { "by its first connection" };
        Settled::Started(match std::mem::take(&mut self.untold) {
            0 => format!("started {by}"),
            count => format!("started {by}, and {count} times before since the last record"),
        })
    }

    /// Whether a connection may start it.
    fn is_offered(&self, now: Instant) -> bool {
        let idle = self.ticket.is_none() && self.ended.is_none() && self.unsettled.is_none();
        idle && self.rest.is_over(now) && self.pause.is_none_or(|until| until <= now)
    }
}

impl Service {
    /// One that does not run.
    pub fn new(grant: Grant<Connect>, launch: Launch, listeners: Vec<OwnedFd>, log: OwnedFd) -> Self {
        Self::of(Right::Granted(grant), launch, listeners, log)
    }

    /// One in a label's machine, whose warden has decided that there is one.
    pub fn within(name: ServiceName, launch: Launch, listeners: Vec<OwnedFd>, log: OwnedFd) -> Self {
        Self::of(Right::Outside(name), launch, listeners, log)
    }

    fn of(right: Right, launch: Launch, listeners: Vec<OwnedFd>, log: OwnedFd) -> Self {
        let listeners = listeners.into_iter().map(Arc::new).collect();
        Self { right, launch, listeners, watched: Vec::new(), log, life: Life::default() }
    }

    /// As it is, but that it binds its port itself (`mode = "itself"`), if so.
    pub fn itself(mut self, itself: bool) -> Self {
        self.life.itself = itself;
        self
    }

    /// Its name.
    pub fn name(&self) -> &ServiceName {
        match &self.right {
            Right::Granted(grant) => grant.action().service(),
            Right::Outside(name) => name,
        }
    }

    /// How often it was started.
    pub fn starts(&self) -> u32 {
        self.life.starts
    }

    /// Its listeners, where one that has somebody waiting would start it.
    pub fn waiting(&self, now: Instant) -> impl Iterator<Item = BorrowedFd<'_>> {
        let offered = self.life.is_offered(now);
        self.listeners.iter().filter(move |_| offered).map(AsFd::as_fd)
    }

    /// Has its listeners waited for, as long as somebody who waits would start it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&mut self, waits: &mut Waits, source: impl Fn() -> Source, now: Instant) -> io::Result<()> {
        if !self.life.is_offered(now) {
            self.watched.clear();
        } else if self.watched.is_empty() {
            let watched = self.listeners.iter().map(|listener| waits.watch(Arc::clone(listener), source()));
            self.watched = watched.collect::<io::Result<_>>()?;
        }
        Ok(())
    }

    /// Whether [`Service::settle`] is to be asked.
    pub fn is_unsettled(&self) -> bool {
        self.life.unsettled.is_some() || self.life.ended.is_some() || self.life.trouble.is_some()
    }

    /// Whether it will be offered again without anything happening.
    pub fn rests(&self, now: Instant) -> bool {
        self.life.pause.is_some_and(|until| until > now) || !self.life.rest.is_over(now)
    }

    /// Starts it with its listeners, of which one has somebody waiting. What becomes of it is told by [`Service::settle`].
    pub fn start(&mut self, ticket: u64, compartment: &mut Compartment, now: Instant) {
        let mut fds = vec![self.log.as_fd(), self.log.as_fd()];
        fds.extend(self.listeners.iter().map(AsFd::as_fd));
        self.life.begin(now);
        match compartment.run(self.launch.start(ticket), &fds) {
            Ok(()) => self.life.ticket = Some(ticket),
            Err(e) => self.life.ended = Some((e.to_string(), false)),
        }
    }

    /// Its label's machine has started it.
    pub fn began(&mut self, now: Instant) {
        self.life.begin(now);
    }

    /// Whether it is to be started without anybody asking: it binds its port itself, and does not run.
    pub fn is_due(&self, now: Instant) -> bool {
        self.is_missing() && self.life.is_offered(now)
    }

    /// Whether it is to run, and does not.
    pub fn is_missing(&self) -> bool {
        self.life.itself && self.life.ticket.is_none()
    }

    /// What was started under this ticket has ended: how, and whether well. Whether that is this service.
    pub fn ended(&mut self, ticket: u64, how: &str, well: bool) -> bool {
        let ours = self.life.ticket == Some(ticket);
        if ours {
            self.has_ended(how, well);
        }
        ours
    }

    /// It has ended: how, and whether well.
    pub fn has_ended(&mut self, how: &str, well: bool) {
        log!("service {} {how}", self.name());
        (self.life.ticket, self.life.ended) = (None, Some((how.to_owned(), well)));
    }

    /// It has written a line in its label's machine.
    pub fn said(&self, line: &str) {
        // What there is no room for is lost, as everywhere.
        let _ = rustix::io::write(&self.log, format!("{line}\n").as_bytes());
    }

    /// Makes of its end, or of that it runs, what it is; what the audit log is to have. Who waits for one that does not start is
    /// refused by the kernel until it has rested.
    pub fn settle(&mut self, now: Instant) -> Option<Note> {
        let object = format!("service {}", self.name());
        let note = match self.life.settle(now) {
            Settled::No => None,
            Settled::Started(reason) => Some(Note { object, done: true, reason }),
            Settled::Failed(told) => {
                self.each_listener("refuse who waits for", refuse);
                told.map(|reason| Note { object, done: false, reason })
            }
        };
        // (A listener that listens already stays as it is.)
        if self.life.trouble.is_some() && self.life.is_offered(now) {
            self.each_listener("offer", offer);
        }
        note
    }

    /// What an operator is to know of it.
    pub fn alarm(&self, now: Instant) -> Option<String> {
        let why = self.life.trouble.as_ref()?;
        let left = self.life.rest.left(now).as_secs();
        Some(format!("service {} does not start ({why}); a connection may start it in {left} s", self.name()))
    }

    fn each_listener(&self, what: &str, act: fn(&OwnedFd) -> rustix::io::Result<()>) {
        if let Err(e) = self.listeners.iter().try_for_each(|listener| act(listener)) {
            log!("cannot {what} {}: {e}", self.name());
        }
    }
}

/// Refuses who waits at a listener and who comes: a stream socket that is shut down listens no more and keeps its address. Datagrams
/// that wait are thrown away.
///
/// # Errors
/// The kernel's.
pub fn refuse(listener: &OwnedFd) -> rustix::io::Result<()> {
    if sockopt::socket_type(listener)? == SocketType::STREAM {
        return match shutdown(listener, Shutdown::Both) {
            // It does not listen already.
            Err(Errno::NOTCONN) => Ok(()),
            done => done,
        };
    }
    for _ in 0..DATAGRAMS {
        match recv(listener, &mut [0u8; 1][..], RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    Ok(())
}

/// Listens again. One that listens already stays as it is.
///
/// # Errors
/// The kernel's.
pub fn offer(listener: &OwnedFd) -> rustix::io::Result<()> {
    if sockopt::socket_type(listener)? == SocketType::STREAM {
        return listen(listener, BACKLOG);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    fn start(life: &mut Life, now: Instant) {
        assert!(life.is_offered(now));
        (life.unsettled, life.ticket) = (Some(now), Some(1));
        life.rest.began(now);
    }

    fn end(life: &mut Life, well: bool) {
        (life.ticket, life.ended) = (None, Some(("ended with status 7".into(), well)));
    }

    #[test]
    fn that_it_started_is_told_once_it_has_run_for_a_while() {
        let (mut life, now) = (Life::default(), Instant::now());
        start(&mut life, now);
        assert_eq!(life.settle(now + Duration::from_secs(1)), Settled::No);
        assert!(matches!(life.settle(now + SETTLED), Settled::Started(_)));
        assert_eq!(life.settle(now + SETTLED * 2), Settled::No);
        // It ends later, however: it had started, and may be started again soon.
        end(&mut life, false);
        assert!(!life.is_offered(now + SETTLED * 3));
        assert_eq!(life.settle(now + SETTLED * 3), Settled::No);
        assert!(life.is_offered(now + SETTLED * 3 + PAUSE));
    }

    #[test]
    fn one_that_cannot_start_is_told_once_and_rests_longer_each_time() {
        let (mut life, mut now) = (Life::default(), Instant::now());
        let mut rests = Vec::new();
        for round in 0..6 {
            start(&mut life, now);
            end(&mut life, false);
            let settled = life.settle(now);
            let told = (round == 0).then(|| "failed to start: ended with status 7".to_owned());
            assert_eq!(settled, Settled::Failed(told), "round {round}");
            assert!(!life.is_offered(now));
            rests.push(life.rest.left(now).as_secs());
            now += life.rest.left(now);
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32]);
        // Mended, that is told, too.
        start(&mut life, now);
        assert!(matches!(life.settle(now + SETTLED), Settled::Started(_)));
        assert!(life.trouble.is_none());
    }

    #[test]
    fn one_that_ends_well_after_each_connection_is_told_once_a_minute_with_their_number() {
        let (mut life, mut now) = (Life::default(), Instant::now());
        let mut told = Vec::new();
        for _ in 0..122 {
            start(&mut life, now);
            end(&mut life, true);
            if let Settled::Started(reason) = life.settle(now) {
                told.push(reason);
            }
            now += PAUSE;
        }
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[1].contains("and 59 times before"), "{told:?}");
    }

    #[test]
    fn who_waits_is_refused_and_the_listener_can_be_used_again() {
        // A port that the kernel chose would go back to it.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = TcpListener::bind(address).unwrap();
        let waits = TcpStream::connect(address).unwrap();
        let listener = OwnedFd::from(listener);
        refuse(&listener).unwrap();
        refuse(&listener).unwrap();
        let gone = std::io::Read::read(&mut &waits, &mut [0; 1]).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::ConnectionReset);
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        offer(&listener).unwrap();
        offer(&listener).unwrap();
        TcpStream::connect(address).unwrap();
        TcpListener::from(listener).accept().unwrap();

        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..3 {
            sender.send_to(b"anybody?", datagrams.local_addr().unwrap()).unwrap();
        }
        let datagrams = OwnedFd::from(datagrams);
        refuse(&datagrams).unwrap();
        offer(&datagrams).unwrap();
        let left = recv(&datagrams, &mut [0u8; 8][..], RecvFlags::DONTWAIT);
        assert_eq!(left.map(|(_, n)| n), Err(Errno::AGAIN));
    }
}
