//! Sessions that other servers of the site have part in: those of this server that they may use, and theirs that may be
//! used here. What is current and what is over everywhere is said by [`crate::federation::Federation`].

use crate::closing::ended;
use crate::disable::DISABLED;
use crate::event::*;
use crate::federation::{Publication, Shared};
use crate::sessions::Sessions;
use crate::state::*;
use crate::stored::Stored;
use crate::{SessionId, Time, rules};
use levee_policy::audit::{Action, Event as Entry, Verdict};
use levee_policy::decision::Keys;
use levee_policy::{DomainName, Grant};

/// Sessions of other servers of which it is kept that an operator has ended them here, the latest: more than this server uses at once.
const MOST_ENDED: usize = 16_384;

/// Questions of the keyer about one session that wait for its label.
const TICKETS: usize = 8;

impl Sessions {
    /// A session of this server begins: where there are other servers, they are told.
    pub(crate) fn share(&mut self, record: &Stored) -> Sharing {
        if self.site.federation().is_none() {
            return Sharing::Not;
        }
        self.say(Output::Publish(record.clone()));
        Sharing::Publishing
    }

    /// A session that a run before this one has left may be known to others.
    pub(crate) fn withdraw_restored(&mut self, record: &Stored) -> Sharing {
        if self.site.federation().is_none() {
            return Sharing::Not;
        }
        self.say(Output::Withdraw(record.clone()));
        Sharing::Withdrawing
    }

    pub(crate) fn published(&mut self, id: SessionId, what: Publication, now: Time) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.shared != Sharing::Publishing {
            return;
        }
        let label = session.record.label.clone();
        match what {
            Publication::Done => {
                session.shared = Sharing::Published;
                if matches!(self.used_labels.get(&label), Some(UsedLabel { vault: Vault::Up { .. }, .. })) {
                    self.tell_vault(id, now);
                }
            }
            Publication::Refused(reason) => {
                session.shared = Sharing::Not;
                self.close(id, &reason, None, now);
            }
            Publication::Unknown(reason) => self.close(id, &reason, None, now),
        }
    }

    /// A session's end begins.
    pub(crate) fn withdraw(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id)
            && matches!(session.shared, Sharing::Publishing | Sharing::Published)
        {
            session.shared = Sharing::Withdrawing;
            let record = session.record.clone();
            self.say(Output::Withdraw(record));
        }
    }

    pub(crate) fn withdrawn(&mut self, id: SessionId, now: Time) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.shared == Sharing::Withdrawing {
            session.shared = Sharing::Not;
            if matches!(&session.phase, Phase::Closing(Closing { step: Step::Elsewhere(_), .. })) {
                self.record_end(id, now);
            }
        }
    }

    /// A session of another server. The policy is asked here as well, and what it says is in the log before it counts.
    pub(crate) fn appeared(&mut self, shared: Shared) {
        let Shared { owner, record } = shared;
        let id = record.id;
        let known = self.sessions.contains_key(&id) || self.coming.contains_key(&id);
        let elsewhere =
            self.sessions.values().filter(|session| matches!(session.shared, Sharing::Theirs(..)));
        let mut theirs = elsewhere
            .map(|session| &session.record)
            .chain(self.coming.values().map(|coming| &coming.granted.record));
        let held = self.by_device.contains_key(&record.device)
            || theirs.any(|other| {
                // Labels are separate networks, with a pool each.
                other.label == record.label
                    && other.inner.iter().any(|address| record.inner.contains(address))
            });
        let asked = (record.protection.as_ref(), self.posture_at(&record.label));
        let decided = match rules::open(&self.site, &record.user, &record.device, &record.label, asked) {
            Ok(_) if self.disabled.contains(&record.user) => Err(DISABLED.to_owned()),
            Ok(_) if self.ended_here.contains_key(&id) => {
                Err("an operator of this server has ended it here".to_owned())
            }
            Ok(_) if known || held => Err("it has a session, or an inner address, of another".to_owned()),
            Ok(_) if !rules::is_of_peer(&self.site, &owner, &record.inner) => {
                Err("that server has no such inner address to give".to_owned())
            }
            Ok(grant) => Ok(grant),
            Err(denial) => Err(denial.reason().to_owned()),
        };
        match decided {
            Ok(grant) => {
                let entry = grant.entry(Action::Session, id.to_string(), format!("signed on at {owner}"));
                self.coming.insert(id, Coming { owner, granted: Granted { grant, record } });
                self.commit(Purpose::Appear(id), vec![entry], vec![]);
            }
            // Whose it is that server says, and may have made up: it counts as what that server does.
            Err(reason) => self.say(Output::Audit(Entry {
                user: None,
                host: None,
                label: None,
                action: Action::Session,
                object: format!("server {owner}"),
                verdict: Verdict::Denied,
                reason: format!(
                    "a session of {} at {}, {}, that signed on there: {reason}",
                    record.user, record.device, record.label
                ),
            })),
        }
    }

    pub(crate) fn appear_recorded(&mut self, id: SessionId, durable: bool) {
        let Some(Coming { owner, granted: Granted { grant, record } }) = self.coming.remove(&id) else {
            return;
        };
        if !durable {
            return;
        }
        // What an operator has said meanwhile counts.
        let why = if self.disabled.contains(&record.user) {
            Some(DISABLED.to_owned())
        } else if self.by_device.contains_key(&record.device) {
            Some("its workstation has another session by now".to_owned())
        } else {
            self.barred(&record, grant.action().protected())
        };
        if let Some(why) = why {
            return self.say(Output::Audit(ended(&record, &why)));
        }
        self.by_device.insert(record.device.clone(), id);
        let open = Open {
            grant,
            link: Link::Elsewhere,
            lock: Lock::Used(Time::default()),
            keys_lost: false,
            renewing: false,
        };
        let (shared, phase) = (Sharing::Theirs(owner, Vec::new()), Phase::Open(open));
        self.sessions.insert(
            id,
            Session { record, vault: InVault::Absent, answer: None, reached: false, shared, phase },
        );
    }

    pub(crate) fn vanished(&mut self, owner: DomainName, id: SessionId, now: Time) {
        if self.coming.get(&id).is_some_and(|coming| coming.owner == owner) {
            self.coming.remove(&id);
        }
        match self.sessions.get(&id) {
            Some(Session { shared: Sharing::Theirs(of, _), .. }) if *of == owner => {
                self.close(id, "it is over at the server where its person signed on", None, now);
            }
            // It was never taken, or is another's, which alone says that it is over.
            _ => self.say(Output::Over(owner, id)),
        }
    }

    /// An operator ends here what is another server's session, as the next record of its end says. That one goes on with it, and says so again
    /// and again: after it was locked, after either was cut off or started anew. So it is kept, by a name that no other session gets.
    pub(crate) fn end_here(&mut self, id: SessionId, now: Time) {
        let Some(Session { shared: Sharing::Theirs(..), phase, .. }) = self.sessions.get_mut(&id) else {
            return;
        };
        if let Phase::Closing(Closing { step: step @ Step::Recording(_), .. }) = phase {
            // The record that is under way does not say so.
            *step = Step::RecordingAgain(now);
            self.set_timer(now, Timer::Session(id));
        }
        self.ended_here.insert(id, now);
        if self.ended_here.len() > MOST_ENDED
            && let Some((&oldest, _)) = self.ended_here.iter().min_by_key(|(_, at)| **at)
        {
            self.ended_here.remove(&oldest);
            self.commit(Purpose::Nothing, vec![], vec![Change::EndedHere(oldest, None)]);
        }
    }

    pub(crate) fn fence(&mut self, reason: &str, now: Time) {
        let reason = format!("the server is cut off from the others of its site: {reason}");
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.close(id, &reason, None, now);
        }
    }

    /// The keyer asks about a session that its vault does not have yet. One of another server can have keys once its label is up: the
    /// first packet for a server starts the label there. The grant waits with the question.
    ///
    /// # Errors
    /// It is not another server's, or too many ask.
    pub(crate) fn waits_for_label(
        &mut self,
        ticket: u64,
        id: SessionId,
        grant: Grant<Keys>,
        now: Time,
    ) -> Result<(), &'static str> {
        const DOWN: &str = "its label's vault is not up";
        let mut first = None;
        if let Some(Session { record, shared: Sharing::Theirs(..), .. }) = self.sessions.get(&id) {
            let many = "nobody has been at its label here, and its person was the first at as many as the site allows";
            first = self.first_at(&record.user, &record.label).map_err(|_| many)?;
        }
        let session = self.sessions.get_mut(&id).ok_or("it has no session")?;
        let Sharing::Theirs(_, tickets) = &mut session.shared else { return Err(DOWN) };
        if tickets.len() >= TICKETS {
            return Err(DOWN);
        }
        tickets.push((ticket, grant));
        let label = session.record.label.clone();
        let placed = self.used_labels.get(&label).is_some_and(|used| used.sessions.contains(&id));
        if let Some(change) = first {
            self.is_first(Some(&change));
            self.commit(Purpose::Nothing, vec![], vec![change]);
        }
        if !placed && self.use_label(&label, id) {
            self.tell_vault(id, now);
        }
        Ok(())
    }

    /// The session's vault has it.
    pub(crate) fn answer_tickets(&mut self, id: SessionId) {
        let Some(Session { shared: Sharing::Theirs(_, tickets), .. }) = self.sessions.get_mut(&id) else {
            return;
        };
        for (ticket, grant) in std::mem::take(tickets) {
            let record = self.key_record(id, grant);
            self.say(Output::Keys(ticket, record));
        }
    }

    pub(crate) fn refuse_tickets(&mut self, tickets: Vec<(u64, Grant<Keys>)>) {
        for (ticket, _) in tickets {
            self.say(Output::Keys(ticket, None));
        }
    }

    /// How long whoever waits for an end waits for other servers: one that does not answer has lost its lease by then.
    pub(crate) fn patience(&self, now: Time) -> Time {
        now.after(self.site.federation().map_or_else(Default::default, |federation| federation.lease() * 3))
    }
}
