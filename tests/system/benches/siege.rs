//! How long a change of level takes while 4,096 networks begin IKE SAs and never go on, 20,000 datagrams a second of it, beside how long it
//! takes otherwise: `cargo bench -p levee-system --bench siege [PAIRS]` (as root; the release programs built; alone on the machine). Prints one
//! line of JSON. `make bench` runs it.
//!
//! The networks are behind a workstation of nobody's, and each returns the cookie that it is asked for. Blocks of changes come in pairs, with
//! the siege and without, in turn. A change is a whole `levee-tpe level`, with its process; who besieges has a processor of the same host.

use levee_hostile::siege::{NETWORKS, Told, first_message, lay};
use levee_stats::quantile;
use levee_sys::ns::in_net;
use levee_system::World;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LABELS: [&str; 2] = ["UNCLASSIFIED", "SECRET"];
/// Pairs of blocks where nobody says how many, and changes in a block.
const PAIRS: usize = 8;
const CHANGES: usize = 10;
/// For how long it goes on before anything is measured: the server has as many half-open SAs as it ever does.
const BEFORE: Duration = Duration::from_secs(3);

/// The networks, and where they begin.
fn networks() -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
    let server = SocketAddr::from(([10, 77, 0, 1], 4500));
    (0..NETWORKS).map(move |n| {
        let [high, low] = n.to_be_bytes();
        let from: IpAddr = Ipv4Addr::new(100, 64 + high, low, 1).into();
        (SocketAddr::new(from, 0), server)
    })
}

/// Milliseconds of each change.
fn changes(world: &World, count: usize) -> Vec<f64> {
    let one = |number: usize| {
        let began = Instant::now();
        world.level("ws1", LABELS[number % LABELS.len()]).ok();
        began.elapsed().as_secs_f64() * 1e3
    };
    (0..count).map(one).collect()
}

fn main() {
    let is_measured = std::env::args().any(|word| word == "--bench");
    let pairs = std::env::args().filter_map(|word| word.parse().ok()).next();
    let pairs = pairs.unwrap_or(if is_measured { PAIRS } else { 1 });
    let site = SITE.replace("changes = 30 ", "changes = 10000 ");
    let world = World::up("siege", &site, &["ws1", "ws2"]);
    world.outside("ws2", "ip", &["route", "add", "local", "100.64.0.0/10", "dev", "lo"]).ok();
    world.server_sh("ip", &["route", "add", "100.64.0.0/10", "via", "10.77.0.12"]).ok();
    world.login("ws1", "ada").ok();
    changes(&world, 2 * LABELS.len());

    let net = File::open(format!("/run/netns/{}", world.namespace("ws2"))).expect("a namespace");
    let (mut calm, mut besieged, mut rates, mut begun) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for pair in 0..pairs {
        let with = |all: &mut Vec<f64>, rates: &mut Vec<f64>| {
            let told = Told::default();
            std::thread::scope(|scope| {
                let siege =
                    || in_net(net.as_fd(), || lay(&first_message(), networks(), &told)).expect("a namespace");
                scope.spawn(siege);
                std::thread::sleep(BEFORE);
                let (began, before) = (Instant::now(), told.sent.load(Relaxed));
                all.extend(changes(&world, CHANGES));
                rates.push((told.sent.load(Relaxed) - before) as f64 / began.elapsed().as_secs_f64());
                told.stop.store(true, Relaxed);
            });
            assert!(told.cookies.load(Relaxed) > 0, "it is asked for cookies");
            told.begun.load(Relaxed)
        };
        if pair % 2 == 0 {
            calm.extend(changes(&world, CHANGES));
            begun += with(&mut besieged, &mut rates);
        } else {
            begun += with(&mut besieged, &mut rates);
            std::thread::sleep(BEFORE);
            calm.extend(changes(&world, CHANGES));
        }
    }
    let at = |all: &[f64], share: f64| quantile(all, share).unwrap_or(f64::NAN);
    println!(
        "{}",
        serde_json::json!({
            "what": "change of level under siege",
            "changes": besieged.len(),
            "datagrams_per_second": at(&rates, 0.5),
            "answered": begun,
            "calm_ms": [at(&calm, 0.5), at(&calm, 0.0), at(&calm, 1.0)],
            "besieged_ms": [at(&besieged, 0.5), at(&besieged, 0.0), at(&besieged, 1.0)],
            "ratio": at(&besieged, 0.5) / at(&calm, 0.5),
        })
    );
}
