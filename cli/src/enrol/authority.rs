//! The authorities that sign: the site's, and the one of etcd and its clients. Whose private key is in a file, or in a token.

use super::error::TokenFault;
use super::parts::Part;
use super::pki::{self, PkiError};
use super::token::{TokenKey, Uri};
use super::{EnrolError, Enroller, Facts, Files, Written, swap};
use rcgen::{Issuer, KeyPair, PublicKeyData, SignatureAlgorithm, SigningKey};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// An authority that can sign.
pub type Authority<'a> = Issuer<'a, AuthorityKey>;

/// An authority's private key: in a file, or in a token that does not give it out.
pub enum AuthorityKey {
    /// In a file.
    File(Box<KeyPair>),
    /// In a token.
    Token(Box<TokenKey>),
}

impl From<KeyPair> for AuthorityKey {
    fn from(key: KeyPair) -> Self {
        Self::File(Box::new(key))
    }
}

impl PublicKeyData for AuthorityKey {
    fn der_bytes(&self) -> &[u8] {
        match self {
            Self::File(key) => key.der_bytes(),
            Self::Token(key) => key.der_bytes(),
        }
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self {
            Self::File(key) => PublicKeyData::algorithm(&**key),
            Self::Token(key) => key.algorithm(),
        }
    }
}

impl SigningKey for AuthorityKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        match self {
            Self::File(key) => key.sign(message),
            Self::Token(key) => key.sign(message),
        }
    }
}

impl Enroller<'_> {
    /// Makes the site's authority.
    pub fn authority(&self, facts: &Facts) -> Result<Written, EnrolError> {
        let directory = self.state.join("authority");
        let mut files = self.open(&directory)?;
        // Before a token makes a key, and never out of a token by the way.
        for name in ["ca.key", "ca.uri", "ca.pem"] {
            files.absent(name)?;
        }
        let uri = directory.join("ca.uri");
        if self.token.is_none() && uri.exists() {
            return Err(TokenFault::InToken(uri).into());
        }
        let key = self.authority_key(facts, self.token.as_ref())?;
        let certificate = pki::authority(&facts.site, &key)?;
        files.authority("ca", &key)?;
        files.public("ca.pem", &certificate.pem())?;
        let mut written = files.written;
        written.extend(self.federation_authority(facts)?);
        written.extend(self.layer_authority(facts)?);
        Ok(written)
    }

    /// The authority for etcd's clients, of a site that has become one of several servers.
    pub(super) fn federation_authority(&self, facts: &Facts) -> Result<Written, EnrolError> {
        let mut files = self.open(&self.state.join("authority"))?;
        if facts.etcd.is_some() && !self.has(&Part::federation_authority())? {
            // Where the site's is in a token, this one is beside it.
            let uri = match &self.token {
                Some(uri) => Some(uri.clone()),
                None => self.uri("authority", "ca")?,
            };
            let uri = uri.map(|uri| uri.beside("-federation")).transpose().map_err(PkiError)?;
            let key = self.authority_key(facts, uri.as_ref())?;
            let certificate = pki::federation_authority(&facts.site, &key)?;
            files.authority("federation-ca", &key)?;
            files.public("federation-ca.pem", &certificate.pem())?;
        }
        Ok(files.written)
    }

    /// A key for an authority that is made: a new one, or the one of this token, which makes it if need be.
    pub(super) fn authority_key(&self, facts: &Facts, uri: Option<&Uri>) -> Result<AuthorityKey, EnrolError> {
        let Some(uri) = uri else { return Ok(pki::key(facts.keys)?.into()) };
        Ok(AuthorityKey::Token(Box::new(TokenKey::make(self.tokens, uri, facts.keys)?)))
    }

    /// An authority, if its key is of the kind that the site file says: else nobody would know which of the two counts.
    pub(super) fn issuer_of(
        &self,
        facts: &Facts,
        name: &str,
    ) -> Result<(String, Authority<'static>), EnrolError> {
        let (certificate, issuer) = self.issuer(name)?;
        if !pki::is_on(issuer.key(), facts.keys) {
            return Err(EnrolError::OtherCurve(facts.keys));
        }
        Ok((certificate, issuer))
    }

    /// The authority before another one, while its rotation has not ended.
    pub(super) fn former_issuer(&self, name: &str) -> Result<Option<Authority<'static>>, EnrolError> {
        let is_there = self.state.join(format!("authority/{name}.pem")).exists();
        is_there.then(|| Ok(self.issuer(name)?.1)).transpose()
    }

    pub(super) fn issuer(&self, name: &str) -> Result<(String, Authority<'static>), EnrolError> {
        let directory = self.state.join("authority");
        let read = |name: &str| {
            let path = directory.join(name);
            match std::fs::read_to_string(&path) {
                Ok(text) => Ok(Zeroizing::new(text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Err(EnrolError::NoAuthority(directory.clone()))
                }
                Err(error) => Err(EnrolError::File(path, error)),
            }
        };
        let certificate = read(&format!("{name}.pem"))?;
        let key = match self.uri("authority", name)? {
            Some(uri) => {
                let public = pki::public_key(certificate.as_bytes())?;
                AuthorityKey::Token(Box::new(TokenKey::open(self.tokens, &uri, &public)?))
            }
            None => {
                let passphrase = self.authority_passphrase.as_ref().map(|text| text.as_slice());
                pki::read_key(&read(&format!("{name}.key"))?, passphrase)?.into()
            }
        };
        let issuer = Issuer::from_ca_cert_pem(&certificate, key).map_err(PkiError::from)?;
        Ok((certificate.to_string(), issuer))
    }

    /// Which key of which token an authority has, if it is in one.
    pub(super) fn uri(&self, directory: &str, name: &str) -> Result<Option<Uri>, EnrolError> {
        uri_in(&self.state.join(directory), name)
    }
}

/// The same, of the authority of this name in this directory.
fn uri_in(directory: &Path, name: &str) -> Result<Option<Uri>, EnrolError> {
    let path = directory.join(format!("{name}.uri"));
    match std::fs::read_to_string(&path) {
        // Of two keys nobody would know which counts.
        Ok(_) if path.with_extension("key").exists() => Err(TokenFault::TwoKeys(path).into()),
        Ok(text) => Uri::parse(text.trim()).map(Some).map_err(|why| EnrolError::Request(path, why)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(EnrolError::File(path, error)),
    }
}

/// Where the private key of the site's authority is.
#[derive(Debug)]
pub enum Whereabouts {
    /// In a token, by this URI.
    Token(Box<Uri>),
    /// In this file; whether it is encrypted.
    File(PathBuf, bool),
    /// Not in this state directory.
    Elsewhere,
}

/// The same; none where there is no authority, or this uid may not look. No library is loaded for it.
///
/// # Errors
/// What is said of it cannot be used, and why.
pub fn whereabouts(state: &Path) -> Result<Option<Whereabouts>, EnrolError> {
    let directory = state.join("authority");
    if !directory.join("ca.pem").exists() {
        return Ok(None);
    }
    if let Some(uri) = uri_in(&directory, "ca")? {
        return Ok(Some(Whereabouts::Token(Box::new(uri))));
    }
    let key = directory.join("ca.key");
    match std::fs::read(&key).map(Zeroizing::new) {
        Ok(text) => {
            let encrypted = text.starts_with(b"-----BEGIN ENCRYPTED");
            Ok(Some(Whereabouts::File(key, encrypted)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Whereabouts::Elsewhere)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(EnrolError::File(key, error)),
    }
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(uri) => {
                write!(f, "in a token, {}, by the library {}", uri.name(), uri.module.display())
            }
            Self::File(path, true) => write!(f, "in {}, encrypted", path.display()),
            Self::File(path, false) => write!(f, "in {}, not encrypted", path.display()),
            Self::Elsewhere => f.write_str("not in this state directory"),
        }
    }
}

impl Files {
    /// An authority's key, by its name without an end: or, of one in a token, which it is. What was there in its place is destroyed.
    pub(super) fn authority(&mut self, name: &str, key: &AuthorityKey) -> Result<(), EnrolError> {
        let (private, uri) = (format!("{name}.key"), format!("{name}.uri"));
        let other = match key {
            AuthorityKey::File(key) => {
                self.private(&private, key)?;
                uri
            }
            AuthorityKey::Token(key) => {
                self.public(&uri, &format!("{}\n", key.uri))?;
                private
            }
        };
        let other = self.directory.join(other);
        if other.exists() {
            swap::destroy(&other).map_err(|error| EnrolError::File(other, error))?;
        }
        Ok(())
    }
}
