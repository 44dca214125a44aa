//! One file's content, whole or not at all.

use crate::area::{Area, NEW};
use crate::beneath::{self, Time};
use rustix::fs::{
    AtFlags, FileType, Mode, SeekFrom, Stat, Timespec, Timestamps, fchmod, fstat, ftruncate, futimens,
    renameat, seek, unlinkat,
};
use rustix::io::{Errno, pread, pwrite};
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

    /// Bytes.
    pub fn size(&self) -> u64 {
        u64::try_from(self.size).unwrap_or(0)
    }

    /// Whether a later change is sure to give another version.
    pub fn settled(&self, now: SystemTime) -> bool {
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
        /// How many bytes of it are not holes.
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
    /// The destination has no room for it beside what is there. Nothing has changed.
    NoRoom,
    /// The source or the destination failed. Nothing has changed.
    Failed,
}

/// What a file takes of a file system's room, in bytes: its size, or less if it has holes.
pub fn room(stat: &Stat) -> u64 {
    // A block of `st_blocks` has 512 bytes, whatever the file system's have.
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(u64::MAX).saturating_mul(512);
    u64::try_from(stat.st_size).unwrap_or(u64::MAX).min(allocated)
}

/// Copies the regular file `name`, with no more than `most` bytes that are not holes, from one directory to another, where it takes the place
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
    let bytes = room(&stat);
    if bytes > most {
        return Outcome::Changed; // grown since it was looked at; the next pass judges it anew
    }
    let outcome = match transfer(source.as_fd(), area, bytes, &version, buffer) {
        Ok(true) => match renameat(area.work(), NEW, to, name) {
            Ok(()) => {
                return Outcome::Copied { version: version.settled(now).then_some(version), bytes };
            }
            Err(Errno::NOSPC) => Outcome::NoRoom,
            Err(_) => Outcome::Failed,
        },
        Ok(false) => Outcome::Changed,
        Err(Errno::AGAIN) => Outcome::Leased,
        Err(Errno::NOSPC) => Outcome::NoRoom,
        Err(_) => Outcome::Failed,
    };
    let _ = unlinkat(area.work(), NEW, AtFlags::empty());
    outcome
}

/// Writes the file in the making: `most` bytes at most, and holes where the source has holes. Whether the source stayed
/// as it was.
fn transfer(
    source: BorrowedFd<'_>,
    area: &Area,
    most: u64,
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
    let size = u64::try_from(version.size).map_err(|_| Errno::IO)?;
    let (mut at, mut copied) = (0, 0u64);
    while let Some((begin, end)) = data(source, at, size)? {
        copied = copied.saturating_add(end - begin);
        if copied > most {
            return Ok(false); // its holes are being filled
        }
        if !segment(source, new.as_fd(), (begin, end), buffer)? {
            return Ok(false); // it shrinks
        }
        at = end;
    }
    ftruncate(&new, size)?;
    if Version::of(&fstat(source)?) != *version {
        return Ok(false);
    }
    let time = Timespec { tv_sec: version.modified.0, tv_nsec: version.modified.1 };
    // Times that the destination cannot hold are not worth losing a document for.
    let _ = futimens(&new, &Timestamps { last_access: time, last_modification: time });
    fchmod(&new, Mode::from_raw_mode(0o644))?;
    Ok(true)
}

/// The next part of a file from `at` on, below `size`, that is no hole: where it begins and ends.
pub fn data(source: BorrowedFd<'_>, at: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    if at >= size {
        return Ok(None);
    }
    let begin = match seek(source, SeekFrom::Data(at)) {
        Ok(begin) if begin < size => begin,
        Ok(_) | Err(Errno::NXIO) => return Ok(None),
        Err(e) => return Err(e),
    };
    let end = seek(source, SeekFrom::Hole(begin))?.min(size);
    // A file that is written to meanwhile could give a hole where there were data.
    Ok((end > begin).then_some((begin, end)))
}

/// Copies one part of a file; false if the source has less.
fn segment(
    source: BorrowedFd<'_>,
    new: BorrowedFd<'_>,
    (mut at, end): (u64, u64),
    buffer: &mut [u8],
) -> Result<bool, Errno> {
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let n = match pread(source, buffer.get_mut(..wanted).ok_or(Errno::IO)?, at) {
            Ok(0) => return Ok(false),
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e),
        };
        let mut rest = buffer.get(..n).ok_or(Errno::IO)?;
        while !rest.is_empty() {
            match pwrite(new, rest, at) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(n) => {
                    rest = rest.get(n..).ok_or(Errno::IO)?;
                    at = at.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(true)
}
