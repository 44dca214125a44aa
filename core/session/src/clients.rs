//! Trusted paths: who sits at a TPE, signing on and off, passwords, resuming.

use crate::closing::TOO_LONG;
use crate::event::*;
use crate::pace::{Paced, TOO_FAST};
use crate::sessions::{CLIENTS_PER_DEVICE, NOT_RECORDED, Sessions};
use crate::state::*;
use crate::{SessionId, Time, rules};
use levee_policy::audit::{Action, Event as Entry, Verdict};
use levee_policy::site::SecondFactor;
use levee_policy::{HostName, UserName};
use std::time::Duration;

pub(crate) const NOBODY: &str = "nobody is signed on here";
const SOMEBODY: &str = "somebody is signed on at this workstation";
const NO_SESSION: &str = "no such session at this workstation";
pub(crate) const CREDENTIALS: &str = "unknown user or wrong password";
pub(crate) const CREDENTIALS_OR_CODE: &str = "unknown user, wrong password or wrong code";

impl Sessions {
    pub(crate) fn hello(&mut self, client: ClientId, device: HostName, fingerprint: [u8; 32]) {
        if self.clients.contains_key(&client) {
            return self.say(Output::Disconnect(client));
        }
        if !rules::is_known(&self.site, &device) {
            self.count("a certificate names no host of the site", Some(device), None);
            return self.say(Output::Disconnect(client));
        }
        // A TPE whose paths were cut may come back before their ends are noticed: the idle ones make room.
        let same = |entry: &&ClientId| self.clients.get(entry).is_some_and(|c| c.device == device);
        if self.clients.keys().filter(same).count() >= CLIENTS_PER_DEVICE {
            let idle = self
                .clients
                .iter()
                .find(|(_, c)| c.device == device && c.person.is_none() && c.busy.is_none())
                .map(|(id, _)| *id);
            self.count("more trusted paths than one workstation may have", Some(device.clone()), None);
            match idle {
                Some(idle) => {
                    self.clients.remove(&idle);
                    self.say(Output::Disconnect(idle));
                }
                None => return self.say(Output::Disconnect(client)),
            }
        }
        let (since, active) = (Time::default(), Time::default());
        self.clients.insert(client, Client { device, fingerprint, person: None, since, active, busy: None });
    }

    pub(crate) fn gone(&mut self, client: ClientId, now: Time) {
        let Some(entry) = self.clients.remove(&client) else { return };
        if self.seats.get(&entry.device) == Some(&client) {
            self.seats.remove(&entry.device);
        }
        self.give_up(entry.busy, now);
        let until = now.after(self.grace);
        if let Some(id) = self.by_device.get(&entry.device).copied()
            && let Some(Session { phase: Phase::Open(open), .. }) = self.sessions.get_mut(&id)
            && open.link == Link::Attached(client)
        {
            open.link = Link::Detached(until);
            self.set_timer(until, Timer::Session(id));
        }
    }

    /// Nobody waits for this request's answer any more.
    fn give_up(&mut self, busy: Option<Busy>, now: Time) {
        if let Some(Busy::Opening(opening)) = busy {
            self.abandon(opening, now);
        }
    }

    pub(crate) fn request(&mut self, client: ClientId, request: Request, now: Time) {
        if !self.is_ready(client) {
            self.count("a request before the answer to the one before it", None, None);
            self.say(Output::Disconnect(client));
            return;
        }
        if self.is_barred(client, &request) {
            return self.bar(client);
        }
        if matches!(
            request,
            Request::Level { .. }
                | Request::Passwd
                | Request::Active
                | Request::ShowRelease(..)
                | Request::Release(..)
                | Request::Access(..)
        ) {
            self.active(client, now);
        }
        match request {
            Request::Login(user) => self.login(client, user, now),
            Request::Resume(session) => self.resume(client, session, now),
            Request::Level { label, protection, id, random } => {
                self.level(client, (label, protection), (id, random), now);
            }
            Request::Passwd => self.passwd(client, now),
            Request::Status => {
                let status = self.status(client);
                self.reply(client, Reply::Status(status));
            }
            Request::KeepAlive | Request::Active => self.reply(client, Reply::Alive),
            Request::Lock => self.lock_asked(client, now),
            Request::Unlock => self.unlock(client, now),
            Request::Carry(file) => self.carry(client, file, now),
            Request::Releases => self.releases(client, now),
            Request::ShowRelease(id, from) => self.show_release(client, id, from),
            Request::Release(id, digest, consent) => self.release(client, id, digest, consent),
            Request::Accesses => self.accesses(client),
            Request::Access(service, user, admits) => self.access(client, (service, user, admits), now),
            Request::Logout => self.logout(client, now),
        }
    }

    /// The session that is open over this trusted path.
    pub(crate) fn own_session(&self, client: ClientId) -> Option<SessionId> {
        let device = &self.clients.get(&client)?.device;
        let id = self.by_device.get(device)?;
        match &self.sessions.get(id)?.phase {
            Phase::Open(open) if open.link == Link::Attached(client) => Some(*id),
            _ => None,
        }
    }

    fn status(&self, client: ClientId) -> Status {
        Status {
            user: self.clients.get(&client).and_then(|entry| entry.person.clone()),
            session: self
                .own_session(client)
                .and_then(|id| self.sessions.get(&id))
                .map(|session| (session.record.id, session.record.label.clone(), session.record.opened)),
            locked: self.lock_of(client).is_some_and(Lock::bars),
        }
    }

    fn login(&mut self, client: ClientId, user: UserName, now: Time) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        if entry.person.is_some() || self.seats.contains_key(&entry.device) {
            return self.refuse(client, RefusalKind::AlreadyLoggedIn, SOMEBODY);
        }
        self.prove(client, Proof::SignOn, user, now);
    }

    /// Has somebody's password looked at, as soon as it may be.
    pub(crate) fn prove(&mut self, client: ClientId, proof: Proof, user: UserName, now: Time) {
        let (longest, is_used) = (self.longest_answer(), self.own_session(client).is_some());
        let Some(entry) = self.clients.get_mut(&client) else { return };
        // A TPE that hears nothing for long ends its session: whoever sits there would end another's by wrong passwords.
        let wait = self.delays.next(&entry.device, &user, now).since(now);
        if is_used && wait > longest {
            let left = wait.saturating_sub(longest).as_secs() + 1;
            let why = format!("too many wrong passwords: try again in {left} seconds");
            return self.refuse(client, RefusalKind::Unavailable, why);
        }
        let start = self.delays.admit(&entry.device, &user, now);
        let delayed = (start > now).then_some(start);
        entry.busy = Some(Busy::Proving(proof, user.clone(), delayed));
        match delayed {
            Some(start) => self.set_timer(start, Timer::Client(client)),
            None => self.say(Output::Verify(client, user)),
        }
    }

    fn passwd(&mut self, client: ClientId, now: Time) {
        match self.clients.get(&client).and_then(|entry| entry.person.clone()) {
            Some(user) => self.prove(client, Proof::NewPassword, user, now),
            None => self.refuse(client, RefusalKind::NotLoggedIn, NOBODY),
        }
    }

    pub(crate) fn client_due(&mut self, client: ClientId, now: Time) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        match &mut entry.busy {
            Some(Busy::Proving(_, user, delayed)) if delayed.is_some_and(|start| start <= now) => {
                *delayed = None;
                let user = user.clone();
                self.say(Output::Verify(client, user));
            }
            Some(Busy::Opening(Opening::Preparing(_, until))) if *until <= now => {
                self.preparing_due(client, now);
            }
            _ => {
                if !self.idles(client, now) {
                    self.stays_too_long(client, now);
                }
            }
        }
    }

    pub(crate) fn verified(&mut self, client: ClientId, verified: Verified, now: Time) {
        let Some(entry) = self.clients.get(&client) else { return };
        let Some(Busy::Proving(proof, user, None)) = &entry.busy else { return };
        let (device, proof, user) = (entry.device.clone(), *proof, user.clone());
        match proof {
            Proof::SignOn => self.sign_on_verified(client, (device, user), verified, now),
            Proof::NewPassword => self.passwd_verified(client, (device, user), verified, now),
            Proof::Unlock => self.unlock_verified(client, (device, user), verified, now),
        }
    }

    fn sign_on_verified(
        &mut self,
        client: ClientId,
        (device, user): (HostName, UserName),
        verified: Verified,
        now: Time,
    ) {
        match verified {
            Verified::Right(step) if self.takes_code(&user, step) => {}
            // One answer and one record, whichever of them was wrong.
            Verified::Right(_) | Verified::Wrong => {
                let why = if self.site.asks_codes() { CREDENTIALS_OR_CODE } else { CREDENTIALS };
                self.say(Output::Audit(entry(&user, &device, Action::SignOn, Verdict::Denied, why)));
                return self.refuse(client, RefusalKind::Credentials, why);
            }
            Verified::Unavailable => {
                self.count("a password that could not be looked at", Some(device), Some(user));
                return self.refuse(
                    client,
                    RefusalKind::Unavailable,
                    "the server cannot check passwords now",
                );
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
        if self.seats.contains_key(&device) {
            return self.refuse(client, RefusalKind::AlreadyLoggedIn, SOMEBODY);
        }
        if !self.keeps_pace(Paced::SignOn, &user, grant.audit(), now) {
            return self.refuse(client, RefusalKind::Unavailable, TOO_FAST);
        }
        self.seats.insert(device, client);
        let commit = self.commit(Purpose::SignOn(client), vec![grant.audit().clone()], vec![]);
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.busy = Some(Busy::SigningOn(user, SigningOn::Recording(grant, commit)));
        }
    }

    /// Whether somebody whose password was right has shown their second factor, if they have one. A code is taken once: it, and every
    /// earlier one, is used up from here on, and in the store before anything is granted by it.
    pub(crate) fn takes_code(&mut self, user: &UserName, step: Option<u64>) -> bool {
        let Some(SecondFactor::Totp) = self.site.user(user).and_then(|user| user.second_factor()) else {
            return true;
        };
        let Some(step) = step.filter(|step| self.codes.get(user).is_none_or(|last| last < step)) else {
            return false;
        };
        self.codes.insert(user.clone(), step);
        self.commit(Purpose::Nothing, vec![], vec![Change::Code(user.clone(), step)]);
        true
    }

    pub(crate) fn sign_on_recorded(&mut self, client: ClientId, commit: CommitId, durable: bool, now: Time) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        if !matches!(&entry.busy, Some(Busy::SigningOn(_, step)) if step.waits_for(commit)) {
            return;
        }
        let device = entry.device.clone();
        let Some(Busy::SigningOn(user, SigningOn::Recording(grant, _))) = entry.busy.take() else { return };
        if !durable {
            self.seats.remove(&device);
            return self.refuse(client, RefusalKind::Unavailable, NOT_RECORDED);
        }
        entry.busy = Some(Busy::SigningOn(user, SigningOn::Clearing(grant)));
        match self.by_device.get(&device).copied() {
            Some(left) => self.close(left, "somebody signed on anew", Some(Waiter::SignOn(client)), now),
            None => self.signed_on(client, now),
        }
    }

    /// The TPE has no session any more: the person is signed on. The one place where that happens: it consumes the grant.
    pub(crate) fn signed_on(&mut self, client: ClientId, now: Time) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        if !matches!(&entry.busy, Some(Busy::SigningOn(_, SigningOn::Clearing(_)))) {
            return;
        }
        let Some(Busy::SigningOn(_, SigningOn::Clearing(grant))) = entry.busy.take() else { return };
        let (granted, _) = grant.into_parts();
        (entry.person, entry.since, entry.active) = (Some(granted.user().clone()), now, now);
        self.watch_over(client, now);
        self.watch_idle(now, Timer::Client(client));
        self.answer(client, Reply::LoggedIn(granted.user().clone()));
    }

    /// Has somebody who is signed on since then warned, and signed off, when the site says so.
    fn watch_over(&mut self, client: ClientId, since: Time) {
        let times = [rules::warned(&self.site, since), rules::last(&self.site, since)];
        for at in times.into_iter().flatten() {
            self.set_timer(at, Timer::Client(client));
        }
    }

    /// Warns, or signs off, who has been signed on for long.
    fn stays_too_long(&mut self, client: ClientId, now: Time) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        if entry.person.is_none() {
            return;
        }
        let (Some(warned), Some(last)) =
            (rules::warned(&self.site, entry.since), rules::last(&self.site, entry.since))
        else {
            return;
        };
        if now < warned {
            return;
        }
        if now < last {
            let left = last.since(now).as_secs();
            let notice = format!(
                "in {left} seconds your session ends: the site lets none last longer; save what you need"
            );
            return self.reply(client, Reply::Notice(notice));
        }
        // What is being asked is answered first; nothing new is opened any more.
        if entry.busy.is_some() {
            return self.set_timer(now.after(Duration::from_secs(1)), Timer::Client(client));
        }
        self.sign_off(client, TOO_LONG, now);
    }

    /// Ends the stay of somebody who did not ask for it.
    pub(crate) fn sign_off(&mut self, client: ClientId, why: &str, now: Time) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        let Some(user) = entry.person.take() else { return };
        let device = entry.device.clone();
        self.seats.remove(&device);
        self.say(Output::Audit(self::entry(&user, &device, Action::SignOff, Verdict::Noted, why)));
        self.unprepare(&device, why, now);
        if let Some(session) = self.by_device.get(&device).copied() {
            self.close(session, why, None, now);
        }
        self.reply(client, Reply::SignedOff(why.to_owned()));
    }

    /// The session that the TPE has cannot be ended in good order: nobody else may use it meanwhile.
    pub(crate) fn sign_on_failed(&mut self, client: ClientId, reason: &str) {
        let Some(entry) = self.clients.get(&client) else { return };
        let device = entry.device.clone();
        self.seats.remove(&device);
        self.refuse(client, RefusalKind::Unavailable, reason);
    }

    fn passwd_verified(
        &mut self,
        client: ClientId,
        (device, user): (HostName, UserName),
        verified: Verified,
        now: Time,
    ) {
        match verified {
            Verified::Right(_) => {
                self.delays.succeeded(&device, &user);
                let grant = match rules::password(&self.site, &user, &device) {
                    Ok(grant) => grant,
                    Err(denial) => {
                        self.say(Output::Audit(denial.audit().clone()));
                        return self.refuse(client, RefusalKind::Label, denial.reason());
                    }
                };
                if !self.keeps_pace(Paced::Password, &user, grant.audit(), now) {
                    return self.refuse(client, RefusalKind::Unavailable, TOO_FAST);
                }
                let commit = self.commit(Purpose::Password(client), vec![grant.audit().clone()], vec![]);
                if let Some(entry) = self.clients.get_mut(&client) {
                    entry.busy = Some(Busy::ChangingPassword(ChangingPassword::Recording(grant, commit)));
                }
            }
            Verified::Wrong => {
                let why = "the present password is another one";
                self.say(Output::Audit(entry(&user, &device, Action::ChangePassword, Verdict::Denied, why)));
                self.refuse(client, RefusalKind::Credentials, "the present password is another one");
            }
            Verified::Unavailable => {
                self.refuse(client, RefusalKind::Unavailable, "the server cannot change the password now");
            }
        }
    }

    pub(crate) fn password_recorded(&mut self, client: ClientId, commit: CommitId, durable: bool) {
        let Some(entry) = self.clients.get_mut(&client).filter(|entry| entry.person.is_some()) else {
            return;
        };
        if !matches!(&entry.busy, Some(Busy::ChangingPassword(step)) if step.waits_for(commit)) {
            return;
        }
        if !durable {
            return self.refuse(client, RefusalKind::Unavailable, NOT_RECORDED);
        }
        let storing = Some(Busy::ChangingPassword(ChangingPassword::Storing));
        let recorded = std::mem::replace(&mut entry.busy, storing);
        let Some(Busy::ChangingPassword(ChangingPassword::Recording(grant, _))) = recorded else { return };
        self.say(Output::StorePassword(client, grant.into_parts().0.into_user()));
    }

    pub(crate) fn password_stored(&mut self, client: ClientId, stored: bool) {
        let Some(entry) = self.clients.get(&client) else { return };
        if !matches!(entry.busy, Some(Busy::ChangingPassword(ChangingPassword::Storing))) {
            return;
        }
        if stored {
            self.answer(client, Reply::PasswordChanged);
        } else {
            self.refuse(
                client,
                RefusalKind::Unavailable,
                "the new password was not stored: the disk does not take it, or an operator has changed it meanwhile",
            );
        }
    }

    fn resume(&mut self, client: ClientId, id: SessionId, now: Time) {
        let Some(entry) = self.clients.get(&client) else { return };
        let (device, fingerprint) = (entry.device.clone(), entry.fingerprint);
        if entry.person.is_some() {
            return self.refuse(client, RefusalKind::AlreadyLoggedIn, SOMEBODY);
        }
        // One answer for a session that does not exist and for one of another TPE.
        let session = self
            .sessions
            .get(&id)
            .filter(|session| session.record.device == device && session.record.fingerprint == fingerprint);
        let Some(Session { record, phase: Phase::Open(Open { grant, .. }), .. }) = session else {
            self.count("a session that there is not", Some(device), None);
            return self.refuse(client, RefusalKind::NoSession, NO_SESSION);
        };
        let why = "device certificate and session".to_owned();
        let (user, granted) = (record.user.clone(), grant.entry(Action::Resume, id.to_string(), why));
        // It stays as it is, and its workstation tries again.
        if !self.keeps_pace(Paced::Resume, &user, &granted, now) {
            return self.refuse(client, RefusalKind::Unavailable, TOO_FAST);
        }
        let commit = self.commit(Purpose::Resume(client), vec![granted], vec![]);
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.busy = Some(Busy::Resuming(id, commit));
        }
    }

    pub(crate) fn resume_recorded(&mut self, client: ClientId, commit: CommitId, durable: bool, now: Time) {
        let Some(entry) = self.clients.get(&client) else { return };
        let id = match entry.busy {
            Some(Busy::Resuming(id, of)) if of == commit => id,
            _ => return,
        };
        if !durable {
            return self.refuse(client, RefusalKind::Unavailable, NOT_RECORDED);
        }
        let device = entry.device.clone();
        let Some(Session { record, phase: Phase::Open(open), .. }) = self.sessions.get_mut(&id) else {
            return self.refuse(client, RefusalKind::NoSession, NO_SESSION);
        };
        let before = match open.link {
            Link::Attached(before) => Some(before),
            Link::Detached(until) if until <= now => {
                return self.refuse(client, RefusalKind::NoSession, NO_SESSION);
            }
            Link::Detached(_) => None,
            Link::Elsewhere => return self.refuse(client, RefusalKind::NoSession, NO_SESSION),
        };
        // Somebody else may be signing on at this TPE; they would end the session next.
        if self.seats.get(&device).is_some_and(|seat| Some(*seat) != before) {
            return self.refuse(client, RefusalKind::AlreadyLoggedIn, SOMEBODY);
        }
        open.link = Link::Attached(client);
        let renew = std::mem::take(&mut open.renewing);
        let (user, since) = (record.user.clone(), record.opened);
        if let Some(before) = before {
            // The old path of the same TPE: its end has not been noticed yet.
            if let Some(before) = self.clients.remove(&before) {
                self.give_up(before.busy, now);
            }
            self.say(Output::Disconnect(before));
        }
        self.seats.insert(device, client);
        if let Some(entry) = self.clients.get_mut(&client) {
            (entry.person, entry.since, entry.active) = (Some(user), since, now);
        }
        self.watch_over(client, since);
        self.watch_idle(now, Timer::Client(client));
        let status = self.status(client);
        self.answer(client, Reply::Resumed(status));
        if renew {
            self.reply_renew(client, id);
        }
    }

    fn logout(&mut self, client: ClientId, now: Time) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        let Some(user) = entry.person.clone() else {
            return self.refuse(client, RefusalKind::NotLoggedIn, NOBODY);
        };
        entry.busy = Some(Busy::Leaving);
        let device = entry.device.clone();
        match self.by_device.get(&device).copied() {
            Some(session) => self.close(session, "logout", Some(Waiter::LogOut(client)), now),
            None => {
                let ended = self::entry(&user, &device, Action::SignOff, Verdict::Noted, "logout");
                self.say(Output::Audit(ended));
                self.logged_out(client);
            }
        }
    }

    /// The TPE has no session any more: nobody is signed on.
    pub(crate) fn logged_out(&mut self, client: ClientId) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        entry.person = None;
        let device = entry.device.clone();
        self.seats.remove(&device);
        self.answer(client, Reply::LoggedOut);
    }

    pub(crate) fn count(&mut self, what: &'static str, device: Option<HostName>, user: Option<UserName>) {
        self.say(Output::Count(Counted { what, device, user }));
    }
}

/// A decision about a person, not about a session.
pub(crate) fn entry(
    user: &UserName,
    device: &HostName,
    action: Action,
    verdict: Verdict,
    reason: &str,
) -> Entry {
    Entry {
        user: Some(user.clone()),
        host: Some(device.clone()),
        label: None,
        action,
        object: device.to_string(),
        verdict,
        reason: reason.into(),
    }
}
