//! The keys of a sender's run: AES-256-GCM, by HKDF (RFC 5869) with SHA-256 out of the channel's key, the run and the channel's name.

use crate::header::{HEADER, Header, Run};
use hkdf::Hkdf;
use levee_esp::{Aead, AeadError, AeadProvider, Suite};
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize, Zeroizing};

/// Octets of a channel's key.
pub const KEY: usize = 32;

/// What the two ends of a channel have in common, and nobody else: the key, and the channel's name.
pub struct Secret {
    key: Zeroizing<[u8; KEY]>,
    name: String,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the key of {}", self.name)
    }
}

impl Secret {
    /// Of the channel of this name.
    pub fn new(key: Zeroizing<[u8; KEY]>, name: &str) -> Self {
        Self { key, name: name.to_owned() }
    }

    /// Whether the two are the same. Who has this compared is the operator, and nobody else sees how long it takes.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (&self.key, &self.name) == (&other.key, &other.name)
    }

    /// What the key is known by: 16 digits of its SHA-256 digest, which tell nobody anything else about it.
    pub fn fingerprint(&self) -> String {
        fingerprint(self.mark())
    }

    /// The same as a number.
    pub(crate) fn mark(&self) -> u64 {
        Sha256::digest(&self.key[..]).first_chunk().copied().map_or(0, u64::from_be_bytes)
    }

    /// What a run's datagrams are sealed with.
    pub(crate) fn of_run(&self, library: &dyn AeadProvider, run: Run) -> Result<Sealed, AeadError> {
        let mut salt = [0; 16];
        let all = run.began.to_be_bytes().into_iter().chain(run.random.to_be_bytes());
        salt.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        let mut key = [0; KEY];
        let derived = Hkdf::<Sha256>::new(Some(&salt), &self.key[..])
            .expand_multi_info(&[b"levee one-way channel 1 ", self.name.as_bytes()], &mut key);
        let made = match derived {
            Ok(()) => library.key(Suite::Aes256Gcm, &key),
            Err(_) => Err(AeadError),
        };
        key.zeroize();
        Ok(Sealed { run, aead: made? })
    }
}

/// How what a key is known by is written.
pub(crate) fn fingerprint(mark: u64) -> String {
    format!("{mark:016x}")
}

/// What seals and opens one run's datagrams.
pub(crate) struct Sealed {
    pub run: Run,
    aead: Box<dyn Aead>,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the keys of {:?}", self.run)
    }
}

impl Sealed {
    /// Adds a datagram to what is to be sent.
    pub fn seal(&self, header: &Header, text: &[u8], to: &mut Vec<u8>) -> Result<(), AeadError> {
        let plain = header.write();
        to.extend_from_slice(&plain);
        let from = to.len();
        to.extend_from_slice(text);
        let sealed = to.get_mut(from..).ok_or(AeadError)?;
        let tag = self.aead.seal_in_place(&header.nonce(), &plain, sealed)?;
        to.extend_from_slice(&tag);
        Ok(())
    }

    /// Opens a datagram in its place; answers what was sealed.
    pub fn open<'a>(&self, header: &Header, datagram: &'a mut [u8]) -> Result<&'a [u8], AeadError> {
        let (plain, sealed) = datagram.split_first_chunk_mut::<HEADER>().ok_or(AeadError)?;
        let length = self.aead.open_within(&header.nonce(), &*plain, sealed, 0)?;
        sealed.get(..length).ok_or(AeadError)
    }
}
