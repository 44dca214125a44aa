//! Which device is at the other end of a trusted path: believed of nobody but the device's own key and the site's authority.

use crate::known::Digest;
use crate::revoked;
use levee_daemon::pem;
use levee_ipc::device::{Curve, Passport, Proof, proof_message};
use levee_policy::DomainName;
use levee_session::Time;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, EcdsaVerificationAlgorithm, UnparsedPublicKey,
};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use x509_parser::pem::parse_x509_pem;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Who vouches for devices, and for whom they do no more.
pub struct Devices {
    server: DomainName,
    authority: UnparsedPublicKey<Vec<u8>>,
    revoked: BTreeSet<Vec<u8>>,
    /// Of the revocation list, if there is one.
    list: Option<Digest>,
}

impl Devices {
    /// By the authority's certificate and the revocation list, if there is one, as the warden gives them.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub fn new(server: DomainName, authority: OwnedFd, list: Option<OwnedFd>) -> Result<Self, String> {
        let authority = self::authority(authority)?;
        let mut devices = Self { server, authority, revoked: BTreeSet::new(), list: None };
        if let Some(list) = list {
            devices.believe(&list).map_err(|e| format!("the revocation list: {e}"))?;
        }
        Ok(devices)
    }

    /// Goes by another revocation list.
    ///
    /// # Errors
    /// If it cannot be read; the one before it holds.
    pub fn believe(&mut self, list: &OwnedFd) -> Result<(), String> {
        let (revoked, digest) = revoked::serials(list)?;
        (self.revoked, self.list) = (revoked, Some(digest));
        Ok(())
    }

    /// The digest of the revocation list that it goes by.
    pub fn list(&self) -> Option<Digest> {
        self.list
    }

    /// Whether a certificate of this serial number is revoked.
    pub fn is_revoked(&self, serial: &[u8]) -> bool {
        self.revoked.contains(serial)
    }

    /// The device that has signed this number on this connection.
    ///
    /// # Errors
    /// Why it is not believed, in words for the person.
    pub fn prove(
        &self,
        proof: Proof,
        nonce: &[u8; 32],
        exporter: &[u8; 32],
        now: Time,
    ) -> Result<Passport, &'static str> {
        let Proof { sealed, signature } = proof;
        let message = sealed.passport.message().ok_or("its passport is malformed")?;
        self.authority
            .verify(&message, &sealed.signature)
            .map_err(|_| "its passport is not of the site's authority")?;
        let passport = sealed.passport;
        let message = proof_message(&self.server, nonce, exporter);
        UnparsedPublicKey::new(algorithm(passport.curve), &passport.point)
            .verify(&message, &signature)
            .map_err(|_| "it has not signed for this connection")?;
        if passport.not_after.saturating_mul(1000) < now.as_millis() {
            return Err("its passport has run out: enrol the workstation anew");
        }
        if self.is_revoked(&passport.serial) {
            return Err("its certificate is revoked");
        }
        Ok(passport)
    }
}

/// The key of an authority, by its certificate in PEM.
///
/// # Errors
/// If it cannot be used.
pub fn authority(file: OwnedFd) -> Result<UnparsedPublicKey<Vec<u8>>, String> {
    let text = pem(&file).map_err(|e| format!("the authority: {e}"))?;
    let (_, block) = parse_x509_pem(&text).map_err(|e| format!("the authority: {e}"))?;
    let certificate = block.parse_x509().map_err(|e| format!("the authority: {e}"))?;
    key(certificate.public_key())
        .ok_or_else(|| "the authority's key is on neither P-256 nor P-384".to_owned())
}

/// How a key on this curve signs.
pub fn algorithm(curve: Curve) -> &'static EcdsaVerificationAlgorithm {
    match curve {
        Curve::P256 => &ECDSA_P256_SHA256_ASN1,
        Curve::P384 => &ECDSA_P384_SHA384_ASN1,
    }
}

/// A public key, by the length of its uncompressed point.
fn key(info: &SubjectPublicKeyInfo<'_>) -> Option<UnparsedPublicKey<Vec<u8>>> {
    let point = info.subject_public_key.data.to_vec();
    let curve = match point.len() {
        65 => Curve::P256,
        97 => Curve::P384,
        _ => return None,
    };
    Some(UnparsedPublicKey::new(algorithm(curve), point))
}
