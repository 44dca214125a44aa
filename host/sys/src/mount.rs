//! Mounts by the file-descriptor API: made detached, given attributes, and only then put in their place.
//!
//! A [`Mount`] that was never attached disappears with its descriptor, so a failure half-way leaves nothing.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

use crate::error::Step;
use crate::{Error, Result};

/// What may be done through a mount. [`Attributes::default`] forbids devices and set-uid programs, and leaves
/// access times alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// No writing.
    pub read_only: bool,
    /// No executing.
    pub no_exec: bool,
    /// Device nodes work.
    pub devices: bool,
}

impl Attributes {
    /// Read-only, without devices and set-uid programs.
    pub const READ_ONLY: Self = Self { read_only: true, no_exec: false, devices: false };
    /// Writable data: nothing to execute.
    pub const DATA: Self = Self { read_only: false, no_exec: true, devices: false };
    /// Data to read only.
    pub const READ_ONLY_DATA: Self = Self { read_only: true, no_exec: true, devices: false };

    fn flags(self) -> MountAttrFlags {
        let mut flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOATIME;
        for (set, flag) in [
            (self.read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
            (self.no_exec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
            (!self.devices, MountAttrFlags::MOUNT_ATTR_NODEV),
        ] {
            if set {
                flags |= flag;
            }
        }
        flags
    }
}

/// A mounted tree by descriptor; detached until [`Mount::attach`].
#[derive(Debug)]
pub struct Mount {
    root: OwnedFd,
}

impl Mount {
    /// A new instance of the file system `kind`, with options; an empty value is a flag.
    pub fn new(kind: &str, options: &[(&str, &str)], attributes: Attributes) -> Result<Self> {
        let fs = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)
            .step(|| format!("open the file system {kind}"))?;
        for (key, value) in options {
            if value.is_empty() {
                rustix::mount::fsconfig_set_flag(&fs, *key).step(|| format!("set {key} of {kind}"))?;
            } else {
                rustix::mount::fsconfig_set_string(&fs, *key, *value)
                    .step(|| format!("set {key}={value} of {kind}"))?;
            }
        }
        rustix::mount::fsconfig_create(&fs).step(|| format!("create the file system {kind}"))?;
        let root = rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes.flags())
            .step(|| format!("mount the file system {kind}"))?;
        Ok(Self { root })
    }

    /// The same, where all that is in it has this SELinux context; without one, what the file system says.
    pub fn in_context(
        kind: &str,
        options: &[(&str, &str)],
        attributes: Attributes,
        context: Option<&str>,
    ) -> Result<Self> {
        let context = context.map(|context| ("context", context));
        let options: Vec<_> = options.iter().copied().chain(context).collect();
        Self::new(kind, &options, attributes)
    }

    /// A `tmpfs` limited in bytes and inodes.
    pub fn tmpfs(bytes: u64, inodes: u64, mode: u32, attributes: Attributes) -> Result<Self> {
        let (size, inodes, mode) = (bytes.to_string(), inodes.to_string(), format!("{mode:o}"));
        Self::new("tmpfs", &[("size", &size), ("nr_inodes", &inodes), ("mode", &mode)], attributes)
    }

    /// Takes over a mount that another process made and passed on.
    pub fn from_fd(root: OwnedFd) -> Self {
        Self { root }
    }

    /// Shows ids through the map of a user namespace. Only before the mount is attached.
    pub fn map_ids(&self, user: BorrowedFd<'_>) -> Result<()> {
        self.set_attributes(MountAttrFlags::empty(), Some(user)).step(|| "map the ids of a mount".into())
    }

    /// Attaches the mount at `path`.
    pub fn attach(&self, path: &str) -> Result<()> {
        rustix::mount::move_mount(&self.root, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .step(|| format!("attach a mount at {path}"))
    }

    /// The root of the tree, as a directory to work beneath.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The descriptor, to pass it on.
    pub fn into_fd(self) -> OwnedFd {
        self.root
    }

    fn set_attributes(&self, set: MountAttrFlags, user: Option<BorrowedFd<'_>>) -> std::io::Result<()> {
        let mut attributes = libc::mount_attr {
            attr_set: u64::from(set.bits()),
            // The times' mode is a field of two bits: setting one value means clearing the others.
            attr_clr: if set.is_empty() { 0 } else { libc::MOUNT_ATTR__ATIME },
            propagation: 0,
            userns_fd: 0,
        };
        if let Some(user) = user {
            attributes.attr_set |= libc::MOUNT_ATTR_IDMAP;
            attributes.userns_fd = u64::try_from(user.as_raw_fd()).map_err(std::io::Error::other)?;
        }
        // SAFETY: an open descriptor, an empty path as AT_EMPTY_PATH wants, and a structure of the size given.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                self.root.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                &raw const attributes,
                size_of::<libc::mount_attr>(),
            )
        };
        if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Cuts the calling thread's mount namespace off from its parent's: nothing propagates either way.
pub fn make_private() -> Result<()> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .step(|| "make all mounts private".into())
}

/// Shows the mount at `path` at `to` as well, without what is mounted below it.
pub fn same(path: &str, to: &str) -> Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let root = rustix::mount::open_tree(CWD, path, flags).step(|| format!("copy the mount at {path}"))?;
    Mount::from_fd(root).attach(to)
}

/// Makes the mount at `path` the root, and detaches the old root with everything below it.
pub fn change_root(path: &str) -> Result<()> {
    rustix::process::chdir(path).step(|| format!("enter {path}"))?;
    // With both arguments ".", the old root is mounted over the new one and is what "." then unmounts.
    rustix::process::pivot_root(".", ".").step(|| "change the root".into())?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).step(|| "detach the old root".into())?;
    rustix::process::chdir("/").step(|| "enter the new root".into())
}

/// Makes `/` unwritable; devices in it keep working.
pub fn seal_root() -> Result<()> {
    let root =
        rustix::mount::open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLOEXEC).step(|| "open /".into())?;
    let mount = Mount { root };
    mount
        .set_attributes(Attributes { read_only: true, no_exec: false, devices: true }.flags(), None)
        .map_err(|e| Error::new("make the root read-only", e))
}
