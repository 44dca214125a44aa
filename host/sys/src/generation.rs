//! A number in memory that one process advances and others look at, without a system call: whoever looks at many of them often
//! pays for a load each. Who advances it learns nothing of who looks.

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::fs::{fchmod, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create, open};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

const SIZE: usize = size_of::<AtomicU64>();

/// Makes one, at 0: the descriptor for who advances it, and the one for those who look, by which it cannot be written.
///
/// # Errors
/// The kernel's.
pub fn make() -> io::Result<(OwnedFd, OwnedFd)> {
    let writer = memfd_create("generation", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&writer, SIZE as u64)?;
    // Nobody opens it anew for writing by a descriptor that only reads.
    fchmod(&writer, Mode::RUSR | Mode::WUSR)?;
    fcntl_add_seals(&writer, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let reader = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((writer, reader))
}

/// Who advances it.
#[derive(Debug)]
pub struct Writer(Mapped);

/// Who looks at it.
#[derive(Debug)]
pub struct Reader(Mapped);

impl Writer {
    /// By the first descriptor of [`make`].
    ///
    /// # Errors
    /// It is none that [`make`] made for this, or the kernel's.
    pub fn of(fd: impl AsFd) -> io::Result<Self> {
        Mapped::of(fd, ProtFlags::READ | ProtFlags::WRITE).map(Self)
    }

    /// Tells those who look that something has changed; they see all that was done before.
    pub fn advance(&self) {
        self.0.number().fetch_add(1, Ordering::Release);
    }
}

impl Reader {
    /// By the second descriptor of [`make`].
    ///
    /// # Errors
    /// It is none that [`make`] made, or the kernel's.
    pub fn of(fd: impl AsFd) -> io::Result<Self> {
        Mapped::of(fd, ProtFlags::READ).map(Self)
    }

    /// What it is now.
    pub fn now(&self) -> u64 {
        self.0.number().load(Ordering::Acquire)
    }
}

/// The page that the number is in.
#[derive(Debug)]
struct Mapped(NonNull<AtomicU64>);

// SAFETY: it is an address of memory that stays mapped until this is dropped, and what is there is atomic.
unsafe impl Send for Mapped {}

impl Mapped {
    fn of(fd: impl AsFd, access: ProtFlags) -> io::Result<Self> {
        let whole = fstat(&fd)?.st_size == i64::try_from(SIZE).unwrap_or(i64::MAX);
        if !whole || !fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::other("it is no number that stays as long as it is"));
        }
        // SAFETY: the kernel chooses an address that is free. That the file cannot shrink was looked at, so the page is always there.
        let at = unsafe { mmap(null_mut(), SIZE, access, MapFlags::SHARED, fd, 0) }?;
        NonNull::new(at.cast()).map(Self).ok_or_else(|| io::Error::other("it lies nowhere"))
    }

    fn number(&self) -> &AtomicU64 {
        // SAFETY: it begins a page, so it is aligned; it stays mapped as long as this lives, and other processes too change it by
        // atomic operations alone, or by their own faults in ways that give another number and nothing else. Only a `Writer`, which
        // may write, changes it.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `Mapped::of` at this size, and nobody has a reference to it any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{Errno, pwrite};

    #[test]
    fn who_looks_sees_each_advance_and_can_neither_make_one_nor_take_the_number_away() {
        let (writer, reader) = make().unwrap();
        let (tells, sees) = (Writer::of(&writer).unwrap(), Reader::of(&reader).unwrap());
        assert_eq!(sees.now(), 0);
        tells.advance();
        tells.advance();
        assert_eq!(sees.now(), 2);
        assert_eq!(Reader::of(&reader).unwrap().now(), 2, "whoever comes later sees the same");
        assert!(Writer::of(&reader).is_err());
        assert_eq!(pwrite(&reader, &[1; 8], 0), Err(Errno::BADF));
        for length in [0, 4096] {
            assert_eq!(ftruncate(&writer, length), Err(Errno::PERM), "a page that goes would end who looks");
        }
    }

    #[test]
    fn a_file_that_could_shrink_is_not_looked_at() {
        let file = memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 8).unwrap();
        assert!(Reader::of(&file).is_err() && Reader::of(tempfile::tempfile().unwrap()).is_err());
    }
}
