//! A label that runs on a server: its network namespace and TUN device, its compartment, its services' listeners.

mod cutting;
pub mod ending;
mod execute;
mod launch;
mod own_kernel;
mod turning;
mod watching;

pub(crate) use launch::datagrams;
pub use own_kernel::boot;
pub(crate) use own_kernel::spec as machine_spec;

use crate::below::{self, Below};
use crate::compartment::proto::ToInit;
use crate::compartment::{
    Compartment, Contexts, Event, Files, Given, Interface, Network, Plan, Programs, Spec, Store,
};
use crate::leavings::Leavings;
use crate::logs::{LastWords, Logs};
use crate::machine::{self, DocumentPorts};
use crate::making::Image;
use crate::mediation::Mediation;
use crate::networks::Attached;
use crate::options::Options;
use crate::process::Process;
use crate::service::{Note, Service};
use crate::uids::Uids;
use crate::{Fatal, log, selinux};
use launch::{inner_addresses, served};
use levee_ipc::warden::{CompartmentStatus, IsolationForm, LabelEvent, Role, UpflowCounters};
use levee_policy::site::{Mode, Placed, Program, Protocol, VaultKind};
use levee_policy::{LabelName, Site};
use levee_sys::cgroup::Cgroup;
use levee_sys::tun::{self, Offload, Queue};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes that each scratch file system of a compartment may hold.
pub(crate) const SCRATCH: u64 = 16 << 20;

/// What a label needs to start.
#[derive(Debug)]
pub struct Resources<'a> {
    /// How the warden runs.
    pub options: &'a Options,
    /// The site.
    pub site: &'a Site,
    /// The warden's uids.
    pub uids: &'a Uids,
    /// The label's steering slots, one for each worker of its vault; at least one.
    pub slots: &'a [u16],
    /// The label's single-level networks, if it has any.
    pub attached: Option<&'a Attached>,
    /// The image of the site's programs.
    pub image: PathBuf,
    /// Which postures are in force; `None` where nobody has said so yet.
    pub in_force: Option<&'a [Placed]>,
}

impl Resources<'_> {
    fn slot(&self) -> Result<u16, Fatal> {
        self.slots.first().copied().ok_or_else(|| Fatal::new("start a label", "it has no slot"))
    }
}

/// A label that runs.
#[derive(Debug)]
pub struct RunningLabel {
    /// The first of `slots`.
    slot: u16,
    /// What its vault is, or was last; `None`: it has had none.
    pub vault: Option<VaultKind>,
    /// The steering slots, one for each worker of its vault.
    pub slots: Vec<u16>,
    /// Inner MTU in bytes.
    pub mtu: u16,
    network: Network,
    /// One for each slot.
    tuns: Vec<Queue>,
    /// The label's own, or that of its machine.
    compartment: Compartment,
    /// It is a machine with a kernel of its own, with these ports for documents.
    machine: Option<DocumentPorts>,
    /// What has become of services and was not told yet.
    notes: Vec<Note>,
    /// What has been cut and was not told yet.
    cut: Vec<LabelEvent>,
    /// What its compartment is to lose yet.
    cutting: Vec<cutting::Cut>,
    services: Vec<Service>,
    /// Services that are off, and why.
    off: turning::Off,
    /// One of them was on before, and process 1 has not said yet that it has ended.
    ends: bool,
    /// Until when what it has left must be gone, if any of that may be there.
    left: Option<Instant>,
    executing: Vec<execute::Executed>,
    /// Under which services run, as the host numbers it.
    service_uid: u32,
    mediation: Option<Mediation>,
    /// Its logger.
    pub logs: Logs,
    below: Below,
    /// Hosts on a single-level network use its services whether or not there is a session.
    kept: bool,
    /// What each stage of upflow said last.
    upflow: BTreeMap<Role, UpflowCounters>,
    since: Instant,
    idle: Option<Instant>,
    /// How often its vault was started.
    pub vault_starts: u32,
    leavings: Leavings,
    /// Its first stage of upflow has been begun.
    snapshots: bool,
    /// The last number given to a program inside.
    tickets: u64,
}

/// An image for copies has room for at most so many full stores, however many labels there are below.
const MOST_STORES: u64 = 8;

pub(crate) fn known(name: &LabelName, resources: &Resources<'_>) -> Result<levee_policy::Label, Fatal> {
    let unknown = || Fatal::new("start a label", format!("the site has no label {name}"));
    resources.site.label(name).ok_or_else(unknown)
}

/// The directory of the labels' images.
pub(crate) fn stores(resources: &Resources<'_>) -> PathBuf {
    resources.options.state.join("stores")
}

pub(crate) fn spec_with(
    name: &LabelName,
    label: &levee_policy::Label,
    below: &Below,
    resources: &Resources<'_>,
    contexts: Option<Contexts>,
) -> Result<Spec, Fatal> {
    let (site, slot) = (resources.site, resources.slot()?);
    let (own, copies) = paths(name, &stores(resources));
    let limits = site.limits();
    let names: Vec<_> = site.server().all_names().cloned().collect();
    Ok(Spec {
        label: name.clone(),
        // A site's name need not be its alone on this host; a block of uids is.
        cgroup: format!("levee/{}-{}/{}", site.name(), resources.uids.block(), slot),
        uid_base: resources.uids.compartment(slot),
        limits: levee_sys::cgroup::Limits {
            memory: limits.memory,
            processes: limits.processes.into(),
            cpu_percent: limits.cpu_percent,
        },
        processors: resources.options.places.of(name),
        hostname: site.name().to_string(),
        hosts: site.server().inner_addresses().iter().map(|address| (*address, names.clone())).collect(),
        files: Files::Store { own, below: below.is_any().then_some(copies) },
        pages: site.services_at(label).any(|service| *service.program() == Program::Nginx),
        scratch: SCRATCH,
        programs: Programs::Image(resources.image.clone()),
        needs: site.needs_at(label),
        contexts,
    })
}

impl RunningLabel {
    /// Makes, once no image is [`missing`], the namespace, its TUN device and listeners, then begins the compartment: [`RunningLabel::hear`] says when it
    /// is built. Nobody waits for that here, since every other label would wait with them.
    ///
    /// # Errors
    /// The step that failed; then nothing of it is left.
    pub fn start(name: &LabelName, resources: Resources<'_>) -> Result<Self, Fatal> {
        let (site, slot) = (resources.site, resources.slot()?);
        let label = known(name, &resources)?;
        let below = Below::of(&label, site, &stores(&resources));
        let contexts = selinux::contexts(site, &label)?;
        let sockets = contexts.as_ref().map(|contexts| contexts.processes.clone());
        let spec = spec_with(name, &label, &below, &resources, contexts)?;
        let step = |e: levee_sys::Error| Fatal::new(format!("start the compartment at {name}"), e);
        let network = resources.attached.map_or_else(Network::new, Attached::network);
        let network = network.map_err(step)?.in_context(sockets);
        let mtu = site.vault().inner_mtu(&label);
        let own_kernel = site.isolation().has_own_kernel(&label);
        let interface = Interface {
            name: "levee0".into(),
            mtu: mtu.into(),
            // Those of a machine are at its own end of its wire.
            addresses: if own_kernel { Vec::new() } else { inner_addresses(site) },
            routes: site.session_pools(),
        };
        let tuns = network
            .add(&interface, || queues(&interface.name, resources.slots.len(), !own_kernel))
            .map_err(step)?;
        if let Some(attached) = resources.attached {
            attached.forward().map_err(step)?;
        }
        let logs = Logs::start(Some(name), resources.uids.logger(Some(slot)), resources.options)?;
        let (mut grants, off) = turning::decided(site, &label, resources.in_force);
        let (services, given, mediation) =
            services(name, &label, &resources, &network, (&below, &mut grants), &logs)?;
        let init = resources.options.programs.join("levee-init");
        let log = logs.end("process-1", resources.uids.compartment(slot), false).map_err(step)?;
        let (compartment, machine) = if own_kernel {
            let spec = machine_spec(name, &label, &below, &resources, spec)?;
            let plan = machine::MachinePlan::new(spec)
                .ok_or_else(|| Fatal::new("start a machine", "it has no store"))?;
            let logs = given.into_iter().flat_map(|(_, fds)| fds).collect();
            let begun = machine::begin(&plan, &network, &init, log.as_fd(), logs).map_err(step)?;
            (begun.0, Some(begun.1))
        } else {
            let compartment = Compartment::begin(&Plan::new(&spec), &network, &init, log.as_fd(), given);
            (compartment.map_err(step)?, None)
        };
        let mut running = Self {
            slot,
            vault: None,
            slots: resources.slots.to_vec(),
            mtu,
            network,
            tuns,
            compartment,
            machine,
            notes: Vec::new(),
            cut: Vec::new(),
            cutting: Vec::new(),
            services,
            executing: Vec::new(),
            service_uid: resources.uids.service(slot),
            mediation,
            logs,
            below,
            kept: resources.attached.is_some_and(Attached::serves),
            upflow: BTreeMap::new(),
            since: Instant::now(),
            idle: None,
            vault_starts: 0,
            leavings: Leavings::default(),
            snapshots: false,
            tickets: 0,
            off: turning::Off::new(),
            ends: false,
            left: None,
        };
        running.turn((grants, off)).map_err(step)?;
        Ok(running)
    }

    /// The first of its steering slots, which also names its uids.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// The steering slot of this worker, and its TUN queue.
    pub fn worker(&self, worker: u16) -> Option<(u16, BorrowedFd<'_>)> {
        let place = usize::from(worker);
        Some((*self.slots.get(place)?, self.tuns.get(place)?.as_fd()))
    }

    /// Before its vault starts: what that is. What two stacks are to agree about is one packet, and no super-segment. Queues that
    /// no worker reads are given no packet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin_vault(&mut self, kind: VaultKind) -> std::io::Result<()> {
        let most = if kind == VaultKind::Agreeing { Offload::None } else { Offload::TcpAndUdp };
        let workers = kind.workers().into();
        (self.vault, self.vault_starts) = (Some(kind), self.vault_starts + 1);
        tun::share(&mut self.tuns, workers, most)
    }

    /// The number of every worker of its vault.
    pub fn workers(&self) -> impl Iterator<Item = u16> + use<> {
        (0..).take(self.vault.as_ref().map_or(self.slots.len(), |kind| kind.workers().into()))
    }

    /// The label's own store, where the host has it.
    pub fn own(&self) -> Option<&Store> {
        self.images().first()
    }

    fn images(&self) -> &[Store] {
        if self.machine.is_some() { &[] } else { self.compartment.images() }
    }

    /// The stream by which a stage of upflow speaks with its half within the label's machine.
    pub fn documents(&self, role: Role) -> Option<BorrowedFd<'_>> {
        let documents = self.machine.as_ref()?;
        let stream = if role == Role::Snapshot { &documents.out } else { &documents.below };
        stream.as_ref().map(AsFd::as_fd)
    }

    /// The image with the copies, where the host has it.
    pub fn copies(&self) -> Option<&Store> {
        self.images().get(1)
    }

    /// The labels whose documents it reads; `None` where there is none to copy.
    pub fn reads_below(&self) -> Option<&[LabelName]> {
        let any = self.copies().is_some() || self.documents(Role::Copy).is_some();
        any.then(|| self.below.names())
    }

    /// Whether it reads this other label's documents.
    pub fn reads(&self, other: &LabelName) -> bool {
        self.below.names().binary_search(other).is_ok()
    }

    /// Another label has run for the first time; whether this one reads it and did not know of it, so that its second
    /// stage of upflow must be given it.
    pub fn learns_of(&mut self, other: &levee_policy::Label, site: &Site) -> bool {
        self.below.learns_of(other, site)
    }

    /// Once: its first stage of upflow is to be begun.
    pub fn begins_snapshots(&mut self) -> bool {
        !std::mem::replace(&mut self.snapshots, true)
    }

    /// Whether it has a mediator.
    pub fn is_mediated(&self) -> bool {
        self.mediation.is_some()
    }

    /// Starts its mediator, if it has one.
    ///
    /// # Errors
    /// The step that failed, and why.
    pub fn start_mediator(&self, options: &Options, uids: &Uids) -> Result<Option<Process>, Fatal> {
        let Some(mediation) = &self.mediation else { return Ok(None) };
        let compartment = &self.compartment;
        let name = compartment.label();
        mediation.start(name, self.slot, (compartment, &self.network), &self.logs, options, uids).map(Some)
    }

    /// Its mediator rests: who connects to a mediated service is refused until it is started again.
    pub fn refuse_mediated(&self) {
        self.mediation.iter().for_each(Mediation::refuse);
    }

    /// Its mediator has ended: so do the connections that it had passed on.
    pub fn mediator_ended(&self) {
        if let Some(mediation) = &self.mediation {
            mediation.ended(self.network.ns());
        }
    }

    /// Takes what the compartment's first process has said. Once, whether the compartment has been built, or why not.
    pub fn hear(&mut self) -> Option<Result<(), String>> {
        let events = match self.compartment.events() {
            Ok(events) => events,
            // It is inside, and so not to be trusted: what it says must be right, or it is over.
            Err(e) => {
                log!("{e}");
                self.kill();
                return None;
            }
        };
        let mut built = None;
        for event in events {
            match event {
                Event::Built => built = Some(Ok(())),
                Event::Failed(reason) => return Some(Err(reason)),
                Event::Started(_) => {}
                Event::Turned(_) => self.turned(),
                Event::Refused(ticket, reason) => self.execution_ended(ticket, Err(reason)),
                Event::Exited(ticket, status) => self.execution_ended(ticket, Ok(status)),
                Event::Service(place, report) => {
                    let service = self.services.get_mut(usize::from(place));
                    self.notes.extend(service.and_then(|service| service.said(report, Instant::now())));
                }
                Event::Cut(ticket, sockets) => self.cut.push(LabelEvent::Cut { ticket, sockets }),
            }
        }
        built
    }

    /// Whether the compartment is still being built.
    pub fn is_building(&self) -> bool {
        self.compartment.is_building()
    }

    /// What has become of services that were started: each is told once, when it is clear.
    pub fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// What an operator is to know.
    pub fn alarms(&self, name: &LabelName) -> impl Iterator<Item = String> {
        let now = Instant::now();
        self.services.iter().filter_map(move |service| Some(format!("{name}: {}", service.alarm(now)?)))
    }

    /// Destroys the sockets of a session's inner address. What sessiond is told of it, if that is done at once; else [`RunningLabel::cuts_done`]
    /// says it.
    pub fn cut(&mut self, inner: IpAddr, ticket: u64) -> Option<LabelEvent> {
        if self.machine.is_some() { self.cut_within(inner, ticket) } else { self.begin_to_cut(inner, ticket) }
    }

    /// No session is left.
    pub fn release(&mut self) {
        if !self.kept {
            self.idle.get_or_insert_with(Instant::now);
        }
    }

    /// A session is there again.
    pub fn keep(&mut self) {
        self.idle = None;
    }

    /// For how long no session has been there.
    pub fn idle_for(&self) -> Option<Duration> {
        self.idle.filter(|_| self.executing.is_empty()).map(|since| since.elapsed())
    }

    /// Takes what a stage of upflow has done.
    pub fn upflow_did(&mut self, role: Role, counters: UpflowCounters) {
        self.upflow.insert(role, counters);
    }

    /// What each stage of upflow has done.
    pub fn upflow(&self) -> impl Iterator<Item = (Role, UpflowCounters)> {
        self.upflow.iter().map(|(role, counters)| (*role, *counters))
    }

    /// As operators see it.
    pub fn status(&self, name: &LabelName, vault: u32) -> CompartmentStatus {
        CompartmentStatus {
            label: name.clone(),
            form: match self.machine {
                None => IsolationForm::Compartment,
                Some(_) => IsolationForm::Machine,
            },
            slot: self.slot,
            init: self.init(),
            vault,
            age_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            services: self.services.iter().map(|s| (s.name().to_string(), s.starts())).collect(),
            off: self.off.iter().map(|(name, why)| (name.to_string(), why.clone())).collect(),
            vault_starts: self.vault_starts,
            counters: Vec::new(),
        }
    }

    /// Its network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Its process 1; 0 where none is known.
    pub fn init(&self) -> u32 {
        self.compartment.init()
    }

    /// The group of what runs in it.
    pub fn group(&self) -> Option<&Cgroup> {
        self.compartment.group()
    }

    /// Kills everything in the compartment.
    pub fn kill(&self) {
        // Its end shows on its pidfd; if it cannot be killed it has ended already.
        let _ = self.compartment.kill();
    }

    /// Ends the compartment and everything in it.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn stop(self) -> (Option<LastWords>, levee_sys::Result<()>) {
        let stopped = self.compartment.stop();
        (self.logs.finish(), stopped)
    }
}

/// A TUN device with so many queues, by which the kernel spreads flows: one that is received is answered by the queue
/// that wrote it, any other goes by its hash, so that a flow stays with one worker. What goes on to a machine's card goes one packet at
/// a time, and the kernel of the host would cut what is written together as the vault says: into 65,000 packets, of one octet each.
fn queues(name: &str, count: usize, vnet_header: bool) -> std::io::Result<Vec<Queue>> {
    let multi_queue = count > 1;
    let open = |number| tun::open(name, tun::Options { multi_queue, exclusive: number == 0, vnet_header });
    (0..count).map(open).collect()
}

/// The images that `name` needs and that are not there yet: its own, one for the copies of those below, and one for the
/// snapshot of its own where another label could read that.
/// Their directory is made.
///
/// # Errors
/// The site does not know the label, or the directory cannot be made.
pub fn missing(name: &LabelName, resources: &Resources<'_>) -> Result<Vec<Image>, Fatal> {
    let label = known(name, resources)?;
    let stores = stores(resources);
    let (own, copies) = paths(name, &stores);
    let bytes = resources.site.limits().store;
    let mut images = Vec::new();
    if !own.exists() {
        images.push((own, bytes));
    }
    if !copies.exists() {
        let below = Below::of(&label, resources.site, &stores);
        if below.is_any() {
            images.push((copies, bytes.saturating_mul(below.most().clamp(1, MOST_STORES))));
        }
    }
    let snapshot = below::snapshot(name, resources.options);
    if below::is_read(&label, resources.site) && !snapshot.exists() {
        images.push((snapshot, bytes.saturating_add(below::SNAPSHOT_BESIDES)));
    }
    if !images.is_empty() {
        std::fs::create_dir_all(&stores).map_err(|e| Fatal::new(format!("make {}", stores.display()), e))?;
    }
    Ok(images)
}

/// The images that `name` has open as long as it runs, once none is [`missing`].
pub fn images(name: &LabelName, resources: &Resources<'_>) -> Vec<PathBuf> {
    let (own, copies) = paths(name, &stores(resources));
    [own, copies].into_iter().filter(|image| image.exists()).collect()
}

/// Where a label's own image is, and that of the copies.
fn paths(name: &LabelName, stores: &Path) -> (PathBuf, PathBuf) {
    let file = name.file_name();
    (stores.join(format!("{file}{}", below::OWN)), stores.join(format!("{file}{}", below::COPIES)))
}

/// Services, what process 1 is given to start them, and their mediator.
type Serving = (Vec<Service>, Vec<Given>, Option<Mediation>);

/// The services that may start at a label, what process 1 is given to start them, and who mediates their connections.
fn services(
    name: &LabelName,
    label: &levee_policy::Label,
    resources: &Resources<'_>,
    network: &Network,
    (below, grants): (&Below, &mut turning::Grants),
    logs: &Logs,
) -> Result<Serving, Fatal> {
    let (site, slot) = (resources.site, resources.slot()?);
    let own_kernel = site.isolation().has_own_kernel(label);
    let step = |e: levee_sys::Error| Fatal::new(format!("start the compartment at {name}"), e);
    let (mut services, mut given) = (Vec::new(), Vec::new());
    let mut mediation = Mediation::of(site, label).map_err(step)?;
    for service in site.services_at(label) {
        let served = served(name, below, site, service);
        if let Some(mediation) = mediation.as_mut().filter(|_| service.mode().is_mediated()) {
            for address in &served.addresses {
                let listener = network.listen(*address).map_err(step)?;
                mediation.take(service.name(), service.mode(), *address, listener);
            }
            if matches!(service.mode(), Mode::Handoff(_)) {
                mediation.hand_off_to(served);
                continue;
            }
        }
        // To a relayed daemon comes nobody but the mediator.
        let listen = |address: &SocketAddr| match (service.protocol(), &mediation) {
            (Protocol::Tcp, Some(mediation)) if service.mode() == Mode::Relay => mediation.listen(*address),
            (Protocol::Tcp, _) => network.listen(*address),
            (Protocol::Udp, _) => datagrams(network, *address),
        };
        // A machine opens its own.
        let opens = !own_kernel && service.mode() != Mode::Itself;
        let addresses = served.addresses.iter().filter(|_| opens);
        let listeners: levee_sys::Result<Vec<OwnedFd>> = addresses.map(listen).collect();
        let log =
            logs.end(service.name().as_str(), resources.uids.service(slot), !own_kernel).map_err(step)?;
        // Process 1 starts it by this, or has it off.
        let grant = grants.remove(service.name());
        let off = grant.is_none();
        let fds = std::iter::once(log).chain(listeners.map_err(step)?).collect();
        services.push(Service::new(service.name().clone(), grant));
        given.push((ToInit::Service { served, off }, fds));
    }
    Ok((services, given, mediation))
}
