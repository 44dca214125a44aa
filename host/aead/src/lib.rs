//! The AEADs of ESP by two libraries, ring and aws-lc-rs, behind [`levee_esp::Aead`].
//!
//! Both are always built and always tested, against published vectors and each other; which one a process uses is
//! decided at its start by a short measurement ([`fastest`]) or by the operator.
//!
//! It may not know a packet or a label, and keeps no key beyond its use. Begin reading with `lib.rs`; `probe.rs` measures.
#![forbid(unsafe_code)]

mod probe;

use levee_esp::{Aead, AeadError, AeadProvider, ICV, MAC_KEY, Mac, MacProvider, NONCE, Suite, TAG};
use levee_sys::wipe::Wiped;

pub use probe::{Probe, fastest, measure};

/// A cryptographic library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// `ring`.
    Ring,
    /// `aws-lc-rs`.
    AwsLc,
}

impl Library {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ring, Self::AwsLc];
}

impl std::str::FromStr for Library {
    type Err = UnknownLibrary;

    fn from_str(name: &str) -> Result<Self, UnknownLibrary> {
        Self::ALL.into_iter().find(|library| library.name() == name).ok_or(UnknownLibrary)
    }
}

/// The name is of neither library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownLibrary;

impl std::fmt::Display for UnknownLibrary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the AEAD library is \"ring\" or \"aws-lc\"")
    }
}

impl std::error::Error for UnknownLibrary {}

impl AeadProvider for Library {
    fn name(&self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::AwsLc => "aws-lc",
        }
    }

    fn key(&self, suite: Suite, key: &[u8]) -> Result<Box<dyn Aead>, AeadError> {
        if key.len() != suite.key_length() {
            return Err(AeadError);
        }
        Ok(match self {
            Self::Ring => Box::new(by_ring::Key(Wiped::try_new(|| by_ring::key(suite, key))?)),
            Self::AwsLc => Box::new(by_aws_lc::Key(Wiped::try_new(|| by_aws_lc::key(suite, key))?)),
        })
    }
}

/// What stands between one of the libraries and [`levee_esp`]: both have the same types, by the same names.
macro_rules! by {
    ($module:ident, $library:ident) => {
        mod $module {
            use crate::{Aead, AeadError, ICV, Mac, NONCE, Suite, TAG, Wiped, truncated};
            use $library::aead::{
                AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
            };
            use $library::hmac;

            pub struct Key(pub Wiped<LessSafeKey>);

            pub fn key(suite: Suite, key: &[u8]) -> Result<LessSafeKey, AeadError> {
                let algorithm = match suite {
                    Suite::Aes128Gcm => &AES_128_GCM,
                    Suite::Aes256Gcm => &AES_256_GCM,
                    Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
                };
                Ok(LessSafeKey::new(UnboundKey::new(algorithm, key).map_err(|_| AeadError)?))
            }

            impl Aead for Key {
                fn seal_in_place(
                    &self,
                    nonce: &[u8; NONCE],
                    aad: &[u8],
                    text: &mut [u8],
                ) -> Result<[u8; TAG], AeadError> {
                    let (nonce, aad) = (Nonce::assume_unique_for_key(*nonce), Aad::from(aad));
                    let tag = self.0.seal_in_place_separate_tag(nonce, aad, text).map_err(|_| AeadError)?;
                    tag.as_ref().try_into().map_err(|_| AeadError)
                }

                fn open_within(
                    &self,
                    nonce: &[u8; NONCE],
                    aad: &[u8],
                    buffer: &mut [u8],
                    from: usize,
                ) -> Result<usize, AeadError> {
                    let (nonce, aad) = (Nonce::assume_unique_for_key(*nonce), Aad::from(aad));
                    let plain = self.0.open_within(nonce, aad, buffer, from..).map_err(|_| AeadError)?;
                    Ok(plain.len())
                }
            }

            pub struct MacKey(pub Wiped<hmac::Key>);

            pub fn mac_key(key: &[u8]) -> hmac::Key {
                hmac::Key::new(hmac::HMAC_SHA256, key)
            }

            impl Mac for MacKey {
                fn sum(&self, parts: &[&[u8]]) -> [u8; ICV] {
                    let mut context = hmac::Context::with_key(&self.0);
                    parts.iter().for_each(|part| context.update(part));
                    truncated(context.sign().as_ref())
                }
            }
        }
    };
}

by!(by_ring, ring);
by!(by_aws_lc, aws_lc_rs);

impl MacProvider for Library {
    fn mac(&self, key: &[u8]) -> Result<Box<dyn Mac>, AeadError> {
        if key.len() != MAC_KEY {
            return Err(AeadError);
        }
        Ok(match self {
            Self::Ring => {
                Box::new(by_ring::MacKey(Wiped::try_new(|| Ok::<_, AeadError>(by_ring::mac_key(key)))?))
            }
            Self::AwsLc => {
                Box::new(by_aws_lc::MacKey(Wiped::try_new(|| Ok::<_, AeadError>(by_aws_lc::mac_key(key)))?))
            }
        })
    }
}

/// RFC 4868 2.1.1: the first half of the value.
fn truncated(tag: &[u8]) -> [u8; ICV] {
    let mut icv = [0; ICV];
    for (to, from) in icv.iter_mut().zip(tag) {
        *to = *from;
    }
    icv
}
