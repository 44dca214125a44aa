//! What a low label sees of the machine while a higher one works as hard as it can: nothing that changes, but for what
//! is listed, and that is measured.
//!
//! Needs root, python3, e2fsprogs and levee's own programs (`cargo build --workspace --bins`).

mod pair;
mod places;

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;

use levee_lab::leak::Finding;
use levee_lab::leak::channels::{Channel, Class, From};
use levee_lab::leak::meter::Meter;
use levee_policy::site::Needs;
use levee_policy::{Label, LabelName, Site};
use levee_stats::capacity::Windows;
use pair::Pair;
use places::{Running, place, probe, run};
use serde_json::{Map, Value, json};

const SITE: &str = include_str!("../../../conf/small/site.toml");

/// What does change, and nothing here can hide; listed with its rate in `docs/SECURITY.md`.
const KNOWN: [&str; 1] = [
    // A number that counts every setsid(2) on the machine since it started. It is a file of each process, whose mode
    // the kernel lets nobody change, and calling setsid is every program's right.
    "/proc/self/autogroup",
];

/// Bounds of open channels are twice what one host showed: caches, disks and kernels of others may be so many times as quick.
const OTHER_HOSTS: f64 = 8.0;

#[test]
fn free_space_inodes_proc_load_and_counters_below_are_the_same_whatever_a_higher_label_does() {
    let site = Site::parse(SITE).expect("the example site is sound");
    let directory = tempfile::Builder::new().prefix("levee-quiet-").tempdir_in("/var/tmp").unwrap();
    let labels: Vec<Label> = site.services().next().unwrap().range().labels(64).unwrap().collect();
    let at = |name: &str, number: usize| {
        let label = site.label(&LabelName::new(name).unwrap()).unwrap();
        place(&site, directory.path(), &labels, &label, number)
    };
    let mut low = at("UNCLASSIFIED", 0);
    let idle = observe(&mut low);
    assert!(idle.len() > 100, "{} things are looked at", idle.len());

    let mut high = at("SECRET//NATO,MED", 1);
    same(&idle, &observe(&mut low), "a higher label has started");

    let (stdin, mut writer) = std::io::pipe().unwrap();
    let (reader, stdout) = std::io::pipe().unwrap();
    run(&mut high.compartment, 9, &["work.py"], &OwnedFd::from(stdin), &OwnedFd::from(stdout));
    std::io::Write::write_all(&mut writer, json!({}).to_string().as_bytes()).unwrap();
    drop(writer);
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).unwrap();
    let work: Map<String, Value> = serde_json::from_str(&line).expect("the higher label works");
    assert!(work.values().all(|n| n.as_u64().is_some_and(|n| n > 0)), "it really works: {line}");
    for _ in 0..3 {
        same(&idle, &observe(&mut low), "a higher label works");
    }

    high.vault.kill().unwrap();
    high.compartment.stop().unwrap();
    same(&idle, &observe(&mut low), "a higher label has ended");
    low.vault.kill().unwrap();
    low.compartment.stop().unwrap();
}

/// What remains, measured by the laboratory's meter for a moment each, by a program above and one below that are written to use it. Services have no
/// group of calls. What seems to be beyond its bound is so only if it is three times.
#[test]
fn no_channel_carries_more_than_its_bound() {
    let needs = Needs::default();
    let pair = Pair::new(2, &needs, [Vec::new(), Vec::new()]);
    let mut beyond = Vec::new();
    let mut used = 0;
    // The warden's part, vaults and the audit log need a whole server: tests/system/src/bin/label-channel.rs, `levee lab leak`.
    // What takes up whole pools takes a second a window: there, too.
    let whole = ["service-start", "pool"];
    let here = |c: &Channel| !whole.contains(&c.program.as_str()) && c.from == From::Service;
    let channels = Channel::all().unwrap().into_iter().filter(here).map(|c| match c.class {
        Class::Closed => c,
        Class::Open => Channel { allowed: c.allowed * OTHER_HOSTS, ..c },
    });
    for channel in channels {
        let found = |seed: u64| {
            let meter = Meter::new(pair.program(), seed, None).unwrap();
            let ends = &mut |side| pair.end(side, &needs);
            let carried =
                meter.measure(ends, &channel, 0.2 * seed as f64).unwrap().map(|(carried, _)| carried);
            Finding { channel: channel.clone(), carried }
        };
        let first = found(1);
        used += usize::from(first.carried.is_ok());
        if first.beyond() && found(3).beyond() && found(5).beyond() {
            beyond.push(format!("{first:?}"));
        }
    }
    pair.stop();
    assert!(used > 10, "{used} channels could be tried");
    assert!(beyond.is_empty(), "{}", beyond.join("\n"));
}

/// Programs that carried megabytes and kilobits between two labels of levee as it once was, by what both can name, each with a window in µs.
/// What is not listed here is refused to services without the group that it is of.
const ATTACKS: [(&str, u32); 11] = [
    ("flags of descriptor 0", 100),
    ("flags of descriptor 2", 100),
    ("offset of descriptor 2", 100),
    ("locks on descriptor 0", 100),
    ("locks on eventfds", 100),
    ("locks on the time namespace", 100),
    ("locks on /dev/null", 100),
    ("futexes on /usr", 100),
    ("numbers of eventfds", 100),
    ("numbers of processes", 200),
    ("counts of neighbours", 100),
];

/// What the receiver saw in so many windows; nothing where an end is refused what it needs.
fn seen(pair: &Pair, needs: &Needs, (name, window): (&str, u32), tries: u32) -> Option<Windows> {
    let all = Channel::all().unwrap();
    let channel = all.into_iter().find(|c| c.name == name).expect("a channel of the table");
    let channel = Channel { windows: vec![window], ..channel };
    let meter = Meter::new(pair.program(), 7, None).unwrap();
    let seconds = f64::from(tries) * f64::from(window) / 1e6;
    let measured = meter.measure(&mut |side| pair.end(side, needs), &channel, seconds).unwrap();
    measured.ok().map(|(_, windows)| windows)
}

/// Whoever always sees the same is told nothing, however the host's time is shared out.
fn always_the_same(windows: &Windows) -> bool {
    let values: Vec<f64> = windows.seen.iter().copied().flatten().collect();
    values.windows(2).all(|two| two[0].to_bits() == two[1].to_bits())
}

#[test]
fn the_attacks_that_worked_show_the_same_in_each_of_ten_thousand_tries() {
    let needs = Needs::default();
    let pair = Pair::new(4, &needs, [Vec::new(), Vec::new()]);
    let mut told = Vec::new();
    let mut tried = 0;
    for attack in ATTACKS {
        let Some(windows) = seen(&pair, &needs, attack, 10_000) else { continue };
        assert!(windows.seen.len() >= 9_999, "{attack:?}: {} tries", windows.seen.len());
        tried += 1;
        if !always_the_same(&windows) {
            told.push(attack.0);
        }
    }
    pair.stop();
    assert!(told.is_empty(), "a program below is told something by {told:?}");
    assert!(tried >= 6, "{tried} of the attacks could be tried");
    // Where a service asks for what leaks, the same programs are heard.
    let needs = Needs::all();
    let pair = Pair::new(6, &needs, [Vec::new(), Vec::new()]);
    let heard = seen(&pair, &needs, ("locks on eventfds", 1_000), 1_000).expect("it may");
    pair.stop();
    assert!(!always_the_same(&heard), "locks that all have are heard");
}

fn observe(running: &mut Running) -> Map<String, Value> {
    serde_json::from_str(&probe(&mut running.compartment, "observe.py", &json!({}))).unwrap()
}

fn same(before: &Map<String, Value>, after: &Map<String, Value>, when: &str) {
    let differ: Vec<String> = before
        .iter()
        .filter(|(what, value)| after.get(*what) != Some(value) && !KNOWN.contains(&what.as_str()))
        .map(|(what, value)| format!("{what}:\n  {value}\n  {}", after.get(what).unwrap_or(&Value::Null)))
        .collect();
    assert!(differ.is_empty(), "{when}, and below this has changed:\n{}", differ.join("\n"));
}
