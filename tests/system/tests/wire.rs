//! What an onlooker on the wire learns: two people sign on, change between all labels of the site, send the same, and sign off, and every
//! packet of it is noted. Nothing in it tells two labels apart, nor two people, however long their names are.

use levee_system::senders::{MORE, now};
use levee_system::{World, text};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LABELS: [&str; 12] = [
    "UNCLASSIFIED",
    "SECRET//NATO,MED",
    "CONFIDENTIAL//MED",
    "SECRET",
    "UNCLASSIFIED//NATO",
    "CONFIDENTIAL",
    "SECRET//MED",
    "UNCLASSIFIED//NATO,MED",
    "CONFIDENTIAL//NATO",
    "SECRET//NATO",
    "UNCLASSIFIED//MED",
    "CONFIDENTIAL//NATO,MED",
];
/// Each begins at another label.
const ROUNDS: usize = 2;
const PEOPLE: [(&str, &str); 2] = [("ws1", "ada"), ("ws3", "wilhelmina-van-der-berg")];
/// Another person who may do all.
const OTHER: &str =
    "\n[[user]]\nname = \"wilhelmina-van-der-berg\"\nclearance = \"UNCLASSIFIED..SECRET//NATO,MED\"\n";
/// For how long nothing more of a step may come.
const QUIET: Duration = Duration::from_millis(250);

/// Datagrams of the same sizes, each when the one before it has come back. What it takes to start the service is of a size of its own.
const TRAFFIC: &str = r#"
import select, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("10.80.0.1", 7))
def back(message):
    s.send(message)
    while select.select([s], [], [], 0.5)[0]:
        try:
            if s.recv(2048) == message:
                return True
        except OSError:
            pass
while not back(b"first"):
    pass
for length in (100, 700, 1300, 33):
    assert back(bytes(length)), "lost"
"#;
/// Octets of the ESP payload that carries `first`.
const FIRST: usize = 8 + 8 + 36 + 16;

/// A step of somebody's, with when it began and was over.
#[derive(Debug)]
struct Step {
    what: &'static str,
    label: &'static str,
    from: f64,
    to: f64,
}

/// Notes what passes at a workstation.
struct Onlooker {
    child: Child,
    notes: std::path::PathBuf,
}

impl Onlooker {
    fn at(world: &World, workstation: &str) -> Self {
        let script = world.path("wire.py");
        fs::write(&script, include_str!("../src/wire.py")).expect("write it");
        let notes = world.path(&format!("{workstation}.notes"));
        let net = format!("--net=/run/netns/{}", world.namespace(workstation));
        let mut command = Command::new("nsenter");
        command.args([&net, "python3", &text(&script)]).stdin(Stdio::piped());
        let child = command.stdout(fs::File::create(&notes).expect("a file")).spawn().expect("start python3");
        levee_system::eventually(Duration::from_secs(10), "the onlooker looks", || {
            fs::read_to_string(&notes).is_ok_and(|text| text.starts_with("ready"))
        });
        Self { child, notes }
    }

    fn end(mut self) -> Vec<Packet> {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("its end").success());
        let notes = BufReader::new(fs::File::open(&self.notes).expect("the notes"));
        notes.lines().skip(1).map(|line| Packet::read(&line.expect("text"))).collect()
    }
}

#[derive(Debug)]
struct Packet {
    at: f64,
    out: bool,
    kind: String,
    /// TOS, TTL, fragmentation bits, the server's port.
    header: [u64; 4],
    client: u64,
    sequence: u64,
    length: usize,
    payload: String,
}

impl Packet {
    fn read(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        Self {
            at: words[0].parse().expect("a time"),
            out: words[1] == "out",
            kind: words[2].into(),
            header: [number(3), number(4), number(5), number(7)],
            client: number(6),
            sequence: number(8),
            length: number(9) as usize,
            payload: words[10].trim_end_matches('-').to_owned(),
        }
    }

    fn is_ike(&self) -> bool {
        // RFC 3948 2.2; one octet is a keepalive.
        self.kind == "udp"
            && self.length > 1
            && (self.header[3] == 500 || self.payload.starts_with("00000000"))
    }

    fn spi(&self) -> Option<u32> {
        let esp = self.kind == "udp" && self.length > 12 && !self.is_ike();
        esp.then(|| u32::from_str_radix(&self.payload[..8], 16).expect("hexadecimal"))
    }
}

/// What of a step is to be the same at each label: each list is what one side sent, in order.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    ike: [Vec<usize>; 2],
    esp: [Vec<usize>; 2],
    headers: BTreeSet<(String, bool, [u64; 4])>,
    /// Lengths of TLS records.
    records: [Vec<usize>; 2],
}

/// The lengths of the TLS records in what came, in the order of the stream.
fn records(packets: &[&Packet]) -> Vec<usize> {
    let mut streams: BTreeMap<u64, BTreeMap<u64, &str>> = BTreeMap::new();
    for packet in packets.iter().filter(|packet| packet.kind == "tcp" && packet.length > 0) {
        streams.entry(packet.client).or_default().insert(packet.sequence, &packet.payload);
    }
    let mut lengths = Vec::new();
    for stream in streams.values() {
        // What was sent again, or in two pieces once and in one then, is left out once.
        let (mut next, mut bytes) = (None, String::new());
        for (sequence, payload) in stream {
            let end = sequence + payload.len() as u64 / 2;
            let known = next.map_or(0, |next: u64| next.saturating_sub(*sequence));
            bytes.push_str(payload.get(known as usize * 2..).unwrap_or_default());
            next = next.max(Some(end));
        }
        let mut rest = bytes.as_str();
        // RFC 8446 5.1: type, version, length.
        while let Some(length) = rest.get(6..10) {
            let length = usize::from_str_radix(length, 16).expect("hexadecimal");
            lengths.push(length);
            rest = rest.get(10 + length * 2..).expect("a step ends with a record");
        }
    }
    lengths
}

fn shape(packets: &[Packet], step: &Step) -> Shape {
    let mut seen = BTreeSet::new();
    let here = packets.iter().filter(|packet| (step.from..step.to).contains(&packet.at));
    // What is sent again, for a busy host, is the same octets.
    let here: Vec<&Packet> = here
        .filter(|packet| packet.kind != "udp" || seen.insert((packet.out, packet.payload.clone())))
        .collect();
    let ways = [true, false];
    let of = |out: bool| here.iter().copied().filter(move |packet| packet.out == out);
    Shape {
        ike: ways.map(|out| of(out).filter(|packet| packet.is_ike()).map(|packet| packet.length).collect()),
        esp: ways.map(|out| {
            let esp = of(out).filter(|packet| packet.spi().is_some() && packet.length != FIRST);
            esp.map(|packet| packet.length).collect()
        }),
        headers: here
            .iter()
            .filter(|packet| packet.length > 1)
            .map(|packet| (packet.kind.clone(), packet.out, packet.header))
            .collect(),
        records: ways.map(|out| records(&of(out).collect::<Vec<_>>())),
    }
}

/// The trusted path's records: the same lengths; of the commonest, which keep-alives have too, up to `spare` more or less.
fn alike(a: &[usize], b: &[usize], spare: usize) -> bool {
    let of = |all: &[usize]| all.iter().copied().collect::<BTreeSet<_>>();
    of(a) == of(b) && a.len().abs_diff(b.len()) <= spare
}

/// Everything that a person does, label by label.
fn work(world: &World, workstation: &str, user: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut step = |what, label, act: &dyn Fn()| {
        let from = now();
        act();
        std::thread::sleep(QUIET);
        steps.push(Step { what, label, from, to: now() });
    };
    for round in 0..ROUNDS {
        let first = LABELS[round % LABELS.len()];
        step("sign-on", first, &|| drop(world.login(workstation, user).ok()));
        for number in 0..LABELS.len() {
            let label = LABELS[(round + number) % LABELS.len()];
            let what = if number == 0 { "first level" } else { "change of level" };
            step(what, label, &|| drop(world.level(workstation, label).ok()));
            step("traffic", label, &|| drop(world.run(workstation, &["python3", "-c", TRAFFIC]).ok()));
        }
        let last = LABELS[(round + LABELS.len() - 1) % LABELS.len()];
        step("sign-off", last, &|| drop(world.tpe(workstation, &["logout"]).ok()));
    }
    steps
}

/// Whether the shapes of one kind of step are alike at all labels; what differs otherwise.
fn compare(what: &str, shapes: &[(&Step, Shape)]) {
    let (step, first) = &shapes[0];
    for (other, shape) in &shapes[1..] {
        let told = format!("{what} at {} and at {}:\n{first:?}\n{shape:?}", step.label, other.label);
        assert_eq!(
            (&shape.ike, &shape.esp, &shape.headers),
            (&first.ike, &first.esp, &first.headers),
            "{told}"
        );
        // A keep-alive goes every two seconds where nothing else does.
        let spare = 2 + ((other.to - other.from).max(step.to - step.from) / 2.0) as usize;
        let same = |way: usize| match what {
            // No label was chosen yet. An ECDSA signature in DER is a few octets longer or shorter by chance.
            "sign-on" => {
                let near = |(a, b): (&usize, &usize)| a.abs_diff(*b) <= 8;
                let (a, b) = (&first.records[way], &shape.records[way]);
                a.len().abs_diff(b.len()) <= spare && a.iter().zip(b).all(near)
            }
            _ => alike(&first.records[way], &shape.records[way], spare),
        };
        assert!(same(0) && same(1), "{told}");
    }
}

/// Fails where a bit, or two bits together, of the SPIs say which label they are of: alike in all SPIs of each label, and not in all
/// of all. With four of each of twelve labels, chance does that once in 2^36 for each of 528 bits and pairs.
fn tells_nothing<T: Debug>(spis: &BTreeMap<T, Vec<u32>>) {
    for a in 0..32 {
        for b in a..32 {
            let bit = |spi: &u32| if a == b { spi >> a & 1 } else { (spi >> a ^ spi >> b) & 1 };
            let values = |all: &[u32]| all.iter().map(bit).collect::<BTreeSet<_>>();
            let each = spis.values().all(|all| values(all).len() == 1);
            let all: Vec<u32> = spis.values().flatten().copied().collect();
            assert!(!each || values(&all).len() == 1, "bits {a} and {b} tell the label: {spis:08x?}");
        }
    }
    let alike = |all: &Vec<u32>| -> usize {
        let pairs = all.iter().enumerate().flat_map(|(n, a)| all[n + 1..].iter().map(move |b| (a, b)));
        pairs.filter(|(a, b)| *a >> 20 == *b >> 20).count()
    };
    // Of 72 pairs one in 4,096 by chance.
    let alike: usize = spis.values().map(alike).sum();
    assert!(alike < 3, "SPIs of one label begin alike: {spis:08x?}");
}

#[test]
fn nothing_on_the_wire_tells_two_labels_apart() {
    let site = format!("{}{MORE}{OTHER}", SITE.replace("\"harbour\"", "\"port-wire\""));
    let world = World::up("wire", &site, &["ws1", "ws3"]);
    let onlookers = PEOPLE.map(|(workstation, _)| Onlooker::at(&world, workstation));
    let steps = std::thread::scope(|scope| {
        let all = PEOPLE.map(|(workstation, user)| {
            scope.spawn({
                let world = &world;
                move || work(world, workstation, user)
            })
        });
        all.map(|one| one.join().expect("its work"))
    });
    let packets = onlookers.map(Onlooker::end);

    let mut kinds: BTreeMap<&str, Vec<(&Step, Shape)>> = BTreeMap::new();
    let mut spis: [BTreeMap<&str, Vec<u32>>; 2] = Default::default();
    for (steps, packets) in steps.iter().zip(&packets) {
        for step in steps {
            let shape = shape(packets, step);
            kinds.entry(step.what).or_default().push((step, shape));
            if step.what != "traffic" {
                continue;
            }
            for (way, spis) in [true, false].into_iter().zip(&mut spis) {
                let here = packets.iter().filter(|p| (step.from..step.to).contains(&p.at) && p.out == way);
                let here: BTreeSet<u32> = here.filter_map(Packet::spi).collect();
                assert!(!here.is_empty(), "no traffic at {}", step.label);
                spis.entry(step.label).or_default().extend(here);
            }
        }
    }
    assert_eq!(kinds["traffic"].len(), PEOPLE.len() * ROUNDS * LABELS.len());
    let site = levee_policy::Site::parse(SITE).expect("a site");
    let all = site.vocabulary().whole().count();
    assert_eq!(all, Some(LABELS.len() as u64), "all labels of the site");
    for (what, shapes) in &kinds {
        compare(what, shapes);
    }
    assert_eq!(kinds["traffic"][0].1.esp.each_ref().map(Vec::len), [4, 4], "{:?}", kinds["traffic"][0]);
    assert!(kinds["change of level"][0].1.ike[0].len() >= 4, "{:?}", kinds["change of level"][0]);
    spis.iter().for_each(tells_nothing);
}

/// "Fragmentation needed", to the server at the first address, about what it sends to the second from this port (RFC 792, RFC 1191).
const FORGED: &str = r#"
import socket, struct, sys
server, workstation = map(socket.inet_aton, sys.argv[1:3])
def summed(octets):
    total = sum(struct.unpack("!%dH" % (len(octets) // 2), octets))
    total = (total >> 16) + (total & 0xffff)
    return struct.pack("!H", ~(total + (total >> 16)) & 0xffff)
header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 1400, 7, 0x4000, 64, 17, 0, server, workstation)
sent = header[:10] + summed(header) + header[12:] + struct.pack("!HHHH", int(sys.argv[3]), 4500, 1380, 0)
error = struct.pack("!BBHHH", 3, 4, 0, 0, 600) + sent
error = error[:2] + summed(error) + error[4:]
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
    for _ in range(5):
        raw.sendto(error, (sys.argv[1], 0))
"#;

#[test]
fn nothing_that_a_stranger_says_of_the_path_has_a_tunnel_go_in_pieces() {
    let site = format!("{}{MORE}", SITE.replace("\"harbour\"", "\"port-path\""));
    let world = World::up("path", &site, &["ws1", "ws2"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    world.run("ws1", &["python3", "-c", TRAFFIC]).ok();
    // Another socket there, of the ordinary kind, so that the kernel believes it of this path.
    let net = format!("--net=/run/netns/{}", world.namespace("server"));
    let holds = "import socket, sys\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                 s.bind((\"10.77.0.1\", 4599))\nprint(flush=True)\nsys.stdin.read()";
    let mut other = Command::new("nsenter");
    other.args([&net, "python3", "-c", holds]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = other.spawn().expect("start python3");
    BufReader::new(other.stdout.take().expect("a pipe")).read_line(&mut String::new()).expect("it is there");
    for port in ["4500", "4599"] {
        world.outside("ws2", "python3", &["-c", FORGED, "10.77.0.1", "10.77.0.11", port]).ok();
    }
    drop(other.stdin.take());
    other.wait().expect("its end");
    let route = world.server_sh("ip", &["route", "get", "10.77.0.11"]).ok();
    assert!(route.contains("mtu 600"), "the server's kernel believes it: {route}");
    let pieces = || {
        let all = world.server_sh("cat", &["/proc/net/snmp"]).ok();
        let rows: Vec<Vec<&str>> = all
            .lines()
            .filter(|line| line.starts_with("Ip:"))
            .map(|line| line.split(' ').collect())
            .collect();
        let at = rows[0].iter().position(|name| *name == "FragCreates").expect("a counter");
        rows[1][at].to_owned()
    };
    let before = pieces();
    world.run("ws1", &["python3", "-c", TRAFFIC]).ok();
    assert_eq!(pieces(), before, "what goes to the workstation goes whole");
}
