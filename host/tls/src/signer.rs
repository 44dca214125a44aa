//! A TLS private key whose operations are questions to the signer.

use levee_ipc::Channel;
use levee_ipc::signer::{FromSigner, ToSigner};
use levee_policy::DomainName;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use std::sync::{Arc, Mutex, PoisonError};

/// The signer answers in well under a millisecond; a handshake waits no longer than this.
const DEADLINE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// The channel to the signer, once there is one; copies share it.
#[derive(Clone, Debug, Default)]
pub struct SignerHandle(Arc<Mutex<Option<Channel>>>);

impl SignerHandle {
    /// None yet: every signature fails.
    pub fn new() -> Self {
        Self::default()
    }

    /// Signs over this channel from now on.
    pub fn set(&self, channel: Channel) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(channel);
    }

    /// Signs nothing from now on, and lets go of the channel.
    pub fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Which device this is, signed for one connection to this server.
    ///
    /// # Errors
    /// The signer's.
    pub fn prove(
        &self,
        server: DomainName,
        nonce: [u8; 32],
        exporter: [u8; 32],
    ) -> Result<Vec<u8>, crate::material::Error> {
        let signed = self.request(&ToSigner::DeviceProof { server, nonce, exporter });
        signed.map_err(|why| crate::material::error("the proof of which device this is", why))
    }

    fn request(&self, question: &ToSigner) -> Result<Vec<u8>, Error> {
        let failed = |why: &str| Error::General(format!("the signer: {why}"));
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = guard.as_ref().ok_or_else(|| failed("there is none"))?;
        // An answer that came after its deadline is not the answer to this question.
        while channel.try_recv::<FromSigner>().is_ok() {}
        channel.try_send(question).map_err(|e| failed(&e.to_string()))?;
        match poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&DEADLINE)) {
            Ok(1..) => {}
            Ok(0) => return Err(failed("it does not answer")),
            Err(e) => return Err(failed(&e.to_string())),
        }
        match channel.try_recv::<FromSigner>() {
            Ok(received) => match received.message {
                FromSigner::Signature(signature) => Ok(signature),
                FromSigner::Refused
                | FromSigner::Stated { .. }
                | FromSigner::Mixed(_)
                | FromSigner::Chained { .. }
                | FromSigner::Checkpoint { .. } => Err(failed("refused")),
            },
            Err(e) => Err(failed(&e.to_string())),
        }
    }
}

/// The signer's key, and what it signs with.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    signer: SignerHandle,
    scheme: SignatureScheme,
}

impl Key {
    pub(crate) fn new(signer: &SignerHandle, scheme: SignatureScheme) -> Self {
        Self { signer: signer.clone(), scheme }
    }
}

impl SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&self.scheme).then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        self.signer.request(&ToSigner::TlsVerify(message.to_vec()))
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

/// The one certificate there is.
#[derive(Debug)]
pub(crate) struct Only(pub(crate) Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

impl ResolvesClientCert for Only {
    fn resolve(&self, _roots: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
