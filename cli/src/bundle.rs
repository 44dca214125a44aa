//! Whether what `levee enrol` made for a host has come there whole: each of its keys beside the certificates that are of it.

use std::fs;
use std::path::Path;

use rcgen::{KeyPair, PublicKeyData as _};
use x509_parser::pem::parse_x509_pem;
use zeroize::Zeroizing;

use crate::enrol::pki;

/// What a workstation begins with: without it its processes would end again and again.
///
/// # Errors
/// The file that is not there, or is not of this bundle; with the remedy.
pub fn of_a_workstation(bundle: &Path) -> Result<(), String> {
    fits(bundle, "device.key", "chain.pem")?;
    fits(bundle, "ike.key", "ike-chain.pem")?;
    if bundle.join("layer").is_dir() { of_a_gateway(bundle) } else { Ok(()) }
}

/// What an end of the second tunnel begins with.
///
/// # Errors
/// As there.
pub fn of_a_gateway(bundle: &Path) -> Result<(), String> {
    fits(&bundle.join("layer"), "layer.key", "chain.pem")
}

/// Whether a key is that of the first certificate of a chain, and the authority's certificate is one.
fn fits(place: &Path, key: &str, chain: &str) -> Result<(), String> {
    const AUTHORITY: &str = "authority.pem";
    const REMEDY: &str = "copy this host's bundle here again, all of it";
    let read = |file: &str| {
        let path = place.join(file);
        let text = fs::read_to_string(&path).map(Zeroizing::new);
        text.map_err(|e| format!("{}: {e}: {REMEDY}", path.display()))
    };
    let spki = |pem: &str| {
        let (_, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
        pem.parse_x509().ok().map(|certificate| certificate.public_key().raw.to_vec())
    };
    let (of_chain, of_authority, secret) = (spki(&read(chain)?), spki(&read(AUTHORITY)?), read(key)?);
    let own = KeyPair::from_pem(&secret).ok().map(|key| key.subject_public_key_info());
    let matches = own.is_some() && own == of_chain;
    // Whether one fits that a passphrase is needed for, who has the passphrase finds out.
    let sealed = pki::is_encrypted(secret.as_bytes()) && of_chain.is_some();
    ((matches || sealed) && of_authority.is_some()).then_some(()).ok_or_else(|| {
        format!("{}: its {key}, {chain} and {AUTHORITY} are not of one bundle: {REMEDY}", place.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_that_is_half_copied_is_not_begun_with() {
        let place = tempfile::tempdir().unwrap();
        let keys = [(); 2].map(|()| KeyPair::generate().unwrap());
        let chain = rcgen::CertificateParams::default().self_signed(&keys[0]).unwrap().pem();
        let whole = || of_a_workstation(place.path());
        let write = |file: &str, what: &str| fs::write(place.path().join(file), what).unwrap();
        for (file, text) in [
            ("chain.pem", &*chain),
            ("authority.pem", &*chain),
            ("device.key", &*keys[0].serialize_pem()),
            ("ike-chain.pem", &*chain),
        ] {
            let said = whole().unwrap_err();
            assert!(said.contains("No such file") && said.ends_with("all of it"), "{said}");
            write(file, text);
        }
        write("ike.key", &keys[0].serialize_pem());
        whole().unwrap();
        for (file, half) in [
            ("device.key", &*keys[1].serialize_pem()),
            ("ike.key", ""),
            ("ike-chain.pem", &chain[..200]),
            ("authority.pem", "x"),
        ] {
            let before = fs::read_to_string(place.path().join(file)).unwrap();
            write(file, half);
            let said = whole().unwrap_err();
            assert!(said.contains("not of one bundle") && said.ends_with("all of it"), "{said}");
            write(file, &before);
        }
        write("device.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----");
        whole().unwrap();
        fs::create_dir(place.path().join("layer")).unwrap();
        let said = whole().unwrap_err();
        assert!(said.contains("layer/chain.pem: No such file") && said.ends_with("all of it"), "{said}");
    }
}
