//! A labelled network of a running site: a host on it whose packets carry CIPSO labels, right and wrong ones.

use levee_system::{World, eventually, sh};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const NETWORK: &str = r#"
[[domain]]
doi = 16
levels = { UNCLASSIFIED = 1, CONFIDENTIAL = 2, SECRET = 5 }
categories = { NATO = 0, MED = 9 }

[[network]]
interface = "ship0"
labels = "CONFIDENTIAL..SECRET"
domain = 16
address = ["192.168.7.1/24", "fd07::1/64"]
unlabelled = [
    { address = "192.168.7.64/26", label = "CONFIDENTIAL" },
    { address = "192.168.7.70/32", label = "SECRET" },
    { address = "fd07::4000/114", label = "CONFIDENTIAL" },
    { address = "fd07::4001/128", label = "SECRET" },
]
services = ["web"]
hosts = [{ address = "192.168.7.9", port = 8080, protocol = "tcp" }]
"#;

/// A host that speaks CIPSO and CALIPSO, by hand: with whatever options it is given in hexadecimal.
const PEER: &str = include_str!("../probes/labelled.py");

/// The options of the two labels of the link: of IPv4 and of IPv6.
const CONFIDENTIAL: [&str; 2] = ["860a00000010010400020000", "0708000000100002bfd9"];
const SECRET: [&str; 2] = ["860a00000010010400050000", "0708000000100005ba55"];

/// Single-level hosts of the two labels.
const SINGLE_LEVEL: [(&str, [&str; 2]); 2] =
    [("CONFIDENTIAL", ["4@192.168.7.64", "6@fd07::4000"]), ("SECRET", ["4@192.168.7.70", "6@fd07::4001"])];

/// Packets of each wrong kind.
const EACH: u64 = 200;

/// The version, what is wrong, and the options.
const WRONG: [(&str, &str, &str); 18] = [
    ("4", "no label", ""),
    ("4", "two labels", "860a0000001001040002860a0000001001040002"),
    ("4", "a truncated option", "861c0000001001040002"),
    ("4", "a label that is not as it must be", "860a0000001001040102"),
    ("4", "a label of another domain", "860a0000001101040002"),
    ("4", "an unknown tag", "860a0000001007040002"),
    ("4", "an unknown label", "860a0000001001040003"),
    ("4", "a label that the link does not have", "860a0000001001040001"),
    ("4", "another option", "860a000000100104000294040000"),
    ("6", "no label", ""),
    ("6", "two labels", "0708000000100002bfd90708000000100002bfd9"),
    ("6", "a truncated option", "0758000000100002bfd9"),
    ("6", "a label that is not as it must be", "0708000000100102bfd9"),
    ("6", "a label of another domain", "0708000000110002fbd2"),
    // Its checksum is another's; the domain has no such level; the link has no such label: the program sees that none is in its table.
    ("6", "an unknown label", "0708000000100002bfd8"),
    ("6", "an unknown label", "07080000001000036383"),
    ("6", "an unknown label", "0708000000100001db36"),
    ("6", "another option", "0708000000100002bfd905020000"),
];

fn dropped(world: &World, why: &str) -> u64 {
    let status = world.status();
    let counters = status["steering"].as_object().expect("counters");
    counters.get(&format!("dropped from ship0: {why}")).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// A server with the labelled network, not started yet, and a host on it.
fn labelled_ship(name: &str, site: &str) -> World {
    let world = World::new(name, &format!("{site}{NETWORK}"), &["ship"]);
    let ship = world.namespace("ship");
    world
        .server_sh("ip", &["link", "add", "ship0", "type", "veth", "peer", "name", "eth0", "netns", &ship])
        .ok();
    // Nobody but the probe speaks there: what the kernel says by itself would be counted, too.
    world.outside("ship", "sh", &["-c", "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6"]).ok();
    world.outside("ship", "ip", &["link", "set", "eth0", "up"]).ok();
    world
}

#[test]
fn each_packet_of_a_labelled_network_reaches_the_compartment_of_its_label_or_none() {
    let site = SITE
        .replace("\"10.80.0.1\"", "[\"10.80.0.1\", \"fd80::1\"]")
        .replace("\"10.80.1.0/24\"", "[\"10.80.1.0/24\", \"fd80:1::/64\"]");
    let mut world = labelled_ship("labelled", &site);
    world.start_server();
    let host = |world: &World, arguments: &[&str]| {
        world.outside("ship", "python3", &[&["-c", PEER], arguments].concat()).out
    };
    let pages = |world: &World| {
        for (options, label) in [(CONFIDENTIAL, "CONFIDENTIAL"), (SECRET, "SECRET")] {
            for (version, option) in ["4", "6"].into_iter().zip(options) {
                let mut said = String::new();
                eventually(Duration::from_secs(40), "the host gets the page of its packets' label", || {
                    said = host(world, &[version, "get", option]);
                    said.contains(&format!("<h1>{label}</h1>"))
                });
                // Each packet that came back had that label, and no other.
                assert_eq!(said.lines().last(), Some(format!("labels {option}").as_str()), "{said}");
            }
        }
    };
    pages(&world);
    // The host's own network has no trace of the interface.
    world.server_sh("ip", &["link", "show", "ship0"]).refused();

    let mut before = 0;
    for (version, why, options) in WRONG {
        let were = dropped(&world, why);
        let said = host(&world, &[version, "knock", &EACH.to_string(), options]);
        assert_eq!(said.trim(), "answers 0", "{version} {why}");
        let mut are = 0;
        eventually(Duration::from_secs(5), "the drops are in the status", || {
            are = dropped(&world, why) - were;
            are >= EACH
        });
        assert_eq!(are, EACH, "{version} {why}");
        before += are;
    }
    assert_eq!(before, EACH * 18);
    // With a right label they are answered.
    for (version, option) in ["4", "6"].into_iter().zip(SECRET) {
        let said = host(&world, &[version, "knock", "20", option]);
        assert!(!said.contains("answers 0"), "{version}: {said}");
    }

    // A host that writes no label gets the page of its address's, and no option. If it writes one, its own too, nobody hears it.
    for (label, hosts) in SINGLE_LEVEL {
        for (address, option) in hosts.into_iter().zip(CONFIDENTIAL) {
            let mut said = String::new();
            eventually(Duration::from_secs(20), "a single-level host gets the page of its label", || {
                said = host(&world, &[address, "get", ""]);
                said.contains(&format!("<h1>{label}</h1>"))
            });
            assert_eq!(said.lines().last().map(str::trim_end), Some("labels"), "{said}");
            let why = "a label from a single-level host";
            let were = dropped(&world, why);
            let said = host(&world, &[address, "knock", &EACH.to_string(), option]);
            assert_eq!(said.trim(), "answers 0", "{address}");
            eventually(Duration::from_secs(5), "the drops are in the status", || {
                dropped(&world, why) - were == EACH
            });
        }
    }

    // Killed, the warden leaves the interface where it is; the next one takes it up again.
    world.kill_server();
    world.server_sh("ip", &["link", "show", "ship0"]).refused();
    world.start_server();
    pages(&world);

    // Stopped, it gives the interface back, down, with no program at it.
    world.stop_server();
    let link = world.server_sh("ip", &["-o", "link", "show", "ship0"]).ok();
    assert!(link.contains("state DOWN") && !link.contains("clsact"), "{link}");
    let mounts = sh("cat", &["/proc/self/mounts"]).ok();
    let run = world.path("run");
    assert!(!mounts.contains(run.to_str().expect("UTF-8")), "something is left mounted in {}", run.display());
}

/// In the place of the web service: a program that writes the other label into whatever it sends, by each way that a socket has, and answers with what it
/// was told of that.
const FORGER: &str = r#"software = ["python3"]
command = ["/usr/bin/python3", "-c", '''
import os,selectors,socket
FOUR=bytes.fromhex("860a00000010010400020000")
SIX=bytes.fromhex("0001"+"0708000000100002bfd9"+"01020000")
HOPS=54
def told(act):
    try: act(); return "done"
    except OSError as e: return os.strerror(e.errno).replace(" ","-")
def ways(s, six):
    if six: return [lambda: s.setsockopt(41,HOPS,SIX), lambda: s.setsockopt(41,6,b""), lambda: s.sendmsg([b""],[(41,HOPS,SIX)])]
    return [lambda: s.setsockopt(0,4,FOUR), lambda: s.setsockopt(0,4,b""), lambda: s.sendmsg([b""],[(0,7,FOUR)])]
all=selectors.DefaultSelector()
for n in range(3, 3+int(os.environ["LISTEN_FDS"])):
    l=socket.socket(fileno=n); l.setblocking(True)
    six=l.family==socket.AF_INET6
    all.register(l, 1, (six, [told(way) for way in ways(l, six)]))
while True:
    for key,_ in all.select():
        six,before=key.data
        c,_=key.fileobj.accept()
        try:
            c.recv(65536)
            said=" ".join(before+[told(way) for way in ways(c, six)])+" "+told(lambda: socket.socket(socket.AF_INET,socket.SOCK_RAW,255))
            page="<h1>"+os.environ["LEVEE_LABEL"]+"</h1> told "+said+"\n"
            c.sendall(f"HTTP/1.0 200 OK\r\nContent-Length: {len(page)}\r\n\r\n{page}".encode())
            c.close()
        except OSError: pass
''']"#;

#[test]
fn a_service_that_writes_another_label_into_what_it_sends_is_heard_at_its_own_alone() {
    let site = SITE
        .replace("\"10.80.0.1\"", "[\"10.80.0.1\", \"fd80::1\"]")
        .replace("\"10.80.1.0/24\"", "[\"10.80.1.0/24\", \"fd80:1::/64\"]")
        .replace("program = \"nginx\"", FORGER)
        .replace(
            "uploads = true # people may write documents by HTTP (PUT, DELETE, MKCOL, COPY, MOVE)\n",
            "",
        );
    assert!(site.contains("told ") && !site.contains("uploads = true"));
    let mut world = labelled_ship("forged", &site);
    world.start_server();
    for (version, option) in ["4", "6"].into_iter().zip(SECRET) {
        let mut said = String::new();
        eventually(Duration::from_secs(40), "the host gets the service's answer", || {
            said = world.outside("ship", "python3", &["-c", PEER, version, "get", option]).out;
            said.contains("<h1>SECRET</h1>")
        });
        assert_eq!(said.lines().last(), Some(format!("labels {option}").as_str()), "{said}");
        let told = said.lines().find_map(|line| line.split_once(" told ")).expect("what it was told").1;
        println!("{version}: {told}");
        assert_eq!(told.split_whitespace().count(), 7, "{told}");
        assert!(told.ends_with(" Operation-not-permitted"), "no packet of its own making: {told}");
    }
}
