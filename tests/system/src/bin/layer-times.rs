//! What a second tunnel costs a stream on this host: the same file down, by one layer, by two, and by two with a gateway between, in turn.
//!
//! `cargo run --release -p levee-system --bin layer-times [ROUNDS]` (after `cargo build --release --workspace --bins`), as root, on a quiet
//! host. All ends are on this host, and share its processors. What is told is the median of each, and of the ratios within a round.
#![forbid(unsafe_code)]

use levee_system::World;

const SITE: &str = include_str!("../../../../conf/small/site.toml");
const LABEL: &str = "SECRET";
/// Of the file, in MiB; a store has 64.
const SIZE: u64 = 40;
/// How often it goes down in one turn.
const TIMES: u64 = 5;

/// Gbit/s of one turn.
fn down(world: &World) -> f64 {
    let url = format!("http://www.harbour.example/own/large?[1-{TIMES}]");
    let words = ["curl", "-sS", "--fail", "-o", "/dev/null", "-w", "%{time_total}\\n", &url];
    let said = world.run("ws1", &words).ok();
    let seconds: Vec<f64> = said.split_whitespace().filter_map(|time| time.parse().ok()).collect();
    assert_eq!(seconds.len() as u64, TIMES, "{said}");
    (SIZE * TIMES * 8) as f64 * 1_048_576.0 / seconds.iter().sum::<f64>() / 1e9
}

fn median(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    let at = |share: usize| all.get((all.len() - 1) * share / 4).copied().unwrap_or(f64::NAN);
    [at(2), at(1), at(3)]
}

fn main() {
    levee_system::ends_what_it_started();
    let rounds: usize = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(20);
    let site = |name: &str| SITE.replace("\"harbour\"", &format!("\"{name}\""));
    let two = |name: &str| site(name).replace("layers = [\"esp\"]", "layers = [\"esp\", \"quic\"]");
    let worlds = [
        ("one layer", World::up("one", &site("port-one"), &["ws1"])),
        ("two layers", World::up("two", &two("port-two"), &["ws1"])),
        ("two, with a gateway", World::behind_a_gateway("gate", &two("port-gate"), "ws1")),
    ];
    for (_, world) in &worlds {
        world.login("ws1", "ada").ok();
        world.level("ws1", LABEL).ok();
        let put = format!(
            "head -c {} /dev/urandom >large && curl -sS --fail -T large http://www.harbour.example/own/large",
            SIZE << 20
        );
        world.run("ws1", &["sh", "-c", &put]).ok();
        // Everything has begun.
        down(world);
    }
    let mut seen: [Vec<f64>; 3] = Default::default();
    for round in 0..rounds {
        // Each is first as often as any other.
        for turn in 0..worlds.len() {
            let at = (round + turn) % worlds.len();
            seen[at].push(down(&worlds[at].1));
        }
        eprint!("\r{} of {rounds}", round + 1);
    }
    eprintln!();
    println!("| | Gbit/s (quartiles) | beside one layer |\n|---|---|---|");
    for ((name, _), all) in worlds.iter().zip(&seen) {
        let [middle, low, high] = median(all.clone());
        let ratios = all.iter().zip(&seen[0]).map(|(this, one)| this / one).collect();
        let [ratio, least, most] = median(ratios);
        println!("| {name} | {middle:.2} ({low:.2}–{high:.2}) | ×{ratio:.2} ({least:.2}–{most:.2}) |");
    }
}
