//! For whoever asks why a trusted path does not come about: what a server shows of itself, judged exactly as
//! [`client`](crate::client) judges it, and when certificates and lists begin and end.

use crate::material::{Error, certificates, crypto, error, lists, roots};
use levee_policy::site::Suites;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use std::sync::{Arc, Mutex, PoisonError};
use x509_parser::prelude::{CertificateRevocationList, FromDer, GeneralName, X509Certificate};

/// When a certificate holds, and of whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// From this second of Unix time.
    pub begins: i64,
    /// To this one.
    pub ends: i64,
    /// The DNS names in it.
    pub names: Vec<String>,
    /// Its serial number, as it is encoded.
    pub serial: Vec<u8>,
}

/// What is wrong with a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unbelieved {
    /// It does not hold by this host's clock.
    Time,
    /// Another authority signed it.
    Authority,
    /// It is of another name.
    Name,
    /// The authority has revoked it.
    Revoked,
    /// The revocation list is too old to believe anybody by.
    List,
    /// Anything else.
    Other,
}

/// What a server has shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its certificate's times and names.
    pub life: Option<Life>,
    /// What [`client`](crate::client) makes of it.
    pub verdict: Result<(), Unbelieved>,
}

/// Remembers what a server shows.
#[derive(Debug)]
pub struct Looker {
    inner: Arc<WebPkiServerVerifier>,
    shown: Mutex<Option<Shown>>,
}

impl Looker {
    /// What the server has shown, if it came so far.
    pub fn shown(&self) -> Option<Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A client which believes what [`client`](crate::client) does and nothing more, and what it has seen. `authority`, `revoked` and `own`,
/// a certificate chain with its key, are PEM; without `own` it shows none.
///
/// # Errors
/// Authority, list or chain are not what they should be.
pub fn looker(
    authority: &[u8],
    revoked: Option<&[u8]>,
    own: Option<(&[u8], &[u8])>,
    suites: Suites,
) -> Result<(Arc<ClientConfig>, Arc<Looker>), Error> {
    let crypto = crypto(suites);
    let inner = WebPkiServerVerifier::builder_with_provider(roots(authority)?, Arc::clone(&crypto))
        .with_crls(lists(revoked)?)
        .enforce_revocation_expiration()
        .build()
        .map_err(|why| error("the verifier of servers", why))?;
    let looker = Arc::new(Looker { inner, shown: Mutex::new(None) });
    let config = ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|why| error("TLS 1.3", why))?
        // It refuses whatever the verifier within refuses.
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&looker) as Arc<dyn ServerCertVerifier>);
    let config = match own {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let what = "the own certificate chain and its key";
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|why| error(what, why))?;
            config.with_client_auth_cert(certificates(what, chain)?, key).map_err(|why| error(what, why))?
        }
    };
    Ok((Arc::new(config), looker))
}

fn judged(error: &rustls::Error) -> Unbelieved {
    use CertificateError as E;
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            E::Expired | E::ExpiredContext { .. } | E::NotValidYet | E::NotValidYetContext { .. } => {
                Unbelieved::Time
            }
            E::UnknownIssuer | E::BadSignature => Unbelieved::Authority,
            E::NotValidForName | E::NotValidForNameContext { .. } => Unbelieved::Name,
            E::Revoked => Unbelieved::Revoked,
            E::UnknownRevocationStatus
            | E::ExpiredRevocationList
            | E::ExpiredRevocationListContext { .. } => Unbelieved::List,
            _ => Unbelieved::Other,
        },
        _ => Unbelieved::Other,
    }
}

impl ServerCertVerifier for Looker {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let verdict = verified.as_ref().map(|_| ()).map_err(judged);
        let shown = Shown { life: life(end_entity).ok(), verdict };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown);
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn life(certificate: &[u8]) -> Result<Life, Error> {
    let what = "a certificate";
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|why| error(what, why))?;
    let alternative = parsed.subject_alternative_name().map_err(|why| error(what, why))?;
    let names = alternative.iter().flat_map(|names| &names.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    Ok(Life {
        begins: parsed.validity().not_before.timestamp(),
        ends: parsed.validity().not_after.timestamp(),
        names: names.collect(),
        serial: parsed.raw_serial().to_vec(),
    })
}

/// The lives of the certificates in a PEM file, in their order.
///
/// # Errors
/// There is none in it, or one is malformed.
pub fn lives(pem: &[u8]) -> Result<Vec<Life>, Error> {
    let all = crate::certificates("the certificates", pem)?;
    all.iter().map(|certificate| life(certificate)).collect()
}

/// What a revocation list says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The second of Unix time after which nobody is believed by it, where it says one.
    pub until: Option<i64>,
    /// The serial numbers in it, as they are encoded.
    pub serials: Vec<Vec<u8>>,
}

/// The first revocation list in a PEM file.
///
/// # Errors
/// There is none, or it is malformed.
pub fn list(pem: &[u8]) -> Result<List, Error> {
    let what = "the revocation list";
    let der = lists(Some(pem))?;
    let first = der.first().ok_or_else(|| error(what, "there is none in it"))?;
    let (_, parsed) = CertificateRevocationList::from_der(first).map_err(|why| error(what, why))?;
    let serials = parsed.iter_revoked_certificates().map(|entry| entry.raw_serial().to_vec()).collect();
    Ok(List { until: parsed.next_update().map(|at| at.timestamp()), serials })
}
