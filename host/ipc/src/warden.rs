//! The warden and what it starts: what is the same for all of them. Each role's own side is a file beside this one.
//!
//! Every process finds its channel to the warden at descriptor [`CONTROL_FD`]. The warden first sends [`Order::Give`] once
//! for each [`Part`] of the role's kit, then [`Order::Begin`]. The process sandboxes itself, answers [`Said::Ready`], and
//! only then reads a byte from outside. A process whose channel to the warden closes ends at once.
//!
//! A role's parts are one enum of its own, and all that the warden can say to a process of this role. What is said is
//! checked on both sides, in one place each: the warden's handle and `levee-daemon`.

pub mod channel;
pub mod frames;
pub mod fsd;
pub mod guard;
pub mod keyer;
pub mod layer;
pub mod mediator;
pub mod sessiond;
pub mod signer;
pub mod stack;
pub mod tpe;
pub mod tps;
pub mod upflow;
pub mod vault;

pub use channel::Counted;
pub use frames::FramesState;
pub use layer::LayerState;
pub use sessiond::{
    CompartmentStatus, IsolationForm, LabelEvent, PartitionOrder, PartitionStatus, SessiondRequest, WhatRuns,
};
pub use tpe::{TpeRequest, WorkstationEvent};
pub use upflow::UpflowCounters;

use crate::Channel;
use levee_policy::LabelName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// The descriptor at which a process finds its channel to the warden.
pub const CONTROL_FD: i32 = 3;

/// A process that the warden starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Credentials, sessions, audit log.
    Sessiond,
    /// Long-term private keys.
    Signer,
    /// The trusted path's server.
    Tps,
    /// Key agreement.
    Keyer,
    /// The IPsec stack of one label; where redundant stacks must agree, their gate.
    Vault,
    /// The first of two stacks that must agree.
    Stack,
    /// The second of two stacks that must agree.
    Witness,
    /// Decides about each connection to services of one label, and hands it off or relays it.
    Mediator,
    /// Upflow's first stage: from a label's store to its snapshot.
    Snapshot,
    /// Upflow's second stage: from snapshots to one label's copies.
    Copy,
    /// A one-way channel between two partitions.
    Channel,
    /// Keeps the frames: lets run at each time what its slot is for.
    Frames,
    /// A guard between two partitions: the declared exception to the lattice.
    Guard,
    /// The client of the table that the site's servers share.
    Fsd,
    /// The trusted path extension's agent (workstation).
    Tpe,
    /// The second tunnel, around ESP.
    Layer,
}

impl Role {
    /// The program's name.
    pub fn program(self) -> &'static str {
        match self {
            Self::Sessiond => "levee-sessiond",
            Self::Signer => "levee-signer",
            Self::Tps => "levee-tps",
            Self::Keyer => "levee-keyer",
            Self::Vault | Self::Stack => "levee-vault",
            Self::Witness => "levee-witness",
            Self::Mediator => "levee-mediator",
            Self::Snapshot | Self::Copy => "levee-upflow",
            Self::Channel => "levee-channel",
            Self::Frames => "levee-frames",
            Self::Guard => "levee-guard",
            Self::Fsd => "levee-fsd",
            Self::Tpe => "levee-tpe",
            Self::Layer => "levee-layer",
        }
    }

    /// The warden's end and the process's. Who is told of each vault, label, session or group may be told of hundreds before it reads of one:
    /// as it begins beside them, or while it is held up itself.
    ///
    /// # Errors
    /// The kernel's.
    pub fn channel(self) -> std::io::Result<(Channel, Channel)> {
        match self {
            Self::Sessiond | Self::Keyer | Self::Frames => Channel::pair_with_room(),
            _ => Channel::pair(),
        }
    }
}

/// Where levee runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A server: many sessions, services.
    Server,
    /// A workstation: one person, one session at a time.
    Workstation,
}

/// One thing that the warden may say to a process of one role: a thing of its kit, mostly a descriptor, or news.
pub trait Part: Serialize + DeserializeOwned + Debug + 'static {
    /// Whose: of one role, but where two have the same to be given.
    const ROLES: &[Role];
    /// What a process of this role says to the warden, beside that it is ready.
    type Says: Serialize + DeserializeOwned + Debug;

    /// The end of a channel to this other process; `None` if the two do not speak.
    fn channel(to: &Peer) -> Option<Self>;

    /// How many descriptors come along.
    fn descriptors(&self) -> usize {
        1
    }

    /// Whether it may come when the process is at work.
    fn is_late(&self) -> bool;
}

/// Who is at the other end of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its role.
    pub role: Role,
    /// Its label, where it has one.
    pub label: Option<LabelName>,
    /// The steering slot of the vault that is at one of the ends.
    pub slot: Option<u16>,
}

/// What a role has to say to the warden that has nothing to say.
#[derive(Debug, Serialize, Deserialize)]
pub enum Nothing {}

/// The warden → a process of the role whose parts these are.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order<P> {
    /// A part, with its descriptors.
    Give(P),
    /// Everything that the process needs to begin with has been given.
    Begin(Place),
    /// End in good order.
    Stop,
}

/// A process → the warden.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said<S> {
    /// Sandboxed, and at work. Said once.
    Ready,
    /// What its role has to say.
    Says(S),
}
