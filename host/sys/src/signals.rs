//! Signals as something to poll, so that a loop hears of them between two pieces of work and never within one.

use crate::error::Step;
use crate::{Error, Result};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Signals that are held back and read from a descriptor instead.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Holds back `signals` in the calling thread (and threads started by it from now on) and makes them readable.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(signals: &[rustix::process::Signal]) -> Result<Self> {
        let set = masked(libc::SIG_BLOCK, signals)?;
        // SAFETY: `set` is initialised and outlives the call; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::new("make signals readable", io::Error::last_os_error()));
        }
        // SAFETY: signalfd succeeded, so `fd` is a new descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Holds `signals` back no more in the calling thread: what has come and was not read is delivered now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn release(self, signals: &[rustix::process::Signal]) -> Result<()> {
        masked(libc::SIG_UNBLOCK, signals).map(drop)
    }

    /// The number of the next signal that has come, if any.
    ///
    /// # Errors
    /// The kernel's.
    pub fn next(&self) -> Result<Option<i32>> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut info) {
            // struct signalfd_siginfo begins with ssi_signo, a u32 (signalfd(2)).
            Ok(n) if n == info.len() => {
                let number = info.first_chunk::<4>().map(|b| u32::from_ne_bytes(*b));
                Ok(number.and_then(|n| i32::try_from(n).ok()))
            }
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(e) => Err(e).step(|| "read a signal".into()),
        }
    }
}

/// Changes which signals the calling thread holds back, by `how` (pthread_sigmask(3)): the set of `signals`.
fn masked(how: libc::c_int, signals: &[rustix::process::Signal]) -> Result<libc::sigset_t> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the whole set that it is given, which is ours; sigaddset then only
    // changes it. Neither keeps the pointer.
    let set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
        }
        set.assume_init()
    };
    // SAFETY: `set` is initialised and outlives the call; a null old set is allowed. Blocking a signal
    // breaks no invariant of any other code: it is only delivered later, or through a descriptor.
    match unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(set),
        // It returns its error (pthread_sigmask(3)).
        error => Err(Error::new("hold signals back", io::Error::from_raw_os_error(error))),
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
