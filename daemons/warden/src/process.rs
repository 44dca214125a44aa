//! One process that the warden started: its pidfd, its channel, and what it may be handed.

use crate::bounds::Group;
use crate::key::Key;
use crate::log;
use crate::logs::Logs;
use crate::options::Options;
use crate::rest::{Rule, UNASKED};
use crate::uids::Uids;
use levee_ipc::warden::guard::GuardSays;
use levee_ipc::warden::signer::Unusable;
use levee_ipc::warden::{
    Counted, FramesState, LayerState, Nothing, Order, Part, Peer, Place, Role, Said, SessiondRequest,
    TpeRequest, UpflowCounters,
};
use levee_ipc::{Channel, Received, RecvError, SendError};
use levee_sys::cgroup::Cgroup;
use levee_sys::pidfd::Child;
use levee_sys::pipe;
use levee_sys::ports;
use levee_sys::spawn::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, getrlimit};
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::cell::Cell;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Descriptors that a process may have: sessiond and tps hold a few for each client.
const DESCRIPTORS: u64 = 16_384;

/// A mediator's: 12,500 relayed connections with two sockets each, and two pipes where neither end reads.
const RELAYING: u64 = 80_000;

/// A running process.
#[derive(Debug)]
pub struct Process {
    /// Which.
    pub key: Key,
    child: Arc<Child>,
    /// What it may use: gone with it.
    group: Group,
    control: Arc<Channel>,
    kind: Kind,
    /// It has been told to begin: what it is given now must be what may come late.
    begun: Cell<bool>,
    /// It has said that it is sandboxed and at work.
    pub ready: bool,
    unasked: Rule,
}

/// What a process has said.
#[derive(Debug)]
pub enum Heard {
    /// It is sandboxed and at work.
    Ready,
    /// The signer: it cannot be.
    Unusable(String),
    /// sessiond.
    Sessiond(SessiondRequest),
    /// The tpe.
    Tpe(TpeRequest),
    /// The second tunnel.
    Layer(LayerState),
    /// A stage of upflow.
    Upflow(UpflowCounters),
    /// A channel between partitions: what it has carried.
    Channel(Counted),
    /// What keeps the frames: how it went.
    Frames(FramesState),
    /// A guard.
    Guard(GuardSays),
}

/// What a process may be given, which its role says.
#[derive(Clone, Copy, Debug)]
struct Kind {
    part: TypeId,
    /// Gives it the end of a channel.
    connect: fn(&Process, &Peer, OwnedFd) -> Result<(), SendError>,
}

impl Kind {
    fn of<P: Part>() -> Self {
        let connect = |process: &Process, to: &Peer, fd: OwnedFd| {
            let part = P::channel(to).ok_or_else(|| refused("it does not speak with this role"))?;
            process.give(part, &[fd.as_fd()])
        };
        Self { part: TypeId::of::<P>(), connect }
    }
}

fn refused(why: &'static str) -> SendError {
    SendError::Io(std::io::Error::new(std::io::ErrorKind::InvalidInput, why))
}

/// A process that has been started and not yet admitted to the others.
#[derive(Debug)]
pub struct Started<P> {
    process: Process,
    of: PhantomData<P>,
}

impl<P: Part> Started<P> {
    /// Gives it a part, with its descriptors. Nobody can be given anything but by its role's parts, so nobody can be given what is another's.
    ///
    /// # Errors
    /// It is gone, or does not read what it is sent; or it would not take this, or not now.
    pub fn give_with(&self, part: P, fds: &[BorrowedFd<'_>]) -> Result<(), SendError> {
        self.process.give(part, fds)
    }

    /// Gives it a part with one descriptor.
    ///
    /// # Errors
    /// As [`Started::give_with`].
    pub fn give(&self, part: P, fd: impl AsFd) -> Result<(), SendError> {
        self.give_with(part, &[fd.as_fd()])
    }

    /// As one of all.
    pub fn into_process(self) -> Process {
        self.process
    }
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
    /// The processors that it runs on; `None`: those of the warden.
    pub processors: Option<String>,
    /// Where what it says goes.
    pub logs: &'a Logs,
}

impl<'a> Start<'a> {
    /// One with its role's own program and uid, of what has this slot, without arguments and without a network.
    pub fn new(key: Key, slot: u16, uids: &Uids, options: &'a Options, logs: &'a Logs) -> Self {
        let (programs, uid) = (&options.programs, uids.of(key.role, slot));
        let processors = key.label.as_ref().and_then(|label| options.places.of(label));
        Self { key, processors, programs, program: None, arguments: &[], uid, network: None, logs }
    }
}

impl Process {
    /// Starts it: own uid, no capabilities, no descriptor but its channel, a network namespace of its own.
    ///
    /// # Errors
    /// The step that failed, and why; and where the role has other parts.
    pub fn start_as<P: Part>(start: Start<'_>) -> Result<Started<P>, levee_sys::Error> {
        if !P::ROLES.contains(&start.key.role) {
            return Err(levee_sys::Error::invalid("start a process", "its role has other parts"));
        }
        let (ours, theirs) = start.key.role.channel().map_err(|e| levee_sys::Error::new("a channel", e))?;
        let most = match start.key.role {
            // What the warden has not got it cannot give; the mediator relays by what it has.
            Role::Mediator => getrlimit(Resource::Nofile).maximum.unwrap_or(RELAYING).min(RELAYING),
            _ => DESCRIPTORS,
        };
        let path = start.programs.join(start.program.unwrap_or(start.key.role.program()));
        let mut program = Program::daemon(path, start.uid, most);
        program.args.extend(start.arguments.iter().map(Into::into));
        program.fds = vec![theirs.as_fd()];
        let (input, _) = pipe::dead_ends()?;
        let log = start.logs.end(&start.key.source(), start.uid, false)?;
        program.stdio = [Some(input.as_fd()), Some(log.as_fd()), Some(log.as_fd())];
        program.net = start.network;
        let name = start.program.map_or(start.key.name(), |program| program.trim_start_matches("levee-"));
        let group = Group::make(name, start.uid, start.processors.as_deref())?;
        if start.key.role == Role::Mediator {
            // Daemons behind it see from which port it comes.
            ports::draw_apart(group.cgroup())?;
        }
        program.cgroups = group.cgroup().procs().collect();
        let (child, control) = (Arc::new(program.start()?), Arc::new(ours));
        let (kind, begun, unasked) = (Kind::of::<P>(), Cell::new(false), Rule::new(UNASKED));
        let process = Self { key: start.key, child, group, control, kind, begun, ready: false, unasked };
        Ok(Started { process, of: PhantomData })
    }

    /// Gives a process at work a part, if it is of this kind.
    ///
    /// # Errors
    /// As [`Started::give_with`]; and where the part is another role's.
    pub fn tell_as<P: Part>(&self, part: P, fds: &[BorrowedFd<'_>]) -> Result<(), SendError> {
        if self.kind.part != TypeId::of::<P>() {
            return Err(refused("the part is another role's"));
        }
        self.give(part, fds)
    }

    /// The warden never waits for a process: one that does not read is as good as dead.
    fn give<P: Part>(&self, part: P, fds: &[BorrowedFd<'_>]) -> Result<(), SendError> {
        if fds.len() != part.descriptors() {
            return Err(refused("it would come with another number of descriptors"));
        }
        if self.begun.get() && !part.is_late() {
            return Err(refused("it has begun, and takes no such part any more"));
        }
        self.control.try_send_with(&Order::Give(part), fds)
    }

    /// As [`Process::tell_as`]. One that does not read what it is told is as good as dead, and killed; whether it was told.
    pub fn tell<P: Part>(&self, part: P, fds: &[BorrowedFd<'_>]) -> bool {
        self.reads(self.tell_as(part, fds))
    }

    fn reads(&self, told: Result<(), SendError>) -> bool {
        let Err(e) = told else { return true };
        log!("{} does not read what it is told ({e}): killing it", self.key);
        self.kill();
        false
    }

    /// Hands it the end of a channel.
    ///
    /// # Errors
    /// As [`Started::give_with`]; and where the two do not speak.
    pub fn connect(&self, to: &Peer, fd: OwnedFd) -> Result<(), SendError> {
        (self.kind.connect)(self, to, fd)
    }

    /// Its control group, in which no other process is.
    pub fn group(&self) -> &Cgroup {
        self.group.cgroup()
    }

    /// Its process id, as the host numbers it.
    pub fn pid(&self) -> u32 {
        self.child.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Readable once it has ended.
    pub fn pidfd(&self) -> Arc<Child> {
        Arc::clone(&self.child)
    }

    /// Readable when it has said something.
    pub fn control(&self) -> Arc<Channel> {
        Arc::clone(&self.control)
    }

    /// Tells it to begin.
    ///
    /// # Errors
    /// As [`Started::give_with`].
    pub fn begin(&self, place: Place) -> Result<(), SendError> {
        self.begun.set(true);
        self.control.try_send(&Order::<Nothing>::Begin(place))
    }

    /// Tells it to end in good order; as [`Process::tell`].
    pub fn stop(&self) {
        self.reads(self.control.try_send(&Order::<Nothing>::Stop));
    }

    /// What it says next, as its role may.
    ///
    /// # Errors
    /// As [`Channel::try_recv`]; what its role does not say, and that it is at work a second time, is malformed.
    pub fn hear(&mut self) -> Result<Received<Heard>, RecvError> {
        let heard = match self.key.role {
            Role::Signer => self.hear_as(|Unusable(why)| Heard::Unusable(why)),
            Role::Sessiond => self.hear_as(Heard::Sessiond),
            Role::Tps
            | Role::Keyer
            | Role::Vault
            | Role::Stack
            | Role::Witness
            | Role::Mediator
            | Role::Fsd => self.hear_as(|nothing: Nothing| match nothing {}),
            Role::Snapshot | Role::Copy => self.hear_as(Heard::Upflow),
            Role::Channel => self.hear_as(Heard::Channel),
            Role::Frames => self.hear_as(Heard::Frames),
            Role::Guard => self.hear_as(Heard::Guard),
            Role::Tpe => self.hear_as(Heard::Tpe),
            Role::Layer => self.hear_as(Heard::Layer),
        }?;
        let is_again = matches!(heard.message, Heard::Ready) && std::mem::replace(&mut self.ready, true);
        let is_asked = matches!(heard.message, Heard::Sessiond(_) | Heard::Tpe(_));
        // Each word takes of the time that all labels have here.
        if is_again || !is_asked && !self.unasked.allows(std::time::Instant::now()) {
            return Err(RecvError::Malformed);
        }
        Ok(heard)
    }

    fn hear_as<S: DeserializeOwned>(
        &self,
        says: impl FnOnce(S) -> Heard,
    ) -> Result<Received<Heard>, RecvError> {
        let Received { message, fds } = match self.control.try_recv() {
            // It ended without reading all that it was sent; the kernel says so once, before what it said last.
            Err(RecvError::Io(_) | RecvError::Closed) => self.control.try_recv()?,
            heard => heard?,
        };
        let message = match message {
            Said::Ready => Heard::Ready,
            Said::Says(what) => says(what),
        };
        Ok(Received { message, fds })
    }

    /// Waits until the signer is at work; the reason why it cannot be. One that ends without a word, or says nothing for so long, is
    /// left to who looks after all processes.
    pub fn begins_within(&mut self, limit: std::time::Duration) -> Option<String> {
        let until = std::time::Instant::now() + limit;
        loop {
            match self.hear().map(|received| received.message) {
                Ok(Heard::Unusable(why)) => return Some(why),
                Err(RecvError::Empty) => {
                    let left = until.saturating_duration_since(std::time::Instant::now());
                    let wait = Timespec::try_from(left).ok().filter(|_| !left.is_zero())?;
                    // Whatever wakes it, it looks again.
                    let _ = poll(&mut [PollFd::new(&self.control, PollFlags::IN)], Some(&wait));
                }
                _ => return None,
            }
        }
    }

    /// Has it killed; its pidfd becomes readable once it is gone.
    pub fn kill(&self) {
        // The only failure is that it has ended already.
        let _ = self.child.signal(rustix::process::Signal::KILL);
    }

    /// Whether it has ended, and how, in words.
    pub fn exit(&self) -> Option<String> {
        self.group.exit(&self.child)
    }

    /// Tells it to end in good order; kills it if it has not within `limit`. It is reaped then, and not to be waited for again.
    pub fn end(self, limit: std::time::Duration) {
        self.stop();
        if !self.ends_within(limit) {
            log!("{} has not ended within {limit:?}: killing it", self.key);
            self.reap();
        }
    }

    /// Has it killed, and waits for that.
    pub fn reap(&self) {
        self.kill();
        self.wait(std::time::Duration::from_secs(5));
    }

    /// Waits for its end for at most `limit`, and reaps it.
    pub fn wait(&self, limit: std::time::Duration) {
        if !self.ends_within(limit) {
            log!("{} has not ended", self.key);
        }
    }

    /// Waits for its end for at most `limit`; whether it has ended and been reaped.
    pub fn ends_within(&self, limit: std::time::Duration) -> bool {
        matches!(self.child.wait(limit), Ok(Some(_)))
    }
}

#[cfg(test)]
mod tests;
