//! Sessions and their revocation, as a state machine without I/O.
#![forbid(unsafe_code)]

mod id;

pub use id::SessionId;
