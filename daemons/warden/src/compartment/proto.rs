//! Between the warden and process 1 of a compartment, on a private channel.
//!
//! What comes from inside is input from an untrusted side: a message that is not one of these, or that answers
//! nothing, condemns the compartment.

use std::collections::BTreeSet;
use std::net::IpAddr;

use levee_ipc::Channel;
use levee_policy::ServiceName;
use serde::{Deserialize, Serialize};

use super::service::{Launch, Report, Served};
use super::step::Inside;
use crate::machine::Hardware;
use crate::machine::proto::Whole;

/// The descriptor at which process 1 finds its channel; the user namespace and the images follow.
pub const CHANNEL_FD: i32 = 3;

/// The longest reason that process 1 gives, in bytes.
pub const REASON_MAX: usize = 512;

/// Warden → process 1.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToInit {
    /// The next steps, in order.
    Steps(Vec<Inside>),
    /// A service that it is to start, once the compartment stands. What comes of it is told by [`FromInit::Service`], under its place
    /// among these. Its standard output and error comes along, and then its listeners.
    Service {
        /// What it is.
        served: Served,
        /// It is not to be started, until [`ToInit::Services`] says so.
        off: bool,
    },
    /// The next steps of the compartment in the machine that it is to start.
    Within(Vec<Inside>),
    /// The machine: its hardware, and what it is to be told. Its port comes along, then QEMU's standard output and error, and
    /// its other descriptors.
    Machine(Box<(Hardware, Whole)>),
    /// Where a service within the machine writes to comes along; in the order of the services.
    Log,
    /// That was all of them: carry them out. How many images there are among the descriptors.
    Build {
        /// Images.
        images: usize,
    },
    /// Start a program. Its descriptors come along: standard input (see [`Launch::input`]), output and error first, then 3, 4, ….
    Start(Launch),
    /// The channel to the label's mediator comes along, which may have these server processes started, and what is to be their
    /// standard error. One in the place of another: what that one had started ends.
    Mediator(Vec<Handoff>),
    /// These services are off, and no others. Where one of them was on before, every program in the compartment is ended; those that are
    /// on start again as ever. Answered by [`FromInit::Turned`].
    Services {
        /// The warden's own number for it.
        ticket: u64,
        /// By their names, whether process 1 starts them or has them started for the mediator.
        off: BTreeSet<ServiceName>,
    },
    /// Send a signal to a program that was started, and its process group.
    Signal {
        /// Which.
        ticket: u64,
        /// The signal's number.
        signal: i32,
    },
    /// Have the sockets of a session's inner address destroyed in the machine.
    Cut {
        /// The warden's own number for it.
        ticket: u64,
        /// The address.
        address: IpAddr,
    },
    /// Have the machine end in good order: then it writes everything to its disks, and process 1 ends after it.
    Stop,
}

/// A service whose processes are started for one connection each, that the mediator hands off.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Handoff {
    /// Which. The groups of system calls of its processes are those that it has as far as the compartment has them.
    pub served: Served,
    /// How many are ready while the service is used.
    pub ready: u32,
}

/// Process 1 → warden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromInit {
    /// Every step is done; programs may be started.
    Built,
    /// A step failed, and why; nothing runs, and nothing will.
    Failed(String),
    /// A program runs.
    Started(u64),
    /// A program could not be started, and why.
    Refused(u64, String),
    /// A program has ended: its status, or 128 plus the signal's number.
    Exited(u64, u8),
    /// Something has become of the service at this place.
    Service(u16, Report),
    /// Nothing runs that was started before a service was turned off.
    Turned(u64),
    /// The sockets that a cut was for are destroyed, in the machine; how many there were, `None` if that failed.
    Cut(u64, Option<u32>),
}

/// Tells the warden.
///
/// # Errors
/// It is gone, in words.
pub fn tell(warden: &Channel, message: &FromInit) -> Result<(), String> {
    warden.send(message).map_err(|e| format!("tell the warden: {e}"))
}

/// At most [`REASON_MAX`] bytes, cut at a character.
pub fn shorten(text: &str) -> String {
    let end = (0..=REASON_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}
