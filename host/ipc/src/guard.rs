//! What a guard asks sessiond: that what is about to pass is in the audit log, and where the site says so, that two people release it.
//!
//! A message passes when sessiond has said so, and not before: its record is on the disk then.

use levee_policy::site::Refusal;
pub use levee_session::MOST_WAITING;
use serde::{Deserialize, Serialize};

/// Guard → sessiond.
#[derive(Debug, Serialize, Deserialize)]
pub enum GuardToSessiond {
    /// This may pass by all the bounds. Answered by [`SessiondToGuard`].
    Ask {
        /// The guard's own number.
        ticket: u64,
        /// SHA-256 of what would pass.
        digest: [u8; 32],
        /// Octets of it.
        octets: u32,
    },
    /// This may pass by all the bounds, and people are to release it: the whole of it. Answered in the same way, within the time that
    /// the site lets it wait.
    Offer {
        /// The guard's own number.
        ticket: u64,
        /// What would pass.
        content: Vec<u8>,
    },
    /// What was offered under this number, and may pass, does not wait any more: it has passed, or was refused.
    Settled(u64),
    /// So many messages were refused, for this reason.
    Refused(Refusal, u64),
}

/// sessiond → guard.
#[derive(Debug, Serialize, Deserialize)]
pub enum SessiondToGuard {
    /// It is in the log, which is on the disk: it passes, if it is still its time of day.
    Pass(u64),
    /// It does not pass: that could not be recorded.
    Refuse(u64),
    /// It does not pass: people have not released it, or the word of one who had counts no more. That may be said of what may pass by
    /// [`SessiondToGuard::Pass`] and has not yet.
    NotReleased(u64),
}
