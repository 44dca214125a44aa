//! One file's content, whole or not at all.

use crate::area::{Area, NEW};
use crate::beneath::{self, Time};
use rustix::fs::{
    AtFlags, FileType, Mode, Stat, Timespec, Timestamps, fchmod, fstat, futimens, renameat, unlinkat,
};
use rustix::io::{Errno, read, write};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime};

/// Bytes moved at a time.
pub const BUFFER: usize = 128 * 1024;

/// Clocks of older kernels tick every few milliseconds: a change this soon before a look could be followed by
/// another that leaves no trace.
const TICK: Duration = Duration::from_millis(100);

/// By what a changed file is told from an unchanged one. The change time cannot be set by the file's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    inode: u64,
    changed: Time,
    modified: Time,
    size: i64,
}

impl Version {
    /// The version that a look at the file shows.
    pub fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino,
            changed: beneath::changed(stat),
            modified: beneath::modified(stat),
            size: stat.st_size,
        }
    }

    /// Whether a later change is sure to give another version.
    fn settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let since = i128::try_from(now).unwrap_or(i128::MAX) - beneath::nanoseconds(self.changed);
        // A change time in the future comes from a clock that was set back; it cannot be relied on.
        since > i128::try_from(TICK.as_nanos()).unwrap_or(i128::MAX)
    }
}

/// What became of a file that was to be copied.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The copy is in place. Without a version it may be old already: copy it again.
    Copied {
        /// What was copied.
        version: Option<Version>,
        /// How many bytes.
        bytes: u64,
    },
    /// It changed while it was read. Nothing is in place that was not there before.
    Changed,
    /// A lease or lock forbids reading it now. Nothing has changed.
    Leased,
    /// It is something else by now, or gone.
    Gone,
    /// It may not be read.
    Unreadable,
    /// The source or the destination failed (no space left, for one). Nothing has changed.
    Failed,
}

/// Copies the regular file `name`, of at most `most` bytes, from one directory to another, where it takes the place
/// of another file, if there is one, in one step.
pub fn copy(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    name: &CStr,
    most: u64,
    area: &Area,
    buffer: &mut [u8],
) -> Outcome {
    let source = match beneath::reading(from, name) {
        Ok(source) => source,
        Err(Errno::AGAIN) => return Outcome::Leased,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::NODEV | Errno::XDEV | Errno::ISDIR) => {
            return Outcome::Gone;
        }
        Err(Errno::ACCESS | Errno::PERM) => return Outcome::Unreadable,
        Err(_) => return Outcome::Failed,
    };
    let now = SystemTime::now();
    let Ok(stat) = fstat(&source) else { return Outcome::Failed };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Outcome::Gone;
    }
    let version = Version::of(&stat);
    let Ok(size) = u64::try_from(stat.st_size) else { return Outcome::Failed };
    if size > most {
        return Outcome::Changed; // grown since it was looked at; the next pass judges it anew
    }
    let outcome = match transfer(source.as_fd(), area, size, &version, buffer) {
        Ok(true) => match renameat(area.work(), NEW, to, name) {
            Ok(()) => {
                return Outcome::Copied { version: version.settled(now).then_some(version), bytes: size };
            }
            Err(_) => Outcome::Failed,
        },
        Ok(false) => Outcome::Changed,
        Err(Errno::AGAIN) => Outcome::Leased,
        Err(_) => Outcome::Failed,
    };
    let _ = unlinkat(area.work(), NEW, AtFlags::empty());
    outcome
}

/// Writes the file in the making; whether the source stayed as it was.
fn transfer(
    source: BorrowedFd<'_>,
    area: &Area,
    size: u64,
    version: &Version,
    buffer: &mut [u8],
) -> Result<bool, Errno> {
    let new = match beneath::creating(area.work(), NEW) {
        Err(Errno::EXIST) => {
            unlinkat(area.work(), NEW, AtFlags::empty())?;
            beneath::creating(area.work(), NEW)?
        }
        result => result?,
    };
    let mut copied = 0u64;
    loop {
        let n = match read(source, &mut *buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e),
        };
        copied = copied.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
        if copied > size {
            return Ok(false); // it grows
        }
        let mut rest = buffer.get(..n).ok_or(Errno::IO)?;
        while !rest.is_empty() {
            match write(&new, rest) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(n) => rest = rest.get(n..).ok_or(Errno::IO)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
    }
    if copied != size || Version::of(&fstat(source)?) != *version {
        return Ok(false);
    }
    let time = Timespec { tv_sec: version.modified.0, tv_nsec: version.modified.1 };
    // Times that the destination cannot hold are not worth losing a document for.
    let _ = futimens(&new, &Timestamps { last_access: time, last_modification: time });
    fchmod(&new, Mode::from_raw_mode(0o644))?;
    Ok(true)
}
