//! Where a trial runs.

use crate::client::Target;
use crate::experiment::Home;
use crate::role::Role;
use std::net::Ipv4Addr;

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
    /// Whether levee takes part, and which of its sites, by who holds the session: then that site's processes' time is the arm's.
    pub levee: Option<Home>,
}
