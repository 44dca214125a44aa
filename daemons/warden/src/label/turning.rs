//! Services of a label that a posture has off, and turning them off and on while the label runs.

use super::RunningLabel;
use crate::compartment::CUT;
use crate::leavings::Leavings;
use crate::service::{self, Note};
use levee_policy::decision::Start;
use levee_policy::{Grant, Label, ServiceName, Site, site::Placed};
use std::collections::BTreeMap;
use std::time::Instant;

/// Services that are off, and why.
pub(super) type Off = BTreeMap<ServiceName, String>;

/// By what the services of a label may be started; what is not there is off.
pub(super) type Grants = BTreeMap<ServiceName, Grant<Start>>;

/// What is decided of the services of a label where these postures are in force: each has its grant, or is off.
pub(super) fn decided(site: &Site, label: &Label, in_force: Option<&[Placed]>) -> (Grants, Off) {
    let (mut grants, mut off) = (Grants::new(), Off::new());
    for one in site.services_at(label) {
        match service::decide(site, label, one, in_force) {
            Ok(grant) => drop(grants.insert(one.name().clone(), grant)),
            Err(why) => drop(off.insert(one.name().clone(), why)),
        }
    }
    (grants, off)
}

impl RunningLabel {
    /// Has what these postures have off end, and what they have on may be started again. Whether that is to be waited for: [`RunningLabel::is_turning`]
    /// until it is so. What is being built begins with what is on by itself, however long it takes.
    ///
    /// # Errors
    /// Its process 1 does not listen any more: end it.
    pub fn take_postures(
        &mut self,
        site: &Site,
        label: &Label,
        in_force: Option<&[Placed]>,
    ) -> levee_sys::Result<bool> {
        self.turn(decided(site, label, in_force))
    }

    /// As there.
    pub(super) fn turn(&mut self, (mut grants, off): (Grants, Off)) -> levee_sys::Result<bool> {
        let before = std::mem::replace(&mut self.off, off);
        if before.keys().eq(self.off.keys()) {
            return Ok(false);
        }
        let ends = self.off.keys().any(|name| !before.contains_key(name));
        self.ends |= ends;
        let on = before.keys().filter(|name| !self.off.contains_key(*name));
        for name in on {
            self.notes.push(note(name, "on again: a connection may start it".to_owned()));
            if let Some(service) = self.services.iter_mut().find(|one| one.name() == name) {
                service.turn(grants.remove(name));
            }
        }
        for (name, why) in self.off.iter().filter(|(name, _)| !before.contains_key(*name)) {
            self.notes.push(note(name, format!("off: {why}")));
            if let Some(service) = self.services.iter_mut().find(|one| one.name() == name) {
                service.turn(None);
            }
        }
        self.tickets += 1;
        self.compartment.turn(self.tickets, self.off.keys().cloned().collect())?;
        Ok(ends || !self.is_building())
    }

    /// Process 1 says that nothing runs any more of what was turned off. What that had still to send ends, too: hosts of a single-level network
    /// would get it from the kernel for as long as they like.
    pub(super) fn turned(&mut self) {
        // The machine's own process 1 sees to what is in a machine.
        let ended = std::mem::take(&mut self.ends) && self.machine.is_none();
        // It may be said again, by a sessiond that is new, while what was left still ends.
        self.left = ended.then(|| Instant::now() + CUT).or(self.left);
    }

    /// Ends some of what was left.
    pub fn see_to_left(&mut self) {
        if self.left.is_some() && self.leaves_nothing() {
            (self.left, self.leavings) = (None, Leavings::default());
        }
    }

    /// Whether services are still being turned off or on; and whether that takes too long.
    pub fn is_turning(&self) -> Option<bool> {
        let until = self.compartment.is_turning().or(self.left);
        until.map(|until| until <= Instant::now())
    }
}

fn note(name: &ServiceName, reason: String) -> Note {
    Note { object: format!("service {name}"), done: true, reason }
}
