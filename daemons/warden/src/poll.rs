//! The warden's poll loop: descriptors, each with what it belongs to.

use levee_sys::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
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

/// Takes every signal that has come; whether one of them asks for an end (all that are held back do).
///
/// # Errors
/// The kernel's.
pub fn asked_to_stop(signals: &Signals) -> io::Result<bool> {
    let mut any = false;
    while signals.next().map_err(io::Error::other)?.is_some() {
        any = true;
    }
    Ok(any)
}
