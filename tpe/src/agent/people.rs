//! The people's side: connections of `levee-tpe` commands, one command each. A process of its own hears each person
//! ([`super::acceptor`]); no descriptor of theirs but a pseudo-terminal gets here.

pub use super::Person;
use super::Source;
use super::words::{Account, FromAcceptor, FromConnection, Login, ToConnection, Watch};
use levee_daemon::{Events, Fatal, TURN, Watched};
use levee_ipc::client::RefusalKind;
use levee_ipc::tpe::{Answer, Command, Input, Output};
use levee_ipc::{Channel, Received, RecvError};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A connection says what it wants within this time.
const DEADLINE: Duration = Duration::from_secs(5);
/// Said to whom is not heard.
const ANOTHER: &str = "somebody else is signed on at this workstation, or you are in another login of it";
/// SIGHUP: the person's command is gone.
const HANGUP: i32 = 1;

enum Stage {
    /// Nothing heard yet.
    Silent(Instant),
    /// Its command waits, or is being carried out.
    Waiting,
    /// Its program, by ticket, runs.
    Running(u64),
}

/// What can be done at once, whatever else goes on.
pub enum Wish {
    /// What is so now?
    Status(Person),
    /// The same; and the person has done something.
    Active(Person),
    /// Start a program.
    Run {
        /// Whose.
        person: Person,
        /// What.
        program: Program,
    },
    /// Send a signal to a program.
    Signal {
        /// Which.
        ticket: u64,
        /// Its number.
        signal: i32,
    },
}

/// A program that is to be started.
pub struct Program {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Environment.
    pub env: Vec<String>,
    /// What it reads.
    pub input: Input,
    /// Where it writes.
    pub output: Output,
    /// The pseudo-terminal that came along.
    pub terminal: Option<OwnedFd>,
}

/// What is done one after the other, whoever asks.
pub enum Asked {
    /// A command.
    Command(Command),
    /// A program whose standard input is to be recorded before it starts.
    Import(Program),
}

struct Connection {
    channel: Watched<Channel>,
    stage: Stage,
    /// Who it is to this host.
    account: Account,
}

/// Every connection there is.
pub struct People {
    acceptor: Watched<Channel>,
    connections: BTreeMap<Person, Connection>,
    /// Who sits here: nobody else, root excepted, has a say until they have signed off, nor have they in another login.
    owner: Option<Account>,
    /// Of those alone who are here: what somebody asked for who has gone is asked by nobody.
    asked: VecDeque<(Person, Asked)>,
    /// When an account was served last, by a count of what was done, for as long as it has connections.
    served: BTreeMap<u32, u64>,
    /// Whose file is being fetched, and what has come of it.
    fetched: Option<(Person, Option<Result<OwnedFd, String>>)>,
    next: u64,
}

impl People {
    /// Nobody yet.
    ///
    /// # Errors
    /// The acceptor cannot be waited for.
    pub fn new(acceptor: Channel, events: &mut Events<Source>) -> Result<Self, Fatal> {
        let watched = events.watch(acceptor, Source::Acceptor);
        Ok(Self {
            acceptor: watched.map_err(|why| Fatal::new("wait for commands", why))?,
            connections: BTreeMap::new(),
            owner: None,
            asked: VecDeque::new(),
            served: BTreeMap::new(),
            fetched: None,
            next: 1,
        })
    }

    /// Whether anybody is here.
    pub fn any(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Whether somebody has a say here.
    fn is_heard(&self, account: Account) -> bool {
        account.is_root() || self.owner.is_none_or(|owner| owner == account)
    }

    /// This person has signed on.
    pub fn sits(&mut self, person: Person) {
        let Some(account) = self.connections.get(&person).map(|connection| connection.account) else {
            return;
        };
        self.owner = Some(account);
        self.watch(account.login);
        let others = self.connections.iter().filter(|(_, connection)| !self.is_heard(connection.account));
        for other in others.map(|(person, _)| *person).collect::<Vec<_>>() {
            self.remove(other);
        }
    }

    /// The one way in which a connection ends: with all that it asked for, so that nothing of it is done in the name of who comes next.
    fn remove(&mut self, person: Person) -> Option<Connection> {
        self.asked.retain(|(whose, _)| *whose != person);
        self.connections.remove(&person)
    }

    /// Nobody is signed on.
    pub fn left(&mut self) {
        if self.owner.take().is_some_and(|account| account.login.is_some()) {
            self.watch(None);
        }
    }

    /// Has the acceptor watch over a login.
    fn watch(&self, login: Option<Login>) {
        // One that is gone is heard of, and takes this process with it.
        let _ = self.acceptor.try_send(&Watch(login));
    }

    /// Lets in whoever has come; whether the login of who sits here is over.
    ///
    /// # Errors
    /// The acceptor is gone: nobody would be heard any more.
    pub fn accept(&mut self, events: &mut Events<Source>) -> Result<bool, Fatal> {
        let mut is_over = false;
        for _ in 0..TURN {
            let received = match self.acceptor.try_recv::<FromAcceptor>() {
                Ok(received) => received,
                Err(RecvError::Empty) => return Ok(is_over),
                Err(why) => return Err(Fatal::new("hear of connections", why)),
            };
            let Received { message, mut fds } = received;
            let refusal = match &message {
                FromAcceptor::Over(login) => {
                    is_over |= self.owner.is_some_and(|owner| owner.login == Some(*login));
                    continue;
                }
                FromAcceptor::Came(account) if self.is_heard(*account) => None,
                FromAcceptor::Came(_) => Some((RefusalKind::AlreadyLoggedIn, ANOTHER)),
                FromAcceptor::Unheard(why) => Some((RefusalKind::Unavailable, why.as_str())),
            };
            let Some(channel) = fds.pop().map(Channel::from_fd) else { continue };
            if let Some((kind, reason)) = refusal {
                let answer = Answer::Refused { kind, reason: reason.to_owned() };
                // As for every answer.
                let _ = channel.try_send(&ToConnection::Say(&answer));
                continue;
            }
            let FromAcceptor::Came(account) = message else { continue };
            let hear = ToConnection::<&Answer>::Hear;
            let Ok(channel) = events.watch(channel, Source::Person(self.next)) else { continue };
            if channel.try_send(&hear).is_err() {
                continue;
            }
            let stage = Stage::Silent(Instant::now());
            self.connections.insert(self.next, Connection { channel, stage, account });
            self.next = self.next.saturating_add(1);
        }
        Ok(is_over)
    }

    /// Has a person's file fetched, which is then [`People::fetched`].
    pub fn fetch(&mut self, person: Person) {
        self.fetched = Some((person, None));
        if let Some(connection) = self.connections.get(&person) {
            // One that is gone is heard of.
            let _ = connection.channel.try_send(&ToConnection::<&Answer>::Fetch);
        }
    }

    /// What has come of the file that was to be fetched, once.
    pub fn fetched(&mut self, person: Person) -> Option<Result<OwnedFd, String>> {
        if !self.is_here(person) {
            return Some(Err("whoever wanted it carried in has gone".into()));
        }
        self.fetched.as_mut().filter(|(whose, _)| *whose == person)?.1.take()
    }

    /// What is next in turn: of the account that was served longest ago, so that none, by asking for much, keeps another waiting
    /// for more than one thing.
    pub fn next_asked(&mut self) -> Option<(Person, Asked)> {
        let Self { connections, asked, served, .. } = self;
        served.retain(|uid, _| connections.values().any(|connection| connection.account.uid == *uid));
        let uid = |person: &Person| connections.get(person).map(|connection| connection.account.uid);
        let last = |uid: Option<u32>| uid.and_then(|uid| served.get(&uid).copied()).unwrap_or_default();
        // (Of equals it is the first.)
        let (at, (person, _)) = asked.iter().enumerate().min_by_key(|(_, (person, _))| last(uid(person)))?;
        let turn = served.values().max().map_or(1, |last| last.saturating_add(1));
        served.extend(uid(person).map(|uid| (uid, turn)));
        asked.remove(at)
    }

    /// A program's standard input is to be recorded before it starts, in its turn.
    pub fn import(&mut self, person: Person, program: Program) {
        self.asked.push_back((person, Asked::Import(program)));
    }

    /// Whether a person still waits for an answer.
    pub fn is_here(&self, person: Person) -> bool {
        self.connections.contains_key(&person)
    }

    /// Answers with files, which ends the connection.
    pub fn answer_with(&mut self, person: Person, answer: &Answer, files: &[BorrowedFd<'_>]) {
        if let Some(connection) = self.remove(person) {
            // As below.
            let _ = connection.channel.try_send_with(&ToConnection::Say(answer), files);
        }
    }

    /// Answers, which ends the connection.
    pub fn answer(&mut self, person: Person, answer: &Answer) {
        if let Some(connection) = self.remove(person) {
            // One that has gone has lost the answer, not we.
            let _ = connection.channel.try_send(&ToConnection::Say(answer));
        }
    }

    /// Says something before the answer.
    pub fn tell(&self, person: Person, what: &Answer) {
        if let Some(connection) = self.connections.get(&person) {
            // As for the answer.
            let _ = connection.channel.try_send(&ToConnection::Say(what));
        }
    }

    /// A program has ended, or could not be started.
    pub fn program_ended(&mut self, ticket: u64, status: Result<u8, String>) {
        let whose = self
            .connections
            .iter()
            .find(|(_, one)| matches!(one.stage, Stage::Running(running) if running == ticket))
            .map(|(person, _)| *person);
        if let Some(person) = whose {
            let answer = match status {
                Ok(status) => Answer::Exited(status),
                Err(reason) => Answer::Refused { kind: RefusalKind::Unavailable, reason },
            };
            self.answer(person, &answer);
        }
    }

    /// The compartment is gone, and every program with it; what was to be carried into it is not for the next one.
    pub fn programs_purged(&mut self) {
        self.asked.retain(|(_, asked)| matches!(asked, Asked::Command(_)));
        let running: Vec<Person> = self
            .connections
            .iter()
            .filter(|(_, one)| matches!(one.stage, Stage::Running(_)))
            .map(|(person, _)| *person)
            .collect();
        for person in running {
            let reason = "the session ended, and its programs with it".to_owned();
            self.answer(person, &Answer::Refused { kind: RefusalKind::NoSession, reason });
        }
    }

    /// Takes what a person has said: a command into the queue, the rest out at once.
    pub fn hear(&mut self, person: Person) -> Vec<Wish> {
        let mut wishes = Vec::new();
        for _ in 0..TURN {
            let Some(Connection { channel, stage, .. }) = self.connections.get_mut(&person) else {
                return wishes;
            };
            let Received { message, mut fds } = match channel.try_recv::<FromConnection>() {
                Ok(received) => received,
                Err(RecvError::Empty) => return wishes,
                Err(_) => {
                    wishes.extend(self.leaves(person));
                    return wishes;
                }
            };
            let message = match message {
                FromConnection::Said(command) => command,
                FromConnection::File(file) => {
                    let file = file.and_then(|()| fds.pop().ok_or_else(|| "no file came along".into()));
                    if let Some((_, came)) = self.fetched.as_mut().filter(|(whose, _)| *whose == person) {
                        *came = Some(file);
                    }
                    continue;
                }
            };
            match (&*stage, message) {
                (Stage::Silent(_), Command::Status) => {
                    *stage = Stage::Waiting;
                    wishes.push(Wish::Status(person));
                }
                (Stage::Silent(_), Command::Active) => {
                    *stage = Stage::Waiting;
                    wishes.push(Wish::Active(person));
                }
                (Stage::Silent(_), Command::Run { argv, env, input, output }) => {
                    // A person's number is never used twice, so it serves as its program's ticket too.
                    *stage = Stage::Running(person);
                    let program = Program { argv, env, input, output, terminal: fds.pop() };
                    wishes.push(Wish::Run { person, program });
                }
                (Stage::Running(ticket), Command::Signal(signal)) => {
                    wishes.push(Wish::Signal { ticket: *ticket, signal });
                }
                (Stage::Silent(_), Command::Signal(_)) | (Stage::Waiting | Stage::Running(_), _) => {
                    wishes.extend(self.leaves(person));
                    return wishes;
                }
                (Stage::Silent(_), command) => {
                    *stage = Stage::Waiting;
                    self.asked.push_back((person, Asked::Command(command)));
                }
            }
        }
        wishes
    }

    /// Who has said nothing for too long goes.
    pub fn late(&mut self) -> Vec<Wish> {
        let is_late = |stage: &Stage| matches!(stage, Stage::Silent(since) if since.elapsed() >= DEADLINE);
        let late: Vec<Person> = self
            .connections
            .iter()
            .filter(|(_, one)| is_late(&one.stage))
            .map(|(person, _)| *person)
            .collect();
        late.into_iter().filter_map(|person| self.leaves(person)).collect()
    }

    /// A connection is over; its program hears of it.
    fn leaves(&mut self, person: Person) -> Option<Wish> {
        match self.remove(person) {
            Some(Connection { stage: Stage::Running(ticket), .. }) => {
                Some(Wish::Signal { ticket, signal: HANGUP })
            }
            _ => None,
        }
    }
}
