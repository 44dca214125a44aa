//! What a machine starts with besides its kernel: files in an archive, which the kernel unpacks.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

/// A file that a machine starts with, or a directory.
pub(super) struct File {
    /// Its path, from the root.
    name: String,
    /// Its kind and who may do what (inode(7)).
    pub(super) mode: u32,
    /// What it has; a directory has nothing.
    pub(super) content: Vec<u8>,
}

impl File {
    pub(super) fn new(path: &str, permissions: u32, content: &str) -> File {
        let name = path.trim_start_matches('/').to_owned();
        File { name, mode: 0o100_000 | permissions, content: content.into() }
    }

    pub(super) fn directory(path: &str) -> File {
        File { name: path.trim_start_matches('/').to_owned(), mode: 0o040_755, content: Vec::new() }
    }

    /// What the host has at `from`, with whatever it is a link to; anybody may read it and run it.
    pub(super) fn read(from: &Path, path: &str) -> io::Result<File> {
        Ok(File { content: fs::read(from)?, ..File::new(path, 0o755, "") })
    }

    /// The directories that it is in.
    fn above(&self) -> impl Iterator<Item = &str> {
        self.name.match_indices('/').map(|(at, _)| &self.name[..at])
    }
}

/// Files in the form newc of cpio (Linux, Documentation/driver-api/early-userspace/buffer-format.rst), with the directories that they are in, and
/// its last entry.
pub(super) fn archive(files: &[File]) -> Vec<u8> {
    let above: BTreeSet<&str> = files.iter().flat_map(File::above).collect();
    let directories: Vec<File> = above.into_iter().map(File::directory).collect();
    let last = File { name: "TRAILER!!!".into(), mode: 0, content: Vec::new() };
    let mut out = Vec::new();
    let pad = |out: &mut Vec<u8>| out.resize(out.len().next_multiple_of(4), 0);
    for (number, file) in directories.iter().chain(files).chain([&last]).enumerate() {
        let (length, name) = (file.content.len(), file.name.len() + 1);
        let fields = [number + 1, file.mode as usize, 0, 0, 1, 0, length, 0, 0, 0, 0, name, 0];
        out.extend_from_slice(b"070701");
        out.extend(fields.iter().flat_map(|field| format!("{field:08X}").into_bytes()));
        out.extend_from_slice(file.name.as_bytes());
        out.push(0);
        pad(&mut out);
        out.extend_from_slice(&file.content);
        pad(&mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn an_archive_is_one_that_others_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("archive");
        let files = [File::new("/deep/down/operations", 0o755, "one"), File::directory("/empty")];
        fs::write(&path, archive(&files)).unwrap();
        let said = Command::new("busybox")
            .args(["cpio", "-i", "-F", path.to_str().unwrap()])
            .current_dir(place.path())
            .output()
            .expect("install busybox-static");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        assert_eq!(fs::read(place.path().join("deep/down/operations")).unwrap(), b"one");
        assert!(place.path().join("empty").is_dir());
    }
}
