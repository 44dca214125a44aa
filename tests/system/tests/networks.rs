//! A single-level network of a running site: an unmodified host on it, and sessions at its label and at others.

use levee_system::{Ended, World, eventually, sh, text};
use std::process::{Command, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const NETWORK: &str = r#"
[[network]]
interface = "ship0"
label = "SECRET"
address = ["192.168.7.1/24", "fd07::1/64"]
services = ["web"]
hosts = [{ address = "192.168.7.9", port = 8080, protocol = "tcp" }]
"#;

/// A host that writes what it likes into its packets' options.
const LABELLED: &str = include_str!("../probes/labelled.py");

/// A label as another network's hosts would write it, and an option that is none, in each version.
const OPTIONS: [(&str, [&str; 2]); 2] = [
    ("4@192.168.7.77", ["860a00000010010400050000", "94040000"]),
    ("6@fd07::77", ["0708000000100005ba55", "05020000"]),
];

/// Of each.
const EACH: u64 = 50;

/// socat at the host on the network; it says whom it sees.
fn peer(world: &World) -> Ended {
    let net = format!("--net=/run/netns/{}", world.namespace("ship"));
    let mut command = Command::new("nsenter");
    command.args([&net, "socat", "TCP4-LISTEN:8080,fork,reuseaddr", "SYSTEM:echo for $SOCAT_PEERADDR"]);
    Ended(command.stdin(Stdio::null()).spawn().expect("start socat (scripts/need test installs it)"))
}

const ASK: [&str; 4] = ["socat", "-u", "TCP:192.168.7.9:8080,connect-timeout=2", "-"];

#[test]
fn a_network_belongs_to_one_label_for_hosts_on_it_and_for_sessions() {
    let site = SITE
        .replace("\"10.80.0.1\"", "[\"10.80.0.1\", \"fd80::1\"]")
        .replace("\"10.80.1.0/24\"", "[\"10.80.1.0/24\", \"fd80:1::/64\"]");
    let mut world = World::new("nets", &format!("{site}{NETWORK}"), &["ws1", "ship"]);
    let ship = world.namespace("ship");
    world
        .server_sh("ip", &["link", "add", "ship0", "type", "veth", "peer", "name", "eth0", "netns", &ship])
        .ok();
    world.outside("ship", "ip", &["address", "add", "192.168.7.9/24", "dev", "eth0"]).ok();
    world.outside("ship", "ip", &["link", "set", "eth0", "up"]).ok();
    world.start_server();
    world.start_workstation("ws1");
    let page = |world: &World| world.outside("ship", "curl", &["-s", "-m3", "http://192.168.7.1/"]).out;

    // Nobody has signed on, and the service is there for the host on its network.
    eventually(Duration::from_secs(20), "the host on the network gets the page", || {
        page(&world).contains("<h1>SECRET</h1>")
    });
    // Whoever asks for the status sees it, as long as the site file is what the server was started with.
    let known = || world.status()["site_file"]["networks"].to_string();
    assert!(
        known().contains("\"interface\":\"ship0\"") && known().contains("\"labels\":\"SECRET\""),
        "{}",
        known()
    );
    let run = text(&world.path("run"));
    let shown = world.levee(&["status", "--run", &run]).ok();
    assert!(shown.contains("networks\n  INTERFACE") && shown.contains("ship0"), "{shown}");
    // The host's own network has no trace of the interface.
    world.server_sh("ip", &["link", "show", "ship0"]).refused();

    // Packets of this network have no labels. What has options is not taken, or an answer would repeat them, and a router read them.
    let knock = |host: &str, option: &str| {
        world.outside("ship", "python3", &["-c", LABELLED, host, "knock", &EACH.to_string(), option]).out
    };
    for (host, options) in OPTIONS {
        for option in options {
            assert_eq!(knock(host, option).trim(), "answers 0", "{host} {option}");
        }
        assert_ne!(knock(host, "").trim(), "answers 0", "{host}");
    }
    let why = "dropped at ship0: options, such as a label";
    // Of CALIPSO the server's kernel drops what it knows no domain for, before any rule. The host's own kernel sends options, too: who listens
    // to groups says so with one of IPv6's.
    eventually(Duration::from_secs(5), "what had options is counted", || {
        let status = world.status();
        let here = status["compartments"].as_array().expect("compartments").iter();
        let mut here =
            here.filter(|one| one["label"] == "SECRET").filter_map(|one| one["counters"].as_array());
        here.any(|all| all.iter().any(|one| one[0] == why && one[1].as_u64() >= Some(3 * EACH)))
    });

    let _peer = peer(&world);
    world.login("ws1", "ada").ok();
    world.level("ws1", "SECRET").ok();
    let mut said = String::new();
    eventually(Duration::from_secs(5), "a session at the label reaches the host", || {
        said = world.run("ws1", &ASK).out;
        said.starts_with("for ")
    });
    assert_eq!(said.trim(), "for 192.168.7.1");
    for other in ["CONFIDENTIAL", "SECRET//NATO"] {
        world.level("ws1", other).ok();
        assert_eq!(world.run("ws1", &ASK).out, "", "a session at {other} reaches a host at SECRET");
    }
    world.outside("ship", "curl", &["-s", "-m1", "http://192.168.7.1:2222/"]).refused();
    let dropped = |world: &World| world.status().to_string().contains("dropped at ship0: no listed service");
    eventually(Duration::from_secs(5), "the drop is in the status", || dropped(&world));
    world.tpe("ws1", &["logout"]).ok();

    // Killed, the warden leaves the interface where it is; the next one takes it up again.
    world.kill_server();
    world.server_sh("ip", &["link", "show", "ship0"]).refused();
    world.start_server();
    eventually(Duration::from_secs(20), "the page is there again", || {
        page(&world).contains("<h1>SECRET</h1>")
    });

    // Stopped, it gives the interface back, down.
    world.stop_server();
    let link = world.server_sh("ip", &["-o", "link", "show", "ship0"]).ok();
    assert!(link.contains("state DOWN"), "{link}");
    assert_eq!(page(&world), "");
    let mounts = sh("cat", &["/proc/self/mounts"]).ok();
    let run = world.path("run");
    assert!(!mounts.contains(run.to_str().expect("UTF-8")), "something is left mounted in {}", run.display());
}

/// A host that a session reaches by UDP, which answers those who ask, and says how much it has noted.
const ANSWERS: &str = r#"
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
one.bind(("192.168.7.9", 514))
noted = 0
while True:
    said, who = one.recvfrom(100)
    noted += said == b"note"
    if said == b"ask":
        one.sendto(b"answer", who)
    if said == b"noted":
        one.sendto(b"%d" % noted, who)
"#;

/// Says a word to it from each port that it may have, and then much from the first one, of which it prints how much came.
const FROM_EVERY_PORT: &str = r#"
import socket, time
first, host = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), ("192.168.7.9", 514)
first.settimeout(5)
first.sendto(b"note", host)
for port in range(1024, 65536):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.bind(("", port))
            one.sendto(b"x", host)
        except OSError:
            pass
    if port % 200 == 0:
        time.sleep(0.01)
for _ in range(300):
    first.sendto(b"note", host)
    time.sleep(0.001)
first.sendto(b"noted", host)
print(first.recv(100).decode())
"#;

/// Asks it so many times, by another port each, and says how often it was answered.
const ASKS: &str = r#"
import socket
answers = 0
for _ in range(20):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(0.3)
        one.sendto(b"ask", ("192.168.7.9", 514))
        try:
            answers += one.recv(100) == b"answer"
        except OSError:
            pass
print(answers)
"#;

#[test]
fn who_speaks_to_a_host_from_every_port_leaves_others_at_the_label_some() {
    let network = NETWORK.replace("\"SECRET\"", "\"CONFIDENTIAL//MED\"").replace(", \"fd07::1/64\"", "");
    let network = network.replace("port = 8080, protocol = \"tcp\"", "port = 514, protocol = \"udp\"");
    let mut world = World::new("nets-ports", &format!("{SITE}{network}"), &["ws1", "ws2", "ship"]);
    let ship = world.namespace("ship");
    world
        .server_sh("ip", &["link", "add", "ship0", "type", "veth", "peer", "name", "eth0", "netns", &ship])
        .ok();
    world.outside("ship", "ip", &["address", "add", "192.168.7.9/24", "dev", "eth0"]).ok();
    world.outside("ship", "ip", &["link", "set", "eth0", "up"]).ok();
    world.start_server();
    let net = format!("--net=/run/netns/{ship}");
    let mut host = Command::new("nsenter");
    let host = host.args([&net, "python3", "-c", ANSWERS]).stdin(Stdio::null());
    let _host = Ended(host.spawn().expect("start python3"));
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.start_workstation(workstation);
        world.login(workstation, user).ok();
        world.level(workstation, "CONFIDENTIAL//MED").ok();
    }
    let answers = || world.run("ws2", &["python3", "-c", ASKS]).ok();
    eventually(Duration::from_secs(5), "the host answers", || answers() == "20\n");
    let noted = world.run("ws1", &["python3", "-c", FROM_EVERY_PORT]).ok();
    // (Some are lost on a slow host. By the rule it would be fewer than a hundred.)
    let noted: u32 = noted.trim().parse().expect("a number");
    assert!(noted > 200, "what it had begun before goes on, though nobody answers: {noted} of 301");
    // Another's port may be the same by chance, and is another then.
    assert_eq!(answers(), "20\n", "somebody else at the label reaches the host");
    let why = "dropped at ship0: more connections of one session than it may begin";
    eventually(Duration::from_secs(5), "what was too much is counted", || {
        world.status().to_string().contains(why)
    });
}

/// Sends a datagram of 3,000 octets, which goes in pieces, so many times, and says how often it was answered.
const ASKS_IN_PIECES: &str = r#"
import socket
answers = 0
for _ in range(20):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(0.3)
        one.sendto(bytes(3000), ("10.80.0.1", 9000))
        try:
            answers += one.recv(100) == b"y"
        except OSError:
            pass
print(answers)
"#;
/// As fast as it can: pieces of some are lost on the way.
const SENDS_IN_PIECES: &str = r#"
import socket, time
many = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(50)]
until, n = time.monotonic() + 6, 0
while time.monotonic() < until:
    n += 1
    try: many[n % 50].sendto(bytes(60000), ("10.80.0.1", 9000))
    except OSError: pass
"#;
/// Answers whatever it is sent.
const SAY: &str = r#"
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
        try: key.fileobj.sendto(b"y", key.fileobj.recvfrom(99)[1])
        except OSError: pass
''']
"#;

#[test]
fn whose_datagrams_never_come_whole_leaves_others_at_the_label_room_for_theirs() {
    let world = World::up("nets-pieces", &format!("{SITE}{SAY}"), &["ws1", "ws2"]);
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.login(workstation, user).ok();
        world.level(workstation, "CONFIDENTIAL//MED").ok();
    }
    let answers = || world.run("ws2", &["python3", "-c", ASKS_IN_PIECES]).ok();
    eventually(Duration::from_secs(5), "the service answers", || answers() == "20\n");
    world.run("ws1", &["python3", "-c", SENDS_IN_PIECES]).ok();
    // What it left lies there for two seconds, where it was thirty; somebody else waits for none of it.
    assert_eq!(answers(), "20\n");
}

/// From each port of four addresses, twice and again, as fast as a label's table of connections is full of them.
const FROM_EVERY_ADDRESS: &str = r#"
import socket, struct, time
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
to = socket.inet_aton("192.168.7.1")
for _ in range(3):
    for port in range(1, 65536):
        for last in range(10, 14):
            source = bytes([192, 168, 7, last])
            ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 29, 0, 0, 64, 17, 0, source, to)
            raw.sendto(ip + struct.pack("!HHHH", port, 9000, 9, 0) + b"q", ("192.168.7.1", 0))
"#;

#[test]
fn hosts_of_one_network_take_no_connections_of_anothers_hosts() {
    let two = NETWORK
        .replace(", \"fd07::1/64\"", "")
        .replace("services = [\"web\"]", "services = [\"web\", \"say\"]");
    let other = two.replace("ship0", "port0").replace("192.168.7", "192.168.8");
    let mut world = World::new("nets-crowd", &format!("{SITE}{SAY}{two}{other}"), &["ship", "port"]);
    for (place, interface, net) in [("ship", "ship0", 7), ("port", "port0", 8)] {
        let there = world.namespace(place);
        world
            .server_sh(
                "ip",
                &["link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", &there],
            )
            .ok();
        for last in 9..14 {
            let address = format!("192.168.{net}.{last}/24");
            world.outside(place, "ip", &["address", "add", &address, "dev", "eth0"]).ok();
        }
        world.outside(place, "ip", &["link", "set", "eth0", "up"]).ok();
    }
    world.start_server();
    let page = || world.outside("port", "curl", &["-s", "-m3", "http://192.168.8.1/"]).out;
    eventually(Duration::from_secs(20), "a host gets the page", || page().contains("<h1>SECRET</h1>"));
    world.outside("ship", "python3", &["-c", FROM_EVERY_ADDRESS]).ok();
    for _ in 0..10 {
        assert!(page().contains("<h1>SECRET</h1>"), "a host of another network reaches the label");
    }
    let why = "dropped at ship0: more connections of a network's hosts than they may begin";
    eventually(Duration::from_secs(5), "what was too much is counted", || {
        world.status().to_string().contains(why)
    });
}
