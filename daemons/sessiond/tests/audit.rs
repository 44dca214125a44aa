//! What the log proves, what tampering leaves, and what a full disk denies.

mod common;

use common::*;
use levee_ipc::client::{Dropped, RefusalKind, Reply, Request, TpsToSessiond};
use levee_policy::audit::{Body, FaultKind, Report, Verifier, part_name};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn verify(site: &Site, log: &str, expected: Option<u64>) -> Report {
    let public = site.public_key();
    let check = |message: &[u8], signature: &[u8]| {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &public).verify(message, signature).is_ok()
    };
    let mut verifier = Verifier::new(Some(first_key(&site.directory)), check);
    for line in log.split_inclusive('\n') {
        verifier.line(line.as_bytes());
    }
    verifier.finish(expected)
}

fn a_session(world: &World) {
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    client.open("SECRET");
    client.open("UNCLASSIFIED");
    assert!(matches!(client.call(Request::Logout), Reply::LoggedOut));
}

#[test]
fn a_trusted_path_that_came_to_nothing_is_in_the_log_with_its_network_and_one_that_was_closed_is_not() {
    let world = World::start(Site::new());
    let one = |reason: &str, from: Option<&str>, count| Dropped {
        reason: reason.to_owned(),
        from: from.map(|from| from.parse().unwrap()),
        count,
    };
    world
        .tps
        .send(&TpsToSessiond::Dropped(vec![
            one("closed", Some("198.51.100.0/24"), 9),
            one("handshake", Some("192.0.2.0/24"), 3),
            one("malformed", Some("2001:db8:7::/48"), 1),
            // Of more networks than are told apart.
            one("handshake", None, 70),
        ]))
        .unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    let log = loop {
        let log = world.place.log();
        if log.contains("2001:db8:7::/48") {
            break log;
        }
        assert!(Instant::now() < until, "{log}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let line = log.lines().find(|line| line.contains("trusted path from 192.0.2.0/24")).expect("a record");
    assert!(line.contains("\"denied\"") && line.contains("handshake: 3 since the last record"), "{line}");
    assert!(log.contains("malformed: 1 since") && !log.contains("198.51.100"), "{log}");
}

#[test]
fn the_log_of_a_day_verifies_across_restarts_and_ends_in_a_signed_checkpoint() {
    let world = World::start(Site::new());
    a_session(&world);
    let site = world.stop();
    let world = World::start(site);
    a_session(&world);
    // A kill leaves what was synced, and the next run goes on from there.
    let world = World::start(world.kill());
    let refused = world.connect("ws1").login("ada", "a guess");
    assert_eq!(refusal(&refused), Some(RefusalKind::Credentials));
    a_session(&world);
    let site = world.stop();
    let log = site.log();
    let report = verify(&site, &log, None);
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!(report.lines, log.lines().count() as u64);
    assert!(report.checkpoints >= 2, "{report:#?}");
    assert_eq!(report.signed, report.lines - 1, "all but the last checkpoint itself is signed");
    // Who, from where, at which label, what, verdict and reason; and no password.
    assert!(log.contains(r#""user":"ada","host":"ws1","label":"SECRET","action":"session""#), "{log}");
    assert!(log.contains("from 10.81.") && log.contains(" to 10.80.0.1:80/tcp"), "{log}");
    assert!(
        log.contains(r#""user":"ada","host":"ws1","action":"sign-on","object":"ws1","verdict":"denied""#),
        "{log}"
    );
    assert_eq!(log.matches(r#""action":"start""#).count(), 3, "{log}");
    assert_eq!(log.matches(r#""action":"stop""#).count(), 2, "one was a kill: {log}");
    assert!(!log.contains("a guess") && !log.contains(ADA));
}

#[test]
fn an_altered_missing_reordered_or_cut_off_record_is_found() {
    let world = World::start(Site::new());
    a_session(&world);
    let site = world.stop();
    let log = site.log();
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    assert!(lines.len() >= 5);
    assert!(verify(&site, &log, Some(lines.len() as u64)).is_sound());

    let kinds = |log: &str, expected| -> Vec<FaultKind> {
        verify(&site, log, expected).faults.iter().map(|fault| fault.kind).collect()
    };
    let altered = log.replacen("\"SECRET\"", "\"CONFIDENTIAL\"", 1);
    assert!(kinds(&altered, None).contains(&FaultKind::Altered));
    let missing: String = lines.iter().enumerate().filter(|(n, _)| *n != 1).map(|(_, line)| *line).collect();
    assert!(!kinds(&missing, None).is_empty());
    let mut swapped = lines.clone();
    swapped.swap(1, 2);
    assert!(!kinds(&swapped.concat(), None).is_empty());
    let cut = lines[..lines.len() - 2].concat();
    assert!(kinds(&cut, Some(lines.len() as u64)).contains(&FaultKind::CutOff));
}

#[test]
fn a_log_that_was_changed_while_sessiond_was_down_stops_it_from_starting() {
    let world = World::start(Site::new());
    a_session(&world);
    let site = world.stop();
    let log = site.log();
    let path = site.directory.join("audit.jsonl");
    let shorter: String = log.split_inclusive('\n').take(2).collect();
    std::fs::write(&path, shorter).unwrap();
    let Err(site) = World::try_start(site) else { panic!("it has started") };
    // With the log as it was, it does.
    std::fs::write(&path, log).unwrap();
    drop(World::start(site));
}

#[test]
fn without_its_state_a_log_whose_parts_are_there_is_not_begun_anew() {
    let world = World::start(Site::new());
    a_session(&world);
    let site = world.stop();
    let at = |name: &str| site.directory.join(name);
    std::fs::rename(at("audit.jsonl"), at(&part_name(0))).unwrap();
    std::fs::remove_file(at("audit.state")).unwrap();
    let key = std::fs::read(at("audit.first-key")).unwrap();
    let Err(site) = World::try_start(site) else { panic!("it has started") };
    assert_eq!(std::fs::read(site.directory.join("audit.first-key")).unwrap(), key);
}

/// A file system of so many bytes, gone with the test.
struct Small {
    at: tempfile::TempDir,
}

impl Small {
    fn new(bytes: u64) -> Self {
        let at = tempfile::tempdir().unwrap();
        let options = format!("size={bytes}");
        let status = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "levee-sessiond-test"])
            .arg(at.path())
            .status()
            .unwrap();
        assert!(status.success(), "mounting a tmpfs needs root");
        Self { at }
    }

    fn path(&self) -> &Path {
        self.at.path()
    }

    /// Takes all that is free; what the log has kept for itself stays its own. The file that took it.
    fn fill(&self) -> PathBuf {
        let filler = self.path().join("filler");
        let file = std::fs::File::create(&filler).unwrap();
        let (mut at, mut size) = (0, 8u64 << 20);
        while size >= 4096 {
            match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), at, size) {
                Ok(()) => at += size,
                Err(_) => size /= 2,
            }
        }
        filler
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.at.path()).status();
    }
}

#[test]
fn on_a_full_disk_new_grants_are_refused_and_sessions_still_end() {
    let disk = Small::new(8 << 20);
    let world = World::start(Site::at(disk.path()));
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    client.open("SECRET");
    let filler = disk.fill();
    // The space kept for grants runs out in the end; then the answer says why.
    let mut opened = 0;
    let reason = loop {
        match client.level("SECRET") {
            Reply::Opened(_) => opened += 1,
            Reply::Refused { kind: RefusalKind::Unavailable, reason } => break reason,
            other => panic!("{other:?}"),
        }
        assert!(opened < 10_000, "a full disk refuses grants");
    };
    assert!(reason.contains("audit log"), "{reason}");
    assert!(opened > 20, "only {opened} grants had room");
    assert!(matches!(client.call(Request::Logout), Reply::LoggedOut), "an end needs no permission");
    assert_eq!(world.sessions_in_vaults(), 0);
    // With room again, it grants again.
    std::fs::remove_file(&filler).unwrap();
    client.sign_on("ada", ADA);
    client.open("SECRET");
    let site = world.stop();
    let report = verify(&site, &site.log(), None);
    assert!(report.is_sound(), "{report:#?}");
}

#[test]
fn on_a_full_disk_what_one_person_is_refused_has_nobody_elses_end_refused() {
    use levee_ipc::operator::{Answer, Command};
    use rustix::process::{Signal, kill_process};
    let disk = Small::new(8 << 20);
    let world = World::start(Site::at(disk.path()));
    assert_eq!(world.status().alarms, [""; 0]);
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    let filler = disk.fill();
    while matches!(client.level("SECRET"), Reply::Opened(_)) {}
    assert!(world.status().alarms.iter().any(|alarm| alarm.contains("too little room")));
    // Both are asked while it stands still, and are heard in one turn.
    for round in 0..20 {
        let operator = world.operator_connected();
        std::thread::sleep(std::time::Duration::from_millis(50));
        kill_process(world.child.pid, Signal::STOP).unwrap();
        client.ask(Request::Level(label("SECRET"), None));
        let disable = Command::Disable("ugo".parse().unwrap(), round % 2 == 0);
        operator.send(&disable).unwrap();
        kill_process(world.child.pid, Signal::CONT).unwrap();
        assert!(matches!(client.next(), Some(Reply::Refused { kind: RefusalKind::Unavailable, .. })));
        let answer = receive(&operator).unwrap();
        assert!(matches!(answer, Answer::Ended), "{answer:?}");
    }
    std::fs::remove_file(&filler).unwrap();
    assert_eq!(world.status().alarms, [""; 0]);
    let site = world.stop();
    let report = verify(&site, &site.log(), None);
    assert!(report.is_sound(), "{report:#?}");
}

#[test]
fn on_a_full_disk_a_session_of_the_run_before_does_not_go_on() {
    let disk = Small::new(8 << 20);
    let world = World::start(Site::at(disk.path()));
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    client.open("SECRET");
    let filler = disk.fill();
    // Until there is no room for a grant, nor for a shorter one: the restoring's is between them.
    while matches!(client.level("SECRET"), Reply::Opened(_)) {}
    let other = world.connect("ws2");
    while matches!(other.login("ugo", UGO), Reply::LoggedIn(_)) {
        assert!(matches!(other.call(Request::Logout), Reply::LoggedOut));
    }
    assert_eq!(world.sessions_in_vaults(), 1, "what it has, it keeps");
    let world = World::start(world.kill());
    world.until("its end", |shared| shared.vaults.values().all(|sessions| sessions.is_empty()));
    let trace = world.trace();
    let kept = trace.iter().rposition(|line| line.starts_with("open")).unwrap();
    let ended = trace.iter().rposition(|line| line.starts_with("close")).unwrap();
    assert!(kept < ended, "no vault was told of it again: {trace:#?}");
    // With room it does.
    std::fs::remove_file(&filler).unwrap();
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    client.open("SECRET");
    let world = World::start(world.kill());
    world.until("it is there again", |shared| shared.vaults.values().any(|sessions| !sessions.is_empty()));
    let log = world.stop().log();
    assert!(log.contains(r#""action":"restore""#), "{log}");
}

#[test]
fn a_checkpoint_is_signed_while_it_runs() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    for _ in 0..70 {
        client.open("SECRET");
    }
    world.until("a checkpoint", |shared| shared.trace.iter().any(|line| line.starts_with("checkpoint")));
    let site = world.kill();
    let log = site.log();
    let checkpoints = log.lines().filter(|line| {
        let record: levee_policy::audit::Record = serde_json::from_str(line).unwrap();
        matches!(record.body, Body::Checkpoint(_))
    });
    assert_eq!(checkpoints.count(), 1);
    assert!(verify(&site, &log, None).is_sound());
}
