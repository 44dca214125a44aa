//! What AH needs of a message authentication code; the implementations are outside this crate.

use crate::AeadError;

/// Bytes of an integrity check value.
pub const ICV: usize = 16;

/// Bytes of a key.
pub const MAC_KEY: usize = 32;

/// One key of HMAC-SHA-256-128 (RFC 4868), which RFC 8221 6 demands. An implementation erases the key when it is dropped.
pub trait Mac: Send {
    /// The value over these parts, one behind the other.
    fn sum(&self, parts: &[&[u8]]) -> [u8; ICV];
}

/// Makes keys of [`Mac`].
pub trait MacProvider {
    /// A key of [`MAC_KEY`] bytes.
    ///
    /// # Errors
    /// [`AeadError`] when the length is another.
    fn mac(&self, key: &[u8]) -> Result<Box<dyn Mac>, AeadError>;
}
