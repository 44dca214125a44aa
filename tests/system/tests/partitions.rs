//! Partitions: compartments that are there without sessions, each with a share of its own that no other takes.
//!
//! Needs root, python3, iproute2, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{Stalled, World, eventually, host, programs, text};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
/// The greedy one computes with half a processor, and a busy host gives it less: it ends late there, which is nothing of what is promised.
const PATIENCE: Duration = Duration::from_secs(180);

/// Says every moment that it runs.
const BEATS: &str = "import time
while True:
    print('beat', flush=True)
    time.sleep(0.1)
";
/// Has as many processes as there can be, each of which eats memory and computes; ends after a while.
const GREEDY: &str = "import os, time
def eat():
    held = []
    while True:
        try: held.append(bytearray(1 << 20))
        except MemoryError: pass
while True:
    try:
        if os.fork() == 0: eat()
    except OSError: break
time.sleep(0.5)
os._exit(3)
";

fn partition(name: &str, label: &str, program: &str, more: &str) -> String {
    format!(
        "\n[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\n\
         command = [\"/usr/bin/python3\", \"-c\", '''\n{program}''']\nmemory = \"96M\"\ndisk = \"8M\"\n{more}\n"
    )
}

fn of(world: &World, name: &str) -> Value {
    let all = world.status()["partitions"].clone();
    let found = all.as_array().and_then(|all| all.iter().find(|one| one["name"] == name));
    found.expect("the partition").clone()
}

fn is(world: &World, name: &str, state: &str) -> bool {
    of(world, name)["state"].as_str().is_some_and(|is| is.starts_with(state))
}

fn beats(world: &World) -> usize {
    let directory = world.path("state/logs/labels/partition+steady");
    let read = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    ["0.log", "1.log"].map(read).iter().map(|text| text.matches("beat").count()).sum()
}

#[test]
fn a_partition_that_takes_all_it_can_costs_another_nothing_and_is_off_when_the_sites_rule_says_so() {
    let site = SITE.replace("\"harbour\"", "\"partitions\"")
        + &partition("steady", "SECRET", BEATS, "reserved = \"32M\"\nweight = 1000")
        + &partition(
            "greedy",
            "UNCLASSIFIED",
            GREEDY,
            "processes = 32\ncpu = \"50%\"\nrestart = \"1 in 1h\"",
        );
    let mut world = World::up("parts", &site, &[]);
    let run = text(&world.path("run"));
    eventually(PATIENCE, "both have run", || {
        is(&world, "steady", "runs") && of(&world, "greedy")["starts"].as_u64() >= Some(1)
    });
    let init = of(&world, "steady")["init"].as_u64().expect("a process");
    eventually(PATIENCE, "the greedy one has ended twice", || is(&world, "greedy", "off: "));
    let greedy = of(&world, "greedy");
    assert_eq!(greedy["starts"], 2, "{greedy}");
    let alarms = world.status()["alarms"].to_string();
    assert!(alarms.contains("the partition greedy is off"), "{alarms}");
    // All the while the other ran on.
    let steady = of(&world, "steady");
    assert_eq!((steady["starts"].as_u64(), steady["init"].as_u64()), (Some(1), Some(init)), "{steady}");
    let before = beats(&world);
    eventually(PATIENCE, "it says more", || beats(&world) > before + 10);

    // Killed, it is started again. Stopped, nothing of it is left, and it stays off.
    assert_eq!(levee_system::sh("kill", &["-KILL", &init.to_string()]).status, 0);
    eventually(PATIENCE, "it runs again", || {
        let steady = of(&world, "steady");
        steady["starts"] == 2 && steady["init"].as_u64().is_some_and(|pid| pid != 0 && pid != init)
    });
    let init = of(&world, "steady")["init"].as_u64().expect("a process");
    world.levee(&["partition", "stop", "--run", &run, "steady"]).ok();
    assert!(!Path::new(&format!("/proc/{init}")).exists(), "its first process is there still");
    assert!(is(&world, "steady", "off: stopped by an operator"), "{}", of(&world, "steady"));
    world.levee(&["partition", "start", "--run", &run, "steady"]).ok();
    eventually(PATIENCE, "it runs again", || is(&world, "steady", "runs"));
    let unknown = world.levee(&["partition", "stop", "--run", &run, "nobody"]).refused();
    assert!(unknown.contains("no partition nobody"), "{unknown}");
    world.stop_server();
}

/// Writes to its own files for as long as it is there.
const WRITES: &str = "import time
while True:
    with open('/srv/own/file', 'w') as file: file.write('x')
    time.sleep(0.01)
";

#[test]
fn a_partition_that_is_long_about_its_end_keeps_nobody_waiting() {
    let site = SITE.replace("\"harbour\"", "\"long\"")
        + &partition("writer", "SECRET", WRITES, "")
        + &partition("steady", "UNCLASSIFIED", BEATS, "");
    let mut world = World::up("long", &site, &["ws1"]);
    let run = text(&world.path("run"));
    eventually(PATIENCE, "both run", || is(&world, "writer", "runs") && is(&world, "steady", "runs"));
    let init = of(&world, "writer")["init"].as_u64().expect("a process");
    eventually(PATIENCE, "it writes", || Path::new(&format!("/proc/{init}/root/srv/own/file")).exists());
    let stalled = Stalled::store(&init.to_string());
    // Of those who wait in the kernel for what nothing interrupts, process 1 is none: it does not write.
    eventually(PATIENCE, "its program waits for its store", || {
        let below = host::below(u32::try_from(init).expect("a process"));
        below.iter().any(|process| process.status("State").starts_with('D'))
    });
    let mut stop = Command::new(programs().join("levee"));
    let stop = stop.args(["partition", "stop", "--run", &run, "writer"]).stdin(Stdio::null());
    let mut stop = stop.stdout(Stdio::null()).spawn().expect("run levee");
    eventually(PATIENCE, "it ends", || is(&world, "writer", "ends"));

    // Another label's person is served, and so is an operator who has another partition end and begin.
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    assert!(world.fetch("ws1", "http://www.harbour.example/").ok().contains("UNCLASSIFIED"));
    world.levee(&["partition", "stop", "--run", &run, "steady"]).ok();
    world.levee(&["partition", "start", "--run", &run, "steady"]).ok();
    eventually(PATIENCE, "the other runs again", || of(&world, "steady")["starts"] == 2);
    let before = beats(&world);
    eventually(PATIENCE, "and is at work", || beats(&world) > before);
    assert!(stalled.is_there() && is(&world, "writer", "ends"), "it has ended, so that this shows nothing");
    assert!(stop.try_wait().expect("levee").is_none(), "who stops it is told before its end");

    drop(stalled);
    assert!(stop.wait().expect("levee").success());
    assert!(is(&world, "writer", "off: stopped by an operator"), "{}", of(&world, "writer"));
    world.levee(&["partition", "start", "--run", &run, "writer"]).ok();
    eventually(PATIENCE, "it runs again", || {
        is(&world, "writer", "runs") && of(&world, "writer")["starts"] == 2
    });
    world.stop_server();
}

#[test]
fn what_carries_a_channel_and_is_taken_over_keeps_nobody_from_the_status_nor_sessiond_from_its_work() {
    let channel = "\n[[channel]]\nname = \"readings\"\nkind = \"oneway\"\nfrom = \"sensor\"\nto = \"desk\"\n";
    let site = SITE.replace("\"harbour\"", "\"counted\"")
        + &partition("sensor", "UNCLASSIFIED", BEATS, "")
        + &partition("desk", "SECRET", BEATS, "")
        + channel;
    let mut world = World::new("counted", &site, &[]);
    let twins = world.replace_by_twins(&["levee-channel"]);
    world.start_server();
    let find = |name: &str| {
        let all = host::below(world.server_pid());
        all.into_iter().find(|process| process.name == name).map(|process| process.pid)
    };
    let steering = || world.status()["steering"].to_string();
    eventually(PATIENCE, "the channel runs", || {
        is(&world, "desk", "runs") && find("levee-channel").is_some()
    });
    let carries = find("levee-channel").expect("it runs");
    let sessiond = find("levee-sessiond").expect("it runs");
    let uid = fs::metadata(format!("/proc/{carries}")).expect("a process");
    fs::write(twins.join("hostile"), format!("levee-channel {}\n", uid.uid())).expect("say who is hostile");
    assert!(Command::new("kill").args(["-KILL", &carries.to_string()]).status().expect("kill").success());
    // What it counts is told with the status after the one for which it was asked.
    eventually(PATIENCE, "what it counts is told", || steering().contains("channel readings: 00xx"));
    for _ in 0..3 {
        assert!(steering().len() < 10_000, "{}", steering());
    }
    assert_eq!(find("levee-sessiond"), Some(sessiond), "it was not ended");
}
