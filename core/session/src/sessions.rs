//! The state machine: [`Sessions::handle`] what happened, [`Sessions::poll`] what to do, and
//! [`Sessions::deadline`] for when to come back.

use crate::access::Accesses;
use crate::address::Pools;
use crate::delay::Delays;
use crate::event::*;
use crate::firsts::First;
use crate::pace::Pace;
use crate::posture::Postures;
use crate::releasing::{Held, MayPass};
use crate::state::*;
use crate::stored::Stored;
use crate::{SessionId, Time, rules};
use levee_policy::audit::Event as Entry;
use levee_policy::{ChannelName, HostName, LabelName, Site, UserName};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A vault that has not ended a session within this is killed: nobody waits longer for an end.
pub const SILENCE: Duration = Duration::from_secs(1);
// A vault stands still outside its slots.
const _: () = assert!(levee_policy::site::STANDSTILL.as_millis() * 2 <= SILENCE.as_millis());
/// How often a vault is asked whether it lives. One that has not answered when it would be asked again is killed: a busy
/// host may keep it waiting, and nothing is at stake but its own label's traffic. Those that are due in one second are asked together, at its
/// beginning: so the first question comes up to a second sooner.
pub const PING: Duration = Duration::from_secs(5);
/// How long a vault may take to have a new session: nothing passes before. Longer than it takes to find that a vault
/// hangs, so that the next one gets the session.
pub const OPENING: Duration = Duration::from_secs(15);
/// How long a label's vault and compartment may take to start.
pub const START: Duration = Duration::from_secs(60);
/// How long a TPE that asks for a level may have to wait for the answer: the label's start, beside the session that it has and then without
/// it, that session's end, a vault that is slow to take the next one, and what it takes to write all that down. (A vault that dies meanwhile
/// begins anew.)
pub const LEVEL: Duration = SILENCE
    .saturating_add(RETRY.saturating_mul(CUT_TRIES))
    .saturating_add(START.saturating_mul(2))
    .saturating_add(OPENING)
    .saturating_add(Duration::from_secs(9));
/// A trusted path on which nothing has come for so long is lost, on either side: a silence that is shorter cannot be told from none.
pub const LOST: Duration = Duration::from_secs(7);
/// A TPE is answered so long before it ends its session, because it has not heard from this server for as long as that outlives its trusted
/// path. It counts from when it asked what was answered last, which may have been some seconds before what waits for an answer now.
const IN_TIME: Duration = Duration::from_secs(5);
/// So many refused negotiations in [`DENIALS_PERIOD`] are written one by one; the others are counted.
pub(crate) const DENIALS: u32 = 64;
/// See [`DENIALS`].
pub(crate) const DENIALS_PERIOD: Duration = Duration::from_secs(60);
/// How long to wait before what failed in ending a session is tried again.
pub const RETRY: Duration = Duration::from_secs(1);
/// After so many failures to destroy sockets, whoever waits for it is told.
pub const CUT_TRIES: u32 = 5;
pub(crate) const NO_SESSION: &str = "no session is open at this workstation";
/// The most trusted paths of one TPE at a time.
pub const CLIENTS_PER_DEVICE: usize = 8;

/// All sessions of a site on this server, all trusted paths, and all labels that have sessions.
///
/// Invariants, each held by construction and tried by the simulation in `tests/`: a TPE has at most one session
/// and one person; at one label an inner address belongs to at most one session, and while it rests to nobody but whose it was;
/// nothing that a
/// grant allows is put out before [`Event::Committed`] says that the grant is in the audit log; the end of a
/// session is acknowledged only when its vault has closed it or is dead, its sockets are cut, and the store has
/// forgotten it.
pub struct Sessions {
    pub(crate) site: Arc<Site>,
    pub(crate) grace: Duration,
    /// What is left of it for sessions that were taken up.
    pub(crate) left: Duration,
    pub(crate) pools: Pools,
    pub(crate) delays: Delays,
    pub(crate) clients: Clients,
    /// Who sits at each TPE: the client whose person is signed on or about to be.
    pub(crate) seats: BTreeMap<HostName, ClientId>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// The one session of each TPE.
    pub(crate) by_device: BTreeMap<HostName, SessionId>,
    pub(crate) used_labels: BTreeMap<LabelName, UsedLabel>,
    pub(crate) cuts: BTreeMap<CutId, SessionId>,
    /// Sessions of other servers whose grant is not in the audit log yet.
    pub(crate) coming: BTreeMap<SessionId, Coming>,
    /// Sessions of other servers that operators have ended here, and when.
    pub(crate) ended_here: BTreeMap<SessionId, Time>,
    /// People who may not sign on.
    pub(crate) disabled: BTreeSet<UserName>,
    /// Operators who wait for the ends of so many sessions.
    pub(crate) disabling: BTreeMap<OperatorId, usize>,
    /// Operators who wait for a label to start, and what they are to do there; nothing where they only try it.
    pub(crate) trials: BTreeMap<LabelName, Vec<(OperatorId, Option<Entering>)>>,
    /// Sessions that were locked when sessiond ran last.
    pub(crate) were_locked: BTreeSet<SessionId>,
    /// The last step of time of which a person's code was taken.
    pub(crate) codes: BTreeMap<UserName, u64>,
    pub(crate) pace: Pace,
    pub(crate) postures: Postures,
    pub(crate) accesses: Accesses,
    /// Who was the first at a label.
    pub(crate) firsts: BTreeMap<LabelName, First>,
    /// Messages of guards that wait for people.
    pub(crate) held: BTreeMap<ReleaseId, Held>,
    /// What they have released, and waits at its guard until so much may pass.
    pub(crate) may_pass: BTreeMap<ReleaseId, MayPass>,
    /// The last number that each guard's had.
    pub(crate) numbered: BTreeMap<ChannelName, u64>,
    /// Refused negotiations since then.
    pub(crate) denials: Option<(Time, u32)>,
    pub(crate) commits: BTreeMap<CommitId, Purpose>,
    pub(crate) timers: BTreeSet<(Time, Timer)>,
    pub(crate) outputs: VecDeque<Output>,
    counter: u64,
}

impl Sessions {
    /// As [`Sessions::resumed`], where no time has passed.
    pub fn new(
        site: Arc<Site>,
        stored: Vec<Stored>,
        resting: impl IntoIterator<Item = (LabelName, IpAddr, Time)>,
        disabled: impl IntoIterator<Item = UserName>,
        secret: [u8; 16],
        now: Time,
    ) -> Self {
        Self::resumed(site, stored, resting, disabled, secret, Duration::ZERO, now)
    }

    /// Takes up the sessions that the store has, as far as the policy still grants them; the others are ended.
    ///
    /// All of them are detached, and have been for as long as nobody watched over them (`away`): each has what is left of the site's
    /// grace time to be resumed by its TPE. Where nothing is left, it has ended. `secret` is random, and known to nobody else.
    pub fn resumed(
        site: Arc<Site>,
        stored: Vec<Stored>,
        resting: impl IntoIterator<Item = (LabelName, IpAddr, Time)>,
        disabled: impl IntoIterator<Item = UserName>,
        secret: [u8; 16],
        away: Duration,
        now: Time,
    ) -> Self {
        let mut pools = rules::pools(&site);
        for (label, address, until) in resting {
            pools.still_resting(label, address, until, now);
        }
        let mut machine = Self {
            grace: rules::grace(&site),
            left: rules::grace(&site).saturating_sub(away),
            site,
            pools,
            delays: Delays::new(secret),
            clients: BTreeMap::new(),
            seats: BTreeMap::new(),
            sessions: BTreeMap::new(),
            by_device: BTreeMap::new(),
            used_labels: BTreeMap::new(),
            cuts: BTreeMap::new(),
            coming: BTreeMap::new(),
            ended_here: BTreeMap::new(),
            disabled: disabled.into_iter().collect(),
            disabling: BTreeMap::new(),
            trials: BTreeMap::new(),
            were_locked: BTreeSet::new(),
            codes: BTreeMap::new(),
            pace: Pace::default(),
            postures: Postures::default(),
            accesses: Accesses::default(),
            firsts: BTreeMap::new(),
            held: BTreeMap::new(),
            may_pass: BTreeMap::new(),
            numbered: BTreeMap::new(),
            denials: None,
            commits: BTreeMap::new(),
            timers: BTreeSet::new(),
            outputs: VecDeque::new(),
            counter: 0,
        };
        for record in stored {
            machine.restore(record, now);
        }
        machine
    }

    /// The last step of time of which each person's code was taken, as the store has it.
    pub fn remember_codes(&mut self, taken: impl IntoIterator<Item = (UserName, u64)>) {
        self.codes.extend(taken);
    }

    /// These sessions of other servers have operators ended here, as the store has it.
    pub fn remember_ended_here(&mut self, ended: impl IntoIterator<Item = (SessionId, Time)>) {
        self.ended_here.extend(ended);
    }

    /// These sessions, of those that the store has, are locked: they come back so.
    pub fn remember_locked(&mut self, locked: impl IntoIterator<Item = SessionId>) {
        self.were_locked.extend(locked);
    }

    /// Takes in what happened at this time. What is due by then happens with [`Event::Tick`] alone: who calls this has heard before what others
    /// had said until then.
    pub fn handle(&mut self, event: Event, now: Time) {
        match event {
            Event::Hello { client, device, fingerprint } => self.hello(client, device, fingerprint),
            Event::Request(client, request) => self.request(client, request, now),
            Event::Gone(client) => self.gone(client, now),
            Event::Verified(client, verified) => self.verified(client, verified, now),
            Event::PasswordStored(client, stored) => self.password_stored(client, stored),
            Event::Committed(commit, durable) => self.committed(commit, durable, now),
            Event::LabelUp(label) => self.label_up(&label, now),
            Event::LabelFailed(label, reason) => self.label_failed(&label, &reason, now),
            Event::LabelDied(label) => self.label_died(&label, now),
            Event::Cut(cut, sockets) => self.cut_done(cut, sockets, now),
            Event::VaultOpened(label, session) => self.vault_opened(&label, session, now),
            Event::VaultClosed(label, session) => self.vault_closed(&label, session, now),
            Event::VaultPong(label, number) => self.vault_pong(&label, number, now),
            Event::VaultLost(label) => self.vault_lost(&label, now),
            Event::Wanted { ticket, device, label, accreditation } => {
                self.wanted(ticket, &device, &label, accreditation.as_deref(), now);
            }
            Event::Refused(device, label, reason) => {
                let denied = self.refusal(device.as_ref(), label.as_ref(), &reason);
                self.keys_denied(denied, now);
            }
            Event::Revoked(device) => {
                self.device_out(&device, "the certificate of its workstation is revoked", now);
            }
            Event::RanOut(device) => {
                self.device_out(&device, "the certificate of its workstation has run out", now);
            }
            Event::Unproved(device) => {
                const WHY: &str =
                    "certificates were revoked, and its workstation has shown none since the server's start";
                self.device_out(&device, WHY, now);
            }
            Event::Renew(session) => self.renew(session),
            Event::KeyerCame => self.keyer_came(),
            Event::Disable(operator, user, disable) => self.disable(operator, user, disable),
            Event::Posture(operator, wish) => self.posture_wished(operator, wish, now),
            Event::Moved(label, number, severed) => self.moved(&label, number, severed, now),
            Event::PosturesKept(number) => self.postures_kept(number, now),
            Event::Set(from, setting) => self.posture_set_elsewhere(from, setting, now),
            Event::Disowned(server) => self.posture_disowned(&server),
            Event::Kept(late) => self.posture_kept_elsewhere(&late),
            Event::Try(operator, label) => self.try_label(operator, label),
            Event::Enter(operator, label, what) => self.enter(operator, label, what),
            Event::Access(operator, wish) => self.access_by_operator(operator, wish),
            Event::End(operator, shown) => self.end_shown(operator, &shown, now),
            Event::Published(session, what) => self.published(session, what, now),
            Event::Withdrawn(session) => self.withdrawn(session, now),
            Event::Appeared(shared) => self.appeared(*shared),
            Event::Vanished(owner, session) => self.vanished(owner, session, now),
            Event::Clash(session) => {
                self.close(
                    session,
                    "its workstation has a session at another server of the site, too",
                    None,
                    now,
                );
            }
            Event::Fence(reason) => self.fence(&reason, now),
            Event::Offered { channel, ticket, digest, content } => {
                self.offered(channel, ticket, digest, content, now);
            }
            Event::Settled { channel, ticket } => self.settled(&channel, ticket),
            Event::GuardLost(channel) => self.guard_lost(&channel),
            Event::Tick => self.tick(now),
        }
    }

    /// The next thing to do; `None` when all is done.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Event::Tick`] is due, unless something else happens before.
    pub fn deadline(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// Whether the client's next request may be handed in: it is known, and waits for no answer.
    pub fn is_ready(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.busy.is_none())
    }

    /// All sessions, in the order of their names.
    pub fn shown(&self) -> impl ExactSizeIterator<Item = Shown> {
        self.sessions.values().map(show)
    }

    /// A session that lives: one that is on its way out has no permission left.
    pub fn live(&self, id: SessionId) -> Option<Shown> {
        let session = self.sessions.get(&id)?;
        matches!(session.phase, Phase::Making { .. } | Phase::Open(_)).then(|| show(session))
    }

    /// Whom an operator has disabled.
    pub fn disabled(&self) -> impl Iterator<Item = &UserName> {
        self.disabled.iter()
    }

    /// Labels that have sessions.
    pub fn labels(&self) -> impl Iterator<Item = &LabelName> {
        self.used_labels.keys()
    }

    /// How long a TPE that has a session may be kept waiting for an answer.
    pub(crate) fn longest_answer(&self) -> Duration {
        self.grace.max(LOST).saturating_sub(IN_TIME)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    pub(crate) fn say(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(crate) fn set_timer(&mut self, at: Time, timer: Timer) {
        self.timers.insert((at, timer));
    }

    pub(crate) fn commit(&mut self, purpose: Purpose, entries: Vec<Entry>, changes: Vec<Change>) -> CommitId {
        let commit = CommitId(self.number());
        self.commits.insert(commit, purpose);
        self.say(Output::Commit(commit, entries, changes));
        commit
    }

    pub(crate) fn reply(&mut self, client: ClientId, reply: Reply) {
        if self.clients.contains_key(&client) {
            self.say(Output::Reply(client, reply));
        }
    }

    /// Answers the request that the client waits for with a refusal.
    pub(crate) fn refuse(&mut self, client: ClientId, kind: RefusalKind, reason: impl Into<String>) {
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.busy = None;
            self.say(Output::Reply(client, Reply::Refused(kind, reason.into())));
        }
    }

    /// Answers the request that the client waits for.
    pub(crate) fn answer(&mut self, client: ClientId, reply: Reply) {
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.busy = None;
            self.say(Output::Reply(client, reply));
        }
    }

    fn committed(&mut self, commit: CommitId, durable: bool, now: Time) {
        match self.commits.remove(&commit) {
            Some(Purpose::SignOn(client)) => self.sign_on_recorded(client, commit, durable, now),
            Some(Purpose::Resume(client)) => self.resume_recorded(client, commit, durable, now),
            Some(Purpose::Open(client)) => self.open_recorded(client, commit, durable, now),
            Some(Purpose::Password(client)) => self.password_recorded(client, commit, durable),
            Some(Purpose::Carry(client)) => self.carry_recorded(client, commit, durable),
            Some(Purpose::Release(client)) => self.release_recorded(client, commit, durable),
            Some(Purpose::Unlock(client)) => self.unlock_recorded(client, commit, durable, now),
            Some(Purpose::End(session)) => self.end_recorded(session, commit, durable, now),
            Some(Purpose::Restore(session)) => self.restore_recorded(session, commit, durable, now),
            Some(Purpose::Disable(operator, user, disable)) => {
                self.disable_recorded(operator, &user, disable, durable, now);
            }
            Some(Purpose::Enter(operator, label, what)) => {
                self.enter_recorded(operator, label, what, durable);
            }
            Some(Purpose::Posture(change)) => self.posture_recorded(change, durable, now),
            Some(Purpose::Access(asker, grant)) => self.access_recorded(asker, grant, durable, now),
            Some(Purpose::Appear(session)) => self.appear_recorded(session, durable),
            Some(Purpose::Nothing) | None => {}
        }
    }

    fn tick(&mut self, now: Time) {
        while let Some((at, _)) = self.timers.first() {
            if *at > now {
                return;
            }
            match self.timers.pop_first() {
                Some((_, Timer::Client(client))) => self.client_due(client, now),
                Some((_, Timer::Session(session))) => self.session_due(session, now),
                Some((_, Timer::Label(label))) => self.label_due(&label, now),
                Some((_, Timer::Release(id))) => self.release_due(id, now),
                Some((_, Timer::Posture)) => self.posture_due(now),
                None => return,
            }
        }
    }
}

fn show(session: &Session) -> Shown {
    Shown {
        id: session.record.id,
        user: session.record.user.clone(),
        device: session.record.device.clone(),
        fingerprint: session.record.fingerprint,
        label: session.record.label.clone(),
        inner: session.record.inner.clone(),
        opened: session.record.opened,
        attached: match &session.phase {
            Phase::Open(open) => matches!(open.link, Link::Attached(_) | Link::Elsewhere),
            Phase::Making { .. } => true,
            Phase::Returning { .. } | Phase::Closing(_) => false,
        },
        locked: matches!(&session.phase, Phase::Open(open) if open.lock.bars()),
        protections: match &session.phase {
            Phase::Making { grant, .. }
            | Phase::Returning { grant, .. }
            | Phase::Open(Open { grant, .. }) => grant.action().protected().names.clone(),
            Phase::Closing(_) => Vec::new(),
        },
    }
}

/// Said to a person when the log or the store cannot be written.
pub(crate) const NOT_RECORDED: &str =
    "the server cannot record the decision (its audit log or store cannot be written), so nothing is granted";
