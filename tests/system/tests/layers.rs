//! A site with two layers, run by the real programs as an operator would run them, with an onlooker on the wire.

use levee_system::host::{self, Process};
use levee_system::{World, eventually, text};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
const LABEL: &str = "SECRET//NATO,MED";

fn site(name: &str) -> String {
    let site = SITE.replace("\"harbour\"", &format!("\"{name}\""));
    let layered = site.replace("layers = [\"esp\"]", "layers = [\"esp\", \"quic\"]");
    assert_ne!(layered, site, "the example site names the key");
    // IPv6 without; `calls.rs` has IPv4. Both within.
    layered
        .replace("\"10.77.0.1\"", "\"fd77::1\"")
        .replacen("inner-address = \"10.80.0.1\"", "inner-address = [\"10.80.0.1\", \"fd80::1\"]", 1)
        .replacen("inner-pool = \"10.80.1.0/24\"", "inner-pool = [\"10.80.1.0/24\", \"fd81::/64\"]", 1)
}

/// Writes a document by IPv6 and reads it, in segments as long as the path's MTU lets them be, and prints that MTU and the longest
/// segments sent and received (`struct tcp_info`).
const LONGEST: &str = r#"
import http.client, socket, struct
document = b"x" * 20000
server = http.client.HTTPConnection("[fd80::1]", timeout=20)
for method, body in ("PUT", document), ("GET", None):
    server.request(method, "/own/long", body, {"Host": "www.harbour.example"})
    answer = server.getresponse()
    assert answer.status in (200, 201), answer.status
    read = answer.read()
    connection = server.sock
assert read == document
told = struct.unpack("8B24I", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104))
print(told[8 + 13], told[8 + 2], told[8 + 3])
"#;

/// Everything that passes at a workstation's link.
struct Onlooker {
    tcpdump: Child,
    file: std::path::PathBuf,
}

impl Onlooker {
    fn at(world: &World, workstation: &str) -> Self {
        let file = world.path(&format!("{workstation}.pcap"));
        let net = format!("--net=/run/netns/{}", world.namespace(workstation));
        let mut tcpdump = Command::new("nsenter");
        tcpdump.args([
            net.as_str(),
            "tcpdump",
            "-Z",
            "root",
            "-n",
            "-U",
            "--immediate-mode",
            "-i",
            "outer",
            "-w",
        ]);
        let tcpdump =
            tcpdump.arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("tcpdump");
        let begun = || std::fs::metadata(&file).is_ok_and(|file| file.len() > 0);
        eventually(Duration::from_secs(20), "the capture begins", begun);
        Self { tcpdump, file }
    }

    /// UDP datagrams by source and destination port, and bare ESP.
    fn end(mut self) -> Vec<(u16, u16)> {
        std::thread::sleep(Duration::from_millis(200));
        let pid = rustix::process::Pid::from_child(&self.tcpdump);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("end tcpdump");
        self.tcpdump.wait().expect("wait for tcpdump");
        let file = self.file.to_string_lossy().into_owned();
        let shown = levee_system::sh(
            "tshark",
            &[
                "-r",
                &file,
                "-Y",
                "udp or ip.proto == 50 or ipv6.nxt == 50",
                "-T",
                "fields",
                "-e",
                "udp.srcport",
                "-e",
                "udp.dstport",
            ],
        );
        let port = |word: &str| word.split(',').next().and_then(|port| port.parse().ok()).unwrap_or(0);
        let line = |line: &str| line.split_once('\t').map(|(a, b)| (port(a), port(b)));
        // Bare ESP has no ports, and so is none of the second tunnel's.
        shown.ok().lines().map(|shown| line(shown).unwrap_or((0, 0))).collect()
    }
}

/// What a second tunnel that is taken over could do: it sends again what has come from a workstation, as it was and changed, from its own
/// place and others', and makes up IKE. So does this, in the server's namespace.
const TAKEN_OVER: &str = r#"
import socket, struct, sys, time
raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
raw.bind(("lo", 0))
raw.settimeout(0.2)
seen, until = [], time.monotonic() + 20
open(sys.argv[1], "w").close()
while len(seen) < 12 and time.monotonic() < until:
    try:
        packet, where = raw.recvfrom(65535)
    except socket.timeout:
        continue
    head = (packet[0] & 15) * 4
    if packet[9] != 17 or where[2] == socket.PACKET_OUTGOING:
        continue
    source, (_, to) = packet[12:16], struct.unpack("!HH", packet[head:head + 4])
    if to == 4500 and source[:2] == b"\x7f\x40" and packet[head + 8:head + 12] != bytes(4):
        seen.append(packet[head + 8:])
assert len(seen) >= 12, len(seen)
sent = 0
for place in ("127.64.0.0", "127.64.0.1", "127.100.1.1"):
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.bind((place, 0))
    for packet in seen:
        changed = bytearray(packet)
        changed[-1] ^= 1
        number = bytearray(packet)
        number[7] ^= 0x40
        for one in (packet, bytes(changed), bytes(number), packet[:9], bytes(4) + packet):
            out.sendto(one, ("127.0.0.1", 4500))
            sent += 1
print(sent)
"#;

/// Whom the sockets of a second tunnel reach, the inner on the loopback interface: this takes them from the process, as who takes that over has them, and sends from each to each of
/// these places. It says what was sent.
const REACHES: &str = r#"
import ctypes, os, socket, sys
pid, places = int(sys.argv[1]), sys.argv[2:]
call = ctypes.CDLL(None, use_errno=True).syscall
of = os.pidfd_open(pid)
for name in os.listdir("/proc/%d/fd" % pid):
    fd = call(438, of, int(name), 0)
    if fd < 0:
        continue
    try:
        taken = socket.socket(fileno=fd)
        if taken.type & 15 != socket.SOCK_DGRAM or taken.family not in (socket.AF_INET, socket.AF_INET6):
            continue
        where = taken.getsockname()
    except OSError:
        continue
    for place in places:
        address, port = place.rsplit(" ", 1)
        # By way of another: a source route, which the kernel sends to its first stop.
        address, _, way = address.partition(" by ")
        if way and taken.family != socket.AF_INET:
            continue
        route = [(socket.IPPROTO_IP, 7, b"\x83\x07\x04" + socket.inet_aton(way) + b"\0")] if way else []
        if "%" in address:
            if taken.family != socket.AF_INET6:
                continue
            to = socket.getaddrinfo(address, int(port), type=socket.SOCK_DGRAM)[0][4]
        else:
            to = ("::ffff:" + address if "." in address and taken.family == socket.AF_INET6 else address, int(port))
        whose = "inner" if where[0] in ("0.0.0.0", "127.0.0.1") else "outer"
        try:
            taken.sendmsg([b"x"], route, 0, to)
            print("sent", whose, place)
        except PermissionError:
            print("refused", whose, place)
        except OSError as e:
            print("error", whose, place, e)
"#;

/// What this script says, which makes its first argument a file when it listens, in the network of one of the hosts, while so many pages come
/// to `ws1`.
fn while_pages_come(world: &World, of: &str, script: &str, pages: usize) -> Vec<u8> {
    let (began, net) = (world.path("began"), format!("--net=/run/netns/{}", world.namespace(of)));
    let mut python = Command::new("nsenter");
    python.args([net.as_str(), "python3", "-c", script]).arg(&began);
    let python = python.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("python3");
    eventually(Duration::from_secs(20), "it listens", || began.exists());
    for _ in 0..pages {
        world.fetch("ws1", PAGE).ok();
    }
    let output = python.wait_with_output().expect("wait for it");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// What the second tunnel of this process reaches of these places, as `REACHES` says it.
fn reaches(world: &World, of: &str, pid: u32, places: &[&str]) -> String {
    let process = layer(pid).expect("it runs").pid.to_string();
    let arguments = [&["-c", REACHES, process.as_str()], places].concat();
    world.outside(of, "python3", &arguments).ok()
}

fn layer(pid: u32) -> Option<Process> {
    host::below(pid).into_iter().find(|process| process.name == "levee-layer")
}

#[test]
fn a_second_tunnel_that_is_taken_over_reaches_its_peers_and_nobody_else() {
    let site = site("port-reach").replace("\"fd77::1\"", "\"fd77::1\", \"10.77.0.1\"");
    let world = World::up("reach", &site, &["ws1"]);
    // Addresses of the host that the site does not name, and one that it has by itself.
    let interface = "p0";
    world.server_sh("ip", &["address", "add", "192.0.2.7/24", "dev", interface]).ok();
    world.server_sh("ip", &["address", "add", "fd77::7/64", "dev", interface, "nodad"]).ok();
    // Before the kernel knows that nobody else has it, it is not the host's: what is for it goes out to the link.
    let show =
        || world.server_sh("ip", &["-o", "-6", "address", "show", "dev", interface, "scope", "link"]).ok();
    eventually(Duration::from_secs(10), "it is the host's", || !show().contains("tentative"));
    let shown = show();
    let own = shown.split_ascii_whitespace().find_map(|word| word.strip_suffix("/64")).expect("its own");
    let own = format!("{own}%{interface} 5353");
    let server = reaches(
        &world,
        "server",
        world.server_pid(),
        &[
            "127.0.0.1 4500",
            "127.0.0.1 53",
            "127.0.0.53 53",
            "0.0.0.0 5353",
            "::1 5353",
            "fd77::1 5353",
            "fd77::12 53",
            "fd77::12 40000",
            "ff02::fb 5353",
            "192.0.2.7 5353",
            "192.0.2.9 5353",
            "192.0.2.9 by 192.0.2.7 5353",
            "192.0.2.9 by 192.0.2.8 5353",
            "fd77::7 5353",
            own.as_str(),
        ],
    );
    for (verdict, whose, place) in [
        ("sent", "inner", "127.0.0.1 4500"),
        ("refused", "inner", "127.0.0.1 53"),
        ("refused", "inner", "127.0.0.53 53"),
        ("refused", "inner", "0.0.0.0 5353"),
        ("refused", "outer", "::1 5353"),
        ("refused", "outer", "fd77::1 5353"),
        ("refused", "outer", "fd77::12 53"),
        ("sent", "outer", "fd77::12 40000"),
        ("refused", "outer", "ff02::fb 5353"),
        ("refused", "inner", "192.0.2.7 5353"),
        ("refused", "outer", "192.0.2.7 5353"),
        ("sent", "outer", "192.0.2.9 5353"),
        ("refused", "outer", "192.0.2.9 by 192.0.2.7 5353"),
        ("refused", "outer", "192.0.2.9 by 192.0.2.8 5353"),
        ("refused", "outer", "fd77::7 5353"),
        ("refused", "outer", own.as_str()),
    ] {
        assert!(
            server.contains(&format!("{verdict} {whose} {place}\n")),
            "{verdict} {whose} {place}\n{server}"
        );
    }
    let workstation = world.workstation_pids().next().expect("it runs");
    let said = reaches(
        &world,
        "ws1",
        workstation,
        &["fd77::1 4433", "fd77::1 7443", "fd77::12 40000", "127.0.0.1 53", "127.0.0.53 5353"],
    );
    for (verdict, whose, place) in [
        ("sent", "outer", "fd77::1 4433"),
        ("refused", "outer", "fd77::1 7443"),
        ("refused", "outer", "fd77::12 40000"),
        ("refused", "inner", "127.0.0.1 53"),
        ("refused", "inner", "127.0.0.53 5353"),
    ] {
        assert!(said.contains(&format!("{verdict} {whose} {place}\n")), "{verdict} {whose} {place}\n{said}");
    }
}

#[test]
fn with_two_layers_an_onlooker_sees_the_second_alone_and_without_either_end_nothing_passes() {
    let world = World::up("layers", &site("port-layers"), &["ws1"]);
    let onlooker = Onlooker::at(&world, "ws1");
    world.login("ws1", "ada").ok();
    world.level("ws1", LABEL).ok();
    assert!(
        world.fetch("ws1", PAGE).ok().contains("<title>SECRET//NATO,MED</title>"),
        "the page of its label"
    );
    // The longest inner packet passes both ways, also by IPv6, and one more octet is no packet of this interface.
    assert!(world.run("ws1", &["ip", "-o", "link", "show", "levee0"]).ok().contains("mtu 1280 "));
    // (Of 1,280 octets are 40 IPv6's and 32 TCP's.)
    assert_eq!(world.run("ws1", &["python3", "-c", LONGEST]).ok(), "1280 1208 1208\n");
    // The two are two, by what runs.
    let (file, state) = (world.path("site.toml"), world.path("state"));
    let said = world.levee(&["check", &text(&file), "--state", &text(&state)]).ok();
    for proved in [
        "cryptographic library: proved: two: ",
        "process: proved: two: ",
        "uid: proved: two: ",
        "way in: proved: two: 127.0.0.1 within, ",
    ] {
        assert!(said.contains(proved), "{proved}\n{said}");
    }
    let seen = onlooker.end();
    assert!(seen.len() > 20, "{seen:?}");
    let foreign: Vec<_> = seen.iter().filter(|(from, to)| *from != 4433 && *to != 4433).collect();
    assert!(foreign.is_empty(), "besides the second tunnel: {foreign:?}");

    // Taken over, it has done nothing but what the vault counts as refused.
    let counters = || world.status()["vaults"][LABEL]["counters"].clone();
    while_pages_come(&world, "server", TAKEN_OVER, 6);
    let refused = |counters: &serde_json::Value| -> u64 {
        ["replay", "auth-failed", "truncated"].iter().filter_map(|name| counters[*name].as_u64()).sum()
    };
    // Of each packet at its three places: itself again, a changed one, one with another number, a short one.
    eventually(Duration::from_secs(20), "every one was refused", || refused(&counters()) >= 12 * 3 * 4);
    world.fetch("ws1", PAGE).ok();

    // Either end stopped, and nothing passes, by whatever way.
    let workstation = world.workstation_pids().next().expect("it runs");
    for (pid, who) in [(world.server_pid(), "the server's"), (workstation, "the workstation's")] {
        let end = layer(pid).unwrap_or_else(|| panic!("{who} second tunnel runs"));
        let onlooker = Onlooker::at(&world, "ws1");
        end.signal("STOP");
        world.run("ws1", &["curl", "--silent", "--max-time", "2", PAGE]).refused();
        end.signal("CONT");
        let again = || world.run("ws1", &["curl", "--silent", "--max-time", "2", PAGE]).status == 0;
        eventually(Duration::from_secs(60), "the page comes again", again);
        let foreign: Vec<_> =
            onlooker.end().into_iter().filter(|(from, to)| *from != 4433 && *to != 4433).collect();
        assert!(foreign.is_empty(), "while {who} did not run: {foreign:?}");
    }
    // Killed, it is started again, and the sessions go on.
    let before = layer(world.server_pid()).expect("it runs");
    before.signal("KILL");
    let again = || world.run("ws1", &["curl", "--silent", "--max-time", "2", PAGE]).status == 0;
    eventually(Duration::from_secs(60), "the page comes again", again);
    assert_ne!(layer(world.server_pid()).expect("it runs again").pid, before.pid);
    world.tpe("ws1", &["logout"]).ok();

    // Where the path carries too little for an inner packet of 1,280 octets no session begins, and it is said why.
    world.outside("ws1", "ip", &["link", "set", "outer", "mtu", "1300"]).ok();
    layer(workstation).expect("it runs").signal("KILL");
    let log = || std::fs::read_to_string(world.path("ws1-state/logs/levee/0.log")).unwrap_or_default();
    let known = || log().contains("the path to the server carries too little");
    eventually(Duration::from_secs(60), "the second tunnel knows what the path carries", known);
    world.login("ws1", "ada").ok();
    let refused = world.level("ws1", LABEL).refused();
    assert!(refused.contains("and two layers need 1317 both ways"), "{refused}");
}

/// The datagrams on its standard input, in hexadecimal, sent to the server's tunnel port at this address.
const ELSEWHERE: &str = r#"
import socket, sys
to = (sys.argv[1], 4500)
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sent = 0
for line in sys.stdin:
    out.sendto(bytes.fromhex(line.strip()), to)
    sent += 1
print(sent)
"#;

/// Five ESP packets that come out of the second tunnel at the server, in hexadecimal: what who has broken that has.
const TAKEN: &str = r#"
import socket, struct, sys, time
raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
raw.bind(("lo", 0))
raw.settimeout(0.2)
open(sys.argv[1], "w").close()
seen, until = 0, time.monotonic() + 20
while seen < 5 and time.monotonic() < until:
    try:
        packet, where = raw.recvfrom(65535)
    except socket.timeout:
        continue
    head = (packet[0] & 15) * 4
    if packet[9] != 17 or where[2] == socket.PACKET_OUTGOING:
        continue
    to, = struct.unpack("!H", packet[head + 2:head + 4])
    if to == 4500 and packet[12:14] == b"\x7f\x40" and packet[head + 8:head + 12] != bytes(4):
        print(packet[head + 8:].hex())
        seen += 1
assert seen == 5, seen
"#;

#[test]
fn a_posture_that_needs_two_layers_cuts_who_has_one_and_with_two_nothing_goes_by_the_way_of_others() {
    const OTHER: &str = "CONFIDENTIAL//MED";
    let site = SITE.replace("\"harbour\"", "\"port-beside\"");
    let site = site.replace("name = \"ws1\"", "name = \"ws1\"\nlayers = [\"esp\", \"quic\"]");
    let site = site + "\n[[posture]]\nname = \"sealed\"\nlayers = [\"esp\", \"quic\"]\n";
    let world = World::up("beside", &site, &["ws1", "ws2"]);
    let posture = |arguments: &[&str]| {
        let run = text(&world.path("run"));
        world.levee(&[&["posture"], arguments, &["--run", &run]].concat())
    };
    // Both are served, at one label, each by its own way.
    let onlookers = ["ws1", "ws2"].map(|workstation| Onlooker::at(&world, workstation));
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.login(workstation, user).ok();
        world.level(workstation, OTHER).ok();
        assert!(world.fetch(workstation, PAGE).ok().contains(OTHER), "{workstation}");
    }
    let [within, bare] = onlookers.map(Onlooker::end);
    let second = |(from, to): &(u16, u16)| *from == 4433 || *to == 4433;
    assert!(within.len() > 20 && within.iter().all(second), "{within:?}");
    assert!(bare.len() > 5 && !bare.iter().any(second), "{bare:?}");
    // The two layers are not reached one through the other alone, and that is said.
    let (file, state) = (world.path("site.toml"), world.path("state"));
    let said = world.levee(&["check", &text(&file), "--state", &text(&state)]).ok();
    assert!(said.contains("  way in: unmet: warning: both have 10.77.0.1 "), "{said}");

    // What has come out of the second tunnel passes by no other way, and draws nothing after it.
    let counter = |name: &str| world.status()["vaults"][OTHER]["counters"][name].as_u64().unwrap_or(0);
    let peers = || -> Vec<String> {
        let sas = world.status()["vaults"][OTHER]["sas"].as_array().cloned().unwrap_or_default();
        sas.iter().filter_map(|sa| Some(sa["peer"].as_str()?.to_owned())).collect()
    };
    std::fs::write(world.path("taken"), while_pages_come(&world, "server", TAKEN, 3)).expect("write");
    let before = peers();
    let script = world.path("elsewhere.py");
    std::fs::write(&script, ELSEWHERE).expect("write");
    let send = format!("python3 {} 10.77.0.1 < {}", text(&script), text(&world.path("taken")));
    assert_eq!(world.outside("ws2", "sh", &["-c", &send]).ok().trim(), "5");
    eventually(Duration::from_secs(10), "each is refused for where it came", || counter("outside") == 5);
    assert_eq!(peers(), before);

    // The posture: who has one layer is cut and told why, who has two goes on.
    let plan = posture(&["plan", "sealed", "--json"]).ok();
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    let sessions = plan["sessions"].as_array().expect("sessions");
    let outcome =
        |host: &str| sessions.iter().find(|one| one["host"] == host).expect("a session")["outcome"].clone();
    assert_eq!((outcome("ws1"), outcome("ws2")), ("stays".into(), "not-allowed".into()));
    posture(&["set", "sealed"]).ok();
    let status = world.status();
    let users: Vec<_> =
        status["sessions"].as_array().expect("sessions").iter().map(|one| &one["user"]).collect();
    assert_eq!(users, ["ada"]);
    assert!(peers().iter().all(|peer| peer.starts_with("127.")), "{:?}", peers());
    assert!(world.fetch("ws1", PAGE).ok().contains(OTHER));
    let refused = world.level("ws2", OTHER).refused();
    let why = "needs the layers esp and quic at CONFIDENTIAL//MED, and sessions from `ws2` have esp alone";
    assert!(refused.contains(why), "{refused}");
    // Less again, and both have what they had.
    posture(&["set", "default"]).ok();
    world.level("ws2", OTHER).ok();
    for workstation in ["ws1", "ws2"] {
        assert!(world.fetch(workstation, PAGE).ok().contains(OTHER), "{workstation}");
    }
}

/// What goes from a gateway to its server, sent again: as it was, from the gateway's own port and from another, and with addresses before it that
/// no tunnel has. It says how many there were of each.
const BETWEEN: &str = r#"
import socket, struct, sys, time
# Of what goes out, who asks for one protocol alone sees nothing.
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
raw.bind(("inside", 3))
raw.settimeout(0.2)
open(sys.argv[1], "w").close()
seen, until = [], time.monotonic() + 20
while len(seen) < 6 and time.monotonic() < until:
    try:
        frame, where = raw.recvfrom(65535)
    except socket.timeout:
        continue
    if where[2] == socket.PACKET_OUTGOING and frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == struct.pack("!H", 4433) and frame[46:50] != bytes(4):
        seen.append(frame)
assert len(seen) == 6, len(seen)
for frame in seen:
    # Without a checksum (RFC 768), which IPv4 lets be: the kernel had left it to the device.
    frame = bytearray(frame)
    frame[40:42] = bytes(2)
    raw.send(frame)
    for port, address in ((5555, frame[42:46]), (4433, bytes([127, 0, 0, 1])), (4433, bytes([127, 128, 0, 0])), (4433, b"")):
        other = bytearray(frame)
        other[34:36] = struct.pack("!H", port)
        other[42:46] = address if address else frame[42:46]
        raw.send(bytes(other) if address else bytes(other[:42]))
print(len(seen))
"#;

#[test]
fn a_gateway_ends_the_second_tunnel_on_a_host_of_its_own_and_the_server_takes_the_tunnel_within_from_it_alone()
 {
    let mut world = World::behind_a_gateway("gateway", &site("port-gateway"), "ws1");
    let onlooker = Onlooker::at(&world, "ws1");
    world.login("ws1", "ada").ok();
    world.level("ws1", LABEL).ok();
    assert!(world.fetch("ws1", PAGE).ok().contains("<title>SECRET//NATO,MED</title>"));
    let seen = onlooker.end();
    let second = |(from, to): &(u16, u16)| *from == 4433 || *to == 4433;
    assert!(seen.len() > 20 && seen.iter().all(second), "{seen:?}");
    // The server has no key of the second tunnel, and its process reaches the gateway and the steering group alone.
    assert!(!world.path("state/layer/layer.key").exists(), "it is the gateway's");
    let of_server = reaches(
        &world,
        "server",
        world.server_pid(),
        &["10.78.0.2 4433", "10.78.0.2 40000", "10.77.0.11 40000", "127.0.0.1 4500", "127.0.0.1 53"],
    );
    let gateway = world.workstation_pids().next().expect("it runs");
    let places =
        ["10.78.0.1 4433", "10.78.0.1 7443", "10.77.0.11 40000", "10.77.0.12 5353", "127.0.0.1 4500"];
    let of_gateway = reaches(&world, "gw", gateway, &places);
    for (said, verdict, place) in [
        (&of_server, "sent", "outer 10.78.0.2 4433"),
        (&of_server, "refused", "outer 10.78.0.2 40000"),
        (&of_server, "refused", "outer 10.77.0.11 40000"),
        (&of_server, "sent", "inner 127.0.0.1 4500"),
        (&of_server, "refused", "inner 127.0.0.1 53"),
        (&of_gateway, "sent", "outer 10.78.0.1 4433"),
        (&of_gateway, "sent", "outer 10.77.0.11 40000"),
        (&of_gateway, "refused", "outer 10.77.0.12 5353"),
        (&of_gateway, "refused", "outer 127.0.0.1 4500"),
    ] {
        assert!(said.contains(&format!("{verdict} {place}\n")), "{verdict} {place}\n{said}");
    }
    // Two hosts are two, as the site file says, and nothing refuses it, also where the gateway's key has been moved there.
    let (file, state) = (text(&world.path("site.toml")), text(&world.path("state")));
    let check = || world.levee(&["check", &file, "--state", &state]).ok();
    assert!(check().contains("  host: assessed: two: "), "{}", check());
    let key = world.path("state/gateway/layer/layer.key");
    let away = world.path("moved.key");
    std::fs::rename(&key, &away).expect("moved away");
    assert!(check().contains("  store of private keys: assessed: two: "), "{}", check());
    std::fs::rename(&away, &key).expect("and back");

    // As an operator starts it; one runs already.
    let (bundle, levee) = (text(&world.path("state/gateway")), text(&levee_system::programs().join("levee")));
    let [state_of, run_of] = ["gw-state", "gw-run"].map(|name| text(&world.path(name)));
    let up = ["up", "--gateway", &bundle, "--state", &state_of, "--run", &run_of];
    let said = world.outside("gw", &levee, &up).refused();
    assert!(said.contains("runs already"), "{said}");
    // With a new key, it goes on by that.
    let (ends, first) = (world.path("state/gateway/layer/chain.pem"), layer(gateway).expect("it runs"));
    let old = std::fs::read(&ends).expect("its certificate");
    world.levee(&["enrol", "rotate", &file, "layer", "--state", &state]).ok();
    assert_ne!(std::fs::read(&ends).expect("its certificate"), old);
    // Not without its key: it would end.
    std::fs::rename(&key, &away).expect("moved away");
    let said = world.levee(&["reload", "--run", &run_of]).refused();
    assert!(said.contains("goes on with what it has") && said.contains("layer.key"), "{said}");
    std::fs::rename(&away, &key).expect("and back");
    // Nor where half of it is that of before.
    let new = std::fs::read(&ends).expect("its certificate");
    std::fs::write(&ends, &old).expect("half of it");
    let said = world.levee(&["reload", "--run", &run_of]).refused();
    assert!(said.contains("not of one bundle"), "{said}");
    std::fs::write(&ends, &new).expect("and back");
    assert_eq!(layer(gateway).map(|now| now.pid), Some(first.pid));
    assert!(world.levee(&["reload", "--run", &run_of]).ok().contains("count from now on"));
    eventually(Duration::from_secs(20), "another process", || {
        layer(gateway).is_some_and(|now| now.pid != first.pid)
    });
    let again = || world.run("ws1", &["curl", "--silent", "--max-time", "2", PAGE]).status == 0;
    eventually(Duration::from_secs(60), "the page comes again", again);

    // What is sent again from the gateway's own place the vault refuses; from another port, and of nobody's tunnel, nothing comes to it.
    let replayed = || world.status()["vaults"][LABEL]["counters"]["replay"].as_u64().unwrap_or(0);
    while_pages_come(&world, "gw", BETWEEN, 4);
    eventually(Duration::from_secs(10), "each is refused once", || replayed() >= 6);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(replayed(), 6, "of the others none came to it");

    // Either process is started again, and the session goes on. Without the gateway nothing passes, by whatever way.
    for warden in [gateway, world.server_pid()] {
        let before = layer(warden).expect("it runs");
        before.signal("KILL");
        let again = || world.run("ws1", &["curl", "--silent", "--max-time", "2", PAGE]).status == 0;
        eventually(Duration::from_secs(60), "the page comes again", again);
        assert_ne!(layer(warden).expect("it runs again").pid, before.pid);
    }
    let onlooker = Onlooker::at(&world, "ws1");
    world.stop_workstation("gw");
    world.run("ws1", &["curl", "--silent", "--max-time", "2", PAGE]).refused();
    world.start_gateway("gw");
    let again = || world.run("ws1", &["curl", "--silent", "--max-time", "2", PAGE]).status == 0;
    eventually(Duration::from_secs(60), "the page comes again", again);
    let seen = onlooker.end();
    assert!(seen.iter().all(second), "{seen:?}");
}
