//! Processes by descriptor: a pidfd names one process for ever, a number only until it is reused.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use crate::error::Step;
use crate::{Error, Result};

/// A process that this one started and has not waited for yet. Dropping it neither kills nor reaps.
#[derive(Debug)]
pub struct Child {
    /// Its number in the caller's pid namespace; valid until [`Child::wait`] has returned `Some`.
    pub pid: Pid,
    /// The process itself; readable once it has ended.
    pub pidfd: OwnedFd,
}

impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status.
    Status(i32),
    /// This signal killed it. A forbidden system call shows as `SIGSYS` (31).
    Signal(i32),
}

impl Exit {
    /// As shells say it: the status, or 128 plus the signal's number.
    pub fn code(self) -> u8 {
        let code = match self {
            Self::Status(status) => status,
            Self::Signal(signal) => signal.saturating_add(128),
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }

    fn of(status: &rustix::process::WaitIdStatus) -> Option<Self> {
        status.exit_status().map(Self::Status).or_else(|| status.terminating_signal().map(Self::Signal))
    }
}

impl Child {
    /// Sends `signal`; no error where the process has ended already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        send(&self.pidfd, signal)
    }

    /// Reaps the process if it has ended, without waiting for that.
    pub fn try_wait(&self) -> Result<Option<Exit>> {
        let status = rustix::process::waitid(
            WaitId::PidFd(self.pidfd.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        )
        .step(|| format!("wait for process {}", self.pid.as_raw_nonzero()))?;
        Ok(status.as_ref().and_then(Exit::of))
    }

    /// Waits for the end of the process for at most `limit` and reaps it; `None` if it still runs.
    pub fn wait(&self, limit: Duration) -> Result<Option<Exit>> {
        if ended(&self.pidfd, limit)? { self.try_wait() } else { Ok(None) }
    }

    /// Kills the process and reaps it.
    pub fn kill(&self) -> Result<Exit> {
        self.signal(Signal::KILL)?;
        self.wait(Duration::from_secs(10))?
            .ok_or_else(|| Error::invalid("kill a process", "it did not end within 10 seconds of SIGKILL"))
    }
}

/// A pidfd of the process `pid`.
pub fn open(pid: Pid) -> Result<OwnedFd> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .step(|| format!("open a pidfd of process {}", pid.as_raw_nonzero()))
}

/// A pidfd of the process at the other end of a Unix connection, as the kernel kept it when the connection was made; `None` where the
/// kernel does not tell (before 6.5).
///
/// # Errors
/// It has ended and is gone.
pub fn of_peer(connection: impl AsFd) -> Result<Option<OwnedFd>> {
    // include/uapi/asm-generic/socket.h; the `libc` crate has no name for it.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut number: libc::c_int = -1;
    let mut length = size_of_val(&number) as libc::socklen_t;
    // SAFETY: the option writes at most `length` bytes, the true size of `number`, and how many it wrote to `length`; both are ours alone
    // and outlive the call.
    let result = unsafe {
        libc::getsockopt(
            connection.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut number).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        // SAFETY: the kernel has just made this descriptor for the call, and nobody else has it.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(number) }));
    }
    match std::io::Error::last_os_error() {
        why if why.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
        why => Err(Error::new("ask for the process at the other end", why)),
    }
}

/// Sends `signal` to the process; no error where it has ended already.
pub fn send(pidfd: impl AsFd, signal: Signal) -> Result<()> {
    match rustix::process::pidfd_send_signal(pidfd, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(e) => Err(e).step(|| "send a signal".into()),
    }
}

/// Waits until the process has ended, for at most `limit`; whether it has.
pub fn ended(pidfd: impl AsFd, limit: Duration) -> Result<bool> {
    let until = std::time::Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        let left =
            Timespec::try_from(left).map_err(|e| Error::invalid("wait for a process", e.to_string()))?;
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(n) => return Ok(n > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e).step(|| "wait for a process".into()),
        }
    }
}
