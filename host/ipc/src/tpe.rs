//! `levee-tpe` as a command ↔ `levee-tpe` as the workstation's agent, on a Unix `SOCK_SEQPACKET` socket.

use crate::Secret;
use crate::client::{Accessible, Consent, Lattice, RefusalKind, Release, ReleaseId, Released};
use levee_policy::{DomainName, LabelName, ProtectionName, ServiceName, UserName};
use levee_prices::Told;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Command → agent. A connection carries one command; `Run` keeps it until the program ends.
#[derive(Debug, Serialize, Deserialize)]
pub enum Command {
    /// Sign a person on.
    Login {
        /// Who.
        user: UserName,
        /// Their password.
        password: Secret,
        /// The code of their second factor, where the site asks for one.
        code: Option<Secret>,
    },
    /// Open a session at this label, ending the one there is; with this protection beyond what every tunnel there has.
    Level(LabelName, Option<ProtectionName>),
    /// Start a program in the session's compartment. What [`Input`] and [`Output`] say comes along, the pseudo-terminal
    /// before the file.
    Run {
        /// Program and arguments.
        argv: Vec<String>,
        /// Environment, `NAME=value`.
        env: Vec<String>,
        /// Its standard input.
        input: Input,
        /// Its standard output and error.
        output: Output,
    },
    /// While a program runs: send it this signal.
    Signal(i32),
    /// What is so now?
    Status,
    /// What is so now? And the person has done something since this was asked last.
    Active,
    /// Lock the session.
    Lock,
    /// Unlock it.
    Unlock {
        /// The password of the person signed on.
        password: Secret,
        /// The code of their second factor, where the site asks for one.
        code: Option<Secret>,
    },
    /// Change the password of the person signed on.
    Passwd {
        /// The present one.
        old: Secret,
        /// The new one.
        new: Secret,
    },
    /// Which messages of guards wait for the person signed on?
    Releases,
    /// Show one of them.
    ShowRelease(ReleaseId),
    /// One that has been shown may pass, or may not.
    Release {
        /// Which.
        id: ReleaseId,
        /// SHA-256 of what was shown.
        digest: [u8; 32],
        /// What the person says.
        consent: Consent,
    },
    /// Which services at the session's level are for some people alone?
    Accesses,
    /// Somebody reaches a service of the person's there, or does not.
    Access {
        /// Which service.
        service: ServiceName,
        /// Who.
        user: UserName,
        /// Whether.
        admits: bool,
    },
    /// End the session and sign off.
    Logout,
}

/// What a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Nothing.
    None,
    /// A pseudo-terminal made for the purpose, never the person's own terminal.
    Terminal,
    /// A sealed memory file that is carried into the session, once the server has recorded it.
    Import,
}

/// Where a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// To nobody.
    Discard,
    /// To a pseudo-terminal made for the purpose.
    Terminal,
    /// To files that are carried out of the session when it has ended, once the server has recorded them. They come with
    /// [`Answer::Exited`]: standard output, then standard error.
    Export,
}

/// The most bytes that one file may have which is carried out of a session or into one.
pub const MAX_CARRIED: u64 = 64 << 20;

/// Agent → command.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Signed on; these labels may be chosen.
    LoggedIn {
        /// Labels, lowest first.
        labels: Vec<LabelName>,
        /// What they are made of, where they are too many to list.
        lattice: Option<Lattice>,
        /// The person's clearance.
        clearance: String,
    },
    /// The session is open, and its tunnel has keys.
    Opened(Session),
    /// The program has ended.
    Exited(u8),
    /// Answer to [`Command::Status`].
    Status(Status),
    /// The password is changed.
    PasswordChanged,
    /// Nothing of the session passes, here or at the server.
    Locked,
    /// It is in use again.
    Unlocked,
    /// Messages that wait, the oldest first.
    Releases(Vec<Release>),
    /// One of them, the whole of it.
    Message(Vec<u8>),
    /// What has become of a message.
    Released(Released),
    /// Services that are for some people alone.
    Accesses(Vec<Accessible>),
    /// It is so, and nothing passes by what was so before.
    AccessChanged,
    /// Signed off.
    LoggedOut,
    /// Not yet: the answer is still to come. In words for the person.
    Waiting(String),
    /// No, and why.
    Refused {
        /// For programs.
        kind: RefusalKind,
        /// For people.
        reason: String,
    },
}

/// The most that a session is said to reach.
pub const MAX_REACHED: usize = 128;

/// One thing that a session reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reachable {
    /// What it is called; nothing where it is a host of a network, or the server has not said it.
    pub service: Option<ServiceName>,
    /// The name of where it is; nothing where that has none.
    pub host: Option<DomainName>,
    /// The IP protocol's number: TCP or UDP.
    pub protocol: u8,
    /// Its port.
    pub port: u16,
    /// Its address.
    pub address: IpAddr,
}

/// A session as its person sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// As operators name it.
    pub id: String,
    /// Its label.
    pub label: LabelName,
    /// The banner's colour.
    pub colour: Option<String>,
    /// Its inner addresses.
    pub inner: Vec<IpAddr>,
    /// Where the services answer.
    pub services: Vec<IpAddr>,
    /// What is reached there and elsewhere, at most [`MAX_REACHED`].
    pub reach: Vec<Reachable>,
    /// How much more is.
    pub more: usize,
    /// What was asked of its tunnel beyond what every tunnel at its label has.
    pub protections: Vec<ProtectionName>,
    /// What its tunnel costs, or why nobody knows.
    pub costs: Told,
}

/// What is so now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Whether the trusted path to the server is up.
    pub connected: bool,
    /// Who is signed on.
    pub user: Option<UserName>,
    /// The labels that person may choose, lowest first.
    pub labels: Vec<LabelName>,
    /// What they are made of, where they are too many to list.
    pub lattice: Option<Lattice>,
    /// The session there is.
    pub session: Option<Session>,
    /// Whether that session is locked.
    pub locked: bool,
    /// Why the last session ended, if the server ended it.
    pub ended: Option<String>,
    /// Why the server is not reached; else what it has said last to whoever is signed on, if anything.
    pub notice: Option<String>,
}
