//! Network namespaces that outlive whoever made them: each is pinned by a mount in a directory. A namespace that nothing holds dies, and
//! returns its interface to the host's network, where it would carry another level's traffic.

use crate::compartment::Network;
use crate::edges::TUNNEL;
use crate::there::{entries, there};
use levee_sys::net::Net;
use levee_sys::{Error, Result, ns};
use rustix::fs::fstatfs;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The kernel's `NSFS_MAGIC`: what a pinned namespace is a file of.
const NSFS: u64 = 0x6e73_6673;

/// The group of the interfaces that levee makes for links ("leve"): they go with the partitions, and are never given to the host.
pub(crate) const LINKS: u32 = 0x6c65_7665;

/// A namespace that is pinned.
#[derive(Debug)]
pub struct Pinned {
    ns: OwnedFd,
    pin: PathBuf,
}

impl Pinned {
    /// The namespace that is pinned there; it is made if there is none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(pin: PathBuf) -> Result<Self> {
        if let Some(pinned) = Self::find(&pin)? {
            return Ok(pinned);
        }
        let ns = ns::new_net()?;
        let make = || -> std::io::Result<()> {
            pin.parent().map_or(Ok(()), fs::create_dir_all)?;
            File::create(&pin)?;
            Ok(mount_bind(format!("/proc/self/fd/{}", ns.as_raw_fd()), &pin)?)
        };
        make().map_err(|e| Error::new(format!("pin a namespace at {}", pin.display()), e))?;
        Ok(Self { ns, pin })
    }

    /// The namespace that is pinned there; `None` if there is none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn find(pin: &Path) -> Result<Option<Self>> {
        let fault = |e| Error::new(format!("open the namespace pinned at {}", pin.display()), e);
        let Some(file) = there(File::open(pin)).map_err(fault)? else { return Ok(None) };
        let kind = fstatfs(&file).map_err(|e| fault(e.into()))?.f_type;
        if u64::try_from(kind) == Ok(NSFS) {
            return Ok(Some(Self { ns: file.into(), pin: pin.to_owned() }));
        }
        // A warden was killed before it had made the mount.
        fs::remove_file(pin).map_err(fault)?;
        Ok(None)
    }

    /// All that are pinned in a directory, which need not be there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn all(pins: &Path) -> Result<Vec<Self>> {
        let entries = entries(pins).map_err(|e| Error::new(format!("read {}", pins.display()), e))?;
        entries.into_iter().filter_map(|entry| Self::find(&entry.path()).transpose()).collect()
    }

    /// Whether its pin is called so.
    pub fn is_called(&self, name: impl AsRef<OsStr>) -> bool {
        self.pin.file_name() == Some(name.as_ref())
    }

    /// The namespace.
    pub fn ns(&self) -> BorrowedFd<'_> {
        self.ns.as_fd()
    }

    /// A handle to its interfaces.
    ///
    /// # Errors
    /// The kernel's.
    pub fn net(&self) -> Result<Net> {
        Net::in_ns(self.ns())
    }

    /// The namespace, with the settings of every compartment.
    ///
    /// # Errors
    /// The kernel's.
    pub fn network(&self) -> Result<Network> {
        let ns = self.ns.try_clone().map_err(|e| Error::new("keep a network namespace", e))?;
        Network::in_ns(ns)
    }

    /// Takes an interface of the namespace `outer`, where it is not in this one already, and leaves it down.
    ///
    /// # Errors
    /// There is none, or the kernel's.
    pub fn take(&self, outer: BorrowedFd<'_>, name: &str, owner: &dyn Display) -> Result<()> {
        let fault = |why: &str| Err(Error::invalid(format!("give the interface {name} to {owner}"), why));
        let (mut inside, mut outside) = (self.net()?, Net::in_ns(outer)?);
        if name == "lo" || name == TUNNEL {
            return fault("levee needs it itself");
        }
        if inside.find(name)?.is_some() {
            // From a warden that was killed. Down, it loses what it was configured with.
            return inside.set_down(name);
        }
        if outside.find(name)?.is_none() {
            return fault(
                "this host's network has none of this name: make it, or put `interface` right where it is named",
            );
        }
        outside.set_down(name)?;
        outside.move_to(name, self.ns())
    }

    /// Moves every interface but those that levee made to the namespace `outer`, down, and unpins this one. What runs in it must have ended.
    ///
    /// # Errors
    /// The first that could not be given back; then it stays where it is, and the namespace stays pinned.
    pub fn release(&self, outer: BorrowedFd<'_>) -> Result<()> {
        let (mut net, links) = down(self.ns())?;
        links.iter().try_for_each(|link| net.move_to(link, outer))?;
        let fault = |e| Error::new(format!("unpin the namespace at {}", self.pin.display()), e);
        match unmount(&self.pin, UnmountFlags::DETACH) {
            // Somebody else has unpinned it.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(e) => return Err(fault(e.into())),
        }
        fs::remove_file(&self.pin).map_err(fault)
    }
}

/// Sets every interface of a namespace down, and removes the links; answers the others, but the tunnel and those that every namespace has.
///
/// # Errors
/// The kernel's.
pub(crate) fn down(ns: BorrowedFd<'_>) -> Result<(Net, Vec<String>)> {
    let (mut net, mut others) = (Net::in_ns(ns)?, Vec::new());
    for link in net.links()?.into_iter().filter(|link| link.name != "lo" && link.name != TUNNEL) {
        if link.group == LINKS {
            remove(&mut net, &link.name)?;
        } else {
            net.set_down(&link.name)?;
            others.push(link.name);
        }
    }
    Ok((net, others))
}

/// Gives back what a warden that was killed has left behind and nobody wants any more.
///
/// # Errors
/// The first that could not be given back.
pub fn release_others<N: AsRef<OsStr>>(pins: &Path, wanted: &[N], outer: BorrowedFd<'_>) -> Result<()> {
    let mut others =
        Pinned::all(pins)?.into_iter().filter(|one| !wanted.iter().any(|name| one.is_called(name)));
    others.try_for_each(|one| one.release(outer))
}

/// Removes an end of a link, which may go by itself at any time, with the network of its other end.
pub(crate) fn remove(net: &mut Net, name: &str) -> Result<()> {
    match net.delete(name) {
        Err(e) if net.find(name)?.is_some() => Err(e),
        _ => Ok(()),
    }
}

/// Gives an interface an address, unless it has it, and sets it up.
pub(crate) fn raise(net: &mut Net, name: &str, addresses: &[ipnet::IpNet]) -> Result<()> {
    for address in addresses {
        match net.add_address(name, *address) {
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::EXIST.raw_os_error()) => {}
            added => added?,
        }
    }
    net.set_up(name)
}
