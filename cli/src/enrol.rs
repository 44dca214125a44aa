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
//! STATE/channels/    NAME.key                            of a one-way channel from or to another host, the same at both
//!                    next/NAME.key                       the one that follows it, while its rotation has not ended
//! STATE/hosts/NAME/  device.key chain.pem ike.key ike-chain.pem authority.pem workstation.toml ppk.key
//!                                                        one host's bundle: copy it to that workstation
//! ```

mod authority;
pub(crate) mod files;
mod layer;
pub(crate) mod pki;
mod request;
pub(crate) mod rotate;
mod swap;
mod token;

use authority::{Authority, TokenFault};
pub use authority::{Whereabouts, whereabouts};
use files::Mode;
use levee_policy::site::{Curve, Suites};
use levee_policy::{ChannelName, DomainName, HostName, PpkId, SiteName};
use levee_sys::lock::Lock;
use pki::PkiError;
pub use pki::ROUNDS;
use rcgen::{KeyPair, PublicKeyData};
pub use request::{Whose, request};
pub use rotate::{ChannelFault, Rotated, What};
use serde::Serialize;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use token::{Tokens, Uri};

/// Below the state directory: whom the authority believes no more.
const REVOCATIONS: &str = "authority/ca.crl";
/// Whom of the site's servers their authority believes no more.
const FEDERATION_REVOCATIONS: &str = "authority/federation-ca.crl";

/// What a site file says about the server and its hosts.
pub struct Facts {
    /// The site.
    pub site: SiteName,
    /// The server's name, as in its certificate.
    pub server: DomainName,
    /// The server's outer addresses.
    pub addresses: Vec<IpAddr>,
    /// The trusted path's TCP port.
    pub port: u16,
    /// The curve of every key.
    pub keys: Curve,
    /// What its protocols use.
    pub suites: Suites,
    /// Its hosts.
    pub hosts: Vec<HostFacts>,
    /// The UDP port of the second tunnel, where the site has two layers.
    pub layer_port: Option<u16>,
    /// The one-way channels from and to other hosts.
    pub channels: Vec<ChannelFacts>,
    /// etcd's name and addresses, where the site has several servers.
    pub etcd: Option<(DomainName, Vec<IpAddr>)>,
}

/// What a site file says about a one-way channel whose other end is on another host.
pub struct ChannelFacts {
    /// Its name.
    pub name: ChannelName,
    /// Whether this host sends. Else it receives.
    pub sends: bool,
}

/// What a site file says about a host.
pub struct HostFacts {
    /// Its name.
    pub name: HostName,
    /// A range of labels in the site's words.
    pub accreditation: String,
    /// The name of the PPK that it shares with the server, if any.
    pub ppk: Option<PpkId>,
    /// Whether its sessions travel within the second tunnel.
    pub layered: bool,
}

impl Facts {
    fn host(&self, name: &str) -> Result<&HostFacts, EnrolError> {
        let found = self.hosts.iter().find(|host| host.name.as_str() == name);
        found.ok_or_else(|| EnrolError::UnknownHost(name.to_owned()))
    }

    fn channel(&self, name: &str) -> Result<&ChannelFacts, EnrolError> {
        let found = self.channels.iter().find(|channel| channel.name.as_str() == name);
        found.ok_or_else(|| EnrolError::NoChannel(name.to_owned()))
    }

    /// The text of a host's `workstation.toml`.
    fn workstation(&self, host: &HostFacts) -> Result<String, EnrolError> {
        toml::to_string(&Workstation {
            site: self.site.as_str(),
            server_name: self.server.as_str(),
            addresses: &self.addresses,
            trusted_path_port: self.port,
            ppk: host.ppk.as_ref().map(PpkId::as_str),
            suites: Some(self.suites).filter(|suites| *suites != Suites::default()),
            layer_port: self.layer_port.filter(|_| host.layered),
        })
        .map_err(EnrolError::Toml)
    }
}

/// What a workstation needs to know of its server: `workstation.toml`.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Workstation<'a> {
    site: &'a str,
    server_name: &'a str,
    addresses: &'a [IpAddr],
    trusted_path_port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    ppk: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suites: Option<Suites>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer_port: Option<u16>,
}

/// Why nothing was enrolled.
#[derive(Debug)]
pub enum EnrolError {
    /// The file is there already.
    Exists(PathBuf),
    /// There is no authority to sign with.
    NoAuthority(PathBuf),
    /// The site file has no such host.
    UnknownHost(String),
    /// The site has no such channel from or to another host.
    NoChannel(String),
    /// The site file gives the host no PPK.
    NoPpk(HostName),
    /// It gives it one, which was not made yet.
    NoPpkYet(PathBuf, HostName),
    /// The site file says that keys are on this curve, and the authority's is not.
    OtherCurve(Curve),
    /// This file has no public key on P-384.
    NoAuditor(PathBuf),
    /// There is no private key here that could be rotated.
    NoKey(PathBuf),
    /// The authority that was rotated is still the one that vouches for these.
    StillNeeded(Vec<String>),
    /// No rotation was begun.
    NotBegun,
    /// The host has not been seen to use its new PPK.
    NotUsed(HostName, PpkId),
    /// The key of a one-way channel is not followed by another.
    Channel(ChannelFault),
    /// The audit log, which would say so, cannot be read.
    AuditLog(String),
    /// A host's name is missing, or one is too many.
    WhoseKey,
    /// The site has one server.
    NoFederation,
    /// The site has one tunnel.
    NoLayer,
    /// An authority's key and its token do not fit.
    Token(TokenFault),
    /// A request for certificates that is none, and why.
    Request(PathBuf, String),
    /// A file could not be read or written.
    File(PathBuf, io::Error),
    /// A key or certificate could not be made.
    Pki(PkiError),
    /// A text could not be written as TOML.
    Toml(toml::ser::Error),
}

impl fmt::Display for EnrolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(path) => {
                write!(
                    f,
                    "{} is there already; --force replaces it, and what it signed or named",
                    path.display()
                )
            }
            Self::NoAuthority(path) => {
                write!(f, "there is no authority at {}; make one: levee enrol authority", path.display())
            }
            Self::UnknownHost(name) => write!(f, "the site file has no host {name}"),
            Self::NoChannel(name) => {
                write!(f, "the site file has no channel `{name}` from or to another host: one with `wire`")
            }
            Self::NoPpk(host) => {
                write!(
                    f,
                    "the site file gives the host {host} no PPK; add, for instance, ppk = {{ id = \"{host}\" }}"
                )
            }
            Self::NoPpkYet(path, host) => {
                write!(f, "there is no {}; levee enrol ppk SITE {host} makes the first", path.display())
            }
            Self::OtherCurve(curve) => write!(
                f,
                "the site file says that keys are {curve}, and the authority's is not; make the whole site anew: \
                 levee enrol all --force"
            ),
            Self::NoAuditor(path) => write!(
                f,
                "{} has no public key on P-384 in PEM; the auditor makes one on a machine of theirs: levee audit key FILE",
                path.display()
            ),
            Self::Token(fault) => fault.fmt(f),
            Self::Request(path, why) => write!(f, "{}: {why}", path.display()),
            Self::NoKey(path) => write!(
                f,
                "there is no {} that could be rotated: whoever has the key makes another with `levee enrol request --force`, and \
                 `levee enrol sign --force` answers it",
                path.display()
            ),
            Self::StillNeeded(whose) => write!(
                f,
                "the authority before this one has signed for {} still: rotate their keys (levee enrol rotate SITE trusted-path, ike, \
                 host NAME; or federation, and levee enrol etcd SITE --force; or layer, layer NAME), copy the bundles, then --finish",
                whose.join(", ")
            ),
            Self::NotBegun => {
                f.write_str("no rotation of it was begun: the same without --finish begins one")
            }
            Self::NotUsed(host, id) => write!(
                f,
                "the audit log does not say that {host} has used its new PPK, {id}: copy the bundle's ppk.key to it, `levee reload` there, \
                 and have somebody sign on and open a session; or --force, and {host} gets no keys until it has the new one"
            ),
            Self::AuditLog(why) => write!(
                f,
                "whether the host has used its new PPK is not known ({why}); --force ends the old one all the same"
            ),
            Self::Channel(fault) => fault.fmt(f),
            Self::WhoseKey => f.write_str(
                "`host` and `ppk` need the host's name behind them and `channel` the channel's, `layer` may have one, and the others have none: \
                 levee enrol rotate SITE host NAME",
            ),
            Self::NoFederation => f.write_str("the site file has no [federation]"),
            Self::NoLayer => f.write_str("the site file has no second tunnel"),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Pki(error) => error.fmt(f),
            Self::Toml(error) => error.fmt(f),
        }
    }
}
impl std::error::Error for EnrolError {}

impl From<ChannelFault> for EnrolError {
    fn from(fault: ChannelFault) -> Self {
        Self::Channel(fault)
    }
}

impl From<PkiError> for EnrolError {
    fn from(error: PkiError) -> Self {
        Self::Pki(error)
    }
}

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

/// A passphrase, erased when dropped.
pub type Passphrase = zeroize::Zeroizing<Vec<u8>>;

/// The files that were written, in order.
pub type Written = Vec<PathBuf>;

/// Public files by name, in the order in which they are written.
type Texts = Vec<(&'static str, String)>;

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

    /// Makes the server's keys and certificates. Nothing is written before the authority has signed.
    pub fn server(&self, facts: &Facts) -> Result<Written, EnrolError> {
        let (tls, ike, audit) = (pki::key(facts.keys)?, pki::key(facts.keys)?, pki::key(facts.keys)?);
        let certificates = self.server_certificates(facts, (&tls, &ike))?;
        let mut files = self.open(&self.state.join("server"))?;
        files.private("tls.key", &tls)?;
        files.private("ike.key", &ike)?;
        files.private("audit.key", &audit)?;
        files.public("audit.pub", &audit.public_key_pem())?;
        files.all(certificates)?;
        let mut written = files.written;
        written.extend(self.federation_client(facts)?);
        written.extend(self.layer_server(facts)?);
        Ok(written)
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
        let mut files = self.open(&self.state.join("hosts").join(host.name.as_str()))?;
        files.private("device.key", &key)?;
        files.private("ike.key", &ike)?;
        files.all(certificates)?;
        let mut written = files.written;
        written.extend(self.layer_host(facts, host)?);
        Ok(written)
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
            ("workstation.toml", facts.workstation(host)?),
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

    /// The auditor, unless there is one: what was sealed for them before would be nobody's.
    fn auditor_once(&self) -> Result<Written, EnrolError> {
        match self.state.join("server/auditor.pub").exists() {
            true => Ok(Vec::new()),
            false => self.auditor(None),
        }
    }

    /// The authority, the server, the auditor and every host of the site: what of them is not there yet, or all anew by force.
    pub fn all(&self, facts: &Facts) -> Result<Written, EnrolError> {
        if let Some(token) = self.token.as_ref().filter(|_| self.is_there("authority/ca.pem"))
            && self.uri("authority", "ca")?.is_none_or(|uri| !uri.is_same(token))
        {
            return Err(TokenFault::NotThisToken(self.state.join("authority/ca.pem")).into());
        }
        let mut written = match self.is_there("authority/ca.pem") {
            true => [self.federation_authority(facts)?, self.layer_authority(facts)?].concat(),
            false => self.anew().authority(facts)?,
        };
        if facts.etcd.is_some() && !self.is_there("etcd/authority.pem") {
            written.extend(self.anew().etcd(facts)?);
        }
        written.extend(match self.is_there("server/authority.pem") {
            true => [self.federation_client(facts)?, self.layer_server(facts)?].concat(),
            false => self.anew().server(facts)?,
        });
        written.extend(self.auditor_once()?);
        for host in &facts.hosts {
            let name = host.name.as_str();
            if !self.is_there(&format!("hosts/{name}/workstation.toml")) {
                written.extend(self.anew().host(facts, name)?);
            } else {
                written.extend(self.layer_host(facts, host)?);
            }
            if host.ppk.is_some() && !self.is_there(&format!("hosts/{name}/ppk.key")) {
                written.extend(self.anew().ppk(facts, name, self.passphrase.clone())?);
            }
        }
        Ok(written)
    }

    /// Whether a part is whole, by the file that is written last; what shall be replaced does not count.
    fn is_there(&self, last: &str) -> bool {
        !self.force && self.state.join(last).exists()
    }

    /// The same, but a part that was begun and never finished is replaced: nobody has used it.
    fn anew(&self) -> Self {
        Self {
            state: self.state,
            force: true,
            passphrase: self.passphrase.clone(),
            rounds: self.rounds,
            authority_passphrase: self.authority_passphrase.clone(),
            token: self.token.clone(),
            tokens: self.tokens,
        }
    }

    /// The server's key as etcd's client, of a site that has become one of several servers.
    fn federation_client(&self, facts: &Facts) -> Result<Written, EnrolError> {
        let mut files = self.open(&self.state.join("server"))?;
        if facts.etcd.is_some() && !self.is_there("server/federation-authority.pem") {
            files.force = true;
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

    fn open(&self, directory: &Path) -> Result<Files, EnrolError> {
        files::directory(directory).map_err(|error| EnrolError::File(directory.to_owned(), error))?;
        let passphrase = self.passphrase.clone().map(|passphrase| (passphrase, self.rounds));
        Ok(Files { directory: directory.to_owned(), force: self.force, passphrase, written: Vec::new() })
    }
}

struct Files {
    directory: PathBuf,
    force: bool,
    passphrase: Option<(Passphrase, u32)>,
    written: Written,
}

impl Files {
    /// An error if this file would be replaced and may not be.
    fn absent(&self, name: &str) -> Result<(), EnrolError> {
        let path = self.directory.join(name);
        if self.force || !path.exists() { Ok(()) } else { Err(EnrolError::Exists(path)) }
    }

    fn ppk(&mut self, name: &str, id: &PpkId, ppk: &[u8]) -> Result<(), EnrolError> {
        let passphrase = self.passphrase.as_ref().map(|(text, rounds)| (text.as_slice(), *rounds));
        let text = pki::write_ppk(id, ppk, passphrase)?;
        self.put(name, text.as_bytes(), Mode::Private)
    }

    fn private(&mut self, name: &str, key: &KeyPair) -> Result<(), EnrolError> {
        let passphrase = self.passphrase.as_ref().map(|(text, rounds)| (text.as_slice(), *rounds));
        let text = pki::write_key(key, passphrase)?;
        self.put(name, text.as_bytes(), Mode::Private)
    }

    fn public(&mut self, name: &str, text: &str) -> Result<(), EnrolError> {
        self.put(name, text.as_bytes(), Mode::Public)
    }

    /// Public files, in this order.
    fn all(&mut self, texts: Texts) -> Result<(), EnrolError> {
        texts.into_iter().try_for_each(|(name, text)| self.public(name, &text))
    }

    fn put(&mut self, name: &str, content: &[u8], mode: Mode) -> Result<(), EnrolError> {
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

#[cfg(test)]
mod tests;
