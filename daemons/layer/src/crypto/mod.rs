//! The cryptography of the second tunnel: OpenSSL's, which no other process of levee links. TLS 1.3 is rustls's state machine, QUIC
//! quinn-proto's; both have every key, signature and certificate from here.
//!
//! One suite (ChaCha20-Poly1305) and one group (P-384): the tunnel within has others unless the site asks for these.

mod keys;
mod packets;
mod peer;
mod session;

pub use keys::{Ids, Reset, Tokens};
pub use peer::{Believed, left_of};
pub use session::{Client, ServerTls};

use rustls::crypto::{CipherSuiteCommon, CryptoProvider};
use rustls::quic::Suite;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};
use rustls_openssl::{cipher_suite, kx_group};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::{Arc, LazyLock};

/// The protocol within TLS (RFC 7301).
pub const PROTOCOL: &[u8] = b"levee-layer/1";

/// The library's suite, but for how packets are protected.
static SUITE: LazyLock<Option<Tls13CipherSuite>> = LazyLock::new(|| {
    let theirs = cipher_suite::TLS13_CHACHA20_POLY1305_SHA256.tls13()?;
    let CipherSuiteCommon { suite, hash_provider, confidentiality_limit } = theirs.common;
    Some(Tls13CipherSuite {
        common: CipherSuiteCommon { suite, hash_provider, confidentiality_limit },
        hkdf_provider: theirs.hkdf_provider,
        aead_alg: theirs.aead_alg,
        quic: Some(&packets::ChaCha20Poly1305),
    })
});

fn provider() -> Arc<CryptoProvider> {
    let suites = SUITE.as_ref().map(SupportedCipherSuite::Tls13).into_iter().collect();
    Arc::new(rustls_openssl::custom_provider(suites, vec![kx_group::SECP384R1]))
}

/// What Initial packets are protected by (RFC 9001 5.2), by keys that everybody knows.
fn initial() -> Result<Suite, String> {
    let suite = cipher_suite::TLS13_AES_128_GCM_SHA256;
    suite
        .tls13()
        .and_then(|suite| suite.quic_suite())
        .ok_or_else(|| "there is no AES-128-GCM for QUIC".to_owned())
}

/// Who we are: a certificate and its private key, in PEM.
pub struct Own {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Own {
    /// Reads both.
    ///
    /// # Errors
    /// One of them is none.
    pub fn read(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|e| format!("reading the certificate: {e}"))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| format!("reading the private key: {e}"))?;
        if chain.is_empty() { Err("there is no certificate".to_owned()) } else { Ok(Self { chain, key }) }
    }

    /// The key of this end's stateless resets.
    ///
    /// # Errors
    /// As [`Reset::of`].
    pub fn reset(&self) -> Result<Reset, String> {
        Reset::of(self.key.secret_der())
    }

    fn certified(self, provider: &CryptoProvider) -> Result<Arc<SingleCertAndKey>, String> {
        let key = provider.key_provider.load_private_key(self.key).map_err(|e| e.to_string())?;
        Ok(Arc::new(SingleCertAndKey::from(CertifiedKey::new(self.chain, key))))
    }
}
