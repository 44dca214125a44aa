//! The posture is changed while sessions at two levels carry traffic, and somebody looks on at both links: once it is acknowledged no packet is
//! sealed by keys of before.

use levee_system::capture::{Capture, Seen};
use levee_system::senders::now;
use levee_system::{World, eventually, text};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SITE: &str = concat!(
    include_str!("../../../conf/small/site.toml"),
    r#"
[[posture]]
name = "siege"
ciphers = ["chacha20-poly1305"]
follow = "20s"
[[posture]]
name = "curve"
exchanges = ["P-384"]
ml-kem = true
follow = "20s"
[[posture]]
name = "packed"
labels = ["UNCLASSIFIED", "SECRET//NATO,MED"]
aggfrag = true
follow = "20s"
[[posture]]
name = "two"
labels = ["UNCLASSIFIED", "SECRET//NATO,MED"]
agree = true
follow = "20s"
"#
);
const SEATS: [(&str, &str, &str); 2] = [("ws1", "ada", "SECRET//NATO,MED"), ("ws2", "mia", "UNCLASSIFIED")];

/// A change, from when it was asked for to when it was acknowledged.
struct Change {
    name: &'static str,
    asked: f64,
    acknowledged: f64,
}

/// A page is fetched again and again until it is over. Where another vault begins, a connection may be lost.
fn carry(world: &World, workstation: &str, over: &AtomicBool) {
    let fetch = "for n in 1 2 3 4 5 6 7 8; do curl --silent --max-time 5 --output /tmp/page http://www.harbour.example/; done";
    while !over.load(Ordering::Relaxed) {
        world.run(workstation, &["sh", "-c", fetch]);
    }
}

#[test]
fn once_a_posture_is_acknowledged_nobody_on_the_wire_sees_a_packet_under_keys_of_before() {
    let world = World::up("wired", SITE, &["ws1", "ws2"]);
    for (workstation, user, label) in SEATS {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
    }
    let wires: Vec<PathBuf> = SEATS.iter().map(|(name, ..)| world.path(&format!("{name}.wire"))).collect();
    let captures: Vec<Capture> =
        SEATS.iter().zip(&wires).map(|((name, ..), wire)| Capture::start(&world, name, wire)).collect();
    let both_ways = |wire: &PathBuf, since: f64| {
        let seen = Seen::all(wire);
        [true, false].iter().all(|up| seen.iter().any(|seen| seen.up == *up && seen.at > since))
    };
    let go = |since: f64| {
        eventually(Duration::from_secs(60), "packets go both ways at both links", || {
            wires.iter().all(|wire| both_ways(wire, since))
        });
    };
    let over = AtomicBool::new(false);
    let changes = std::thread::scope(|scope| {
        for (workstation, ..) in SEATS {
            let (world, over) = (&world, &over);
            scope.spawn(move || carry(world, workstation, over));
        }
        // However it ends, the threads do.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let run = text(&world.path("run"));
            ["siege", "curve", "packed", "two", "default"].map(|name| {
                go(now());
                let asked = now();
                world.levee(&["posture", "set", name, "--run", &run]).ok();
                Change { name, asked, acknowledged: now() }
            })
        }));
        go(now());
        over.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|why| std::panic::resume_unwind(why))
    });
    drop(captures);
    for ((workstation, ..), wire) in SEATS.iter().zip(&wires) {
        let seen = Seen::all(wire);
        for (number, Change { name, asked, acknowledged }) in changes.iter().enumerate() {
            let until = changes.get(number + 1).map_or(f64::INFINITY, |next| next.asked);
            let before: BTreeSet<u32> =
                seen.iter().filter(|seen| seen.at < *asked).map(|seen| seen.spi).collect();
            let after: Vec<&Seen> =
                seen.iter().filter(|seen| (*acknowledged..until).contains(&seen.at)).collect();
            assert!(!before.is_empty() && !after.is_empty(), "{workstation}, {name}");
            let old = after.iter().find(|seen| before.contains(&seen.spi));
            assert!(
                old.is_none(),
                "{workstation}, {name}, asked {asked}, acknowledged {acknowledged}: {old:?}"
            );
        }
    }
}
