//! The server, its banner's colours, and what compartments may use.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::names::DomainName;

/// Steering slots at most. Slot 0 is the keyer's.
pub const MAX_SLOTS: u16 = 4095;

/// A colour for the banner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Colour {
    /// `red`
    Red,
    /// `green`
    Green,
    /// `yellow`
    Yellow,
    /// `blue`
    Blue,
    /// `magenta`
    Magenta,
    /// `cyan`
    Cyan,
    /// `white`
    White,
    /// `orange`
    Orange,
}

impl Colour {
    /// Of levels from the lowest to the highest, where the site names none.
    pub(super) const USUAL: [Self; 7] =
        [Self::Green, Self::Cyan, Self::Blue, Self::Magenta, Self::Yellow, Self::Orange, Self::Red];
}

/// The server of the site.
#[derive(Clone, Debug)]
pub struct Server {
    pub(super) name: DomainName,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) trusted_path_port: u16,
    pub(super) ike_port: u16,
    pub(super) tunnel_port: u16,
    pub(super) layer_port: u16,
    pub(super) inner_addresses: Vec<IpAddr>,
    pub(super) inner_pools: Vec<IpNet>,
    pub(super) names: Vec<DomainName>,
    pub(super) slots: u16,
    pub(super) grace: Duration,
    pub(super) longest_session: Option<Duration>,
    pub(super) idle_lock: Option<Duration>,
}

impl Server {
    /// The name in its certificate, which resolves to the inner addresses within a session.
    pub fn name(&self) -> &DomainName {
        &self.name
    }

    /// Outer addresses, at least one.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// TCP port of the trusted path.
    pub fn trusted_path_port(&self) -> u16 {
        self.trusted_path_port
    }

    /// UDP port of IKE (RFC 7296 2).
    pub fn ike_port(&self) -> u16 {
        self.ike_port
    }

    /// UDP port of the tunnel, and of IKE behind NAT (RFC 3948).
    pub fn tunnel_port(&self) -> u16 {
        self.tunnel_port
    }

    /// UDP port of the second tunnel, where the site has two layers.
    pub fn layer_port(&self) -> u16 {
        self.layer_port
    }

    /// Where every label's services answer: at least one, at most one of each family.
    pub fn inner_addresses(&self) -> &[IpAddr] {
        &self.inner_addresses
    }

    /// Networks that sessions' inner addresses come from: one for each family of the inner addresses.
    pub fn inner_pools(&self) -> &[IpNet] {
        &self.inner_pools
    }

    /// Every name of the inner addresses, the server's own first.
    pub fn all_names(&self) -> impl Iterator<Item = &DomainName> {
        std::iter::once(&self.name).chain(&self.names)
    }

    /// Labels that can run at once, from 1 to [`MAX_SLOTS`].
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// How long a session outlives its trusted path.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// How long a session may last at most, if the site says so: then the person signs on again.
    pub fn longest_session(&self) -> Option<Duration> {
        self.longest_session
    }

    /// How long after its person's last input a session is locked, if the site says so.
    pub fn idle_lock(&self) -> Option<Duration> {
        self.idle_lock
    }
}

/// What one compartment may use at most, and all labels' images together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory in bytes.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u32,
    /// Processor time in percent of one processor: 150 is one and a half.
    pub cpu_percent: u32,
    /// Size of the store's image in bytes.
    pub store: u64,
    /// Bytes of the images of all labels that have ever run: stores, snapshots and copies.
    pub stores: u64,
    /// Labels at which one person may be the first, for whom their images are made.
    pub first_labels: u32,
    /// Changes of level that one person is given in a minute.
    pub changes: u32,
    /// Files carried into or out of sessions that one person is given in a minute.
    pub carried: u32,
    /// Mediated connections that one person is given in a second.
    pub connections: u32,
}

impl Limits {
    /// Descriptors that one process of a compartment may have.
    pub const DESCRIPTORS: u64 = 16_384;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 512 << 20,
            processes: 256,
            cpu_percent: 100,
            store: 64 << 20,
            stores: 64 << 30,
            first_labels: 128,
            changes: 30,
            carried: 600,
            connections: 50,
        }
    }
}
