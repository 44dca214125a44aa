//! The audit log: one JSON line a record, on the disk before what it permits takes effect.
//!
//! Three weights share the disk, so that no one can crowd out what matters more: notes (what needs no
//! permission, and what anybody can cause) leave [`FOR_GRANTS`] bytes free, grants leave [`FOR_ENDS`], and the
//! ends of what was granted may use all there is. The space is allocated ahead of the log's end, so that no
//! other file on the same disk can take it.

use levee_policy::audit::Event;
use levee_session::Time;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, openat};
use serde::Serialize;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

const FILE: &str = "audit.jsonl";
/// Bytes that notes leave to grants and ends.
const FOR_GRANTS: u64 = 1 << 20;
/// Bytes that grants leave to ends.
const FOR_ENDS: u64 = 256 << 10;
/// How long a record for which nothing waits may lie unsynced.
const LAZY: Duration = Duration::from_secs(1);

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
    fn reserve(self) -> u64 {
        match self {
            Self::Note => FOR_GRANTS,
            Self::Grant => FOR_ENDS,
            Self::End => 0,
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    time: u64,
    #[serde(flatten)]
    event: &'a Event,
}

/// The open log.
pub struct AuditLog {
    file: File,
    /// Where the next record goes.
    end: u64,
    /// Bytes that the disk keeps for the log.
    allocated: u64,
    records: u64,
    lost: u64,
    unsynced: Option<Time>,
    /// A sync has failed: what the disk has is not known any more, so nothing more is granted.
    broken: bool,
}

impl AuditLog {
    /// Opens the log in this directory, or makes an empty one. What a crash left half-written is cut off.
    pub fn open(directory: BorrowedFd<'_>) -> std::io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(openat(directory, FILE, flags, Mode::RUSR | Mode::WUSR)?);
        let (end, records) = whole_lines(&file)?;
        file.set_len(end)?;
        file.sync_all()?;
        rustix::fs::fsync(directory)?;
        Ok(Self { file, end, allocated: 0, records, lost: 0, unsynced: None, broken: false })
    }

    /// Records written so far, those of earlier runs with them.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// When what lies unsynced must be synced.
    pub fn deadline(&self) -> Option<Time> {
        self.unsynced
    }

    /// Writes the records in order, as far as there is room for their weight; with `needed`, syncs them. False
    /// if a record that a grant or an end needs is not on the disk: then nothing that it permits may happen.
    pub fn write(&mut self, entries: &[(Weight, Event)], now: Time, needed: bool) -> bool {
        if self.broken {
            return false;
        }
        let mut complete = true;
        for (weight, event) in entries {
            if let Err(error) = self.append(*weight, event, now) {
                if *weight == Weight::Note {
                    self.lost += 1;
                } else {
                    complete = false;
                    eprintln!("levee-sessiond: the audit log: {error}");
                }
            }
        }
        if !entries.is_empty() {
            self.unsynced.get_or_insert(now.after(LAZY));
        }
        if needed || self.unsynced.is_some_and(|due| due <= now) {
            complete &= self.sync();
        }
        complete
    }

    fn append(&mut self, weight: Weight, event: &Event, now: Time) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(&Line { time: now.as_millis(), event })?;
        line.push(b'\n');
        let next = self.end + line.len() as u64;
        self.reserve(next + weight.reserve())?;
        // At a known place, so that a write that failed half-way is written over.
        self.file.write_all_at(&line, self.end)?;
        self.end = next;
        self.records += 1;
        Ok(())
    }

    /// Has the disk keep so many bytes for the log.
    fn reserve(&mut self, bytes: u64) -> std::io::Result<()> {
        if bytes <= self.allocated {
            return Ok(());
        }
        fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes)?;
        self.allocated = bytes;
        Ok(())
    }

    /// Syncs what was written. False if the disk says no; then it never is believed again.
    pub fn sync(&mut self) -> bool {
        if self.unsynced.take().is_some()
            && let Err(error) = self.file.sync_data()
        {
            eprintln!("levee-sessiond: syncing the audit log: {error}");
            self.broken = true;
        }
        !self.broken
    }
}

/// Where the last whole line ends, and how many there are.
fn whole_lines(file: &File) -> std::io::Result<(u64, u64)> {
    let mut buffer = vec![0u8; 1 << 16];
    let (mut at, mut end, mut lines) = (0, 0, 0);
    loop {
        let n = file.read_at(&mut buffer, at)?;
        let Some(chunk) = buffer.get(..n).filter(|chunk| !chunk.is_empty()) else { return Ok((end, lines)) };
        for (offset, _) in chunk.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            end = at + offset as u64 + 1;
            lines += 1;
        }
        at += n as u64;
    }
}
