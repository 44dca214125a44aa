//! Needs root: what a started program has, and that it has nothing else.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use levee_sys::pidfd::{Child, Exit};
use levee_sys::spawn::{Program, Ready};
use rustix::process::{Resource, Signal};
use rustix::thread::{CapabilitySet, Gid, Uid};

/// Starts `sh -c script` by `change`, and answers what it wrote and how it ended.
fn run(script: &str, change: impl for<'f> FnOnce(&mut Program<'f>)) -> (String, Exit) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let mut program = Program::new("/bin/sh");
    program.args = ["sh", "-c", script].map(Into::into).to_vec();
    program.stdio[1] = Some(writer.as_fd());
    change(&mut program);
    let child = program.start().unwrap();
    drop(program);
    drop(writer);
    let mut out = String::new();
    File::from(reader).read_to_string(&mut out).unwrap();
    (out, child.wait(Duration::from_secs(10)).unwrap().expect("it ends"))
}

#[test]
fn a_program_runs_as_the_given_uid_without_groups_capabilities_or_new_privileges() {
    let (out, exit) = run("cat /proc/self/status; exit 3", |p| {
        p.identity = Some((Uid::from_raw(4321), Gid::from_raw(8765)));
    });
    assert_eq!(exit, Exit::Status(3));
    let field = |name: &str| {
        let line = out.lines().find(|l| l.starts_with(&format!("{name}:"))).unwrap();
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(field("Uid"), "4321 4321 4321 4321");
    assert_eq!(field("Gid"), "8765 8765 8765 8765");
    assert_eq!(field("Groups"), "");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("NoNewPrivs"), "1");
    assert_eq!(field("SigBlk"), "0000000000000000");
    assert_eq!(field("SigIgn"), "0000000000000000");
}

#[test]
fn root_without_capabilities_has_none_and_listed_ones_survive_the_change_of_uid() {
    let (out, _) = run("grep CapEff /proc/self/status", |_| {});
    assert_eq!(out.split_whitespace().last(), Some("0000000000000000"));
    let (out, _) = run("grep CapEff /proc/self/status", |p| {
        p.identity = Some((Uid::from_raw(4321), Gid::from_raw(4321)));
        p.capabilities = CapabilitySet::NET_BIND_SERVICE;
    });
    assert_eq!(out.split_whitespace().last(), Some("0000000000000400"));
}

#[test]
fn exactly_the_given_descriptors_arrive_in_order_whatever_their_numbers_were() {
    let mut files: Vec<OwnedFd> = Vec::new();
    for i in 0..6 {
        let (reader, writer) = rustix::pipe::pipe().unwrap(); // inheritable on purpose
        rustix::io::write(&writer, format!("{i}").as_bytes()).unwrap();
        files.push(reader);
    }
    let _leak = rustix::io::dup(&files[0]).unwrap(); // not close-on-exec either
    // The last of them is given first, so that sources and targets cross.
    let given: Vec<_> = files.iter().rev().collect();
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let mut program = Program::new("/bin/sh");
    let script = "for i in 3 4 5 6 7 8; do eval \"head -c1 <&$i\"; done; echo; ls /proc/$$/fd; :";
    program.args = ["sh", "-c", script].map(Into::into).to_vec();
    program.stdio[1] = Some(writer.as_fd());
    program.fds = given.iter().map(|fd| fd.as_fd()).collect();
    let child = program.start().unwrap();
    drop(program);
    drop(writer);
    let mut out = String::new();
    File::from(reader).read_to_string(&mut out).unwrap();
    child.wait(Duration::from_secs(10)).unwrap();
    // (No pipeline in the script: the shell itself has its pipe's ends for a moment.)
    assert_eq!(out.split_whitespace().collect::<Vec<_>>().join(" "), "543210 0 1 2 3 4 5 6 7 8");
}

#[test]
fn an_isolated_program_has_an_empty_environment_and_network_and_its_limits() {
    let (out, _) = run(
        "env | grep -v -e ^PWD= -e ^SHLVL= -e ^_=; cat /proc/net/dev | wc -l; ulimit -n; awk '/core/ { print $5, $6 }' /proc/self/limits",
        |p| {
            p.new_namespaces = Program::ISOLATED;
            p.limits.push((Resource::Nofile, 77));
        },
    );
    assert_eq!(out.split_whitespace().collect::<Vec<_>>(), ["3", "77", "1", "1"]);
}

#[test]
fn a_step_that_fails_is_named_and_leaves_no_child() {
    let error = Program::new("/nonexistent/daemon").start().unwrap_err();
    assert_eq!(error.to_string().split(':').nth(1), Some(" execute the program"), "{error}");
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    let wrong = File::open("/dev/null").unwrap();
    let mut program = Program::new("/bin/true");
    program.net = Some(wrong.as_fd());
    let error = program.start().unwrap_err();
    assert!(error.to_string().contains("join the network namespace"), "{error}");
}

#[test]
fn a_child_dies_with_the_thread_that_started_it() {
    let child = std::thread::spawn(|| {
        let mut program = Program::new("/bin/sleep");
        program.args = ["sleep", "60"].map(Into::into).to_vec();
        program.identity = Some((Uid::from_raw(4321), Gid::from_raw(4321)));
        program.start().unwrap()
    })
    .join()
    .unwrap();
    assert_eq!(child.wait(Duration::from_secs(5)).unwrap(), Some(Exit::Signal(libc::SIGKILL)));
}

#[test]
fn a_program_that_is_given_descriptors_can_be_told_its_own_process_number() {
    let script = "[ \"$LISTEN_PID\" = $$ ] && echo \"$WORD\"";
    let (out, exit) = run(script, |p| {
        p.listen_pid = true;
        p.env = vec!["WORD=kept".into()];
    });
    assert_eq!((out.as_str(), exit), ("kept\n", Exit::Status(0)));
    let (out, _) = run("echo \"${LISTEN_PID-none}\"", |_| {});
    assert_eq!(out, "none\n");
}

/// A child that waits: its connection will be standard input and output.
fn waiting(path: &str, script: &str) -> Ready {
    let mut program = Program::new(path);
    program.args = ["sh", "-c", script].map(Into::into).to_vec();
    program.env = vec!["OWN=1".into()];
    program.identity = Some((Uid::from_raw(4321), Gid::from_raw(8765)));
    program.die_with_parent = false;
    program.make_ready(&[0, 1]).unwrap()
}

fn descriptors(child: &Child) -> Vec<String> {
    let all = std::fs::read_dir(format!("/proc/{}/fd", child.pid.as_raw_nonzero())).unwrap();
    let target = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    let mut all: Vec<String> = all
        .filter_map(target)
        .map(|path| path.to_string_lossy().split(':').next().unwrap().to_owned())
        .collect();
    all.sort();
    all
}

/// Until it has done everything but the exec: its own end is then the one descriptor beside what it was given and the report.
#[track_caller]
fn settled(ready: &Ready) {
    let until = Instant::now() + Duration::from_secs(10);
    while descriptors(&ready.child) != ["/dev/null", "/dev/null", "/dev/null", "pipe", "socket"] {
        assert!(Instant::now() < until, "{:?}", descriptors(&ready.child));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_that_waits_holds_nothing_else_and_gets_its_connection_and_whose_it_is_together() {
    let _inheritable = rustix::pipe::pipe().unwrap();
    let ready = waiting("/bin/sh", "read line; echo $line $OWN $WHOSE $FROM; ls -m /proc/$$/fd; id -u");
    settled(&ready);
    // Others of its uid can neither read its memory nor trace it (prctl(2), PR_SET_DUMPABLE).
    let owner = std::fs::metadata(format!("/proc/{}/mem", ready.child.pid.as_raw_nonzero())).unwrap().uid();
    assert_eq!(owner, 0, "it is not dumpable");
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (child, report) =
        ready.go(theirs.as_fd(), &["WHOSE=ada".into(), "FROM=10.80.1.1".into()]).expect("it waits");
    drop(theirs);
    (&ours).write_all(b"hello\n").unwrap();
    let mut said = String::new();
    (&ours).read_to_string(&mut said).unwrap();
    // What `ls` opens is its own; a pipe to another program would be the shell's for a moment.
    assert_eq!(said, "hello 1 ada 10.80.1.1\n0, 1, 2\n4321\n");
    assert_eq!(child.wait(Duration::from_secs(10)).unwrap(), Some(Exit::Status(0)));
    assert!(report.failure().is_none());
}

#[test]
fn one_that_waits_ends_when_nobody_wants_it_and_one_that_was_killed_or_wants_too_much_gets_nothing() {
    let (_ours, theirs) = UnixStream::pair().unwrap();
    let ready = waiting("/bin/sh", "exit 3");
    settled(&ready);
    let pid = ready.child.pid;
    drop(ready);
    let end = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(end.1.exit_status(), Some(0), "without having executed anything");

    let ready = waiting("/bin/sh", "exit 3");
    settled(&ready);
    ready.child.kill().unwrap();
    assert!(ready.go(theirs.as_fd(), &["WHOSE=ada".into()]).is_none());

    for env in [vec!["A=1".into(); 9], vec!["A".repeat(512).into()], Vec::new()] {
        let ready = waiting("/bin/sh", "exit 3");
        let pid = ready.child.pid;
        assert!(ready.go(theirs.as_fd(), &env).is_none());
        let end = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
        assert_eq!(end.unwrap().1.exit_status(), Some(0));
    }
    // As much as there may be.
    let ready = waiting("/bin/sh", "exit 3");
    let (child, _) = ready.go(theirs.as_fd(), &vec![format!("A={}", "1".repeat(61)).into(); 8]).unwrap();
    assert_eq!(child.wait(Duration::from_secs(10)).unwrap(), Some(Exit::Status(3)));
}

#[test]
fn one_that_waited_and_cannot_execute_its_program_says_why_and_one_that_is_stopped_keeps_nobody() {
    let (_ours, theirs) = UnixStream::pair().unwrap();
    let ready = waiting("/nonexistent", "");
    let (child, report) = ready.go(theirs.as_fd(), &["WHOSE=ada".into()]).unwrap();
    assert_eq!(child.wait(Duration::from_secs(10)).unwrap(), Some(Exit::Status(127)));
    let why = report.failure().unwrap().to_string();
    assert!(why.contains("execute the program") && why.contains("No such file"), "{why}");

    let ready = waiting("/bin/sh", "exit 3");
    settled(&ready);
    ready.child.signal(Signal::STOP).unwrap();
    let before = Instant::now();
    let (child, report) = ready.go(theirs.as_fd(), &["WHOSE=ada".into()]).unwrap();
    assert!(before.elapsed() < Duration::from_secs(1) && report.failure().is_none());
    child.signal(Signal::CONT).unwrap();
    assert_eq!(child.wait(Duration::from_secs(10)).unwrap(), Some(Exit::Status(3)));
}
