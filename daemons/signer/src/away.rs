//! Where checkpoints are sent to: away from this process, and best from this host, so that who becomes root here later cannot
//! take back what was signed.

use levee_policy::audit::{Chain, Checkpoint};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::cell::Cell;
use std::os::fd::OwnedFd;

/// One place.
pub struct Away {
    to: OwnedFd,
    /// A disk that filled up has the beginning of a line alone.
    torn: Cell<bool>,
}

impl Away {
    /// A file that is appended to, or a datagram socket.
    pub fn new(to: OwnedFd) -> Self {
        Self { to, torn: Cell::new(false) }
    }

    /// Sends it a checkpoint. False if it did not take all of it.
    pub fn send(&self, chain: &Chain, signature: &[u8]) -> bool {
        let line = Checkpoint::kept(chain.count, chain.hash, signature.to_vec());
        let is_socket =
            fstat(&self.to).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
        if is_socket {
            // RFC 3164 4.1.1: facility 13 (log audit), severity 5 (notice).
            let text = format!("<109>levee-signer: {line}");
            let sent = send(&self.to, text.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            return sent == Ok(text.len());
        }
        // Behind the rest of one that was not taken this would be none.
        let before = if self.torn.get() { "\n" } else { "" };
        let text = format!("{before}{line}\n");
        let sent = loop {
            match rustix::io::write(&self.to, text.as_bytes()) {
                Err(Errno::INTR) => {}
                done => break done.unwrap_or(0),
            }
        };
        // Until a whole one is there.
        self.torn.set(sent < text.len() && (self.torn.get() || sent > 0));
        sent == text.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_policy::audit::Hash;
    use levee_sys::mount::{Attributes, Mount};
    use std::io::{Read as _, Seek as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixDatagram;
    use std::path::PathBuf;

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

    #[test]
    fn behind_a_line_that_a_full_disk_has_cut_the_next_one_is_a_line() {
        let disk =
            Mount::new("tmpfs", &[("size", "8192")], Attributes::DATA).expect("a small disk: it needs root");
        let at = PathBuf::from(format!("/proc/self/fd/{}", disk.root().as_raw_fd()));
        let (path, filler) = (at.join("checkpoints"), at.join("filler"));
        std::fs::write(&filler, [0; 4096]).unwrap();
        std::fs::write(&path, format!("{}\n", "x".repeat(4_045))).unwrap();
        let away = Away::new(std::fs::File::options().append(true).open(&path).unwrap().into());
        let taken = [away.send(&CHAIN, &[1, 2, 255]), away.send(&CHAIN, &[1, 2, 255])];
        std::fs::remove_file(&filler).unwrap();
        let then = [away.send(&CHAIN, &[1, 2, 255]), away.send(&CHAIN, &[1, 2, 255])];
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!((taken, then), ([false; 2], [true; 2]));
        let lines: Vec<&str> = text.lines().skip(1).filter(|line| line.starts_with("levee audit")).collect();
        assert_eq!(lines, [&line()[..50], &line(), &line()], "{text}");
    }
}
