//! The running hash of a log, which levee-signer keeps by itself: it is given the records' digests, and no records.

use sha2::{Digest, Sha256};

use super::hex::Hash;

/// So many records, and the running hash over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// How many records.
    pub count: u64,
    /// The running hash.
    pub hash: Hash,
}

impl Chain {
    /// Of no record.
    pub const START: Self = Self { count: 0, hash: Hash([0; 32]) };

    /// What a line, newline included, adds to the running hash.
    pub fn digest(line: &[u8]) -> Hash {
        Hash(Sha256::digest(line).into())
    }

    /// With one more record.
    #[must_use]
    pub fn with(self, digest: &Hash) -> Self {
        let next =
            Sha256::new().chain_update(b"levee audit chain").chain_update(self.hash.0).chain_update(digest.0);
        Self { count: self.count.saturating_add(1), hash: Hash(next.finalize().into()) }
    }
}
