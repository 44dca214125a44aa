//! Authorities, certificates and keys for tests.

use crate::run;
use levee_ike::SignatureScheme;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};

/// Kinds of private keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-384.
    P384,
    /// Ed25519.
    Ed25519,
    /// RSA with 3072 bits.
    Rsa,
}

/// A private key with its certificate and those of the authorities between it and the root.
pub struct Key {
    kind: KeyKind,
    pair: KeyPair,
    /// DER, the own certificate first.
    pub chain: Vec<Vec<u8>>,
}

/// A certification authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate in DER.
    pub der: Vec<u8>,
    /// Its certificate in PEM.
    pub pem: String,
    between: Vec<Vec<u8>>,
}

fn key_pair(kind: KeyKind) -> KeyPair {
    match kind {
        KeyKind::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        KeyKind::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        KeyKind::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        KeyKind::Rsa => {
            let pem = run(
                "openssl",
                &["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:3072", "-quiet"],
            );
            KeyPair::from_pkcs8_pem_and_sign_algo(&pem, &rcgen::PKCS_RSA_SHA256)
        }
    }
    .expect("a key")
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Authority {
    /// A root.
    pub fn new(name: &str, kind: KeyKind) -> Self {
        let (params, key) = (authority_params(name), key_pair(kind));
        let cert = params.self_signed(&key).expect("a root certificate");
        let (der, pem) = (cert.der().to_vec(), cert.pem());
        Self { issuer: Issuer::new(params, key), der, pem, between: Vec::new() }
    }

    /// An authority below this one. Its certificate carries `padding` octets of a long name, to make chains large.
    pub fn below(&self, name: &str, kind: KeyKind, padding: usize) -> Self {
        let (mut params, key) = (authority_params(name), key_pair(kind));
        params.distinguished_name.push(DnType::OrganizationalUnitName, "x".repeat(padding));
        let cert = params.signed_by(&key, &self.issuer).expect("an intermediate certificate");
        let mut between = vec![cert.der().to_vec()];
        between.extend(self.between.iter().cloned());
        let (der, pem) = (cert.der().to_vec(), cert.pem());
        Self { issuer: Issuer::new(params, key), der, pem, between }
    }

    /// A revocation list in DER: these serial numbers, valid for an hour around now, or if `stale` until an hour ago.
    pub fn revoke(&self, serials: &[u64], stale: bool) -> Vec<u8> {
        let now = std::time::SystemTime::now();
        let hour = std::time::Duration::from_secs(3600);
        let at = |t: std::time::SystemTime| t.into();
        let revoked = |serial: &u64| rcgen::RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: at(now - hour),
            reason_code: None,
            invalidity_date: None,
        };
        let params = rcgen::CertificateRevocationListParams {
            this_update: at(now - 2 * hour),
            next_update: at(if stale { now - hour } else { now + hour }),
            crl_number: 1u64.into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).expect("a revocation list").der().to_vec()
    }

    /// A key with a certificate for a host's name.
    pub fn issue(&self, name: &str, kind: KeyKind) -> Key {
        self.issue_numbered(name, kind, None)
    }

    /// As [`issue`](Self::issue), with the certificate's serial number.
    pub fn issue_numbered(&self, name: &str, kind: KeyKind, serial: Option<u64>) -> Key {
        let mut params = CertificateParams::default();
        params.serial_number = serial.map(Into::into);
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = vec![SanType::DnsName(name.try_into().expect("a name"))];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let pair = key_pair(kind);
        let cert = params.signed_by(&pair, &self.issuer).expect("a certificate");
        let mut chain = vec![cert.der().to_vec()];
        chain.extend(self.between.iter().cloned());
        Key { kind, pair, chain }
    }
}

impl Key {
    /// What the key signs with.
    pub fn schemes(&self) -> Vec<SignatureScheme> {
        match self.kind {
            KeyKind::P256 => vec![SignatureScheme::EcdsaP256Sha256],
            KeyKind::P384 => vec![SignatureScheme::EcdsaP384Sha384],
            KeyKind::Ed25519 => vec![SignatureScheme::Ed25519],
            KeyKind::Rsa => {
                vec![
                    SignatureScheme::RsaPssSha256,
                    SignatureScheme::RsaPssSha384,
                    SignatureScheme::RsaPssSha512,
                ]
            }
        }
    }

    /// The key in PEM (PKCS#8).
    pub fn pem(&self) -> String {
        self.pair.serialize_pem()
    }

    /// The key in PKCS#8.
    pub fn pkcs8(&self) -> Vec<u8> {
        self.pair.serialize_der()
    }

    /// Signs as the scheme says.
    pub fn sign(&self, scheme: SignatureScheme, octets: &[u8]) -> Vec<u8> {
        let rng = SystemRandom::new();
        let pkcs8 = self.pair.serialize_der();
        let ecdsa = |algorithm| {
            let key = EcdsaKeyPair::from_pkcs8(algorithm, &pkcs8, &rng).expect("an ECDSA key");
            key.sign(&rng, octets).expect("a signature").as_ref().to_vec()
        };
        let rsa = |padding| {
            let key = RsaKeyPair::from_pkcs8(&pkcs8).expect("an RSA key");
            let mut out = vec![0; key.public().modulus_len()];
            key.sign(padding, &rng, octets, &mut out).expect("a signature");
            out
        };
        match scheme {
            SignatureScheme::EcdsaP256Sha256 => ecdsa(&signature::ECDSA_P256_SHA256_ASN1_SIGNING),
            SignatureScheme::EcdsaP384Sha384 => ecdsa(&signature::ECDSA_P384_SHA384_ASN1_SIGNING),
            // ring signs with the hash of the curve's size alone.
            SignatureScheme::EcdsaP256Sha384
            | SignatureScheme::EcdsaP256Sha512
            | SignatureScheme::EcdsaP384Sha256
            | SignatureScheme::EcdsaP384Sha512 => unreachable!("no key of these tests signs with {scheme:?}"),
            SignatureScheme::Ed25519 => Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8)
                .expect("an Ed25519 key")
                .sign(octets)
                .as_ref()
                .to_vec(),
            SignatureScheme::RsaPssSha256 => rsa(&signature::RSA_PSS_SHA256),
            SignatureScheme::RsaPssSha384 => rsa(&signature::RSA_PSS_SHA384),
            SignatureScheme::RsaPssSha512 => rsa(&signature::RSA_PSS_SHA512),
            SignatureScheme::RsaPkcs1Sha256 => rsa(&signature::RSA_PKCS1_SHA256),
        }
    }
}

/// DER as PEM.
pub(crate) fn certificate_pem(der: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for (i, group) in der.chunks(3).enumerate() {
        let n = group.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - group.len()));
        for k in 0..4 {
            let c = ALPHABET[(n >> (18 - 6 * k) & 63) as usize];
            text.push(if k <= group.len() { char::from(c) } else { '=' });
        }
        if i % 16 == 15 {
            text.push('\n');
        }
    }
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", text.trim_end())
}
