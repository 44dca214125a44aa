//! A session that is locked, by its person or because nobody uses it: nothing passes at the server, whatever the workstation does.

use levee_system::host::child;
use levee_system::{Done, PASSWORD, World, eventually, text, typed};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LABEL: &str = "SECRET";

/// Whether a program that already runs at the level, without asking anybody, has the page.
fn reaches(world: &World) -> bool {
    let curl = ["curl", "--silent", "--max-time", "2", "--noproxy", "*", "http://www.harbour.example/"];
    let out = world.inside("ws1", &curl).output().expect("run curl");
    String::from_utf8_lossy(&out.stdout).contains(LABEL)
}

/// Whether the server has the session locked.
fn is_locked(world: &World) -> bool {
    world.status()["sessions"][0]["locked"] == true
}

fn unlock(world: &World, password: &str) -> Done {
    typed(&mut world.tpe_command("ws1", &["unlock", "--password-stdin"]), password)
}

/// Whether the log has such a record of ada's.
fn is_recorded(world: &World, action: &str, words: &str) -> bool {
    let log = world.levee(&["audit", "show", "--state", &text(&world.path("state")), "--user", "ada"]).ok();
    log.lines().any(|line| line.contains(action) && line.contains(words))
}

#[test]
fn a_session_that_its_person_locks_passes_nothing_until_they_have_proved_themself() {
    let world = World::up("lock", SITE, &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LABEL).ok();
    assert!(reaches(&world));
    world.tpe("ws1", &["lock", "--json"]).ok();
    assert!(is_locked(&world) && !reaches(&world));
    for asked in [&["level", "UNCLASSIFIED"][..], &["run", "--export", "--", "true"]] {
        let refused = world.tpe("ws1", asked).refused();
        assert!(refused.contains("locked"), "{refused}");
    }
    let wrong = unlock(&world, "not the password").refused();
    assert!(wrong.contains("wrong password"), "{wrong}");
    assert!(is_locked(&world) && !reaches(&world));
    unlock(&world, PASSWORD).ok();
    assert!(reaches(&world), "it is the session that it was");

    // Its end, whoever brings it about, opens nobody another one.
    world.tpe("ws1", &["lock"]).ok();
    let id = world.status()["sessions"][0]["id"].as_str().expect("a session").to_owned();
    world.levee(&["session", "end", &id, "--run", &text(&world.path("run"))]).ok();
    let refused = world.level("ws1", "UNCLASSIFIED").refused();
    assert!(refused.contains("locked") || refused.contains("signed"), "{refused}");
    let nobody = || world.tpe("ws1", &["status"]).ok().contains("nobody is signed on");
    eventually(Duration::from_secs(10), "nobody is signed on", nobody);
    assert!(world.level("ws1", "UNCLASSIFIED").refused().contains("nobody is signed on"));
    world.login("ws1", "ada").ok();
    world.level("ws1", LABEL).ok();
    assert!(reaches(&world), "who has proved themself has one again");
    world.tpe("ws1", &["logout"]).ok();
    assert!(is_recorded(&world, "lock", "noted: by its person"));
    assert!(is_recorded(&world, "unlock", "denied: unknown user or wrong password"));
    assert!(is_recorded(&world, "unlock", "granted: "));
}

#[test]
fn a_session_that_nobody_uses_is_locked_by_the_server_though_the_workstation_would_let_everything_pass() {
    let site = SITE.replacen("slots = 64", "idle-lock = \"5s\"\nslots = 64", 1);
    let site = site.replacen("grace = \"30s\"", "grace = \"10m\"", 1);
    let world = World::up("idle", &site, &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LABEL).ok();
    // On a busy host it may have been locked meanwhile.
    let in_use = || reaches(&world) || (unlock(&world, PASSWORD).status == 0 && reaches(&world));
    eventually(Duration::from_secs(60), "it is in use", in_use);
    let agent = child(world.workstation_pids().next().expect("the workstation"), "levee-tpe");
    agent.signal("STOP");
    eventually(Duration::from_secs(60), "the server locks what nobody uses", || is_locked(&world));
    assert!(!reaches(&world));
    agent.signal("CONT");
    let heard = || world.tpe("ws1", &["status", "--json"]).ok().contains("\"locked\":true");
    eventually(Duration::from_secs(60), "the workstation has heard of it", heard);
    assert!(!reaches(&world));
    eventually(Duration::from_secs(60), "it is in use again", in_use);
    assert!(is_recorded(&world, "lock", "noted: nobody has used it for as long as the site says"));
    world.tpe("ws1", &["logout"]).ok();
}
