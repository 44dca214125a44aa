//! The audit log: one sealed JSON line a record, on the disk before what it permits takes effect, or, of a connection to a service
//! whose audit is `written`, in the file before that and on the disk soon after.
//!
//! | file | what |
//! |---|---|
//! | `audit.jsonl` | the log, in the form of [`levee_policy::audit`]; what has been written since the last of the next |
//! | `audit-NUMBER.jsonl` | a part of the log that is full, by the number of its first record: seals, hashes and numbers go on from one to the next |
//! | `audit.first-key` | the first key, sealed for the auditor (HPKE, RFC 9180), in hexadecimal, written once when the log begins |
//! | `audit.torn-NUMBER` | what the log's end was after a crash of the host that left it in disorder, behind so many records |
//! | `audit.state` | how many records there are, the next one's key, the running hash, the number of the first record in `audit.jsonl`; written over in place |
//!
//! Whoever reads these files learns the next record's key, and none before it: the first one is forgotten with the first record,
//! which says that the log begins, before any file has it. The signer is told the digest of each record that is on the disk and
//! chains them by itself ([`told`]); a log that does not go on from what the signer knows stops the start, and without a signer
//! that takes them no more than [`MOST_BEHIND`] records are granted.
//!
//! Three weights share the disk, so that no one can crowd out what matters more: notes (what needs no
//! permission, and what anybody can cause) leave [`FOR_GRANTS`] bytes free, grants leave [`FOR_END`] for each live
//! session, and the ends of what was granted may use all there is. The space is allocated ahead of the log's end, so that no
//! other file on the same disk can take it; up to [`WRITTEN`] of it is written, so that a record's sync is one write of the disk.

mod behind;
mod files;
mod told;

use crate::auditor::Auditor;
pub use behind::Syncer;
pub use files::AuditError;
use files::{
    Found, LOG, NEW, SAVED, SPACE, STATE, begin, behind as left_behind, catch_up, create, digests_from,
    event, has_part, keep, saved,
};
use levee_ipc::signer::{FromSigner, ToSigner};
use levee_policy::audit::{Action, Chain, Event, Hash, SealError, Sealer, Verdict, part_name};
use levee_session::Time;
use levee_session::federation::Signed;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, fallocate, openat, renameat, unlinkat};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;
use told::Told;
use zeroize::Zeroizing;

/// Bytes allocated beyond what is needed, at a time: a hundred records or more.
const AHEAD: u64 = 64 << 10;

/// Bytes of that that are written with space, at a time: some fifty records.
const WRITTEN: u64 = 16 << 10;

/// A file of so many bytes is full: at the next checkpoint another one goes on from it. All of the last one is read at a start.
const FULL: u64 = 64 << 20;
/// Bytes that notes leave to grants.
const FOR_GRANTS: u64 = 64 << 10;
/// Bytes that grants leave to the end of each session, and to sixteen more: what one takes at most whose reason is plain text.
const FOR_END: u64 = 1024;
/// How long a record for which nothing waits may lie unsynced.
const LAZY: Duration = Duration::from_secs(1);
/// How long one may whose connection goes on already: with the sync itself it is on the disk within 10 ms.
const SOON: Duration = Duration::from_millis(5);
/// So many records after a checkpoint, the next is due.
const CHECKPOINT: u64 = 128;
/// Characters of each text of a note that does not fit a record.
const SHORTENED: usize = 1000;
/// Records that the signer does not know yet; beyond them nothing but ends is written.
const MOST_BEHIND: usize = 1 << 16;
/// No record waits longer for a checkpoint, however few there are.
const CHECKPOINT_TIME: Duration = Duration::from_secs(60);

/// Alarms.
const BROKEN: &str = "nothing is granted: the audit log could not be synced, or is not the one that levee-signer knows; levee's own log has why, \
                      and the server's next start says whether it goes on";
const BEHIND: &str = "nothing is granted: levee-signer does not take the audit log's records";
const FULL_DISK: &str =
    "the disk has too little room for the audit log: what cannot be recorded is not granted";

/// How much a record matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Nothing depends on it.
    Note,
    /// A connection's grant, which must be in the log, on the disk or not, before it takes effect, and which leaves grants of sessions their room:
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

/// A sync that nobody waits for.
struct UnderWay {
    /// From when on the next one is waited for all the same, since the disk is slow.
    late: Time,
    /// Records that will be on the disk.
    records: u64,
    /// And the state that goes with them.
    state: Zeroizing<[u8; SAVED]>,
}

/// The open log.
pub struct AuditLog {
    directory: OwnedFd,
    file: Arc<File>,
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
    /// Bytes of the file: from the log's end to here it has space.
    filled: u64,
    /// Sessions whose ends need room.
    sessions: u64,
    /// Notes for which there was no room.
    lost: u64,
    unsynced: Option<Time>,
    /// Who syncs what nobody waits for; without them everybody waits.
    syncer: Option<Syncer>,
    under_way: Option<UnderWay>,
    /// When records that no checkpoint covers, and none was asked for, must get one.
    uncovered: Option<Time>,
    /// A sync has failed: what the disk has is not known any more, so nothing more is granted.
    broken: bool,
    /// Records that the last checkpoint speaks of.
    signed: u64,
    /// Records on the disk.
    synced: u64,
    told: Told,
    /// Whether a place that checkpoints are sent to did not take the last one.
    kept_back: bool,
    /// What is to be said of the end that a crash of the host has left.
    torn: Option<Event>,
}

impl AuditLog {
    /// Opens the log in this directory, or begins one, whose first key is sealed for this auditor. What a crash left
    /// half-written is cut off; if that may have been the host's, from the first record that is in disorder, as far as no sync has
    /// ended behind it, and what is cut is kept. `known` is how far the log is, as the signer says.
    ///
    /// # Errors
    /// If the log does not go on from the state kept beside it, or from what the signer knows: it was changed while nobody was
    /// looking.
    pub fn open(
        directory: BorrowedFd<'_>,
        auditor: &Auditor,
        known: Chain,
        host_failed: bool,
        now: Time,
    ) -> Result<Self, AuditError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let own = Mode::RUSR | Mode::WUSR;
        let length = match openat(directory, LOG, flags, own) {
            Ok(file) => File::from(file).metadata()?.len(),
            Err(rustix::io::Errno::NOENT) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut saved = Zeroizing::new([0u8; SAVED]);
        let state = open_state(directory, auditor, length > 0, now, &mut saved)?;
        let file = File::from(openat(directory, LOG, flags | OFlags::CREATE, own)?);
        let foreign = || AuditError::Foreign("the state is not one");
        let (sealed, base) = saved.split_last_chunk::<8>().ok_or_else(foreign)?;
        let (mut sealer, mut base) =
            (Sealer::restore(sealed).ok_or_else(foreign)?, u64::from_be_bytes(*base));
        let stated = sealer.count();
        // A crash may have come after a file was full and before the state said so.
        while let Ok(full) = openat(directory, part_name(base), flags, own) {
            let Found { lines, .. } = catch_up(&File::from(full), &mut sealer, base, stated, None)?;
            if lines == 0 {
                return Err(AuditError::Foreign("a part of the audit log is empty"));
            }
            base = base.saturating_add(lines);
        }
        // What was synced is in order, whatever the disk did with the rest.
        let unsure = host_failed.then(|| stated.max(known.count));
        let Found { lines, end } = catch_up(&file, &mut sealer, base, stated, unsure)?;
        if base.saturating_add(lines) < stated {
            return Err(AuditError::Foreign("the audit log is shorter than its state says"));
        }
        let rest = left_behind(&file, end)?;
        let torn = if host_failed { torn(directory, &rest, sealer.count())? } else { None };
        let filled = cut(&file, end, &rest)?;
        rustix::fs::fsync(directory)?;
        if known.count > sealer.count() {
            return Err(AuditError::Foreign("the audit log is shorter than levee-signer has known it"));
        }
        let told = Told::new(known, digests_from(directory, known.count, base)?);
        if told.end() != sealer.chain() {
            return Err(AuditError::Foreign("the audit log is not the one that levee-signer has known"));
        }
        let signed = sealer.count();
        let mut log = Self {
            directory: directory.try_clone_to_owned()?,
            file: Arc::new(file),
            state,
            sealer,
            base,
            full: FULL,
            end,
            allocated: 0,
            filled,
            sessions: 0,
            lost: 0,
            unsynced: None,
            syncer: None,
            under_way: None,
            uncovered: None,
            broken: false,
            signed,
            synced: signed,
            told,
            kept_back: false,
            torn,
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

    /// From now on what nobody waits for is synced by this thread.
    pub fn sync_by(&mut self, syncer: Syncer) {
        self.syncer = Some(syncer);
    }

    /// What is readable when that thread has synced something: [`AuditLog::heard_syncer`] is to be called then.
    pub fn bell(&self) -> Option<Arc<OwnedFd>> {
        self.syncer.as_ref().map(Syncer::waited_for)
    }

    /// So many sessions will end, and need room for that.
    pub fn expect_ends(&mut self, sessions: u64) {
        self.sessions = sessions;
    }

    /// What a crash of the host has left in disorder, to be recorded.
    pub fn torn(&mut self) -> Option<Event> {
        self.torn.take()
    }

    /// Records written so far, those of earlier runs with them.
    pub fn records(&self) -> u64 {
        self.sealer.count()
    }

    /// Why not everything is granted, where the log is why.
    pub fn alarm(&self) -> Option<String> {
        let room = self.end.saturating_add(Weight::Connection.reserve(self.sessions));
        let why = if self.broken {
            BROKEN
        } else if self.told.behind() >= MOST_BEHIND {
            BEHIND
        } else if room > self.allocated && fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, room).is_err()
        {
            FULL_DISK
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    /// When what lies unsynced must be synced, or what is not covered by a checkpoint must be.
    pub fn deadline(&self) -> Option<Time> {
        let checkpoint = self.uncovered.filter(|_| self.told.is_idle() && !self.broken);
        let late = self.under_way.as_ref().map(|sync| sync.late);
        let unsynced = self.unsynced.map(|due| late.map_or(due, |late| late.max(due)));
        [unsynced, checkpoint].into_iter().flatten().min()
    }

    /// Writes the records in order, as far as there is room for their weight; with `needed`, syncs them. False
    /// if a record that a grant or an end needs is not on the disk: then nothing that it permits may happen.
    pub fn write(&mut self, entries: &[(Weight, Event)], now: Time, needed: bool) -> bool {
        if self.broken {
            return false;
        }
        let mut complete = true;
        for (weight, event) in entries {
            let seal = |sealer: &mut Sealer, time| match sealer.seal(time, event) {
                // Nothing depends on it: what is too long for a record is told as far as one goes.
                Err(SealError::TooLong) if *weight == Weight::Note => sealer.seal(time, &shortened(event)),
                sealed => sealed,
            };
            let uncovered = self.uncovered;
            let appended = self.append(*weight, now, seal);
            if event.action == Action::Witness {
                // Else two servers would have each other's checkpoints signed for ever.
                self.uncovered = uncovered;
            }
            if let Err(error) = appended {
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
        if needed {
            complete &= self.sync();
        } else {
            self.sync_due(now);
            complete &= !self.broken;
        }
        complete
    }

    fn append(
        &mut self,
        weight: Weight,
        now: Time,
        seal: impl FnOnce(&mut Sealer, u64) -> Result<Vec<u8>, levee_policy::audit::SealError>,
    ) -> Result<(), AuditError> {
        if self.told.behind() >= MOST_BEHIND && weight != Weight::End {
            return Err(AuditError::Behind);
        }
        let before = self.sealer.save();
        let line = seal(&mut self.sealer, now.as_millis()).map_err(AuditError::Seal)?;
        let next = self.end + line.len() as u64;
        let written = self.reserve(next + weight.reserve(self.sessions)).and_then(|()| {
            self.put(&line, next).map_err(|error| {
                // Nothing of a line that failed half-way may stand behind the next one.
                self.broken |= self.file.set_len(self.end).is_err();
                (self.allocated, self.filled) = (0, self.end);
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
        self.told.push(Chain::digest(&line));
        self.unsynced.get_or_insert(now.after(LAZY));
        self.uncovered.get_or_insert(now.after(CHECKPOINT_TIME));
        Ok(())
    }

    /// Writes a line at the log's end, over space; where there is none left, with more of it behind the line, as far as the disk keeps some for the log.
    fn put(&mut self, line: &[u8], next: u64) -> std::io::Result<()> {
        if next <= self.filled {
            return self.file.write_all_at(line, self.end);
        }
        let space = WRITTEN.min(self.allocated.saturating_sub(next));
        let mut both = line.to_vec();
        both.resize(line.len().saturating_add(usize::try_from(space).unwrap_or(0)), SPACE);
        self.file.write_all_at(&both, self.end)?;
        self.filled = next.saturating_add(space);
        Ok(())
    }

    /// Has the disk keep so many bytes for the log.
    fn reserve(&mut self, bytes: u64) -> Result<(), AuditError> {
        if bytes > self.allocated {
            let allocate = |bytes| fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes);
            // Some more, so that not every record asks the disk; where it has no more, what is needed.
            let ahead = bytes.saturating_add(AHEAD);
            self.allocated = match allocate(ahead) {
                Ok(()) => ahead,
                Err(_) => allocate(bytes).map(|()| bytes)?,
            };
        }
        Ok(())
    }

    /// What was written last is to be on the disk soon, though nothing waits for it.
    pub fn sync_soon(&mut self, now: Time) {
        if let Some(due) = &mut self.unsynced {
            *due = (*due).min(now.after(SOON));
        }
    }

    /// Has what is due synced, by the thread if there is one. Where the thread's last sync still is under way when it should have ended, the disk
    /// is slow, and everybody waits for it: else more and more would be passed on that a crash of the host loses.
    pub fn sync_due(&mut self, now: Time) {
        if self.unsynced.is_none_or(|due| due > now) {
            return;
        }
        match &self.under_way {
            Some(sync) if sync.late > now => return,
            Some(_) => {}
            None if self.syncer.as_ref().is_some_and(|syncer| syncer.begin(Arc::clone(&self.file))) => {
                self.unsynced = None;
                let (records, state) = (self.sealer.count(), saved(&self.sealer, self.base));
                self.under_way = Some(UnderWay { late: now.after(SOON), records, state });
                return;
            }
            None => {}
        }
        self.sync();
    }

    /// The thread has synced something, or could not.
    pub fn heard_syncer(&mut self) {
        if let Some(synced) = self.syncer.as_ref().and_then(Syncer::ended) {
            self.ended(synced);
        }
    }

    /// What was under way has ended so.
    fn ended(&mut self, synced: std::io::Result<()>) {
        let Some(UnderWay { records, state, .. }) = self.under_way.take() else { return };
        self.is_synced(records, synced.and_then(|()| self.state.write_all_at(&*state, 0)));
    }

    fn is_synced(&mut self, records: u64, synced: std::io::Result<()>) {
        match synced {
            Ok(()) => self.synced = records,
            Err(error) => {
                levee_ipc::say!("levee-sessiond: syncing the audit log: {error}");
                self.broken = true;
            }
        }
    }

    /// Syncs what was written, and writes the next record's key over the last one's. False if the disk says no;
    /// then it is never believed again. What is under way is waited for: the kernel says once that a file could not be written (fsync(2)), and
    /// has said it there if it was then.
    pub fn sync(&mut self) -> bool {
        if let (Some(syncer), Some(_)) = (&self.syncer, &self.under_way) {
            let synced = syncer.end();
            self.ended(synced);
        }
        if self.unsynced.take().is_some() {
            let synced = self.file.sync_data().and_then(|()| self.save());
            self.is_synced(self.sealer.count(), synced);
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
        (self.file, self.base) = (Arc::new(file), self.sealer.count());
        (self.end, self.allocated, self.filled) = (0, room, 0);
        let directory = self.directory.as_fd();
        let named = renameat(directory, NEW, directory, LOG).and_then(|()| rustix::fs::fsync(directory));
        if let Err(error) = named.map_err(Into::into).and_then(|()| self.save()) {
            levee_ipc::say!("levee-sessiond: another file for the audit log: {error}");
            self.broken = true;
        }
    }

    /// What the signer is to be asked now, if anything: first of all it is told what it does not know. `last` at the end of the run,
    /// when a checkpoint is to cover all there is.
    pub fn ask_signer(&mut self, last: bool, now: Time) -> Option<ToSigner> {
        if self.broken || !self.told.is_idle() {
            return None;
        }
        let unsigned = self.told.known().count.saturating_sub(self.signed);
        if unsigned < CHECKPOINT || last {
            let next = self.told.next(self.synced);
            if next.is_some() {
                return next;
            }
        }
        let late = self.uncovered.is_some_and(|due| due <= now);
        if unsigned < if last || late { 1 } else { CHECKPOINT } {
            self.put_off(now);
            return None;
        }
        self.uncovered = None;
        Some(self.told.checkpoint())
    }

    /// There is nothing to be signed now, or nobody to sign it.
    pub fn put_off(&mut self, now: Time) {
        if self.uncovered.is_some_and(|due| due <= now) {
            self.uncovered = Some(now.after(CHECKPOINT_TIME));
        }
    }

    /// Whether the signer has been asked something.
    pub fn waits_for_signer(&self) -> bool {
        !self.told.is_idle()
    }

    /// Takes what the signer says. What it was asked it has not refused, and its log is this one: else nothing more is granted.
    /// The checkpoint that it has signed, if it has.
    pub fn heard_signer(&mut self, said: FromSigner, now: Time) -> Option<Signed> {
        let mut told = None;
        let heard = match said {
            FromSigner::Chained { count, hash } => self.told.heard(Chain { count, hash: Hash(hash) }).is_ok(),
            FromSigner::Checkpoint { count, hash, signature, kept_back } => {
                let chain = Chain { count, hash: Hash(hash) };
                let same = chain == self.told.known() && self.told.heard(chain).is_ok();
                if same {
                    told = Some(Signed { count, hash, signature: signature.clone() });
                    self.signed(chain, signature, kept_back, now);
                }
                same
            }
            FromSigner::Refused
            | FromSigner::Signature(_)
            | FromSigner::Stated { .. }
            | FromSigner::Mixed(_) => false,
        };
        if !heard && !self.broken {
            levee_ipc::say!(
                "levee-sessiond: levee-signer knows another audit log than this one: nothing more is granted"
            );
            self.broken = true;
        }
        told
    }

    fn signed(&mut self, chain: Chain, signature: Vec<u8>, kept_back: bool, now: Time) {
        let seal =
            |sealer: &mut Sealer, time| sealer.seal_checkpoint(time, chain.count, chain.hash, signature);
        match self.append(Weight::Grant, now, seal) {
            // The checkpoint is a record itself, which the next one speaks of.
            Ok(()) => {
                self.signed = chain.count + 1;
                if self.sealer.count() == self.signed {
                    self.uncovered = None;
                }
                if self.end >= self.full {
                    self.turn_over();
                }
            }
            Err(error) => levee_ipc::say!("levee-sessiond: a checkpoint of the audit log: {error}"),
        }
        if kept_back != self.kept_back {
            self.kept_back = kept_back;
            let event = sent_away(kept_back);
            let _ = self.append(Weight::Note, now, |sealer, time| sealer.seal(time, &event));
        }
    }

    /// The signer is another one, or there is none.
    pub fn signer_lost(&mut self, now: Time) {
        if self.told.lost() {
            self.uncovered.get_or_insert(now.after(CHECKPOINT_TIME));
        }
        self.put_off(now);
    }
}

/// Opens the state and reads it into `saved`; begins one where there is neither a state nor a log.
fn open_state(
    directory: BorrowedFd<'_>,
    auditor: &Auditor,
    has_log: bool,
    now: Time,
    saved: &mut Zeroizing<[u8; SAVED]>,
) -> Result<File, AuditError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match openat(directory, STATE, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => {
            let state = File::from(fd);
            // Where the file begins was not always said: it was the first.
            let least = saved.get_mut(..Sealer::STATE).unwrap_or_default();
            state.read_exact_at(least, 0)?;
            let rest = saved.get_mut(Sealer::STATE..).unwrap_or_default();
            if state.metadata()?.len() >= SAVED as u64 {
                state.read_exact_at(rest, Sealer::STATE as u64)?;
            }
            Ok(state)
        }
        // The parts of a log that was there are not to be written over, nor its first key.
        Err(rustix::io::Errno::NOENT) if has_log || has_part(directory)? => {
            Err(AuditError::Foreign("the audit log has no state"))
        }
        Err(rustix::io::Errno::NOENT) => begin(directory, auditor, now, saved),
        Err(error) => Err(error.into()),
    }
}

fn sent_away(kept_back: bool) -> Event {
    match kept_back {
        true => {
            let why = "a place that checkpoints are sent to does not take them".to_owned();
            event("checkpoints", Verdict::Denied, why)
        }
        false => event("checkpoints", Verdict::Noted, "each place takes them again".to_owned()),
    }
}

/// Keeps what is behind the log's end, if anything, and what is to be said of it.
fn torn(directory: BorrowedFd<'_>, rest: &[u8], records: u64) -> Result<Option<Event>, AuditError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let name = keep(directory, rest, records)?;
    let why = format!(
        "the host went down before {} octets behind record {records} were on the disk whole: they are kept in {name}",
        rest.len()
    );
    Ok(Some(event("log", Verdict::Noted, why)))
}

/// Takes away what is behind the end, if anything but space is: else the disk would take back what it keeps for the ends of all sessions. The file's length
/// then.
fn cut(file: &File, end: u64, rest: &[u8]) -> std::io::Result<u64> {
    if !rest.is_empty() {
        file.set_len(end)?;
    }
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

fn shortened(event: &Event) -> Event {
    let cut = |text: &str| text.chars().take(SHORTENED).collect();
    Event { object: cut(&event.object), reason: cut(&event.reason), ..event.clone() }
}

fn lost(count: u64) -> Event {
    event(
        "notes",
        Verdict::Noted,
        format!("{count} notes before this one were not written: the disk was full"),
    )
}

#[cfg(test)]
mod lengths;
#[cfg(test)]
mod tests;
