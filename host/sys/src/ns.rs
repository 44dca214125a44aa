//! Namespaces: made, entered for the length of a closure, and kept alive by a descriptor.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::thread::{CapabilitySet, CapabilitySets, Gid, LinkNameSpaceType, Uid, UnshareFlags};

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
pub(crate) fn on_own_thread<T: Send>(step: &str, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("levee-ns".into())
            .spawn_scoped(scope, f)
            .step(|| step.to_owned())?
            .join()
            .map_err(|_| Error::invalid(step, "the thread in the namespace panicked"))?
    })
}

/// One line of a uid or gid map: `count` ids from `inside` on are those from `outside` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// First id in the namespace.
    pub inside: u32,
    /// First id in the caller's namespace.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// A new user namespace with this map for uids and gids. It has no process: it serves idmapped mounts, and is
/// joined later. Wants root.
///
/// Its owner is the first uid outside, not root: what the kernel counts per uid (message queues, pending signals,
/// locked memory, processes) it counts again for the owner of the namespace, so a common owner would let every
/// compartment feel what another uses up. Owning gives power to processes outside the namespace alone, and that
/// uid has none there.
pub fn new_user(map: IdRange) -> Result<OwnedFd> {
    let step = || "make a user namespace".to_owned();
    let (wait, hold) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step(step)?;
    let (answer, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step(step)?;
    // SAFETY: without CLONE_VM this is a fork; the child only makes system calls on descriptors and memory of its
    // own copy and ends by _exit, so that other threads' locks do not matter to it.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if pid == 0 {
        let errno = enter_new_user(map.outside).map_or_else(|e| e.raw_os_error(), |()| 0).to_ne_bytes();
        let mut byte = 0_u8;
        // SAFETY: as above; four readable bytes and a writable one. The read ends when the parent writes to `hold`, or is gone.
        unsafe {
            libc::close(hold.as_raw_fd());
            libc::write(report.as_raw_fd(), errno.as_ptr().cast(), errno.len());
            libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1);
            libc::_exit(0)
        }
    }
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .ok_or_else(|| Error::new(step(), std::io::Error::last_os_error()))?;
    drop(report);
    let line = format!("{} {} {}", map.inside, map.outside, map.count);
    let made = || {
        let mut errno = [0; 4];
        File::from(answer).read_exact(&mut errno).step(step)?;
        match i32::from_ne_bytes(errno) {
            0 => {}
            errno => return Err(std::io::Error::from_raw_os_error(errno)).step(step),
        }
        let proc = format!("/proc/{}", pid.as_raw_nonzero());
        std::fs::write(format!("{proc}/uid_map"), &line).step(|| "map uids of a user namespace".into())?;
        std::fs::write(format!("{proc}/gid_map"), &line).step(|| "map gids of a user namespace".into())?;
        File::open(format!("{proc}/ns/user")).step(|| "open a user namespace".into())
    };
    let made = made();
    // Not left to the end of the pipe: a child that another thread has forked meanwhile may hold it open, as ours may that one's.
    rustix::io::write(&hold, &[0]).step(step)?;
    rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).step(step)?;
    Ok(made?.into())
}

/// In the child of [`new_user`]: system calls only.
fn enter_new_user(owner: u32) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
    // Hosts that let only privileged processes make user namespaces want CAP_SYS_ADMIN still held.
    rustix::thread::set_keep_capabilities(true)?;
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    let held = CapabilitySet::SYS_ADMIN;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: held, permitted: held, inheritable: CapabilitySet::empty() },
    )?;
    // SAFETY: CLONE_NEWUSER changes credentials alone, of a process with one thread.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }
}

/// Joins a user namespace, with every capability in it and none outside. For a process with one thread.
pub fn join_user(user: BorrowedFd<'_>) -> Result<()> {
    rustix::thread::move_into_link_name_space(user, Some(LinkNameSpaceType::User))
        .step(|| "join the user namespace".into())
}

/// Gives the children of the calling process a time namespace of their own, with the host's clocks. Its file in `/proc` is
/// then not the same inode as everybody's.
pub fn new_time() -> Result<()> {
    // SAFETY: CLONE_NEWTIME changes only which clocks children see.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWTIME) }.step(|| "make a time namespace".into())
}

/// Makes the calling thread's control group the root of what it sees from now on.
pub fn hide_cgroups() -> Result<()> {
    // SAFETY: CLONE_NEWCGROUP changes only how control groups are named to this thread and its children.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWCGROUP) }
        .step(|| "make a control-group namespace".into())
}
