//! What a low label sees of the machine while a higher one works as hard as it can: nothing that changes, but for what
//! is listed, and that is measured.
//!
//! Needs root, python3, e2fsprogs and levee's own programs (`cargo build --workspace --bins`).

mod places;

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use levee_policy::{Label, LabelName, Site};
use levee_system::channel;
use places::{Running, place, probe, run};
use serde_json::{Map, Value, json};

const SITE: &str = include_str!("../../../conf/small/site.toml");

/// What does change, and nothing here can hide; listed with its rate in `docs/SECURITY.md`.
const KNOWN: [&str; 1] = [
    // A number that counts every setsid(2) on the machine since it started. It is a file of each process, whose mode
    // the kernel lets nobody change, and calling setsid is every program's right.
    "/proc/self/autogroup",
];

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

/// What remains, measured: a high label sends random bits to a low one through what the whole machine shares. Sender
/// and receiver are in Python, with windows that fit it: the figures are what was shown, not a bound.
#[test]
fn what_the_channels_that_remain_carry_is_measured() {
    let site = Site::parse(SITE).expect("the example site is sound");
    let directory = tempfile::Builder::new().prefix("levee-channels-").tempdir_in("/var/tmp").unwrap();
    let labels: Vec<Label> = site.services().next().unwrap().range().labels(64).unwrap().collect();
    let at = |name: &str, number: usize| {
        let label = site.label(&LabelName::new(name).unwrap()).unwrap();
        place(&site, directory.path(), &labels, &label, number)
    };
    let (mut low, mut high) = (at("UNCLASSIFIED", 2), at("SECRET//NATO,MED", 3));
    let mut table = String::from("channel     window    bits  wrong   bit/s\n");
    for (name, window) in [("setsid", 0.03), ("inodes", 0.03), ("processor", 0.03)] {
        let bits = channel::bits(128);
        let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() + 1.5;
        let job =
            |end: &str| json!({"channel": name, "end": end, "window": window, "begin": begin, "bits": bits});
        let (send, receive) = (job("send"), job("receive"));
        let said = std::thread::scope(|scope| {
            scope.spawn(|| probe(&mut high.compartment, "channel.py", &send));
            probe(&mut low.compartment, "channel.py", &receive)
        });
        let seen: Vec<f64> = serde_json::from_str(&said).unwrap();
        assert_eq!(seen.len(), bits.len(), "the receiver looked in every window");
        let (wrong, sent) = channel::decode(&bits, &seen);
        let rate = channel::capacity(wrong, sent) / window;
        table
            .push_str(&format!("{name:<10} {:>4} ms  {sent:>5}  {wrong:>5}  {rate:>6.1}\n", window * 1000.0));
    }
    std::io::Write::write_all(&mut std::io::stdout(), table.as_bytes()).unwrap();
    for place in [low, high] {
        place.vault.kill().unwrap();
        place.compartment.stop().unwrap();
    }
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
