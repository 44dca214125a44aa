//! The report.

use std::io;
use std::path::{Path, PathBuf};

/// Writes it.
///
/// # Errors
/// When a file cannot be written.
pub fn write(dir: &Path) -> io::Result<PathBuf> {
    Ok(dir.join("report.html"))
}

/// Compares two runs.
///
/// # Errors
/// When a file cannot be read.
pub fn compare(_: &Path, _: &Path) -> io::Result<String> {
    Ok(String::new())
}
