//! Starts a program with exactly what a plan gives it: descriptors, identity, capabilities, limits.
//!
//! The child is made by `clone(CLONE_PIDFD)` without sharing memory. Between the clone and the exec it makes
//! system calls only: the parent may have other threads, whose locks (the allocator's, glibc's) would be
//! held for ever in the child. So everything it needs is laid out in advance in [`Prepared`], and a step that
//! fails is reported through a pipe as two numbers.

mod ready;

pub use ready::{Ready, Report};

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};

use crate::error::Step;
use crate::pidfd::Child;
use crate::seccomp::Filter;
use crate::{Error, Result};

/// A program to start. What is not given, the child does not have.
pub struct Program<'fd> {
    /// Absolute path, looked up in the caller's mount namespace (or the new one, a copy of it).
    pub path: PathBuf,
    /// The whole argument vector, the program's name first.
    pub args: Vec<OsString>,
    /// The whole environment, each entry `NAME=value`.
    pub env: Vec<OsString>,
    /// Whether to add `LISTEN_PID` with its own process number, by which it knows that descriptors are meant for it
    /// (sd_listen_fds(3)).
    pub listen_pid: bool,
    /// Its working directory, looked up as its own uid would.
    pub directory: PathBuf,
    /// Descriptors that the child gets as 3, 4, 5, …
    pub fds: Vec<BorrowedFd<'fd>>,
    /// Standard input, output and error; `/dev/null` where not given.
    pub stdio: [Option<BorrowedFd<'fd>>; 3],
    /// Make standard input, a terminal, the controlling one of the child's session.
    pub terminal: bool,
    /// The uid and gid to run as, without supplementary groups; `None` keeps the caller's.
    pub identity: Option<(Uid, Gid)>,
    /// Capabilities kept across the change of uid and the exec. Ignored where `privileged`.
    pub capabilities: CapabilitySet,
    /// Keep every capability: for a starter that drops them itself.
    pub privileged: bool,
    /// New namespaces, as `CLONE_NEW*` flags: see [`Program::ISOLATED`].
    pub new_namespaces: u32,
    /// A network namespace to join instead.
    pub net: Option<BorrowedFd<'fd>>,
    /// Open `cgroup.procs` files to enter.
    pub cgroups: Vec<BorrowedFd<'fd>>,
    /// Where the machine has no memory left the kernel ends what is largest; this, and what it starts, it ends first (oom_score_adj, proc(5)).
    pub gives_way: bool,
    /// Resource limits, soft and hard alike.
    pub limits: Vec<(Resource, u64)>,
    /// Whether the kernel kills the child when the *thread* that started it ends.
    pub die_with_parent: bool,
    /// Give the child an empty session keyring of its own.
    pub new_keyring: bool,
    /// A system-call filter on top of the caller's, for the program and whatever it starts.
    pub filter: Option<&'fd Filter>,
}

impl<'fd> Program<'fd> {
    /// New network, IPC and UTS namespaces: what a daemon runs in. One that joins a network has no other.
    pub const ISOLATED: u32 = (libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u32;

    /// New mount, pid, IPC and UTS namespaces: what process 1 of a compartment starts in.
    pub const CONTAINED: u32 =
        (libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u32;

    /// `path` with its own file name as only argument, an empty environment, no descriptor, no core dumps,
    /// the caller's uid but no capabilities, to die with its parent.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
        Self {
            path,
            args: vec![name],
            directory: "/".into(),
            env: Vec::new(),
            listen_pid: false,
            fds: Vec::new(),
            stdio: [None; 3],
            terminal: false,
            identity: None,
            capabilities: CapabilitySet::empty(),
            privileged: false,
            new_namespaces: 0,
            net: None,
            cgroups: Vec::new(),
            gives_way: false,
            limits: vec![(Resource::Core, crate::sandbox::NO_CORE)],
            die_with_parent: true,
            new_keyring: false,
            filter: None,
        }
    }

    /// As [`Program::new`], a daemon of this uid, with so many descriptors at most: [`Program::ISOLATED`], with a session keyring of its own.
    pub fn daemon(path: impl Into<PathBuf>, uid: u32, descriptors: u64) -> Self {
        let mut program = Self::new(path);
        program.identity = Some((Uid::from_raw(uid), Gid::from_raw(uid)));
        program.limits.push((Resource::Nofile, descriptors));
        program.new_keyring = true;
        program.new_namespaces = Self::ISOLATED;
        program
    }

    /// Starts the program. Returns once it has been executed; a step that fails is named in the error, and
    /// then no child is left.
    ///
    /// With `die_with_parent`, call this from a thread that lives as long as the child should: the kernel
    /// counts the end of the starting thread as the parent's.
    pub fn start(&self) -> Result<Child> {
        let what = || format!("start {}", self.path.display());
        let null =
            File::options().read(true).write(true).open("/dev/null").step(|| "open /dev/null".into())?;
        let (report_reader, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step(what)?;
        let parent = crate::pidfd::open(rustix::process::getpid())?;
        let mut prepared = Prepared::new(self, null.as_raw_fd(), report.as_raw_fd(), parent.as_raw_fd())?;
        let child = prepared.clone_child()?;
        drop(report);

        let mut failure = Vec::new();
        let read = File::from(report_reader).read_to_end(&mut failure);
        if read.is_ok() && failure.is_empty() {
            return Ok(child);
        }
        child.kill()?;
        read.step(what)?;
        Err(failed(&self.path.display().to_string(), &failure))
    }

    /// As [`Program::start`], but returns once there is a child: for a starter whom others wait for, since whoever has the child's
    /// uid can stop it before it is executed. Until it is, it may lead no process group yet.
    ///
    /// # Errors
    /// The kernel's; then there is no child.
    pub fn begin(&self) -> Result<(Child, Report)> {
        let null =
            File::options().read(true).write(true).open("/dev/null").step(|| "open /dev/null".into())?;
        let (reader, report) = Report::pipe(&self.path)?;
        let parent = crate::pidfd::open(rustix::process::getpid())?;
        let mut prepared = Prepared::new(self, null.as_raw_fd(), report.as_raw_fd(), parent.as_raw_fd())?;
        Ok((prepared.clone_child()?, reader))
    }
}

/// What a child has reported: the number of a step, and why it failed.
fn failed(program: &str, report: &[u8]) -> Error {
    let number = |range: std::ops::Range<usize>| {
        report.get(range).and_then(|b| <[u8; 4]>::try_from(b).ok()).map(i32::from_ne_bytes)
    };
    let step = number(0..4).and_then(|n| usize::try_from(n).ok()).and_then(|n| STEPS.get(n));
    Error::new(
        format!("start {program}: {}", step.unwrap_or(&"unknown step")),
        std::io::Error::from_raw_os_error(number(4..8).unwrap_or(libc::EIO)),
    )
}

/// The child's steps in order; [`Prepared::run`] reports by index.
const STEPS: [&str; 19] = [
    "reset the signal handlers",
    "make a session",
    "enter the control groups",
    "give way where memory ends",
    "join the network namespace",
    "make a session keyring",
    "place the descriptors",
    "close all other descriptors",
    "take the controlling terminal",
    "set the resource limits",
    "drop the bounding capabilities",
    "change uid and gid",
    "drop the capabilities",
    "set no_new_privs",
    "go to its directory",
    "tie the child to its parent",
    "load the system-call filter",
    "wait for its connection",
    "execute the program",
];

/// See [`Program::listen_pid`].
const LISTEN_PID: &[u8] = b"LISTEN_PID=";
/// Of a process number, at most.
const DIGITS: usize = 10;

/// Writes a number in decimal, without zeros in front.
fn number<'a>(to: impl Iterator<Item = &'a mut u8>, value: u32) {
    let mut digits = [0; DIGITS];
    let mut rest = value;
    let mut count = 0;
    for digit in &mut digits {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    to.zip(digits.iter().take(count).rev()).for_each(|(to, digit)| *to = *digit);
}

/// Everything that the child needs, as plain numbers and pointers.
struct Prepared<'p> {
    program: &'p Program<'p>,
    path: CString,
    directory: CString,
    _strings: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    /// `LISTEN_PID=` and room for a number, NUL-terminated; `envp` has it where it is wanted.
    listen_pid: Box<[u8; LISTEN_PID.len() + DIGITS + 1]>,
    /// Sources of the descriptors 0, 1, 2, 3, …
    sources: Vec<RawFd>,
    /// Room for copies of them out of the way of their targets.
    copies: Vec<RawFd>,
    cgroups: Vec<RawFd>,
    score: Option<Vec<u8>>,
    report: RawFd,
    parent: RawFd,
    keep: CapabilitySet,
    /// What it waits for before the exec.
    waiting: Option<ready::Waiting>,
}

impl<'p> Prepared<'p> {
    fn new(program: &'p Program<'p>, null: RawFd, report: RawFd, parent: RawFd) -> Result<Self> {
        let path = c_string(program.path.as_os_str())?;
        let args = program.args.iter().map(|s| c_string(s)).collect::<Result<Vec<_>>>()?;
        let env = program.env.iter().map(|s| c_string(s)).collect::<Result<Vec<_>>>()?;
        let pointers = |strings: &[CString]| {
            strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        // Moving a CString moves its pointer, not its bytes: these stay valid while `_strings` lives.
        let (argv, mut envp) = (pointers(&args), pointers(&env));
        let mut listen_pid = Box::new([0; LISTEN_PID.len() + DIGITS + 1]);
        if program.listen_pid {
            listen_pid.iter_mut().zip(LISTEN_PID).for_each(|(to, from)| *to = *from);
            // Moving the box does not move the bytes either.
            envp.insert(0, listen_pid.as_ptr().cast());
        }
        let sources: Vec<RawFd> = program
            .stdio
            .iter()
            .map(|fd| fd.map_or(null, |fd| fd.as_raw_fd()))
            .chain(program.fds.iter().map(AsRawFd::as_raw_fd))
            .collect();
        Ok(Self {
            program,
            path,
            directory: c_string(program.directory.as_os_str())?,
            _strings: args.into_iter().chain(env).collect(),
            argv,
            envp,
            listen_pid,
            copies: vec![-1; sources.len()],
            sources,
            cgroups: program.cgroups.iter().map(AsRawFd::as_raw_fd).collect(),
            score: program.gives_way.then(score).transpose()?,
            report,
            parent,
            keep: program.capabilities,
            waiting: None,
        })
    }

    fn clone_child(&mut self) -> Result<Child> {
        let what = || format!("start {}", self.program.path.display());
        let mut pidfd: RawFd = -1;
        // Who joins a network needs none of its own.
        let joined = if self.program.net.is_some() { libc::CLONE_NEWNET as u32 } else { 0 };
        let namespaces = self.program.new_namespaces & !joined;
        let flags = libc::CLONE_PIDFD as u64 | u64::from(namespaces) | libc::SIGCHLD as u64;
        let old_mask = block_signals();
        // SAFETY: without CLONE_VM this is a fork: the child has its own copy of memory. A null stack makes it
        // go on with the parent's. `pidfd` outlives the call. The child calls only `Prepared::run`, which
        // makes system calls on memory that was laid out before and never returns.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) };
        if pid == 0 {
            self.run();
        }
        restore_signals(&old_mask);
        if pid < 0 {
            return Err(std::io::Error::last_os_error()).step(what);
        }
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // SAFETY: clone succeeded with CLONE_PIDFD, so `pidfd` is a new descriptor that nobody else owns.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        let Some(pid) = pid else {
            return Err(Error::invalid(what(), "clone answered with an impossible process number"));
        };
        Ok(Child { pid, pidfd })
    }

    /// The child, from the clone to the exec. System calls only: no allocation, no lock, no panic.
    fn run(&mut self) -> ! {
        let (step, errno) = match self.steps() {
            Ok(never) => match never {},
            Err(failed) => failed,
        };
        let mut failure = [0; 8];
        let (number, code) = failure.split_at_mut(4);
        number.copy_from_slice(&step.to_ne_bytes());
        code.copy_from_slice(&errno.raw_os_error().to_ne_bytes());
        // SAFETY: `failure` is eight readable bytes; `report` is the pipe's descriptor or, once copied, a copy.
        // _exit runs no handler of the parent's.
        unsafe {
            libc::write(self.report, failure.as_ptr().cast(), failure.len());
            libc::_exit(127)
        }
    }

    fn steps(&mut self) -> std::result::Result<std::convert::Infallible, (i32, Errno)> {
        let mut step = -1;
        let mut next = || {
            step += 1;
            let this = step;
            move |errno: Errno| (this, errno)
        };
        reset_handlers().map_err(next())?;
        rustix::process::setsid().map_err(next())?;
        self.enter_cgroups().map_err(next())?;
        let failed = next();
        if let Some(score) = &self.score {
            give_way(score).map_err(failed)?;
        }
        let failed = next();
        if let Some(net) = self.program.net {
            let kind = rustix::thread::LinkNameSpaceType::Network;
            rustix::thread::move_into_link_name_space(net, Some(kind)).map_err(failed)?;
        }
        let failed = next();
        if self.program.new_keyring {
            new_session_keyring().map_err(failed)?;
        }
        self.place().map_err(next())?;
        self.close_others().map_err(next())?;
        let failed = next();
        if self.program.terminal {
            // SAFETY: descriptor 0 was placed just now; TIOCSCTTY takes an integer.
            check(unsafe { libc::ioctl(0, libc::TIOCSCTTY as _, 0) }).map_err(failed)?;
        }
        let failed = next();
        for (resource, value) in &self.program.limits {
            let limit = Rlimit { current: Some(*value), maximum: Some(*value) };
            rustix::process::setrlimit(*resource, limit).map_err(failed)?;
        }
        let failed = next();
        if !self.program.privileged {
            drop_bounding(self.keep).map_err(failed)?;
        }
        self.change_identity().map_err(next())?;
        let failed = next();
        if !self.program.privileged {
            set_capabilities(self.keep).map_err(failed)?;
        }
        rustix::thread::set_no_new_privs(true).map_err(next())?;
        // With its own uid: a directory that it may not enter is refused.
        rustix::process::chdir(self.directory.as_c_str()).map_err(next())?;
        let failed = next();
        if self.program.die_with_parent {
            // After the change of uid, which clears it.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
            let mut poll = libc::pollfd { fd: self.parent, events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid pollfd. A readable pidfd means that the parent ended before the signal was set.
            if check(unsafe { libc::poll(&raw mut poll, 1, 0) }).map_err(failed)? != 0 {
                return Err(failed(Errno::SRCH));
            }
        }
        if self.program.listen_pid {
            number(self.listen_pid.iter_mut().skip(LISTEN_PID.len()), std::process::id());
            // The pointer of before is of before the bytes were written.
            if let Some(first) = self.envp.first_mut() {
                *first = self.listen_pid.as_ptr().cast();
            }
        }
        unblock_signals();
        let failed = next();
        if let Some(filter) = self.program.filter {
            filter.load().map_err(failed)?;
        }
        let failed = next();
        self.wait_for_connection().map_err(failed)?;
        let failed = next();
        // SAFETY: `path` is NUL-terminated; both vectors are null-terminated arrays of pointers to strings
        // that `_strings` keeps.
        unsafe { libc::execve(self.path.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
        Err(failed(last_errno()))
    }

    fn enter_cgroups(&self) -> std::result::Result<(), Errno> {
        for fd in &self.cgroups {
            // "0" is the writer itself.
            // SAFETY: one readable byte; the descriptor is borrowed by the plan.
            check(unsafe { libc::write(*fd, c"0".as_ptr().cast(), 1) as i32 })?;
        }
        Ok(())
    }

    /// Copies every source above all targets first, so that no placement overwrites a later source.
    fn place(&mut self) -> std::result::Result<(), Errno> {
        // With room for two that one which waits has behind them.
        let above = self.sources.len() as RawFd + 2;
        let copy = |fd: RawFd| {
            // SAFETY: F_DUPFD_CLOEXEC on an open descriptor makes a new one at or above `above`.
            check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, above) })
        };
        for (to, from) in self.copies.iter_mut().zip(&self.sources) {
            *to = copy(*from)?;
        }
        self.parent = copy(self.parent)?;
        self.report = copy(self.report)?;
        if let Some(waiting) = &mut self.waiting {
            waiting.control = copy(waiting.control)?;
        }
        for (target, from) in self.copies.iter().enumerate() {
            // SAFETY: whatever was at `target` has been copied if it is still needed; in this process nothing
            // owns descriptors any more, since it ends in exec or _exit.
            check(unsafe { libc::dup2(*from, target as RawFd) })?;
        }
        Ok(())
    }

    fn close_others(&mut self) -> std::result::Result<(), Errno> {
        if self.waiting.is_some() {
            return self.close_others_now();
        }
        // Closed by the exec, so that the report still works until then.
        // SAFETY: changes only the close-on-exec flag.
        let done = unsafe {
            libc::syscall(
                libc::SYS_close_range,
                self.sources.len() as libc::c_uint,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        check(done as i32).map(drop)
    }

    fn change_identity(&self) -> std::result::Result<(), Errno> {
        let Some((uid, gid)) = self.program.identity else { return Ok(()) };
        if !self.keep.is_empty() {
            rustix::thread::set_keep_capabilities(true)?;
        }
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)
    }
}

/// Takes every capability but `keep` out of the bounding set, so that no later exec can gain one.
pub(crate) fn drop_bounding(keep: CapabilitySet) -> std::result::Result<(), Errno> {
    for number in 0..64 {
        // SAFETY: reads one bit; EINVAL says that the kernel knows no such capability.
        let held = unsafe { libc::prctl(libc::PR_CAPBSET_READ, number, 0, 0, 0) };
        if held == 1 && keep.bits() & (1 << number) == 0 {
            // SAFETY: takes away one capability of the calling thread.
            check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) })?;
        }
    }
    Ok(())
}

/// Leaves the calling thread exactly the capabilities `keep`, also across an exec (as ambient ones).
fn set_capabilities(keep: CapabilitySet) -> std::result::Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: keep };
    rustix::thread::set_capabilities(None, sets)?;
    for number in 0..64 {
        if keep.bits() & (1 << number) != 0 {
            // SAFETY: raises one ambient capability of the calling thread; the arguments are integers.
            check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, number, 0, 0) })?;
        }
    }
    Ok(())
}

/// Half of all memory more than by its starter counts as used by it.
fn score() -> Result<Vec<u8>> {
    let step = || "read oom_score_adj".to_owned();
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").step(step)?;
    let own: i32 = own.trim().parse().map_err(|_| Error::invalid(step(), "it is no number"))?;
    Ok(own.saturating_add(500).min(1_000).to_string().into_bytes())
}

fn give_way(score: &[u8]) -> std::result::Result<(), Errno> {
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/oom_score_adj", flags, rustix::fs::Mode::empty())?;
    rustix::io::write(&file, score).map(drop)
}

/// Replaces the session keyring by a new, empty, anonymous one.
fn new_session_keyring() -> std::result::Result<(), Errno> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: a null name asks for an anonymous keyring; nothing is written to memory.
    let done = unsafe {
        libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<u8>(), 0, 0, 0)
    };
    match check(if done < 0 { -1 } else { 0 }) {
        // A kernel without keyrings has nothing to keep apart.
        Ok(_) | Err(Errno::NOSYS) => Ok(()),
        Err(e) => Err(e),
    }
}

fn c_string(s: &OsStr) -> Result<CString> {
    CString::new(s.as_bytes()).map_err(|_| {
        Error::invalid(format!("pass {} to a program", Path::new(s).display()), "it contains a NUL")
    })
}

fn check(answer: libc::c_int) -> std::result::Result<libc::c_int, Errno> {
    if answer < 0 { Err(last_errno()) } else { Ok(answer) }
}

fn last_errno() -> Errno {
    // SAFETY: errno's address is valid for the calling thread, also in a cloned child.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

/// Every signal back to its default, `SIGPIPE` above all, which Rust ignores and exec would inherit.
fn reset_handlers() -> std::result::Result<(), Errno> {
    // The kernel's own `struct sigaction`, all zeros: SIG_DFL, no flags, an empty mask. By system call, since
    // glibc keeps 32 and 33 to itself and they too can arrive here ignored.
    let default = [0_u64; 4];
    for signal in 1..=64 {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // SAFETY: `default` is as large as the kernel's structure on every 64-bit architecture; SIG_DFL
        // installs no code; the signal set is eight bytes.
        let done = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0, 8) };
        check(if done < 0 { -1 } else { 0 })?;
    }
    Ok(())
}

/// Blocks every signal, so that no handler of the parent's runs in the child.
fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are plain integers that the calls fill in; pthread_sigmask cannot fail with SIG_SETMASK.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        old
    }
}

fn unblock_signals() {
    // SAFETY: a sigset_t is an array of integers; all zeros is the empty set on Linux.
    restore_signals(&unsafe { std::mem::zeroed() });
}

fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: `old` is a valid set; a null third argument asks for nothing back.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const *old, std::ptr::null_mut()) };
}
