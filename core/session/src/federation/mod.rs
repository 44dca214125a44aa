//! Several servers of one site share their sessions: what this server may count as current, what it must cut, and
//! when an end is over everywhere.
//!
//! Each server says, again and again, one signed [`Statement`]: which sessions are its own, and how it stands to the others. Whoever
//! carries it (etcd, its client) is trusted for nothing but that it comes at all. What follows holds whatever is delayed, repeated,
//! hidden, altered or made up on the way:
//!
//! - *Fresh.* A statement of `B` is fresh at `A` when it has heard one of `A`'s of less than a lease ago, by `A`'s own clock. `A` grants
//!   only what is fresh.
//! - *A grant.* `B` may use sessions of `A` for a lease, less a margin for the rates of two clocks, from when it made the last statement
//!   that `A` says it has granted. What says so also says which sessions `A` has. So an old table ends, and nothing in it can be renewed.
//! - *An end* that `A` has said is over at `B` when `B` says so (its word `done`), or a lease after `A` last granted `B` anything.
//!   Nobody else's word counts.
//! - *A beginning* waits until each other server has heard of the session, or can use nothing of `A`'s any more. Where a
//!   workstation has sessions at two servers after all, one of them, or each, ends its own.
//! - *Own sessions* pass as long as the server's own statements come back to it: one that is cut off ends everything.

mod peer;
mod posture;
mod said;
mod setting;
mod statement;
mod witness;

use crate::{SessionId, Stored, Time};
use levee_policy::{DomainName, HostName, SiteName};
use peer::{Order, Peer};
use posture::Standing;
use serde::{Deserialize, Serialize};
use statement::{Book, Digest};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use said::{Publication, Said};
pub use setting::{InForce, Setting};
pub use statement::{PAGE, PAGES, PEERS, SIGNATURE, Signed, Statement, Word};

/// Sessions of other servers that are used: so many in all, and as many of each as there are servers to share them, but not fewer than
/// [`FEWEST`].
const MOST: usize = 12_288;
const FEWEST: usize = 1_024;
/// How many statements are remembered to know them again.
const REMEMBERED: usize = 4_096;

/// A session as another server has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The server where the person signed on.
    pub owner: DomainName,
    /// The session.
    pub record: Stored,
}

/// A session of this server.
#[derive(Clone, Debug)]
struct Own {
    device: HostName,
    page: Option<u16>,
    step: OwnStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnStep {
    /// The first statement that has it.
    Publishing(Option<u64>),
    /// As there.
    Published(u64),
    /// The first statement that has it no more.
    Leaving(Option<u64>),
}

/// A session of another server that is over and not cut here yet: the run and number of the last statement that was heard
/// before. It may have ended by the very next one, heard or not.
#[derive(Clone, Debug)]
struct Cutting {
    epoch: u64,
    before: u64,
}

/// A statement of this server.
#[derive(Debug)]
struct Sent {
    number: u64,
    at: Time,
    digest: Digest,
}

/// A statement that has not been written.
#[derive(Debug)]
struct Flight {
    number: u64,
    at: Time,
    pages: Vec<u16>,
}

#[derive(Debug)]
enum Phase {
    /// Until then at least.
    Away(Time),
    /// Since then.
    Joining(Time),
    /// Since then; own sessions may pass packets until the second.
    Member(Time, Time),
}

/// This server's part of a federation.
#[derive(Debug)]
pub struct Federation {
    site: SiteName,
    me: DomainName,
    ttl: Duration,
    /// This run.
    epoch: u64,
    attempt: u64,
    /// The last statement's.
    number: u64,
    /// What the clock showed when anything was heard last.
    now: Time,
    phase: Phase,
    sent: VecDeque<Sent>,
    flight: Option<Flight>,
    /// There is something to say before the next beat.
    wanted: bool,
    /// When the next beat is due.
    next: Time,
    own: BTreeMap<SessionId, Own>,
    devices: BTreeMap<HostName, SessionId>,
    book: Book,
    /// Own sessions that begin or end.
    open: BTreeSet<SessionId>,
    /// The site's other servers: nobody else is one.
    peers: BTreeMap<DomainName, Peer>,
    /// The most sessions of each of them.
    share: usize,
    /// By whose it is, too: a server can name what is another's.
    cutting: BTreeMap<(DomainName, SessionId), Cutting>,
    standing: Standing,
    /// How far this server's audit log was when it was signed last.
    signed: Option<Signed>,
    /// What in the table is no work of the site's servers.
    strange: u64,
    /// Whether somebody else has signed with this server's key.
    cloned: bool,
    said: VecDeque<Said>,
}

const CLONE: &str = "somebody else signs with this server's key";
const LATE: &str = "what it says did not come back in time";
const CUT_OFF: &str = "the server is cut off from the others of its site";
const ELSEWHERE: &str = "the workstation has a session at another server of the site";
const FULL: &str = "the server has as many sessions as the others can be told of";

/// How long until another try to join.
const AGAIN: Duration = Duration::from_millis(500);

impl Federation {
    /// Not a member yet: nothing passes. `ttl` is the lease's; the first try is not before `begin`, by when nothing
    /// passes any more that a run before this one allowed. `begin` also numbers the run: it is later than that of any before, or the
    /// table says so.
    pub fn new(
        site: SiteName,
        me: DomainName,
        peers: impl IntoIterator<Item = DomainName>,
        ttl: Duration,
        begin: Time,
    ) -> Self {
        // A run before this one may have granted something until just now.
        let granted_until = begin.after(ttl);
        let peers: BTreeMap<_, _> = peers.into_iter().map(|name| (name, Peer::new(granted_until))).collect();
        Self {
            site,
            me,
            ttl,
            epoch: begin.as_millis(),
            attempt: 0,
            number: 0,
            now: Time::default(),
            phase: Phase::Away(begin),
            sent: VecDeque::new(),
            flight: None,
            wanted: false,
            next: begin,
            own: BTreeMap::new(),
            devices: BTreeMap::new(),
            book: Book::default(),
            open: BTreeSet::new(),
            share: FEWEST.max(MOST / peers.len().max(1)),
            peers,
            cutting: BTreeMap::new(),
            standing: Standing::default(),
            signed: None,
            strange: 0,
            cloned: false,
            said: VecDeque::new(),
        }
    }

    /// How often the table had something that is no work of the site's servers. It was not obeyed.
    pub fn strange(&self) -> u64 {
        self.strange
    }

    /// What an operator is to know.
    pub fn alarm(&self) -> Option<String> {
        self.cloned.then(|| format!("{CLONE}: revoke it and make another (levee enrol rotate federation)"))
    }

    /// So much of that was noticed by who reads the table, or checks signatures.
    pub fn add_strange(&mut self, count: u64) {
        self.strange = self.strange.saturating_add(count);
    }

    /// The site's other servers.
    pub fn peers(&self) -> impl Iterator<Item = &DomainName> {
        self.peers.keys()
    }

    /// So long may packets pass after a statement was made: less than a lease, for clocks run at rates of their own.
    fn span(&self) -> Duration {
        self.ttl.saturating_sub(self.ttl / 8)
    }

    /// What is to be done next; `None` when all is.
    pub fn poll(&mut self) -> Option<Said> {
        self.said.pop_front()
    }

    /// Whether this server is a member, other servers whose sessions may be used here, and how many those are.
    pub fn shown(&self) -> (bool, Vec<DomainName>, usize) {
        let live = self.peers.iter().filter(|(_, peer)| peer.live).map(|(name, _)| name.clone());
        let theirs = self.peers.values().map(|peer| peer.used.len()).sum();
        (matches!(self.phase, Phase::Member(_, until) if until > self.now), live.collect(), theirs)
    }

    /// When [`Federation::tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        let phase = match self.phase {
            // Not before everything is cut, which is an event of its own.
            Phase::Away(at) => self.cutting.is_empty().then_some(at),
            Phase::Joining(since) => Some(since.after(self.ttl)),
            Phase::Member(since, until) => {
                let flight = self.flight.as_ref().map_or(self.next, |flight| flight.at.after(self.ttl / 4));
                Some(until.max(since.after(self.ttl)).min(flight))
            }
        };
        let live = self.peers.values().filter(|peer| peer.live).map(|peer| peer.until);
        // What begins or ends waits for these.
        let granted = self.peers.values().map(|peer| peer.granted_until);
        let granted = granted.filter(|until| !self.open.is_empty() && *until > self.now);
        let resting = self.peers.values().filter_map(Peer::rested_at);
        phase.into_iter().chain(live).chain(granted).chain(resting).chain(self.impatient_at()).min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) {
        self.pass(now);
        match self.phase {
            Phase::Away(at) if at <= now && self.cutting.is_empty() => {
                self.attempt += 1;
                self.phase = Phase::Joining(now);
                self.said.push_back(Said::Join { attempt: self.attempt });
            }
            Phase::Joining(since) if since.after(self.ttl) <= now => {
                self.forget();
                self.phase = Phase::Away(now);
            }
            Phase::Member(..) => {
                if let Some(late) = self.flight.take_if(|flight| flight.at.after(self.ttl / 4) <= now) {
                    self.book.doubt(&late.pages);
                    self.wanted = true;
                }
                if self.next <= now && self.flight.is_none() {
                    self.book.refresh(self.peers.values().all(|peer| peer.live));
                    self.wanted = true;
                }
                self.state(now);
            }
            _ => {}
        }
        let rested = |(name, peer): (&DomainName, &mut Peer)| (name.clone(), peer.rested(now));
        for (name, ids) in self.peers.iter_mut().map(rested).collect::<Vec<_>>() {
            self.appear(&name, &ids);
        }
        self.settle(now);
    }

    /// What ends by time alone.
    fn pass(&mut self, now: Time) {
        self.now = self.now.max(now);
        if let Phase::Member(since, until) = self.phase
            && until.max(since.after(self.ttl)) <= now
        {
            self.fence(LATE, now);
        }
        let late = self.peers.iter().filter(|(_, peer)| peer.live && peer.until <= now);
        for name in late.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.lapse(&name);
        }
    }

    /// No session of a server may be used any more.
    fn lapse(&mut self, name: &DomainName) {
        let Some(peer) = self.peers.get_mut(name) else { return };
        (peer.live, peer.until) = (false, Time::default());
        for id in std::mem::take(&mut peer.used) {
            self.over(name, id, Cutting { epoch: 0, before: 0 });
        }
    }

    /// A session of this server is to be cut.
    fn over(&mut self, name: &DomainName, id: SessionId, cutting: Cutting) {
        self.cutting.insert((name.clone(), id), cutting);
        self.said.push_back(Said::Vanished(name.clone(), id));
    }

    /// A server's statements are good no more: nothing that it has said holds, and it is granted nothing.
    pub fn disown(&mut self, name: &DomainName, now: Time) {
        self.pass(now);
        let Some(peer) = self.peers.get_mut(name) else { return };
        let used = peer.forget();
        // Whoever had its key may have signed a run that no clock comes to.
        peer.begin_anew();
        for id in used {
            self.over(name, id, Cutting { epoch: 0, before: 0 });
        }
        self.settle(now);
    }

    /// A session of this server is to be used: it may when [`Said::Published`] says so.
    pub fn publish(&mut self, record: &Stored, now: Time) {
        self.pass(now);
        let (id, device) = (record.id, &record.device);
        let refused = |why: &str| Said::Published(id, Publication::Refused(why.to_owned()));
        if !matches!(self.phase, Phase::Member(_, until) if until > now) {
            return self.said.push_back(refused(CUT_OFF));
        }
        if self.peers.values().any(|peer| peer.live && peer.devices.contains_key(device)) {
            return self.said.push_back(refused(ELSEWHERE));
        }
        let Some(page) = self.book.add(record) else {
            return self.said.push_back(refused(FULL));
        };
        for peer in self.peers.values_mut().filter(|peer| peer.devices.contains_key(device)) {
            peer.clashes.insert(id);
        }
        let step = OwnStep::Publishing(None);
        self.own.insert(id, Own { device: device.clone(), page: Some(page), step });
        self.devices.insert(device.clone(), id);
        self.open.insert(id);
        self.wanted = true;
        self.state(now);
        self.settle(now);
    }

    /// A session of this server ends, whether it was published or not. [`Said::Withdrawn`] says when it is over everywhere else.
    pub fn withdraw(&mut self, record: &Stored, now: Time) {
        self.pass(now);
        // One that this run did not publish may be known from the run before.
        let leaving = OwnStep::Leaving(None);
        self.own.entry(record.id).or_insert_with(|| Own {
            device: record.device.clone(),
            page: None,
            step: leaving,
        });
        self.leave(record.id);
        self.state(now);
        self.settle(now);
    }

    fn leave(&mut self, id: SessionId) {
        let Some(own) = self.own.get_mut(&id) else { return };
        if !matches!(own.step, OwnStep::Leaving(_)) {
            own.step = OwnStep::Leaving(None);
            if let Some(page) = own.page {
                self.book.remove(page, id);
            }
        }
        if self.devices.get(&own.device) == Some(&id) {
            self.devices.remove(&own.device);
        }
        for peer in self.peers.values_mut() {
            peer.clashes.remove(&id);
        }
        self.wanted |= self.open.insert(id) || self.book.is_dirty();
    }

    /// A session of another server is cut here: no packet of it passes any more.
    pub fn cut(&mut self, owner: &DomainName, id: SessionId, now: Time) {
        self.pass(now);
        if self.cutting.remove(&(owner.clone(), id)).is_none() {
            return;
        }
        // It may be there again.
        self.appear(owner, &[id]);
        // Somebody may wait for it.
        self.wanted = true;
        self.state(now);
    }

    /// As [`Federation::cut`]; or it could not go on here, while its owner has not ended it. Then it appears again after a rest, and each
    /// time that this happens after a longer one.
    pub fn missing(&mut self, owner: &DomainName, id: SessionId, now: Time) {
        self.pass(now);
        if self.cutting.contains_key(&(owner.clone(), id)) {
            return self.cut(owner, id, now);
        }
        if let Some(peer) = self.peers.get_mut(owner) {
            peer.rest(id, self.now);
        }
    }

    /// All of the table has been told.
    pub fn joined(&mut self, attempt: u64, now: Time) {
        self.pass(now);
        if let Phase::Joining(since) = self.phase
            && attempt == self.attempt
        {
            self.phase = Phase::Member(since, Time::default());
            (self.wanted, self.flight) = (true, None);
            self.state(now);
        }
    }

    /// A statement and its pages are in the table.
    pub fn written(&mut self, attempt: u64, number: u64, now: Time) {
        self.pass(now);
        if attempt == self.attempt && self.flight.take_if(|flight| flight.number == number).is_some() {
            self.state(now);
        }
    }

    /// The table's client is gone, or says that it has lost the table.
    pub fn lost(&mut self, attempt: Option<u64>, reason: &str, now: Time) {
        self.pass(now);
        if attempt.is_some_and(|attempt| attempt != self.attempt) {
            return;
        }
        match self.phase {
            Phase::Member(..) => self.fence(reason, now),
            Phase::Joining(_) => {
                self.forget();
                self.phase = Phase::Away(now.after(AGAIN));
            }
            Phase::Away(_) => {}
        }
    }

    /// Takes a statement; its signature is that of the server which it names.
    pub fn hear(&mut self, attempt: u64, statement: Statement, now: Time) {
        self.pass(now);
        if attempt != self.attempt || matches!(self.phase, Phase::Away(_)) {
            return;
        }
        if statement.site != self.site {
            return self.add_strange(1);
        }
        if statement.server == self.me {
            return self.came_back(&statement, now);
        }
        let name = statement.server.clone();
        let Some(peer) = self.peers.get_mut(&name) else { return self.add_strange(1) };
        match peer.see(statement) {
            Order::Next => self.take(&name, now),
            Order::Known => {}
            Order::Back | Order::Twice => self.add_strange(1),
        }
    }

    /// Takes a page of this server, which nobody has signed: it counts if a statement names it.
    pub fn page(&mut self, attempt: u64, of: &DomainName, page: u16, bytes: &[u8], now: Time) {
        self.pass(now);
        if attempt != self.attempt || matches!(self.phase, Phase::Away(_)) || *of == self.me {
            return;
        }
        let Some(peer) = self.peers.get_mut(of) else { return self.add_strange(1) };
        if peer.page(page, bytes) {
            self.take(of, now);
        } else if peer.is_wanted(page) {
            // What no statement waits for may be left of before.
            self.add_strange(1);
        }
    }

    /// What this server has said comes back through the table.
    fn came_back(&mut self, statement: &Statement, now: Time) {
        if statement.epoch > self.epoch && self.number == 0 {
            // The clock was set back since the run before.
            self.epoch = statement.epoch.saturating_add(1);
            return;
        }
        if statement.epoch < self.epoch {
            return;
        }
        let sent = self.sent.iter().find(|sent| sent.number == statement.number);
        let other = sent.is_some_and(|sent| sent.digest != statement.digest());
        if statement.epoch > self.epoch || statement.number > self.number || other {
            self.add_strange(1);
            // Whoever has this server's key may have gone: it goes on in a run behind theirs, or it would not come back.
            self.epoch = self.epoch.max(statement.epoch).saturating_add(1);
            self.cloned = true;
            return self.fence(CLONE, now);
        }
        let until = sent.map(|sent| sent.at.after(self.span()));
        if let (Phase::Member(_, before), Some(until)) = (&mut self.phase, until)
            && until > *before
        {
            *before = until;
            self.said.push_back(Said::Until(None, until));
        }
    }

    fn sent_at(&self, number: u64) -> Option<Time> {
        let place = self.sent.binary_search_by_key(&number, |sent| sent.number).ok()?;
        self.sent.get(place).map(|sent| sent.at)
    }

    /// Takes a server's statement, if all of it is there.
    fn take(&mut self, name: &DomainName, now: Time) {
        let Some(peer) = self.peers.get_mut(name) else { return };
        let Some((statement, changes)) = peer.whole() else { return };
        let (epoch, number) = (statement.epoch, statement.number);
        let anew = peer.heard.0 != epoch;
        let before = if anew { 0 } else { peer.heard.1 };
        peer.heard = (epoch, number);
        let about_me = |word: &&Word| word.server == self.me && word.epoch == self.epoch;
        peer.says = statement.words.iter().find(about_me).cloned();
        peer.stand(&statement);
        let (heard, granted) = peer.says.as_ref().map_or((0, 0), |word| (word.heard, word.granted));
        self.add_strange(changes.strange);
        self.hear_setting(name);
        self.witness(name, statement.signed, now);
        for id in &changes.removed {
            self.vanish(name, *id, epoch, before);
        }
        if anew {
            self.lapse(name);
        }
        let lease = self.sent_at(granted).map(|at| at.after(self.span()));
        let fresh = self.sent_at(heard).is_some_and(|at| at.after(self.ttl) > now);
        let fresh = fresh
            && self
                .peers
                .get(name)
                .is_some_and(|peer| self.may_be_granted(peer, now) && !self.is_late(peer, now));
        let Some(peer) = self.peers.get_mut(name) else { return };
        // Somebody waits to hear that this was heard.
        let mut wanted = anew || !changes.removed.is_empty() || !changes.added.is_empty();
        if fresh {
            wanted |= peer.granted_until <= now || peer.granted.0 != epoch;
            (peer.granted, peer.granted_until) = ((epoch, number), now.after(self.ttl));
        }
        for id in &changes.added {
            let device = peer.sessions.get(id).map(|record| &record.device);
            peer.clashes.extend(device.and_then(|device| self.devices.get(device)));
        }
        if let Some(until) = lease.filter(|until| *until > peer.until && *until > now) {
            peer.until = until;
            self.said.push_back(Said::Until(Some(name.clone()), until));
        }
        if peer.live {
            self.appear(name, &changes.added);
        } else if peer.until > now {
            peer.live = true;
            let all: Vec<SessionId> = peer.sessions.keys().copied().collect();
            self.appear(name, &all);
        }
        self.fill(name);
        self.clash(name, heard);
        self.wanted |= wanted;
        self.state(now);
        self.settle(now);
    }

    /// Whether a server has not carried out an end that was said a lease ago. It is granted nothing more until it has: then its lease runs
    /// out, and nobody waits for its word any longer.
    fn is_late(&self, peer: &Peer, now: Time) -> bool {
        let done = peer.says.as_ref().map_or(0, |word| word.done);
        let ends = self.open.iter().filter_map(|id| match self.own.get(id)?.step {
            OwnStep::Leaving(from) => from,
            _ => None,
        });
        // What is not remembered is older still.
        let is_old = |from| self.sent_at(from).is_none_or(|at| at.after(self.ttl) <= now);
        ends.filter(|from| *from > done).any(is_old)
    }

    /// A session of another server is over.
    fn vanish(&mut self, name: &DomainName, id: SessionId, epoch: u64, before: u64) {
        let Some(peer) = self.peers.get_mut(name) else { return };
        peer.resting.remove(&id);
        if peer.used.remove(&id) {
            self.over(name, id, Cutting { epoch, before });
        }
    }

    /// Those of these sessions may be used that are there and are not being cut.
    fn appear(&mut self, name: &DomainName, ids: &[SessionId]) {
        let Some(peer) = self.peers.get_mut(name).filter(|peer| peer.live) else { return };
        let unused =
            |id: &&SessionId| !self.cutting.contains_key(&(name.clone(), **id)) && peer.is_unused(id);
        for id in ids.iter().filter(unused).collect::<Vec<_>>() {
            if peer.used.len() >= self.share {
                (peer.is_full, self.strange) = (true, self.strange.saturating_add(1));
            } else if !peer.keeps_pace(self.share, self.now) {
                (peer.is_full, self.strange) = (true, self.strange.saturating_add(1));
                break;
            } else if let Some(record) = peer.uses(*id) {
                let shared = Shared { owner: name.clone(), record: record.clone() };
                self.said.push_back(Said::Appeared(shared));
            }
        }
    }

    /// Where there was no room for all of a server's sessions and there is some now, others are used.
    fn fill(&mut self, name: &DomainName) {
        let Some(peer) = self.peers.get_mut(name).filter(|peer| peer.live && peer.is_full) else { return };
        let room = self.share.saturating_sub(peer.used.len());
        // All that it has are looked through for them: not where none may appear now.
        if room > 0 && peer.has_pace(self.share, self.now) {
            let unused = peer.unused(room);
            peer.is_full = unused.len() == room;
            self.appear(name, &unused);
        }
    }

    /// A server that has heard of a session of this one, and has one of the same workstation all the same.
    fn clash(&mut self, name: &DomainName, heard: u64) {
        let Some(peer) = self.peers.get(name) else { return };
        let clashes = peer.clashes.iter().filter_map(|id| {
            let own = self.own.get(id)?;
            let (OwnStep::Publishing(Some(from)) | OwnStep::Published(from)) = own.step else { return None };
            (from <= heard && peer.devices.contains_key(&own.device)).then_some((*id, own.step))
        });
        for (id, step) in clashes.collect::<Vec<_>>() {
            self.said.push_back(match step {
                OwnStep::Published(_) => Said::Clash(id),
                _ => Said::Published(id, Publication::Unknown(ELSEWHERE.to_owned())),
            });
            self.leave(id);
        }
        if let Some(peer) = self.peers.get_mut(name) {
            peer.clashes
                .retain(|id| self.own.get(id).is_some_and(|own| peer.devices.contains_key(&own.device)));
        }
    }

    /// Says what is so, if there is something to say and nothing under way.
    fn state(&mut self, now: Time) {
        if !self.wanted || self.flight.is_some() || !matches!(self.phase, Phase::Member(..)) {
            return;
        }
        self.number += 1;
        let number = self.number;
        let (digests, pages) = self.book.state();
        let written: Vec<u16> = pages.iter().map(|(page, _)| *page).collect();
        for id in &self.open {
            let Some(own) = self.own.get_mut(id) else { continue };
            let is_said = own.page.is_none_or(|page| written.contains(&page));
            match &mut own.step {
                OwnStep::Publishing(from @ None) | OwnStep::Leaving(from @ None) if is_said => {
                    *from = Some(number);
                }
                _ => {}
            }
        }
        let statement = Statement {
            site: self.site.clone(),
            server: self.me.clone(),
            epoch: self.epoch,
            number,
            words: self.words(),
            pages: digests,
            setting: self.standing.setting.clone(),
            is_kept: !self.standing.is_moving,
            postures: self.standing.postures,
            signed: self.signed.clone(),
        };
        self.sent.push_back(Sent { number, at: now, digest: statement.digest() });
        if self.sent.len() > REMEMBERED {
            self.sent.pop_front();
        }
        self.flight = Some(Flight { number, at: now, pages: written });
        self.next = now.after(self.ttl / 8);
        self.wanted = self.book.is_dirty();
        let statement = Box::new(statement);
        self.said.push_back(Said::State { attempt: self.attempt, statement, pages });
    }

    fn words(&self) -> Vec<Word> {
        let mut done: BTreeMap<&DomainName, u64> = BTreeMap::new();
        for ((owner, _), cutting) in &self.cutting {
            let current = self.peers.get(owner).is_some_and(|peer| peer.heard.0 == cutting.epoch);
            let before = if current { cutting.before } else { 0 };
            let least = done.entry(owner).or_insert(before);
            *least = (*least).min(before);
        }
        let known = self.peers.iter().filter(|(_, peer)| peer.heard != (0, 0));
        let word = |(name, peer): (&DomainName, &Peer)| {
            let (epoch, heard) = peer.heard;
            let granted = if peer.granted.0 == epoch { peer.granted.1 } else { 0 };
            let done = done.get(name).map_or(heard, |before| (*before).min(heard));
            Word { server: name.clone(), epoch, heard, granted, done }
        };
        known.map(word).collect()
    }

    /// Beginnings that every server has heard of, and ends that every server has carried out, or no longer can hold up.
    fn settle(&mut self, now: Time) {
        self.settle_setting(now);
        let member = matches!(self.phase, Phase::Member(..));
        let without = |peer: &Peer| peer.granted_until <= now;
        let mut settled = Vec::new();
        for id in &self.open {
            let Some(own) = self.own.get(id) else { continue };
            let said = match own.step {
                OwnStep::Publishing(Some(from)) => {
                    let heard = |peer: &Peer| peer.says.as_ref().is_some_and(|word| word.heard >= from);
                    self.peers.values().all(|peer| heard(peer) || without(peer))
                }
                OwnStep::Leaving(Some(from)) => {
                    let done = |peer: &Peer| peer.says.as_ref().is_some_and(|word| word.done >= from);
                    self.peers.values().all(|peer| done(peer) || without(peer))
                }
                // Nothing is granted while nothing is said.
                OwnStep::Leaving(None) => !member && self.peers.values().all(without),
                OwnStep::Publishing(None) | OwnStep::Published(_) => false,
            };
            if said {
                settled.push(*id);
            }
        }
        for id in settled {
            self.open.remove(&id);
            let Some(own) = self.own.get_mut(&id) else { continue };
            if let OwnStep::Publishing(Some(from)) = own.step {
                own.step = OwnStep::Published(from);
                self.said.push_back(Said::Published(id, Publication::Done));
            } else {
                self.own.remove(&id);
                self.said.push_back(Said::Withdrawn(id));
            }
        }
    }

    /// Nothing of the others is believed any more.
    fn forget(&mut self) {
        let used: Vec<_> = self.peers.iter_mut().map(|(name, peer)| (name.clone(), peer.forget())).collect();
        for (name, id) in used.iter().flat_map(|(name, ids)| ids.iter().map(move |id| (name, *id))) {
            self.over(name, id, Cutting { epoch: 0, before: 0 });
        }
    }

    /// Nothing can be proved any more: everything ends, and what comes later begins anew.
    fn fence(&mut self, reason: &str, now: Time) {
        self.phase = Phase::Away(now.after(AGAIN));
        // What was asked before is no longer listened to.
        self.attempt += 1;
        self.flight = None;
        self.forget();
        for id in self.own.keys().copied().collect::<Vec<_>>() {
            if matches!(self.own.get(&id), Some(Own { step: OwnStep::Publishing(_), .. })) {
                let unknown = Publication::Unknown(CUT_OFF.to_owned());
                self.said.push_back(Said::Published(id, unknown));
            }
            self.leave(id);
            if let Some(own) = self.own.get_mut(&id) {
                own.page = None;
            }
        }
        self.book = Book::default();
        self.said.push_back(Said::Fence(reason.to_owned()));
    }
}
