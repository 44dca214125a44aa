//! One process that the warden started: its pidfd, its channel, and what it may be handed.

use levee_ipc::warden::{Attachment, FromWarden, Place, Role, ToWarden};
use levee_ipc::{Channel, Received, RecvError, SendError};
use levee_policy::LabelName;
use levee_sys::pidfd::{Child, Exit};
use levee_sys::spawn::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Resource;
use rustix::thread::{Gid, Uid};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Descriptors that a process may have: sessiond and tps hold a few for each client.
const DESCRIPTORS: u64 = 16_384;

/// Which process: there is one of each role, and one vault and so on for each label; of vaults so many as the site has
/// workers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its role.
    pub role: Role,
    /// Its label, for roles that have one.
    pub label: Option<LabelName>,
    /// Which of several that share a label's work, from 0.
    pub worker: u16,
}

impl Key {
    /// The one process of `role`.
    pub fn of(role: Role) -> Self {
        Self { role, label: None, worker: 0 }
    }

    /// The process of `role` at `label`.
    pub fn at(role: Role, label: &LabelName) -> Self {
        Self { role, label: Some(label.clone()), worker: 0 }
    }

    /// One worker of the vault at `label`.
    pub fn vault(label: &LabelName, worker: u16) -> Self {
        Self { worker, ..Self::at(Role::Vault, label) }
    }

    /// Whether it is a worker of the vault at `label`.
    pub fn is_vault_at(&self, label: &LabelName) -> bool {
        self.role == Role::Vault && self.label.as_ref() == Some(label)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.role.program())?;
        self.label.iter().try_for_each(|label| write!(f, " at {label}"))?;
        if self.worker > 0 { write!(f, ", worker {}", self.worker + 1) } else { Ok(()) }
    }
}

/// A running process.
#[derive(Debug)]
pub struct Process {
    /// Which.
    pub key: Key,
    child: Child,
    control: Channel,
    /// It has said that it is sandboxed and at work.
    pub ready: bool,
}

/// How a process is to be started, beside what every one has in common.
#[derive(Debug)]
pub struct Start<'a> {
    /// Which.
    pub key: Key,
    /// The directory with levee's programs.
    pub programs: &'a Path,
    /// The program's name where it is not its role's.
    pub program: Option<&'a str>,
    /// Arguments; most have none, since everything comes over the channel.
    pub arguments: &'a [&'a str],
    /// Its uid and gid.
    pub uid: u32,
    /// The network namespace it lives in; an empty one of its own if there is none.
    pub network: Option<BorrowedFd<'a>>,
}

impl Process {
    /// Starts it: own uid, no capabilities, no descriptor but its channel, a network namespace of its own.
    ///
    /// # Errors
    /// The step that failed, and why.
    pub fn start(start: Start<'_>) -> Result<Self, levee_sys::Error> {
        let (ours, theirs) = Channel::pair().map_err(|e| levee_sys::Error::new("make a channel", e))?;
        let mut program =
            Program::new(start.programs.join(start.program.unwrap_or(start.key.role.program())));
        program.args.extend(start.arguments.iter().map(Into::into));
        program.fds = vec![theirs.as_fd()];
        let log = std::io::stderr();
        program.stdio = [None, None, Some(log.as_fd())];
        program.identity = Some((Uid::from_raw(start.uid), Gid::from_raw(start.uid)));
        program.limits.push((Resource::Nofile, DESCRIPTORS));
        program.new_keyring = true;
        program.new_namespaces = Program::ISOLATED;
        if start.network.is_some() {
            program.net = start.network;
            program.new_namespaces = Program::ISOLATED_BUT_NETWORK;
        }
        let child = program.start()?;
        Ok(Self { key: start.key, child, control: ours, ready: false })
    }

    /// Its process id, as the host numbers it.
    pub fn pid(&self) -> u32 {
        self.child.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Readable once it has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.child.pidfd.as_fd()
    }

    /// Readable when it has said something.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Hands it a descriptor.
    ///
    /// # Errors
    /// It is gone, or does not read what it is sent.
    pub fn attach(&self, what: Attachment, fd: &impl AsFd) -> Result<(), SendError> {
        self.control.try_send_with(&FromWarden::Attach(what), &[fd.as_fd()])
    }

    /// Hands it several descriptors that are one thing.
    ///
    /// # Errors
    /// As [`Process::attach`].
    pub fn attach_all(&self, what: Attachment, fds: &[BorrowedFd<'_>]) -> Result<(), SendError> {
        self.control.try_send_with(&FromWarden::Attach(what), fds)
    }

    /// As [`Process::attach`], for a descriptor that is its alone.
    ///
    /// # Errors
    /// As there.
    pub fn give(&self, what: Attachment, fd: OwnedFd) -> Result<(), SendError> {
        self.attach(what, &fd)
    }

    /// Tells it to begin.
    ///
    /// # Errors
    /// As [`Process::attach`].
    pub fn begin(&self, place: Place) -> Result<(), SendError> {
        self.tell(&FromWarden::Begin(place))
    }

    /// Tells it something. The warden never waits for a process: one that does not read is as good as dead.
    ///
    /// # Errors
    /// As [`Process::attach`].
    pub fn tell(&self, message: &FromWarden) -> Result<(), SendError> {
        self.control.try_send(message)
    }

    /// What it has said, if anything.
    ///
    /// # Errors
    /// As [`Channel::try_recv`].
    pub fn hear(&self) -> Result<Received<ToWarden>, RecvError> {
        match self.control.try_recv() {
            // It ended without reading all that it was sent; the kernel says so once, before what it said last.
            Err(RecvError::Io(_) | RecvError::Closed) => self.control.try_recv(),
            heard => heard,
        }
    }

    /// Waits until it is at work; the reason why it cannot be. One that ends without a word, or says nothing for so long, is left to who
    /// looks after all processes.
    pub fn begins_within(&mut self, limit: std::time::Duration) -> Option<String> {
        let until = std::time::Instant::now() + limit;
        loop {
            match self.hear().map(|received| received.message) {
                Ok(ToWarden::Ready) => {
                    self.ready = true;
                    return None;
                }
                Ok(ToWarden::Unusable(why)) => return Some(why),
                Ok(_) => {}
                Err(RecvError::Empty) => {
                    let left = until.saturating_duration_since(std::time::Instant::now());
                    let wait = Timespec::try_from(left).ok().filter(|_| !left.is_zero())?;
                    // Whatever wakes it, it looks again.
                    let _ = poll(&mut [PollFd::new(&self.control, PollFlags::IN)], Some(&wait));
                }
                Err(_) => return None,
            }
        }
    }

    /// Why it could not begin, if it has said so.
    pub fn complaint(&self) -> Option<String> {
        while let Ok(received) = self.hear() {
            if let ToWarden::Unusable(why) = received.message {
                return Some(why);
            }
        }
        None
    }

    /// Has it killed; its pidfd becomes readable once it is gone.
    pub fn kill(&self) {
        // The only failure is that it has ended already.
        let _ = self.child.signal(rustix::process::Signal::KILL);
    }

    /// Whether it has ended, and how, in words.
    pub fn exit(&self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(Exit::Status(status))) => Some(format!("status {status}")),
            Ok(Some(Exit::Signal(signal))) => Some(format!("killed by signal {signal}")),
            Err(e) => Some(format!("its status cannot be had: {e}")),
        }
    }

    /// Waits for its end for at most `limit`, and reaps it.
    pub fn wait(&self, limit: std::time::Duration) {
        if !self.ends_within(limit) {
            crate::log!("{} has not ended", self.key);
        }
    }

    /// Waits for its end for at most `limit`; whether it has ended and been reaped.
    pub fn ends_within(&self, limit: std::time::Duration) -> bool {
        matches!(self.child.wait(limit), Ok(Some(_)))
    }
}
