//! The auditor's public key: the audit log's first key is sealed for it, and readable nowhere on this host.

use hpke::aead::AesGcm256;
use hpke::kdf::HkdfSha384;
use hpke::kem::DhP384HkdfSha384;
use hpke::{Deserializable as _, Kem, OpModeS, Serializable as _};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

/// What the sealing is for (RFC 9180 5.1, `info`).
pub const INFO: &[u8] = b"levee audit first key";
/// What stands before the uncompressed point in the SubjectPublicKeyInfo of every P-384 key (RFC 5480 2).
pub const P384: &[u8] =
    b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00";

/// The auditor's public key, on P-384.
pub struct Auditor(<DhP384HkdfSha384 as Kem>::PublicKey);

impl Auditor {
    /// Reads the file that the warden has given.
    ///
    /// # Errors
    /// If it cannot be read, or is no such key.
    pub fn read(fd: OwnedFd) -> Result<Self, String> {
        const REMEDY: &str = "the auditor's key is no public key on P-384 in PEM: levee enrol auditor";
        let mut text = vec![0; 4096];
        let length = File::from(fd).read_at(&mut text, 0).map_err(|e| format!("the auditor's key: {e}"))?;
        text.truncate(length);
        let key = SubjectPublicKeyInfoDer::from_pem_slice(&text).map_err(|_| REMEDY)?;
        let point = key.strip_prefix(P384).ok_or(REMEDY)?;
        let point = <DhP384HkdfSha384 as Kem>::PublicKey::from_bytes(point).map_err(|_| REMEDY)?;
        Ok(Self(point))
    }

    /// A secret that only the auditor can read: HPKE's encapsulated key, and behind it the sealed secret (RFC 9180 6.1).
    pub fn seal(&self, secret: &[u8]) -> Option<Vec<u8>> {
        let (key, sealed) = hpke::single_shot_seal::<AesGcm256, HkdfSha384, DhP384HkdfSha384>(
            &OpModeS::Base,
            &self.0,
            INFO,
            secret,
            &[],
        )
        .ok()?;
        Some([&key.to_bytes()[..], &sealed].concat())
    }
}
