//! A lock on an open file or directory (flock(2)) that is given back at once.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often it is tried again where somebody else has it.
const AGAIN: Duration = Duration::from_millis(20);

/// An exclusive lock, for as long as this lives.
///
/// It is given up by saying so, and not by closing the file alone: a child that is just being started has the file, too, until it executes
/// its own program, and the lock would be held until then.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Locks what is there, a directory too; none where somebody else has it.
    ///
    /// # Errors
    /// It cannot be opened, or its file system has no locks.
    pub fn try_at(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// The same, and waits as long as this for whoever has it.
    ///
    /// # Errors
    /// As [`Lock::try_at`].
    pub fn within(path: &Path, wait: Duration) -> io::Result<Option<Self>> {
        let until = Instant::now() + wait;
        loop {
            let lock = Self::try_at(path)?;
            if lock.is_some() || Instant::now() >= until {
                return Ok(lock);
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Which process has locked what is there, as far as the kernel says so.
    pub fn holder(path: &Path) -> Option<u32> {
        let there = rustix::fs::stat(path).ok()?;
        let (major, minor) = (rustix::fs::major(there.st_dev), rustix::fs::minor(there.st_dev));
        let place = format!("{major:02x}:{minor:02x}:{}", there.st_ino);
        // `1: FLOCK  ADVISORY  WRITE 708 00:2c:101 0 EOF` (proc_locks(5))
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        let holder = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [_, "FLOCK", _, _, process, at, ..] if *at == place => process.parse().ok(),
                _ => None,
            }
        };
        locks.lines().find_map(holder)
    }

    /// The same, and waits for whoever has it.
    ///
    /// # Errors
    /// As [`Lock::try_at`].
    pub fn at(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // There is nothing else to be done about it, and closing it follows.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_free_at_once_though_somebody_has_the_file_yet() {
        let directory = tempfile::tempdir().unwrap();
        let lock = Lock::at(directory.path()).unwrap();
        assert!(Lock::try_at(directory.path()).unwrap().is_none());
        assert_eq!(Lock::holder(directory.path()), Some(std::process::id()));
        // As a child has it between fork and exec.
        let inherited = lock.0.try_clone().unwrap();
        drop(lock);
        assert!(Lock::try_at(directory.path()).unwrap().is_some());
        assert_eq!(Lock::holder(directory.path()), None);
        drop(inherited);
    }
}
