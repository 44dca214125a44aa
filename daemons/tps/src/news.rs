//! What a child says to its parent. A fuzz target reads it; so this file names nothing of the program's.

use serde::{Deserialize, Serialize};

/// What a child tells its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// TLS is up, and sessiond may know.
    Up,
    /// The end, and why.
    End(End),
}

/// Why a child ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum End {
    /// The client closed the connection in good order.
    Closed,
    /// The connection broke.
    Lost,
    /// No handshake within its time.
    HandshakeDeadline,
    /// A handshake that is not TLS 1.3 with a certificate of the site's authority.
    Handshake,
    /// A handshake in which the client offers no algorithms that the site takes.
    Algorithms,
    /// The certificate names no device.
    Device,
    /// Something else than a TLS record or a request.
    Malformed,
    /// No request within its time.
    Idle,
    /// The client does not take its answers.
    Slow,
    /// sessiond is gone or does not listen.
    Sessiond,
    /// The sandbox could not be entered.
    Sandbox,
}

impl End {
    /// The name of the counter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Lost => "lost",
            Self::HandshakeDeadline => "handshake_deadline",
            Self::Handshake => "handshake",
            Self::Algorithms => "no_common_algorithms",
            Self::Device => "device_name",
            Self::Malformed => "malformed",
            Self::Idle => "idle",
            Self::Slow => "slow",
            Self::Sessiond => "sessiond",
            Self::Sandbox => "sandbox",
        }
    }
}
