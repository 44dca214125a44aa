//! What may pass (RFC 4301 4.4.1.1).

use std::net::IpAddr;

use ipnet::IpNet;

use crate::packet::{Packet, Ports};

/// Every port, and packets that have none.
const ANY: (u16, u16) = (0, u16::MAX);

/// One row of a session's policy; `local` is the server's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Addresses on the server's side.
    pub local: IpNet,
    /// Addresses on the session's side.
    pub remote: IpNet,
    /// IP protocol number; `None` for any.
    pub protocol: Option<u8>,
    /// First and last port on the server's side.
    pub local_ports: (u16, u16),
    /// First and last port on the session's side.
    pub remote_ports: (u16, u16),
}

/// What a row says of a packet by itself, from the least on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Says {
    /// No.
    No,
    /// Yes, if its ports are right, which are in another fragment.
    PortsElsewhere,
    /// Yes, for its ports.
    ForPorts,
    /// Yes, for whatever ports.
    Yes,
}

impl Row {
    /// Whether its ports are in order.
    pub(crate) fn is_sound(&self) -> bool {
        self.local_ports.0 <= self.local_ports.1 && self.remote_ports.0 <= self.remote_ports.1
    }

    /// What it says of a packet whose end on the server's side is `local`; `inward`: it comes from the tunnel.
    pub(crate) fn says(&self, packet: &Packet, local: IpAddr, remote: IpAddr, inward: bool) -> Says {
        let addressed = self.local.contains(&local) && self.remote.contains(&remote);
        let spoken = self.protocol.is_none_or(|protocol| protocol == packet.protocol);
        if !addressed || !spoken {
            return Says::No;
        }
        if self.local_ports == ANY && self.remote_ports == ANY {
            return Says::Yes;
        }
        let within = |range: (u16, u16), port: u16| (range.0..=range.1).contains(&port);
        match packet.ports {
            Ports::Both(source, destination) => {
                let (ours, theirs) = if inward { (destination, source) } else { (source, destination) };
                let fit = within(self.local_ports, ours) && within(self.remote_ports, theirs);
                if fit { Says::ForPorts } else { Says::No }
            }
            Ports::Elsewhere => Says::PortsElsewhere,
            Ports::None => Says::No,
        }
    }
}
