//! How far the audit log is: the running hash that the signer keeps by itself, in a file of its own.
//!
//! sessiond says of each record what its line's digest is, once, when the record is on the disk. Records only follow: nothing
//! here goes back, not by another start of the signer either. So whoever takes sessiond over finds that what stands in the
//! log is fixed, and can only add to it.
//!
//! The file has two places, written in turn; each has its own checksum, so that a crash in the middle of a write leaves the
//! other. What a process has written outlives the process; it is synced before a checkpoint is signed, and at the latest
//! [`LAZY`] after it was written.

use levee_ipc::signer::DIGESTS;
use levee_policy::audit::{Chain, Hash};
use ring::digest::{SHA256, digest};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

/// What each place begins with.
const MAGIC: &[u8; 24] = b"levee audit chain state\0";
/// Bytes of a place: magic, count, hash, checksum.
const PLACE: usize = 24 + 8 + 32 + 32;
/// Where the places are: in different pages.
const PLACES: [u64; 2] = [0, 4096];
/// How long a crash of the machine may undo what the signer has chained.
const LAZY: Duration = Duration::from_secs(1);

/// The audit log as the signer knows it.
pub struct Ledger {
    file: File,
    chain: Chain,
    /// Which place is written next.
    turn: usize,
    /// When what was written must be synced.
    due: Option<Instant>,
}

/// Why the file cannot be used.
#[derive(Debug)]
pub enum LedgerError {
    /// It cannot be read, or not be written anew.
    Io(io::Error),
    /// Something is in it, and in no place a whole state.
    Damaged,
}

impl std::fmt::Display for LedgerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot be read and kept: {error}"),
            Self::Damaged => f.write_str(
                "is damaged: keep the audit log for the auditor, and move all of it (sessiond/audit*, signer/audit.chain) \
                 away to begin a new one",
            ),
        }
    }
}

impl Ledger {
    /// Reads the file. An empty one is the beginning of a log.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub fn open(fd: OwnedFd) -> Result<Self, LedgerError> {
        let file = File::from(fd);
        let mut found: Option<(Chain, usize)> = None;
        for (place, at) in PLACES.into_iter().enumerate() {
            let mut bytes = [0; PLACE];
            match file.read_exact_at(&mut bytes, at) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
                Err(error) => return Err(LedgerError::Io(error)),
            }
            let chain = decode(&bytes);
            if let Some(chain) = chain.filter(|chain| found.is_none_or(|(best, _)| chain.count > best.count))
            {
                found = Some((chain, place));
            }
        }
        let (chain, turn) = match found {
            Some((chain, place)) => (chain, 1 - place),
            None if file.metadata().map_err(LedgerError::Io)?.len() > 0 => return Err(LedgerError::Damaged),
            None => (Chain::START, 0),
        };
        // What a process before could not sync may be read all the same, and not be on the disk. And both places have their room from now
        // on, whoever fills the disk: what is chained is written over what was.
        for place in [turn, 1 - turn] {
            let at = PLACES.get(place).copied().unwrap_or_default();
            let written = file.write_all_at(&encode(&chain), at).and_then(|()| file.sync_data());
            written.map_err(LedgerError::Io)?;
        }
        Ok(Self { file, chain, turn, due: None })
    }

    /// How far the log is.
    pub fn chain(&self) -> Chain {
        self.chain
    }

    /// Chains records that follow. `None`, and nothing has changed, if they do not, are too many, or the disk says no.
    pub fn extend(&mut self, from: u64, digests: &[[u8; 32]], now: Instant) -> Option<Chain> {
        if from != self.chain.count || digests.len() > DIGESTS {
            return None;
        }
        let next = digests.iter().fold(self.chain, |chain, digest| chain.with(&Hash(*digest)));
        let at = *PLACES.get(self.turn)?;
        self.file.write_all_at(&encode(&next), at).ok()?;
        self.due.get_or_insert(now + LAZY);
        (self.chain, self.turn) = (next, 1 - self.turn);
        Some(next)
    }

    /// When [`Ledger::sync`] is due.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Has what was chained outlive a crash of the machine. False if the disk says no.
    pub fn sync(&mut self) -> bool {
        if self.due.is_some() && self.file.sync_data().is_err() {
            return false;
        }
        self.due = None;
        true
    }
}

fn encode(chain: &Chain) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &chain.count.to_be_bytes(), &chain.hash.0].concat();
    let sum = digest(&SHA256, &bytes);
    bytes.extend_from_slice(sum.as_ref());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Chain> {
    let (said, sum) = bytes.split_last_chunk::<32>()?;
    if digest(&SHA256, said).as_ref() != sum {
        return None;
    }
    let (count, hash) = said.strip_prefix(MAGIC)?.split_first_chunk()?;
    Some(Chain { count: u64::from_be_bytes(*count), hash: Hash(hash.try_into().ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_sys::mount::{Attributes, Mount};
    use std::os::fd::AsRawFd as _;
    use std::path::PathBuf;

    fn open(file: &File) -> Result<Ledger, LedgerError> {
        Ledger::open(file.try_clone().unwrap().into())
    }

    /// What is found in a copy of it: who opens it writes it anew.
    fn found(file: &File) -> Chain {
        let copy = tempfile::tempfile().unwrap();
        let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        copy.write_all_at(&bytes, 0).unwrap();
        open(&copy).unwrap().chain()
    }

    #[test]
    fn a_write_that_a_crash_cut_short_anywhere_leaves_the_state_before_it() {
        let file = tempfile::tempfile().unwrap();
        let mut ledger = open(&file).unwrap();
        let now = Instant::now();
        for n in 0..7u64 {
            let before = ledger.chain();
            let at = PLACES[ledger.turn];
            let after = ledger.extend(n, &[[n as u8; 32]], now).unwrap();
            assert_eq!(found(&file), after);
            let mut whole = [0; PLACE];
            file.read_exact_at(&mut whole, at).unwrap();
            for torn in [0, 30, PLACE - 1] {
                let mut bytes = whole;
                bytes[torn] ^= 1;
                file.write_all_at(&bytes, at).unwrap();
                assert_eq!(found(&file), before);
            }
            file.write_all_at(&whole, at).unwrap();
            // So it is for one that was opened anew.
            if n % 3 == 1 {
                ledger = open(&file).unwrap();
                assert_eq!(ledger.chain(), after);
            }
        }
    }

    #[test]
    fn records_follow_or_are_refused() {
        let file = tempfile::tempfile().unwrap();
        let mut ledger = open(&file).unwrap();
        let now = Instant::now();
        assert!(ledger.extend(1, &[[1; 32]], now).is_none(), "a gap");
        let two = ledger.extend(0, &[[1; 32], [2; 32]], now).unwrap();
        for from in [0, 1, 3, u64::MAX] {
            assert!(ledger.extend(from, &[[3; 32]], now).is_none(), "{from}");
        }
        assert!(ledger.extend(2, &vec![[0; 32]; DIGESTS + 1], now).is_none(), "too many");
        assert_eq!(ledger.chain(), two);
        let many = ledger.extend(2, &vec![[0; 32]; DIGESTS], now).unwrap();
        assert_eq!(many.count, 2 + DIGESTS as u64);
        assert_eq!(ledger.due(), Some(now + LAZY));
        assert!(ledger.sync() && ledger.due().is_none());
    }

    #[test]
    fn on_a_disk_that_has_filled_up_since_it_was_opened_records_are_chained() {
        let disk =
            Mount::new("tmpfs", &[("size", "65536")], Attributes::DATA).expect("a small disk: it needs root");
        let at = PathBuf::from(format!("/proc/self/fd/{}", disk.root().as_raw_fd()));
        let path = at.join("chain");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut ledger = open(&file).unwrap();
        let filler = std::fs::write(at.join("filler"), [0; 65_536]);
        let chained: Vec<bool> =
            (0..4).map(|n| ledger.extend(n, &[[n as u8; 32]], Instant::now()).is_some()).collect();
        let synced = ledger.sync();
        let again = open(&file).unwrap().chain();
        assert!(filler.is_err(), "it is not full");
        assert_eq!((chained, synced, again), (vec![true; 4], true, ledger.chain()));
    }

    #[test]
    fn a_beginning_that_a_crash_has_cut_short_and_a_file_with_neither_place_are_damaged() {
        let file = tempfile::tempfile().unwrap();
        for content in [&encode(&Chain::START)[..PLACE - 1], &[0; PLACE], &[0; 5000]] {
            file.set_len(0).unwrap();
            file.write_all_at(content, 0).unwrap();
            assert!(matches!(open(&file), Err(LedgerError::Damaged)), "{} octets", content.len());
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_no_beginning() {
        let directory = tempfile::tempdir().unwrap();
        for content in [&b""[..], &encode(&Chain::START)] {
            let path = directory.path().join("chain");
            std::fs::write(&path, content).unwrap();
            let blind = File::options().write(true).open(&path).unwrap();
            assert!(
                matches!(Ledger::open(blind.into()), Err(LedgerError::Io(_))),
                "{} octets",
                content.len()
            );
        }
    }
}
