//! Frames: at each time only that runs whose slot it is, whatever becomes of the others and of what keeps the frames.
//!
//! Needs root, python3, util-linux, iproute2, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{Stalled, World, eventually, host, text};
use serde_json::Value;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PATIENCE: Duration = Duration::from_secs(60);

const FRAMES: &str = r#"
[frames]

[[frames.slot]]
labels = ["SECRET"]
time = "10ms"

[[frames.slot]]
labels = ["UNCLASSIFIED..CONFIDENTIAL//NATO,MED", "SECRET//NATO,MED"]
time = "10ms"
"#;

/// Computes all the time, and says when it ran: from and to, in nanoseconds since 1970. What lies 3 ms apart it takes for one time, which is
/// less than any other's slot.
const WATCH: &str = "import time
first = last = time.time_ns()
while True:
    now = time.time_ns()
    if now - last > 3000000:
        print('ran', first, last, flush=True)
        first = now
    last = now
";

/// Writes to its store whenever it may.
const WRITES: &str = "import time, os
log = os.open('/srv/own/log', os.O_WRONLY | os.O_CREAT)
while True:
    os.pwrite(log, b'x', 0)
    os.fsync(log)
    time.sleep(0.001)
";

fn partition(name: &str, label: &str, program: &str) -> String {
    format!(
        "\n[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\n\
         command = [\"/usr/bin/python3\", \"-c\", '''\n{program}''']\nmemory = \"96M\"\ndisk = \"8M\"\n"
    )
}

/// When it says that it ran.
fn ran(world: &World, name: &str) -> Vec<(u64, u64)> {
    let directory = world.path(&format!("state/logs/labels/partition+{name}"));
    let read = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    let text = ["1.log", "0.log"].map(read).concat();
    let spans = text.lines().filter_map(|line| {
        let mut words = line.split(" ran ").nth(1).or_else(|| line.strip_prefix("ran "))?.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    });
    let mut all: Vec<_> = spans.collect();
    all.sort_unstable();
    all
}

/// Times at which both ran, in nanoseconds.
fn both(one: &[(u64, u64)], other: &[(u64, u64)]) -> Vec<u64> {
    let common = |a: &(u64, u64), b: &(u64, u64)| a.1.min(b.1).checked_sub(a.0.max(b.0));
    let near = |a: &(u64, u64)| other.partition_point(|b| b.1 < a.0);
    one.iter()
        .flat_map(|a| other.iter().skip(near(a)).take_while(|b| b.0 <= a.1).filter_map(move |b| common(a, b)))
        .filter(|common| *common > 0)
        .collect()
}

fn counter(status: &Value, name: &str) -> u64 {
    status["steering"][format!("frames: {name}")].as_u64().unwrap_or(0)
}

#[test]
fn at_no_time_two_run_whose_slots_differ_and_what_does_not_stop_keeps_nobody_from_running() {
    let site = SITE.replace("\"harbour\"", "\"frames\"")
        + FRAMES
        + &partition("high", "SECRET", WATCH)
        + &partition("low", "UNCLASSIFIED", WATCH)
        + &partition("writer", "SECRET", WRITES);
    let mut world = World::up("frames", &site, &[]);
    let enough = |world: &World| ["high", "low"].iter().all(|name| ran(world, name).len() >= 100);
    eventually(PATIENCE, "both have run a hundred times", || enough(&world));
    let (high, low) = (ran(&world, "high"), ran(&world, "low"));
    let common = both(&high, &low);
    assert!(common.is_empty(), "both ran at once: {} of {} times, {common:?}", common.len(), high.len());
    eventually(PATIENCE, "it is counted", || {
        let status = world.status();
        counter(&status, "groups of processes") >= 3 && counter(&status, "slots ended") >= 100
    });

    // What keeps the frames is killed, again and again: another takes its place, and meanwhile the same holds.
    let keeper = |world: &World| {
        host::below(world.server_pid()).into_iter().find(|process| process.name == "levee-frames")
    };
    let now = || {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        u64::try_from(since_1970.as_nanos()).expect("nanoseconds")
    };
    let since = |world: &World, name: &str, then: u64| -> Vec<(u64, u64)> {
        ran(world, name).into_iter().filter(|(_, until)| *until > then).collect()
    };
    let before = now();
    for killed in 1..=6 {
        let first = keeper(&world).expect("what keeps the frames");
        first.signal("KILL");
        eventually(PATIENCE, "another keeps the frames", || keeper(&world).is_some_and(|now| now != first));
        let after = now();
        eventually(PATIENCE, "both go on", || {
            ["high", "low"].iter().all(|name| since(&world, name, after).len() >= 10)
        });
        let common = both(&since(&world, "high", before), &since(&world, "low", before));
        assert!(
            common.is_empty(),
            "both ran at once when another took over, by the {killed}th time: {common:?}"
        );
    }
    let of = |name: &str| {
        let all = world.status()["partitions"].clone();
        all.as_array().and_then(|all| all.iter().find(|one| one["name"] == name)).expect("it").clone()
    };

    // One waits in the kernel for its disk, which nothing interrupts: it is killed, an operator is told, and the others run on.
    let init = of("writer")["init"].to_string();
    let stalled = Stalled::store(&init);
    eventually(PATIENCE, "it is told of", || {
        let alarms = world.status()["alarms"].to_string();
        alarms.contains("the partition writer does not stop")
    });
    eventually(PATIENCE, "it is counted", || {
        counter(&world.status(), "groups killed that did not stop") >= 1
    });
    assert!(stalled.is_there());
    let ended = counter(&world.status(), "slots ended");
    let last = ran(&world, "low").last().expect("it ran").1;
    eventually(PATIENCE, "slots end, and the others run", || {
        counter(&world.status(), "slots ended") > ended + 4
            && ["high", "low"].iter().all(|name| ran(&world, name).last().is_some_and(|span| span.1 > last))
    });
    drop(stalled);
    eventually(PATIENCE, "the killed one is started again", || {
        let writer = of("writer");
        writer["starts"].as_u64() >= Some(2) && writer["state"] == "runs"
    });
    let run = text(&world.path("run"));
    world.levee(&["partition", "stop", "--run", &run, "writer"]).ok();
    world.stop_server();
}

#[test]
fn what_starts_while_nobody_sees_to_the_frames_stands_still_until_somebody_does() {
    let site = SITE.replace("\"harbour\"", "\"unseen\"") + FRAMES + &partition("low", "UNCLASSIFIED", WATCH);
    let mut world = World::up("unseen", &site, &[]);
    eventually(PATIENCE, "it runs", || !ran(&world, "low").is_empty());
    let run = text(&world.path("run"));
    world.levee(&["partition", "stop", "--run", &run, "low"]).ok();
    let before = ran(&world, "low").len();
    let keeper = host::below(world.server_pid()).into_iter().find(|process| process.name == "levee-frames");
    let keeper = keeper.expect("what keeps the frames");
    // As it is while it waits for what is late at the end of a slot; and as if it were not there, since it hears nothing.
    keeper.signal("STOP");
    world.levee(&["partition", "start", "--run", &run, "low"]).ok();
    // Without its slot it would be at work long before.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(ran(&world, "low").len(), before, "it ran though no slot had begun");
    keeper.signal("CONT");
    eventually(PATIENCE, "it runs in its slots", || ran(&world, "low").len() > before);
    world.stop_server();
}

/// Asks again and again for memory, in calls of the kernel's that go on for milliseconds when it is to stop.
const OUTLASTS: &str = "import mmap
while True:
    mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()
";

#[test]
fn what_is_late_for_the_ends_of_its_slots_too_often_is_killed() {
    let site = SITE.replace("\"harbour\"", "\"late\"")
        + &FRAMES.replace("[frames]", "[frames]\nmargin = \"10ms\"\nstop = \"150ms\"\nlate = \"30 in 60s\"")
        + &partition("outlasts", "SECRET", OUTLASTS)
        + &partition("low", "UNCLASSIFIED", WATCH);
    let mut world = World::up("late", &site, &[]);
    eventually(PATIENCE, "it is killed, and started again", || {
        let status = world.status();
        let all = status["partitions"].as_array().cloned().unwrap_or_default();
        counter(&status, "groups killed that did not stop") >= 1
            && all.iter().any(|one| one["name"] == "outlasts" && one["starts"].as_u64() >= Some(2))
    });
    eventually(PATIENCE, "the other runs", || ran(&world, "low").len() >= 100);
    world.stop_server();
}

/// Has children that die in the other's slot, each of 48 MiB.
const DIES: &str = "import mmap, os, signal
while True:
    child = os.fork()
    if child == 0:
        mmap.mmap(-1, 48 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
        signal.setitimer(signal.ITIMER_REAL, 0.012)
        signal.pause()
    os.waitpid(child, 0)
";

#[test]
fn what_dies_in_others_slots_though_it_is_stopped_is_counted_and_killed_where_that_is_too_often() {
    let site = SITE.replace("\"harbour\"", "\"dying\"")
        + &FRAMES.replace("[frames]", "[frames]\nlate = \"30 in 60s\"")
        // On a busy host it is late for other reasons, too.
        + &(partition("dies", "SECRET", DIES) + "restart = \"100 in 60s\"\n");
    let mut world = World::up("dying", &site, &[]);
    eventually(PATIENCE, "it is killed, and started again", || {
        let status = world.status();
        let all = status["partitions"].as_array().cloned().unwrap_or_default();
        counter(&status, "slots in which a group that was stopped used a processor") >= 10
            && all.iter().any(|one| one["name"] == "dies" && one["starts"].as_u64() >= Some(2))
    });
    world.stop_server();
}

#[test]
fn a_person_works_at_two_levels_whose_slots_differ() {
    let site = SITE.replace("\"harbour\"", "\"slots\"") + FRAMES;
    let mut world = World::up("slots", &site, &["ws1"]);
    world.login("ws1", "ada").ok();
    for level in ["UNCLASSIFIED", "SECRET"] {
        world.level("ws1", level).ok();
        let page = world.fetch("ws1", "http://server.harbour.example/");
        assert_eq!(page.status, 0, "{page:?}");
    }
    // It is told about once a second.
    eventually(PATIENCE, "both levels' processes have slots", || {
        counter(&world.status(), "groups of processes") >= 2
    });
    world.tpe("ws1", &["logout"]).ok();
    world.stop_server();
}
