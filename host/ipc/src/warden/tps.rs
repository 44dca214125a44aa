//! The warden → the trusted path's server.

use super::{Nothing, Part, Peer, Role};
use serde::{Deserialize, Serialize};

/// What the trusted path's server is given.
#[derive(Debug, Serialize, Deserialize)]
pub enum TpsPart {
    /// The trusted path's listening TCP socket.
    Listener,
    /// A sealed memory file with PEM certificates: its own chain, own certificate first.
    Chain,
    /// A sealed memory file with PEM certificates: the site's authority.
    Authority,
    /// A sealed memory file with a PEM revocation list of the authority (RFC 5280 5), positioned at its beginning. One that comes later
    /// replaces it, and whoever it names is cut.
    Revocations,
    /// A channel to sessiond.
    Sessiond,
    /// A channel to the signer.
    Signer,
}

impl Part for TpsPart {
    const ROLES: &[Role] = &[Role::Tps];
    type Says = Nothing;

    fn channel(to: &Peer) -> Option<Self> {
        match to.role {
            Role::Sessiond => Some(Self::Sessiond),
            Role::Signer => Some(Self::Signer),
            _ => None,
        }
    }

    fn is_late(&self) -> bool {
        matches!(self, Self::Revocations | Self::Sessiond | Self::Signer)
    }
}
