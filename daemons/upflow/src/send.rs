//! The reading half of a stage whose other half is behind a label's virtual machine: tells of changes, pass by pass.

use crate::area;
use crate::beneath;
use crate::file::{self, Version};
use crate::mirror::Limits;
use levee_ipc::documents::{Carried, PATH_MAX, PIECE};
use levee_ipc::warden::UpflowCounters;
use levee_ipc::{Full, Stream};
use rustix::fs::{FileType, RawDir, Stat, fstat};
use rustix::io::{Errno, pread};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::SystemTime;

/// From where documents are read.
pub enum Tree {
    /// A label's store itself.
    Store(OwnedFd),
    /// The snapshot of a label, with the directory that it goes to, and the generation up to which all of it has been told.
    Snapshot(CString, area::Source, Option<u64>),
}

/// What has been told of a path; of a file that may have changed since, no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    File(Option<Version>),
    Directory,
}

/// A tree, and what has been told of it. Each has its own bounds: what one label has takes nothing from another.
struct Source {
    tree: Tree,
    limits: Limits,
    told: BTreeMap<Vec<u8>, Told>,
    /// What the last pass over it found.
    counters: UpflowCounters,
}

/// Tells of trees.
pub struct Sender {
    stream: Stream,
    sources: Vec<Source>,
    /// Until a pass that was to name everything has.
    whole: bool,
    passes: u64,
    copied: u64,
    removed: u64,
}

/// Bytes of memory that a path takes at most: in what was told, and in what a pass has seen.
pub fn cost(path: &[u8]) -> u64 {
    u64::try_from(path.len()).unwrap_or(u64::MAX).saturating_add(180).saturating_mul(2)
}

impl Sender {
    /// Nothing has been told yet.
    pub fn new(stream: Stream, trees: Vec<(Tree, Limits)>) -> Self {
        let source = |(tree, limits)| {
            let (told, counters) = (BTreeMap::new(), UpflowCounters::default());
            Source { tree, limits, told, counters }
        };
        let sources = trees.into_iter().map(source).collect();
        Self { stream, sources, whole: true, passes: 0, copied: 0, removed: 0 }
    }

    /// Tells what has changed since the last pass. Answers how many entries were looked at.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn pass(&mut self) -> io::Result<u64> {
        let generations: Vec<Option<u64>> =
            self.sources.iter().map(|source| source.tree.generation()).collect();
        let is_changed = |(source, now): (&Source, &Option<u64>)| match &source.tree {
            Tree::Store(_) => true,
            Tree::Snapshot(_, _, told) => now != told,
        };
        let changed: Vec<bool> =
            self.sources.iter().zip(&generations).map(|both| self.whole || is_changed(both)).collect();
        if !changed.contains(&true) {
            return Ok(0);
        }
        self.passes = self.passes.wrapping_add(1);
        self.stream.send(&Carried::Begin { whole: self.whole }, Full::Waits)?;
        let (mut looked, mut complete) = (0, true);
        let mut sources = std::mem::take(&mut self.sources);
        let mut told = Ok(());
        for ((source, now), _) in sources.iter_mut().zip(generations).zip(changed).filter(|(_, is)| *is) {
            match self.source(source, now) {
                Ok((entries, all)) => (looked, complete) = (looked + entries, complete && all),
                Err(why) => {
                    told = Err(why);
                    break;
                }
            }
        }
        self.sources = sources;
        told?;
        self.whole &= !complete;
        let counters: UpflowCounters = self.sources.iter().map(|source| source.counters).sum();
        let (passes, copied, removed) = (self.passes, self.copied, self.removed);
        let counters = UpflowCounters { passes, copied, removed, ..counters };
        self.stream.send(&Carried::End { complete, counters }, Full::Waits)?;
        Ok(looked)
    }

    /// Tells what has changed in one tree. How many entries were looked at, and whether they are all.
    fn source(&mut self, source: &mut Source, now: Option<u64>) -> io::Result<(u64, bool)> {
        let counters = UpflowCounters::default();
        let mut walk = Walk { counters, looked: 0, complete: true, held: 0, seen: BTreeMap::new() };
        self.tree(source, &mut walk)?;
        let Walk { counters, looked, complete, seen, .. } = walk;
        if complete {
            let gone: Vec<Vec<u8>> =
                source.told.keys().filter(|path| !seen.contains_key(*path)).cloned().collect();
            // What is in a directory comes before it.
            for path in gone.into_iter().rev() {
                self.removed = self.removed.wrapping_add(1);
                self.stream.send(&Carried::Remove { path }, Full::Waits)?;
            }
        }
        if complete || u64::try_from(source.told.len()).unwrap_or(u64::MAX) > source.limits.entries {
            // What is forgotten here goes when everything has been named again.
            self.whole |= !complete;
            source.told = seen;
        } else {
            source.told.extend(seen);
        }
        source.counters = counters;
        if let Tree::Snapshot(_, _, told) = &mut source.tree {
            *told = if complete { now } else { None };
        }
        Ok((looked, complete))
    }

    fn tree(&mut self, of: &Source, walk: &mut Walk) -> io::Result<()> {
        match &of.tree {
            Tree::Store(store) => match beneath::directory(store.as_fd(), c".") {
                Ok(root) => self.directory(of, root.as_fd(), &[], 0, walk),
                Err(_) => walk.failed(),
            },
            Tree::Snapshot(name, snapshot, _) => match snapshot.tree() {
                Ok(Some(root)) => self.subdirectory(of, root.as_fd(), name.to_bytes(), 0, walk),
                // It has not been written to yet.
                Ok(None) => Ok(()),
                Err(_) => walk.failed(),
            },
        }
    }

    fn directory(
        &mut self,
        of: &Source,
        from: BorrowedFd<'_>,
        path: &[u8],
        depth: u32,
        walk: &mut Walk,
    ) -> io::Result<()> {
        let Ok(names) = names(from, walk, of.limits.looks) else { return walk.failed() };
        for name in names {
            let stat = match beneath::look(from, &name) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(_) => {
                    walk.failed()?;
                    continue;
                }
            };
            let mut below = path.to_vec();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(name.to_bytes());
            let room = walk.counters.entries() < of.limits.entries
                && walk.held.saturating_add(cost(&below)) <= of.limits.memory
                && below.len() <= PATH_MAX;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile | FileType::Directory if !room => walk.counters.excess_entries += 1,
                FileType::RegularFile => self.file(of, (from, &name), below, &stat, walk)?,
                FileType::Directory if depth >= of.limits.depth => walk.counters.too_deep += 1,
                FileType::Directory => match beneath::directory(from, &name) {
                    Ok(directory) => self.subdirectory(of, directory.as_fd(), &below, depth + 1, walk)?,
                    Err(Errno::ACCESS | Errno::PERM) => walk.counters.unreadable += 1,
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {}
                    Err(_) => walk.failed()?,
                },
                _ => walk.counters.special += 1,
            }
        }
        Ok(())
    }

    fn subdirectory(
        &mut self,
        of: &Source,
        from: BorrowedFd<'_>,
        path: &[u8],
        depth: u32,
        walk: &mut Walk,
    ) -> io::Result<()> {
        walk.counters.directories += 1;
        if of.told.get(path) != Some(&Told::Directory) {
            self.copied = self.copied.wrapping_add(1);
            self.stream.send(&Carried::Directory { path: path.to_vec() }, Full::Waits)?;
        } else if self.whole {
            self.stream.send(&Carried::Same(path.to_vec()), Full::Waits)?;
        }
        walk.sees(path.to_vec(), Told::Directory);
        self.directory(of, from, path, depth, walk)
    }

    fn file(
        &mut self,
        of: &Source,
        (from, name): (BorrowedFd<'_>, &CStr),
        path: Vec<u8>,
        stat: &Stat,
        walk: &mut Walk,
    ) -> io::Result<()> {
        // Holes are told of and not sent: one takes no room here, and none where it goes.
        let (version, size) = (Version::of(stat), file::room(stat));
        if size > of.limits.bytes.saturating_sub(walk.counters.bytes) {
            walk.counters.excess_bytes += 1;
            return Ok(());
        }
        let was = of.told.get(&path).copied();
        let told = if was == Some(Told::File(Some(version))) {
            if self.whole {
                self.stream.send(&Carried::Same(path.clone()), Full::Waits)?;
            }
            was
        } else {
            self.content(from, name, &path, walk)?
        };
        match (told, was) {
            (Some(told), _) => {
                walk.kept(size);
                walk.sees(path, told);
            }
            // An older copy stays until there is a newer one.
            (None, Some(Told::File(_))) => {
                walk.kept(size);
                walk.sees(path.clone(), Told::File(None));
                if self.whole {
                    self.stream.send(&Carried::Same(path), Full::Waits)?;
                }
            }
            (None, _) => {}
        }
        Ok(())
    }

    /// Sends a file; what has been told of it, if it stayed as it was.
    fn content(
        &mut self,
        from: BorrowedFd<'_>,
        name: &CStr,
        path: &[u8],
        walk: &mut Walk,
    ) -> io::Result<Option<Told>> {
        let file = match beneath::reading(from, name) {
            Ok(file) => file,
            Err(Errno::AGAIN) => {
                walk.counters.leased += 1;
                return Ok(None);
            }
            Err(Errno::ACCESS | Errno::PERM) => {
                walk.counters.unreadable += 1;
                return Ok(None);
            }
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::NODEV | Errno::XDEV | Errno::ISDIR) => {
                return Ok(None);
            }
            Err(_) => return walk.failed().map(|()| None),
        };
        let now = SystemTime::now();
        let Ok(stat) = fstat(&file) else { return walk.failed().map(|()| None) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let (version, size) = (Version::of(&stat), Version::of(&stat).size());
        let (seconds, nanoseconds) = beneath::modified(&stat);
        let modified = (seconds, u32::try_from(nanoseconds).unwrap_or(0));
        self.stream.send(&Carried::File { path: path.to_vec(), modified, size }, Full::Waits)?;
        let good = self.pieces(file.as_fd(), size)?
            && fstat(&file).is_ok_and(|after| Version::of(&after) == version);
        self.stream.send(&Carried::Done { good }, Full::Waits)?;
        if !good {
            walk.counters.changing += 1;
            return Ok(None);
        }
        self.copied = self.copied.wrapping_add(1);
        Ok(Some(Told::File(version.settled(now).then_some(version))))
    }

    /// Sends so many bytes of a file, and of holes how long they are; whether there were so many.
    fn pieces(&self, file: BorrowedFd<'_>, size: u64) -> io::Result<bool> {
        let mut buffer = vec![0; PIECE];
        let mut at = 0;
        while at < size {
            let (begin, end) = match file::data(file, at, size) {
                Ok(data) => data.unwrap_or((size, size)),
                Err(_) => return Ok(false),
            };
            if begin > at {
                self.stream.send(&Carried::Hole(begin - at), Full::Waits)?;
            }
            at = begin;
            while at < end {
                let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE);
                let n = match pread(file, buffer.get_mut(..wanted).unwrap_or_default(), at) {
                    Ok(0) => return Ok(false),
                    Ok(n) => n,
                    Err(Errno::INTR) => continue,
                    Err(_) => return Ok(false),
                };
                let piece = buffer.get(..n).unwrap_or_default().to_vec();
                self.stream.send(&Carried::Piece(piece), Full::Waits)?;
                at = at.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
            }
        }
        Ok(true)
    }
}

impl Tree {
    fn generation(&self) -> Option<u64> {
        match self {
            Self::Store(_) => None,
            Self::Snapshot(_, source, _) => Some(source.generation()),
        }
    }
}

/// One pass.
struct Walk {
    counters: UpflowCounters,
    looked: u64,
    complete: bool,
    /// Bytes of memory for what has been seen, and was told.
    held: u64,
    seen: BTreeMap<Vec<u8>, Told>,
}

impl Walk {
    #[expect(clippy::unnecessary_wraps, reason = "a failure of the source is no failure of the stream")]
    fn failed(&mut self) -> io::Result<()> {
        self.counters.failed += 1;
        self.complete = false;
        Ok(())
    }

    fn sees(&mut self, path: Vec<u8>, told: Told) {
        self.held = self.held.saturating_add(cost(&path));
        self.seen.insert(path, told);
    }

    fn kept(&mut self, size: u64) {
        self.counters.files += 1;
        self.counters.bytes = self.counters.bytes.saturating_add(size);
    }
}

/// The names in a directory, as far as the pass may look.
fn names(from: BorrowedFd<'_>, walk: &mut Walk, looks: u64) -> Result<Vec<CString>, Errno> {
    let mut space = [MaybeUninit::uninit(); 16 * 1024];
    let mut names = Vec::new();
    let mut listing = RawDir::new(from, &mut space);
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if walk.looked >= looks {
            walk.counters.excess_entries += 1;
            walk.complete = false;
            break;
        }
        walk.looked += 1;
        names.push(name.to_owned());
    }
    Ok(names)
}
