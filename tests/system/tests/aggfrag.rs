//! A label whose packets go in AGGFRAG payloads (RFC 9347), asked for by the site and agreed by IKEv2.

use levee_system::{World, eventually};
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
const LABEL: &str = "SECRET//NATO,MED";
/// Octets of an ESP packet: what one with an inner packet of 1,400 has.
const PACKET: u64 = 1_436;

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
    let mut tcpdump = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{}", world.namespace("ws1")))
        .args(["tcpdump", "-i", "outer", "-n", "-l", "-Z", "root", "-e", "--immediate-mode", "-s", "60"])
        // ESP in UDP alone: the first word is no non-ESP marker.
        .args(["udp and host 10.77.0.1 and port 4500 and udp[8:4] != 0"])
        .stdin(Stdio::null())
        .stdout(File::create(&wire).expect("a file for the capture"))
        .stderr(Stdio::null())
        .spawn()
        .expect("start tcpdump (scripts/need test installs it)");
    let there_and_back = format!(
        "head -c 3000000 /dev/urandom >/tmp/a && curl --silent --show-error --fail --max-time 60 -T /tmp/a {PAGE}own/a && \
         curl --silent --show-error --fail --max-time 60 --output /tmp/b {PAGE}own/a && cmp /tmp/a /tmp/b"
    );
    // Until the capture has begun.
    eventually(Duration::from_secs(60), "packets are seen on the wire", || {
        world.run("ws1", &["sh", "-c", &there_and_back]).ok();
        std::fs::read_to_string(&wire).is_ok_and(|text| text.lines().count() > 200)
    });
    world.run("ws2", &["sh", "-c", &there_and_back]).ok();
    let _ = tcpdump.kill();
    let _ = tcpdump.wait();

    let captured = std::fs::read_to_string(&wire).expect("the capture");
    // "…, length 1478: 10.77.0.11.…": the frame, with Ethernet's header, IPv4's and UDP's.
    let length = |line: &str| line.split(", length ").nth(1)?.split(':').next()?.parse::<u64>().ok();
    let lengths: Vec<u64> = captured.lines().filter_map(length).map(|frame| frame - 14 - 20 - 8).collect();
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
