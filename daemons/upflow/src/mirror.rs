//! Keeps one area like one source, pass by pass.
//!
//! What an earlier pass has seen is remembered by name and [`Version`], so that a pass over an unchanged source is one
//! look per entry. A name is only removed from the area once a whole listing of its directory has lacked it.

use crate::area::{self, Area};
use crate::beneath;
use crate::file::{self, Outcome, Version};
use levee_ipc::warden::UpflowCounters;
use levee_sys::notices::Notices;
use rustix::fs::{AtFlags, FileType, Mode, RawDir, mkdirat, unlinkat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How much is copied. Whatever is beyond stays behind, and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files and directories.
    pub entries: u64,
    /// Bytes of all files, holes not counted.
    pub bytes: u64,
    /// Directories above a file, the tree's own not counted.
    pub depth: u32,
    /// Entries of any kind that a pass looks at.
    pub looks: u64,
    /// Bytes of memory for what is remembered of files and directories, by their names.
    pub memory: u64,
    /// So much is done in one pass, and the rest in the next: a file or directory that is copied or removed, and as much for each
    /// [`ACT`] bytes of it.
    pub acts: u64,
}

/// Bytes of a file that count as much as a file.
const ACT: u64 = 16 << 10;
/// What is done for one label before another has its turn.
pub const TURN: u64 = 2_000;

/// What a stage remembers of all that it copies takes no more bytes of memory than this. The labels that it reads have equal parts: one that has
/// many documents, or long names, takes nothing of what others have.
pub const MEMORY: u64 = 96 << 20;
/// The same of one that tells another half of them, which remembers as much: that is in a machine, with its kernel and its services.
pub const TOLD: u64 = 64 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 100_000, bytes: 4 << 30, depth: 32, looks: 200_000, memory: MEMORY, acts: u64::MAX }
    }
}

/// What the area has under a name, and the last pass that saw the name in the source.
#[derive(Debug)]
struct Known {
    seen: u64,
    entry: Entry,
}

/// What the area has under a name.
#[derive(Debug)]
enum Entry {
    /// A file, and the bytes that it takes, as far as they are known; without a version, one that must be copied again.
    File(Option<Version>, u64),
    /// A directory.
    Directory(Directory),
}

#[derive(Debug, Default)]
struct Directory {
    /// Whether `entries` is all that the area has here.
    known: bool,
    entries: HashMap<CString, Known>,
}

/// An area and what is known of it.
#[derive(Debug)]
pub struct Mirror {
    area: Area,
    limits: Limits,
    root: Directory,
    /// What `root` takes, with all in it.
    held: Held,
    /// So many changes the next pass leaves alone, since the one before got as far: else what changes again and again kept all behind it waiting.
    resume: u64,
    counters: UpflowCounters,
}

/// What the entries of an area take, those too that are to go still.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// Bytes of memory.
    memory: u64,
    /// Bytes of files.
    bytes: u64,
}

impl Held {
    /// An entry takes its name, its place in a table that may be half empty, and of a directory the least table that there is, at most.
    fn of(name: &CStr, entry: &Entry) -> Self {
        let (least, bytes) = match entry {
            Entry::File(_, bytes) => (240, *bytes),
            Entry::Directory(_) => (640, 0),
        };
        Self { memory: u64::try_from(name.count_bytes()).unwrap_or(u64::MAX).saturating_add(least), bytes }
    }

    /// All that is in a directory.
    fn within(directory: &Directory) -> Self {
        directory.entries.iter().fold(Self::default(), |sum, (name, Known { entry, .. })| {
            let within =
                if let Entry::Directory(within) = entry { Self::within(within) } else { Self::default() };
            sum.and(Self::of(name, entry)).and(within)
        })
    }

    fn and(self, other: Self) -> Self {
        let memory = self.memory.saturating_add(other.memory);
        Self { memory, bytes: self.bytes.saturating_add(other.bytes) }
    }

    fn without(self, other: Self) -> Self {
        let memory = self.memory.saturating_sub(other.memory);
        Self { memory, bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

/// Removes everything from the directory `copies`, of which `area` is part, but the directories with these names.
///
/// # Errors
/// The kernel's; what could be removed has been.
pub fn keep_only(copies: BorrowedFd<'_>, names: &[CString], area: &Area) -> Result<(), Errno> {
    let mut pass = Pass::new(area, Limits::default(), UpflowCounters::default());
    let mut root = Directory::default();
    pass.learn(copies, &mut root)?;
    for (name, known) in root.entries {
        let wanted = names.contains(&name) || name.as_c_str() == area::UNFINISHED;
        if !(wanted && matches!(known.entry, Entry::Directory(_)))
            && pass.drop_entry(copies, &name, Some(known.entry)).is_some()
        {
            return Err(Errno::BUSY);
        }
    }
    Ok(())
}

/// What one pass found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Entries of the source that were looked at.
    pub looked: u64,
    /// Whether the area is as the source was: nothing has to be tried again.
    pub complete: bool,
    /// Whether there is more to do at once.
    pub more: bool,
    /// Whether there will be a notice of every change from now on.
    pub watched: bool,
}

impl Mirror {
    /// Keeps `area` from now on. What it has already is kept until the first pass has seen otherwise, but is copied
    /// once more: what it was copied from is not known.
    pub fn new(area: Area, limits: Limits) -> Self {
        let (root, counters) = (Directory::default(), UpflowCounters::default());
        Self { area, limits, root, held: Held::default(), resume: 0, counters }
    }

    /// What it keeps.
    pub fn area(&self) -> &Area {
        &self.area
    }

    /// What has been copied and what was left behind, and why.
    pub fn counters(&self) -> &UpflowCounters {
        &self.counters
    }

    /// Makes the area like the directory `source`, as far as the limits go.
    pub fn pass(&mut self, source: BorrowedFd<'_>) -> Passed {
        self.pass_watching(source, None)
    }

    /// The same, and has every directory of the source watched before it is listed.
    pub fn pass_watching(&mut self, source: BorrowedFd<'_>, notices: Option<&Notices>) -> Passed {
        let before = (self.counters.copied, self.counters.removed);
        let totals = UpflowCounters {
            passes: self.counters.passes.wrapping_add(1),
            copied: self.counters.copied,
            removed: self.counters.removed,
            ..UpflowCounters::default()
        };
        let Self { area, limits, root, held, resume, .. } = self;
        let mut pass = Pass { notices, held: *held, resume: *resume, ..Pass::new(area, *limits, totals) };
        match own_view(source).and_then(|source| Ok((source, own_view(area.tree())?))) {
            Ok((from, to)) => pass.directory(from.as_fd(), to.as_fd(), root, 0),
            Err(_) => pass.failed(),
        }
        let watched = pass.notices.is_some();
        let Pass { counters, looked, held, refused, mut again, at, spent, resume: resumed, .. } = pass;
        (self.counters, self.held) = (counters, held);
        self.resume = if spent { at } else { 0 };
        let more = spent || resumed > 0;
        // What had no room beside what is gone by now may have some.
        again |= refused && before.1 != self.counters.removed;
        let changed = before != (self.counters.copied, self.counters.removed);
        if changed {
            self.area.advance();
        }
        Passed { looked, complete: !again, more, watched }
    }
}

/// The same directory with a position of its own.
fn own_view(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    beneath::directory(directory, c".")
}

struct Pass<'a> {
    area: &'a Area,
    limits: Limits,
    buffer: Vec<u8>,
    counters: UpflowCounters,
    looked: u64,
    again: bool,
    /// What all takes that is remembered.
    held: Held,
    /// Something was left behind since there was no memory for it.
    refused: bool,
    /// Before which change something is done again, and at which the pass is.
    resume: u64,
    at: u64,
    /// What is left to be done in this pass; and whether there was more.
    left: u64,
    spent: bool,
    /// As long as all that was seen could be watched.
    notices: Option<&'a Notices>,
}

impl<'a> Pass<'a> {
    fn new(area: &'a Area, limits: Limits, counters: UpflowCounters) -> Self {
        let (looked, held, refused) = (0, Held::default(), false);
        let (resume, at, left, spent) = (0, 0, limits.acts, false);
        Self {
            area,
            limits,
            buffer: Vec::new(),
            counters,
            looked,
            again: false,
            held,
            refused,
            resume,
            at,
            left,
            spent,
            notices: None,
        }
    }

    fn failed(&mut self) {
        self.counters.failed += 1;
        self.again = true;
    }

    fn directory(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, directory: &mut Directory, depth: u32) {
        if !directory.known && self.learn(to, directory).is_err() {
            self.failed();
            return;
        }
        if self.notices.is_some_and(|notices| notices.watch(from).is_err()) {
            self.notices = None;
        }
        let Ok((names, all)) = self.list(from, directory) else {
            self.failed();
            return;
        };
        for (name, kind) in names {
            let was = self.forget(directory, &name);
            let is = match kind {
                // To go through one that is there is no change.
                FileType::Directory if self.left > 0 && matches!(was, Some(Entry::Directory(_))) => {
                    self.subdirectory(from, to, &name, was, depth)
                }
                _ if !self.acts() => self.later(was),
                FileType::RegularFile | FileType::Directory if !self.remembers(&name, kind) => {
                    self.refused = true;
                    self.counters.excess_entries += 1;
                    self.drop_entry(to, &name, was)
                }
                FileType::RegularFile => self.file(from, to, &name, was),
                FileType::Directory => self.subdirectory(from, to, &name, was, depth),
                FileType::Unknown => self.keep(was),
                _ => {
                    self.counters.special += 1;
                    self.drop_entry(to, &name, was)
                }
            };
            if let Some(entry) = is {
                self.remember(directory, name, Known { seen: self.number(), entry });
            }
        }
        if !all {
            self.notices = None;
            return; // not seen in a listing that was cut short says nothing
        }
        let number = self.number();
        for (name, known) in directory.entries.extract_if(|_, known| known.seen != number).collect::<Vec<_>>()
        {
            self.held = self.held.without(Held::of(&name, &known.entry));
            let left = if self.acts() {
                self.drop_entry(to, &name, Some(known.entry))
            } else {
                self.later(Some(known.entry))
            };
            if let Some(entry) = left {
                self.remember(directory, name, Known { seen: 0, entry });
            }
        }
    }

    /// Whether the next change is for this pass: it is behind what the one before did, and not enough has been done.
    fn acts(&mut self) -> bool {
        if self.left == 0 {
            (self.spent, self.again) = (true, true);
            return false;
        }
        self.at += 1;
        if self.at <= self.resume {
            self.again = true;
            return false;
        }
        self.left -= 1;
        true
    }

    /// What the area has stays for now.
    fn later(&mut self, was: Option<Entry>) -> Option<Entry> {
        match was {
            Some(Entry::File(..)) => self.counters.files += 1,
            Some(Entry::Directory(_)) => self.counters.directories += 1,
            None => {}
        }
        was
    }

    fn remember(&mut self, directory: &mut Directory, name: CString, known: Known) {
        self.held = self.held.and(Held::of(&name, &known.entry));
        directory.entries.insert(name, known);
    }

    fn forget(&mut self, directory: &mut Directory, name: &CStr) -> Option<Entry> {
        let known = directory.entries.remove(name)?;
        self.held = self.held.without(Held::of(name, &known.entry));
        Some(known.entry)
    }

    /// Whether there is memory for one more entry.
    fn remembers(&self, name: &CStr, kind: FileType) -> bool {
        let entry = match kind {
            FileType::Directory => Entry::Directory(Directory::default()),
            _ => Entry::File(None, 0),
        };
        self.held.and(Held::of(name, &entry)).memory <= self.limits.memory
    }

    fn number(&self) -> u64 {
        self.counters.passes
    }

    /// The names in a directory of the source that something is to be done about, and whether the listing is whole.
    /// A file that is unchanged costs one look here, and a file that is copied already comes before a new one where
    /// there is no room for both.
    fn list(
        &mut self,
        from: BorrowedFd<'_>,
        directory: &mut Directory,
    ) -> Result<(Vec<(CString, FileType)>, bool), Errno> {
        let mut space = [MaybeUninit::uninit(); 16 * 1024];
        let mut names = Vec::new();
        let mut listing = RawDir::new(from, &mut space);
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if self.looked >= self.limits.looks {
                self.counters.excess_entries += 1;
                return Ok((names, false));
            }
            self.looked += 1;
            match directory.entries.get_mut(name) {
                Some(Known { seen, entry: Entry::File(Some(version), _) })
                    if self.is_unchanged(from, name, version) =>
                {
                    *seen = self.number();
                }
                _ => names.push((name.to_owned(), entry.file_type())),
            }
        }
        // Not every file system says in a listing what a name is.
        for (name, kind) in &mut names {
            if *kind == FileType::Unknown
                && let Ok(stat) = beneath::look(from, name)
            {
                *kind = FileType::from_raw_mode(stat.st_mode);
            }
        }
        Ok((names, true))
    }

    /// Whether a file is as it was copied and still has room; then it is counted.
    fn is_unchanged(&mut self, from: BorrowedFd<'_>, name: &CStr, version: &Version) -> bool {
        let Ok(stat) = beneath::look(from, name) else { return false };
        let same =
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && Version::of(&stat) == *version;
        let size = file::room(&stat);
        let room = self.counters.entries() < self.limits.entries
            && self.held.memory <= self.limits.memory
            && size <= self.limits.bytes.saturating_sub(self.counters.bytes);
        if same && room {
            self.kept(None, size);
        }
        same && room
    }

    /// Finds out what the area has in a directory already.
    fn learn(&mut self, to: BorrowedFd<'_>, directory: &mut Directory) -> Result<(), Errno> {
        let view = own_view(to)?;
        let mut space = [MaybeUninit::uninit(); 16 * 1024];
        let mut listing = RawDir::new(&view, &mut space);
        let mut found = HashMap::new();
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => FileType::from_raw_mode(beneath::look(to, name)?.st_mode),
                kind => kind,
            };
            let entry = match kind {
                FileType::Directory => Entry::Directory(Directory::default()),
                _ => Entry::File(None, 0),
            };
            found.insert(name.to_owned(), Known { seen: 0, entry });
        }
        let held = found.iter().map(|(name, known)| Held::of(name, &known.entry));
        self.held = held.fold(self.held, Held::and);
        directory.entries = found;
        directory.known = true;
        Ok(())
    }

    fn file(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        was: Option<Entry>,
    ) -> Option<Entry> {
        let stat = match beneath::look(from, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return self.drop_entry(to, name, was),
            Err(_) => {
                self.failed();
                return self.keep(was);
            }
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            self.again = true; // replaced since the listing
            return self.keep(was);
        }
        let size = file::room(&stat);
        if self.counters.entries() >= self.limits.entries {
            self.counters.excess_entries += 1;
            return self.drop_entry(to, name, was);
        }
        let left = self.limits.bytes.saturating_sub(self.counters.bytes);
        if size > left {
            self.counters.excess_bytes += 1;
            return self.drop_entry(to, name, was);
        }
        if size > self.limits.bytes.saturating_sub(self.held.bytes) {
            // It fits once what is to go still has gone. Until then it would take the room of others in the same image.
            self.again = true;
            return self.later(was);
        }
        let mut was = match was {
            // Nothing can be renamed over a directory.
            Some(Entry::Directory(_)) => self.drop_entry(to, name, was),
            was => was,
        };
        if let Some(Entry::Directory(_)) = was {
            return was;
        }
        self.buffer.resize(file::BUFFER, 0);
        let mut outcome = file::copy(from, to, name, left, self.area, &mut self.buffer);
        if outcome == Outcome::NoRoom && was.is_some() {
            // An area is no larger than its source: where old and new do not fit both, the old one gives way first.
            was = self.drop_entry(to, name, was);
            outcome = file::copy(from, to, name, left, self.area, &mut self.buffer);
        }
        match outcome {
            Outcome::Copied { version, bytes } => {
                self.counters.copied += 1;
                self.again |= version.is_none();
                self.left = self.left.saturating_sub(bytes / ACT);
                self.kept(Some(Entry::File(version, bytes)), bytes)
            }
            Outcome::Changed => {
                self.counters.changing += 1;
                self.again = true;
                self.stale(was, size)
            }
            Outcome::Leased => {
                self.counters.leased += 1;
                self.again = true;
                self.stale(was, size)
            }
            Outcome::NoRoom | Outcome::Failed => {
                self.failed();
                self.stale(was, size)
            }
            Outcome::Gone => {
                self.again = true;
                self.drop_entry(to, name, was)
            }
            Outcome::Unreadable => {
                self.counters.unreadable += 1;
                self.drop_entry(to, name, was)
            }
        }
    }

    fn subdirectory(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        was: Option<Entry>,
        depth: u32,
    ) -> Option<Entry> {
        if depth >= self.limits.depth {
            self.counters.too_deep += 1;
            return self.drop_entry(to, name, was);
        }
        if self.counters.entries() >= self.limits.entries {
            self.counters.excess_entries += 1;
            return self.drop_entry(to, name, was);
        }
        let source = match beneath::directory(from, name) {
            Ok(source) => source,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                self.again = true; // replaced since the listing; a mount is no document
                return self.drop_entry(to, name, was);
            }
            Err(Errno::ACCESS | Errno::PERM) => {
                self.counters.unreadable += 1;
                return self.drop_entry(to, name, was);
            }
            Err(_) => {
                self.failed();
                return self.keep(was);
            }
        };
        let was = match was {
            Some(Entry::File(..)) => self.drop_entry(to, name, was),
            was => was,
        };
        let mut directory = match was {
            Some(Entry::Directory(directory)) => directory,
            Some(file) => return Some(file),
            None => match mkdirat(to, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    self.counters.copied += 1;
                    Directory { known: true, entries: HashMap::new() }
                }
                Err(_) => {
                    self.failed();
                    return None;
                }
            },
        };
        self.counters.directories += 1;
        match beneath::directory(to, name) {
            Ok(target) => self.directory(source.as_fd(), target.as_fd(), &mut directory, depth + 1),
            Err(_) => self.failed(),
        }
        Some(Entry::Directory(directory))
    }

    /// Counts what the area has of a file of so many bytes.
    fn kept(&mut self, entry: Option<Entry>, bytes: u64) -> Option<Entry> {
        self.counters.files += 1;
        self.counters.bytes = self.counters.bytes.saturating_add(bytes);
        entry
    }

    /// An older copy stays until there is a newer one.
    fn stale(&mut self, was: Option<Entry>, bytes: u64) -> Option<Entry> {
        match was {
            Some(Entry::File(_, room)) => self.kept(Some(Entry::File(None, room)), bytes),
            other => other,
        }
    }

    fn keep(&mut self, was: Option<Entry>) -> Option<Entry> {
        self.again = true;
        was
    }

    /// Removes from the area what it has under a name. Answers what is left of it.
    fn drop_entry(&mut self, to: BorrowedFd<'_>, name: &CStr, entry: Option<Entry>) -> Option<Entry> {
        let removed = match entry? {
            Entry::File(_, room) => match unlinkat(to, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(_) => Err(Entry::File(None, room)),
            },
            Entry::Directory(mut directory) => {
                let emptied = match beneath::directory(to, name) {
                    Ok(target) => self.empty(target.as_fd(), &mut directory),
                    Err(Errno::NOENT) => {
                        self.held = self.held.without(Held::within(&directory));
                        return None;
                    }
                    Err(_) => false,
                };
                if emptied && unlinkat(to, name, AtFlags::REMOVEDIR).is_ok() {
                    Ok(())
                } else {
                    Err(Entry::Directory(directory))
                }
            }
        };
        match removed {
            Ok(()) => {
                self.counters.removed += 1;
                None
            }
            Err(left) => {
                // What there was no time for is no failure.
                if self.spent {
                    self.again = true
                } else {
                    self.failed()
                }
                Some(left)
            }
        }
    }

    /// Removes everything in a directory of the area; whether it is empty now.
    fn empty(&mut self, to: BorrowedFd<'_>, directory: &mut Directory) -> bool {
        if !directory.known && self.learn(to, directory).is_err() {
            return false;
        }
        for (name, known) in std::mem::take(&mut directory.entries) {
            self.held = self.held.without(Held::of(&name, &known.entry));
            self.spent |= self.left == 0;
            self.left = self.left.saturating_sub(1);
            let left = Some(known.entry);
            let left = if self.spent { left } else { self.drop_entry(to, &name, left) };
            if let Some(entry) = left {
                self.remember(directory, name, Known { seen: 0, entry });
            }
        }
        directory.entries.is_empty()
    }
}
