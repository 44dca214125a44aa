//! Whether the other end's certificate is believed: by OpenSSL, and by no other parser of certificates.

use openssl::asn1::Asn1Time;
use openssl::error::ErrorStack;
use openssl::pkey::Id;
use openssl::sign::Verifier;
use openssl::stack::Stack;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::verify::X509VerifyParam;
use openssl::x509::{X509, X509PurposeId, X509StoreContext};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::fmt;
use std::time::Duration;

/// Whom to believe: who has a certificate of this authority, or one of these (RFC 5280), for the other part, by an Ed25519 key.
pub struct Believed {
    store: X509Store,
}

impl fmt::Debug for Believed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Believed")
    }
}

impl Believed {
    /// A workstation's certificate.
    ///
    /// # Errors
    /// The authority's certificate, in PEM, is none.
    pub fn clients(authority: &[u8]) -> Result<Self, String> {
        Self::new(authority, X509PurposeId::SSL_CLIENT, None)
            .map_err(|e| format!("the authority's certificate: {e}"))
    }

    /// The server's certificate, with this name.
    ///
    /// # Errors
    /// As [`Believed::clients`].
    pub fn server(authority: &[u8], name: &str) -> Result<Self, String> {
        Self::new(authority, X509PurposeId::SSL_SERVER, Some(name))
            .map_err(|e| format!("the authority's certificate: {e}"))
    }

    fn new(authority: &[u8], purpose: X509PurposeId, name: Option<&str>) -> Result<Self, ErrorStack> {
        let mut store = X509StoreBuilder::new()?;
        // There is one; and the one before it, while that is rotated.
        X509::from_pem(authority)?;
        for authority in X509::stack_from_pem(authority)? {
            store.add_cert(authority)?;
        }
        store.set_purpose(purpose)?;
        if let Some(name) = name {
            let mut parameters = X509VerifyParam::new()?;
            parameters.set_host(name)?;
            store.set_param(&parameters)?;
        }
        Ok(Self { store: store.build() })
    }

    fn check(&self, certificate: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        let refused = |error: CertificateError| Error::InvalidCertificate(error);
        // The authority signs them itself.
        if !others.is_empty() {
            return Err(refused(CertificateError::UnknownIssuer));
        }
        let checked = || -> Result<bool, ErrorStack> {
            let (told, certificate) = (certificate, X509::from_der(certificate)?);
            // Of each certificate there is one spelling (X.690 10), without anything behind it: by its octets two tunnels are one workstation's, and the
            // library reads others, too.
            if certificate.public_key()?.id() != Id::ED25519 || certificate.to_der()? != told.as_ref() {
                return Ok(false);
            }
            let (mut context, none) = (X509StoreContext::new()?, Stack::new()?);
            context.init(&self.store, &certificate, &none, |context| context.verify_cert())
        };
        match checked() {
            Ok(true) => Ok(()),
            Ok(false) => Err(refused(CertificateError::ApplicationVerificationFailure)),
            Err(_) => Err(refused(CertificateError::BadEncoding)),
        }
    }
}

/// For how long a certificate, in DER, still is one: not at all where that cannot be said.
pub fn left_of(certificate: &[u8]) -> Duration {
    let left = || -> Result<_, ErrorStack> {
        Asn1Time::days_from_now(0)?.diff(X509::from_der(certificate)?.not_after())
    };
    let seconds = left().map_or(0, |left| i64::from(left.days) * 86_400 + i64::from(left.secs));
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// RFC 8446 4.4.3, by Ed25519 alone (RFC 8032).
fn signed(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let refused = || Error::InvalidCertificate(CertificateError::BadSignature);
    if signature.scheme != SignatureScheme::ED25519 {
        return Err(refused());
    }
    let valid = || -> Result<bool, ErrorStack> {
        let key = X509::from_der(certificate)?.public_key()?;
        if key.id() != Id::ED25519 {
            return Ok(false);
        }
        Verifier::new_without_digest(&key)?.verify_oneshot(signature.signature(), message)
    };
    if matches!(valid(), Ok(true)) { Ok(HandshakeSignatureValid::assertion()) } else { Err(refused()) }
}

fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("QUIC has TLS 1.3 alone (RFC 9001 4.2)".to_owned()))
}

impl ServerCertVerifier for Believed {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is in the store's parameters.
        self.check(certificate, others).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl ClientCertVerifier for Believed {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(certificate, others).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}
