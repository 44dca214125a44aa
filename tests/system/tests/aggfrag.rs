//! A label whose packets go in AGGFRAG payloads (RFC 9347), asked for by the site and agreed by IKEv2.

use levee_system::capture::{Capture, Seen};
use levee_system::senders::now;
use levee_system::{World, eventually};
use std::collections::BTreeSet;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
const LABEL: &str = "SECRET//NATO,MED";
/// Octets of an ESP packet: what one with an inner packet of 1,400 has.
const PACKET: u64 = 1_436;

/// A file of so many bytes goes to the label's own store and comes back the same.
fn there_and_back(bytes: u32) -> String {
    format!(
        "head -c {bytes} /dev/urandom >/tmp/a && curl --silent --show-error --fail --max-time 60 -T /tmp/a {PAGE}own/a && \
         curl --silent --show-error --fail --max-time 60 --output /tmp/b {PAGE}own/a && cmp /tmp/a /tmp/b"
    )
}

#[test]
fn large_inner_packets_go_through_outer_ones_of_the_usual_size_where_the_site_says_so() {
    let site = SITE.replace("\"harbour\"", "\"port-aggfrag\"");
    let site = site.replace("\naggfrag = []", &format!("\naggfrag = [\"{LABEL}\"]"));
    let world = World::up("aggfrag", &site, &["ws1", "ws2"]);
    // The wire sees each packet by itself, and not what a device would cut up.
    world.server_sh("ip", &["link", "set", "p0", "gso_max_segs", "1"]).ok();
    world.outside("ws1", "ip", &["link", "set", "outer", "gso_max_segs", "1"]).ok();
    world.login("ws1", "ada").ok();
    world.level("ws1", LABEL).ok();
    world.login("ws2", "mia").ok();
    world.level("ws2", "CONFIDENTIAL//MED").ok();
    let mtu = |workstation| world.run(workstation, &["ip", "-o", "link", "show", "levee0"]).ok();
    assert!(mtu("ws1").contains("mtu 9000") && mtu("ws2").contains("mtu 1400"));

    let wire = world.path("wire");
    let capture = Capture::start(&world, "ws1", &wire);
    let there_and_back = there_and_back(3_000_000);
    // Until the capture has begun.
    eventually(Duration::from_secs(60), "packets are seen on the wire", || {
        world.run("ws1", &["sh", "-c", &there_and_back]).ok();
        std::fs::read_to_string(&wire).is_ok_and(|text| text.lines().count() > 200)
    });
    world.run("ws2", &["sh", "-c", &there_and_back]).ok();
    drop(capture);

    let captured = std::fs::read_to_string(&wire).expect("the capture");
    let lengths: Vec<u64> = captured.lines().filter_map(Seen::read).map(|seen| seen.length).collect();
    assert!(lengths.len() > 200, "{captured:.500}");
    assert!(lengths.iter().all(|length| *length <= PACKET), "{:?}", lengths.iter().max());
    let full = lengths.iter().filter(|length| **length == PACKET).count();
    assert!(full * 10 > lengths.len() * 6, "{full} of {} are full", lengths.len());
    // Inside are packets longer than any outside, there and nowhere else.
    let longest = |label: &str| {
        let counters = world.status()["vaults"][label]["counters"].clone();
        let of = |name: &str| counters[name].as_f64().expect("a counter");
        let drops = ["auth-failed", "malformed", "bad-next-header", "selector"];
        assert!(drops.iter().all(|name| counters[*name] == 0), "{counters}");
        (of("bytes-in") / of("packets-in")).max(of("bytes-out") / of("packets-out"))
    };
    assert!(longest(LABEL) > 2_000.0, "the mean packet of one direction");
    assert!(longest("CONFIDENTIAL//MED") < 1_401.0);
}

#[test]
fn at_a_constant_rate_the_wire_tells_nobody_whether_files_go_to_and_fro_or_nothing_does() {
    const RATE: f64 = 200.0;
    let site = SITE.replace("\"harbour\"", "\"port-even\"");
    let site = site.replace("\nconstant-rate = []", &format!("\nconstant-rate = [\"{LABEL}\"]"));
    let site = site.replace("\nconstant-rate-packets = 250", "\nconstant-rate-packets = 200");
    let world = World::up("even", &site, &["ws1"]);
    world.server_sh("ip", &["link", "set", "p0", "gso_max_segs", "1"]).ok();
    world.outside("ws1", "ip", &["link", "set", "outer", "gso_max_segs", "1"]).ok();
    world.login("ws1", "ada").ok();
    world.level("ws1", LABEL).ok();
    // The service starts with its first connection.
    world.run("ws1", &["sh", "-c", &there_and_back(1_000)]).ok();
    let wire = world.path("wire");
    let capture = Capture::start(&world, "ws1", &wire);
    eventually(Duration::from_secs(60), "packets are seen on the wire, though nothing is sent", || {
        Seen::all(&wire).len() > 20
    });
    let passed = || world.status()["vaults"][LABEL]["counters"]["bytes-in"].as_u64().expect("a counter");
    let phase = |busy: bool| {
        let (start, before) = (now(), passed());
        while now() < start + 2.5 {
            if busy {
                world.run("ws1", &["sh", "-c", &there_and_back(60_000)]).ok();
            } else {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        (busy, start, now(), passed() - before)
    };
    let phases = [phase(false), phase(true), phase(false)];
    drop(capture);
    let seen = Seen::all(&wire);
    let sizes: BTreeSet<u64> = seen.iter().map(|seen| seen.length).collect();
    assert_eq!(sizes, BTreeSet::from([PACKET]), "every packet is as long as every other");
    for up in [true, false] {
        let mut rates = Vec::new();
        for (busy, start, end, bytes) in phases {
            assert_eq!(bytes > 60_000, busy, "{bytes} bytes of users' came");
            let within = |seen: &&Seen| seen.up == up && (start..end).contains(&seen.at);
            let mut times: Vec<f64> = seen.iter().filter(within).map(|seen| seen.at).collect();
            times.sort_by(f64::total_cmp);
            let rate = times.len() as f64 / (end - start);
            // Never more than there are moments, with those that a late turn makes good; where the host has other things to
            // do, fewer.
            let most = RATE * 1.02 + 20.0 / (end - start);
            assert!(rate <= most && rate >= RATE / 3.0, "up: {up}, busy: {busy}, {rate} packets a second");
            // Nor are there more for a moment when something is to be sent.
            const SOON: f64 = 0.25;
            let soon = |from: &f64| times.iter().filter(|at| (*from..from + SOON).contains(*at)).count();
            let bursts = times.iter().map(soon).max().unwrap_or(0);
            assert!(bursts as f64 <= RATE * SOON + 20.0, "up: {up}, busy: {busy}, {bursts} in {SOON} s");
            rates.push(rate);
        }
        let (idle, busy) = ((rates[0] + rates[2]) / 2.0, rates[1]);
        assert!((0.5..2.0).contains(&(busy / idle)), "up: {up}: {rates:?}");
    }
}
