//! A labelled network with a host of other people's making: Debian's kernel in a machine of its own, SELinux enforcing levels, NetLabel writing and
//! reading CIPSO and CALIPSO.

use levee_guest::{Guest, TAP};
use levee_system::{World, eventually};
use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const NETWORK: &str = r#"
[[domain]]
doi = 16
levels = { UNCLASSIFIED = 1, CONFIDENTIAL = 2, SECRET = 5 }
categories = { NATO = 0, MED = 9 }

[[network]]
interface = "ship0"
labels = "CONFIDENTIAL..SECRET//NATO"
domain = 16
address = ["192.168.7.1/24", "fd07::1/64"]
services = ["web", "say"]
hosts = [
    { address = "192.168.7.9", port = 8002, protocol = "tcp" },
    { address = "192.168.7.9", port = 8002, protocol = "udp" },
    { address = "192.168.7.9", port = 8005, protocol = "tcp" },
    { address = "192.168.7.9", port = 8005, protocol = "udp" },
    { address = "192.168.7.9", port = 8050, protocol = "tcp" },
    { address = "192.168.7.9", port = 8050, protocol = "udp" },
    { address = "fd07::9", port = 8002, protocol = "tcp" },
    { address = "fd07::9", port = 8002, protocol = "udp" },
    { address = "fd07::9", port = 8005, protocol = "tcp" },
    { address = "fd07::9", port = 8005, protocol = "udp" },
    { address = "fd07::9", port = 8050, protocol = "tcp" },
    { address = "fd07::9", port = 8050, protocol = "udp" },
]

[[service]]
name = "say"
port = 9000
protocol = "udp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "direct"
software = ["python3"]
command = ["/usr/bin/python3", "-c", '''
import os,selectors,socket
all=selectors.DefaultSelector()
for n in range(3, 3+int(os.environ["LISTEN_FDS"])): all.register(socket.socket(fileno=n), 1)
while True:
    for key,_ in all.select():
        _,sender=key.fileobj.recvfrom(99)
        key.fileobj.sendto(os.environ["LEVEE_LABEL"].encode(),sender)
''']
"#;

/// Labels of the link, in its words and SELinux's, and the port at which the guest has a program of that level.
const LEVELS: [(&str, &str, u16); 3] =
    [("CONFIDENTIAL", "s2", 8002), ("SECRET", "s5", 8005), ("SECRET//NATO", "s5:c0", 8050)];
/// The server and the guest on the link, in both versions.
const SERVER: [&str; 2] = ["192.168.7.1", "[fd07::1]"];
const GUEST: [&str; 2] = ["192.168.7.9", "[fd07::9]"];

/// How it is asked.
const WAYS: [(&str, &str); 4] =
    [("TCP4", GUEST[0]), ("TCP6", GUEST[1]), ("UDP4", GUEST[0]), ("UDP6", GUEST[1])];

/// What makes the guest a host of the link: addresses, and labels by NetLabel for who is on it.
const JOIN: [&str; 12] = [
    "ip address add 192.168.7.9/24 dev eth0",
    "ip address add fd07::9/64 dev eth0 nodad",
    "ip link set eth0 up",
    "ip link set lo up",
    "netlabelctl cipsov4 add pass doi:16 tags:1",
    "netlabelctl calipso add pass doi:16",
    "netlabelctl map del default",
    "netlabelctl map add default address:0.0.0.0/0 protocol:unlbl",
    "netlabelctl map add default address:::/0 protocol:unlbl",
    "netlabelctl map add default address:192.168.7.0/24 protocol:cipsov4,16",
    "netlabelctl map add default address:fd07::/64 protocol:calipso,16",
    "echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_ra",
];

/// Runs a command in the guest at a level.
fn at(guest: &mut Guest, level: &str, command: &str) -> (bool, String) {
    guest.attempt(&format!("sh -c 'echo -n u:r:t:{level} > /proc/self/attr/current && {command}'"))
}

/// Fetches the server's page in the guest at a level.
fn page(guest: &mut Guest, level: &str, version: usize) -> String {
    let to = format!("TCP{}:{}:80,connect-timeout=2", [4, 6][version], SERVER[version]);
    at(guest, level, &format!("echo -e \"GET / HTTP/1.0\\r\\n\\r\" | socat -t 2 -T 5 - {to} 2>&1")).1
}

/// What the server's service of datagrams answers in the guest at a level.
fn datagram(guest: &mut Guest, level: &str, version: usize) -> String {
    let to = format!("UDP{}:{}:9000", [4, 6][version], SERVER[version]);
    at(guest, level, &format!("echo | socat -t 2 -T 2 - {to} 2>&1")).1
}

/// What the guest's program says to the session at the workstation.
fn asked(world: &World, protocol: &str, guest: &str, port: u16) -> String {
    let to = format!("{protocol}:{guest}:{port},connect-timeout=2");
    let to = if protocol.starts_with("UDP") { format!("{protocol}:{guest}:{port}") } else { to };
    world.run("ws1", &["sh", "-c", &format!("echo | timeout 5 socat -t 2 - {to}")]).out
}

fn counted(world: &World, why: &str) -> u64 {
    world.status()["steering"][format!("dropped from ship0: {why}")].as_u64().unwrap_or(0)
}

#[test]
fn a_host_whose_kernel_labels_its_packets_is_reached_and_reaches_at_its_levels_and_at_no_other() {
    let site = SITE
        .replace("\"10.80.0.1\"", "[\"10.80.0.1\", \"fd80::1\"]")
        .replace("\"10.80.1.0/24\"", "[\"10.80.1.0/24\", \"fd80:1::/64\"]");
    let mut world = World::new("labelled-peer", &format!("{site}{NETWORK}"), &["ws1", "ship"]);
    let ship = world.namespace("ship");
    world
        .server_sh("ip", &["link", "add", "ship0", "type", "veth", "peer", "name", "eth0", "netns", &ship])
        .ok();
    let net = File::open(format!("/run/netns/{ship}")).expect("the ship's namespace");
    let mut guest = Guest::boot_labelled(net.as_fd());
    // Between the two there is a wire and nobody who speaks.
    for end in ["eth0", TAP] {
        let off = format!("echo 1 > /proc/sys/net/ipv6/conf/{end}/disable_ipv6");
        world.outside("ship", "sh", &["-c", &off]).ok();
    }
    for command in ["ip link add wire type bridge", "ip link set eth0 master wire up", "ip link set wire up"]
    {
        world.outside("ship", "sh", &["-c", command]).ok();
    }
    world.outside("ship", "ip", &["link", "set", TAP, "master", "wire", "up"]).ok();
    for command in JOIN {
        guest.run(command);
    }
    for (_, level, port) in LEVELS {
        guest.run(&format!("labelled {level} {port} >/dev/null 2>&1 & sleep 1; kill -0 $!"));
    }
    world.start_server();

    // Its programs get the page of their level, over either version.
    for (label, level, _) in LEVELS {
        for version in 0..2 {
            let mut said = String::new();
            eventually(Duration::from_secs(60), "the guest gets the page of its level", || {
                said = page(&mut guest, level, version);
                said.contains(&format!("<h1>{label}</h1>"))
            });
            // A datagram reaches the service of its label, and the answer comes back to who may hear that.
            eventually(Duration::from_secs(60), "the guest's datagram is answered at its level", || {
                said = datagram(&mut guest, level, version);
                said.trim() == label
            });
        }
    }
    // One at a level that the link does not have gets nothing, and is counted here.
    for version in 0..2 {
        let before =
            counted(&world, "an unknown label") + counted(&world, "a label that the link does not have");
        let said = page(&mut guest, "s1", version);
        assert!(!said.contains("<h1>"), "{said}");
        eventually(Duration::from_secs(5), "what came with it is counted", || {
            counted(&world, "an unknown label") + counted(&world, "a label that the link does not have")
                > before
        });
    }

    // Its kernel says to its programs who asks: a session at the label that we mean.
    world.start_workstation("ws1");
    world.login("ws1", "ada").ok();
    for (label, level, port) in LEVELS {
        world.level("ws1", label).ok();
        let context = format!("u:r:t:{level}\n");
        for (protocol, host) in WAYS {
            let mut said = String::new();
            eventually(Duration::from_secs(30), &format!("{protocol} at {label} is answered"), || {
                said = asked(&world, protocol, host, port);
                !said.is_empty()
            });
            // Of a datagram of IPv6 its kernel tells nobody the label. It has looked at it: see below.
            let expected = if protocol == "UDP6" { "none\n" } else { &context };
            assert_eq!(said, expected, "{protocol} at {label}");
        }
    }
    // At another label than its program's, its kernel lets nobody through, and says so: another level's, and one's without the category.
    guest.run("dmesg -c > /dev/null");
    for (protocol, host) in WAYS {
        for (_, _, port) in &LEVELS[..2] {
            assert_eq!(asked(&world, protocol, host, *port), "", "{protocol} {port}");
        }
    }
    let said = guest.run("dmesg");
    for (_, level, _) in &LEVELS[..2] {
        let denied = |line: &&str| {
            let has = |word: &str| line.split_whitespace().any(|each| each.ends_with(word));
            line.contains("denied  { recv }") && has(&format!("=u:r:t:{level}")) && has("=u:r:t:s5:c0")
        };
        assert!(said.lines().filter(denied).count() >= WAYS.len(), "{level}: {said}");
    }
}
