//! Who the second tunnel is, where a site has two layers: an authority of its own, keys of another kind, and a store of another uid, so
//! that whoever reads one layer's keys has not read the other's. Private keys are not encrypted: a passphrase would be both layers'.

use super::authority::{Authority, AuthorityKey};
use super::parts::Part;
use super::{EnrolError, Enroller, Facts, Files, HostFacts, Mode, Written, files, pki};
use levee_ipc::warden::layer::KEYS_UID;
use rcgen::Issuer;
use std::path::{Path, PathBuf};

impl Enroller<'_> {
    /// The authority, unless there is one or the site has one layer.
    pub(super) fn layer_authority(&self, facts: &Facts) -> Result<Written, EnrolError> {
        if facts.layer_port.is_none() || self.has(&Part::layer_authority())? {
            return Ok(Vec::new());
        }
        let mut files = self.layer_store(&self.state.join("layer/authority"))?;
        let key = pki::layer_key()?;
        let certificate = pki::layer_authority(&facts.site, &key)?;
        files.private("ca.key", &key)?;
        files.public("ca.pem", &certificate.pem())?;
        owned(files)
    }

    /// The key and certificate of the server's end, which is the gateway's bundle where there is one, unless they are there or the site has
    /// one layer.
    pub(super) fn layer_server(&self, facts: &Facts) -> Result<Written, EnrolError> {
        let (end, addresses) = facts.layer_end();
        if facts.layer_port.is_none() || self.has(&Part::layer_end(end, ""))? {
            return Ok(Vec::new());
        }
        let mut written = Vec::new();
        if let Some(text) = facts.gateway()? {
            let mut files = Files { force: true, ..self.open(&self.state.join("gateway"))? };
            files.public("gateway.toml", &text)?;
            written = files.written;
        }
        let (authority, issuer) = self.layer_issuer()?;
        let mut files = self.layer_store(&self.state.join(end))?;
        let key = pki::layer_key()?;
        let certificate = pki::server(&facts.server, addresses, &key, &issuer)?;
        files.put("layer.key", pki::write_layer_key(&key)?.as_bytes(), Mode::Private)?;
        files.public("chain.pem", &certificate.pem())?;
        files.public("authority.pem", &authority)?;
        written.extend(owned(files)?);
        Ok(written)
    }

    /// A host's, unless they are there or it has one layer.
    pub(super) fn layer_host(&self, facts: &Facts, host: &HostFacts) -> Result<Written, EnrolError> {
        let bundle = format!("hosts/{}", host.name);
        let has_one = facts.layer_port.is_none() || !host.layered;
        if has_one || self.has(&Part::layer_of(host.name.as_str()))? {
            return Ok(Vec::new());
        }
        let (authority, issuer) = self.layer_issuer()?;
        let mut files = self.layer_store(&self.state.join(&bundle).join("layer"))?;
        let key = pki::layer_key()?;
        let certificate = pki::layer_host(&host.name, &key, &issuer)?;
        files.put("layer.key", pki::write_layer_key(&key)?.as_bytes(), Mode::Private)?;
        files.public("chain.pem", &certificate.pem())?;
        files.public("authority.pem", &authority)?;
        let mut written = owned(files)?;
        // One that was made before the site had two layers does not name the port.
        let path = self.workstation(&host.name);
        files::write(&path, facts.workstation(host, &path)?.as_bytes(), Mode::Public, true)
            .map_err(|error| EnrolError::File(path.clone(), error))?;
        written.push(path);
        Ok(written)
    }

    fn layer_store(&self, directory: &Path) -> Result<Files, EnrolError> {
        Ok(Files { passphrase: None, ..self.open(directory)? })
    }

    pub(super) fn layer_issuer(&self) -> Result<(String, Authority<'static>), EnrolError> {
        let directory = self.state.join("layer/authority");
        let read = |name: &str| {
            let path = directory.join(name);
            let text = std::fs::read_to_string(&path);
            text.map(zeroize::Zeroizing::new).map_err(|error| EnrolError::File(path, error))
        };
        let (certificate, key) = (read("ca.pem")?, read("ca.key")?);
        let key = pki::read_key(&key, None)?;
        let issuer =
            Issuer::from_ca_cert_pem(&certificate, AuthorityKey::from(key)).map_err(pki::PkiError::from)?;
        Ok((certificate.to_string(), issuer))
    }
}

/// Gives a store and what is in it to the uid that has the second tunnel's keys and nothing else. Whoever is not root cannot; then
/// `levee check` says that the stores are one uid's.
fn owned(files: Files) -> Result<Written, EnrolError> {
    own_files(std::slice::from_ref(&files.directory))?;
    own_files(&files.written)?;
    Ok(files.written)
}

/// The same of some files.
pub(super) fn own_files(paths: &[PathBuf]) -> Result<(), EnrolError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    paths.iter().try_for_each(|path| {
        std::os::unix::fs::chown(path, Some(KEYS_UID), Some(KEYS_UID))
            .map_err(|error| EnrolError::File(path.clone(), error))
    })
}
