//! Files that are carried out of a session, or into one.

use serde::{Deserialize, Serialize};

/// Which way a file is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Out of a session, to where no label is.
    Export,
    /// Into a session.
    Import,
}

/// To carry one file out of a session, or into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carry {
    /// Which way.
    pub direction: Direction,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of it.
    pub digest: [u8; 32],
}
