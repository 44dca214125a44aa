//! The trusted path's TLS: version 1.3 alone, mutual, no resumption; the private key stays with the signer.
//!
//! It may not hold a private key. Begin reading with `lib.rs`.
#![forbid(unsafe_code)]

mod look;
mod material;
mod signer;

pub use levee_policy::site::Suites;
pub use look::{Life, List, Looker, Shown, Unbelieved, list, lives, looker};
pub use material::Error;
pub use signer::SignerHandle;

use levee_policy::{DomainName, HostName};
use material::{certificates, crypto, error, lists, roots};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig, SignatureScheme};
use std::sync::Arc;
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

fn own(chain: &[u8], signer: &SignerHandle, crypto: &CryptoProvider) -> Result<CertifiedKey, Error> {
    let what = "the own certificate chain";
    let chain = certificates(what, chain)?;
    let first = chain.first().ok_or_else(|| error(what, "no certificate in it"))?;
    let (_, parsed) = X509Certificate::from_der(first).map_err(|why| error(what, why))?;
    let scheme =
        scheme(&parsed).ok_or_else(|| error(what, "its key is neither for ECDSA on P-256 nor on P-384"))?;
    if !crypto.signature_verification_algorithms.supported_schemes().contains(&scheme) {
        return Err(error(what, "its key does not fit the suites that the site has chosen: enrol anew"));
    }
    Ok(CertifiedKey::new(chain, Arc::new(signer::Key::new(signer, scheme))))
}

/// What a certificate's key signs with. RFC 8446 4.2.3: a curve has one hash.
fn scheme(certificate: &X509Certificate<'_>) -> Option<SignatureScheme> {
    let key = &certificate.public_key().algorithm;
    let curve = key.parameters.as_ref()?.as_oid().ok()?;
    match (&key.algorithm, curve) {
        (ec, curve) if *ec == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == OID_EC_P256 => {
            Some(SignatureScheme::ECDSA_NISTP256_SHA256)
        }
        (ec, curve) if *ec == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == OID_NIST_EC_P384 => {
            Some(SignatureScheme::ECDSA_NISTP384_SHA384)
        }
        _ => None,
    }
}

/// A server that talks only to clients with a certificate of the authority. `chain`, `authority` and `revoked` are PEM; with a
/// revocation list (RFC 5280 5), it must be current, and whoever it names is no client.
pub fn server(
    chain: &[u8],
    authority: &[u8],
    revoked: Option<&[u8]>,
    signer: &SignerHandle,
    suites: Suites,
) -> Result<Arc<ServerConfig>, Error> {
    let crypto = crypto(suites);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(authority)?, Arc::clone(&crypto))
        .with_crls(lists(revoked)?)
        .enforce_revocation_expiration()
        .build()
        .map_err(|why| error("the verifier of clients", why))?;
    let key = own(chain, signer, &crypto)?;
    let mut config = ServerConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|why| error("TLS 1.3", why))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(signer::Only(Arc::new(key))));
    // A ticket would let a device in again without its key.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// A client with a certificate of its own. `chain`, `authority` and `revoked` are PEM, and with a revocation list it is as in
/// [`server`]: it must be current, and a server that it names is none.
pub fn client(
    chain: &[u8],
    authority: &[u8],
    revoked: Option<&[u8]>,
    signer: &SignerHandle,
    suites: Suites,
) -> Result<Arc<ClientConfig>, Error> {
    let crypto = crypto(suites);
    let key = own(chain, signer, &crypto)?;
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(authority)?, Arc::clone(&crypto))
        .with_crls(lists(revoked)?)
        .enforce_revocation_expiration()
        .build()
        .map_err(|why| error("the verifier of servers", why))?;
    let mut config = ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|why| error("TLS 1.3", why))?
        .with_webpki_verifier(verifier)
        .with_client_cert_resolver(Arc::new(signer::Only(Arc::new(key))));
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The name that the server's certificate must have, as rustls wants it.
pub fn server_name(name: &DomainName) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(name.as_str().to_owned()).map_err(|why| error("the server's name", why))
}

/// What a device's certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name: the certificate's only DNS name, else its only common name.
    pub name: HostName,
    /// The certificate's serial number, as it is encoded (RFC 5280 4.1.2.2).
    pub serial: Vec<u8>,
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
}

/// The device that a certificate, already verified, names.
pub fn device(certificate: &CertificateDer<'_>) -> Result<Device, Error> {
    let what = "the device's certificate";
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|why| error(what, why))?;
    let mut names = Vec::new();
    if let Some(alternative) = parsed.subject_alternative_name().map_err(|why| error(what, why))? {
        names.extend(alternative.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        }));
    }
    if names.is_empty() {
        names.extend(parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok()));
    }
    let [name] = names.as_slice() else { return Err(error(what, "it names no device, or several")) };
    let name = HostName::new(name).map_err(|why| error(what, why))?;
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    let fingerprint = digest.as_ref().try_into().map_err(|why| error(what, why))?;
    Ok(Device { name, serial: parsed.raw_serial().to_vec(), fingerprint })
}
