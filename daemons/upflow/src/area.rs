//! Where a stage writes: a directory with the tree itself, a name for the file in the making, and a number that
//! tells the next stage whether anything has changed.

use crate::beneath;
use rustix::fs::{AtFlags, Mode, mkdirat, unlinkat};
use rustix::io::{Errno, pread, pwrite};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The directory of an area with the documents; a compartment mounts this one.
pub const TREE: &CStr = c"tree";
/// The file in the making: outside the tree, so that no reader sees one that is not whole.
pub const NEW: &CStr = c"new";
const GENERATION: &CStr = c"generation";

/// An area to write to.
#[derive(Debug)]
pub struct Area {
    root: OwnedFd,
    tree: OwnedFd,
    generation: OwnedFd,
    number: u64,
}

impl Area {
    /// Lays an area out in a directory, or takes up the one that is there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(root: OwnedFd) -> Result<Self, Errno> {
        match mkdirat(&root, TREE, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
        match unlinkat(&root, NEW, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
        let tree = beneath::directory(root.as_fd(), TREE)?;
        let generation = beneath::updating(root.as_fd(), GENERATION)?;
        let number = number(generation.as_fd())?;
        Ok(Self { root, tree, generation, number })
    }

    /// The directory in which the file in the making lies.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
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
        self.number = self.number.wrapping_add(1);
        pwrite(&self.generation, &self.number.to_ne_bytes(), 0).map(drop)
    }
}

/// An area to read from, which another process writes.
#[derive(Debug)]
pub struct Source {
    root: OwnedFd,
}

impl Source {
    /// An area that may not have been laid out yet.
    pub fn new(root: OwnedFd) -> Self {
        Self { root }
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
    pub fn generation(&self) -> Result<Option<u64>, Errno> {
        match absent(beneath::reading(self.root.as_fd(), GENERATION))? {
            Some(file) => number(file.as_fd()).map(Some),
            None => Ok(None),
        }
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
