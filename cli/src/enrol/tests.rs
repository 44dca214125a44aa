use super::*;
use crate::typed::Passphrase;
use levee_policy::site::Suites;
use levee_policy::{DomainName, HostName, PpkId, SiteName};
use rcgen::KeyPair;
use std::os::unix::fs::PermissionsExt;
use x509_parser::oid_registry::{OID_NIST_EC_P384, OID_SIG_ECDSA_WITH_SHA384};
use x509_parser::prelude::{FromDer, X509Certificate, parse_x509_pem};

fn host(name: &str, accreditation: &str, ppk: Option<&str>) -> HostFacts {
    let ppk = ppk.map(|id| PpkId::new(id).unwrap());
    HostFacts { name: HostName::new(name).unwrap(), accreditation: accreditation.into(), ppk, layered: true }
}

fn facts() -> Facts {
    Facts {
        layer_port: None,
        gateway: None,
        site: SiteName::new("small").unwrap(),
        server: DomainName::new("server.small.example").unwrap(),
        addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        port: 4433,
        keys: Curve::P256,
        suites: Suites::Default,
        etcd: None,
        channels: vec![],
        hosts: vec![
            host("ws1", "UNCLASSIFIED..SECRET/NATO", Some("ws1-2026")),
            host("ws2", "UNCLASSIFIED", None),
        ],
    }
}

fn enroller(state: &Path) -> Enroller<'_> {
    let tokens = Box::leak(Box::new(Tokens::new(&|name| Err(format!("nobody types the PIN of {name}")))));
    Enroller {
        state,
        force: false,
        passphrase: None,
        rounds: 1_000,
        authority_passphrase: None,
        token: None,
        tokens,
    }
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
    for path in written.iter().filter(|path| path.ends_with("chain.pem") || path.ends_with("ike-chain.pem")) {
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
    // What its statements are believed by is of that authority, too, and of its key.
    let chain = std::fs::read(directory.path().join("server/federation-chain.pem")).unwrap();
    let sealed = levee_ipc::federation::Sealed::from_text(&chain).unwrap();
    assert_eq!(sealed.passport.server, facts().server);
    let (_, certificate) = parse_x509_pem(&chain).unwrap();
    let certificate = certificate.parse_x509().unwrap();
    assert_eq!(sealed.passport.point, &*certificate.public_key().subject_public_key.data);
    let is_of = |authority: &[u8]| {
        let (_, authority) = X509Certificate::from_der(authority).unwrap();
        let point = &*authority.public_key().subject_public_key.data;
        let algorithm: &dyn ring::signature::VerificationAlgorithm = match point.len() {
            65 => &ring::signature::ECDSA_P256_SHA256_ASN1,
            _ => &ring::signature::ECDSA_P384_SHA384_ASN1,
        };
        let key = ring::signature::UnparsedPublicKey::new(algorithm, point);
        key.verify(&sealed.passport.message().unwrap(), &sealed.signature).is_ok()
    };
    assert!(is_of(&own) && !is_of(&sites));
}

#[test]
fn a_host_and_the_server_get_the_same_ppk_each_with_its_own_passphrase_and_a_new_one_only_by_force() {
    let directory = tempfile::tempdir().unwrap();
    let mut enroller = enroller(directory.path());
    enroller.all(&facts()).unwrap();
    let toml = |host: &str| {
        std::fs::read_to_string(directory.path().join("hosts").join(host).join("workstation.toml")).unwrap()
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
fn a_server_that_is_enrolled_anew_keeps_the_key_that_signed_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let mut enroller = enroller(directory.path());
    enroller.all(&facts()).unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join("server").join(name)).unwrap();
    let before = ["audit.key", "audit.pub", "tls.key", "ike.key"].map(read);
    assert!(matches!(enroller.server(&facts()), Err(EnrolError::Exists(_))));
    enroller.force = true;
    enroller.server(&facts()).unwrap();
    let after = ["audit.key", "audit.pub", "tls.key", "ike.key"].map(read);
    assert_eq!(after[..2], before[..2], "what it has signed is checked by it");
    assert!(after[2] != before[2] && after[3] != before[3]);
    // It is encrypted from then on, where the others are.
    enroller.passphrase = Some(Passphrase::new(b"of the server".to_vec()));
    enroller.server(&facts()).unwrap();
    assert!(read("audit.key").contains("ENCRYPTED") && read("audit.pub") == before[1]);
    // One that is no key is replaced; one that another passphrase opens may be of use yet.
    std::fs::write(directory.path().join("server/audit.key"), "no key").unwrap();
    enroller.server(&facts()).unwrap();
    assert_ne!(read("audit.pub"), before[1]);
    let sealed = read("audit.key");
    enroller.passphrase = None;
    assert!(matches!(enroller.server(&facts()), Err(EnrolError::Pki(_))));
    assert_eq!(read("audit.key"), sealed);
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
    for path in written.iter().filter(|path| path.extension().is_some_and(|extension| extension == "key")) {
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
    assert!(matches!(enroller.revoke(&["ws9".into()], &[], 30), Err(EnrolError::UnknownHost(..))));
}

#[test]
fn what_is_missing_is_added_and_what_is_there_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let enroller = enroller(directory.path());
    let mut facts = facts();
    let written = enroller.all(&facts).unwrap();
    let read =
        |written: &Written| written.iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>();
    let before = read(&written);
    assert_eq!(enroller.all(&facts).unwrap(), Written::new(), "nothing is missing");
    facts.hosts.push(host("ws3", "UNCLASSIFIED", None));
    let added = enroller.all(&facts).unwrap();
    assert_eq!(added.len(), 6);
    assert!(added.iter().all(|path| path.starts_with(directory.path().join("hosts/ws3"))), "{added:?}");
    // The site becomes one of several servers.
    facts.etcd = Some((DomainName::new("etcd.small.example").unwrap(), vec!["192.0.2.9".parse().unwrap()]));
    assert_eq!(enroller.all(&facts).unwrap().len(), 2 + 3 + 3);
    assert_eq!(read(&written), before);
}

#[test]
fn no_key_is_replaced_because_another_file_is_not_there_and_what_is_missing_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let enroller = enroller(directory.path());
    let mut facts = facts();
    facts.etcd = Some((DomainName::new("etcd.small.example").unwrap(), vec!["192.0.2.9".parse().unwrap()]));
    let written = enroller.all(&facts).unwrap();
    let all = || written.iter().map(|path| std::fs::read(path).ok()).collect::<Vec<_>>();
    let whole = all();
    for lost in &written {
        let kept = std::fs::read(lost).unwrap();
        std::fs::remove_file(lost).unwrap();
        let before = all();
        let name = lost.strip_prefix(directory.path()).unwrap().display().to_string();
        match enroller.all(&facts) {
            // Whoever signs may have the only key elsewhere, as a host that has asked with a request has its.
            Ok(added) => assert!(
                added.is_empty()
                    && (name.starts_with("authority/")
                        || name == "etcd/tls.key"
                        || name == "server/federation.key")
                    || name == "auditor/auditor.key"
                    || added == [lost.clone()] && name == "server/auditor.pub",
                "{name}: {added:?}"
            ),
            Err(EnrolError::NotWhole(said)) => {
                assert!(
                    said.missing.contains(lost) && said.remedy.contains("levee enrol"),
                    "{name}: {said:?}"
                );
            }
            Err(other) => panic!("{name}: {other}"),
        }
        let after = all();
        let changed = before.iter().zip(&after).filter(|(before, after)| before.is_some() && before != after);
        assert_eq!(changed.count(), 0, "{name}: what was there is left alone");
        std::fs::write(lost, kept).unwrap();
    }
    assert_eq!(all(), whole);
    assert_eq!(enroller.all(&facts).unwrap(), Written::new());
    // An authority that has signed and is not here is followed by none of the same name.
    for name in ["ca", "federation-ca"] {
        let files = [format!("authority/{name}.key"), format!("authority/{name}.pem")];
        let kept = files.each_ref().map(|file| std::fs::read(directory.path().join(file)).unwrap());
        files.iter().for_each(|file| std::fs::remove_file(directory.path().join(file)).unwrap());
        assert!(matches!(enroller.all(&facts), Err(EnrolError::NotWhole(_))), "{name}");
        assert!(files.iter().all(|file| !directory.path().join(file).exists()), "{name}");
        for (file, kept) in files.iter().zip(kept) {
            std::fs::write(directory.path().join(file), kept).unwrap();
        }
    }
    // Also where all of the server is gone, and hosts have bundles by it.
    for part in ["authority", "server"] {
        std::fs::rename(directory.path().join(part), directory.path().join(format!("{part}-away"))).unwrap();
    }
    assert!(matches!(enroller.all(&facts), Err(EnrolError::NotWhole(_))));
    assert!(!directory.path().join("authority/ca.pem").exists());
    for part in ["authority", "server"] {
        let _ = std::fs::remove_dir(directory.path().join(part));
        std::fs::rename(directory.path().join(format!("{part}-away")), directory.path().join(part)).unwrap();
    }
    // By force it is made anew, a whole part of it.
    std::fs::remove_file(directory.path().join("hosts/ws2/workstation.toml")).unwrap();
    let anew = Enroller { force: true, ..self::enroller(directory.path()) };
    assert_eq!(anew.host(&facts, "ws2").unwrap().len(), 6);
    assert_eq!(enroller.all(&facts).unwrap(), Written::new());
}

#[test]
fn what_somebody_has_written_into_a_bundle_stays_when_its_keys_are_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let mut enroller = enroller(directory.path());
    enroller.all(&facts()).unwrap();
    let path = directory.path().join("hosts/ws2/workstation.toml");
    let made = std::fs::read_to_string(&path).unwrap();
    let own = "people = \"levee\"\nseat = \"seat0\"\n";
    let behind = "[behind]\ninterface = \"eth1\"\n";
    std::fs::write(&path, format!("{own}{}{behind}", made.replace("4433", "4434"))).unwrap();
    enroller.force = true;
    enroller.host(&facts(), "ws2").unwrap();
    let anew: toml::Table = toml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let expected: toml::Table = toml::from_str(&format!("{own}{made}{behind}")).unwrap();
    assert_eq!(anew, expected, "what levee says is as the site file has it, the rest as it was written");
    std::fs::write(&path, "people =").unwrap();
    let refused = enroller.host(&facts(), "ws2").unwrap_err().to_string();
    assert!(refused.contains("mend it, or remove it"), "{refused}");
}

#[test]
fn keys_that_are_made_elsewhere_are_signed_for_and_never_seen() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut enroller = enroller(here.path());
    enroller.authority(&facts()).unwrap();
    let made = request(there.path(), &Whose::Host, "ws1", Curve::P256, None, false).unwrap();
    assert_eq!(made.len(), 3);
    assert_eq!(mode(&there.path().join("device.key")), 0o600);
    let asked = there.path().join("request.pem");
    let signed = enroller.sign(&facts(), &asked, "ws1").unwrap();
    let names: Vec<_> = signed
        .iter()
        .map(|path| path.strip_prefix(here.path().join("hosts/ws1")).unwrap().to_str().unwrap())
        .collect();
    assert_eq!(names, ["chain.pem", "ike-chain.pem", "authority.pem", "workstation.toml"]);
    // The certificates are for the keys that never moved, for what the site file says, each for its own protocol.
    for (key, chain) in [("device.key", "chain.pem"), ("ike.key", "ike-chain.pem")] {
        let key = KeyPair::from_pem(&std::fs::read_to_string(there.path().join(key)).unwrap()).unwrap();
        let (_, pem) =
            parse_x509_pem(&std::fs::read(here.path().join("hosts/ws1").join(chain)).unwrap()).unwrap();
        let certificate = pem.parse_x509().unwrap();
        assert_eq!(certificate.public_key().subject_public_key.data.as_ref(), key.public_key_raw());
    }
    assert!(
        matches!(enroller.sign(&facts(), &asked, "ws1"), Err(EnrolError::Exists(_))),
        "nothing is replaced by the way"
    );
    enroller.force = true;
    enroller.sign(&facts(), &asked, "ws1").unwrap();

    // A server's.
    let server = tempfile::tempdir().unwrap();
    request(server.path(), &Whose::Server, "server.small.example", Curve::P256, None, false).unwrap();
    let signed = enroller.sign(&facts(), &server.path().join("request.pem"), "server.small.example").unwrap();
    assert!(signed.iter().all(|path| path.starts_with(here.path().join("server"))), "{signed:?}");
    assert!(!here.path().join("server/tls.key").exists());
}

#[test]
fn a_request_is_believed_a_key_that_has_signed_it_for_whom_it_was_said_to_be_and_nothing_else() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let enroller = enroller(here.path());
    enroller.authority(&facts()).unwrap();
    let ask = |name: &str, curve| {
        request(there.path(), &Whose::Host, name, curve, None, true).unwrap();
        std::fs::read_to_string(there.path().join("request.pem")).unwrap()
    };
    let sign_for = |text: &str, whose: &str| {
        std::fs::write(there.path().join("request.pem"), text).unwrap();
        enroller.sign(&facts(), &there.path().join("request.pem"), whose)
    };
    let sign = |text: &str| sign_for(text, "ws1");
    assert!(matches!(sign_for(&ask("ws9", Curve::P256), "ws9"), Err(EnrolError::UnknownHost(_))));
    assert!(matches!(sign_for(&ask("../ws1", Curve::P256), "../ws1"), Err(EnrolError::Request(..))));
    // Who has one workstation asks for another's certificates, or the server's.
    for other in ["ws2", "server.small.example"] {
        let refused = sign(&ask(other, Curve::P256)).unwrap_err().to_string();
        assert!(refused.contains(other) && refused.contains("not of ws1"), "{refused}");
    }
    assert!(
        matches!(sign(&ask("ws1", Curve::P384)), Err(EnrolError::Request(..))),
        "another curve than the site's"
    );
    let good = ask("ws1", Curve::P256);
    let one = good.split_inclusive("-----END CERTIFICATE REQUEST-----\n").next().unwrap().to_owned();
    for bad in ["", &one, &format!("{one}{one}"), &format!("{good}{one}"), &format!("{good}more")] {
        assert!(matches!(sign(bad), Err(EnrolError::Request(..))), "{bad}");
    }
    // One bit of the key, the name or the signature is another.
    let line = good.lines().nth(3).unwrap();
    let other = line.replacen(|c: char| c.is_ascii_lowercase(), "Q", 1);
    assert!(matches!(sign(&good.replacen(line, &other, 1)), Err(EnrolError::Request(..))));
    assert!(
        !here.path().join("hosts").exists() && !here.path().join("server").exists(),
        "nothing was signed"
    );
    assert!(sign(&good).is_ok());
}
