use super::*;
use crate::enrol::{Enroller, Tokens};
use levee_policy::site::{Curve, Suites};
use levee_policy::{DomainName, HostName, SiteName};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use std::fs::{self, File};
use std::io::Read as _;
use x509_parser::prelude::parse_x509_pem;

pub fn facts() -> Facts {
    let host = crate::enrol::HostFacts {
        name: HostName::new("ws1").unwrap(),
        accreditation: "UNCLASSIFIED".into(),
        ppk: None,
        layered: true,
    };
    Facts {
        layer_port: None,
        gateway: None,
        site: SiteName::new("small").unwrap(),
        server: DomainName::new("server.small.example").unwrap(),
        addresses: vec!["192.0.2.1".parse().unwrap()],
        port: 4433,
        keys: Curve::P256,
        suites: Suites::Default,
        etcd: Some((DomainName::new("etcd.small.example").unwrap(), vec!["192.0.2.2".parse().unwrap()])),
        channels: vec![],
        hosts: vec![host],
    }
}

pub fn enroller(state: &Path) -> Enroller<'_> {
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

fn site() -> tempfile::TempDir {
    let state = tempfile::tempdir().unwrap();
    enroller(state.path()).all(&facts()).unwrap();
    state
}

fn with_passphrase<'a>(state: &'a Path, passphrase: &str) -> Enroller<'a> {
    let passphrase = || Some(zeroize::Zeroizing::new(passphrase.as_bytes().to_vec()));
    Enroller { passphrase: passphrase(), authority_passphrase: passphrase(), ..enroller(state) }
}

/// Which key, whose, its private files, and the certificate of each.
type Case = (What, Option<&'static str>, &'static [(&'static str, &'static str)]);

/// Every rotation of a server's keys and of a host's.
const ALL: [Case; 5] = [
    (What::TrustedPath, None, &[("server/tls.key", "server/chain.pem")]),
    (What::Ike, None, &[("server/ike.key", "server/ike-chain.pem")]),
    (What::Audit, None, &[("server/audit.key", "")]),
    (What::Federation, None, &[("server/federation.key", "server/federation-chain.pem")]),
    (
        What::Host,
        Some("ws1"),
        &[("hosts/ws1/device.key", "hosts/ws1/chain.pem"), ("hosts/ws1/ike.key", "hosts/ws1/ike-chain.pem")],
    ),
];

/// Every file below a directory, with its content.
pub fn everything(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(everything(&entry.path()));
        } else {
            all.push((entry.path(), fs::read(entry.path()).unwrap()));
        }
    }
    all
}

/// What a private key is in a file: its PEM's lines, and the octets of its DER that no public file has.
fn traces(pem: &str) -> Vec<Vec<u8>> {
    let lines = pem.lines().filter(|line| !line.starts_with('-')).take(2);
    let key = KeyPair::from_pem(pem).unwrap();
    let der = key.serialize_der();
    // SEC 1: OCTET STRING of 32 octets, the private number.
    let at = der.windows(2).position(|two| two == [0x04, 0x20]).unwrap() + 2;
    lines.map(|line| line.as_bytes().to_vec()).chain([der[at..at + 32].to_vec()]).collect()
}

#[test]
fn a_rotated_key_fits_its_certificate_and_the_old_ones_octets_are_nowhere_in_the_state() {
    let state = site();
    for (what, host, files) in ALL {
        let others: Vec<_> = everything(state.path());
        let old: Vec<_> =
            files.iter().map(|(key, _)| fs::read_to_string(state.path().join(key)).unwrap()).collect();
        let mut held: Vec<_> =
            files.iter().map(|(key, _)| File::open(state.path().join(key)).unwrap()).collect();
        let found = |trace: &[u8]| {
            everything(state.path())
                .into_iter()
                .find(|(_, content)| content.windows(trace.len()).any(|window| window == trace))
        };
        for trace in old.iter().flat_map(|old| traces(old)) {
            assert!(found(&trace[..]).is_some() || trace.len() == 32, "the search finds what is there");
        }
        let done = enroller(state.path()).rotate(&facts(), what, host).unwrap();
        for ((key, certificate), old) in files.iter().zip(&old) {
            let path = state.path().join(key);
            assert!(done.destroyed.contains(&path) && done.written.contains(&path), "{done:?}");
            let new = fs::read_to_string(&path).unwrap();
            assert_ne!(new, *old);
            for trace in traces(old) {
                assert_eq!(found(&trace).map(|(path, _)| path), None, "{what:?}");
            }
            if !certificate.is_empty() {
                let pem = fs::read(state.path().join(certificate)).unwrap();
                let (_, block) = parse_x509_pem(&pem).unwrap();
                let key = KeyPair::from_pem(&new).unwrap();
                let certificate = block.parse_x509().unwrap();
                assert_eq!(certificate.public_key().raw, key.subject_public_key_info(), "{what:?}");
            }
        }
        // Overwritten, not only without a name: whoever has the file open reads nothing of it.
        for file in &mut held {
            let mut octets = Vec::new();
            file.read_to_end(&mut octets).unwrap();
            assert!(!octets.is_empty() && octets.iter().all(|octet| *octet == 0), "{what:?}");
        }
        // Nothing else has changed, and nothing is left beside it.
        let changed =
            |path: &PathBuf| done.written.contains(path) || path.starts_with(state.path().join("rotated"));
        for (path, content) in &others {
            assert!(changed(path) || fs::read(path).unwrap() == *content, "{}", path.display());
        }
        assert!(unfinished(state.path()).is_empty());
    }
    assert_eq!(fs::read_dir(state.path().join("rotated")).unwrap().count(), ALL.len());
}

#[test]
fn what_the_audit_log_will_say_names_the_old_key_and_the_new_one() {
    let state = site();
    let path = state.path().join("server/tls.key");
    let print = || fingerprint(&KeyPair::from_pem(&fs::read_to_string(&path).unwrap()).unwrap());
    let old = print();
    enroller(state.path()).rotate(&facts(), What::TrustedPath, None).unwrap();
    let (told, text) = everything(&state.path().join("rotated")).remove(0);
    assert!(told.extension().is_none(), "it has ended");
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text, format!("trusted path's key\nrotated: from {old} to {}\n", print()));
}

#[test]
fn keys_of_the_audit_log_vouch_for_those_that_follow() {
    let state = site();
    let public = state.path().join("server/audit.pub");
    let first = fs::read_to_string(&public).unwrap();
    for _ in 0..2 {
        enroller(state.path()).rotate(&facts(), What::Audit, None).unwrap();
    }
    let text = fs::read_to_string(&public).unwrap();
    assert!(text.starts_with(&first), "an auditor finds the key that they know at the beginning");
    assert_eq!(text.matches("BEGIN PUBLIC KEY").count(), 3);
    let key = fs::read_to_string(state.path().join("server/audit.key")).unwrap();
    assert!(text.ends_with(&KeyPair::from_pem(&key).unwrap().public_key_pem()));
}

#[test]
fn a_kill_at_any_step_leaves_keys_that_fit_and_the_next_rotation_destroys_what_is_left() {
    let state = site();
    let server = state.path().join("server");
    let fits = || {
        let key = KeyPair::from_pem(&fs::read_to_string(server.join("tls.key")).unwrap()).unwrap();
        let pem = fs::read(server.join("chain.pem")).unwrap();
        let (_, block) = parse_x509_pem(&pem).unwrap();
        block.parse_x509().unwrap().public_key().raw == key.subject_public_key_info()
    };
    let old = fs::read_to_string(server.join("tls.key")).unwrap();
    // Before anything is written, and when some of it is.
    for steps in 0..2 {
        let swap = Swap::begin(&server).unwrap();
        if steps > 0 {
            files::write(&swap.path().join("tls.key"), b"half", Mode::Private, true).unwrap();
        }
        std::mem::forget(swap);
        assert!(fits() && fs::read_to_string(server.join("tls.key")).unwrap() == old);
        assert_eq!(unfinished(state.path()).len(), 1);
    }
    // The old key is used by nobody else's rotation: it is another one's that finds what is left.
    enroller(state.path()).rotate(&facts(), What::Ike, None).unwrap();
    assert!(fits() && unfinished(state.path()).is_empty());
    assert_eq!(fs::read_to_string(server.join("tls.key")).unwrap(), old, "links are not overwritten");
    // When they have changed places and the old one is still there.
    let swap = Swap::begin(&server).unwrap();
    let new = pki::key(Curve::P256).unwrap().serialize_pem();
    files::write(&swap.path().join("tls.key"), new.as_bytes(), Mode::Private, true).unwrap();
    rustix::fs::renameat_with(
        rustix::fs::CWD,
        swap.path(),
        rustix::fs::CWD,
        &server,
        rustix::fs::RenameFlags::EXCHANGE,
    )
    .unwrap();
    let left = swap.path().join("tls.key");
    std::mem::forget(swap);
    let mut held = File::open(&left).unwrap();
    enroller(state.path()).rotate(&facts(), What::Ike, None).unwrap();
    let mut octets = Vec::new();
    held.read_to_end(&mut octets).unwrap();
    assert!(!left.exists() && octets.iter().all(|octet| *octet == 0) && !octets.is_empty());
    assert_eq!(fs::read_to_string(server.join("tls.key")).unwrap(), new);
}

#[test]
fn a_key_stays_encrypted_as_it_is_and_another_passphrase_changes_nothing() {
    let state = tempfile::tempdir().unwrap();
    with_passphrase(state.path(), "one").all(&facts()).unwrap();
    let path = state.path().join("server/ike.key");
    let old = fs::read_to_string(&path).unwrap();
    let other = with_passphrase(state.path(), "two");
    let other = Enroller { authority_passphrase: Some(b"one".to_vec().into()), ..other };
    for (what, host, _) in ALL {
        other.rotate(&facts(), what, host).unwrap_err();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), old);
    with_passphrase(state.path(), "one").rotate(&facts(), What::Ike, None).unwrap();
    let new = fs::read_to_string(&path).unwrap();
    assert!(new != old && new.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY"));
    pki::read_key(&new, Some(b"one")).unwrap();
}

#[test]
fn what_is_not_there_is_not_rotated_and_a_host_is_named_where_it_must_be() {
    let state = site();
    let enroller = enroller(state.path());
    let before = everything(state.path());
    for (what, host) in [
        (What::Host, None),
        (What::Host, Some("nosuch")),
        (What::Ike, Some("ws1")),
        (What::Layer, None),
        (What::Layer, Some("ws1")),
    ] {
        enroller.rotate(&facts(), what, host).unwrap_err();
    }
    // Its keys were made where they are used.
    fs::remove_file(state.path().join("hosts/ws1/device.key")).unwrap();
    let refused = enroller.rotate(&facts(), What::Host, Some("ws1")).unwrap_err().to_string();
    assert!(refused.contains("levee enrol request"), "{refused}");
    assert_eq!(everything(state.path()).len(), before.len() - 1);
}

#[test]
fn a_second_rotation_at_the_same_time_is_refused() {
    let state = site();
    let first = enroller(state.path()).alone().unwrap();
    let refused = enroller(state.path()).rotate(&facts(), What::Ike, None).unwrap_err().to_string();
    assert!(refused.contains("another"), "{refused}");
    drop(first);
    enroller(state.path()).rotate(&facts(), What::Ike, None).unwrap();
}

#[test]
fn a_passport_of_the_new_key_is_in_the_federations_chain() {
    let state = site();
    enroller(state.path()).rotate(&facts(), What::Federation, None).unwrap();
    let text = fs::read(state.path().join("server/federation-chain.pem")).unwrap();
    let sealed = levee_ipc::federation::Sealed::from_text(&text).unwrap();
    let key = fs::read_to_string(state.path().join("server/federation.key")).unwrap();
    let key = KeyPair::from_pem(&key).unwrap();
    let signature = pki::sign(&key, b"x").unwrap();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &sealed.passport.point).verify(b"x", &signature).unwrap();
}

#[test]
fn an_authority_is_followed_by_another_and_both_are_believed_until_nobody_needs_the_one_before() {
    let state = site();
    let read = |file: &str| fs::read_to_string(state.path().join(file)).unwrap();
    let enroller = enroller(state.path());
    let old = read("authority/ca.key");
    let old_certificate = read("authority/ca.pem");
    enroller.revoke(&[], &[], 30).unwrap();
    let refused = enroller.finish_authority(&facts(), What::Authority).unwrap_err().to_string();
    assert!(refused.contains("was begun"), "{refused}");
    enroller.rotate(&facts(), What::Authority, None).unwrap();
    for file in ["authority/ca.pem", "server/authority.pem", "hosts/ws1/authority.pem"] {
        let all = pki::certificates(read(file).as_bytes()).unwrap();
        assert!(all.len() == 2 && all[1] == old_certificate && all[0] != old_certificate, "{file}");
    }
    assert_eq!(read("authority/ca.crl").matches("BEGIN X509 CRL").count(), 2);
    // Again: nothing is made anew.
    let before = read("authority/ca.pem");
    enroller.rotate(&facts(), What::Authority, None).unwrap();
    assert_eq!(read("authority/ca.pem"), before);
    // Those that it has signed for still need it, each of them.
    for what in [What::TrustedPath, What::Ike] {
        let refused = enroller.finish_authority(&facts(), What::Authority).unwrap_err().to_string();
        assert!(refused.contains("the server, ws1"), "{refused}");
        enroller.rotate(&facts(), what, None).unwrap();
    }
    let refused = enroller.finish_authority(&facts(), What::Authority).unwrap_err().to_string();
    assert!(refused.contains("signed for ws1 still"), "{refused}");
    enroller.rotate(&facts(), What::Host, Some("ws1")).unwrap();
    // Whom either has signed for is revoked in both lists.
    enroller.revoke(&["ws1".to_owned()], &[], 30).unwrap();
    assert_eq!(read("authority/ca.crl").matches("BEGIN X509 CRL").count(), 2);
    let mut held = File::open(state.path().join("authority/former-ca.key")).unwrap();
    let done = enroller.finish_authority(&facts(), What::Authority).unwrap();
    assert!(done.destroyed.iter().any(|path| path.ends_with("former-ca.key")), "{done:?}");
    let mut octets = Vec::new();
    held.read_to_end(&mut octets).unwrap();
    assert!(!octets.is_empty() && octets.iter().all(|octet| *octet == 0));
    for file in ["authority/ca.pem", "server/authority.pem", "hosts/ws1/authority.pem"] {
        assert_eq!(pki::certificates(read(file).as_bytes()).unwrap().len(), 1, "{file}");
        assert_ne!(read(file), old_certificate);
    }
    assert_eq!(read("authority/ca.crl").matches("BEGIN X509 CRL").count(), 1);
    for trace in traces(&old) {
        let found = everything(state.path());
        let found = found.iter().find(|(_, content)| content.windows(trace.len()).any(|part| part == trace));
        assert_eq!(found.map(|(path, _)| path), None);
    }
    // And it signs, as the one before it did.
    enroller.rotate(&facts(), What::Ike, None).unwrap();
}

#[test]
fn the_federations_and_the_second_tunnels_authorities_are_followed_by_others_as_the_sites_is() {
    let mut facts = Facts { layer_port: Some(4500), ..facts() };
    let (name, accreditation) = (HostName::new("ws2").unwrap(), "UNCLASSIFIED".into());
    facts.hosts.push(crate::enrol::HostFacts { name, accreditation, ppk: None, layered: false });
    let state = tempfile::tempdir().unwrap();
    let enroller = enroller(state.path());
    enroller.all(&facts).unwrap();
    let read = |file: &str| fs::read_to_string(state.path().join(file)).unwrap();
    // Who has one layer has nothing of the second, and nobody waits for it.
    for (host, layered) in [("ws1", true), ("ws2", false)] {
        assert_eq!(read(&format!("hosts/{host}/workstation.toml")).contains("layer-port = 4500"), layered);
        assert_eq!(state.path().join(format!("hosts/{host}/layer")).exists(), layered);
    }
    let anew = || Enroller { force: true, ..self::enroller(state.path()) };
    type Follow<'a> = (&'a str, &'a dyn Fn());
    let rotate = |what, host| drop(enroller.rotate(&facts, what, host).unwrap());
    let federation: [Follow<'_>; 2] = [
        ("the server, etcd", &|| rotate(What::Federation, None)),
        ("for etcd still", &|| drop(anew().etcd(&facts).unwrap())),
    ];
    let layer: [Follow<'_>; 2] = [
        ("the server, ws1", &|| rotate(What::Layer, None)),
        ("for ws1 still", &|| rotate(What::Layer, Some("ws1"))),
    ];
    let cases: [(What, &str, [&str; 2], [Follow<'_>; 2]); 2] = [
        (
            What::FederationAuthority,
            "authority/federation-ca",
            ["server/federation-authority.pem", "etcd/authority.pem"],
            federation,
        ),
        (
            What::LayerAuthority,
            "layer/authority/ca",
            ["layer/authority.pem", "hosts/ws1/layer/authority.pem"],
            layer,
        ),
    ];
    for (what, authority, believers, follow) in cases {
        let (old, old_certificate) = (read(&format!("{authority}.key")), read(&format!("{authority}.pem")));
        let site = read("authority/ca.pem");
        assert!(enroller.finish_authority(&facts, what).is_err(), "none was begun");
        rotate(what, None);
        for file in believers {
            let all = pki::certificates(read(file).as_bytes()).unwrap();
            assert!(all.len() == 2 && all[1] == old_certificate && all[0] != old_certificate, "{file}");
        }
        for (needs, rotate) in follow {
            let refused = enroller.finish_authority(&facts, what).unwrap_err().to_string();
            assert!(refused.contains(needs), "{refused}");
            rotate();
        }
        let (_, former) = FORMER.into_iter().find(|(of, _)| *of == what).unwrap();
        assert!(state.path().join(former).exists());
        let former = &former.replace(".pem", ".key");
        let mut held = File::open(state.path().join(former)).unwrap();
        let done = enroller.finish_authority(&facts, what).unwrap();
        assert!(done.destroyed.iter().any(|path| path.ends_with(former)), "{done:?}");
        let mut octets = Vec::new();
        held.read_to_end(&mut octets).unwrap();
        assert!(!octets.is_empty() && octets.iter().all(|octet| *octet == 0));
        for file in believers {
            let all = pki::certificates(read(file).as_bytes()).unwrap();
            assert!(all.len() == 1 && all[0] != old_certificate, "{file}");
        }
        for trace in traces(&old) {
            let found = everything(state.path());
            let found =
                found.iter().find(|(_, content)| content.windows(trace.len()).any(|part| part == trace));
            assert_eq!(found.map(|(path, _)| path), None);
        }
        assert_eq!(read("authority/ca.pem"), site, "the site's own is another");
    }
}

#[test]
fn a_list_of_revoked_servers_is_both_authorities_while_one_follows_the_other() {
    let state = site();
    let read = |file: &str| fs::read_to_string(state.path().join(file)).unwrap();
    let enroller = enroller(state.path());
    let chain = [state.path().join("server/federation-chain.pem")];
    let lists = || read("authority/federation-ca.crl").matches("BEGIN X509 CRL").count();
    enroller.revoke_servers(&chain, 30).unwrap();
    assert_eq!(lists(), 1);
    assert!(!state.path().join("authority/ca.crl").exists(), "no list of hosts is begun");
    enroller.rotate(&facts(), What::FederationAuthority, None).unwrap();
    assert_eq!(lists(), 2);
    enroller.revoke_servers(&[], 30).unwrap();
    assert_eq!(lists(), 2);
    assert!(matches!(
        enroller.rotate(&facts(), What::LayerAuthority, None).unwrap_err(),
        EnrolError::NoLayer
    ));
}
