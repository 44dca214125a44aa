//! Postures that sessiond says are in force: what they have off ends at every label that runs, and is not started at one that starts later;
//! where their stacks must agree, or must no more, another vault begins.

use super::Server;
use crate::label::RunningLabel;
use levee_ipc::warden::LabelEvent;
use levee_policy::{LabelName, Site, site::Placed};
use std::collections::BTreeSet;

/// Which are in force, and whether that is so everywhere.
#[derive(Debug)]
pub(super) struct Postures {
    /// `None`: sessiond has not said so, and the site has some.
    in_force: Option<Vec<Placed>>,
    /// What sessiond waits for since it has said so last.
    pub unkept: Option<Unkept>,
}

impl Postures {
    /// Before sessiond has said anything.
    pub fn new(site: &Site) -> Self {
        Self { in_force: site.postures().is_empty().then(Vec::new), unkept: None }
    }

    /// Those in force; `None`: nobody has said so yet.
    pub fn in_force(&self) -> Option<&[Placed]> {
        self.in_force.as_deref()
    }

    /// A label begins to end. Where it has not said yet that what is off has ended there, that is so once all of it has. What of it begins
    /// after that begins with what is off.
    pub fn ends(&mut self, name: &LabelName) {
        let Some(unkept) = &mut self.unkept else { return };
        unkept.ending.extend(unkept.turning.take(name));
    }
}

/// What sessiond waits for.
#[derive(Debug)]
pub(super) struct Unkept {
    /// Its number.
    ticket: u64,
    /// Labels that ran then and have not said yet that it is so.
    turning: BTreeSet<LabelName>,
    /// Labels that were ending then, so that something of them may run still.
    ending: BTreeSet<LabelName>,
}

impl Server {
    /// These are in force from now on, and no others.
    pub(super) fn take_postures(&mut self, in_force: Vec<Placed>, ticket: u64) {
        self.postures.in_force = Some(in_force);
        let before = self.postures.unkept.take();
        let mut turning = before.map_or_else(BTreeSet::new, |unkept| unkept.turning);
        for name in self.labels.keys().cloned().collect::<Vec<_>>() {
            let (Some(label), Some(running)) = (self.site.label(&name), self.labels.get_mut(&name)) else {
                continue;
            };
            match running.take_postures(&self.site, &label, self.postures.in_force()) {
                Ok(false) => {}
                Ok(true) => drop(turning.insert(name)),
                Err(e) => self.compartment_again(&name, &e.to_string()),
            }
        }
        let ending = self.ending_labels.names().cloned().collect();
        self.postures.unkept = Some(Unkept { ticket, turning, ending });
        self.see_to_postures();
    }

    /// Tells sessiond once nothing is left of what is off, nor of vaults that are to be others. A compartment that takes too long is ended,
    /// and what is off with it.
    pub(super) fn see_to_postures(&mut self) {
        let Some(unkept) = &mut self.postures.unkept else { return };
        let is_late = |name: &LabelName| self.labels.get(name).and_then(RunningLabel::is_turning);
        unkept.turning.retain(|name| is_late(name).is_some());
        let late = unkept.turning.iter().filter(|name| is_late(name) == Some(true)).cloned();
        for name in late.collect::<Vec<_>>() {
            self.compartment_again(&name, "it does not end what a posture has off");
        }
        let others = self.labels.keys().filter(|name| self.end_other_vault(name)).count();
        let Some(unkept) = &mut self.postures.unkept else { return };
        unkept.ending.retain(|name| self.ending_labels.names().any(|ending| ending == name));
        if others == 0 && unkept.ending.is_empty() && unkept.turning.is_empty() {
            let ticket = unkept.ticket;
            self.postures.unkept = None;
            self.tell_sessiond(LabelEvent::Postures { ticket });
        }
    }
}
