//! Certificates: path validation (RFC 5280, by rustls-webpki), revocation lists, and the match between a certificate and an
//! identity (RFC 4945 3.1).

use super::sign::{CERTIFICATE_ALGORITHMS, SignatureScheme};
use crate::wire::{CertPayload, Identity, cert_encoding};
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use sha1::{Digest, Sha1};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, ExtendedKeyUsageValidator, KeyPurposeIdIter,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Certificates of one message that are looked at: the peer's own and the authorities between.
const MOST_CERTIFICATES: usize = 10;

/// The authorities whose certificates are believed, and what they have revoked.
#[derive(Debug)]
pub struct TrustAnchors {
    anchors: Vec<TrustAnchor<'static>>,
    hashes: Vec<[u8; 20]>,
    lists: Vec<CertRevocationList<'static>>,
    /// Who checks signatures: the host's own library where it gave one, and always the portable ones.
    verifiers: Vec<&'static dyn SignatureVerificationAlgorithm>,
}

/// What is wrong with a certificate or list in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidCertificate(pub String);

impl std::fmt::Display for InvalidCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidCertificate {}

impl TrustAnchors {
    /// Reads authorities and revocation lists, all DER. With at least one list, every certificate that a peer shows must be
    /// covered by a current list and not be on it.
    pub fn new(authorities: &[Vec<u8>], lists: &[Vec<u8>]) -> Result<Self, InvalidCertificate> {
        let bad = |what: &str, i: usize, e: &dyn std::fmt::Display| {
            InvalidCertificate(format!("{what} {}: {e}", i + 1))
        };
        let mut out = Self {
            anchors: Vec::new(),
            hashes: Vec::new(),
            lists: Vec::new(),
            verifiers: CERTIFICATE_ALGORITHMS.to_vec(),
        };
        for (i, der) in authorities.iter().enumerate() {
            let der = CertificateDer::from(der.as_slice());
            let anchor = webpki::anchor_from_trusted_cert(&der).map_err(|e| bad("authority", i, &e))?;
            let (_, parsed) = X509Certificate::from_der(&der).map_err(|e| bad("authority", i, &e))?;
            out.hashes.push(Sha1::digest(parsed.public_key().raw).into());
            out.anchors.push(anchor.to_owned());
        }
        for (i, der) in lists.iter().enumerate() {
            let list =
                webpki::OwnedCertRevocationList::from_der(der).map_err(|e| bad("revocation list", i, &e))?;
            out.lists.push(list.into());
        }
        Ok(out)
    }

    /// Believes signatures of these schemes alone: in certificates, in revocation lists, and of peers. All others count as none.
    #[must_use]
    pub fn accepting(mut self, schemes: &[SignatureScheme]) -> Self {
        self.verifiers.retain(|v| schemes.iter().any(|scheme| same_algorithm(*v, scheme.verifier())));
        self
    }

    /// Lets these check signatures, in certificates and of peers, where they can; the portable implementations do the rest. For
    /// hosts that have faster ones: `webpki::ring` has several. Which algorithms are accepted does not change.
    #[must_use]
    pub fn verified_by(mut self, verifiers: &[&'static dyn SignatureVerificationAlgorithm]) -> Self {
        let accepted = |v: &&&'static dyn SignatureVerificationAlgorithm| {
            self.verifiers.iter().any(|own| same_algorithm(*own, **v))
        };
        let given: Vec<_> = verifiers.iter().filter(accepted).copied().collect();
        self.verifiers.splice(0..0, given);
        self
    }

    /// Whether a list that an authority signed names this certificate, which was believed before: also where the certificate, or the list, has
    /// run out since. What has run out shows that it is the authority's by the time when it began. Nothing is said of any other fault: that the
    /// peer's next proof will show.
    pub fn revokes(&self, certificate: &PeerCertificate) -> bool {
        let der = CertificateDer::from(certificate.der());
        let Ok((_, parsed)) = X509Certificate::from_der(&der) else { return true };
        let began = u64::try_from(parsed.validity().not_before.timestamp()).unwrap_or_default();
        let began = UnixTime::since_unix_epoch(Duration::from_secs(began));
        let checked = EndEntityCert::try_from(&der)
            .and_then(|cert| self.check_path(&cert, &[], began, ExpirationPolicy::Ignore));
        matches!(checked, Err(webpki::Error::CertRevoked))
    }

    /// RFC 5280 6, with revocation lists where there are any: then each certificate must be covered by one.
    fn check_path(
        &self,
        cert: &EndEntityCert<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
        of_lists: ExpirationPolicy,
    ) -> Result<(), webpki::Error> {
        let lists: Vec<&CertRevocationList<'_>> = self.lists.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|b| {
            b.with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(UnknownStatusPolicy::Deny)
                .with_expiration_policy(of_lists)
                .build()
        });
        cert.verify_for_usage(&self.verifiers, &self.anchors, between, now, IkeUsage, revocation, None)?;
        Ok(())
    }

    /// Who checks signatures of a scheme; nobody where it is not accepted.
    fn verifier(&self, scheme: SignatureScheme) -> Option<&'static dyn SignatureVerificationAlgorithm> {
        let own = scheme.verifier();
        self.verifiers.iter().copied().find(|v| same_algorithm(*v, own))
    }

    /// The data of a CERTREQ payload: SHA-1 of each authority's SubjectPublicKeyInfo (RFC 7296 3.7). Here SHA-1 names keys; it
    /// protects nothing.
    pub(crate) fn request(&self) -> Vec<u8> {
        self.hashes.concat()
    }
}

fn same_algorithm(a: &dyn SignatureVerificationAlgorithm, b: &dyn SignatureVerificationAlgorithm) -> bool {
    (a.public_key_alg_id(), a.signature_alg_id()) == (b.public_key_alg_id(), b.signature_alg_id())
}

/// A peer's own certificate, after its path was validated. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate(Arc<[u8]>);

impl PeerCertificate {
    /// The certificate in DER.
    pub fn der(&self) -> &[u8] {
        &self.0
    }

    /// Its last moment, in seconds since 1970; that of one that cannot be read is long over.
    pub fn ends(&self) -> u64 {
        let ends =
            X509Certificate::from_der(&self.0).map(|(_, parsed)| parsed.validity().not_after.timestamp());
        u64::try_from(ends.unwrap_or_default()).unwrap_or_default()
    }

    /// The octets of the extension with the given object identifier in dotted form: the place of a host's accreditation.
    pub fn extension(&self, oid: &str) -> Option<Vec<u8>> {
        let (_, parsed) = X509Certificate::from_der(&self.0).ok()?;
        let mut found = parsed.extensions().iter().filter(|e| e.oid.to_id_string() == oid);
        match (found.next(), found.next()) {
            (Some(e), None) => Some(e.value.to_vec()),
            _ => None,
        }
    }
}

/// The DNS names in a certificate's subjectAltName; none where it cannot be read.
pub fn dns_names(der: &[u8]) -> Vec<String> {
    let Ok((_, cert)) = X509Certificate::from_der(der) else { return Vec::new() };
    let Ok(Some(names)) = cert.subject_alternative_name() else { return Vec::new() };
    let names = names.value.general_names.iter();
    names.filter_map(|n| if let GeneralName::DNSName(n) = n { Some((*n).to_owned()) } else { None }).collect()
}

/// RFC 4945 5.1.3.12: extended key usages, where a certificate has any, must name IKE or all uses.
struct IkeUsage;

impl ExtendedKeyUsageValidator for IkeUsage {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        const IPSEC_IKE: &[usize] = &[1, 3, 6, 1, 5, 5, 7, 3, 17];
        const IKE_INTERMEDIATE: &[usize] = &[1, 3, 6, 1, 5, 5, 8, 2, 2];
        const ANY: &[usize] = &[2, 5, 29, 37, 0];
        let mut empty = true;
        for purpose in purposes {
            let oid = purpose?.to_decoded_oid();
            if [IPSEC_IKE, IKE_INTERMEDIATE, ANY].contains(&oid.as_slice()) {
                return Ok(());
            }
            empty = false;
        }
        if empty { Ok(()) } else { Err(webpki::Error::UnsupportedCertVersion) }
    }
}

/// Why a peer's signature was not believed. It goes to the log, never to the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateError {
    /// The peer sent no certificate of the one encoding levee reads.
    Missing,
    /// No valid path leads from the certificate to an authority.
    Path(String),
    /// Its authority has revoked it, or another certificate on its path.
    Revoked,
    /// The certificate does not name the identity that the peer claims.
    WrongName,
    /// The signature is by this algorithm, which is not accepted or does not fit the key.
    Algorithm(String),
    /// The peer proves itself by this method of authentication (its number in the registry), which certificates are not used with.
    Method(u8),
    /// The signature is not by the certificate's key over this exchange.
    Signature,
}

impl std::fmt::Display for CertificateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("no X.509 certificate was sent"),
            Self::Path(why) => write!(f, "no valid certification path: {why}"),
            Self::Revoked => f.write_str("the certificate is revoked"),
            Self::WrongName => f.write_str("the certificate does not name the claimed identity"),
            Self::Algorithm(which) => {
                write!(f, "the peer signs with {which}, which is not accepted or does not fit its key")
            }
            Self::Method(number) => {
                write!(
                    f,
                    "the peer authenticates by method {number}, not by a digital signature (14, RFC 7427)"
                )
            }
            Self::Signature => f.write_str("the signature is wrong"),
        }
    }
}

/// Checks the AUTH payload's signature over `octets` and that an authority vouches for who signed.
pub(crate) fn verify(
    anchors: &TrustAnchors,
    accepted: &[SignatureScheme],
    certs: &[CertPayload<'_>],
    id: &Identity,
    auth_data: &[u8],
    octets: &[&[u8]],
    unix_seconds: u64,
) -> Result<PeerCertificate, CertificateError> {
    let mut chain = certs
        .iter()
        .filter(|c| c.encoding == cert_encoding::X509_SIGNATURE)
        .take(MOST_CERTIFICATES)
        .map(|c| CertificateDer::from(c.data));
    let own = chain.next().ok_or(CertificateError::Missing)?;
    let between = one_of_each_name(chain);
    let path_error = |e: webpki::Error| match e {
        webpki::Error::CertRevoked => CertificateError::Revoked,
        e => CertificateError::Path(format!("{e:?}")),
    };
    let cert = EndEntityCert::try_from(&own).map_err(path_error)?;

    // The cheap checks first: the path costs several signatures, and none is worth it when the peer does not hold the key.
    if !names(&own, id) {
        return Err(CertificateError::WrongName);
    }
    let (identifier, signature) = SignatureScheme::split(auth_data).ok_or(CertificateError::Signature)?;
    let unfit = || CertificateError::Algorithm(SignatureScheme::describe(identifier));
    let octets = octets.concat();
    let believed = SignatureScheme::meant_by(identifier, accepted).filter_map(|s| anchors.verifier(s));
    let mut fits = believed.map(|verifier| {
        cert.verify_signature(verifier, &octets, signature).map_err(|e| match e {
            webpki::Error::InvalidSignatureForPublicKey => CertificateError::Signature,
            // Of a scheme for another kind of key nothing was computed.
            _ => unfit(),
        })
    });
    fits.find(|it| !matches!(it, Err(CertificateError::Algorithm(_)))).unwrap_or_else(|| Err(unfit()))?;

    let now = UnixTime::since_unix_epoch(Duration::from_secs(unix_seconds));
    anchors.check_path(&cert, &between, now, ExpirationPolicy::Enforce).map_err(path_error)?;
    Ok(PeerCertificate(own.as_ref().into()))
}

/// The first of each name, so that at most one way leads from a certificate to an authority: whoever shows them is not known yet, and a search
/// tries every order of those that bear one name, which of nine takes a quarter of a second.
fn one_of_each_name<'a>(shown: impl Iterator<Item = CertificateDer<'a>>) -> Vec<CertificateDer<'a>> {
    let mut names = BTreeSet::new();
    let mut is_first = |der: &CertificateDer<'a>| {
        EndEntityCert::try_from(der).is_ok_and(|certificate| names.insert(certificate.subject().to_vec()))
    };
    shown.filter(|der| is_first(der)).collect()
}

/// Whether the certificate names the identity: in its subject for a DN, else in its subjectAltName (RFC 4945 3.1).
fn names(der: &[u8], id: &Identity) -> bool {
    let Ok((_, cert)) = X509Certificate::from_der(der) else { return false };
    if let Identity::DistinguishedName(dn) = id {
        return cert.subject().as_raw() == dn.as_slice();
    }
    let Ok(Some(names)) = cert.subject_alternative_name() else { return false };
    names.value.general_names.iter().any(|name| match (name, id) {
        (GeneralName::DNSName(n), Identity::Fqdn(_)) => Identity::Fqdn((*n).to_owned()) == *id,
        (GeneralName::RFC822Name(n), Identity::Mail(_)) => Identity::Mail((*n).to_owned()) == *id,
        (GeneralName::IPAddress(octets), Identity::Address(IpAddr::V4(a))) => *octets == a.octets(),
        (GeneralName::IPAddress(octets), Identity::Address(IpAddr::V6(a))) => *octets == a.octets(),
        _ => false,
    })
}
