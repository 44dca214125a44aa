//! Keys that are made where they are used, and signed for elsewhere: `levee enrol request` and `levee enrol sign`. The site's authority, which may be
//! off line, never sees a private key but its own; nor does the server see a workstation's.
//!
//! ```text
//! DIR/device.key DIR/ike.key        a host's, or
//! DIR/tls.key DIR/ike.key DIR/audit.key DIR/audit.pub    the server's
//! DIR/request.pem                   two requests (PKCS#10, RFC 2986): for the trusted path, and for IKE
//! ```
//! Of a request nothing is believed but the public key, whose owner has signed it. Whose it is whoever signs says; what a certificate says is the
//! site file's.

use super::{EnrolError, Enroller, Facts, Files, Written, files, pki};
use crate::typed::Passphrase;
use levee_policy::HostName;
use levee_policy::site::Curve;
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, DnValue, KeyPair,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PublicKey, PublicKeyData,
};
use std::path::Path;

/// A request is not larger than this, in bytes.
const MAX_TEXT: u64 = 64 << 10;

/// Who asks.
pub enum Whose {
    /// A workstation.
    Host,
    /// A server, which has a key for its audit log as well.
    Server,
}

/// Makes keys in a directory, and a request for their certificates.
///
/// # Errors
/// Something is there already, or cannot be written.
pub fn request(
    directory: &Path,
    whose: &Whose,
    name: &str,
    curve: Curve,
    passphrase: Option<(Passphrase, u32)>,
    force: bool,
) -> Result<Written, EnrolError> {
    files::directory(directory).map_err(|error| EnrolError::File(directory.to_owned(), error))?;
    let mut files = Files { directory: directory.to_owned(), force, passphrase, written: Vec::new() };
    let (key, ike) = (pki::key(curve)?, pki::key(curve)?);
    match whose {
        Whose::Host => files.private("device.key", &key)?,
        Whose::Server => files.private("tls.key", &key)?,
    }
    files.private("ike.key", &ike)?;
    if matches!(whose, Whose::Server) {
        let audit = pki::key(curve)?;
        files.private("audit.key", &audit)?;
        files.public("audit.pub", &audit.public_key_pem())?;
    }
    files.public("request.pem", &(asked(name, &key)? + &asked(name, &ike)?))?;
    Ok(files.written)
}

/// One request, signed with the key that it is for.
fn asked(name: &str, key: &KeyPair) -> Result<String, EnrolError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let request = params.serialize_request(key).and_then(|request| request.pem());
    request.map_err(|error| EnrolError::Pki(error.into()))
}

/// What two requests of one file ask for.
struct Asked {
    name: String,
    key: PublicKey,
    ike: PublicKey,
}

impl Asked {
    fn read(path: &Path, curve: Curve) -> Result<Self, EnrolError> {
        use std::io::Read as _;
        let mut text = String::new();
        let read = std::fs::File::open(path).and_then(|file| file.take(MAX_TEXT).read_to_string(&mut text));
        read.map_err(|error| EnrolError::File(path.to_owned(), error))?;
        let fault = |why: &str| EnrolError::Request(path.to_owned(), why.to_owned());
        const END: &str = "-----END CERTIFICATE REQUEST-----";
        let [one, two, rest] = text.splitn(3, END).collect::<Vec<_>>()[..] else {
            return Err(fault("it has not the two requests that `levee enrol request` writes"));
        };
        if !rest.trim().is_empty() {
            return Err(fault("something follows the two requests"));
        }
        let ((name, key), (other, ike)) =
            (one_of(path, &format!("{one}{END}"), curve)?, one_of(path, &format!("{two}{END}"), curve)?);
        if name != other || key == ike {
            return Err(fault("its two requests are not for two keys of one name"));
        }
        Ok(Self { name, key, ike })
    }
}

/// The name and the key of one request that its owner has signed.
fn one_of(path: &Path, pem: &str, curve: Curve) -> Result<(String, PublicKey), EnrolError> {
    let fault = |why: String| EnrolError::Request(path.to_owned(), why);
    let read = CertificateSigningRequestParams::from_pem(pem)
        .map_err(|e| fault(format!("it is no request: {e}")))?;
    let (algorithm, octets) = match curve {
        Curve::P256 => (&PKCS_ECDSA_P256_SHA256, 65),
        Curve::P384 => (&PKCS_ECDSA_P384_SHA384, 97),
    };
    let key = read.public_key;
    if PublicKeyData::algorithm(&key) != algorithm || key.der_bytes().len() != octets {
        return Err(fault(format!(
            "its key is not on {curve}, as the site file says: levee enrol request --keys {curve}"
        )));
    }
    let name = match read.params.distinguished_name.get(&DnType::CommonName) {
        Some(DnValue::Utf8String(name)) => name.clone(),
        Some(DnValue::PrintableString(name)) => name.as_str().to_owned(),
        _ => return Err(fault("it has no name".to_owned())),
    };
    Ok((name, key))
}

impl Enroller<'_> {
    /// Signs for the keys of a request that came from this host or server: what comes of it goes beside them.
    ///
    /// # Errors
    /// It is no request, asks for another name or for one that the site file does not have, or has other keys than the site wants.
    pub fn sign(&self, facts: &Facts, path: &Path, whose: &str) -> Result<Written, EnrolError> {
        let Asked { name, key, ike } = Asked::read(path, facts.keys)?;
        // Whoever has one host could ask for another's certificates, or the server's.
        if name != whose {
            let why = format!("it asks for the certificates of {name:?}, and not of {whose}");
            return Err(EnrolError::Request(path.to_owned(), why));
        }
        let (mut files, certificates) = if name == facts.server.as_str() {
            let certificates = self.server_certificates(facts, (&key, &ike))?;
            (self.open(&self.state.join("server"))?, certificates)
        } else {
            let host =
                HostName::new(&name).map_err(|e| EnrolError::Request(path.to_owned(), e.to_string()))?;
            let host = facts.host(host.as_str())?;
            let certificates = self.host_certificates(facts, host, (&key, &ike))?;
            (self.open(&self.state.join("hosts").join(host.name.as_str()))?, certificates)
        };
        files.all(certificates)?;
        Ok(files.written)
    }
}
