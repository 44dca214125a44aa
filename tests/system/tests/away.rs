//! Time in which levee does not run counts: a session that nobody watched over for longer than its grace time has ended.
//!
//! Needs root, python3, curl, nginx-light, iproute2, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{World, eventually, text};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";

#[test]
fn a_session_does_not_come_back_from_a_stop_that_was_longer_than_its_grace_time() {
    let site = SITE.replace("\"harbour\"", "\"port-away\"").replace("grace = \"30s\"", "grace = \"8s\"");
    assert!(site.contains("grace = \"8s\""));
    let mut world = World::up("away", &site, &["ws1"]);
    let sessions = |world: &World| world.status()["session_count"].as_u64().expect("a number");
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    world.fetch("ws1", PAGE).ok();

    // A short stop: the workstation comes back by itself, and the session goes on.
    world.stop_server();
    world.start_server();
    eventually(Duration::from_secs(20), "the session is used again", || {
        sessions(&world) == 1 && world.fetch("ws1", PAGE).status == 0
    });

    world.stop_server();
    std::thread::sleep(Duration::from_secs(10));
    world.start_server();
    eventually(Duration::from_secs(10), "the session has ended", || sessions(&world) == 0);
    world.fetch("ws1", PAGE).refused();
    let log = world.levee(&["audit", "show", "--state", &text(&world.path("state"))]).ok();
    assert!(log.contains("nobody watched over it for longer than its grace time"), "{log}");
}
