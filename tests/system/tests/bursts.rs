//! Much that happens in one moment: who is told of each is not taken for deaf because it has not read that yet.

use levee_system::{World, eventually, host};
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LABEL: &str = "CONFIDENTIAL//MED";
/// Says again what it hears, in a process for each connection.
const CAT: &str = r#"
[[service]]
name = "echo"
port = 7000
protocol = "tcp"
range = "CONFIDENTIAL//MED"
mode = "handoff"
audit = "written"
command = ["/bin/cat"]
"#;
/// Opens so many connections to it, uses each, and says how many it has; then it says what it hears by the last of them, and ends when it hears no more.
const ECHOES: &str = r#"
import socket, sys
every = []
for number in range(int(sys.argv[1])):
    one = socket.create_connection(("www.harbour.example", 7000), 30)
    one.sendall(b"%8d" % number)
    if one.recv(8, socket.MSG_WAITALL) == b"%8d" % number:
        every.append(one)
print(len(every), flush=True)
for line in sys.stdin:
    every[-1].sendall(b"%8s" % line.strip().encode())
    print(every[-1].recv(8, socket.MSG_WAITALL).decode().strip(), flush=True)
"#;

/// A program of a session's, which is told something and answers.
struct Client {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Client {
    #[track_caller]
    fn with(world: &World, workstation: &str, connections: &str) -> Self {
        let inside = world.inside(workstation, &["python3", "-c", ECHOES, connections]);
        let mut command = Command::new("prlimit");
        command.arg("--nofile=4096:4096").arg(inside.get_program()).args(inside.get_args());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start prlimit");
        let out = BufReader::new(child.stdout.take().expect("standard output"));
        Self { child, out }
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn say(&mut self, word: &str) {
        let input = self.child.stdin.as_mut().expect("standard input");
        // Whether anybody hears it is what the test asks.
        let _ = writeln!(input, "{word}");
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("its end");
    }
}

#[test]
fn hundreds_of_connections_of_one_person_that_end_at_once_end_nobody_elses() {
    let site = SITE
        .replace("processes = 256", "processes = 1024")
        .replace("memory = \"512M\"", "memory = \"2G\"")
        .replace("connections = 50", "connections = 10000");
    let world = World::up("bursts-ends", &format!("{site}{CAT}"), &["ws1", "ws2"]);
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.login(workstation, user).ok();
        world.level(workstation, LABEL).ok();
    }
    let mut hers = Client::with(&world, "ws2", "1");
    assert_eq!(hers.line(), "1");
    let mut many = Client::with(&world, "ws1", "400");
    assert_eq!(many.line(), "400");
    let mediator = host::child(world.server_pid(), "levee-mediator");
    let init = world.status()["compartments"][0]["init"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let cats = || host::children(init.expect("a compartment"), "cat").len();
    assert_eq!(cats(), 401);
    // On a host that is busy the mediator has no processor for a moment.
    mediator.signal("STOP");
    many.end();
    eventually(Duration::from_secs(10), "the server processes have ended", || cats() <= 1);
    mediator.signal("CONT");
    hers.say("still");
    assert_eq!(hers.line(), "still", "one person's have ended, and somebody else's was");
    eventually(Duration::from_secs(5), "all are told of", || {
        let status = world.status();
        let counters = status["compartments"][0]["counters"].as_array().cloned().unwrap_or_default();
        counters.iter().any(|one| one[0] == "connections open" && one[1] == 1)
    });
    assert!(mediator.runs());
    hers.end();
}
