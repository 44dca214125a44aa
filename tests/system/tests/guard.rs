//! Guards: the one declared exception to the lattice. What a filter lets through passes within the site's bounds, each with a record before
//! it passes; nothing else does, whatever filter, writer and reader do.
//!
//! Needs root, python3, iproute2, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::host::Process;
use levee_system::{World, eventually, host, text};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PATIENCE: Duration = Duration::from_secs(60);

/// Writes what its first argument has, a message every moment, again and again.
const WRITES: &str = "import json, os, socket, time
end = socket.socket(fileno=3)
try: print('read', end.recv(100), flush=True)
except OSError as e: print('read', e.errno, flush=True)
n = 0
while True:
    end.send(json.dumps({'n': n, 'secret': 'tide table'}).encode())
    n += 1
    time.sleep(0.1)
";
/// Says what it reads, and tries to write.
const READS: &str = "import socket
end = socket.socket(fileno=3)
try: print('write', end.send(b'up'), flush=True)
except OSError as e: print('write', e.errno, flush=True)
while True:
    message, ancillary, flags, _ = end.recvmsg(65536, 1024)
    print('got', len(message), len(ancillary), repr(message[:60]), flush=True)
";
/// What every filter begins with.
const FILTER: &str = "import json, os, socket, sys, time
end = socket.socket(fileno=3)
print('begins', os.environ['LISTEN_FDNAMES'], flush=True)
";
/// Strikes out the secret, refuses every third, and spells with spaces.
const STRIKES: &str = "while True:
    message = json.loads(end.recv(65536))
    if message['n'] % 3 == 0: end.send(b'')
    else: end.send(json.dumps({'n': message['n'], 'sum': 7}, indent=4).encode())
";
const SCHEMA: &str = r#"{"type": "object", "required": ["n", "sum"], "additionalProperties": false,
"properties": {"n": {"type": "integer"}, "sum": {"const": 7}}}"#;

/// A site with a guard downwards by this filter, with these bounds beside.
fn site(name: &str, writer: &str, filter: &str, bounds: &str) -> String {
    let partition = |name: &str, label: &str, program: &str| {
        format!(
            "\n[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\n\
             command = [\"/usr/bin/python3\", \"-c\", '''\n{program}''']\nmemory = \"96M\"\ndisk = \"8M\"\nrestart = \"50 in 60s\"\n"
        )
    };
    SITE.replace("\"harbour\"", &format!("\"{name}\""))
        + &partition("vault", "SECRET", writer)
        + &partition("checker", "SECRET", &format!("{FILTER}{filter}"))
        + &partition("desk", "UNCLASSIFIED", READS)
        + &format!(
            "\n[[channel]]\nname = \"downgrade\"\nkind = \"guard\"\nfrom = \"vault\"\nfilter = \"checker\"\nto = \"desk\"\n\
             size = \"4K\"\nrate = \"1M\"\n{bounds}\n"
        )
}

fn log(world: &World, partition: &str) -> String {
    let directory = world.path(&format!("state/logs/labels/partition+{partition}"));
    let read = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    ["0.log", "1.log"].map(read).concat()
}

fn counted(world: &World, what: &str) -> u64 {
    // It says what it had counted when it was last asked.
    world.status();
    world.status()["steering"][format!("channel downgrade: {what}")].as_u64().unwrap_or(0)
}

/// The records of what has passed.
fn passed(world: &World) -> Vec<String> {
    let log = fs::read_to_string(world.path("state/sessiond/audit.jsonl")).unwrap_or_default();
    log.lines()
        .filter(|line| line.contains("\"guard/downgrade\"") && line.contains("granted"))
        .map(str::to_owned)
        .collect()
}

fn sha256(octets: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(octets).iter().map(|octet| format!("{octet:02x}")).collect()
}

#[test]
fn what_the_filter_lets_through_passes_as_levee_writes_it_each_with_a_record_before() {
    let bounds = format!("messages = \"1000 in 60s\"\nschema = '''{SCHEMA}'''");
    let mut world = World::up("guard", &site("guard", WRITES, STRIKES, &bounds), &[]);
    eventually(PATIENCE, "some have passed", || log(&world, "desk").matches("got ").count() >= 6);
    let (desk, vault) = (log(&world, "desk"), log(&world, "vault"));
    // The reader's end takes nothing, the writer's has nothing to read.
    assert!(desk.contains("write 32") && vault.contains("read b''"), "{desk} {vault}");
    assert!(!desk.contains("tide table") && !desk.contains("\"n\":3,"), "{desk}");
    for n in [1, 2, 4, 5] {
        let octets = format!("{{\"n\":{n},\"sum\":7}}");
        assert!(desk.contains(&format!("got {} 0 b'{octets}'", octets.len())), "{octets}: {desk}");
        let digest = sha256(octets.as_bytes());
        let record = passed(&world).into_iter().find(|record| record.contains(&digest));
        let record = record.unwrap_or_else(|| panic!("no record of {octets}"));
        assert!(record.contains("from SECRET to UNCLASSIFIED"), "{record}");
    }
    assert!(counted(&world, "messages refused by the filter") >= 2);
    let file = text(&world.path("site.toml"));
    let said = world.levee(&["check", &file]).ok();
    let line = "declared exception: SECRET to UNCLASSIFIED by guard downgrade: bounds: messages of 4096 bytes, 1000 in 60 s";
    assert!(said.contains(line), "{said}");

    // The guard's process dies, and another carries on.
    let mut below = host::below(world.server_pid()).into_iter();
    below.find(|process| process.name == "levee-guard").expect("the guard").signal("KILL");
    let before = log(&world, "desk").matches("got ").count();
    eventually(PATIENCE, "messages pass again", || log(&world, "desk").matches("got ").count() >= before + 4);
    let got = log(&world, "desk").matches("got ").count();
    assert!(passed(&world).len() >= got, "what passes has a record");
    world.stop_server();
}

/// What a process can do with each of its sockets.
fn sockets(process: &Process) -> Vec<String> {
    let fds = fs::read_dir(format!("/proc/{}/fd", process.pid)).expect("its descriptors");
    let fds = fds.filter_map(|fd| fd.expect("one").file_name().to_str()?.parse::<i32>().ok());
    let pairs: String = fds.map(|fd| format!("{} {fd}\n", process.pid)).collect();
    let mut child = Command::new("python3")
        .arg(format!("{}/src/ends.py", env!("CARGO_MANIFEST_DIR")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start python3");
    child.stdin.take().expect("its input").write_all(pairs.as_bytes()).expect("all are asked about");
    let out = child.wait_with_output().expect("its output");
    assert!(out.status.success());
    let can = |line: &str| line.splitn(3, ' ').nth(2).expect("what can be done").to_owned();
    let mut all: Vec<String> = String::from_utf8_lossy(&out.stdout).lines().map(can).collect();
    all.sort();
    all
}

#[test]
fn who_takes_a_channel_or_a_guard_over_can_only_read_from_the_writer_and_only_write_to_the_reader() {
    let up = "messages = \"1000 in 60s\"\n[[channel]]\nname = \"reports\"\nkind = \"oneway\"\nfrom = \"desk\"\nto = \"vault\"";
    let mut world = World::up("ends", &site("ends", WRITES, STRIKES, up), &[]);
    eventually(PATIENCE, "some have passed", || log(&world, "desk").matches("got ").count() >= 2);
    let of = |name: &str| {
        let mut below = host::below(world.server_pid()).into_iter();
        below.find(|process| process.name == name).expect("it runs")
    };
    let both = "reads writes";
    eventually(PATIENCE, "the channel has both of its ends", || sockets(&of("levee-channel")).len() == 3);
    // The warden; one that reads, one that writes.
    assert_eq!(sockets(&of("levee-channel")), ["- writes", "reads -", both]);
    // The warden, sessiond and the filter; one that reads, one that writes.
    assert_eq!(sockets(&of("levee-guard")), ["- writes", "reads -", both, both, both]);
    world.stop_server();
}

/// What a hostile filter does first, by turns of its starts; then, as a good one, it lets through what it is given. It keeps count in its
/// own files.
const TURNS: &str = "try: turn = int(open('/srv/own/turn').read())
except OSError: turn = 0
open('/srv/own/turn', 'w').write(str(turn + 1))
print('turn', turn, flush=True)
first = end.recv(65536)
if turn == 0:
    while True: time.sleep(1)
if turn == 1:
    for n in range(1000): end.send(b'flood %d' % n)
    while True: time.sleep(1)
if turn == 2: os._exit(7)
if turn == 3: os.close(3); time.sleep(1000)
if turn == 4:
    end.send(b'x' * 4097)
    end.recv(65536)
    end.send(b'x' * 60000)
    end.recv(65536)
    end.send(json.dumps({'lies': 'x' * 20}).encode())
    end.recv(65536)
    socket.send_fds(end, [b'{\"fd\": 1}'], [1])
    end.recv(65536)
    end.send(b'')
    end.recv(65536)
    print('done', flush=True)
while True:
    end.send(b'{\"good\": 1}')
    end.recv(65536)
";
/// Tries to speak upwards in every way that its end has, and never reads.
const DEAF: &str = "import fcntl, socket, time
end = socket.socket(fileno=3)
for how in ['send', 'fds', 'shut', 'buffer']:
    try:
        if how == 'send': end.send(b'up')
        if how == 'fds': socket.send_fds(end, [b'up'], [1])
        if how == 'shut': end.shutdown(socket.SHUT_RD)
        if how == 'buffer': end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        print(how, 'done', flush=True)
    except OSError as e: print(how, e.errno, flush=True)
while True: time.sleep(1)
";

#[test]
fn a_filter_that_hangs_floods_dies_or_lies_passes_nothing_but_what_fits_and_is_started_again() {
    let schema = r#"{"type": "object", "propertyNames": {"enum": ["good", "fd"]}}"#;
    let bounds = format!("messages = \"1000 in 60s\"\nanswer = \"500ms\"\nschema = '{schema}'");
    let mut world = World::up("hostile", &site("hostile", WRITES, TURNS, &bounds), &[]);
    eventually(PATIENCE, "every turn was had", || log(&world, "checker").contains("done"));
    eventually(PATIENCE, "the good one lets through", || log(&world, "desk").contains("good"));
    let desk = log(&world, "desk");
    for line in desk.lines().filter(|line| line.contains("got ")) {
        let fits = line.contains("b'{\"good\":1}'") || line.contains("b'{\"fd\":1}'");
        assert!(fits && !line.contains(" 1 b'"), "{line}");
    }
    for (what, least) in [
        ("messages without an answer of the filter", 3),
        ("messages larger than it may be", 2),
        ("messages not of the schema", 2),
        ("messages refused by the filter", 1),
    ] {
        // They are told a moment later.
        eventually(PATIENCE, what, || counted(&world, what) >= least);
    }
    assert!(passed(&world).len() >= desk.matches("got ").count(), "what passes has a record");
    world.stop_server();
}

#[test]
fn a_reader_that_speaks_or_does_not_read_is_felt_by_nobody_above_and_no_more_passes_than_may() {
    let site = site("deaf", WRITES, "while True: end.send(end.recv(65536))", "messages = \"5 in 1h\"")
        .replace(READS, DEAF);
    let mut world = World::up("deaf", &site, &[]);
    eventually(PATIENCE, "more were refused than may pass", || {
        counted(&world, "messages beyond what may pass in this time") >= 20
    });
    let desk = log(&world, "desk");
    assert!(desk.contains("send 32") && desk.contains("fds 32"), "{desk}");
    assert_eq!(passed(&world).len(), 5, "records of what passed");
    let given = counted(&world, "messages passed") + counted(&world, "messages that the reader did not take");
    assert_eq!(given, 5, "{}", world.status()["steering"]);
    assert!(!log(&world, "vault").contains("Error"), "the writer goes on: {}", log(&world, "vault"));
    world.stop_server();
}

#[test]
fn outside_its_hours_nothing_passes() {
    let minute = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() / 60;
    // From two hours hence, for one.
    let at = |hours: u64| format!("{:02}:{:02}", (minute / 60 + hours) % 24, minute % 60);
    let bounds = format!("messages = \"1000 in 60s\"\nhours = \"{}-{}\"", at(2), at(3));
    let mut world =
        World::up("hours", &site("hours", WRITES, "while True: end.send(end.recv(65536))", &bounds), &[]);
    eventually(PATIENCE, "some were refused", || counted(&world, "messages not at its time of day") >= 10);
    assert!(passed(&world).is_empty() && !log(&world, "desk").contains("got "), "{}", log(&world, "desk"));
    world.stop_server();
}

/// A disk that was mounted here; it is gone with this.
struct Disk(String);

impl Drop for Disk {
    fn drop(&mut self) {
        levee_system::sh("umount", &["-l", &self.0]);
    }
}

#[test]
fn while_the_audit_logs_disk_is_full_nothing_passes() {
    let site = site("full", WRITES, "while True: end.send(end.recv(65536))", "messages = \"10000 in 60s\"");
    let mut world = World::new("full", &site, &[]);
    let directory = text(&world.path("state/sessiond"));
    // A disk of its own, with what is there.
    let small = format!(
        "d={directory}; mkdir -p $d && cp -a $d $d.was && mount -t tmpfs -o size=8m none $d && \
         chown --reference=$d.was $d && chmod --reference=$d.was $d && cp -a $d.was/. $d/"
    );
    levee_system::sh("sh", &["-c", &small]).ok();
    let _disk = Disk(directory.clone());
    world.start_server();
    let got = |world: &World| log(world, "desk").matches("got ").count();
    eventually(PATIENCE, "some have passed", || got(&world) >= 5);
    let fill = format!("cat /dev/zero >{directory}/filler 2>/dev/null; true");
    levee_system::sh("sh", &["-c", &fill]).ok();
    let refused = |world: &World| counted(world, "messages not in the audit log");
    eventually(PATIENCE, "messages are refused", || refused(&world) >= 10);
    let (before, were) = (got(&world), refused(&world));
    eventually(PATIENCE, "more are refused", || refused(&world) >= were + 10);
    assert_eq!(got(&world), before, "nothing passes");
    levee_system::sh("rm", &[&format!("{directory}/filler")]).ok();
    eventually(PATIENCE, "messages pass again", || got(&world) > before + 5);
    world.stop_server();
}

/// The messages that wait for whoever sits at this workstation: number and digest of each.
fn all_waiting(world: &World, workstation: &str) -> Vec<(String, String)> {
    let listed: serde_json::Value =
        serde_json::from_str(&world.tpe(workstation, &["--json", "release"]).ok()).expect("JSON");
    let one = |message: &serde_json::Value| {
        (message["number"].to_string(), message["sha256"].as_str().expect("a digest").to_owned())
    };
    listed["messages"].as_array().expect("messages").iter().map(one).collect()
}

/// The first of them.
fn waiting(world: &World, workstation: &str) -> Option<(String, String)> {
    all_waiting(world, workstation).into_iter().next()
}

/// A site with a guard that passes on what people release, by these bounds; ada and mia are at its writer's label.
fn released_by_two(name: &str, writer: &str, release: &str) -> World {
    let site = site(name, writer, "while True: end.send(end.recv(65536))", release)
        .replace("\"UNCLASSIFIED..CONFIDENTIAL//MED\"", "\"UNCLASSIFIED..SECRET//MED\"")
        .replace("\"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\"", "\"UNCLASSIFIED..SECRET//NATO,MED\"");
    let world = World::up(name, &site, &["ws1", "ws2"]);
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.login(workstation, user).ok();
        world.level(workstation, "SECRET").ok();
    }
    world
}

/// The message of this number as a terminal at this workstation has it.
fn shown(world: &World, workstation: &str, number: &str) -> String {
    let show = world.tpe_command(workstation, &["release", number]);
    let mut terminal = Command::new("script");
    terminal
        .arg("-qec")
        .arg(format!("{} release {number}", text(Path::new(show.get_program()))))
        .arg("/dev/null");
    terminal.envs(show.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
    let out = terminal.output().expect("script(1) (bsdutils) runs");
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).expect("text").replace("\r\n", "\n")
}

#[test]
fn what_two_people_must_release_passes_when_both_have_and_its_record_names_them() {
    // One message, and then as many as its filter is asked for.
    let once = WRITES.replace("time.sleep(0.1)", "time.sleep(2)");
    let release = "messages = \"1000 in 60s\"\nrelease = [\"ada\", \"mia\"]\nrelease-within = \"10m\"";
    let mut world = released_by_two("people", &once, release);
    eventually(PATIENCE, "a message waits", || waiting(&world, "ws1").is_some());
    let (number, digest) = waiting(&world, "ws1").expect("a message");
    let pass = ["release", &number, "--pass", &digest];
    let unseen = world.tpe("ws1", &pass).refused();
    assert!(unseen.contains("has not been shown"), "{unseen}");
    let unrecorded = world.tpe("ws1", &["release", &number]).refused();
    assert!(unrecorded.contains("no terminal"), "{unrecorded}");
    assert!(world.tpe("ws1", &pass).refused().contains("has not been shown"));
    let shown = |workstation, number: &str| shown(&world, workstation, number);
    let seen = shown("ws1", &number);
    assert!(seen.contains("| {\"n\": 0, \"secret\": \"tide table\"}") && seen.contains(&digest), "{seen}");
    assert!(world.tpe("ws1", &pass).ok().contains("waits for another person"));
    assert!(world.tpe("ws1", &pass).refused().contains("you have released it"));
    assert!(counted(&world, "messages that wait for people") >= 1);
    assert!(!log(&world, "desk").contains("got ") && passed(&world).is_empty(), "one word lets nothing pass");
    shown("ws2", &number);
    assert!(world.tpe("ws2", &pass).ok().contains("released by two people"));
    eventually(PATIENCE, "it has passed", || log(&world, "desk").contains("got "));
    let desk = log(&world, "desk");
    assert!(desk.contains("tide table") && desk.matches("got ").count() == 1, "{desk}");
    let records = passed(&world);
    let [record] = records.as_slice() else { panic!("{records:?}") };
    assert!(
        record.contains(&digest) && record.contains("released by `ada` at ws1 and `mia` at ws2"),
        "{record}"
    );

    // One of them refuses the next.
    eventually(PATIENCE, "another waits", || waiting(&world, "ws2").is_some());
    let (number, digest) = waiting(&world, "ws2").expect("a message");
    shown("ws2", &number);
    assert!(world.tpe("ws2", &["release", &number, "--refuse", &digest]).ok().contains("does not pass"));
    eventually(PATIENCE, "it is refused", || counted(&world, "messages not released by two people") >= 1);
    assert_eq!(passed(&world).len(), 1);
    let words = fs::read_to_string(world.path("state/sessiond/audit.jsonl")).expect("the audit log");
    let words: Vec<&str> = words.lines().filter(|line| line.contains("\"action\":\"release\"")).collect();
    assert_eq!(words.len(), 3, "a record for each word: {words:?}");

    // Neither elsewhere than at the writer's label, nor while locked, is anything shown. Who knows what may have been written learns
    // nothing by trying it.
    eventually(PATIENCE, "a third waits", || waiting(&world, "ws1").is_some());
    let (number, digest) = waiting(&world, "ws1").expect("a message");
    world.level("ws2", "UNCLASSIFIED").ok();
    assert!(world.tpe("ws2", &["release"]).ok().contains("no message waits"));
    let tries = |digest: &str| world.tpe("ws2", &["release", &number, "--refuse", digest]).refused();
    assert_eq!(tries(&digest), tries(&sha256(b"another")));
    world.tpe("ws1", &["lock"]).ok();
    assert!(world.tpe("ws1", &["release"]).refused().contains("locked"));
    let file = text(&world.path("site.toml"));
    let said = world.levee(&["check", &file]).ok();
    assert!(said.contains("released by two of ada, mia"), "{said}");
    world.stop_server();
}

#[test]
fn what_two_people_have_released_passes_no_more_once_one_of_them_is_disabled() {
    let release = "messages = \"1 in 4s\"\nrelease = [\"ada\", \"mia\"]\nrelease-within = \"10m\"";
    let mut world = released_by_two("withdrawn", WRITES, release);
    eventually(PATIENCE, "two wait", || all_waiting(&world, "ws1").len() >= 2);
    let two = all_waiting(&world, "ws1").into_iter().take(2).collect::<Vec<_>>();
    for workstation in ["ws1", "ws2"] {
        for (number, digest) in &two {
            shown(&world, workstation, number);
            world.tpe(workstation, &["release", number, "--pass", digest]).ok();
        }
    }
    let got = || log(&world, "desk").matches("got ").count();
    eventually(PATIENCE, "the first has passed", || got() == 1);
    assert_eq!(counted(&world, "messages that wait until so much may pass"), 1);
    world.levee(&["user", "disable", "mia", "--run", &text(&world.path("run"))]).ok();
    assert_eq!(got(), 1, "the other waits still");
    eventually(PATIENCE, "it is refused", || counted(&world, "messages not released by two people") == 1);
    std::thread::sleep(Duration::from_millis(4_500));
    assert_eq!(got(), 1);
    let log = fs::read_to_string(world.path("state/sessiond/audit.jsonl")).expect("the audit log");
    let back = log.lines().filter(|line| line.contains("counts no more") && line.contains(&two[1].1));
    assert_eq!(back.count(), 1, "the log says that it was held back");
    world.stop_server();
}
