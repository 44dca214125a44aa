//! Each system call that a filter of levee's processes allows is needed: it is made when a server and a workstation do what they are for,
//! and who makes a call that a filter does not name is killed (`host/sys/tests/seccomp.rs`). Calls that an ordinary day does not make stand
//! under `[seldom]` in `conf/seccomp`, each with where it is made.
//!
//! What services and virtual machines may do (`service.toml`, `machine.toml`) is for programs that are not levee's.

use levee_system::calls::{self, Seen};
use levee_system::federation::Two;
use levee_system::{World, eventually, programs, sh, text};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//NATO,MED";
const PAGE: &str = "http://www.harbour.example/";

/// The calls that a filter's text has under `[allow]`.
fn allowed(name: &str) -> BTreeSet<String> {
    let path = format!("{}/../../conf/seccomp/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
    text["allow"].as_table().unwrap().keys().cloned().collect()
}

/// Two partitions and a channel between them, a guard, and frames that leave all as it is.
const CHANNEL: &str = r#"
[frames]

[[frames.slot]]
time = "20ms"

[[partition]]
name = "sensor"
label = "UNCLASSIFIED"
command = ["/usr/bin/python3", "-c", "import socket, time\nend = socket.socket(fileno=3)\nwhile True: end.send(b'tide'); time.sleep(0.1)"]

[[partition]]
name = "desk"
label = "SECRET"
command = ["/usr/bin/python3", "-c", "import socket\nend = socket.socket(fileno=3)\nwhile True: print(end.recv(100), flush=True)"]

[[channel]]
name = "readings"
kind = "oneway"
from = "sensor"
to = "desk"

[[partition]]
name = "archive"
label = "SECRET"
command = ["/usr/bin/python3", "-c", "import socket, time\nend = socket.socket(fileno=3)\nwhile True: end.send(b'7'); time.sleep(0.1)"]

[[partition]]
name = "checker"
label = "SECRET"
command = ["/usr/bin/python3", "-c", "import socket\nend = socket.socket(fileno=3)\nwhile True: end.send(end.recv(100))"]

[[partition]]
name = "press"
label = "UNCLASSIFIED"
command = ["/usr/bin/python3", "-c", "import socket\nend = socket.socket(fileno=3)\nwhile True: print(end.recv(100), flush=True)"]

[[channel]]
name = "downgrade"
kind = "guard"
from = "archive"
filter = "checker"
to = "press"
messages = "100 in 60s"
schema = '{"const": 7}'
"#;

/// A server whose web service is relayed and whose highest label has stacks that must agree, with two layers, and a workstation, at what they are for.
fn a_day() -> Seen {
    let site = SITE.replace("mode = \"direct\"", "mode = \"relay\"");
    let site = site.replace("layers = [\"esp\"]", "layers = [\"esp\", \"quic\"]");
    let site = site.replace("agree = []", &format!("agree = [\"{HIGH}\"]"));
    let site = site + CHANNEL;
    let mut world = World::new("day", &site, &["ws1"]);
    let file = fs::read_to_string(world.path("site.toml")).unwrap();
    let line = |line: &str| match line.strip_prefix("export") {
        Some(range) => format!("{line}\nimport{range}\n"),
        None => format!("{line}\n"),
    };
    fs::write(world.path("site.toml"), file.lines().map(line).collect::<String>()).unwrap();
    let traces = tempfile::tempdir().unwrap();
    let recorder = calls::recorder(traces.path());
    let recorder: Vec<&str> = recorder.iter().map(String::as_str).collect();
    world.start_by(&recorder);
    world.start_server();
    world.start_workstation("ws1");
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    world
        .run(
            "ws1",
            &["curl", "-sS", "--fail", "--max-time", "20", "-T", "/etc/hostname", &format!("{PAGE}own/a")],
        )
        .ok();
    world.level("ws1", HIGH).ok();
    eventually(Duration::from_secs(60), "what was written below is read above", || {
        world.fetch("ws1", &format!("{PAGE}below/{LOW}/a")).status == 0
    });
    let mut child = world.tpe_command("ws1", &["run", "--import", "--", "cat"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"tide\n").unwrap();
    assert!(child.wait().unwrap().success());
    // At a terminal.
    let socket = text(&world.path("ws1-run").join("tpe.sock"));
    let command = format!(
        "LEVEE_TPE_SOCKET={socket} {} {} run -- echo tide",
        recorder.join(" "),
        text(&programs().join("levee-tpe"))
    );
    let said = sh("script", &["-qec", &command, "/dev/null"]).ok();
    assert!(said.contains("tide"), "{said}");
    eventually(Duration::from_secs(60), "a message has passed from one partition to the other", || {
        let status = world.status();
        ["readings", "downgrade"].iter().all(|name| {
            let passed = &status["steering"][format!("channel {name}: messages passed")];
            passed.as_u64().is_some_and(|passed| passed > 0)
        })
    });
    world.tpe("ws1", &["logout"]).ok();
    world.stop_server();
    drop(world);
    calls::seen(traces.path())
}

/// A server of a federation.
fn shared() -> Seen {
    let traces = tempfile::tempdir().unwrap();
    let recorder = calls::recorder(traces.path());
    let two = Two::up_started_by("shared", SITE, &recorder.iter().map(String::as_str).collect::<Vec<_>>());
    drop(two);
    calls::seen(traces.path())
}

#[test]
fn each_call_that_a_filter_allows_is_made_or_stands_under_seldom() {
    let mut seen = a_day();
    seen.extend(shared().remove("fsd").map(|calls| ("fsd".to_owned(), calls)));
    let directory = format!("{}/../../conf/seccomp", env!("CARGO_MANIFEST_DIR"));
    let names = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let names = names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    let filters: BTreeSet<String> =
        names.filter(|name| !["service", "machine", "runtime"].contains(&name.as_str())).collect();
    let all: BTreeSet<String> = seen.values().flatten().cloned().collect();
    let mut problems: Vec<String> =
        allowed("runtime").difference(&all).map(|call| format!("runtime: {call}")).collect();
    for filter in &filters {
        let made = seen.get(filter).cloned().unwrap_or_default();
        assert!(!made.is_empty(), "{filter} was not seen at work");
        problems.extend(allowed(filter).difference(&made).map(|call| format!("{filter}: {call}")));
    }
    assert!(problems.is_empty(), "allowed, and nobody makes it: {problems:#?}");
}
