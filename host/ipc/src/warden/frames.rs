//! The warden ↔ what keeps the frames.

use super::{Part, Peer, Role};
use levee_policy::site::Quota;
use serde::{Deserialize, Serialize};

/// How time is cut, in microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// How long each slot takes, in their order; at least one.
    pub slots: Vec<u32>,
    /// Between the end of a slot and the beginning of the next.
    pub margin: u32,
    /// How long what does not stop may live on after its slot.
    pub stop: u32,
    /// For how many slots in what time a group may stop later than within the margin; any number, where there is none.
    pub late: Option<Quota>,
}

/// What it is given and told.
#[derive(Debug, Serialize, Deserialize)]
pub enum FramesPart {
    /// How time is cut.
    Frame(Frame),
    /// A group of processes: its control group's `cgroup.freeze`, `cgroup.events`, `cgroup.kill` and `cpu.stat`. It goes when the control group does.
    Group {
        /// Its number, which no other has had.
        number: u64,
        /// The slots in which it runs.
        slots: Vec<u16>,
    },
}

impl Part for FramesPart {
    const ROLES: &[Role] = &[Role::Frames];
    type Says = FramesState;

    fn channel(_: &Peer) -> Option<Self> {
        None
    }

    fn descriptors(&self) -> usize {
        match self {
            Self::Frame(_) => 0,
            Self::Group { .. } => 4,
        }
    }

    fn is_late(&self) -> bool {
        matches!(self, Self::Group { .. })
    }
}

/// How the frames were kept, so far: said about once a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FramesState {
    /// Groups that there are.
    pub groups: u64,
    /// Slots that have ended.
    pub ended: u64,
    /// Of these, slots after which the next began late, since not all had stopped within the margin.
    pub late: u64,
    /// From the end of a slot to when all had stopped, in microseconds: the median of the last 4,096.
    pub median: u32,
    /// And what 999 of 1,000 of them did not exceed.
    pub most: u32,
    /// Groups that were killed, since they did not stop.
    pub killed: u64,
    /// How often one used a processor for longer than the margin in a slot of others: what dies there frees its memory, though it is stopped.
    pub ran: u64,
    /// Groups that something keeps from stopping or from running, however often they were told: their numbers, at most 16.
    #[serde(deserialize_with = "crate::said::numbers")]
    pub stuck: Vec<u64>,
}
