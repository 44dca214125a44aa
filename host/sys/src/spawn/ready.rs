//! A program made ready before the connection comes that it is for: everything but the exec is done, and the child waits.
//!
//! It has its identity, its filter and its limits, and no descriptor but what the plan gives it, its end of a socket, and
//! the report: the starter's others are closed and not only marked to be. So it holds nothing of any earlier connection. For whom
//! it runs comes in one message with the connection itself.

use std::ffi::OsString;
use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::pipe::PipeFlags;

use super::{Prepared, Program, c_string, check, failed, last_errno};
use crate::error::Step;
use crate::pidfd::Child;
use crate::{Error, Result};

/// Bytes of what is added to the environment.
const ROOM: usize = 512;

/// Entries of it.
const ENTRIES: usize = 8;

/// What a child waits with, laid out before the clone.
pub(super) struct Waiting {
    /// Its end of the socket.
    pub(super) control: RawFd,
    /// Where the connection goes.
    targets: Vec<RawFd>,
    /// What is added to the environment: entries, each with a NUL behind it.
    room: Box<[u8; ROOM]>,
}

/// A child that waits for its connection. Dropped, it ends.
#[derive(Debug)]
pub struct Ready {
    /// The process.
    pub child: Child,
    control: OwnedFd,
    report: Report,
}

/// What becomes of a child that nobody waits for.
#[derive(Debug)]
pub struct Report {
    reader: OwnedFd,
    program: String,
}

impl Report {
    /// One of a child that is to execute this program, and what the child writes to.
    pub(super) fn pipe(program: &Path) -> Result<(Self, OwnedFd)> {
        let program = program.display().to_string();
        let (reader, report) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .step(|| format!("start {program}"))?;
        Ok((Self { reader, program }, report))
    }

    /// Whether nothing more will come, and nothing has: the program is executed, or the child was killed before.
    pub fn is_over(&self) -> bool {
        let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents() == PollFlags::HUP
    }

    /// Why a child that has ended did not execute its program; `None` if it did, or was killed before.
    pub fn failure(&self) -> Option<Error> {
        let mut report = [0; 8];
        let read = rustix::io::read(&self.reader, &mut report);
        (read == Ok(report.len())).then(|| failed(&self.program, &report))
    }
}

impl Program<'_> {
    /// Makes a child that does everything but execute the program, and then waits for [`Ready::go`]. The descriptors `targets`,
    /// of those that the plan gives it, will be the connection; until then they are what the plan says. Does not wait for
    /// the child: one that fails ends, and refuses its connection. It does not die with its parent, unless
    /// that is process 1 of its namespace.
    ///
    /// # Errors
    /// The kernel's; then there is no child.
    pub fn make_ready(&self, targets: &[RawFd]) -> Result<Ready> {
        let what = || format!("make {} ready", self.path.display());
        let places = 3 + self.fds.len() as RawFd;
        if self.die_with_parent || targets.iter().any(|target| !(0..places).contains(target)) {
            return Err(Error::invalid(what(), "the plan does not allow it"));
        }
        let null =
            File::options().read(true).write(true).open("/dev/null").step(|| "open /dev/null".into())?;
        let (reader, report) = Report::pipe(&self.path)?;
        let (control, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .step(what)?;
        let mut prepared = Prepared::new(self, null.as_raw_fd(), report.as_raw_fd(), report.as_raw_fd())?;
        prepared.envp.extend([std::ptr::null(); ENTRIES]);
        prepared.waiting = Some(Waiting {
            control: theirs.as_raw_fd(),
            targets: targets.to_vec(),
            room: Box::new([0; ROOM]),
        });
        let child = prepared.clone_child()?;
        Ok(Ready { child, control, report: reader })
    }
}

impl Ready {
    /// Gives the child its connection and what is added to its environment: it goes on to the exec by itself. `None` if it
    /// cannot any more, or too much is to be added; then it ends, if it has not.
    pub fn go(self, connection: BorrowedFd<'_>, env: &[OsString]) -> Option<(Child, Report)> {
        if env.is_empty() || env.len() > ENTRIES {
            return None;
        }
        let mut text = Vec::new();
        for entry in env {
            text.extend_from_slice(c_string(entry).ok()?.as_bytes_with_nul());
        }
        if text.len() > ROOM {
            return None;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        let fds = [connection];
        with.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(self.control.as_fd(), &[IoSlice::new(&text)], &mut with, flags);
        (sent == Ok(text.len())).then_some((self.child, self.report))
    }
}

impl Prepared<'_> {
    /// Waits for the connection, if it is to; system calls on memory laid out before, as everything between clone and exec.
    pub(super) fn wait_for_connection(&mut self) -> std::result::Result<(), Errno> {
        let Some(waiting) = &mut self.waiting else { return Ok(()) };
        // Aligned as a control message must be, with room for one descriptor.
        let mut space = [0_u64; 4];
        let mut iov = libc::iovec { iov_base: waiting.room.as_mut_ptr().cast(), iov_len: ROOM };
        // SAFETY: a msghdr is integers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
        message.msg_control = space.as_mut_ptr().cast();
        message.msg_controllen = std::mem::size_of_val(&space) as _;
        let got = loop {
            // SAFETY: the message points to the room, which is ROOM bytes, and to the space, with its length.
            let got = unsafe { libc::recvmsg(waiting.control, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
            match usize::try_from(got) {
                // The starter wants it no more.
                // SAFETY: runs no handler of the parent's.
                Ok(0) => unsafe { libc::_exit(0) },
                Ok(got) => break got,
                Err(_) if last_errno() == Errno::INTR => {}
                Err(_) => return Err(last_errno()),
            }
        };
        if message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return Err(Errno::MSGSIZE);
        }
        // SAFETY: the kernel has filled in the control messages and their length, in memory aligned for them.
        let connection: RawFd = unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            let is_one = !header.is_null()
                && (*header).cmsg_type == libc::SCM_RIGHTS
                && (*header).cmsg_len as usize == libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
            if !is_one {
                return Err(Errno::BADMSG);
            }
            libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()
        };
        for target in &waiting.targets {
            // SAFETY: nothing in this process owns descriptors any more; the target stays open across the exec.
            check(unsafe { libc::dup2(connection, *target) })?;
        }
        // Each entry begins at the start or behind a NUL, and ends with one: the room's last byte stays one if it is full.
        let entries = waiting.room.get(..got).ok_or(Errno::MSGSIZE)?;
        if entries.last() != Some(&0) {
            return Err(Errno::BADMSG);
        }
        let starts = entries.split_inclusive(|byte| *byte == 0).map(|entry| entry.as_ptr().cast());
        // The places behind the plan's own entries; one null stays behind them.
        let free = self.envp.iter_mut().filter(|place| place.is_null()).take(ENTRIES);
        free.zip(starts).for_each(|(place, start)| *place = start);
        Ok(())
    }

    /// Leaves nothing open but what the plan gives, the socket and the report.
    pub(super) fn close_others_now(&mut self) -> std::result::Result<(), Errno> {
        let Some(waiting) = &mut self.waiting else { return Ok(()) };
        let next = self.sources.len() as RawFd;
        for (fd, to) in [(&mut waiting.control, next), (&mut self.report, next + 1)] {
            // SAFETY: `place` has left these two numbers free.
            *fd = check(unsafe { libc::dup3(*fd, to, libc::O_CLOEXEC) })?;
        }
        // SAFETY: nothing in this process owns a descriptor above.
        let done =
            unsafe { libc::syscall(libc::SYS_close_range, (next + 2) as libc::c_uint, libc::c_uint::MAX, 0) };
        check(done as i32).map(drop)
    }
}
