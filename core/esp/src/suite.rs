//! Cipher suites and keying material.

use core::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// An AEAD with its key length, a tag of 16 bytes and an explicit IV of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suite {
    /// AES-GCM-16 with a key of 128 bits (RFC 4106).
    Aes128Gcm,
    /// AES-GCM-16 with a key of 256 bits (RFC 4106).
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
}

/// Bytes of salt behind the key (RFC 4106 8.1, RFC 7634 2).
pub(crate) const SALT: usize = 4;

impl Suite {
    /// Every suite.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Bytes of the key.
    #[must_use]
    pub const fn key_length(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Bytes of keying material: the key, then the salt.
    #[must_use]
    pub const fn keying_material(self) -> usize {
        self.key_length() + SALT
    }
}

/// The keying material of one security association; erased when dropped, never shown.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct SaKeys {
    #[zeroize(skip)]
    suite: Suite,
    /// On the heap, so that moving the value leaves no copy behind.
    key: Vec<u8>,
    salt: [u8; SALT],
}

impl SaKeys {
    /// Splits `material`, the key and then the salt; `None` when its length is not [`Suite::keying_material`].
    #[must_use]
    pub fn new(suite: Suite, material: &[u8]) -> Option<Self> {
        if material.len() != suite.keying_material() {
            return None;
        }
        let (key, salt) = material.split_at_checked(suite.key_length())?;
        Some(Self { suite, key: key.to_vec(), salt: salt.try_into().ok()? })
    }

    /// What the keys are for.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn salt(&self) -> [u8; SALT] {
        self.salt
    }
}

impl fmt::Debug for SaKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SaKeys({:?}, ..)", self.suite)
    }
}
