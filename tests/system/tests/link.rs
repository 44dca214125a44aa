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
