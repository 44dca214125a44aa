//! A label's files: an ext4 image of a fixed, preallocated size.
//!
//! An image of its own per label, so that free space and inode counts are not shared: on a shared file system
//! both can be read by every label and changed by any.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use levee_sys::loopdev::LoopDevice;
use levee_sys::mount::{Attributes, Mount};
use levee_sys::ns::IdRange;
use levee_sys::{Error, Result, ns};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, RenameFlags, flock};
use rustix::io::Errno;

use super::spec::SERVICE_UID;

/// How long the processes of a warden that was killed may keep an image: the kernel is ending them.
const REMAINS: Duration = Duration::from_secs(10);

/// Ends the name of an image that is being made.
const UNFINISHED: &str = ".new";

/// An image in use, as a block device; every mount of it is a view of the same file system.
#[derive(Debug)]
pub struct Store {
    device: Device,
}

/// What it is mounted from.
#[derive(Debug)]
enum Device {
    /// An image on the host.
    Loop(LoopDevice),
    /// A disk of the virtual machine that this is. The warden outside has locked its image.
    Disk(String),
}

impl Store {
    /// Makes an image of `bytes` at `path`, which must not exist, with an empty file system that belongs to the
    /// uid services run as. All of its blocks are allocated at once. It has its name once it is whole: whatever happens,
    /// nothing is at `path` that is less.
    ///
    /// # Errors
    /// If the space is not there or `mkfs.ext4` (package e2fsprogs) fails; then no file is left.
    pub fn create(path: &Path, bytes: u64) -> Result<()> {
        let failed = |e: std::io::Error| Error::new(format!("make the store {}", path.display()), e);
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(UNFINISHED);
        let unfinished = Path::new(&unfinished);
        // Of a maker that was killed.
        match std::fs::remove_file(unfinished) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let made =
            OpenOptions::new().read(true).write(true).create_new(true).open(unfinished).and_then(|file| {
                fill(&file, unfinished, bytes)?;
                file.sync_all()?;
                rustix::fs::renameat_with(CWD, unfinished, CWD, path, RenameFlags::NOREPLACE)?;
                Ok(())
            });
        if made.is_err() {
            // The first error is the one to report.
            let _ = std::fs::remove_file(unfinished);
        }
        made.map_err(failed)
    }

    /// Binds the image to a block device, for as long as this value or a mount of it lives.
    ///
    /// Two file systems at once on one image would ruin it, and the processes of a warden that was killed may
    /// still have theirs mounted: the image is locked, and the block device keeps the lock for as long as it is bound.
    ///
    /// # Errors
    /// The image is not there, or is still in use after [`REMAINS`].
    pub fn open(path: &Path) -> Result<Self> {
        let step = || format!("open the store {}", path.display());
        let image =
            OpenOptions::new().read(true).write(true).open(path).map_err(|e| Error::new(step(), e))?;
        let kind = image.metadata().map_err(|e| Error::new(step(), e))?.file_type();
        if std::os::unix::fs::FileTypeExt::is_block_device(&kind) {
            return Ok(Self { device: Device::Disk(path.display().to_string()) });
        }
        Ok(Self { device: Device::Loop(LoopDevice::attach(&Self::lock(image, path)?, false)?) })
    }

    /// Locks an image that is open, for as long as a copy of its descriptor lives.
    fn lock(image: File, path: &Path) -> Result<File> {
        let until = Instant::now() + REMAINS;
        while let Err(e) = flock(&image, FlockOperation::NonBlockingLockExclusive) {
            if e != Errno::WOULDBLOCK || Instant::now() >= until {
                return Err(Error::new(format!("open the store {}", path.display()), e));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(image)
    }

    /// An image, opened and locked, for a virtual machine's disk: the host's kernel does not read what is in it.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn disk(path: &Path) -> Result<File> {
        let image = OpenOptions::new().read(true).write(true).open(path);
        let image = image.map_err(|e| Error::new(format!("open the store {}", path.display()), e))?;
        Self::lock(image, path)
    }

    /// The block device, such as `/dev/loopN`.
    pub fn device(&self) -> &str {
        match &self.device {
            Device::Loop(device) => device.path(),
            Device::Disk(path) => path,
        }
    }

    /// A detached mount of the store. With `map`, ids are shown through it: id `inside` of the store appears as
    /// `outside`, all others as nobody's.
    pub fn mount(&self, attributes: Attributes, map: Option<IdRange>) -> Result<Mount> {
        let mount = self.mount_as_is(attributes)?;
        if let Some(map) = map {
            mount.map_ids(ns::new_user(map)?.as_fd())?;
        }
        Ok(mount)
    }

    /// A detached mount with the ids of a user namespace.
    pub(super) fn mount_for(&self, attributes: Attributes, user: impl AsFd) -> Result<Mount> {
        let mount = self.mount_as_is(attributes)?;
        mount.map_ids(user.as_fd())?;
        Ok(mount)
    }

    fn mount_as_is(&self, attributes: Attributes) -> Result<Mount> {
        Mount::new("ext4", &[("source", self.device())], attributes)
    }
}

fn fill(file: &File, path: &Path, bytes: u64) -> std::io::Result<()> {
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)?;
    let owner = format!("root_owner={SERVICE_UID}:{SERVICE_UID}");
    // Nothing is left to do later (lazy_…=0), and the preallocated blocks stay (nodiscard).
    let options = format!("{owner},lazy_itable_init=0,lazy_journal_init=0,nodiscard");
    let output = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-m", "0", "-E", &options])
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| std::io::Error::new(e.kind(), format!("run mkfs.ext4 (package e2fsprogs): {e}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(std::io::Error::other(format!("mkfs.ext4: {}", said.trim())));
    }
    let store = Store::open(path).map_err(std::io::Error::other)?;
    let mount = store.mount_as_is(Attributes::DATA).map_err(std::io::Error::other)?;
    // fsck makes it again when it needs it; a person's list of documents does not.
    rustix::fs::unlinkat(mount.root(), "lost+found", AtFlags::REMOVEDIR)?;
    Ok(())
}
