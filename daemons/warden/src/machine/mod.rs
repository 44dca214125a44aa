//! Machines: the other form of a compartment, with a kernel of its own.
//!
//! A label's machine is a small virtual machine. QEMU is the one program of a compartment on the host, with its namespaces,
//! uid, filter and limits, and has descriptors only: a TAP device, the images of its disks, a socket for each port. In the
//! machine, process 1 (levee-init) builds a compartment as the warden does on a host, with the same plan.
//!
//! | file | idea |
//! |---|---|
//! | [`plan`](Plan) | every step of its start, and its command line, in order |
//! | `qemu` | that command line |
//! | [`image`] | what it boots |
//! | [`proto`] | what the warden and its process 1 say to each other |
//! | [`guest`] | process 1 of the machine |
//! | `wire` | its network: a TAP device, and the way from there to the vault's TUN device |
//!
//! The host's kernel mounts no file system that a machine has written, and shares no page with it but read-only images.

pub mod guest;
pub mod image;
mod plan;
pub mod proto;
mod qemu;
mod wire;

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use levee_ipc::{Full, Stream};
use levee_policy::site::Processor;
use levee_sys::clock::counter_khz;
use levee_sys::{Error, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::compartment::proto::{Profile, Start};
use crate::compartment::{Compartment, Event as Inner, Network, SERVICE_UID, Store};
use proto::{FromGuest, IN_PORT, OUT_PORT, REASON_MAX, ToGuest, Whole};
use qemu::Descriptor;

pub use plan::{Plan, Spec};
pub use qemu::{Accelerator, PROGRAM};

/// How long a machine may take from its beginning until its services can be reached. With an emulated processor on a busy
/// host it takes ten seconds and more.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes of steps that go in one message, well below what a message may have.
const BATCH: usize = levee_ipc::MAX_STREAMED / 2;

/// Most messages taken from the machine in one turn.
const TURN: usize = 64;

/// QEMU's number among the programs of its compartment.
const QEMU: u64 = 1;

/// The rate of the processor's time-stamp counter, measured once: nothing in a machine without hardware support can.
static COUNTER: OnceLock<Option<u32>> = OnceLock::new();

/// How the processors of a site's machines are made. The first time it takes a tenth of a second where they are emulated.
pub fn accelerator(processor: Processor) -> Accelerator {
    match processor {
        Processor::Kvm => Accelerator::Kvm,
        Processor::Emulated => {
            let measured = COUNTER.get_or_init(|| counter_khz(Duration::from_millis(100)));
            Accelerator::Tcg { counter_khz: *measured }
        }
    }
}

/// A running machine. Dropping it ends it at once.
#[derive(Debug)]
pub struct Machine {
    compartment: Compartment,
    stream: Stream<Arc<OwnedFd>>,
    /// Until QEMU has them: what it is started with.
    waiting: Option<(Start, Vec<OwnedFd>)>,
    /// Until when its services must be there; `None` once they are.
    booting: Option<Instant>,
    /// Until it has booted: what it is to be.
    whole: Option<Box<Whole>>,
    /// Nobody is at the other end of its port.
    hung_up: bool,
    /// How it has ended, if it has.
    over: Option<String>,
    services: usize,
    documents: Documents,
}

/// The host's ends of the ports for documents.
#[derive(Debug, Default)]
pub struct Documents {
    /// The label's own come out here.
    pub out: Option<OwnedFd>,
    /// Those of dominated labels go in here.
    pub below: Option<OwnedFd>,
}

/// What happened inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Everything is built: services wait for their first connections.
    Built,
    /// It could not be built, and why; nothing runs, and nothing will.
    Failed(String),
    /// A first connection has started the service at this place.
    Started(u16),
    /// A service that was started does not start, or has ended.
    Ended {
        /// Its place.
        service: u16,
        /// How.
        how: String,
        /// Whether well.
        well: bool,
    },
    /// The sockets that a cut was for are destroyed; how many there were, `None` if that failed.
    Cut(u64, Option<u32>),
    /// A service has written a line.
    Said(u16, String),
}

impl Machine {
    /// Makes the machine's wire in `network`, opens its disks, and begins the compartment that it runs in, with `init`
    /// (levee-init) as process 1 and `log` as its standard error and QEMU's; [`Event::Built`] or [`Event::Failed`] says what becomes of it.
    ///
    /// # Errors
    /// The step that failed; what had been made is undone, but for what is in `network`.
    pub fn begin(plan: &Plan, network: &Network, init: &Path, log: BorrowedFd<'_>) -> Result<Self> {
        let closed = |e: std::io::Error| Error::new("open a machine's log", e);
        let said = log.try_clone_to_owned().map_err(closed)?;
        let tap = wire::make(network, &plan.whole.wire)?;
        let port = || port(network);
        let (ours, theirs) = port()?;
        let (out, out_theirs) = port()?;
        let (below, below_theirs) =
            if plan.below.is_some() { port().map(|(a, b)| (Some(a), Some(b)))? } else { (None, None) };
        let mut own = Some(Store::disk(&plan.own)?);
        let programs = File::open(&plan.programs);
        let mut programs = Some(programs.map_err(|e| Error::new("open the programs of a machine", e))?);
        let mut copies = plan.below.as_deref().map(Store::disk).transpose()?;
        let (mut tap, mut control, mut out_theirs, mut below_theirs) =
            (Some(tap), Some(theirs), Some(out_theirs), below_theirs);
        let given = plan.hardware.descriptors().into_iter().map(|what| match what {
            Descriptor::Tap => tap.take(),
            Descriptor::Port(OUT_PORT) => out_theirs.take(),
            Descriptor::Port(IN_PORT) => below_theirs.take(),
            Descriptor::Port(_) => control.take(),
            Descriptor::Own => own.take().map(File::into),
            Descriptor::Programs => programs.take().map(File::into),
            Descriptor::Below => copies.take().map(File::into),
        });
        let given: Option<Vec<OwnedFd>> = given.collect();
        let mut given =
            given.ok_or_else(|| Error::invalid("start a machine", "it is to have a descriptor twice"))?;
        // Standard output and error before them.
        let out_too = said.try_clone().map_err(closed)?;
        given.splice(0..0, [out_too, said]);
        let compartment = Compartment::begin(&plan.host, network, init, log)
            .map_err(|e| Error::invalid("start a machine", e.to_string()))?;
        let start = Start {
            ticket: QEMU,
            program: PROGRAM.into(),
            argv: plan.hardware.arguments(),
            env: Vec::new(),
            uid: SERVICE_UID,
            input: false,
            terminal: false,
            filter: Profile::Machine,
        };
        let this = Self {
            compartment,
            stream: Stream::new(Arc::new(ours)),
            waiting: Some((start, given)),
            booting: Some(Instant::now() + PATIENCE),
            whole: Some(Box::new(plan.whole.clone())),
            hung_up: false,
            over: None,
            services: plan.whole.services.len(),
            documents: Documents { out: Some(out), below },
        };
        this.hand(plan).map_err(|e| Error::new("hand a machine its steps", e))?;
        Ok(this)
    }

    /// Everything it is to do waits in its port until it reads.
    fn hand(&self, plan: &Plan) -> std::io::Result<()> {
        let mut batch = Vec::new();
        let mut room = BATCH;
        for step in &plan.inside {
            if step.size() > room {
                self.tell(&ToGuest::Steps(std::mem::take(&mut batch)))?;
                room = BATCH;
            }
            room = room.saturating_sub(step.size());
            batch.push(step.clone());
        }
        self.tell(&ToGuest::Steps(batch))
    }

    /// The rest, with the time of day as it is once the machine has booted.
    fn begin_within(&mut self) -> Result<()> {
        let Some(mut whole) = self.whole.take() else {
            return Err(Error::invalid("begin a machine", "it says that it has booted, again"));
        };
        whole.time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.tell(&ToGuest::Begin(whole)).map_err(|e| Error::new("tell a machine what it is to be", e))
    }

    fn tell(&self, message: &ToGuest) -> std::io::Result<()> {
        self.stream.send(message, Full::Fails)
    }

    /// Whether it is still starting.
    pub fn is_building(&self) -> bool {
        self.booting.is_some()
    }

    /// The compartment that it runs in.
    pub fn compartment(&self) -> &Compartment {
        &self.compartment
    }

    /// Readable when process 1 of the machine has said something; none once nothing more can come.
    pub fn port(&self) -> Option<&Arc<OwnedFd>> {
        (!self.hung_up && self.over.is_none()).then(|| self.stream.descriptor())
    }

    /// Whether [`Machine::events`] has more to say than it said in its turn.
    pub fn has_more(&self) -> bool {
        self.port().is_some() && self.stream.has_more()
    }

    /// The host's ends of the ports for documents.
    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    /// Has the sockets of a session's inner address destroyed; [`Event::Cut`] says that it is done.
    ///
    /// # Errors
    /// It does not listen any more: end it.
    pub fn cut(&self, ticket: u64, address: IpAddr) -> Result<()> {
        self.tell(&ToGuest::Cut { ticket, address }).map_err(|e| Error::new("tell a machine what to cut", e))
    }

    /// What has happened inside since the last time.
    ///
    /// # Errors
    /// It has ended, or process 1 said what it may not say: then stop it.
    pub fn events(&mut self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        for event in self.compartment.events()? {
            match event {
                Inner::Built => self.run()?,
                Inner::Started(_) => {}
                Inner::Failed(reason) => events.push(Event::Failed(reason)),
                Inner::Refused(_, reason) => events.push(Event::Failed(format!("start {PROGRAM}: {reason}"))),
                Inner::Exited(_, status) => self.over = Some(format!("it ended with status {status}")),
            }
        }
        for _ in 0..TURN {
            match self.stream.receive::<FromGuest>() {
                Ok(Some(FromGuest::Booted)) => self.begin_within()?,
                Ok(Some(said)) => events.push(self.judge(said)?),
                Ok(None) => break,
                // QEMU has ended; how, its compartment tells.
                Err(e) if is_end(&e) => {
                    self.hung_up = true;
                    break;
                }
                Err(e) => {
                    self.over = Some(e.to_string());
                    break;
                }
            }
        }
        if let Some(how) = &self.over {
            let failed = events.iter().any(|event| matches!(event, Event::Failed(_)));
            if self.booting.take().is_some() && !failed {
                events.push(Event::Failed(format!("boot the machine: {how}")));
            }
            // What came before the end is worth having; the end shows again next time.
            if events.is_empty() {
                let label = self.compartment.label();
                return Err(Error::invalid(format!("listen to the machine at {label}"), how.clone()));
            }
        }
        if self.booting.is_some_and(|until| until <= Instant::now()) {
            self.booting = None;
            events.push(Event::Failed("boot the machine: it takes too long".into()));
        }
        Ok(events)
    }

    fn judge(&mut self, said: FromGuest) -> Result<Event> {
        let known = |service: u16| usize::from(service) < self.services;
        match (said, self.booting) {
            (FromGuest::Built, Some(_)) => {
                self.booting = None;
                Ok(Event::Built)
            }
            (FromGuest::Failed { reason }, Some(_)) => Ok(Event::Failed(printable(&reason))),
            (FromGuest::Started { service }, None) if known(service) => Ok(Event::Started(service)),
            (FromGuest::Ended { service, how, well }, None) if known(service) => {
                Ok(Event::Ended { service, how: printable(&how), well })
            }
            (FromGuest::Said { service, line }, None) if known(service) => {
                Ok(Event::Said(service, printable(&line)))
            }
            (FromGuest::Cut { ticket, sockets }, None) => Ok(Event::Cut(ticket, sockets)),
            (FromGuest::Failed { reason }, None) => {
                Err(Error::invalid("keep a machine running", printable(&reason)))
            }
            _ => Err(Error::invalid(
                format!("listen to the machine at {}", self.compartment.label()),
                "process 1 says what it may not say",
            )),
        }
    }

    /// Starts QEMU in its compartment. The descriptors are its alone from here on.
    fn run(&mut self) -> Result<()> {
        let Some((start, given)) = self.waiting.take() else { return Ok(()) };
        let fds: Vec<BorrowedFd<'_>> = given.iter().map(AsFd::as_fd).collect();
        self.compartment.run(start, &fds)
    }

    /// Asks it to end in good order: then it writes everything to its disks, and [`Machine::compartment`] shows its end.
    ///
    /// # Errors
    /// It does not listen any more: end it.
    pub fn ask_to_stop(&self) -> Result<()> {
        self.tell(&ToGuest::Stop).map_err(|e| Error::new("tell a machine to stop", e))
    }

    /// Ends it at once; [`Machine::stop`] then removes the rest.
    ///
    /// # Errors
    /// The kernel's.
    pub fn kill(&self) -> Result<()> {
        self.compartment.kill()
    }

    /// Ends it at once, and removes what the host had for it.
    ///
    /// # Errors
    /// If something could not be removed; what could has been.
    pub fn stop(self) -> Result<()> {
        self.compartment.stop()
    }
}

/// Whether the other end of a stream is gone.
fn is_end(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// A stream of bytes: our end, which does not block, and QEMU's. Both are of the compartment's network, not of the host's.
fn port(network: &Network) -> Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = network.make(|| socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None));
    pair?.map_err(|e| Error::new("make a machine's port", e))
}

/// Text from inside, for logs.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(REASON_MAX).collect()
}
