//! Ending a session: the vault has erased its keys or is dead → its sockets are cut → the store has forgotten it
//! → whoever waits for it is told. No step is skipped, and each waits for the one before.

use crate::event::*;
use crate::sessions::{CUT_TRIES, RETRY, SILENCE, Sessions};
use crate::state::*;
use crate::stored::Stored;
use crate::{SessionId, Time, rules};
use levee_policy::audit::{Action, Event as Entry, Verdict};
use std::collections::BTreeSet;

impl Sessions {
    /// Begins a session's end, or waits with the others for one that has begun.
    pub(crate) fn close(&mut self, id: SessionId, reason: &str, waiter: Option<Waiter>, now: Time) {
        let mut waiters: Vec<Waiter> = waiter.into_iter().collect();
        let mut begun = None;
        let mut returning = false;
        let mut user_of_it = None;
        let mut unproved = None;
        self.transition(id, |phase| match phase {
            Phase::Closing(mut closing) => {
                closing.waiters.append(&mut waiters);
                closing.for_now = false;
                Phase::Closing(closing)
            }
            Phase::Making { client, .. } => {
                begun = Some(false);
                waiters.push(Waiter::Refuse(client));
                closing(reason, std::mem::take(&mut waiters), now)
            }
            // Its vault may know it from before sessiond started.
            Phase::Returning { .. } => {
                (begun, returning) = (Some(true), true);
                closing(reason, std::mem::take(&mut waiters), now)
            }
            Phase::Open(open) => {
                if let Link::Attached(client) = open.link {
                    user_of_it = Some(client);
                    let asked = waiters.iter().any(
                        |waiter| matches!(waiter, Waiter::LogOut(c) | Waiter::Replace(c) if *c == client),
                    );
                    if !asked {
                        waiters.push(Waiter::TellEnded(client));
                        unproved = open.lock.bars().then_some(client);
                    }
                }
                begun = Some(true);
                closing(reason, std::mem::take(&mut waiters), now)
            }
        });
        if let Some(client) = user_of_it {
            self.lock_over(client, reason);
        }
        // Who was to prove themself before anything else has not: whoever sits there now begins as everybody does.
        if let Some(client) = unproved {
            self.sign_off(client, reason, now);
        }
        // Left over only where there is no such session: it is over already.
        for waiter in waiters {
            self.notify(waiter, "it was over", now);
        }
        let Some(keys) = begun else { return };
        self.withdraw(id);
        if keys {
            self.say(Output::Revoke(id));
        }
        let Some(session) = self.sessions.get(&id) else { return };
        if session.vault == InVault::Absent {
            return self.close_sockets(id, 0, now);
        }
        // If the vault is not up, the label's next event goes on from here.
        let label = session.record.label.clone();
        if returning {
            self.use_label(&label, id);
        }
        if matches!(self.used_labels.get(&label), Some(UsedLabel { vault: Vault::Up { .. }, .. })) {
            self.tell_vault_closed(id, now);
        }
    }

    /// Begins the end of a session that has no other: it could not go on here. One of another server is not over by that, and may be
    /// used here again.
    pub(crate) fn close_here(&mut self, id: SessionId, reason: &str, now: Time) {
        self.close(id, reason, None, now);
        if let Some(Session { phase: Phase::Closing(closing), .. }) = self.sessions.get_mut(&id) {
            closing.for_now = true;
        }
    }

    /// Has the vault, which is up, erase the session; a vault that does not answer in time is killed.
    pub(crate) fn tell_vault_closed(&mut self, id: SessionId, now: Time) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let label = session.record.label.clone();
        if let Phase::Closing(closing) = &mut session.phase {
            let deadline = now.after(SILENCE);
            closing.step = Step::Vault(deadline);
            self.set_timer(deadline, Timer::Session(id));
            self.say(Output::Vault(label, ToVault::Close(id)));
        }
    }

    pub(crate) fn vault_closed(&mut self, label: &levee_policy::LabelName, id: SessionId, now: Time) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.record.label != *label {
            return;
        }
        match &session.phase {
            Phase::Closing(Closing { step: Step::Vault(_), .. }) => {
                session.vault = InVault::Absent;
                self.reach_told(id, now);
                self.close_sockets(id, 0, now);
            }
            // Unasked: the vault cannot take the session as it stands, and has none of it.
            Phase::Making { .. } | Phase::Open(_) => {
                session.vault = InVault::Absent;
                self.close_here(id, "the label's vault did not take the session", now);
            }
            Phase::Returning { .. } | Phase::Closing(_) => {}
        }
    }

    /// The vault passes no packet of the session any more: no new socket can come to be, so now they are cut.
    pub(crate) fn close_sockets(&mut self, id: SessionId, tries: u32, now: Time) {
        let Some(session) = self.sessions.get(&id) else { return };
        if !session.reached {
            return self.record_end(id, now);
        }
        let (label, inner) = (session.record.label.clone(), session.record.inner.clone());
        let mut cuts = BTreeSet::new();
        for address in inner {
            let cut = CutId(self.number());
            self.cuts.insert(cut, id);
            cuts.insert(cut);
            self.say(Output::Cut(cut, label.clone(), address));
        }
        let none = cuts.is_empty();
        self.step(id, Step::Sockets(cuts, tries));
        if none {
            self.record_end(id, now);
        }
    }

    pub(crate) fn cut_done(&mut self, cut: CutId, sockets: Option<u32>, now: Time) {
        let Some(id) = self.cuts.remove(&cut) else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Phase::Closing(Closing { step: Step::Sockets(cuts, tries), .. }) = &mut session.phase else {
            return;
        };
        if sockets.is_some() {
            cuts.remove(&cut);
            if cuts.is_empty() {
                self.record_end(id, now);
            }
            return;
        }
        let tries = tries.saturating_add(1);
        let at = now.after(RETRY);
        self.forget_cuts(id);
        self.step(id, Step::SocketsAgain(at, tries));
        self.set_timer(at, Timer::Session(id));
        if tries == CUT_TRIES {
            const REASON: &str =
                "no packet of the session passes any more, but its sockets could not be destroyed";
            self.end_failed(id, REASON, now);
        }
    }

    pub(crate) fn forget_cuts(&mut self, id: SessionId) {
        self.cuts.retain(|_, session| *session != id);
    }

    /// Makes the end durable, in the log and then in the store. Where another session replaces this one, it comes into the store by the
    /// same change: the store never has two of one TPE.
    pub(crate) fn record_end(&mut self, id: SessionId, now: Time) {
        let until = self.patience(now);
        let Some(session) = self.sessions.get(&id) else { return };
        let Phase::Closing(closing) = &session.phase else { return };
        if session.shared == Sharing::Withdrawing {
            // Over here, but not everywhere.
            self.step(id, Step::Elsewhere(until));
            return self.set_timer(until, Timer::Session(id));
        }
        let record = &session.record;
        if !closing.logged {
            let ended = ended(record, &closing.reason);
            let commit = self.commit(Purpose::End(id), vec![ended], vec![]);
            return self.step(id, Step::Recording(commit));
        }
        // Another server's was never in the store, but that it is not used here again.
        let here = self.ended_here.get(&id).map(|at| Change::EndedHere(id, Some(*at)));
        let mut changes = match session.shared {
            Sharing::Theirs(..) => here.into_iter().collect(),
            _ => vec![Change::Remove(id, record.label.clone(), record.inner.clone())],
        };
        for waiter in &closing.waiters {
            if let Waiter::Replace(client) = waiter
                && let Some(path) = self.clients.get_mut(client)
                && let Some(Busy::Opening(Opening::Replacing(granted, stored))) = &mut path.busy
            {
                *stored = true;
                changes.push(Change::Put(granted.record.clone()));
            }
        }
        if changes.is_empty() {
            return self.finish(id, now);
        }
        let commit = self.commit(Purpose::End(id), vec![], changes);
        self.step(id, Step::Recording(commit));
    }

    pub(crate) fn end_recorded(&mut self, id: SessionId, commit: CommitId, durable: bool, now: Time) {
        let Some(Session { phase: Phase::Closing(closing), .. }) = self.sessions.get_mut(&id) else { return };
        if !matches!(closing.step, Step::Recording(of) if of == commit) {
            return;
        }
        let logged = closing.logged;
        if durable {
            closing.logged = true;
            return if logged { self.finish(id, now) } else { self.record_end(id, now) };
        }
        let at = now.after(RETRY);
        self.step(id, Step::RecordingAgain(at));
        self.set_timer(at, Timer::Session(id));
        const REASON: &str = "no packet of the session passes any more, but its end could not be recorded: \
                              the server's audit log or store cannot be written";
        self.end_failed(id, REASON, now);
    }

    /// Nothing of the session is left.
    fn finish(&mut self, id: SessionId, now: Time) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.reach_told(id, now);
        self.ended_late(id);
        let record = session.record;
        self.by_device.remove(&record.device);
        if let Sharing::Theirs(owner, tickets) = session.shared {
            self.refuse_tickets(tickets);
            let for_now = matches!(&session.phase, Phase::Closing(closing) if closing.for_now);
            self.say(if for_now { Output::Missing(owner, id) } else { Output::Over(owner, id) });
        } else {
            let owner = (record.user.clone(), record.device.clone());
            self.pools.rest(&record.label, owner, &record.inner, now);
        }
        if let Phase::Closing(closing) = session.phase {
            for waiter in closing.waiters {
                self.notify(waiter, &closing.reason, now);
            }
        }
        // After the waiters, so that a new session at the same label keeps what runs there.
        self.leave_label(&record, now);
    }

    fn notify(&mut self, waiter: Waiter, reason: &str, now: Time) {
        match waiter {
            Waiter::LogOut(client) => self.logged_out(client),
            Waiter::Replace(client) => self.replaced(client, now),
            Waiter::SignOn(client) => self.signed_on(client, now),
            Waiter::Operator(operator) => self.tell_operator(operator, Ok(())),
            Waiter::Posture(id) => self.ended_for_posture(id, Ok(()), now),
            Waiter::TellEnded(client) => self.reply(client, Reply::Ended(reason.to_owned())),
            Waiter::Refuse(client) => self.refuse_opening(client, reason),
            Waiter::Discard(record) => self.discard(*record, now),
        }
    }

    /// The session has not ended in good order, and whoever waits for that must not wait for ever. Its end is
    /// still pursued; until then nobody else gets its TPE or its addresses.
    fn end_failed(&mut self, id: SessionId, failure: &str, now: Time) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Phase::Closing(closing) = &mut session.phase else { return };
        let reason = closing.reason.clone();
        for waiter in std::mem::take(&mut closing.waiters) {
            match waiter {
                Waiter::LogOut(client) => self.refuse(client, RefusalKind::Unavailable, failure),
                Waiter::Replace(client) => self.not_replaced(client, failure, now),
                Waiter::SignOn(client) => self.sign_on_failed(client, failure),
                Waiter::Operator(operator) => self.tell_operator(operator, Err(failure.to_owned())),
                Waiter::Posture(id) => self.ended_for_posture(id, Err(failure), now),
                Waiter::TellEnded(client) => self.reply(client, Reply::Ended(reason.clone())),
                Waiter::Refuse(client) => self.refuse_opening(client, &reason),
                // The store did not get it.
                Waiter::Discard(record) => {
                    self.pools.put_back(&record.label, &record.inner);
                    self.leave_label(&record, now);
                }
            }
        }
    }

    fn refuse_opening(&mut self, client: ClientId, reason: &str) {
        if let Some(path) = self.clients.get(&client)
            && matches!(&path.busy, Some(Busy::Opening(Opening::Session(_))))
        {
            self.refuse(client, RefusalKind::Unavailable, reason);
        }
    }

    pub(crate) fn session_due(&mut self, id: SessionId, now: Time) {
        self.idle_session(id, now);
        let Some(session) = self.sessions.get(&id) else { return };
        let label = session.record.label.clone();
        let over = rules::last(&self.site, session.record.opened).is_some_and(|last| last <= now);
        match &session.phase {
            Phase::Making { .. } | Phase::Open(_) if over => {
                self.close(id, TOO_LONG, None, now);
            }
            Phase::Making { deadline, .. } if *deadline <= now => match session.vault {
                InVault::Absent => self.close(id, "the label could not be started in time", None, now),
                InVault::Told(_) | InVault::Ready => {
                    self.close(id, "the label's vault did not answer", None, now);
                    self.kill(&label);
                }
            },
            // First: a vault that is silent does not make the time longer.
            Phase::Open(Open { link: Link::Detached(until), .. }) if *until <= now => {
                self.close(id, "its workstation did not come back in time", None, now);
            }
            // It may pass packets by the word of before.
            Phase::Open(_)
                if matches!(session.vault, InVault::Told(_))
                    && session.answer.is_some_and(|at| at <= now) =>
            {
                self.kill(&label);
            }
            Phase::Closing(closing) => match closing.step {
                Step::Vault(at) if at <= now => self.kill(&label),
                Step::SocketsAgain(at, tries) if at <= now => self.close_sockets(id, tries, now),
                Step::RecordingAgain(at) if at <= now => self.record_end(id, now),
                Step::Elsewhere(at) if at <= now => self.end_failed(id, NOT_EVERYWHERE, now),
                _ => {}
            },
            _ => {}
        }
    }

    pub(crate) fn end_shown(&mut self, operator: OperatorId, shown: &str, now: Time) {
        let mut found = self.sessions.keys().filter(|id| id.is_shown_as(shown));
        let reason = match (found.next().copied(), found.next()) {
            (Some(id), None) => {
                self.end_here(id, now);
                return self.close(id, "ended by an operator", Some(Waiter::Operator(operator)), now);
            }
            (Some(_), Some(_)) => {
                format!("more than one session is shown as {shown}; ask their people to log out")
            }
            (None, _) => format!("there is no session {shown}; `levee session list` shows them"),
        };
        self.say(Output::Operator(operator, Err(reason)));
    }

    fn step(&mut self, id: SessionId, step: Step) {
        if let Some(Session { phase: Phase::Closing(closing), .. }) = self.sessions.get_mut(&id) {
            closing.step = step;
        }
    }
}

/// Said to a person whose time is over.
pub(crate) const TOO_LONG: &str = "it has lasted as long as the site lets a session last: sign on again";

const NOT_EVERYWHERE: &str = "no packet of the session passes this server any more, but another server of the site has not \
                              said so, and is given up only when its lease has run out";

/// The most characters of why a session ends. What is told by who reads others' octets may be longer than a record can be, and the end of what
/// cannot be recorded is pursued for ever.
const REASON: usize = 300;

fn closing(reason: &str, waiters: Vec<Waiter>, now: Time) -> Phase {
    Phase::Closing(Closing {
        reason: reason.chars().take(REASON).collect(),
        step: Step::Vault(now.after(SILENCE)),
        waiters,
        logged: false,
        for_now: false,
    })
}

/// The end of what was granted for a session.
pub(crate) fn ended(record: &Stored, reason: &str) -> Entry {
    Entry {
        user: Some(record.user.clone()),
        host: Some(record.device.clone()),
        label: Some(record.label.clone()),
        action: Action::End,
        object: record.id.to_string(),
        verdict: Verdict::Noted,
        reason: reason.into(),
    }
}
