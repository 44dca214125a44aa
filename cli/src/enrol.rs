//! `levee enrol`: keys and certificates for a site's authority, server and hosts.
//!
//! ```text
//! STATE/authority/   ca.key ca.pem                       the site's authority: keep it off line where you can
//!                    ca.uri                              in the place of ca.key: which key of which token it is (RFC 7512)
//! STATE/server/      tls.key ike.key audit.key           the server's keys
//!                    ppk/NAME.key                        the PPK that it shares with a host (RFC 8784), where the site names one
//!                    ppk/former/NAME.key                 the one before it, while its rotation has not ended
//!                    chain.pem ike-chain.pem audit.pub authority.pem
//!                    auditor.pub                         whom the audit log's first key is sealed for
//! STATE/auditor/     auditor.key                         the auditor's private key, unless it was made elsewhere: move it away
//!                    federation.key federation-chain.pem federation-authority.pem
//!                                                        as etcd's client, where the site has several servers
//! STATE/authority/   federation-ca.key federation-ca.pem and the authority for that, which is not the site's
//! STATE/etcd/        tls.key chain.pem authority.pem     etcd's own
//! STATE/layer/       authority/ca.key authority/ca.pem   of the second tunnel, where the site has two layers: another authority and
//!                    layer.key chain.pem authority.pem   another kind of key, in a store of another uid; hosts/NAME/layer is the same
//! STATE/gateway/     gateway.toml layer/                 where the site has a gateway, its bundle, with that end of the second tunnel: copy
//!                                                        it to that host
//! STATE/channels/    NAME.key                            of a one-way channel from or to another host, the same at both
//!                    next/NAME.key                       the one that follows it, while its rotation has not ended
//! STATE/hosts/NAME/  device.key chain.pem ike.key ike-chain.pem authority.pem workstation.toml ppk.key
//!                                                        one host's bundle: copy it to that workstation
//! ```

mod authority;
mod enroller;
mod error;
mod facts;
pub(crate) mod files;
mod layer;
pub(crate) mod parts;
pub(crate) mod pki;
mod request;
pub(crate) mod rotate;
mod swap;
mod token;

use crate::typed::Passphrase;
use authority::Authority;
pub use authority::{Whereabouts, whereabouts};
pub use enroller::{Enroller, Written};
use enroller::{Files, Texts};
use error::TokenFault;
pub use error::{ChannelFault, EnrolError};
pub use facts::{ChannelFacts, Facts, GatewayFacts, HostFacts};
use files::Mode;
use levee_policy::HostName;
use levee_policy::site::Curve;
use levee_sys::lock::Lock;
use parts::{NotWhole, Part};
pub use pki::ROUNDS;
use rcgen::{KeyPair, PublicKeyData};
pub use request::{Whose, request};
pub use rotate::{Rotated, What};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use token::{Tokens, Uri};

/// Below the state directory: whom the authority believes no more.
const REVOCATIONS: &str = "authority/ca.crl";
/// Whom of the site's servers their authority believes no more.
const FEDERATION_REVOCATIONS: &str = "authority/federation-ca.crl";

/// How long a command waits for another one that changes the same keys: one list or bundle is written within a fraction of that.
const OTHERS: Duration = Duration::from_secs(5);

impl Enroller<'_> {
    /// That nobody else changes what is here meanwhile: of two who add to one list at once, one would write it without what the other
    /// adds. Nothing where there is no state yet: who begins one replaces nothing.
    ///
    /// # Errors
    /// Another command has not ended within [`OTHERS`].
    pub fn alone(&self) -> Result<Option<Lock>, EnrolError> {
        let fault = |error| EnrolError::File(self.state.to_owned(), error);
        match Lock::within(self.state, OTHERS) {
            Ok(Some(lock)) => Ok(Some(lock)),
            Ok(None) => Err(fault(io::Error::other("another `levee enrol` works there"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fault(error)),
        }
    }

    /// Makes etcd's key and certificate. The key is not encrypted: etcd asks for no passphrase.
    pub fn etcd(&self, facts: &Facts) -> Result<Written, EnrolError> {
        let (name, addresses) = facts.etcd.as_ref().ok_or(EnrolError::NoFederation)?;
        let (authority, issuer) = self.issuer_of(facts, "federation-ca")?;
        let key = pki::key(facts.keys)?;
        let certificate = pki::etcd(name, addresses, &key, &issuer)?;
        let mut files = Files { passphrase: None, ..self.open(&self.state.join("etcd"))? };
        files.private("tls.key", &key)?;
        files.public("chain.pem", &certificate.pem())?;
        files.public("authority.pem", &authority)?;
        Ok(files.written)
    }

    /// Makes the server's keys and certificates. Nothing is written before the authority has signed. The key that signs the audit log stays
    /// if it is there: what it has signed is checked by it, and `levee enrol rotate` has another vouched for.
    pub fn server(&self, facts: &Facts) -> Result<Written, EnrolError> {
        let (tls, ike) = (pki::key(facts.keys)?, pki::key(facts.keys)?);
        let kept = self.audit_key(facts)?;
        let certificates = self.server_certificates(facts, (&tls, &ike))?;
        let mut files = self.open(&self.state.join("server"))?;
        files.private("tls.key", &tls)?;
        files.private("ike.key", &ike)?;
        if let Some(audit) = kept {
            // Encrypted from now on as the others are.
            files.private("audit.key", &audit)?;
        } else {
            let audit = pki::key(facts.keys)?;
            files.private("audit.key", &audit)?;
            files.public("audit.pub", &audit.public_key_pem())?;
        }
        files.all(certificates)?;
        let mut written = files.written;
        written.extend(self.federation_client(facts)?);
        written.extend(self.layer_server(facts)?);
        Ok(written)
    }

    /// The key that signs the audit log, where it is there, of use, and on the site's curve.
    fn audit_key(&self, facts: &Facts) -> Result<Option<KeyPair>, EnrolError> {
        let at = |name: &str| self.state.join("server").join(name);
        let (Ok(text), true) = (std::fs::read_to_string(at("audit.key")), at("audit.pub").exists()) else {
            return Ok(None);
        };
        match pki::read_key(&text, self.passphrase.as_deref().map(Vec::as_slice)) {
            Ok(key) => Ok(Some(key).filter(|key| pki::is_on(key, facts.keys))),
            // It may be of use to who knows it: nobody can say who signed the log without it.
            Err(error) if text.contains("ENCRYPTED") => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// What of the server's needs no private key of its; the authority's certificate last.
    fn server_certificates(
        &self,
        facts: &Facts,
        (tls, ike): (&impl PublicKeyData, &impl PublicKeyData),
    ) -> Result<Texts, EnrolError> {
        let (authority, issuer) = self.issuer_of(facts, "ca")?;
        let tls_certificate = pki::server(&facts.server, &facts.addresses, tls, &issuer)?;
        let ike_certificate = pki::ike_server(&facts.server, &facts.addresses, ike, &issuer)?;
        Ok(vec![
            ("chain.pem", tls_certificate.pem()),
            ("ike-chain.pem", ike_certificate.pem()),
            ("authority.pem", authority),
        ])
    }

    /// Makes one host's bundle. Nothing is written before the authority has signed.
    pub fn host(&self, facts: &Facts, name: &str) -> Result<Written, EnrolError> {
        let host = facts.host(name)?;
        let (key, ike) = (pki::key(facts.keys)?, pki::key(facts.keys)?);
        let certificates = self.host_certificates(facts, host, (&key, &ike))?;
        let directory = self.state.join("hosts").join(host.name.as_str());
        let mut files = self.open(&directory)?;
        // Who works at the workstation may read what is public, as `levee-tpe doctor` does for them; each private key is its owner's alone.
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755))
            .map_err(|error| EnrolError::File(directory, error))?;
        files.private("device.key", &key)?;
        files.private("ike.key", &ike)?;
        files.all(certificates)?;
        let mut written = files.written;
        written.extend(self.layer_host(facts, host)?);
        Ok(written)
    }

    fn workstation(&self, name: &HostName) -> PathBuf {
        self.state.join("hosts").join(name.as_str()).join("workstation.toml")
    }

    /// The part of a host's bundle that needs no private key of its; `workstation.toml` last.
    fn host_certificates(
        &self,
        facts: &Facts,
        host: &HostFacts,
        (key, ike): (&impl PublicKeyData, &impl PublicKeyData),
    ) -> Result<Texts, EnrolError> {
        let (authority, issuer) = self.issuer_of(facts, "ca")?;
        let HostFacts { name, accreditation, .. } = host;
        let certificate = pki::host(name, accreditation, key, &issuer)?;
        let ike_certificate = pki::ike_host(name, accreditation, ike, &issuer)?;
        let passport = pki::passport(name, key, &certificate, &issuer)?;
        Ok(vec![
            ("chain.pem", certificate.pem() + &passport),
            ("ike-chain.pem", ike_certificate.pem()),
            ("authority.pem", authority),
            ("workstation.toml", facts.workstation(host, &self.workstation(name))?),
        ])
    }

    /// Makes the PPK that a host shares with the server: the server's half, and the one of the host's bundle, which may be encrypted
    /// with a passphrase of its own.
    pub fn ppk(&self, facts: &Facts, name: &str, bundles: Option<Passphrase>) -> Result<Written, EnrolError> {
        let host = facts.host(name)?;
        let id = host.ppk.as_ref().ok_or_else(|| EnrolError::NoPpk(host.name.clone()))?;
        let ppk = pki::ppk()?;
        let mut ours = self.open(&self.state.join("server/ppk"))?;
        let theirs = Files {
            passphrase: bundles.map(|passphrase| (passphrase, self.rounds)),
            ..self.open(&self.state.join("hosts").join(host.name.as_str()))?
        };
        // Neither half is of use without the other.
        theirs.absent("ppk.key")?;
        ours.ppk(&format!("{}.key", host.name), id, &ppk)?;
        let mut theirs = Files { written: ours.written, ..theirs };
        theirs.ppk("ppk.key", id, &ppk)?;
        // With the two of a rotation that was begun, the one before them is over.
        let former = self.state.join(rotate::former_ppk(&host.name));
        if former.exists() {
            swap::destroy(&former).map_err(|error| EnrolError::File(former, error))?;
        }
        Ok(theirs.written)
    }

    /// Makes the key of a one-way channel from or to another host, where the site has one of this name: 64 hexadecimal digits.
    pub fn channel(&self, facts: &Facts, name: &str) -> Result<Written, EnrolError> {
        let channel = &facts.channel(name)?.name;
        let mut files = self.open(&self.state.join("channels"))?;
        let text = rotate::channel_key(&pki::ppk()?);
        files.put(&format!("{channel}.key"), text.as_bytes(), Mode::Private)?;
        // With it a rotation that was begun is over.
        let next = self.state.join(rotate::next_channel_key(channel));
        if next.exists() {
            swap::destroy(&next).map_err(|error| EnrolError::File(next, error))?;
        }
        Ok(files.written)
    }

    /// Revokes the certificates of a host's bundle, or the server's, and those in these files: writes the authority's revocation list
    /// anew, with what it had, good for so many days.
    pub fn revoke(&self, names: &[String], files: &[PathBuf], days: i64) -> Result<Written, EnrolError> {
        let mut issuers = vec![self.issuer("ca")?.1];
        // What the one before it signed is believed until its rotation ends.
        issuers.extend(self.former_issuer("former-ca")?);
        let bundle = |name: &String| match name.as_str() {
            "server" => self.state.join("server"),
            host => self.state.join("hosts").join(host),
        };
        if let Some(unknown) = names.iter().find(|name| !bundle(name).is_dir()) {
            return Err(EnrolError::UnknownHost(unknown.clone()));
        }
        let of_bundles =
            names.iter().flat_map(|name| ["chain.pem", "ike-chain.pem"].map(|file| bundle(name).join(file)));
        let of_all: Vec<PathBuf> = of_bundles.chain(files.iter().cloned()).collect();
        self.write_list(REVOCATIONS, &of_all, days, &issuers)
    }

    /// Revokes the passports of the site's servers in these files: writes the revocation list of their authority anew.
    pub fn revoke_servers(&self, files: &[PathBuf], days: i64) -> Result<Written, EnrolError> {
        let mut issuers = vec![self.issuer("federation-ca")?.1];
        issuers.extend(self.former_issuer("former-federation-ca")?);
        self.write_list(FEDERATION_REVOCATIONS, files, days, &issuers)
    }

    /// Writes a revocation list anew, with what it had and these certificates, as each of these authorities signs it.
    fn write_list(
        &self,
        list: &str,
        certificates: &[PathBuf],
        days: i64,
        issuers: &[Authority<'_>],
    ) -> Result<Written, EnrolError> {
        let mut serials = Vec::new();
        for path in certificates {
            let read = std::fs::read(path).map_err(|error| EnrolError::File(path.clone(), error))?;
            serials.push(pki::serial(&read)?);
        }
        let path = self.state.join(list);
        let before = match std::fs::read(&path) {
            Ok(list) => Some(list),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(EnrolError::File(path, error)),
        };
        let lists =
            issuers.iter().map(|issuer| pki::revocation_list(before.as_deref(), &serials, days, issuer));
        let list = lists.collect::<Result<String, _>>()?;
        files::write(&path, list.as_bytes(), Mode::Public, true)
            .map_err(|error| EnrolError::File(path.clone(), error))?;
        Ok(vec![path])
    }

    /// Names the auditor, for whom the first key of the server's audit log is sealed: by a public key that was made elsewhere, or by a
    /// new pair, whose private half is for the auditor to move away.
    pub fn auditor(&self, public: Option<&Path>) -> Result<Written, EnrolError> {
        let mut files = self.open(&self.state.join("server"))?;
        files.absent("auditor.pub")?;
        let Some(public) = public else {
            let mut theirs = self.open(&self.state.join("auditor"))?;
            theirs.absent("auditor.key")?;
            let key = pki::key(Curve::P384)?;
            theirs.private("auditor.key", &key)?;
            files.written = theirs.written;
            files.public("auditor.pub", &key.public_key_pem())?;
            return Ok(files.written);
        };
        let text = std::fs::read_to_string(public);
        let text = text.map_err(|error| EnrolError::File(public.to_owned(), error))?;
        if !pki::is_public_p384(&text) {
            return Err(EnrolError::NoAuditor(public.to_owned()));
        }
        files.public("auditor.pub", &text)?;
        Ok(files.written)
    }

    /// Whether a part is there; what shall be replaced does not count.
    ///
    /// # Errors
    /// Not all of it: nothing of it is replaced but by force.
    fn has(&self, part: &Part) -> Result<bool, EnrolError> {
        if self.force {
            return Ok(false);
        }
        let has = part.is_whole(self.state).map_err(EnrolError::NotWhole)?;
        match part.is_elsewhere(self.state) {
            Some(lost) if !has => Err(EnrolError::NotWhole(lost)),
            _ => Ok(has),
        }
    }

    /// That of each part all is there, or nothing: before anything is written.
    fn is_sound(&self, facts: &Facts) -> Result<(), EnrolError> {
        let layer = facts.layer_port.map(|_| facts.layer_end().0);
        let hosts = facts.hosts.iter().map(|host| (host.name.as_str(), host.layered));
        Part::all(facts.etcd.is_some(), layer, hosts).iter().try_for_each(|part| self.has(part).map(drop))?;
        facts.hosts.iter().filter(|host| host.ppk.is_some()).try_for_each(|host| self.has_ppk(host).map(drop))
    }

    /// Whether the PPK of a host is there: of its two halves, each is of no use without the other.
    fn has_ppk(&self, host: &HostFacts) -> Result<bool, EnrolError> {
        let name = &host.name;
        let halves = [format!("hosts/{name}/ppk.key"), format!("server/ppk/{name}.key")];
        let (there, missing): (Vec<_>, Vec<_>) =
            halves.iter().map(|half| self.state.join(half)).partition(|half| !self.force && half.exists());
        match there.first() {
            Some(there) if !missing.is_empty() => {
                let remedy = format!(
                    "put back what is missing, or make both anew, and copy the bundle: levee enrol ppk SITE {name} --force"
                );
                Err(EnrolError::NotWhole(NotWhole { missing, there: there.clone(), remedy }))
            }
            there => Ok(there.is_some()),
        }
    }

    /// The auditor, unless there is one: what was sealed for them before would be nobody's. Where only their private key is here, they are
    /// whom it says.
    fn auditor_once(&self) -> Result<Written, EnrolError> {
        if self.state.join("server/auditor.pub").exists() {
            return Ok(Vec::new());
        }
        let path = self.state.join("auditor/auditor.key");
        if self.force || !path.exists() {
            return self.auditor(None);
        }
        let text = std::fs::read_to_string(&path).map(zeroize::Zeroizing::new);
        let text = text.map_err(|error| EnrolError::File(path, error))?;
        let key = pki::read_key(&text, self.passphrase.as_ref().map(|text| text.as_slice()))?;
        let mut files = self.open(&self.state.join("server"))?;
        files.public("auditor.pub", &key.public_key_pem())?;
        Ok(files.written)
    }

    /// The authority, the server, the auditor and every host of the site: what of them is not there yet, or all anew by force. A part of
    /// which something is missing and something is there is an error: no private key is replaced.
    pub fn all(&self, facts: &Facts) -> Result<Written, EnrolError> {
        self.is_sound(facts)?;
        let has_authority = self.has(&Part::authority())?;
        if let Some(token) = self.token.as_ref().filter(|_| has_authority)
            && self.uri("authority", "ca")?.is_none_or(|uri| !uri.is_same(token))
        {
            return Err(TokenFault::NotThisToken(self.state.join("authority/ca.pem")).into());
        }
        let mut written = match has_authority {
            true => [self.federation_authority(facts)?, self.layer_authority(facts)?].concat(),
            false => self.authority(facts)?,
        };
        if facts.etcd.is_some() && !self.has(&Part::etcd())? {
            written.extend(self.etcd(facts)?);
        }
        written.extend(match self.has(&Part::server())? {
            true => [self.federation_client(facts)?, self.layer_server(facts)?].concat(),
            false => self.server(facts)?,
        });
        written.extend(self.auditor_once()?);
        for host in &facts.hosts {
            let name = host.name.as_str();
            if !self.has(&Part::host(name))? {
                written.extend(self.host(facts, name)?);
            } else {
                written.extend(self.layer_host(facts, host)?);
            }
            if host.ppk.is_some() && !self.has_ppk(host)? {
                written.extend(self.ppk(facts, name, self.passphrase.clone())?);
            }
        }
        Ok(written)
    }

    /// The server's key as etcd's client, of a site that has become one of several servers.
    fn federation_client(&self, facts: &Facts) -> Result<Written, EnrolError> {
        let mut files = self.open(&self.state.join("server"))?;
        if facts.etcd.is_some() && !self.has(&Part::federation_client())? {
            let (authority, issuer) = self.issuer_of(facts, "federation-ca")?;
            let key = pki::key(facts.keys)?;
            let certificate = pki::federation_client(&facts.server, &key, &issuer)?;
            let passport = pki::server_passport(&facts.server, &key, &certificate, &issuer)?;
            files.private("federation.key", &key)?;
            files.public("federation-chain.pem", &(certificate.pem() + &passport))?;
            files.public("federation-authority.pem", &authority)?;
        }
        Ok(files.written)
    }
}

#[cfg(test)]
mod tests;
