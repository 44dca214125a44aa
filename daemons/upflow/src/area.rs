//! Where a stage writes: a tree, and beside it a place for the file in the making. The first stage has a number, too, that
//! tells the second whether anything has changed.
//!
//! | | tree | in the making |
//! |---|---|---|
//! | snapshot of a label | `tree` | `new` |
//! | copies of a reading label | one directory for each label | `.unfinished/new` |

use crate::beneath;
use levee_sys::generation::{Reader, Writer};
use rustix::fs::{AtFlags, Mode, mkdirat, unlinkat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The directory of a snapshot with the documents.
pub const TREE: &CStr = c"tree";
/// The file in the making: outside the tree, so that no reader sees one that is not whole.
pub const NEW: &CStr = c"new";
/// The directory of the copies that only upflow may enter.
pub const UNFINISHED: &CStr = c".unfinished";

/// An area to write to.
#[derive(Debug)]
pub struct Area {
    work: OwnedFd,
    tree: OwnedFd,
    generation: Option<Writer>,
}

impl Area {
    /// Lays a snapshot out in the directory `root`, or takes up the one that is there. What changes in it `generation` tells.
    ///
    /// # Errors
    /// The kernel's.
    pub fn snapshot(root: OwnedFd, generation: Writer) -> Result<Self, Errno> {
        let tree = directory(root.as_fd(), TREE, 0o755)?;
        clear(root.as_fd())?;
        Ok(Self { work: root, tree, generation: Some(generation) })
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
    pub fn advance(&self) {
        self.generation.iter().for_each(Writer::advance);
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
    generation: Reader,
}

impl Source {
    /// A snapshot that may not have been laid out yet, and what tells of changes in it.
    pub fn new(root: OwnedFd, generation: Reader) -> Self {
        Self { root, generation }
    }

    /// The tree; `None` as long as the writer has not begun.
    ///
    /// # Errors
    /// The kernel's.
    pub fn tree(&self) -> Result<Option<OwnedFd>, Errno> {
        match beneath::directory(self.root.as_fd(), TREE) {
            Err(Errno::NOENT) => Ok(None),
            result => result.map(Some),
        }
    }

    /// A number that changes after every pass of the writer that has changed something. To look at it is what readers do most, with
    /// every label below at every turn.
    pub fn generation(&self) -> u64 {
        self.generation.now()
    }
}
