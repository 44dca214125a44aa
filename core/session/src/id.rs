//! The name of one session.

use serde::{Deserialize, Serialize};
use std::fmt;

/// 128 random bits that name a session, once.
///
/// Knowing it is half of what a TPE shows to re-attach after a lost trusted path (the other half is its device
/// certificate), so logs and operators see only its first 48 bits ([`fmt::Display`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// A session's name from 16 random bytes.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// All 16 bytes, for key derivation and storage.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Whether `shown` is how this session is shown to operators.
    pub fn is_shown_as(&self, shown: &str) -> bool {
        self.to_string() == shown
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, ..] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{g:02x}")
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self}..)")
    }
}
