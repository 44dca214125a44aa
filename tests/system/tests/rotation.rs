//! Keys are rotated on a running server: nobody loses a session or a packet, and the old keys are of no use.

use levee_system::host;
use levee_system::senders::{MORE, start, stop};
use levee_system::{World, eventually, text};
use std::fs;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";

#[test]
fn every_key_of_a_server_is_rotated_without_a_lost_packet_or_session_and_the_audit_log_says_so() {
    let world = World::up("rotate", &format!("{SITE}{MORE}"), &["ws1"]);
    let (site, state) = (text(&world.path("site.toml")), text(&world.path("state")));
    let run = text(&world.path("run"));
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    let senders = start(&world, [("ws1", "UNCLASSIFIED")]);
    let sessions = || world.status()["sessions"].as_array().expect("sessions").clone();
    let names = || sessions().iter().map(|row| row["id"].to_string()).collect::<Vec<_>>();
    let before = names();
    assert_eq!(before.len(), 1);
    let warden = world.server_pid();
    for (what, file, ends, stays) in [
        (
            "trusted-path",
            "tls.key",
            &["levee-signer", "levee-tps"][..],
            &["levee-keyer", "levee-sessiond"][..],
        ),
        ("ike", "ike.key", &["levee-signer", "levee-keyer"], &["levee-tps", "levee-sessiond"]),
        ("audit", "audit.key", &["levee-signer"], &["levee-tps", "levee-keyer", "levee-sessiond"]),
    ] {
        let old = fs::read(world.path("state/server").join(file)).expect("a key");
        let process = |name: &&str| host::child(warden, name);
        let (ended, left): (Vec<_>, Vec<_>) =
            (ends.iter().map(process).collect(), stays.iter().map(process).collect());
        let said = world.levee(&["enrol", "rotate", &site, what, "--state", &state]).ok();
        assert!(said.contains("destroyed: the old"), "{said}");
        assert_ne!(fs::read(world.path("state/server").join(file)).expect("a key"), old);
        let said = world.levee(&["reload", "--run", &run]).ok();
        assert!(said.contains("goes on with the key that it has now"), "{said}");
        // Whoever had the old key is gone, and nobody else.
        eventually(Duration::from_secs(20), "the new key is used", || {
            ended.iter().all(|process| !host::children(warden, &process.name).contains(process))
        });
        for process in &left {
            assert!(host::children(warden, &process.name).contains(process), "{}", process.name);
        }
        eventually(Duration::from_secs(30), "the trusted path is up", || {
            sessions().iter().any(|row| row["attached"] == true)
        });
        assert_eq!(names(), before, "{what}");
        world.fetch("ws1", PAGE).ok();
    }
    for (label, lost) in stop(senders) {
        assert!(lost.is_empty(), "{label} lost {} packets", lost.len());
    }
    // With the new keys people sign off and on, and keys are agreed.
    world.tpe("ws1", &["logout"]).ok();
    world.login("ws1", "ada").ok();
    world.level("ws1", "SECRET").ok();
    assert!(world.fetch("ws1", PAGE).ok().contains("SECRET"));
    // The log says what was rotated, once, and its checkpoints hold although two keys signed them.
    let log = world.levee(&["audit", "show", "--state", &state]).ok();
    for what in ["trusted path's key", "IKE's key", "audit log's key"] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(what)).collect();
        assert!(lines.len() == 1 && lines[0].contains("rotated: from "), "{what}: {lines:?}");
    }
    world.levee(&["audit", "verify", "--state", &state]).ok();
}
