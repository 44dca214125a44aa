//! Partitions with interfaces of the host's: what is outside reaches one, and one behind it, as far as the site says.
//!
//! Needs root, python3, socat, iproute2, nftables, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{World, eventually, programs, sh, text};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PATIENCE: Duration = Duration::from_secs(60);

/// One partition has the interface, another has another, and a third has none.
const NETWORKS: &str = "
[[network]]
interface = \"eth5\"
label = \"SECRET\"
partition = \"front\"
address = [\"192.168.5.1/24\", \"fd05::1/64\"]
ports = [{ port = 7, protocol = \"tcp\" }]
hosts = [
    { address = \"192.168.5.9\", port = 8080, protocol = \"tcp\" },
    { address = \"fd05::9\", port = 8080, protocol = \"tcp\" },
]

[[network]]
interface = \"eth6\"
label = \"SECRET\"
partition = \"aside\"
address = \"192.168.6.1/24\"
";

const LINKS: &str = "
[[link]]
name = \"bus\"
between = [\"front\", \"desk\"]
addresses = [\"10.9.0.1/30\", \"10.9.0.2/30\"]

[[link]]
name = \"bus6\"
between = [\"front\", \"desk\"]
addresses = [\"fd09::1/64\", \"fd09::2/64\"]

[[link]]
name = \"side\"
between = [\"front\", \"aside\"]
addresses = [\"10.9.1.1/30\", \"10.9.1.2/30\"]
";

/// Serves its port at all addresses, in both families, and asks what it is told to, again and again.
const PROGRAM: &str = "import socket, sys, threading, time
own, port, asks = OWN
def serve():
    listener = socket.create_server(('::', port), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        connection, peer = listener.accept()
        try: connection.sendall((own + ' hears ' + peer[0].removeprefix('::ffff:')).encode())
        except OSError: pass
        connection.close()
threading.Thread(target=serve, daemon=True).start()
def ask(address, port, source=None):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as end:
        end.settimeout(0.5)
        if source: end.bind((source, 0))
        end.connect((address, port))
        return end.recv(100).decode().strip()
while True:
    turn = ['turn']
    for address, port, source in asks:
        try: said = ask(address, port, source)
        except OSError: said = 'nothing'
        turn.append('asked %s %d %s : %s' % (address, port, source or 'itself', said))
    for name in 'all', 'eth5':
        try:
            with open('/proc/sys/net/ipv4/conf/' + name + '/forwarding', 'w') as setting: setting.write('1')
            turn.append('asked to forward : done')
        except OSError: pass
    turn.append('names ' + ','.join(sorted(name for _, name in socket.if_nameindex())))
    print(' | '.join(turn), flush=True)
    time.sleep(0.3)
";

/// A partition that serves a port and asks at these addresses, some under another of its own.
fn partition(name: &str, port: u16, asks: &[(&str, u16, &str)]) -> String {
    let asks: String =
        asks.iter().map(|(address, port, source)| format!("('{address}', {port}, '{source}'), ")).collect();
    let program = PROGRAM.replace("OWN", &format!("'{name}', {port}, [{asks}]"));
    format!(
        "\n[[partition]]\nname = \"{name}\"\nlabel = \"SECRET\"\n\
         command = [\"/usr/bin/python3\", \"-c\", '''\n{program}''']\nneeds = [\"netlink\", \"proc\"]\nmemory = \"64M\"\ndisk = \"8M\"\n"
    )
}

fn partitions() -> String {
    // What it may ask for, what it may not, and under the address of its link, where nobody would know it.
    let front = partition(
        "front",
        7,
        &[
            ("192.168.5.9", 8080, ""),
            ("fd05::9", 8080, ""),
            ("192.168.5.9", 8081, ""),
            ("192.168.5.9", 8080, "10.9.0.1"),
            ("10.9.0.2", 25, ""),
            ("192.168.6.9", 8080, ""),
        ],
    );
    let desk = partition(
        "desk",
        25,
        &[
            ("192.168.5.9", 8081, ""),
            ("fd05::9", 8081, ""),
            ("192.168.5.9", 8080, ""),
            ("10.9.0.1", 7, ""),
            ("192.168.5.1", 7, ""),
            ("fd05::1", 7, ""),
            ("10.9.1.1", 7, ""),
            ("10.9.1.2", 9, ""),
            ("192.168.6.9", 8080, ""),
        ],
    );
    let aside = partition(
        "aside",
        9,
        &[("192.168.5.9", 8080, ""), ("192.168.5.9", 8081, ""), ("10.9.1.1", 7, ""), ("10.9.0.2", 25, "")],
    );
    front + &desk + &aside
}

/// What the link to the partition without an interface forwards, in this family.
fn forwarding(host: &str) -> String {
    format!(
        "ports = [{{ port = 25, protocol = \"tcp\" }}]\nhosts = [{{ address = \"{host}\", port = 8081, protocol = \"tcp\" }}]\n"
    )
}

/// A process of the test's, ended with it.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Services of a host outside: each says whom it sees.
fn serves(world: &World, of: &str, ports: &[u16]) -> Vec<Peer> {
    let net = format!("--net=/run/netns/{}", world.namespace(of));
    let serve = |port| {
        let listen = format!("TCP6-LISTEN:{port},fork,reuseaddr,ipv6only=0");
        let mut command = Command::new("nsenter");
        command.args([&net, "socat", &listen, &format!("SYSTEM:echo {of} hears $SOCAT_PEERADDR")]);
        Peer(command.stdin(Stdio::null()).spawn().expect("start socat (scripts/need test installs it)"))
    };
    ports.iter().map(|port| serve(*port)).collect()
}

/// What a host outside hears at this address.
fn asked(world: &World, of: &str, address: &str) -> String {
    world
        .outside(of, "socat", &["-u", &format!("TCP:{address},connect-timeout=1"), "-"])
        .out
        .trim()
        .to_owned()
}

/// What a partition has said in each of its turns.
fn turns(world: &World, name: &str) -> Vec<BTreeSet<String>> {
    let directory = world.path(&format!("state/logs/labels/partition+{name}"));
    let read = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    let text = ["1.log", "0.log"].map(read).concat();
    let turns = text.lines().filter_map(|line| line.split_once(" turn | "));
    turns.map(|(_, said)| said.split(" | ").map(str::to_owned).collect()).collect()
}

/// What each of these has said in a turn that began after now.
fn from_now(world: &World, names: &[&str]) -> Vec<BTreeSet<String>> {
    let before: Vec<usize> = names.iter().map(|name| turns(world, name).len()).collect();
    let at = |(name, before): (&&str, &usize)| turns(world, name).into_iter().nth(before + 2);
    let mut said = Vec::new();
    eventually(PATIENCE, "they have asked everything once more", || {
        said = names.iter().zip(&before).filter_map(at).collect();
        said.len() == names.len()
    });
    said
}

/// A turn: what was asked, and the interfaces that are there.
fn turn(lines: &[&str], names: &str) -> BTreeSet<String> {
    lines.iter().map(|line| format!("asked {line}")).chain([format!("names {names}")]).collect()
}

/// The two hosts outside, each on a network of its own.
fn outside(world: &World, first: &str, second: &str) {
    for (of, interface, address) in [("out", first, "192.168.5.9/24"), ("yard", second, "192.168.6.9/24")] {
        let peer = world.namespace(of);
        world
            .server_sh(
                "ip",
                &["link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", &peer],
            )
            .ok();
        world.outside(of, "ip", &["address", "add", address, "dev", "eth0"]).ok();
        world.outside(of, "ip", &["link", "set", "eth0", "up"]).ok();
    }
    world.outside("out", "ip", &["address", "add", "fd05::9/64", "dev", "eth0", "nodad"]).ok();
    // Whoever would go round the rules.
    world.outside("out", "ip", &["route", "add", "10.9.0.0/30", "via", "192.168.5.1"]).ok();
    world.outside("out", "ip", &["address", "add", "172.16.0.9/32", "dev", "lo"]).ok();
}

#[test]
fn a_partition_without_an_interface_reaches_the_network_through_the_one_that_has_it_and_no_further_than_the_site_says()
 {
    let routed = LINKS
        .replace("10.9.0.2/30\"]\n", &format!("10.9.0.2/30\"]\n{}", forwarding("192.168.5.9")))
        .replace("fd09::2/64\"]\n", &format!("fd09::2/64\"]\n{}", forwarding("fd05::9")));
    let base = SITE.replace("\"harbour\"", "\"cards\"");
    let with = |links: &str| format!("{base}{}{NETWORKS}{links}", partitions());
    let mut world = World::new("cards", &with(&routed), &["out", "yard"]);
    outside(&world, "eth5", "eth6");
    let _peers = [serves(&world, "out", &[8080, 8081]), serves(&world, "yard", &[8080])];
    world.start_server();
    eventually(PATIENCE, "both are reached from outside", || {
        asked(&world, "out", "192.168.5.1:7") == "front hears 192.168.5.9"
            && asked(&world, "out", "[fd05::1]:25") == "desk hears fd05::9"
            && !turns(&world, "aside").is_empty()
    });
    assert_eq!(asked(&world, "out", "192.168.5.1:25"), "desk hears 192.168.5.9");
    assert_eq!(asked(&world, "out", "[fd05::1]:7"), "front hears fd05::9");
    // Not by its own address, not under another's name, and no other port.
    for way in ["10.9.0.2:25", "10.9.0.1:7", "192.168.5.1:8080", "192.168.5.1:25,bind=172.16.0.9"] {
        assert_eq!(asked(&world, "out", way), "", "{way}");
    }
    assert_eq!(asked(&world, "yard", "192.168.6.1:9"), "", "nothing is listed there");

    let heard = from_now(&world, &["front", "desk", "aside"]);
    let (front, desk, aside) = (&heard[0], &heard[1], &heard[2]);
    let front_is = turn(
        &[
            "192.168.5.9 8080 itself : out hears [0000:0000:0000:0000:0000:ffff:c0a8:0501]",
            "fd05::9 8080 itself : out hears [fd05:0000:0000:0000:0000:0000:0000:0001]",
            "192.168.5.9 8081 itself : nothing",
            "192.168.5.9 8080 10.9.0.1 : nothing",
            "10.9.0.2 25 itself : desk hears 10.9.0.1",
            "192.168.6.9 8080 itself : nothing",
        ],
        "bus,bus6,eth5,lo,side",
    );
    assert_eq!(front, &front_is);
    // Outside it is known by the other's address alone.
    let desk_is = turn(
        &[
            "192.168.5.9 8081 itself : out hears [0000:0000:0000:0000:0000:ffff:c0a8:0501]",
            "fd05::9 8081 itself : out hears [fd05:0000:0000:0000:0000:0000:0000:0001]",
            "192.168.5.9 8080 itself : nothing",
            "10.9.0.1 7 itself : front hears 10.9.0.2",
            "192.168.5.1 7 itself : nothing",
            "fd05::1 7 itself : nothing",
            "10.9.1.1 7 itself : nothing",
            "10.9.1.2 9 itself : nothing",
            "192.168.6.9 8080 itself : nothing",
        ],
        "bus,bus6,lo",
    );
    assert_eq!(desk, &desk_is);
    let aside_is = turn(
        &[
            "192.168.5.9 8080 itself : nothing",
            "192.168.5.9 8081 itself : nothing",
            "10.9.1.1 7 itself : front hears 10.9.1.2",
            "10.9.0.2 25 itself : nothing",
        ],
        "eth6,lo,side",
    );
    assert_eq!(aside, &aside_is);
    let dropped = "dropped at eth5: no listed service";
    eventually(PATIENCE, "what is dropped is counted", || world.status().to_string().contains(dropped));

    // Stopped, the one in between passes nothing on; the interface is not the host's.
    let run = text(&world.path("run"));
    world.levee(&["partition", "stop", "--run", &run, "front"]).ok();
    world.server_sh("ip", &["link", "show", "eth5"]).refused();
    for way in ["192.168.5.1:7", "192.168.5.1:25"] {
        assert_eq!(asked(&world, "out", way), "", "{way} with nobody in between");
    }
    world.outside("out", "ping", &["-c1", "-W1", "192.168.5.1"]).refused();
    let desk = &from_now(&world, &["desk"])[0];
    assert_eq!(
        desk.iter().filter(|line| line.contains(" : ") && !line.ends_with(" : nothing")).count(),
        0,
        "{desk:?}"
    );
    world.levee(&["partition", "start", "--run", &run, "front"]).ok();
    eventually(PATIENCE, "it passes on again", || {
        asked(&world, "out", "192.168.5.1:25") == "desk hears 192.168.5.9"
    });

    // Killed, the warden leaves the interfaces where they are; the next takes them up, and forwards what its site says: nothing.
    world.kill_server();
    world.server_sh("ip", &["link", "show", "eth5"]).refused();
    fs::write(world.path("site.toml"), with(LINKS)).expect("write the site file");
    world.start_server();
    eventually(PATIENCE, "the one with the interface is reached", || {
        asked(&world, "out", "192.168.5.1:7") == "front hears 192.168.5.9"
    });
    assert_eq!(asked(&world, "out", "192.168.5.1:25"), "");
    eventually(PATIENCE, "the links are there again", || {
        let heard = from_now(&world, &["front", "desk"]);
        heard[0].contains("asked 10.9.0.2 25 itself : desk hears 10.9.0.1")
            && heard[1].contains("asked 10.9.0.1 7 itself : front hears 10.9.0.2")
    });
    let desk = &from_now(&world, &["desk"])[0];
    assert!(
        desk.iter().filter(|line| line.contains("192.168.5.9")).all(|line| line.ends_with(" : nothing")),
        "{desk:?}"
    );

    // Killed once more: who starts with a site without them gives them back, and no link.
    world.kill_server();
    fs::write(world.path("site.toml"), &base).expect("write the site file");
    world.start_server();
    is_back(&world, ["eth5", "eth6"]);
    world.stop_server();
}

/// Both interfaces are the host's again, and down; nothing of levee's is.
fn is_back(world: &World, interfaces: [&str; 2]) {
    for name in interfaces {
        let link = world.server_sh("ip", &["-o", "link", "show", name]).ok();
        assert!(link.contains("state DOWN"), "{link}");
    }
    let all = world.server_sh("ip", &["-o", "link", "show"]).ok();
    assert!(["bus", "bus6", "side"].iter().all(|link| !all.contains(&format!(" {link}@"))), "{all}");
}

#[test]
fn an_interface_is_back_when_the_server_has_ended_and_one_that_is_not_there_is_named() {
    // Of other names than another test's, which runs at the same time.
    let networks = NETWORKS.replace("eth5", "eth7").replace("eth6", "eth8");
    let site = SITE.replace("\"harbour\"", "\"cardless\"") + &partitions() + &networks + LINKS;
    let mut world = World::new("cardless", &site, &["out", "yard"]);
    outside(&world, "eth7", "eth8");
    let (path, state, run) = (world.path("site.toml"), world.path("state"), world.path("run"));
    let levee = text(&programs().join("levee"));
    let doctor = |world: &World| world.server_sh(&levee, &["doctor", &text(&path)]);
    world.start_server();
    eventually(PATIENCE, "it is reached", || {
        asked(&world, "out", "192.168.5.1:7") == "front hears 192.168.5.9"
    });
    let found = doctor(&world);
    assert!(found.out.contains("has     the interface eth7 of [[network]]: in use: "), "{found:?}");
    world.stop_server();
    is_back(&world, ["eth7", "eth8"]);
    assert_eq!(asked(&world, "out", "192.168.5.1:7"), "");
    let mounts = sh("cat", &["/proc/self/mounts"]).ok();
    assert!(!mounts.contains(&text(&run)), "something is left mounted in {}", run.display());

    let found = doctor(&world);
    assert!(
        found.out.contains("has     the interface eth8 of [[network]]: in this host's network"),
        "{found:?}"
    );
    world.server_sh("ip", &["link", "delete", "eth8"]).ok();
    let found = doctor(&world).refused();
    assert!(found.contains("lacks   the interface eth8 of [[network]]"), "{found}");
    let up = ["up", &text(&path), "--state", &text(&state), "--run", &text(&run)];
    let why = world.server_sh(&levee, &up).refused();
    assert!(
        why.contains("the interface eth8 to partition/aside: this host's network has none of this name"),
        "{why}"
    );
    // Nothing has been taken.
    let link = world.server_sh("ip", &["-o", "link", "show", "eth7"]).ok();
    assert!(link.contains("state DOWN"), "{link}");
}
