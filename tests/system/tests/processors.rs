//! Processors of labels' own: what is at such a label runs there and nowhere else, and nothing else of levee's does.
//!
//! Needs root, python3, util-linux, iproute2, two processors, and levee's own programs (`cargo build --workspace --bins`).

use std::fs;
use std::time::Duration;

use levee_system::{World, eventually, host, programs, text};

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks for every processor there is, and says where it runs.
const WHERE: &str = "import ctypes, os, time
where = ctypes.CDLL(None).sched_getcpu
while True:
    for asked in range(os.sysconf('SC_NPROCESSORS_CONF')):
        for all in ({asked}, set(range(os.sysconf('SC_NPROCESSORS_CONF')))):
            try:
                os.sched_setaffinity(0, all)
            except OSError:
                pass
            until = time.monotonic() + 0.01
            while time.monotonic() < until:
                pass
            print('on', where(), *sorted(os.sched_getaffinity(0)), flush=True)
";

fn partition(name: &str, label: &str) -> String {
    format!(
        "\n[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\n\
         command = [\"/usr/bin/python3\", \"-c\", '''\n{WHERE}''']\nmemory = \"96M\"\ndisk = \"8M\"\n"
    )
}

/// The last processor is SECRET's; it needs no slot, where all others have one.
fn site(name: &str, last: usize) -> String {
    SITE.replace("\"harbour\"", &format!("\"{name}\""))
        + &format!("\n[[processors]]\nnumbers = \"{last}\"\nlabels = [\"SECRET\"]\n")
        + "\n[frames]\n\n[[frames.slot]]\nlabels = [\"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\", \"SECRET//NATO,MED\"]\n\
           time = \"10ms\"\n"
}

/// The last processor's number, as the kernel counts them.
fn last() -> usize {
    let all = std::thread::available_parallelism().expect("processors").get();
    assert!(all >= 2, "this test needs a machine with two processors");
    all - 1
}

/// On which processors a partition said that it ran, or that it may.
fn said(world: &World, name: &str) -> Vec<usize> {
    let directory = world.path(&format!("state/logs/labels/partition+{name}"));
    let text =
        ["1.log", "0.log"].map(|file| fs::read_to_string(directory.join(file)).unwrap_or_default()).concat();
    let lines = text.lines().filter_map(|line| line.split_once("on ").map(|(_, numbers)| numbers));
    lines.flat_map(str::split_whitespace).filter_map(|number| number.parse().ok()).collect()
}

/// Where a process may run, as the kernel writes it.
fn may(process: &host::Process) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}

#[test]
fn a_label_with_a_processor_of_its_own_runs_there_and_nothing_else_does_whatever_it_asks_for() {
    let last = last();
    let others = if last == 1 { "0".to_owned() } else { format!("0-{}", last - 1) };
    let site = site("apart", last) + &partition("high", "SECRET") + &partition("low", "UNCLASSIFIED");
    let mut world = World::up("apart", &site, &["ws1"]);
    let enough = || ["high", "low"].iter().all(|name| said(&world, name).len() > 100);
    eventually(PATIENCE, "both have said where they are", enough);
    assert!(said(&world, "high").iter().all(|number| *number == last), "{:?}", said(&world, "high"));
    assert!(said(&world, "low").iter().all(|number| *number < last), "{:?}", said(&world, "low"));

    world.login("ws1", "ada").ok();
    world.level("ws1", "SECRET").ok();
    let page = world.fetch("ws1", "http://server.harbour.example/");
    assert_eq!(page.status, 0, "{page:?}");
    let mut all = host::below(world.server_pid());
    let there = |all: &[host::Process]| all.iter().filter(|one| may(one) == last.to_string()).count();
    // The partition's process 1 and program, the label's process 1, its services, its vault.
    eventually(PATIENCE, "the label's processes are on their processor", || {
        all = host::below(world.server_pid());
        there(&all) >= 5
    });
    let elsewhere = |one: &&host::Process| !may(one).is_empty() && may(one) != last.to_string();
    let rest: Vec<_> = all.iter().filter(elsewhere).map(|one| (one.name.clone(), may(one))).collect();
    assert!(rest.iter().all(|(_, where_)| *where_ == others), "{rest:?}");
    for name in ["levee-sessiond", "levee-keyer", "levee-signer", "levee-tps", "levee-frames"] {
        assert!(
            rest.iter().any(|(process, _)| process.as_str() == &name[..name.len().min(15)]),
            "{name}: {rest:?}"
        );
    }
    let vault = all.iter().find(|one| one.name == "levee-vault").expect("its vault");
    assert_eq!(may(vault), last.to_string());
    world.stop_server();
}

/// Says where it may run, and for a while whether that changes.
const BEGINS: &str = "import os, time
until = time.monotonic() + 1
while time.monotonic() < until:
    print('on', *sorted(os.sched_getaffinity(0)), flush=True)
    time.sleep(0.001)
time.sleep(1000)
";

/// Partitions that begin at once, in one turn of the warden's loop, each linked to all before it: the turn is long.
const MANY: usize = 16;

#[test]
fn what_a_partition_begins_with_runs_on_its_processors_already() {
    let last = last();
    let mut site = SITE.replace("\"harbour\"", "\"begin\"");
    site += &format!("\n[[processors]]\nnumbers = \"{last}\"\nlabels = [\"SECRET\"]\n");
    for number in 0..MANY {
        site += &format!(
            "\n[[partition]]\nname = \"p{number}\"\nlabel = \"SECRET\"\ncommand = [\"/usr/bin/python3\", \"-c\", '''\n{BEGINS}''']\n\
             memory = \"32M\"\ndisk = \"8M\"\n"
        );
        for other in 0..if number < MANY / 2 { 0 } else { MANY / 2 } {
            site += &format!(
                "\n[[link]]\nname = \"l{other}x{number}\"\nbetween = [\"p{other}\", \"p{number}\"]\n\
                 addresses = [\"10.9.{}.1/30\", \"10.9.{}.2/30\"]\n",
                other * MANY + number,
                other * MANY + number
            );
        }
    }
    let mut world = World::up("begin", &site, &[]);
    let name = |number: usize| format!("p{number}");
    eventually(PATIENCE, "each has said where it runs", || {
        (0..MANY).all(|number| !said(&world, &name(number)).is_empty())
    });
    // How often each has said that it may run elsewhere.
    let elsewhere = |number| said(&world, &name(number)).into_iter().filter(|at| *at != last).count();
    assert_eq!((0..MANY).map(elsewhere).collect::<Vec<_>>(), [0; MANY]);
    world.stop_server();
}

#[test]
fn a_processor_that_is_not_there_and_a_site_that_leaves_none_are_refused() {
    let last = last();
    let every = format!("0-{last}");
    for (numbers, expected) in [("7000", "names 7000"), (every.as_str(), "leaves none")] {
        let site = site("absent", last)
            .replace(&format!("numbers = \"{last}\""), &format!("numbers = \"{numbers}\""));
        let world = World::new("absent", &site, &[]);
        let path = |name: &str| text(&world.path(name));
        let (levee, site, state, run) =
            (text(&programs().join("levee")), path("site.toml"), path("state"), path("run"));
        let up = world.server_sh(&levee, &["up", &site, "--state", &state, "--run", &run, "--foreground"]);
        let said = up.refused();
        assert!(said.contains(expected), "{numbers}: {said}");
    }
}
