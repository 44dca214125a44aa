//! A program that process 1 starts, and how it is sent signals.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use levee_sys::spawn::{Program, Report};
use rustix::process::{Pid, Signal};
use rustix::thread::{Gid, Uid};

use super::filters::Filters;
use crate::compartment::SERVICE_UID;
use crate::compartment::service::Launch;

/// Where a program without a slash in its name is looked for.
const PATH: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/usr/sbin", "/usr/local/sbin"];

/// Begins a program, and waits for nothing: whoever runs at the label can stop it before it is executed, and process 1 would stand still
/// with it. What is reported once it has ended says whether it was executed.
pub(super) fn begin(
    start: &Launch,
    fds: &[BorrowedFd<'_>],
    filters: &mut Filters,
) -> Result<(Pid, Report), String> {
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
    program.stdio = [stdin.copied(), Some(*stdout), Some(*stderr)];
    program.fds = rest.to_vec();
    // Uid 0 is process 1's alone.
    program.identity = Some((Uid::from_raw(SERVICE_UID), Gid::from_raw(SERVICE_UID)));
    program.terminal = start.terminal;
    program.filter = Some(filters.of(&start.filter).map_err(|e| e.to_string())?);
    // The children of process 1 end with it in any case.
    program.die_with_parent = false;
    program.begin().map(|(child, report)| (child.pid, report)).map_err(|e| e.to_string())
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

/// Sends a signal to the process group of a process that was started and has not been waited for. Each leads one, but for the moment
/// before it does.
pub(super) fn strike(pid: i32, signal: Signal) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    if rustix::process::kill_process_group(pid, signal).is_err() {
        // It may have ended by now, which is heard of.
        let _ = rustix::process::kill_process(pid, signal);
    }
}
