//! The site's authority and its devices.

use levee_ipc::device::{Curve, Passport, Proof, Sealed, proof_message};
use levee_policy::{DomainName, HostName};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, RevokedCertParams, SerialNumber, SigningKey as _,
};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The site's authority, and the keys of its devices.
pub struct Devices {
    pub authority_pem: String,
    authority: Issuer<'static, KeyPair>,
    keys: Mutex<BTreeMap<String, (KeyPair, Vec<u8>)>>,
}

impl Devices {
    pub fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_pem = params.self_signed(&key).unwrap().pem();
        Self { authority_pem, authority: Issuer::new(params, key), keys: Mutex::default() }
    }

    /// A device's passport, as the authority signs it.
    pub fn passport(&self, device: &str, change: impl FnOnce(&mut Passport)) -> Sealed {
        let mut keys = self.keys.lock().unwrap();
        let fresh = || (KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap(), device.as_bytes().to_vec());
        let (key, serial) = keys.entry(device.to_owned()).or_insert_with(fresh);
        // Each certificate has another.
        let mut fingerprint = [5; 32];
        fingerprint.iter_mut().zip(&*serial).for_each(|(to, from)| *to = *from);
        let mut passport = Passport {
            device: HostName::new(device).unwrap(),
            serial: serial.clone(),
            fingerprint,
            not_after: u64::MAX / 2000,
            curve: Curve::P256,
            point: key.public_key_raw().to_vec(),
        };
        change(&mut passport);
        let signature = self.authority.key().sign(&passport.message().unwrap()).unwrap();
        Sealed { passport, signature }
    }

    /// The device has another key from now on, and a certificate of this serial number.
    pub fn enrol_anew(&self, device: &str, serial: &str) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        self.keys.lock().unwrap().insert(device.to_owned(), (key, serial.as_bytes().to_vec()));
    }

    /// A device's signature for one connection.
    pub fn sign(&self, device: &str, nonce: &[u8; 32], exporter: &[u8; 32]) -> Vec<u8> {
        let server = DomainName::new("server.example").unwrap();
        let _known = self.passport(device, |_| {});
        let keys = self.keys.lock().unwrap();
        keys[device].0.sign(&proof_message(&server, nonce, exporter)).unwrap()
    }

    pub fn proof(&self, device: &str, nonce: &[u8; 32], exporter: &[u8; 32]) -> Proof {
        let signature = self.sign(device, nonce, exporter);
        Proof { sealed: self.passport(device, |_| {}), signature }
    }

    /// A revocation list that names certificates of these serial numbers: a device's first has its name.
    pub fn list(&self, revoked: &[&str]) -> String {
        let now = time::OffsetDateTime::now_utc();
        let entry = |device: &&str| RevokedCertParams {
            serial_number: SerialNumber::from_slice(device.as_bytes()),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: now - time::Duration::days(1),
            next_update: now + time::Duration::days(1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.authority).unwrap().pem().unwrap()
    }
}
