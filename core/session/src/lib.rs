//! Sessions and their revocation, as a state machine without I/O.
//!
//! [`Sessions`] has three verbs: hand in what happened, take out what to do, ask when time itself is the next
//! thing to happen. Bytes, clocks, random numbers, passwords and keys stay with the shell (`levee-sessiond`).
//!
//! It may not have a socket, a file, a clock, a password or a key. Begin reading with `event.rs`, the whole language of the machine, then follow one session: `clients.rs`, `opening.rs`, `closing.rs`.
#![forbid(unsafe_code)]

mod access;
mod address;
mod carrying;
mod clients;
mod closing;
mod connecting;
mod delay;
mod disable;
mod event;
pub mod federation;
mod firsts;
mod id;
mod keys;
mod labels;
mod locking;
mod opening;
mod pace;
mod posture;
mod preparing;
mod rate;
mod releasing;
mod rules;
mod sessions;
mod shared;
mod state;
mod stored;
mod time;
mod trial;

pub use address::REST;
pub use delay::LONGEST as LONGEST_DELAY;
pub use event::{
    Access, Accessible, Change, ClientId, CommitId, Consent, Counted, CutId, Entering, Event, InForce,
    KeyRecord, OperatorId, Output, RefusalKind, ReleaseId, Released, Reply, Request, Shown, Status, ToVault,
    Verified, Waiting, Wish,
};
pub use id::SessionId;
pub use rate::Rate;
pub use releasing::{MOST_LISTED, MOST_WAITING, PART};
pub use sessions::{
    CLIENTS_PER_DEVICE, CUT_TRIES, LEVEL, LOST, OPENING, PING, RETRY, SILENCE, START, Sessions,
};
pub use stored::Stored;
pub use time::Time;
