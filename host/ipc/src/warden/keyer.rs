//! The warden → the keyer.

use super::{Nothing, Part, Peer, Role};
use crate::Secret;
use levee_policy::{DomainName, HostName, LabelName, PpkId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What the keyer is given.
#[derive(Debug, Serialize, Deserialize)]
pub enum KeyerPart {
    /// Its socket of the steering group of this local address. On a workstation one comes with each session.
    Udp(SocketAddr),
    /// A socket that carries IKE alone, bound to this address (RFC 7296 2: port 500).
    Ike(SocketAddr),
    /// A sealed memory file with PEM certificates: its own chain, own certificate first.
    Chain,
    /// A sealed memory file with PEM certificates: the site's authority.
    Authority,
    /// A sealed memory file with a PEM revocation list of the authority (RFC 5280 5), positioned at its beginning. One that comes later
    /// replaces it, and whoever it names is cut.
    Revocations,
    /// On a workstation: the name that the server's certificate must have.
    Server(DomainName),
    /// The signer has a PPK of this name (RFC 8784). A second one of the same host is the one before the first: while one follows the
    /// other, the host may begin with either.
    Ppk {
        /// On a server: the host that shares it. On a workstation the server does.
        host: Option<HostName>,
        /// Its name.
        id: PpkId,
        /// Whether a host that begins without it is refused.
        mandatory: bool,
    },
    /// A channel to sessiond; on a workstation to the tpe.
    Sessiond,
    /// A channel to the signer.
    Signer,
    /// A channel to one worker of a label's vault.
    Vault {
        /// The vault's label.
        label: LabelName,
        /// The worker's steering slot.
        slot: u16,
    },
    /// By what the kernel steers: which slot an SPI names.
    Steering {
        /// The key of the function (`levee_esp::Steering`), 16 octets.
        key: Secret,
        /// How many slots there are.
        slots: u16,
    },
}

impl Part for KeyerPart {
    const ROLES: &[Role] = &[Role::Keyer];
    type Says = Nothing;

    fn channel(to: &Peer) -> Option<Self> {
        Some(match (to.role, &to.label, to.slot) {
            (Role::Sessiond | Role::Tpe, ..) => Self::Sessiond,
            (Role::Signer, ..) => Self::Signer,
            (Role::Vault, Some(label), Some(slot)) => Self::Vault { label: label.clone(), slot },
            _ => return None,
        })
    }

    fn descriptors(&self) -> usize {
        if matches!(self, Self::Server(_) | Self::Ppk { .. } | Self::Steering { .. }) { 0 } else { 1 }
    }

    fn is_late(&self) -> bool {
        match self {
            Self::Ike(_)
            | Self::Chain
            | Self::Authority
            | Self::Server(_)
            | Self::Ppk { .. }
            | Self::Steering { .. } => false,
            Self::Udp(_) | Self::Revocations | Self::Sessiond | Self::Signer | Self::Vault { .. } => true,
        }
    }
}
