//! The people's side: connections of `levee-tpe` commands, one command each.

use levee_ipc::client::RefusalKind;
use levee_ipc::tpe::{Answer, Command};
use levee_ipc::warden::TpeRequest;
use levee_ipc::{Channel, Received, RecvError};
use rustix::net::{SocketFlags, accept_with};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// More connections than this wait in the listener's queue.
const MAX: usize = 64;
/// A connection says what it wants within this time.
const DEADLINE: Duration = Duration::from_secs(5);
/// SIGHUP: the person's command is gone.
const HANGUP: i32 = 1;

/// A connection, by the agent's own number.
pub type Person = u64;

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
    /// Start a program.
    Run {
        /// Whose.
        person: Person,
        /// For the warden.
        request: TpeRequest,
        /// Standard input, output and error.
        fds: Vec<OwnedFd>,
    },
    /// Send a signal to a program.
    Signal {
        /// Which.
        ticket: u64,
        /// Its number.
        signal: i32,
    },
}

/// Every connection there is.
pub struct People {
    listener: OwnedFd,
    connections: BTreeMap<Person, (Channel, Stage)>,
    commands: VecDeque<(Person, Command)>,
    next: u64,
}

impl People {
    /// Nobody yet.
    pub fn new(listener: OwnedFd) -> Result<Self, String> {
        rustix::io::ioctl_fionbio(&listener, true).map_err(|e| format!("the listener: {e}"))?;
        Ok(Self { listener, connections: BTreeMap::new(), commands: VecDeque::new(), next: 1 })
    }

    /// Whether anybody is here.
    pub fn any(&self) -> bool {
        !self.connections.is_empty()
    }

    /// What to wait for.
    pub fn interest(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let listener = (self.connections.len() < MAX).then(|| self.listener.as_fd());
        listener.into_iter().chain(self.connections.values().map(|(channel, _)| channel.as_fd()))
    }

    /// Lets in whoever has come.
    pub fn accept(&mut self) {
        while self.connections.len() < MAX {
            let Ok(fd) = accept_with(&self.listener, SocketFlags::CLOEXEC) else { return };
            self.connections.insert(self.next, (Channel::from_fd(fd), Stage::Silent(Instant::now())));
            self.next = self.next.saturating_add(1);
        }
    }

    /// The next command in turn.
    pub fn next_command(&mut self) -> Option<(Person, Command)> {
        self.commands.pop_front()
    }

    /// Answers, which ends the connection.
    pub fn answer(&mut self, person: Person, answer: &Answer) {
        if let Some((channel, _)) = self.connections.remove(&person) {
            // Somebody who does not read has lost the answer, not we.
            let _ = channel.try_send(answer);
        }
    }

    /// Says something before the answer.
    pub fn tell(&self, person: Person, what: &Answer) {
        if let Some((channel, _)) = self.connections.get(&person) {
            // As for the answer.
            let _ = channel.try_send(what);
        }
    }

    /// A program has ended, or could not be started.
    pub fn program_ended(&mut self, ticket: u64, status: Result<u8, String>) {
        let whose = self
            .connections
            .iter()
            .find(|(_, (_, stage))| matches!(stage, Stage::Running(running) if *running == ticket))
            .map(|(person, _)| *person);
        if let Some(person) = whose {
            let answer = match status {
                Ok(status) => Answer::Exited(status),
                Err(reason) => Answer::Refused { kind: RefusalKind::Unavailable, reason },
            };
            self.answer(person, &answer);
        }
    }

    /// The compartment is gone, and every program with it.
    pub fn programs_purged(&mut self) {
        let running: Vec<Person> = self
            .connections
            .iter()
            .filter(|(_, (_, stage))| matches!(stage, Stage::Running(_)))
            .map(|(person, _)| *person)
            .collect();
        for person in running {
            let reason = "the session ended, and its programs with it".to_owned();
            self.answer(person, &Answer::Refused { kind: RefusalKind::NoSession, reason });
        }
    }

    /// Takes what has come: commands into the queue, the rest out at once.
    pub fn hear(&mut self) -> Vec<Wish> {
        let mut wishes = Vec::new();
        let mut gone = Vec::new();
        for (&person, (channel, stage)) in &mut self.connections {
            loop {
                let Received { message, fds } = match channel.try_recv::<Command>() {
                    Ok(received) => received,
                    Err(RecvError::Empty) => break,
                    Err(_) => {
                        gone.push(person);
                        break;
                    }
                };
                match (&stage, message) {
                    (Stage::Silent(_), Command::Status) => {
                        *stage = Stage::Waiting;
                        wishes.push(Wish::Status(person));
                    }
                    (Stage::Silent(_), Command::Run { argv, env, terminal }) if fds.len() == 3 => {
                        // A person's number is never used twice, so it serves as its program's ticket too.
                        *stage = Stage::Running(person);
                        let request = TpeRequest::Run { ticket: person, argv, env, terminal };
                        wishes.push(Wish::Run { person, request, fds });
                    }
                    (Stage::Running(ticket), Command::Signal(signal)) => {
                        wishes.push(Wish::Signal { ticket: *ticket, signal });
                    }
                    (Stage::Silent(_), Command::Run { .. } | Command::Signal(_))
                    | (Stage::Waiting | Stage::Running(_), _) => {
                        gone.push(person);
                        break;
                    }
                    (Stage::Silent(_), command) => {
                        *stage = Stage::Waiting;
                        self.commands.push_back((person, command));
                    }
                }
            }
            if matches!(stage, Stage::Silent(since) if since.elapsed() >= DEADLINE) {
                gone.push(person);
            }
        }
        for person in gone {
            if let Some((_, Stage::Running(ticket))) = self.connections.remove(&person) {
                wishes.push(Wish::Signal { ticket, signal: HANGUP });
            }
        }
        wishes
    }
}
