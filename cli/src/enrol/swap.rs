//! A directory of keys that is changed as a whole or not at all, and what of it is not used any more destroyed.
//!
//! The new directory is made beside the one in use, of links to what stays and of what is new, and the two change places in one
//! step (`renameat2` with `RENAME_EXCHANGE`). A kill before that step leaves the old keys in use, one after it the new ones; what is left
//! lying is destroyed by the next rotation of the same directory.

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, linkat, renameat_with};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};

/// What a directory that is being made is called, behind the name of the one in use.
pub const STAGED: &str = ".rotating";

/// A directory that has not taken its place yet.
pub struct Swap {
    live: PathBuf,
    staged: PathBuf,
    done: bool,
}

impl Swap {
    /// Makes the new directory: everything in it is what the one in use has.
    ///
    /// # Errors
    /// The kernel's; then nothing is left of it.
    pub fn begin(live: &Path) -> io::Result<Self> {
        let mut name = live.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(STAGED);
        let swap = Self { live: live.to_owned(), staged: live.with_file_name(name), done: false };
        if swap.staged.exists() {
            destroy_all(&swap.staged, &mut Vec::new())?;
        }
        link_all(&swap.live, &swap.staged)?;
        Ok(swap)
    }

    /// The new directory.
    pub fn path(&self) -> &Path {
        &self.staged
    }

    /// The name that a file of the new directory will have.
    pub fn finally(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.staged).map_or_else(|_| path.to_owned(), |rest| self.live.join(rest))
    }

    /// Has the two change places, and destroys the old one. Answers which private files were overwritten.
    ///
    /// # Errors
    /// The kernel's. If they have changed places, what is left of the old one is destroyed the next time.
    pub fn commit(mut self) -> io::Result<Vec<PathBuf>> {
        File::open(&self.staged)?.sync_all()?;
        renameat_with(CWD, &self.staged, CWD, &self.live, RenameFlags::EXCHANGE)?;
        self.done = true;
        if let Some(parent) = self.live.parent() {
            // Before the old keys are gone, so that no crash leaves a directory without keys.
            File::open(parent)?.sync_all()?;
        }
        let mut overwritten = Vec::new();
        destroy_all(&self.staged, &mut overwritten)?;
        Ok(overwritten.iter().map(|path| self.finally(path)).collect())
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        if !self.done {
            // What stays is destroyed the next time.
            let _ = destroy_all(&self.staged, &mut Vec::new());
        }
    }
}

/// Makes `to` what `from` is, by links.
fn link_all(from: &Path, to: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(from)?;
    DirBuilder::new().mode(meta.mode() & 0o777).create(to)?;
    if (meta.uid(), meta.gid()) != (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    {
        chown(to, Some(meta.uid()), Some(meta.gid()))?;
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            link_all(&from, &to)?;
        } else {
            linkat(CWD, &from, CWD, &to, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Destroys a directory and all in it; the private files that were overwritten are added to `overwritten`.
pub fn destroy_all(path: &Path, overwritten: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            destroy_all(&entry.path(), overwritten)?;
        } else if destroy(&entry.path())? {
            overwritten.push(entry.path());
        }
    }
    fs::remove_dir(path)
}

/// Removes a file. A private one that has no other name is overwritten first, and that is on the disk before it is removed; whether that
/// was so. Its octets are gone where a file system writes in place: not on one that copies on write, in snapshots, or in what a
/// disk has put aside.
pub fn destroy(path: &Path) -> io::Result<bool> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let overwritten = match OpenOptions::new().write(true).custom_flags(flags).open(path) {
        Ok(mut file) => overwrite(&mut file)?,
        // A link to somewhere else: that is not this file's.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => false,
        Err(error) => return Err(error),
    };
    fs::remove_file(path)?;
    Ok(overwritten)
}

/// Overwrites a private file that has but one name.
fn overwrite(file: &mut File) -> io::Result<bool> {
    let meta = file.metadata()?;
    if !meta.is_file() || meta.nlink() != 1 || meta.mode() & 0o077 != 0 {
        return Ok(false);
    }
    zero(file, meta.len()).map(|()| true)
}

/// Overwrites a private file that has no name any more.
pub fn overwrite_unnamed(file: &mut File) -> io::Result<()> {
    let meta = file.metadata()?;
    if meta.nlink() == 0 { zero(file, meta.len()) } else { Ok(()) }
}

fn zero(file: &mut File, length: u64) -> io::Result<()> {
    // A key has some hundreds of octets; nothing here is larger.
    let length = usize::try_from(length.min(1 << 20)).map_err(|_| io::ErrorKind::FileTooLarge)?;
    file.write_all(&vec![0u8; length])?;
    file.sync_all()
}
