//! The audit log: one sealed JSON line a record, on the disk before what it permits takes effect.
//!
//! | file | what |
//! |---|---|
//! | `audit.jsonl` | the log, in the form of [`levee_policy::audit`]; what has been written since the last of the next |
//! | `audit-NUMBER.jsonl` | a part of the log that is full, by the number of its first record: seals, hashes and numbers go on from one to the next |
//! | `audit.first-key` | the first key, as 64 hexadecimal digits, written once when the log begins: move it to the auditor, who alone can then check the seals, and leave no copy |
//! | `audit.state` | how many records there are, the next one's key, the running hash, the number of the first record in `audit.jsonl`; written over in place |
//!
//! Three weights share the disk, so that no one can crowd out what matters more: notes (what needs no
//! permission, and what anybody can cause) leave [`FOR_GRANTS`] bytes free, grants leave [`FOR_END`] for each live
//! session, and the ends of what was granted may use all there is. The space is allocated ahead of the log's end, so that no
//! other file on the same disk can take it.

use levee_policy::audit::{AuditKey, Event, Hash, MAX_LINE, Sealer, Verdict, part_first, part_name};
use levee_session::Time;
use rustix::fs::{AtFlags, Dir, FallocateFlags, Mode, OFlags, fallocate, openat, renameat, unlinkat};
use std::fs::File;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;
use zeroize::Zeroizing;

const LOG: &str = "audit.jsonl";
const STATE: &str = "audit.state";
const FIRST_KEY: &str = "audit.first-key";
/// A file in the making.
const NEW: &str = "audit.new";
/// Bytes of the state: the sealer's, and where the file begins.
const SAVED: usize = Sealer::STATE + 8;
/// A file of so many bytes is full: at the next checkpoint another one goes on from it. All of the last one is read at a start.
const FULL: u64 = 64 << 20;
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
    /// A connection's grant, which must be in the log before it takes effect, and which leaves grants of sessions their room:
    /// whoever has a session causes as many as they like.
    Connection,
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
            Self::Note | Self::Connection => FOR_GRANTS.saturating_add(ends),
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
                "{what}; keep what is there for the auditor, and move all of it (audit*.jsonl, {FIRST_KEY}, {STATE}) away \
                 to begin a new log"
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
    directory: OwnedFd,
    file: File,
    state: File,
    sealer: Sealer,
    /// The number of the file's first record.
    base: u64,
    /// Bytes of a full file.
    full: u64,
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
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let own = Mode::RUSR | Mode::WUSR;
        let file = File::from(openat(directory, LOG, flags | OFlags::CREATE, own)?);
        let length = file.metadata()?.len();
        let mut saved = Zeroizing::new([0u8; SAVED]);
        let state = match openat(directory, STATE, flags, own) {
            Ok(fd) => {
                let state = File::from(fd);
                // Where the file begins was not always said: it was the first.
                let least = saved.get_mut(..Sealer::STATE).unwrap_or_default();
                state.read_exact_at(least, 0)?;
                let rest = saved.get_mut(Sealer::STATE..).unwrap_or_default();
                if state.metadata()?.len() >= SAVED as u64 {
                    state.read_exact_at(rest, Sealer::STATE as u64)?;
                }
                state
            }
            // The parts of a log that was there are not to be written over, nor its first key.
            Err(rustix::io::Errno::NOENT) if length > 0 || has_part(directory)? => {
                return Err(AuditError::Foreign("the audit log has no state"));
            }
            Err(rustix::io::Errno::NOENT) => begin(directory, &mut saved)?,
            Err(error) => return Err(error.into()),
        };
        let foreign = || AuditError::Foreign("the state is not one");
        let (sealed, base) = saved.split_last_chunk::<8>().ok_or_else(foreign)?;
        let (mut sealer, mut base) =
            (Sealer::restore(sealed).ok_or_else(foreign)?, u64::from_be_bytes(*base));
        let known = sealer.count();
        // A crash may have come after a file was full and before the state said so.
        while let Ok(full) = openat(directory, part_name(base), flags, own) {
            let (lines, _) = catch_up(&File::from(full), &mut sealer, base, known)?;
            if lines == 0 {
                return Err(AuditError::Foreign("a part of the audit log is empty"));
            }
            base = base.saturating_add(lines);
        }
        let (lines, end) = catch_up(&file, &mut sealer, base, known)?;
        if base.saturating_add(lines) < known {
            return Err(AuditError::Foreign("the audit log is shorter than its state says"));
        }
        file.set_len(end)?;
        file.sync_all()?;
        rustix::fs::fsync(directory)?;
        let signed = sealer.count();
        let mut log = Self {
            directory: directory.try_clone_to_owned()?,
            file,
            state,
            sealer,
            base,
            full: FULL,
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
            levee_ipc::say!("levee-sessiond: the disk has less than {room} bytes for the audit log");
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
                    levee_ipc::say!("levee-sessiond: the audit log: {error}");
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
                levee_ipc::say!("levee-sessiond: syncing the audit log: {error}");
                self.broken = true;
            }
        }
        !self.broken
    }

    /// In place, so that the key before is gone. Not synced: the log itself says how to go on from an older
    /// state, and after a crash of the machine an older key opens no more than was written since.
    fn save(&mut self) -> std::io::Result<()> {
        self.state.write_all_at(&*saved(&self.sealer, self.base), 0)
    }

    /// Goes on in another file, where there is room for one. The checkpoint before has been written.
    fn turn_over(&mut self) {
        if !self.sync() {
            return;
        }
        let room = Weight::Note.reserve(self.sessions);
        let next = || -> Result<File, AuditError> {
            let directory = self.directory.as_fd();
            let file = create(directory, Mode::RUSR | Mode::WUSR)?;
            // The same room as before, whoever else wants some.
            fallocate(&file, FallocateFlags::KEEP_SIZE, 0, room)?;
            file.sync_all()?;
            renameat(directory, LOG, directory, part_name(self.base))?;
            Ok(file)
        };
        let file = match next() {
            Ok(file) => file,
            Err(error) => {
                let _ = unlinkat(self.directory.as_fd(), NEW, AtFlags::empty());
                return levee_ipc::say!("levee-sessiond: another file for the audit log: {error}");
            }
        };
        // What was kept behind the end of the full one; if that fails, it is only not given back.
        let _ = self.file.set_len(self.end);
        (self.file, self.base) = (file, self.sealer.count());
        (self.end, self.allocated) = (0, room);
        let directory = self.directory.as_fd();
        let named = renameat(directory, NEW, directory, LOG).and_then(|()| rustix::fs::fsync(directory));
        if let Err(error) = named.map_err(Into::into).and_then(|()| self.save()) {
            levee_ipc::say!("levee-sessiond: another file for the audit log: {error}");
            self.broken = true;
        }
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
                if self.end >= self.full {
                    self.turn_over();
                }
            }
            Err(error) => levee_ipc::say!("levee-sessiond: a checkpoint of the audit log: {error}"),
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

/// Whether there is a full part of a log.
fn has_part(directory: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        if entry?.file_name().to_str().is_ok_and(|name| part_first(name).is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The state's bytes.
fn saved(sealer: &Sealer, base: u64) -> Zeroizing<[u8; SAVED]> {
    let mut saved = Zeroizing::new([0; SAVED]);
    let sealed = sealer.save();
    let bytes = sealed.iter().copied().chain(base.to_be_bytes());
    saved.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    saved
}

/// A file in the making, empty.
fn create(directory: BorrowedFd<'_>, mode: Mode) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let _ = unlinkat(directory, NEW, AtFlags::empty());
    openat(directory, NEW, flags, mode).map(File::from)
}

/// Begins a log: its first key goes into one file for the auditor, and is kept nowhere else once it is used.
fn begin(directory: BorrowedFd<'_>, state: &mut Zeroizing<[u8; SAVED]>) -> Result<File, AuditError> {
    let mut first = Zeroizing::new([0u8; 32]);
    crate::passwords::fill_random(&mut *first)?;
    let mut text = Zeroizing::new(String::with_capacity(65));
    for byte in first.iter() {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text.push('\n');
    let mut file = create(directory, Mode::RUSR)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    renameat(directory, NEW, directory, FIRST_KEY)?;
    **state = *saved(&Sealer::new(AuditKey::from_bytes(*first)), 0);
    let mut file = create(directory, Mode::RUSR | Mode::WUSR)?;
    file.write_all(&**state)?;
    file.sync_all()?;
    renameat(directory, NEW, directory, STATE)?;
    rustix::fs::fsync(directory)?;
    Ok(file)
}

/// Goes through a file of the log, whose first record has the number `base`: the `known` lines that the state knows are
/// counted, those after them must be sealed by the keys that follow. Says how many lines are good, and where the last of
/// them ends.
fn catch_up(file: &File, sealer: &mut Sealer, base: u64, known: u64) -> Result<(u64, u64), AuditError> {
    let mut reader = std::io::BufReader::with_capacity(1 << 16, file);
    let (mut lines, mut end) = (0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        // No line that was written is longer.
        let n = reader.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)?;
        if n == 0 {
            break;
        }
        let number = base.saturating_add(lines);
        let good = line.last() == Some(&b'\n') && (number < known || sealer.catch_up(&line).is_ok());
        if !good {
            // A crash may leave one line in disorder at the very end; anything after it was put there.
            if reader.fill_buf()?.is_empty() {
                break;
            }
            return Err(AuditError::Foreign("the audit log does not go on from its state"));
        }
        lines += 1;
        end += n as u64;
    }
    Ok((lines, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_policy::audit::{Report, Verifier};
    use std::path::Path;

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

    /// A log in `place` whose files are full after so many bytes.
    fn open(place: &Path, full: u64) -> Result<AuditLog, AuditError> {
        let directory = File::open(place).unwrap();
        AuditLog::open(directory.as_fd()).map(|log| AuditLog { full, ..log })
    }

    /// Writes so many records and a checkpoint behind them.
    fn fill(log: &mut AuditLog, records: u64) {
        let now = Time::from_millis(1_700_000_000_000);
        for n in 0..records {
            assert!(log.write(&[(Weight::Grant, lost(n))], now, true));
        }
        log.checkpoint_due(true, now).unwrap();
        log.signed(vec![0; 64], now);
        assert!(log.sync());
    }

    /// The parts of the log, oldest first, and what reading them one after the other says.
    fn read(place: &Path) -> (Vec<String>, Report) {
        let mut names: Vec<String> = std::fs::read_dir(place)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".jsonl"))
            .collect();
        // `-` comes before `.`
        names.sort();
        let key = std::fs::read_to_string(place.join(FIRST_KEY)).unwrap();
        let mut first = [0; 32];
        for (byte, digits) in first.iter_mut().zip(key.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        }
        let mut verifier = Verifier::new(Some(AuditKey::from_bytes(first)), |_: &[u8], _: &[u8]| true);
        for name in &names {
            for line in std::fs::read_to_string(place.join(name)).unwrap().split_inclusive('\n') {
                verifier.line(line.as_bytes());
            }
        }
        (names, verifier.finish(None))
    }

    #[test]
    fn a_full_file_is_closed_at_a_checkpoint_and_the_next_goes_on_from_it() {
        let place = tempfile::tempdir().unwrap();
        let mut log = open(place.path(), 2_000).unwrap();
        fill(&mut log, 3);
        assert_eq!(read(place.path()).0, [LOG], "not full yet");
        fill(&mut log, 12);
        let full = format!("audit-{:020}.jsonl", 0);
        assert_eq!(read(place.path()).0, [full.as_str(), LOG]);
        assert_eq!(std::fs::metadata(place.path().join(LOG)).unwrap().len(), 0);
        fill(&mut log, 2);
        drop(log);
        // The next start reads the last one alone: what the full one says is the auditor's to read.
        let moved = place.path().join("moved-away");
        std::fs::rename(place.path().join(&full), &moved).unwrap();
        let mut log = open(place.path(), 2_000).unwrap();
        assert_eq!(log.records(), 20);
        std::fs::rename(&moved, place.path().join(&full)).unwrap();
        fill(&mut log, 12);
        fill(&mut log, 1);
        let (names, report) = read(place.path());
        assert_eq!(names, [full.as_str(), &format!("audit-{:020}.jsonl", 17), LOG]);
        assert!(report.is_sound(), "{report:#?}");
        assert_eq!((report.lines, report.checkpoints), (35, 5));
        // A part that is not there is missed.
        std::fs::remove_file(place.path().join(&names[1])).unwrap();
        assert!(!read(place.path()).1.is_sound());
    }

    #[test]
    fn a_crash_at_any_moment_of_going_on_in_another_file_loses_nothing() {
        let state = |place: &Path| std::fs::read(place.join(STATE)).unwrap();
        // What the disk has of the state may be older than all of it, of before the last records or before the turn.
        for (older, step) in (0..3).flat_map(|older| (0..3).map(move |step| (older, step))) {
            let place = tempfile::tempdir().unwrap();
            let place = place.path();
            let mut log = open(place, 1_000).unwrap();
            let oldest = state(place);
            log.full = u64::MAX;
            fill(&mut log, 8);
            let before = state(place);
            log.turn_over();
            let states = [oldest, before, state(place)];
            drop(log);
            // The new file has no name yet, or the full one has its old name still.
            let full = place.join(part_name(0));
            if step > 0 {
                std::fs::remove_file(place.join(LOG)).unwrap();
            }
            if step > 1 {
                std::fs::rename(&full, place.join(LOG)).unwrap();
                if older == 2 {
                    // The state is written last.
                    continue;
                }
            }
            std::fs::write(place.join(STATE), &states[older]).unwrap();
            let mut log = open(place, 1_000).unwrap_or_else(|e| panic!("state {older}, step {step}: {e}"));
            assert_eq!(log.records(), 9, "state {older}, step {step}");
            fill(&mut log, 2);
            fill(&mut log, 8);
            drop(log);
            assert_eq!(open(place, 1_000).unwrap().records(), 21);
            let (_, report) = read(place);
            assert!(report.is_sound() && report.lines == 21, "state {older}, step {step}: {report:#?}");
        }
    }

    #[test]
    fn without_its_state_no_log_is_begun_over_the_parts_of_another_and_its_first_key_stays() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let mut log = open(place, 1_000).unwrap();
        fill(&mut log, 8);
        drop(log);
        assert_eq!(std::fs::metadata(place.join(LOG)).unwrap().len(), 0, "the full part is closed");
        let key = std::fs::read(place.join(FIRST_KEY)).unwrap();
        std::fs::remove_file(place.join(STATE)).unwrap();
        let refused = || open(place, 1_000).err().map(|error| error.to_string()).unwrap();
        for _ in 0..2 {
            let said = refused();
            assert!(said.contains("has no state") && said.contains("audit*.jsonl"), "{said}");
            assert_eq!(std::fs::read(place.join(FIRST_KEY)).unwrap(), key);
            assert!(!place.join(STATE).exists());
        }
        // Nor where the part that is written to is not there.
        std::fs::remove_file(place.join(LOG)).unwrap();
        refused();
        assert_eq!(std::fs::read(place.join(FIRST_KEY)).unwrap(), key);
        // With all of it moved away, a new one is.
        std::fs::remove_file(place.join(part_name(0))).unwrap();
        assert_eq!(open(place, 1_000).unwrap().records(), 0);
        assert_ne!(std::fs::read(place.join(FIRST_KEY)).unwrap(), key);
    }

    #[test]
    fn without_room_for_another_file_the_log_goes_on_in_the_one_there_is() {
        let place = tempfile::tempdir().unwrap();
        let mut log = open(place.path(), 1_000).unwrap();
        // Something that cannot be replaced stands where the file in the making goes.
        std::fs::create_dir_all(place.path().join(NEW).join("in-the-way")).unwrap();
        fill(&mut log, 8);
        fill(&mut log, 8);
        assert_eq!(read(place.path()).0, [LOG]);
        std::fs::remove_dir_all(place.path().join(NEW)).unwrap();
        fill(&mut log, 1);
        let (names, report) = read(place.path());
        assert_eq!(names.len(), 2);
        assert!(report.is_sound() && report.lines == 20, "{report:#?}");
    }

    #[test]
    fn a_line_without_an_end_is_not_read_into_memory() {
        let place = tempfile::tempdir().unwrap();
        drop(open(place.path(), FULL).unwrap());
        let file = File::options().write(true).open(place.path().join(LOG)).unwrap();
        // A gigabyte of nothing, of which the disk has none.
        file.set_len(1 << 30).unwrap();
        let error = open(place.path(), FULL).err().map(|e| e.to_string()).unwrap();
        assert!(error.contains("does not go on from its state"), "{error}");
    }
}
