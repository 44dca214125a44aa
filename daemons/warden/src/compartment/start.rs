//! The warden's side of a compartment: starting it, what it says, and leaving nothing of it behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levee_ipc::{Channel, RecvError};
use levee_policy::{LabelName, ServiceName};
use levee_sys::cgroup::{Cgroup, Limits};
use levee_sys::loopdev::LoopDevice;
use levee_sys::mount::{Attributes, Mount};
use levee_sys::ns::{self, IdRange};
use levee_sys::pidfd::{self, Child};
use levee_sys::pipe;
use levee_sys::ports;
use levee_sys::spawn::Program;
use levee_sys::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Signal};

use super::network::Network;
use super::plan::Plan;
use super::proto::{FromInit as Event, Handoff, ToInit};
use super::service::{Launch, Report, Told};
use super::spec::{Contexts, UIDS};
use super::step::{Inside, Outside};
use super::store::Store;
use crate::rest::{Rule, UNASKED};
use crate::waits::{Source, Waits, WatchedChannel, WatchedChild};

/// How long process 1 may take to build the compartment.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a machine may take from its beginning until its services can be reached. With an emulated processor on a busy
/// host it takes ten seconds and more.
const BOOTED: Duration = Duration::from_secs(120);

/// How long a machine may take to destroy a session's sockets. One that is silent for longer is to be ended, and its sockets with it.
pub(crate) const CUT: Duration = Duration::from_secs(5);

/// How long process 1 may take to end all that runs. One that is silent for longer is ended itself, and all with it.
const EMPTIED: Duration = Duration::from_secs(10);

/// Bytes of steps that go to process 1 in one message, well below what a message may have.
pub(crate) const BATCH: usize = levee_ipc::MAX_MESSAGE / 2;

/// Bytes that are read ahead of programs. They lie in memory already: what is read and not used is memory for nothing.
const READ_AHEAD: u32 = 16 << 10;

/// What ends a compartment.
const FORBIDDEN: &str = "process 1 says what it may not say";

/// Most messages taken from inside in one turn, so that one compartment cannot keep the warden from others.
const TURN: usize = 64;

/// A running compartment. Dropping it kills everything in it.
#[derive(Debug)]
pub struct Compartment {
    label: LabelName,
    pub(super) channel: Arc<Channel>,
    /// Tickets of programs that were asked for and have not ended.
    running: BTreeSet<u64>,
    /// Until when process 1 may still be carrying out its steps, and its machine be booting; `None` once they have.
    pub(super) building: Option<Instant>,
    /// How many services it has.
    services: u16,
    /// What its machine was told to cut and has not, by ticket: until when it may.
    cuts: BTreeMap<u64, Instant>,
    /// It has been told which services are off, by this number, and has to answer by then.
    turned: Option<(u64, Instant)>,
    /// What it said was wrong, or it is gone: no more is heard.
    unheard: bool,
    unasked: Rule,
    parts: Parts,
    /// The waits for what it says, and for its end.
    waits_said: Option<WatchedChannel>,
    waits_ended: Option<WatchedChild>,
}

/// What exists on the host for a compartment; dropped, it is undone.
#[derive(Debug, Default)]
struct Parts {
    child: Option<Arc<Child>>,
    cgroup: Option<Cgroup>,
    images: Vec<Store>,
}

/// What process 1 is given before it builds the compartment, with the descriptors.
pub type Given = (ToInit, Vec<OwnedFd>);

impl Compartment {
    /// Carries out what `plan` has for the warden and hands process 1 (the program `init`, levee-init, in `network`)
    /// the rest; [`Event::Built`] or [`Event::Failed`] says what becomes of it. `log` is process 1's standard error. It is
    /// given what it starts by itself, with the descriptors: services, or a machine.
    ///
    /// Call it from a thread that lives as long as the warden: its end is the compartment's.
    ///
    /// # Errors
    /// The step that failed; everything that had been made is undone.
    pub fn begin(
        plan: &Plan,
        network: &Network,
        init: &Path,
        log: BorrowedFd<'_>,
        given: Vec<Given>,
    ) -> Result<Self> {
        let failed =
            |step: &dyn fmt::Display, e: &dyn fmt::Display| Error::invalid(step.to_string(), e.to_string());
        let none = || Error::invalid("find the control group", "the plan has none yet");
        let mut parts = Parts::default();
        let mut user: Option<OwnedFd> = None;
        let mut mounts: Vec<Mount> = Vec::new();
        let mut channel: Option<Channel> = None;
        let mut contexts: Option<&Contexts> = None;
        let mut largest = None;
        for step in &plan.outside {
            let done: Result<()> = match step {
                Outside::ControlGroup { name, memory, processes, cpu_percent } => {
                    let limits = Limits { memory: *memory, processes: *processes, cpu_percent: *cpu_percent };
                    Cgroup::create(name, limits).map(|group| parts.cgroup = Some(group))
                }
                Outside::Processors(numbers) => {
                    parts.cgroup.as_mut().ok_or_else(none).and_then(|group| group.keep_to(numbers))
                }
                Outside::SourcePorts => parts.cgroup.as_ref().ok_or_else(none).and_then(ports::draw_apart),
                Outside::UserNamespace(base) => {
                    let range = IdRange { inside: 0, outside: *base, count: UIDS };
                    ns::new_user(range).map(|ns| user = Some(ns))
                }
                Outside::Contexts(those) => {
                    contexts = Some(those);
                    Ok(())
                }
                Outside::Image { path, read_only } => {
                    image(path, *read_only, user.as_ref(), contexts).map(|(store, mount)| {
                        parts.images.push(store);
                        mounts.push(mount);
                    })
                }
                Outside::Programs(path) => programs(path, contexts).map(|mount| mounts.push(mount)),
                Outside::FilesUpTo(bytes) => {
                    largest = Some(*bytes);
                    Ok(())
                }
                Outside::Process1 => {
                    let built = (user.as_ref(), mounts.as_slice(), parts.cgroup.as_ref());
                    process_1(init, network, built, largest, log).map(|(child, ours)| {
                        parts.child = Some(Arc::new(child));
                        channel = Some(ours);
                    })
                }
            };
            done.map_err(|e| failed(step, &e))?;
        }
        let Some(channel) = channel else {
            return Err(failed(&Outside::Process1, &"the plan does not have this step"));
        };
        hand(plan, &channel, &given, mounts.len()).map_err(|e| failed(&"hand process 1 its steps", &e))?;
        let boots = given.iter().any(|(what, _)| matches!(what, ToInit::Machine(_)));
        let services = given.iter().filter(|(what, _)| matches!(what, ToInit::Service { .. } | ToInit::Log));
        Ok(Self {
            label: plan.label.clone(),
            channel: Arc::new(channel),
            running: BTreeSet::new(),
            building: Some(Instant::now() + if boots { BOOTED } else { PATIENCE }),
            services: u16::try_from(services.count()).unwrap_or(u16::MAX),
            cuts: BTreeMap::new(),
            turned: None,
            unheard: false,
            unasked: Rule::new(UNASKED),
            parts,
            waits_said: None,
            waits_ended: None,
        })
    }

    /// Whether process 1 is still carrying out its steps.
    pub fn is_building(&self) -> bool {
        self.building.is_some()
    }

    /// Its label.
    pub fn label(&self) -> &LabelName {
        &self.label
    }

    /// Readable when [`Compartment::events`] has something to say.
    pub fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// Its control group.
    pub fn group(&self) -> Option<&Cgroup> {
        self.parts.cgroup.as_ref()
    }

    /// Gives it its share of the host beside others, as [`Cgroup::share`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn share(&self, weight: u32, reserved: u64, of_all: u64) -> Result<()> {
        self.parts.cgroup.as_ref().map_or(Ok(()), |group| group.share(weight, reserved, of_all))
    }

    /// Process 1: readable once the compartment has ended.
    pub fn process(&self) -> Option<&Arc<Child>> {
        self.parts.child.as_ref()
    }

    /// Its number; 0 where there is none.
    pub fn init(&self) -> u32 {
        self.process().map_or(0, |child| child.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Whether nothing runs in it any more: the end of process 1 is the end of all.
    pub fn has_ended(&self) -> bool {
        // Readable once it has ended, whether or not it has been waited for.
        let ended = |child: &Arc<Child>| {
            let mut fds = [PollFd::new(&**child, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
        };
        self.parts.child.as_ref().is_none_or(ended)
    }

    /// The images that it uses, in the order of the plan: the own store, then the copies.
    pub fn images(&self) -> &[Store] {
        &self.parts.images
    }

    /// Starts a program inside, with these descriptors: standard input, output and error, then 3, 4, …. What
    /// comes of it is told by [`Compartment::events`].
    ///
    /// # Errors
    /// If the ticket is in use or the compartment does not listen any more.
    pub fn run(&mut self, start: Launch, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let step = || format!("start {} in compartment {}", start.program, self.label);
        let ticket = start.ticket;
        if self.building.is_some() {
            return Err(Error::invalid(step(), "it is not built yet"));
        }
        if self.running.contains(&ticket) {
            return Err(Error::invalid(step(), "the ticket is in use"));
        }
        let sent = self.channel.try_send_with(&ToInit::Start(start.clone()), fds);
        sent.map_err(|e| Error::invalid(step(), e.to_string()))?;
        self.running.insert(ticket);
        Ok(())
    }

    /// Gives process 1 a channel to the label's mediator, which may have `servers` started, with `log` as their standard error. Not waited for: it reads it
    /// once the compartment is built.
    ///
    /// # Errors
    /// If the compartment does not listen any more.
    pub fn mediate(&self, servers: Vec<Handoff>, channel: Channel, log: BorrowedFd<'_>) -> Result<()> {
        self.tell(&ToInit::Mediator(servers), &[channel.as_fd(), log], "have a mediator")
    }

    /// Has these services off and no others; [`Event::Turned`] says that nothing is left of what ran when one was turned off.
    ///
    /// # Errors
    /// It does not listen any more: end it.
    pub fn turn(&mut self, ticket: u64, off: BTreeSet<ServiceName>) -> Result<()> {
        self.turned = Some((ticket, Instant::now() + EMPTIED));
        self.tell(&ToInit::Services { ticket, off }, &[], "turn services off")
    }

    /// Whether services are being turned off or on: until when, at the latest.
    pub fn is_turning(&self) -> Option<Instant> {
        self.turned.map(|(_, until)| until)
    }

    /// Sends a signal to a program that was started. No error if it has ended.
    pub fn signal(&self, ticket: u64, signal: i32) -> Result<()> {
        self.tell(&ToInit::Signal { ticket, signal }, &[], "send a signal")
    }

    /// Has the sockets of a session's inner address destroyed in its machine; [`Event::Cut`] says that it is done.
    ///
    /// # Errors
    /// It does not listen any more: end it.
    pub fn cut(&mut self, ticket: u64, address: IpAddr) -> Result<()> {
        self.cuts.insert(ticket, Instant::now() + CUT);
        self.tell(&ToInit::Cut { ticket, address }, &[], "have a machine cut connections")
    }

    /// What its machine was told to cut and has not.
    pub fn uncut(&self) -> impl Iterator<Item = u64> {
        self.cuts.keys().copied()
    }

    /// Whether its machine is late with a cut.
    pub fn is_late(&self) -> bool {
        self.cuts.values().any(|until| *until <= Instant::now())
    }

    /// Asks its machine to end in good order: then it writes everything to its disks, and process 1 ends after it.
    ///
    /// # Errors
    /// It does not listen any more: end it.
    pub fn ask_to_stop(&self) -> Result<()> {
        self.tell(&ToInit::Stop, &[], "have a machine stop")
    }

    fn tell(&self, what: &ToInit, fds: &[BorrowedFd<'_>], step: &str) -> Result<()> {
        let step = || format!("{step} in compartment {}", self.label);
        self.channel.try_send_with(what, fds).map_err(|e| Error::invalid(step(), e.to_string()))
    }

    /// What has happened inside since the last time.
    ///
    /// # Errors
    /// If process 1 is gone or said what it may not say: then stop the compartment. That is told once; nothing more of it is heard. Until all
    /// its processes have ended, which can be long, it would be told in every turn.
    pub fn events(&mut self) -> Result<Vec<Event>> {
        let said = if self.unheard { Ok(Vec::new()) } else { self.said() };
        self.unheard |= said.is_err();
        said
    }

    fn said(&mut self) -> Result<Vec<Event>> {
        let broken = |why: &str| Error::invalid(format!("listen to compartment {}", self.label), why);
        let mut events = Vec::new();
        for _ in 0..TURN {
            let said = match self.channel.try_recv::<Event>() {
                Ok(received) if received.fds.is_empty() => received.message,
                // The last to close something may have to wait, or work, for it.
                Ok(_) => return Err(broken("process 1 sends descriptors")),
                Err(RecvError::Empty) if self.building.is_some_and(|until| until <= Instant::now()) => {
                    Event::Failed("build the compartment: process 1 takes too long".into())
                }
                Err(RecvError::Empty) => break,
                // Events that came before the end are worth having; the end shows again next time.
                Err(RecvError::Closed) if !events.is_empty() => break,
                Err(RecvError::Closed) if self.building.is_some() => {
                    Event::Failed("build the compartment: process 1 ended without a word".into())
                }
                Err(e) => return Err(broken(&e.to_string())),
            };
            // What comes after one of the first two is for who knows of it.
            if self.building.is_some() {
                match said {
                    Event::Built => self.building = None,
                    Event::Failed(_) => {}
                    _ => return Err(broken(FORBIDDEN)),
                }
                events.push(readable(said));
                break;
            }
            let may = match &said {
                Event::Refused(ticket, _) | Event::Exited(ticket, _) => self.running.remove(ticket),
                Event::Cut(ticket, _) => self.cuts.remove(ticket).is_some(),
                Event::Turned(ticket) if self.turned.take_if(|(of, _)| of == ticket).is_some() => true,
                // The rest answers nothing: each word of it takes of the time that all labels have here.
                _ if !self.unasked.allows(Instant::now()) => false,
                Event::Started(ticket) => self.running.contains(ticket),
                Event::Service(place, _) => *place < self.services,
                // An answer to what it was told before this is none.
                Event::Turned(ticket) if self.turned.is_some_and(|(of, _)| *ticket < of) => continue,
                Event::Turned(_) | Event::Built | Event::Failed(_) => false,
            };
            if !may {
                return Err(broken(FORBIDDEN));
            }
            events.push(readable(said));
        }
        Ok(events)
    }

    /// Has waited for what there is to wait for now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(
        &mut self,
        waits: &mut Waits,
        said: impl FnOnce() -> Source,
        ended: impl FnOnce() -> Source,
    ) -> io::Result<()> {
        self.waits_said.take_if(|_| self.unheard);
        if self.waits_said.is_none() && !self.unheard {
            self.waits_said = Some(waits.watch(Arc::clone(&self.channel), said())?);
        }
        if let (None, Some(process)) = (&self.waits_ended, &self.parts.child) {
            self.waits_ended = Some(waits.watch(Arc::clone(process), ended())?);
        }
        Ok(())
    }

    /// It is ending: its channel is closed, and so has something to say, long before all is gone.
    pub fn watch_end_alone(&mut self) {
        self.waits_said = None;
    }

    /// Kills everything inside at once; [`Compartment::stop`] then removes the rest.
    pub fn kill(&self) -> Result<()> {
        self.parts.child.as_ref().map_or(Ok(()), |child| pidfd::send(&child.pidfd, Signal::KILL))
    }

    /// Kills everything inside and removes what the host had for it.
    ///
    /// # Errors
    /// If something could not be removed; what could has been.
    pub fn stop(mut self) -> Result<()> {
        self.parts.undo()
    }
}

impl Parts {
    /// Undoes in reverse: processes, control group, images. Goes on after an error and returns the first.
    fn undo(&mut self) -> Result<()> {
        // The end of process 1 is the end of its pid namespace: waiting for it waits for all of them.
        let ended = self.child.take().map_or(Ok(()), |child| child.kill().map(drop));
        let removed = self.cgroup.take().map_or(Ok(()), |mut cgroup| cgroup.remove());
        self.images.clear();
        ended.and(removed)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // Whoever drops instead of stopping has no use for the error.
        let _ = self.undo();
    }
}

fn image(
    path: &Path,
    read_only: bool,
    user: Option<&OwnedFd>,
    contexts: Option<&Contexts>,
) -> Result<(Store, Mount)> {
    let user = user.ok_or_else(|| Error::invalid("map its ids", "the plan has no user namespace yet"))?;
    let store = Store::open(path)?.in_context(contexts.map(|contexts| contexts.files.clone()));
    let attributes = if read_only { Attributes::READ_ONLY_DATA } else { Attributes::default() };
    let mount = store.mount_for(attributes, user)?;
    Ok((store, mount))
}

/// The block device lasts as long as the mount.
fn programs(path: &Path, contexts: Option<&Contexts>) -> Result<Mount> {
    let step = || format!("open the programs {}", path.display());
    let image = std::fs::File::open(path).map_err(|e| Error::new(step(), e))?;
    let mount = |device: &str| {
        let context = contexts.map(|contexts| contexts.programs.as_str());
        Mount::in_context("erofs", &[("source", device), ("ro", "")], Attributes::READ_ONLY, context)
    };
    let kind = image.metadata().map_err(|e| Error::new(step(), e))?.file_type();
    if std::os::unix::fs::FileTypeExt::is_block_device(&kind) {
        // A disk of the virtual machine that this is.
        return mount(&path.display().to_string());
    }
    let device = LoopDevice::attach(&image, true)?;
    device.set_read_ahead(READ_AHEAD)?;
    mount(device.path())
}

fn process_1(
    init: &Path,
    network: &Network,
    (user, mounts, cgroup): (Option<&OwnedFd>, &[Mount], Option<&Cgroup>),
    largest: Option<u64>,
    log: BorrowedFd<'_>,
) -> Result<(Child, Channel)> {
    let missing = |what: &str| Error::invalid("start process 1", format!("the plan has no {what} yet"));
    let user = user.ok_or_else(|| missing("user namespace"))?;
    let cgroup = cgroup.ok_or_else(|| missing("control group"))?;
    // Of its own network: a Unix socket has the names and the interfaces of that in which it was made.
    let pair = network.make(Channel::pair)?;
    let (ours, theirs) = pair.map_err(|e| Error::new("make a channel", e))?;
    let (input, _) = pipe::dead_ends()?;
    let mut program = Program::new(init);
    program.fds = vec![theirs.as_fd(), user.as_fd()];
    program.fds.extend(mounts.iter().map(Mount::root));
    program.stdio = [Some(input.as_fd()), Some(log), Some(log)];
    program.privileged = true;
    program.new_namespaces = Program::CONTAINED;
    program.net = Some(network.ns());
    program.cgroups = cgroup.procs().collect();
    program.new_keyring = true;
    // Not the warden's own, which depends on how it was started.
    program.limits.push((Resource::Nofile, levee_policy::site::Limits::DESCRIPTORS));
    program.limits.extend(largest.map(|bytes| (Resource::Fsize, bytes)));
    // It, and all that it starts, before levee's own: a label may have many processes that are smaller than each of these.
    program.gives_way = true;
    Ok((program.start()?, ours))
}

/// Hands process 1 its steps.
fn hand(
    plan: &Plan,
    channel: &Channel,
    given: &[Given],
    images: usize,
) -> std::result::Result<(), levee_ipc::SendError> {
    for batch in Inside::batches(&plan.inside, BATCH) {
        channel.send(&ToInit::Steps(batch))?;
    }
    for (what, fds) in given {
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        channel.send_with(what, &fds)?;
    }
    channel.send(&ToInit::Build { images })
}

/// Its words as they may stand in a log.
fn readable(event: Event) -> Event {
    match event {
        Event::Failed(why) => Event::Failed(printable(&why)),
        Event::Refused(ticket, why) => Event::Refused(ticket, printable(&why)),
        Event::Service(place, Report { starts, told, trouble }) => {
            let told = told.map(|Told { done, reason }| Told { done, reason: printable(&reason) });
            let trouble = trouble.map(|(why, rests)| (printable(&why), rests));
            Event::Service(place, Report { starts, told, trouble })
        }
        event => event,
    }
}

/// Text from inside, for logs: printable characters, at most [`REASON_MAX`](super::proto::REASON_MAX).
fn printable(text: &str) -> String {
    text.chars().take(super::proto::REASON_MAX).filter(|c| !c.is_control()).collect()
}
