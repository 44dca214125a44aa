//! Which device is at the other end of a trusted path, proved to sessiond itself.
//!
//! The tps child that reads a client's bytes may be taken over, and then says what it likes. So it is not believed about whose
//! connection it has: the device signs, for each connection, a number that sessiond has drawn, and shows with it what the
//! site's authority has signed about the device, its [`Passport`]. Both are of one fixed form, signed as they stand here; sessiond
//! checks two signatures and parses no certificate.

use crate::sealed;
use levee_policy::{DomainName, HostName};
use serde::{Deserialize, Serialize};

/// What begins a signed passport. No certificate and no revocation list begins so: these are DER, and begin with 0x30.
const PASSPORT: &[u8] = b"levee device passport\0";
/// What begins a signed proof. No TLS CertificateVerify begins so (RFC 8446 4.4.3: 64 spaces).
const PROOF: &[u8] = b"levee device proof\0";
/// The label under which a connection's number is drawn from its keys (RFC 8446 7.5).
pub const EXPORTER: &[u8] = b"EXPORTER-levee-device-proof";
/// The most bytes of a serial number (RFC 5280 4.1.2.2).
const MAX_SERIAL: usize = 20;

/// The curve of a device's key; its hash is the one of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Curve {
    /// P-256, SHA-256.
    P256,
    /// P-384, SHA-384.
    P384,
}

impl Curve {
    /// The length of an uncompressed point.
    pub fn point(self) -> usize {
        match self {
            Self::P256 => 65,
            Self::P384 => 97,
        }
    }
}

/// What the site's authority says about a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passport {
    /// The device.
    pub device: HostName,
    /// The serial number of its certificate on the trusted path (RFC 5280 4.1.2.2).
    pub serial: Vec<u8>,
    /// SHA-256 of that certificate.
    pub fingerprint: [u8; 32],
    /// Until when it is good, in seconds since 1970-01-01 UTC.
    pub not_after: u64,
    /// The curve of its key.
    pub curve: Curve,
    /// Its public key: an uncompressed point.
    pub point: Vec<u8>,
}

impl Passport {
    /// The bytes that the authority signs: no two passports have the same. `None` if a field is too long.
    pub fn message(&self) -> Option<Vec<u8>> {
        if self.serial.len() > MAX_SERIAL || self.point.len() != self.curve.point() {
            return None;
        }
        let (name, curve) = (self.device.as_str().as_bytes(), self.curve as u8);
        let mut message = PASSPORT.to_vec();
        message.push(u8::try_from(name.len()).ok()?);
        message.extend_from_slice(name);
        message.push(u8::try_from(self.serial.len()).ok()?);
        message.extend_from_slice(&self.serial);
        message.extend_from_slice(&self.fingerprint);
        message.extend_from_slice(&self.not_after.to_be_bytes());
        message.push(curve);
        message.extend_from_slice(&self.point);
        Some(message)
    }
}

impl sealed::Passport for Passport {
    const KIND: &str = "LEVEE PASSPORT";
}

/// A passport and the authority's signature over [`Passport::message`].
pub type Sealed = sealed::Sealed<Passport>;

/// What a device shows for one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Who it is.
    pub sealed: Sealed,
    /// The device's signature over [`proof_message`]: ASN.1 ECDSA with the hash of its key's curve.
    pub signature: Vec<u8>,
}

/// The bytes that a device signs: for this server, this number of sessiond's, and this TLS connection ([`EXPORTER`]).
pub fn proof_message(server: &DomainName, nonce: &[u8; 32], exporter: &[u8; 32]) -> Vec<u8> {
    let mut message = PROOF.to_vec();
    message.extend_from_slice(nonce);
    message.extend_from_slice(exporter);
    message.extend_from_slice(server.as_str().as_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> Sealed {
        let passport = Passport {
            device: HostName::new("ws1").unwrap(),
            serial: vec![1; 20],
            fingerprint: [2; 32],
            not_after: 3,
            curve: Curve::P256,
            point: vec![4; 65],
        };
        Sealed { passport, signature: vec![5; 72] }
    }

    #[test]
    fn a_passport_reads_back_as_it_was_written_among_certificates_and_not_when_it_is_cut_or_longer() {
        let text = sealed().to_text().unwrap();
        let chain = format!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{text}");
        assert_eq!(Sealed::from_text(chain.as_bytes()), Some(sealed()));
        let longer = crate::armour::write(<Passport as sealed::Passport>::KIND, &(sealed(), 0_u8)).unwrap();
        for wrong in [
            text.replacen("AQEB", "AQ*B", 1),
            text.replace("-----END", ""),
            text.replacen("AQEB", "AQB", 1),
            text.replacen("AQEB", "", 1),
            longer,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
        ] {
            assert_eq!(Sealed::from_text(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn every_field_is_in_what_is_signed_and_none_can_pass_for_another() {
        let whole = sealed().passport;
        let other = |change: fn(&mut Passport)| {
            let mut passport = whole.clone();
            change(&mut passport);
            passport.message()
        };
        let mut messages = vec![
            whole.message(),
            other(|p| p.device = HostName::new("ws2").unwrap()),
            other(|p| p.serial = vec![1; 19]),
            other(|p| p.fingerprint[0] = 0),
            other(|p| p.not_after = 4),
            other(|p| p.point[64] = 0),
            other(|p| (p.curve, p.point) = (Curve::P384, vec![4; 97])),
        ];
        assert!(messages.iter().all(Option::is_some));
        messages.sort();
        messages.dedup();
        assert_eq!(messages.len(), 7);
        assert_eq!(other(|p| p.serial = vec![1; 21]), None);
        assert_eq!(other(|p| p.point = vec![4; 97]), None);
        let server = |name: &str| DomainName::new(name).unwrap();
        let proof = proof_message(&server("a.example"), &[1; 32], &[2; 32]);
        assert_ne!(proof, proof_message(&server("b.example"), &[1; 32], &[2; 32]));
        assert_ne!(proof, proof_message(&server("a.example"), &[2; 32], &[1; 32]));
    }
}
