//! The terminal that a program gets.

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use std::os::fd::OwnedFd;

/// A new pseudo-terminal: its master, which does not block, and the side for programs.
pub fn pseudo_terminal() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    rustix::io::ioctl_fionbio(&master, true)?;
    Ok((master, slave))
}
