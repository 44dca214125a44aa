//! What a tunnel is sealed by.

use serde::{Deserialize, Serialize};

/// What a tunnel is sealed by: an AEAD and its key's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Cipher {
    /// AES-GCM with a 256-bit key and a 16-octet tag (RFC 4106).
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// AES-GCM with a 128-bit key and a 16-octet tag (RFC 4106).
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// ChaCha20-Poly1305 (RFC 7634).
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

impl Cipher {
    pub(super) const ALL: [(&str, Self); 3] = [
        ("aes-256-gcm", Self::Aes256Gcm),
        ("aes-128-gcm", Self::Aes128Gcm),
        ("chacha20-poly1305", Self::ChaCha20Poly1305),
    ];

    /// The word for it in a site file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aes256Gcm => "aes-256-gcm",
            Self::Aes128Gcm => "aes-128-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }
}

impl std::fmt::Display for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
