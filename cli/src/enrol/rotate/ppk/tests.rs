use super::*;
use crate::enrol::What;
use crate::enrol::rotate::tests::{enroller, everything, facts};
use levee_policy::audit::{Action, AuditKey, Event, PPK, Sealer, Verdict, ppk_used};
use std::fs::{self, File};
use std::io::Read as _;

/// A site in which two hosts share a PPK with the server.
fn sharing() -> Facts {
    let mut facts = facts();
    for (name, id) in [("ws1", "ws1-2026"), ("ws2", "ws2-2026")] {
        facts.hosts.retain(|host| host.name.as_str() != name);
        facts.hosts.push(HostFacts {
            name: HostName::new(name).unwrap(),
            accreditation: "UNCLASSIFIED".into(),
            ppk: Some(PpkId::new(id).unwrap()),
            layered: false,
        });
    }
    facts
}

fn read(state: &Path, file: &str, passphrase: Option<&[u8]>) -> (String, Vec<u8>) {
    let text = fs::read_to_string(state.join(file)).unwrap();
    (pki::ppk_id(&text).unwrap().to_string(), pki::read_ppk(&text, passphrase).unwrap().to_vec())
}

/// Has the audit log say that a host has used a PPK.
fn log(state: &Path, host: &str, reason: String) {
    let event = Event {
        user: None,
        host: Some(HostName::new(host).unwrap()),
        label: None,
        action: Action::Negotiate,
        object: PPK.into(),
        verdict: Verdict::Noted,
        reason,
    };
    fs::create_dir_all(state.join("sessiond")).unwrap();
    let line = Sealer::new(AuditKey::from_bytes([7; 32])).seal(1_000, &event).unwrap();
    fs::write(state.join("sessiond/audit.jsonl"), line).unwrap();
}

const OURS: &str = "server/ppk/ws1.key";
const FORMER: &str = "server/ppk/former/ws1.key";
const THEIRS: &str = "hosts/ws1/ppk.key";

#[test]
fn a_ppk_is_followed_by_another_of_another_name_and_the_old_one_is_destroyed_at_the_end() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let enroller = enroller(state);
    enroller.all(&sharing()).unwrap();
    let other = fs::read(state.join("server/ppk/ws2.key")).unwrap();
    let old = read(state, OURS, None);
    assert_eq!((old.0.as_str(), &old), ("ws1-2026", &read(state, THEIRS, None)));
    assert!(matches!(enroller.finish_ppk(&sharing(), "ws1"), Err(EnrolError::NotBegun)));
    let mut held = File::open(state.join(THEIRS)).unwrap();
    let done = enroller.rotate(&sharing(), What::Ppk, Some("ws1")).unwrap();
    assert!(done.destroyed.is_empty(), "the server has the old one still: {done:?}");
    let new = read(state, OURS, None);
    assert!(new.0.starts_with("ws1-2026.") && new.0 != old.0 && new.1 != old.1);
    assert_eq!((read(state, FORMER, None), read(state, THEIRS, None)), (old.clone(), new.clone()));
    let mut octets = Vec::new();
    held.read_to_end(&mut octets).unwrap();
    assert!(octets.iter().all(|octet| *octet == 0), "the bundle's half is overwritten");
    // Again: the same, and a bundle that a kill has left with the old one has the new one.
    fs::copy(state.join(FORMER), state.join(THEIRS)).unwrap();
    enroller.rotate_ppk(&sharing(), "ws1", None).unwrap();
    assert_eq!([OURS, THEIRS].map(|file| read(state, file, None)), [new.clone(), new.clone()]);
    // It ends when the audit log says that this host has used this PPK, and not for what it says of others.
    let refused = |enroller: &Enroller<'_>| enroller.finish_ppk(&sharing(), "ws1").unwrap_err().to_string();
    assert!(refused(&enroller).contains("is not known"), "there is no log");
    let used = |id: &str| ppk_used(&PpkId::new(id).unwrap());
    for (host, reason) in [("ws2", used(&new.0)), ("ws1", used(&old.0)), ("ws1", new.0.clone())] {
        log(state, host, reason);
        assert!(refused(&enroller).contains("does not say that ws1 has used"), "{host}");
    }
    log(state, "ws1", used(&new.0));
    let mut held = File::open(state.join(FORMER)).unwrap();
    let done = enroller.finish_ppk(&sharing(), "ws1").unwrap();
    assert!(done.destroyed.iter().any(|path| path.ends_with(FORMER)), "{done:?}");
    octets.clear();
    held.read_to_end(&mut octets).unwrap();
    assert!(!octets.is_empty() && octets.iter().all(|octet| *octet == 0));
    assert!(!state.join(FORMER).exists() && read(state, OURS, None) == new);
    let text = pki::write_ppk(&PpkId::new("x").unwrap(), &old.1, None).unwrap();
    let base64 = text.lines().nth(2).unwrap().as_bytes().to_vec();
    for (path, content) in everything(state) {
        let trace =
            [&old.1[..], &base64].iter().any(|trace| content.windows(trace.len()).any(|at| at == *trace));
        assert!(!trace, "{}", path.display());
    }
    assert_eq!(fs::read(state.join("server/ppk/ws2.key")).unwrap(), other);
    assert!(matches!(enroller.finish_ppk(&sharing(), "ws1"), Err(EnrolError::NotBegun)));
}

#[test]
fn each_half_of_a_ppk_that_is_rotated_stays_encrypted_with_its_own_passphrase() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let passphrase = |text: &str| Some(Passphrase::new(text.as_bytes().to_vec()));
    let with = |text: &str| Enroller { passphrase: passphrase(text), ..enroller(state) };
    enroller(state).all(&sharing()).unwrap();
    Enroller { force: true, ..with("ours") }.ppk(&sharing(), "ws1", passphrase("theirs")).unwrap();
    let before = everything(state);
    for (ours, theirs) in [("theirs", "theirs"), ("ours", "ours")] {
        with(ours).rotate_ppk(&sharing(), "ws1", passphrase(theirs)).unwrap_err();
    }
    enroller(state).rotate_ppk(&sharing(), "ws1", passphrase("theirs")).unwrap_err();
    with("ours").rotate_ppk(&sharing(), "ws1", None).unwrap_err();
    assert_eq!(everything(state), before, "nothing has changed");
    let old = read(state, OURS, Some(b"ours"));
    with("ours").rotate_ppk(&sharing(), "ws1", passphrase("theirs")).unwrap();
    let new = read(state, OURS, Some(b"ours"));
    assert_eq!(
        (read(state, THEIRS, Some(b"theirs")), read(state, FORMER, Some(b"ours"))),
        (new.clone(), old)
    );
    // Anew by force: nothing is left of a rotation.
    Enroller { force: true, ..with("ours") }.ppk(&sharing(), "ws1", None).unwrap();
    assert!(!state.join(FORMER).exists() && read(state, OURS, Some(b"ours")).0 == "ws1-2026");
}

#[test]
fn a_name_of_a_ppk_is_nobody_elses_and_never_too_long() {
    let state = tempfile::tempdir().unwrap();
    let mut facts = sharing();
    let long = PpkId::new(&"x".repeat(64)).unwrap();
    facts.hosts[0].ppk = Some(long.clone());
    let enroller = enroller(state.path());
    let ids: Vec<PpkId> = (0..4).map(|_| enroller.next_ppk_id(&facts, &long).unwrap()).collect();
    assert!(ids.iter().all(|id| id.as_str().len() == 64 && *id != long) && ids[0] != ids[1]);
    // A file of before had no name above it: the site file's counts, and stands above it from then on.
    enroller.all(&facts).unwrap();
    let path = state.path().join("server/ppk/ws2.key");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.split_once('\n').unwrap().1).unwrap();
    enroller.rotate_ppk(&facts, "ws2", None).unwrap();
    assert_eq!(read(state.path(), "server/ppk/former/ws2.key", None).0, "ws2-2026");
    for (host, why) in [("ws9", "no host"), ("ws3", "no PPK")] {
        facts.hosts.push(HostFacts {
            name: HostName::new("ws3").unwrap(),
            accreditation: String::new(),
            ppk: None,
            layered: false,
        });
        let refused = enroller.rotate_ppk(&facts, host, None).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}
