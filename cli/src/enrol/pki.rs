//! Keys and X.509 certificates of a site: its authority, its server, its hosts. ECDSA on one curve throughout.

use levee_ipc::device::{self, Passport, Sealed};
use levee_ipc::federation;
use levee_ipc::signer::PPK_ID;
use levee_policy::audit::hex;
use levee_policy::site::Curve;
use levee_policy::{DomainName, HostName, PpkId, SiteName};
use pkcs8::der::asn1::OctetStringRef;
use pkcs8::der::{Decode as _, Encode as _, pem};
use pkcs8::pkcs5::pbes2;
use pkcs8::{EncryptedPrivateKeyInfoRef, LineEnding, PrivateKeyInfoRef, SecretDocument};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, CustomExtension,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData, RevokedCertParams, SanType,
    SerialNumber, SigningKey, SubjectPublicKeyInfo,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, SubjectPublicKeyInfoDer};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;
use zeroize::Zeroizing;

/// The certificate extension with a host's accreditation: see `docs/accreditation.md`.
pub const ACCREDITATION_OID: [u64; 14] =
    [1, 2, 840, 113_556, 1, 8000, 2554, 36_053, 36_488, 38_356, 17_904, 41_662, 1_017_755, 10_205_640];

const AUTHORITY_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 730;
/// Certificates begin a little before they are made, for hosts whose clocks are late.
const BACKDATE: Duration = Duration::hours(1);

/// Why no certificate could be made.
#[derive(Debug)]
pub struct PkiError(pub String);

impl std::fmt::Display for PkiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for PkiError {}

thread_local! {
    /// Why the last signature failed: rcgen's error has no room for it.
    static WHY: RefCell<Option<PkiError>> = const { RefCell::new(None) };
}

/// Why a key outside this process did not sign, as rcgen takes it and [`PkiError::from`] gives it back.
pub fn unsigned(why: PkiError) -> rcgen::Error {
    WHY.set(Some(why));
    rcgen::Error::RemoteKeyError
}

impl From<rcgen::Error> for PkiError {
    fn from(error: rcgen::Error) -> Self {
        match error {
            rcgen::Error::RemoteKeyError => {
                WHY.take().unwrap_or_else(|| Self("the authority did not sign".into()))
            }
            error => Self(format!("making a certificate: {error}")),
        }
    }
}

/// The public key of the first certificate of a PEM text.
pub fn public_key(pem: &[u8]) -> Result<SubjectPublicKeyInfo, PkiError> {
    let fault = |why: &dyn std::fmt::Display| PkiError(format!("reading a certificate: {why}"));
    let der = CertificateDer::from_pem_slice(pem).map_err(|e| fault(&e))?;
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| fault(&e))?;
    Ok(SubjectPublicKeyInfo::from_der(certificate.public_key().raw)?)
}

/// A new private key.
pub fn key(curve: Curve) -> Result<KeyPair, PkiError> {
    Ok(KeyPair::generate_for(match curve {
        Curve::P256 => &PKCS_ECDSA_P256_SHA256,
        Curve::P384 => &PKCS_ECDSA_P384_SHA384,
    })?)
}

/// Whether a private key is on this curve.
pub fn is_on(key: &impl PublicKeyData, curve: Curve) -> bool {
    let algorithm = match curve {
        Curve::P256 => &PKCS_ECDSA_P256_SHA256,
        Curve::P384 => &PKCS_ECDSA_P384_SHA384,
    };
    key.algorithm() == algorithm
}

/// Whether a text is somebody's public key on P-384 in PEM (RFC 5480 2).
pub fn is_public_p384(pem: &str) -> bool {
    const PREFIX: &[u8] = b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\
                            \x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00";
    SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes())
        .is_ok_and(|key| key.strip_prefix(PREFIX).is_some_and(|point| point.len() == 97))
}

/// Rounds of PBKDF2 with HMAC-SHA-256 (RFC 8018 5.2): what OWASP recommends.
pub const ROUNDS: u32 = 600_000;

/// PBES2 with PBKDF2 of so many rounds and AES-256-CBC (RFC 8018 6.2).
fn encryption(rounds: u32) -> Result<pbes2::Parameters, PkiError> {
    let (mut salt, mut iv) = ([0u8; 16], [0u8; 16]);
    for octets in [&mut salt, &mut iv] {
        SystemRandom::new().fill(octets).map_err(|_| PkiError("no random bytes".into()))?;
    }
    pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(rounds, &salt, iv)
        .map_err(|e| PkiError(format!("encrypting a key: {e}")))
}

/// A private key as PKCS#8 in PEM, encrypted where there is a passphrase (PBES2 with AES-256-CBC, RFC 8018 6.2).
pub fn write_key(key: &KeyPair, passphrase: Option<(&[u8], u32)>) -> Result<Zeroizing<String>, PkiError> {
    let Some((passphrase, rounds)) = passphrase else { return Ok(Zeroizing::new(key.serialize_pem())) };
    let fault = |why: &dyn std::fmt::Display| PkiError(format!("encrypting a key: {why}"));
    let how = encryption(rounds)?;
    let der = Zeroizing::new(key.serialize_der());
    let info = PrivateKeyInfoRef::try_from(der.as_slice()).map_err(|e| fault(&e))?;
    let sealed = info.encrypt_with_params(how, passphrase).map_err(|e| fault(&e))?;
    sealed.to_pem("ENCRYPTED PRIVATE KEY", LineEnding::LF).map_err(|e| fault(&e))
}

/// Reads what [`write_key`] or OpenSSL wrote.
pub fn read_key(pem: &str, passphrase: Option<&[u8]>) -> Result<KeyPair, PkiError> {
    let fault = |why: &dyn std::fmt::Display| PkiError(format!("reading a key: {why}"));
    match (SecretDocument::from_pem(pem.trim()), passphrase) {
        (Ok(("ENCRYPTED PRIVATE KEY", der)), Some(passphrase)) => {
            let sealed = EncryptedPrivateKeyInfoRef::try_from(der.as_bytes()).map_err(|e| fault(&e))?;
            let der = sealed.decrypt(passphrase).map_err(|_| fault(&"not with this passphrase"))?;
            Ok(KeyPair::try_from(der.as_bytes())?)
        }
        (Ok(("ENCRYPTED PRIVATE KEY", _)), None) => {
            Err(fault(&"it is encrypted, and no passphrase is given"))
        }
        _ => Ok(KeyPair::from_pem(pem)?),
    }
}

/// A key's signature of these bytes.
pub fn sign(key: &KeyPair, message: &[u8]) -> Result<Vec<u8>, PkiError> {
    Ok(key.sign(message)?)
}

/// Bytes in PEM (RFC 7468).
pub fn pem(label: &'static str, bytes: &[u8]) -> Result<String, PkiError> {
    pem::encode_string(label, LineEnding::LF, bytes).map_err(|e| PkiError(format!("writing {label}: {e}")))
}

/// A new PPK (RFC 8784 6: 256 bits of entropy).
pub fn ppk() -> Result<Zeroizing<Vec<u8>>, PkiError> {
    let mut octets = Zeroizing::new(vec![0; 32]);
    SystemRandom::new().fill(&mut octets).map_err(|_| PkiError("no random bytes".into()))?;
    Ok(octets)
}

/// A PPK's name, and its key in PEM: its octets, so that what is between the lines is the key in base64, as other programs take it;
/// encrypted where there is a passphrase, as [`write_key`] does, an OCTET STRING in the place of the private key.
pub fn write_ppk(
    id: &PpkId,
    ppk: &[u8],
    passphrase: Option<(&[u8], u32)>,
) -> Result<Zeroizing<String>, PkiError> {
    let text = ppk_pem(ppk, passphrase)?;
    Ok(Zeroizing::new(ppk_head(id) + &text))
}

/// The line above a PPK: its name.
pub fn ppk_head(id: &PpkId) -> String {
    format!("{PPK_ID}{id}\n")
}

/// Another name for a PPK: this one, shortened where it must be, and eight random digits.
pub fn ppk_id_behind(id: &PpkId) -> Result<PpkId, PkiError> {
    let mut random = [0u8; 4];
    SystemRandom::new().fill(&mut random).map_err(|_| PkiError("no random bytes".into()))?;
    let base: String = id.as_str().chars().take(55).collect();
    let name = format!("{base}.{:08x}", u32::from_be_bytes(random));
    PpkId::new(&name).map_err(|e| PkiError(format!("naming a PPK: {e}")))
}

fn ppk_pem(ppk: &[u8], passphrase: Option<(&[u8], u32)>) -> Result<Zeroizing<String>, PkiError> {
    let fault = |why: &dyn std::fmt::Display| PkiError(format!("writing a PPK: {why}"));
    let Some((passphrase, rounds)) = passphrase else {
        let text = pem::encode_string("PRESHARED KEY", LineEnding::LF, ppk).map_err(|e| fault(&e))?;
        return Ok(Zeroizing::new(text));
    };
    let how = encryption(rounds)?;
    let der = OctetStringRef::new(ppk).and_then(|octets| octets.to_der()).map_err(|e| fault(&e))?;
    let sealed = how.encrypt(passphrase, &Zeroizing::new(der)).map_err(|e| fault(&e))?;
    let encrypted_data = OctetStringRef::new(&sealed).map_err(|e| fault(&e))?;
    let info = EncryptedPrivateKeyInfoRef { encryption_algorithm: how.into(), encrypted_data };
    let document = SecretDocument::try_from(info).map_err(|e| fault(&e))?;
    document.to_pem("ENCRYPTED PRESHARED KEY", LineEnding::LF).map_err(|e| fault(&e))
}

/// The name above a PPK, if there is one.
pub fn ppk_id(text: &str) -> Option<PpkId> {
    PpkId::new(text.lines().next()?.strip_prefix(PPK_ID)?.trim()).ok()
}

/// Whether a private key is encrypted.
pub fn is_encrypted(pem: &[u8]) -> bool {
    pem.starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
}

/// Whether a PPK is encrypted.
pub fn is_encrypted_ppk(text: &str) -> bool {
    text.contains("-----BEGIN ENCRYPTED PRESHARED KEY-----")
}

/// Reads what [`write_ppk`] wrote.
pub fn read_ppk(text: &str, passphrase: Option<&[u8]>) -> Result<Zeroizing<Vec<u8>>, PkiError> {
    let fault = |why: &dyn std::fmt::Display| PkiError(format!("reading a PPK: {why}"));
    let (label, content) = pem::decode_vec(text.as_bytes()).map_err(|e| fault(&e))?;
    let content = Zeroizing::new(content);
    match (label, passphrase) {
        ("PRESHARED KEY", None) => Ok(content),
        ("ENCRYPTED PRESHARED KEY", Some(passphrase)) => {
            let sealed = EncryptedPrivateKeyInfoRef::try_from(content.as_slice()).map_err(|e| fault(&e))?;
            let opened = sealed.encryption_algorithm.decrypt(passphrase, sealed.encrypted_data.as_bytes());
            let opened = Zeroizing::new(opened.map_err(|_| fault(&"not with this passphrase"))?);
            // Padding alone would take one wrong passphrase in 256 for the right one.
            let key = <&OctetStringRef>::from_der(&opened).map_err(|_| fault(&"not with this passphrase"))?;
            Ok(Zeroizing::new(key.as_bytes().to_vec()))
        }
        ("ENCRYPTED PRESHARED KEY", None) => Err(fault(&"it is encrypted, and no passphrase is given")),
        _ => Err(fault(&"there is none, or it is not encrypted")),
    }
}

fn params(common_name: &str, days: i64) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now - BACKDATE;
    params.not_after = now + Duration::days(days);
    let mut serial = [0u8; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| PkiError("no random bytes".into()))?;
    // RFC 5280 4.1.2.2: a positive integer.
    if let Some(first) = serial.first_mut() {
        *first = *first & 0x7f | 0x40;
    }
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

/// The site's authority: signs hosts' and servers' certificates, no further authorities.
pub fn authority(site: &SiteName, key: &impl SigningKey) -> Result<Certificate, PkiError> {
    let mut params = params(&format!("levee authority of {site}"), AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params.self_signed(key)?)
}

/// The authority that follows another: of another name, so that each one's revocation list is known for its own.
pub fn next_authority(what: &str, site: &SiteName, key: &impl SigningKey) -> Result<Certificate, PkiError> {
    let digest = ring::digest::digest(&ring::digest::SHA256, key.der_bytes());
    let short = hex(digest.as_ref().get(..4).unwrap_or_default());
    let mut params = params(&format!("levee {what} of {site} {short}"), AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params.self_signed(key)?)
}

/// The certificates of a PEM text, each in PEM.
pub fn certificates(pem: &[u8]) -> Result<Vec<String>, PkiError> {
    let fault = |why: &dyn std::fmt::Display| PkiError(format!("reading a certificate: {why}"));
    let one = |der: Result<CertificateDer<'_>, _>| {
        let der = der.map_err(|e: rustls_pki_types::pem::Error| fault(&e))?;
        pem::encode_string("CERTIFICATE", LineEnding::LF, &der).map_err(|e| fault(&e))
    };
    CertificateDer::pem_slice_iter(pem).map(one).collect()
}

/// Whether the first certificate of a PEM text is signed by this authority.
pub fn is_by(pem: &[u8], authority: &[u8]) -> Result<bool, PkiError> {
    let fault = |why: &dyn std::fmt::Display| PkiError(format!("reading a certificate: {why}"));
    let (der, authority) = (
        CertificateDer::from_pem_slice(pem).map_err(|e| fault(&e))?,
        CertificateDer::from_pem_slice(authority).map_err(|e| fault(&e))?,
    );
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| fault(&e))?;
    let (_, authority) = X509Certificate::from_der(&authority).map_err(|e| fault(&e))?;
    Ok(certificate.issuer() == authority.subject()
        && certificate.verify_signature(Some(authority.public_key())).is_ok())
}

/// The authority of a federation: signs etcd's certificates, and those of the servers as its clients. Another one than the site's, so
/// that no workstation's certificate is good there.
pub fn federation_authority(site: &SiteName, key: &impl SigningKey) -> Result<Certificate, PkiError> {
    let mut params = params(&format!("levee federation authority of {site}"), AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params.self_signed(key)?)
}

/// A new private key of the second tunnel: of another kind than the site's (RFC 8410).
pub fn layer_key() -> Result<KeyPair, PkiError> {
    Ok(KeyPair::generate_for(&PKCS_ED25519)?)
}

/// It as every OpenSSL reads it: without the public key behind it, which came later (RFC 5208; RFC 5958).
pub fn write_layer_key(key: &KeyPair) -> Result<Zeroizing<String>, PkiError> {
    let fault = |why: &dyn std::fmt::Display| PkiError(format!("writing a key: {why}"));
    let der = Zeroizing::new(key.serialize_der());
    let whole = PrivateKeyInfoRef::try_from(der.as_slice()).map_err(|e| fault(&e))?;
    let alone = PrivateKeyInfoRef::new(whole.algorithm, whole.private_key);
    let document = SecretDocument::encode_msg(&alone).map_err(|e| fault(&e))?;
    document.to_pem("PRIVATE KEY", LineEnding::LF).map_err(|e| fault(&e))
}

/// The authority of the second tunnel, which is not the site's.
pub fn layer_authority(site: &SiteName, key: &impl SigningKey) -> Result<Certificate, PkiError> {
    let mut params = params(&format!("levee second-tunnel authority of {site}"), AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params.self_signed(key)?)
}

/// A workstation's certificate for the second tunnel: its name and nothing else, since no label is decided there.
pub fn layer_host(
    name: &HostName,
    key: &impl PublicKeyData,
    issuer: &Issuer<'_, impl SigningKey>,
) -> Result<Certificate, PkiError> {
    Ok(leaf(name.as_str(), ExtendedKeyUsagePurpose::ClientAuth)?.signed_by(key, issuer)?)
}

/// A server's certificate as etcd's client.
pub fn federation_client(
    name: &DomainName,
    key: &impl PublicKeyData,
    issuer: &Issuer<'_, impl SigningKey>,
) -> Result<Certificate, PkiError> {
    server_for(ExtendedKeyUsagePurpose::ClientAuth, name, &[], key, issuer)
}

/// etcd's certificate. Its members are each other's clients, and their JSON gateway is their own.
pub fn etcd(
    name: &DomainName,
    addresses: &[IpAddr],
    key: &impl PublicKeyData,
    issuer: &Issuer<'_, impl SigningKey>,
) -> Result<Certificate, PkiError> {
    let mut params = leaf(name.as_str(), ExtendedKeyUsagePurpose::ServerAuth)?;
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
    params.subject_alt_names.extend(addresses.iter().map(|&address| SanType::IpAddress(address)));
    Ok(params.signed_by(key, issuer)?)
}

/// The serial number of the first certificate in a PEM file.
pub fn serial(pem: &[u8]) -> Result<Vec<u8>, PkiError> {
    let fault = |why: &dyn std::fmt::Display| PkiError(format!("reading a certificate: {why}"));
    let der = CertificateDer::from_pem_slice(pem).map_err(|e| fault(&e))?;
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| fault(&e))?;
    Ok(certificate.raw_serial().to_vec())
}

/// A revocation list (RFC 5280 5) with all that the one before it has, and these serial numbers; in PEM.
pub fn revocation_list(
    before: Option<&[u8]>,
    serials: &[Vec<u8>],
    days: i64,
    issuer: &Issuer<'_, impl SigningKey>,
) -> Result<String, PkiError> {
    let now = OffsetDateTime::now_utc();
    let mut revoked = BTreeMap::new();
    let mut number = 0;
    if let Some(before) = before {
        let fault = |why: &dyn std::fmt::Display| PkiError(format!("reading the revocation list: {why}"));
        let mut lists = 0;
        for der in CertificateRevocationListDer::pem_slice_iter(before) {
            let der = der.map_err(|e| fault(&e))?;
            let (_, list) = CertificateRevocationList::from_der(&der).map_err(|e| fault(&e))?;
            let counted = list.crl_number().and_then(|number| number.to_u64_digits().first().copied());
            number = number.max(counted.ok_or_else(|| fault(&"it has no number"))?);
            for entry in list.iter_revoked_certificates() {
                revoked.insert(entry.raw_serial().to_vec(), entry.revocation_date.to_datetime());
            }
            lists += 1;
        }
        if lists == 0 {
            return Err(fault(&"there is none in it"));
        }
    }
    for serial in serials {
        revoked.entry(serial.clone()).or_insert(now);
    }
    let list = CertificateRevocationListParams {
        this_update: now - BACKDATE,
        next_update: now + Duration::days(days),
        crl_number: SerialNumber::from(number.saturating_add(1)),
        issuing_distribution_point: None,
        revoked_certs: revoked
            .into_iter()
            .map(|(serial, revocation_time)| RevokedCertParams {
                serial_number: SerialNumber::from_slice(&serial),
                revocation_time,
                reason_code: None,
                invalidity_date: None,
            })
            .collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    Ok(list.signed_by(issuer)?.pem()?)
}

fn leaf(common_name: &str, usage: ExtendedKeyUsagePurpose) -> Result<CertificateParams, PkiError> {
    let mut params = params(common_name, LEAF_DAYS)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// id-kp-ipsecIKE (RFC 4945 5.1.3.12): a key for IKE signs nothing else, so that no signature is good in two protocols.
fn ike() -> ExtendedKeyUsagePurpose {
    ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 17])
}

/// A server's certificate for the trusted path: its name and addresses, good for TLS servers alone.
pub fn server(
    name: &DomainName,
    addresses: &[IpAddr],
    key: &impl PublicKeyData,
    issuer: &Issuer<'_, impl SigningKey>,
) -> Result<Certificate, PkiError> {
    server_for(ExtendedKeyUsagePurpose::ServerAuth, name, addresses, key, issuer)
}

/// A server's certificate for IKE: its name and addresses.
pub fn ike_server(
    name: &DomainName,
    addresses: &[IpAddr],
    key: &impl PublicKeyData,
    issuer: &Issuer<'_, impl SigningKey>,
) -> Result<Certificate, PkiError> {
    server_for(ike(), name, addresses, key, issuer)
}

fn server_for(
    usage: ExtendedKeyUsagePurpose,
    name: &DomainName,
    addresses: &[IpAddr],
    key: &impl PublicKeyData,
    issuer: &Issuer<'_, impl SigningKey>,
) -> Result<Certificate, PkiError> {
    let mut params = leaf(name.as_str(), usage)?;
    params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
    params.subject_alt_names.extend(addresses.iter().map(|&address| SanType::IpAddress(address)));
    Ok(params.signed_by(key, issuer)?)
}

/// A host's certificate for the trusted path: its name and accreditation, good for TLS clients alone.
pub fn host(
    name: &HostName,
    accreditation: &str,
    key: &impl PublicKeyData,
    issuer: &Issuer<'_, impl SigningKey>,
) -> Result<Certificate, PkiError> {
    host_for(ExtendedKeyUsagePurpose::ClientAuth, name, accreditation, key, issuer)
}

/// What the authority says about a device for sessiond, in the text that stands behind its certificate.
pub fn passport(
    name: &HostName,
    key: &impl PublicKeyData,
    certificate: &Certificate,
    issuer: &Issuer<'_, impl SigningKey>,
) -> Result<String, PkiError> {
    let fault = |why: &dyn std::fmt::Display| PkiError(format!("making a passport: {why}"));
    let (_, parsed) = X509Certificate::from_der(certificate.der()).map_err(|e| fault(&e))?;
    let passport = Passport {
        device: name.clone(),
        serial: parsed.raw_serial().to_vec(),
        fingerprint: ring::digest::digest(&ring::digest::SHA256, certificate.der())
            .as_ref()
            .try_into()
            .map_err(|e| fault(&e))?,
        not_after: not_after(certificate)?,
        curve: curve(key),
        point: key.der_bytes().to_vec(),
    };
    let message = passport.message().ok_or_else(|| fault(&"a field is too long"))?;
    let signature = issuer.key().sign(&message)?;
    Sealed { passport, signature }.to_text().ok_or_else(|| fault(&"it cannot be written"))
}

/// What the servers' authority says about a server for the others' sessiond, in the text that stands behind its certificate.
pub fn server_passport(
    name: &DomainName,
    key: &impl PublicKeyData,
    certificate: &Certificate,
    issuer: &Issuer<'_, impl SigningKey>,
) -> Result<String, PkiError> {
    let fault = |why: &dyn std::fmt::Display| PkiError(format!("making a server's passport: {why}"));
    let (_, parsed) = X509Certificate::from_der(certificate.der()).map_err(|e| fault(&e))?;
    let passport = federation::Passport {
        server: name.clone(),
        serial: parsed.raw_serial().to_vec(),
        not_after: not_after(certificate)?,
        curve: curve(key),
        point: key.der_bytes().to_vec(),
    };
    let message = passport.message().ok_or_else(|| fault(&"its key is of another curve"))?;
    let signature = issuer.key().sign(&message)?;
    let sealed = federation::Sealed { passport, signature };
    sealed.to_text().ok_or_else(|| fault(&"it cannot be written"))
}

fn curve(key: &impl PublicKeyData) -> device::Curve {
    match key.algorithm() == &PKCS_ECDSA_P384_SHA384 {
        true => device::Curve::P384,
        false => device::Curve::P256,
    }
}

/// Until when a certificate is good, in seconds since 1970-01-01 UTC.
fn not_after(certificate: &Certificate) -> Result<u64, PkiError> {
    let fault = |why: &dyn std::fmt::Display| PkiError(format!("making a passport: {why}"));
    let (_, parsed) = X509Certificate::from_der(certificate.der()).map_err(|e| fault(&e))?;
    u64::try_from(parsed.validity().not_after.timestamp()).map_err(|e| fault(&e))
}

/// A host's certificate for IKE: its name and accreditation.
pub fn ike_host(
    name: &HostName,
    accreditation: &str,
    key: &impl PublicKeyData,
    issuer: &Issuer<'_, impl SigningKey>,
) -> Result<Certificate, PkiError> {
    host_for(ike(), name, accreditation, key, issuer)
}

fn host_for(
    usage: ExtendedKeyUsagePurpose,
    name: &HostName,
    accreditation: &str,
    key: &impl PublicKeyData,
    issuer: &Issuer<'_, impl SigningKey>,
) -> Result<Certificate, PkiError> {
    let mut params = leaf(name.as_str(), usage)?;
    params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
    let mut extension = CustomExtension::from_oid_content(&ACCREDITATION_OID, utf8_string(accreditation)?);
    extension.set_criticality(false);
    params.custom_extensions.push(extension);
    Ok(params.signed_by(key, issuer)?)
}

/// DER of a UTF8String (X.690 8.23).
fn utf8_string(text: &str) -> Result<Vec<u8>, PkiError> {
    let length = text.len();
    let mut der = vec![0x0c];
    match u16::try_from(length).map_err(|_| PkiError("the accreditation is too long".into()))?.to_be_bytes() {
        [0, low] if low < 0x80 => der.push(low),
        [0, low] => der.extend([0x81, low]),
        [high, low] => der.extend([0x82, high, low]),
    }
    der.extend_from_slice(text.as_bytes());
    Ok(der)
}
