//! Whether what `levee enrol` has made fits the site file: names, accreditations, curves, what certificates are signed with, how long they
//! are good, and what bundles say. Only public files are looked at.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use levee_policy::site::{Curve, Host, Suites};
use levee_policy::{HostName, Site};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Serialize;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::{OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_SIG_ECDSA_WITH_SHA384};
use x509_parser::pem::{Pem, parse_x509_pem};
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::enrol::parts::{NotWhole, Part};
use crate::enrol::pki::ACCREDITATION_OID;
use crate::enrol::{self, Whereabouts};
use crate::programs;

/// A file that does not fit.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Unfit {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Findings {
    /// What does not fit.
    pub unfit: Vec<Unfit>,
    /// What fits, and will not for long; what is not there yet.
    pub warnings: Vec<String>,
    /// Where the private key of the authority is, in words.
    pub authority: Option<String>,
    /// Which certificate ends first, and when.
    ends: Option<(OffsetDateTime, PathBuf)>,
    /// Of all these, what ends soon or has ended.
    ending: Vec<String>,
}

/// Days before their end from which certificates are warned of.
const NEAR: i64 = 60;

/// The same of revocation lists, which are good for thirty days unless somebody said otherwise.
const NEAR_LIST: i64 = 10;

/// Where `levee enrol all` leaves the auditor's private key, below the state directory.
const AUDITORS_KEY: &str = "auditor/auditor.key";

const ALL: &str = "make the whole site anew: levee enrol all SITE --force";
const SERVER: &str = "make the server's keys anew: levee enrol server SITE --force";
const TRUSTED_PATH: &str = "have another follow it: levee enrol rotate SITE trusted-path";
const IKE: &str = "have another follow it: levee enrol rotate SITE ike";

/// What there is beside: of several servers, and of a second tunnel.
const OTHERS: [(&str, &str); 6] = [
    ("authority/federation-ca.pem", "have another follow it: levee enrol rotate SITE federation-authority"),
    ("server/federation-chain.pem", "have another follow it: levee enrol rotate SITE federation"),
    ("etcd/chain.pem", "make etcd's anew: levee enrol etcd SITE --force"),
    ("layer/authority/ca.pem", "have another follow it: levee enrol rotate SITE layer-authority"),
    ("layer/chain.pem", "have another follow it: levee enrol rotate SITE layer"),
    (
        "gateway/layer/chain.pem",
        "have another follow it: levee enrol rotate SITE layer, and copy the bundle to the gateway",
    ),
];

/// Revocation lists, and what makes them anew.
const LISTS: [(&str, &str); 2] = [
    ("authority/ca.crl", "write it anew: levee enrol revoke SITE, then levee reload"),
    (
        "authority/federation-ca.crl",
        "write it anew with the passports in it: levee enrol revoke SITE --federation FILE, then levee reload",
    ),
];

/// What is asked of a file beside its being one.
enum Ask<'a> {
    /// A certificate, for nobody in particular.
    Certificate,
    /// A certificate with this name.
    Server(&'a str),
    /// A certificate with this host's accreditation.
    Host(&'a Host),
    /// Certificates that the site file says nothing of.
    Dated,
    /// A revocation list, of each authority that is believed.
    List,
    /// A public key.
    Key,
    /// This host's `workstation.toml`.
    Bundle(&'a Host),
}

/// Holds a state directory against the site. Where nothing has been enrolled nothing is wrong.
pub fn findings(site: &Site, state: &Path) -> Findings {
    let mut found = Findings::default();
    if !state.join("authority/ca.pem").exists() && !state.join("server/chain.pem").exists() {
        return found;
    }
    found.authority(state);
    let server = Ask::Server(site.server().name().as_str());
    found.look(site, &state.join("authority/ca.pem"), &Ask::Certificate, ALL);
    found.look(site, &state.join("server/chain.pem"), &server, TRUSTED_PATH);
    found.look(site, &state.join("server/ike-chain.pem"), &server, IKE);
    found.look(site, &state.join("server/audit.pub"), &Ask::Key, SERVER);
    for (file, remedy) in OTHERS {
        found.look(site, &state.join(file), &Ask::Dated, remedy);
    }
    for (file, remedy) in LISTS {
        found.look(site, &state.join(file), &Ask::List, remedy);
    }
    for host in site.hosts() {
        let name = host.name().as_str();
        let bundle = state.join("hosts").join(name);
        if !bundle.exists() {
            found.warnings.push(format!(
                "the host {name} has no bundle in {}: levee enrol all SITE adds it",
                state.display()
            ));
            continue;
        }
        let remedy = format!("make this host's bundle anew: levee enrol host SITE {name} --force");
        found.look(site, &bundle.join("chain.pem"), &Ask::Host(host), &remedy);
        found.look(site, &bundle.join("ike-chain.pem"), &Ask::Host(host), &remedy);
        found.look(site, &bundle.join("workstation.toml"), &Ask::Bundle(host), &remedy);
        let layer = format!("have another follow it: levee enrol rotate SITE layer {name}");
        found.look(site, &bundle.join("layer/chain.pem"), &Ask::Dated, &layer);
    }
    found.warnings.extend(of_nobody(site, state));
    found.warnings.extend(auditors_key(state));
    found.warnings.extend(crate::enrol::rotate::unfinished(state).iter().map(|path| {
        format!(
            "{}: a rotation was begun and never ended: `levee enrol rotate` again destroys what is left",
            path.display()
        )
    }));
    let begun = crate::enrol::rotate::FORMER.iter().filter(|(_, key)| state.join(key).exists());
    found.warnings.extend(begun.map(|(what, key)| {
        let since = age(&state.join(key)).map(|days| format!(", for {days}")).unwrap_or_default();
        let what = clap::ValueEnum::to_possible_value(what);
        let what = what.as_ref().map_or("authority", clap::builder::PossibleValue::get_name);
        format!(
            "the {what} before this one is believed still{since}: levee enrol rotate SITE {what} --finish"
        )
    }));
    found.warnings.extend(old_ppks(site, state));
    found.warnings.extend(site.hosts().filter_map(|host| {
        let (name, former) = (host.name(), state.join(crate::enrol::rotate::former_ppk(host.name())));
        let begun = age(&former)?;
        Some(format!(
            "the PPK of {name} before this one is taken still, for {begun}: levee enrol rotate SITE ppk {name} --finish"
        ))
    }));
    found.warnings.extend(channels(site, state));
    found.warnings.extend(without_seed(site, state));
    found
}

/// What of the parts that are made together is not there, or is not signed by the authority that is, or is revoked. Where nothing has been
/// enrolled nothing is missing.
pub fn whole(site: &Site, state: &Path) -> (Vec<Unfit>, Vec<String>) {
    let end = if site.gateway().is_some() { "gateway/layer" } else { "layer" };
    let layer = site.vault().has_second_tunnel().then_some(end);
    let hosts = site.hosts().map(|host| (host.name().as_str(), host.is_layered()));
    let parts = Part::all(site.federation().is_some(), layer, hosts);
    let lost = parts.iter().filter_map(|part| part.is_whole(state).err());
    let mut unfit: Vec<Unfit> = lost.map(unfit_of).collect();
    // A second server of a federation need not have their authority: its own it needs.
    unfit.extend(
        Part::authority()
            .is_whole(state)
            .is_ok()
            .then(|| Part::authority().is_elsewhere(state))
            .flatten()
            .map(unfit_of),
    );
    let auditor = state.join("server/auditor.pub");
    if state.join("server/chain.pem").exists() && !auditor.exists() {
        let what = "the auditor's public key is not there, and no server starts without it".to_owned();
        let remedy = "name the auditor: levee enrol auditor SITE".to_owned();
        unfit.push(Unfit { file: auditor, what, remedy });
    }
    let mut warnings = Vec::new();
    if let Some(keys) = Part::server().keys_elsewhere(state) {
        let keys: Vec<String> = keys.iter().map(|path| path.display().to_string()).collect();
        warnings.push(format!(
            "the server's private keys are not here ({}): no server starts here without them",
            keys.join(", ")
        ));
    }
    let believed = ["ca.pem", "former-ca.pem"].map(|name| std::fs::read(state.join("authority").join(name)));
    let believed: Vec<Vec<u8>> = believed.into_iter().filter_map(Result::ok).collect();
    let revoked =
        std::fs::read(state.join("authority/ca.crl")).map(|list| serials(&list)).unwrap_or_default();
    let whose = (site.hosts().map(|host| Part::host(host.name().as_str()))).chain([Part::server()]);
    for part in whose {
        for path in part.chains(state) {
            let Ok(pem) = std::fs::read(&path) else { continue };
            let remedy = part.remedy().to_owned();
            if !believed.is_empty() && !believed.iter().any(|authority| is_signed(&pem, authority)) {
                let what = "no authority that is here has signed it".to_owned();
                unfit.push(Unfit { file: path.clone(), what, remedy: remedy.clone() });
            }
            if crate::enrol::pki::serial(&pem).is_ok_and(|serial| revoked.contains(&serial)) {
                warnings.push(format!("{} is revoked; {remedy}", path.display()));
            }
        }
    }
    (unfit, warnings)
}

/// What is said where nothing has been enrolled in a state directory; `named`: it is not the usual one.
pub fn none_yet(site: &Path, state: &Path, named: bool) -> String {
    let (site, state) = (site.display(), state.display());
    let which = if named { format!(" --state {state}") } else { String::new() };
    format!("{state} has no keys: levee enrol all {site}{which} makes them")
}

/// Files that are not there.
fn unfit_of(lost: NotWhole) -> Unfit {
    let file = lost.missing.first().cloned().unwrap_or_default();
    Unfit { file, what: lost.to_string(), remedy: lost.remedy }
}

/// Whether the first certificate of a text is signed by the first of another. What cannot be read is told elsewhere.
fn is_signed(pem: &[u8], authority: &[u8]) -> bool {
    let (Ok((_, pem)), Ok((_, authority))) = (parse_x509_pem(pem), parse_x509_pem(authority)) else {
        return true;
    };
    let (Ok(certificate), Ok(authority)) = (pem.parse_x509(), authority.parse_x509()) else { return true };
    certificate.verify_signature(Some(authority.public_key())).is_ok()
}

/// Whether a certificate of a host's bundle is on the revocation list. What is not here, or cannot be read, is told elsewhere.
pub fn is_revoked(state: &Path, host: &HostName) -> bool {
    let list = std::fs::read(state.join("authority/ca.crl")).map(|list| serials(&list)).unwrap_or_default();
    Part::host(host.as_str()).chains(state).iter().any(|path| {
        let serial = std::fs::read(path).ok().and_then(|pem| crate::enrol::pki::serial(&pem).ok());
        serial.is_some_and(|serial| list.contains(&serial))
    })
}

/// Serial numbers on the revocation lists in a text.
fn serials(pem: &[u8]) -> Vec<Vec<u8>> {
    let all = blocks(pem, "X509 CRL", |der| {
        let (_, list) = CertificateRevocationList::from_der(der).ok()?;
        Some(list.iter_revoked_certificates().map(|one| one.raw_serial().to_vec()).collect::<Vec<_>>())
    });
    all.unwrap_or_default().concat()
}

/// Bundles of hosts that the site does not have, or has no more.
fn of_nobody<'a>(site: &'a Site, state: &'a Path) -> impl Iterator<Item = String> + 'a {
    let bundles = std::fs::read_dir(state.join("hosts")).into_iter().flatten().flatten();
    let names = bundles.filter_map(|bundle| bundle.file_name().into_string().ok());
    names.filter(|name| !site.hosts().any(|host| host.name().as_str() == name)).map(|name| {
        let bundle = state.join("hosts").join(&name);
        format!(
            "the site has no host {}, and {} has its keys: levee enrol revoke SITE says who is believed no more; then remove them",
            crate::output::shown(&name),
            bundle.display()
        )
    })
}

/// That the auditor's private key is where the server is. Where only root may look, nobody else is told.
pub fn auditors_key(state: &Path) -> Option<String> {
    let key = state.join(AUDITORS_KEY);
    key.exists().then(|| {
        format!(
            "{}: this is the auditor's alone: move it off this host, since who takes the host over can change the whole audit log with it",
            key.display()
        )
    })
}

/// What of a state directory ends soon or has ended: certificates and revocation lists.
pub fn ending(site: &Site, state: &Path) -> Vec<String> {
    findings(site, state).ending
}

/// How long ago a file was written, in days.
fn age(path: &Path) -> Option<String> {
    let written = std::fs::metadata(path).and_then(|meta| meta.modified()).ok()?;
    let days = i64::try_from(written.elapsed().ok()?.as_secs() / 86_400).ok()?;
    Some(crate::output::count(days, "day", "days"))
}

/// Of the keys of one-way channels, which have no certificate that ends either: a rotation that has not ended, and one that is old.
fn channels<'a>(site: &'a Site, state: &'a Path) -> impl Iterator<Item = String> + 'a {
    let with = site.channels().iter().filter(|channel| channel.wire().is_some());
    with.filter_map(move |channel| {
        let name = channel.name();
        let next = state.join(enrol::rotate::next_channel_key(name));
        if let Some(begun) = age(&next) {
            return Some(format!(
                "the key of the channel {name} before the next one is in use still, for {begun}: levee enrol rotate SITE channel {name} \
                 --finish, first where it begins and then where it ends"
            ));
        }
        let path = state.join(enrol::rotate::channel_file(name));
        let written = std::fs::metadata(&path).and_then(|meta| meta.modified()).ok()?;
        let is_old = written.elapsed().is_ok_and(|age| age.as_secs() / 86_400 >= PPK_DAYS);
        let age = age(&path)?;
        is_old.then(|| {
            format!("the key of the channel {name} is {age} old: levee enrol rotate SITE channel {name}")
        })
    })
}

/// Days after which a PPK, or a channel's key, should be followed by another: as the certificates'.
const PPK_DAYS: u64 = 730;

/// A PPK has no certificate that ends: its file says how old it is. Where only root may look, nobody else is told.
fn old_ppks<'a>(site: &'a Site, state: &'a Path) -> impl Iterator<Item = String> + 'a {
    site.hosts().filter(|host| host.ppk().is_some()).filter_map(move |host| {
        let path = state.join("server/ppk").join(format!("{}.key", host.name()));
        let written = std::fs::metadata(&path).and_then(|meta| meta.modified()).ok()?;
        let is_old = written.elapsed().is_ok_and(|age| age.as_secs() / 86_400 >= PPK_DAYS);
        let (name, age) = (host.name(), age(&path)?);
        is_old.then(|| format!("the PPK of {name} is {age} old: levee enrol rotate SITE ppk {name}"))
    })
}

/// Who is asked for codes and has nothing to make them of. Where only root may look, nobody else is told.
fn without_seed<'a>(site: &'a Site, state: &'a Path) -> impl Iterator<Item = String> + 'a {
    let seeds = state.join("sessiond/second-factors");
    let is_asked = |user: &&levee_policy::site::User| user.second_factor().is_some();
    site.users().filter(is_asked).filter_map(move |user| {
        let name = user.name();
        let looked = std::fs::symlink_metadata(seeds.join(name.as_str()));
        let missing = looked.is_err_and(|error| error.kind() == ErrorKind::NotFound);
        missing.then(|| {
            format!(
                "{name} is asked for a code and has no seed, so cannot sign on: levee user totp SITE {name}"
            )
        })
    })
}

impl Findings {
    /// Which certificate ends first, and when, in words.
    pub fn ends(&self, state: &Path) -> Option<String> {
        let (until, file) = self.ends.as_ref()?;
        let days = (*until - OffsetDateTime::now_utc()).whole_days();
        let (file, days) =
            (file.strip_prefix(state).unwrap_or(file), crate::output::count(days, "day", "days"));
        Some(format!("the first to end is {}, on {}, in {days}", file.display(), until.date()))
    }

    /// Where the authority's private key is, and whether what it takes to sign with it is there.
    fn authority(&mut self, state: &Path) {
        let found = match enrol::whereabouts(state) {
            Ok(found) => found,
            Err(why) => {
                let (file, remedy) =
                    (state.join("authority"), "put it right: levee enrol cannot sign with it".into());
                return self.unfit.push(Unfit { file, what: why.to_string(), remedy });
            }
        };
        self.authority = found.as_ref().map(|found| format!("its private key is {found}"));
        let Some(Whereabouts::Token(uri)) = found else { return };
        if let Err(why) = programs::alone(&uri.module, rustix::process::geteuid().as_raw()) {
            self.warnings.push(format!("the library of the authority's token cannot be used: {why}"));
        }
        let is_others = |path: &Path| std::fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o077 != 0);
        if let Some(pin) = uri.pin.as_ref().filter(|pin| is_others(pin)) {
            let what =
                "it has the PIN of the authority's token, and others than its owner may use it".to_owned();
            let remedy = format!("chmod 600 {}", pin.display());
            self.unfit.push(Unfit { file: pin.clone(), what, remedy });
        }
    }

    /// What is not there is no fault: a bundle may have been moved to its host.
    fn look(&mut self, site: &Site, file: &Path, ask: &Ask<'_>, remedy: &str) {
        let answer = match std::fs::read(file) {
            Ok(content) => match ask {
                Ask::Key => key(&content, site).map(|()| None),
                Ask::Bundle(host) => bundle(&content, site, host).map(|()| None),
                Ask::Dated => dated(&content).map(Some),
                Ask::List => list(&content).map(Some),
                _ => certificate(&content, site, ask).map(Some),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => Err(format!("it cannot be read: {error}")),
        };
        let is_list = matches!(ask, Ask::List);
        if let Ok(Some(until)) = &answer
            && let Err(over) = left(*until)
        {
            self.ending.push(format!("{}: {over}; {remedy}", file.display()));
        }
        match answer.and_then(|until| until.map(|until| left(until).map(|days| (until, days))).transpose()) {
            Ok(Some((until, days))) => {
                if days <= if is_list { NEAR_LIST } else { NEAR } {
                    let days = crate::output::count(days, "day more", "days more");
                    let told = format!("{} is good for {days}; {remedy}", file.display());
                    self.ending.push(told.clone());
                    self.warnings.push(told);
                }
                if !is_list && self.ends.as_ref().is_none_or(|(first, _)| until < *first) {
                    self.ends = Some((until, file.to_owned()));
                }
            }
            Ok(None) => {}
            // A server starts without: partitions run, and whoever has to put it right can.
            Err(what) if matches!(ask, Ask::Dated | Ask::List) => {
                self.warnings.push(format!("{}: {what}; {remedy}", file.display()));
            }
            Err(what) => self.unfit.push(Unfit { file: file.to_owned(), what, remedy: remedy.to_owned() }),
        }
    }
}

/// Days until then.
fn left(until: OffsetDateTime) -> Result<i64, String> {
    let left = until - OffsetDateTime::now_utc();
    if left.is_negative() {
        Err(format!("it was good until {}", until.date()))
    } else {
        Ok(left.whole_days())
    }
}

/// When the first of the certificates in a file ends.
fn dated(pem: &[u8]) -> Result<OffsetDateTime, String> {
    let ends = blocks(pem, "CERTIFICATE", |der| {
        Some(X509Certificate::from_der(der).ok()?.1.validity().not_after.to_datetime())
    })?;
    ends.into_iter().min().ok_or_else(|| "it has no certificate in it".to_owned())
}

/// Until when the first of the lists in a file is good.
fn list(pem: &[u8]) -> Result<OffsetDateTime, String> {
    let ends = blocks(pem, "X509 CRL", |der| {
        Some(CertificateRevocationList::from_der(der).ok()?.1.next_update()?.to_datetime())
    })?;
    ends.into_iter().min().ok_or_else(|| "it has no revocation list in it".to_owned())
}

/// What each block of this kind says; others, such as a passport, are left alone.
fn blocks<T>(pem: &[u8], kind: &str, one: impl Fn(&[u8]) -> Option<T>) -> Result<Vec<T>, String> {
    let broken = || format!("it has a {kind} in it that cannot be read");
    Pem::iter_from_buffer(pem)
        .map(|block| block.map_err(|_| broken()))
        .filter(|block| block.as_ref().map_or(true, |block| block.label == kind))
        .map(|block| block.and_then(|block| one(&block.contents).ok_or_else(broken)))
        .collect()
}

fn on_p384(key: &SubjectPublicKeyInfo<'_>, site: &Site) -> Result<(), String> {
    let algorithm = &key.algorithm;
    let curve = algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
    let is = algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == Some(OID_NIST_EC_P384);
    // Other sites ask nothing of their keys that the signer does not.
    if is || site.crypto().keys() != Curve::P384 {
        return Ok(());
    }
    Err("its key is not on P-384, as the site file says".to_owned())
}

/// Until when a certificate is good, if it fits.
fn certificate(pem: &[u8], site: &Site, ask: &Ask<'_>) -> Result<OffsetDateTime, String> {
    let (_, pem) = parse_x509_pem(pem).map_err(|_| "it has no certificate in it")?;
    let certificate = pem.parse_x509().map_err(|_| "it has no certificate in it")?;
    on_p384(certificate.public_key(), site)?;
    if site.crypto().keys() == Curve::P384
        && certificate.signature_algorithm.algorithm != OID_SIG_ECDSA_WITH_SHA384
    {
        return Err("it is not signed with ECDSA and SHA-384: its authority is another".to_owned());
    }
    match ask {
        Ask::Server(name) if !names(&certificate).any(|one| one == *name) => {
            return Err(format!(
                "it is for {}, and the site file calls the server {name}",
                names(&certificate).collect::<Vec<_>>().join(", ")
            ));
        }
        Ask::Host(host) => accredited(&certificate, site, host)?,
        _ => {}
    }
    Ok(certificate.validity().not_after.to_datetime())
}

/// The DNS names in a certificate.
fn names<'a>(certificate: &'a X509Certificate<'_>) -> impl Iterator<Item = &'a str> {
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    alternatives.into_iter().flat_map(|extension| &extension.value.general_names).filter_map(
        |name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        },
    )
}

/// A certificate may narrow what the site file says, never widen it; that it says something else is told all the same, since the
/// host's sessions would be refused at the levels between the two.
fn accredited(certificate: &X509Certificate<'_>, site: &Site, host: &Host) -> Result<(), String> {
    let wanted = site.vocabulary().print_range(host.accreditation()).unwrap_or_default();
    let mut extensions = certificate.extensions().iter();
    let extension =
        extensions.find(|extension| extension.oid.iter().is_some_and(|arcs| arcs.eq(ACCREDITATION_OID)));
    // A UTF8String (docs/accreditation.md): tag and length, then the text.
    let text = extension
        .and_then(|extension| x509_parser::der_parser::asn1_rs::Utf8String::from_der(extension.value).ok());
    let said = text.map(|(_, text)| text.string()).ok_or("it has no accreditation in it")?;
    if said == wanted {
        Ok(())
    } else {
        Err(format!("it is accredited for {said}, and the site file says {wanted}"))
    }
}

fn key(pem: &[u8], site: &Site) -> Result<(), String> {
    let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).map_err(|_| "it has no public key in it")?;
    let (_, key) = SubjectPublicKeyInfo::from_der(&der).map_err(|_| "it has no public key in it")?;
    on_p384(&key, site)
}

/// A bundle must say what the site does, or the two ends do not meet.
fn bundle(text: &[u8], site: &Site, host: &Host) -> Result<(), String> {
    let table = std::str::from_utf8(text).ok().and_then(|text| text.parse::<toml::Table>().ok());
    let table = table.ok_or("it is not TOML")?;
    let suites = match table.get("suites") {
        None => Some(Suites::default()),
        Some(word) => word.as_str().and_then(|word| word.parse().ok()),
    };
    let wanted = site.crypto().suites();
    if suites != Some(wanted) {
        return Err(format!("its `suites` are not `{wanted}`, as the site file says"));
    }
    let text = |key: &str| table.get(key).and_then(toml::Value::as_str).unwrap_or_default();
    if text("server-name") != site.server().name().as_str() {
        return Err(format!(
            "it looks for {}, and the site file calls the server {}",
            text("server-name"),
            site.server().name()
        ));
    }
    let listed = table.get("addresses").and_then(toml::Value::as_array).into_iter().flatten();
    let addresses: Vec<std::net::IpAddr> =
        listed.filter_map(|address| address.as_str()?.parse().ok()).collect();
    let port = table.get("trusted-path-port").and_then(toml::Value::as_integer);
    if addresses != site.server().addresses() || port != Some(i64::from(site.server().trusted_path_port())) {
        return Err(
            "it looks for the server at other addresses, or another port, than the site file says".to_owned()
        );
    }
    let wanted = host.is_layered().then(|| i64::from(site.server().layer_port()));
    let gateway = site.gateway().and_then(|gateway| gateway.addresses().first()).map(ToString::to_string);
    let said = table.get("gateway").and_then(toml::Value::as_str);
    if table.get("layer-port").and_then(toml::Value::as_integer) != wanted || said != gateway.as_deref() {
        return Err(
            "it has another second tunnel, or none, or one too many, than the site file says".to_owned()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    const SMALL: &str = include_str!("../../conf/small/site.toml");

    /// A certificate for a server of this name that is good for so many days from yesterday.
    fn for_days(name: &str, days: i64) -> String {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = OffsetDateTime::now_utc() - time::Duration::days(1);
        params.not_after = OffsetDateTime::now_utc() + time::Duration::days(days) + time::Duration::hours(1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn answer(name: &str, days: i64) -> Findings {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("server")).unwrap();
        std::fs::write(directory.path().join("server/chain.pem"), for_days(name, days)).unwrap();
        findings(&Site::parse(SMALL).unwrap(), directory.path())
    }

    #[test]
    fn a_certificate_is_warned_of_sixty_days_before_its_end_and_does_not_fit_after_it() {
        let named =
            |found: &Findings| found.warnings.iter().filter(|warning| warning.contains("chain.pem")).count();
        let far = answer("server.harbour.example", 61);
        assert_eq!((far.unfit.len(), named(&far)), (0, 0), "{far:?}");
        let near = answer("server.harbour.example", 60);
        assert_eq!((near.unfit.len(), named(&near)), (0, 1), "{near:?}");
        assert!(near.warnings.iter().any(|warning| warning.contains("60 days more")), "{near:?}");
        let over = answer("server.harbour.example", -1);
        assert!(over.unfit[0].what.contains("it was good until"), "{over:?}");
        // `levee status` says both, and nothing of what is far.
        let told = |found: &Findings| found.ending.join("\n");
        assert!(far.ending.is_empty(), "{far:?}");
        assert!(
            told(&near).contains("server/chain.pem is good for 60 days more; have another follow it"),
            "{near:?}"
        );
        assert!(told(&over).contains("server/chain.pem: it was good until"), "{over:?}");
    }

    #[test]
    fn certificates_of_a_federation_and_a_second_tunnel_are_warned_of_too_and_the_first_end_is_told() {
        for (file, remedy) in OTHERS {
            let directory = tempfile::tempdir().unwrap();
            for place in ["server", "authority", "etcd", "layer/authority", "gateway/layer"] {
                std::fs::create_dir_all(directory.path().join(place)).unwrap();
            }
            let put = |file: &str, text: String| std::fs::write(directory.path().join(file), text).unwrap();
            put("server/chain.pem", for_days("server.harbour.example", 400));
            // What comes behind the first counts as well.
            put(file, for_days("one.example", 300) + &for_days("two.example", 60));
            let site = Site::parse(SMALL).unwrap();
            let near = findings(&site, directory.path());
            let says = |warning: &String| warning.contains("60 days more") && warning.ends_with(remedy);
            assert!(near.warnings.iter().any(says), "{file}: {near:?}");
            let told = near.ends(directory.path()).unwrap();
            assert!(told.starts_with(&format!("the first to end is {file}, on 2")), "{told}");
            assert!(told.ends_with(", in 60 days"), "{told}");
            put(file, for_days("one.example", -1));
            let over = findings(&site, directory.path());
            let says = |warning: &String| warning.contains(&format!("{file}: it was good until"));
            assert!(over.unfit.is_empty() && over.warnings.iter().any(says), "{file}: {over:?}");
        }
    }

    #[test]
    fn a_revocation_list_is_warned_of_before_its_end_since_nobody_is_believed_after_it() {
        let directory = tempfile::tempdir().unwrap();
        for place in ["server", "authority"] {
            std::fs::create_dir(directory.path().join(place)).unwrap();
        }
        let chain = for_days("server.harbour.example", 400);
        std::fs::write(directory.path().join("server/chain.pem"), chain).unwrap();
        let answer = |file: &str, days: i64| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let now = OffsetDateTime::now_utc();
            let list = rcgen::CertificateRevocationListParams {
                this_update: now - time::Duration::days(40),
                next_update: now + time::Duration::days(days) + time::Duration::hours(1),
                crl_number: rcgen::SerialNumber::from(1),
                issuing_distribution_point: None,
                revoked_certs: Vec::new(),
                key_identifier_method: rcgen::KeyIdMethod::Sha256,
            };
            let list = list.signed_by(&rcgen::Issuer::new(params, key)).unwrap().pem().unwrap();
            std::fs::write(directory.path().join(file), list).unwrap();
            findings(&Site::parse(SMALL).unwrap(), directory.path())
        };
        for (file, remedy) in LISTS {
            let named = |found: &Findings| {
                found
                    .warnings
                    .iter()
                    .filter(|warning| warning.contains(file) && warning.ends_with(remedy))
                    .count()
            };
            let far = answer(file, 11);
            assert_eq!((far.unfit.len(), named(&far)), (0, 0), "{far:?}");
            let near = answer(file, 10);
            assert_eq!((near.unfit.len(), named(&near)), (0, 1), "{near:?}");
            let over = answer(file, -1);
            assert_eq!((over.unfit.len(), named(&over)), (0, 1), "{over:?}");
            let says = |warning: &String| warning.contains(&format!("{file}: it was good until"));
            assert!(over.warnings.iter().any(says), "{over:?}");
            std::fs::remove_file(directory.path().join(file)).unwrap();
        }
    }

    #[test]
    fn a_certificate_for_another_name_does_not_fit() {
        let found = answer("other.example", 400);
        assert!(found.unfit[0].what.contains("it is for other.example"), "{found:?}");
    }

    #[test]
    fn who_is_asked_for_a_code_and_has_no_seed_is_warned_of() {
        let (head, tail) = SMALL.split_once("name = \"mia\"").unwrap();
        let site = Site::parse(&format!("{head}name = \"mia\"\nsecond-factor = \"totp\"{tail}")).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let seeds = directory.path().join("sessiond/second-factors");
        std::fs::create_dir_all(&seeds).unwrap();
        std::fs::create_dir(directory.path().join("server")).unwrap();
        let chain = for_days("server.harbour.example", 400);
        std::fs::write(directory.path().join("server/chain.pem"), chain).unwrap();
        let warned = || {
            let found = findings(&site, directory.path());
            found.warnings.iter().filter(|warning| warning.contains("levee user totp SITE mia")).count()
        };
        assert_eq!(warned(), 1);
        std::fs::write(seeds.join("mia"), "totp …").unwrap();
        assert_eq!(warned(), 0, "it has one");
        assert!(
            findings(&Site::parse(SMALL).unwrap(), directory.path())
                .warnings
                .iter()
                .all(|w| !w.contains("totp"))
        );
    }

    #[test]
    fn where_nothing_is_enrolled_nothing_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let found = findings(&Site::parse(SMALL).unwrap(), directory.path());
        assert!(found.unfit.is_empty() && found.warnings.is_empty());
    }
}
