//! What was used: time, packets and octets.

use crate::output::milliseconds;
use levee_ipc::vault::Held;
use serde::{Serialize, Serializer};
use std::fmt;

/// Processor time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Time {
    #[serde(rename = "user_ms", serialize_with = "milliseconds")]
    pub(super) user_us: u64,
    #[serde(rename = "system_ms", serialize_with = "milliseconds")]
    pub(super) system_us: u64,
}

impl Time {
    pub(super) fn sum(self) -> u64 {
        self.user_us.saturating_add(self.system_us)
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            user_us: self.user_us.saturating_add(other.user_us),
            system_us: self.system_us.saturating_add(other.system_us),
        }
    }
}

/// Packets and octets within the tunnels; in is toward the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Traffic {
    pub(super) packets_in: u64,
    pub(super) packets_out: u64,
    pub(super) octets_in: u64,
    pub(super) octets_out: u64,
}

impl Traffic {
    pub(super) fn octets(&self) -> u64 {
        self.octets_in.saturating_add(self.octets_out)
    }
}

/// The mean time that a packet is in its label's vault, in nanoseconds; nothing where none came, or stacks must agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Latency {
    #[serde(
        rename = "latency_in_ms",
        serialize_with = "nanoseconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) coming: Option<u64>,
    #[serde(
        rename = "latency_out_ms",
        serialize_with = "nanoseconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) leaving: Option<u64>,
}

impl Latency {
    pub(super) fn of(held: &[Held; 2]) -> Self {
        let [coming, leaving] = held.map(|held| held.nanoseconds.checked_div(held.packets));
        Self { coming, leaving }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |time: Option<u64>| match time {
            Some(time) => format!("{}.{}", time / 1_000, time % 1_000 / 100),
            None => "-".to_owned(),
        };
        write!(f, "{}/{}", of(self.coming), of(self.leaving))
    }
}

/// In milliseconds.
fn nanoseconds<S: Serializer>(time: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time as f64 / 1e6).serialize(serializer)
}

pub(super) fn seconds(microseconds: u64) -> String {
    format!("{}.{:03}", microseconds / 1_000_000, microseconds / 1_000 % 1_000)
}
