//! A change of level: the next level runs before the session at the present one is ended, so that a level that cannot run costs
//! nobody their session. One that takes longer to start than a TPE may be kept waiting, which has a session, goes on without that one: the
//! TPE would take it for a server that has gone.
//!
//! Until then nothing of the next session is anywhere but in the log: no vault has its record, no keys are agreed for it, the
//! store does not have it. So a workstation has one session at a time all the same.

use crate::event::*;
use crate::sessions::{START, Sessions};
use crate::state::*;
use crate::stored::Stored;
use crate::{SessionId, Time};
use levee_policy::{HostName, LabelName};

const LATE: &str = "the label could not be started in time";
const LOCKED: &str = "the session was locked meanwhile";

impl Sessions {
    /// What is granted is in the log: goes on with it, in the place of the session `old`.
    pub(crate) fn prepare(&mut self, client: ClientId, old: SessionId, granted: Box<Granted>, now: Time) {
        let (id, label) = (granted.record.id, granted.record.label.clone());
        let until = now.after(START.min(self.longest_answer()));
        if !self.starts_beside(old, &label) {
            return self.replace(client, old, granted, now);
        }
        if let Some(path) = self.clients.get_mut(&client) {
            path.busy = Some(Busy::Opening(Opening::Preparing(granted, until)));
        }
        self.set_timer(until, Timer::Client(client));
        self.use_label(&label, id);
    }

    /// Whether this label is to be started first. One that runs need not be; and where all slots are taken, and one becomes free by the
    /// end of this session alone, that end comes first.
    fn starts_beside(&self, old: SessionId, label: &LabelName) -> bool {
        if matches!(self.used_labels.get(label), Some(UsedLabel { vault: Vault::Up { .. }, .. })) {
            return false;
        }
        let workers = |label| self.site.label(label).map_or(1, |label| self.site.slots_at(&label));
        let others = self.trials.keys().filter(|label| !self.used_labels.contains_key(*label));
        let taken = self.used_labels.keys().chain(others).filter(|other| *other != label);
        let taken: usize = taken.map(|label| usize::from(workers(label))).sum();
        let frees = |used: &UsedLabel| used.sessions.len() == 1 && used.sessions.contains(&old);
        taken + usize::from(workers(label)) <= usize::from(self.site.server().slots())
            || !self.used_labels.values().any(frees)
    }

    /// The label runs: whoever waits for it goes on.
    pub(crate) fn prepared(&mut self, label: &LabelName, now: Time) {
        for client in self.preparing(|granted| granted.record.label == *label) {
            self.go_on(client, now);
        }
    }

    fn go_on(&mut self, client: ClientId, now: Time) {
        let Some(granted) = self.take_prepared(client) else { return };
        match self.by_device.get(&granted.record.device).copied() {
            Some(old) => self.replace(client, old, granted, now),
            // It is over by itself.
            None => self.open_or_store(client, granted, false, now),
        }
    }

    /// The label cannot run: whoever waits for it keeps the session that there is.
    pub(crate) fn not_prepared(&mut self, label: &LabelName, reason: &str, now: Time) {
        for client in self.preparing(|granted| granted.record.label == *label) {
            self.keep(client, RefusalKind::Unavailable, reason, now);
        }
    }

    pub(crate) fn preparing_due(&mut self, client: ClientId, now: Time) {
        if self.longest_answer() < START {
            return self.go_on(client, now);
        }
        self.keep(client, RefusalKind::Unavailable, LATE, now);
    }

    /// Nothing that waits at this TPE comes of it any more.
    pub(crate) fn unprepare(&mut self, device: &HostName, reason: &str, now: Time) {
        for client in self.preparing(|granted| granted.record.device == *device) {
            self.keep(client, RefusalKind::Unavailable, reason, now);
        }
    }

    fn preparing(&self, wanted: impl Fn(&Granted) -> bool) -> Vec<ClientId> {
        let waits = |client: &Client| matches!(&client.busy, Some(Busy::Opening(Opening::Preparing(granted, _))) if wanted(granted));
        self.clients.iter().filter(|(_, client)| waits(client)).map(|(id, _)| *id).collect()
    }

    fn take_prepared(&mut self, client: ClientId) -> Option<Box<Granted>> {
        let path = self.clients.get_mut(&client)?;
        match path.busy.take() {
            Some(Busy::Opening(Opening::Preparing(granted, _))) => Some(granted),
            other => {
                path.busy = other;
                None
            }
        }
    }

    fn keep(&mut self, client: ClientId, kind: RefusalKind, reason: &str, now: Time) {
        if let Some(granted) = self.take_prepared(client) {
            self.drop_granted(*granted, reason, now);
            self.refuse(client, kind, reason);
        }
    }

    /// Ends the session there is, unless what has happened since the grant is against the next one.
    fn replace(&mut self, client: ClientId, old: SessionId, granted: Box<Granted>, now: Time) {
        let Granted { grant, record } = &*granted;
        let barred = self.barred(record, grant.action().protected());
        // Whoever sits there has not proved themself since.
        let locked = matches!(self.sessions.get(&old), Some(Session { phase: Phase::Open(open), .. }) if open.lock.bars());
        if let Some((kind, reason)) = barred
            .map(|reason| (RefusalKind::Unavailable, reason))
            .or_else(|| locked.then(|| (RefusalKind::Locked, LOCKED.to_owned())))
        {
            self.drop_granted(*granted, &reason, now);
            return self.refuse(client, kind, reason);
        }
        if let Some(path) = self.clients.get_mut(&client) {
            path.busy = Some(Busy::Opening(Opening::Replacing(granted, false)));
        }
        self.close(old, "change of level", Some(Waiter::Replace(client)), now);
    }

    /// A session that was counted in at its label is not there any more, or will not be. A label without one is released.
    pub(crate) fn leave_label(&mut self, record: &Stored, now: Time) {
        let Some(used) = self.used_labels.get_mut(&record.label) else { return };
        if !used.sessions.remove(&record.id) || !used.sessions.is_empty() {
            return;
        }
        self.used_labels.remove(&record.label);
        self.moved_with_its_vault(&record.label, now);
        // An operator who waits for its start has it released by that.
        if !self.trials.contains_key(&record.label) {
            self.say(Output::Release(record.label.clone()));
        }
    }
}
