//! How long changes of posture take while every session carries traffic, and whether a packet is lost.
//!
//! `cargo run -p levee-system --bin posture-times -- [SESSIONS [CHANGES]]` (after `cargo build --workspace --bins`), as root. Server and
//! workstations are on this host, so all have its processors. Prints docs/reports/postures.md.
#![forbid(unsafe_code)]

use levee_system::{World, host, sh, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const SITE: &str = include_str!("../../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
const LABELS: [&str; 3] = ["SECRET//NATO,MED", "CONFIDENTIAL//MED", "UNCLASSIFIED"];
/// Each change is from one of them to the other.
const POSTURES: [&str; 2] = ["siege", "default"];
const SESSIONS: usize = 6;
const CHANGES: usize = 200;
/// What workstations have to follow.
const FOLLOW: &str = "20s";

/// The site, with a person and a workstation for each session.
fn site(sessions: usize) -> String {
    let range = "UNCLASSIFIED..SECRET//NATO,MED";
    let more = (3..=sessions)
        .map(|n| format!("[[host]]\nname = \"ws{n}\"\naccreditation = \"{range}\"\n"))
        .chain((1..=sessions).map(|n| format!("[[user]]\nname = \"p{n}\"\nclearance = \"{range}\"\n")));
    let posture = format!(
        "[[posture]]\nname = \"{}\"\nciphers = [\"chacha20-poly1305\"]\nfollow = \"{FOLLOW}\"\n",
        POSTURES[0]
    );
    // The second workstation of the small site may not have every label.
    let all = SITE.replace(
        "accreditation = \"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\"",
        &format!("accreditation = \"{range}\""),
    );
    format!("{all}\n{}{posture}", more.collect::<String>())
}

/// What the server's vaults dropped, by reason.
fn dropped(status: &Value) -> BTreeMap<String, u64> {
    let passed = ["packets-in", "packets-out", "bytes-in", "bytes-out"];
    let mut sums = BTreeMap::new();
    let vaults = status["vaults"].as_object().into_iter().flatten();
    for (name, count) in vaults.filter_map(|(_, vault)| vault["counters"].as_object()).flatten() {
        if !passed.contains(&name.as_str()) {
            *sums.entry(name.clone()).or_default() += count.as_u64().unwrap_or(0);
        }
    }
    sums
}

/// TCP segments sent, and sent again, within every compartment, at the server and at workstations.
fn segments(world: &World) -> (u64, u64) {
    let wardens = world.workstation_pids().chain([world.server_pid()]);
    let inits = wardens.flat_map(host::below).filter(|process| process.name == "levee-init");
    let (mut sent, mut again) = (0, 0);
    for init in inits {
        let net = format!("--net=/proc/{}/ns/net", init.pid);
        let snmp = sh("nsenter", &[&net, "cat", "/proc/net/snmp"]).ok();
        let mut rows = snmp.lines().filter(|line| line.starts_with("Tcp:")).map(str::split_whitespace);
        let (names, values) = (rows.next().expect("names"), rows.next().expect("values"));
        for (name, value) in names.zip(values) {
            match name {
                "OutSegs" => sent += value.parse::<u64>().expect("a number"),
                "RetransSegs" => again += value.parse::<u64>().expect("a number"),
                _ => {}
            }
        }
    }
    (sent, again)
}

/// A file goes to the label's own store and comes back the same, again and again until it is over. Counts what failed.
fn carry(world: &World, number: usize, over: &AtomicBool, rounds: &AtomicU64, failed: &AtomicU64) {
    let there_and_back = format!(
        "head -c 400000 /dev/urandom >/tmp/a && curl --silent --show-error --fail --max-time 30 -T /tmp/a {PAGE}own/a{number} && \
         curl --silent --show-error --fail --max-time 30 --output /tmp/b {PAGE}own/a{number} && cmp /tmp/a /tmp/b"
    );
    while !over.load(Ordering::Relaxed) {
        let ended = world.inside(&format!("ws{number}"), &["sh", "-c", &there_and_back]).output();
        let well = ended.is_ok_and(|output| output.status.success());
        (if well { rounds } else { failed }).fetch_add(1, Ordering::Relaxed);
    }
}

fn main() {
    levee_system::ends_what_it_started();
    let mut arguments = std::env::args().skip(1).map(|word| word.parse().expect("a number"));
    let (sessions, changes) = (arguments.next().unwrap_or(SESSIONS), arguments.next().unwrap_or(CHANGES));
    let names: Vec<String> = (1..=sessions).map(|n| format!("ws{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::up("postimes", &site(sessions), &names);
    for (number, (name, label)) in (1..).zip(names.iter().zip(LABELS.iter().cycle())) {
        world.login(name, &format!("p{number}")).ok();
        world.level(name, label).ok();
        world.fetch(name, PAGE).ok();
    }
    let run = text(&world.path("run"));
    let (over, rounds, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let ((sent, again), drops) = (segments(&world), dropped(&world.status()));
    let began = Instant::now();
    let mut times: Vec<f64> = Vec::new();
    let mut refused = 0;
    std::thread::scope(|scope| {
        for number in 1..=sessions {
            let (world, over, rounds, failed) = (&world, &over, &rounds, &failed);
            scope.spawn(move || carry(world, number, over, rounds, failed));
        }
        for name in POSTURES.iter().cycle().take(changes) {
            let start = Instant::now();
            let done = world.levee(&["posture", "set", name, "--reason", "measured", "--run", &run]);
            let well = done.out.contains("no tunnel has keys from before");
            if well { times.push(start.elapsed().as_secs_f64() * 1e3) } else { refused += 1 }
        }
        over.store(true, Ordering::Relaxed);
    });
    let took = began.elapsed().as_secs_f64();
    let ((sent_after, again_after), drops_after) = (segments(&world), dropped(&world.status()));
    let (sent, again) = (sent_after - sent, again_after - again);
    let left = world.status()["session_count"].as_u64().unwrap_or(0);
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        times
            .get(((times.len().saturating_sub(1)) as f64 * share).round() as usize)
            .copied()
            .unwrap_or(f64::NAN)
    };
    println!("# Changes of posture under traffic\n");
    println!(
        "`cargo run -p levee-system --bin posture-times -- {sessions} {changes}`, {} build, all on one host: {sessions} sessions at {} \
         labels, each carrying files of 400,000 octets to and fro; {changes} changes between `aes-256-gcm` first and `chacha20-poly1305` \
         alone, one after another, in {took:.0} s.\n",
        if cfg!(debug_assertions) { "debug" } else { "release" },
        LABELS.len().min(sessions)
    );
    println!("| what | |\n|---|---|");
    println!("| changes acknowledged; not | {}; {refused} |", times.len());
    println!(
        "| time to acknowledgement, ms: least, median, 99th of 100, most | {:.0}, {:.0}, {:.0}, {:.0} |",
        at(0.0),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    println!("| files there and back, whole; not | {}; {} |", rounds.into_inner(), failed.into_inner());
    println!(
        "| TCP segments sent within compartments, both ends; sent again, for whatever reason | {sent}; {again} |"
    );
    println!("| sessions at the end, of {sessions} | {left} |");
    for (name, count) in drops_after {
        let count = count - drops.get(&name).copied().unwrap_or(0);
        if count > 0 {
            println!("| packets that a vault of the server dropped: {name} | {count} |");
        }
    }
}
