//! A label's vault: its workers, or the gate and the stacks in its place.

use super::Server;
use crate::Fatal;
use crate::key::Key;
use crate::label::RunningLabel;
use crate::log;
use crate::process::{Process, Start};
use crate::server::keeping::Kept;
use crate::stacks;
use levee_ipc::SendError;
use levee_ipc::warden::vault::{GatePart, VaultPart};
use levee_ipc::warden::{LabelEvent, Role};
use levee_policy::LabelName;
use levee_policy::site::VaultKind;
use std::time::Instant;

impl Server {
    /// Starts every worker of a label's vault. They live and die together: a session's record is in all of them, and
    /// that its keys are gone can only be said of all.
    pub(super) fn start_vault(&mut self, name: &LabelName) -> Result<(), Fatal> {
        let failed = |e: &dyn std::fmt::Display| Fatal::new("start a vault", e);
        let kind = self.vault_kind(name);
        let (kind, label) = kind.zip(self.labels.get_mut(name)).ok_or_else(|| failed(&"no compartment"))?;
        label.begin_vault(kind).map_err(|e| failed(&e))?;
        label.workers().try_for_each(|worker| self.start_worker(name, worker))
    }

    /// What a label's vault is to be.
    fn vault_kind(&self, name: &LabelName) -> Option<VaultKind> {
        Some(self.site.vault_in_force(&self.site.label(name)?, self.postures.in_force()))
    }

    /// Ends a vault that is not what postures in force ask for; the next one is. Whether any of it runs.
    pub(super) fn end_other_vault(&self, name: &LabelName) -> bool {
        self.is_other(name)
            && (self.kill_vault(name) || stacks::running(name, &self.processes).next().is_some())
    }

    fn is_other(&self, name: &LabelName) -> bool {
        self.labels.get(name).is_some_and(|label| label.vault != self.vault_kind(name))
    }

    fn start_worker(&mut self, name: &LabelName, worker: u16) -> Result<(), Fatal> {
        let none = || Fatal::new("start a vault", "no compartment");
        let label = self.labels.get(name).ok_or_else(none)?;
        let (slot, tun) = label.worker(worker).ok_or_else(none)?;
        let kind = label.vault.as_ref().ok_or_else(none)?;
        let (agree, arguments) = (*kind == VaultKind::Agreeing, kind.arguments());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let start = Start::new(Key::vault(name, worker), slot, &self.uids, &self.options, &label.logs);
        let start = Start { program: agree.then_some(stacks::GATE), arguments: &arguments, ..start };
        let failed = |e: &dyn std::fmt::Display| Fatal::new("start a vault", e);
        let handed = |e: SendError| Fatal::new("hand a vault its descriptors", e);
        let sockets = self.tunnels.iter().map(|group| Some((group.address(), group.slot(slot)?)));
        let sockets: Vec<_> = sockets.collect::<Option<_>>().ok_or_else(|| handed(SendError::Closed))?;
        let process = if agree {
            let gate = Process::start_as::<GatePart>(start).map_err(|e| failed(&e))?;
            gate.give(GatePart::Tun, tun).map_err(handed)?;
            for (address, socket) in sockets {
                gate.give(GatePart::Udp(address), socket).map_err(handed)?;
            }
            gate.into_process()
        } else {
            let vault = Process::start_as::<VaultPart>(start).map_err(|e| failed(&e))?;
            vault.give(VaultPart::Tun { mtu: label.mtu }, tun).map_err(handed)?;
            for (address, socket) in sockets {
                vault.give(VaultPart::Udp(address), socket).map_err(handed)?;
            }
            vault.into_process()
        };
        if agree {
            stacks::start(&process, name, slot, &label.logs, &self.options, &self.uids, &mut self.processes)?;
        }
        self.admit(process)
    }

    /// Whether every worker of a label's vault is at work.
    pub(super) fn is_vault_ready(&self, name: &LabelName) -> bool {
        let ready = |worker| self.processes.get(&Key::vault(name, worker)).is_some_and(|p| p.ready);
        self.labels.get(name).is_some_and(|label| label.workers().all(ready))
    }

    /// Kills every worker of a label's vault; whether there was one.
    pub(super) fn kill_vault(&self, name: &LabelName) -> bool {
        self.processes.vault_at(name).map(Process::kill).count() > 0
    }

    /// Lets datagrams reach the vault once every worker is there, and tells sessiond if with it the label is up.
    pub(super) fn vault_ready(&mut self, name: &LabelName) {
        let label = self.labels.get(name).filter(|_| self.is_vault_ready(name));
        let Some(label) = label else { return };
        let slots = label.workers().filter_map(|one| Some(label.worker(one)?.0));
        for (slot, group) in slots.flat_map(|slot| self.tunnels.iter().map(move |group| (slot, group))) {
            if let Err(e) = group.admit(slot) {
                log!("{name}: its slot cannot be opened: {e}");
                return;
            }
        }
        self.tell_if_up(name);
    }

    /// With one of the processes that are a label's vault go the others, and the last to end brings on the next vault.
    /// Nobody is waited for here.
    pub(super) fn vault_ended(&mut self, label: &LabelName, role: Role, how: &str) {
        let agrees = self.labels.get(label).is_some_and(|it| it.vault == Some(VaultKind::Agreeing));
        if agrees && !self.is_other(label) {
            self.note(Some(label), stacks::NOTED, false, stacks::note(role, how));
        }
        if self.kill_vault(label) {
            return;
        }
        if stacks::running(label, &self.processes).next().is_some() {
            self.ending.entry(label.clone()).or_insert_with(|| Instant::now() + stacks::BY_THEMSELVES);
            return;
        }
        self.ending.remove(label);
        self.tell_sessiond(LabelEvent::Died(label.clone()));
        let next = Kept::Process(Key::at(Role::Vault, label));
        if self.is_other(label) {
            self.note(Some(label), "vault", true, "another begins, as the posture asks");
            self.start_again(next);
        } else if self.labels.contains_key(label) {
            self.again(next, how);
        }
    }

    /// Every process that can be a part of a label's vault.
    pub(super) fn vault_processes(&self, label: &LabelName) -> Vec<Key> {
        let workers = self.labels.get(label).into_iter().flat_map(RunningLabel::workers);
        workers
            .map(|worker| Key::vault(label, worker))
            .chain(stacks::ROLES.map(|role| Key::at(role, label)))
            .collect()
    }

    /// Stacks that do not end with their gate are ended.
    pub(super) fn see_to_stacks(&self) {
        let now = Instant::now();
        let late = self.ending.iter().filter(|(_, until)| **until <= now);
        late.flat_map(|(label, _)| stacks::running(label, &self.processes)).for_each(Process::kill);
    }
}
