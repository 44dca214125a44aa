//! The cryptography of IKE SAs, each primitive from a library of its own; what is here is the protocol's use of them.

pub(crate) mod cipher;
pub(crate) mod ke;
pub(crate) mod keys;
pub(crate) mod pki;
pub(crate) mod prf;
pub(crate) mod sign;
pub(crate) mod suite;

/// Octets that are erased when dropped.
pub(crate) type Secret = zeroize::Zeroizing<Vec<u8>>;
