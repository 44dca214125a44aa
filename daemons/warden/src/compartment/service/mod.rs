//! Unmodified services: what each needs written, and how it is started so that it takes inherited listeners.

mod nginx;

pub use nginx::Nginx;

use levee_policy::site::Needs;
use serde::{Deserialize, Serialize};

use super::proto::{Profile, Start};
use super::spec::SERVICE_UID;

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
