//! Server processes that process 1 starts for the label's mediator, each for one connection.
//!
//! The warden has said which programs these are. The mediator says no more than which service, for whom, and gives the
//! connection; it cannot have anything else started.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use levee_ipc::mediator::{FromStarter, ToStarter};
use levee_ipc::{Channel, Received, RecvError};
use levee_policy::site::Passed;
use levee_policy::{ServiceName, UserName};
use levee_sys::spawn::Program;
use rustix::process::{Pid, Signal};
use rustix::thread::{Gid, Uid};

use super::filters::Filters;
use crate::compartment::proto::{Profile, Server};

/// The most messages taken at a time, so that the warden need not wait.
const TURN: usize = 64;

/// The mediator's side of process 1.
#[derive(Default)]
pub(super) struct Mediated {
    channel: Option<Channel>,
    /// The servers' standard error.
    log: Option<OwnedFd>,
    servers: BTreeMap<ServiceName, Server>,
    /// What runs, by process, with the mediator's number for it.
    running: BTreeMap<i32, u64>,
}

impl Mediated {
    /// To be waited on.
    pub fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(AsFd::as_fd)
    }

    /// Another mediator.
    pub fn replace(&mut self, channel: Channel, log: OwnedFd, servers: Vec<Server>) {
        self.lose();
        (self.channel, self.log) = (Some(channel), Some(log));
        self.servers = servers.into_iter().map(|server| (server.service.clone(), server)).collect();
    }

    /// Does what the mediator asks.
    pub fn hear(&mut self, filters: &mut Filters) {
        for _ in 0..TURN {
            let Some(channel) = &self.channel else { return };
            match channel.try_recv::<ToStarter>() {
                Ok(Received { message: ToStarter::Start { ticket, service, user, from }, mut fds }) => {
                    let connection = fds.pop().filter(|_| fds.is_empty());
                    let server = self.servers.get(&service);
                    let started =
                        server.zip(connection).zip(self.log.as_ref()).and_then(|((server, fd), log)| {
                            start(server, user.as_ref(), from, &fd, log, filters)
                        });
                    match started {
                        Some(pid) => {
                            self.running.insert(pid.as_raw_nonzero().get(), ticket);
                        }
                        None => self.tell(FromStarter::Refused { ticket }),
                    }
                }
                Ok(Received { message: ToStarter::End { ticket, at_once }, .. }) => {
                    let signal = if at_once { Signal::KILL } else { Signal::TERM };
                    let pids = self.running.iter().filter(|(_, running)| **running == ticket);
                    pids.for_each(|(pid, _)| end(*pid, signal));
                }
                Err(RecvError::Empty) => return,
                // Gone, or not what it should be: what it had started is nobody's any more.
                Err(_) => return self.lose(),
            }
        }
    }

    /// A process has ended, perhaps one of these.
    pub fn ended(&mut self, pid: Pid) {
        let pid = pid.as_raw_nonzero().get();
        if let Some(ticket) = self.running.remove(&pid) {
            // What it left in its process group has lost its connection.
            end(pid, Signal::KILL);
            self.tell(FromStarter::Ended { ticket });
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
        std::mem::take(&mut self.running).keys().for_each(|pid| end(*pid, Signal::KILL));
    }
}

/// To a program's process group, which it leads; no error if none is left.
fn end(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

fn start(
    server: &Server,
    user: Option<&UserName>,
    from: SocketAddr,
    connection: &OwnedFd,
    log: &OwnedFd,
    filters: &mut Filters,
) -> Option<Pid> {
    if server.uid == 0 {
        return None;
    }
    let mut program = Program::new(&server.program);
    // Those of process 1 hold, which its filter lets nobody change.
    program.limits.clear();
    program.args = server.argv.iter().map(Into::into).collect();
    program.env = server.env.iter().map(Into::into).collect();
    // As systemd says it to a process that it starts for one connection (systemd.exec(5)).
    program.env.push(format!("REMOTE_ADDR={}", from.ip()).into());
    program.env.push(format!("REMOTE_PORT={}", from.port()).into());
    program.env.extend(user.map(|user| format!("LEVEE_USER={user}").into()));
    program.stdio = match server.passed {
        Passed::Stdio => [Some(connection.as_fd()), Some(connection.as_fd()), Some(log.as_fd())],
        Passed::ListenFds => [None, None, Some(log.as_fd())],
    };
    if server.passed == Passed::ListenFds {
        program.fds = vec![connection.as_fd()];
        program.env.extend(["LISTEN_FDS=1", "LISTEN_FDNAMES=connection"].map(Into::into));
        program.listen_pid = true;
    }
    program.identity = Some((Uid::from_raw(server.uid), Gid::from_raw(server.uid)));
    program.die_with_parent = false;
    let filter =
        filters.of(&Profile::Service(server.needs.clone())).map(|filter| program.filter = Some(filter));
    match filter.and_then(|()| program.start()) {
        Ok(child) => Some(child.pid),
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "{}: {e}", server.service);
            None
        }
    }
}
