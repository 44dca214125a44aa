//! `levee enrol`: keys and certificates for a site's authority, server and hosts.
//!
//! ```text
//! STATE/authority/   ca.key ca.pem                       the site's authority: keep it off line where you can
//! STATE/server/      tls.key ike.key audit.key           the server's keys
//!                    ppk/NAME.key                        the PPK that it shares with a host (RFC 8784), where the site names one
//!                    chain.pem ike-chain.pem audit.pub authority.pem
//!                    auditor.pub                         whom the audit log's first key is sealed for
//! STATE/auditor/     auditor.key                         the auditor's private key, unless it was made elsewhere: move it away
//!                    federation.key federation-chain.pem federation-authority.pem
//!                                                        as etcd's client, where the site has several servers
//! STATE/authority/   federation-ca.key federation-ca.pem and the authority for that, which is not the site's
//! STATE/etcd/        tls.key chain.pem authority.pem     etcd's own
//! STATE/hosts/NAME/  device.key chain.pem ike.key ike-chain.pem authority.pem workstation.toml ppk.key
//!                                                        one host's bundle: copy it to that workstation
//! ```

pub(crate) mod files;
pub(crate) mod pki;

use files::Mode;
use levee_policy::site::{Curve, Suites};
use levee_policy::{DomainName, HostName, PpkId, SiteName};
use pki::PkiError;
pub use pki::ROUNDS;
use rcgen::{Issuer, KeyPair};
use serde::Serialize;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

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
    /// etcd's name and addresses, where the site has several servers.
    pub etcd: Option<(DomainName, Vec<IpAddr>)>,
}

/// What a site file says about a host.
pub struct HostFacts {
    /// Its name.
    pub name: HostName,
    /// A range of labels in the site's words.
    pub accreditation: String,
    /// The name of the PPK that it shares with the server, if any.
    pub ppk: Option<PpkId>,
}

impl Facts {
    fn host(&self, name: &str) -> Result<&HostFacts, EnrolError> {
        let found = self.hosts.iter().find(|host| host.name.as_str() == name);
        found.ok_or_else(|| EnrolError::UnknownHost(name.to_owned()))
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
    /// The site file gives the host no PPK.
    NoPpk(HostName),
    /// The site file says that keys are on this curve, and the authority's is not.
    OtherCurve(Curve),
    /// This file has no public key on P-384.
    NoAuditor(PathBuf),
    /// The site has one server.
    NoFederation,
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
            Self::NoPpk(host) => {
                write!(
                    f,
                    "the site file gives the host {host} no PPK; add, for instance, ppk = {{ id = \"{host}\" }}"
                )
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
            Self::NoFederation => f.write_str("the site file has no [federation]"),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Pki(error) => error.fmt(f),
            Self::Toml(error) => error.fmt(f),
        }
    }
}
impl std::error::Error for EnrolError {}

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
}

/// A passphrase, erased when dropped.
pub type Passphrase = zeroize::Zeroizing<Vec<u8>>;

/// The files that were written, in order.
pub type Written = Vec<PathBuf>;

impl Enroller<'_> {
    /// Makes the site's authority.
    pub fn authority(&self, facts: &Facts) -> Result<Written, EnrolError> {
        let directory = self.state.join("authority");
        let key = pki::key(facts.keys)?;
        let certificate = pki::authority(&facts.site, &key)?;
        let mut files = self.open(&directory)?;
        files.private("ca.key", &key)?;
        files.public("ca.pem", &certificate.pem())?;
        if facts.etcd.is_some() {
            let key = pki::key(facts.keys)?;
            let certificate = pki::federation_authority(&facts.site, &key)?;
            files.private("federation-ca.key", &key)?;
            files.public("federation-ca.pem", &certificate.pem())?;
        }
        Ok(files.written)
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

    /// Makes the server's keys and certificates.
    pub fn server(&self, facts: &Facts) -> Result<Written, EnrolError> {
        let (authority, issuer) = self.issuer_of(facts, "ca")?;
        let (tls, ike, audit) = (pki::key(facts.keys)?, pki::key(facts.keys)?, pki::key(facts.keys)?);
        let tls_certificate = pki::server(&facts.server, &facts.addresses, &tls, &issuer)?;
        let ike_certificate = pki::ike_server(&facts.server, &facts.addresses, &ike, &issuer)?;
        let mut files = self.open(&self.state.join("server"))?;
        files.private("tls.key", &tls)?;
        files.private("ike.key", &ike)?;
        files.private("audit.key", &audit)?;
        files.public("chain.pem", &tls_certificate.pem())?;
        files.public("ike-chain.pem", &ike_certificate.pem())?;
        files.public("audit.pub", &audit.public_key_pem())?;
        files.public("authority.pem", &authority)?;
        if facts.etcd.is_some() {
            let (authority, issuer) = self.issuer_of(facts, "federation-ca")?;
            let key = pki::key(facts.keys)?;
            files.private("federation.key", &key)?;
            files.public(
                "federation-chain.pem",
                &pki::federation_client(&facts.server, &key, &issuer)?.pem(),
            )?;
            files.public("federation-authority.pem", &authority)?;
        }
        Ok(files.written)
    }

    /// Makes one host's bundle.
    pub fn host(&self, facts: &Facts, name: &str) -> Result<Written, EnrolError> {
        let HostFacts { name: host, accreditation, ppk } = facts.host(name)?;
        let (authority, issuer) = self.issuer_of(facts, "ca")?;
        let (key, ike) = (pki::key(facts.keys)?, pki::key(facts.keys)?);
        let certificate = pki::host(host, accreditation, &key, &issuer)?;
        let ike_certificate = pki::ike_host(host, accreditation, &ike, &issuer)?;
        let workstation = toml::to_string(&Workstation {
            site: facts.site.as_str(),
            server_name: facts.server.as_str(),
            addresses: &facts.addresses,
            trusted_path_port: facts.port,
            ppk: ppk.as_ref().map(PpkId::as_str),
            suites: Some(facts.suites).filter(|suites| *suites != Suites::default()),
        })
        .map_err(EnrolError::Toml)?;
        let mut files = self.open(&self.state.join("hosts").join(host.as_str()))?;
        files.private("device.key", &key)?;
        files
            .public("chain.pem", &(certificate.pem() + &pki::passport(host, &key, &certificate, &issuer)?))?;
        files.private("ike.key", &ike)?;
        files.public("ike-chain.pem", &ike_certificate.pem())?;
        files.public("authority.pem", &authority)?;
        files.public("workstation.toml", &workstation)?;
        Ok(files.written)
    }

    /// Makes the PPK that a host shares with the server: the server's half, and the one of the host's bundle, which may be encrypted
    /// with a passphrase of its own.
    pub fn ppk(&self, facts: &Facts, name: &str, bundles: Option<Passphrase>) -> Result<Written, EnrolError> {
        let host = facts.host(name)?;
        if host.ppk.is_none() {
            return Err(EnrolError::NoPpk(host.name.clone()));
        }
        let ppk = pki::ppk()?;
        let mut ours = self.open(&self.state.join("server/ppk"))?;
        let theirs = Files {
            passphrase: bundles.map(|passphrase| (passphrase, self.rounds)),
            ..self.open(&self.state.join("hosts").join(host.name.as_str()))?
        };
        // Neither half is of use without the other.
        theirs.absent("ppk.key")?;
        ours.ppk(&format!("{}.key", host.name), &ppk)?;
        let mut theirs = Files { written: ours.written, ..theirs };
        theirs.ppk("ppk.key", &ppk)?;
        Ok(theirs.written)
    }

    /// Revokes the certificates of a host's bundle, or the server's, and those in these files: writes the authority's revocation list
    /// anew, with what it had, good for so many days.
    pub fn revoke(&self, names: &[String], files: &[PathBuf], days: i64) -> Result<Written, EnrolError> {
        let (_, issuer) = self.issuer("ca")?;
        let bundle = |name: &String| match name.as_str() {
            "server" => self.state.join("server"),
            host => self.state.join("hosts").join(host),
        };
        let of_bundles =
            names.iter().flat_map(|name| ["chain.pem", "ike-chain.pem"].map(|file| bundle(name).join(file)));
        let mut serials = Vec::new();
        for path in of_bundles.chain(files.iter().cloned()) {
            let read = std::fs::read(&path).map_err(|error| EnrolError::File(path.clone(), error))?;
            serials.push(pki::serial(&read)?);
        }
        let path = self.state.join("authority/ca.crl");
        let before = match std::fs::read(&path) {
            Ok(list) => Some(list),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(EnrolError::File(path, error)),
        };
        let list = pki::revocation_list(before.as_deref(), &serials, days, &issuer)?;
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

    /// The authority, the server, the auditor and every host of the site.
    pub fn all(&self, facts: &Facts) -> Result<Written, EnrolError> {
        let mut written = self.authority(facts)?;
        if facts.etcd.is_some() {
            written.extend(self.etcd(facts)?);
        }
        written.extend(self.server(facts)?);
        written.extend(self.auditor_once()?);
        for host in &facts.hosts {
            written.extend(self.host(facts, host.name.as_str())?);
            if host.ppk.is_some() {
                written.extend(self.ppk(facts, host.name.as_str(), self.passphrase.clone())?);
            }
        }
        Ok(written)
    }

    /// An authority, if its key is of the kind that the site file says: else nobody would know which of the two counts.
    fn issuer_of(&self, facts: &Facts, name: &str) -> Result<(String, Issuer<'static, KeyPair>), EnrolError> {
        let (certificate, issuer) = self.issuer(name)?;
        if !pki::is_on(issuer.key(), facts.keys) {
            return Err(EnrolError::OtherCurve(facts.keys));
        }
        Ok((certificate, issuer))
    }

    fn issuer(&self, name: &str) -> Result<(String, Issuer<'static, KeyPair>), EnrolError> {
        let directory = self.state.join("authority");
        let read = |name: &str| {
            let path = directory.join(name);
            match std::fs::read_to_string(&path) {
                Ok(text) => Ok(zeroize::Zeroizing::new(text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Err(EnrolError::NoAuthority(directory.clone()))
                }
                Err(error) => Err(EnrolError::File(path, error)),
            }
        };
        let (certificate, key) = (read(&format!("{name}.pem"))?, read(&format!("{name}.key"))?);
        let passphrase = self.authority_passphrase.as_ref().map(|text| text.as_slice());
        let key = pki::read_key(&key, passphrase)?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, key).map_err(PkiError::from)?;
        Ok((certificate.to_string(), issuer))
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

    fn ppk(&mut self, name: &str, ppk: &[u8]) -> Result<(), EnrolError> {
        let passphrase = self.passphrase.as_ref().map(|(text, rounds)| (text.as_slice(), *rounds));
        let text = pki::write_ppk(ppk, passphrase)?;
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
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use x509_parser::oid_registry::{OID_NIST_EC_P384, OID_SIG_ECDSA_WITH_SHA384};
    use x509_parser::prelude::{FromDer, X509Certificate, parse_x509_pem};

    fn host(name: &str, accreditation: &str, ppk: Option<&str>) -> HostFacts {
        let ppk = ppk.map(|id| PpkId::new(id).unwrap());
        HostFacts { name: HostName::new(name).unwrap(), accreditation: accreditation.into(), ppk }
    }

    fn facts() -> Facts {
        Facts {
            site: SiteName::new("small").unwrap(),
            server: DomainName::new("server.small.example").unwrap(),
            addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            port: 4433,
            keys: Curve::P256,
            suites: Suites::Default,
            etcd: None,
            hosts: vec![
                host("ws1", "UNCLASSIFIED..SECRET/NATO", Some("ws1-2026")),
                host("ws2", "UNCLASSIFIED", None),
            ],
        }
    }

    fn enroller(state: &Path) -> Enroller<'_> {
        Enroller { state, force: false, passphrase: None, rounds: 1_000, authority_passphrase: None }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_whole_site_is_enrolled_and_every_certificate_is_the_authoritys() {
        let directory = tempfile::tempdir().unwrap();
        let enroller = enroller(directory.path());
        let written = enroller.all(&facts()).unwrap();
        assert_eq!(written.len(), 2 + 7 + 2 + 2 * 6 + 2);
        for path in &written {
            let private = path.extension().is_some_and(|extension| extension == "key");
            assert_eq!(mode(path), if private { 0o600 } else { 0o644 }, "{}", path.display());
        }
        let authority = std::fs::read(directory.path().join("authority/ca.pem")).unwrap();
        let (_, authority) = parse_x509_pem(&authority).unwrap();
        let authority = authority.parse_x509().unwrap();
        for path in
            written.iter().filter(|path| path.ends_with("chain.pem") || path.ends_with("ike-chain.pem"))
        {
            let (_, pem) = parse_x509_pem(&std::fs::read(path).unwrap()).unwrap();
            let certificate = pem.parse_x509().unwrap();
            certificate.verify_signature(Some(authority.public_key())).unwrap();
            assert!(!certificate.is_ca());
            assert!(certificate.validity().is_valid());
        }
    }

    #[test]
    fn a_bundle_has_a_passport_of_its_certificate_that_the_authority_has_signed() {
        use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
        let directory = tempfile::tempdir().unwrap();
        enroller(directory.path()).all(&facts()).unwrap();
        let read = |name: &str| std::fs::read(directory.path().join(name)).unwrap();
        let chain = read("hosts/ws1/chain.pem");
        let sealed = levee_ipc::device::Sealed::from_text(&chain).unwrap();
        let (_, authority) = parse_x509_pem(&read("authority/ca.pem")).unwrap();
        let authority = authority.parse_x509().unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &authority.public_key().subject_public_key.data)
            .verify(&sealed.passport.message().unwrap(), &sealed.signature)
            .unwrap();
        let (_, pem) = parse_x509_pem(&chain).unwrap();
        let certificate = pem.parse_x509().unwrap();
        assert_eq!(sealed.passport.device.as_str(), "ws1");
        assert_eq!(sealed.passport.serial, certificate.raw_serial());
        assert_eq!(sealed.passport.point, &*certificate.public_key().subject_public_key.data);
        let fingerprint = ring::digest::digest(&ring::digest::SHA256, &pem.contents);
        assert_eq!(sealed.passport.fingerprint, fingerprint.as_ref());
        let until = u64::try_from(certificate.validity().not_after.timestamp()).unwrap();
        assert_eq!(sealed.passport.not_after, until);
    }

    #[test]
    fn the_auditors_key_is_made_once_or_elsewhere_and_never_replaced_by_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let mut enroller = enroller(directory.path());
        enroller.all(&facts()).unwrap();
        let at = |name: &str| directory.path().join(name);
        let (key, public) = (at("auditor/auditor.key"), at("server/auditor.pub"));
        let pair = pki::read_key(&std::fs::read_to_string(&key).unwrap(), None).unwrap();
        assert_eq!(pair.public_key_pem(), std::fs::read_to_string(&public).unwrap());
        assert_eq!(mode(&key), 0o600);
        std::fs::remove_file(&key).unwrap();
        enroller.force = true;
        enroller.all(&facts()).unwrap();
        assert!(!key.exists() && std::fs::read_to_string(&public).unwrap() == pair.public_key_pem());
        // One that was made elsewhere.
        let theirs = pki::key(Curve::P384).unwrap().public_key_pem();
        std::fs::write(at("theirs.pub"), &theirs).unwrap();
        enroller.force = false;
        assert!(matches!(enroller.auditor(Some(&at("theirs.pub"))), Err(EnrolError::Exists(_))));
        enroller.force = true;
        assert_eq!(enroller.auditor(Some(&at("theirs.pub"))).unwrap(), std::slice::from_ref(&public));
        assert!(!key.exists() && std::fs::read_to_string(&public).unwrap() == theirs);
        let other = pki::key(Curve::P256).unwrap().public_key_pem();
        std::fs::write(at("theirs.pub"), other).unwrap();
        assert!(matches!(enroller.auditor(Some(&at("theirs.pub"))), Err(EnrolError::NoAuditor(_))));
    }

    #[test]
    fn every_key_and_signature_is_of_the_curve_that_the_site_file_says() {
        let directory = tempfile::tempdir().unwrap();
        let mut enroller = enroller(directory.path());
        let on = |keys| Facts { keys, ..facts() };
        enroller.all(&on(Curve::P256)).unwrap();
        assert!(matches!(enroller.server(&on(Curve::P384)), Err(EnrolError::OtherCurve(Curve::P384))));
        assert!(matches!(enroller.host(&on(Curve::P384), "ws1"), Err(EnrolError::OtherCurve(Curve::P384))));
        enroller.force = true;
        let written = enroller.all(&on(Curve::P384)).unwrap();
        assert!(matches!(enroller.server(&on(Curve::P256)), Err(EnrolError::OtherCurve(Curve::P256))));
        let (mut certificates, mut keys) = (0, 0);
        for path in written {
            let text = std::fs::read_to_string(&path).unwrap();
            if path.extension().is_some_and(|extension| extension == "pem") {
                let (_, pem) = parse_x509_pem(text.as_bytes()).unwrap();
                let certificate = pem.parse_x509().unwrap();
                let key = &certificate.public_key().algorithm;
                assert_eq!(key.parameters.as_ref().unwrap().as_oid().unwrap(), OID_NIST_EC_P384);
                assert_eq!(certificate.signature_algorithm.algorithm, OID_SIG_ECDSA_WITH_SHA384);
                certificates += 1;
            } else if text.starts_with("-----BEGIN PRIVATE KEY-----") {
                assert!(pki::is_on(&pki::read_key(&text, None).unwrap(), Curve::P384), "{}", path.display());
                keys += 1;
            }
        }
        assert_eq!((certificates, keys), (1 + 3 + 2 * 3, 1 + 3 + 2 * 2), "the auditor's is left as it is");
    }

    #[test]
    fn a_hosts_certificate_carries_its_accreditation_in_an_extension_that_is_not_critical() {
        let directory = tempfile::tempdir().unwrap();
        enroller(directory.path()).all(&facts()).unwrap();
        for name in ["chain.pem", "ike-chain.pem"] {
            let pem = std::fs::read(directory.path().join("hosts/ws1").join(name)).unwrap();
            let (_, pem) = parse_x509_pem(&pem).unwrap();
            let (_, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
            let dotted = pki::ACCREDITATION_OID.map(|arc| arc.to_string()).join(".");
            let extension = certificate.extensions().iter().find(|e| e.oid.to_id_string() == dotted).unwrap();
            assert!(!extension.critical);
            let text = b"UNCLASSIFIED..SECRET/NATO";
            assert_eq!(extension.value[..2], [0x0c, u8::try_from(text.len()).unwrap()]);
            assert_eq!(&extension.value[2..], text);
        }
    }

    #[test]
    fn a_certificate_is_good_for_the_trusted_path_or_for_ike_and_not_for_both() {
        let directory = tempfile::tempdir().unwrap();
        enroller(directory.path()).all(&facts()).unwrap();
        for (name, ike, server, client) in [
            ("server/chain.pem", false, true, false),
            ("server/ike-chain.pem", true, false, false),
            ("hosts/ws1/chain.pem", false, false, true),
            ("hosts/ws1/ike-chain.pem", true, false, false),
        ] {
            let pem = std::fs::read(directory.path().join(name)).unwrap();
            let (_, pem) = parse_x509_pem(&pem).unwrap();
            let (_, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
            let usage = certificate.extended_key_usage().unwrap().unwrap().value;
            let others: Vec<String> = usage.other.iter().map(|oid| oid.to_id_string()).collect();
            assert_eq!(others == ["1.3.6.1.5.5.7.3.17"], ike, "{name}: {others:?}");
            assert_eq!((usage.server_auth, usage.client_auth, usage.any), (server, client, false), "{name}");
        }
    }

    #[test]
    fn several_servers_are_etcds_clients_by_an_authority_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let enroller = enroller(directory.path());
        assert!(matches!(enroller.etcd(&facts()), Err(EnrolError::NoFederation)));
        let etcd = Some((DomainName::new("etcd.small.example").unwrap(), vec!["192.0.2.9".parse().unwrap()]));
        enroller.all(&Facts { etcd, ..facts() }).unwrap();
        let read = |name: &str| {
            let (_, pem) = parse_x509_pem(&std::fs::read(directory.path().join(name)).unwrap()).unwrap();
            pem.contents
        };
        let (sites, own) = (read("authority/ca.pem"), read("authority/federation-ca.pem"));
        for (name, server) in [("etcd/chain.pem", true), ("server/federation-chain.pem", false)] {
            let der = read(name);
            let (_, certificate) = X509Certificate::from_der(&der).unwrap();
            let by = |authority: &[u8]| {
                let (_, authority) = X509Certificate::from_der(authority).unwrap();
                certificate.verify_signature(Some(authority.public_key())).is_ok()
            };
            assert!(by(&own) && !by(&sites), "{name}");
            let usage = certificate.extended_key_usage().unwrap().unwrap().value;
            assert_eq!((usage.server_auth, usage.client_auth), (server, true), "{name}");
        }
    }

    #[test]
    fn a_host_and_the_server_get_the_same_ppk_each_with_its_own_passphrase_and_a_new_one_only_by_force() {
        let directory = tempfile::tempdir().unwrap();
        let mut enroller = enroller(directory.path());
        enroller.all(&facts()).unwrap();
        let toml = |host: &str| {
            std::fs::read_to_string(directory.path().join("hosts").join(host).join("workstation.toml"))
                .unwrap()
        };
        assert!(toml("ws1").contains("ppk = \"ws1-2026\"") && !toml("ws2").contains("ppk"));
        let halves = ["server/ppk/ws1.key", "hosts/ws1/ppk.key"].map(|name| directory.path().join(name));
        let read = |passphrases: [Option<&[u8]>; 2]| {
            [0, 1].map(|half| {
                assert_eq!(mode(&halves[half]), 0o600);
                pki::read_ppk(&std::fs::read_to_string(&halves[half]).unwrap(), passphrases[half]).unwrap()
            })
        };
        let first = read([None, None]);
        assert_eq!((first[0].len(), &first[0]), (32, &first[1]));
        assert!(matches!(enroller.ppk(&facts(), "ws1", None), Err(EnrolError::Exists(_))));
        assert!(matches!(enroller.ppk(&facts(), "ws2", None), Err(EnrolError::NoPpk(_))));
        assert!(matches!(enroller.ppk(&facts(), "ws9", None), Err(EnrolError::UnknownHost(_))));
        assert_eq!(read([None, None]), first, "nothing of either half was replaced");
        let passphrase = |text: &str| Some(Passphrase::new(text.as_bytes().to_vec()));
        (enroller.force, enroller.passphrase) = (true, passphrase("of the server"));
        enroller.ppk(&facts(), "ws1", passphrase("of the host")).unwrap();
        let second = read([Some(b"of the server"), Some(b"of the host")]);
        assert_eq!(second[0], second[1]);
        assert_ne!(second[0], first[0]);
        for half in halves {
            let text = std::fs::read_to_string(half).unwrap();
            assert!(pki::read_ppk(&text, Some(b"of nobody")).is_err() && pki::read_ppk(&text, None).is_err());
        }
    }

    #[test]
    fn nothing_is_overwritten_without_force() {
        let directory = tempfile::tempdir().unwrap();
        let mut enroller = enroller(directory.path());
        enroller.all(&facts()).unwrap();
        let before = std::fs::read(directory.path().join("authority/ca.key")).unwrap();
        assert!(matches!(enroller.authority(&facts()), Err(EnrolError::Exists(_))));
        assert!(matches!(enroller.host(&facts(), "ws1"), Err(EnrolError::Exists(_))));
        assert_eq!(std::fs::read(directory.path().join("authority/ca.key")).unwrap(), before);
        enroller.force = true;
        enroller.authority(&facts()).unwrap();
        assert_ne!(std::fs::read(directory.path().join("authority/ca.key")).unwrap(), before);
    }

    #[test]
    fn a_host_that_the_site_does_not_know_and_a_missing_authority_are_errors() {
        let directory = tempfile::tempdir().unwrap();
        let enroller = enroller(directory.path());
        assert!(matches!(enroller.host(&facts(), "ws1"), Err(EnrolError::NoAuthority(_))));
        enroller.authority(&facts()).unwrap();
        assert!(matches!(enroller.host(&facts(), "ws9"), Err(EnrolError::UnknownHost(_))));
    }

    #[test]
    fn with_a_passphrase_every_private_key_is_encrypted_and_of_no_use_without_it() {
        let directory = tempfile::tempdir().unwrap();
        let passphrase = |text: &str| Some(Passphrase::new(text.as_bytes().to_vec()));
        let mut enroller = enroller(directory.path());
        enroller.passphrase = passphrase("of the authority");
        let mut written = enroller.authority(&facts()).unwrap();
        enroller.passphrase = passphrase("of the server");
        assert!(matches!(enroller.server(&facts()), Err(EnrolError::Pki(_))), "the authority's is not given");
        enroller.authority_passphrase = passphrase("of the server");
        assert!(matches!(enroller.server(&facts()), Err(EnrolError::Pki(_))), "another one");
        enroller.authority_passphrase = passphrase("of the authority");
        written.extend(enroller.server(&facts()).unwrap());
        for path in written.iter().filter(|path| path.extension().is_some_and(|extension| extension == "key"))
        {
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----"), "{}", path.display());
            let right = if path.ends_with("ca.key") { "of the authority" } else { "of the server" };
            assert!(pki::read_key(&text, Some(right.as_bytes())).is_ok());
            assert!(pki::read_key(&text, Some(b"of nobody")).is_err());
            assert!(pki::read_key(&text, None).is_err());
        }
        assert_eq!(written.len(), 2 + 7);
    }

    #[test]
    fn revoked_certificates_are_on_the_authoritys_list_and_stay_there() {
        let directory = tempfile::tempdir().unwrap();
        let mut enroller = enroller(directory.path());
        enroller.all(&facts()).unwrap();
        let read = |path: &Path| {
            let (_, pem) = parse_x509_pem(&std::fs::read(path).unwrap()).unwrap();
            pem.contents
        };
        let serial = |path: PathBuf| {
            let der = read(&path);
            X509Certificate::from_der(&der).unwrap().1.raw_serial().to_vec()
        };
        let bundle = directory.path().join("hosts/ws1");
        let first: Vec<_> = ["chain.pem", "ike-chain.pem"].map(|file| serial(bundle.join(file))).into();
        enroller.revoke(&["ws1".into()], &[], 30).unwrap();
        // Enrolled anew it is believed again; what was revoked stays so when others are.
        enroller.force = true;
        enroller.host(&facts(), "ws1").unwrap();
        let file = directory.path().join("hosts/ws2/ike-chain.pem");
        enroller.revoke(&[], std::slice::from_ref(&file), 30).unwrap();
        let der = read(&directory.path().join("authority/ca.crl"));
        let (_, list) = x509_parser::revocation_list::CertificateRevocationList::from_der(&der).unwrap();
        let authority = read(&directory.path().join("authority/ca.pem"));
        let (_, authority) = X509Certificate::from_der(&authority).unwrap();
        list.verify_signature(authority.public_key()).unwrap();
        assert_eq!(list.crl_number().and_then(|number| number.to_u64_digits().first().copied()), Some(2));
        let mut listed: Vec<_> = list.iter_revoked_certificates().map(|e| e.raw_serial().to_vec()).collect();
        let mut expected = [first, vec![serial(file)]].concat();
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected);
        assert!(!listed.contains(&serial(bundle.join("chain.pem"))));
        assert!(matches!(enroller.revoke(&["ws9".into()], &[], 30), Err(EnrolError::File(..))));
    }
}
