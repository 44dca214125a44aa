//! A label's files: an ext4 image of a fixed, preallocated size.
//!
//! An image of its own per label, so that free space and inode counts are not shared: on a shared file system
//! both can be read by every label and changed by any.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::there::there;
use levee_sys::loopdev::LoopDevice;
use levee_sys::mount::{Attributes, Mount};
use levee_sys::ns::IdRange;
use levee_sys::{Error, Result, ns};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock};
use rustix::io::Errno;

/// How long the processes of a warden that was killed may keep an image: the kernel is ending them.
const REMAINS: Duration = Duration::from_secs(10);

/// Behind the name of an image: beside it there is a file of this name if a virtual machine has ever had it as a disk. Programs there can
/// write every octet of a disk, and so a file system that no kernel expects.
const OF_A_MACHINE: &str = ".machine";

/// Ends the name of an image that is being made.
const UNFINISHED: &str = ".new";

/// An image in use, as a block device; every mount of it is a view of the same file system.
#[derive(Debug)]
pub struct Store {
    device: Device,
    /// The SELinux context of all that is in it. Every mount of one file system must say the same.
    context: Option<String>,
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
            return Ok(Self { device: Device::Disk(path.display().to_string()), context: None });
        }
        if beside(path, OF_A_MACHINE).exists() {
            let why = "a virtual machine had it as a disk, and the host mounts no file system that programs there may have written: name its \
                       label in `own-kernel` of [isolation] again, or move the image away, and the label begins with an empty one";
            return Err(Error::invalid(step(), why));
        }
        let device = Device::Loop(LoopDevice::attach(&Self::lock(image, path)?, false)?);
        Ok(Self { device, context: None })
    }

    /// With this SELinux context for all that is in it, from before its first mount.
    #[must_use]
    pub fn in_context(self, context: Option<String>) -> Self {
        Self { context, ..self }
    }

    /// Whether an image can be opened at once: nothing has it, or it is none. Who cannot wait asks this first.
    ///
    /// What a program has left open where it cannot be seen (a descriptor in a socket, or an operator's own) keeps a file system
    /// longer than its compartment.
    ///
    /// # Errors
    /// The image is not there.
    pub fn is_free(path: &Path) -> Result<bool> {
        let image =
            File::open(path).map_err(|e| Error::new(format!("open the store {}", path.display()), e))?;
        // It is let go of with this copy of the descriptor.
        Ok(flock(&image, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK))
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

    /// An image, opened and locked, for a virtual machine's disk: the host's kernel does not read what is in it, now or later.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn disk(path: &Path) -> Result<File> {
        let image = OpenOptions::new().read(true).write(true).open(path);
        let failed = |e| Error::new(format!("open the store {}", path.display()), e);
        let image = Self::lock(image.map_err(failed)?, path)?;
        // On the disk before any program of the machine's runs.
        let mark =
            OpenOptions::new().write(true).create(true).truncate(true).open(beside(path, OF_A_MACHINE));
        let directory = path.parent().map_or_else(|| File::open("."), File::open);
        mark.and_then(|mark| mark.sync_all()).and_then(|()| directory?.sync_all()).map_err(failed)?;
        Ok(image)
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
        match map {
            Some(map) => self.mount_for(attributes, ns::new_user(map)?),
            None => self.mount_as_is(attributes),
        }
    }

    /// A detached mount with the ids of a user namespace.
    pub(super) fn mount_for(&self, attributes: Attributes, user: impl AsFd) -> Result<Mount> {
        let mount = self.mount_as_is(attributes)?;
        mount.map_ids(user.as_fd())?;
        Ok(mount)
    }

    fn mount_as_is(&self, attributes: Attributes) -> Result<Mount> {
        Mount::in_context("ext4", &[("source", self.device())], attributes, self.context.as_deref())
    }
}

/// A file beside another, with this behind its name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// An image that is being made. It has its name once it is whole: whatever happens, nothing that is less has it.
#[derive(Debug)]
pub struct Unfinished {
    pub(super) file: File,
    path: PathBuf,
    to: PathBuf,
}

impl Unfinished {
    /// An empty file beside `to`, which must not exist, that belongs to `owner`, who may [`fill`] it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin(to: &Path, owner: u32) -> Result<Self> {
        let path = beside(to, UNFINISHED);
        let make = || -> std::io::Result<File> {
            // Of a warden that was killed.
            there(std::fs::remove_file(&path))?;
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            std::os::unix::fs::fchown(&file, Some(owner), Some(owner))?;
            Ok(file)
        };
        let file = make().map_err(|e| Error::new(format!("make the store {}", to.display()), e))?;
        Ok(Self { file, path, to: to.to_owned() })
    }

    /// It is whole, and the caller's: it gets its name.
    ///
    /// # Errors
    /// The kernel's; then no file is left.
    pub fn finish(self) -> Result<()> {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        std::os::unix::fs::fchown(&self.file, Some(uid), Some(gid))
            .and_then(|()| {
                // Of an image that was moved away; of one that is there it stays.
                if !self.to.exists() {
                    there(std::fs::remove_file(beside(&self.to, OF_A_MACHINE)))?;
                }
                Ok(rustix::fs::renameat_with(CWD, &self.path, CWD, &self.to, RenameFlags::NOREPLACE)?)
            })
            .map_err(|e| self.failed(e))
    }

    pub(super) fn failed(&self, why: std::io::Error) -> Error {
        Error::new(format!("make the store {}", self.to.display()), why)
    }
}

impl AsFd for Unfinished {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // One that is finished has this name no more.
        let _ = std::fs::remove_file(&self.path);
    }
}
