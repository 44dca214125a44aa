//! The warden → a vault, or the gate of two stacks that stands in its place.

use super::{Nothing, Part, Peer, Role};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What a vault is given.
#[derive(Debug, Serialize, Deserialize)]
pub enum VaultPart {
    /// Its TUN queue.
    Tun {
        /// Inner MTU in bytes.
        mtu: u16,
    },
    /// Its socket of the steering group of this local address.
    Udp(SocketAddr),
    /// A channel to sessiond; on a workstation to the tpe.
    Sessiond,
    /// A channel to the keyer.
    Keyer,
}

impl Part for VaultPart {
    const ROLES: &[Role] = &[Role::Vault];
    type Says = Nothing;

    fn channel(to: &Peer) -> Option<Self> {
        match to.role {
            Role::Sessiond | Role::Tpe => Some(Self::Sessiond),
            Role::Keyer => Some(Self::Keyer),
            _ => None,
        }
    }

    fn is_late(&self) -> bool {
        matches!(self, Self::Sessiond | Self::Keyer)
    }
}

/// What a gate is given.
#[derive(Debug, Serialize, Deserialize)]
pub enum GatePart {
    /// Its TUN queue.
    Tun,
    /// Its socket of the steering group of this local address.
    Udp(SocketAddr),
    /// A channel to sessiond.
    Sessiond,
    /// A channel to the keyer.
    Keyer,
    /// A channel to the stack that opens and seals.
    First,
    /// A channel to the stack that opens and checks.
    Second,
}

impl Part for GatePart {
    const ROLES: &[Role] = &[Role::Vault];
    type Says = Nothing;

    fn channel(to: &Peer) -> Option<Self> {
        match to.role {
            Role::Sessiond => Some(Self::Sessiond),
            Role::Keyer => Some(Self::Keyer),
            Role::Stack => Some(Self::First),
            Role::Witness => Some(Self::Second),
            _ => None,
        }
    }

    fn is_late(&self) -> bool {
        matches!(self, Self::Sessiond | Self::Keyer)
    }
}
