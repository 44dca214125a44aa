//! A person asks for more protection than every tunnel at a label has, and a service does: they have it, or no session.

use levee_system::{Done, World, eventually, text};
use serde_json::{Value, json};
use std::time::Duration;

const SITE: &str = concat!(
    include_str!("../../../conf/small/site.toml"),
    r#"
[[posture]]
name = "siege"
ciphers = ["aes-256-gcm"]
follow = "20s"
[[posture]]
name = "guarded"
labels = ["UNCLASSIFIED"]
floor = ["UNCLASSIFIED"]
ciphers = ["aes-128-gcm"]
follow = "20s"
[[protection]]
name = "other"
ciphers = ["chacha20-poly1305"]
key-life = "10m"
[[protection]]
name = "quiet"
labels = ["SECRET..SECRET//NATO,MED"]
constant-rate = true
[[service]]
name = "orders"
port = 8080
protocol = "tcp"
range = "SECRET//NATO..SECRET//NATO,MED"
mode = "direct"
program = "nginx"
protection = "other"
"#
);
const HIGH: &str = "SECRET//NATO,MED";
const PAGE: &str = "http://www.harbour.example/";

fn protected(world: &World, workstation: &str, label: &str, protection: &str) -> Done {
    world.tpe(workstation, &["level", label, "--protection", protection])
}

fn suites(status: &Value, label: &str) -> Vec<String> {
    let sas = status["vaults"][label]["sas"].as_array().into_iter().flatten();
    sas.map(|sa| sa["suite"].as_str().expect("a suite").to_owned()).collect()
}

/// What the sessions at a label were given.
fn protections(status: &Value, label: &str) -> Vec<Value> {
    let sessions = status["sessions"].as_array().into_iter().flatten();
    sessions.filter(|one| one["label"] == label).map(|one| one["protections"].clone()).collect()
}

#[test]
fn what_is_asked_for_of_a_tunnel_is_had_or_there_is_no_session() {
    let world = World::up("protection", SITE, &["ws1", "ws2"]);
    world.login("ws1", "ada").ok();
    world.login("ws2", "mia").ok();

    // One who asks, and one at the same label who does not.
    let said = protected(&world, "ws1", "CONFIDENTIAL//MED", "other").ok();
    assert!(said.contains("with protection other"), "{said}");
    world.level("ws2", "CONFIDENTIAL//MED").ok();
    for workstation in ["ws1", "ws2"] {
        assert!(world.fetch(workstation, PAGE).ok().contains("CONFIDENTIAL//MED"));
    }
    let status = world.status();
    let mut sealed = suites(&status, "CONFIDENTIAL//MED");
    sealed.sort();
    assert_eq!(sealed, ["aes-256-gcm", "chacha20-poly1305"]);
    let mut given = protections(&status, "CONFIDENTIAL//MED");
    given.sort_by_key(Value::to_string);
    assert_eq!(given, [json!(["other"]), json!([])]);

    // What cannot be had is refused, and the session that there is stays.
    for (label, name, why) in [
        ("CONFIDENTIAL//MED", "stronger", "the site has no protection `stronger`"),
        ("CONFIDENTIAL//MED", "quiet", "no protection `quiet` at this label"),
    ] {
        let refused = protected(&world, "ws1", label, name).refused();
        assert!(refused.contains(why), "{refused}");
    }
    assert!(world.fetch("ws1", PAGE).ok().contains("CONFIDENTIAL//MED"));

    // A service asks, and the person asks for something else besides.
    assert!(world.level("ws1", HIGH).ok().contains("with protection other"));
    assert_eq!(suites(&world.status(), HIGH), ["chacha20-poly1305"]);
    assert!(world.fetch("ws1", PAGE).ok().contains(HIGH));
    let without = world.idle("ws1");
    assert!(protected(&world, "ws1", HIGH, "quiet").ok().contains("with protection quiet and other"));
    assert!(world.fetch("ws1", PAGE).ok().contains(HIGH));
    assert_eq!(suites(&world.status(), HIGH), ["chacha20-poly1305"]);
    // 250 a second were 500; a busy host sends fewer.
    let with = world.idle("ws1");
    assert!(with > 150 && with > without * 2, "{with} packets, and {without} without");

    // A posture that takes it away ends the session, and says so before.
    let run = text(&world.path("run"));
    let plan = world.levee(&["posture", "plan", "siege", "--json", "--run", &run]).ok();
    let plan: Value = serde_json::from_str(&plan).expect("JSON");
    let outcome = |label: &str| {
        let sessions = plan["sessions"].as_array().expect("sessions");
        sessions.iter().find(|one| one["label"] == label).map(|one| one["outcome"].clone())
    };
    assert_eq!(outcome(HIGH), Some(json!("ends")));
    assert_eq!(outcome("CONFIDENTIAL//MED"), Some(json!("new-keys")));
    world.levee(&["posture", "set", "siege", "--reason", "a drill", "--run", &run]).ok();
    eventually(Duration::from_secs(30), "the session is over", || world.status()["session_count"] == 1);
    let refused = world.level("ws1", HIGH).refused();
    assert!(refused.contains("protection other"), "{refused}");
    // Who asked for nothing goes on.
    assert!(world.fetch("ws2", PAGE).ok().contains("CONFIDENTIAL//MED"));
    world.levee(&["posture", "set", "default", "--run", &run]).ok();
    world.level("ws1", HIGH).ok();
    assert!(world.fetch("ws1", PAGE).ok().contains(HIGH));

    let log = world.levee(&["audit", "show", "--state", &text(&world.path("state"))]).ok();
    for said in [
        "; protection other",
        "; protection quiet and other",
        "under which protection quiet and other cannot be had",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
}

#[test]
fn no_tunnel_has_less_than_the_floor_of_its_label_whatever_is_set() {
    let world = World::up("floor", SITE, &["ws1"]);
    let run = text(&world.path("run"));
    let posture = |said: &[&str]| world.levee(&[&["posture"], said, &["--run", &run]].concat());
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    let is_at_the_floor = || {
        assert!(world.fetch("ws1", PAGE).ok().contains("UNCLASSIFIED"));
        assert_eq!(suites(&world.status(), "UNCLASSIFIED"), ["aes-128-gcm"]);
    };
    is_at_the_floor();
    assert_eq!(posture(&["show"]).ok(), "  default\n  at least guarded at UNCLASSIFIED\n");

    // What stands before it in the file counts elsewhere alone, and is not set where it would count nowhere.
    posture(&["set", "siege"]).ok();
    is_at_the_floor();
    let refused = posture(&["set", "siege", "--labels", "UNCLASSIFIED"]).refused();
    assert!(refused.contains("would count nowhere"), "{refused}");
    let plan: Value = serde_json::from_str(&posture(&["plan", "default", "--json"]).ok()).expect("JSON");
    assert_eq!(plan["labels"][0]["under"], "guarded");
    for end in [&["set", "default", "--labels", "UNCLASSIFIED"][..], &["set", "default"]] {
        posture(end).ok();
        is_at_the_floor();
    }

    // The floor counts before anybody says so: also after a start.
    world.level("ws1", HIGH).ok();
    assert_eq!(suites(&world.status(), HIGH), ["chacha20-poly1305"]);
    world.level("ws1", "UNCLASSIFIED").ok();
    is_at_the_floor();
}
