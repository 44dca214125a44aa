//! The warden ↔ a guard between two partitions.

use super::channel::Shape;
use super::{Part, Peer, Role};
use levee_policy::site::{Hours, Quota};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a guard holds its messages to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// What every channel has.
    pub shape: Shape,
    /// Messages that may pass.
    pub messages: Quota,
    /// Octets that may pass.
    pub octets: Quota,
    /// How long the filter may take for one message.
    pub answer: Duration,
    /// When messages may pass.
    pub hours: Option<Hours>,
    /// What they must fit: a JSON Schema.
    pub schema: Option<String>,
    /// How long they wait for people who release them; none are asked where it is not there.
    pub release: Option<Duration>,
}

/// What a guard is given and told.
#[derive(Debug, Serialize, Deserialize)]
pub enum GuardPart {
    /// What its messages may be.
    Bounds(Bounds),
    /// The end of the partition that writes, from which it can only read: in the place of one before it.
    Below,
    /// The end of the partition that reads, to which it can only write: in the place of one before it.
    Above,
    /// The end of the filter's partition, for questions and answers, with a number of its own: in the place of one before it.
    Filter(u64),
    /// A channel to sessiond.
    Sessiond,
    /// Say what has been carried.
    Report,
}

/// What a guard says to the warden.
#[derive(Debug, Serialize, Deserialize)]
pub enum GuardSays {
    /// What has been carried and refused.
    Counted(#[serde(deserialize_with = "crate::said::counts")] Vec<(String, u64)>),
    /// The filter at the end of this number does not answer, or says what nobody asked: it is to be started again.
    Stuck(u64, #[serde(deserialize_with = "crate::said::reason")] String),
}

impl Part for GuardPart {
    const ROLES: &[Role] = &[Role::Guard];
    type Says = GuardSays;

    fn channel(to: &Peer) -> Option<Self> {
        (to.role == Role::Sessiond).then_some(Self::Sessiond)
    }

    fn descriptors(&self) -> usize {
        usize::from(matches!(self, Self::Below | Self::Above | Self::Filter(_) | Self::Sessiond))
    }

    fn is_late(&self) -> bool {
        !matches!(self, Self::Bounds(_))
    }
}
