//! Notices of changes in directories (fanotify(7)), as an ordinary process may have them: each directory that is held open
//! may be watched, and nothing that has only a name.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Whatever changes what a directory lists, or a file in it. That something was read is none.
const CHANGES: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_MODIFY
    | libc::FAN_ATTRIB
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_EVENT_ON_CHILD
    | libc::FAN_ONDIR;
/// Octets that are taken with one call.
const TAKEN: usize = 16 << 10;
/// Calls until the queue is empty, however small the notices: the kernel keeps 16,384 of them and counts no more.
const CALLS: usize = 256;

/// A queue of notices. It belongs to whoever made it, and its memory is counted there.
#[derive(Debug)]
pub struct Notices(OwnedFd);

impl Notices {
    /// Nothing is watched yet.
    ///
    /// # Errors
    /// The kernel's; `ENOSYS` where it knows no notices.
    pub fn new() -> io::Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_REPORT_FID;
        let opened = (libc::O_RDONLY | libc::O_CLOEXEC).cast_unsigned();
        // SAFETY: two integers, and no memory of ours.
        let fd = unsafe { libc::fanotify_init(flags, opened) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for us, and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// From now on there are notices of changes in this directory, which may be watched already, but not of those in directories below.
    ///
    /// # Errors
    /// The kernel's: it has no room for more, or the file system has no notices.
    pub fn watch(&self, directory: BorrowedFd<'_>) -> io::Result<()> {
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_ONLYDIR;
        // SAFETY: both descriptors are open while they are borrowed, and without a path the kernel reads no memory of ours.
        let result = unsafe {
            libc::fanotify_mark(self.0.as_raw_fd(), flags, CHANGES, directory.as_raw_fd(), std::ptr::null())
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Whether there were notices; then they are gone.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take(&self) -> io::Result<bool> {
        let mut room = [0; TAKEN];
        for call in 0..CALLS {
            match rustix::io::read(&self.0, &mut room) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(call > 0),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
