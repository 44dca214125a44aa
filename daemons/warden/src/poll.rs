//! The warden's poll loop: descriptors, each with what it belongs to.

use levee_sys::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Descriptors to wait for, each with its meaning.
#[derive(Debug)]
pub struct Set<'fd, T> {
    fds: Vec<PollFd<'fd>>,
    meanings: Vec<T>,
}

impl<'fd, T> Default for Set<'fd, T> {
    fn default() -> Self {
        Self { fds: Vec::new(), meanings: Vec::new() }
    }
}

impl<'fd, T> Set<'fd, T> {
    /// Adds a descriptor.
    pub fn add(&mut self, fd: BorrowedFd<'fd>, meaning: T) {
        self.fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        self.meanings.push(meaning);
    }

    /// Waits for at most `limit`; answers the meanings of what is readable, closed or in error.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(mut self, limit: Duration) -> io::Result<Vec<T>> {
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        match poll(&mut self.fds, Some(&limit)) {
            Ok(0) | Err(Errno::INTR) => Ok(Vec::new()),
            Ok(_) => {
                let ready = self.fds.iter().map(|fd| !fd.revents().is_empty());
                Ok(ready.zip(self.meanings).filter_map(|(ready, meaning)| ready.then_some(meaning)).collect())
            }
            Err(e) => Err(e.into()),
        }
    }
}

/// What signals ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// To end.
    pub stop: bool,
    /// To read the revocation list anew.
    pub reload: bool,
}

/// Takes every signal that has come. All that are held back ask for an end, but SIGUSR1.
///
/// # Errors
/// The kernel's.
pub fn asked(signals: &Signals) -> io::Result<Asked> {
    let mut asked = Asked::default();
    while let Some(signal) = signals.next().map_err(io::Error::other)? {
        if signal == Signal::USR1.as_raw() {
            asked.reload = true;
        } else {
            asked.stop = true;
        }
    }
    Ok(asked)
}
