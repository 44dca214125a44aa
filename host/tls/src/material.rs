//! Certificates, lists and algorithms, as both ends have them and whoever looks.

use levee_policy::site::Suites;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring as provider};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::{RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use std::sync::Arc;

/// Why TLS cannot be set up, or a certificate is of no use.
#[derive(Debug)]
pub struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

pub fn error(what: &str, why: impl std::fmt::Display) -> Error {
    Error(format!("{what}: {why}"))
}

pub fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates =
        CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(|why| error(what, why))?;
    if certificates.is_empty() { Err(error(what, "no certificate in it")) } else { Ok(certificates) }
}

pub fn roots(authority: &[u8]) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("the authority's certificate", authority)? {
        roots.add(certificate).map_err(|why| error("the authority's certificate", why))?;
    }
    Ok(Arc::new(roots))
}

/// The lists in a file; there must be one.
pub fn lists(revoked: Option<&[u8]>) -> Result<Vec<CertificateRevocationListDer<'static>>, Error> {
    let what = "the revocation list";
    let mut lists = Vec::new();
    for list in revoked.into_iter().flat_map(CertificateRevocationListDer::pem_slice_iter) {
        lists.push(list.map_err(|why| error(what, why))?);
    }
    if revoked.is_some() && lists.is_empty() {
        return Err(error(what, "there is none in it"));
    }
    Ok(lists)
}

/// CNSA's signature (RFC 9151 5.2), of peers and of who vouches for them.
static CNSA_SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[webpki::ring::ECDSA_P384_SHA384],
    mapping: &[(SignatureScheme::ECDSA_NISTP384_SHA384, &[webpki::ring::ECDSA_P384_SHA384])],
};

pub fn crypto(suites: Suites) -> Arc<CryptoProvider> {
    let aes = provider::cipher_suite::TLS13_AES_256_GCM_SHA384;
    Arc::new(match suites {
        Suites::Default => CryptoProvider {
            cipher_suites: vec![aes, provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256],
            ..provider::default_provider()
        },
        // The library has no ML-KEM-1024 for TLS: it is IKE's alone.
        Suites::Cnsa | Suites::CnsaMlKem => CryptoProvider {
            cipher_suites: vec![aes],
            kx_groups: vec![provider::kx_group::SECP384R1],
            signature_verification_algorithms: CNSA_SIGNATURES,
            ..provider::default_provider()
        },
    })
}
