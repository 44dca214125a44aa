//! The warden → a logger. It answers nothing.

use serde::{Deserialize, Serialize};

/// The descriptor at which a logger finds its channel.
pub const CHANNEL_FD: i32 = 3;

/// Where it finds its two files.
pub const FILES: [i32; 2] = [4, 5];

/// The most bytes that one of them has.
pub const LARGEST: u64 = 1 << 20;

/// What a logger is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToLogger {
    /// The end of a pipe comes along, from which is read what this process says; non-blocking. Another one of the same name
    /// takes its place.
    Source(String),
}
