//! The warden of a server: the outer sockets, the four processes that every server has, and a vault and a
//! compartment for each label that somebody uses.

mod again;
mod keeping;
mod partitions;
mod postures;
mod renewing;
mod sharing;
mod standing;
mod starting;
mod unaccepted;
mod vaults;

use self::keeping::{Keeping, Kept};
use crate::channels::Way;
use crate::framed::Framed;
use crate::held::Held;
use crate::key::Key;
use crate::label::RunningLabel;
use crate::label::ending::Endings;
use crate::layer::{self, Layer};
use crate::logs::{LastWords, Logs, own_logs};
use crate::making::Makers;
use crate::memfile::sealed;
use crate::networks::{Attached, Networks};
use crate::options::Options;
use crate::partition::Partition;
use crate::placed::Places;
use crate::process::{Heard, Process, Start};
use crate::programs::Images;
use crate::service::Note;
use crate::supervisor::Processes;
use crate::tended::Tended;
use crate::uids::Uids;
use crate::upflow::Upflow;
use crate::waits::{Asked, Source, asked};
use crate::{Fatal, log, outer, selinux, stacks, state, upflow};
use levee_daemon::TURN;
use levee_ipc::signer::Use;
use levee_ipc::warden::sessiond::SessiondPart;
use levee_ipc::warden::{Counted, LabelEvent, Place, Role, SessiondRequest, WhatRuns};
use levee_ipc::{Received, Secret};
use levee_policy::site::HostPpk;
use levee_policy::{HostName, LabelName, Site};
use levee_sys::signals::Signals;
use levee_sys::udp::{SteeringGroup, SteeringKey};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a label's vault and compartment stay when its last session has ended: long enough that a person who
/// changes level and comes back does not wait, short enough that nothing lingers.
const LINGER: Duration = Duration::from_secs(10);
/// How long labels may take to end when everything does.
const LAST_ENDINGS: Duration = Duration::from_secs(20);

use standing::STANDING;

/// A running server.
#[derive(Debug)]
pub struct Server {
    options: Options,
    passphrase: Option<Secret>,
    _lock: state::Lock,
    site: Site,
    site_text: String,
    uids: Uids,
    /// The keys that the processes have.
    enrolled: renewing::Enrolled,
    renewal: renewing::Renewal,
    /// Everything was at work.
    is_up: bool,
    tunnels: Vec<SteeringGroup>,
    /// Which slot an SPI names.
    steering: SteeringKey,
    ike: Vec<(SocketAddr, OwnedFd)>,
    /// Of the second tunnel, where the site has one.
    layer: Option<Layer>,
    trusted_path: OwnedFd,
    operators: OwnedFd,
    processes: Processes,
    labels: Tended<LabelName, RunningLabel>,
    /// Of labels that run for the first time.
    makers: Makers,
    images: Images,
    upflow: Upflow,
    /// Labels whose gate has ended before their stacks: until when these may end by themselves.
    ending: BTreeMap<LabelName, Instant>,
    networks: Networks,
    /// Of levee's own standing processes.
    logs: Logs,
    /// Of labels that have ended.
    last_words: Vec<LastWords>,
    /// What has ended, and is started again.
    keeping: Keeping,
    /// Why the last run ended by itself, if it did.
    last_run: Option<String>,
    /// Labels whose machines are ending.
    ending_labels: Endings,
    /// Labels that somebody waits for and that have not begun yet, since something is in the way.
    awaited: BTreeMap<LabelName, Held>,
    /// Second stages of upflow that are killed; the next one begins once they are gone.
    leaving: BTreeMap<LabelName, Process>,
    partitions: Vec<Partition>,
    /// The channels between them.
    ways: Vec<Way>,
    /// Of partitions' files.
    partition_makers: Makers,
    framed: Framed,
    postures: postures::Postures,
    unaccepted: unaccepted::Unaccepted,
}

/// The second tunnel, at these addresses, where the site has one. Those of the tunnel and of IKE are others then.
fn second_tunnel(
    site: &Site,
    uid: u32,
    own: &[SocketAddr],
    [tunnel, ike]: [&mut Vec<SocketAddr>; 2],
) -> Result<Option<Layer>, Fatal> {
    if !site.vault().has_second_tunnel() {
        return Ok(None);
    }
    if site.vault().is_layered() {
        // Nothing from outside reaches keyer and vaults, and nothing that they send leaves, but through the second tunnel.
        tunnel.clear();
        ike.clear();
    }
    let within = outer::within(site.server().tunnel_port());
    tunnel.push(within);
    let made = match (site.gateway(), own.first()) {
        (Some(gateway), Some(own)) => {
            layer::behind(uid, *own, SocketAddr::new(gateway.inside(), own.port()), within)
        }
        _ => layer::server(uid, own, within),
    };
    made.map(Some).map_err(|e| Fatal::new("open the second tunnel", e))
}

impl Server {
    /// Makes the outer sockets and starts the standing processes. Returns once all of them are at work.
    ///
    /// # Errors
    /// What could not be made or started, and why; then nothing of it is left.
    pub fn start(mut options: Options, passphrase: Option<Secret>) -> Result<Self, Fatal> {
        let (site_text, site) = state::site(&options.config)?;
        selinux::check(&site)?;
        // Before anything is started: the processors on which that may run are inherited.
        options.places = Places::begin(&site)?;
        let lock = state::prepare(&options, &site_text)?;
        let uids = Uids::claim_on_this_host(site.all_slots())?;
        let logs = own_logs(&uids, &options)?;
        let at = |port: u16| site.server().addresses().iter().map(move |a| SocketAddr::new(*a, port));
        let fault = |e| Fatal::new("open the tunnel", e);
        let steering = SteeringKey::random().map_err(fault)?;
        let mut addresses: Vec<_> = at(site.server().tunnel_port()).collect();
        let mut ike_addresses: Vec<_> = at(site.server().ike_port()).collect();
        let all: Vec<_> = at(site.server().layer_port()).collect();
        let layer =
            second_tunnel(&site, uids.of(Role::Layer, 0), &all, [&mut addresses, &mut ike_addresses])?;
        let tunnels = outer::tunnels(&addresses, site.server().slots(), &steering).map_err(fault)?;
        let ike = outer::ike(ike_addresses.into_iter()).map_err(|e| Fatal::new("open IKE", e))?;
        let none = || Fatal::new("open the trusted path", "the site file gives the server no address");
        let first = at(site.server().trusted_path_port()).next().ok_or_else(none)?;
        let trusted_path = outer::trusted_path(first).map_err(|e| Fatal::new("open the trusted path", e))?;
        let operators = outer::local(&options.run.join(state::CONTROL))
            .map_err(|e| Fatal::new("open the operators' socket", e))?;
        let networks = Networks::attach(&site, &site_text, &options)
            .map_err(|e| Fatal::new("give labels, partitions and channels their networks", e))?;
        let mut images = Images::new(&site_text, &options.programs)
            .map_err(|e| Fatal::new("keep the services' programs in memory", e))?;
        // Long before the first person has signed on.
        let mut processes = Processes::new()?;
        images.begin(&mut processes.waits)?;
        let (partitions, ways) = (Partition::all(&site)?, Way::all(&site)?);
        let mut server = Self {
            // Before anybody has them: what changes from here on is seen.
            enrolled: renewing::Enrolled::read(&options.state),
            last_run: state::last_run(&options.state),
            options,
            passphrase,
            _lock: lock,
            postures: postures::Postures::new(&site),
            site,
            site_text,
            uids,
            renewal: renewing::Renewal::default(),
            is_up: false,
            tunnels,
            steering,
            ike,
            layer,
            trusted_path,
            operators,
            processes,
            labels: Tended::default(),
            makers: Makers::default(),
            images,
            upflow: Upflow::default(),
            ending: BTreeMap::new(),
            networks,
            logs,
            last_words: Vec::new(),
            keeping: Keeping::default(),
            ending_labels: Endings::default(),
            awaited: BTreeMap::new(),
            leaving: BTreeMap::new(),
            partitions,
            ways,
            partition_makers: Makers::default(),
            framed: Framed::default(),
            unaccepted: unaccepted::Unaccepted::new(),
        };
        if let Err(e) = server.start_all() {
            server.stop();
            return Err(e);
        }
        Ok(server)
    }

    /// Runs until `stop` says so or something fails for good.
    ///
    /// # Errors
    /// What failed.
    pub fn run(&mut self, signals: &Signals, ready: impl FnOnce()) -> Result<(), Fatal> {
        let mut ready = Some(ready);
        let since = Instant::now();
        let signal = self.processes.waits.watch(signals, Source::Signal);
        let _signal = signal.map_err(|e| Fatal::new("wait for signals", e))?;
        loop {
            // Without the services' programs no label could start.
            if ready.is_some()
                && self.processes.are_ready(&self.standing(), since)?
                && !self.images.is_making()
            {
                ready.take().into_iter().for_each(|ready| ready());
                self.is_up = true;
                self.tell_last_run();
                self.tell_rotations();
            }
            self.see_to_loggers()?;
            let limit = self.longest_wait();
            let turn = self.processes.waits.wait(Some(limit)).map_err(|e| Fatal::new("wait", e))?;
            for (source, _) in turn {
                if self.handle(source, signals)?.stop {
                    return Ok(());
                }
            }
            self.see_to_makers();
            self.see_to_images(ready.is_some())?;
            self.see_to_upflow();
            self.see_to_endings();
            self.see_to_held();
            self.see_to_leaving();
            if ready.is_none() {
                self.see_to_partitions();
            }
            self.see_to_stacks();
            self.see_to_rests()?;
            self.see_to_trial()?;
            self.see_to_labels();
            self.see_to_postures();
            self.see_to_frames();
            self.see_to_unaccepted();
        }
    }

    /// The directory of what outlives a run.
    pub fn state(&self) -> &std::path::Path {
        &self.options.state
    }

    /// Ends everything: sessions first by their daemons, then compartments, then daemons.
    pub fn stop(mut self) {
        // It writes its last checkpoint; the others hold nothing that a kill could lose.
        let sessiond = self.processes.remove(&Key::of(Role::Sessiond));
        sessiond.into_iter().for_each(|sessiond| sessiond.end(Duration::from_secs(2)));
        self.makers.stop();
        self.partition_makers.stop();
        self.images.stop();
        self.renewal.stop();
        self.partitions.iter_mut().for_each(|partition| partition.stop("the server ends"));
        let last_words = std::mem::take(&mut self.partitions).into_iter().filter_map(Partition::finish);
        self.last_words.extend(last_words);
        for name in self.labels.keys().cloned().collect::<Vec<_>>() {
            self.end_label(&name);
        }
        // What nothing can kill ends with the host, if not before.
        let until = Instant::now() + LAST_ENDINGS;
        while !self.ending_labels.is_empty() && Instant::now() < until {
            self.ended_labels();
            std::thread::sleep(Duration::from_millis(10));
        }
        std::mem::take(&mut self.upflow).stop();
        self.networks.detach();
        self.processes.end();
        self.last_words.into_iter().for_each(LastWords::wait);
        self.logs.finish().into_iter().for_each(LastWords::wait);
    }

    /// How long nothing is to be done if nothing happens.
    fn longest_wait(&self) -> Duration {
        let due = self.labels.is_unsettled()
            || self.logs.is_resting()
            || self.keeping.is_busy()
            || self.upflow.is_finishing()
            || self.partitions.iter().any(Partition::is_unsettled)
            || !self.last_words.is_empty();
        Duration::from_millis(match () {
            () if self.upflow.is_opening() || self.labels.is_changed() => 0,
            () if !self.ending.is_empty() || !self.leaving.is_empty() => 100,
            () if !self.ending_labels.is_empty() || self.awaited.values().any(Held::is_awaited) => 20,
            () if self.postures.unkept.is_some() => 20,
            () if self.partitions.iter().any(Partition::is_ending) => 20,
            () if due => 500,
            () => 5_000,
        })
    }

    fn handle(&mut self, source: Source, signals: &Signals) -> Result<Asked, Fatal> {
        match source {
            Source::Signal => {
                let asked = asked(signals).map_err(|e| Fatal::new("read a signal", e))?;
                if asked.reload && !asked.stop {
                    self.reload()?;
                }
                return Ok(asked);
            }
            Source::Said(key) => self.said(&key)?,
            Source::Ended(key) => self.ended(&key)?,
            Source::Inside(label) => self.hear_compartment(&label),
            Source::CompartmentEnded(label) => self.compartment_ended(&label),
            // To be seen to at the end of the turn.
            Source::LabelsLogger(label) => drop(self.labels.get_mut(&label)),
            Source::Partition(at) => self.hear_partition(at),
            // Seen to with every turn.
            Source::Made | Source::OwnLogger => {}
        }
        Ok(Asked::default())
    }

    fn said(&mut self, key: &Key) -> Result<(), Fatal> {
        // What it says beyond that it says in the next turn.
        for _ in 0..TURN {
            let Some(Received { message, .. }) = self.processes.hear(key) else { break };
            match message {
                Heard::Ready => match (key.role, &key.label) {
                    (Role::Signer, _) => self.signer_ready()?,
                    (Role::Vault, Some(label)) => self.vault_ready(label),
                    (Role::Mediator, Some(label)) => self.tell_if_up(label),
                    _ => {}
                },
                Heard::Unusable(why) => return self.unusable(why),
                Heard::Sessiond(request) => self.request(request),
                Heard::Frames(state) => self.framed.said(state),
                Heard::Channel(Counted(counted)) => self.channel_said(key, counted),
                Heard::Guard(said) => self.guard_said(key, said),
                Heard::Upflow(counters) => {
                    if let Some(label) = key.label.as_ref().and_then(|label| self.labels.get_mut(label)) {
                        label.upflow_did(key.role, counters);
                    }
                }
                Heard::Tpe(_) | Heard::Layer(_) => {
                    self.processes.condemn(key);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Nobody waits for a label any more, nor has a session there.
    fn release(&mut self, label: &LabelName) {
        self.awaited.remove(label);
        self.makers.release(label);
        self.keeping.release(label, Instant::now());
        if let Some(running) = self.labels.get_mut(label) {
            running.release();
        }
    }

    /// Tells sessiond what runs, and has it counted anew for the next time.
    fn tell_status(&mut self) {
        let status = self.labels.iter().map(|(name, running)| {
            let vault = self.processes.get(&Key::at(Role::Vault, name)).map_or(0, Process::pid);
            let mut status = running.status(name, vault);
            let networks = self.networks.at(name).map(Attached::counters);
            status.counters.extend(networks.into_iter().flatten());
            status
        });
        let stages =
            self.labels.iter().flat_map(|(name, label)| label.upflow().map(|(r, c)| (name.clone(), r, c)));
        let upflow = stages.collect();
        let mut steering = outer::dropped(&self.tunnels);
        steering.extend(self.networks.counters());
        let of = |one: &Partition| self.networks.at(one.log_name()).map(Attached::counters);
        steering.extend(self.partitions.iter().filter_map(of).flatten());
        steering.extend(self.ways.iter().flat_map(Way::counters));
        let alarms = self.alarms();
        let partitions = self.partitions.iter().map(Partition::status).collect();
        let frames = self.site.frames().map(|_| self.framed.state());
        let all = WhatRuns { running: status.collect(), upflow, partitions, steering, frames, alarms };
        // A file: no number of labels makes it too large, nor what any process says.
        match (sealed("what runs", &all.octets()), self.processes.get(&Key::of(Role::Sessiond))) {
            (Ok(file), Some(sessiond)) => drop(sessiond.tell(SessiondPart::Running, &[file.as_fd()])),
            (Err(e), _) => log!("what runs cannot be told: {e}"),
            _ => {}
        }
        self.networks.count(&mut self.processes.waits);
        // What they answer is told the next time: nobody is waited for.
        self.processes.iter().filter(|p| upflow::ROLES.contains(&p.key.role)).for_each(upflow::ask);
        self.processes.iter().filter(|p| Way::ROLES.contains(&p.key.role)).for_each(Way::ask);
    }

    fn request(&mut self, request: SessiondRequest) {
        match request {
            SessiondRequest::Need(label) => self.need(label),
            SessiondRequest::Release(label) => self.release(&label),
            SessiondRequest::Replace(role) => {
                if !self.standing().contains(&role) || [Role::Sessiond, Role::Frames].contains(&role) {
                    return log!("sessiond asks for another {}: it may not", role.program());
                }
                log!(
                    "sessiond says that {} does not read, or what it should not: killing it",
                    role.program()
                );
                self.processes.get(&Key::of(role)).into_iter().for_each(Process::kill);
            }
            SessiondRequest::Kill(label) => {
                if let Some(guard) = self.processes.get(&Key::at(Role::Guard, &label)) {
                    return guard.kill();
                }
                // It may be the mediator that does not answer.
                self.processes.get(&Key::at(Role::Mediator, &label)).into_iter().for_each(Process::kill);
                // Stacks have the keys, too, and may have outlived their gate.
                let stacks = stacks::running(&label, &self.processes).map(Process::kill).count() > 0;
                if !self.kill_vault(&label) && !stacks {
                    // Dead already, and its end may have been told to a sessiond that is gone; or dying with its label.
                    self.tell_died(&label);
                }
            }
            SessiondRequest::Cut { label, inner, ticket } => {
                // No compartment, no sockets.
                let none = Some(LabelEvent::Cut { ticket, sockets: Some(0) });
                let running = self.labels.get_mut(&label);
                let done = running.map_or(none, |running| running.cut(inner, ticket));
                done.into_iter().for_each(|done| self.tell_sessiond(done));
            }
            SessiondRequest::Execute { label, argv, ticket } => {
                let running = self.labels.get_mut(&label).ok_or_else(|| "this label does not run".to_owned());
                let told = match running.and_then(|running| running.execute(argv, ticket)) {
                    Ok(number) => LabelEvent::Executing { ticket, number },
                    Err(reason) => LabelEvent::Executed { ticket, result: Err(reason) },
                };
                self.tell_sessiond(told);
            }
            SessiondRequest::Abandon { label, ticket } => {
                let running = self.labels.get_mut(&label);
                running.into_iter().for_each(|running| running.abandon(ticket, Instant::now()));
            }
            SessiondRequest::Partition { name, order, ticket } => self.order_partition(&name, order, ticket),
            SessiondRequest::Postures { in_force, ticket } => self.take_postures(in_force, ticket),
            SessiondRequest::Compartments => self.tell_status(),
        }
    }

    fn not_started(&mut self, name: &LabelName, reason: &str) {
        log!("{name} does not start: {reason}");
        self.awaited.remove(name);
        self.end_label(name);
        // Who asks again and again is refused with the same reason for a while.
        self.keeping.ended(Kept::Start(name.clone()), reason, Instant::now());
        self.note_compartment(name, false, reason);
        self.tell_sessiond(LabelEvent::Failed { label: name.clone(), reason: reason.to_owned() });
    }

    fn note_compartment(&self, name: &LabelName, done: bool, reason: &str) {
        self.note(Some(name), "compartment", done, reason);
    }

    /// Has it in the audit log.
    fn note(
        &self,
        label: Option<&LabelName>,
        object: impl Into<String>,
        done: bool,
        reason: impl Into<String>,
    ) {
        let (label, object, reason) = (label.cloned(), object.into(), reason.into());
        self.tell_sessiond(LabelEvent::Note { label, object, done, reason });
    }

    fn hear_compartment(&mut self, name: &LabelName) {
        let heard = self.labels.get_mut(name).and_then(RunningLabel::hear);
        self.tell_cuts(name);
        match heard {
            Some(Ok(())) => {
                self.keeping.began(Kept::Start(name.clone()), Instant::now());
                self.keeping.began(Kept::Compartment(name.clone()), Instant::now());
                self.note_compartment(name, true, "the first session at this label");
                self.tell_if_up(name);
            }
            // One that has run before has sessions, which wait for it; any other is refused to who asked for it.
            Some(Err(reason)) if self.keeping.has_run(&Kept::Compartment(name.clone())) => {
                self.compartment_again(name, &reason);
            }
            Some(Err(reason)) => self.not_started(name, &reason),
            None => {}
        }
    }

    /// What has been cut of a label since the last time.
    fn tell_cuts(&mut self, name: &LabelName) {
        let cuts = self.labels.get_mut(name).map(RunningLabel::cuts_done);
        cuts.unwrap_or_default().into_iter().for_each(|done| self.tell_sessiond(done));
    }

    /// Sees to the labels of which something has changed, and from time to time to those that time alone changes.
    fn see_to_labels(&mut self) {
        let now = Instant::now();
        for name in self.labels.due(now) {
            self.see_to(&name, now);
            let unsettled = self.labels.get(&name).is_some_and(RunningLabel::is_unsettled);
            self.labels.seen(&name, unsettled);
            if self.labels.get(&name).is_some_and(RunningLabel::has_more_to_cut) {
                self.labels.again(&name);
            }
        }
    }

    fn see_to(&mut self, name: &LabelName, now: Instant) {
        // A compartment that takes too long says nothing: it must be asked. So does a machine that is to cut.
        if self.labels.get(name).is_some_and(RunningLabel::is_building) {
            self.hear_compartment(name);
        }
        let Some(label) = self.labels.get_mut(name) else { return };
        label.see_to_cuts();
        label.go_on_cutting();
        label.see_to_left();
        label.logs.see_to();
        let notes = label.notes();
        let watched = label.watch(name, &mut self.processes.waits);
        let executed = label.executed(now);
        let is_over = label.idle_for() > Some(LINGER);
        for Note { object, done, reason } in notes {
            self.note(Some(name), object, done, reason);
        }
        self.tell_cuts(name);
        for (ticket, result) in executed {
            self.tell_sessiond(LabelEvent::Executed { ticket, result });
        }
        if let Err(e) = watched {
            return self.compartment_again(name, &format!("it cannot be waited for: {e}"));
        }
        if is_over {
            self.end_idle(name);
        }
    }

    /// Ends a label that nobody uses.
    fn end_idle(&mut self, name: &LabelName) {
        self.end_label(name);
        self.keeping.release(name, Instant::now());
        // So that nothing waits for an answer of workers that are gone, when the label runs again in other slots.
        self.tell_died(name);
        self.note_compartment(name, true, "stopped: no session is left");
    }

    /// A logger that has ended is started again, and those of labels that have ended are reaped.
    fn see_to_loggers(&mut self) -> Result<(), Fatal> {
        self.logs.see_to();
        let watched = self.logs.watch(&mut self.processes.waits, || Source::OwnLogger);
        watched.map_err(|e| Fatal::new("wait for levee's own logger", e))?;
        self.last_words.retain(|last_words| !last_words.are_over());
        Ok(())
    }

    fn tell_if_up(&mut self, name: &LabelName) {
        let is_built = |label: &RunningLabel| {
            let mediator = self.processes.get(&Key::at(Role::Mediator, name));
            !label.is_building() && (!label.is_mediated() || mediator.is_some_and(|process| process.ready))
        };
        if self.is_vault_ready(name) && self.labels.get(name).is_some_and(is_built) {
            self.tell_sessiond(LabelEvent::Up(name.clone()));
            self.begin_snapshots(name);
        }
    }

    /// Starts a label's mediator, where it has one.
    fn start_mediator(&mut self, name: &LabelName) -> Result<(), Fatal> {
        let Some(label) = self.labels.get(name) else { return Ok(()) };
        let started = label.start_mediator(&self.options, &self.uids)?;
        started.map_or(Ok(()), |process| self.admit(process))
    }

    /// Ends a label's vault, compartment and upflow. Nobody waits for that here: [`Server::see_to_endings`] goes on once they are gone.
    fn end_label(&mut self, name: &LabelName) {
        self.ending.remove(name);
        self.keeping.stopped(name);
        self.kill_vault(name);
        let others = [Role::Mediator, Role::Copy].map(|role| Key::at(role, name));
        let all = self.vault_processes(name).into_iter().chain(others);
        let processes = all.filter_map(|key| self.processes.remove(&key));
        let processes: Vec<Process> = processes.chain(self.leaving.remove(name)).collect();
        processes.iter().for_each(Process::kill);
        // Nobody writes to its store any more: what this sees then is what readers find until the label runs again.
        let snapshot = self.processes.remove(&Key::at(Role::Snapshot, name));
        let Some(label) = self.labels.remove(name) else {
            processes.iter().for_each(|process| process.wait(Duration::from_secs(5)));
            return self.upflow.finish(name, snapshot, &mut self.processes.waits);
        };
        for (group, slot) in self.tunnels.iter().flat_map(|g| label.slots.iter().map(move |s| (g, *s))) {
            drop(group.idle(slot));
        }
        self.postures.ends(name);
        if !label.parts() {
            label.kill();
        }
        self.ending_labels.add(name.clone(), label, processes, snapshot);
    }

    /// Tells sessiond that a label has died, once nothing of it runs.
    pub(crate) fn tell_died(&mut self, name: &LabelName) {
        if !self.ending_labels.tell_died(name) {
            self.tell_sessiond(LabelEvent::Died(name.clone()));
        }
    }

    /// Wires a started process to its partners and tells it to begin.
    fn admit(&mut self, process: Process) -> Result<(), Fatal> {
        let key = process.key.clone();
        if key.label.is_some() && !(key.role == Role::Vault && key.worker > 0) {
            self.keeping.began(Kept::Process(key.clone()), Instant::now());
        }
        let labels = &self.labels;
        let slot = |key: &Key| labels.get(key.label.as_ref()?)?.worker(key.worker).map(|(slot, _)| slot);
        self.processes.admit(process, Place::Server, slot)
    }

    fn tell_sessiond(&self, event: LabelEvent) {
        // One that does not read cannot be trusted to have cut what it should. A new one reads its store.
        self.processes.tell(Role::Sessiond, SessiondPart::Label(event));
    }
}
