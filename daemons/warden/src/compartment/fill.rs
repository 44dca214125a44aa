//! How a store is made in its file, by a process of its own (levee-store).

use super::spec::SERVICE_UID;
use super::store::{Store, Unfinished};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// Makes an empty file system of `bytes` in `file`, which belongs to the uid that services run as. All of its blocks are allocated
/// at once. It needs no power but to write the file.
///
/// # Errors
/// If the space is not there or `mkfs.ext4` or `debugfs` (package e2fsprogs) fails.
pub fn fill(file: &File, bytes: u64) -> std::io::Result<()> {
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)?;
    let owner = format!("root_owner={SERVICE_UID}:{SERVICE_UID}");
    // Nothing is left to do later (lazy_…=0), and the preallocated blocks stay (nodiscard).
    let options = format!("{owner},lazy_itable_init=0,lazy_journal_init=0,nodiscard");
    run(file, "mkfs.ext4", &["-q", "-F", "-m", "0", "-E", &options])?;
    // fsck makes it again when it needs it; a person's list of documents does not.
    let said = run(file, "debugfs", &["-w", "-R", "rmdir lost+found"])?;
    // It says its version, and whatever has failed.
    match said.lines().find(|line| !line.starts_with("debugfs ")) {
        None => file.sync_all(),
        Some(why) => Err(std::io::Error::other(format!("debugfs: {why}"))),
    }
}

/// Runs one of e2fsprogs' programs on a file that is open. Answers what it says to standard error.
fn run(file: &File, program: &str, arguments: &[&str]) -> std::io::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .arg("/proc/self/fd/0")
        .stdin(file.try_clone()?)
        .output()
        .map_err(|e| std::io::Error::new(e.kind(), format!("run {program} (package e2fsprogs): {e}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(std::io::Error::other(format!("{program}: {}", said.trim())));
    }
    Ok(said.into_owned())
}

impl Store {
    /// Makes an image of `bytes` at `path`, which must not exist, as [`Unfinished`] and [`fill`] do in two processes.
    ///
    /// # Errors
    /// As theirs; then no file is left.
    pub fn create(path: &Path, bytes: u64) -> levee_sys::Result<()> {
        let unfinished = Unfinished::begin(path, rustix::process::getuid().as_raw())?;
        fill(&unfinished.file, bytes).map_err(|e| unfinished.failed(e))?;
        unfinished.finish()
    }
}
