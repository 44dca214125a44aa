//! Opening a session: granted → recorded → its label runs, where there is one to replace (`preparing.rs`) → that one is over → the vault
//! has it.

use crate::address::NoAddress;
use crate::closing::ended;
use crate::event::*;
use crate::pace::{Paced, TOO_FAST};
use crate::sessions::{NOT_RECORDED, OPENING, START, Sessions};
use crate::state::*;
use crate::stored::Stored;
use crate::{SessionId, Time, rules};
use levee_policy::audit::{Event as Entry, Verdict};
use levee_policy::site::Reach;
use levee_policy::{LabelName, ProtectionName};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

const REASON: &str = "the trusted path was lost while the session was opened";

impl Sessions {
    pub(crate) fn level(
        &mut self,
        client: ClientId,
        (label, protection): (LabelName, Option<ProtectionName>),
        (id, random): (SessionId, u64),
        now: Time,
    ) {
        let Some(path) = self.clients.get(&client) else { return };
        let label = self.site.typed_name(label);
        let (device, fingerprint, since) = (path.device.clone(), path.fingerprint, path.since);
        let Some(user) = path.person.clone() else {
            return self.refuse(client, RefusalKind::NotLoggedIn, "nobody is signed on here");
        };
        let asked = (protection.as_ref(), self.posture_at(&label));
        let grant = match rules::open(&self.site, &user, &device, &label, asked) {
            Ok(grant) => grant,
            Err(denial) => {
                self.say(Output::Audit(denial.audit().clone()));
                return self.refuse(client, RefusalKind::Label, denial.reason());
            }
        };
        if !self.keeps_pace(Paced::Change, &user, grant.audit(), now) {
            return self.refuse(client, RefusalKind::Unavailable, TOO_FAST);
        }
        let first = match self.first_at(&user, &label) {
            Ok(first) => first,
            Err(reason) => {
                let event = grant.audit().clone();
                let denied = Entry { verdict: Verdict::Denied, reason: reason.clone(), ..event };
                self.say(Output::Audit(denied));
                return self.refuse(client, RefusalKind::Unavailable, &reason);
            }
        };
        let fresh = !self.sessions.contains_key(&id);
        let owner = (user.clone(), device.clone());
        let inner = if fresh { self.pools.take(&label, &owner, random, now) } else { Err(NoAddress::UsedUp) };
        let inner = match inner {
            Ok(inner) => inner,
            Err(why) => {
                let reason = match why {
                    NoAddress::UsedUp => "no inner address is free at this label: the site's pool is used up",
                    NoAddress::TooMany => {
                        "too many people have signed off here at this level: wait a few seconds"
                    }
                };
                let event = grant.audit().clone();
                self.say(Output::Audit(Entry { verdict: Verdict::Denied, reason: reason.into(), ..event }));
                return self.refuse(client, RefusalKind::Unavailable, reason);
            }
        };
        let record = Stored {
            id,
            user: user.clone(),
            device: device.clone(),
            fingerprint,
            label: label.clone(),
            inner,
            opened: since,
            protection,
        };
        let event = grant.audit().clone();
        let reason = format!("{}; {}", event.reason, selectors(&record.inner, grant.action().reach()));
        let granted = Entry { object: id.to_string(), reason, ..event };
        // The store never has two sessions of one TPE: if there is one, its end brings the new one in.
        let stored = !self.by_device.contains_key(&device);
        self.is_first(first.as_ref());
        let put = stored.then(|| Change::Put(record.clone()));
        let changes = put.into_iter().chain(first).collect();
        let commit = self.commit(Purpose::Open(client), vec![granted], changes);
        if let Some(path) = self.clients.get_mut(&client) {
            let granted = Box::new(Granted { grant, record });
            path.busy = Some(Busy::Opening(Opening::Recording(granted, commit, stored)));
        }
    }

    pub(crate) fn open_recorded(&mut self, client: ClientId, commit: CommitId, durable: bool, now: Time) {
        let Some(path) = self.clients.get_mut(&client) else { return };
        if !matches!(&path.busy, Some(Busy::Opening(Opening::Recording(_, of, _))) if *of == commit) {
            return;
        }
        let Some(Busy::Opening(Opening::Recording(granted, _, stored))) = path.busy.take() else { return };
        self.first_recorded(&granted.record.label, durable);
        if !durable {
            self.pools.put_back(&granted.record.label, &granted.record.inner);
            self.leave_label(&granted.record, now);
            return self.refuse(client, RefusalKind::Unavailable, NOT_RECORDED);
        }
        match self.by_device.get(&granted.record.device).copied() {
            Some(old) if !stored => self.prepare(client, old, granted, now),
            Some(old) => {
                if let Some(path) = self.clients.get_mut(&client) {
                    path.busy = Some(Busy::Opening(Opening::Replacing(granted, stored)));
                }
                self.close(old, "change of level", Some(Waiter::Replace(client)), now);
            }
            None => self.open_or_store(client, granted, stored, now),
        }
    }

    /// The session that was to be replaced is over.
    pub(crate) fn replaced(&mut self, client: ClientId, now: Time) {
        let Some(path) = self.clients.get_mut(&client) else { return };
        if !matches!(&path.busy, Some(Busy::Opening(Opening::Replacing(..)))) {
            return;
        }
        if let Some(Busy::Opening(Opening::Replacing(granted, stored))) = path.busy.take() {
            self.open_or_store(client, granted, stored, now);
        }
    }

    /// The session that was to be replaced cannot be ended in good order.
    pub(crate) fn not_replaced(&mut self, client: ClientId, reason: &str, now: Time) {
        let Some(path) = self.clients.get_mut(&client) else { return };
        if !matches!(&path.busy, Some(Busy::Opening(Opening::Replacing(..)))) {
            return;
        }
        // The change that would have brought it into the store was not made.
        if let Some(Busy::Opening(Opening::Replacing(granted, _))) = path.busy.take() {
            self.drop_granted(*granted, reason, now);
            self.refuse(client, RefusalKind::Unavailable, reason);
        }
    }

    pub(crate) fn open_or_store(&mut self, client: ClientId, granted: Box<Granted>, stored: bool, now: Time) {
        if stored {
            return self.begin(client, *granted, now);
        }
        let change = Change::Put(granted.record.clone());
        let commit = self.commit(Purpose::Open(client), vec![], vec![change]);
        if let Some(path) = self.clients.get_mut(&client) {
            path.busy = Some(Busy::Opening(Opening::Recording(granted, commit, true)));
        }
    }

    /// The one place where a session begins: it consumes the grant.
    fn begin(&mut self, client: ClientId, granted: Granted, now: Time) {
        let Granted { grant, record } = granted;
        let (id, label) = (record.id, record.label.clone());
        let deadline = now.after(START);
        let last = rules::last(&self.site, record.opened);
        self.by_device.insert(record.device.clone(), id);
        let phase = Phase::Making { grant, client, deadline };
        let shared = self.share(&record);
        self.sessions.insert(
            id,
            Session { record, vault: InVault::Absent, answer: None, reached: false, shared, phase },
        );
        self.set_timer(deadline, Timer::Session(id));
        if let Some(last) = last {
            self.set_timer(last, Timer::Session(id));
        }
        if let Some(path) = self.clients.get_mut(&client) {
            path.busy = Some(Busy::Opening(Opening::Session(id)));
        }
        // While it waited for the end of the one before, the posture may have changed.
        if let Some(reason) = self.barred_by_posture(id) {
            return self.close(id, &reason, None, now);
        }
        if self.use_label(&label, id) {
            self.tell_vault(id, now);
        }
    }

    /// Counts the session in at its label, and says whether the label's vault is up.
    pub(crate) fn use_label(&mut self, label: &LabelName, id: SessionId) -> bool {
        if let Some(used) = self.used_labels.get_mut(label) {
            used.sessions.insert(id);
            return matches!(used.vault, Vault::Up { .. });
        }
        let used = UsedLabel { vault: Vault::Starting, sessions: BTreeSet::from([id]) };
        self.used_labels.insert(label.clone(), used);
        self.say(Output::Need(label.clone()));
        false
    }

    /// Tells the vault, which is up, of a session.
    pub(crate) fn tell_vault(&mut self, id: SessionId, now: Time) {
        let Some(reach) = self.reach(id) else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.shared == Sharing::Publishing {
            // Told once every server can be made to end it.
            return;
        }
        let record = &session.record;
        let (Phase::Making { grant, .. } | Phase::Open(Open { grant, .. })) = &session.phase else { return };
        let owner = match &session.shared {
            Sharing::Theirs(owner, _) => Some(owner.clone()),
            _ => None,
        };
        let ciphers = grant.action().protected().ciphers.clone();
        let layered = self.site.is_layered(&record.device);
        let open = ToVault::Open { id, inner: record.inner.clone(), owner, reach, ciphers, layered };
        let label = record.label.clone();
        session.vault = match session.vault {
            InVault::Told(before) => InVault::Told(before.saturating_add(1)),
            InVault::Absent | InVault::Ready => InVault::Told(1),
        };
        session.reached = true;
        if let Phase::Making { deadline, .. } = &mut session.phase {
            *deadline = now.after(OPENING);
            self.timers.insert((now.after(OPENING), Timer::Session(id)));
        } else if session.answer.is_none() {
            session.answer = Some(now.after(OPENING));
            self.timers.insert((now.after(OPENING), Timer::Session(id)));
        }
        self.say(Output::Vault(label, open));
    }

    pub(crate) fn vault_opened(&mut self, label: &LabelName, id: SessionId, now: Time) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.record.label != *label {
            return;
        }
        match session.vault {
            InVault::Told(1) => (session.vault, session.answer) = (InVault::Ready, None),
            // It answers in order: this is for what it was told before.
            InVault::Told(more) => return session.vault = InVault::Told(more.saturating_sub(1)),
            InVault::Absent | InVault::Ready => return,
        }
        let (label, inner) = (session.record.label.clone(), session.record.inner.clone());
        let (mut opened, mut lost) = (None, false);
        let used =
            |client: ClientId| self.clients.get(&client).map_or_else(Time::default, |path| path.active);
        let active = match session.phase {
            Phase::Making { client, .. } => used(client),
            _ => Time::default(),
        };
        self.transition(id, |phase| match phase {
            Phase::Making { grant, client, .. } => {
                opened = Some((client, grant.action().reach().to_vec(), grant.action().protected().clone()));
                let (link, lock) = (Link::Attached(client), Lock::Used(active));
                Phase::Open(Open { grant, link, lock, keys_lost: false, renewing: false })
            }
            Phase::Open(mut open) => {
                lost = std::mem::take(&mut open.keys_lost);
                Phase::Open(open)
            }
            other => other,
        });
        self.lock_settled(id);
        self.reach_told(id, now);
        if let Some((client, reach, protected)) = opened {
            self.watch_idle(active, Timer::Session(id));
            let protected = self.tunnel(&label, &protected);
            self.answer(client, Reply::Opened { id, label, inner, reach, protected });
        }
        self.answer_tickets(id);
        if lost {
            self.keys_lost(id);
        }
    }

    /// The client whose request this was is gone.
    pub(crate) fn abandon(&mut self, opening: Opening, now: Time) {
        match opening {
            Opening::Recording(granted, _, false)
            | Opening::Preparing(granted, _)
            | Opening::Replacing(granted, false) => {
                self.drop_granted(*granted, REASON, now);
            }
            Opening::Recording(granted, _, true) => self.discard(granted.record, now),
            // The store gets it by the change that takes the old one out: only then can it be taken out itself.
            Opening::Replacing(granted, true) => {
                let old = self.by_device.get(&granted.record.device).copied();
                match old.and_then(|old| self.sessions.get_mut(&old)).map(|session| &mut session.phase) {
                    Some(Phase::Closing(closing)) => {
                        closing.waiters.push(Waiter::Discard(Box::new(granted.record)));
                    }
                    _ => self.discard(granted.record, now),
                }
            }
            Opening::Session(id) => self.close(id, REASON, None, now),
        }
    }

    /// Nothing comes of a grant that the store does not have: nobody has had its addresses, so they need no rest.
    pub(crate) fn drop_granted(&mut self, granted: Granted, reason: &str, now: Time) {
        let record = granted.record;
        self.pools.put_back(&record.label, &record.inner);
        self.leave_label(&record, now);
        self.say(Output::Audit(ended(&record, reason)));
    }

    /// Nothing comes of a session that the store may have: it ends like any other, though no vault ever knew it,
    /// because the store may fail to forget it.
    pub(crate) fn discard(&mut self, record: Stored, now: Time) {
        let id = record.id;
        let closing = Closing {
            reason: REASON.into(),
            step: Step::RecordingAgain(now),
            waiters: vec![],
            logged: false,
            for_now: false,
        };
        self.by_device.insert(record.device.clone(), id);
        let phase = Phase::Closing(closing);
        let shared = Sharing::Not;
        self.sessions.insert(
            id,
            Session { record, vault: InVault::Absent, answer: None, reached: false, shared, phase },
        );
        self.record_end(id, now);
    }

    /// A transition consumes the state it begins in.
    pub(crate) fn transition(&mut self, id: SessionId, next: impl FnOnce(Phase) -> Phase) {
        if let Some(mut session) = self.sessions.remove(&id) {
            session.phase = next(session.phase);
            self.sessions.insert(id, session);
        }
    }
}

/// What the session's security associations will pass, for the log: a direct service is mediated by these alone.
fn selectors(inner: &[IpAddr], reach: &[Reach]) -> String {
    const MOST: usize = 32;
    let mut text = String::from("from");
    for address in inner {
        let _ = write!(text, " {address}");
    }
    text.push_str(" to");
    for reach in reach.iter().take(MOST) {
        let _ = write!(text, " {}/{}", SocketAddr::new(reach.address, reach.port), reach.protocol.as_str());
    }
    if let Some(more) = reach.len().checked_sub(MOST).filter(|more| *more > 0) {
        let _ = write!(text, " and {more} more");
    }
    text
}
