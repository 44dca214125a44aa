//! Labels that are ending. A label's programs can be long about it, by what they still have to write: nobody waits for that but who
//! wants the same label again.

use crate::label::RunningLabel;
use crate::log;
use crate::process::Process;
use levee_ipc::warden::Role;
use levee_policy::LabelName;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a machine may take to end by itself, and what was killed before it is told of.
const PATIENCE: Duration = Duration::from_secs(10);

/// All of them.
#[derive(Debug, Default)]
pub struct Endings(BTreeMap<LabelName, Ending>);

/// A label that is ending, or has ended.
#[derive(Debug)]
pub struct Ending {
    /// What is left of it.
    pub label: RunningLabel,
    /// The label's processes outside of its compartment, which are killed.
    processes: Vec<Process>,
    /// Its first stage of upflow, which hears the rest.
    pub snapshot: Option<Process>,
    /// Then it is killed, or told of; it has not been while this is in the future.
    until: Option<Instant>,
    /// Sessiond is told that it has died.
    pub died: bool,
}

impl Endings {
    /// This one has been asked to end, or killed, and so have its processes.
    pub fn add(
        &mut self,
        name: LabelName,
        mut label: RunningLabel,
        processes: Vec<Process>,
        snapshot: Option<Process>,
    ) {
        label.watch_end_alone();
        let until = Some(Instant::now() + PATIENCE);
        self.0.insert(name, Ending { label, processes, snapshot, until, died: false });
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which.
    pub fn names(&self) -> impl Iterator<Item = &LabelName> {
        self.0.keys()
    }

    /// Whether a label is ending. [`Endings::ended`] says when it is not any more.
    pub fn has(&self, name: &LabelName) -> bool {
        self.0.contains_key(name)
    }

    /// Sessiond is told that this one died, once it has ([`Endings::dead`], [`Endings::ended`]). Whether it is ending.
    pub fn tell_died(&mut self, name: &LabelName) -> bool {
        self.0.get_mut(name).is_some_and(|ending| {
            ending.died = true;
            true
        })
    }

    /// The steering slots, and so the uids, that they still have.
    pub fn slots(&self) -> impl Iterator<Item = u16> {
        self.0.values().flat_map(|ending| ending.label.slots.iter().copied())
    }

    /// Labels that died and of which nothing is left that has keys or connections: sessiond is to be told. What their programs and copies still
    /// write is nothing to a session that waits for its end.
    pub fn dead(&mut self) -> Vec<LabelName> {
        let dead = |(name, ending): (&LabelName, &mut Ending)| {
            ending.processes.retain(|process| process.exit().is_none());
            let is_told =
                ending.died && ending.processes.iter().all(|process| process.key.role == Role::Copy);
            ending.died &= !is_told;
            is_told.then(|| name.clone())
        };
        self.0.iter_mut().filter_map(dead).collect()
    }

    /// Takes those of which nothing runs any more, and kills those that take too long.
    pub fn ended(&mut self) -> Vec<(LabelName, Ending)> {
        let now = Instant::now();
        let over = |(name, ending): (&LabelName, &mut Ending)| {
            ending.processes.retain(|process| process.exit().is_none());
            if ending.until.is_some_and(|until| until <= now) {
                ending.until = None;
                log!("{name} has not ended within {PATIENCE:?}");
                ending.label.kill();
            }
            let is_over = ending.processes.is_empty() && ending.label.has_ended();
            (is_over && ending.label.leaves_nothing()).then(|| name.clone())
        };
        let over: Vec<LabelName> = self.0.iter_mut().filter_map(over).collect();
        over.into_iter().filter_map(|name| self.0.remove_entry(&name)).collect()
    }
}
