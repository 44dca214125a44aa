//! The cryptography of IKE SAs, each primitive from a library of its own; what is here is the protocol's use of them.

pub(crate) mod cipher;
pub(crate) mod ke;
pub(crate) mod keys;
pub(crate) mod pki;
pub(crate) mod prf;
pub(crate) mod sign;
pub(crate) mod suite;
#[cfg(test)]
mod vectors;

/// Octets that are erased when dropped and never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(zeroize::Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the octets over.
    pub fn new(octets: Vec<u8>) -> Self {
        Self(octets.into())
    }
}

impl From<Vec<u8>> for Secret {
    fn from(octets: Vec<u8>) -> Self {
        Self::new(octets)
    }
}

impl std::ops::Deref for Secret {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl std::ops::DerefMut for Secret {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}
