//! Where a trial runs.

use crate::client::Target;
use crate::role::Role;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Which server holds the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Home {
    /// The one that serves.
    Here,
    /// Another of the federation.
    Elsewhere,
}

/// One of levee's sites of a run: who holds the session, and whether it is of the earlier programs.
pub type Site = (Home, bool);

/// Where an arm's client runs, and what it talks to.
#[derive(Clone, Debug)]
pub struct Place {
    /// The client's role.
    pub role: Role,
    /// The server.
    pub target: Target,
    /// The client's addresses, to be taken one after the other; none where it has one only.
    pub sources: Vec<Ipv4Addr>,
    /// Its process, for its namespace's counters.
    pub server: u32,
    /// Whether the path is levee's tunnel, whose losses its own counters show.
    pub tunnel: bool,
    /// Whether levee takes part, and which of its sites: then that site's processes' time is the arm's.
    pub levee: Option<Site>,
}
