//! Descriptors that a program was started with, and children that are forked without a new program.

use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use rustix::process::Pid;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Takes over descriptor `number`, which this program was started with, and makes it close-on-exec.
///
/// # Errors
/// If it is not open, or is already owned by something in this program.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    let missing =
        || io::Error::new(io::ErrorKind::NotFound, format!("descriptor {number} was not inherited"));
    if number < 0 {
        return Err(missing());
    }
    // SAFETY: borrowed for this block alone, to ask for its flags; a closed descriptor only makes fcntl fail.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    // What this program opens itself is close-on-exec from the start (std, rustix and host/sys see to that), so
    // a descriptor without the flag came through execve and has no owner yet.
    let flags = rustix::io::fcntl_getfd(borrowed).map_err(|_| missing())?;
    if flags.contains(FdFlags::CLOEXEC) {
        return Err(missing());
    }
    rustix::io::fcntl_setfd(borrowed, flags | FdFlags::CLOEXEC)?;
    // SAFETY: open (fcntl succeeded) and without an owner (it came through execve, see above); a second call for
    // the same number finds the close-on-exec flag set and is refused, so it has one owner only.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Forks children of a program that has one thread.
pub struct Forker {
    /// `/proc/self/task`, opened once, so that it can be asked from inside a sandbox.
    tasks: OwnedFd,
}

impl Forker {
    /// Opens what [`Forker::fork`] needs.
    ///
    /// # Errors
    /// If `/proc` is not there.
    pub fn new() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { tasks: rustix::fs::open("/proc/self/task", flags, Mode::empty())? })
    }

    /// Forks a child that runs `child` with the descriptors `keep` and ends with the status it returns.
    ///
    /// In the child every other descriptor from 3 on is closed before `child` runs, and the child is killed when
    /// this program dies. `child` must own all that it uses: whatever else the parent held has been closed.
    ///
    /// # Errors
    /// If this program has more than one thread, or the kernel refuses.
    pub fn fork<F>(&self, keep: Vec<OwnedFd>, child: F) -> io::Result<Pid>
    where
        F: FnOnce(Vec<OwnedFd>) -> u8 + 'static,
    {
        // A directory has two links and one for each directory in it: here, one for each thread.
        if rustix::fs::fstat(&self.tasks)?.st_nlink != 3 {
            return Err(io::Error::other("a program with several threads cannot fork"));
        }
        let parent = rustix::process::getpid();
        // SAFETY: there is one thread (checked above), so no lock can be held by a thread that the child lacks, and
        // the child may go on using all of the program's memory, which is its own copy.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // A panic must not unwind into the parent's frames, whose values are not the child's.
                let run =
                    std::panic::AssertUnwindSafe(|| Self::begin(parent, &keep).map_or(121, |()| child(keep)));
                let status = std::panic::catch_unwind(run).unwrap_or(101);
                // SAFETY: always sound; it ends the process. Destructors of the parent's values must not run here:
                // their descriptors are closed, and their effects are the parent's to have.
                unsafe { libc::_exit(i32::from(status)) }
            }
            // In the parent `keep` is dropped: the child has its own.
            pid => Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork gave no process id")),
        }
    }

    fn begin(parent: Pid, keep: &[OwnedFd]) -> io::Result<()> {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have died before that took effect.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut kept: Vec<RawFd> = keep.iter().map(|fd| fd.as_fd().as_raw_fd()).collect();
        kept.sort_unstable();
        let mut from: u32 = 3;
        for fd in kept {
            let fd = u32::try_from(fd).map_err(|_| io::ErrorKind::InvalidInput)?;
            if fd > from {
                close_range(from, fd - 1)?;
            }
            from = from.max(fd.saturating_add(1));
        }
        close_range(from, u32::MAX)
    }
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: called in a freshly forked child alone, for descriptors that nothing in it uses again: `child` owns
    // only what is kept, and no destructor of the parent's values runs in the child.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
