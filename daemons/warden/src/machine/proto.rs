//! Between process 1 of the compartment that a label's virtual machine runs in and process 1 of the machine, as frames on one virtio-serial
//! port.
//!
//! What comes out of the machine is input from an untrusted side: a frame that is not one of these, or that answers
//! nothing, condemns the machine.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use levee_policy::{LabelName, ServiceName};
use serde::{Deserialize, Serialize};

use crate::compartment::service::{Report, Served};
use crate::compartment::{Inside, Outside};

/// The number of the port: `/dev/vport0p1` in the machine.
pub const CONTROL_PORT: u32 = 1;
/// The port by which the label's own documents go out, to the first stage of upflow.
pub const OUT_PORT: u32 = 2;
/// The port by which the documents of dominated labels come in.
pub const IN_PORT: u32 = 3;

/// The Ethernet address of both ends of the machine's wire: a locally administered one, the same for all, since no wire
/// has a third end.
pub const WIRE: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

/// To process 1 of the machine.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToGuest {
    /// The next inner steps of the compartment in the machine.
    Steps(Vec<Inside>),
    /// That was all of them: carry them out, and offer the services.
    Begin(Box<Whole>),
    /// Destroy the sockets of a session's inner address, by this number of the warden's.
    Cut(u64, IpAddr),
    /// These services are off, and no others, by this number of the warden's: as
    /// [`ToInit::Services`](crate::compartment::proto::ToInit::Services), answered by [`FromGuest::Turned`].
    Services(u64, BTreeSet<ServiceName>),
    /// End the services, write everything to the disks, end.
    Stop,
}

/// What the machine is to be, beside the inner steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// The label, for people to read.
    pub label: LabelName,
    /// The outer steps of the compartment in the machine.
    pub outside: Vec<Outside>,
    /// Its network.
    pub wire: Wire,
    /// Its services.
    pub services: Vec<Served>,
    /// Those that are off.
    pub off: BTreeSet<ServiceName>,
    /// Whether documents of dominated labels come in.
    pub below: bool,
    /// Whether another label could read its own.
    pub read: bool,
    /// The time of day, since 1970.
    pub time: Duration,
}

/// The machine's end of its wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// Its addresses with prefix lengths.
    pub addresses: Vec<IpNet>,
    /// What is reached through it.
    pub routes: Vec<IpNet>,
}

/// From process 1 of the machine.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromGuest {
    /// The kernel has booted: what the machine is to be, and the time of day, may come.
    Booted,
    /// Every step is done and the listeners are open.
    Built,
    /// A step failed; nothing runs.
    Failed {
        /// Which step, and why.
        reason: String,
    },
    /// Something has become of the service at this place.
    Service(u16, Report),
    /// The sockets of an address are destroyed.
    Cut {
        /// Whose.
        ticket: u64,
        /// How many there were; `None` if that failed.
        sockets: Option<u32>,
    },
    /// Nothing runs that was started before a service was turned off.
    Turned(u64),
    /// A line that a service wrote to its standard output or error.
    Said {
        /// The service's place.
        service: u16,
        /// The line, at most [`REASON_MAX`](crate::compartment::proto::REASON_MAX) bytes.
        line: String,
    },
}
