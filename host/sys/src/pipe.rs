//! Pipes that somebody else pays for.

use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::Uid;

use crate::Result;
use crate::error::Step;
use crate::ns::on_own_thread;

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    /// The end to read, non-blocking.
    pub read: OwnedFd,
    /// The end to write.
    pub write: OwnedFd,
}

/// A pipe whose memory counts as this uid's, and whose owner it is.
///
/// The kernel counts the memory of pipes for the user who made them, and lets whoever holds an end make its buffer larger: pipes of
/// one user that several labels write to would let each feel how much the others have.
///
/// # Errors
/// The kernel's.
pub fn charged_to(uid: u32) -> Result<Pipe> {
    let step = || format!("make a pipe for uid {uid}");
    let (read, write) = on_own_thread("make a pipe", || {
        let uid = Uid::from_raw(uid);
        // Of this thread alone, which ends with it.
        rustix::thread::set_thread_res_uid(uid, uid, uid).step(step)?;
        pipe_with(PipeFlags::CLOEXEC).step(step)
    })?;
    let flags = fcntl_getfl(&read).step(step)?;
    fcntl_setfl(&read, flags | OFlags::NONBLOCK).step(step)?;
    Ok(Pipe { read, write })
}

/// Makes writing to a pipe fail where it would wait.
///
/// # Errors
/// The kernel's.
pub fn never_waits(write: &OwnedFd) -> Result<()> {
    let step = || "make a pipe non-blocking".to_owned();
    let flags = fcntl_getfl(write).step(step)?;
    fcntl_setfl(write, flags | OFlags::NONBLOCK).step(step)
}

/// Two ends that lead nowhere and are nobody else's: one to read, which is at its end, and one to write, which nobody reads.
///
/// # Errors
/// The kernel's.
pub fn dead_ends() -> Result<(OwnedFd, OwnedFd)> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).step(|| "make a pipe".to_owned());
    let ((input, _), (_, output)) = (pipe()?, pipe()?);
    Ok((input, output))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_pipe_is_its_users_and_the_caller_stays_who_it_is() {
        assert!(rustix::process::geteuid().is_root(), "this test changes a thread's uid: run it as root");
        let pipe = charged_to(0x7000_1234).unwrap();
        for end in [&pipe.read, &pipe.write] {
            let seen = std::fs::metadata(format!("/proc/self/fd/{}", end.as_raw_fd())).unwrap();
            assert_eq!((seen.uid(), seen.mode() & 0o777), (0x7000_1234, 0o600));
        }
        assert!(rustix::process::geteuid().is_root());
        // Only the reader does not wait.
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&pipe.read, &mut bytes), Err(rustix::io::Errno::AGAIN));
        assert_eq!(rustix::io::write(&pipe.write, b"said"), Ok(4));
        assert_eq!(rustix::io::read(&pipe.read, &mut bytes), Ok(4));
        never_waits(&pipe.write).unwrap();
        while rustix::io::write(&pipe.write, &[0; 4096]).is_ok() {}
    }

    #[test]
    fn dead_ends_give_nothing_and_take_nothing() {
        let (input, output) = dead_ends().unwrap();
        assert_eq!(rustix::io::read(&input, &mut [0; 8]), Ok(0));
        assert_eq!(rustix::io::write(&output, b"lost"), Err(rustix::io::Errno::PIPE));
    }
}
