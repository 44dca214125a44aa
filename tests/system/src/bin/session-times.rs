//! How long the commands of a session take on this host, and what memory each process has then.
//!
//! `cargo run --release -p levee-system --bin session-times` (after `cargo build --release --workspace --bins`), as
//! root, on a quiet host. Whole commands, with the start of their process, since that is what a person waits for; the
//! first line says how much of it that is. Server and workstation are on this host, so both have its processors.
#![forbid(unsafe_code)]

use levee_system::host;
use levee_system::{World, text};
use std::time::Instant;

const SITE: &str = include_str!("../../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
/// The password of [`World::new`] under argon2id with the least parameters there are: a sign-on but for its hash.
const LEAST: &str =
    "$argon2id$v=19$m=8,t=1,p=1$PedPV5px3hBz65uOSq95KQ$jfYOQ4ylT2OgY+5OQ7qs2q+OeTy6Rh4FU+Go4kwMtxM\n";
/// Every label of the site.
const LEVELS: [&str; 3] = ["UNCLASSIFIED", "CONFIDENTIAL", "SECRET"];
const CATEGORIES: [&str; 4] = ["", "//NATO", "//MED", "//NATO,MED"];
/// Samples of each.
const SAMPLES: usize = 20;

/// Milliseconds.
struct Times(&'static str, Vec<f64>);

impl Times {
    fn of(what: &'static str) -> Self {
        Self(what, Vec::new())
    }

    #[track_caller]
    fn take(&mut self, run: impl FnOnce() -> levee_system::Done) {
        let start = Instant::now();
        let done = run();
        let time = start.elapsed();
        done.ok();
        self.1.push(time.as_secs_f64() * 1e3);
    }

    fn show(&mut self) {
        self.1.sort_by(f64::total_cmp);
        let at = |share: f64| self.1.get(((self.1.len() - 1) as f64 * share).round() as usize).copied();
        let [least, median, most] = [0.0, 0.5, 1.0].map(|share| at(share).unwrap_or(f64::NAN));
        println!("| {} | {median:.1} | {least:.1}–{most:.1} | {} |", self.0, self.1.len());
    }
}

fn main() {
    levee_system::ends_what_it_started();
    let mut nothing = Times::of("`levee-tpe status`: a process that asks the agent alone");
    let mut hash = Times::of("sign-on");
    let mut plain = Times::of("sign-on but for the password's hash (argon2id with its least parameters)");
    let mut start = Times::of("session at a label that does not run yet: network, store, compartment, vault");
    let mut page = Times::of("first page there: starts nginx");
    let mut change = Times::of("change of level, both labels running");
    let mut server = Times::of("the server's part of it: until it acknowledges that the old session is over");
    let mut again = Times::of("page at a label that runs");
    let mut logout = Times::of("logout to its acknowledgement");
    let all: Vec<String> =
        LEVELS.iter().flat_map(|level| CATEGORIES.map(|category| format!("{level}{category}"))).collect();

    let mut memory = Vec::new();
    let mut signed_on = 0;
    for round in 0..SAMPLES.div_ceil(all.len()) {
        // As often as this measures.
        let site = SITE.replace("changes = 30 ", "changes = 10000 ");
        // A new server each time: no label runs yet.
        let mut world = World::new(&format!("times{round}"), &site, &["ws1", "ws2"]);
        world.start_server();
        world.start_workstation("ws1");
        // A workstation on which levee holds the trusted path and nothing else: the wait there is the server's.
        world.leave_tunnel_to_others("ws2");
        world.start_workstation("ws2");
        let credential = world.path("state").join("sessiond/credentials/mia");
        std::fs::write(&credential, LEAST).unwrap_or_else(|e| panic!("{}: {e}", credential.display()));
        world.login("ws1", "ada").ok();
        for label in all.iter().take(SAMPLES - start.1.len()) {
            start.take(|| world.level("ws1", label));
            page.take(|| world.fetch("ws1", PAGE));
        }
        world.tpe("ws1", &["logout"]).ok();
        if round > 0 {
            continue;
        }
        for _ in 0..SAMPLES {
            nothing.take(|| world.tpe("ws1", &["status"]));
            hash.take(|| world.login("ws1", "ada"));
            world.level("ws1", LEVELS[2]).ok();
            change.take(|| world.level("ws1", LEVELS[0]));
            again.take(|| world.fetch("ws1", PAGE));
            logout.take(|| world.tpe("ws1", &["logout"]));
            plain.take(|| world.login("ws1", "mia"));
            world.tpe("ws1", &["logout"]).ok();
            signed_on += 2;
        }
        world.login("ws2", "ada").ok();
        world.level("ws2", LEVELS[0]).ok();
        for label in [LEVELS[1], LEVELS[0]].iter().cycle().take(SAMPLES) {
            server.take(|| world.level("ws2", label));
        }
        world.tpe("ws2", &["logout"]).ok();
        let below = host::below(world.server_pid());
        memory =
            below.iter().filter_map(|process| Some((process.name.clone(), resident(process)?))).collect();
        println!("site: {}\n", text(&world.path("site.toml")));
    }

    println!("| what | median ms | range | n |\n|---|---|---|---|");
    let all = [nothing, hash, plain, start, page, again, change, server, logout];
    all.into_iter().for_each(|mut times| times.show());
    println!(
        "\nResident memory after {signed_on} sign-ons:\n\n| process | how many | MiB, most |\n|---|---|---|"
    );
    memory.sort();
    for group in memory.chunk_by(|a, b| a.0 == b.0) {
        let most = group.iter().map(|(_, kib)| *kib).max().unwrap_or_default();
        println!("| {} | {} | {:.1} |", group[0].0, group.len(), most as f64 / 1024.0);
    }
}

/// KiB; none of a process that has just ended.
fn resident(process: &host::Process) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid)).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
