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

/// More answers than this do not come late: one is waited for at a time.
const LATE: usize = 64;

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
        if (0..LATE).all(|_| channel.try_recv::<FromSigner>().is_ok()) {
            return Err(failed("it says more than it is asked"));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_answers_are_left_out_and_a_signer_that_says_more_than_it_is_asked_is_not_heard_to_the_end() {
        let (theirs, ours) = Channel::pair().expect("a channel");
        let handle = SignerHandle::new();
        handle.set(ours);
        let say = |word: u8| theirs.try_send(&FromSigner::Signature(vec![word]));
        let prove = || handle.prove("server.example".parse().expect("a name"), [1; 32], [2; 32]);
        for word in 0..3 {
            say(word).expect("it fits");
        }
        std::thread::scope(|scope| {
            let proved = scope.spawn(prove);
            theirs.recv::<ToSigner>().expect("what is asked now");
            say(9).expect("it fits");
            assert_eq!(proved.join().expect("it ends").ok(), Some(vec![9]));
        });
        let said = (0u64..).take_while(|_| say(7).is_ok()).count();
        assert!(said > 2 * LATE, "{said} words are under way");
        let why = prove().expect_err("nothing is signed by this").to_string();
        assert!(why.contains("more than it is asked"), "{why}");
        let left = std::iter::from_fn(|| {
            let guard = handle.0.lock().unwrap_or_else(PoisonError::into_inner);
            guard.as_ref()?.try_recv::<FromSigner>().ok()
        });
        assert_eq!(left.count(), said - LATE);
    }
}
