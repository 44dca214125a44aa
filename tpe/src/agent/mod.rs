//! The workstation's agent: holds the trusted path, and plays sessiond's part towards the local vault and keyer.
//!
//! What a person asks for is done one thing after the other, each a straight sequence in [`operations`]; while it
//! waits, [`Agent::pump`] keeps everything else going.

mod acceptor;
mod carry;
mod changing;
mod granted;
mod link;
mod locking;
mod logins;
mod operations;
mod people;
mod programs;
mod releasing;
mod seat;
mod start;
mod words;

use carry::Spool;
use levee_daemon::{Events, Fatal, Order, Outbox, TURN, Warden};
use levee_ipc::client::{Login, Reached, Reply};
use levee_ipc::keyer::{FromKeyer, KeyRecord, Pass, ToKeyer};
use levee_ipc::tpe::{Answer, Input, Session};
use levee_ipc::vault::{SessionRecord, SessiondToVault, VaultToSessiond};
use levee_ipc::warden::tpe::TpePart;
use levee_ipc::warden::{TpeRequest, WorkstationEvent};
use levee_policy::site::Suites;
use levee_policy::{DomainName, HostName, LabelName, ProtectionName};
use levee_session::SessionId;
use levee_tls::SignerHandle;
pub use link::unwelcome;
use link::{Heard, Link};
use people::{Asked, People};
pub use seat::Seat;
pub use start::serve;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Programs that have no terminal, at most: each may have two files of [`levee_ipc::tpe::MAX_CARRIED`] in memory.
const MOST_SPOOLED: usize = 8;
/// Time is looked at this often while there is a login.
const TICK: Duration = Duration::from_millis(500);
/// Of what came from one peer and nobody waited for, so much is kept.
const MOST_MAIL: usize = 256;

/// A connection, by the agent's own number.
pub type Person = u64;

/// What is waited for.
#[derive(Clone, Copy, Debug)]
enum Source {
    Warden,
    Keyer,
    Vault,
    /// The trusted path.
    Link,
    /// Somebody who comes.
    Acceptor,
    /// Somebody who is here.
    Person(Person),
    /// Of a program without a terminal: one of its outputs.
    Spool(Person),
}

/// The session there is.
struct Live {
    id: SessionId,
    shown: Session,
    /// The protection that its person asked for.
    asked: Option<ProtectionName>,
    /// Without a word from the server for so long it ends here too.
    patience: Duration,
    /// What the keyer is told, when it is to negotiate anew.
    keys: KeyRecord,
    /// And of the site's other servers.
    parts: Vec<Part>,
    /// What the local vault knows of it and of its parts.
    records: Vec<SessionRecord>,
    /// Whether nothing of it passes until its person has proved themself.
    locked: bool,
    /// What the server's keyer knows us by, each good once.
    passes: Vec<Pass>,
}

/// The part of the session at another server of the site.
#[derive(Clone)]
struct Part {
    record: KeyRecord,
    /// What the session may reach there.
    reach: Vec<Reached>,
    /// Where it receives the tunnel.
    server: SocketAddr,
    /// The name in its certificate.
    name: DomainName,
}

/// What came in while the agent waited for something else.
#[derive(Default)]
struct Mail {
    answers: VecDeque<Reply>,
    keyer: VecDeque<FromKeyer>,
    warden: VecDeque<WorkstationEvent>,
    vault: VecDeque<VaultToSessiond>,
}

impl Mail {
    /// What is oldest makes room.
    fn put<T>(queue: &mut VecDeque<T>, what: T) {
        if queue.len() >= MOST_MAIL {
            queue.pop_front();
        }
        queue.push_back(what);
    }

    fn left(&self) -> usize {
        self.answers.len() + self.keyer.len() + self.warden.len() + self.vault.len()
    }
}

/// What must be seen to once the present operation is over.
#[derive(Default)]
struct Due {
    /// The server has ended the session.
    ended: Option<String>,
    /// It has locked the session.
    lock: bool,
    /// It has signed the person off as well.
    signed_off: bool,
    /// The compartment or vault of this session is dead.
    died: Option<SessionId>,
    /// The server's keyer does not know us, or ours is new.
    renew: bool,
    /// The login of this host is over in which whoever is signed on had signed on.
    left: bool,
    /// The keyer can have no keys any more for this session.
    failed: Option<(SessionId, String)>,
}

struct Agent {
    events: Events<Source>,
    warden: Warden<TpePart>,
    keyer: Outbox<ToKeyer>,
    vault: Option<(LabelName, Outbox<SessiondToVault>)>,
    signer: SignerHandle,
    certificates: Certificates,
    link: Link,
    /// This workstation, as its certificate names it.
    device: HostName,
    /// Another IPsec client of this host makes the tunnel.
    no_tunnel: bool,
    people: People,
    /// Standard output and error of the programs that have no terminal, by ticket.
    spools: BTreeMap<u64, Vec<Spool>>,
    /// Of these, those that have ended.
    over: VecDeque<(u64, u8)>,
    /// Whose command is being carried out.
    person: Option<Person>,
    login: Option<Login>,
    session: Option<Live>,
    ended: Option<String>,
    /// What the server has said last to whoever is signed on.
    notice: Option<String>,
    mail: Mail,
    due: Due,
    /// The trusted path is down: when to try again, and how long to wait the next time.
    down: Option<(Instant, Duration)>,
    /// What the warden knows of when the server was heard.
    heard: Duration,
    /// Where the server receives the tunnel.
    tunnel: SocketAddr,
    /// Where this host takes it instead, if it goes through a second one.
    through: Option<SocketAddr>,
    stop: bool,
}

/// What the server is believed by, kept for the next revocation list.
struct Certificates {
    chain: Vec<u8>,
    authority: Vec<u8>,
    suites: Suites,
}

impl Agent {
    fn run(&mut self) -> Result<(), Fatal> {
        while !self.stop {
            let wait =
                if self.login.is_some() || self.people.any() { TICK } else { Duration::from_secs(3600) };
            self.pump(Instant::now() + wait)?;
            self.settle()?;
            while !self.is_locked()
                && let Some((ticket, status)) = self.over.pop_front()
            {
                self.let_out(ticket, status)?;
                self.settle()?;
            }
            while !self.stop
                && let Some((person, asked)) = self.people.next_asked()
            {
                match asked {
                    Asked::Import(program) => self.let_in(person, program)?,
                    Asked::Command(command) => {
                        self.person = Some(person);
                        let answer = self.carry_out(command);
                        self.person = None;
                        self.people.answer(person, &answer?);
                    }
                }
                self.settle()?;
            }
        }
        self.link.close();
        Ok(())
    }

    /// Waits until something comes, or `until`, and sorts it.
    fn pump(&mut self, until: Instant) -> Result<(), Fatal> {
        // Before anybody is let in: whoever has been told that nobody is signed on any more counts on it.
        if self.login.is_none() {
            self.people.left();
            self.due.left = false;
        }
        let left = until.saturating_duration_since(Instant::now()).min(Duration::from_secs(3600));
        for (source, _) in self.events.wait(Some(left))? {
            match source {
                Source::Warden => self.hear_warden()?,
                Source::Keyer => self.hear_keyer(),
                Source::Vault => self.hear_vault(),
                // Seen to with every turn: time counts there, too.
                Source::Link => {}
                Source::Acceptor => self.due.left |= self.people.accept(&mut self.events)?,
                Source::Person(person) => self.hear_person(person),
                Source::Spool(ticket) => {
                    for spool in self.spools.get_mut(&ticket).into_iter().flatten() {
                        spool.turn();
                    }
                }
            }
        }
        for wish in self.people.late() {
            self.grant(wish);
        }
        for heard in self.link.turn() {
            match heard {
                Heard::Answer(reply) => Mail::put(&mut self.mail.answers, reply),
                Heard::Notice(Reply::Ended { reason }) => self.due.ended = Some(reason),
                Heard::Notice(Reply::Notice { reason }) => self.notice = Some(reason),
                Heard::Notice(Reply::LockedUnasked { .. }) => self.due.lock = true,
                Heard::Notice(Reply::SignedOff { reason }) => {
                    (self.due.ended, self.due.signed_off) = (Some(reason), true);
                }
                Heard::Notice(Reply::Renew { passes, carriage }) => {
                    self.due.renew = true;
                    if let Some(live) = &mut self.session {
                        live.passes = passes;
                        live.keys.carriage = carriage;
                        // The others come to have it in force as well.
                        live.parts.iter_mut().for_each(|part| part.record.carriage = carriage);
                    }
                }
                Heard::Notice(_) => self.due.renew = true,
            }
        }
        if self.link.heard() > self.heard && !self.no_tunnel {
            self.heard = self.link.heard();
            self.warden.say(TpeRequest::Heard(self.heard));
        }
        Ok(())
    }

    fn hear_warden(&mut self) -> Result<(), Fatal> {
        for _ in 0..TURN {
            let (part, with) = match self.warden.hear()? {
                Some(Order::Take(part, with)) => (part, with),
                Some(Order::Stop) => {
                    self.stop = true;
                    return Ok(());
                }
                None => return Ok(()),
            };
            match part {
                TpePart::Keyer => {
                    self.keyer.replace(with.channel()?, &mut self.events, Source::Keyer)?;
                    self.due.renew = true;
                }
                TpePart::Vault(label) => {
                    let mut vault = Outbox::new();
                    vault.replace(with.channel()?, &mut self.events, Source::Vault)?;
                    self.vault = Some((label, vault));
                }
                TpePart::Signer => self.signer.set(with.channel()?),
                TpePart::Revocations => self.revocations(&with.one()?),
                TpePart::Workstation(event) => self.heard_of(event),
                other => return Err(Warden::unwanted(&other)),
            }
        }
        Ok(())
    }

    fn heard_of(&mut self, event: WorkstationEvent) {
        match event {
            WorkstationEvent::Exited { ticket, status: Ok(status) } if self.spools.contains_key(&ticket) => {
                self.over.push_back((ticket, status));
            }
            WorkstationEvent::Exited { ticket, status } => {
                self.spools.remove(&ticket);
                self.people.program_ended(ticket, status);
            }
            WorkstationEvent::Died(session) => {
                Mail::put(&mut self.mail.warden, WorkstationEvent::Died(session));
                self.due.died = Some(session);
            }
            event => Mail::put(&mut self.mail.warden, event),
        }
    }

    /// A revocation list has come: the server shows its certificate again, on a new path.
    fn revocations(&mut self, fd: &OwnedFd) {
        let own = &self.certificates;
        let list = levee_daemon::revocations(fd).map_err(|e| e.to_string());
        let config = list.and_then(|revoked| {
            levee_tls::client(&own.chain, &own.authority, Some(&revoked), &self.signer, own.suites)
                .map_err(|e| e.to_string())
        });
        match config {
            Ok(config) => self.link.believe_by(config),
            // The one before it, or none, goes on counting.
            Err(why) => levee_ipc::say!("levee-tpe: the revocation list is not used: {why}"),
        }
    }

    fn hear_keyer(&mut self) {
        for _ in 0..TURN {
            match self.keyer.hear::<FromKeyer>() {
                Ok(Some(FromKeyer::Failed { session, reason }))
                    if self.session.as_ref().is_some_and(|live| live.id == session) =>
                {
                    self.due.failed = Some((session, reason));
                }
                Ok(Some(message)) => Mail::put(&mut self.mail.keyer, message),
                // Its end is for the warden to see, which starts another.
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn hear_vault(&mut self) {
        for _ in 0..TURN {
            let Some((_, vault)) = &mut self.vault else { return };
            match vault.hear::<VaultToSessiond>() {
                Ok(Some(message)) => Mail::put(&mut self.mail.vault, message),
                Ok(None) => return,
                // Its end is for the warden to report.
                Err(_) => self.vault = None,
            }
        }
    }

    fn hear_person(&mut self, person: Person) {
        for wish in self.people.hear(person) {
            self.grant(wish);
        }
    }

    /// Does what can be done at once, whatever else goes on.
    fn grant(&mut self, wish: people::Wish) {
        match wish {
            people::Wish::Status(person) => {
                let answer = Answer::Status(self.status());
                self.people.answer(person, &answer);
            }
            people::Wish::Active(person) => {
                self.link.used();
                let answer = Answer::Status(self.status());
                self.people.answer(person, &answer);
            }
            people::Wish::Run { person, program } => {
                self.link.used();
                // What is asked for without a session is for none that comes later.
                let started = match program.input {
                    Input::Import => self.runs_programs().map(|()| self.people.import(person, program)),
                    _ => self.start_program(person, program, None),
                };
                if let Err((kind, reason)) = started {
                    self.people.answer(person, &Answer::Refused { kind, reason });
                }
            }
            people::Wish::Signal { ticket, signal } => {
                self.warden.say(TpeRequest::Signal { ticket, signal });
            }
        }
    }

    /// Why the server was not reached when that was tried last.
    fn unreached(&self) -> Option<String> {
        self.link.failure()
    }

    fn status(&self) -> levee_ipc::tpe::Status {
        levee_ipc::tpe::Status {
            connected: self.link.is_up(),
            user: self.login.as_ref().map(|login| login.user.clone()),
            labels: self.login.as_ref().map(|login| login.labels.clone()).unwrap_or_default(),
            lattice: self.login.as_ref().and_then(|login| login.lattice.clone()),
            session: self.session.as_ref().map(|live| live.shown.clone()),
            locked: self.is_locked(),
            ended: self.ended.clone(),
            notice: self.unreached().or_else(|| self.notice.clone()),
        }
    }
}
