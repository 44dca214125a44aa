//! What a guard asks sessiond: that what is about to pass is in the audit log, and that two people have released it where the site says so.
//!
//! A message passes when sessiond has said so, and not before: its record is on the disk then.

use levee_policy::site::Refusal;
use serde::{Deserialize, Serialize};

/// Guard → sessiond.
#[derive(Debug, Serialize, Deserialize)]
pub enum GuardToSessiond {
    /// This may pass by all the bounds. Answered by [`SessiondToGuard`], where people are asked once they have answered.
    Ask {
        /// The guard's own number.
        ticket: u64,
        /// SHA-256 of what would pass.
        digest: [u8; 32],
        /// Octets of it.
        octets: u32,
        /// All of it, where people must see it.
        content: Option<Vec<u8>>,
    },
    /// What was asked for has waited too long: nobody is to be shown it any more.
    Withdraw(u64),
    /// So many messages were refused, for this reason.
    Refused(Refusal, u64),
}

/// sessiond → guard.
#[derive(Debug, Serialize, Deserialize)]
pub enum SessiondToGuard {
    /// It is in the log, which is on the disk: it passes, if that is still within the bounds.
    Pass(u64),
    /// It does not pass.
    Refuse(u64),
}
