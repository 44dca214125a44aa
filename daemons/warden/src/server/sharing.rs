//! Upflow's stages: when each is started, and who hears of a label's first documents.

use super::Server;
use crate::Fatal;
use crate::key::Key;
use crate::label::RunningLabel;
use crate::log;
use levee_ipc::warden::Role;
use levee_policy::LabelName;

impl Server {
    /// Opens what a second stage of upflow reads, a little in each turn; starts labels whose last pass was in the way.
    pub(super) fn see_to_upflow(&mut self) {
        // Where the one before is not gone yet, it is opened anew once it is.
        if let Some(reader) = self.upflow.opens_one(&self.site, &self.options)
            && !self.leaving.contains_key(&reader)
            && let Err(e) = self.start_upflow(Role::Copy, &reader)
        {
            log!("{e}");
        }
        for name in self.upflow.ended() {
            self.try_again(name);
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
                // The reader's programs can make its end long. Neither this label waits for that, which they must not tell anything, nor another.
                copy.kill();
                self.leaving.insert(reader, copy);
                continue;
            }
            if !self.leaving.contains_key(&reader) {
                self.prepare_copies(&reader);
            }
        }
    }

    /// Where a second stage of upflow is gone, the next one begins.
    pub(super) fn see_to_leaving(&mut self) {
        let gone = self.leaving.iter().filter(|(_, copy)| copy.exit().is_some());
        for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.leaving.remove(&name);
            self.prepare_copies(&name);
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
            running.stop();
            return Ok(());
        }
        let started = self
            .upflow
            .start(role, name, label, &self.site, &self.options, &self.uids)
            .map_err(|e| Fatal::new(format!("start {} for {name}", role.program()), e))?;
        started.map_or(Ok(()), |process| self.admit(process))
    }
}
