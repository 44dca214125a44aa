//! Namespaces: made, entered for the length of a closure, and kept alive by a descriptor.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::error::Step;
use crate::{Error, Result};

/// A new network namespace, owned by the caller's user namespace, holding only a `lo` that is down.
/// It lives as long as the descriptor, a socket, an interface's owner or a process in it does.
pub fn new_net() -> Result<OwnedFd> {
    on_own_thread("make a network namespace", || {
        // SAFETY: CLONE_NEWNET alone changes only this thread's network namespace; no file descriptor
        // table or file system state is unshared, so nothing that other threads rely on is affected.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
            .step(|| "unshare the network namespace".into())?;
        let ns = File::open("/proc/thread-self/ns/net").step(|| "open the new network namespace".into())?;
        Ok(ns.into())
    })
}

/// The caller's own network namespace.
pub fn current_net() -> Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/net").step(|| "open the current network namespace".into())?.into())
}

/// Runs `f` on a thread of its own inside the network namespace `net` and returns what it returned.
/// Sockets that `f` makes stay in that namespace; this is how listeners and netlink sockets get there.
pub fn in_net<T: Send>(net: BorrowedFd<'_>, f: impl FnOnce() -> T + Send) -> Result<T> {
    on_own_thread("enter a network namespace", || {
        rustix::thread::move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))
            .step(|| "join the network namespace".into())?;
        Ok(f())
    })
}

/// Runs `f` on a thread that ends with it, so that what it does to its own namespaces ends with it too.
fn on_own_thread<T: Send>(step: &str, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("levee-ns".into())
            .spawn_scoped(scope, f)
            .step(|| step.to_owned())?
            .join()
            .map_err(|_| Error::invalid(step, "the thread in the namespace panicked"))?
    })
}
