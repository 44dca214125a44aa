//! Labels whose machines are ending: they write what they have to their disks, and nobody waits for that.

use crate::label::RunningLabel;
use crate::log;
use crate::logs::LastWords;
use crate::process::Process;
use levee_policy::LabelName;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a machine may take to end. Then it is ended, and what it had not written is lost to its label.
const PATIENCE: Duration = Duration::from_secs(10);

/// All of them.
#[derive(Debug, Default)]
pub struct Partings(BTreeMap<LabelName, Parting>);

#[derive(Debug)]
struct Parting {
    label: RunningLabel,
    /// Its first stage of upflow, which hears the rest.
    snapshot: Option<Process>,
    until: Instant,
    /// Somebody waits for the label again.
    wanted: bool,
}

/// A label that has ended.
#[derive(Debug)]
pub struct Parted {
    /// Which.
    pub name: LabelName,
    /// Its first stage of upflow.
    pub snapshot: Option<Process>,
    /// Its logger's last words.
    pub last_words: Option<LastWords>,
    /// Somebody waits for it.
    pub wanted: bool,
}

impl Partings {
    /// This one has been asked to end.
    pub fn add(&mut self, name: LabelName, mut label: RunningLabel, snapshot: Option<Process>) {
        let until = Instant::now() + PATIENCE;
        label.watch_end_alone();
        self.0.insert(name, Parting { label, snapshot, until, wanted: false });
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A label is wanted: whether its end is in the way. [`Partings::ended`] says when it is not any more.
    pub fn is_in_the_way(&mut self, name: &LabelName) -> bool {
        self.0.get_mut(name).is_some_and(|parting| {
            parting.wanted = true;
            true
        })
    }

    /// Nobody waits for a label any more.
    pub fn release(&mut self, name: &LabelName) {
        if let Some(parting) = self.0.get_mut(name) {
            parting.wanted = false;
        }
    }

    /// The steering slots, and so the uids, that they still have.
    pub fn slots(&self) -> impl Iterator<Item = u16> {
        self.0.values().flat_map(|parting| parting.label.slots().iter().copied())
    }

    /// Takes those that have ended, and ends those that take too long.
    pub fn ended(&mut self) -> Vec<Parted> {
        let now = Instant::now();
        let over = |(name, parting): (&LabelName, &mut Parting)| {
            (parting.label.has_parted() || parting.until <= now).then(|| name.clone())
        };
        let over: Vec<LabelName> = self.0.iter_mut().filter_map(over).collect();
        let gone = over.into_iter().filter_map(|name| self.0.remove_entry(&name));
        gone.map(|(name, Parting { label, snapshot, wanted, .. })| {
            let (last_words, stopped) = label.stop();
            if let Err(e) = stopped {
                log!("stopping {name}: {e}");
            }
            Parted { name, snapshot, last_words, wanted }
        })
        .collect()
    }
}
