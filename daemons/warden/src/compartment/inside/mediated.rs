//! Server processes that process 1 starts for the label's mediator, each for one connection.
//!
//! The warden has said which programs these are. The mediator says no more than which service, for whom, and gives the
//! connection; it cannot have anything else started.
//!
//! While a service is used, a few of its processes are ready: everything but the exec is done, and they wait
//! ([`levee_sys::spawn::Ready`]). They are made of what the warden said alone; for whom one will run comes with its connection, once
//! the grant is recorded. One that is gone, or stopped by somebody at the label, costs what it did before there were any: the
//! connection's process is started then, or hangs as one would that is stopped later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use levee_ipc::mediator::{FromStarter, ToStarter};
use levee_ipc::{Channel, Received, RecvError};
use levee_policy::site::{Mode, Passed};
use levee_policy::{ServiceName, UserName};
use levee_sys::spawn::{Program, Ready, Report};
use rustix::process::{Pid, Signal};
use rustix::thread::{Gid, Uid};

use super::filters::Filters;
use super::program::strike;
use super::serving;
use crate::compartment::SERVICE_UID;
use crate::compartment::proto::Handoff;
use crate::compartment::service::{Profile, Served};

/// The most messages taken at a time, so that the warden need not wait.
const TURN: usize = 64;

/// How long processes of a service are kept ready that nobody uses: then nothing is left of them, and nothing wakes.
const KEPT: Duration = Duration::from_secs(30);

/// The mediator's side of process 1.
#[derive(Default)]
pub(super) struct Mediated {
    channel: Option<Channel>,
    /// The servers' standard error.
    log: Option<OwnedFd>,
    servers: BTreeMap<ServiceName, Handoff>,
    /// Of which none is started.
    off: BTreeSet<ServiceName>,
    /// What runs, by process.
    running: BTreeMap<i32, Running>,
    /// Those of which it may not be clear yet whether they could be executed.
    unsure: VecDeque<i32>,
    /// What waits, of services that are used.
    stocks: BTreeMap<ServiceName, Stock>,
}

/// A server process.
struct Running {
    /// The mediator's number for it.
    ticket: u64,
    service: ServiceName,
    /// Whether its program could be executed, until it is.
    report: Option<Report>,
}

/// Processes of a service that are ready.
struct Stock {
    waiting: VecDeque<Ready>,
    /// When a connection to the service was last heard of.
    used: Instant,
    /// One ended that nobody had ended: no other is made before the next connection.
    rests: bool,
}

impl Mediated {
    /// To be waited on.
    pub fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(AsFd::as_fd)
    }

    /// Another mediator.
    pub fn replace(&mut self, channel: Channel, log: OwnedFd, servers: Vec<Handoff>) {
        self.lose();
        (self.channel, self.log) = (Some(channel), Some(log));
        // Uid 0 is process 1's alone.
        self.servers = servers.into_iter().map(|server| (server.served.name.clone(), server)).collect();
    }

    /// Has these off and no others. Whether one that was on is off now: of those that are on and of those that are off nothing is ready then.
    pub fn turn(&mut self, off: BTreeSet<ServiceName>) -> bool {
        let before = std::mem::replace(&mut self.off, off);
        self.off.iter().any(|name| !before.contains(name))
    }

    /// Nothing of any server runs.
    pub fn ended_all(&mut self) {
        self.stocks.clear();
    }

    /// Does what the mediator asks.
    pub fn hear(&mut self, filters: &mut Filters) {
        for _ in 0..TURN {
            let Some(channel) = &self.channel else { return };
            match channel.try_recv::<ToStarter>() {
                Ok(Received { message: ToStarter::Prepare { service }, .. }) => self.use_now(&service),
                Ok(Received { message: ToStarter::Start { ticket, service, user, from }, mut fds }) => {
                    let connection = fds.pop().filter(|_| fds.is_empty());
                    let whom = whom(user.as_ref(), from);
                    let started = connection.and_then(|fd| self.start(&service, &whom, fd.as_fd(), filters));
                    match started {
                        Some((pid, report)) => {
                            let (pid, report) = (pid.as_raw_nonzero().get(), Some(report));
                            self.running.insert(pid, Running { ticket, service, report });
                            self.unsure.push_back(pid);
                            self.settle();
                        }
                        None => self.tell(FromStarter::Refused { ticket }),
                    }
                }
                Ok(Received { message: ToStarter::End { ticket, at_once }, .. }) => {
                    let signal = if at_once { Signal::KILL } else { Signal::TERM };
                    let pids = self.running.iter().filter(|(_, running)| running.ticket == ticket);
                    pids.for_each(|(pid, _)| strike(*pid, signal));
                }
                Err(RecvError::Empty) => return,
                // Gone, or not what it should be: what it had started is nobody's any more.
                Err(_) => return self.lose(),
            }
        }
    }

    /// Forgets the reports of those that are executed, a few at a time: each is a descriptor.
    fn settle(&mut self) {
        for _ in 0..2 {
            let Some(pid) = self.unsure.pop_front() else { return };
            match self.running.get_mut(&pid) {
                Some(Running { report, .. }) if report.as_ref().is_some_and(Report::is_over) => {
                    *report = None
                }
                Some(Running { report: Some(_), .. }) => self.unsure.push_back(pid),
                _ => {}
            }
        }
    }

    /// A process of this service for a connection: one that is ready, or a new one. With what it reports if its program cannot
    /// be executed: nobody waits for that.
    fn start(
        &mut self,
        service: &ServiceName,
        whom: &[OsString],
        connection: BorrowedFd<'_>,
        filters: &mut Filters,
    ) -> Option<(Pid, Report)> {
        if self.off.contains(service) {
            return None;
        }
        self.use_now(service);
        let ready = self.stocks.get_mut(service).and_then(|stock| stock.waiting.pop_front());
        if let Some((child, report)) = ready.and_then(|ready| ready.go(connection, whom)) {
            return Some((child.pid, report));
        }
        let (server, log) = (self.servers.get(service)?, self.log.as_ref()?);
        let mut program = program(server, connection, log);
        program.env.extend_from_slice(whom);
        let filter = filters.of(&Profile::Service(server.served.needs.clone()));
        match filter.map(|filter| program.filter = Some(filter)).and_then(|()| program.begin()) {
            Ok((child, report)) => Some((child.pid, report)),
            Err(e) => {
                say(service, &e);
                None
            }
        }
    }

    /// A connection to the service comes: processes are to be ready for those after it.
    fn use_now(&mut self, service: &ServiceName) {
        let server = self.servers.get(service).filter(|server| server.ready > 0);
        let Some(server) = server.filter(|_| !self.off.contains(service)) else { return };
        let none = || Stock { waiting: VecDeque::new(), used: Instant::now(), rests: false };
        let stock = self.stocks.entry(server.served.name.clone()).or_insert_with(none);
        (stock.used, stock.rests) = (Instant::now(), false);
    }

    /// How long may be waited before [`Mediated::tend`]; `None` for as long as nothing happens.
    pub fn next(&self) -> Option<Duration> {
        if self.wanted().is_some() {
            return Some(Duration::ZERO);
        }
        let last = self.stocks.values().map(|stock| stock.used + KEPT).min()?;
        Some(last.saturating_duration_since(Instant::now()))
    }

    /// A service of which another process is to be ready.
    fn wanted(&self) -> Option<&Handoff> {
        let wants = |(service, stock): (&ServiceName, &Stock)| {
            let server = self.servers.get(service)?;
            (!stock.rests && stock.waiting.len() < server.ready as usize).then_some(server)
        };
        self.stocks.iter().find_map(wants)
    }

    /// Makes one process ready, if one is wanted, and lets those go that nobody used.
    pub fn tend(&mut self, filters: &mut Filters) {
        self.stocks.retain(|_, stock| {
            let is_kept = stock.used.elapsed() < KEPT;
            if !is_kept {
                stock.end();
            }
            is_kept
        });
        let (Some(server), Some(log)) = (self.wanted(), &self.log) else { return };
        let service = server.served.name.clone();
        // In the connection's place stands what the process has anyway.
        let mut program = program(server, log.as_fd(), log);
        let targets: &[i32] = if passed(&server.served) == Passed::Stdio { &[0, 1] } else { &[3] };
        let filter = filters.of(&Profile::Service(server.served.needs.clone()));
        let ready =
            filter.map(|filter| program.filter = Some(filter)).and_then(|()| program.make_ready(targets));
        let Some(stock) = self.stocks.get_mut(&service) else { return };
        match ready {
            Ok(ready) => stock.waiting.push_back(ready),
            // There may be no room for more processes: connections need it more.
            Err(_) => stock.rests = true,
        }
    }

    /// A process has ended, perhaps one of these.
    pub fn ended(&mut self, pid: Pid) {
        for stock in self.stocks.values_mut() {
            if let Some(at) = stock.waiting.iter().position(|ready| ready.child.pid == pid) {
                stock.waiting.remove(at);
                stock.rests = true;
            }
        }
        let pid = pid.as_raw_nonzero().get();
        if let Some(Running { ticket, service, report }) = self.running.remove(&pid) {
            // What it left in its process group has lost its connection.
            end(pid, Signal::KILL);
            match report.and_then(|report| report.failure()) {
                Some(why) => {
                    say(&service, &why);
                    self.tell(FromStarter::Refused { ticket });
                }
                None => self.tell(FromStarter::Ended { ticket }),
            }
        }
    }

    fn tell(&mut self, message: FromStarter) {
        // A mediator that does not read cannot be waited for.
        if self.channel.as_ref().is_some_and(|channel| channel.try_send(&message).is_err()) {
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.channel = None;
        std::mem::take(&mut self.stocks).values().for_each(Stock::end);
        std::mem::take(&mut self.running).keys().for_each(|pid| strike(*pid, Signal::KILL));
    }
}

impl Stock {
    /// Ends those that wait: one that somebody at the label has stopped would not see that it is wanted no more.
    fn end(&self) {
        self.waiting.iter().for_each(|ready| strike(ready.child.pid.as_raw_nonzero().get(), Signal::KILL));
    }
}

/// To the process group that a process led which has ended; no error if none is left.
fn end(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// Why a server process could not be started, for the label's log.
fn say(service: &ServiceName, why: &levee_sys::Error) {
    let _ = writeln!(std::io::stderr(), "{service}: {why}");
}

/// How one of its processes finds its connection. (The mediator hands no others off.)
fn passed(service: &Served) -> Passed {
    if let Mode::Handoff(passed) = service.mode { passed } else { Passed::Stdio }
}

/// For whom a process runs, as systemd says it to one that it starts for one connection (systemd.exec(5)).
fn whom(user: Option<&UserName>, from: SocketAddr) -> Vec<OsString> {
    let mut whom =
        vec![format!("REMOTE_ADDR={}", from.ip()).into(), format!("REMOTE_PORT={}", from.port()).into()];
    whom.extend(user.map(|user| format!("LEVEE_USER={user}").into()));
    whom
}

/// A server process with this connection. Its filter is still to be said.
fn program<'fd>(server: &Handoff, connection: BorrowedFd<'fd>, log: &'fd OwnedFd) -> Program<'fd> {
    let start = serving::start(&server.served);
    let mut program = Program::new(&start.program);
    // Those of process 1 hold, which its filter lets nobody change.
    program.limits.clear();
    program.args = start.argv.iter().map(Into::into).collect();
    program.env = start.env.iter().map(Into::into).collect();
    program.stdio = match passed(&server.served) {
        Passed::Stdio => [Some(connection), Some(connection), Some(log.as_fd())],
        Passed::ListenFds => [None, None, Some(log.as_fd())],
    };
    if passed(&server.served) == Passed::ListenFds {
        program.fds = vec![connection];
        program.env.extend(["LISTEN_FDS=1", "LISTEN_FDNAMES=connection"].map(Into::into));
        program.listen_pid = true;
    }
    program.identity = Some((Uid::from_raw(SERVICE_UID), Gid::from_raw(SERVICE_UID)));
    program.die_with_parent = false;
    program
}
