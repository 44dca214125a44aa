//! The auditor's end of the log.

use hpke::kem::DhP384HkdfSha384;
use hpke::{Deserializable as _, Kem as _, Serializable as _};
use levee_policy::audit;
use std::path::Path;

/// The auditor's key pair, for HPKE.
fn auditor() -> (<DhP384HkdfSha384 as hpke::Kem>::PrivateKey, <DhP384HkdfSha384 as hpke::Kem>::PublicKey) {
    DhP384HkdfSha384::derive_keypair(&[7; 48])
}

/// The public half as PEM.
pub fn auditor_pem() -> String {
    use base64::Engine as _;
    const P384: &[u8] =
        b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00";
    let der = [P384, &auditor().1.to_bytes()].concat();
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
}

/// The log's first key, as the auditor opens it.
pub fn first_key(directory: &Path) -> audit::AuditKey {
    let text = std::fs::read_to_string(directory.join("audit.first-key")).unwrap();
    let audit::Hex(sealed) = audit::Hex::try_from(text.trim().to_owned()).unwrap();
    let (key, sealed) = sealed.split_at(97);
    let key = <DhP384HkdfSha384 as hpke::Kem>::EncappedKey::from_bytes(key).unwrap();
    let first = hpke::single_shot_open::<hpke::aead::AesGcm256, hpke::kdf::HkdfSha384, DhP384HkdfSha384>(
        &hpke::OpModeR::Base,
        &auditor().0,
        &key,
        b"levee audit first key",
        sealed,
        &[],
    );
    audit::AuditKey::from_bytes(first.unwrap().try_into().unwrap())
}
