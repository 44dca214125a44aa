//! Upflow's stages: when each is started, and who hears of a label's first documents.

use super::Server;
use crate::Fatal;
use crate::label::RunningLabel;
use crate::log;
use crate::process::Key;
use levee_ipc::warden::Role;
use levee_policy::LabelName;
use std::time::Duration;

impl Server {
    /// Opens what a second stage of upflow reads, a little in each turn; starts labels whose last pass was in the way.
    pub(super) fn see_to_upflow(&mut self) {
        if let Some(reader) = self.upflow.opens_one(&self.options)
            && let Err(e) = self.start_upflow(Role::Copy, &reader)
        {
            log!("{e}");
        }
        for name in self.upflow.ended() {
            self.need(name);
        }
    }

    /// Starts a label's first stage of upflow, once the label is up: whether a label above has the snapshot open already
    /// makes a difference of milliseconds, and is not to be seen in how long the label takes to start.
    pub(super) fn begin_snapshots(&mut self, name: &LabelName) {
        if !self.labels.get_mut(name).is_some_and(RunningLabel::begins_snapshots) {
            return;
        }
        if let Err(e) = self.start_upflow(Role::Snapshot, name) {
            log!("{e}");
            self.note_compartment(name, false, &e.to_string());
        }
        self.show_above(name);
    }

    /// Has the labels that run and read this one, and did not know that it could have documents, copy them.
    pub(super) fn show_above(&mut self, name: &LabelName) {
        let Some(label) = self.site.label(name) else { return };
        let (labels, site, upflow) = (&mut self.labels, &self.site, &self.upflow);
        let learn = labels.iter_quietly_mut().filter_map(|(reader, running)| {
            let lacks = running.learns_of(&label, site) || running.reads(name);
            (lacks && !upflow.has(reader, name)).then(|| reader.clone())
        });
        for reader in learn.collect::<Vec<_>>() {
            // What it may read is settled when it starts. Readers keep the copies they have meanwhile.
            let key = Key::at(Role::Copy, &reader);
            let own_kernel =
                self.labels.get(&reader).is_some_and(|label| label.documents(Role::Copy).is_some());
            if !own_kernel && let Some(copy) = self.processes.remove(&key) {
                copy.kill();
                copy.wait(Duration::from_secs(5));
            }
            self.prepare_copies(&reader);
        }
    }

    /// Has a label's second stage of upflow started once it can be.
    pub(super) fn prepare_copies(&mut self, name: &LabelName) {
        if let Some(label) = self.labels.get(name) {
            self.upflow.prepare(name, label);
        }
    }

    /// Starts one stage of upflow for a label, where it has one.
    pub(super) fn start_upflow(&mut self, role: Role, name: &LabelName) -> Result<(), Fatal> {
        let Some(label) = self.labels.get(name) else { return Ok(()) };
        if let Some(running) = self.processes.get(&Key::at(role, name)) {
            // Its other half, within the label's machine, is told whole messages: it ends between two, and the next one
            // begins anew with all that there is to read by then.
            if running.stop().is_err() {
                running.kill();
            }
            return Ok(());
        }
        let started = self
            .upflow
            .start(role, name, label, &self.options, &self.uids)
            .map_err(|e| Fatal::new(format!("start {} for {name}", role.program()), e))?;
        started.map_or(Ok(()), |process| self.admit(process))
    }
}
