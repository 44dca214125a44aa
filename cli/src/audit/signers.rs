//! Who signs the audit log's checkpoints: a key, and those that followed it, each vouched for by the one before it (`levee enrol rotate
//! SITE audit`).

use super::read::{fault, small};
use levee_policy::audit::{SUCCESSION, succession_message};
use pkcs8::der::pem;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, UnparsedPublicKey};
use std::path::Path;

/// A file with some hundred keys; one a year is enough for any site.
const MOST: u64 = 64 << 10;

/// The keys of a file, oldest first.
pub struct Signers {
    keys: Vec<UnparsedPublicKey<Vec<u8>>>,
    /// Which one has signed last: none before it is believed any more.
    at: usize,
}

impl Signers {
    /// Reads `levee enrol`'s `audit.pub`: a P-256 or P-384 key in PEM (RFC 5480 2), and for each that follows a signature of the one
    /// before it.
    ///
    /// # Errors
    /// It cannot be read, or one of the keys has nobody who vouches for it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = small(path, MOST)?;
        let text = std::str::from_utf8(&text).map_err(|e| fault(path, &e))?;
        let mut keys: Vec<UnparsedPublicKey<Vec<u8>>> = Vec::new();
        let mut vouched: Option<Vec<u8>> = None;
        for block in blocks(text) {
            let (label, content) = pem::decode_vec(block.as_bytes()).map_err(|e| fault(path, &e))?;
            match (label, keys.last(), vouched.take()) {
                ("PUBLIC KEY", None, None) => keys.push(key(path, &content)?),
                ("PUBLIC KEY", Some(before), Some(signature)) => {
                    before.verify(&succession_message(&content), &signature).map_err(|_| {
                        fault(path, &"one of its keys is not vouched for by the one before it")
                    })?;
                    keys.push(key(path, &content)?);
                }
                (SUCCESSION, Some(_), None) => vouched = Some(content),
                _ => return Err(fault(path, &"one of its keys has nobody who vouches for it")),
            }
        }
        if keys.is_empty() || vouched.is_some() {
            return Err(fault(path, &"it is no public key in PEM, or a key is missing at its end"));
        }
        Ok(Self { keys, at: 0 })
    }

    /// Whether the key that signed last, or one that followed it, has signed this.
    pub fn has_signed(&mut self, message: &[u8], signature: &[u8]) -> bool {
        let rest = self.keys.get(self.at..).unwrap_or_default();
        let found = rest.iter().position(|key| key.verify(message, signature).is_ok());
        self.at += found.unwrap_or(0);
        found.is_some()
    }
}

/// The PEM blocks of a text (RFC 7468), with what is between them left out.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.match_indices("-----BEGIN ").map(|(at, _)| at);
    starts.filter_map(move |at| {
        let rest = text.get(at..)?;
        let end = rest.find("-----END ")?;
        let line = rest.get(end..)?.find('\n').map_or(rest.len(), |length| end + length);
        rest.get(..line)
    })
}

/// A key, by the SubjectPublicKeyInfo that it is in, and how it signs.
fn key(path: &Path, info: &[u8]) -> Result<UnparsedPublicKey<Vec<u8>>, String> {
    /// What stands before the uncompressed point in the SubjectPublicKeyInfo of every P-256 key.
    const P256: &[u8] = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\
                          \x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
    /// The same of P-384.
    const P384: &[u8] = b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\
                          \x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00";
    if let Some(point) = info.strip_prefix(P256).filter(|point| point.len() == 65) {
        return Ok(UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point.to_vec()));
    }
    match info.strip_prefix(P384) {
        Some(point) if point.len() == 97 => {
            Ok(UnparsedPublicKey::new(&ECDSA_P384_SHA384_ASN1, point.to_vec()))
        }
        _ => Err(fault(path, &"neither a P-256 nor a P-384 key")),
    }
}
