//! What a person asks for, and what the server, the warden or time demand: each a straight sequence of steps.

use super::carry::{self, Whole};
use super::link::{self, DOCTOR, patience};
use super::people::{Person, Program};
use super::{Agent, Live, Part, granted};
use levee_daemon::Fatal;
use levee_ipc::Secret;
use levee_ipc::client::{self, Login, Opened, RefusalKind, Reply, Request};
use levee_ipc::keyer::{FromKeyer, KeyRecord, Pass, ToKeyer};
use levee_ipc::tpe::{Answer, Command};
use levee_ipc::vault::{SessionRecord, SessiondToVault, VaultToSessiond};
use levee_ipc::warden::tpe::Open;
use levee_ipc::warden::{TpeRequest, WorkstationEvent};
use levee_policy::UserName;
use levee_session::SessionId;
use levee_sys::clock;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The trusted path counts as lost when the server is late; this is for whoever has not noticed.
const SLACK: Duration = Duration::from_secs(5);
/// A person who has waited so long for a level is told why.
const PROGRESS: Duration = Duration::from_secs(1);
/// A password is looked at within this time, where the server does not delay it.
const HASHED: Duration = Duration::from_secs(2);
/// Negotiation with the server included; requests that are lost on the way are sent again.
const KEYER: Duration = Duration::from_secs(25);
/// It is being started when it is asked first.
pub(super) const VAULT: Duration = Duration::from_secs(20);
/// Passes that one go at negotiating may use: one each time that it begins.
const PASSES_AT_ONCE: usize = 3;
/// A compartment is made of mounts and processes; a loaded machine takes its time.
const COMPARTMENT: Duration = Duration::from_secs(30);

/// A file of [`levee_ipc::tpe::MAX_CARRIED`] is copied in this time, where its file system does not stand still.
const FETCHED: Duration = Duration::from_secs(10);

/// Why nobody is signed on whose command has ended before the server had answered.
const DESERTED: &str = "whoever was to be signed on did not wait for it";

/// While the warden starts another.
pub(super) const NO_KEYER: &str = "the keyer is not there: try again";

/// Said to whoever wants something of a locked session.
pub(super) const IS_LOCKED: &str = "the session is locked: levee-tpe unlock";

/// Why something was not done.
pub(super) enum NotDone {
    /// For the person.
    Refused(RefusalKind, String),
    /// The agent cannot go on.
    Fatal(Fatal),
}

pub(super) type Done<T> = Result<T, NotDone>;

pub(super) fn unavailable<T>(reason: impl Into<String>) -> Done<T> {
    Err(NotDone::Refused(RefusalKind::Unavailable, reason.into()))
}

/// After how long a person is told why an answer takes its time, and what.
fn slow(request: &Request) -> Option<(Duration, String)> {
    match request {
        Request::Level(label, _) => Some((
            PROGRESS,
            format!(
                "{label} is not open yet: a level at which nobody works is started first, which may take a minute"
            ),
        )),
        Request::Login { .. } | Request::Passwd { .. } | Request::Unlock { .. } => Some((
            HASHED,
            format!(
                "after wrong passwords the server looks at the next only in a while, at most {} seconds; it is then looked at as ever",
                levee_session::LONGEST_DELAY.as_secs()
            ),
        )),
        _ => None,
    }
}

impl Agent {
    /// Carries out one command.
    pub(super) fn carry_out(&mut self, command: Command) -> Result<Answer, Fatal> {
        let done = match command {
            Command::Login { user, password, code } => self.log_in(user, password, code),
            Command::Level(label, protection) => self.level(label, protection),
            Command::Passwd { old, new } => self.passwd(old, new),
            Command::Logout => self.log_out(),
            Command::Releases => self.releases(),
            Command::ShowRelease(id) => self.show_release(id),
            Command::Release { id, digest, consent } => self.release(id, digest, consent),
            Command::Accesses => self.accesses(),
            Command::Access { service, user, admits } => self.access(service, user, admits),
            Command::Lock => self.lock(),
            Command::Unlock { password, code } => self.unlock(password, code),
            Command::Status | Command::Active => Ok(Answer::Status(self.status())),
            Command::Run { .. } | Command::Signal(_) => {
                Err(NotDone::Refused(RefusalKind::Protocol, "not a command by itself".into()))
            }
        };
        match done {
            Ok(answer) => Ok(answer),
            Err(NotDone::Refused(kind, reason)) => {
                if kind == RefusalKind::NotLoggedIn {
                    self.login = None;
                }
                Ok(Answer::Refused { kind, reason })
            }
            Err(NotDone::Fatal(reason)) => Err(reason),
        }
    }

    fn log_in(&mut self, user: UserName, password: Secret, code: Option<Secret>) -> Done<Answer> {
        if let Some(Login { user, .. }) = &self.login {
            let path =
                if self.link.is_up() { String::new() } else { format!(", and {}", self.link.is_down()) };
            return Err(NotDone::Refused(
                RefusalKind::AlreadyLoggedIn,
                format!("{user} is signed on here{path}"),
            ));
        }
        self.link.connect(&mut self.events).or_else(|why| unavailable(format!("{why}; {DOCTOR}")))?;
        match self.ask(&Request::Login { user, password, code }) {
            // Nobody would know that they are.
            Ok(Reply::LoggedIn(_)) if self.is_deserted() => {
                self.abandon(DESERTED)?;
                unavailable(DESERTED)
            }
            Ok(Reply::LoggedIn(login)) => {
                let Login { labels, lattice, clearance, .. } = login.clone();
                let answer = Answer::LoggedIn { labels, lattice, clearance };
                (self.login, self.ended, self.notice) = (Some(login), None, None);
                if let Some(person) = self.person {
                    self.people.sits(person);
                }
                Ok(answer)
            }
            other => {
                self.link.close();
                refused(other?)
            }
        }
    }

    fn passwd(&mut self, old: levee_ipc::Secret, new: levee_ipc::Secret) -> Done<Answer> {
        self.need_login()?;
        self.not_while_locked()?;
        match self.ask(&Request::Passwd { old, new })? {
            Reply::PasswordChanged => Ok(Answer::PasswordChanged),
            other => refused(other),
        }
    }

    fn log_out(&mut self) -> Done<Answer> {
        self.need_login()?;
        // The server first: it cuts what the session still sends, however long the purge here takes.
        let told = self.ask(&Request::Logout);
        let purged = self.close_here();
        (self.login, self.notice) = (None, None);
        self.link.close();
        purged?;
        match told {
            Ok(Reply::LoggedOut) => Ok(Answer::LoggedOut),
            Ok(other) => refused(other),
            Err(NotDone::Refused(kind, reason)) => Err(NotDone::Refused(
                kind,
                format!(
                    "signed off here, but the server could not be told and ends the session by itself: {reason}"
                ),
            )),
            Err(fatal) => Err(fatal),
        }
    }

    /// Records what a person carries into the session, then starts the program that reads it.
    pub(super) fn let_in(&mut self, person: Person, program: Program) -> Result<(), Fatal> {
        // Who has gone, or was told that it does not go in, carries nothing.
        if !self.people.is_here(person) {
            return Ok(());
        }
        // Before anything is fetched, which takes its time.
        if let Err((kind, reason)) = self.runs_programs() {
            self.people.answer(person, &Answer::Refused { kind, reason });
            return Ok(());
        }
        self.people.fetch(person);
        let file = self.wait_for(FETCHED, "the file to carry in is not to be had", |agent| {
            agent.people.fetched(person).map(|file| file.and_then(carry::imported).or_else(unavailable))
        });
        let done = file.and_then(|whole| self.carried(whole));
        let started = done.and_then(|file| {
            let started = self.start_program(person, program, Some(file));
            started.map_err(|(kind, reason)| NotDone::Refused(kind, reason))
        });
        match started {
            Ok(()) => Ok(()),
            Err(NotDone::Refused(kind, reason)) => {
                self.people.answer(person, &Answer::Refused { kind, reason });
                Ok(())
            }
            Err(NotDone::Fatal(why)) => Err(why),
        }
    }

    /// A program without a terminal has ended: records what it has written, then lets it out.
    pub(super) fn let_out(&mut self, ticket: Person, status: u8) -> Result<(), Fatal> {
        let Some(spools) = self.spools.remove(&ticket) else { return Ok(()) };
        if !self.people.is_here(ticket) {
            return Ok(());
        }
        let mut files = Vec::new();
        for spool in spools {
            let whole = spool.finish().or_else(unavailable);
            let file = whole.and_then(|whole| whole.map(|whole| self.carried(whole)).transpose());
            match file {
                Ok(file) => files.extend(file),
                Err(NotDone::Refused(kind, reason)) => {
                    let reason =
                        format!("the program has ended with status {status}; what it wrote stays: {reason}");
                    self.people.answer(ticket, &Answer::Refused { kind, reason });
                    return Ok(());
                }
                Err(NotDone::Fatal(why)) => return Err(why),
            }
        }
        let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        self.people.answer_with(ticket, &Answer::Exited(status), &borrowed);
        Ok(())
    }

    /// Has the server record a file; an empty one carries nothing.
    fn carried(&mut self, Whole { file, record }: Whole) -> Done<OwnedFd> {
        if record.bytes == 0 {
            return Ok(file);
        }
        match self.ask(&Request::Carry(record))? {
            Reply::Carried => Ok(file),
            other => refused(other),
        }
    }

    pub(super) fn need_login(&self) -> Done<()> {
        match self.login {
            Some(_) => Ok(()),
            None => Err(NotDone::Refused(RefusalKind::NotLoggedIn, "nobody is signed on here".into())),
        }
    }

    /// Starts vault and compartment for an opened session and gives them record and keys.
    pub(super) fn open_here(&mut self, opened: &mut Opened) -> Done<()> {
        if self.no_tunnel {
            return Ok(());
        }
        let session = opened.session;
        self.mail.warden.clear();
        let own = opened.services.first().map(|&first| (first, opened.names.clone()));
        let others = opened.others.iter();
        let others = others.filter_map(|other| Some((*other.services.first()?, other.names.clone())));
        let parts = self.parts(opened);
        let elsewhere = parts.iter().flat_map(|part| part.record.reach.iter().copied());
        let request = TpeRequest::Open(Open {
            session,
            label: opened.label.clone(),
            inner: opened.inner.clone(),
            hosts: own.into_iter().chain(others).collect(),
            reach: granted::addresses(&opened.reach).into_iter().chain(elsewhere).collect(),
            mtu: opened.mtu,
            patience: client::patience(opened.grace),
        });
        self.vault = None;
        self.warden.say(request);
        // The compartment is built meanwhile.
        self.open_in_vault(opened)?;
        let server = self.link.peer().ok_or_else(|| lost(&self.link.is_down()))?;
        self.tunnel = self.through.unwrap_or(SocketAddr::new(server.ip(), opened.tunnel_port));
        self.negotiate(self.key_record(opened), some(&mut opened.passes))?;
        self.admit_parts(parts)?;
        self.wait_for(COMPARTMENT, "the compartment does not start", |agent| {
            let up = |event: &_| matches!(event, WorkstationEvent::Up(up) if *up == session);
            agent.mail.warden.iter().any(up).then_some(Ok(())).or_else(|| agent.given_up(session))
        })
    }

    /// What the warden has said against the session that is being opened.
    fn given_up<T>(&self, session: SessionId) -> Option<Done<T>> {
        self.mail.warden.iter().find_map(|event| match event {
            WorkstationEvent::Failed { session: failed, reason } if *failed == session => {
                Some(unavailable(format!("the compartment does not start: {reason}")))
            }
            WorkstationEvent::Died(died) if *died == session => Some(unavailable("the compartment died")),
            _ => None,
        })
    }

    fn open_in_vault(&mut self, opened: &Opened) -> Done<()> {
        self.mail.vault.clear();
        let records = self.records(opened);
        let session = opened.session;
        self.wait_for(COMPARTMENT, "no vault of this level was started", |agent| match &agent.vault {
            Some((label, _)) if *label == opened.label => Some(Ok(())),
            _ => agent.given_up(session),
        })?;
        let vault = self.vault.as_mut().map(|(_, vault)| vault).filter(|vault| vault.is_open());
        let Some(vault) = vault else { return unavailable("the vault is gone") };
        records.into_iter().for_each(|record| vault.send(SessiondToVault::Open(record)));
        vault.send(SessiondToVault::Synced);
        self.wait_for(VAULT, "the vault does not answer", |agent| match agent.mail.vault.pop_front() {
            Some(VaultToSessiond::Opened(opened)) if opened == session => Some(Ok(())),
            _ => agent.given_up(session),
        })
    }

    /// The session and its parts as the local vault is to know them, the session first.
    pub(super) fn records(&self, opened: &Opened) -> Vec<SessionRecord> {
        let ciphers = &opened.protected.ciphers;
        let own = granted::record(opened.session, &opened.inner, &opened.reach, ciphers.clone());
        let parts = self.parts(opened);
        let part =
            |part: &Part| granted::record(part.record.session, &opened.inner, &part.reach, ciphers.clone());
        std::iter::once(own).chain(parts.iter().map(part)).collect()
    }

    /// Ends the session here: no key, no program, no file of it is left when this returns.
    pub(super) fn close_here(&mut self) -> Done<()> {
        let Some(Live { id, .. }) = self.session.take() else { return Ok(()) };
        self.remove(id)
    }

    pub(super) fn remove(&mut self, session: SessionId) -> Done<()> {
        if self.no_tunnel {
            return Ok(());
        }
        // The keyer holds no keys; what it forgets by this is which SPIs there were.
        self.keyer.send(ToKeyer::Revoke(session));
        if let Some((_, vault)) = &mut self.vault {
            // It dies with the compartment; this only lets it erase the keys itself.
            vault.send(SessiondToVault::Close(session));
        }
        self.due.died = None;
        self.due.failed = None;
        self.due.renew = false;
        self.warden.say(TpeRequest::Close(session));
        let closed = self.wait_for(COMPARTMENT, "the old compartment does not end", |agent| {
            match agent.mail.warden.pop_front()? {
                WorkstationEvent::Closed(closed) if closed == session => Some(Ok(())),
                _ => None,
            }
        });
        self.vault = None;
        self.spools.clear();
        self.over.clear();
        self.people.programs_purged();
        closed
    }

    /// Gives a session up on both sides, after something went wrong here.
    pub(super) fn abandon(&mut self, reason: &str) -> Done<()> {
        // Best effort towards the server: if it is not told it ends the session after its grace time.
        if let Err(fatal @ NotDone::Fatal(_)) = self.ask(&Request::Logout) {
            return Err(fatal);
        }
        self.link.close();
        self.login = None;
        self.ended = Some(reason.to_owned());
        Ok(())
    }

    /// What came up while something else was done.
    pub(super) fn settle(&mut self) -> Result<(), Fatal> {
        match self.settle_inner() {
            Ok(()) => Ok(()),
            Err(NotDone::Fatal(reason)) => Err(reason),
            Err(NotDone::Refused(_, reason)) => {
                self.ended = Some(reason);
                Ok(())
            }
        }
    }

    fn settle_inner(&mut self) -> Done<()> {
        if let Some(reason) = self.due.ended.take() {
            self.ended = Some(reason.clone());
            // Locked here, where the server may not have heard of it before the session was over.
            let locked = self.is_locked();
            let purged = self.close_here();
            if std::mem::take(&mut self.due.signed_off) {
                (self.login, self.notice) = (None, None);
                self.link.close();
            } else if locked {
                self.abandon(&reason)?;
            }
            purged?;
        }
        self.sign_off_who_left()?;
        if std::mem::take(&mut self.due.lock) {
            self.lock_here()?;
        }
        if let Some(session) = self.due.died.take()
            && self.session.as_ref().is_some_and(|live| live.id == session)
        {
            let silent = self.is_silent();
            let closed = self.close_here();
            if silent {
                // The warden was first to see it.
                self.give_up();
            } else {
                self.abandon("the session's vault or compartment died on this workstation")?;
            }
            closed?;
        }
        if self.login.is_some() && !self.link.is_up() {
            self.reconnect()?;
        } else {
            self.down = None;
        }
        if let Some((session, reason)) = self.due.failed.take()
            && self.session.as_ref().is_some_and(|live| live.id == session)
        {
            let closed = self.close_here();
            self.abandon(&format!("no new keys: {reason}"))?;
            closed?;
        }
        if std::mem::take(&mut self.due.renew)
            && !self.no_tunnel
            && let Some((record, parts)) =
                self.session.as_ref().map(|live| (live.keys.clone(), live.parts.clone()))
        {
            // Packets wait in the vault meanwhile. What comes of it the keyer says if it is nothing.
            let server = self.tunnel;
            // A keyer that is not there is asked when it comes.
            let passes = self.session.as_mut().map(|live| some(&mut live.passes)).unwrap_or_default();
            let _ = self.tell_keyer(ToKeyer::Connect { record, server, passes });
            let _ = self.admit_parts(parts);
        }
        Ok(())
    }

    fn reconnect(&mut self) -> Done<()> {
        let Some(session) = self.session.as_ref().map(|live| live.id) else {
            // A login without a session is not kept by the server. Why the path was lost, another try may say: this host may be revoked.
            self.login = None;
            let why = self.why_lost().map_or_else(String::new, |why| format!(": {why}"));
            self.ended = Some(format!("the trusted path was lost before a session was open{why}"));
            return Ok(());
        };
        if self.is_silent() {
            self.give_up();
            return self.close_here();
        }
        let now = Instant::now();
        let (due, pause) = *self.down.get_or_insert((now, Duration::from_millis(100)));
        if now < due {
            return Ok(());
        }
        self.down = Some((now + pause, (pause * 2).min(Duration::from_secs(2))));
        if self.link.connect(&mut self.events).is_err() {
            return Ok(());
        }
        match self.ask(&Request::Resume(session)) {
            Ok(Reply::Resumed(status)) => {
                self.down = None;
                self.lock_as_the_server(status.locked)
            }
            Ok(Reply::Refused { kind: RefusalKind::Unavailable, .. }) => {
                self.link.close();
                Ok(())
            }
            Ok(other) => {
                self.link.close();
                self.login = None;
                self.ended = Some(match other {
                    Reply::Refused { reason, .. } => reason,
                    _ => "the server does not take the session up again".into(),
                });
                self.close_here()
            }
            // The path broke again: another try follows.
            Err(NotDone::Refused(..)) => Ok(()),
            Err(fatal) => Err(fatal),
        }
    }

    /// What a server says that has let go of a path. A list of who is revoked comes to all of its processes, one after the other, so that the
    /// first try may be lost as the path was.
    fn why_lost(&mut self) -> Option<String> {
        let until = Instant::now() + Duration::from_secs(1);
        loop {
            let why = self.link.connect(&mut self.events).err();
            self.link.close();
            if why.is_none() || Instant::now() >= until {
                return why;
            }
            link::pause();
        }
    }

    /// Whether the server has not been heard for longer than it keeps the session.
    fn is_silent(&self) -> bool {
        let patience = self.session.as_ref().map(|live| live.patience);
        patience.is_some_and(|patience| clock::since_boot() >= self.link.heard().saturating_add(patience))
    }

    /// There is no server to be told of the end.
    fn give_up(&mut self) {
        self.link.close();
        self.login = None;
        let why = self.link.failure().map_or_else(String::new, |why| format!(": {why}"));
        self.ended = Some(format!("the server was not heard for longer than it keeps a session{why}"));
    }

    /// What the keyer may negotiate for the session.
    pub(super) fn key_record(&self, opened: &Opened) -> KeyRecord {
        KeyRecord {
            session: opened.session,
            device: self.device.clone(),
            label: opened.label.clone(),
            inner: opened.inner.clone(),
            reach: granted::addresses(&opened.reach),
            carriage: opened.carriage,
            ciphers: opened.protected.ciphers.clone(),
            key_life: opened.protected.key_life,
        }
    }

    /// The parts of a session at the site's other servers: each under a name that counts on this workstation alone.
    pub(super) fn parts(&self, opened: &Opened) -> Vec<Part> {
        let mut parts = Vec::new();
        for (number, other) in (1u8..=64).zip(&opened.others) {
            let mut name = *opened.session.as_bytes();
            name[15] ^= number;
            let (session, reach) = (SessionId::from_random(name), granted::addresses(&other.reach));
            let record = KeyRecord { session, reach, ..self.key_record(opened) };
            let reach = other.reach.clone();
            parts.push(Part { record, reach, server: other.tunnel, name: other.name.clone() });
        }
        parts
    }

    /// Has the keyer know the other servers, to which it goes once there is a packet for them.
    fn admit_parts(&mut self, parts: Vec<Part>) -> Done<()> {
        parts.into_iter().try_for_each(|Part { record, server, name, .. }| {
            self.tell_keyer(ToKeyer::Admit { record, server, name })
        })
    }

    /// Has the keyer negotiate the session's first keys, and waits until the vault has them.
    fn negotiate(&mut self, record: KeyRecord, passes: Vec<Pass>) -> Done<()> {
        let session = record.session;
        self.mail.keyer.clear();
        let server = self.tunnel;
        self.tell_keyer(ToKeyer::Connect { record, server, passes })?;
        self.wait_for(KEYER, "the keyer does not answer", |agent| match agent.mail.keyer.pop_front() {
            Some(FromKeyer::Completed(done)) if done == session => Some(Ok(())),
            Some(FromKeyer::Failed { session: failed, reason }) if failed == session => {
                Some(unavailable(format!("no keys: {reason}")))
            }
            _ => agent.given_up(session),
        })
    }

    fn tell_keyer(&mut self, message: ToKeyer) -> Done<()> {
        if !self.keyer.is_open() {
            return unavailable(NO_KEYER);
        }
        self.keyer.send(message);
        Ok(())
    }

    /// Asks the server and waits for its answer.
    pub(super) fn ask(&mut self, request: &Request) -> Done<Reply> {
        self.mail.answers.clear();
        self.link.send(request).or_else(unavailable)?;
        let is_login = matches!(request, Request::Login { .. });
        let answer = |agent: &mut Self| match agent.mail.answers.pop_front() {
            Some(reply) => Some(Ok(reply)),
            // Others want to sign on.
            None if is_login && agent.is_deserted() => Some(unavailable(DESERTED)),
            None if !agent.link.is_up() => Some(Err(lost("the trusted path was lost"))),
            None => None,
        };
        let whole = patience(request) + SLACK;
        if let Some((soon, why)) = slow(request) {
            match self.wait_for(soon, "", |agent| answer(agent).map(Ok)) {
                Ok(answer) => return answer,
                Err(NotDone::Fatal(why)) => return Err(NotDone::Fatal(why)),
                Err(NotDone::Refused(..)) => self.tell(why),
            }
        }
        self.wait_for(whole, "the server does not answer", answer)
    }

    /// Whether the person whose command is being carried out has gone.
    fn is_deserted(&self) -> bool {
        self.person.is_some_and(|person| !self.people.is_here(person))
    }

    /// Says something to the person whose command is being carried out; the answer is still to come.
    fn tell(&mut self, what: String) {
        if let Some(person) = self.person {
            self.people.tell(person, &Answer::Waiting(what));
        }
    }

    /// Lets everything go on until `found` finds what is waited for.
    pub(super) fn wait_for<T>(
        &mut self,
        limit: Duration,
        late: &str,
        mut found: impl FnMut(&mut Self) -> Option<Done<T>>,
    ) -> Done<T> {
        let deadline = Instant::now() + limit;
        loop {
            let mut seen = usize::MAX;
            // `found` looks at one message at a time and gives back `None` for those that are not the one.
            while seen > 0 {
                if let Some(result) = found(self) {
                    return result;
                }
                let left = self.mail.left();
                if left >= seen {
                    break;
                }
                seen = left;
            }
            if self.stop {
                return unavailable("the workstation's warden ends this agent");
            }
            if Instant::now() >= deadline {
                return unavailable(late);
            }
            self.pump(deadline).map_err(NotDone::Fatal)?;
        }
    }
}

fn lost(reason: &str) -> NotDone {
    NotDone::Refused(RefusalKind::Unavailable, reason.to_owned())
}

pub(super) fn refused<T>(reply: Reply) -> Done<T> {
    match reply {
        Reply::Refused { kind, reason } => Err(NotDone::Refused(kind, reason)),
        _ => {
            Err(NotDone::Refused(RefusalKind::Protocol, "the server gave an answer to something else".into()))
        }
    }
}

/// Some of the passes, for one go at negotiating: the others are for another time.
fn some(passes: &mut Vec<Pass>) -> Vec<Pass> {
    passes.split_off(passes.len().saturating_sub(PASSES_AT_ONCE))
}
