//! What has ended: whether and when it is started again, and who is told.

use super::{STANDING, Server};
use crate::Fatal;
use crate::channels::Way;
use crate::key::Key;
use crate::label::RunningLabel;
use crate::log;
use crate::partition::Partition;
use crate::server::keeping::{Kept, Verdict};
use crate::{stacks, state};
use levee_ipc::warden::Role;
use levee_ipc::warden::sessiond::MOST_ALARMS;
use levee_policy::LabelName;
use std::time::{Duration, Instant};

impl Server {
    pub(super) fn ended(&mut self, key: &Key) -> Result<(), Fatal> {
        let Some((how, again)) = self.processes.ended(key, Instant::now()) else { return Ok(()) };
        if let (true, Some(label)) = (stacks::ROLES.contains(&key.role), &key.label) {
            self.vault_ended(label, key.role, &how);
            return Ok(());
        }
        if !again && STANDING.contains(&key.role) {
            return Err(Fatal::new("keep the server running", format!("{key} ends again and again ({how})")));
        }
        match (&key.role, &key.label) {
            (Role::Vault, Some(label)) => {
                // What waits in its socket belongs to keys that are gone.
                if let Some((slot, _)) = self.labels.get(label).and_then(|label| label.worker(key.worker)) {
                    self.tunnels.iter().for_each(|group| drop(group.idle(slot)));
                }
                self.vault_ended(label, Role::Vault, &how);
                Ok(())
            }
            (Role::Mediator, Some(label)) => {
                // Before the next one tells sessiond that this one is dead.
                self.labels.get(label).into_iter().for_each(RunningLabel::mediator_ended);
                self.again(Kept::Process(key.clone()), &how);
                Ok(())
            }
            (role, _) if STANDING.contains(role) => {
                if *role == Role::Frames {
                    self.framed.begins_anew();
                }
                if *role == Role::Signer { self.signer_again() } else { self.start_standing(*role) }
            }
            (_, Some(_)) => {
                self.again(Kept::Process(key.clone()), &how);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn compartment_ended(&mut self, name: &LabelName) {
        if self.labels.get(name).is_some_and(RunningLabel::is_building) {
            // What it said last is why.
            return self.hear_compartment(name);
        }
        if self.labels.contains_key(name) {
            self.compartment_again(name, "its process 1 ended");
        }
    }

    pub(super) fn compartment_again(&mut self, name: &LabelName, how: &str) {
        log!("the compartment at {name} ended: {how}");
        self.end_label(name);
        self.tell_died(name);
        self.again(Kept::Compartment(name.clone()), how);
    }

    /// Starts again what has ended: now, or when it has rested. Sessions stay: they go on when it is there.
    pub(super) fn again(&mut self, what: Kept, how: &str) {
        match self.keeping.ended(what.clone(), how, Instant::now()) {
            Verdict::Again => self.start_again(what),
            Verdict::Rests(wait) => self.rests(&what, how, wait),
        }
    }

    pub(super) fn rests(&mut self, what: &Kept, how: &str, wait: Duration) {
        log!("{what} ends again and again ({how}): it rests {wait:?}");
        if let Kept::Process(Key { role: Role::Mediator, label: Some(label), .. }) = what {
            self.labels.get(label).into_iter().for_each(RunningLabel::refuse_mediated);
        }
        let reason = format!("ends again and again ({how}): started again in {} s", wait.as_secs());
        self.note_kept(what, false, &reason);
    }

    pub(super) fn start_again(&mut self, what: Kept) {
        let Some(label) = what.label().cloned() else { return };
        let started = match &what {
            Kept::Process(key) if Way::ROLES.contains(&key.role) => self.start_channel(key),
            Kept::Compartment(_) => return self.need(label),
            // Its networks' hosts use it without asking; a person asks again.
            Kept::Start(_) if self.networks.serving().any(|name| *name == label) => return self.need(label),
            Kept::Start(_) => return,
            Kept::Process(_) if !self.labels.contains_key(&label) => return,
            Kept::Process(key) => match key.role {
                Role::Vault => self.start_vault(&label),
                Role::Mediator => self.start_mediator(&label),
                role => self.start_upflow(role, &label),
            },
        };
        let Err(e) = started else { return self.keeping.began(what, Instant::now()) };
        log!("{e}");
        // Somebody at the label may have its services' addresses, and be taken for them.
        if matches!(&what, Kept::Process(key) if key.role == Role::Mediator) {
            return self.compartment_again(&label, &e.to_string());
        }
        // What of a vault was started goes with it.
        if matches!(&what, Kept::Process(key) if key.role == Role::Vault) {
            let all = self.vault_processes(&label);
            all.iter().filter_map(|key| self.processes.remove(key)).for_each(|process| process.reap());
        }
        let wait = self.keeping.failed(what.clone(), &e.to_string(), Instant::now());
        self.rests(&what, &e.to_string(), wait);
    }

    /// Starts what has rested, and says of what has run for a while that it is well.
    ///
    /// # Errors
    /// What goes with the signer's keys cannot be started.
    pub(super) fn see_to_rests(&mut self) -> Result<(), Fatal> {
        let now = Instant::now();
        for what in self.keeping.due(now) {
            if what == Kept::Process(Key::of(Role::Signer)) {
                self.signer_again()?;
            } else {
                self.start_again(what);
            }
        }
        for what in self.keeping.well(now) {
            self.note_kept(&what, true, "runs again");
        }
        Ok(())
    }

    pub(super) fn note_kept(&self, what: &Kept, done: bool, reason: &str) {
        match what.label() {
            // A channel has no label, but a name where others have one.
            Some(name) if matches!(what, Kept::Process(key) if Way::ROLES.contains(&key.role)) => {
                self.note(None, name.to_string(), done, reason);
            }
            label => self.note(label, what.to_string(), done, reason),
        }
    }

    /// What an operator must know of, the server's own trouble first.
    pub(super) fn alarms(&self) -> Vec<String> {
        let last = self.last_run.iter().map(|why| format!("the last run ended by itself: {why}"));
        let services = self.labels.iter().flat_map(|(name, label)| label.alarms(name));
        let partitions = self.partitions.iter().filter_map(Partition::alarm).chain(self.framed.alarms());
        last.chain(self.renewal.alarm())
            .chain(self.keeping.alarms(Instant::now()))
            .chain(services)
            .chain(partitions)
            .take(MOST_ALARMS)
            .collect()
    }

    /// Has it in the audit log that the last run ended by itself. That is once: the next start is after this one.
    pub(super) fn tell_last_run(&self) {
        let Some(reason) = self.last_run.clone() else { return };
        self.note(None, "the last run", false, reason);
        state::forget_last_run(&self.options.state);
    }
}
