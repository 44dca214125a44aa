//! Links: two partitions of one label have a network, and nobody else has.
//!
//! Needs root, python3, iproute2, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{World, eventually};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PATIENCE: Duration = Duration::from_secs(60);

const LINK: &str = "
[[link]]
name = \"bus\"
between = [\"front\", \"desk\"]
addresses = [\"10.9.0.1/30\", \"10.9.0.2/30\"]
";

/// Says to who asks when it began. Its name, to tell it by, is the last word.
const SERVES: &str = "import socket, time
began = str(time.time_ns()).encode()
listener = socket.create_server(('10.9.0.1', 7))
while True:
    connection, _ = listener.accept()
    connection.sendall(began)
    connection.close()
";

/// Asks again and again, and says what it hears, or why it hears nothing, with when it began and the interfaces that it has.
const ASKS: &str = "import socket, time
began = time.time_ns()
while True:
    names = ','.join(sorted(name for _, name in socket.if_nameindex()))
    try:
        with socket.create_connection(('10.9.0.1', 7), 1) as connection:
            print('heard', connection.recv(100).decode(), began, names, flush=True)
    except OSError as fault:
        print('silence', fault.errno, names, flush=True)
    time.sleep(0.2)
";

fn partition(name: &str, label: &str, program: &str) -> String {
    format!(
        "\n[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\n\
         command = [\"/usr/bin/python3\", \"-c\", '''\n{program}''']\nneeds = [\"netlink\"]\nmemory = \"64M\"\ndisk = \"8M\"\n"
    )
}

/// The lines of a partition's log that have this word, from it on.
fn said(world: &World, name: &str, word: &str) -> BTreeSet<String> {
    let directory = world.path(&format!("state/logs/labels/partition+{name}"));
    let read = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    let text = ["1.log", "0.log"].map(read).concat();
    text.lines().filter_map(|line| line.find(word).map(|at| line[at..].to_owned())).collect()
}

#[test]
fn two_partitions_have_a_network_that_nobody_else_has_also_after_either_was_started_again() {
    let site = SITE.replace("\"harbour\"", "\"link\"")
        + &partition("front", "SECRET", SERVES)
        + &partition("desk", "SECRET", ASKS)
        + &partition("aside", "SECRET", ASKS)
        + LINK;
    let mut world = World::up("link", &site, &[]);
    let heard = |world: &World| said(world, "desk", "heard ");
    eventually(PATIENCE, "one hears the other", || !heard(&world).is_empty());

    // Either dies: with its next start the link is there again.
    for (dies, pairs) in [("front", 2), ("desk", 3)] {
        let all = world.status()["partitions"].clone();
        let one = all.as_array().and_then(|all| all.iter().find(|one| one["name"] == dies)).expect("it");
        let init = one["init"].as_u64().expect("its process 1").to_string();
        assert_eq!(levee_system::sh("kill", &["-KILL", &init]).status, 0);
        eventually(PATIENCE, "one hears the other, one of them anew", || heard(&world).len() >= pairs);
    }
    assert!(heard(&world).iter().all(|line| line.ends_with(" bus,lo")), "{:?}", heard(&world));

    // Who has no link has no network.
    eventually(PATIENCE, "a third has asked", || !said(&world, "aside", "silence ").is_empty());
    let aside = said(&world, "aside", "silence ");
    assert!(aside.iter().all(|line| line == "silence 101 lo"), "{aside:?}");
    assert!(said(&world, "aside", "heard ").is_empty());
    world.stop_server();
}

/// Takes connections and nothing of what they bring until somebody has begun anew; then says how much came by those of before.
const LISTENS: &str = "import select, socket, time
listener = socket.create_server(('10.9.0.1', 7), backlog=100)
held, new = [], None
while len(held) < 20: held.append(listener.accept()[0])
print('accepted', flush=True)
new = listener.accept()
came = 0
for connection in held: connection.setblocking(False)
until = time.time() + 10
while time.time() < until:
    for connection in select.select(held, [], [], 1)[0]:
        try: octets = len(connection.recv(1 << 20))
        except OSError: octets = 0
        came += octets
        if not octets: held.remove(connection)
print('came', came, flush=True)
while True: time.sleep(1)
";

/// Writes what the other end does not take; in its second run it connects once more.
const LEAVES: &str = "import os, socket, time
def connect():
    while True:
        try: return socket.create_connection(('10.9.0.1', 7), 1)
        except OSError: time.sleep(0.1)
if os.path.exists('/srv/own/before'):
    again = connect()
    print('again', flush=True)
    while True: time.sleep(1)
open('/srv/own/before', 'w')
held, wrote = [connect() for _ in range(20)], 0
for connection in held: connection.setblocking(False)
for _ in range(20):
    for connection in held:
        try: wrote += connection.send(bytes(400000))
        except OSError: pass
    time.sleep(0.05)
print('wrote', wrote, flush=True)
while True: time.sleep(1)
";

/// Connections in this partition's network that have something to send.
fn unsent(world: &World, partition: &str) -> usize {
    let pin = world.path(&format!("run/net/partition+{partition}"));
    let net = format!("--net={}", levee_system::text(&pin));
    let listed = levee_system::sh("nsenter", &[&net, "ss", "-Htn", "state", "all"]).ok();
    listed.lines().filter(|line| line.split_whitespace().nth(2).is_some_and(|left| left != "0")).count()
}

#[test]
fn of_a_partition_that_is_stopped_nothing_is_sent_any_more_by_its_next_run_neither() {
    let site = SITE.replace("\"harbour\"", "\"leaves\"")
        + &partition("front", "SECRET", LISTENS)
        + &partition("desk", "SECRET", LEAVES)
        + LINK;
    let mut world = World::up("leaves", &site, &[]);
    let run = levee_system::text(&world.path("run"));
    let number = |name: &str, word: &str| {
        let line = said(&world, name, word).pop_first()?;
        line.strip_prefix(word)?.trim().parse::<usize>().ok()
    };
    eventually(PATIENCE, "it has written", || number("desk", "wrote ").is_some());
    assert_eq!(unsent(&world, "desk"), 20, "there is something to be sent");
    world.levee(&["partition", "stop", "desk", "--run", &run]).ok();
    assert_eq!(unsent(&world, "desk"), 0);
    world.levee(&["partition", "start", "desk", "--run", &run]).ok();
    eventually(PATIENCE, "the other has read what there is", || number("front", "came ").is_some());
    let (wrote, came) =
        (number("desk", "wrote ").expect("it wrote"), number("front", "came ").expect("some"));
    assert!(came < wrote, "all of it came: {came} of {wrote}");
    world.stop_server();
}

/// One partition has a link with each of two others, in IPv4 and IPv6.
const LINKS: &str = "
[[link]]
name = \"bus\"
between = [\"front\", \"desk\"]
addresses = [\"10.9.0.1/30\", \"10.9.0.2/30\"]

[[link]]
name = \"bus6\"
between = [\"front\", \"desk\"]
addresses = [\"fd00:9::1/64\", \"fd00:9::2/64\"]

[[link]]
name = \"away\"
between = [\"front\", \"aside\"]
addresses = [\"10.9.1.1/30\", \"10.9.1.2/30\"]

[[link]]
name = \"away6\"
between = [\"front\", \"aside\"]
addresses = [\"fd00:a::1/64\", \"fd00:a::2/64\"]
";

/// Says from whom it hears, and by which of its own addresses: at any, and at that which only the third may reach.
const HEARS: &str = "import select, socket, time
def bound(address):
    while True:
        end = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
        try: end.bind((address, 9)); return end
        except OSError: time.sleep(0.1)
ends = {bound(address): address for address in ('10.9.0.1', 'fd00:9::1', '10.9.1.1', 'fd00:a::1')}
while True:
    for end in select.select(list(ends), [], [])[0]:
        message, sender = end.recvfrom(100)
        print('at', ends[end], 'from', sender[0], message.decode(), flush=True)
";

/// Speaks as itself, then in the third's name, then to the address that is of the third's link.
const IMPERSONATES: &str = "import socket, time
def tried(what, act):
    try: act(); print('tried', what, 'done', flush=True)
    except OSError as fault: print('tried', what, fault.errno, flush=True)
def as_third(level, option, version):
    end = socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM)
    if option: end.setsockopt(level, option, 1)
    end.bind(('fd00:a::2' if version == 6 else '10.9.1.2', 0))
    end.sendto(b'another', ('fd00:9::1' if version == 6 else '10.9.0.1', 9))
def around(interface, address):
    end = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface)
    end.sendto(b'around', (address, 9))
def honest(address):
    end = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
    end.sendto(b'itself', (address, 9))
while True:
    tried('bind', lambda: as_third(0, 0, 6))
    tried('freebind', lambda: as_third(0, 15, 6))
    tried('freebind6', lambda: as_third(41, 78, 6))
    tried('freebind4', lambda: as_third(0, 15, 4))
    tried('transparent', lambda: as_third(41, 75, 6))
    tried('around', lambda: around(b'bus', '10.9.1.1'))
    tried('around6', lambda: around(b'bus6', 'fd00:a::1'))
    tried('itself', lambda: honest('10.9.0.1'))
    tried('itself6', lambda: honest('fd00:9::1'))
    time.sleep(0.2)
";

#[test]
fn by_its_link_a_partition_speaks_as_itself_and_to_the_address_of_that_link_alone() {
    let site = SITE.replace("\"harbour\"", "\"spoof\"")
        + &partition("front", "SECRET", HEARS)
        + &partition("desk", "SECRET", IMPERSONATES)
        + &partition("aside", "SECRET", "import time\ntime.sleep(1e9)\n")
        + LINKS;
    let mut world = World::up("spoof", &site, &[]);
    let turns = |world: &World| {
        let directory = world.path("state/logs/labels/partition+desk");
        let text = fs::read_to_string(directory.join("0.log")).unwrap_or_default();
        text.matches("tried itself6 done").count()
    };
    let heard = |world: &World| said(world, "front", "at ");
    let honest =
        ["at 10.9.0.1 from 10.9.0.2 itself", "at fd00:9::1 from fd00:9::2 itself"].map(str::to_owned);
    eventually(PATIENCE, "it is heard as itself", || honest.iter().all(|line| heard(&world).contains(line)));
    let before = turns(&world);
    eventually(PATIENCE, "it has tried all again and again", || turns(&world) >= before + 10);
    assert_eq!(heard(&world), BTreeSet::from(honest), "{:?}", said(&world, "desk", "tried "));
    world.stop_server();
}

/// Says what it hears back to who says it.
const ANSWERS: &str = "import select, socket, time
def bound(address):
    while True:
        end = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
        try: end.bind((address, 9)); return end
        except OSError: time.sleep(0.1)
ends = [bound(address) for address in ('10.8.0.1', 'fd00:8::1')]
while True:
    for end in select.select(ends, [], [])[0]:
        end.sendto(*end.recvfrom(100))
";

/// Speaks to the other end again and again, and says what came back of a hundred words.
const COUNTS: &str = "import socket, time
def answered(version):
    end = socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM)
    end.settimeout(0.5)
    try:
        end.sendto(b'word', ('fd00:8::1' if version == 6 else '10.8.0.1', 9))
        return end.recv(100) == b'word'
    except OSError: return False
while not (answered(4) and answered(6)): time.sleep(0.1)
turn = 0
while True:
    heard = {4: 0, 6: 0}
    for n in range(100):
        for version in heard: heard[version] += answered(version)
        time.sleep(0.1)
    turn += 1
    print('turn', turn, 'heard', heard[4], heard[6], flush=True)
";

/// Speaks to as many addresses of its link as it can, by each way to name one, and to many groups.
const ASKS_FOR_ALL: &str = "import socket, struct, time
def ends(family): return [socket.socket(family, socket.SOCK_DGRAM) for _ in range(400)]
fours, sixes = ends(socket.AF_INET), ends(socket.AF_INET6)
index = socket.if_nametoindex
while 'busy6' not in [name for _, name in socket.if_nameindex()] or 'busy' not in [name for _, name in socket.if_nameindex()]: time.sleep(0.1)
four, six = index('busy'), index('busy6')
for end in fours + sixes: end.setblocking(False)
for end in sixes: end.setsockopt(41, 17, six)
for end in fours: end.setsockopt(0, 32, struct.pack('4s4si', bytes(4), bytes(4), four))
n = 0
while True:
    n += 1
    low = n % 65536
    one, other = fours[n % 400], sixes[n % 400]
    for act in (
        lambda: other.sendto(b'x', ('fd00:9::1:%x' % low, 9)),
        lambda: other.sendto(b'x', ('ff0e::%x' % low, 9)),
        lambda: one.sendto(b'x', ('239.1.%d.%d' % (low >> 8, low & 255), 9)),
        lambda: one.sendto(b'x', ('10.9.%d.%d' % (low >> 8, low & 255), 9)),
        lambda: one.sendmsg([b'x'], [(0, 8, struct.pack('i4s4s', four, bytes(4), bytes(4)))], 0, ('10.7.%d.%d' % (low >> 8, low & 255), 9)),
    ):
        try: act()
        except OSError: pass
    if n % 20000 == 0: print('asked', n, flush=True)
    if n % 50 == 0: time.sleep(0.002)
";

#[test]
fn a_partition_that_asks_for_every_address_of_its_link_is_not_noticed_at_another_label() {
    const PAIRS: &str = "
[[link]]
name = \"quiet\"
between = [\"echo\", \"count\"]
addresses = [\"10.8.0.1/30\", \"10.8.0.2/30\"]

[[link]]
name = \"quiet6\"
between = [\"echo\", \"count\"]
addresses = [\"fd00:8::1/64\", \"fd00:8::2/64\"]

[[link]]
name = \"busy\"
between = [\"asks\", \"beside\"]
addresses = [\"10.9.0.1/16\", \"10.9.0.2/16\"]

[[link]]
name = \"busy6\"
between = [\"asks\", \"beside\"]
addresses = [\"fd00:9::1/64\", \"fd00:9::2/64\"]
";
    let site = SITE.replace("\"harbour\"", "\"neighbours\"")
        + &partition("echo", "UNCLASSIFIED", ANSWERS)
        + &partition("count", "UNCLASSIFIED", COUNTS)
        + &partition("asks", "SECRET", ASKS_FOR_ALL)
        + &partition("beside", "SECRET", "import time\ntime.sleep(1e9)\n")
        + PAIRS;
    let mut world = World::up("neighbours", &site, &[]);
    eventually(PATIENCE, "it has asked for many", || !said(&world, "asks", "asked ").is_empty());
    let turns = |world: &World| said(world, "count", "turn ");
    let before = turns(&world).len();
    eventually(4 * PATIENCE, "two turns meanwhile", || turns(&world).len() >= before + 3);
    let asked = said(&world, "asks", "asked ");
    let turns = turns(&world);
    assert!(asked.len() > 1, "it asks on: {asked:?}");
    assert!(turns.iter().all(|turn| turn.ends_with(" heard 100 100")), "{turns:?}");
    world.stop_server();
}
