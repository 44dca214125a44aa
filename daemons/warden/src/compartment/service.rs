//! Unmodified services: what process 1 is told of each, and what it says of them. How one is started is for process 1 to say, which has no
//! power then.

use levee_policy::site::{Mode, Needs, Program, Protocol};
use levee_policy::{LabelName, ServiceName};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// A service, of which process 1 makes how it is started and what is written for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Its name.
    pub name: ServiceName,
    /// The label at which it runs.
    pub label: LabelName,
    /// What runs.
    pub program: Program,
    /// How it is mediated.
    pub mode: Mode,
    /// The protocol of its port.
    pub protocol: Protocol,
    /// Where it is reached, in the order in which it inherits the listeners.
    pub addresses: Vec<SocketAddr>,
    /// Whether people may change the label's documents by it.
    pub uploads: bool,
    /// The labels whose documents it shows: each has a directory in `/srv/below`.
    pub below: Vec<LabelName>,
    /// There may be others there later.
    pub more: bool,
    /// What it asks for.
    pub needs: Needs,
}

/// What has become of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How often it has been started.
    pub starts: u32,
    /// That it was started, and by what; or not, and why: told once.
    pub told: Option<Told>,
    /// Why it does not run, where it could not be started, and how long it rests.
    pub trouble: Option<(String, Duration)>,
}

/// What the audit log is to have of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Whether it was started.
    pub done: bool,
    /// By what, or why not.
    pub reason: String,
}

/// A program to start inside, as the uid and gid that all but process 1 has there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The warden's own number for it.
    pub ticket: u64,
    /// Absolute path, or a name that is looked up in `/usr/local/bin:/usr/bin:/usr/sbin`.
    pub program: String,
    /// The whole argument vector, the program's name first.
    pub argv: Vec<String>,
    /// The whole environment, each entry `NAME=value`.
    pub env: Vec<String>,
    /// Whether standard input comes along; without, it is `/dev/null` of the compartment's own, which process 1 opens.
    pub input: bool,
    /// Whether standard input is a terminal, to become the controlling one.
    pub terminal: bool,
    /// Which system calls it has, as far as the compartment has them.
    pub filter: Profile,
}

impl Launch {
    /// One that nobody writes to, whose program is the first of its arguments.
    pub fn command(ticket: u64, argv: Vec<String>, env: Vec<String>, needs: &Needs) -> Self {
        let (program, filter) = (argv.first().cloned().unwrap_or_default(), Profile::Service(needs.clone()));
        Self { ticket, program, argv, env, input: false, terminal: false, filter }
    }
}

/// The filter of a program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Profile {
    /// What every service has, and these groups.
    Service(Needs),
    /// What a virtual machine has.
    Machine,
}
