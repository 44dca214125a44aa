//! Files that come over a channel.

use crate::Fatal;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use zeroize::Zeroizing;

/// Bytes of a file with certificates or revocation lists, at most.
const MAX_PEM: usize = 1024 * 1024;

/// What is in a memory file with certificates, from its beginning. To be read before the sandbox is entered.
///
/// # Errors
/// The kernel's, and where it is too large.
pub fn pem(fd: &OwnedFd) -> Result<Vec<u8>, Fatal> {
    let fault = |why: std::io::Error| Fatal::new("read a file with certificates", why);
    rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(0)).map_err(|why| fault(why.into()))?;
    content(fd, MAX_PEM).map_err(fault)
}

/// What is in a memory file with certificates that comes while a process works, which is positioned at its beginning. In the sandbox too.
///
/// # Errors
/// The kernel's, and where it is too large.
pub fn late_pem(fd: &OwnedFd) -> Result<Vec<u8>, Fatal> {
    content(fd, MAX_PEM).map_err(|why| Fatal::new("read new certificates", why))
}

/// What is in a memory file with revocation lists, which is positioned at its beginning. In the sandbox too.
///
/// # Errors
/// The kernel's, and where it is too large.
pub fn revocations(fd: &OwnedFd) -> Result<Vec<u8>, Fatal> {
    content(fd, MAX_PEM).map_err(|why| Fatal::new("read a revocation list", why))
}

/// What is in a file that is positioned at its beginning, by `read(2)` alone.
fn content(fd: impl AsFd, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; most.saturating_add(1)];
    let mut length = 0;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(&fd, rest) {
            Ok(0) => {
                bytes.truncate(length);
                return Ok(bytes);
            }
            Ok(more) => length += more,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Errno::FBIG.into())
}

/// What is in a file, wherever it is positioned. Its memory is sized beforehand, since a buffer that grows would leave copies behind,
/// and erased when it is dropped.
///
/// # Errors
/// The kernel's, and `EFBIG` where it has more than `most` bytes.
pub fn whole(fd: impl AsFd, most: usize) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; most.saturating_add(1)]);
    let mut length = 0;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(&fd, rest, length as u64) {
            Ok(0) => {
                bytes.truncate(length);
                return Ok(bytes);
            }
            Ok(more) => length += more,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Errno::FBIG.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_file_is_read_whole_and_one_that_is_too_large_not_at_all() {
        let through = |bytes: &[u8], most| {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(bytes).unwrap();
            drop(writer);
            content(&reader, most)
        };
        assert_eq!(through(b"", 0).unwrap(), b"");
        assert_eq!(through(b"abc", 3).unwrap(), b"abc");
        assert_eq!(through(b"abcd", 3).unwrap_err().raw_os_error(), Some(Errno::FBIG.raw_os_error()));
    }
}
