//! How every process of levee begins, waits, answers and ends. It is written here once, and each daemon adds what it is for.
//!
//! Begin reading with [`begin`]. A daemon's life is this, in order, and the types allow no other:
//!
//! 1. [`run`] calls the daemon's own function and turns an error into a line and an exit status.
//! 2. [`begin`] takes what the warden gives: a [`Kit`], part by part. What is missing, comes twice, comes with another number of
//!    descriptors or is no part of this role ends the process.
//! 3. [`Beginning::confine`] enters the sandbox, and [`Confined::ready`] says so. Only now is a byte from outside read.
//! 4. [`Events::wait`] says what can be read or written, and of each the daemon does a bounded piece: [`TURN`].
//! 5. What it says goes through an [`Outbox`], which never waits. A peer that does not read is lost, and [`Outbox::hear`] says so:
//!    the peer pays, not the one who writes.
//! 6. [`Warden::hear`] gives parts that come later, through the same checks, and says when it is over.
//!
//! | file | what it is |
//! |---|---|
//! | `kit` | from the first instruction to the sandbox |
//! | `warden` | the channel to the warden, while the process works |
//! | `events` | what a process waits for |
//! | `outbox` | a channel that is never waited for |
//! | `share` | how much is heard of one of many |
//! | `file` | files that come over a channel |
//! | `below`, `pace` | what one-way channels and guards have in common: their lower side |
//! | `tunnel` | what vaults, gates and stacks have in common |
//!
//! What it may not do: decide anything, or know what one daemon alone knows. It has no thread, no timer and no unsafe code.
#![forbid(unsafe_code)]

pub mod below;
mod descriptors;
mod events;
mod fatal;
mod file;
mod kit;
mod outbox;
pub mod pace;
mod share;
pub mod tunnel;
mod warden;

pub use descriptors::Descriptors;
pub use events::{Can, Events, MOST_SEEN, Watched};
pub use fatal::{Fatal, run};
pub use file::{late_pem, pem, revocations, whole};
pub use kit::{Beginning, Begun, Confined, Kit, Many, One, begin};
pub use outbox::{Bound, Lost, Outbox};
pub use warden::{Order, Warden};

/// The most messages of one channel that are heard before everything else gets its turn.
pub const TURN: usize = 64;
