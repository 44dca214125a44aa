//! Opening one name of one directory, and never anything else: no link is followed, no mount is crossed, nothing
//! above is reached, and no lease or FIFO can make the opener wait.

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat, openat2, statat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Opens the directory `name`.
pub fn directory(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    open(at, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

/// Opens `name` for reading, whatever it is: the caller checks. Its access time stays, where it is the caller's file.
pub fn reading(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    match open(at, name, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner may ask for it; the warden's mount has no access times anyway.
        Err(Errno::PERM) => open(at, name, flags, Mode::empty()),
        result => result,
    }
}

/// Creates the file `name`, which must not be there, for its owner alone.
pub fn creating(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    open(at, name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR)
}

/// What `name` is, a link itself included.
pub fn look(at: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn open(at: BorrowedFd<'_>, name: &CStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    loop {
        match openat2(at, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode, RESOLVE) {
            // BENEATH asks to try again when something was renamed meanwhile; only an open can say AGAIN to that,
            // but so it does for a lease: the next pass tries again either way.
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Seconds and nanoseconds since the epoch.
pub type Time = (i64, i64);

/// A time of [`Stat`] as one number, nanoseconds since the epoch, for comparison.
pub fn nanoseconds(time: Time) -> i128 {
    i128::from(time.0) * 1_000_000_000 + i128::from(time.1)
}

/// When content or inode changed last.
pub fn changed(stat: &Stat) -> Time {
    (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0))
}

/// When the content changed last, or is said to have.
pub fn modified(stat: &Stat) -> Time {
    (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0))
}
