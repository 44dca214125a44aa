//! The warden → a label's mediator.

use super::{Nothing, Part, Peer, Role};
use levee_policy::ServiceName;
use levee_policy::site::Mode;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What a mediator is given.
#[derive(Debug, Serialize, Deserialize)]
pub enum MediatorPart {
    /// A listener of a service at this address, which is the mediator's from now on.
    Service {
        /// The service.
        name: ServiceName,
        /// `handoff` or `relay`. To relay, the mediator reaches the daemon at the same address in its own network.
        mode: Mode,
        /// Where the listener listens.
        address: SocketAddr,
    },
    /// The channel to process 1 of its compartment.
    Starter,
    /// A channel to sessiond.
    Sessiond,
}

impl Part for MediatorPart {
    const ROLES: &[Role] = &[Role::Mediator];
    type Says = Nothing;

    fn channel(to: &Peer) -> Option<Self> {
        (to.role == Role::Sessiond).then_some(Self::Sessiond)
    }

    fn is_late(&self) -> bool {
        matches!(self, Self::Sessiond)
    }
}
