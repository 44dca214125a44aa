//! An archive as the kernel unpacks it into its first file system (Documentation/driver-api/early-userspace/buffer-format.rst,
//! the form `newc`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const DIRECTORY: u32 = 0o040_755;
const LINK: u32 = 0o120_777;
const REGULAR: u32 = 0o100_000;

/// An archive that is being written. Everything in it belongs to root; times are left out.
pub struct Archive<W: Write> {
    to: W,
    inode: u32,
    written: BTreeSet<PathBuf>,
}

impl<W: Write> Archive<W> {
    /// An empty one.
    pub fn new(to: W) -> Self {
        Self { to, inode: 0, written: BTreeSet::new() }
    }

    /// A directory, with those above it, unless it is there.
    pub fn directory(&mut self, path: &Path) -> io::Result<()> {
        let mut above: Vec<&Path> = path.ancestors().filter(|p| !p.as_os_str().is_empty()).collect();
        above.reverse();
        for directory in above {
            if self.written.insert(directory.to_owned()) {
                self.header(directory, DIRECTORY, 0)?;
            }
        }
        Ok(())
    }

    /// A symbolic link.
    pub fn link(&mut self, path: &Path, to: &Path) -> io::Result<()> {
        if self.begin(path)? {
            let to = to.as_os_str().as_bytes();
            self.header(path, LINK, to.len())?;
            self.content(to)?;
        }
        Ok(())
    }

    /// A copy of the file `from`; of its mode the right to execute is kept.
    pub fn file(&mut self, path: &Path, from: &Path) -> io::Result<()> {
        if !self.begin(path)? {
            return Ok(());
        }
        let mut content = Vec::new();
        let mut file = File::open(from)?;
        let mode = if file.metadata()?.mode() & 0o111 == 0 { 0o644 } else { 0o755 };
        file.read_to_end(&mut content)?;
        self.header(path, REGULAR | mode, content.len())?;
        self.content(&content)
    }

    /// Whatever is at `from`: a file, a directory without what is in it, or a link. Anything else is left out.
    pub fn entry(&mut self, path: &Path, from: &Path) -> io::Result<()> {
        let kind = fs::symlink_metadata(from)?.file_type();
        if kind.is_dir() {
            self.directory(path)
        } else if kind.is_symlink() {
            self.link(path, &fs::read_link(from)?)
        } else if kind.is_file() {
            self.file(path, from)
        } else {
            Ok(())
        }
    }

    /// Ends the archive.
    pub fn finish(&mut self) -> io::Result<()> {
        self.header(Path::new("TRAILER!!!"), 0, 0)?;
        self.to.flush()
    }

    /// Whether a path is not in it yet; then the directories above it are.
    fn begin(&mut self, path: &Path) -> io::Result<bool> {
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        Ok(self.written.insert(path.to_owned()))
    }

    fn header(&mut self, path: &Path, mode: u32, size: usize) -> io::Result<()> {
        self.inode = self.inode.wrapping_add(1);
        let name = path.as_os_str().as_bytes();
        let (size, length) = (u32::try_from(size).map_err(io::Error::other)?, name.len() + 1);
        let links = if mode == DIRECTORY { 2 } else { 1 };
        // Magic, inode, mode, uid, gid, links, time, size, device twice by two, length of the name, no checksum.
        write!(
            self.to,
            "070701{:08x}{mode:08x}{:08x}{:08x}{links:08x}{:08x}{size:08x}",
            self.inode, 0, 0, 0
        )?;
        write!(self.to, "{:08x}{:08x}{:08x}{:08x}{length:08x}{:08x}", 0, 0, 0, 0, 0)?;
        self.to.write_all(name)?;
        self.to.write_all(&[0])?;
        // The header has 110 bytes.
        self.pad(110 + length)
    }

    fn content(&mut self, content: &[u8]) -> io::Result<()> {
        self.to.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, length: usize) -> io::Result<()> {
        let missing = length.next_multiple_of(4).saturating_sub(length);
        self.to.write_all([0; 3].get(..missing).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn another_program_unpacks_what_was_packed() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(&to).unwrap();
        fs::write(&from, "five!").unwrap();
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.file(Path::new("a/b/file"), &from).unwrap();
        archive.file(Path::new("a/b/file"), &from).unwrap();
        archive.link(Path::new("a/link"), Path::new("b/file")).unwrap();
        archive.entry(Path::new("a/b"), place.path()).unwrap();
        archive.finish().unwrap();
        let mut cpio = Command::new("busybox")
            .args(["cpio", "-i", "-d"])
            .current_dir(&to)
            .stdin(Stdio::piped())
            .spawn()
            .expect("install busybox-static");
        cpio.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(cpio.wait().unwrap().success());
        assert_eq!(fs::read_to_string(to.join("a/link")).unwrap(), "five!");
        assert_eq!(fs::metadata(to.join("a/b/file")).unwrap().mode() & 0o777, 0o644);
    }
}
