//! The audit log's first key, which levee-sessiond seals for the auditor (HPKE, RFC 9180): DHKEM(P-384, HKDF-SHA384), HKDF-SHA384,
//! AES-256-GCM.

use hpke::aead::AesGcm256;
use hpke::kdf::HkdfSha384;
use hpke::kem::DhP384HkdfSha384;
use hpke::{Deserializable as _, Kem, OpModeR};
use pkcs8::PrivateKeyInfoRef;
use pkcs8::der::{Decode as _, Reader as _, SliceReader};
use rcgen::KeyPair;
use zeroize::Zeroizing;

/// What the sealing is for (`info`).
const INFO: &[u8] = b"levee audit first key";
/// Bytes of the encapsulated key, an uncompressed point.
const ENCAPSULATED: usize = 97;

/// The first key, if it was sealed for this key pair.
pub fn open(auditor: &KeyPair, sealed: &[u8]) -> Option<[u8; 32]> {
    let secret = secret(auditor)?;
    let (key, sealed) = sealed.split_at_checked(ENCAPSULATED)?;
    let secret = <DhP384HkdfSha384 as Kem>::PrivateKey::from_bytes(&secret).ok()?;
    let key = <DhP384HkdfSha384 as Kem>::EncappedKey::from_bytes(key).ok()?;
    let first = hpke::single_shot_open::<AesGcm256, HkdfSha384, DhP384HkdfSha384>(
        &OpModeR::Base,
        &secret,
        &key,
        INFO,
        sealed,
        &[],
    );
    Zeroizing::new(first.ok()?).as_slice().try_into().ok()
}

/// The private number of a key pair: the second field of an ECPrivateKey (RFC 5915 3).
fn secret(key: &KeyPair) -> Option<Zeroizing<Vec<u8>>> {
    let der = Zeroizing::new(key.serialize_der());
    let info = PrivateKeyInfoRef::try_from(der.as_slice()).ok()?;
    let mut reader = SliceReader::new(info.private_key.as_bytes()).ok()?;
    let number = reader.sequence(|fields| {
        let _version = u8::decode(fields)?;
        let number = <&pkcs8::der::asn1::OctetStringRef>::decode(fields)?.as_bytes().to_vec();
        // The curve and the public key, which follow.
        fields.read_slice(fields.remaining_len())?;
        Ok::<_, pkcs8::der::Error>(Zeroizing::new(number))
    });
    number.ok()
}
