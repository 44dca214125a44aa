//! Process 1 once the compartment stands: starts programs, reaps, and ends when the warden does.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use levee_ipc::{Channel, RecvError};
use levee_sys::signals::Signals;
use levee_sys::spawn::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use rustix::thread::{Gid, Uid};

use super::filters::Filters;
use super::mediated::Mediated;
use super::{shorten, tell};
use crate::compartment::proto::{FromInit, Start, ToInit};

/// Where a program without a slash in its name is looked for.
const PATH: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/usr/sbin", "/usr/local/sbin"];

pub(super) fn run(channel: &Channel) -> Result<(), String> {
    let signals = Signals::new(&[Signal::CHILD]).map_err(|e| e.to_string())?;
    let mut programs: BTreeMap<i32, u64> = BTreeMap::new();
    let mut mediated = Mediated::default();
    let mut filters = Filters::default();
    loop {
        let mut fds = vec![
            PollFd::new(channel, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        fds.extend(mediated.channel().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let limit = mediated.next().and_then(|limit| Timespec::try_from(limit).ok());
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("wait: {e}")),
        }
        while signals.next().map_err(|e| e.to_string())?.is_some() {}
        reap(channel, &mut programs, &mut mediated)?;
        mediated.hear(&mut filters);
        mediated.tend(&mut filters);
        match channel.try_recv::<ToInit>() {
            Ok(received) => match received.message {
                ToInit::Start(start) => {
                    let ticket = start.ticket;
                    let answer = match begin(&start, &received.fds, &mut filters) {
                        Ok(pid) => {
                            programs.insert(pid.as_raw_nonzero().get(), ticket);
                            FromInit::Started { ticket }
                        }
                        Err(reason) => FromInit::Refused { ticket, reason: shorten(&reason) },
                    };
                    tell(channel, &answer)?;
                }
                ToInit::Signal { ticket, signal } => send(&programs, ticket, signal),
                ToInit::Mediator(servers) => {
                    let mut fds = received.fds.into_iter();
                    let (Some(fd), Some(log)) = (fds.next(), fds.next()) else {
                        return Err("a mediator without a channel or a log".into());
                    };
                    mediated.replace(Channel::from_fd(fd), log, servers);
                }
                ToInit::Steps(_) | ToInit::Build { .. } => {
                    return Err("the compartment stands already".into());
                }
            },
            Err(RecvError::Empty) => {}
            Err(RecvError::Closed) => return Ok(()),
            Err(e) => return Err(e.to_string()),
        }
    }
}

fn reap(channel: &Channel, programs: &mut BTreeMap<i32, u64>, mediated: &mut Mediated) -> Result<(), String> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                mediated.ended(pid);
                if let Some(ticket) = programs.remove(&pid.as_raw_nonzero().get()) {
                    tell(channel, &FromInit::Exited { ticket, status: code(status) })?;
                }
            }
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("reap: {e}")),
        }
    }
}

fn begin(start: &Start, fds: &[OwnedFd], filters: &mut Filters) -> Result<Pid, String> {
    if start.uid == 0 {
        return Err("uid 0 is process 1's alone".into());
    }
    let (stdin, fds) = match fds {
        [stdin, fds @ ..] if start.input => (Some(stdin), fds),
        fds => (None, fds),
    };
    let [stdout, stderr, rest @ ..] = fds else {
        return Err("standard descriptors must come along".into());
    };
    let path = find(&start.program).ok_or_else(|| format!("{}: there is no such program", start.program))?;
    let mut program = Program::new(path);
    // Those of process 1 hold, which its filter lets nobody change.
    program.limits.clear();
    program.args = start.argv.iter().map(Into::into).collect();
    program.env = start.env.iter().map(Into::into).collect();
    program.listen_pid = start.env.iter().any(|entry| entry.starts_with("LISTEN_FDS="));
    // A person's programs begin at home; services have none.
    let home =
        start.env.iter().find_map(|entry| entry.strip_prefix("HOME=")).filter(|home| home.starts_with('/'));
    program.directory = home.unwrap_or("/").into();
    program.stdio = [stdin.map(AsFd::as_fd), Some(stdout.as_fd()), Some(stderr.as_fd())];
    program.fds = rest.iter().map(AsFd::as_fd).collect();
    program.identity = Some((Uid::from_raw(start.uid), Gid::from_raw(start.uid)));
    program.terminal = start.terminal;
    program.filter = Some(filters.of(&start.filter).map_err(|e| e.to_string())?);
    // The children of process 1 end with it in any case.
    program.die_with_parent = false;
    program.start().map(|child| child.pid).map_err(|e| e.to_string())
}

fn find(name: &str) -> Option<PathBuf> {
    if name.starts_with('/') {
        return Some(name.into());
    }
    if name.contains('/') || name.is_empty() {
        return None;
    }
    PATH.iter().map(|directory| PathBuf::from(directory).join(name)).find(|path| path.is_file())
}

fn send(programs: &BTreeMap<i32, u64>, ticket: u64, signal: i32) {
    let pid = programs.iter().find(|(_, t)| **t == ticket).and_then(|(pid, _)| Pid::from_raw(*pid));
    let signal = Signal::from_named_raw(signal);
    if let (Some(pid), Some(signal)) = (pid, signal) {
        // Each program leads a process group. It may have ended by now, which the warden will hear of.
        let _ = rustix::process::kill_process_group(pid, signal);
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
