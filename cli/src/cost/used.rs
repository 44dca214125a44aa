//! What was used: time, packets and octets.

use crate::output::milliseconds;
use serde::Serialize;

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

pub(super) fn seconds(microseconds: u64) -> String {
    format!("{}.{:03}", microseconds / 1_000_000, microseconds / 1_000 % 1_000)
}
