//! Another server, as this one knows it.

use super::setting::Setting;
use super::statement::{Digest, NONE, Signed, Statement, Word, read};
use crate::{Rate, SessionId, Stored, Time};
use levee_policy::HostName;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The last statement of a server whose signature was good.
#[derive(Debug)]
struct Seen {
    epoch: u64,
    number: u64,
    digest: Digest,
    /// All of its pages came, and it was taken.
    whole: bool,
}

/// How a statement stands to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// It is to be taken.
    Next,
    /// It is known.
    Known,
    /// It is older than one that is known.
    Back,
    /// It has the number of another one.
    Twice,
}

/// A statement that waits for its pages.
#[derive(Debug)]
struct Pending {
    statement: Statement,
    come: BTreeMap<u16, Vec<Stored>>,
}

/// What a statement changed in the list of a server's sessions.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub removed: Vec<SessionId>,
    pub added: Vec<SessionId>,
    /// Sessions that cannot be told from others of this server: not taken.
    pub strange: u64,
}

/// How long a session that could not go on here is left alone the first time; the time after twice as long, and so on.
const REST: Duration = Duration::from_secs(15);
/// So often is it twice as long, then no longer.
const LONGER: u32 = 8;

/// Of a server's share of sessions, so many times all may appear at once, and then all of them in so many minutes. Each leaves two records,
/// and whoever keeps the two servers from hearing each other for a lease, again and again, has all of them end and appear.
const AT_ONCE: usize = 2;
const MINUTES: usize = 4;

/// A session that could not go on here, so many times before this one.
#[derive(Debug, Default)]
pub(super) struct Resting {
    times: u32,
    /// Until then it does not appear again; `None` where it need not wait any more.
    until: Option<Time>,
}

/// Another server.
#[derive(Debug)]
pub(super) struct Peer {
    seen: Option<Seen>,
    pending: Option<Pending>,
    /// The pages that are held, with the sessions that each brought.
    pages: BTreeMap<u16, (Digest, Vec<SessionId>)>,
    /// Its sessions, as its last whole statement has them.
    pub sessions: BTreeMap<SessionId, Stored>,
    pub devices: BTreeMap<HostName, SessionId>,
    /// Those that this server has been told of, and not of their end.
    pub used: BTreeSet<SessionId>,
    /// There was no room for all of its sessions, or they appeared too often: some are not used that could be.
    pub is_full: bool,
    /// How often they appear; it outlives what is forgotten.
    pace: Option<Rate>,
    /// Those of its sessions that could not go on here.
    pub resting: BTreeMap<SessionId, Resting>,
    /// Until then its sessions may be used here.
    pub until: Time,
    /// Whether they are.
    pub live: bool,
    /// The run and number of its last whole statement.
    pub heard: (u64, u64),
    /// What it says of this run of this server.
    pub says: Option<Word>,
    /// Its run and number that this server has granted last.
    pub granted: (u64, u64),
    /// Until then at most it may use sessions of this server, whatever reaches whom.
    pub granted_until: Time,
    /// Sessions of this server whose workstation has one of its, too.
    pub clashes: BTreeSet<SessionId>,
    /// Which postures it has in force, whether nothing of before is left at it, and the digest of those of its site file; nothing is
    /// known of that where it is not believed.
    pub setting: Setting,
    pub is_kept: bool,
    pub postures: Option<Digest>,
    /// The last that was said not to be taken up, since its site file has other postures.
    pub unlike: Setting,
    /// What was kept last of its audit log, and when.
    pub witnessed: Option<(Signed, Time)>,
}

impl Peer {
    pub(super) fn new(granted_until: Time) -> Self {
        Self {
            seen: None,
            pending: None,
            pages: BTreeMap::new(),
            sessions: BTreeMap::new(),
            devices: BTreeMap::new(),
            used: BTreeSet::new(),
            is_full: false,
            pace: None,
            resting: BTreeMap::new(),
            until: Time::default(),
            live: false,
            heard: (0, 0),
            says: None,
            granted: (0, 0),
            granted_until,
            clashes: BTreeSet::new(),
            setting: Setting::default(),
            is_kept: false,
            postures: None,
            unlike: Setting::default(),
            witnessed: None,
        }
    }

    /// Takes what a statement says of postures.
    pub(super) fn stand(&mut self, statement: &Statement) {
        self.setting = statement.setting.clone();
        (self.is_kept, self.postures) = (statement.is_kept, Some(statement.postures));
    }

    /// Takes note of a statement whose signature is good.
    pub(super) fn see(&mut self, statement: Statement) -> Order {
        let (new, digest) = ((statement.epoch, statement.number), statement.digest());
        if let Some(seen) = &self.seen {
            let before = (seen.epoch, seen.number);
            if new < before {
                return Order::Back;
            }
            if new == before && digest != seen.digest {
                return Order::Twice;
            }
            if new == before && (seen.whole || self.pending.is_some()) {
                return Order::Known;
            }
        }
        let (epoch, number) = new;
        self.seen = Some(Seen { epoch, number, digest, whole: false });
        let mut come = BTreeMap::new();
        if let Some(before) = self.pending.take() {
            let digest = |of: &Statement, page: u16| of.pages.get(usize::from(page)).copied();
            come = before.come;
            come.retain(|page, _| digest(&before.statement, *page) == digest(&statement, *page));
        }
        self.pending = Some(Pending { statement, come });
        Order::Next
    }

    /// Takes a page that a statement waits for. False if none does.
    pub(super) fn page(&mut self, page: u16, bytes: &[u8]) -> bool {
        let wanted = self.is_wanted(page);
        let Some(Pending { statement, come }) = self.pending.as_mut().filter(|_| wanted) else {
            return false;
        };
        let Some(digest) = statement.pages.get(usize::from(page)) else { return false };
        let Some(sessions) = read(bytes, digest) else { return false };
        come.insert(page, sessions);
        true
    }

    /// Whether a statement waits for this page.
    pub(super) fn is_wanted(&self, page: u16) -> bool {
        let Some(Pending { statement, come }) = &self.pending else { return false };
        let Some(digest) = statement.pages.get(usize::from(page)) else { return false };
        let held = self.pages.get(&page).is_some_and(|(held, _)| held == digest);
        !held && *digest != NONE && !come.contains_key(&page)
    }

    /// The statement that is waited for, if all of its pages are there.
    pub(super) fn whole(&mut self) -> Option<(Statement, Changes)> {
        let Pending { statement, come } = self.pending.as_ref()?;
        let is_there = |(page, digest): (u16, &Digest)| {
            *digest == NONE
                || come.contains_key(&page)
                || self.pages.get(&page).is_some_and(|(held, _)| held == digest)
        };
        if !(0..).zip(&statement.pages).all(is_there) {
            return None;
        }
        let Pending { statement, come } = self.pending.take()?;
        if let Some(seen) = &mut self.seen {
            seen.whole = true;
        }
        let changes = self.turn(&statement.pages, come);
        Some((statement, changes))
    }

    /// Has these pages in the place of those before.
    fn turn(&mut self, digests: &[Digest], mut come: BTreeMap<u16, Vec<Stored>>) -> Changes {
        let mut changes = Changes::default();
        let stays = |page: u16, digest: &Digest| digests.get(usize::from(page)) == Some(digest);
        let gone: Vec<u16> = self
            .pages
            .iter()
            .filter(|(page, (digest, _))| !stays(**page, digest))
            .map(|(page, _)| *page)
            .collect();
        let mut before = BTreeMap::new();
        for id in gone.iter().filter_map(|page| self.pages.remove(page)).flat_map(|(_, ids)| ids) {
            before.extend(self.sessions.remove_entry(&id));
        }
        for record in before.values() {
            self.devices.remove(&record.device);
        }
        for (page, digest) in (0..).zip(digests).filter(|(_, digest)| **digest != NONE) {
            let Some(sessions) = come.remove(&page) else { continue };
            let mut ids = Vec::new();
            for record in sessions {
                let (id, device) = (record.id, record.device.clone());
                if self.sessions.contains_key(&id) || self.devices.contains_key(&device) {
                    changes.strange += 1;
                    continue;
                }
                // A session that is the same in another page's edition has not ended.
                if before.get(&id) == Some(&record) {
                    before.remove(&id);
                } else {
                    changes.added.push(id);
                }
                self.devices.insert(device, id);
                self.sessions.insert(id, record);
                ids.push(id);
            }
            self.pages.insert(page, (*digest, ids));
        }
        changes.removed = before.into_keys().collect();
        changes
    }

    /// A session that was used could not go on here.
    pub(super) fn rest(&mut self, id: SessionId, now: Time) {
        if self.used.remove(&id) {
            let resting = self.resting.entry(id).or_default();
            resting.until = Some(now.after(REST * (1 << resting.times)));
            resting.times = LONGER.min(resting.times + 1);
        }
    }

    /// When the next may appear again.
    pub(super) fn rested_at(&self) -> Option<Time> {
        self.resting.values().filter_map(|resting| resting.until).min()
    }

    /// Those that may.
    pub(super) fn rested(&mut self, now: Time) -> Vec<SessionId> {
        let due = |resting: &mut Resting| resting.until.take_if(|until| *until <= now).is_some();
        self.resting.iter_mut().filter_map(|(id, resting)| due(resting).then_some(*id)).collect()
    }

    /// Whether a session is there, is not used and does not rest.
    pub(super) fn is_unused(&self, id: &SessionId) -> bool {
        let rests = self.resting.get(id).is_some_and(|resting| resting.until.is_some());
        self.sessions.contains_key(id) && !self.used.contains(id) && !rests
    }

    /// So many of those that are unused.
    pub(super) fn unused(&self, most: usize) -> Vec<SessionId> {
        self.sessions.keys().filter(|id| self.is_unused(id)).copied().take(most).collect()
    }

    /// Whether one more may appear now, of a server that has this share; if so it has been counted.
    pub(super) fn keeps_pace(&mut self, share: usize, now: Time) -> bool {
        self.pace(share, now).take(Duration::from_millis(now.as_millis()))
    }

    /// The same, and nothing is counted.
    pub(super) fn has_pace(&mut self, share: usize, now: Time) -> bool {
        self.pace(share, now).has(Duration::from_millis(now.as_millis()))
    }

    fn pace(&mut self, share: usize, now: Time) -> &mut Rate {
        let many = |sessions| u32::try_from(sessions).unwrap_or(u32::MAX);
        let now = Duration::from_millis(now.as_millis());
        let fresh = || Rate::a_minute(many(share.saturating_mul(AT_ONCE)), many(share / MINUTES), now);
        self.pace.get_or_insert_with(fresh)
    }

    /// Nothing that it has signed counts any more: what comes may be of any run.
    pub(super) fn begin_anew(&mut self) {
        self.seen = None;
    }

    /// Takes note that a session is used; `None` where it is none that is unused.
    pub(super) fn uses(&mut self, id: SessionId) -> Option<&Stored> {
        if !self.is_unused(&id) {
            return None;
        }
        self.used.insert(id);
        self.sessions.get(&id)
    }

    /// Nothing of it is known any more but how far its statements were; those that were used.
    pub(super) fn forget(&mut self) -> BTreeSet<SessionId> {
        if let Some(seen) = &mut self.seen {
            seen.whole = false;
        }
        (self.pending, self.says, self.live, self.until) = (None, None, false, Time::default());
        (self.setting, self.is_kept, self.postures) = (Setting::default(), false, None);
        self.pages.clear();
        self.sessions.clear();
        self.devices.clear();
        self.clashes.clear();
        self.resting.clear();
        self.is_full = false;
        std::mem::take(&mut self.used)
    }
}
