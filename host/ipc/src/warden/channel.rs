//! The warden ↔ a one-way channel between two partitions, or the one end of it that is on this host.

use super::{Part, Peer, Role};
use levee_policy::ChannelName;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What it has carried and refused, by name.
#[derive(Debug, Serialize, Deserialize)]
pub struct Counted(#[serde(deserialize_with = "crate::said::counts")] pub Vec<(String, u64)>);

/// What its messages may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Bytes of one.
    pub size: u32,
    /// Bytes in a second.
    pub rate: u64,
    /// Whether the reader gets each with its number.
    pub numbered: bool,
}

/// The wire to the other host, where one end is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// The channel's name, which both hosts know it by.
    pub name: ChannelName,
    /// Whether this host sends. Else it receives.
    pub sends: bool,
    /// The other host's address and port.
    pub peer: SocketAddr,
    /// Octets of a datagram, at most.
    pub datagram: u32,
    /// Repair symbols for a hundred others.
    pub repair: u32,
}

/// What a channel is given and told.
#[derive(Debug, Serialize, Deserialize)]
pub enum ChannelPart {
    /// What its messages may be.
    Shape(Shape),
    /// The wire, where one end is on another host: a UDP socket by which only one of the two can be done, and the file with the key; where
    /// this one receives, also the file that says up to where the other was heard, which it writes.
    Wire(Wire),
    /// The file with the key that will follow that one, where there is one: what is sealed with either is taken.
    Next,
    /// The keys in the place of those before: the file with the one in use, and where `next` says so that of the one that will follow it.
    Keys {
        /// Whether there is another.
        next: bool,
    },
    /// The end of the partition that writes, from which it can only read: in the place of one before it.
    Below,
    /// The end of the partition that reads, to which it can only write: in the place of one before it.
    Above,
    /// Say what has been carried.
    Report,
}

impl Part for ChannelPart {
    const ROLES: &[Role] = &[Role::Channel];
    type Says = Counted;

    fn channel(_: &Peer) -> Option<Self> {
        None
    }

    fn descriptors(&self) -> usize {
        match self {
            Self::Shape(_) | Self::Report => 0,
            Self::Below | Self::Above | Self::Next | Self::Keys { next: false } => 1,
            Self::Wire(wire) if wire.sends => 2,
            Self::Keys { next: true } => 2,
            Self::Wire(_) => 3,
        }
    }

    fn is_late(&self) -> bool {
        !matches!(self, Self::Shape(_) | Self::Wire(_) | Self::Next)
    }
}
