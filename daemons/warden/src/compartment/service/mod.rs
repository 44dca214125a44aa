//! Unmodified services: what each needs written, and how it is started so that it takes inherited listeners.

mod nginx;

pub use nginx::Nginx;

use levee_policy::site::Needs;
use serde::{Deserialize, Serialize};

use super::spec::SERVICE_UID;
use std::time::Duration;

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

/// A program to start inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The warden's own number for it.
    pub ticket: u64,
    /// Absolute path, or a name that is looked up in `/usr/local/bin:/usr/bin:/usr/sbin`.
    pub program: String,
    /// The whole argument vector, the program's name first.
    pub argv: Vec<String>,
    /// The whole environment, each entry `NAME=value`.
    pub env: Vec<String>,
    /// Uid and gid inside; not 0.
    pub uid: u32,
    /// Whether standard input comes along; without, it is `/dev/null` of the compartment's own, which process 1 opens.
    pub input: bool,
    /// Whether standard input is a terminal, to become the controlling one.
    pub terminal: bool,
    /// Which system calls it has, as far as the compartment has them.
    pub filter: Profile,
}

/// The filter of a program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Profile {
    /// What every service has, and these groups.
    Service(Needs),
    /// What a virtual machine has.
    Machine,
}

/// How to start one instance of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Absolute path of its program.
    pub program: String,
    /// The whole argument vector.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<String>,
    /// What it asks for.
    pub needs: Needs,
}

impl Launch {
    /// The message that starts it under `ticket`.
    pub fn start(&self, ticket: u64) -> Start {
        Start {
            ticket,
            program: self.program.clone(),
            argv: self.argv.clone(),
            env: self.env.clone(),
            uid: SERVICE_UID,
            input: false,
            terminal: false,
            filter: Profile::Service(self.needs.clone()),
        }
    }
}
