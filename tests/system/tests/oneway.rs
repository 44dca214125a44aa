//! One-way channels between partitions: messages pass upward whole and in order, and nothing comes back, whatever the reader does.
//!
//! Needs root, python3, iproute2, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{World, eventually, host, text};
use std::fs;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PATIENCE: Duration = Duration::from_secs(60);

/// Writes messages with their numbers, one too large and one with nothing in it among them, and a descriptor that is not to arrive; and tries
/// to learn something by its end. Not at once: what has no reader yet is dropped, and the reader is started after it.
const WRITES: &str = "import os, socket, time
print(os.environ['LISTEN_FDS'], os.environ['LISTEN_FDNAMES'], flush=True)
time.sleep(3)
end = socket.socket(fileno=3)
end.send(b'first')
end.send(b'x' * 5000)
end.send(b'')
try: socket.send_fds(end, [b'with a descriptor'], [1])
except OSError as e: print('descriptor', e.errno, flush=True)
try: print('read', end.recv(100), flush=True)
except OSError as e: print('read', e.errno, flush=True)
n = 0
while True:
    end.send(b'message %d' % n)
    n += 1
    if n % 100 == 0: print('wrote', n, flush=True)
    time.sleep(0.005)
";
/// Says what it reads, and tries to write.
const READS: &str = "import os, socket, struct
end = socket.socket(fileno=3)
try: print('write', end.send(b'down'), flush=True)
except OSError as e: print('write', e.errno, flush=True)
before = None
while True:
    message, ancillary, flags, _ = end.recvmsg(8192, 1024)
    number, = struct.unpack('>Q', message[:8])
    if before is None or number != before + 1 or number < 8: print('got', number, message[8:].decode(), len(ancillary), flush=True)
    if number % 100 == 0: print('at', number, flush=True)
    before = number
";
/// Has its end and does nothing with it.
const IDLES: &str = "import time
while True: time.sleep(1)
";

/// Looks whether its end is of a network that it has in common with anybody: a name that two take there (unix(7), abstract), and the
/// interfaces.
const LOOKS: &str = "import fcntl, socket, struct, time
end = socket.socket(fileno=3)
def interfaces(of):
    found = []
    for number in range(1, 64):
        try: found.append(fcntl.ioctl(of, 0x8910, struct.pack('16si20x', b'', number))[:16].rstrip(bytes(1)).decode())
        except OSError: pass
    return found
print('interfaces', interfaces(end), 'own', interfaces(socket.socket()), flush=True)
try: print('bound', end.bind(bytes(1) + b'a name that both take'), flush=True)
except OSError as e: print('not bound', e.errno, flush=True)
while True: time.sleep(1)
";

/// Sends what it has open in its own files behind what is taken for long, and ends.
const PINS: &str = "import os, socket
end = socket.socket(fileno=3)
for _ in range(100): end.send(BEFORE)
file = open('/srv/own/file', 'w')
print('sent', socket.send_fds(end, [b'x'], [FILES]), flush=True)
";

fn site(reader: &str) -> String {
    site_of(WRITES, reader)
}

fn site_of(writer: &str, reader: &str) -> String {
    let partition = |name: &str, label: &str, program: &str| {
        format!(
            "\n[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\n\
             command = [\"/usr/bin/python3\", \"-c\", '''\n{program}''']\nmemory = \"96M\"\ndisk = \"8M\"\nrestart = \"20 in 60s\"\n"
        )
    };
    let channel = "\n[[channel]]\nname = \"readings\"\nkind = \"oneway\"\nfrom = \"sensor\"\nto = \"desk\"\nsize = \"4K\"\nrate = \"1M\"\nnumbered = true\n";
    SITE.replace("\"harbour\"", "\"oneway\"")
        + &partition("sensor", "UNCLASSIFIED", writer)
        + &partition("desk", "SECRET", reader)
        + channel
}

fn log(world: &World, partition: &str) -> String {
    let directory = world.path(&format!("state/logs/labels/partition+{partition}"));
    let read = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    // Both files; the older may be either.
    ["0.log", "1.log"].map(read).concat()
}

fn counted(world: &World, what: &str) -> u64 {
    // It says what it had counted when it was last asked.
    world.status();
    world.status()["steering"][format!("channel readings: {what}")].as_u64().unwrap_or(0)
}

#[test]
fn messages_pass_upward_whole_and_in_order_and_nothing_comes_back() {
    let mut world = World::up("oneway", &site(READS), &[]);
    eventually(PATIENCE, "some hundreds have passed", || log(&world, "desk").contains("at 400"));
    let (desk, sensor) = (log(&world, "desk"), log(&world, "sensor"));
    // EPIPE: the reader's end takes nothing.
    assert!(desk.contains("write 32"), "{desk}");
    assert!(sensor.contains("1 readings"), "{sensor}");
    // The end of what never had a beginning.
    assert!(sensor.contains("read b''"), "{sensor}");
    // The large one had number 1. One with nothing in it has none; of the descriptor there is no trace.
    for said in ["got 0 first 0", "got 2 with a descriptor 0", "got 3 message 0 0", "got 4 message 1 0"] {
        assert!(desk.contains(said), "{said}: {desk}");
    }
    assert_eq!(desk.matches("got ").count(), 7, "none is missing: {desk}");
    eventually(PATIENCE, "they are counted", || counted(&world, "messages passed") >= 400);
    assert_eq!(counted(&world, "messages too large"), 1);
    assert_eq!(counted(&world, "messages that the reader had no room for"), 0);

    // Its process dies, and another carries on: what the writer writes is taken all the while.
    let mut below = host::below(world.server_pid()).into_iter();
    below.find(|process| process.name == "levee-channel").expect("the channel").signal("KILL");
    let written = |world: &World| log(world, "sensor").matches("wrote").count();
    let before = written(&world);
    eventually(PATIENCE, "the writer goes on", || written(&world) >= before + 4);
    eventually(PATIENCE, "so does the reader", || log(&world, "desk").matches("got 0 message").count() == 1);

    // The writer is started anew, and its new end is taken.
    let run = text(&world.path("run"));
    for order in ["stop", "start"] {
        world.levee(&["partition", order, "sensor", "--run", &run]).ok();
    }
    eventually(PATIENCE, "it writes again from its beginning", || {
        log(&world, "sensor").matches("1 readings").count() == 2 && log(&world, "desk").contains("message 0")
    });
    world.stop_server();
}

#[test]
fn a_reader_that_does_not_read_is_felt_by_no_writer_and_what_it_missed_is_counted_and_told() {
    let mut world = World::up("oneway-deaf", &site(IDLES), &[]);
    let written = |world: &World| log(world, "sensor").matches("wrote").count();
    eventually(PATIENCE, "the reader's room is full", || {
        counted(&world, "messages that the reader had no room for") > 100
    });
    let before = written(&world);
    eventually(PATIENCE, "the writer goes on", || written(&world) >= before + 3);
    assert!(!log(&world, "sensor").contains("Traceback"), "{}", log(&world, "sensor"));
    world.stop_server();
}

/// A writer that leaves this open behind messages like this one: it is started again all the same, and so is its reader.
fn leaves_open(name: &str, before: &str, files: &str) {
    let writes = PINS.replace("BEFORE", before).replace("FILES", files);
    let site = site_of(&writes, IDLES).replace("rate = \"1M\"", "rate = \"1K\"");
    let mut world = World::up(name, &site, &[]);
    // It is started again, each time with all its files.
    eventually(PATIENCE, "it has sent it three times", || {
        log(&world, "sensor").matches("sent 1").count() >= 3
    });
    let run = text(&world.path("run"));
    for order in ["stop", "start"] {
        world.levee(&["partition", order, "desk", "--run", &run]).ok();
    }
    let said = fs::read_to_string(world.log("server")).expect("the server's log");
    assert!(!said.contains("sensor ended: cannot"), "{said}");
    world.stop_server();
}

#[test]
fn a_writer_that_leaves_its_own_files_open_in_the_channel_keeps_nobody_else_waiting() {
    leaves_open("oneway-pins", "b'x' * 1024", "file.fileno()");
}

/// Its own end, on its way to the other: nobody closes it, and so nothing shows that the writer is gone.
#[test]
fn a_writer_that_leaves_its_end_of_the_channel_open_in_it_is_gone_all_the_same() {
    leaves_open("oneway-itself", "b'x' * 1024", "file.fileno(), 3");
}

/// Of a writer that is gone as much is taken as there is, and where that seems to be nothing the rest is nobody's.
#[test]
fn a_writer_that_leaves_its_own_files_open_behind_messages_with_nothing_in_them_keeps_nobody_else_waiting() {
    leaves_open("oneway-nothing", "b''", "file.fileno()");
}

#[test]
fn the_ends_of_a_channel_are_of_no_network_that_two_partitions_have_in_common() {
    let mut world = World::up("oneway-ends", &site_of(LOOKS, LOOKS), &[]);
    let both = ["sensor", "desk"];
    eventually(PATIENCE, "both have looked", || both.iter().all(|one| log(&world, one).contains("bound")));
    for partition in both {
        let said = log(&world, partition);
        assert!(said.contains("program: bound None"), "{partition}: {said}");
        assert!(said.contains("interfaces ['lo'] own ['lo']"), "{partition}: {said}");
    }
    world.stop_server();
}
