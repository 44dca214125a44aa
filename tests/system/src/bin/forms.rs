//! What a kernel of its own costs a label on this host: the same services at a label that is a compartment and at one that is a machine, in turn.
//!
//! `cargo run --release -p levee-system --bin forms` (after `cargo build --release --workspace --bins` and `scripts/guest`), as root, on a
//! quiet host. Each round has a server of its own, so that both labels start for the first time; which goes first changes. Figures are
//! medians with the range; the ratio is the median of the rounds' own ratios.
#![forbid(unsafe_code)]

use levee_sys::cgroup::Usage;
use levee_system::World;
use std::time::Instant;

const SITE: &str = include_str!("../../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example";
/// The forms, and a label of each.
const FORMS: [(&str, &str); 2] = [("compartment", "CONFIDENTIAL"), ("machine", "SECRET")];
const ROUNDS: usize = 5;
/// Requests of one process.
const REQUESTS: usize = 100;
/// Bytes of a document that is fetched whole.
const DOCUMENT: usize = 8 << 20;

/// What is measured, and in which unit.
const WHAT: [(&str, &str); 6] = [
    ("start of the label, until the session is open", "ms"),
    ("first page, which starts nginx", "ms"),
    ("request on a connection that is there", "ms"),
    ("connection with one request", "ms"),
    ("MiB of a stream", "ms"),
    ("memory charged to the label's control group", "MiB"),
];

fn main() {
    levee_system::ends_what_it_started();
    let site = levee_system::with_own_kernels(SITE, FORMS[1].1);
    assert_ne!(site, SITE, "the example site has changed");
    let mut seen: [Vec<[f64; 2]>; WHAT.len()] = Default::default();
    for round in 0..ROUNDS {
        let world = World::up(&format!("forms{round}"), &site, &["ws1"]);
        world.login("ws1", "ada").ok();
        let mut figures = [[0.0; 2]; WHAT.len()];
        for turn in 0..FORMS.len() {
            let form = (round + turn) % FORMS.len();
            for (at, figure) in measure(&world, FORMS[form].1).into_iter().enumerate() {
                figures[at][form] = figure;
            }
        }
        seen.iter_mut().zip(figures).for_each(|(all, one)| all.push(one));
        eprintln!("round {} of {ROUNDS}", round + 1);
    }
    println!("| what | unit | {} | {} | ratio |\n|---|---|---|---|---|", FORMS[0].0, FORMS[1].0);
    for ((what, unit), pairs) in WHAT.iter().zip(&seen) {
        let of = |form: usize| shown(pairs.iter().map(|pair| pair[form]).collect());
        println!(
            "| {what} | {unit} | {} | {} | {} |",
            of(0),
            of(1),
            shown(pairs.iter().map(|pair| pair[1] / pair[0]).collect())
        );
    }
}

/// Each figure of [`WHAT`] at a label that does not run yet.
fn measure(world: &World, label: &str) -> [f64; WHAT.len()] {
    let timed = |run: &dyn Fn()| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e3
    };
    let start = timed(&|| drop(world.level("ws1", label).ok()));
    let first = timed(&|| drop(world.fetch("ws1", PAGE).ok()));
    let request = curl(world, &format!("'{PAGE}/?[1-{REQUESTS}]'")) / REQUESTS as f64;
    let connection =
        curl(world, &format!("-H 'Connection: close' '{PAGE}/?[1-{REQUESTS}]'")) / REQUESTS as f64;
    let put = format!(
        "head -c {DOCUMENT} /dev/urandom >/tmp/document && curl -sSf -T /tmp/document {PAGE}/own/document"
    );
    world.run("ws1", &["sh", "-c", &put]).ok();
    let stream = curl(world, &format!("'{PAGE}/own/document?[1-4]'")) / (4.0 * (DOCUMENT >> 20) as f64);
    let status = world.status();
    let compartments = status["compartments"].as_array().expect("compartments");
    let own = compartments.iter().find(|one| one["label"] == label).expect("the label");
    let init = own["init"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("its first process");
    let memory = Usage::of(init).expect("its control group").memory.0;
    [start, first, request, connection, stream, memory as f64 / (1 << 20) as f64]
}

/// Milliseconds that one process of curl's took for all that it fetched, as it says itself.
fn curl(world: &World, what: &str) -> f64 {
    let script = format!("curl -sSf -o /dev/null -w '%{{time_total}}\\n' {what}");
    let said = world.run("ws1", &["sh", "-c", &script]).ok();
    said.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).sum::<f64>() * 1e3
}

/// The median, and the range.
fn shown(mut all: Vec<f64>) -> String {
    all.sort_by(f64::total_cmp);
    let (least, most) = (all.first().copied().unwrap_or(f64::NAN), all.last().copied().unwrap_or(f64::NAN));
    format!("{:.3} ({least:.3}–{most:.3})", all.get(all.len() / 2).copied().unwrap_or(f64::NAN))
}
