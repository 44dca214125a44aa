//! The audit log: one sealed JSON line a record, on the disk before what it permits takes effect.
//!
//! | file | what |
//! |---|---|
//! | `audit.jsonl` | the log, in the form of [`levee_policy::audit`] |
//! | `audit.first-key` | the first key, as 64 hexadecimal digits, written once when the log begins: move it to the auditor, who alone can then check the seals, and leave no copy |
//! | `audit.state` | how many records there are, the next one's key, the running hash; written over in place |
//!
//! Three weights share the disk, so that no one can crowd out what matters more: notes (what needs no
//! permission, and what anybody can cause) leave [`FOR_GRANTS`] bytes free, grants leave [`FOR_END`] for each live
//! session, and the ends of what was granted may use all there is. The space is allocated ahead of the log's end, so that no
//! other file on the same disk can take it.

use levee_policy::audit::{AuditKey, Event, Hash, Sealer, Verdict};
use levee_session::Time;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, fallocate, openat, renameat, unlinkat};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;
use zeroize::Zeroizing;

const LOG: &str = "audit.jsonl";
const STATE: &str = "audit.state";
const FIRST_KEY: &str = "audit.first-key";
/// Bytes that notes leave to grants.
const FOR_GRANTS: u64 = 64 << 10;
/// Bytes that grants leave to the end of each session, and to sixteen more.
const FOR_END: u64 = 512;
/// How long a record for which nothing waits may lie unsynced.
const LAZY: Duration = Duration::from_secs(1);
/// So many records after a checkpoint, the next is due.
const CHECKPOINT: u64 = 128;
/// No record waits longer for a checkpoint, however few there are.
const CHECKPOINT_TIME: Duration = Duration::from_secs(60);

/// How much a record matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Nothing depends on it.
    Note,
    /// A grant, which must be in the log before it takes effect.
    Grant,
    /// The end of something granted.
    End,
}

impl Weight {
    /// Bytes that a record leaves free, with so many live sessions.
    fn reserve(self, sessions: u64) -> u64 {
        let ends = sessions.saturating_add(16).saturating_mul(FOR_END);
        match self {
            Self::Note => FOR_GRANTS.saturating_add(ends),
            Self::Grant => ends,
            Self::End => 0,
        }
    }
}

/// Why the log cannot be opened or written.
#[derive(Debug)]
pub enum AuditError {
    /// The disk says no.
    Io(std::io::Error),
    /// What is there is not a log that this state belongs to.
    Foreign(&'static str),
    /// The record cannot be sealed.
    Seal(levee_policy::audit::SealError),
}

impl std::fmt::Display for AuditError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(e) => write!(f, "{e}"),
            Self::Foreign(what) => write!(
                f,
                "{what}; keep what is there for the auditor, and move {LOG} and {STATE} away to begin a new log"
            ),
            Self::Seal(e) => write!(f, "{e}"),
        }
    }
}

impl From<std::io::Error> for AuditError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for AuditError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// The open log.
pub struct AuditLog {
    file: File,
    state: File,
    sealer: Sealer,
    /// Where the next record goes.
    end: u64,
    /// Bytes that the disk keeps for the log.
    allocated: u64,
    /// Sessions whose ends need room.
    sessions: u64,
    /// Notes for which there was no room.
    lost: u64,
    unsynced: Option<Time>,
    /// When records that no checkpoint covers, and none was asked for, must get one.
    uncovered: Option<Time>,
    /// A sync has failed: what the disk has is not known any more, so nothing more is granted.
    broken: bool,
    /// Records that the last checkpoint speaks of.
    signed: u64,
    /// What the signer has been asked to sign.
    asked: Option<(u64, Hash)>,
}

impl AuditLog {
    /// Opens the log in this directory, or begins one. What a crash left half-written is cut off.
    ///
    /// # Errors
    /// If the log does not go on from the state kept beside it: it was changed while nobody was looking.
    pub fn open(directory: BorrowedFd<'_>) -> Result<Self, AuditError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let own = Mode::RUSR | Mode::WUSR;
        let file = File::from(openat(directory, LOG, flags, own)?);
        let length = file.metadata()?.len();
        let mut saved = Zeroizing::new([0u8; Sealer::STATE]);
        let state = match openat(directory, STATE, flags & !OFlags::CREATE, own) {
            Ok(fd) => {
                let state = File::from(fd);
                state.read_exact_at(&mut *saved, 0)?;
                state
            }
            Err(rustix::io::Errno::NOENT) if length == 0 => begin(directory, &mut saved)?,
            Err(rustix::io::Errno::NOENT) => return Err(AuditError::Foreign("the audit log has no state")),
            Err(error) => return Err(error.into()),
        };
        let mut sealer = Sealer::restore(&*saved).ok_or(AuditError::Foreign("the state is not one"))?;
        let end = catch_up(&file, &mut sealer)?;
        file.set_len(end)?;
        file.sync_all()?;
        rustix::fs::fsync(directory)?;
        let signed = sealer.count();
        let mut log = Self {
            file,
            state,
            sealer,
            end,
            allocated: 0,
            sessions: 0,
            lost: 0,
            unsynced: None,
            uncovered: None,
            broken: false,
            signed,
            asked: None,
        };
        log.save()?;
        // Grants keep their room even if the disk fills up before the first note. A disk without that much denies
        // grants when they come.
        let room = Weight::Note.reserve(0);
        if log.reserve(log.end + room).is_err() {
            eprintln!("levee-sessiond: the disk has less than {room} bytes for the audit log");
        }
        Ok(log)
    }

    /// So many sessions will end, and need room for that.
    pub fn expect_ends(&mut self, sessions: u64) {
        self.sessions = sessions;
    }

    /// Records written so far, those of earlier runs with them.
    pub fn records(&self) -> u64 {
        self.sealer.count()
    }

    /// When what lies unsynced must be synced, or what is not covered by a checkpoint must be.
    pub fn deadline(&self) -> Option<Time> {
        let checkpoint = self.uncovered.filter(|_| self.asked.is_none() && !self.broken);
        [self.unsynced, checkpoint].into_iter().flatten().min()
    }

    /// Writes the records in order, as far as there is room for their weight; with `needed`, syncs them. False
    /// if a record that a grant or an end needs is not on the disk: then nothing that it permits may happen.
    pub fn write(&mut self, entries: &[(Weight, Event)], now: Time, needed: bool) -> bool {
        if self.broken {
            return false;
        }
        let mut complete = true;
        for (weight, event) in entries {
            if let Err(error) = self.append(*weight, now, |sealer, time| sealer.seal(time, event)) {
                if *weight == Weight::Note {
                    self.lost += 1;
                } else {
                    complete = false;
                    eprintln!("levee-sessiond: the audit log: {error}");
                }
            }
        }
        if self.lost > 0 {
            let event = lost(self.lost);
            if self.append(Weight::Note, now, |sealer, time| sealer.seal(time, &event)).is_ok() {
                self.lost = 0;
            }
        }
        if needed || self.unsynced.is_some_and(|due| due <= now) {
            complete &= self.sync();
        }
        complete
    }

    fn append(
        &mut self,
        weight: Weight,
        now: Time,
        seal: impl FnOnce(&mut Sealer, u64) -> Result<Vec<u8>, levee_policy::audit::SealError>,
    ) -> Result<(), AuditError> {
        let before = self.sealer.save();
        let line = seal(&mut self.sealer, now.as_millis()).map_err(AuditError::Seal)?;
        let next = self.end + line.len() as u64;
        let written = self.reserve(next + weight.reserve(self.sessions)).and_then(|()| {
            self.file.write_all_at(&line, self.end).map_err(|error| {
                // Nothing of a line that failed half-way may stand behind the next one.
                self.broken |= self.file.set_len(self.end).is_err();
                self.allocated = 0;
                AuditError::Io(error)
            })
        });
        if let Err(error) = written {
            // The record is not there, so the next one has its number and key.
            if let Some(sealer) = Sealer::restore(&*before) {
                self.sealer = sealer;
            }
            return Err(error);
        }
        self.end = next;
        self.unsynced.get_or_insert(now.after(LAZY));
        self.uncovered.get_or_insert(now.after(CHECKPOINT_TIME));
        Ok(())
    }

    /// Has the disk keep so many bytes for the log.
    fn reserve(&mut self, bytes: u64) -> Result<(), AuditError> {
        if bytes > self.allocated {
            fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes)?;
            self.allocated = bytes;
        }
        Ok(())
    }

    /// Syncs what was written, and writes the next record's key over the last one's. False if the disk says no;
    /// then it is never believed again.
    pub fn sync(&mut self) -> bool {
        if self.unsynced.take().is_some() {
            let synced = self.file.sync_data().and_then(|()| self.save());
            if let Err(error) = synced {
                eprintln!("levee-sessiond: syncing the audit log: {error}");
                self.broken = true;
            }
        }
        !self.broken
    }

    /// In place, so that the key before is gone. Not synced: the log itself says how to go on from an older
    /// state, and after a crash of the machine an older key opens no more than was written since.
    fn save(&mut self) -> std::io::Result<()> {
        self.state.write_all_at(&*self.sealer.save(), 0)
    }

    /// What the signer is to sign now: so many records, and the running hash after them. `last` at the end of
    /// the run, where any record after the last checkpoint is enough.
    pub fn checkpoint_due(&mut self, last: bool, now: Time) -> Option<(u64, [u8; 32])> {
        let (count, hash) = (self.sealer.count(), *self.sealer.hash());
        let late = self.uncovered.is_some_and(|due| due <= now);
        let least = if last || late { 1 } else { CHECKPOINT };
        if count.saturating_sub(self.signed) < least || (self.asked.is_some() && !last) || self.broken {
            return None;
        }
        self.asked = Some((count, hash));
        self.uncovered = None;
        Some((count, hash.0))
    }

    /// Takes the signer's signature of what it was asked for.
    pub fn signed(&mut self, signature: Vec<u8>, now: Time) {
        let Some((count, hash)) = self.asked.take() else { return };
        let seal = |sealer: &mut Sealer, time| sealer.seal_checkpoint(time, count, hash, signature);
        match self.append(Weight::Grant, now, seal) {
            // The checkpoint is a record itself, which the next one speaks of.
            Ok(()) => {
                self.signed = count + 1;
                if self.sealer.count() == self.signed {
                    self.uncovered = None;
                }
            }
            Err(error) => eprintln!("levee-sessiond: a checkpoint of the audit log: {error}"),
        }
    }

    /// What the signer was asked will not be answered.
    pub fn signer_lost(&mut self, now: Time) {
        if self.asked.take().is_some() {
            self.uncovered.get_or_insert(now.after(CHECKPOINT_TIME));
        }
    }
}

fn lost(count: u64) -> Event {
    Event {
        user: None,
        host: None,
        label: None,
        action: "audit".into(),
        object: "notes".into(),
        verdict: Verdict::Noted,
        reason: format!("{count} notes before this one were not written: the disk was full"),
    }
}

/// Begins a log: its first key goes into one file for the auditor, and is kept nowhere else once it is used.
fn begin(directory: BorrowedFd<'_>, saved: &mut Zeroizing<[u8; Sealer::STATE]>) -> Result<File, AuditError> {
    const NEW: &str = "audit.new";
    let mut first = Zeroizing::new([0u8; 32]);
    crate::passwords::fill_random(&mut *first)?;
    let mut text = Zeroizing::new(String::with_capacity(65));
    for byte in first.iter() {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text.push('\n');
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let create = |mode| {
        let _ = unlinkat(directory, NEW, AtFlags::empty());
        openat(directory, NEW, flags, mode).map(File::from)
    };
    let mut file = create(Mode::RUSR)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    renameat(directory, NEW, directory, FIRST_KEY)?;
    **saved = *Sealer::new(AuditKey::from_bytes(*first)).save();
    let mut state = create(Mode::RUSR | Mode::WUSR)?;
    state.write_all(&**saved)?;
    state.sync_all()?;
    renameat(directory, NEW, directory, STATE)?;
    rustix::fs::fsync(directory)?;
    Ok(state)
}

/// Goes through the log: lines that the state knows are counted, those after it must be sealed by the keys that
/// follow. Says where the last good line ends.
fn catch_up(file: &File, sealer: &mut Sealer) -> Result<u64, AuditError> {
    let known = sealer.count();
    let mut reader = std::io::BufReader::with_capacity(1 << 16, file);
    let (mut lines, mut end) = (0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = std::io::BufRead::read_until(&mut reader, b'\n', &mut line)?;
        let whole = line.last() == Some(&b'\n');
        if n == 0 || !whole {
            break;
        }
        if lines >= known && sealer.catch_up(&line).is_err() {
            // A crash may leave one line in disorder at the very end; anything after it was put there.
            if std::io::BufRead::fill_buf(&mut reader)?.is_empty() {
                break;
            }
            return Err(AuditError::Foreign("the audit log does not go on from its state"));
        }
        lines += 1;
        end += n as u64;
    }
    if lines < known {
        return Err(AuditError::Foreign("the audit log is shorter than its state says"));
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn a_checkpoint_covers_even_a_single_record_after_a_minute_and_then_nothing_is_due() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let mut log = AuditLog::open(directory.as_fd()).unwrap();
        let start = Time::from_millis(1_700_000_000_000);
        assert!(log.write(&[(Weight::Grant, lost(1))], start, true));
        assert_eq!(log.checkpoint_due(false, start), None);
        let due = log.deadline().unwrap();
        assert_eq!(due, start.after(CHECKPOINT_TIME));
        // A signer that dies is asked again, not at once and again at once.
        assert!(log.checkpoint_due(false, due).is_some());
        log.signer_lost(due);
        assert_eq!(log.deadline(), Some(due.after(CHECKPOINT_TIME)));
        let due = due.after(CHECKPOINT_TIME);
        let (count, _) = log.checkpoint_due(false, due).unwrap();
        assert_eq!((count, log.deadline()), (1, None));
        log.signed(vec![0; 64], due);
        assert!(log.sync());
        assert_eq!((log.records(), log.deadline()), (2, None));
        assert_eq!(log.checkpoint_due(true, due.after(CHECKPOINT_TIME)), None);
    }
}
