//! Where a stage writes: a tree, beside it a place for the file in the making, and at the first stage a number that
//! tells the second whether anything has changed.
//!
//! | | tree | in the making | number |
//! |---|---|---|---|
//! | snapshot of a label | `tree` | `new` | `generation` |
//! | copies of a reading label | one directory for each label | `.unfinished/new` | |

use crate::beneath;
use rustix::fs::{AtFlags, Mode, mkdirat, unlinkat};
use rustix::io::{Errno, pread, pwrite};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The directory of a snapshot with the documents.
pub const TREE: &CStr = c"tree";
/// The file in the making: outside the tree, so that no reader sees one that is not whole.
pub const NEW: &CStr = c"new";
/// The directory of the copies that only upflow may enter.
pub const UNFINISHED: &CStr = c".unfinished";
const GENERATION: &CStr = c"generation";

/// An area to write to.
#[derive(Debug)]
pub struct Area {
    work: OwnedFd,
    tree: OwnedFd,
    generation: Option<(OwnedFd, u64)>,
}

impl Area {
    /// Lays a snapshot out in the directory `root`, or takes up the one that is there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn snapshot(root: OwnedFd) -> Result<Self, Errno> {
        let tree = directory(root.as_fd(), TREE, 0o755)?;
        clear(root.as_fd())?;
        let generation = beneath::updating(root.as_fd(), GENERATION)?;
        let number = number(generation.as_fd())?;
        Ok(Self { work: root, tree, generation: Some((generation, number)) })
    }

    /// Lays out the directory `name` in the copies `root`, or takes up the one that is there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn copy(root: BorrowedFd<'_>, name: &CStr) -> Result<Self, Errno> {
        let work = directory(root, UNFINISHED, 0o700)?;
        clear(work.as_fd())?;
        Ok(Self { work, tree: directory(root, name, 0o755)?, generation: None })
    }

    /// Takes up the copies `root` as one, with the directories of all labels in it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn copies(root: OwnedFd) -> Result<Self, Errno> {
        let work = directory(root.as_fd(), UNFINISHED, 0o700)?;
        clear(work.as_fd())?;
        Ok(Self { work, tree: root, generation: None })
    }

    /// The directory in which the file in the making lies.
    pub fn work(&self) -> BorrowedFd<'_> {
        self.work.as_fd()
    }

    /// The directory with the documents.
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }

    /// Tells readers of the area that something has changed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn advance(&mut self) -> Result<(), Errno> {
        let Some((file, number)) = &mut self.generation else { return Ok(()) };
        *number = number.wrapping_add(1);
        pwrite(file, &number.to_ne_bytes(), 0).map(drop)
    }
}

/// Opens the directory `name`, made if need be.
fn directory(at: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<OwnedFd, Errno> {
    match mkdirat(at, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => beneath::directory(at, name),
        Err(e) => Err(e),
    }
}

/// Removes what a process that was killed had in the making.
fn clear(work: BorrowedFd<'_>) -> Result<(), Errno> {
    match unlinkat(work, NEW, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e),
    }
}

/// A snapshot to read from, which another process writes.
#[derive(Debug)]
pub struct Source {
    root: OwnedFd,
    /// Open from when it is there: to look at it is what readers do most, with every label below at every turn.
    generation: Option<OwnedFd>,
}

impl Source {
    /// A snapshot that may not have been laid out yet.
    pub fn new(root: OwnedFd) -> Self {
        Self { root, generation: None }
    }

    /// The tree; `None` as long as the writer has not begun.
    ///
    /// # Errors
    /// The kernel's.
    pub fn tree(&self) -> Result<Option<OwnedFd>, Errno> {
        absent(beneath::directory(self.root.as_fd(), TREE))
    }

    /// A number that changes after every pass of the writer that has changed something.
    ///
    /// # Errors
    /// The kernel's.
    pub fn generation(&mut self) -> Result<Option<u64>, Errno> {
        // The writer makes it once and for all, and then writes in it: see [`Area::snapshot`].
        if self.generation.is_none() {
            self.generation = absent(beneath::reading(self.root.as_fd(), GENERATION))?;
        }
        self.generation.as_ref().map(|file| number(file.as_fd())).transpose()
    }
}

/// The number in a file; 0 where there is none yet.
fn number(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    pread(file, &mut bytes, 0)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn absent<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}
