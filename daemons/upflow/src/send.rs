//! The reading half of a stage whose other half is behind a label's virtual machine: tells of changes, pass by pass.

use crate::area::Source;
use crate::beneath;
use crate::file::Version;
use crate::mirror::Limits;
use levee_ipc::documents::{Carried, PATH_MAX, PIECE};
use levee_ipc::warden::UpflowCounters;
use levee_ipc::{Full, Stream};
use rustix::fs::{FileType, RawDir, fstat};
use rustix::io::{Errno, read};
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
    Snapshot(CString, Source, Option<u64>),
}

/// What has been told of a path; of a file that may have changed since, no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    File(Option<Version>),
    Directory,
}

/// Tells of trees.
pub struct Sender {
    stream: Stream,
    trees: Vec<Tree>,
    limits: Limits,
    told: BTreeMap<Vec<u8>, Told>,
    /// Until a pass that was to name everything has.
    whole: bool,
    passes: u64,
    copied: u64,
    removed: u64,
}

impl Sender {
    /// Nothing has been told yet.
    pub fn new(stream: Stream, trees: Vec<Tree>) -> Self {
        let (told, limits) = (BTreeMap::new(), Limits::default());
        Self { stream, trees, limits, told, whole: true, passes: 0, copied: 0, removed: 0 }
    }

    /// Tells what has changed since the last pass. Answers how many entries were looked at.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn pass(&mut self) -> io::Result<u64> {
        let generations: Vec<Option<u64>> = self.trees.iter_mut().map(Tree::generation).collect();
        let unchanged = |(tree, now): (&Tree, &Option<u64>)| match tree {
            Tree::Store(_) => false,
            Tree::Snapshot(_, _, told) => now.is_some() && now == told,
        };
        if !self.whole && self.trees.iter().zip(&generations).all(unchanged) {
            return Ok(0);
        }
        self.passes = self.passes.wrapping_add(1);
        self.stream.send(&Carried::Begin { whole: self.whole }, Full::Waits)?;
        let counters = UpflowCounters { passes: self.passes, ..UpflowCounters::default() };
        let mut walk = Walk { counters, looked: 0, complete: true, seen: BTreeMap::new() };
        let trees = std::mem::take(&mut self.trees);
        let walked = trees.iter().try_for_each(|tree| self.tree(tree, &mut walk));
        self.trees = trees;
        walked?;
        let Walk { mut counters, looked, complete, seen } = walk;
        if complete {
            let gone: Vec<Vec<u8>> =
                self.told.keys().filter(|path| !seen.contains_key(*path)).cloned().collect();
            // What is in a directory comes before it.
            for path in gone.into_iter().rev() {
                self.removed = self.removed.wrapping_add(1);
                self.stream.send(&Carried::Remove { path }, Full::Waits)?;
            }
            self.told = seen;
            self.whole = false;
        } else {
            self.told.extend(seen);
        }
        (counters.copied, counters.removed) = (self.copied, self.removed);
        self.stream.send(&Carried::End { complete, counters }, Full::Waits)?;
        for (tree, now) in self.trees.iter_mut().zip(generations) {
            if let Tree::Snapshot(_, _, told) = tree {
                *told = if complete { now } else { None };
            }
        }
        Ok(looked)
    }

    fn tree(&mut self, tree: &Tree, walk: &mut Walk) -> io::Result<()> {
        match tree {
            Tree::Store(store) => match beneath::directory(store.as_fd(), c".") {
                Ok(root) => self.directory(root.as_fd(), &[], 0, walk),
                Err(_) => walk.failed(),
            },
            Tree::Snapshot(name, source, _) => match source.tree() {
                Ok(Some(root)) => self.subdirectory(root.as_fd(), name.to_bytes(), 0, walk),
                // It has not been written to yet.
                Ok(None) => Ok(()),
                Err(_) => walk.failed(),
            },
        }
    }

    fn directory(
        &mut self,
        from: BorrowedFd<'_>,
        path: &[u8],
        depth: u32,
        walk: &mut Walk,
    ) -> io::Result<()> {
        let Ok(names) = names(from, walk, self.limits.looks) else { return walk.failed() };
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
            let room = walk.counters.entries() < self.limits.entries && below.len() <= PATH_MAX;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile | FileType::Directory if !room => walk.counters.excess_entries += 1,
                FileType::RegularFile => self.file(from, &name, below, &Version::of(&stat), walk)?,
                FileType::Directory if depth >= self.limits.depth => walk.counters.too_deep += 1,
                FileType::Directory => match beneath::directory(from, &name) {
                    Ok(directory) => self.subdirectory(directory.as_fd(), &below, depth + 1, walk)?,
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
        from: BorrowedFd<'_>,
        path: &[u8],
        depth: u32,
        walk: &mut Walk,
    ) -> io::Result<()> {
        walk.counters.directories += 1;
        if self.told.get(path) != Some(&Told::Directory) {
            self.copied = self.copied.wrapping_add(1);
            self.stream.send(&Carried::Directory { path: path.to_vec() }, Full::Waits)?;
        } else if self.whole {
            self.stream.send(&Carried::Same { path: path.to_vec() }, Full::Waits)?;
        }
        walk.seen.insert(path.to_vec(), Told::Directory);
        self.directory(from, path, depth, walk)
    }

    fn file(
        &mut self,
        from: BorrowedFd<'_>,
        name: &CStr,
        path: Vec<u8>,
        version: &Version,
        walk: &mut Walk,
    ) -> io::Result<()> {
        let size = version.size();
        if size > self.limits.bytes.saturating_sub(walk.counters.bytes) {
            walk.counters.excess_bytes += 1;
            return Ok(());
        }
        let was = self.told.get(&path).copied();
        let told = if was == Some(Told::File(Some(*version))) {
            if self.whole {
                self.stream.send(&Carried::Same { path: path.clone() }, Full::Waits)?;
            }
            was
        } else {
            self.content(from, name, &path, walk)?
        };
        match (told, was) {
            (Some(told), _) => {
                walk.kept(size);
                walk.seen.insert(path, told);
            }
            // An older copy stays until there is a newer one.
            (None, Some(Told::File(_))) => {
                walk.kept(size);
                walk.seen.insert(path.clone(), Told::File(None));
                if self.whole {
                    self.stream.send(&Carried::Same { path }, Full::Waits)?;
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

    /// Sends so many bytes of a file; whether there were so many, and no more.
    fn pieces(&self, file: BorrowedFd<'_>, size: u64) -> io::Result<bool> {
        let mut buffer = vec![0; PIECE];
        let mut left = size;
        loop {
            let n = match read(file, &mut *buffer) {
                Ok(0) => return Ok(left == 0),
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                Err(_) => return Ok(false),
            };
            let Some(rest) = left.checked_sub(u64::try_from(n).unwrap_or(u64::MAX)) else { return Ok(false) };
            left = rest;
            let piece = buffer.get(..n).unwrap_or_default().to_vec();
            self.stream.send(&Carried::Piece(piece), Full::Waits)?;
        }
    }
}

impl Tree {
    fn generation(&mut self) -> Option<u64> {
        match self {
            Self::Store(_) => None,
            Self::Snapshot(_, source, _) => source.generation().ok().flatten(),
        }
    }
}

/// One pass.
struct Walk {
    counters: UpflowCounters,
    looked: u64,
    complete: bool,
    seen: BTreeMap<Vec<u8>, Told>,
}

impl Walk {
    #[expect(clippy::unnecessary_wraps, reason = "a failure of the source is no failure of the stream")]
    fn failed(&mut self) -> io::Result<()> {
        self.counters.failed += 1;
        self.complete = false;
        Ok(())
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
