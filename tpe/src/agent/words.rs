//! What the agent, its acceptor and the connection processes say to each other (`acceptor.rs`).
//!
//! A fuzz target reads every one of these; so this file names nothing of the agent's.

use levee_ipc::tpe::Command;
use serde::{Deserialize, Serialize};

/// A login of this host, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login(pub u32);

impl Login {
    /// Its number.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The person's uid on this host.
    pub uid: u32,
    /// In which login of it; `None` where logins have no numbers, and for root.
    pub login: Option<Login>,
}

impl Account {
    /// Whether it is root, who is always heard.
    pub fn is_root(self) -> bool {
        self.uid == 0
    }
}

/// The acceptor → the agent.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromAcceptor {
    /// Somebody has come. The channel to the connection process comes along.
    Came(Account),
    /// The same; but they are not to be heard, and why.
    Unheard(String),
    /// The login that was to be watched is over.
    Over(Login),
}

/// The agent → the acceptor: this login is to be watched, in the place of the one before.
#[derive(Debug, Serialize, Deserialize)]
pub struct Watch(pub Option<Login>);

/// The agent → a connection process. `A` is [`levee_ipc::tpe::Answer`], by reference where it is said.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToConnection<A> {
    /// Hear the person. Until then nothing of theirs is taken.
    Hear,
    /// The file that came along with their command is wanted.
    Fetch,
    /// Answer them; files may come along.
    Say(A),
}

/// A connection process → the agent.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromConnection {
    /// What the person says. A pseudo-terminal comes along where it says so.
    Said(Command),
    /// The answer to [`ToConnection::Fetch`]: a sealed memory file comes along, or why there is none.
    File(Result<(), String>),
}
