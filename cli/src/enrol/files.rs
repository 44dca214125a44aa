//! Files that are there whole or not at all, and private ones that nobody else could ever read.

use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Who may read a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Its owner.
    Private,
    /// Anyone.
    Public,
}

/// Makes `path` and what leads to it; a directory that is made here is its owner's alone.
pub fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes `path` durably. Without `replace`, a file that is there already is left alone and is an error.
pub fn write(path: &Path, content: &[u8], mode: Mode, replace: bool) -> io::Result<()> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temporary = name.to_owned();
    temporary.push(format!(".new-{}", std::process::id()));
    let temporary = parent.join(temporary);
    let mode = match mode {
        Mode::Private => 0o600,
        Mode::Public => 0o644,
    };
    let result = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        // What a private file had before is overwritten when the new one has its place: a key that is replaced is destroyed.
        let before = if replace { before(path)? } else { None };
        renameat_with(CWD, &temporary, CWD, path, flags)?;
        File::open(parent)?.sync_all()?;
        before.map_or(Ok(()), |mut file| super::swap::overwrite_unnamed(&mut file))
    })();
    if result.is_err() {
        // Nothing half-written stays; what cannot be removed was not made.
        let _ = std::fs::remove_file(&temporary);
    }
    result
}

/// A private file that is about to be replaced, to be overwritten then; none where there is none, or it has other names.
fn before(path: &Path) -> io::Result<Option<File>> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() && meta.nlink() == 1 && meta.mode() & 0o077 == 0 => {
            OpenOptions::new().write(true).open(path).map(Some)
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_only_on_demand_and_leaves_nothing_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        write(&path, b"one", Mode::Private, false).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let refused = write(&path, b"two", Mode::Private, false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        write(&path, b"two", Mode::Private, true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_private_file_had_is_overwritten_when_it_is_replaced_unless_it_has_another_name() {
        use std::io::Read as _;
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("key"), directory.path().join("other"));
        write(&path, b"one", Mode::Private, false).unwrap();
        let mut old = File::open(&path).unwrap();
        write(&path, b"two", Mode::Private, true).unwrap();
        let mut found = Vec::new();
        old.read_to_end(&mut found).unwrap();
        assert_eq!(found, [0; 3], "its octets are gone from the file that was");
        std::fs::hard_link(&path, &other).unwrap();
        write(&path, b"three", Mode::Private, true).unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"two", "somebody has kept it");
    }
}
