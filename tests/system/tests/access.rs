//! Who of those cleared for a label reaches a service there, by its owners' word: at once, at that label alone, and after a restart.

use levee_system::{World, eventually, host, text};
use serde_json::Value;
use std::time::{Duration, Instant};

const SITE: &str = concat!(
    include_str!("../../../conf/small/site.toml"),
    r#"
[[service]]
name = "plans"
port = 8080
protocol = "tcp"
range = "UNCLASSIFIED..CONFIDENTIAL//MED"
mode = "relay"
program = "nginx"
owners = ["ada"]
[[service]]
name = "notes"
port = 8081
protocol = "tcp"
range = "UNCLASSIFIED..CONFIDENTIAL//MED"
mode = "direct"
program = "nginx"
owners = ["ada"]
people = ["mia"]
"#
);
const LABEL: &str = "CONFIDENTIAL";
/// Connections decided about one by one, and ones that selectors alone let pass.
const PLANS: &str = "http://www.harbour.example:8080/";
const NOTES: &str = "http://www.harbour.example:8081/";

/// Whether a page comes. What is not let through is not answered, so nobody waits for long.
fn reaches(world: &World, workstation: &str, url: &str) -> bool {
    let done = world.run(workstation, &["curl", "-sS", "--max-time", "3", url]);
    done.status == 0
}

fn access(world: &World, workstation: &str, arguments: &[&str]) -> String {
    world.tpe(workstation, &[&["access"], arguments].concat()).ok()
}

#[test]
fn an_owner_lets_people_reach_a_service_and_takes_it_back_while_it_runs_and_at_one_label_alone() {
    let mut world = World::up("access", SITE, &["ws1", "ws2"]);
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.login(workstation, user).ok();
        world.level(workstation, LABEL).ok();
    }
    assert!(reaches(&world, "ws1", PLANS) && reaches(&world, "ws1", NOTES));
    assert!(!reaches(&world, "ws2", PLANS), "nobody but ada, as long as she says nothing");
    assert!(reaches(&world, "ws2", NOTES));
    assert_eq!(access(&world, "ws1", &[]).trim(), "notes: yours; for ada mia\nplans: yours; for ada");
    assert_eq!(access(&world, "ws2", &[]).trim(), "notes: for you\nplans: not for you");
    let listed = world.tpe("ws2", &["--json", "access"]).ok();
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed["services"][1]["people"], serde_json::json!([]), "who else is for its owner to know");

    access(&world, "ws1", &["plans", "--allow", "mia"]);
    assert!(reaches(&world, "ws2", PLANS), "in the session that there is");
    let shown = world.tpe("ws2", &["status"]).ok();
    assert!(shown.contains("ada lets you reach plans at CONFIDENTIAL"), "{shown}");

    // A download that runs does not end the word: when it is taken back, nothing more comes.
    let mut slow = world
        .inside("ws2", &["curl", "-sS", "--max-time", "60", "--limit-rate", "1k", NOTES, "-o", "/dev/null"]);
    let mut slow = slow.spawn().expect("curl starts");
    access(&world, "ws1", &["notes", "--deny", "mia"]);
    assert!(!reaches(&world, "ws2", NOTES), "when it is acknowledged no packet passes");
    let _ = slow.kill();
    let _ = slow.wait();
    assert!(reaches(&world, "ws2", PLANS), "of another service nothing was said");

    // Who does not own it says nothing, and not of another level.
    for arguments in [["access", "plans", "--allow", "ugo"], ["access", "web", "--deny", "ada"]] {
        let refused = world.tpe("ws2", &arguments).refused();
        assert!(refused.contains("you own no service"), "{refused}");
    }
    world.level("ws2", "UNCLASSIFIED").ok();
    assert!(!reaches(&world, "ws2", PLANS), "what was said at CONFIDENTIAL is nothing here");
    assert!(reaches(&world, "ws2", NOTES));
    world.level("ws2", LABEL).ok();
    assert!(reaches(&world, "ws2", PLANS) && !reaches(&world, "ws2", NOTES));

    // The log has each word with who said it; an operator's too.
    let (run, state) = (text(&world.path("run")), text(&world.path("state")));
    world.levee(&["access", "deny", "mia", "plans", LABEL, "--run", &run]).ok();
    assert!(!reaches(&world, "ws2", PLANS));
    let refused = world.levee(&["access", "show", "NOWHERE", "--run", &run]).refused();
    assert!(refused.contains("`NOWHERE` is not a level of this site"), "{refused}");
    let shown = world.levee(&["access", "show", "confidential", "--run", &run, "--json"]).ok();
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown[1]["people"], serde_json::json!(["ada"]), "{shown}");
    let log = world.levee(&["audit", "show", "--state", &state, "--action", "access"]).ok();
    for said in [
        "`mia` reaches it at CONFIDENTIAL, by `ada`, who owns it",
        "`mia` does not reach it at CONFIDENTIAL, by `ada`, who owns it",
        "`mia` does not reach it at CONFIDENTIAL, by an operator",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }

    // It counts after the server has ended and come again.
    access(&world, "ws1", &["plans", "--allow", "mia"]);
    world.stop_server();
    world.start_server();
    let limit = Instant::now() + Duration::from_secs(60);
    eventually(limit - Instant::now(), "mia is signed on again", || {
        let _ = world.login("ws2", "mia");
        world.level("ws2", LABEL).status == 0
    });
    assert!(reaches(&world, "ws2", PLANS) && !reaches(&world, "ws2", NOTES));
}

#[test]
fn whoever_says_so_is_answered_when_no_vault_passes_by_another_word_however_many_say_something_at_once() {
    let world = World::up("access-race", SITE, &["ws1", "ws2"]);
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.login(workstation, user).ok();
        world.level(workstation, LABEL).ok();
    }
    let run = text(&world.path("run"));
    let say = |what: &str| world.levee(&["access", what, "mia", "notes", LABEL, "--run", &run]);
    // Several orders for one session are on their way to its vault at once; each is answered.
    std::thread::scope(|scope| {
        for first in ["allow", "deny"] {
            let other = if first == "allow" { "deny" } else { "allow" };
            scope.spawn(move || {
                for _ in 0..20 {
                    say(first).ok();
                    say(other).ok();
                }
            });
        }
    });
    say("allow").ok();
    assert!(reaches(&world, "ws2", NOTES));
    // A vault of which nobody has noticed that it stands still.
    let vault = host::children(world.server_pid(), "levee-vault").pop().expect("the label's vault");
    vault.signal("STOP");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                say("deny").ok();
                assert!(!vault.runs(), "answered, though a vault has the word of before");
            });
        }
    });
    assert!(!reaches(&world, "ws2", NOTES));
    world.tpe("ws2", &["lock"]).ok();
}
