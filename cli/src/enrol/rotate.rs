//! `levee enrol rotate`: a new key in the place of one that is in use, and the old one destroyed.
//!
//! What of a directory changes takes its place in one step ([`super::swap`]). Whoever has the old key in memory goes on with it until
//! `levee reload`. What was done waits in `STATE/rotated`, a file for each, until the audit log says it.

use super::authority::AuthorityKey;
use super::error::TokenFault;
use super::swap::{self, Swap};
use super::token::TokenKey;
use super::{EnrolError, Enroller, Facts, Files, Mode, Written, files, pki};
use levee_policy::audit;
use rcgen::{KeyPair, PublicKeyData};
use ring::digest::{SHA256, digest};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The certificates of the authorities before these, while their rotation has not ended.
pub const FORMER: [(What, &str); 3] = [
    (What::Authority, "authority/former-ca.pem"),
    (What::FederationAuthority, "authority/former-federation-ca.pem"),
    (What::LayerAuthority, "layer/authority/former-ca.pem"),
];
/// How long a revocation list that a rotation writes anew is good, as [`Enroller::revoke`]'s by default.
const LIST_DAYS: i64 = 30;

/// A key that can be rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// The server's for the trusted path (TLS)
    TrustedPath,
    /// The server's for IKE
    Ike,
    /// The one that signs the audit log's checkpoints
    Audit,
    /// The server's for etcd and for what it tells the other servers
    Federation,
    /// The second tunnel's: the server's, or a host's
    Layer,
    /// A host's keys for the trusted path and IKE, in the bundle that was made here
    Host,
    /// The site's authority's: both are believed until `--finish`
    Authority,
    /// The authority of etcd and of the servers as its clients: as `authority`
    FederationAuthority,
    /// The second tunnel's authority: as `authority`
    LayerAuthority,
    /// The PPK that a host shares with the server: both are taken until `--finish`
    Ppk,
    /// The key of a one-way channel from or to another host: both are taken until `--finish`
    Channel,
}

/// An authority, as far as they differ.
struct Authority {
    /// Its directory, below the state's.
    directory: &'static str,
    /// Its files there.
    name: &'static str,
    /// As the audit log calls it.
    object: &'static str,
}

impl Authority {
    fn of(what: What) -> Option<Self> {
        let (directory, name, object) = match what {
            What::Authority => ("authority", "ca", "authority"),
            What::FederationAuthority => ("authority", "federation-ca", "federation's authority"),
            What::LayerAuthority => ("layer/authority", "ca", "second tunnel's authority"),
            _ => return None,
        };
        Some(Self { directory, name, object })
    }

    fn file(&self, end: &str) -> String {
        format!("{}.{end}", self.name)
    }

    fn former(&self, end: &str) -> String {
        format!("former-{}.{end}", self.name)
    }

    /// Below the state directory.
    fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.directory)
    }
}

impl What {
    /// Whether it is an authority.
    pub fn is_authority(self) -> bool {
        Authority::of(self).is_some()
    }

    /// Whether the site's authority has to sign for the new one.
    pub fn needs_authority(self) -> bool {
        !matches!(self, Self::Audit | Self::Layer | Self::LayerAuthority | Self::Ppk | Self::Channel)
    }
}

/// What was done.
#[derive(Debug)]
pub struct Rotated {
    /// The files that were written.
    pub written: Written,
    /// The private files whose octets were overwritten.
    pub destroyed: Vec<PathBuf>,
    /// What the audit log will say.
    pub said: String,
}

/// One rotation that has not taken its place yet.
struct Rotation {
    swap: Swap,
    files: Files,
    said: Vec<String>,
}

impl Rotation {
    /// Writes a private key in the place of the one of this name.
    fn key(&mut self, name: &str, new: &KeyPair, old: &str) -> Result<(), EnrolError> {
        self.files.private(name, new)?;
        self.said.push(format!("{old} to {}", fingerprint(new)));
        Ok(())
    }
}

/// What a key is known by: the digest of its public half, as `openssl pkey -pubout -outform DER | sha256sum` prints it.
fn fingerprint(key: &impl PublicKeyData) -> String {
    audit::hex(digest(&SHA256, &key.subject_public_key_info()).as_ref())
}

impl Enroller<'_> {
    /// Ends the rotation of an authority: the one before it is believed no more, and its key is destroyed.
    ///
    /// # Errors
    /// None was begun, or it has still signed for somebody; or something cannot be written.
    pub fn finish_authority(&self, facts: &Facts, what: What) -> Result<Rotated, EnrolError> {
        let _alone = self.alone()?;
        let authority = Authority::of(what).ok_or(EnrolError::NotBegun)?;
        if !self.state.join(authority.path(&authority.former("pem"))).exists() {
            return Err(EnrolError::NotBegun);
        }
        let current = self.read(&authority.path(&authority.file("pem")))?;
        let needed = self.signed_by_another(facts, what, &current)?;
        if !needed.is_empty() {
            return Err(EnrolError::StillNeeded(needed));
        }
        let (mut rotation, issuer) = self.begin_authority(&authority)?;
        for name in ["key", "uri", "pem"].map(|end| authority.former(end)) {
            let path = rotation.swap.path().join(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(EnrolError::File(path, error));
                }
                _ => {}
            }
        }
        let own = pki::certificates(&current)?.into_iter().next().unwrap_or_default();
        rotation.files.public(&authority.file("pem"), &own)?;
        let list = authority.path(&authority.file("crl"));
        if self.state.join(&list).exists() {
            let before = self.read(&list)?;
            let list = pki::revocation_list(Some(&before), &[], LIST_DAYS, &issuer)?;
            rotation.files.public(&authority.file("crl"), &list)?;
        }
        let of_former = self.destroy_in_token(&authority)?;
        let reason =
            format!("rotated: {} alone is believed from here on{of_former}", fingerprint(issuer.key()));
        let done = self.finish(authority.object, &reason, rotation)?;
        self.distribute(facts, what, done)
    }

    /// Has the token destroy the key of the authority that is believed no more, if it is in one; what is to be said of that. A token that
    /// is gone for good keeps nobody from ending a rotation.
    fn destroy_in_token(&self, of: &Authority) -> Result<String, EnrolError> {
        let former = format!("former-{}", of.name);
        let Some(uri) = self.uri(of.directory, &former)? else { return Ok(String::new()) };
        let public = pki::public_key(&self.read(&of.path(&of.former("pem")))?)?;
        Ok(match TokenKey::destroy(self.tokens, &uri, &public) {
            Ok(()) => format!("; the key of the one before it was destroyed in its token ({})", uri.name()),
            Err(why) => {
                format!(
                    "; the key of the one before it is not known to be destroyed, remove it from its token: {why}"
                )
            }
        })
    }

    /// Makes a new key, has what vouches for it made anew, and destroys the old one.
    ///
    /// # Errors
    /// There is nothing to rotate, it is encrypted with another passphrase, or something cannot be written; the old key stays in use then.
    pub fn rotate(&self, facts: &Facts, what: What, host: Option<&str>) -> Result<Rotated, EnrolError> {
        if let (What::Ppk, Some(name)) = (what, host) {
            return self.rotate_ppk(facts, name, None);
        }
        if let (What::Channel, Some(name)) = (what, host) {
            return self.rotate_channel(facts, name);
        }
        let _alone = self.alone()?;
        if let (Some(authority), None) = (Authority::of(what), host) {
            return match what {
                What::FederationAuthority if facts.etcd.is_none() => Err(EnrolError::NoFederation),
                What::LayerAuthority if facts.layer_port.is_none() => Err(EnrolError::NoLayer),
                _ => self.rotate_authority(facts, what, &authority),
            };
        }
        let (object, rotation) = match (what, host) {
            (What::Host, Some(name)) => (format!("keys of {name}"), self.rotate_host(facts, name)?),
            (What::Layer, Some(name)) => {
                let bundle = format!("hosts/{}/layer", facts.host(name)?.name);
                (format!("second tunnel's key of {name}"), self.rotate_layer(facts, &bundle, Some(name))?)
            }
            (What::Layer, None) => {
                ("second tunnel's key".to_owned(), self.rotate_layer(facts, facts.layer_end().0, None)?)
            }
            (
                What::Host
                | What::Ppk
                | What::Channel
                | What::Authority
                | What::FederationAuthority
                | What::LayerAuthority,
                None,
            )
            | (_, Some(_)) => return Err(EnrolError::WhoseKey),
            (What::TrustedPath, None) => ("trusted path's key".to_owned(), self.rotate_tls(facts)?),
            (What::Ike, None) => ("IKE's key".to_owned(), self.rotate_ike(facts)?),
            (What::Audit, None) => ("audit log's key".to_owned(), self.rotate_audit(facts)?),
            (What::Federation, None) => ("federation's key".to_owned(), self.rotate_federation(facts)?),
        };
        let reason = format!("rotated: from {}", rotation.said.join(", from "));
        self.finish(&object, &reason, rotation)
    }

    /// A new authority, beside which the one before it is believed until [`Enroller::finish_authority`]. Where that is so already, what
    /// others have of the two is written anew.
    fn rotate_authority(&self, facts: &Facts, what: What, of: &Authority) -> Result<Rotated, EnrolError> {
        if self.state.join(of.path(&of.former("pem"))).exists() {
            let said = format!("the {}: its rotation was begun before, and ends with --finish", of.object);
            return self.distribute(
                facts,
                what,
                Rotated { written: Vec::new(), destroyed: Vec::new(), said },
            );
        }
        let (mut rotation, old) = self.begin_authority(of)?;
        let key = self.next_key(facts, what, of, old.key())?;
        let before = self.read(&of.path(&of.file("pem")))?;
        let before = pki::certificates(&before)?.into_iter().next().unwrap_or_default();
        let certificate = match what {
            What::FederationAuthority => pki::next_authority("federation authority", &facts.site, &key)?,
            What::LayerAuthority => pki::next_authority("second-tunnel authority", &facts.site, &key)?,
            _ => pki::next_authority("authority", &facts.site, &key)?,
        };
        rotation.files.authority(&format!("former-{}", of.name), old.key())?;
        rotation.files.public(&of.former("pem"), &before)?;
        rotation.files.authority(of.name, &key)?;
        rotation.said.push(format!("{} to {}", fingerprint(old.key()), fingerprint(&key)));
        let pem = certificate.pem();
        rotation.files.public(&of.file("pem"), &format!("{pem}{before}"))?;
        let list = of.path(&of.file("crl"));
        if self.state.join(&list).exists() {
            let list = self.read(&list)?;
            let next = rcgen::Issuer::from_ca_cert_pem(&pem, key).map_err(pki::PkiError::from)?;
            let new = pki::revocation_list(Some(&list), &[], LIST_DAYS, &next)?;
            let former = pki::revocation_list(Some(&list), &[], LIST_DAYS, &old)?;
            rotation.files.public(&of.file("crl"), &(new + &former))?;
        }
        if what == What::LayerAuthority {
            super::layer::own_files(&rotation.files.written)?;
        }
        let reason =
            format!("rotated: from {}; both are believed until --finish", rotation.said.join(", from "));
        let done = self.finish(of.object, &reason, rotation)?;
        self.distribute(facts, what, done)
    }

    /// The key of the authority that follows one with this key.
    fn next_key(
        &self,
        facts: &Facts,
        what: What,
        of: &Authority,
        old: &AuthorityKey,
    ) -> Result<AuthorityKey, EnrolError> {
        if what == What::LayerAuthority {
            return match self.token {
                Some(_) => Err(TokenFault::SecondTunnel.into()),
                None => Ok(pki::layer_key()?.into()),
            };
        }
        // Another curve is another site's.
        if !pki::is_on(old, facts.keys) {
            return Err(EnrolError::OtherCurve(facts.keys));
        }
        let again = || TokenFault::InToken(self.state.join(of.path(&of.file("uri")))).into();
        // Never out of a token by the way.
        if self.token.is_none() && matches!(old, AuthorityKey::Token(_)) {
            return Err(again());
        }
        let key = self.authority_key(facts, self.token.as_ref())?;
        if key.der_bytes() == old.der_bytes() { Err(again()) } else { Ok(key) }
    }

    /// A rotation in an authority's directory, and the authority that is there. A key that is a file stays encrypted as it is.
    fn begin_authority(
        &self,
        of: &Authority,
    ) -> Result<(Rotation, super::authority::Authority<'static>), EnrolError> {
        let live = self.state.join(of.directory);
        let file = live.join(of.file("key"));
        let key = std::fs::read_to_string(&file).map(zeroize::Zeroizing::new);
        if key.is_err() && self.uri(of.directory, of.name)?.is_none() {
            return Err(EnrolError::NoKey(file));
        }
        let is_encrypted = key.is_ok_and(|text| text.starts_with("-----BEGIN ENCRYPTED"));
        let (_, issuer) = match of.directory {
            "authority" => self.issuer(of.name)?,
            _ => self.layer_issuer()?,
        };
        let swap = Swap::begin(&live).map_err(|error| EnrolError::File(live, error))?;
        let passphrase = self.authority_passphrase.clone().filter(|_| is_encrypted);
        let files = Files {
            directory: swap.path().to_owned(),
            force: true,
            passphrase: passphrase.map(|passphrase| (passphrase, self.rounds)),
            written: Vec::new(),
        };
        Ok((Rotation { swap, files, said: Vec::new() }, issuer))
    }

    fn read(&self, file: &str) -> Result<Vec<u8>, EnrolError> {
        let path = self.state.join(file);
        std::fs::read(&path).map_err(|error| EnrolError::File(path, error))
    }

    /// Gives the server, and whoever else believes this authority, whom to believe now.
    fn distribute(&self, facts: &Facts, what: What, mut done: Rotated) -> Result<Rotated, EnrolError> {
        let Some(of) = Authority::of(what) else { return Ok(done) };
        let authority = self.read(&of.path(&of.file("pem")))?;
        let hosts = facts.hosts.iter().map(|host| format!("hosts/{}", host.name));
        let places: Vec<String> = match what {
            What::FederationAuthority => {
                vec!["server/federation-authority.pem".to_owned(), "etcd/authority.pem".to_owned()]
            }
            What::LayerAuthority => [format!("{}/authority.pem", facts.layer_end().0)]
                .into_iter()
                .chain(hosts.map(|host| format!("{host}/layer/authority.pem")))
                .collect(),
            _ => ["server".to_owned()]
                .into_iter()
                .chain(hosts)
                .map(|place| format!("{place}/authority.pem"))
                .collect(),
        };
        let first = done.written.len();
        for path in places.iter().map(|place| self.state.join(place)).filter(|path| path.exists()) {
            files::write(&path, &authority, Mode::Public, true)
                .map_err(|error| EnrolError::File(path.clone(), error))?;
            done.written.push(path);
        }
        if what == What::LayerAuthority {
            super::layer::own_files(done.written.get(first..).unwrap_or_default())?;
        }
        Ok(done)
    }

    /// For whom the first of these authorities has not signed, of those that the site file has.
    fn signed_by_another(
        &self,
        facts: &Facts,
        what: What,
        authority: &[u8],
    ) -> Result<Vec<String>, EnrolError> {
        let those = |layered: bool| {
            let hosts = facts.hosts.iter().filter(move |host| host.layered || !layered);
            hosts.map(|host| (host.name.to_string(), format!("hosts/{}", host.name)))
        };
        let hosts = || those(false);
        let server = || ("the server".to_owned(), "server".to_owned());
        let certificates: Vec<(String, Vec<String>)> = match what {
            What::FederationAuthority => vec![
                ("the server".to_owned(), vec!["server/federation-chain.pem".to_owned()]),
                ("etcd".to_owned(), vec!["etcd/chain.pem".to_owned()]),
            ],
            What::LayerAuthority => {
                [("the server".to_owned(), vec![format!("{}/chain.pem", facts.layer_end().0)])]
                    .into_iter()
                    .chain(
                        those(true).map(|(name, bundle)| (name, vec![format!("{bundle}/layer/chain.pem")])),
                    )
                    .collect()
            }
            _ => [server()]
                .into_iter()
                .chain(hosts())
                .map(|(name, place)| {
                    (name, vec![format!("{place}/chain.pem"), format!("{place}/ike-chain.pem")])
                })
                .collect(),
        };
        let mut found = Vec::new();
        for (name, files) in certificates {
            for path in files {
                // A bundle that was moved to its host is not known to be good: it has to be made, or signed for, anew.
                if !self.state.join(&path).exists() || !pki::is_by(&self.read(&path)?, authority)? {
                    found.push(name.clone());
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Puts it in its place. A kill at any step leaves the old keys or the new ones, and a line for the audit log if any may be new.
    fn finish(&self, object: &str, reason: &str, rotation: Rotation) -> Result<Rotated, EnrolError> {
        let Rotation { swap, files, .. } = rotation;
        let said = format!("{object}\n{reason}\n");
        let directory = self.state.join("rotated");
        let fault = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| EnrolError::File(path, error)
        };
        files::directory(&directory).map_err(fault(&directory))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let ended = directory.join(format!("{now:024}"));
        let begun = ended.with_extension("begun");
        files::write(&begun, said.as_bytes(), Mode::Public, false).map_err(fault(&begun))?;
        let written = files.written.iter().map(|path| swap.finally(path)).collect();
        let live = swap.path().to_owned();
        let destroyed = match swap.commit() {
            Ok(destroyed) => destroyed,
            Err(error) => return Err(EnrolError::File(live, error)),
        };
        match std::fs::rename(&begun, &ended) {
            Ok(()) => {}
            // The server has told of it already, as begun.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                files::write(&ended, said.as_bytes(), Mode::Public, false).map_err(fault(&ended))?;
            }
            Err(error) => return Err(fault(&ended)(error)),
        }
        Ok(Rotated { written, destroyed, said: format!("{object} {reason}") })
    }

    /// A rotation in a directory of the state whose private key `name` is there and opens with the passphrase, if it has one; and what
    /// the key is known by.
    fn begin(&self, directory: &str, name: &str) -> Result<(Rotation, KeyPair), EnrolError> {
        let live = self.state.join(directory);
        let path = live.join(name);
        let text = std::fs::read_to_string(&path).map(zeroize::Zeroizing::new);
        let text = text.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => EnrolError::NoKey(path.clone()),
            _ => EnrolError::File(path.clone(), error),
        })?;
        // The others of the directory are encrypted as this one is, and what runs knows one passphrase.
        let is_encrypted = text.starts_with("-----BEGIN ENCRYPTED");
        let passphrase = self.passphrase.clone().filter(|_| is_encrypted);
        let old = pki::read_key(&text, passphrase.as_ref().map(|text| text.as_slice()))?;
        let swap = Swap::begin(&live).map_err(|error| EnrolError::File(live, error))?;
        let files = Files {
            directory: swap.path().to_owned(),
            force: true,
            passphrase: passphrase.map(|passphrase| (passphrase, self.rounds)),
            written: Vec::new(),
        };
        Ok((Rotation { swap, files, said: Vec::new() }, old))
    }

    fn rotate_tls(&self, facts: &Facts) -> Result<Rotation, EnrolError> {
        let (_, issuer) = self.issuer_of(facts, "ca")?;
        let (mut rotation, old) = self.begin("server", "tls.key")?;
        let key = pki::key(facts.keys)?;
        let certificate = pki::server(&facts.server, &facts.addresses, &key, &issuer)?;
        rotation.key("tls.key", &key, &fingerprint(&old))?;
        rotation.files.public("chain.pem", &certificate.pem())?;
        Ok(rotation)
    }

    fn rotate_ike(&self, facts: &Facts) -> Result<Rotation, EnrolError> {
        let (_, issuer) = self.issuer_of(facts, "ca")?;
        let (mut rotation, old) = self.begin("server", "ike.key")?;
        let key = pki::key(facts.keys)?;
        let certificate = pki::ike_server(&facts.server, &facts.addresses, &key, &issuer)?;
        rotation.key("ike.key", &key, &fingerprint(&old))?;
        rotation.files.public("ike-chain.pem", &certificate.pem())?;
        Ok(rotation)
    }

    /// Those before it stay in the file, oldest first, each vouching for the next: what they signed is still checked.
    fn rotate_audit(&self, facts: &Facts) -> Result<Rotation, EnrolError> {
        let (mut rotation, old) = self.begin("server", "audit.key")?;
        let key = pki::key(facts.keys)?;
        let path = self.state.join("server/audit.pub");
        let before = std::fs::read_to_string(&path).map_err(|error| EnrolError::File(path, error))?;
        let signature = pki::sign(&old, &audit::succession_message(&key.subject_public_key_info()))?;
        rotation.key("audit.key", &key, &fingerprint(&old))?;
        let vouched = pki::pem(audit::SUCCESSION, &signature)?;
        rotation.files.public("audit.pub", &format!("{before}{vouched}{}", key.public_key_pem()))?;
        Ok(rotation)
    }

    fn rotate_federation(&self, facts: &Facts) -> Result<Rotation, EnrolError> {
        if facts.etcd.is_none() {
            return Err(EnrolError::NoFederation);
        }
        let (_, issuer) = self.issuer_of(facts, "federation-ca")?;
        let (mut rotation, old) = self.begin("server", "federation.key")?;
        let key = pki::key(facts.keys)?;
        let certificate = pki::federation_client(&facts.server, &key, &issuer)?;
        let passport = pki::server_passport(&facts.server, &key, &certificate, &issuer)?;
        rotation.key("federation.key", &key, &fingerprint(&old))?;
        rotation.files.public("federation-chain.pem", &(certificate.pem() + &passport))?;
        Ok(rotation)
    }

    fn rotate_layer(
        &self,
        facts: &Facts,
        directory: &str,
        host: Option<&str>,
    ) -> Result<Rotation, EnrolError> {
        let (_, issuer) = self.layer_issuer()?;
        let (mut rotation, old) = self.begin(directory, "layer.key")?;
        let key = pki::layer_key()?;
        let certificate = match host {
            Some(name) => pki::layer_host(&facts.host(name)?.name, &key, &issuer)?,
            None => pki::server(&facts.server, facts.layer_end().1, &key, &issuer)?,
        };
        rotation.files.put("layer.key", pki::write_layer_key(&key)?.as_bytes(), Mode::Private)?;
        rotation.said.push(format!("{} to {}", fingerprint(&old), fingerprint(&key)));
        rotation.files.public("chain.pem", &certificate.pem())?;
        super::layer::own_files(&rotation.files.written)?;
        Ok(rotation)
    }

    fn rotate_host(&self, facts: &Facts, name: &str) -> Result<Rotation, EnrolError> {
        let host = facts.host(name)?;
        let bundle = format!("hosts/{}", host.name);
        let (mut rotation, old) = self.begin(&bundle, "device.key")?;
        let passphrase = rotation.files.passphrase.as_ref().map(|(text, _)| text.as_slice());
        let path = self.state.join(&bundle).join("ike.key");
        let text = std::fs::read_to_string(&path).map(zeroize::Zeroizing::new);
        let old_ike = pki::read_key(&text.map_err(|error| EnrolError::File(path, error))?, passphrase)?;
        let (key, ike) = (pki::key(facts.keys)?, pki::key(facts.keys)?);
        rotation.key("device.key", &key, &fingerprint(&old))?;
        rotation.key("ike.key", &ike, &fingerprint(&old_ike))?;
        rotation.files.all(self.host_certificates(facts, host, (&key, &ike))?)?;
        Ok(rotation)
    }
}

/// Directories in which a rotation was begun and never ended: the next one of the same directory destroys what is left.
pub fn unfinished(state: &Path) -> Vec<PathBuf> {
    let places = ["server", "layer", "gateway/layer", "authority", "channels"]
        .map(|name| state.join(format!("{name}{}", swap::STAGED)));
    let hosts = std::fs::read_dir(state.join("hosts")).into_iter().flatten().flatten();
    let of_hosts = hosts.flat_map(|entry| {
        let path = entry.path();
        [path.clone(), path.join(format!("layer{}", swap::STAGED))]
    });
    let is_staged = |path: &PathBuf| path.to_string_lossy().ends_with(swap::STAGED) && path.exists();
    places.into_iter().chain(of_hosts).filter(is_staged).collect()
}

mod channel;
mod ppk;
pub use channel::{current as channel_file, next as next_channel_key, text as channel_key};
pub use ppk::former as former_ppk;
#[cfg(test)]
mod tests;
