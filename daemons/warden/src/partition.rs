//! A partition: a compartment that is there without sessions. It is started again by the site's rule when it ends, and then is off. Its
//! interfaces, if the site gives it any, are up while it runs.

use crate::channels::{self, Way};
use crate::compartment::service::Launch;
use crate::compartment::{Compartment, Contexts, Event, Files, Network, Plan, Programs, Spec};
use crate::edges::{self, Edges, PARTITION};
use crate::held::Held;
use crate::label::SCRATCH;
use crate::leavings::Leavings;
use crate::logs::{LastWords, Logs};
use crate::making::Image;
use crate::networks::Attached;
use crate::options::Options;
use crate::pinned;
use crate::programs::Images;
use crate::rest::Rule;
use crate::rooting::Rooting;
use crate::uids::Uids;
use crate::waits::{Source, Waits};
use crate::{Fatal, log, selinux};
use levee_ipc::warden::sessiond::PartitionStatus;
use levee_policy::site::Restart;
use levee_policy::{LabelName, PartitionName, Site, site};
use levee_sys::cgroup::{Cgroup, Limits};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, io};

/// The number of the one program in it.
const TICKET: u64 = 1;

/// Operators who may wait for one's end.
const MOST_WAITING: usize = 4;

/// What a partition does.
#[derive(Debug)]
enum State {
    /// It waits for its files, or for the image of the programs.
    Waits,
    /// Its compartment is there.
    Runs(Box<Running>),
    /// What was in it has been killed, and can be long about its end: nobody waits for that. Then it is off for a reason, or starts again.
    Ends(Box<Running>, Option<String>),
    /// It is off, and why.
    Off(String),
}

#[derive(Debug)]
struct Running {
    compartment: Compartment,
    since: Instant,
    /// Kept for as long as the compartment is there.
    network: Network,
    leavings: Leavings,
}

/// A partition of the site.
#[derive(Debug)]
pub struct Partition {
    asked: site::Partition,
    /// Its label's name.
    pub label: LabelName,
    /// Its log's and its maker's name, which no label has.
    log_name: LabelName,
    /// Which block of uids is its own: none that a label can have.
    slot: u16,
    rule: Rule,
    /// Whether it has interfaces: the host's, or links.
    has_interfaces: bool,
    /// Whether something of an earlier run has its files open.
    held: Held,
    rooting: Rooting,
    state: State,
    logs: Option<Logs>,
    starts: u32,
    /// Operators who wait until it has ended.
    waiting: Vec<u64>,
}

/// What starting one takes.
#[derive(Debug)]
pub struct PartitionResources<'a> {
    /// How the warden runs.
    pub options: &'a Options,
    /// The site.
    pub site: &'a Site,
    /// The warden's uids.
    pub uids: &'a Uids,
    /// The image of the site's programs, or of its own root.
    pub image: PathBuf,
    /// Its own networks, if the site gives it any.
    pub attached: Option<&'a Attached>,
}

impl Partition {
    /// All of a site's, none of which runs.
    ///
    /// # Errors
    /// A label has no name, which a site that has been read has not.
    pub fn all(site: &Site) -> Result<Vec<Self>, Fatal> {
        // Behind the labels' slots; the site's check has left room.
        let slots = site.server().slots() + 1..;
        (site.partitions().iter().zip(slots))
            .map(|(asked, slot)| {
                let step = || format!("name the partition {}", asked.name());
                let label = site.label_name(asked.label());
                let label = label.ok_or_else(|| Fatal::new(step(), "its label has no name"))?;
                let log_name = edges::name(PARTITION, asked.name()).map_err(|e| Fatal::new(step(), e))?;
                let rule = Rule::new(asked.restart());
                Ok(Self {
                    asked: asked.clone(),
                    label,
                    has_interfaces: Edges::named(site, &log_name).is_some(),
                    log_name,
                    slot,
                    rule,
                    held: Held::default(),
                    rooting: Rooting::default(),
                    state: State::Waits,
                    logs: None,
                    starts: 0,
                    waiting: Vec::new(),
                })
            })
            .collect()
    }

    /// Its name.
    pub fn name(&self) -> &PartitionName {
        self.asked.name()
    }

    /// The group of what runs in it.
    pub fn group(&self) -> Option<&Cgroup> {
        match &self.state {
            State::Runs(running) | State::Ends(running, _) => running.compartment.group(),
            State::Waits | State::Off(_) => None,
        }
    }

    /// Its network, while it runs or is about to.
    pub fn network(&self) -> Option<&Network> {
        match &self.state {
            State::Runs(running) => Some(&running.network),
            State::Waits | State::Ends(..) | State::Off(_) => None,
        }
    }

    /// What its log and the maker of its files are called: no label's name has one slash.
    pub fn log_name(&self) -> &LabelName {
        &self.log_name
    }

    /// Whether it is to be started, once all that it needs is there.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waits)
    }

    /// Whether anything in it runs that has not been killed.
    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Runs(_))
    }

    /// Whether its program has been started.
    pub fn is_at_work(&self) -> bool {
        matches!(self.state, State::Runs(_)) && !self.is_building()
    }

    /// Whether what was in it is ending.
    pub fn is_ending(&self) -> bool {
        matches!(self.state, State::Ends(..))
    }

    /// The image of its own root, once it is there, if it is to have one. It is made where what the site names has changed, unless the makers
    /// have enough to do.
    ///
    /// # Errors
    /// It cannot be looked at, or made.
    pub fn root(
        &mut self,
        images: &Images,
        busy: bool,
        waits: &mut Waits,
    ) -> Option<Result<Option<PathBuf>, Fatal>> {
        Some(self.rooting.image(Path::new(self.asked.root()?), images, busy, waits))
    }

    /// Whether it is to wait, since something of an earlier run has its files open still.
    ///
    /// # Errors
    /// It has for too long.
    pub fn is_held(&mut self, options: &Options) -> Result<bool, Fatal> {
        let (_, path) = self.files(options);
        self.held.is_in_the_way(&[path], Instant::now())
    }

    /// Whether its compartment is being built: [`Partition::hear`] is to be asked.
    pub fn is_building(&self) -> bool {
        matches!(&self.state, State::Runs(running) if running.compartment.is_building())
    }

    /// The image of its files, where it is not there yet. It is its label's, too: under another label it begins anew.
    ///
    /// # Errors
    /// Its directory cannot be made.
    pub fn missing(&self, options: &Options) -> Result<Option<Image>, Fatal> {
        let (directory, path) = self.files(options);
        if path.exists() {
            return Ok(None);
        }
        std::fs::create_dir_all(&directory)
            .map_err(|e| Fatal::new(format!("make {}", directory.display()), e))?;
        Ok(Some((path, self.asked.disk())))
    }

    fn files(&self, options: &Options) -> (PathBuf, PathBuf) {
        let directory = options.state.join("partitions").join(self.label.file_name());
        let path = directory.join(format!("{}.img", self.name()));
        (directory, path)
    }

    fn spec(&self, resources: &PartitionResources<'_>, contexts: Option<Contexts>) -> Spec {
        let PartitionResources { options, site, uids, image, .. } = resources;
        Spec {
            label: self.label.clone(),
            cgroup: format!("levee/{}-{}/{}", site.name(), uids.block(), self.slot),
            uid_base: uids.compartment(self.slot),
            limits: Limits {
                memory: self.asked.memory(),
                processes: self.asked.processes().into(),
                cpu_percent: self.asked.cpu_percent(),
            },
            processors: options.places.of(&self.label),
            hostname: self.name().to_string(),
            hosts: Vec::new(),
            files: Files::Store { own: self.files(options).1, below: None },
            pages: false,
            scratch: SCRATCH,
            programs: match self.asked.root() {
                Some(_) => Programs::Root(image.clone()),
                None => Programs::Image(image.clone()),
            },
            needs: self.asked.needs().clone(),
            contexts,
        }
    }

    /// Begins its compartment; its program is started when that is built.
    ///
    /// # Errors
    /// The step that failed; then nothing of it is left.
    pub fn start(&mut self, resources: &PartitionResources<'_>) -> Result<(), Fatal> {
        let step = format!("start {self}");
        let fault = |e: &dyn std::fmt::Display| Fatal::new(&step, e);
        let PartitionResources { options, site, uids, attached, .. } = resources;
        let logs = match self.logs.take() {
            Some(logs) => logs,
            None => Logs::start(Some(&self.log_name), uids.logger(Some(self.slot)), options)?,
        };
        let logs = self.logs.insert(logs);
        let log = logs.end("process-1", uids.compartment(self.slot), false).map_err(|e| fault(&e))?;
        let init = options.programs.join("levee-init");
        let label = site.label(&self.label).ok_or_else(|| fault(&"the site does not have its label"))?;
        let contexts = selinux::contexts(site, &label)?;
        let sockets = contexts.as_ref().map(|contexts| contexts.processes.clone());
        let network = match attached {
            Some(attached) => attached.close().and_then(|()| attached.network()),
            None if self.has_interfaces => return Err(fault(&"its networks are not there")),
            None => Network::new(),
        };
        let network = network.map_err(|e| fault(&e))?.in_context(sockets);
        let plan = Plan::new(&self.spec(resources, contexts));
        let compartment =
            Compartment::begin(&plan, &network, &init, log.as_fd(), Vec::new()).map_err(|e| fault(&e))?;
        let all = site.partitions().iter().fold(0u64, |sum, one| sum.saturating_add(one.reserved()));
        compartment.share(self.asked.weight(), self.asked.reserved(), all).map_err(|e| fault(&e))?;
        let since = Instant::now();
        let running = Running { compartment, since, network, leavings: Leavings::default() };
        self.rooting.forget();
        self.state = State::Runs(Box::new(running));
        self.starts = self.starts.saturating_add(1);
        attached.map_or(Ok(()), Attached::open).map_err(|e| fault(&e))
    }

    /// Whether it is to be looked at again soon, though nothing happens.
    pub fn is_unsettled(&self) -> bool {
        self.is_waiting() || self.is_building() || self.logs.as_ref().is_some_and(Logs::is_resting)
    }

    /// Has waited for what there is to wait for now, as the partition that has this place; sees to its logger.
    ///
    /// # Errors
    /// The kernel's.
    pub fn see_to(&mut self, place: usize, waits: &mut Waits) -> io::Result<()> {
        let source = || Source::Partition(place);
        if let Some(logs) = &mut self.logs {
            logs.see_to();
            logs.watch(waits, source)?;
        }
        self.see_to_end();
        let State::Runs(running) = &mut self.state else { return Ok(()) };
        running.compartment.watch(waits, source, source)
    }

    /// Takes what has happened in it; its program gets the ends of these channels. Why it has ended, if it has: then it is to be stopped.
    pub fn hear(&mut self, uids: &Uids, ways: &mut [Way]) -> Option<String> {
        let State::Runs(running) = &mut self.state else {
            self.see_to_end();
            return None;
        };
        let events = match running.compartment.events() {
            Ok(events) => events,
            Err(e) => return Some(e.to_string()),
        };
        for event in events {
            match event {
                Event::Built => {
                    let Running { compartment, network, .. } = running.as_mut();
                    let asked = &self.asked;
                    let launched = channels::ends(ways, asked.name(), network).and_then(|ends| {
                        launch(asked, self.slot, compartment, self.logs.as_ref(), uids, &ends)
                    });
                    if let Err(e) = launched {
                        return Some(e.to_string());
                    }
                }
                Event::Started(_) | Event::Service(..) | Event::Cut(..) | Event::Turned(_) => {}
                Event::Failed(why) | Event::Refused(_, why) => return Some(why),
                Event::Exited(_, status) => return Some(format!("its program ended with status {status}")),
            }
        }
        None
    }

    /// It has ended, and what is left of it is killed. Whether it is started again.
    pub fn ended(&mut self, how: &str, now: Instant) -> bool {
        let again = self.rule.allows(now);
        if again {
            self.end(None);
        } else {
            let Restart { times, within } = self.asked.restart();
            let why = format!("{how}; it was started again {times} times in {} s", within.as_secs());
            self.end(Some(why));
        }
        again
    }

    /// Ends everything in it; it is off for this reason.
    pub fn stop(&mut self, why: &str) {
        self.end(Some(why.to_owned()));
    }

    /// An operator, by this number, is to be told once nothing of it is left: [`Partition::told`].
    ///
    /// # Errors
    /// So many wait already.
    pub fn tell(&mut self, operator: u64) -> Result<(), String> {
        if self.waiting.len() >= MOST_WAITING {
            return Err(format!("{MOST_WAITING} operators wait for its end already"));
        }
        self.waiting.push(operator);
        Ok(())
    }

    /// Operators who have waited for its end, which has come.
    pub fn told(&mut self) -> Vec<u64> {
        if self.is_ending() { Vec::new() } else { std::mem::take(&mut self.waiting) }
    }

    /// Whether its root is being made.
    pub fn is_making(&self) -> bool {
        self.rooting.is_making()
    }

    /// Kills what is in it; when that has ended it is off, or starts again.
    fn end(&mut self, off: Option<String>) {
        self.rooting.forget();
        self.state = match std::mem::replace(&mut self.state, State::Waits) {
            State::Runs(mut running) => {
                // Its end shows on its pidfd; if it cannot be killed it has ended already.
                let _ = running.compartment.kill();
                if self.has_interfaces
                    && let Err(e) = pinned::down(running.network.ns())
                {
                    log!("the partition {}: its interfaces are up still: {e}", self.asked.name());
                }
                running.compartment.watch_end_alone();
                State::Ends(running, off)
            }
            State::Ends(running, _) => State::Ends(running, off),
            State::Waits | State::Off(_) => off.map_or(State::Waits, State::Off),
        };
    }

    /// Nothing runs in it any more, if that is so.
    fn see_to_end(&mut self) {
        if let State::Ends(running, _) = &mut self.state
            && running.compartment.has_ended()
            && running.leavings.are_gone(running.network.ns(), &self.log_name)
        {
            self.remove();
        }
    }

    /// Removes what the host had for it.
    fn remove(&mut self) {
        let State::Ends(running, off) = std::mem::replace(&mut self.state, State::Waits) else { return };
        if let Err(e) = running.compartment.stop() {
            log!("stopping {self}: {e}");
        }
        self.state = off.map_or(State::Waits, State::Off);
    }

    /// It is to run, however often it has ended.
    pub fn turn_on(&mut self) {
        match &mut self.state {
            State::Off(_) => self.state = State::Waits,
            State::Ends(_, off @ Some(_)) => *off = None,
            _ => return,
        }
        self.rule = Rule::new(self.asked.restart());
    }

    /// Nothing of it is needed any more.
    pub fn finish(mut self) -> Option<LastWords> {
        self.stop("the server ends");
        if self.is_ending() {
            self.remove();
        }
        self.logs.take().and_then(Logs::finish)
    }

    /// Why it is off by itself.
    pub fn alarm(&self) -> Option<String> {
        match &self.state {
            State::Off(why) if self.rule.has_ended_something() => Some(format!("{self} is off: {why}")),
            _ => None,
        }
    }

    /// Its process 1; 0 where it does not run.
    pub fn init(&self) -> u32 {
        let State::Runs(running) = &self.state else { return 0 };
        running.compartment.init()
    }

    /// As operators see it.
    pub fn status(&self) -> PartitionStatus {
        let (state, since) = match &self.state {
            State::Waits => ("waits".to_owned(), None),
            State::Ends(..) => ("ends".to_owned(), None),
            State::Off(why) => (format!("off: {why}"), None),
            State::Runs(running) => ("runs".to_owned(), Some(running.since)),
        };
        let age = since.map_or(Duration::ZERO, |since| since.elapsed());
        PartitionStatus {
            name: self.name().clone(),
            label: self.label.clone(),
            state,
            init: self.init(),
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            starts: self.starts,
            weight: self.asked.weight(),
            cpu_percent: self.asked.cpu_percent(),
            reserved: self.asked.reserved(),
        }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the partition {}", self.name())
    }
}

/// Starts its program.
fn launch(
    asked: &site::Partition,
    slot: u16,
    compartment: &mut Compartment,
    logs: Option<&Logs>,
    uids: &Uids,
    ends: &[(String, OwnedFd)],
) -> levee_sys::Result<()> {
    let missing = || levee_sys::Error::invalid("start its program", "it has no log");
    let log = logs.ok_or_else(missing)?.end("program", uids.service(slot), true)?;
    let argv = asked.command().to_vec();
    let mut env = vec!["PATH=/usr/bin:/usr/sbin:/bin:/sbin".to_owned(), "HOME=/srv/own".to_owned()];
    if !ends.is_empty() {
        // As systemd passes descriptors (sd_listen_fds_with_names(3)): from 3 on.
        let names: Vec<&str> = ends.iter().map(|(name, _)| name.as_str()).collect();
        env.extend([format!("LISTEN_FDS={}", ends.len()), format!("LISTEN_FDNAMES={}", names.join(":"))]);
    }
    let fds: Vec<_> =
        [log.as_fd(), log.as_fd()].into_iter().chain(ends.iter().map(|(_, end)| end.as_fd())).collect();
    compartment.run(Launch::command(TICKET, argv, env, asked.needs()), &fds)
}
