//! The warden ↔ a one-way channel between two partitions.

use super::{Part, Peer, Role};
use serde::{Deserialize, Serialize};

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

/// What a channel is given and told.
#[derive(Debug, Serialize, Deserialize)]
pub enum ChannelPart {
    /// What its messages may be.
    Shape(Shape),
    /// The end of the partition that writes, from which it can only read: in the place of one before it.
    Below,
    /// The end of the partition that reads, to which it can only write: in the place of one before it.
    Above,
    /// Say what has been carried.
    Report,
}

impl Part for ChannelPart {
    const ROLES: &[Role] = &[Role::Channel];
    type Says = Vec<(String, u64)>;

    fn channel(_: &Peer) -> Option<Self> {
        None
    }

    fn descriptors(&self) -> usize {
        usize::from(matches!(self, Self::Below | Self::Above))
    }

    fn is_late(&self) -> bool {
        !matches!(self, Self::Shape(_))
    }
}
