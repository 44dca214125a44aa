//! What a session may reach.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::names::{InterfaceName, ServiceName};

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// `tcp`
    Tcp,
    /// `udp`
    Udp,
}

impl Protocol {
    /// The number IANA gave it.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// Its name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A host on a single-level network that sessions at its label may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NetworkHost {
    /// Its address, within the network.
    pub address: IpAddr,
    /// The port that may be reached.
    pub port: u16,
    /// The port's protocol.
    pub protocol: Protocol,
}

/// What stands behind an address that a session may reach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Destination {
    /// A service of the site, in its instance at the session's label.
    Service(ServiceName),
    /// A host on the single-level network at this interface.
    Network(InterfaceName),
}

/// One address, protocol and port that a session may reach: one traffic selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reach {
    /// The address as the session sees it.
    pub address: IpAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// What answers there.
    pub destination: Destination,
}
