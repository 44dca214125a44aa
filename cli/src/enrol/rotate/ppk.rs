//! A PPK (RFC 8784) followed by another of another name. The server takes both until the rotation is ended, and the host uses the one
//! that it has: so nobody is cut while the new one is on its way to the host.

use super::super::{EnrolError, Enroller, Facts, Files, HostFacts, files, pki};
use super::{Mode, Rotated, Rotation, Swap};
use crate::audit;
use crate::typed::Passphrase;
use levee_policy::{HostName, PpkId};
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

/// The server's halves, below the state directory.
const PLACE: &str = "server/ppk";

/// The server's half of the PPK before the one of now, below the state directory, while its rotation has not ended. No host's name has
/// a slash, so that it is no other host's PPK.
pub fn former(host: &HostName) -> String {
    format!("{PLACE}/former/{host}.key")
}

/// A half of a PPK, as its file has it.
struct Half {
    text: Zeroizing<String>,
    key: Zeroizing<Vec<u8>>,
    /// It is encrypted with this.
    passphrase: Option<Passphrase>,
}

impl Half {
    /// `None` where there is no file.
    fn read(path: &Path, passphrase: Option<&Passphrase>) -> Result<Option<Self>, EnrolError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => Zeroizing::new(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(EnrolError::File(path.to_owned(), error)),
        };
        let passphrase = passphrase.filter(|_| pki::is_encrypted_ppk(&text)).cloned();
        let key = pki::read_ppk(&text, passphrase.as_ref().map(|text| text.as_slice()))?;
        Ok(Some(Self { text, key, passphrase }))
    }

    /// The file's text with the key's name above it.
    fn named(&self, by_site: &PpkId) -> Result<Zeroizing<String>, EnrolError> {
        match pki::ppk_id(&self.text) {
            Some(_) => Ok(self.text.clone()),
            None => Ok(Zeroizing::new(pki::ppk_head(by_site) + &self.text)),
        }
    }

    fn id(&self, by_site: &PpkId) -> PpkId {
        pki::ppk_id(&self.text).unwrap_or_else(|| by_site.clone())
    }
}

impl Enroller<'_> {
    /// Makes another PPK for a host. The server's half of the one before it stays beside it until [`Enroller::finish_ppk`]; the bundle
    /// has the new one alone. Where that is so already, the bundle's half is written anew.
    ///
    /// # Errors
    /// The host has none, a half does not open with its passphrase, or something cannot be written: then the old one is the only one.
    pub fn rotate_ppk(
        &self,
        facts: &Facts,
        name: &str,
        bundle: Option<Passphrase>,
    ) -> Result<Rotated, EnrolError> {
        let _alone = self.alone()?;
        let (host, by_site) = shared(facts, name)?;
        let (ours, current) = self.ppk_now(&host.name, self.passphrase.as_ref())?;
        let theirs = self.state.join("hosts").join(host.name.as_str()).join("ppk.key");
        // A wrong passphrase is found before anything is changed.
        let theirs_now = Half::read(&theirs, bundle.as_ref())?;
        let bundle = theirs_now.map_or(bundle, |half| half.passphrase);
        if self.state.join(former(&host.name)).exists() {
            let written = self.give_ppk(host, &current.id(by_site), &current.key, bundle)?;
            let said = format!("the PPK of {name}: its rotation was begun before, and ends with --finish");
            return Ok(Rotated { written, destroyed: Vec::new(), said });
        }
        let id = self.next_ppk_id(facts, by_site)?;
        let key = pki::ppk()?;
        let mut rotation = self.begin_ppk(current.passphrase.clone())?;
        let place = rotation.files.directory.join("former");
        files::directory(&place).map_err(|error| EnrolError::File(place, error))?;
        let before = current.named(by_site)?;
        rotation.files.put(&format!("former/{}.key", host.name), before.as_bytes(), Mode::Private)?;
        rotation.files.ppk(&ours, &id, &key)?;
        let reason = format!("rotated: from {} to {id}; both are taken until --finish", current.id(by_site));
        let mut done = self.finish(&format!("PPK of {name}"), &reason, rotation)?;
        // It has another place now.
        done.destroyed.clear();
        done.written.extend(self.give_ppk(host, &id, &key, bundle)?);
        Ok(done)
    }

    /// Ends the rotation of a host's PPK: the one before it is destroyed.
    ///
    /// # Errors
    /// None was begun; the audit log does not say that the host has used the new one, and it is not by force; or something cannot be
    /// written.
    pub fn finish_ppk(&self, facts: &Facts, name: &str) -> Result<Rotated, EnrolError> {
        let _alone = self.alone()?;
        let (host, by_site) = shared(facts, name)?;
        if !self.state.join(former(&host.name)).exists() {
            return Err(EnrolError::NotBegun);
        }
        let path = self.state.join(PLACE).join(format!("{}.key", host.name));
        let text = std::fs::read_to_string(&path).map(Zeroizing::new);
        let text = text.map_err(|error| EnrolError::File(path, error))?;
        let id = pki::ppk_id(&text).unwrap_or_else(|| by_site.clone());
        if !self.force && !audit::has_ppk_used(self.state, &host.name, &id).map_err(EnrolError::AuditLog)? {
            return Err(EnrolError::NotUsed(host.name.clone(), id));
        }
        let rotation = self.begin_ppk(None)?;
        let path = rotation.files.directory.join("former").join(format!("{}.key", host.name));
        std::fs::remove_file(&path).map_err(|error| EnrolError::File(path, error))?;
        let reason = format!("rotated: {id} alone is taken from here on");
        self.finish(&format!("PPK of {name}"), &reason, rotation)
    }

    /// The file of the server's half, and what it has.
    fn ppk_now(
        &self,
        host: &HostName,
        passphrase: Option<&Passphrase>,
    ) -> Result<(String, Half), EnrolError> {
        let file = format!("{host}.key");
        let path = self.state.join(PLACE).join(&file);
        match Half::read(&path, passphrase)? {
            Some(half) => Ok((file, half)),
            None => Err(EnrolError::NoPpkYet(path, host.clone())),
        }
    }

    fn begin_ppk(&self, passphrase: Option<Passphrase>) -> Result<Rotation, EnrolError> {
        let live = self.state.join("server");
        let swap = Swap::begin(&live).map_err(|error| EnrolError::File(live, error))?;
        let files = Files {
            directory: swap.path().join("ppk"),
            force: true,
            passphrase: passphrase.map(|passphrase| (passphrase, self.rounds)),
            written: Vec::new(),
        };
        Ok(Rotation { swap, files, said: Vec::new() })
    }

    /// Writes the host's half into its bundle.
    fn give_ppk(
        &self,
        host: &HostFacts,
        id: &PpkId,
        key: &[u8],
        passphrase: Option<Passphrase>,
    ) -> Result<Vec<std::path::PathBuf>, EnrolError> {
        let bundle = self.state.join("hosts").join(host.name.as_str());
        let mut files = Files {
            force: true,
            passphrase: passphrase.map(|passphrase| (passphrase, self.rounds)),
            ..self.open(&bundle)?
        };
        files.ppk("ppk.key", id, key)?;
        Ok(files.written)
    }

    /// A name that no PPK of the site has: the site file's, and eight random digits behind it.
    fn next_ppk_id(&self, facts: &Facts, by_site: &PpkId) -> Result<PpkId, EnrolError> {
        let mut others: Vec<PpkId> = facts.hosts.iter().filter_map(|host| host.ppk.clone()).collect();
        for host in &facts.hosts {
            let now = format!("{PLACE}/{}.key", host.name);
            for file in [now, former(&host.name)] {
                let text = std::fs::read_to_string(self.state.join(file)).map(Zeroizing::new);
                others.extend(text.ok().and_then(|text| pki::ppk_id(&text)));
            }
        }
        loop {
            let id = pki::ppk_id_behind(by_site)?;
            if !others.contains(&id) {
                return Ok(id);
            }
        }
    }
}

/// A host, and the name that the site file gives its PPK.
fn shared<'a>(facts: &'a Facts, name: &str) -> Result<(&'a HostFacts, &'a PpkId), EnrolError> {
    let host = facts.host(name)?;
    let id = host.ppk.as_ref().ok_or_else(|| EnrolError::NoPpk(host.name.clone()))?;
    Ok((host, id))
}

#[cfg(test)]
mod tests;
