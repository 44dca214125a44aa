//! Process 1 once the compartment stands: starts programs, reaps, and ends when the warden does.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use levee_ipc::{Channel, Received, RecvError};
use levee_policy::ServiceName;
use levee_sys::signals::Signals;
use levee_sys::spawn;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::filters::Filters;
use super::front::{Front, GivenMachine};
use super::mediated::Mediated;
use super::program::{begin, strike};
use super::service::Services;
use crate::compartment::proto::{FromInit, ToInit, shorten, tell};
use crate::machine::proto::ToGuest;

/// How long what is killed may take to be gone. If it takes longer process 1 ends, and all with it.
const EMPTIED: Duration = Duration::from_secs(5);

/// Serves until the warden is gone. `is_built` says that it has been told that the compartment stands.
pub(super) fn run(
    channel: &Channel,
    (services, given): (Services, GivenMachine),
    is_built: &mut bool,
) -> Result<(), String> {
    let signals = Signals::new(&[Signal::CHILD]).map_err(|e| e.to_string())?;
    let mut filters = Filters::default();
    services.write()?;
    let machine = Front::start(given, &mut filters)?;
    let mut running = Running { machine, programs: BTreeMap::new(), services, mediated: Mediated::default() };
    if running.machine.is_none() {
        tell(channel, &FromInit::Built)?;
        *is_built = true;
    }
    loop {
        for (place, report) in running.services.see_to(&mut filters, Instant::now()) {
            tell(channel, &FromInit::Service(place, report))?;
        }
        running.wait(channel, &signals)?;
        while signals.next().map_err(|e| e.to_string())?.is_some() {}
        running.reap(channel)?;
        running.mediated.hear(&mut filters);
        running.mediated.tend(&mut filters);
        if let Some(machine) = &mut running.machine {
            let heard = machine.hear(channel);
            *is_built = machine.is_built();
            heard?;
        }
        match channel.try_recv::<ToInit>() {
            Ok(received) => running.told(received, channel, &mut filters)?,
            Err(RecvError::Empty) => {}
            Err(RecvError::Closed) => return Ok(()),
            Err(e) => return Err(e.to_string()),
        }
    }
}

/// What runs in the compartment.
struct Running {
    /// What the warden has had started, by process, with its number for it, and whether its program could be executed.
    programs: BTreeMap<i32, (u64, spawn::Report)>,
    services: Services,
    mediated: Mediated,
    machine: Option<Front>,
}

impl Running {
    fn wait(&self, channel: &Channel, signals: &Signals) -> Result<(), String> {
        let now = Instant::now();
        let mut fds = vec![
            PollFd::new(channel, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        let others = self.mediated.channel().into_iter().chain(self.services.waiting(now));
        let others = others.chain(self.machine.as_ref().and_then(Front::port));
        fds.extend(others.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let has_more = self.machine.as_ref().is_some_and(Front::has_more);
        let next = self.services.next(now).into_iter().chain(self.mediated.next()).min();
        let limit = if has_more { Some(Duration::ZERO) } else { next };
        let limit = limit.map(Timespec::try_from).transpose().map_err(|e| e.to_string())?;
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(format!("wait: {e}")),
        }
    }

    fn told(
        &mut self,
        received: Received<ToInit>,
        channel: &Channel,
        filters: &mut Filters,
    ) -> Result<(), String> {
        match received.message {
            ToInit::Start(start) => {
                let ticket = start.ticket;
                let fds: Vec<_> = received.fds.iter().map(AsFd::as_fd).collect();
                let answer = match begin(&start, &fds, filters) {
                    Ok((pid, report)) => {
                        self.programs.insert(pid.as_raw_nonzero().get(), (ticket, report));
                        FromInit::Started(ticket)
                    }
                    Err(reason) => FromInit::Refused(ticket, shorten(&reason)),
                };
                tell(channel, &answer)
            }
            ToInit::Signal { ticket, signal } => {
                send(&self.programs, ticket, signal);
                Ok(())
            }
            ToInit::Mediator(servers) => {
                let mut fds = received.fds.into_iter();
                let (Some(fd), Some(log)) = (fds.next(), fds.next()) else {
                    return Err("a mediator without a channel or a log".into());
                };
                self.mediated.replace(Channel::from_fd(fd), log, servers);
                Ok(())
            }
            ToInit::Services { ticket, off } => match &mut self.machine {
                // It answers itself.
                Some(machine) => machine.turn(ticket, off),
                None => {
                    self.turn(off, channel)?;
                    tell(channel, &FromInit::Turned(ticket))
                }
            },
            ToInit::Cut { ticket, address } => self.tell_machine(&ToGuest::Cut(ticket, address)),
            ToInit::Stop => self.tell_machine(&ToGuest::Stop),
            ToInit::Steps(_)
            | ToInit::Service { .. }
            | ToInit::Within(_)
            | ToInit::Machine(_)
            | ToInit::Log
            | ToInit::Build { .. } => Err("the compartment stands already".into()),
        }
    }

    /// Has these services off and no others. Processes cannot be told apart by whose they are: a service's may have left its process group and
    /// its parent. So where one that was on is off now, everything in the compartment ends but process 1, and what is on starts again.
    fn turn(&mut self, off: BTreeSet<ServiceName>, channel: &Channel) -> Result<(), String> {
        let before = self.services.off();
        let ends = self.services.turn(&off) | self.mediated.turn(off);
        if ends {
            self.empty(channel)?;
        }
        self.services.refuse_those_off(&before);
        Ok(())
    }

    /// Ends everything but process 1, and waits until nothing is left.
    fn empty(&mut self, channel: &Channel) -> Result<(), String> {
        let until = Instant::now() + EMPTIED;
        loop {
            // kill(2): as a process group, 1 is every process of the pid namespace but process 1.
            match rustix::process::kill_process_group(Pid::INIT, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(e) => return Err(format!("end all that runs: {e}")),
            }
            // Whatever has lost its parent is a child of process 1: where it has none, there is nothing else.
            if !self.reap(channel)? {
                break;
            }
            if Instant::now() >= until {
                return Err("what runs has not ended, though it was killed".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.services.ended_all();
        self.mediated.ended_all();
        Ok(())
    }

    fn tell_machine(&self, what: &ToGuest) -> Result<(), String> {
        self.machine.as_ref().ok_or("there is no machine")?.say(what)
    }

    /// Whether there are children left.
    fn reap(&mut self, channel: &Channel) -> Result<bool, String> {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    self.mediated.ended(pid);
                    let (pid, status) = (pid.as_raw_nonzero().get(), code(status));
                    self.services.ended(pid, status);
                    if let Some((ticket, report)) = self.programs.remove(&pid) {
                        let ended = match report.failure() {
                            Some(why) => FromInit::Refused(ticket, shorten(&why.to_string())),
                            None => FromInit::Exited(ticket, status),
                        };
                        tell(channel, &ended)?;
                    }
                    if let Some(machine) = &mut self.machine {
                        // What it said last is why.
                        machine.hear(channel)?;
                        machine.ended(pid, status)?;
                    }
                }
                Ok(None) => return Ok(true),
                Err(rustix::io::Errno::CHILD) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(format!("reap: {e}")),
            }
        }
    }
}

fn send(programs: &BTreeMap<i32, (u64, spawn::Report)>, ticket: u64, signal: i32) {
    let pid = programs.iter().find(|(_, (t, _))| *t == ticket).map(|(pid, _)| *pid);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
        strike(pid, signal);
    }
}

fn code(status: WaitStatus) -> u8 {
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => status,
        (None, Some(signal)) => signal.saturating_add(128),
        (None, None) => 255,
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}
