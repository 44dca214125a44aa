//! The private keys: one for each use, read once, erased at the end.

use levee_ipc::Secret;
use levee_ipc::signer::Use;
use levee_sys::wipe::Wiped;
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use zeroize::Zeroizing;

/// A file with a P-384 key has about 300 bytes.
const MAX_FILE: usize = 8 * 1024;

/// Why a key file is not used. What is in it is not said.
#[derive(Debug)]
pub enum KeyError {
    /// It cannot be read.
    Io(std::io::Error),
    /// It is too large, or has no `PRIVATE KEY` in PEM.
    Pem,
    /// The key is not for ECDSA on P-256 or P-384.
    Key,
    /// It is encrypted, and no passphrase was given.
    Encrypted,
    /// It is encrypted in another way than PBES2's, or with another passphrase.
    Passphrase,
    /// It is no PPK, or one of another length.
    Ppk,
    /// There is a key for this use already.
    Twice,
}

impl std::fmt::Display for KeyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(e) => write!(f, "cannot be read: {e}"),
            Self::Pem => f.write_str("has no PKCS#8 private key in PEM, or is too large"),
            Self::Key => f.write_str("has a key that is neither for ECDSA on P-256 nor on P-384"),
            Self::Encrypted => f.write_str(
                "is encrypted, and no passphrase was given: `levee up` asks for it on a terminal, or takes it from --passphrase-file",
            ),
            Self::Passphrase => f.write_str(
                "is encrypted, and not with this passphrase (or not as PBES2 does): start `levee up` again with the right one",
            ),
            Self::Ppk => f.write_str("has no PRESHARED KEY of 32 to 256 bytes in PEM"),
            Self::Twice => f.write_str("is a second key for one use"),
        }
    }
}

/// What a key file has in it.
fn text(fd: &OwnedFd) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    levee_daemon::whole(fd, MAX_FILE).map_err(|e| match e.kind() {
        std::io::ErrorKind::FileTooLarge => KeyError::Pem,
        _ => KeyError::Io(e),
    })
}

/// The one PEM block in a key file (RFC 7468): its label and content.
pub fn pem(fd: OwnedFd) -> Result<(String, Zeroizing<Vec<u8>>), KeyError> {
    let text = text(&fd)?;
    let mut content = Zeroizing::new(vec![0u8; MAX_FILE]);
    let (label, length) = pkcs8::der::pem::decode(text.trim_ascii(), &mut content)
        .map(|(label, content)| (label.to_owned(), content.len()))
        .map_err(|_| KeyError::Pem)?;
    content.truncate(length);
    Ok((label, content))
}

/// The PKCS#8 private key in a PEM file (RFC 5958 2, 3), erased when dropped.
fn decrypted(pem: &[u8], passphrase: Option<&Secret>) -> Result<SecretDocument, KeyError> {
    let pem = std::str::from_utf8(pem).map_err(|_| KeyError::Pem)?;
    match SecretDocument::from_pem(pem.trim()) {
        Ok(("PRIVATE KEY", der)) => Ok(der),
        Ok(("ENCRYPTED PRIVATE KEY", der)) => {
            let passphrase = passphrase.ok_or(KeyError::Encrypted)?;
            let sealed =
                EncryptedPrivateKeyInfoRef::try_from(der.as_bytes()).map_err(|_| KeyError::Passphrase)?;
            sealed.decrypt(passphrase.expose()).map_err(|_| KeyError::Passphrase)
        }
        _ => Err(KeyError::Pem),
    }
}

/// Keys by use.
pub struct Keys {
    keys: HashMap<Use, Wiped<EcdsaKeyPair>>,
    random: SystemRandom,
}

impl Default for Keys {
    fn default() -> Self {
        Self { keys: HashMap::new(), random: SystemRandom::new() }
    }
}

impl Keys {
    /// Reads the key for a use, decrypting it if need be.
    pub fn read(&mut self, key_use: Use, fd: OwnedFd, passphrase: Option<&Secret>) -> Result<(), KeyError> {
        if self.keys.contains_key(&key_use) {
            return Err(KeyError::Twice);
        }
        let der = decrypted(&text(&fd)?, passphrase)?;
        let key = Wiped::try_new(|| {
            // The curve is in the file; each of these takes its own alone.
            let on = |algorithm| EcdsaKeyPair::from_pkcs8(algorithm, der.as_bytes(), &self.random);
            on(&ECDSA_P256_SHA256_ASN1_SIGNING)
                .or_else(|_| on(&ECDSA_P384_SHA384_ASN1_SIGNING))
                .map_err(|_| KeyError::Key)
        });
        self.keys.insert(key_use, key?);
        Ok(())
    }

    /// An ASN.1 ECDSA signature with the hash of the key's curve, SHA-256 or SHA-384; `None` if there is no key for this use.
    pub fn sign(&self, key_use: Use, content: &crate::content::Content) -> Option<Vec<u8>> {
        let key = self.keys.get(&key_use)?;
        let signature = key.sign(&self.random, content.bytes()).ok();
        levee_sys::wipe::scrub_stack();
        Some(signature?.as_ref().to_vec())
    }
}
