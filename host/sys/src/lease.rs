//! Leases on files: the holder is told when somebody else wants the file (fcntl(2), "Leases").

use std::os::fd::{AsRawFd, OwnedFd};

use crate::Result;
use crate::error::Step;

/// `F_SETSIG` of `<asm-generic/fcntl.h>`, which the libc crate lacks.
const F_SETSIG: libc::c_int = 10;

/// Takes a write lease on an open file that nobody else has open, for as long as the descriptor lives: another's open
/// waits, or fails with `EAGAIN` where it may not wait. Then the caller gets `SIGURG`, which by default does nothing.
/// The caller must own the file or have `CAP_LEASE`.
///
/// # Errors
/// The kernel's; `EAGAIN` where the file is open elsewhere.
pub fn write(file: OwnedFd) -> Result<OwnedFd> {
    // SAFETY: both commands take an integer and touch no memory of ours; the descriptor is open.
    let done = unsafe {
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0
            && libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0
    };
    if !done {
        return Err(std::io::Error::last_os_error()).step(|| "take a write lease".into());
    }
    Ok(file)
}
