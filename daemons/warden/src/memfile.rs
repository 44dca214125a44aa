//! Text handed to another process as a file that can never change.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;

/// A sealed memory file with `content`, positioned at its beginning.
///
/// # Errors
/// The kernel's.
pub fn sealed(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(content)?;
    file.rewind()?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_sealed_file_is_read_and_cannot_be_written() {
        let mut file = File::from(sealed("site", b"[site]").unwrap());
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "[site]");
        assert!(file.write_all(b"x").is_err());
    }
}
