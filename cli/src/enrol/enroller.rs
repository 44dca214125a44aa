//! Where certificates and keys go, and what was written.

use super::files::{self, Mode};
use super::{EnrolError, Tokens, Uri, pki};
use crate::typed::Passphrase;
use levee_policy::PpkId;
use rcgen::KeyPair;
use std::io;
use std::path::{Path, PathBuf};

/// Where certificates and keys go, and whether what is there may be replaced.
pub struct Enroller<'a> {
    /// The state directory.
    pub state: &'a Path,
    /// Replace what is there.
    pub force: bool,
    /// What private keys are encrypted with, if they are to be.
    pub passphrase: Option<Passphrase>,
    /// How long it takes to try a passphrase: rounds of PBKDF2.
    pub rounds: u32,
    /// What the authority's key is encrypted with, if it is.
    pub authority_passphrase: Option<Passphrase>,
    /// The token, and the key in it, that an authority that is made is to have.
    pub token: Option<Uri>,
    /// How tokens are reached.
    pub tokens: &'a Tokens<'a>,
}

/// The files that were written, in order.
pub type Written = Vec<PathBuf>;

/// Public files by name, in the order in which they are written.
pub(super) type Texts = Vec<(&'static str, String)>;

impl Enroller<'_> {
    /// A directory that files go to; it is made if need be.
    pub(super) fn open(&self, directory: &Path) -> Result<Files, EnrolError> {
        files::directory(directory).map_err(|error| EnrolError::File(directory.to_owned(), error))?;
        let passphrase = self.passphrase.clone().map(|passphrase| (passphrase, self.rounds));
        Ok(Files { directory: directory.to_owned(), force: self.force, passphrase, written: Vec::new() })
    }
}

/// Files of one directory, as far as they were written.
pub(super) struct Files {
    pub(super) directory: PathBuf,
    pub(super) force: bool,
    pub(super) passphrase: Option<(Passphrase, u32)>,
    pub(super) written: Written,
}

impl Files {
    /// An error if this file would be replaced and may not be.
    pub(super) fn absent(&self, name: &str) -> Result<(), EnrolError> {
        let path = self.directory.join(name);
        if self.force || !path.exists() { Ok(()) } else { Err(EnrolError::Exists(path)) }
    }

    pub(super) fn ppk(&mut self, name: &str, id: &PpkId, ppk: &[u8]) -> Result<(), EnrolError> {
        let passphrase = self.passphrase.as_ref().map(|(text, rounds)| (text.as_slice(), *rounds));
        let text = pki::write_ppk(id, ppk, passphrase)?;
        self.put(name, text.as_bytes(), Mode::Private)
    }

    pub(super) fn private(&mut self, name: &str, key: &KeyPair) -> Result<(), EnrolError> {
        let passphrase = self.passphrase.as_ref().map(|(text, rounds)| (text.as_slice(), *rounds));
        let text = pki::write_key(key, passphrase)?;
        self.put(name, text.as_bytes(), Mode::Private)
    }

    pub(super) fn public(&mut self, name: &str, text: &str) -> Result<(), EnrolError> {
        self.put(name, text.as_bytes(), Mode::Public)
    }

    /// Public files, in this order.
    pub(super) fn all(&mut self, texts: Texts) -> Result<(), EnrolError> {
        texts.into_iter().try_for_each(|(name, text)| self.public(name, &text))
    }

    pub(super) fn put(&mut self, name: &str, content: &[u8], mode: Mode) -> Result<(), EnrolError> {
        let path = self.directory.join(name);
        match files::write(&path, content, mode, self.force) {
            Ok(()) => {
                self.written.push(path);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(EnrolError::Exists(path)),
            Err(error) => Err(EnrolError::File(path, error)),
        }
    }
}
