use super::*;
use levee_policy::audit::{Action, checkpoint_message};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData as _};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
};
use std::time::{SystemTime, UNIX_EPOCH};

/// A state directory as a server leaves it: a log of 6 records, the last of them a checkpoint.
fn state() -> tempfile::TempDir {
    state_signed(&PKCS_ECDSA_P256_SHA256, &ECDSA_P256_SHA256_ASN1_SIGNING)
}

fn state_signed(
    keys: &'static rcgen::SignatureAlgorithm,
    signing: &'static EcdsaSigningAlgorithm,
) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let (server, sessiond) = (directory.path().join("server"), directory.path().join("sessiond"));
    std::fs::create_dir(&server).unwrap();
    std::fs::create_dir(&sessiond).unwrap();
    let key = KeyPair::generate_for(keys).unwrap();
    std::fs::write(server.join("audit.pub"), key.public_key_pem()).unwrap();
    let auditor = pki::key(Curve::P384).unwrap();
    std::fs::write(directory.path().join("auditor.key"), auditor.serialize_pem()).unwrap();
    std::fs::write(sessiond.join("audit.first-key"), sealed_for(&auditor, &[7; 32])).unwrap();
    let random = SystemRandom::new();
    let signer = EcdsaKeyPair::from_pkcs8(signing, key.serialized_der(), &random).unwrap();
    let mut sealer = Sealer::new(AuditKey::from_bytes([7; 32]));
    let mut log = Vec::new();
    for (number, (user, verdict)) in [
        ("ada", Verdict::Granted),
        ("ugo", Verdict::Denied),
        ("ada", Verdict::Noted),
        ("mia", Verdict::Granted),
        ("ugo", Verdict::Granted),
    ]
    .into_iter()
    .enumerate()
    {
        let event = Event {
            user: Some(user.parse().unwrap()),
            host: Some("ws1".parse().unwrap()),
            label: Some("SECRET//NATO".parse().unwrap()),
            action: Action::Session,
            object: "harbour".to_owned(),
            verdict,
            reason: "because\u{1b}[2J".to_owned(),
        };
        log.extend(sealer.seal(1_700_000_000_000 + 1_000 * number as u64, &event).unwrap());
    }
    let (count, hash) = (sealer.count(), *sealer.hash());
    let signature = signer.sign(&random, &checkpoint_message(count, &hash)).unwrap();
    log.extend(sealer.seal_checkpoint(1_700_000_009_000, count, hash, signature.as_ref().to_vec()).unwrap());
    // As sessiond does: with space ahead of its end, here more of it than a record may be long.
    log.extend([b' '; 40_000]);
    std::fs::write(sessiond.join("audit.jsonl"), log).unwrap();
    std::fs::write(sessiond.join("audit.state"), *sealer.save()).unwrap();
    directory
}

fn verify(state: &Path) -> Result<Report, String> {
    verified(Which { files: Vec::new(), state: Some(state.to_owned()) }).map(|(_, report)| report)
}

/// A first key, as sessiond seals it.
fn sealed_for(auditor: &KeyPair, first: &[u8; 32]) -> String {
    use hpke::kem::DhP384HkdfSha384;
    use hpke::{Deserializable as _, Kem, Serializable as _};
    let public = <DhP384HkdfSha384 as Kem>::PublicKey::from_bytes(auditor.public_key_raw()).unwrap();
    let (key, sealed) = hpke::single_shot_seal::<
        hpke::aead::AesGcm256,
        hpke::kdf::HkdfSha384,
        DhP384HkdfSha384,
    >(&hpke::OpModeS::Base, &public, b"levee audit first key", first, &[])
    .unwrap();
    String::from(Hex([&key.to_bytes()[..], &sealed].concat())) + "\n"
}

#[test]
fn seals_are_checked_with_the_auditors_key_alone_and_without_it_that_is_said() {
    let state = state();
    let which = || Which { files: Vec::new(), state: Some(state.path().to_owned()) };
    let with = |auditor: Option<PathBuf>| {
        Verify {
            which: which(),
            signer: None,
            auditor,
            first_key: None,
            records: None,
            kept: Vec::new(),
            json: false,
        }
        .report()
        .map(|(_, report)| report)
    };
    let told = with(Some(state.path().join("auditor.key"))).unwrap();
    assert!(told.is_sound() && told.statement[0].starts_with("Each of the 6 records"), "{told:#?}");
    let told = with(None).unwrap();
    assert!(told.is_sound() && told.statement[0].contains("Seals were not checked"), "{told:#?}");
    // Another auditor's, one for another use, and none at all.
    let other = pki::key(Curve::P384).unwrap();
    std::fs::write(state.path().join("other.key"), other.serialize_pem()).unwrap();
    let why = with(Some(state.path().join("other.key"))).unwrap_err();
    assert!(why.contains("not a first key that was sealed for this auditor"), "{why}");
    std::fs::write(state.path().join("other.key"), pki::key(Curve::P256).unwrap().serialize_pem()).unwrap();
    assert!(with(Some(state.path().join("other.key"))).is_err());
    assert!(with(Some(state.path().join("nowhere.key"))).is_err());
}

fn verified(which: Which) -> Result<(Log, Report), String> {
    let auditor = which.state.as_ref().map(|state| state.join("auditor.key"));
    Verify { which, signer: None, auditor, first_key: None, records: None, kept: Vec::new(), json: false }
        .report()
}

#[test]
fn a_log_in_several_files_is_one_and_a_fault_is_told_at_its_line_of_its_file() {
    let state = state();
    let at = |name: &str| state.path().join("sessiond").join(name);
    let text = std::fs::read_to_string(at("audit.jsonl")).unwrap();
    let all: Vec<&str> = text.split_inclusive('\n').collect();
    let full = ["audit-00000000000000000000.jsonl", "audit-00000000000000000002.jsonl"];
    std::fs::write(at(full[0]), all[..2].concat()).unwrap();
    std::fs::write(at(full[1]), all[2..5].concat()).unwrap();
    std::fs::write(at("audit.jsonl"), all[5..].concat()).unwrap();
    // Neither is part of the log.
    std::fs::write(at("audit-old.jsonl"), "nonsense\n").unwrap();
    let report = verify(state.path()).unwrap();
    assert!(report.is_sound(), "{:?}", report.faults);
    assert_eq!((report.lines, report.checkpoints, report.signed), (6, 1, 5));
    // Behind the space that the file has ahead of the log's end, or in the midst, nothing is passed over.
    std::fs::write(at("audit.jsonl"), format!("{}\n{text}", " ".repeat(40_000))).unwrap();
    assert!(!verify(state.path()).unwrap().is_sound());
    std::fs::write(at("audit.jsonl"), all[5..].concat()).unwrap();

    let altered = all[3].replace("mia", "eve");
    std::fs::write(at(full[1]), [all[2], &altered, all[4]].concat()).unwrap();
    let which = || Which { files: Vec::new(), state: Some(state.path().to_owned()) };
    let (log, report) = verified(which()).unwrap();
    let told = render(&log, &report, Paint::plain());
    assert!(told.contains("audit-00000000000000000002.jsonl:2: record 3 was altered"), "{told}");

    // One that was moved away is missed, and found where it is named.
    std::fs::write(at(full[1]), all[2..5].concat()).unwrap();
    let away = state.path().join("archive");
    std::fs::rename(at(full[0]), &away).unwrap();
    assert!(!verify(state.path()).unwrap().is_sound());
    let files = vec![away, at(full[1]), at("audit.jsonl")];
    assert!(verified(Which { files, ..which() }).unwrap().1.is_sound());
    // Cut off at the end: behind the last line of the last file.
    std::fs::write(at("audit.jsonl"), "").unwrap();
    std::fs::write(at(full[0]), all[..2].concat()).unwrap();
    let (log, report) = verified(which()).unwrap();
    assert!(
        render(&log, &report, Paint::plain()).contains("audit.jsonl:1: the log ends after 5"),
        "{report:?}"
    );
}

fn change(state: &Path, with: impl FnOnce(&mut Vec<String>)) {
    let path = state.join("sessiond/audit.jsonl");
    let mut lines: Vec<String> =
        std::fs::read_to_string(&path).unwrap().lines().map(|line| format!("{line}\n")).collect();
    with(&mut lines);
    std::fs::write(path, lines.concat()).unwrap();
}

#[test]
fn a_whole_log_is_proved_from_its_state_directory_alone() {
    let state = state();
    let report = verify(state.path()).unwrap();
    assert!(report.is_sound(), "{:?}", report.faults);
    assert_eq!((report.lines, report.checkpoints, report.signed), (6, 1, 5));
}

#[test]
fn each_kind_of_tampering_is_found() {
    type Change = fn(&mut Vec<String>);
    let changes: [(&str, Change); 6] = [
        ("altered", |lines| lines[1] = lines[1].replace("denied", "granted")),
        ("missing", |lines| drop(lines.remove(2))),
        ("reordered", |lines| lines.swap(0, 1)),
        ("cut off at a record", |lines| lines.truncate(3)),
        ("cut off within one", |lines| lines[5].truncate(40)),
        ("a line that is far too long", |lines| lines[3] = "x".repeat(100_000) + "\n"),
    ];
    for (what, with) in changes {
        let state = state();
        change(state.path(), with);
        assert!(!verify(state.path()).unwrap().is_sound(), "{what} was not found");
    }
}

#[test]
fn a_checkpoint_by_another_key_does_not_hold() {
    let state = state();
    let other = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    std::fs::write(state.path().join("server/audit.pub"), other.public_key_pem()).unwrap();
    let report = verify(state.path()).unwrap();
    assert_eq!((report.faults.len(), report.checkpoints), (1, 0), "{:?}", report.faults);
}

#[test]
fn a_checkpoint_may_be_signed_with_a_key_on_p384_and_with_none_of_another_kind() {
    let state = state_signed(&PKCS_ECDSA_P384_SHA384, &ECDSA_P384_SHA384_ASN1_SIGNING);
    let report = verify(state.path()).unwrap();
    assert_eq!((report.faults.len(), report.checkpoints), (0, 1), "{:?}", report.faults);
    for (kind, said) in [(&PKCS_ECDSA_P384_SHA384, None), (&PKCS_ED25519, Some("neither a P-256"))] {
        let other = KeyPair::generate_for(kind).unwrap();
        std::fs::write(state.path().join("server/audit.pub"), other.public_key_pem()).unwrap();
        match (verify(state.path()), said) {
            (Ok(report), None) => assert_eq!((report.faults.len(), report.checkpoints), (1, 0)),
            (Err(why), Some(said)) => assert!(why.contains(said), "{why}"),
            (other, _) => panic!("{other:?}"),
        }
    }
}

#[test]
fn records_are_chosen_by_every_filter() {
    let state = state();
    let log = std::fs::read_to_string(state.path().join("sessiond/audit.jsonl")).unwrap();
    let records: Vec<Record> =
        log.trim_end().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let show = || Show {
        which: Which { files: Vec::new(), state: None },
        user: None,
        host: None,
        label: None,
        action: None,
        verdict: None,
        since: None,
        until: None,
        follow: false,
        json: false,
    };
    let count = |show: Show| records.iter().filter(|record| show.wants(record)).count();
    assert_eq!(count(show()), 6);
    assert_eq!(count(Show { user: Some("ada".parse().unwrap()), ..show() }), 2);
    assert_eq!(count(Show { verdict: Some(Went::Denied), ..show() }), 1);
    assert_eq!(count(Show { label: Some("SECRET//NATO".parse().unwrap()), ..show() }), 5);
    assert_eq!(count(Show { label: Some("secret//nato".parse().unwrap()), ..show() }), 5);
    assert_eq!(count(Show { label: Some("SECRET".parse().unwrap()), ..show() }), 0);
    assert_eq!(count(Show { label: Some("SECRET//NATO,MED".parse().unwrap()), ..show() }), 0);
    assert_eq!(count(Show { host: Some("ws2".parse().unwrap()), ..show() }), 0);
    assert_eq!(count(Show { action: Some("login".to_owned()), ..show() }), 0);
    assert_eq!(count(Show { since: Some(1_700_000_003_000), ..show() }), 3);
    assert_eq!(count(Show { until: Some(1_700_000_002_000), ..show() }), 3);
    assert_eq!(
        one_line(&records[1], Paint::plain()),
        "2023-11-14T22:13:21.000Z ugo@ws1 SECRET//NATO session harbour: denied: because\u{fffd}[2J"
    );
    assert_eq!(
        one_line(&records[5], Paint::plain()),
        "2023-11-14T22:13:29.000Z checkpoint of the first 5 records"
    );
}

#[test]
fn a_time_is_read_as_such_or_as_a_time_ago() {
    assert_eq!(since("1970-01-01T00:00:01Z"), Ok(1_000));
    let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let hour_ago = since("1h").unwrap();
    assert!((now - 3_600_000..now - 3_590_000).contains(&hour_ago), "{hour_ago}");
    for wrong in ["", "h", "10", "1w", "yesterday", "1969-12-31T23:59:59Z"] {
        assert!(since(wrong).is_err(), "{wrong:?} was taken");
    }
}

#[test]
fn records_are_shown_once_each_and_an_instant_is_always_as_wide() {
    assert_eq!(instant(0), "1970-01-01T00:00:00.000Z");
    assert_eq!(instant(1_700_000_001_020), "2023-11-14T22:13:21.020Z");
    let state = state();
    let log = std::fs::read_to_string(state.path().join("sessiond/audit.jsonl")).unwrap();
    let show = Show {
        which: Which { files: Vec::new(), state: None },
        user: None,
        host: None,
        label: None,
        action: None,
        verdict: None,
        since: None,
        until: None,
        follow: true,
        json: true,
    };
    let (mut told, mut out) = (Told::default(), Vec::new());
    for lines in [2, 2, 6] {
        let next = told.next;
        for line in log.split_inclusive('\n').take(lines) {
            show.tell(line.as_bytes(), next, &mut told, Paint::plain(), &mut out).unwrap();
        }
        // What is only half written yet.
        show.tell(b"{\"seq\":", next, &mut told, Paint::plain(), &mut out).unwrap();
    }
    let shown = String::from_utf8(out).unwrap();
    let numbers: Vec<u64> =
        shown.lines().map(|line| serde_json::from_str::<Record>(line).unwrap().seq).collect();
    assert_eq!((numbers, told.shown, told.unread), ((0..6).collect(), 6, 0));
}

#[test]
fn who_follows_sees_a_record_that_is_written_over_space() {
    let state = state();
    let path = state.path().join("sessiond/audit.jsonl");
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let log = || read::Log::open(vec![path.clone()]).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(60);
    file.set_modified(long_ago).unwrap();
    let mut seen = None;
    assert_eq!([(); 3].map(|()| log().may_have_grown(&mut seen)), [true, false, false]);
    let (length, end) = (file.metadata().unwrap().len(), file.metadata().unwrap().len() - 40_000);
    std::os::unix::fs::FileExt::write_all_at(&file, b"{}\n", end).unwrap();
    assert_eq!(file.metadata().unwrap().len(), length);
    // As long as another may have come within the same tick.
    assert_eq!([(); 3].map(|()| log().may_have_grown(&mut seen)), [true; 3]);
    file.set_modified(long_ago + Duration::from_secs(1)).unwrap();
    assert_eq!([(); 2].map(|()| log().may_have_grown(&mut seen)), [true, false]);
}

#[test]
fn a_record_that_is_being_written_over_space_is_read_once_it_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let (first, second) = (b"{\"one\":1}\n", b"{\"another\":2}\n");
    // The kernel has the beginning there, or the end: a reader does not wait for who writes.
    for seen in [0..5, 5..second.len()] {
        let mut text = [&first[..], &[b' '; 100]].concat();
        text[first.len()..][seen.clone()].copy_from_slice(&second[seen]);
        std::fs::write(&path, text).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let writer = file.try_clone().unwrap();
        let writes = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            std::os::unix::fs::FileExt::write_all_at(&writer, second, first.len() as u64).unwrap();
        });
        let mut lines = Vec::new();
        read::lines(&path, &file, |line| {
            lines.push(line.to_vec());
            Ok(())
        })
        .unwrap();
        writes.join().unwrap();
        assert_eq!(lines, [&first[..], second]);
    }
}

#[test]
fn that_a_person_has_no_record_is_told_from_that_none_of_theirs_matches() {
    let log = std::fs::read_to_string(state().path().join("sessiond/audit.jsonl")).unwrap();
    let nothing = |user: &str| {
        let show = Show {
            which: Which { files: Vec::new(), state: None },
            user: Some(user.parse().unwrap()),
            host: None,
            label: None,
            action: Some("no-such-action".to_owned()),
            verdict: None,
            since: None,
            until: None,
            follow: false,
            json: false,
        };
        let (mut told, mut out) = (Told::default(), Vec::new());
        for line in log.split_inclusive('\n') {
            show.tell(line.as_bytes(), 0, &mut told, Paint::plain(), &mut out).unwrap();
        }
        assert!(out.is_empty());
        show.nothing(&told)
    };
    assert_eq!(nothing("ada"), "no record of the log matches");
    assert_eq!(nothing("nosuch"), "the log has no record of a person `nosuch`");
}

#[test]
fn checkpoints_of_keys_that_follow_each_other_hold_and_none_of_a_key_that_was_followed() {
    let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let (one, two, three) = (key(), key(), key());
    let vouched = |by: &KeyPair, next: &KeyPair| {
        let message = levee_policy::audit::succession_message(&next.subject_public_key_info());
        let signature = pki::sign(by, &message).unwrap();
        pki::pem(levee_policy::audit::SUCCESSION, &signature).unwrap() + &next.public_key_pem()
    };
    let place = tempfile::tempdir().unwrap();
    let read = |text: &str| {
        let path = place.path().join("audit.pub");
        std::fs::write(&path, text).unwrap();
        Signers::read(&path)
    };
    let first = one.public_key_pem();
    let mut signers = read(&(first.clone() + &vouched(&one, &two) + &vouched(&two, &three))).unwrap();
    let signed = |key: &KeyPair| pki::sign(key, b"a checkpoint").unwrap();
    assert!(signers.has_signed(b"a checkpoint", &signed(&one)));
    assert!(signers.has_signed(b"a checkpoint", &signed(&one)));
    assert!(signers.has_signed(b"a checkpoint", &signed(&three)), "the second may have signed nothing");
    for before in [&one, &two] {
        assert!(!signers.has_signed(b"a checkpoint", &signed(before)), "it was followed");
    }
    // Who is not vouched for by the one before is nobody.
    for wrong in [
        first.clone() + &two.public_key_pem(),
        first.clone() + &vouched(&two, &two),
        first.clone() + &vouched(&one, &two) + &vouched(&one, &three),
        vouched(&one, &two),
        first.clone() + &vouched(&one, &two).replace("-----BEGIN PUBLIC KEY", "-----BEGIN A KEY"),
        first.clone() + vouched(&one, &two).split_once("-----BEGIN PUBLIC").unwrap().0,
        String::new(),
    ] {
        assert!(read(&wrong).is_err(), "{wrong}");
    }
}
