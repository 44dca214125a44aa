//! Files and directories that need not be there.

use std::fs::{DirEntry, read_dir};
use std::io;
use std::path::Path;

/// What was found; `None` for what is not there.
///
/// # Errors
/// Any other than that.
pub fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// What is in a directory; nothing where there is none.
///
/// # Errors
/// The kernel's.
pub fn entries(directory: &Path) -> io::Result<Vec<DirEntry>> {
    there(read_dir(directory))?.into_iter().flatten().collect()
}
