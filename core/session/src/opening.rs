//! Opening a session, and its keys: granted → recorded → the one it replaces is over → the vault has it → keys.

use crate::clients::ended;
use crate::event::*;
use crate::sessions::{AGREE, NOT_RECORDED, SILENCE, START, Sessions};
use crate::state::*;
use crate::{SessionId, Time, rules};
use levee_policy::LabelName;
use levee_policy::audit::{Event as Entry, Verdict};
use levee_policy::site::Reach;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

const REASON: &str = "the trusted path was lost while the session was opened";

impl<K: Clone> Sessions<K> {
    pub(crate) fn level(
        &mut self,
        client: ClientId,
        label: LabelName,
        offer: K,
        (id, random): (SessionId, u64),
        now: Time,
    ) {
        let Some(path) = self.clients.get(&client) else { return };
        let (device, fingerprint) = (path.device.clone(), path.fingerprint);
        let Some(user) = path.person.clone() else {
            return self.refuse(client, RefusalKind::NotLoggedIn, "nobody is signed on here");
        };
        let grant = match rules::open(&self.site, &user, &device, &label) {
            Ok(grant) => grant,
            Err(denial) => {
                self.say(Output::Audit(denial.audit().clone()));
                return self.refuse(client, RefusalKind::Label, denial.reason());
            }
        };
        let fresh = !self.sessions.contains_key(&id);
        let Some(inner) = self.pool.take(random, now).filter(|_| fresh) else {
            let reason = "no inner address is free: the site's pool is used up";
            let event = grant.audit().clone();
            self.say(Output::Audit(Entry { verdict: Verdict::Denied, reason: reason.into(), ..event }));
            return self.refuse(client, RefusalKind::Unavailable, reason);
        };
        let record = Stored {
            id,
            user: user.clone(),
            device: device.clone(),
            fingerprint,
            label: label.clone(),
            inner,
            opened: now,
        };
        let event = grant.audit().clone();
        let reason = format!("{}; {}", event.reason, selectors(&record.inner, grant.action().reach()));
        let granted = Entry { object: id.to_string(), reason, ..event };
        // The store never has two sessions of one TPE: if there is one, its end brings the new one in.
        let stored = !self.by_device.contains_key(&device);
        let changes = if stored { vec![Change::Put(record.clone())] } else { vec![] };
        let commit = self.commit(Purpose::Open(client), vec![granted], changes);
        if let Some(path) = self.clients.get_mut(&client) {
            let granted = Box::new(Granted { grant, record, offer });
            path.busy = Some(Busy::Opening(Opening::Recording(granted, commit, stored)));
        }
    }

    pub(crate) fn open_recorded(&mut self, client: ClientId, commit: CommitId, durable: bool, now: Time) {
        let Some(path) = self.clients.get_mut(&client) else { return };
        if !matches!(&path.busy, Some(Busy::Opening(Opening::Recording(_, of, _))) if *of == commit) {
            return;
        }
        let Some(Busy::Opening(Opening::Recording(granted, _, stored))) = path.busy.take() else { return };
        if !durable {
            self.pool.put_back(&granted.record.inner);
            return self.refuse(client, RefusalKind::Unavailable, NOT_RECORDED);
        }
        match self.by_device.get(&granted.record.device).copied() {
            Some(old) => {
                path.busy = Some(Busy::Opening(Opening::Replacing(granted, stored)));
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
    pub(crate) fn not_replaced(&mut self, client: ClientId, reason: &str) {
        let Some(path) = self.clients.get_mut(&client) else { return };
        if !matches!(&path.busy, Some(Busy::Opening(Opening::Replacing(..)))) {
            return;
        }
        // The change that would have brought it into the store was not made.
        if let Some(Busy::Opening(Opening::Replacing(granted, _))) = path.busy.take() {
            self.drop_granted(*granted, reason);
            self.refuse(client, RefusalKind::Unavailable, reason);
        }
    }

    fn open_or_store(&mut self, client: ClientId, granted: Box<Granted<K>>, stored: bool, now: Time) {
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
    fn begin(&mut self, client: ClientId, granted: Granted<K>, now: Time) {
        let Granted { grant, record, offer } = granted;
        let (id, label) = (record.id, record.label.clone());
        let deadline = now.after(START);
        self.by_device.insert(record.device.clone(), id);
        let step = Making::Vault { offer };
        let phase = Phase::Making { grant, client, step, deadline };
        self.sessions.insert(id, Session { record, vault: InVault::Absent, reached: false, phase });
        self.set_timer(deadline, Timer::Session(id));
        if let Some(path) = self.clients.get_mut(&client) {
            path.busy = Some(Busy::Opening(Opening::Session(id)));
        }
        if self.place(&label, id) {
            self.tell_vault(id, now);
        }
    }

    /// Counts the session in at its label, and says whether the label's vault is up.
    pub(crate) fn place(&mut self, label: &LabelName, id: SessionId) -> bool {
        if let Some(place) = self.places.get_mut(label) {
            place.sessions.insert(id);
            return matches!(place.vault, Vault::Up { .. });
        }
        let place = Place { vault: Vault::Starting, sessions: BTreeSet::from([id]) };
        self.places.insert(label.clone(), place);
        self.say(Output::Need(label.clone()));
        false
    }

    /// Tells the vault, which is up, of a session.
    pub(crate) fn tell_vault(&mut self, id: SessionId, now: Time) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let record = &session.record;
        let (Phase::Making { grant, .. } | Phase::Open(Open { grant, .. })) = &session.phase else { return };
        let open = ToVault::Open { id, inner: record.inner.clone(), reach: grant.action().reach().to_vec() };
        let label = record.label.clone();
        session.vault = InVault::Told;
        session.reached = true;
        if let Phase::Making { step: Making::Vault { .. }, deadline, .. } = &mut session.phase {
            *deadline = now.after(SILENCE);
            self.timers.insert((now.after(SILENCE), Timer::Session(id)));
        }
        self.say(Output::Vault(label, open));
    }

    pub(crate) fn vault_opened(&mut self, label: &LabelName, id: SessionId, now: Time) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.record.label != *label || session.vault != InVault::Told {
            return;
        }
        session.vault = InVault::Ready;
        let at = now.after(AGREE);
        match &mut session.phase {
            Phase::Making { step, deadline, .. } => {
                if let Making::Vault { offer } = step {
                    let offer = offer.clone();
                    *step = Making::Keys;
                    *deadline = at;
                    self.set_timer(at, Timer::Session(id));
                    self.say(Output::Agree(id, label.clone(), offer));
                }
            }
            Phase::Open(open) => {
                let (lost, link) = (open.keys_lost, open.link);
                let mut asked = false;
                if let Link::Attached(client) = link
                    && let Some(Client { busy: Some(Busy::Rekeying { session, offer, .. }), .. }) =
                        self.clients.get_mut(&client)
                    && *session == id
                    && let Some(offer) = offer.take()
                {
                    asked = true;
                    self.say(Output::Agree(id, label.clone(), offer));
                }
                if lost && !asked {
                    self.renew(id);
                }
            }
            Phase::Closing(_) => {}
        }
    }

    pub(crate) fn agreed(&mut self, id: SessionId, answer: K) {
        if self.is_unwanted(id) {
            return;
        }
        let mut making = None;
        self.transition(id, |phase| match phase {
            Phase::Making { grant, client, step: Making::Keys, .. } => {
                making = Some(client);
                Phase::Open(Open { grant, link: Link::Attached(client), keys_lost: false, renewing: false })
            }
            other => other,
        });
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let record = &session.record;
        match (making, &mut session.phase) {
            (Some(client), _) => {
                let (label, inner) = (record.label.clone(), record.inner.clone());
                self.answer(client, Reply::Opened { id, label, inner, answer });
            }
            (None, Phase::Open(open)) => {
                let Some(client) = rekeying(&self.clients, open.link, id) else { return };
                open.keys_lost = false;
                self.answer(client, Reply::Rekeyed(answer));
            }
            _ => {}
        }
    }

    pub(crate) fn not_agreed(&mut self, id: SessionId, reason: &str, now: Time) {
        if self.is_unwanted(id) {
            return;
        }
        match self.sessions.get(&id).map(|session| &session.phase) {
            Some(Phase::Making { step: Making::Keys, .. }) => {
                self.close(id, &format!("no keys could be agreed: {reason}"), None, now);
            }
            Some(Phase::Open(open)) => {
                if let Some(client) = rekeying(&self.clients, open.link, id) {
                    self.refuse(client, RefusalKind::Unavailable, "no new keys could be agreed");
                }
            }
            _ => {}
        }
    }

    pub(crate) fn rekey(&mut self, client: ClientId, offer: K, now: Time) {
        let Some(id) = self.own_session(client) else {
            return self.refuse(client, RefusalKind::NoSession, "no session is open here");
        };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Phase::Open(open) = &mut session.phase {
            open.renewing = false;
        }
        let label = session.record.label.clone();
        // A vault that has only just started takes keys once it has the session's record.
        let offer = if session.vault == InVault::Ready {
            self.say(Output::Agree(id, label, offer));
            None
        } else {
            Some(offer)
        };
        let deadline = now.after(AGREE);
        self.set_timer(deadline, Timer::Client(client));
        if let Some(path) = self.clients.get_mut(&client) {
            path.busy = Some(Busy::Rekeying { session: id, offer, deadline });
        }
    }

    pub(crate) fn rekey_late(&mut self, client: ClientId) {
        let Some(path) = self.clients.get(&client) else { return };
        if let Some(Busy::Rekeying { session, offer, .. }) = &path.busy {
            if offer.is_none() {
                let session = *session;
                self.forget_answer(session);
            }
            self.refuse(client, RefusalKind::Unavailable, "new keys could not be agreed in time");
        }
    }

    /// The keyer still owes an answer for this session that nobody waits for; without counting it, it would be
    /// taken for the answer to the next offer.
    pub(crate) fn forget_answer(&mut self, session: SessionId) {
        *self.unwanted.entry(session).or_insert(0) += 1;
    }

    fn is_unwanted(&mut self, session: SessionId) -> bool {
        let Some(owed) = self.unwanted.get_mut(&session) else { return false };
        *owed -= 1;
        if *owed == 0 {
            self.unwanted.remove(&session);
        }
        true
    }

    pub(crate) fn renew(&mut self, id: SessionId) {
        let Some(Session { phase: Phase::Open(open), .. }) = self.sessions.get_mut(&id) else { return };
        if let Link::Attached(client) = open.link
            && !open.renewing
        {
            open.renewing = true;
            self.reply(client, Reply::Renew);
        } else {
            open.renewing = true;
        }
    }

    pub(crate) fn keyer_lost(&mut self, now: Time) {
        self.unwanted.clear();
        let making: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| matches!(session.phase, Phase::Making { step: Making::Keys, .. }))
            .map(|(id, _)| *id)
            .collect();
        for id in making {
            self.close(id, "the keyer died before it agreed on keys", None, now);
        }
        let rekeying: Vec<ClientId> = self
            .clients
            .iter()
            .filter(|(_, path)| matches!(path.busy, Some(Busy::Rekeying { offer: None, .. })))
            .map(|(id, _)| *id)
            .collect();
        for client in rekeying {
            self.refuse(client, RefusalKind::Unavailable, "the keyer died before it agreed on new keys");
        }
    }

    /// The client whose request this was is gone.
    pub(crate) fn abandon(&mut self, opening: Opening<K>, now: Time) {
        match opening {
            Opening::Recording(granted, _, false) | Opening::Replacing(granted, false) => {
                self.drop_granted(*granted, REASON);
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
    fn drop_granted(&mut self, granted: Granted<K>, reason: &str) {
        let record = granted.record;
        self.pool.put_back(&record.inner);
        self.say(Output::Audit(ended(&record, reason)));
    }

    /// Nothing comes of a session that the store may have: it ends like any other, though no vault ever knew it,
    /// because the store may fail to forget it.
    pub(crate) fn discard(&mut self, record: Stored, now: Time) {
        let id = record.id;
        let closing = Closing { reason: REASON.into(), step: Step::RecordingAgain(now), waiters: vec![] };
        self.by_device.insert(record.device.clone(), id);
        let phase = Phase::Closing(closing);
        self.sessions.insert(id, Session { record, vault: InVault::Absent, reached: false, phase });
        self.record_end(id);
    }

    /// A transition consumes the state it begins in.
    pub(crate) fn transition(&mut self, id: SessionId, next: impl FnOnce(Phase<K>) -> Phase<K>) {
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

/// The client that waits for new keys of this session from the keyer.
fn rekeying<K>(clients: &Clients<K>, link: Link, id: SessionId) -> Option<ClientId> {
    let Link::Attached(client) = link else { return None };
    match &clients.get(&client)?.busy {
        Some(Busy::Rekeying { session, offer: None, .. }) if *session == id => Some(client),
        _ => None,
    }
}
