//! Guards: the one declared exception to the lattice. What a filter lets through passes within the site's bounds, each with a record before
//! it passes; nothing else does, whatever filter, writer and reader do.
//!
//! Needs root, python3, iproute2, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{World, eventually, host, text};
use std::fs;
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
