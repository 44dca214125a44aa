//! A session that is locked: its vault has its record without a selector, so that no packet of it passes, until its person has proved
//! themself again. Its keys, its addresses and what runs at the workstation stay.
//!
//! Who has a session that nobody uses for as long as the site says is locked by this server's clock, whether or not their workstation
//! says anything; who has none is signed off.

use crate::clients::{CREDENTIALS, CREDENTIALS_OR_CODE, NOBODY, entry};
use crate::connecting::grant_of;
use crate::event::*;
use crate::pace::{Paced, TOO_FAST};
use crate::sessions::{NO_SESSION, NOT_RECORDED, SILENCE, Sessions};
use crate::state::*;
use crate::stored::Stored;
use crate::{SessionId, Time, rules};
use levee_policy::audit::{Action, Event as Entry, Verdict};
use levee_policy::{HostName, UserName};

/// Said where nobody has touched anything for as long as the site lets a session wait.
pub(crate) const IDLE: &str = "nobody has used it for as long as the site says";
const BY_PERSON: &str = "by its person";
const IS_LOCKED: &str = "the session is locked: unlock it first";

impl Sessions {
    /// Whether a request must wait until the session of this client is unlocked.
    pub(crate) fn is_barred(&self, client: ClientId, request: &Request) -> bool {
        let waits = matches!(
            request,
            Request::Level { .. }
                | Request::Passwd
                | Request::Carry(_)
                | Request::Releases
                | Request::ShowRelease(..)
                | Request::Release(..)
                | Request::Accesses
                | Request::Access(..)
        );
        waits && self.lock_of(client).is_some_and(Lock::bars)
    }

    pub(crate) fn bar(&mut self, client: ClientId) {
        self.refuse(client, RefusalKind::Locked, IS_LOCKED);
    }

    /// How the session that this client uses stands.
    pub(crate) fn lock_of(&self, client: ClientId) -> Option<Lock> {
        match &self.sessions.get(&self.own_session(client)?)?.phase {
            Phase::Open(open) => Some(open.lock),
            _ => None,
        }
    }

    /// The person at this client has done something.
    pub(crate) fn active(&mut self, client: ClientId, now: Time) {
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.active = now;
        }
        if let Some(id) = self.own_session(client)
            && let Some(Session { phase: Phase::Open(open), .. }) = self.sessions.get_mut(&id)
            && let Lock::Used(since) = &mut open.lock
        {
            *since = now;
        }
    }

    /// When something is to be seen to, if nothing is used meanwhile.
    pub(crate) fn watch_idle(&mut self, since: Time, timer: Timer) {
        if let Some(span) = self.site.server().idle_lock() {
            self.set_timer(since.after(span), timer);
        }
    }

    /// Signs off whoever has no session, and has done nothing for long; true where that is so.
    pub(crate) fn idles(&mut self, client: ClientId, now: Time) -> bool {
        let Some(span) = self.site.server().idle_lock() else { return false };
        let Some(entry) = self.clients.get(&client) else { return false };
        if entry.person.is_none() {
            return false;
        }
        let due = entry.active.after(span);
        if due > now {
            self.set_timer(due, Timer::Client(client));
            return false;
        }
        // A session has a lock of its own, and what is being asked is answered first.
        if entry.busy.is_some() || self.by_device.contains_key(&entry.device) {
            self.set_timer(now.after(span), Timer::Client(client));
            return false;
        }
        self.sign_off(client, IDLE, now);
        true
    }

    /// Locks a session that nobody has used for long, and kills a vault that does not lock.
    pub(crate) fn idle_session(&mut self, id: SessionId, now: Time) {
        let Some(Session { record, vault, phase: Phase::Open(open), .. }) = self.sessions.get(&id) else {
            return;
        };
        match (open.lock, self.site.server().idle_lock()) {
            (Lock::Used(_), _) if open.link == Link::Elsewhere => {}
            (Lock::Used(since), Some(span)) if since.after(span) <= now => self.lock(id, IDLE, now),
            (Lock::Used(since), Some(span)) => self.set_timer(since.after(span), Timer::Session(id)),
            (Lock::Locking(until), _) if until <= now && matches!(vault, InVault::Told(_)) => {
                let label = record.label.clone();
                self.kill(&label);
            }
            _ => {}
        }
    }

    pub(crate) fn lock_asked(&mut self, client: ClientId, now: Time) {
        match (self.own_session(client), self.lock_of(client)) {
            (Some(_), Some(Lock::Locked)) => self.answer(client, Reply::Locked),
            (Some(id), Some(_)) => {
                if let Some(entry) = self.clients.get_mut(&client) {
                    entry.busy = Some(Busy::Locking);
                }
                self.lock(id, BY_PERSON, now);
            }
            _ => self.refuse(client, RefusalKind::NoSession, NO_SESSION),
        }
    }

    fn lock(&mut self, id: SessionId, why: &str, now: Time) {
        let until = now.after(SILENCE);
        let Some(Session { record, phase: Phase::Open(open), .. }) = self.sessions.get_mut(&id) else {
            return;
        };
        let (link, before) = (open.link, open.lock);
        open.lock = Lock::Locking(until);
        let label = record.label.clone();
        if !before.bars() {
            let noted = said(record, Action::Lock, Verdict::Noted, why);
            self.say(Output::Audit(noted));
            self.commit(Purpose::Nothing, vec![], vec![Change::Locked(id, true)]);
        }
        if let Link::Attached(client) = link
            && !self.waits_for_lock(client)
        {
            self.reply(client, Reply::LockedUnasked(why.to_owned()));
        }
        // At the site's other servers it is over until it is unlocked.
        self.withdraw(id);
        self.set_timer(until, Timer::Session(id));
        // A vault that does not run passes nothing, and is told when it does.
        if matches!(self.used_labels.get(&label), Some(UsedLabel { vault: Vault::Up { .. }, .. })) {
            self.tell_vault(id, now);
        }
    }

    fn waits_for_lock(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|entry| matches!(entry.busy, Some(Busy::Locking)))
    }

    /// The session's vault has the record that it was told last: every answer to an earlier one has come.
    pub(crate) fn lock_settled(&mut self, id: SessionId) {
        let Some(Session { phase: Phase::Open(open), .. }) = self.sessions.get_mut(&id) else { return };
        let reply = match open.lock {
            Lock::Locking(_) => {
                open.lock = Lock::Locked;
                Reply::Locked
            }
            Lock::Unlocking(since) => {
                open.lock = Lock::Used(since);
                self.timers.insert((since, Timer::Session(id)));
                Reply::Unlocked
            }
            Lock::Used(_) | Lock::Locked => return,
        };
        let Link::Attached(client) = open.link else { return };
        let waits = self.clients.get(&client).is_some_and(|entry| {
            matches!(
                (&entry.busy, &reply),
                (Some(Busy::Locking), Reply::Locked)
                    | (Some(Busy::Unlocking(Unlocking::Reopening)), Reply::Unlocked)
            )
        });
        if waits {
            self.answer(client, reply);
        }
    }

    /// The session that this client waits for to be locked or unlocked is over.
    pub(crate) fn lock_over(&mut self, client: ClientId, reason: &str) {
        let waits = self.clients.get(&client).is_some_and(|entry| {
            matches!(entry.busy, Some(Busy::Locking | Busy::Unlocking(Unlocking::Reopening)))
        });
        if waits {
            self.refuse(client, RefusalKind::NoSession, reason);
        }
    }

    pub(crate) fn unlock(&mut self, client: ClientId, now: Time) {
        let Some(user) = self.clients.get(&client).and_then(|entry| entry.person.clone()) else {
            return self.refuse(client, RefusalKind::NotLoggedIn, NOBODY);
        };
        if let Err((kind, why)) = self.may_unlock(client) {
            return self.refuse(client, kind, why);
        }
        self.prove(client, Proof::Unlock, user, now);
    }

    /// Whether there is something to unlock, and it can be now.
    fn may_unlock(&self, client: ClientId) -> Result<SessionId, (RefusalKind, &'static str)> {
        let id = self.own_session(client).ok_or((RefusalKind::NoSession, NO_SESSION))?;
        let leaving = self.sessions.get(&id).is_some_and(|session| session.shared == Sharing::Withdrawing);
        match self.lock_of(client) {
            Some(Lock::Locked) if leaving => Err((
                RefusalKind::Unavailable,
                "the site's other servers have not all said yet that they have locked it: try again",
            )),
            Some(Lock::Locked) => Ok(id),
            Some(Lock::Locking(_)) => {
                Err((RefusalKind::Unavailable, "it is being locked still: try again in a moment"))
            }
            _ => Err((RefusalKind::Protocol, "the session is not locked")),
        }
    }

    pub(crate) fn unlock_verified(
        &mut self,
        client: ClientId,
        (device, user): (HostName, UserName),
        verified: Verified,
        now: Time,
    ) {
        let id = match self.may_unlock(client) {
            Ok(id) => id,
            Err((kind, why)) => return self.refuse(client, kind, why),
        };
        match verified {
            Verified::Right(step) if self.takes_code(&user, step) => {}
            Verified::Right(_) | Verified::Wrong => {
                let why = if self.site.asks_codes() { CREDENTIALS_OR_CODE } else { CREDENTIALS };
                let denied = self.sessions.get(&id).map_or_else(
                    || entry(&user, &device, Action::Unlock, Verdict::Denied, why),
                    |session| said(&session.record, Action::Unlock, Verdict::Denied, why),
                );
                self.say(Output::Audit(denied));
                return self.refuse(client, RefusalKind::Credentials, why);
            }
            Verified::Unavailable => {
                self.count("a password that could not be looked at", Some(device), Some(user));
                let why = "the server cannot check passwords now";
                return self.refuse(client, RefusalKind::Unavailable, why);
            }
        }
        self.delays.succeeded(&device, &user);
        let grant = match rules::sign_on(&self.site, &user, &device, self.disabled.contains(&user)) {
            Ok(grant) => grant,
            Err(denial) => {
                self.say(Output::Audit(denial.audit().clone()));
                return self.refuse(client, RefusalKind::Label, denial.reason());
            }
        };
        let granted = self
            .sessions
            .get(&id)
            .and_then(|session| grant_of(&session.phase))
            .map(|session| session.entry(Action::Unlock, id.to_string(), grant.audit().reason.clone()));
        if let Some(granted) = &granted
            && !self.keeps_pace(Paced::Unlock, &user, granted, now)
        {
            return self.refuse(client, RefusalKind::Unavailable, TOO_FAST);
        }
        let commit = self.commit(Purpose::Unlock(client), granted.into_iter().collect(), vec![]);
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.busy = Some(Busy::Unlocking(Unlocking::Recording(grant, commit)));
        }
    }

    /// The one place where a session is unlocked: it consumes the grant.
    pub(crate) fn unlock_recorded(&mut self, client: ClientId, commit: CommitId, durable: bool, now: Time) {
        let Some(path) = self.clients.get_mut(&client) else { return };
        if !matches!(&path.busy, Some(Busy::Unlocking(Unlocking::Recording(_, of))) if *of == commit) {
            return;
        }
        let Some(Busy::Unlocking(Unlocking::Recording(grant, _))) = path.busy.take() else { return };
        if !durable {
            return self.refuse(client, RefusalKind::Unavailable, NOT_RECORDED);
        }
        let id = match self.may_unlock(client) {
            Ok(id) => id,
            Err((kind, why)) => return self.refuse(client, kind, why),
        };
        let _ = grant.into_parts();
        if let Some(entry) = self.clients.get_mut(&client) {
            (entry.active, entry.busy) = (now, Some(Busy::Unlocking(Unlocking::Reopening)));
        }
        let Some(Session { record, phase: Phase::Open(open), .. }) = self.sessions.get_mut(&id) else {
            return;
        };
        open.lock = Lock::Unlocking(now);
        let record = record.clone();
        // Until this is written, a restart brings it back locked.
        self.commit(Purpose::Nothing, vec![], vec![Change::Locked(id, false)]);
        // Its vault is told once every server can be made to end it, as when it began.
        let shared = self.share(&record);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.shared = shared;
        }
        if matches!(self.used_labels.get(&record.label), Some(UsedLabel { vault: Vault::Up { .. }, .. })) {
            self.tell_vault(id, now);
        }
    }
}

fn said(record: &Stored, action: Action, verdict: Verdict, reason: &str) -> Entry {
    Entry {
        user: Some(record.user.clone()),
        host: Some(record.device.clone()),
        label: Some(record.label.clone()),
        action,
        object: record.id.to_string(),
        verdict,
        reason: reason.into(),
    }
}
