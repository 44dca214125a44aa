//! A one-way channel from one host to another: over a wire that loses, repeats and reorders, and with somebody on it, every message comes
//! whole, in order and once, or is told as missing; and nothing comes back.
//!
//! Needs root, python3, iproute2, nftables, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{Done, World, eventually, host, programs, sh, text};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PATIENCE: Duration = Duration::from_secs(90);

/// Writes messages of many lengths, each of which says what is in it; one of them is too large. It never waits for anybody but the channel's
/// own rate, and says how often it has written. Not at once: what has no reader yet is dropped.
const WRITES: &str = "import os, socket, time
print(os.environ['LISTEN_FDS'], os.environ['LISTEN_FDNAMES'], flush=True)
time.sleep(3)
end = socket.socket(fileno=3)
try: print('read', end.recv(100), flush=True)
except OSError as e: print('read', e.errno, flush=True)
n = 0
while True:
    if n == 50: end.send(b'x' * 5000)
    head = b'%d ' % n
    end.send(head + bytes((n * 7 + i) % 251 for i in range(n * 37 % 4000)))
    n += 1
    if n % 100 == 0: print('wrote', n, flush=True)
    time.sleep(0.004)
";
/// Reads, and says what is missing, twice there, or not whole.
const READS: &str = "import socket, struct
end = socket.socket(fileno=3)
try: print('write', end.send(b'down'), flush=True)
except OSError as e: print('write', e.errno, flush=True)
before, count = None, 0
while True:
    message = end.recv(8192)
    number, = struct.unpack('>Q', message[:8])
    if len(message) == 8:
        print('told before', number, flush=True)
        continue
    n, _, rest = message[8:].partition(b' ')
    n = int(n)
    if rest != bytes((n * 7 + i) % 251 for i in range(n * 37 % 4000)): print('broken', n, flush=True)
    if before is None or number != before + 1: print('got', number, n, flush=True)
    before, count = number, count + 1
    if count % 100 == 0: print('at', count, flush=True)
";

/// Keeps two hundred frames that come from the host below.
const RECORDS: &str = "import socket, sys
low = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
low.bind(('low0', 0))
with open(sys.argv[1], 'w') as kept:
    for _ in range(200):
        frame, sender = low.recvfrom(2048)
        # Its checksum was for the interface to make; with IPv4 0 is none.
        frame = frame[:40] + bytes(2) + frame[42:]
        if sender[2] != socket.PACKET_OUTGOING: kept.write(frame.hex() + '\\n')
";
/// Says them again to the host above.
const REPEATS: &str = "import socket, sys
high = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
high.bind(('high0', 0))
for line in open(sys.argv[1]): high.send(bytes.fromhex(line))
";

fn partition(name: &str, label: &str, program: &str) -> String {
    format!(
        "\n[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\n\
         command = [\"/usr/bin/python3\", \"-c\", '''\n{program}''']\nmemory = \"96M\"\ndisk = \"8M\"\nrestart = \"20 in 60s\"\n"
    )
}

/// The two hosts' site files, with addresses of this kind: `address` ends in `1` here and in `2` there.
fn sites(name: &str, net: &str, prefix: u8) -> [String; 2] {
    let channel = |end: &str, wire: &str| {
        format!(
            "\n[[channel]]\nname = \"readings\"\nkind = \"oneway\"\n{end}\nsize = \"4K\"\nrate = \"1M\"\nwire = {{ {wire}, port = 4700 }}\n"
        )
    };
    let sends = format!(
        "interface = \"eth7\", address = \"{net}1/{prefix}\", peer = \"{net}2\", hardware = \"02:00:5e:00:53:02\", label = \"SECRET\""
    );
    let receives = format!(
        "interface = \"eth3\", address = \"{net}2/{prefix}\", peer = \"{net}1\", label = \"UNCLASSIFIED\""
    );
    let named = |more: &str| SITE.replace("\"harbour\"", &format!("\"{name}{more}\""));
    [
        named("a") + &partition("sensor", "UNCLASSIFIED", WRITES) + &channel("from = \"sensor\"", &sends),
        named("b")
            + &partition("desk", "SECRET", READS)
            + &channel("to = \"desk\"\nnumbered = true", &receives),
    ]
}

/// Two servers, and the wire between them.
struct Hosts {
    below: World,
    above: World,
    wire: Option<Child>,
}

impl Hosts {
    fn new(name: &str, net: &str, prefix: u8) -> Self {
        let [below, above] = sites(name, net, prefix);
        let below = World::new(&format!("{name}a"), &below, &["wire"]);
        let above = World::new(&format!("{name}b"), &above, &[]);
        let hosts = Self { below, above, wire: None };
        let wire = hosts.below.namespace("wire");
        for (world, own, other) in [(&hosts.below, "eth7", "low0"), (&hosts.above, "eth3", "high0")] {
            world
                .server_sh("ip", &["link", "add", own, "type", "veth", "peer", "name", other, "netns", &wire])
                .ok();
            // Datagrams are single where they are lost.
            world.server_sh("ip", &["link", "set", own, "gso_max_segs", "1"]).ok();
            hosts.below.outside("wire", "ip", &["link", "set", other, "up"]).ok();
        }
        hosts.above.server_sh("ip", &["link", "set", "eth3", "address", "02:00:5e:00:53:02"]).ok();
        // The wire has no word of its own.
        for end in ["low0", "high0"] {
            let setting = format!("net.ipv6.conf.{end}.disable_ipv6=1");
            hosts.below.outside("wire", "sysctl", &["-q", "-w", &setting]).ok();
        }
        hosts
    }

    /// Gives both servers the same key.
    fn enrol(&self) {
        let (site, state) = (text(&self.below.path("site.toml")), text(&self.below.path("state")));
        self.below.levee(&["enrol", "channel", &site, "readings", "--state", &state]).ok();
        let there = self.above.path("state/channels");
        fs::create_dir_all(&there).expect("the other host's keys");
        let key = self.below.path("state/channels/readings.key");
        sh("cp", &["-p", &text(&key), &text(&there)]).ok();
    }

    fn counts(&self) -> PathBuf {
        self.below.path("wire.json")
    }

    /// Carries frames, and loses so many of a thousand.
    fn connect(&mut self, loss: u32) {
        let script = self.below.path("lossy.py");
        fs::write(&script, include_str!("../src/lossy.py")).expect("write lossy.py");
        let net = format!("--net=/run/netns/{}", self.below.namespace("wire"));
        let mut command = Command::new("nsenter");
        command.args([
            &net,
            "python3",
            &text(&script),
            "low0",
            "high0",
            &loss.to_string(),
            &text(&self.counts()),
        ]);
        self.wire = Some(command.stdin(Stdio::null()).spawn().expect("start python3"));
    }

    fn cut(&mut self) {
        if let Some(mut wire) = self.wire.take() {
            wire.kill().expect("end the wire");
            wire.wait().expect("the wire's end");
        }
    }

    fn carried(&self, what: &str) -> u64 {
        let text = fs::read_to_string(self.counts()).unwrap_or_default();
        let counts: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        counts[what].as_u64().unwrap_or(0)
    }

    fn wrote(&self) -> usize {
        log(&self.below, "sensor").matches("wrote").count()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Not one frame of the host above, whoever asks it; and of the one below nothing but the channel's datagrams.
fn nothing_comes_back(hosts: &Hosts) {
    assert_eq!((hosts.carried("back"), hosts.carried("answered")), (0, 0));
}

fn log(world: &World, partition: &str) -> String {
    let directory = world.path(&format!("state/logs/labels/partition+{partition}"));
    let read = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    // Both files; the older may be either.
    ["0.log", "1.log"].map(read).concat()
}

fn status(world: &World, what: &str) -> u64 {
    // It says what it had counted when it was last asked.
    world.status();
    world.status()["steering"][what].as_u64().unwrap_or(0)
}

fn counted(world: &World, what: &str) -> u64 {
    status(world, &format!("channel readings: {what}"))
}

fn signal(world: &World, signal: &str) {
    let mut below = host::below(world.server_pid()).into_iter();
    below.find(|process| process.name == "levee-channel").expect("the channel").signal(signal);
}

#[test]
fn over_a_wire_that_loses_repeats_reorders_and_forges_every_message_comes_whole_and_in_order_and_nothing_comes_back()
 {
    let mut hosts = Hosts::new("far", "10.9.0.", 30);
    hosts.enrol();
    hosts.connect(10);
    hosts.above.start_server();
    hosts.below.start_server();
    eventually(PATIENCE, "two thousand have passed", || log(&hosts.above, "desk").contains("at 2000"));
    let (desk, sensor) = (log(&hosts.above, "desk"), log(&hosts.below, "sensor"));
    assert!(
        desk.contains("write 32") && sensor.contains("1 readings") && sensor.contains("read b''"),
        "{desk}{sensor}"
    );
    // The large one had number 50.
    for said in ["got 0 0", "got 51 50"] {
        assert!(desk.contains(said), "{said}: {desk}");
    }
    assert_eq!((desk.matches("got").count(), desk.matches("broken").count()), (2, 0), "{desk}");
    // All of that was there to be answered.
    for what in ["lost", "repeated", "held", "forged", "replayed", "told", "asked"] {
        assert!(hosts.carried(what) > 5, "{what}: {}", fs::read_to_string(hosts.counts()).unwrap());
    }
    nothing_comes_back(&hosts);
    // What was counted is told a moment later.
    let missing = || counted(&hosts.above, "messages that are missing");
    eventually(PATIENCE, "the large one is counted as missing", || missing() > 0);
    assert_eq!(missing(), 1, "the large one");
    assert!(counted(&hosts.above, "blocks that were repaired") > 0);
    assert!(counted(&hosts.above, "datagrams that were made without its key") > 0);
    assert_eq!(counted(&hosts.above, "blocks that are missing"), 0);
    assert_eq!(counted(&hosts.below, "messages too large"), 1);
    eventually(PATIENCE, "what was to tell the sender something is dropped and counted", || {
        status(&hosts.below, "dropped at eth7: came in and is none of the channel's") >= 30
    });

    // The process above dies: another carries on. Then that below: its numbers begin anew.
    signal(&hosts.above, "KILL");
    let at = |hosts: &Hosts| log(&hosts.above, "desk").matches("at ").count();
    let before = at(&hosts);
    eventually(PATIENCE, "the reader goes on", || at(&hosts) >= before + 3);
    // What this run has sent is repeated to one that has heard nothing itself: the reader gets none of it a second time.
    let kept = text(&hosts.below.path("kept"));
    hosts.below.outside("wire", "python3", &["-c", RECORDS, &kept]).ok();
    let before = at(&hosts);
    eventually(PATIENCE, "what was kept has passed", || at(&hosts) >= before + 2);
    hosts.cut();
    signal(&hosts.above, "KILL");
    eventually(PATIENCE, "another hears it all again", || {
        hosts.below.outside("wire", "python3", &["-c", REPEATS, &kept]).ok();
        counted(&hosts.above, "datagrams that nobody needed") >= 150
    });
    assert_eq!(counted(&hosts.above, "messages passed"), 0);
    hosts.connect(10);
    let before = at(&hosts);
    eventually(PATIENCE, "the reader goes on", || at(&hosts) >= before + 2);
    signal(&hosts.below, "KILL");
    eventually(PATIENCE, "the reader hears the next sender", || {
        log(&hosts.above, "desk").matches("got 0 ").count() == 2
    });

    // Nobody below feels that nobody above reads, nor that the wire is cut.
    let run = text(&hosts.above.path("run"));
    hosts.above.levee(&["partition", "stop", "desk", "--run", &run]).ok();
    let before = hosts.wrote();
    eventually(PATIENCE, "the writer goes on", || hosts.wrote() >= before + 4);
    eventually(PATIENCE, "what nobody reads is counted", || {
        counted(&hosts.above, "messages without a reader") > 0
    });
    hosts.above.levee(&["partition", "start", "desk", "--run", &run]).ok();
    let before = at(&hosts);
    eventually(PATIENCE, "the reader goes on", || at(&hosts) >= before + 2);
    hosts.cut();
    let before = hosts.wrote();
    eventually(PATIENCE, "the writer goes on without a wire", || hosts.wrote() >= before + 4);
    eventually(PATIENCE, "the silence is told", || {
        counted(&hosts.above, "seconds since the sender was heard") >= 3
    });
    let missing = counted(&hosts.above, "messages that are missing");
    hosts.connect(0);
    let before = at(&hosts);
    eventually(PATIENCE, "the reader goes on", || at(&hosts) >= before + 2);
    assert!(counted(&hosts.above, "messages that are missing") > missing + 100);
    assert_eq!(log(&hosts.above, "desk").matches("broken").count(), 0);
    nothing_comes_back(&hosts);

    for (world, interface) in [(&mut hosts.below, "eth7"), (&mut hosts.above, "eth3")] {
        world.stop_server();
        let link = world.server_sh("ip", &["-o", "link", "show", interface]).ok();
        assert!(link.contains("state DOWN"), "{link}");
    }
}

#[test]
fn what_is_sent_last_is_told_as_missing_within_the_time_and_over_ipv6_too_nothing_comes_back() {
    let mut hosts = Hosts::new("far6", "fd09::", 64);
    hosts.enrol();
    // Three of ten are lost: more than is repaired, so that much is missing; what is asked is that each is told, and nobody hangs.
    hosts.connect(300);
    hosts.above.start_server();
    hosts.below.start_server();
    eventually(PATIENCE, "some have passed, and others not", || {
        log(&hosts.above, "desk").matches("at ").count() >= 2
            && counted(&hosts.above, "messages that are missing") > 20
    });
    let run = text(&hosts.below.path("run"));
    hosts.below.levee(&["partition", "stop", "sensor", "--run", &run]).ok();
    // What was written, and was not too large, has come or is told as missing. The first that is heard has number 0, or those before it are
    // nobody's to know of.
    let all = |hosts: &Hosts| {
        let [passed, missing, no_reader, no_room] = [
            "messages passed",
            "messages that are missing",
            "messages without a reader",
            "messages that the reader had no room for",
        ]
        .map(|what| counted(&hosts.above, what));
        passed + missing + no_reader + no_room
    };
    eventually(PATIENCE, "each is told", || {
        let first = log(&hosts.above, "desk")
            .split("got ")
            .nth(1)
            .and_then(|said| said.split(' ').next()?.parse().ok());
        let sent = counted(&hosts.below, "messages sent") + counted(&hosts.below, "messages too large");
        let (told, first): (u64, u64) = (all(&hosts), first.unwrap_or(0));
        told <= sent && told + first >= sent
    });
    let desk = log(&hosts.above, "desk");
    assert_eq!(desk.matches("broken").count(), 0, "{desk}");
    nothing_comes_back(&hosts);
    for world in [&mut hosts.below, &mut hosts.above] {
        world.stop_server();
    }
}

#[test]
fn a_channel_without_a_key_or_an_interface_is_refused_and_two_hosts_that_do_not_agree_are_told() {
    let hosts = Hosts::new("farkey", "10.9.0.", 30);
    let world = &hosts.below;
    let (site, state, run) =
        (text(&world.path("site.toml")), text(&world.path("state")), text(&world.path("run")));
    let other = text(&hosts.above.path("site.toml"));
    let levee = text(&programs().join("levee"));
    let up = || world.server_sh(&levee, &["up", &site, "--state", &state, "--run", &run]).refused();
    let why = up();
    assert!(why.contains("levee enrol channel makes one"), "{why}");
    let link = world.server_sh("ip", &["-o", "link", "show", "eth7"]).ok();
    assert!(link.contains("state DOWN"), "{link}");
    hosts.enrol();
    // Others may read it.
    let key = world.path("state/channels/readings.key");
    sh("chmod", &["644", &text(&key)]).ok();
    assert!(up().contains("chmod 600"));
    sh("chmod", &["600", &text(&key)]).ok();
    world.server_sh("ip", &["link", "set", "eth7", "mtu", "1400"]).ok();
    assert!(up().contains("ip link set eth7 mtu 1500"));
    world.server_sh("ip", &["link", "delete", "eth7"]).ok();
    assert!(up().contains("this host's network has none of this name"));
    world.levee(&["enrol", "channel", &site, "writings", "--state", &state]).refused();
    // A second key would be another than that of the other host.
    world.levee(&["enrol", "channel", &site, "readings", "--state", &state]).refused();

    world.levee(&["check", &site, "--state", &state, "--beside", &other]).ok();
    let alone = world.levee(&["check", &site, "--state", &state]).ok();
    assert!(alone.contains("whose site file is not beside it"), "{alone}");
    let text = fs::read_to_string(&other).unwrap().replace("4700", "4701");
    fs::write(&other, text).unwrap();
    let told = world.levee(&["check", &site, "--state", &state, "--beside", &other]).refused();
    assert!(told.contains("`port` is 4700 in `farkeya` and 4701 in `farkeyb`"), "{told}");
}

/// What `levee` does at a host, with its site and its state.
fn key(world: &World, words: &[&str]) -> Done {
    let (site, state) = (text(&world.path("site.toml")), text(&world.path("state")));
    let all = [&["enrol", words[0], &site][..], &words[1..], &["--state", &state]].concat();
    world.levee(&all)
}

fn finish(world: &World, more: &[&str]) -> Done {
    let run = text(&world.path("run"));
    let words = ["rotate", "channel", "readings", "--finish", "--run", &run];
    key(world, &[&words[..], more].concat())
}

fn reload(world: &World) {
    world.levee(&["reload", "--run", &text(&world.path("run"))]).ok();
}

/// What a key is known by.
fn known(path: &std::path::Path) -> String {
    const DIGEST: &str = "import hashlib, sys
print(hashlib.sha256(bytes.fromhex(open(sys.argv[1]).read())).hexdigest()[:16])";
    sh("python3", &["-c", DIGEST, &text(path)]).ok().trim().to_owned()
}

#[test]
fn a_channels_key_is_followed_by_another_while_messages_pass_whichever_host_takes_it_up_first() {
    let mut hosts = Hosts::new("farkeys", "10.9.0.", 30);
    hosts.enrol();
    // Nothing is lost, and nobody forges: whatever is missing, or refused, is so for its key.
    hosts.connect(0);
    hosts.above.start_server();
    hosts.below.start_server();
    let at = |hosts: &Hosts| log(&hosts.above, "desk").matches("at ").count();
    eventually(PATIENCE, "some have passed", || at(&hosts) >= 1);
    let (current, next) = ("state/channels/readings.key", "state/channels/next/readings.key");
    let first = fs::read(hosts.below.path(current)).expect("a key");
    for below_first in [true, false] {
        let mut order = [&hosts.below, &hosts.above];
        if !below_first {
            order.reverse();
        }
        let [one, other] = order;
        key(one, &["rotate", "channel", "readings"]).ok();
        fs::create_dir_all(other.path("state/channels/next")).expect("a directory");
        sh("cp", &["-p", &text(&one.path(next)), &text(&other.path(next))]).ok();
        let (old, new) = (known(&one.path(current)), known(&one.path(next)));
        for world in [one, other] {
            reload(world);
            let before = at(&hosts);
            eventually(PATIENCE, "messages pass by the old key", || at(&hosts) >= before + 2);
        }
        eventually(PATIENCE, "it says by which", || {
            counted(&hosts.below, &format!("datagrams sealed with the key {old}")) > 0
        });
        assert_eq!(counted(&hosts.above, &format!("datagrams opened with the key {new}")), 0);
        let why = finish(&hosts.above, &[]).refused();
        assert!(why.contains("nothing has come by readings that is sealed with its next key"), "{why}");

        let said = finish(&hosts.below, &[]).ok();
        assert!(said.contains(&format!("destroyed: the old {}", text(&hosts.below.path(current)))), "{said}");
        reload(&hosts.below);
        eventually(PATIENCE, "messages pass by the new key", || {
            counted(&hosts.above, &format!("datagrams opened with the key {new}")) > 100
        });
        eventually(PATIENCE, "it says by which", || {
            counted(&hosts.below, &format!("datagrams sealed with the key {new}")) > 100
        });
        let said = finish(&hosts.above, &[]).ok();
        assert!(said.contains(&format!("destroyed: the old {}", text(&hosts.above.path(current)))), "{said}");
        reload(&hosts.above);
        let before = at(&hosts);
        eventually(PATIENCE, "messages pass by the new key alone", || at(&hosts) >= before + 2);
        for world in [&hosts.below, &hosts.above] {
            assert_eq!(known(&world.path(current)), new);
            assert!(!world.path(next).exists());
            let state = text(&world.path("state"));
            let audit = world.levee(&["audit", "show", "--state", &state]).ok();
            assert!(audit.contains(&format!("rotated: from {old}; {new} alone is used")), "{audit}");
        }
    }
    // The large one, and nothing else, in all that time: no message is missing, none is numbered anew, nothing was refused.
    let desk = log(&hosts.above, "desk");
    let all = ["got", "broken", "told"].map(|what| desk.matches(what).count());
    assert_eq!(all[..2], [2, 0], "{desk}");
    assert_eq!(counted(&hosts.above, "messages that are missing"), 1);
    assert_eq!(counted(&hosts.above, "datagrams that were made without its key"), 0);
    nothing_comes_back(&hosts);

    // A next key that is none changes nothing; and one that is there when the process starts is taken as it is after a reload.
    key(&hosts.below, &["rotate", "channel", "readings"]).ok();
    fs::write(hosts.above.path(next), "0").expect("write a key");
    sh("chmod", &["600", &text(&hosts.above.path(next))]).ok();
    reload(&hosts.above);
    eventually(PATIENCE, "it is told", || {
        counted(&hosts.above, "keys that it was given and that are none") == 1
    });
    sh("cp", &["-p", &text(&hosts.below.path(next)), &text(&hosts.above.path(next))]).ok();
    let new = known(&hosts.below.path(next));
    signal(&hosts.above, "KILL");
    finish(&hosts.below, &[]).ok();
    reload(&hosts.below);
    eventually(PATIENCE, "messages pass by the new key", || {
        counted(&hosts.above, &format!("datagrams opened with the key {new}")) > 0
    });
    finish(&hosts.above, &[]).ok();
    reload(&hosts.above);
    assert_eq!(counted(&hosts.above, "datagrams that were made without its key"), 0);

    // What is sealed with a key that was followed by another is refused.
    fs::write(hosts.below.path(current), first).expect("write a key");
    reload(&hosts.below);
    eventually(PATIENCE, "it is refused", || {
        counted(&hosts.above, "datagrams that were made without its key") > 100
    });
    let before = at(&hosts);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(at(&hosts), before, "nothing passes by it");
    for world in [&mut hosts.below, &mut hosts.above] {
        world.stop_server();
    }
}
