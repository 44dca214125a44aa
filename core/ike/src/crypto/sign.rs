//! Signatures: RFC 7427 (ECDSA, RSASSA-PSS), RFC 8420 (Ed25519). levee verifies here; it signs elsewhere, in the process that
//! holds the private key.

use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_SIG_ED25519};
use x509_parser::prelude::{FromDer, X509Certificate};

/// A signature algorithm of the AUTH payload (RFC 7427, RFC 8420).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignatureScheme {
    /// ECDSA on P-256 with SHA-256; the signature is the DER `ECDSA-Sig-Value`.
    EcdsaP256Sha256,
    /// ECDSA on P-256 with SHA-384.
    EcdsaP256Sha384,
    /// ECDSA on P-256 with SHA-512, as libreswan signs unless told otherwise.
    EcdsaP256Sha512,
    /// ECDSA on P-384 with SHA-256.
    EcdsaP384Sha256,
    /// ECDSA on P-384 with SHA-384; the signature is the DER `ECDSA-Sig-Value`.
    EcdsaP384Sha384,
    /// ECDSA on P-384 with SHA-512.
    EcdsaP384Sha512,
    /// Ed25519 over the octets themselves (RFC 8420).
    Ed25519,
    /// RSASSA-PSS with SHA-256, MGF1 of the same and a salt of 32 octets.
    RsaPssSha256,
    /// RSASSA-PSS with SHA-384, MGF1 of the same and a salt of 48 octets.
    RsaPssSha384,
    /// RSASSA-PSS with SHA-512, MGF1 of the same and a salt of 64 octets.
    RsaPssSha512,
    /// RSASSA-PKCS1-v1_5 with SHA-256: for old peers, never a default.
    RsaPkcs1Sha256,
}

impl SignatureScheme {
    /// What a peer may sign with unless the site says otherwise: each kind of key with each hash that is announced (RFC 7427 4 has no
    /// way to say which hashes go with which keys).
    pub const DEFAULT: [Self; 10] = [
        Self::EcdsaP384Sha384,
        Self::EcdsaP256Sha256,
        Self::EcdsaP384Sha512,
        Self::EcdsaP384Sha256,
        Self::EcdsaP256Sha512,
        Self::EcdsaP256Sha384,
        Self::Ed25519,
        Self::RsaPssSha384,
        Self::RsaPssSha256,
        Self::RsaPssSha512,
    ];

    /// What the key of a certificate in DER signs with, if it is for ECDSA on P-256 (with SHA-256), on P-384 (with SHA-384) or
    /// for Ed25519.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let key = &certificate.public_key().algorithm;
        if key.algorithm == OID_SIG_ED25519 {
            return Some(Self::Ed25519);
        }
        let curve = key.parameters.as_ref()?.as_oid().ok()?;
        match key.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY {
            true if curve == OID_EC_P256 => Some(Self::EcdsaP256Sha256),
            true if curve == OID_NIST_EC_P384 => Some(Self::EcdsaP384Sha384),
            _ => None,
        }
    }

    /// The hash's number in SIGNATURE_HASH_ALGORITHMS (RFC 7427 7, RFC 8420 2).
    pub(crate) fn hash(self) -> u16 {
        match self {
            Self::EcdsaP256Sha256 | Self::EcdsaP384Sha256 | Self::RsaPssSha256 | Self::RsaPkcs1Sha256 => 2,
            Self::EcdsaP256Sha384 | Self::EcdsaP384Sha384 | Self::RsaPssSha384 => 3,
            Self::EcdsaP256Sha512 | Self::EcdsaP384Sha512 | Self::RsaPssSha512 => 4,
            Self::Ed25519 => 5,
        }
    }

    fn algorithm(self) -> &'static Verifier {
        match self {
            Self::EcdsaP256Sha256 => &P256_SHA256,
            Self::EcdsaP256Sha384 => &P256_SHA384,
            Self::EcdsaP256Sha512 => &P256_SHA512,
            Self::EcdsaP384Sha256 => &P384_SHA256,
            Self::EcdsaP384Sha384 => &P384_SHA384,
            Self::EcdsaP384Sha512 => &P384_SHA512,
            Self::Ed25519 => &ED25519,
            Self::RsaPssSha256 => &PSS_SHA256,
            Self::RsaPssSha384 => &PSS_SHA384,
            Self::RsaPssSha512 => &PSS_SHA512,
            Self::RsaPkcs1Sha256 => &PKCS1_SHA256,
        }
    }

    pub(crate) fn verifier(self) -> &'static dyn SignatureVerificationAlgorithm {
        self.algorithm()
    }

    /// The DER AlgorithmIdentifier, with its SEQUENCE, as the AUTH payload carries it (RFC 7427 3).
    pub(crate) fn identifier(self) -> Vec<u8> {
        let inner = self.algorithm().signature;
        let mut out = vec![0x30, u8::try_from(inner.len()).unwrap_or(0)];
        out.extend_from_slice(inner.as_ref());
        out
    }

    /// Splits the data of an AUTH payload of method 14 into the AlgorithmIdentifier and the signature.
    pub(crate) fn split(data: &[u8]) -> Option<(&[u8], &[u8])> {
        let (length, rest) = data.split_first()?;
        rest.split_at_checked(usize::from(*length))
    }

    /// Of `accepted`, those that an AlgorithmIdentifier means: one of ECDSA says the hash and leaves the curve to the key.
    pub(crate) fn meant_by<'a>(
        identifier: &'a [u8],
        accepted: &'a [Self],
    ) -> impl Iterator<Item = Self> + 'a {
        accepted.iter().copied().filter(move |s| s.identifier() == identifier)
    }

    /// An AlgorithmIdentifier for the operator: its name where it is a common one, else its octets.
    pub(crate) fn describe(identifier: &[u8]) -> String {
        // RFC 7427 A, RFC 8420 A; the object identifiers alone where parameters follow.
        const NAMES: [(&[u8], &str); 12] = [
            (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], "ECDSA with SHA-1"),
            (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2], "ECDSA with SHA-256"),
            (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3], "ECDSA with SHA-384"),
            (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4], "ECDSA with SHA-512"),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5], "RSA PKCS#1 v1.5 with SHA-1"),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10], "RSASSA-PSS"),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11], "RSA PKCS#1 v1.5 with SHA-256"),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12], "RSA PKCS#1 v1.5 with SHA-384"),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13], "RSA PKCS#1 v1.5 with SHA-512"),
            (&[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 3], "DSA with SHA-1"),
            (&[0x2b, 0x65, 0x70], "Ed25519"),
            (&[0x2b, 0x65, 0x71], "Ed448"),
        ];
        // SEQUENCE, length, OBJECT IDENTIFIER, length, octets (X.690).
        if let [0x30, _, 0x06, length, rest @ ..] = identifier
            && let Some(oid) = rest.get(..usize::from(*length))
            && let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == oid)
        {
            return (*name).to_owned();
        }
        let octets = identifier.iter().take(24).map(|octet| format!("{octet:02x}"));
        format!("the algorithm {}", octets.collect::<String>())
    }

    /// The data of an AUTH payload of method 14: length, AlgorithmIdentifier, signature.
    pub(crate) fn auth_data(self, signature: &[u8]) -> Vec<u8> {
        let identifier = self.identifier();
        let mut out = vec![u8::try_from(identifier.len()).unwrap_or(0)];
        out.extend_from_slice(&identifier);
        out.extend_from_slice(signature);
        out
    }
}

#[derive(Debug, Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    fn of(self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(message).to_vec(),
            Self::Sha384 => Sha384::digest(message).to_vec(),
            Self::Sha512 => Sha512::digest(message).to_vec(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Algorithm {
    P256(Hash),
    P384(Hash),
    Ed25519,
    Pss(Hash),
    Pkcs1(Hash),
}

/// One algorithm as rustls-webpki wants it: which keys, which signatures, and how to check.
#[derive(Debug)]
struct Verifier {
    algorithm: Algorithm,
    key: AlgorithmIdentifier,
    signature: AlgorithmIdentifier,
}

const P256_SHA256: Verifier = Verifier {
    algorithm: Algorithm::P256(Hash::Sha256),
    key: alg_id::ECDSA_P256,
    signature: alg_id::ECDSA_SHA256,
};
const P256_SHA384: Verifier = Verifier {
    algorithm: Algorithm::P256(Hash::Sha384),
    key: alg_id::ECDSA_P256,
    signature: alg_id::ECDSA_SHA384,
};
const P256_SHA512: Verifier = Verifier {
    algorithm: Algorithm::P256(Hash::Sha512),
    key: alg_id::ECDSA_P256,
    signature: alg_id::ECDSA_SHA512,
};
const P384_SHA256: Verifier = Verifier {
    algorithm: Algorithm::P384(Hash::Sha256),
    key: alg_id::ECDSA_P384,
    signature: alg_id::ECDSA_SHA256,
};
const P384_SHA384: Verifier = Verifier {
    algorithm: Algorithm::P384(Hash::Sha384),
    key: alg_id::ECDSA_P384,
    signature: alg_id::ECDSA_SHA384,
};
const P384_SHA512: Verifier = Verifier {
    algorithm: Algorithm::P384(Hash::Sha512),
    key: alg_id::ECDSA_P384,
    signature: alg_id::ECDSA_SHA512,
};
const ED25519: Verifier =
    Verifier { algorithm: Algorithm::Ed25519, key: alg_id::ED25519, signature: alg_id::ED25519 };
const PSS_SHA256: Verifier = Verifier {
    algorithm: Algorithm::Pss(Hash::Sha256),
    key: alg_id::RSA_ENCRYPTION,
    signature: alg_id::RSA_PSS_SHA256,
};
const PSS_SHA384: Verifier = Verifier {
    algorithm: Algorithm::Pss(Hash::Sha384),
    key: alg_id::RSA_ENCRYPTION,
    signature: alg_id::RSA_PSS_SHA384,
};
const PSS_SHA512: Verifier = Verifier {
    algorithm: Algorithm::Pss(Hash::Sha512),
    key: alg_id::RSA_ENCRYPTION,
    signature: alg_id::RSA_PSS_SHA512,
};
const PKCS1_SHA256: Verifier = Verifier {
    algorithm: Algorithm::Pkcs1(Hash::Sha256),
    key: alg_id::RSA_ENCRYPTION,
    signature: alg_id::RSA_PKCS1_SHA256,
};
const PKCS1_SHA384: Verifier = Verifier {
    algorithm: Algorithm::Pkcs1(Hash::Sha384),
    key: alg_id::RSA_ENCRYPTION,
    signature: alg_id::RSA_PKCS1_SHA384,
};
const PKCS1_SHA512: Verifier = Verifier {
    algorithm: Algorithm::Pkcs1(Hash::Sha512),
    key: alg_id::RSA_ENCRYPTION,
    signature: alg_id::RSA_PKCS1_SHA512,
};

/// The algorithms that authorities may sign certificates and revocation lists with.
pub(crate) static CERTIFICATE_ALGORITHMS: [&dyn SignatureVerificationAlgorithm; 13] = [
    &P256_SHA256,
    &P256_SHA384,
    &P256_SHA512,
    &P384_SHA256,
    &P384_SHA384,
    &P384_SHA512,
    &ED25519,
    &PSS_SHA256,
    &PSS_SHA384,
    &PSS_SHA512,
    &PKCS1_SHA256,
    &PKCS1_SHA384,
    &PKCS1_SHA512,
];

/// Moduli outside these bounds, in bits, are refused: too weak, or too slow to be handed to anyone who asks.
const RSA_BITS: std::ops::RangeInclusive<u32> = 2048..=8192;

impl SignatureVerificationAlgorithm for Verifier {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        self.check(key, message, signature).ok_or(InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.key
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.signature
    }
}

impl Verifier {
    fn check(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Option<()> {
        use p256::ecdsa::signature::hazmat::PrehashVerifier;
        match self.algorithm {
            Algorithm::P256(hash) => p256::ecdsa::VerifyingKey::from_sec1_bytes(key)
                .ok()?
                .verify_prehash(&hash.of(message), &p256::ecdsa::DerSignature::try_from(signature).ok()?)
                .ok(),
            Algorithm::P384(hash) => p384::ecdsa::VerifyingKey::from_sec1_bytes(key)
                .ok()?
                .verify_prehash(&hash.of(message), &p384::ecdsa::DerSignature::try_from(signature).ok()?)
                .ok(),
            Algorithm::Ed25519 => ed25519_dalek::VerifyingKey::from_bytes(key.try_into().ok()?)
                .ok()?
                .verify_strict(message, &ed25519_dalek::Signature::from_slice(signature).ok()?)
                .ok(),
            Algorithm::Pss(hash) => {
                let key = rsa_key(key)?;
                let digest = hash.of(message);
                match hash {
                    Hash::Sha256 => key.verify(rsa::Pss::<Sha256>::new(), &digest, signature),
                    Hash::Sha384 => key.verify(rsa::Pss::<Sha384>::new(), &digest, signature),
                    Hash::Sha512 => key.verify(rsa::Pss::<Sha512>::new(), &digest, signature),
                }
                .ok()
            }
            Algorithm::Pkcs1(hash) => {
                let key = rsa_key(key)?;
                let digest = hash.of(message);
                match hash {
                    Hash::Sha256 => key.verify(rsa::Pkcs1v15Sign::new::<Sha256>(), &digest, signature),
                    Hash::Sha384 => key.verify(rsa::Pkcs1v15Sign::new::<Sha384>(), &digest, signature),
                    Hash::Sha512 => key.verify(rsa::Pkcs1v15Sign::new::<Sha512>(), &digest, signature),
                }
                .ok()
            }
        }
    }
}

fn rsa_key(key: &[u8]) -> Option<rsa::RsaPublicKey> {
    use rsa::pkcs1::DecodeRsaPublicKey;
    use rsa::traits::PublicKeyParts;
    // The modulus is most of the encoding: a longer key is refused before any arithmetic.
    (key.len() <= 1100).then_some(())?;
    let key = rsa::RsaPublicKey::from_pkcs1_der(key).ok()?;
    RSA_BITS.contains(&key.n().bits()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An RSAPublicKey (RFC 8017 A.1.1) whose modulus has so many bits, and 65537.
    fn key(bits: usize) -> Vec<u8> {
        let long = |tag: u8, body: Vec<u8>| {
            let length = u16::try_from(body.len()).expect("a length").to_be_bytes();
            [&[tag, 0x82], &length[..], &body].concat()
        };
        let mut modulus = vec![0; bits.div_ceil(8)];
        modulus[0] = 1 << ((bits - 1) % 8);
        *modulus.last_mut().expect("one") |= 1;
        if modulus[0] & 0x80 != 0 {
            modulus.insert(0, 0);
        }
        long(0x30, [long(2, modulus), vec![2, 3, 1, 0, 1]].concat())
    }

    #[test]
    fn a_modulus_has_from_2048_to_8192_bits() {
        for (bits, taken) in [
            (512, false),
            (1_024, false),
            (2_047, false),
            (2_048, true),
            (3_072, true),
            (8_192, true),
            (8_193, false),
            (16_384, false),
        ] {
            assert_eq!(rsa_key(&key(bits)).is_some(), taken, "{bits}");
        }
    }
}
