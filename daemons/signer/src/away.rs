//! Where checkpoints are sent to: away from this process, and best from this host, so that who becomes root here later cannot
//! take back what was signed.

use levee_policy::audit::{Chain, Hex};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;

/// One place.
pub struct Away(OwnedFd);

impl Away {
    /// A file that is appended to, or a datagram socket.
    pub fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Sends it a checkpoint. False if it did not take all of it.
    pub fn send(&self, chain: &Chain, signature: &[u8]) -> bool {
        let (hash, signature) = (String::from(chain.hash), String::from(Hex(signature.to_vec())));
        let line = format!("levee audit checkpoint {} {hash} {signature}", chain.count);
        let is_socket =
            fstat(&self.0).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
        let (text, sent) = if is_socket {
            // RFC 3164 4.1.1: facility 13 (log audit), severity 5 (notice).
            let text = format!("<109>levee-signer: {line}");
            let sent = send(&self.0, text.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            (text, sent)
        } else {
            let text = line + "\n";
            let sent = loop {
                match rustix::io::write(&self.0, text.as_bytes()) {
                    Err(Errno::INTR) => {}
                    done => break done,
                }
            };
            (text, sent)
        };
        sent == Ok(text.len())
    }
}
