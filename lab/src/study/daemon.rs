//! Programs of others that run in a namespace as long as a trial needs them.

use crate::netns::inside;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The first process of a group, killed with the group when dropped: nginx has a worker.
pub(super) struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // The only failure is that it has ended already.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        drop(self.0.wait());
    }
}

/// Starts a program in a network namespace, with these listeners as its descriptors 3 and 4.
pub(super) fn daemon(
    namespace: &Path,
    listeners: Vec<OwnedFd>,
    environment: &str,
    program: &str,
    args: &[&str],
) -> io::Result<Ended> {
    // Its errors go nowhere, so that what is not there would only not answer.
    if program.starts_with('/') && !Path::new(program).exists() {
        return Err(io::Error::other(format!("{program} is not installed")));
    }
    let script = format!("exec 3<&0 4<&1 </dev/null >/dev/null; {environment} exec \"$@\"");
    let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
    let program = program.to_owned();
    inside(namespace, move || {
        let mut c = Command::new("sh");
        c.args(["-c", &script, "sh", &program]).args(args).stderr(Stdio::null()).process_group(0);
        let mut listeners = listeners.into_iter();
        c.stdin(listeners.next().map_or_else(Stdio::null, Stdio::from));
        c.stdout(listeners.next().map_or_else(Stdio::null, Stdio::from));
        c.spawn().map(Ended)
    })
}
