//! Labels that have sessions: their vaults' lives and deaths, and taking sessions up again.

use crate::event::*;
use crate::sessions::{NOT_RECORDED, PING, SILENCE, START, Sessions};
use crate::state::*;
use crate::stored::Stored;
use crate::{SessionId, Time, rules};
use levee_policy::LabelName;
use levee_policy::audit::{Action, Event as Entry, Verdict};

impl Sessions {
    pub(crate) fn label_up(&mut self, label: &LabelName, now: Time) {
        self.tried(label, &Ok(()));
        let Some(used) = self.used_labels.get_mut(label) else {
            return self.say(Output::Release(label.clone()));
        };
        let next = now.after(PING).whole_second();
        // Then it is the same: it is its mediator that begins anew, and what the vault is to close it has been told.
        let was_up = matches!(used.vault, Vault::Up { .. });
        used.vault = Vault::Up { ping: None, next };
        let sessions = used.sessions.clone();
        self.set_timer(next, Timer::Label(label.clone()));
        // Before any keys.
        self.tell_ciphers(label, now);
        for id in sessions {
            match self.sessions.get(&id).map(|session| &session.phase) {
                Some(Phase::Making { .. } | Phase::Open(_)) => self.tell_vault(id, now),
                Some(Phase::Closing(Closing { step: Step::Vault(_), .. })) if !was_up => {
                    self.tell_vault_closed(id, now);
                }
                _ => {}
            }
        }
        // Whatever else the vault knows, from before sessiond started, is over.
        self.say(Output::Vault(label.clone(), ToVault::Synced));
        self.prepared(label, now);
    }

    pub(crate) fn label_died(&mut self, label: &LabelName, now: Time) {
        self.moved_with_its_vault(label, now);
        let Some(used) = self.used_labels.get_mut(label) else { return };
        used.vault = Vault::Dead;
        for id in used.sessions.clone() {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            (session.vault, session.answer) = (InVault::Absent, None);
            match &mut session.phase {
                Phase::Making { deadline, .. } => {
                    *deadline = now.after(START);
                    self.timers.insert((now.after(START), Timer::Session(id)));
                }
                Phase::Open(open) => open.keys_lost = true,
                Phase::Returning { .. } => {}
                Phase::Closing(Closing { step: Step::Vault(_), .. }) => self.close_sockets(id, 0, now),
                Phase::Closing(_) => {}
            }
        }
    }

    pub(crate) fn label_failed(&mut self, label: &LabelName, reason: &str, now: Time) {
        self.tried(label, &Err(reason.to_owned()));
        self.moved_with_its_vault(label, now);
        // Nothing of vault and compartment is left: no keys, no sockets. The next session asks for them anew.
        let Some(used) = self.used_labels.remove(label) else { return };
        let cannot = format!("the label cannot run: {reason}");
        for id in used.sessions {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            (session.vault, session.answer) = (InVault::Absent, None);
            session.reached = false;
            match &session.phase {
                Phase::Making { .. } | Phase::Returning { .. } | Phase::Open(_) => {
                    self.close_here(id, &cannot, now);
                }
                Phase::Closing(closing) => match closing.step {
                    Step::Vault(_) | Step::Sockets(..) | Step::SocketsAgain(..) => {
                        self.forget_cuts(id);
                        self.record_end(id, now);
                    }
                    Step::Elsewhere(_) | Step::Recording(_) | Step::RecordingAgain(_) => {}
                },
            }
        }
        self.not_prepared(label, &cannot, now);
    }

    pub(crate) fn vault_pong(&mut self, label: &LabelName, number: u64, now: Time) {
        let next = now.after(PING).whole_second();
        if let Some(UsedLabel { vault: vault @ Vault::Up { .. }, .. }) = self.used_labels.get_mut(label)
            && matches!(vault, Vault::Up { ping: Some(asked), .. } if *asked == number)
        {
            *vault = Vault::Up { ping: None, next };
            self.set_timer(next, Timer::Label(label.clone()));
        }
    }

    pub(crate) fn vault_lost(&mut self, label: &LabelName, now: Time) {
        let until = now.after(SILENCE);
        if let Some(UsedLabel { vault: vault @ Vault::Up { .. }, .. }) = self.used_labels.get_mut(label) {
            *vault = Vault::Lost(until);
            self.set_timer(until, Timer::Label(label.clone()));
        }
    }

    pub(crate) fn label_due(&mut self, label: &LabelName, now: Time) {
        let number = self.number();
        let Some(used) = self.used_labels.get_mut(label) else { return };
        match &mut used.vault {
            Vault::Up { ping: Some(_), next } if *next <= now => self.kill(label),
            Vault::Up { ping, next } if *next <= now => {
                *ping = Some(number);
                *next = now.after(PING).whole_second();
                let at = *next;
                self.set_timer(at, Timer::Label(label.clone()));
                self.say(Output::Vault(label.clone(), ToVault::Ping(number)));
            }
            Vault::Lost(until) if *until <= now => self.kill(label),
            _ => {}
        }
    }

    /// A vault that does not answer is killed; that it is dead is the answer.
    pub(crate) fn kill(&mut self, label: &LabelName) {
        if let Some(UsedLabel { vault: vault @ (Vault::Up { .. } | Vault::Lost(_)), .. }) =
            self.used_labels.get_mut(label)
        {
            *vault = Vault::Dying;
            self.say(Output::Kill(label.clone()));
        }
    }

    /// Takes up a session that the store has.
    pub(crate) fn restore(&mut self, record: Stored, now: Time) {
        let id = record.id;
        let denied = |reason: String| Entry {
            user: Some(record.user.clone()),
            host: Some(record.device.clone()),
            label: Some(record.label.clone()),
            action: Action::Restore,
            object: id.to_string(),
            verdict: Verdict::Denied,
            reason,
        };
        let taken = self.pools.retake(&record.label, &record.inner);
        if self.by_device.contains_key(&record.device)
            || self.sessions.contains_key(&id)
            || (!taken && self.pools.is_held(&record.label, &record.inner))
        {
            // The store never has two sessions of one TPE or address; if it does, the second is not believed.
            let denied = denied("the store has another session of this host or address".into());
            self.commit(Purpose::Nothing, vec![denied], vec![Change::Remove(id, record.label, vec![])]);
            return;
        }
        let (label, device) = (record.label.clone(), record.device.clone());
        // The vault may have outlived sessiond: it counts as knowing the session until it has answered.
        let shared = self.withdraw_restored(&record);
        self.by_device.insert(device.clone(), id);
        let asked = (record.protection.as_ref(), self.posture_at(&label));
        let phase = match rules::open(&self.site, &record.user, &device, &label, asked) {
            Ok(grant)
                if taken
                    && self.site.federation().is_none()
                    && !self.left.is_zero()
                    && !self.disabled.contains(&record.user) =>
            {
                // A grant like any other: in the log before anything is done for it.
                let reason = "after a restart, until its workstation comes back".to_owned();
                let granted = grant.entry(Action::Restore, id.to_string(), reason);
                let commit = self.commit(Purpose::Restore(id), vec![granted], vec![]);
                Phase::Returning { grant, commit }
            }
            // Its vault may know it still, so it is ended like any other.
            refused => {
                let reason = match refused {
                    Ok(_) if self.disabled.contains(&record.user) => "its person is disabled".to_owned(),
                    Ok(_) if self.left.is_zero() => {
                        "nobody watched over it for longer than its grace time".to_owned()
                    }
                    Ok(_) if taken => "its server's lease went with its run".to_owned(),
                    Ok(_) => "its inner address is not of the site's pool any more".to_owned(),
                    Err(denial) => denial.reason().to_owned(),
                };
                self.say(Output::Audit(denied(reason.clone())));
                self.use_label(&label, id);
                Phase::Closing(Closing {
                    reason,
                    step: Step::Vault(now.after(SILENCE)),
                    waiters: vec![],
                    logged: false,
                    for_now: false,
                })
            }
        };
        self.sessions.insert(
            id,
            Session { record, vault: InVault::Told(0), answer: None, reached: true, shared, phase },
        );
    }

    /// What a session was restored by is in the log, or cannot be: then it ends.
    pub(crate) fn restore_recorded(&mut self, id: SessionId, commit: CommitId, durable: bool, now: Time) {
        let Some(session) = self.sessions.get(&id) else { return };
        if !matches!(&session.phase, Phase::Returning { commit: of, .. } if *of == commit) {
            return;
        }
        if !durable {
            return self.close(id, NOT_RECORDED, None, now);
        }
        let label = session.record.label.clone();
        let until = now.after(self.left);
        let last = rules::last(&self.site, session.record.opened);
        // A label that another session has up has had its vault forget this one.
        let keys_lost = self.used_labels.contains_key(&label);
        // Nobody has proved themself since it was locked, or has seen whether its person sits there still.
        let locked = self.were_locked.remove(&id) || self.site.server().idle_lock().is_some();
        let lock = if locked { Lock::Locked } else { Lock::Used(now) };
        self.transition(id, |phase| match phase {
            Phase::Returning { grant, .. } => {
                Phase::Open(Open { grant, link: Link::Detached(until), lock, keys_lost, renewing: false })
            }
            other => other,
        });
        self.set_timer(until, Timer::Session(id));
        if let Some(last) = last {
            self.set_timer(last, Timer::Session(id));
        }
        if self.use_label(&label, id) {
            self.tell_vault(id, now);
        }
    }
}
