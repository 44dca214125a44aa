//! Documents on their way into a label's virtual machine or out of it: from a stage of upflow that reads a tree to one that
//! keeps a copy of it, one way, on a stream of bytes.
//!
//! A pass begins and ends; in it are the changes since the last one. Who keeps the copy believes nothing: names, depths,
//! numbers and sizes are judged again.

use crate::warden::UpflowCounters;
use serde::{Deserialize, Serialize};

/// The most bytes of a file in one message.
pub const PIECE: usize = 48 * 1024;

/// The longest path, in bytes.
pub const PATH_MAX: usize = 4096;

/// One message.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carried {
    /// A pass begins. The first one of a sender names everything that there is.
    Begin {
        /// Whether it names everything: then what it does not name is to be removed.
        whole: bool,
    },
    /// A directory, after those above it.
    Directory {
        /// Its path in the tree, names separated by `/`.
        path: Vec<u8>,
    },
    /// A file follows, in [`Carried::Piece`]s and to its [`Carried::Done`].
    File {
        /// Its path.
        path: Vec<u8>,
        /// When its content changed last: seconds and nanoseconds since 1970.
        modified: (i64, u32),
        /// Its size in bytes.
        size: u64,
    },
    /// The next bytes of the file.
    Piece(Vec<u8>),
    /// The file ends.
    Done {
        /// Whether it stayed as it was while it was read; otherwise what has come of it is worth nothing.
        good: bool,
    },
    /// A path that is to stay as it is (in a pass that names everything).
    Same(Vec<u8>),
    /// Whatever is at a path is to be removed; what is in a directory has been removed before.
    Remove {
        /// Its path.
        path: Vec<u8>,
    },
    /// The pass ends.
    End {
        /// Whether all that was to be named has been: otherwise nothing is removed for not being named.
        complete: bool,
        /// What the sender has left behind, and why.
        counters: UpflowCounters,
    },
    /// The next so many bytes of the file are a hole.
    Hole(u64),
}
