//! Child SAs: which session's they are, and what their vaults are told. What is kept of one has no key in it.

use crate::carriage::aggregation;
use crate::exchanges::{encryptions, methods, sealed_by};
use crate::keyer::Keyer;
use crate::timers::Timer;
use levee_esp::{Spi, Steering};
use levee_ike::{
    ChildError, ChildEstablished, Command, Encryption, EspKeys, IkeId, NewChild, Random as _, Resource, Role,
    SecurityLabel, Selector,
};
use levee_ipc::Secret;
use levee_ipc::keyer::KeyRecord;
use levee_ipc::vault::{Carriage, Cipher, KeyerToVault, Sa};
use levee_ipc::warden::Place;
use levee_policy::LabelName;
use levee_policy::site::Keying;
use levee_session::SessionId;
use levee_sys::wipe::scrub_stack;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Age at which a child is rekeyed. The workstation comes first, so that the two sides' exchanges seldom cross.
const WORKSTATION_LIFE: Duration = Duration::from_secs(50 * 60);
/// See [`WORKSTATION_LIFE`].
const SERVER_LIFE: Duration = Duration::from_secs(70 * 60);
/// Random addition to both.
const LIFE_JITTER: Duration = Duration::from_secs(10 * 60);
/// How long packets under keys that were replaced may still arrive.
const OVERLAP: Duration = Duration::from_secs(5);
/// The same where what a label's tunnels must be was changed: whoever did that waits for the old keys' end.
pub(crate) const MOVED_OVERLAP: Duration = Duration::from_secs(1);
/// A child younger than this may not be in its vault yet.
const YOUNG: Duration = Duration::from_secs(1);
/// How long a peer whose packets are to go otherwise has to come by itself, before the server replaces what it has.
const COMES: Duration = Duration::from_secs(1);
/// How long to wait before a rekeying that failed is tried again.
const REKEY_AGAIN: Duration = Duration::from_secs(60);

/// A child SA, without its keys.
#[derive(Debug)]
struct Child {
    ike: IkeId,
    session: SessionId,
    label: LabelName,
    /// On the keyer's clock.
    made: Duration,
    /// Its vault has its keys no more.
    stale: bool,
    /// Its keys are from a key exchange of its own.
    own_exchange: bool,
    /// How its session's packets were to go when it was made.
    carriage: Carriage,
}

#[derive(Debug)]
struct Held {
    record: KeyRecord,
    children: BTreeSet<u32>,
}

/// All child SAs and the sessions that may have them.
#[derive(Debug)]
pub struct Children {
    /// Which worker of its label's vault a child is of, by its inbound SPI.
    steering: Steering,
    /// By inbound SPI.
    all: BTreeMap<u32, Child>,
    /// The same SPIs by slot.
    by_slot: BTreeMap<u16, BTreeSet<u32>>,
    sessions: BTreeMap<SessionId, Held>,
    /// Inbound SPIs of children that were asked for, and by which IKE SA.
    wanted: BTreeMap<u32, (SessionId, IkeId)>,
    /// The child that each IKE SA's peer was granted last: its inbound SPI.
    granted: BTreeMap<IkeId, (u32, SessionId)>,
    /// What may be agreed at a label where sessiond has said so.
    moved: BTreeMap<LabelName, Moved>,
}

/// How keys are agreed at a label.
#[derive(Debug)]
struct Moved {
    keying: Keying,
    /// Since when: what was made before is replaced.
    since: Duration,
}

impl Children {
    /// None yet.
    pub fn new(steering: Steering) -> Self {
        Self {
            steering,
            all: BTreeMap::new(),
            by_slot: BTreeMap::new(),
            sessions: BTreeMap::new(),
            wanted: BTreeMap::new(),
            granted: BTreeMap::new(),
            moved: BTreeMap::new(),
        }
    }

    /// The slot of the worker that a child with this inbound SPI is of; 0, nobody's, for a reserved one.
    pub fn slot_of(&self, inbound: u32) -> u16 {
        Spi::new(inbound).map_or(0, |spi| self.steering.slot(spi))
    }

    /// How many children have been asked for.
    pub fn under_way(&self) -> usize {
        self.wanted.len()
    }

    fn insert(&mut self, inbound: u32, child: Child) {
        self.by_slot.entry(self.slot_of(inbound)).or_default().insert(inbound);
        self.all.insert(inbound, child);
    }

    fn remove(&mut self, inbound: u32) -> Option<Child> {
        let child = self.all.remove(&inbound)?;
        let slot = self.slot_of(inbound);
        if let Some(there) = self.by_slot.get_mut(&slot) {
            there.remove(&inbound);
            if there.is_empty() {
                self.by_slot.remove(&slot);
            }
        }
        Some(child)
    }

    /// Takes or replaces a session's record.
    pub fn admit(&mut self, record: KeyRecord) {
        let session = record.session;
        match self.sessions.get_mut(&session) {
            Some(held) => held.record = record,
            None => {
                self.sessions.insert(session, Held { record, children: BTreeSet::new() });
            }
        }
    }

    /// A session's record.
    pub fn record(&self, session: SessionId) -> Option<&KeyRecord> {
        self.sessions.get(&session).map(|held| &held.record)
    }

    /// How keys are agreed at a label, where that was said.
    pub(crate) fn keying(&self, label: &LabelName) -> Option<&Keying> {
        self.moved.get(label).map(|moved| &moved.keying)
    }

    /// The same of each label of which it was said.
    pub(crate) fn all_keying(&self) -> impl Iterator<Item = &Keying> + Clone {
        self.moved.values().map(|moved| &moved.keying)
    }

    /// The labels at which an IKE SA has children.
    pub(crate) fn labels_of(&self, ike: IkeId) -> BTreeSet<LabelName> {
        let of = self.all.values().filter(|child| child.ike == ike && !child.stale);
        of.map(|child| child.label.clone()).collect()
    }

    /// The children of an IKE SA that were made before what counts at their label was said, but for those that are not to be replaced by their
    /// like.
    pub(crate) fn made_before(&self, ike: IkeId) -> Vec<u32> {
        let is_old =
            |child: &Child| self.moved.get(&child.label).is_some_and(|moved| child.made < moved.since);
        let of = self.all.iter().filter(|(_, child)| child.ike == ike && !child.stale && is_old(child));
        of.map(|(inbound, _)| *inbound).filter(|inbound| !self.goes_otherwise(*inbound)).collect()
    }

    /// How old keys of a session may become: by what it has itself and by what its label has.
    fn key_life(&self, session: SessionId) -> Option<Duration> {
        let record = self.record(session)?;
        let label = self.keying(&record.label).and_then(|keying| keying.key_life);
        record.key_life.into_iter().chain(label).min()
    }

    /// Whether a child's packets go as those of its session may not any more.
    fn goes_otherwise(&self, inbound: u32) -> bool {
        let child = self.all.get(&inbound);
        child.is_some_and(|child| self.record(child.session).is_some_and(|it| it.carriage != child.carriage))
    }

    /// Whether a child's session has another whose packets go as they may now: then it is on its way out.
    fn is_followed(&self, inbound: u32) -> bool {
        let session = self.all.get(&inbound).and_then(|child| self.sessions.get(&child.session));
        let mut others = session.into_iter().flat_map(|held| &held.children);
        let goes =
            |spi: &u32| !self.goes_otherwise(*spi) && self.all.get(spi).is_some_and(|child| !child.stale);
        self.goes_otherwise(inbound) && others.any(goes)
    }

    /// Whether a child may be replaced by one that its peer did not ask for: it does not hold for a constant rate, which both must know of.
    fn may_follow(&self, inbound: u32) -> bool {
        let session = self.all.get(&inbound).map(|child| child.session);
        let record = session.and_then(|session| self.record(session));
        record.is_some_and(|record| record.carriage.suits(false))
    }

    /// A session's label.
    pub fn label(&self, session: SessionId) -> Option<&LabelName> {
        self.record(session).map(|record| &record.label)
    }

    /// Whose child this is.
    pub fn session(&self, inbound: u32) -> Option<SessionId> {
        self.all.get(&inbound).map(|child| child.session)
    }

    /// Forgets a session; its children are to be closed.
    pub fn end(&mut self, session: SessionId) -> Vec<(IkeId, u32)> {
        let Some(held) = self.sessions.remove(&session) else { return Vec::new() };
        held.children.into_iter().filter_map(|spi| Some((self.all.get(&spi)?.ike, spi))).collect()
    }

    /// Forgets what an IKE SA that is gone had asked for.
    pub fn forget(&mut self, ike: IkeId) {
        self.granted.remove(&ike);
        self.wanted.retain(|_, (_, of)| *of != ike);
    }

    /// Remembers what the peer of an IKE SA was granted. It asks for one child at a time.
    pub fn grant(&mut self, ike: IkeId, inbound: u32, session: SessionId) {
        self.granted.insert(ike, (inbound, session));
    }

    /// Whether a session has a child that its vault knows, or is about to have one.
    pub fn has(&self, session: SessionId) -> bool {
        let children = self.sessions.get(&session).into_iter().flat_map(|held| &held.children);
        let alive = |spi: &u32| self.all.get(spi).is_some_and(|child| !child.stale);
        children.into_iter().any(alive) || self.wanted.values().any(|(of, _)| *of == session)
    }

    /// How many children a session has.
    pub fn count(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, |held| held.children.len())
    }

    /// As [`Children::has`], of one worker.
    fn has_at(&self, session: SessionId, slot: u16) -> bool {
        let children = self.sessions.get(&session).into_iter().flat_map(|held| &held.children);
        let alive = |spi: &u32| self.all.get(spi).is_some_and(|child| !child.stale);
        children.filter(|spi| self.slot_of(**spi) == slot).any(alive)
            || self.wanted.iter().any(|(spi, (of, _))| *of == session && self.slot_of(*spi) == slot)
    }

    /// Which of these workers a child of this session goes to: a further one (RFC 9611) to the worker that has fewest
    /// of the session, any other to where the session is; else to the one that has fewest of all.
    fn place(&self, session: SessionId, slots: &[u16], further: bool) -> Option<u16> {
        if let [only] = slots {
            return Some(*only);
        }
        let coming =
            self.wanted.iter().map(|(spi, (of, _))| (*spi, *of)).chain(self.granted.values().copied());
        let coming: Vec<(u16, SessionId)> = coming.map(|(spi, of)| (self.slot_of(spi), of)).collect();
        let held = |slot: u16| {
            let children = self.sessions.get(&session).into_iter().flat_map(|held| &held.children);
            let live = children.filter(|spi| self.all.get(spi).is_some_and(|child| !child.stale));
            let live = live.filter(|spi| self.slot_of(**spi) == slot);
            live.count() + coming.iter().filter(|(at, of)| (*at, *of) == (slot, session)).count()
        };
        let all = |slot: u16| {
            // Those whose worker died say nothing about the one that has its slot now.
            let there = self.by_slot.get(&slot).into_iter().flatten();
            there.filter(|spi| self.all.get(spi).is_some_and(|child| !child.stale)).count()
                + coming.iter().filter(|(at, _)| *at == slot).count()
        };
        slots.iter().copied().min_by_key(|slot| {
            let held = held(*slot);
            (if further { held } else { usize::from(held == 0) }, all(*slot))
        })
    }

    fn is_free(&self, spi: u32) -> bool {
        spi >= 256
            && !self.all.contains_key(&spi)
            && !self.wanted.contains_key(&spi)
            && !self.granted.values().any(|(granted, _)| *granted == spi)
    }
}

impl Keyer {
    /// A random inbound SPI for a child of this session, at the worker that has most room for it. `None` when its label's
    /// vault does not run. `further`: beside one that the session has, for another resource (RFC 9611).
    pub(crate) fn fresh_spi(&mut self, label: &LabelName, session: SessionId, further: bool) -> Option<u32> {
        let slots: Vec<u16> = self.vaults.get(label)?.keys().copied().collect();
        let slot = self.children.place(session, &slots, further)?;
        self.fresh_spi_at(label, slot)
    }

    /// A random inbound SPI that the kernel steers to this worker of the label's vault. `None` when it does not run.
    pub(crate) fn fresh_spi_at(&mut self, label: &LabelName, slot: u16) -> Option<u32> {
        self.vaults.get(label)?.get(&slot)?;
        // As many at a time as a few slots need: of 4,095, some sixteen times.
        let (mut octets, mut used) = ([0; 1_024], usize::MAX);
        (0..64).find_map(|_| {
            let spi = self.children.steering.spi(slot, || {
                if used >= octets.len() / 4 {
                    self.random.fill(&mut octets);
                    used = 0;
                }
                let next = octets.as_chunks::<4>().0.get(used).copied().unwrap_or_default();
                used += 1;
                u32::from_be_bytes(next)
            });
            spi.map(Spi::get).filter(|spi| self.children.is_free(*spi))
        })
    }

    /// Asks the peer of an IKE SA for a child of this session, unless there is one: at this worker, or at any.
    pub(crate) fn create(&mut self, ike: IkeId, session: SessionId, at: Option<u16>) {
        if at.map_or_else(|| self.children.has(session), |slot| self.children.has_at(session, slot)) {
            return;
        }
        self.ask(ike, session, at);
    }

    fn ask(&mut self, ike: IkeId, session: SessionId, at: Option<u16>) {
        self.agreed.serve(ike, self.children.record(session).and_then(|record| record.ciphers.clone()));
        // It is asked for again when the IKE SA has the keys that it needs.
        if let Some(label) = self.children.label(session).cloned()
            && !self.hold_to(ike, &label)
        {
            if !self.refuses(ike, &label) {
                self.create_after(ike, session, at);
            }
            return;
        }
        let Some(child) = self.new_child(session, at) else { return };
        let spi = child.spi;
        if self.command(Command::CreateChild { ike, child }).is_ok() {
            self.children.wanted.insert(spi, (session, ike));
        }
    }

    /// Asks for a child whose packets go as this session's may now, where it has only others, and gives these up when it has had one for a
    /// while, or at once where that is `late`. Whether there is anything left to be done.
    pub(crate) fn carry_otherwise(&mut self, ike: IkeId, session: SessionId, late: bool) -> bool {
        let now = self.now().monotonic;
        let held = self.children.sessions.get(&session).into_iter().flat_map(|held| &held.children);
        let alive = held.filter_map(|spi| Some((*spi, self.children.all.get(spi).filter(|it| !it.stale)?)));
        let (old, new): (Vec<_>, Vec<_>) = alive.partition(|(spi, _)| self.children.goes_otherwise(*spi));
        let old: Vec<(IkeId, u32)> = old.into_iter().map(|(inbound, child)| (child.ike, inbound)).collect();
        let is_asked = !new.is_empty() || self.children.wanted.values().any(|(of, _)| *of == session);
        if late || new.iter().any(|(_, child)| child.made.saturating_add(MOVED_OVERLAP) <= now) {
            for (ike, inbound) in &old {
                let _ = self.command(Command::CloseChild { ike: *ike, inbound: *inbound });
            }
        } else if !is_asked && !old.is_empty() {
            self.ask(ike, session, None);
        }
        !old.is_empty()
    }

    /// What a child of this session is to be like.
    pub(crate) fn new_child(&mut self, session: SessionId, at: Option<u16>) -> Option<NewChild> {
        let record = self.children.record(session)?.clone();
        let further = at.is_some() && self.children.has(session);
        let spi = match at {
            Some(slot) => self.fresh_spi_at(&record.label, slot)?,
            None => self.fresh_spi(&record.label, session, false)?,
        };
        let label = SecurityLabel::new(record.label.as_str().as_bytes()).ok()?;
        let (local, remote) = self.sides(&record);
        let resource = further.then(Resource::default);
        let aggfrag = record.carriage.aggregates();
        Some(NewChild { spi, label: Some(label), local, remote, want_address: false, resource, aggfrag })
    }

    /// Our side's addresses and the peer's.
    pub(crate) fn sides(&self, record: &KeyRecord) -> (Vec<Selector>, Vec<Selector>) {
        let inner = record.inner.iter().map(|address| Selector::host(*address)).collect();
        let reach = record.reach.iter();
        let reach = reach.filter_map(|net| Selector::subnet(net.addr(), net.prefix_len())).collect();
        match self.place {
            Place::Server => (reach, inner),
            Place::Workstation => (inner, reach),
        }
    }

    /// Remembers a child that an IKE SA was begun with.
    pub(crate) fn want(&mut self, spi: u32, session: SessionId, ike: IkeId) {
        self.children.wanted.insert(spi, (session, ike));
    }

    /// Hands a child's keys to the vault of its session's label. They are erased here when this returns.
    pub(crate) fn established(&mut self, child: ChildEstablished) {
        let (ike, inbound) = (child.ike, child.inbound);
        let asked = self.children.wanted.remove(&inbound).map(|(session, _)| session);
        let granted = || self.children.granted.get(&ike).filter(|(spi, _)| *spi == inbound);
        let session = asked.or_else(|| granted().map(|(_, session)| *session));
        if asked.is_none() {
            self.children.granted.remove(&ike);
        }
        let rekeys = child.rekeys;
        let own_exchange = child.suite.key_exchange.is_some();
        let installed = session.and_then(|session| self.install(child, session).map(|what| (session, what)));
        // What encoders and the key derivation left on the stack.
        scrub_stack();
        let Some((session, (label, carriage))) = installed else {
            // The session is over, or its vault is: sessiond has said so meanwhile.
            let _ = self.command(Command::CloseChild { ike, inbound });
            return;
        };
        let made = self.now().monotonic;
        self.children
            .insert(inbound, Child { ike, session, label, made, stale: false, own_exchange, carriage });
        if let Some(held) = self.children.sessions.get_mut(&session) {
            held.children.insert(inbound);
        }
        let protected = self.children.key_life(session);
        let life = match (self.place, protected) {
            (Place::Server, None) => SERVER_LIFE.saturating_add(self.jitter(LIFE_JITTER)),
            (Place::Workstation, None) => WORKSTATION_LIFE.saturating_add(self.jitter(LIFE_JITTER)),
            // In tenths of it: there is time left for the exchange, and for what is under way when the keys are replaced.
            (place, Some(life)) => {
                let begins = if place == Place::Server { 8 } else { 7 };
                (life / 10).saturating_mul(begins).saturating_add(self.jitter(life / 10))
            }
        };
        self.at(life, Timer::Rekey(inbound));
        if let Some(life) = protected {
            self.at(life, Timer::Expire(inbound));
        }
        if rekeys.is_none() {
            self.close_stale(session);
            self.at(OVERLAP, Timer::Settle(session));
        }
        if self.place == Place::Workstation {
            self.child_came(session);
        }
        // Keys that follow from the IKE SA's and from nonces in clear are good for no more than a beginning.
        if !own_exchange {
            self.rekey(inbound);
        }
    }

    fn install(&mut self, child: ChildEstablished, session: SessionId) -> Option<(LabelName, Carriage)> {
        if self.place == Place::Server && !self.is_a_hosts(child.ike) {
            return None;
        }
        let record = self.children.record(session)?;
        let (label, carriage) = (record.label.clone(), record.carriage);
        let Ok(aggregation) = aggregation(carriage, child.aggfrag) else {
            self.count("keys that a vault was not to have: the peer asked for another carriage of packets");
            return None;
        };
        if child.label.as_ref().and_then(SecurityLabel::as_str) != Some(label.as_str()) {
            return None;
        }
        let cipher = match child.suite.encryption {
            Encryption::Aes128Gcm16 => Cipher::Aes128Gcm,
            Encryption::Aes256Gcm16 => Cipher::Aes256Gcm,
            Encryption::ChaCha20Poly1305 => Cipher::ChaCha20Poly1305,
            // Never offered: vaults have AEADs alone.
            Encryption::Aes128Cbc | Encryption::Aes256Cbc => return None,
        };
        if record.ciphers.as_ref().is_some_and(|ciphers| !ciphers.contains(&cipher)) {
            self.count("keys that a vault was not to have: its session's protection has not this cipher");
            return None;
        }
        let by = |keying: &Keying| {
            child.suite.key_exchange.is_none_or(|it| methods(&keying.exchanges).contains(&it))
        };
        if !self.suits(child.ike, &label) || !self.children.keying(&label).is_none_or(by) {
            self.count("keys that a vault was not to have: they were agreed by what does not count any more");
            return None;
        }
        let slot = self.children.slot_of(child.inbound);
        let vault = self.vaults.get_mut(&label)?.get_mut(&slot)?;
        let inbound = Sa { spi: child.inbound, keying_material: material(&child.inbound_keys)? };
        let outbound = Sa { spi: child.outbound, keying_material: material(&child.outbound_keys)? };
        let (esn, peer) = (child.suite.esn, Some(child.path.remote));
        let answered = child.role == Role::Responder && child.rekeys.is_some();
        let keys =
            KeyerToVault::Install { session, cipher, esn, inbound, outbound, answered, peer, aggregation };
        vault.send(keys);
        vault.is_open().then_some((label, carriage))
    }

    /// A child that was asked for did not come about.
    pub(crate) fn child_failed(&mut self, ike: IkeId, inbound: u32, rekeys: Option<u32>, why: &ChildError) {
        let session = self.children.wanted.remove(&inbound).map(|(session, _)| session);
        let superseded = matches!(why, ChildError::Superseded);
        match (rekeys, session) {
            // What cannot be given keys of its own cannot stay.
            (Some(old), _) if !superseded => match self.children.all.get(&old) {
                Some(child) if child.own_exchange => self.at(REKEY_AGAIN, Timer::Rekey(old)),
                _ => {
                    let _ = self.command(Command::CloseChild { ike, inbound: old });
                }
            },
            // A further one (RFC 9611): what its worker holds back goes nowhere, and the others go on.
            (None, Some(session)) if self.children.has(session) => {
                self.count("the peer gave no further child SA of a session");
            }
            (None, Some(session)) if self.place == Place::Workstation => {
                self.keys_refused(session, why);
            }
            _ => {}
        }
    }

    /// A child is gone. Packets under keys that were replaced may still be under way.
    pub(crate) fn child_gone(&mut self, inbound: u32, replaced: bool) {
        let Some(child) = self.children.remove(inbound) else { return };
        self.timers.gone(inbound);
        if let Some(held) = self.children.sessions.get_mut(&child.session) {
            held.children.remove(&inbound);
        }
        if child.stale {
            return;
        }
        if replaced {
            self.tell_worker(&child.label, inbound, KeyerToVault::Retire { spi: inbound });
            let moved = self.children.moved.get(&child.label).is_some_and(|moved| child.made < moved.since);
            let overlap = if moved { MOVED_OVERLAP } else { OVERLAP };
            self.at(overlap, Timer::Forget(child.label, child.session, inbound));
        } else {
            self.erase(&child.label, inbound);
        }
    }

    /// Has a child's worker erase its keys.
    pub(crate) fn erase(&mut self, label: &LabelName, inbound: u32) {
        self.tell_worker(label, inbound, KeyerToVault::Delete { spi: inbound });
    }

    fn tell_worker(&mut self, label: &LabelName, inbound: u32, what: KeyerToVault) {
        let slot = self.children.slot_of(inbound);
        if let Some(vault) = self.vaults.get_mut(label).and_then(|vault| vault.get_mut(&slot)) {
            vault.send(what);
        }
    }

    /// Replaces a child's keys.
    pub(crate) fn rekey(&mut self, inbound: u32) {
        let Some(child) = self.children.all.get(&inbound).filter(|child| !child.stale) else { return };
        if self.children.is_followed(inbound) {
            return;
        }
        let (ike, session, label) = (child.ike, child.session, child.label.clone());
        // Its turn comes when the IKE SA has other keys.
        if !self.suits(ike, &label) {
            self.hold_to(ike, &label);
            return;
        }
        let Some(spi) = self.fresh_spi_at(&label, self.children.slot_of(inbound)) else { return };
        if self.command(Command::RekeyChild { ike, inbound, spi }).is_ok() {
            self.children.wanted.insert(spi, (session, ike));
        }
    }

    /// A child is as old as its session's protection lets it be, and nothing has taken its place: its keys go now, whatever the peer says.
    /// What waits for keys then asks for others.
    pub(crate) fn expire(&mut self, inbound: u32) {
        let Some(child) = self.children.all.get_mut(&inbound).filter(|child| !child.stale) else { return };
        child.stale = true;
        let (ike, label) = (child.ike, child.label.clone());
        self.erase(&label, inbound);
        self.count("keys that were as old as their session's protection lets them be");
        let _ = self.command(Command::CloseChild { ike, inbound });
    }

    /// Workstation: asks for what this session's tunnel may be sealed by, and for nothing else, for IKE's own messages neither: there is one
    /// session at a time.
    pub(crate) fn offer(&mut self, record: &KeyRecord) {
        let Ok(label) = SecurityLabel::new(record.label.as_str().as_bytes()) else { return };
        let by = encryptions(record.ciphers.as_deref().unwrap_or(Cipher::all()));
        self.endpoint.narrow(label, &by, None);
        self.endpoint.propose(sealed_by(&self.proposals, &by));
    }

    /// Agrees keys at a label like this alone from now on. Where what is there may not be kept it is replaced, each pair while it carries
    /// traffic; the vault sees to it that nothing old stays.
    pub(crate) fn move_to(&mut self, label: LabelName, keying: Keying) {
        let Ok(narrowed) = SecurityLabel::new(label.as_str().as_bytes()) else { return };
        let before = self.children.moved.get(&label).map(|moved| (&moved.keying, moved.since));
        let may_stay = |before: &Keying| before.ciphers == keying.ciphers && !keying.is_narrower_than(before);
        let kept = before.filter(|(before, _)| may_stay(before)).map(|(_, since)| since);
        let by = encryptions(&keying.ciphers);
        self.endpoint.narrow(narrowed, &by, Some(&methods(&keying.exchanges)));
        let now = self.now().monotonic;
        let there = self.children.all.iter().filter(|(_, child)| child.label == label && !child.stale);
        let there: Vec<(u32, IkeId)> = there.map(|(inbound, child)| (*inbound, child.ike)).collect();
        let key_life = keying.key_life;
        self.children.moved.insert(label.clone(), Moved { keying, since: kept.unwrap_or(now) });
        self.prefer();
        for ike in there.iter().map(|(_, ike)| *ike).collect::<BTreeSet<_>>() {
            self.hold_to(ike, &label);
        }
        if kept.is_some() {
            return;
        }
        for (inbound, _) in there {
            // Whether or not it is replaced.
            if let (Some(life), Some(child)) = (key_life, self.children.all.get(&inbound)) {
                self.at(life.saturating_sub(now.saturating_sub(child.made)), Timer::Expire(inbound));
            }
            // What goes as its session's packets do not any more is not replaced by its like: workstations come by themselves. Another
            // client knows nothing of it.
            if !self.children.goes_otherwise(inbound) {
                self.rekey(inbound);
            } else if self.place == Place::Server && self.children.may_follow(inbound) {
                self.at(COMES, Timer::Rekey(inbound));
            }
        }
    }

    /// This worker of the label's vault is another one, or none: it has no keys.
    pub(crate) fn vault_lost(&mut self, label: &LabelName, slot: u16) {
        let Children { all, by_slot, .. } = &mut self.children;
        for spi in by_slot.get(&slot).into_iter().flatten() {
            if let Some(child) = all.get_mut(spi).filter(|child| child.label == *label) {
                child.stale = true;
            }
        }
    }

    /// A vault did not take keys.
    pub(crate) fn not_installed(&mut self, label: &LabelName, slot: u16, inbound: u32, why: &str) {
        if self.children.slot_of(inbound) != slot {
            return;
        }
        let Some(child) = self.children.all.get_mut(&inbound).filter(|child| child.label == *label) else {
            return;
        };
        child.stale = true;
        let (ike, session) = (child.ike, child.session);
        let _ = self.command(Command::CloseChild { ike, inbound });
        if self.place == Place::Workstation && !self.children.has(session) {
            self.give_up(session, why);
        }
    }

    /// A packet of this session waits for keys at this worker.
    pub(crate) fn acquire(&mut self, session: SessionId, slot: u16) {
        let now = self.now().monotonic;
        let young = |child: &Child| !child.stale && now.saturating_sub(child.made) < YOUNG;
        let Some(held) = self.children.sessions.get(&session) else { return };
        let here = |spi: &u32| self.children.slot_of(*spi) == slot;
        let children: Vec<u32> = held.children.iter().copied().filter(here).collect();
        if children.iter().any(|spi| self.children.all.get(spi).is_some_and(young)) {
            return;
        }
        for spi in children {
            if let Some(child) = self.children.all.get_mut(&spi) {
                child.stale = true;
            }
        }
        match self.place {
            Place::Server => self.reach_peer(session, Some(slot)),
            Place::Workstation => self.reach_server(session, slot),
        }
    }

    /// Tells the session's vault what the session has, once nothing is under way any more under what a keyer before this one agreed.
    pub(crate) fn settle(&mut self, session: SessionId) {
        let Some(held) = self.children.sessions.get(&session) else { return };
        let alive = held.children.iter().filter(|spi| self.children.all.get(spi).is_some_and(|c| !c.stale));
        let mut spis: Vec<u32> = alive.copied().collect();
        // Without any, the vault is about to lose its last, or asks for keys.
        if spis.is_empty() {
            return;
        }
        spis.extend(self.timers.forgotten(session));
        for worker in self.vaults.get_mut(&held.record.label).into_iter().flat_map(|vault| vault.values_mut())
        {
            worker.send(KeyerToVault::Only { session, spis: spis.clone() });
        }
    }

    /// Deletes the session's children that its vault does not know, now that it has another.
    fn close_stale(&mut self, session: SessionId) {
        let Some(held) = self.children.sessions.get(&session) else { return };
        let stale = held.children.iter().filter_map(|spi| {
            let child = self.children.all.get(spi)?;
            child.stale.then_some((child.ike, *spi))
        });
        for (ike, inbound) in stale.collect::<Vec<_>>() {
            let _ = self.command(Command::CloseChild { ike, inbound });
        }
    }
}

/// Key and salt as one, erased when dropped (RFC 4106 8.1).
fn material(keys: &EspKeys) -> Option<Secret> {
    let mut all = Vec::with_capacity(keys.encryption.len().saturating_add(keys.salt.len()));
    all.extend_from_slice(&keys.encryption);
    all.extend_from_slice(&keys.salt);
    Secret::new(all)
}

#[cfg(test)]
mod tests;
