//! Several servers of one site share their sessions: what this server may count as current, what it must cut, and
//! when an end is over everywhere.
//!
//! The table is etcd's: a key for each session, one for each TPE, attached to the lease of the server where the person
//! signed on; and a key for each server, attached to its own lease, that says up to which change it has cut what was ended.
//!
//! - A server renews its lease only after its own last beat has come back through the watch: then it has seen every change
//!   that was made before the beat. So a server whose watch is behind loses its lease, as one does that is cut off.
//! - What is renewed counts from before the request was sent, less a margin for the rates of two clocks. Until then packets
//!   may pass here (the vaults keep that deadline themselves), and not a moment longer. etcd forgets the server later.
//! - An end is over everywhere when the session's key is gone by change R, and every server that has a key when R is seen
//!   says that it has cut all up to R, or came after R. A server without a key has cut everything before it lost it.

use crate::{SessionId, Stored, Time};
use levee_policy::{DomainName, HostName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The most sessions of other servers that are kept in mind, and the most of this server's that a run before left.
const MOST: usize = 12_288;
/// How many beats are remembered to know them again: those of four leases and more.
const REMEMBERED: usize = 64;

/// A session as the table has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The server where the person signed on.
    pub owner: DomainName,
    /// The session.
    pub record: Stored,
}

/// One key of the table and what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// A server that may pass packets.
    Server {
        /// Its name.
        name: DomainName,
        /// Its lease: a server that begins anew has another.
        lease: u64,
        /// The change by which it came.
        joined: u64,
        /// The number of its last beat.
        beat: u64,
        /// It has cut everything that was ended by this change or before.
        cut: u64,
    },
    /// A session that may be used.
    Session(Shared),
}

/// A change of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TableChange {
    /// There is, or it now says.
    Put(Entry),
    /// A server's lease is gone.
    ServerGone(DomainName, u64),
    /// The session of a TPE is over.
    SessionGone(HostName),
    /// What a server's key says makes no sense.
    Spoilt(DomainName, u64),
}

/// What the table's client says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Heard {
    /// Part of the table as it is, before [`Heard::Joined`].
    There {
        /// Which try.
        attempt: u64,
        /// Some of it.
        entries: Vec<Entry>,
    },
    /// There is a lease, a key of this server under it, and all of the table has been told as it was at `revision`, after
    /// that key came.
    Joined {
        /// Which try.
        attempt: u64,
        /// The lease.
        lease: u64,
        /// The table's.
        revision: u64,
    },
    /// What has changed since, in order and without a gap.
    Changed {
        /// Which try.
        attempt: u64,
        /// Everything up to this has been told with it.
        revision: u64,
        /// What, and by which change.
        changes: Vec<(u64, TableChange)>,
    },
    /// The lease was renewed by this request.
    Renewed {
        /// Which try.
        attempt: u64,
        /// The request's.
        number: u64,
    },
    /// Whether a session has been published; `None`: nobody knows, and it will not be later.
    Published {
        /// Which try.
        attempt: u64,
        /// Which.
        session: SessionId,
        /// Whether.
        done: Option<bool>,
    },
    /// A session is not in the table at this change; `None`: nobody knows.
    Withdrawn {
        /// Which try.
        attempt: u64,
        /// Which.
        session: SessionId,
        /// When.
        revision: Option<u64>,
    },
    /// There are so many keys in the table that no server of the site writes.
    Strange {
        /// Which try.
        attempt: u64,
        /// How many more.
        count: u64,
    },
    /// The lease, the watch or the table cannot be had any more.
    Lost {
        /// Which try.
        attempt: u64,
        /// Why.
        reason: String,
    },
}

/// What the table's client is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Take a lease of so many seconds and a key of this server under it, tell the table, and watch it from there. Whatever a
    /// try before has is given up.
    Join {
        /// Which try.
        attempt: u64,
        /// Seconds.
        ttl: u64,
    },
    /// Write this server's key.
    Beat {
        /// Which try.
        attempt: u64,
        /// Its number.
        number: u64,
        /// What has been cut.
        cut: u64,
    },
    /// Renew the lease.
    Renew {
        /// Which try.
        attempt: u64,
        /// Said again in the answer.
        number: u64,
    },
    /// Write a session's key under the lease, unless its TPE has one.
    Publish {
        /// Which try.
        attempt: u64,
        /// What.
        session: Shared,
    },
    /// Delete a session's key, if it is this session's.
    Withdraw {
        /// Which try.
        attempt: u64,
        /// What.
        session: Shared,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// By the table's client.
    Ask(Ask),
    /// Packets of sessions may pass until then, and no longer unless this is said again.
    Until(Time),
    /// Every session of this server is to end: it cannot be proved any more that it may go on.
    Fence(String),
    /// A session of another server may be used here.
    Appeared(Shared),
    /// A session of another server is over: answered by [`Federation::cut`] when it is here.
    Vanished(SessionId),
    /// A session of this server may begin, or why not.
    Published(SessionId, Publication),
    /// A session of this server is over at every other.
    Withdrawn(SessionId),
}

/// What became of publishing a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publication {
    /// The others have it, or will before they hear of its end.
    Done,
    /// It is not in the table, and will not be.
    Refused(String),
    /// It may be in the table: it is to be withdrawn.
    Unknown(String),
}

/// How another server stands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Other {
    joined: u64,
    cut: u64,
}

/// A session of this server.
#[derive(Clone, Debug)]
struct Own {
    record: Stored,
    step: OwnStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnStep {
    Publishing,
    Published,
    /// Its key is to go.
    Leaving,
    /// Its key is gone since that change.
    Left(u64),
}

/// A place in the table, under a lease.
#[derive(Debug)]
struct Member {
    lease: u64,
    /// When it was taken.
    since: Time,
    /// By which change this server's key came.
    joined: u64,
    until: Time,
    seen: u64,
    others: BTreeMap<(DomainName, u64), Other>,
    beat: u64,
    /// When the next beat is due.
    next: Time,
    /// What the last beat said.
    told: u64,
    /// The last beats: number, and what each said was cut.
    sent: VecDeque<(u64, u64)>,
    /// The renewal that has not been answered, and when it was asked for.
    renewing: Option<(u64, Time)>,
    renewals: u64,
}

#[derive(Debug)]
enum Phase {
    /// Until then at least.
    Away(Time),
    /// Since then.
    Joining(Time, Vec<Entry>),
    Member(Member),
}

/// This server's part of a federation.
#[derive(Debug)]
pub struct Federation {
    me: DomainName,
    /// The site's other servers: nobody else is one.
    peers: BTreeSet<DomainName>,
    ttl: Duration,
    attempt: u64,
    phase: Phase,
    own: BTreeMap<SessionId, Own>,
    /// Sessions of other servers, by TPE.
    foreign: BTreeMap<HostName, SessionId>,
    /// Those that are over and not cut here yet, with the change that ended them.
    cutting: BTreeMap<SessionId, u64>,
    /// What in the table is no work of the site's servers.
    strange: u64,
    said: VecDeque<Said>,
}

const FOREIGN: &str = "somebody else writes what is this server's in the table";
const LATE: &str = "its lease could not be renewed in time";
const CUT_OFF: &str = "the server is cut off from the others of its site";

/// How long until another try to join.
const AGAIN: Duration = Duration::from_millis(500);

impl Federation {
    /// Not a member yet: nothing passes. `ttl` is the lease's, in whole seconds; the first try is not before `begin`, by when nothing
    /// passes any more that a run before this one allowed.
    pub fn new(me: DomainName, peers: BTreeSet<DomainName>, ttl: Duration, begin: Time) -> Self {
        Self {
            me,
            peers,
            ttl,
            attempt: 0,
            phase: Phase::Away(begin),
            own: BTreeMap::new(),
            foreign: BTreeMap::new(),
            cutting: BTreeMap::new(),
            strange: 0,
            said: VecDeque::new(),
        }
    }

    /// How often the table had something that is no work of the site's servers. It was not obeyed.
    pub fn strange(&self) -> u64 {
        self.strange
    }

    /// So long may packets pass after the lease was renewed: less than its time, for clocks run at rates of their own.
    fn span(&self) -> Duration {
        self.ttl.saturating_sub(self.ttl / 8)
    }

    fn beat_every(&self) -> Duration {
        self.ttl / 8
    }

    /// What is to be done next; `None` when all is.
    pub fn poll(&mut self) -> Option<Said> {
        self.said.pop_front()
    }

    /// Whether this server is a member, other servers that are, and sessions of theirs.
    pub fn shown(&self) -> (bool, Vec<DomainName>, usize) {
        match &self.phase {
            Phase::Member(member) => {
                let names = member.others.keys().map(|(name, _)| name.clone());
                (true, names.filter(|name| *name != self.me).collect(), self.foreign.len())
            }
            _ => (false, Vec::new(), self.foreign.len()),
        }
    }

    /// When [`Federation::tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        match &self.phase {
            // Not before everything is cut, which is an event of its own.
            Phase::Away(at) => self.cutting.is_empty().then_some(*at),
            Phase::Joining(since, _) => Some(since.after(self.ttl)),
            Phase::Member(member) => Some(member.until.min(member.next)),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) {
        match &self.phase {
            Phase::Away(at) if *at <= now && self.cutting.is_empty() => {
                self.attempt += 1;
                self.phase = Phase::Joining(now, Vec::new());
                let ttl = self.ttl.as_secs();
                self.said.push_back(Said::Ask(Ask::Join { attempt: self.attempt, ttl }));
            }
            Phase::Joining(since, _) if since.after(self.ttl) <= now => self.phase = Phase::Away(now),
            Phase::Member(member) if member.until <= now => {
                self.fence(LATE, now);
            }
            Phase::Member(member) if member.next <= now => self.beat(now),
            _ => {}
        }
    }

    /// A session of this server is to be used: it may when [`Said::Published`] says so.
    pub fn publish(&mut self, record: Stored, now: Time) {
        let id = record.id;
        let Phase::Member(member) = &self.phase else {
            return self.said.push_back(Said::Published(id, Publication::Refused(CUT_OFF.to_owned())));
        };
        if member.until <= now {
            self.fence(LATE, now);
            return self.said.push_back(Said::Published(id, Publication::Refused(CUT_OFF.to_owned())));
        }
        let session = Shared { owner: self.me.clone(), record: record.clone() };
        self.own.insert(id, Own { record, step: OwnStep::Publishing });
        self.said.push_back(Said::Ask(Ask::Publish { attempt: self.attempt, session }));
    }

    /// A session of this server ends, whether it was published or not. [`Said::Withdrawn`] says when it is over everywhere else.
    pub fn withdraw(&mut self, record: &Stored) {
        // One that this run did not publish may be there from the run before.
        let own = self
            .own
            .entry(record.id)
            .or_insert_with(|| Own { record: record.clone(), step: OwnStep::Leaving });
        if matches!(own.step, OwnStep::Left(_)) {
            return;
        }
        own.step = OwnStep::Leaving;
        self.ask_withdrawal(record.id);
    }

    fn ask_withdrawal(&mut self, id: SessionId) {
        let (Phase::Member(_), Some(own)) = (&self.phase, self.own.get(&id)) else { return };
        let session = Shared { owner: self.me.clone(), record: own.record.clone() };
        self.said.push_back(Said::Ask(Ask::Withdraw { attempt: self.attempt, session }));
    }

    /// A session of another server is cut here: no packet of it passes any more.
    pub fn cut(&mut self, id: SessionId, now: Time) {
        self.cutting.remove(&id);
        // It may have ended here for a reason of our own.
        self.foreign.retain(|_, other| *other != id);
        // Somebody may wait for it.
        if let Phase::Member(member) = &self.phase
            && self.cut_level(member.seen) > member.told
        {
            self.beat(now);
        }
    }

    fn cut_level(&self, seen: u64) -> u64 {
        self.cutting.values().min().map_or(seen, |first| first.saturating_sub(1).min(seen))
    }

    fn beat(&mut self, now: Time) {
        let every = self.beat_every();
        let Phase::Member(member) = &self.phase else { return };
        let cut = self.cut_level(member.seen);
        let Phase::Member(member) = &mut self.phase else { return };
        member.beat += 1;
        member.next = now.after(every);
        member.told = cut;
        member.sent.push_back((member.beat, cut));
        if member.sent.len() > REMEMBERED {
            member.sent.pop_front();
        }
        if member.since.after(self.ttl) <= now {
            // A run of this server before this one has lost its lease by now, whatever the table says.
            member.others.retain(|(name, _), _| *name != self.me);
        }
        let ask = Ask::Beat { attempt: self.attempt, number: member.beat, cut };
        self.said.push_back(Said::Ask(ask));
        // What could not be said may have been lost.
        let leaving = self.own.iter().filter(|(_, own)| own.step == OwnStep::Leaving);
        for id in leaving.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.ask_withdrawal(id);
        }
    }

    /// Takes what the table's client says.
    pub fn hear(&mut self, heard: Heard, now: Time) {
        let of = match &heard {
            Heard::There { attempt, .. }
            | Heard::Joined { attempt, .. }
            | Heard::Changed { attempt, .. }
            | Heard::Renewed { attempt, .. }
            | Heard::Published { attempt, .. }
            | Heard::Withdrawn { attempt, .. }
            | Heard::Strange { attempt, .. }
            | Heard::Lost { attempt, .. } => *attempt,
        };
        if of != self.attempt {
            return;
        }
        // Nothing that comes after the lease's end counts.
        if matches!(&self.phase, Phase::Member(member) if member.until <= now) {
            return self.fence(LATE, now);
        }
        match heard {
            Heard::There { entries, .. } => {
                if let Phase::Joining(_, all) = &mut self.phase {
                    all.extend(entries);
                }
            }
            Heard::Joined { lease, revision, .. } => self.joined(lease, revision, now),
            Heard::Changed { revision, changes, .. } => self.changed(revision, changes, now),
            Heard::Renewed { number, .. } => {
                let span = self.span();
                if let Phase::Member(member) = &mut self.phase
                    && let Some((_, asked)) = member.renewing.take_if(|(of, _)| *of == number)
                {
                    member.until = member.until.max(asked.after(span));
                    self.said.push_back(Said::Until(member.until));
                }
            }
            Heard::Published { session, done, .. } => self.published(session, done),
            Heard::Withdrawn { session, revision, .. } => {
                // Without an answer it is asked for again at the next beat.
                if let (Some(own), Some(revision)) = (self.own.get_mut(&session), revision)
                    && own.step == OwnStep::Leaving
                {
                    own.step = OwnStep::Left(revision);
                    self.see_whether_over();
                }
            }
            Heard::Strange { count, .. } => self.strange = self.strange.saturating_add(count),
            Heard::Lost { reason, .. } => self.lost(&reason, now),
        }
    }

    /// The table's client is gone, or says that it has lost the table.
    pub fn lost(&mut self, reason: &str, now: Time) {
        match &self.phase {
            Phase::Member(_) => self.fence(reason, now),
            Phase::Joining(..) => self.phase = Phase::Away(now.after(AGAIN)),
            Phase::Away(_) => {}
        }
    }

    fn joined(&mut self, lease: u64, revision: u64, now: Time) {
        let Phase::Joining(since, entries) = &mut self.phase else { return };
        let (since, entries) = (*since, std::mem::take(entries));
        let until = since.after(self.span());
        if until <= now {
            self.phase = Phase::Away(now.after(AGAIN));
            return;
        }
        let is_own = |entry: &&Entry| matches!(entry, Entry::Server { name, lease: of, .. } if *name == self.me && *of == lease);
        let Some(Entry::Server { joined, .. }) = entries.iter().find(is_own) else {
            // Without its own key it was not all of the table.
            self.phase = Phase::Away(now.after(AGAIN));
            return;
        };
        self.phase = Phase::Member(Member {
            lease,
            since,
            joined: *joined,
            until,
            seen: revision,
            others: BTreeMap::new(),
            beat: 0,
            next: now,
            told: 0,
            // Written by who took the lease.
            sent: VecDeque::from([(0, 0)]),
            renewing: None,
            renewals: 0,
        });
        self.said.push_back(Said::Until(until));
        for entry in entries {
            self.put(entry, revision, now);
        }
        if !matches!(self.phase, Phase::Member(_)) {
            return;
        }
        // A session that was to end and is not there has been gone at the latest since.
        for own in self.own.values_mut() {
            own.step = OwnStep::Leaving;
        }
        self.beat(now);
    }

    fn changed(&mut self, revision: u64, changes: Vec<(u64, TableChange)>, now: Time) {
        for (at, change) in changes {
            match change {
                TableChange::Put(entry) => self.put(entry, at, now),
                TableChange::ServerGone(name, lease) => {
                    let Phase::Member(member) = &mut self.phase else { return };
                    if name == self.me && lease == member.lease {
                        return self.fence("its lease is gone", now);
                    }
                    member.others.remove(&(name, lease));
                }
                TableChange::SessionGone(device) => {
                    if self.is_published(&device) {
                        return self.fence(FOREIGN, now);
                    }
                    self.gone(&device, at);
                }
                TableChange::Spoilt(name, lease) => {
                    let Phase::Member(member) = &self.phase else { return };
                    self.strange = self.strange.saturating_add(1);
                    if name == self.me && lease == member.lease {
                        return self.fence(FOREIGN, now);
                    }
                    // What it said before stands: it is waited for, as long as it has a lease.
                }
            }
        }
        let Phase::Member(member) = &mut self.phase else { return };
        member.seen = member.seen.max(revision);
        self.see_whether_over();
    }

    /// The session of a TPE at another server is over.
    fn gone(&mut self, device: &HostName, at: u64) {
        if let Some(id) = self.foreign.remove(device) {
            self.cutting.insert(id, at);
            self.said.push_back(Said::Vanished(id));
        }
    }

    /// Whether this server has a session of that TPE in the table and has not asked for its end: nobody else may touch its key.
    fn is_published(&self, device: &HostName) -> bool {
        self.own.values().any(|own| own.step == OwnStep::Published && own.record.device == *device)
    }

    fn put(&mut self, entry: Entry, at: u64, now: Time) {
        match entry {
            Entry::Server { name, lease, joined, beat, cut } => {
                self.put_server(name, lease, joined, (beat, cut), now);
            }
            Entry::Session(shared) => self.put_session(shared, at, now),
        }
    }

    fn put_server(&mut self, name: DomainName, lease: u64, joined: u64, said: (u64, u64), now: Time) {
        let Phase::Member(member) = &mut self.phase else { return };
        if name == self.me && lease == member.lease {
            if !member.sent.contains(&said) {
                self.strange = self.strange.saturating_add(1);
                return self.fence(FOREIGN, now);
            }
            // Everything up to this beat has been seen: the lease may go on.
            if said.0 == member.beat && member.beat > 0 && member.renewing.is_none() {
                member.renewals += 1;
                member.renewing = Some((member.renewals, now));
                let ask = Ask::Renew { attempt: self.attempt, number: member.renewals };
                self.said.push_back(Said::Ask(ask));
            }
            return;
        }
        // One of this server's own runs before this one has a key that is older.
        let known = if name == self.me { joined < member.joined } else { self.peers.contains(&name) };
        if !known {
            self.strange = self.strange.saturating_add(1);
            return;
        }
        member.others.insert((name, lease), Other { joined, cut: said.1 });
    }

    fn put_session(&mut self, shared: Shared, at: u64, now: Time) {
        if !matches!(self.phase, Phase::Member(_)) {
            return;
        }
        let (id, device) = (shared.record.id, shared.record.device.clone());
        if shared.owner == self.me {
            match self.own.get(&id) {
                Some(own) if own.record == shared.record => {}
                Some(_) => {
                    self.strange = self.strange.saturating_add(1);
                    self.fence(FOREIGN, now);
                }
                // Of a run before this one, or of one whose publishing nobody knew the end of.
                None if self.own.len() < MOST => {
                    self.own.insert(id, Own { record: shared.record, step: OwnStep::Leaving });
                }
                None => self.strange = self.strange.saturating_add(1),
            }
            return;
        }
        if self.is_published(&device) {
            self.strange = self.strange.saturating_add(1);
            return self.fence(FOREIGN, now);
        }
        if self.foreign.get(&device).is_some_and(|before| *before != id) {
            self.gone(&device, at);
        }
        if !self.peers.contains(&shared.owner) || self.foreign.len() >= MOST {
            self.strange = self.strange.saturating_add(1);
            return;
        }
        self.foreign.insert(device, id);
        self.said.push_back(Said::Appeared(shared));
    }

    fn published(&mut self, session: SessionId, done: Option<bool>) {
        let Some(own) = self.own.get_mut(&session).filter(|own| own.step == OwnStep::Publishing) else {
            return;
        };
        let answer = match done {
            Some(true) => {
                own.step = OwnStep::Published;
                Publication::Done
            }
            Some(false) => {
                self.own.remove(&session);
                Publication::Refused("the workstation has a session at another server of the site".to_owned())
            }
            // Its end takes it out of the table, should it be there.
            None => {
                Publication::Unknown("the servers of the site could not be told of the session".to_owned())
            }
        };
        self.said.push_back(Said::Published(session, answer));
    }

    /// Ends that every server has carried out, or no longer can.
    fn see_whether_over(&mut self) {
        let Phase::Member(member) = &self.phase else { return };
        let over = |revision: u64| {
            let done = |other: &Other| other.cut >= revision || other.joined > revision;
            member.seen >= revision && member.others.values().all(done)
        };
        let left = self.own.iter().filter_map(|(id, own)| match own.step {
            OwnStep::Left(revision) if over(revision) => Some(*id),
            _ => None,
        });
        for id in left.collect::<Vec<_>>() {
            self.own.remove(&id);
            self.said.push_back(Said::Withdrawn(id));
        }
    }

    /// Nothing can be proved any more: everything ends, and what comes later begins anew.
    fn fence(&mut self, reason: &str, now: Time) {
        self.phase = Phase::Away(now.after(AGAIN));
        // What was asked before is no longer listened to.
        self.attempt += 1;
        for id in std::mem::take(&mut self.foreign).into_values() {
            self.cutting.insert(id, 0);
            self.said.push_back(Said::Vanished(id));
        }
        for (id, own) in &mut self.own {
            if own.step == OwnStep::Publishing {
                self.said.push_back(Said::Published(*id, Publication::Unknown(CUT_OFF.to_owned())));
            }
            own.step = OwnStep::Leaving;
        }
        self.said.push_back(Said::Fence(reason.to_owned()));
    }
}
