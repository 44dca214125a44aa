//! What an authority has said about one of its own, and its signature.

use crate::armour;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Something that an authority signs and that stands among certificates.
pub trait Passport: Serialize + DeserializeOwned {
    /// How it is called there (RFC 7468).
    const KIND: &'static str;
}

/// A passport and the authority's signature over its message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed<P> {
    /// What is signed.
    pub passport: P,
    /// An ASN.1 ECDSA signature with the hash of the authority's curve.
    pub signature: Vec<u8>,
}

impl<P: Passport> Sealed<P> {
    /// As it stands in a file with certificates, behind them.
    pub fn to_text(&self) -> Option<String> {
        armour::write(P::KIND, self)
    }

    /// The one in such a file, if there is one.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        armour::read(P::KIND, text)
    }
}
