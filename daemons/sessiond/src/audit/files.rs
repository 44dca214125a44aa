//! The log's files: how they begin, and what a start reads of them.

use crate::auditor::Auditor;
use levee_policy::audit::{
    Action, AuditKey, Chain, Event, Hash, Hex, MAX_LINE, Sealer, Verdict, part_first, part_name,
};
use levee_session::Time;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, unlinkat};
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::BorrowedFd;
use zeroize::Zeroizing;

/// The log.
pub const LOG: &str = "audit.jsonl";
/// What goes on with it.
pub const STATE: &str = "audit.state";
/// Its first key, sealed.
pub const FIRST_KEY: &str = "audit.first-key";
/// A file in the making.
pub const NEW: &str = "audit.new";
/// Bytes of the state: the sealer's, and where the file begins.
pub const SAVED: usize = Sealer::STATE + 8;

/// What the file has ahead of the log's end: a record that is written over it changes neither the file's length nor where its octets lie, so a sync of it is
/// one write of the disk. It is text, and no JSON that any program would take for a record.
pub const SPACE: u8 = b' ';

/// Octets that are kept of what a crash of the host has left in disorder: of a second, at the rates of all labels, there is far less.
const MOST_KEPT: u64 = 16 << 20;

/// Why the log cannot be opened or written.
#[derive(Debug)]
pub enum AuditError {
    /// The disk says no.
    Io(std::io::Error),
    /// What is there is not a log that this state belongs to.
    Foreign(&'static str),
    /// The record cannot be sealed.
    Seal(levee_policy::audit::SealError),
    /// The signer does not take the records' digests.
    Behind,
}

impl std::fmt::Display for AuditError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(e) => write!(f, "{e}"),
            Self::Foreign(what) => write!(
                f,
                "{what}; keep what is there for the auditor, and move all of it (sessiond/audit*, signer/audit.chain in the \
                 state directory) away to begin a new log"
            ),
            Self::Seal(e) => write!(f, "{e}"),
            Self::Behind => write!(f, "levee-signer does not take the records that were written"),
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

/// A note of the log on itself.
pub fn event(object: &str, verdict: Verdict, reason: String) -> Event {
    let (action, object) = (Action::Audit, object.into());
    Event { user: None, host: None, label: None, action, object, verdict, reason }
}

/// Whether there is a full part of a log.
pub fn has_part(directory: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        if entry?.file_name().to_str().is_ok_and(|name| part_first(name).is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The state's bytes.
pub fn saved(sealer: &Sealer, base: u64) -> Zeroizing<[u8; SAVED]> {
    let mut saved = Zeroizing::new([0; SAVED]);
    let sealed = sealer.save();
    let bytes = sealed.iter().copied().chain(base.to_be_bytes());
    saved.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    saved
}

/// A file in the making, empty.
pub fn create(directory: BorrowedFd<'_>, mode: Mode) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let _ = unlinkat(directory, NEW, AtFlags::empty());
    openat(directory, NEW, flags, mode).map(File::from)
}

/// Begins a log: its first key is sealed for the auditor, and forgotten with the first record, before any file has it.
pub fn begin(
    directory: BorrowedFd<'_>,
    auditor: &Auditor,
    now: Time,
    state: &mut Zeroizing<[u8; SAVED]>,
) -> Result<File, AuditError> {
    let mut first = Zeroizing::new([0u8; 32]);
    crate::passwords::fill_random(&mut *first)?;
    let sealed = auditor.seal(&*first).ok_or(AuditError::Foreign("the first key cannot be sealed"))?;
    let mut text = String::from(Hex(sealed));
    text.push('\n');
    write(directory, FIRST_KEY, Mode::RUSR, text.as_bytes())?;
    let mut sealer = Sealer::new(AuditKey::from_bytes(*first));
    let why = "the log begins; its first key is sealed for the auditor".to_owned();
    let line = sealer.seal(now.as_millis(), &event("log", Verdict::Noted, why)).map_err(AuditError::Seal)?;
    write(directory, LOG, Mode::RUSR | Mode::WUSR, &line)?;
    **state = *saved(&sealer, 0);
    write(directory, STATE, Mode::RUSR | Mode::WUSR, &**state)
}

/// A file that is there with all of its content, or not at all.
fn write(directory: BorrowedFd<'_>, name: &str, mode: Mode, content: &[u8]) -> Result<File, AuditError> {
    let mut file = create(directory, mode)?;
    file.write_all(content)?;
    file.sync_all()?;
    renameat(directory, NEW, directory, name)?;
    rustix::fs::fsync(directory)?;
    Ok(file)
}

/// What the log's file has from this place on, but for space that was written ahead of the log; of much, the beginning.
pub fn behind(log: &File, end: u64) -> std::io::Result<Vec<u8>> {
    let (mut rest, mut log) = (Vec::new(), log);
    log.seek(SeekFrom::Start(end))?;
    log.take(MOST_KEPT).read_to_end(&mut rest)?;
    let last = rest.iter().rposition(|byte| *byte != SPACE);
    rest.truncate(last.map_or(0, |last| last + 1));
    Ok(rest)
}

/// Keeps this, which was behind so many records, for the auditor. The name of the file that has it.
pub fn keep(directory: BorrowedFd<'_>, rest: &[u8], records: u64) -> Result<String, AuditError> {
    let name = format!("audit.torn-{records:020}");
    drop(write(directory, &name, Mode::RUSR, rest)?);
    Ok(name)
}

/// Whether there is nothing more than space that was written ahead of the log.
fn is_space(reader: &mut impl BufRead) -> std::io::Result<bool> {
    loop {
        let next = reader.fill_buf()?;
        if next.is_empty() || next.iter().any(|byte| *byte != SPACE) {
            return Ok(next.is_empty());
        }
        let all = next.len();
        reader.consume(all);
    }
}

/// Digests of the records from this number on, out of `audit.jsonl`, whose first record has the number `base`, and of the parts
/// before it.
pub fn digests_from(directory: BorrowedFd<'_>, from: u64, base: u64) -> Result<Vec<Hash>, AuditError> {
    let mut names = vec![(base, LOG.to_owned())];
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if let Some(first) = entry.file_name().to_str().ok().and_then(part_first) {
            names.push((first, part_name(first)));
        }
    }
    names.sort();
    // Of those that begin at it or before it, the last has it.
    let at = names.iter().rposition(|(first, _)| *first <= from).unwrap_or(0);
    let mut digests = Vec::new();
    for (first, name) in names.into_iter().skip(at) {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(openat(directory, name, flags, Mode::empty())?);
        let mut reader = BufReader::with_capacity(1 << 16, file);
        let (mut number, mut line) = (first, Vec::new());
        while reader.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)? > 0 {
            if line.last() != Some(&b'\n') {
                break;
            }
            if number >= from {
                digests.push(Chain::digest(&line));
            }
            number += 1;
            line.clear();
        }
    }
    Ok(digests)
}

/// What is found in a file of the log.
#[derive(Debug, Default)]
pub struct Found {
    /// So many lines are good.
    pub lines: u64,
    /// Where the last of them ends.
    pub end: u64,
}

/// Goes through a file of the log, whose first record has the number `base`: the `known` lines that the state knows are
/// counted, those after them must be sealed by the keys that follow. From the record `unsure` on, if
/// any, the first that is not good is where the log ends.
pub fn catch_up(
    file: &File,
    sealer: &mut Sealer,
    base: u64,
    known: u64,
    unsure: Option<u64>,
) -> Result<Found, AuditError> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut found = Found::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        // No line that was written is longer.
        let n = reader.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)?;
        if n == 0 {
            break;
        }
        let number = base.saturating_add(found.lines);
        let good = line.last() == Some(&b'\n') && (number < known || sealer.catch_up(&line).is_ok());
        if !good {
            // A crash of sessiond may leave one line in disorder at the very end; anything after it, but for space, was put there. One of the host may
            // leave any of what was not synced, and not what was before it: a disk writes in an order of its own.
            if is_space(&mut reader)? || unsure.is_some_and(|from| number >= from) {
                break;
            }
            return Err(AuditError::Foreign("the audit log does not go on from its state"));
        }
        found.lines += 1;
        found.end += n as u64;
    }
    Ok(found)
}
