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
use x509_parser::pem::Pem;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Who vouches for devices, and for whom they do no more.
pub struct Devices {
    server: DomainName,
    authorities: Authorities,
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
        let authorities = Authorities::read(authority)?;
        let mut devices = Self { server, authorities, revoked: BTreeSet::new(), list: None };
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

    /// Goes by another authority's certificate, or by those of two.
    ///
    /// # Errors
    /// If it cannot be used; the one before it holds.
    pub fn renew(&mut self, authority: OwnedFd) -> Result<(), String> {
        self.authorities = Authorities::read(authority)?;
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
        if !self.authorities.have_signed(&message, &sealed.signature) {
            return Err("its passport is not of the site's authority");
        }
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

/// The most authorities at a time: one, and the one before it while it is rotated.
const MOST_AUTHORITIES: usize = 2;

/// Who vouches for a passport: an authority, and the one before it while it is rotated.
pub struct Authorities(Vec<UnparsedPublicKey<Vec<u8>>>);

impl Authorities {
    /// By their certificates in PEM.
    ///
    /// # Errors
    /// If one of them cannot be used, there is none, or they are too many.
    pub fn read(file: OwnedFd) -> Result<Self, String> {
        let text = pem(&file).map_err(|e| format!("the authority: {e}"))?;
        let mut keys = Vec::new();
        for block in Pem::iter_from_buffer(&text) {
            let block = block.map_err(|e| format!("the authority: {e}"))?;
            let certificate = block.parse_x509().map_err(|e| format!("the authority: {e}"))?;
            let key = key(certificate.public_key());
            keys.push(key.ok_or("the authority's key is on neither P-256 nor P-384")?);
        }
        match keys.len() {
            1..=MOST_AUTHORITIES => Ok(Self(keys)),
            number => Err(format!("the authority: {number} certificates")),
        }
    }

    /// Whether one of them has signed this.
    pub fn have_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        self.0.iter().any(|key| key.verify(message, signature).is_ok())
    }
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
