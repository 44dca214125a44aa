//! What ESP needs of an AEAD; the implementations are outside this crate.

use crate::Suite;

/// Bytes of a nonce: 4 of salt, 8 of IV (RFC 4106 4, RFC 7634 2).
pub const NONCE: usize = 12;
/// Bytes of a tag, the only length of the suites here.
pub const TAG: usize = 16;

/// The tag does not match, or a length is beyond what the algorithm allows. Deliberately says no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AeadError;

impl core::fmt::Display for AeadError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("authenticated encryption failed")
    }
}

impl core::error::Error for AeadError {}

/// One key of an AEAD. An implementation erases the key when it is dropped.
pub trait Aead: Send {
    /// Encrypts `text` in place and answers its tag. The caller never uses a nonce twice.
    ///
    /// # Errors
    /// [`AeadError`] when `text` is longer than the algorithm allows.
    fn seal_in_place(&self, nonce: &[u8; NONCE], aad: &[u8], text: &mut [u8])
    -> Result<[u8; TAG], AeadError>;

    /// Verifies and decrypts `buffer[from..]`, ciphertext and tag, and leaves the plaintext at `buffer[..length]`,
    /// where `length` is the answer. On an error the content of `buffer` is unspecified, and never plaintext.
    ///
    /// # Errors
    /// [`AeadError`] when the tag does not match or there is no room for one.
    fn open_within(
        &self,
        nonce: &[u8; NONCE],
        aad: &[u8],
        buffer: &mut [u8],
        from: usize,
    ) -> Result<usize, AeadError>;
}

/// Makes AEAD keys: a cryptographic library.
pub trait AeadProvider {
    /// The library's name, for reports.
    fn name(&self) -> &'static str;

    /// A key of `suite`; `key` is as long as [`Suite::key_length`].
    ///
    /// # Errors
    /// [`AeadError`] when the length is another.
    fn key(&self, suite: Suite, key: &[u8]) -> Result<Box<dyn Aead>, AeadError>;
}
