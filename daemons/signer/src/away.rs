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

#[cfg(test)]
mod tests {
    use super::*;
    use levee_policy::audit::Hash;
    use std::io::{Read as _, Seek as _};
    use std::os::unix::net::UnixDatagram;

    const CHAIN: Chain = Chain { count: 7, hash: Hash([0xab; 32]) };

    fn line() -> String {
        format!("levee audit checkpoint 7 {} 0102ff", "ab".repeat(32))
    }

    #[test]
    fn a_file_gets_lines_one_behind_the_other() {
        let mut file = tempfile::tempfile().unwrap();
        let away = Away::new(file.try_clone().unwrap().into());
        assert!(away.send(&CHAIN, &[1, 2, 255]) && away.send(&CHAIN, &[1, 2, 255]));
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("{0}\n{0}\n", line()));
    }

    #[test]
    fn syslog_gets_a_datagram_each_and_one_that_takes_no_more_is_not_waited_for() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let away = Away::new(ours.into());
        assert!(away.send(&CHAIN, &[1, 2, 255]));
        let mut octets = [0; 500];
        let length = theirs.recv(&mut octets).unwrap();
        assert_eq!(String::from_utf8_lossy(&octets[..length]), format!("<109>levee-signer: {}", line()));
        let taken = (0..100_000).take_while(|_| away.send(&CHAIN, &[1, 2, 255])).count();
        assert!((1..100_000).contains(&taken), "{taken}");
        drop(theirs);
        assert!(!away.send(&CHAIN, &[1, 2, 255]), "nobody is there");
    }

    #[test]
    fn what_takes_a_part_has_not_taken_it() {
        // A disk that is full.
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        assert!(!Away::new(full.into()).send(&CHAIN, &[1]));
    }
}
