//! What server and workstation have in common: the processes, how they are wired to each other, and what
//! becomes of one that ends.

use crate::key::Key;
use crate::process::{Heard, Process};
use crate::rest::Rule;
use crate::waits::{Source, Waits, WatchedChannel, WatchedChild};
use crate::wiring::wired;
use crate::{Fatal, log};
use levee_ipc::warden::{Part, Peer, Place, Role};
use levee_ipc::{Channel, Received, RecvError, SendError};
use levee_policy::LabelName;
use levee_policy::site::Restart;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the standing processes may take to say that they are at work.
const PATIENCE: Duration = Duration::from_secs(20);

/// More ends of one process than that are a fault that starting it again does not mend.
const RESTARTS: Restart = Restart { times: 8, within: Duration::from_secs(20) };

/// Every process of this warden, by key.
#[derive(Debug)]
pub struct Processes {
    /// What the warden waits for: what these say, their ends, and whatever else there is.
    pub waits: Waits,
    running: BTreeMap<Key, Running>,
    ends: BTreeMap<Key, Rule>,
}

#[derive(Debug)]
struct Running {
    process: Process,
    _said: WatchedChannel,
    _ended: WatchedChild,
}

impl Processes {
    /// None yet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> Result<Self, Fatal> {
        let waits = Waits::new().map_err(|e| Fatal::new("wait", e))?;
        Ok(Self { waits, running: BTreeMap::new(), ends: BTreeMap::new() })
    }

    /// The process of this key, if it runs.
    pub fn get(&self, key: &Key) -> Option<&Process> {
        self.running.get(key).map(|running| &running.process)
    }

    /// As [`Processes::get`], to change it.
    pub fn get_mut(&mut self, key: &Key) -> Option<&mut Process> {
        self.running.get_mut(key).map(|running| &mut running.process)
    }

    /// What a process says next; none once that is all. One that has closed its channel, or says what is no message of its role's, is
    /// killed: its end follows on the pidfd.
    pub fn hear(&mut self, key: &Key) -> Option<Received<Heard>> {
        match self.get_mut(key)?.hear() {
            Ok(heard) => return Some(heard),
            Err(RecvError::Empty) => {}
            Err(RecvError::Closed) => self.get(key)?.kill(),
            Err(_) => self.condemn(key),
        }
        None
    }

    /// A process has said what it may not say.
    pub fn condemn(&self, key: &Key) {
        log!("{key} said what it may not say: killing it");
        self.get(key).into_iter().for_each(Process::kill);
    }

    /// All that run.
    pub fn iter(&self) -> impl Iterator<Item = &Process> {
        self.running.values().map(|running| &running.process)
    }

    /// Every worker of the vault at `label` that runs.
    pub fn vault_at(&self, label: &LabelName) -> impl Iterator<Item = &Process> {
        let workers = Key::vault(label, 0)..=Key::vault(label, u16::MAX);
        self.running.range(workers).map(|(_, running)| &running.process)
    }

    /// Whether the processes of these roles have all said that they are at work.
    ///
    /// # Errors
    /// One of them takes too long.
    pub fn are_ready(&self, roles: &[Role], since: Instant) -> Result<bool, Fatal> {
        let is_unready = |role: &&Role| self.get(&Key::of(**role)).is_none_or(|process| !process.ready);
        match roles.iter().find(is_unready) {
            None => Ok(true),
            Some(slow) if since.elapsed() > PATIENCE => {
                Err(Fatal::new("start", format!("{} is not at work", slow.program())))
            }
            Some(_) => Ok(false),
        }
    }

    /// Tells the one process of a role something. One that does not read is killed: another takes its place.
    pub fn tell<P: Part>(&self, role: Role, part: P) {
        if let Some(process) = self.get(&Key::of(role)) {
            process.tell(part, &[]);
        }
    }

    /// Takes over a started process, wires it, and tells it to begin.
    ///
    /// # Errors
    /// It cannot be reached.
    pub fn admit(
        &mut self,
        process: Process,
        place: Place,
        slot: impl Fn(&Key) -> Option<u16>,
    ) -> Result<(), Fatal> {
        let key = process.key.clone();
        let step = |e: SendError| Fatal::new(format!("hand {key} its channels"), e);
        self.keep(process, slot).map_err(step)?;
        self.get(&key).map_or(Err(SendError::Closed), |admitted| admitted.begin(place)).map_err(step)
    }

    /// Ends all.
    pub fn end(&self) {
        self.iter().for_each(Process::kill);
        self.iter().for_each(|process| process.wait(Duration::from_secs(5)));
    }

    /// Takes over a started process, and wires it to every running one that it speaks with. `slot` is the
    /// steering slot of a vault: the other end of a channel learns it, the keyer to choose SPIs.
    ///
    /// # Errors
    /// When the new process itself cannot be reached; a partner that cannot is killed.
    pub fn keep(&mut self, process: Process, slot: impl Fn(&Key) -> Option<u16>) -> Result<(), SendError> {
        for other in self.iter() {
            if !wired(process.key.role, other.key.role) {
                continue;
            }
            let (a, b) = Channel::pair().map_err(SendError::Io)?;
            let slot = slot(&process.key).or_else(|| slot(&other.key));
            let end = |key: &Key| Peer { role: key.role, label: key.label.clone(), slot };
            process.connect(&end(&other.key), a.into_fd())?;
            if other.connect(&end(&process.key), b.into_fd()).is_err() {
                other.kill();
            }
        }
        let key = || process.key.clone();
        let said = self.waits.watch(process.control(), Source::Said(key())).map_err(SendError::Io)?;
        let ended = self.waits.watch(process.pidfd(), Source::Ended(key())).map_err(SendError::Io)?;
        self.running.insert(key(), Running { process, _said: said, _ended: ended });
        Ok(())
    }

    /// Forgets a process that has ended: how, and whether it may be started again or has ended too often. `None` where it has not.
    pub fn ended(&mut self, key: &Key, now: Instant) -> Option<(String, bool)> {
        let how = self.get(key)?.exit()?;
        log!("{key} ended: {how}");
        self.running.remove(key);
        Some((how, self.ends.entry(key.clone()).or_insert_with(|| Rule::new(RESTARTS)).allows(now)))
    }

    /// Takes a process out whose end is wanted.
    pub fn remove(&mut self, key: &Key) -> Option<Process> {
        self.ends.remove(key);
        self.running.remove(key).map(|running| running.process)
    }
}
