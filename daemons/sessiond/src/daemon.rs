//! The loop: hears every channel, hands what it hears to the state machine, and carries out what that says.

mod changes;
mod clients;
mod peers;

use self::clients::Client;
use crate::audit::{AuditLog, Weight};
use crate::away::Away;
use crate::clock::Clock;
use crate::convert;
use crate::counts::Counts;
use crate::devices::Devices;
use crate::federation::Federated;
use crate::guards::{Guards, Passing};
use crate::heard::Heard;
use crate::known::{Digest, Known};
use crate::mediation::Connection;
use crate::notes::Notes;
use crate::operators::Operators;
use crate::passes::Passes;
use crate::passwords::{self, Passwords};
use crate::prices::Prices;
use crate::rates::Rates;
use crate::store::Store;
use crate::vaults::Vaults;
use levee_daemon::{Descriptors, Events, Fatal, Order, Outbox, TURN, Warden, Watched};
use levee_ipc::keyer::ToKeyer;
use levee_ipc::signer::ToSigner;
use levee_ipc::warden::SessiondRequest;
use levee_ipc::warden::sessiond::SessiondPart;
use levee_policy::audit::{Action, Event as Entry, Verdict};
use levee_policy::{HostName, LabelName, Site};
use levee_session::federation::{Federation, Publication};
use levee_session::{Change, ClientId, CommitId, CutId, Event, Output, Sessions, Stored, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a start says where the host went down under the run before.
const UNSURE: &str = "the host has been started anew since the last run, which did not end in good order; grants of connections to services \
                      whose audit is \"written\" may be missing from its last 10 ms";
/// How long the signer may take for the last checkpoint.
const LAST_WORD: Duration = Duration::from_secs(1);

/// What a record is for: a decision; or nobody's alone, and then all that is decided with it waits for it.
type Of = Option<CommitId>;

/// What waits to be made durable.
#[derive(Default)]
pub(crate) struct Pending {
    entries: Vec<(Of, Weight, Entry)>,
    /// Of these some record did not come into the log, and what it permits may not happen.
    missing: BTreeSet<Of>,
    commits: Vec<(CommitId, Vec<Change>)>,
    changes: Vec<Change>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) passing: Vec<Passing>,
}

impl Pending {
    /// A record that is no decision's.
    fn say(&mut self, weight: Weight, entry: Entry) {
        self.entries.push((None, weight, entry));
    }

    /// Records for which nobody waits.
    fn note(&mut self, entries: impl IntoIterator<Item = Entry>) {
        entries.into_iter().for_each(|entry| self.say(Weight::Note, entry));
    }

    /// Whether it must be written before anything else happens.
    fn is_waited_for(&self) -> bool {
        self.waits_for_disk() || !self.connections.is_empty()
    }

    /// Whether it must be on the disk before anything else happens.
    fn waits_for_disk(&self) -> bool {
        !self.commits.is_empty()
            || !self.changes.is_empty()
            || !self.passing.is_empty()
            || self.connections.iter().any(Connection::waits_for_disk)
    }
}

/// Everything that sessiond holds.
pub struct Daemon {
    pub(crate) events: Events<Source>,
    pub(crate) site: Arc<Site>,
    pub(crate) clock: Clock,
    pub(crate) machine: Sessions,
    pub(crate) heard: Heard,
    pub(crate) audit: AuditLog,
    /// Waits for what syncs the log, for as long as it is here.
    _synced: Option<Watched<Arc<OwnedFd>>>,
    pub(crate) counts: Counts,
    notes: Notes,
    pub(crate) vaults: Vaults,
    pub(crate) guards: Guards,
    pub(crate) warden: Warden<SessiondPart>,
    pub(crate) operators: Operators,
    pub(crate) federated: Federated,
    /// Sessions to be withdrawn once it is known what ran before.
    pub(crate) withdrawals: Vec<Stored>,
    pub(crate) store: Store,
    passwords: Watched<Passwords>,
    tps: Outbox<()>,
    keyer: Outbox<ToKeyer>,
    /// By when another keyer is here, or the one that has closed its channel lives still.
    keyer_due: Option<Time>,
    passes: Passes,
    pub(crate) prices: Prices,
    signer: Outbox<ToSigner>,
    clients: BTreeMap<ClientId, Client>,
    /// Those that have not shown whose they are; the oldest has the lowest number.
    unshown: BTreeSet<ClientId>,
    /// How many have shown it in this turn.
    proofs: usize,
    /// Clients that are not heard until they have been answered, and have taken the answer.
    held: BTreeSet<ClientId>,
    /// Where redundant stacks disagree: when the next record may be written, and about how many packets it will be.
    alarms: BTreeMap<LabelName, (Time, u64)>,
    /// By its fingerprint each certificate that one of the site's hosts has shown on the trusted path.
    certificates: BTreeMap<[u8; 32], Certificate>,
    /// The last moment of the first of them that ends.
    certificate_ends: Option<Time>,
    pub(crate) devices: Devices,
    pub(crate) rates: Rates,
    next_client: u64,
    pub(crate) pending: Pending,
    /// Whether the warden still has to say what ran before sessiond started.
    unswept: bool,
    away: Away,
    /// What the log knows of what others write.
    known: Known,
    site_digest: Digest,
}

/// A certificate that a host has shown.
struct Certificate {
    device: HostName,
    serial: Vec<u8>,
    /// The last moment at which it is good.
    end: Time,
}

/// Who can be heard.
#[derive(Clone, Debug)]
pub enum Source {
    Warden,
    Tps,
    Keyer,
    Signer,
    Fsd,
    Vault(LabelName, u16),
    Mediator(LabelName),
    Guard(LabelName),
    Client(ClientId),
    Passwords,
    /// What syncs the audit log.
    Synced,
    Listener,
    Operator(levee_session::OperatorId),
}

impl Daemon {
    /// Takes up what the store has.
    #[expect(clippy::too_many_arguments, reason = "what start-up has made, each of it once")]
    pub fn new(
        mut events: Events<Source>,
        warden: Warden<SessiondPart>,
        site: Site,
        clock: Clock,
        (mut store, (away, was_away), site_digest): (Store, (Away, Option<Duration>), Digest),
        federated: Federated,
        audit: AuditLog,
        passwords: Passwords,
        (devices, prices): (Devices, Prices),
    ) -> Result<Self, Fatal> {
        let site = Arc::new(site);
        let now = clock.now();
        let (sessions, resting) = store.read(now).map_err(|e| Fatal::new("read the store", e))?;
        let passwords = events.watch(passwords, Source::Passwords).map_err(|e| Fatal::new("wait", e))?;
        let synced = audit.bell().map(|bell| events.watch(bell, Source::Synced)).transpose();
        let synced = synced.map_err(|e| Fatal::new("wait", e))?;
        // Where nobody knows, it has been too long.
        let was_away = was_away.unwrap_or(Duration::MAX);
        let mut secret = [0; 16];
        passwords::fill_random(&mut secret).map_err(|e| Fatal::new("draw a number", e))?;
        let disabled = store.disabled().map_err(|e| Fatal::new("read the store", e))?;
        let known = Known::new(store.known().map_err(|e| Fatal::new("read the store", e))?);
        let postures = store.postures().map_err(|e| Fatal::new("read the store", e))?;
        let mut machine =
            Sessions::resumed(Arc::clone(&site), sessions, resting, disabled, secret, was_away, now);
        machine.remember_codes(store.codes().map_err(|e| Fatal::new("read the store", e))?);
        machine.remember_locked(store.locked().map_err(|e| Fatal::new("read the store", e))?);
        machine.remember_ended_here(store.ended_here().map_err(|e| Fatal::new("read the store", e))?);
        machine.take_postures(postures, now);
        machine.remember_firsts(store.firsts().map_err(|e| Fatal::new("read the store", e))?);
        machine.take_accesses(store.accesses().map_err(|e| Fatal::new("read the store", e))?);
        Ok(Self {
            events,
            site,
            clock,
            machine,
            heard: Heard::default(),
            audit,
            _synced: synced,
            counts: Counts::new(),
            notes: Notes::default(),
            vaults: Vaults::default(),
            guards: Guards::default(),
            warden,
            operators: Operators::new(),
            federated,
            withdrawals: Vec::new(),
            store,
            passwords,
            tps: Outbox::of_one(),
            keyer: Outbox::new(),
            keyer_due: None,
            passes: Passes::default(),
            prices,
            signer: Outbox::new(),
            clients: BTreeMap::new(),
            unshown: BTreeSet::new(),
            proofs: 0,
            held: BTreeSet::new(),
            alarms: BTreeMap::new(),
            certificates: BTreeMap::new(),
            certificate_ends: None,
            devices,
            rates: Rates::default(),
            next_client: 0,
            pending: Pending::default(),
            unswept: true,
            away,
            known,
            site_digest,
        })
    }

    /// Serves until the warden says stop or is gone.
    pub fn run(mut self) -> Result<(), Fatal> {
        self.warden.say(SessiondRequest::Compartments);
        self.began();
        self.look_at_all().map_err(|e| Fatal::new("read the credentials", e))?;
        self.carry_out();
        while self.turn()? {}
        self.finish();
        Ok(())
    }

    /// Says that the log goes on; and that something may be missing, until a record of that is on the disk.
    fn began(&mut self) {
        let torn = self.audit.torn().map(|torn| (Weight::End, torn));
        if !self.away.host_failed() {
            self.pending.note([server(Action::Start, "the log goes on")]);
            return;
        }
        let start = (Weight::End, server(Action::Start, UNSURE));
        let entries: Vec<(Weight, Entry)> = std::iter::once(start).chain(torn).collect();
        if self.audit.write(&entries, self.clock.now(), true) {
            self.away.said();
            self.still_here();
        }
    }

    /// In good order: what was counted is written and the log's end is signed. Sessions stay in the store.
    fn finish(&mut self) {
        self.still_here();
        self.pending.note(self.counts.summary());
        self.pending.note(self.notes.take(true, self.clock.now()));
        self.pending.note([server(Action::Stop, "in good order; sessions stay in the store")]);
        self.flush();
        self.audit.sync();
        let end = Instant::now() + LAST_WORD;
        while self.ask_signer(true) {
            if !self.signer.wait(end.saturating_duration_since(Instant::now())) {
                break;
            }
            self.hear_signer();
            self.audit.sync();
        }
        if self.audit.sync()
            && let Err(error) = self.away.end()
        {
            // Then the next start says that something may be missing.
            levee_ipc::say!("levee-sessiond: that it ends: {error}");
        }
    }

    fn turn(&mut self) -> Result<bool, Fatal> {
        let deadlines = [
            self.machine.deadline(),
            self.counts.due(),
            self.notes.due(),
            self.operators.deadline(),
            self.audit.deadline(),
            self.federated.deadline(),
            Some(self.clock.now().after(self.away.due())),
            self.alarms.values().filter(|(_, untold)| *untold > 0).map(|(due, _)| *due).min(),
            self.keyer_due,
            self.certificate_ends,
        ];
        let limit = self.clock.until(deadlines);
        self.proofs = 0;
        let began = self.clock.now();
        let ready = self.events.wait(limit)?;
        let seen = ready.len();
        for (source, can) in ready {
            match source {
                Source::Warden => {
                    if !self.hear_warden()? {
                        return Ok(false);
                    }
                }
                Source::Tps => self.hear_tps(),
                Source::Keyer => self.hear_keyer(),
                Source::Signer => self.hear_signer(),
                Source::Fsd => self.hear_fsd(),
                Source::Vault(label, slot) => self.hear_vault(&label, slot),
                Source::Mediator(label) => self.hear_mediator(&label),
                Source::Guard(name) => self.hear_guard(&name),
                Source::Client(client) => self.hear_client(client, can),
                Source::Passwords => self.hear_passwords(),
                Source::Synced => self.audit.heard_syncer(),
                Source::Listener => {
                    let now = self.clock.now();
                    self.operators.accept(&mut self.events, &mut self.counts, now);
                }
                Source::Operator(operator) => self.hear_operator(operator),
            }
        }
        if self.away.due().is_zero() {
            self.still_here();
        }
        if let Some(heard) = self.heard.turn(began, seen, self.events.count()) {
            self.machine.handle(Event::Tick, heard);
        }
        self.federation(|machine, now| machine.tick(now));
        let now = self.clock.now();
        if self.counts.due().is_some_and(|due| due <= now) {
            self.pending.note(self.counts.summary());
        }
        self.raise_alarms();
        self.see_to_keyer();
        self.see_to_certificates();
        if self.notes.due().is_some_and(|due| due <= now) {
            self.pending.note(self.notes.take(false, now));
        }
        self.carry_out();
        self.audit.sync_due(now);
        self.ask_signer(false);
        self.answer_operators();
        self.operators.make_room()?;
        self.release();
        Ok(true)
    }

    /// Until when sessions are watched over.
    fn still_here(&mut self) {
        if let Err(error) = self.away.write() {
            // Then more time counts than was.
            levee_ipc::say!("levee-sessiond: when it ran last: {error}");
        }
    }

    /// Writes a record for which nobody waits, or counts it.
    pub(crate) fn note(&mut self, entry: Entry) {
        let entry = self.notes.add(entry, self.clock.now());
        self.pending.note(entry);
    }

    pub(crate) fn handle(&mut self, event: Event) {
        self.machine.handle(event, self.clock.now());
    }

    /// False when it is time to end.
    fn hear_warden(&mut self) -> Result<bool, Fatal> {
        for _ in 0..TURN {
            match self.warden.hear()? {
                None => return Ok(true),
                Some(Order::Stop) => return Ok(false),
                Some(Order::Take(part, with)) => self.take(part, with)?,
            }
        }
        self.heard.may_have_more();
        Ok(true)
    }

    /// Takes what the warden gives; a second channel to the same process replaces the first.
    ///
    /// # Errors
    /// It is not for a process at work, or cannot be used.
    pub fn take(&mut self, part: SessiondPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            SessiondPart::Tps => self.tps.replace(with.channel()?, &mut self.events, Source::Tps)?,
            SessiondPart::Keyer => {
                self.keyer.replace(with.channel()?, &mut self.events, Source::Keyer)?;
                self.keyer_due = None;
                self.passes.renewed();
                self.handle(Event::KeyerCame);
            }
            SessiondPart::Vault { label, slot } => {
                self.vaults.attach(label.clone(), slot, with.channel()?, &mut self.events)?;
                self.lease_for_new_vault(&label, slot);
            }
            SessiondPart::Mediator(label) => self.mediator_came(label, with.channel()?)?,
            SessiondPart::Guard(name) => self.guard_came(name, with.channel()?)?,
            SessiondPart::Fsd => self.fsd_came(with.channel()?)?,
            SessiondPart::Signer => self.signer_came(with.channel()?)?,
            SessiondPart::Operators => self.operators.listen(with.one()?, &mut self.events)?,
            SessiondPart::Revocations => self.revocations(&with.one()?),
            SessiondPart::FederationRevocations => self.revoked_servers(&with.one()?),
            SessiondPart::Running => self.hear_running(with.one()?),
            SessiondPart::Label(event) => self.hear_label(event),
            SessiondPart::Authority => self.renewed("the authority", with.one()?, Self::authority_renewed),
            SessiondPart::Federation => {
                self.renewed("the server's passport", with.one()?, Self::passport_renewed)
            }
            SessiondPart::FederationAuthority => {
                self.renewed("the servers' authority", with.one()?, Self::servers_authority_renewed);
            }
            part @ (SessiondPart::Site | SessiondPart::Directory | SessiondPart::Auditor) => {
                return Err(Warden::unwanted(&part));
            }
        }
        Ok(())
    }

    /// Carries out what the state machine says, makes what waits for that durable, and goes on until it says
    /// nothing more: all decisions of one turn share one sync.
    pub(crate) fn carry_out(&mut self) {
        loop {
            while let Some(output) = self.machine.poll() {
                // Who is refused, and looks, finds the record of it.
                if !matches!(output, Output::Commit(..) | Output::Audit(_) | Output::Count(_)) {
                    self.write_entries();
                }
                self.carry_out_one(output);
            }
            if !self.pending.is_waited_for() {
                return self.write_entries();
            }
            self.flush();
        }
    }

    /// Writes the records that wait, and has none of them synced. Where one of a decision has no room, others have theirs all the same.
    fn write_entries(&mut self) {
        let mut entries = std::mem::take(&mut self.pending.entries).into_iter().peekable();
        if entries.peek().is_some() {
            self.audit.expect_ends(self.machine.shown().len() as u64);
        }
        while let Some((of, weight, entry)) = entries.next() {
            let mut said = vec![(weight, entry)];
            while let Some((_, weight, entry)) = entries.next_if(|(next, ..)| *next == of) {
                said.push((weight, entry));
            }
            if !self.audit.write(&said, self.clock.now(), false) {
                self.pending.missing.insert(of);
            }
        }
    }

    fn flush(&mut self) {
        self.write_entries();
        let pending = std::mem::take(&mut self.pending);
        let now = self.clock.now();
        self.audit.expect_ends(self.machine.shown().len() as u64);
        // A log that has no room for connections may have some for the rest.
        let connections: Vec<(Weight, Entry)> = pending.connections.iter().map(Connection::entry).collect();
        let recorded = self.audit.write(&connections, now, false);
        let passing: Vec<(Weight, Entry)> = pending.passing.iter().map(Passing::entry).collect();
        let passes = self.audit.write(&passing, now, false);
        // One sync for all of them.
        let synced = !pending.waits_for_disk() || self.audit.sync();
        if !pending.waits_for_disk() && !connections.is_empty() {
            self.audit.sync_soon(now);
        }
        self.decided(&pending, synced, now);
        for connection in pending.connections {
            self.pass_on(connection, recorded && synced);
        }
        for passing in pending.passing {
            self.let_through(passing, passes && synced);
        }
    }

    /// Stores what the decisions change whose records are in the log, and says which of them hold.
    fn decided(&mut self, pending: &Pending, synced: bool, now: Time) {
        let Pending { missing, commits, changes, .. } = pending;
        // What is everybody's is in the log before anybody's.
        let common = synced && !missing.contains(&None);
        let logged = |commit: &CommitId| common && !missing.contains(&Some(*commit));
        let of_commits = commits.iter().filter(|(commit, _)| logged(commit)).flat_map(|(_, changes)| changes);
        let all: Vec<Change> = changes.iter().filter(|_| common).chain(of_commits).cloned().collect();
        let mut stored = true;
        if !all.is_empty()
            && let Err(error) = self.store.apply(&all, now)
        {
            levee_ipc::say!("levee-sessiond: {error}");
            stored = false;
        }
        let known = common && (stored || changes.is_empty());
        self.keep_known(changes, known);
        for (commit, changes) in commits {
            let durable = known && logged(commit) && (stored || changes.is_empty());
            self.handle(Event::Committed(*commit, durable));
        }
    }

    fn carry_out_one(&mut self, output: Output) {
        match output {
            Output::Commit(commit, entries, changes) => {
                // What ends a session needs no permission: it may use all the space there is.
                let weight = |entry: &Entry| match entry.verdict {
                    Verdict::Noted => Weight::End,
                    _ => Weight::Grant,
                };
                let entries = entries.into_iter().map(|entry| (Some(commit), weight(&entry), entry));
                self.pending.entries.extend(entries);
                self.pending.commits.push((commit, changes));
            }
            Output::Audit(entry) => self.note(entry),
            Output::Count(counted) => self.counts.add(&counted, self.clock.now()),
            Output::Reply(client, reply) => self.reply(client, reply),
            // Already out of the state machine.
            Output::Disconnect(client) => {
                self.clients.remove(&client);
                self.handle(Event::Gone(client));
            }
            Output::Verify(id, user) => self.verify(id, user),
            Output::StorePassword(id, user) => self.store_password(id, &user),
            Output::Need(label) => self.ask_warden(SessiondRequest::Need(label)),
            // The label stays for a while in case it is needed again, and its vault's channel with it.
            Output::Release(label) => self.ask_warden(SessiondRequest::Release(label)),
            Output::Kill(label) => self.ask_warden(SessiondRequest::Kill(label)),
            Output::Cut(CutId(ticket), label, inner) => {
                self.ask_warden(SessiondRequest::Cut { label, inner, ticket });
            }
            Output::Vault(label, message) => {
                let user = |id| self.machine.live(id).map(|shown| shown.user);
                let mediated = || convert::to_mediator(&self.site, &message, user);
                self.vaults.send(&label, || convert::to_vault(message.clone()), mediated);
            }
            Output::Keys(ticket, record) => {
                let record = record.map(convert::key_record);
                self.tell_keyer(ToKeyer::Answer { ticket, record });
            }
            Output::Renew(record) => self.tell_keyer(ToKeyer::Renew(convert::key_record(record))),
            Output::Keying(label, keying) => {
                self.tell_keyer(ToKeyer::Keying(label, keying));
            }
            Output::Postures(ticket, in_force) => {
                self.ask_warden(SessiondRequest::Postures { in_force, ticket });
            }
            Output::Set(setting, until, awaited) => {
                self.federation(|machine, now| machine.set(setting, until, awaited, now));
            }
            Output::Kept => self.federation(Federation::kept),
            Output::Revoke(session) => self.tell_keyer(ToKeyer::Revoke(session)),
            Output::Publish(record) if self.federated.machine.is_none() => {
                let why = "the server has only begun".to_owned();
                self.handle(Event::Published(record.id, Publication::Refused(why)));
            }
            Output::Publish(record) => self.federation(|machine, now| machine.publish(&record, now)),
            Output::Withdraw(record) if self.federated.machine.is_none() => self.withdrawals.push(record),
            Output::Withdraw(record) => self.federation(|machine, now| machine.withdraw(&record, now)),
            Output::Over(owner, session) => self.federation(|machine, now| machine.cut(&owner, session, now)),
            Output::Missing(owner, session) => {
                self.federation(|machine, now| machine.missing(&owner, session, now))
            }
            Output::Operator(operator, result) => self.operators.ended(operator, result),
            Output::Pass(grant, ticket) => self.passes(grant, ticket),
            Output::NotReleased(channel, ticket) => self.not_released(&channel, ticket),
            Output::Execute(operator, label, argv) => {
                // Who has gone meanwhile waits for no program.
                if self.operators.executes(operator, &label) {
                    self.ask_warden(SessiondRequest::Execute { label, argv, ticket: operator.0 });
                }
            }
        }
    }

    pub(crate) fn ask_warden(&mut self, request: SessiondRequest) {
        self.warden.say(request);
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }
}

/// What happens to the server itself.
fn server(action: Action, reason: &str) -> Entry {
    let (object, reason) = ("server".into(), reason.into());
    Entry { user: None, host: None, label: None, action, object, verdict: Verdict::Noted, reason }
}
