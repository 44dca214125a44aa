//! sessiond (on a workstation: the TPE) ↔ keyer: who may have keys, at which label, now.

use crate::vault::Suite;
use levee_policy::LabelName;
use levee_session::SessionId;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// One side's public part of a key exchange for one pair of security associations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyOffer {
    /// X25519 public value (RFC 7748), used once.
    pub public: [u8; 32],
    /// The SPI under which this side wants to receive.
    pub spi: u32,
    /// The suite asked for or, in an answer, taken.
    pub suite: Suite,
}

/// sessiond or TPE → keyer.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToKeyer {
    /// Server: this session may have keys at `label`; agree on them with the holder of `offer`.
    Agree {
        /// The session.
        session: SessionId,
        /// Its label; the keys go to that label's vault and no other.
        label: LabelName,
        /// What its TPE sent over the trusted path.
        offer: KeyOffer,
    },
    /// Workstation: make an offer for a session to be asked for.
    Offer {
        /// The asker's own number, given back with the answer.
        ticket: u64,
    },
    /// Workstation: the server has answered; derive the keys and hand them to the vault.
    Complete {
        /// The offer's number.
        ticket: u64,
        /// The session that the server opened.
        session: SessionId,
        /// Its label.
        label: LabelName,
        /// The server's answer.
        answer: KeyOffer,
        /// Where the server receives the tunnel.
        server: SocketAddr,
    },
    /// This session is over: forget everything about it.
    Revoke(SessionId),
}

/// Keyer → sessiond or TPE.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromKeyer {
    /// Server: the vault has its keys; send this to the TPE.
    Agreed {
        /// The session.
        session: SessionId,
        /// The server's public part.
        answer: KeyOffer,
    },
    /// Workstation: an offer to send over the trusted path.
    Offered {
        /// The asker's number.
        ticket: u64,
        /// The offer.
        offer: KeyOffer,
    },
    /// Workstation: the vault has its keys.
    Completed {
        /// The session.
        session: SessionId,
    },
    /// No keys; nothing was installed.
    Failed {
        /// The session, where there is one.
        session: Option<SessionId>,
        /// The asker's number, where there is one.
        ticket: Option<u64>,
        /// Why, for the operator.
        reason: String,
    },
    /// A session's keys are nearly used up, or its vault has started anew: agree again.
    Renew(SessionId),
}
