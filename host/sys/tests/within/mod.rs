//! A test's own program once more, in a control group.

use levee_sys::cgroup::Cgroup;
use std::io::Read;
use std::process::{Command, Stdio};

/// Runs the test of this name again, with this in its environment, as a process of the group. What it printed, once it has ended.
///
/// It begins by reading its standard input to the end: then it is in the group.
pub fn again(group: &Cgroup, test: &str, (name, value): (&str, &str)) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(name, value)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for procs in group.procs() {
        rustix::io::write(procs, child.id().to_string().as_bytes()).unwrap();
    }
    drop(child.stdin.take());
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    said
}
