//! What operators do within a label: put a file into its store, run a program there. Both are recorded first, and neither takes
//! anything with it but what was said.

use levee_system::{World, eventually, text};
use std::fs;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//NATO,MED";

/// A service that brings an interpreter.
const SERVICES: &str = r#"
[[service]]
name = "shell"
port = 8000
protocol = "tcp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "direct"
software = ["python3"]
command = ["/bin/sh", "-c", "exec sleep 1"]
"#;

fn exec(world: &World, label: &str, argv: &[&str]) -> levee_system::Done {
    let (run, state) = (text(&world.path("run")), text(&world.path("state")));
    world.levee(&[&["exec", label, "--run", &run, "--state", &state, "--"], argv].concat())
}

fn put(world: &World, label: &str, file: &str, path: &str) -> levee_system::Done {
    world.levee(&["put", label, file, path, "--run", &text(&world.path("run"))])
}

fn audit(world: &World) -> String {
    world.levee(&["audit", "show", "--state", &text(&world.path("state"))]).ok()
}

#[test]
fn an_operator_puts_a_file_into_a_labels_store_and_runs_programs_there_and_both_are_recorded() {
    let world = World::up("entering", &format!("{SITE}{SERVICES}"), &["ws1"]);
    let page = world.path("page");
    fs::write(&page, "from the operator\n").unwrap();
    // Nobody has a session: the label is started for it.
    assert!(put(&world, HIGH, &text(&page), "news/today.html").ok().contains("18 bytes"));
    world.login("ws1", "ada").ok();
    world.level("ws1", HIGH).ok();
    let fetched = world.fetch("ws1", "http://www.harbour.example/own/news/today.html");
    assert_eq!(fetched.ok(), "from the operator\n");
    // At no other label.
    world.level("ws1", LOW).ok();
    world.fetch("ws1", "http://www.harbour.example/own/news/today.html").refused();

    let python = |program: &str| exec(&world, HIGH, &["/usr/bin/python3", "-c", program]);
    let said = python("print(open('/srv/own/news/today.html').read(), end='')").ok();
    assert_eq!(said, "from the operator\n");
    // It is what a service is there: no root, nothing to read, nothing of the host's, its exit status told.
    let who = "import os,sys
print(os.getuid() != 0, sys.stdin.read() == '', sorted(os.listdir('/proc/self/fd')) if os.path.exists('/proc/self') else 'no proc')
print('\\x1b]0;title\\x07')
sys.exit(7)";
    let done = python(who);
    assert_eq!(done.status, 7, "{}{}", done.out, done.err);
    assert!(done.out.starts_with("True True no proc\n"), "{}", done.out);
    assert!(!done.out.contains('\x1b') && done.out.contains("title"), "{:?}", done.out);
    exec(&world, HIGH, &["/usr/bin/no-such-program"]).refused();
    exec(&world, "COSMIC", &["/usr/bin/python3"]).refused();
    assert!(put(&world, HIGH, &text(&page), "../page").refused().contains("names with slashes"));

    // A label's own program has made a link of a directory: nothing is written where it leads.
    python("import os; os.symlink('/tmp', '/srv/own/link')").ok();
    put(&world, HIGH, &text(&page), "link/page").refused();
    assert!(python("import os; print(os.path.exists('/tmp/page'))").ok().contains("False"));

    let log = audit(&world);
    let recorded = |action: &str, object: &str| {
        log.lines().any(|line| line.contains(action) && line.contains(object) && line.contains(HIGH))
    };
    assert!(recorded("put", "news/today.html, 18 bytes, SHA-256"), "{log}");
    assert!(recorded("exec", "/usr/bin/no-such-program"), "{log}");
}

#[test]
fn a_label_stays_while_a_program_runs_for_an_operator_and_goes_when_it_has_ended() {
    let world = World::up("staying", &format!("{SITE}{SERVICES}"), &["ws1"]);
    let runs = || {
        let status = world.status();
        status["compartments"].as_array().is_some_and(|all| all.iter().any(|one| one["label"] == HIGH))
    };
    // Longer than a label lingers that nobody needs.
    exec(&world, HIGH, &["/usr/bin/python3", "-c", "import time; time.sleep(14)"]).ok();
    eventually(Duration::from_secs(30), "the label has gone", || !runs());
}
