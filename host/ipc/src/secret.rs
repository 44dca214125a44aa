//! Bytes that must not outlive their use.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Up to 4,096 secret bytes: erased when dropped, absent from every `Debug` output.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The most bytes a secret may have.
    pub const MAX: usize = 4096;

    /// Takes over `bytes`; `None` if there are more than [`Secret::MAX`].
    pub fn new(mut bytes: Vec<u8>) -> Option<Self> {
        if bytes.len() > Self::MAX {
            bytes.zeroize();
            return None;
        }
        Some(Self(bytes))
    }

    /// The bytes themselves; do not copy them into anything that is not erased.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Secret;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "at most {} bytes", Secret::MAX)
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Secret, E> {
                // Checked before copying, so that an oversize secret is never duplicated.
                if bytes.len() > Secret::MAX {
                    return Err(E::invalid_length(bytes.len(), &self));
                }
                Ok(Secret(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nothing_in_debug_output() {
        let secret = Secret::new(b"correct horse".to_vec()).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }

    #[test]
    fn an_oversize_secret_is_refused_on_both_ways_in() {
        assert!(Secret::new(vec![0; Secret::MAX + 1]).is_none());
        let encoded = postcard::to_allocvec(&vec![7u8; Secret::MAX + 1]).unwrap();
        assert!(postcard::from_bytes::<Secret>(&encoded).is_err());
        let encoded = postcard::to_allocvec(&vec![7u8; 32]).unwrap();
        assert_eq!(postcard::from_bytes::<Secret>(&encoded).unwrap().expose(), &[7u8; 32]);
    }
}
