//! The warden → the second tunnel.

use super::{Part, Peer, Role};
use levee_policy::DomainName;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The uid (and gid) that the second tunnel's keys have on the disk: above all that wardens use, and no process's.
pub const KEYS_UID: u32 = 0xf000_0001;

/// What the second tunnel is given. It has no channel to anybody but the warden.
#[derive(Debug, Serialize, Deserialize)]
pub enum LayerPart {
    /// Its socket that the world reaches, bound to this address. On a workstation there is one, of the server's family.
    Outer(SocketAddr),
    /// Its socket on the loopback interface. On a server every address of that interface is its own; on a workstation it is where keyer
    /// and vault send what is for the server. On a gateway it is bound to the address towards the server.
    Inner,
    /// On a server: where the steering group is, which takes what comes out of this tunnel.
    Tunnel(SocketAddr),
    /// On a server whose second tunnel ends at a gateway: where what comes out of it comes from, by the one outer socket. Then it is given no
    /// certificate and no key.
    Gateway(SocketAddr),
    /// On a gateway: where the server takes what comes out of this tunnel, by the inner socket.
    Behind(SocketAddr),
    /// On a workstation: the server's second tunnel, and the name that its certificate must have.
    Server {
        /// Address and port.
        address: SocketAddr,
        /// The name.
        name: DomainName,
    },
    /// A sealed memory file with its own PEM certificate.
    Chain,
    /// A sealed memory file with the PEM certificate of its authority, which is not the site's.
    Authority,
    /// Its private key's file (PEM, Ed25519).
    Key,
    /// On a workstation: keyer and vault of a session send from this address. The four newest count.
    Session(SocketAddr),
}

impl Part for LayerPart {
    const ROLES: &[Role] = &[Role::Layer];
    type Says = LayerState;

    fn channel(_: &Peer) -> Option<Self> {
        None
    }

    fn descriptors(&self) -> usize {
        match self {
            Self::Tunnel(_) | Self::Gateway(_) | Self::Behind(_) | Self::Server { .. } | Self::Session(_) => {
                0
            }
            Self::Outer(_) | Self::Inner | Self::Chain | Self::Authority | Self::Key => 1,
        }
    }

    fn is_late(&self) -> bool {
        matches!(self, Self::Session(_))
    }
}

/// A workstation's second tunnel → the warden.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayerState {
    /// It passes whatever the longest inner packet makes of itself, both ways.
    Up,
    /// Nothing passes: why, in words.
    Down(#[serde(deserialize_with = "crate::said::reason")] String),
}
