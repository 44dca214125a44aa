//! The warden → etcd's client.

use super::{Nothing, Part, Peer, Role};
use levee_policy::{DomainName, SiteName};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What etcd's client is given.
#[derive(Debug, Serialize, Deserialize)]
pub enum FsdPart {
    /// A member of etcd.
    Server {
        /// Address and port.
        address: SocketAddr,
        /// The name that its certificate must have.
        name: DomainName,
    },
    /// The site whose servers share a table, and this server.
    Member {
        /// The site.
        site: SiteName,
        /// This server.
        server: DomainName,
    },
    /// A sealed memory file with PEM certificates: its own chain, own certificate first; while it runs, the one from now on.
    Chain,
    /// A sealed memory file with PEM certificates: etcd's authority; while it runs, the one from now on.
    Authority,
    /// A channel to sessiond. Another sessiond knows nothing of what this process was asked: it gets another one of us, too.
    Sessiond,
    /// A channel to the signer.
    Signer,
}

impl Part for FsdPart {
    const ROLES: &[Role] = &[Role::Fsd];
    type Says = Nothing;

    fn channel(to: &Peer) -> Option<Self> {
        match to.role {
            Role::Sessiond => Some(Self::Sessiond),
            Role::Signer => Some(Self::Signer),
            _ => None,
        }
    }

    fn descriptors(&self) -> usize {
        if matches!(self, Self::Server { .. } | Self::Member { .. }) { 0 } else { 1 }
    }

    fn is_late(&self) -> bool {
        matches!(self, Self::Sessiond | Self::Signer | Self::Chain | Self::Authority)
    }
}
