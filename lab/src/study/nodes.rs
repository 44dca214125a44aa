//! The three places of the study of directions, where they are, and what answers in them.

use crate::host::processors;
use crate::role::Role;
use crate::server::Server;
use crate::tools::Tool;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Between the host outside and the place with a card: the host's end, and the card's.
pub(super) const CARD: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 219, 0, 1), Ipv4Addr::new(10, 219, 0, 2)];

/// Between the place with a card and the one without: the first's end, and the other's.
pub(super) const BETWEEN: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 220, 0, 1), Ipv4Addr::new(10, 220, 0, 2)];

pub(super) const PORT: u16 = 12_865;

/// As [`Tool`] has it.
pub(super) const IPERF3: u16 = 15_201;

/// One of the three, by the paper's words: its development system, its networked and its unprivileged virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dev,
    Networked,
    Unprivileged,
}

impl Node {
    pub(super) fn of(word: &str) -> io::Result<Node> {
        match word {
            "dev" => Ok(Node::Dev),
            "nvm" => Ok(Node::Networked),
            "uvm" => Ok(Node::Unprivileged),
            _ => Err(io::Error::other(format!("{word:?} is none of the three"))),
        }
    }
}

pub(super) fn role(netns: PathBuf, cpu: usize) -> Role {
    Role { netns: Some(netns), cgroup: None, cpu: Some(cpu), with_parent: true }
}

pub(super) fn serving() -> usize {
    processors() - 1
}

/// iperf3's server, once it answers there.
pub(super) fn iperf3(netns: &Path) -> io::Result<Server> {
    let child = Tool::Iperf3.serve(&role(netns.to_owned(), serving()))?;
    child.map(Server::of).ok_or_else(|| io::Error::other("iperf3 has no server"))
}
