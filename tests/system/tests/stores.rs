//! A label that runs for the first time gets a store. That may take long or fail, and is nobody else's trouble.
//! (This host's `mkfs.ext4` is found behind a script that waits, or fails, when the test says so.)

use levee_system::{World, eventually, text};
use std::fs;
use std::process::Stdio;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
const LOW: &str = "UNCLASSIFIED";
const NEXT: &str = "CONFIDENTIAL";
const NEW: &str = "SECRET";

/// A server whose `mkfs.ext4` waits while there is a file `wait`, and fails while there is a file `fail`.
fn world(name: &str) -> World {
    let mut world = World::new(name, SITE, &["ws1", "ws2"]);
    let bin = world.path("bin");
    fs::create_dir(&bin).unwrap();
    let (wait, fail) = (text(&world.path("wait")), text(&world.path("fail")));
    let script = format!(
        "#!/bin/sh\nwhile [ -e {wait} ]; do sleep 0.02; done\n\
         if [ -e {fail} ]; then echo 'no such luck' >&2; exit 1; fi\n\
         PATH=/usr/sbin:/usr/bin:/sbin:/bin exec mkfs.ext4 \"$@\"\n"
    );
    levee_system::write_script(&bin.join("mkfs.ext4"), &script);
    world.find_programs_first_in(&bin);
    world.start_server();
    world.start_workstation("ws1");
    world.start_workstation("ws2");
    world
}

/// What the kernel says of the processes that make stores.
fn makers() -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let statuses = processes.filter_map(|process| fs::read_to_string(process.path().join("status")).ok());
    statuses.filter(|status| status.starts_with("Name:\tlevee-store\n")).collect()
}

#[test]
fn others_are_served_while_a_labels_store_is_made() {
    let world = world("made");
    world.login("ws1", "ada").ok();
    world.login("ws2", "mia").ok();
    // Both of these have run before.
    world.level("ws2", NEXT).ok();
    world.level("ws2", LOW).ok();
    fs::write(world.path("wait"), "").unwrap();
    let stores = world.path("state").join("stores");
    let mut first = world.tpe_command("ws1", &["level", NEW]).stdout(Stdio::piped()).spawn().unwrap();
    eventually(Duration::from_secs(10), "the store is being made", || {
        stores.join(format!("{NEW}.img.new")).exists() && !makers().is_empty()
    });
    // Who makes it has one file of levee's, and nothing by being somebody.
    for status in makers() {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        assert!(field("Uid:").split_whitespace().all(|uid| uid == "4026531840"), "{status}");
        assert_eq!(field("CapEff:"), "0000000000000000", "{status}");
        assert_eq!(field("CapBnd:"), "0000000000000000", "{status}");
        assert_eq!(field("NoNewPrivs:"), "1", "{status}");
    }
    for label in [NEXT, LOW] {
        world.level("ws2", label).ok();
        assert!(world.fetch("ws2", PAGE).ok().contains(&format!("<h1>{label}</h1>")));
    }
    assert!(world.status()["compartments"].as_array().unwrap().iter().all(|row| row["label"] != NEW));
    assert!(first.try_wait().unwrap().is_none(), "it cannot be there yet");
    // Nothing that could be taken for a whole image.
    assert!(!stores.join(format!("{NEW}.img")).exists());
    fs::remove_file(world.path("wait")).unwrap();
    assert!(first.wait().unwrap().success());
    assert!(world.fetch("ws1", PAGE).ok().contains(&format!("<h1>{NEW}</h1>")));
}

#[test]
fn a_label_whose_store_cannot_be_made_does_not_start_and_is_tried_again_when_asked_for() {
    let world = world("unmade");
    world.login("ws1", "ada").ok();
    fs::write(world.path("fail"), "").unwrap();
    world.level("ws1", NEW).refused();
    let audit = fs::read_to_string(world.path("state").join("sessiond/audit.jsonl")).unwrap();
    assert!(audit.contains("no such luck"), "why is in the audit log: {audit}");
    let alarms = || world.status()["alarms"].to_string();
    let told = alarms();
    let name = format!("{NEW} does not start (");
    assert!(told.contains(&name) && told.contains("no such luck") && told.contains(" s ago)"), "{told}");
    assert_eq!(fs::read_dir(world.path("state").join("stores")).unwrap().count(), 0, "nothing is left of it");
    fs::remove_file(world.path("fail")).unwrap();
    world.level("ws1", NEW).ok();
    assert!(!alarms().contains(&name), "it runs: {}", alarms());
    assert!(world.fetch("ws1", PAGE).ok().contains(&format!("<h1>{NEW}</h1>")));
}

#[test]
fn a_label_whose_images_go_beyond_what_the_site_has_for_all_does_not_start_and_others_go_on() {
    // Room for what the lowest label needs (its store and a snapshot of it), and not for another.
    let site = SITE.replace("stores = \"64G\"", "stores = \"160M\"");
    let world = World::up("bound", &site, &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    let session = || {
        let status = world.tpe("ws1", &["status", "--json"]).ok();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status["session"]["id"].clone()
    };
    let before = session();
    let mut running = world.inside("ws1", &["sleep", "600"]).spawn().unwrap();
    let said = world.level("ws1", NEW).refused();
    assert!(said.contains("[limits] stores"), "{said}");
    // Nothing has happened to the session that there is, nor to what runs in it.
    assert!(before.is_string() && session() == before, "{before} {}", session());
    assert!(running.try_wait().unwrap().is_none(), "it runs on");
    let _ = running.kill();
    running.wait().unwrap();
    assert!(world.fetch("ws1", PAGE).ok().contains(&format!("<h1>{LOW}</h1>")));
    let audit = fs::read_to_string(world.path("state").join("sessiond/audit.jsonl")).unwrap();
    assert!(audit.contains("[limits] stores"), "{audit}");
    world.level("ws1", LOW).ok();
    assert!(world.fetch("ws1", PAGE).ok().contains(&format!("<h1>{LOW}</h1>")));
    let images = fs::read_dir(world.path("state").join("stores")).unwrap();
    let bytes: u64 = images.map(|image| image.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 160 << 20, "{bytes}");
}

#[test]
fn labels_that_nobody_uses_give_way_to_one_that_somebody_waits_for() {
    let site = SITE.replace("\"harbour\"", "\"few\"").replace("slots = 64", "slots = 3");
    let world = World::up("few", &site, &["ws1", "ws2"]);
    world.login("ws1", "ada").ok();
    world.login("ws2", "mia").ok();
    // Each stays for a while when its session has ended: three run, and one is used.
    for label in ["UNCLASSIFIED", "CONFIDENTIAL", "SECRET"] {
        world.level("ws1", label).ok();
    }
    world.level("ws2", "CONFIDENTIAL//MED").ok();
    world.level("ws2", "UNCLASSIFIED//MED").ok();
    world.level("ws1", "SECRET//NATO").ok();
    // Those that are used do not.
    let status = world.status();
    let labels: Vec<&str> = status["sessions"]
        .as_array()
        .expect("sessions")
        .iter()
        .filter_map(|one| one["label"].as_str())
        .collect();
    assert_eq!(labels.len(), 2, "{labels:?}");
}
