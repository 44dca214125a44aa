//! Whether what `levee enrol` has made fits the site file: the curve of keys, what certificates are signed with, and what bundles say.
//! Only public files are looked at.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use levee_policy::Site;
use levee_policy::site::{Curve, Suites};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Serialize;
use x509_parser::oid_registry::{OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_SIG_ECDSA_WITH_SHA384};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

/// A file that does not fit.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Unfit {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub what: String,
    /// What to do about it.
    pub remedy: &'static str,
}

const ALL: &str = "make the whole site anew: levee enrol all --force";
const SERVER: &str = "make the server's keys anew: levee enrol server --force";
const HOST: &str = "make this host's bundle anew: levee enrol host --force";

/// Everything in a state directory that does not fit a site with keys on P-384. What is not there is no fault; other sites ask nothing of
/// their keys that the signer does not.
pub fn unfit(site: &Site, state: &Path) -> Vec<Unfit> {
    if site.crypto().keys() != Curve::P384 {
        return Vec::new();
    }
    let mut checks: Vec<(PathBuf, Check, &'static str)> = vec![
        (state.join("authority/ca.pem"), certificate, ALL),
        (state.join("server/chain.pem"), certificate, SERVER),
        (state.join("server/ike-chain.pem"), certificate, SERVER),
        (state.join("server/audit.pub"), key, SERVER),
    ];
    for host in site.hosts() {
        let bundle = state.join("hosts").join(host.name().as_str());
        checks.push((bundle.join("chain.pem"), certificate, HOST));
        checks.push((bundle.join("ike-chain.pem"), certificate, HOST));
        checks.push((bundle.join("workstation.toml"), suites, HOST));
    }
    let fault = |(file, check, remedy): (PathBuf, Check, &'static str)| {
        let what = match std::fs::read(&file) {
            Ok(content) => check(&content, site).err()?,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => format!("it cannot be read: {error}"),
        };
        Some(Unfit { file, what, remedy })
    };
    checks.into_iter().filter_map(fault).collect()
}

type Check = fn(&[u8], &Site) -> Result<(), String>;

fn on_p384(key: &SubjectPublicKeyInfo<'_>) -> Result<(), String> {
    let algorithm = &key.algorithm;
    let curve = algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
    if algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == Some(OID_NIST_EC_P384) {
        return Ok(());
    }
    Err("its key is not on P-384, as the site file says".to_owned())
}

fn certificate(pem: &[u8], _: &Site) -> Result<(), String> {
    let (_, pem) = parse_x509_pem(pem).map_err(|_| "it has no certificate in it")?;
    let certificate = pem.parse_x509().map_err(|_| "it has no certificate in it")?;
    on_p384(certificate.public_key())?;
    if certificate.signature_algorithm.algorithm != OID_SIG_ECDSA_WITH_SHA384 {
        return Err("it is not signed with ECDSA and SHA-384: its authority is another".to_owned());
    }
    Ok(())
}

fn key(pem: &[u8], _: &Site) -> Result<(), String> {
    let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).map_err(|_| "it has no public key in it")?;
    let (_, key) = SubjectPublicKeyInfo::from_der(&der).map_err(|_| "it has no public key in it")?;
    on_p384(&key)
}

/// A bundle must say what the site does, or the two ends do not meet.
fn suites(text: &[u8], site: &Site) -> Result<(), String> {
    let table = std::str::from_utf8(text).ok().and_then(|text| text.parse::<toml::Table>().ok());
    let table = table.ok_or("it is not TOML")?;
    let said = match table.get("suites") {
        None => Some(Suites::default()),
        Some(word) => word.as_str().and_then(|word| word.parse().ok()),
    };
    let wanted = site.crypto().suites();
    if said == Some(wanted) {
        Ok(())
    } else {
        Err(format!("its `suites` are not `{wanted}`, as the site file says"))
    }
}
