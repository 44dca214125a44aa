//! The loop: hears every channel, hands what it hears to the state machine, and carries out what that says.

use crate::audit::{AuditLog, Weight};
use crate::away::Away;
use crate::clock::Clock;
use crate::convert;
use crate::counts::Counts;
use crate::devices::Devices;
use crate::federation::Federated;
use crate::mediation::Connection;
use crate::notes::Notes;
use crate::operators::Operators;
use crate::passes::Passes;
use crate::passwords::{self, Job, Passwords};
use crate::store::Store;
use crate::vaults::Vaults;
use levee_daemon::{Bound, Can, Descriptors, Events, Fatal, Lost, Order, Outbox, TURN, Warden, Watched};
use levee_ipc::client::{ChildToSessiond, Dropped, Request as Asked, TpsToSessiond};
use levee_ipc::device::{Passport, Proof};
use levee_ipc::keyer::{FromKeyer, ToKeyer};
use levee_ipc::signer::{FromSigner, ToSigner};
use levee_ipc::vault::VaultToSessiond;
use levee_ipc::warden::sessiond::SessiondPart;
use levee_ipc::warden::{CompartmentStatus, LabelEvent, Role, SessiondRequest};
use levee_ipc::{Channel, Received, Secret, client};
use levee_policy::audit::{Event as Entry, Verdict};
use levee_policy::{HostName, LabelName, Site};
use levee_session::federation::Publication;
use levee_session::{
    Change, ClientId, CommitId, CutId, Event, Output, RefusalKind, Reply, Request, SessionId, Sessions,
    Stored, Time,
};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The most trusted paths at a time, in all: 10,000 sessions, and some that come back before their old path is known to be gone.
const MAX_CLIENTS: usize = 12_288;

/// The most causes in one message of the trusted path's server.
const MAX_DROPPED: usize = 512;
/// How connections end that come to something.
const ORDINARY: [&str; 4] = ["closed", "lost", "idle", "must_show_its_certificate_again"];
/// How long the signer may take for the last checkpoint.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Between two records about packets on which one label's stacks disagree.
const ALARM: Duration = Duration::from_secs(1);

/// What a client sent along that the state machine does not see.
enum Kept {
    Login(Secret),
    Passwd(Secret, Secret),
    /// The new password's hash, until it may be stored.
    Hash(Zeroizing<String>),
}

/// How far a trusted path has shown whose it is.
enum Shown {
    /// Its tps child has not said that TLS is up.
    Nothing,
    /// TLS is up, and its keys make this number.
    Tls([u8; 32]),
    /// The device is to sign this number for that connection.
    Asked { exporter: [u8; 32], nonce: [u8; 32] },
    /// The device has proved that it is this one.
    Device(HostName),
}

struct Client {
    link: Outbox<client::Reply>,
    shown: Shown,
    kept: Option<Kept>,
}

impl Client {
    fn device(&self) -> Option<&HostName> {
        match &self.shown {
            Shown::Device(device) => Some(device),
            Shown::Nothing | Shown::Tls(_) | Shown::Asked { .. } => None,
        }
    }
}

/// What waits to be made durable.
#[derive(Default)]
pub(crate) struct Batch {
    entries: Vec<(Weight, Entry)>,
    commits: Vec<CommitId>,
    changes: Vec<Change>,
    pub(crate) connections: Vec<Connection>,
}

/// Everything that sessiond holds.
pub struct Daemon {
    pub(crate) events: Events<Source>,
    pub(crate) site: Arc<Site>,
    pub(crate) clock: Clock,
    pub(crate) machine: Sessions,
    pub(crate) audit: AuditLog,
    pub(crate) counts: Counts,
    notes: Notes,
    pub(crate) vaults: Vaults,
    pub(crate) warden: Warden<SessiondPart>,
    pub(crate) operators: Operators,
    pub(crate) federated: Federated,
    /// Sessions to be withdrawn once it is known what ran before.
    pub(crate) withdrawals: Vec<Stored>,
    store: Store,
    passwords: Watched<Passwords>,
    tps: Outbox<()>,
    keyer: Outbox<ToKeyer>,
    passes: Passes,
    signer: Outbox<ToSigner>,
    clients: BTreeMap<ClientId, Client>,
    /// Clients that are not heard until they have been answered, and have taken the answer.
    held: BTreeSet<ClientId>,
    /// Where redundant stacks disagree: when the next record may be written, and about how many packets it will be.
    alarms: BTreeMap<LabelName, (Time, u64)>,
    /// The serial number of the certificate that each of the site's hosts showed last on the trusted path.
    certificates: BTreeMap<HostName, Vec<u8>>,
    devices: Devices,
    next_client: u64,
    pub(crate) batch: Batch,
    /// Whether the warden still has to say what ran before sessiond started.
    unswept: bool,
    away: Away,
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
    Client(ClientId),
    Passwords,
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
        (mut store, (away, was_away)): (Store, (Away, Option<Duration>)),
        audit: AuditLog,
        passwords: Passwords,
        devices: Devices,
    ) -> Result<Self, Fatal> {
        let site = Arc::new(site);
        let now = clock.now();
        let (sessions, resting) = store.read(now).map_err(|e| Fatal::new("read the store", e))?;
        let passwords = events.watch(passwords, Source::Passwords).map_err(|e| Fatal::new("wait", e))?;
        // Where nobody knows, it has been too long.
        let was_away = was_away.unwrap_or(Duration::MAX);
        let mut secret = [0; 16];
        passwords::fill_random(&mut secret).map_err(|e| Fatal::new("draw a number", e))?;
        let disabled = store.disabled().map_err(|e| Fatal::new("read the store", e))?;
        let machine =
            Sessions::resumed(Arc::clone(&site), sessions, resting, disabled, secret, was_away, now);
        Ok(Self {
            events,
            site,
            clock,
            machine,
            audit,
            counts: Counts::new(),
            notes: Notes::default(),
            vaults: Vaults::default(),
            warden,
            operators: Operators::new(),
            federated: Federated::new(),
            withdrawals: Vec::new(),
            store,
            passwords,
            tps: Outbox::new(),
            keyer: Outbox::new(),
            passes: Passes::default(),
            signer: Outbox::new(),
            clients: BTreeMap::new(),
            held: BTreeSet::new(),
            alarms: BTreeMap::new(),
            certificates: BTreeMap::new(),
            devices,
            next_client: 0,
            batch: Batch::default(),
            unswept: true,
            away,
        })
    }

    /// Serves until the warden says stop or is gone.
    pub fn run(mut self) -> Result<(), Fatal> {
        self.warden.say(SessiondRequest::Compartments);
        self.batch.entries.push((Weight::Note, server("start", "the log goes on")));
        self.carry_out();
        while self.turn()? {}
        self.finish();
        Ok(())
    }

    /// In good order: what was counted is written and the log's end is signed. Sessions stay in the store.
    fn finish(&mut self) {
        self.still_here();
        if let Some(summary) = self.counts.summary() {
            self.batch.entries.push((Weight::Note, summary));
        }
        let said = self.notes.take(true, self.clock.now());
        self.batch.entries.extend(said.into_iter().map(|entry| (Weight::Note, entry)));
        self.batch.entries.push((Weight::Note, server("stop", "in good order; sessions stay in the store")));
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
        ];
        let limit = self.clock.until(deadlines);
        for (source, can) in self.events.wait(limit)? {
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
                Source::Client(client) => self.hear_client(client, can),
                Source::Passwords => self.hear_passwords(),
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
        self.handle(Event::Tick);
        self.federation(|machine, now| machine.tick(now));
        let now = self.clock.now();
        if self.counts.due().is_some_and(|due| due <= now)
            && let Some(summary) = self.counts.summary()
        {
            self.batch.entries.push((Weight::Note, summary));
        }
        self.raise_alarms();
        if self.notes.due().is_some_and(|due| due <= now) {
            let said = self.notes.take(false, now);
            self.batch.entries.extend(said.into_iter().map(|entry| (Weight::Note, entry)));
        }
        self.carry_out();
        if self.audit.deadline().is_some_and(|due| due <= now) {
            self.audit.sync();
        }
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
    fn note(&mut self, entry: Entry) {
        let entry = self.notes.add(entry, self.clock.now());
        self.batch.entries.extend(entry.map(|entry| (Weight::Note, entry)));
    }

    pub(crate) fn handle(&mut self, event: Event) {
        self.machine.handle(event, self.clock.now());
    }

    /// False when it is time to end.
    fn hear_warden(&mut self) -> Result<bool, Fatal> {
        for _ in 0..TURN {
            match self.warden.hear()? {
                None => break,
                Some(Order::Stop) => return Ok(false),
                Some(Order::Take(part, with)) => self.take(part, with)?,
            }
        }
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
                self.passes.renewed();
                self.handle(Event::KeyerCame);
            }
            SessiondPart::Vault { label, slot } => {
                self.vaults.attach(label.clone(), slot, with.channel()?, &mut self.events)?;
                self.lease_for_new_vault(&label, slot);
            }
            SessiondPart::Mediator(label) => self.mediator_came(label, with.channel()?)?,
            SessiondPart::Fsd => self.fsd_came(with.channel()?)?,
            SessiondPart::Signer => self.signer_came(with.channel()?)?,
            SessiondPart::Operators => self.operators.listen(with.one()?, &mut self.events)?,
            SessiondPart::Revocations => self.revocations(&with.one()?),
            SessiondPart::Label(event) => self.hear_label(event),
            part @ (SessiondPart::Site
            | SessiondPart::Directory
            | SessiondPart::Auditor
            | SessiondPart::Authority) => {
                return Err(Warden::unwanted(&part));
            }
        }
        Ok(())
    }

    /// Takes the channel to a signer, which knows nothing of what the one before was asked.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn signer_came(&mut self, channel: Channel) -> Result<(), Fatal> {
        self.signer.replace(channel, &mut self.events, Source::Signer)?;
        self.audit.signer_lost(self.clock.now());
        Ok(())
    }

    /// A standing process is gone. One that is merely deaf, or says what is no message, has to go.
    pub(crate) fn lost(&mut self, role: Role, why: Lost) {
        if why != Lost::Gone {
            let what = format!("{}: {why}", role.program());
            self.counts.add_many(&what, 1, self.clock.now());
            self.ask_warden(SessiondRequest::Replace(role));
        }
    }

    /// As [`Daemon::lost`], for what belongs to a label.
    pub(crate) fn lost_at(&mut self, label: &LabelName, why: Lost) {
        if why != Lost::Gone {
            self.counts.add_many(&format!("a label's vault or mediator: {why}"), 1, self.clock.now());
            self.ask_warden(SessiondRequest::Kill(label.clone()));
        }
    }

    /// A revocation list has come: the sessions of whom it names end now, with an IKE SA or without. A device is known by the
    /// certificate that it showed last; the session of one that has shown none since sessiond started may be named, and ends.
    fn revocations(&mut self, fd: &OwnedFd) {
        if self.devices.believe(fd).is_err() {
            // The trusted path and the keyer go by the one before it, too.
            return self.counts.add_many("revocation lists that cannot be read", 1, self.clock.now());
        }
        let named = self.certificates.iter().filter(|(_, serial)| self.devices.is_revoked(serial));
        let named: Vec<HostName> = named.map(|(device, _)| device.clone()).collect();
        for device in named {
            self.handle(Event::Revoked(device));
        }
        let unseen = self.machine.shown().map(|shown| shown.device);
        let unseen: Vec<HostName> = unseen.filter(|device| !self.certificates.contains_key(device)).collect();
        for device in unseen {
            self.handle(Event::Unproved(device));
        }
    }

    fn hear_label(&mut self, event: LabelEvent) {
        match event {
            LabelEvent::Up(label) => self.handle(Event::LabelUp(label)),
            LabelEvent::Failed { label, reason } => {
                self.vaults.forget_all(&label);
                self.handle(Event::LabelFailed(label, reason));
            }
            LabelEvent::Died(label) => {
                self.vaults.forget(&label);
                self.handle(Event::LabelDied(label));
            }
            LabelEvent::Cut { ticket, sockets } => self.handle(Event::Cut(CutId(ticket), sockets)),
            LabelEvent::Compartments { running, steering, alarms } => {
                self.begin_federation(!running.is_empty());
                self.sweep(&running);
                self.operators.compartments(running, steering, alarms);
            }
            LabelEvent::Note { label, object, done, reason } => {
                let verdict = if done { Verdict::Noted } else { Verdict::Denied };
                let entry =
                    Entry { user: None, host: None, label, action: "run".into(), object, verdict, reason };
                self.note(entry);
            }
        }
    }

    /// Has the warden stop what no session needs that the store has.
    fn sweep(&mut self, running: &[CompartmentStatus]) {
        if !std::mem::take(&mut self.unswept) {
            return;
        }
        let needed: Vec<&LabelName> = self.machine.labels().collect();
        for idle in running.iter().map(|status| &status.label).filter(|label| !needed.contains(label)) {
            self.warden.say(SessiondRequest::Release(idle.clone()));
        }
        // Where nothing ran, the keys went with the vault: the whole server was down, not sessiond alone.
        let lost = needed.into_iter().filter(|label| !running.iter().any(|status| status.label == **label));
        let lost: Vec<LabelName> = lost.cloned().collect();
        for label in lost {
            self.handle(Event::LabelDied(label));
        }
    }

    fn hear_tps(&mut self) {
        for _ in 0..TURN {
            match self.tps.hear_with::<TpsToSessiond>() {
                Ok(Some(Received { message: TpsToSessiond::Client(_), mut fds })) => {
                    let now = self.clock.now();
                    if self.clients.len() >= MAX_CLIENTS {
                        self.counts.add_many("trusted paths beyond the most there may be", 1, now);
                    } else if let (Some(fd), true) = (fds.pop(), fds.is_empty()) {
                        self.next_client += 1;
                        let id = ClientId(self.next_client);
                        let mut link = Outbox::with(Bound::ANSWERS);
                        if link.replace(Channel::from_fd(fd), &mut self.events, Source::Client(id)).is_ok() {
                            self.clients.insert(id, Client { link, shown: Shown::Nothing, kept: None });
                        }
                    }
                }
                Ok(Some(Received { message: TpsToSessiond::Dropped(dropped), .. })) => {
                    self.hear_dropped(dropped)
                }
                Ok(None) => return,
                // Its children go on; the warden gives the next one.
                Err(why) => return self.lost(Role::Tps, why),
            }
        }
    }

    /// Connections that came to nothing. What ends in the ordinary way is counted for the status alone; the others are in the log with
    /// the network that they came from.
    fn hear_dropped(&mut self, dropped: Vec<Dropped>) {
        for Dropped { reason, from, count } in dropped.into_iter().take(MAX_DROPPED) {
            let reason: String = reason.chars().filter(|c| !c.is_control()).take(64).collect();
            self.counts.total(&reason, count);
            let Some(from) = from.filter(|_| !ORDINARY.contains(&reason.as_str())) else { continue };
            let entry = Entry {
                user: None,
                host: None,
                label: None,
                action: "connect".into(),
                object: format!("trusted path from {from}"),
                verdict: Verdict::Denied,
                reason: format!("{reason}: {count} since the last record"),
            };
            self.note(entry);
        }
    }

    /// Whether a client has an answer to wait for, or to take.
    fn waits(&self, id: ClientId) -> bool {
        let waits = |client: &Client| {
            !client.link.is_clear() || (client.device().is_some() && !self.machine.is_ready(id))
        };
        self.clients.get(&id).is_some_and(waits)
    }

    /// Hears those again that were held back and have been answered.
    fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        let (waiting, free) = held.into_iter().partition(|id| self.waits(*id));
        self.held = waiting;
        let free: BTreeSet<ClientId> = free;
        for id in free {
            if let Some(client) = self.clients.get_mut(&id) {
                client.link.hold(false);
            }
        }
    }

    fn hear_client(&mut self, id: ClientId, can: Can) {
        for _ in 0..TURN {
            let waits = self.waits(id);
            let Some(client) = self.clients.get_mut(&id) else { return };
            if waits {
                // It is not read, and so held back; that it is gone is seen anyhow.
                if can.gone {
                    return self.drop_client(id);
                }
                client.link.hold(true);
                self.held.insert(id);
            }
            let message = match client.link.hear::<ChildToSessiond>() {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(why) => {
                    if why != Lost::Gone {
                        self.counts.add_many(&format!("a trusted path: {why}"), 1, self.clock.now());
                    }
                    return self.drop_client(id);
                }
            };
            match (message, &client.shown) {
                (ChildToSessiond::Hello { exporter }, Shown::Nothing) => client.shown = Shown::Tls(exporter),
                (ChildToSessiond::Request(Asked::Hello), Shown::Tls(exporter)) => {
                    let (exporter, mut nonce) = (*exporter, [0; 32]);
                    if passwords::fill_random(&mut nonce).is_err() {
                        return self.drop_client(id);
                    }
                    client.shown = Shown::Asked { exporter, nonce };
                    client.link.send(client::Reply::Challenge(nonce));
                }
                (ChildToSessiond::Request(Asked::Prove(proof)), Shown::Asked { exporter, nonce }) => {
                    let (exporter, nonce) = (*exporter, *nonce);
                    // Refused, or more than there may be, it is not known to the state machine and will be disconnected.
                    return self.hear_proof(id, *proof, &nonce, &exporter);
                }
                (ChildToSessiond::Request(asked), Shown::Device(_)) => self.hear_request(id, asked),
                _ => {
                    self.counts.add_many("a trusted path out of order", 1, self.clock.now());
                    return self.drop_client(id);
                }
            }
        }
    }

    /// A device shows who it is; whoever holds the channel has no say in that.
    fn hear_proof(&mut self, id: ClientId, proof: Proof, nonce: &[u8; 32], exporter: &[u8; 32]) {
        let now = self.clock.now();
        let proved = self.devices.prove(proof, nonce, exporter, now);
        let Some(client) = self.clients.get_mut(&id) else { return };
        match proved {
            Ok(passport) => {
                let Passport { device, serial, fingerprint, .. } = passport;
                client.shown = Shown::Device(device.clone());
                client.link.send(client::Reply::Alive);
                if self.site.host(&device).is_some() {
                    self.certificates.insert(device.clone(), serial);
                }
                self.handle(Event::Hello { client: id, device, fingerprint });
            }
            Err(why) => {
                let reason = format!("the server does not believe this workstation: {why}");
                client.link.send(client::Reply::Refused { kind: client::RefusalKind::Protocol, reason });
                self.counts.add_many("a device that is not the one it says", 1, now);
                self.drop_client(id);
            }
        }
    }

    fn hear_request(&mut self, id: ClientId, asked: Asked) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let request = match asked {
            // Once for each trusted path.
            Asked::Hello | Asked::Prove(_) => {
                self.counts.add_many("a trusted path out of order", 1, self.clock.now());
                return self.drop_client(id);
            }
            Asked::Login { user, password } => {
                client.kept = Some(Kept::Login(password));
                Request::Login(user)
            }
            Asked::Resume(session) => Request::Resume(session),
            Asked::Level(label) => {
                let mut random = [0u8; 24];
                if passwords::fill_random(&mut random).is_err() {
                    return self.refuse(id, "the server has no random numbers");
                }
                let (name, place) = random.split_at(16);
                let (Ok(name), Ok(place)) = (name.try_into(), place.try_into()) else { return };
                let random = u64::from_ne_bytes(place);
                Request::Level { label, id: SessionId::from_random(name), random }
            }
            Asked::Passwd { old, new } => {
                if new.expose().len() < passwords::MIN_PASSWORD {
                    let least = passwords::MIN_PASSWORD;
                    return self.refuse(id, &format!("a new password has at least {least} bytes"));
                }
                client.kept = Some(Kept::Passwd(old, new));
                Request::Passwd
            }
            Asked::Status => Request::Status,
            Asked::KeepAlive => Request::KeepAlive,
            Asked::Carry(file) => Request::Carry(file),
            Asked::Logout => Request::Logout,
        };
        self.handle(Event::Request(id, request));
    }

    fn refuse(&mut self, id: ClientId, reason: &str) {
        self.reply(id, Reply::Refused(RefusalKind::Unavailable, reason.to_owned()));
    }

    fn drop_client(&mut self, id: ClientId) {
        if self.clients.remove(&id).is_some() {
            self.handle(Event::Gone(id));
        }
    }

    fn hear_passwords(&mut self) {
        for done in self.passwords.finished() {
            if let Some(client) = self.clients.get_mut(&done.client) {
                client.kept = done.hash.map(Kept::Hash);
            }
            self.handle(Event::Verified(done.client, done.verified));
        }
    }

    fn hear_keyer(&mut self) {
        for _ in 0..TURN {
            match self.keyer.hear::<FromKeyer>() {
                Ok(Some(message)) => match message {
                    FromKeyer::Wanted { ticket, device, label, accreditation } => {
                        self.handle(Event::Wanted { ticket, device, label, accreditation });
                    }
                    FromKeyer::Refused { device, label, reason } => {
                        self.handle(Event::Refused(device, label, reason));
                    }
                    FromKeyer::Revoked(device) => self.handle(Event::Revoked(device)),
                    FromKeyer::Passes(passes) => self.passes.add(passes),
                    FromKeyer::NoPeer(session) => self.handle(Event::Renew(session)),
                    FromKeyer::Dropped(dropped) => {
                        let now = self.clock.now();
                        for (what, count) in dropped.into_iter().take(TURN) {
                            self.counts.add_many(&what, count, now);
                        }
                    }
                    // A workstation's.
                    FromKeyer::Completed(_) | FromKeyer::Failed { .. } => {
                        self.keyer.close();
                        return self.lost(Role::Keyer, Lost::Malformed);
                    }
                },
                Ok(None) => return,
                Err(why) => return self.lost(Role::Keyer, why),
            }
        }
    }

    fn hear_vault(&mut self, label: &LabelName, slot: u16) {
        for _ in 0..TURN {
            let Some(worker) = self.vaults.link(label, slot) else { return };
            match worker.hear::<VaultToSessiond>() {
                Ok(Some(VaultToSessiond::Disagreed(packets))) => self.alarm(label, packets),
                Ok(Some(message)) => {
                    let answer = self.vaults.answered(label, slot, message);
                    self.answered(label, answer);
                }
                Ok(None) => return,
                Err(why) => {
                    self.vaults.lost(label, slot);
                    self.handle(Event::VaultLost(label.clone()));
                    return self.lost_at(label, why);
                }
            }
        }
    }

    /// A label's vault, with its mediator where it has one, has done what it was told.
    pub(crate) fn answered(&mut self, label: &LabelName, answer: Option<VaultToSessiond>) {
        match answer {
            Some(VaultToSessiond::Opened(id)) => self.handle(Event::VaultOpened(label.clone(), id)),
            Some(VaultToSessiond::Closed(id)) => self.handle(Event::VaultClosed(label.clone(), id)),
            Some(VaultToSessiond::Pong(number)) => self.handle(Event::VaultPong(label.clone(), number)),
            Some(VaultToSessiond::Report(report)) => self.operators.report(label, report),
            Some(VaultToSessiond::Disagreed(_)) | None => {}
        }
    }

    /// One of the label's stacks is wrong, or taken over. However often it says so, the log has one record a second.
    fn alarm(&mut self, label: &LabelName, packets: u64) {
        let (_, untold) = self.alarms.entry(label.clone()).or_default();
        *untold = untold.saturating_add(packets);
        self.counts.add_many("packets on which redundant stacks disagreed", packets, self.clock.now());
    }

    /// Writes the alarms that are due.
    fn raise_alarms(&mut self) {
        let now = self.clock.now();
        for (label, (due, untold)) in
            self.alarms.iter_mut().filter(|(_, (due, untold))| *untold > 0 && *due <= now)
        {
            let packets = std::mem::take(untold);
            *due = now.after(ALARM);
            let entry = Entry {
                user: None,
                host: None,
                label: Some(label.clone()),
                action: "pass".into(),
                object: "redundant stacks".into(),
                verdict: Verdict::Denied,
                reason: format!("they disagreed about {packets} packets: all of them were dropped"),
            };
            self.batch.entries.push((Weight::Note, entry));
        }
    }

    fn hear_signer(&mut self) {
        for _ in 0..TURN {
            match self.signer.hear::<FromSigner>() {
                Ok(Some(message)) => self.audit.heard_signer(message, self.clock.now()),
                Ok(None) => return,
                Err(why) => {
                    self.audit.signer_lost(self.clock.now());
                    return self.lost(Role::Signer, why);
                }
            }
        }
    }

    /// Tells the signer what is new in the log, or has it sign a checkpoint. True if it is asked something, now or before.
    fn ask_signer(&mut self, last: bool) -> bool {
        let now = self.clock.now();
        if !self.signer.is_open() {
            self.audit.put_off(now);
            return false;
        }
        match self.audit.ask_signer(last, now) {
            Some(question) => self.signer.send(question),
            None => return self.audit.waits_for_signer(),
        }
        true
    }

    fn reply(&mut self, id: ClientId, reply: Reply) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(device) = client.device() else { return };
        let asker = convert::Asker { device, now: self.clock.now() };
        let unknown = || client::Reply::Refused {
            kind: client::RefusalKind::Unavailable,
            reason: "the site file does not fit the session".into(),
        };
        let mut reply = convert::reply(&self.site, &asker, reply).unwrap_or_else(unknown);
        self.passes.give(&mut reply);
        client.link.send(reply);
        if self.passes.wanted() {
            self.tell_keyer(ToKeyer::MorePasses);
        }
    }

    /// Carries out what the state machine says, makes what waits for that durable, and goes on until it says
    /// nothing more: all decisions of one turn share one sync.
    pub(crate) fn carry_out(&mut self) {
        loop {
            while let Some(output) = self.machine.poll() {
                self.carry_out_one(output);
            }
            if self.batch.commits.is_empty() && self.batch.connections.is_empty() {
                if !self.batch.entries.is_empty() {
                    self.flush();
                }
                return;
            }
            self.flush();
        }
    }

    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let now = self.clock.now();
        let needed = !batch.commits.is_empty() || !batch.connections.is_empty();
        self.audit.expect_ends(self.machine.shown().len() as u64);
        let mut durable = self.audit.write(&batch.entries, now, false);
        // A log that has no room for connections may have some for the rest.
        let connections: Vec<(Weight, Entry)> = batch.connections.iter().map(Connection::entry).collect();
        let mut recorded = self.audit.write(&connections, now, false);
        if needed {
            // One sync for all of them.
            let synced = self.audit.sync();
            durable &= synced;
            recorded &= synced;
        }
        // Only what is in the log comes into the store.
        if durable
            && !batch.changes.is_empty()
            && let Err(error) = self.store.apply(&batch.changes, now)
        {
            levee_ipc::say!("levee-sessiond: {error}");
            durable = false;
        }
        for commit in batch.commits {
            self.handle(Event::Committed(commit, durable));
        }
        for connection in batch.connections {
            self.pass_on(connection, recorded);
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
                self.batch.entries.extend(entries.into_iter().map(|entry| (weight(&entry), entry)));
                self.batch.commits.push(commit);
                self.batch.changes.extend(changes);
            }
            Output::Audit(entry) => self.note(entry),
            Output::Count(counted) => self.counts.add(&counted, self.clock.now()),
            Output::Reply(client, reply) => self.reply(client, reply),
            // Already out of the state machine.
            Output::Disconnect(client) => {
                self.clients.remove(&client);
                self.handle(Event::Gone(client));
            }
            Output::Verify(id, user) => {
                let kept = self.clients.get_mut(&id).and_then(|client| client.kept.take());
                let job = match kept {
                    Some(Kept::Login(password)) => Some(Job::Verify(password)),
                    Some(Kept::Passwd(old, new)) => Some(Job::Change(old, new)),
                    Some(Kept::Hash(_)) | None => None,
                };
                if !job.is_some_and(|job| self.passwords.submit(id, user, job)) {
                    self.handle(Event::Verified(id, levee_session::Verified::Unavailable));
                }
            }
            Output::StorePassword(id, user) => {
                let kept = self.clients.get_mut(&id).and_then(|client| client.kept.take());
                let stored = match kept {
                    Some(Kept::Hash(hash)) => match self.passwords.store(&user, &hash) {
                        Ok(()) => true,
                        Err(error) => {
                            levee_ipc::say!("levee-sessiond: the credential file of {user}: {error}");
                            false
                        }
                    },
                    _ => false,
                };
                self.handle(Event::PasswordStored(id, stored));
            }
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
                let record = record.map(|record| convert::key_record(&self.site, record));
                self.tell_keyer(ToKeyer::Answer { ticket, record });
            }
            Output::Renew(record) => self.tell_keyer(ToKeyer::Renew(convert::key_record(&self.site, record))),
            Output::Revoke(session) => self.tell_keyer(ToKeyer::Revoke(session)),
            Output::Publish(record) if self.federated.machine.is_none() => {
                let why = "the server has only begun".to_owned();
                self.handle(Event::Published(record.id, Publication::Refused(why)));
            }
            Output::Publish(record) => self.federation(|machine, now| machine.publish(record, now)),
            Output::Withdraw(record) if self.federated.machine.is_none() => self.withdrawals.push(record),
            Output::Withdraw(record) => self.federation(|machine, _| machine.withdraw(&record)),
            Output::Over(session) => self.federation(|machine, now| machine.cut(session, now)),
            Output::Operator(operator, result) => self.operators.ended(operator, result),
        }
    }

    /// A keyer that is gone has forgotten everything; the next one is told what is so.
    fn tell_keyer(&mut self, message: ToKeyer) {
        self.keyer.send(message);
    }

    pub(crate) fn ask_warden(&mut self, request: SessiondRequest) {
        self.warden.say(request);
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }
}

/// What happens to the server itself.
fn server(action: &str, reason: &str) -> Entry {
    let (action, object, reason) = (action.into(), "server".into(), reason.into());
    Entry { user: None, host: None, label: None, action, object, verdict: Verdict::Noted, reason }
}
