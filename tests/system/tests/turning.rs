//! Services that are turned off while they do all they can against it.

mod shell;

use levee_system::{Ended, Stalled, World, eventually, sh, text};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LABEL: &str = "SECRET";
const MORE: &str = r#"
[[network]]
interface = "ship0"
label = "SECRET"
address = "192.168.7.1/24"
services = ["shell"]
[[posture]]
name = "dark"
labels = ["SECRET"]
services = []
"#;

/// A site with a service that runs what it is sent.
fn site(more: &str) -> String {
    format!("{SITE}{}{more}", shell::site(""))
}

fn posture(world: &World, name: &str) -> levee_system::Done {
    world.levee(&["posture", "set", name, "--run", &text(&world.path("run"))])
}

/// A host on the network has the service run this by each of its connections, and takes nothing of what it says; then all of it.
const HOST: &str = r#"
import select, socket, sys
held = [socket.create_connection(("192.168.7.1", 7000), 20) for _ in range(8)]
for one in held:
    one.sendall(sys.argv[1].encode()); one.shutdown(1); one.setblocking(False)
print("asked", flush=True)
sys.stdin.readline()
came = 0
while True:
    for one in select.select(held, [], [], 5)[0] or sys.exit(print("came", came, flush=True)):
        try: octets = len(one.recv(1 << 20))
        except OSError: octets = 0
        came += octets
        if not octets: held.remove(one)
    if not held: sys.exit(print("came", came, flush=True))
"#;

/// Leaves its parent, its group and its session twice over, takes no signal, and says what it can.
const STAYS: &str = r#"
import os, signal, time
for waits in (1000, 0):
    # (The service ends a connection when what it started has ended.)
    if os.fork(): os._exit(time.sleep(waits) or 0)
    os.setsid()
for number in range(1, 64):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: os.write(1, bytes(65536))
"#;

/// Octets in a queue of the connections with this port in a network namespace: 1 of what came, 2 of what is to go.
fn queued(net: &str, queue: usize) -> u64 {
    let listed = sh("nsenter", &[&format!("--net={net}"), "ss", "-Htn", "state", "all"]).ok();
    let of = |line: &str| line.split_whitespace().nth(queue).and_then(|octets| octets.parse::<u64>().ok());
    listed.lines().filter(|line| line.contains(":7000") && !line.contains("LISTEN")).filter_map(of).sum()
}

#[test]
fn of_a_service_that_is_off_nothing_is_sent_any_more_to_a_host_of_its_network() {
    let mut world = World::new("leftover", &site(MORE), &["ship"]);
    let ship = world.namespace("ship");
    world
        .server_sh("ip", &["link", "add", "ship0", "type", "veth", "peer", "name", "eth0", "netns", &ship])
        .ok();
    world.outside("ship", "ip", &["address", "add", "192.168.7.9/24", "dev", "eth0"]).ok();
    world.outside("ship", "ip", &["link", "set", "eth0", "up"]).ok();
    world.start_server();
    let (here, there) = (text(&world.path("run/net/SECRET")), format!("/run/netns/{ship}"));
    eventually(Duration::from_secs(20), "the service is there", || {
        world.outside("ship", "socat", &["-u", "OPEN:/dev/null", "TCP:192.168.7.1:7000"]).status == 0
    });
    let mut command = Command::new("nsenter");
    command.args([&format!("--net={there}"), "python3", "-c", HOST, STAYS]);
    let mut host =
        Ended(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start the host"));
    let mut said = BufReader::new(host.0.stdout.take().expect("its output")).lines();
    assert_eq!(said.next().expect("it asks").expect("a line"), "asked");
    let mut before = 0;
    eventually(Duration::from_secs(60), "it has said all that it can", || {
        let now = queued(&here, 2);
        std::thread::sleep(Duration::from_millis(500));
        std::mem::replace(&mut before, now) == now && now > 0
    });
    posture(&world, "dark").ok();
    let (left, had) = (queued(&here, 2), queued(&there, 1));
    // What has not come by now is not to come.
    writeln!(host.0.stdin.as_mut().expect("its input"), "read").expect("it reads");
    let came = said.next().expect("it has read").expect("a line");
    let came: u64 = came.strip_prefix("came ").and_then(|octets| octets.parse().ok()).expect("a number");
    assert!(
        came > 0 && came <= had,
        "{came} octets came, and {had} were there; {left} of {before} were left"
    );
    assert_eq!(left, 0, "{before} octets were to be sent before");

    // It can be turned on again, and is.
    posture(&world, "default").ok();
    let again = "import socket\ns=socket.create_connection(('192.168.7.1',7000)); s.sendall(b'print(7)'); s.shutdown(1)\nprint(s.recv(9))";
    assert!(world.outside("ship", "python3", &["-c", again]).ok().contains('7'));
    world.stop_server();
}

/// It stays when the operator's program has ended, and writes.
const WRITES: &str = "import os, time
if os.fork(): os._exit(0)
os.setsid()
while True:
  with open('/srv/own/file', 'w') as file: file.write('x')
  time.sleep(0.01)";

#[test]
fn a_label_that_ends_while_a_service_is_turned_off_there_is_waited_for_too() {
    let more = "\n[[posture]]\nname = \"dark\"\nlabels = [\"SECRET\"]\nservices = []\n";
    let world = World::up("overtaken", &site(more), &[]);
    let (run, state) = (text(&world.path("run")), text(&world.path("state")));
    let exec = ["exec", LABEL, "--run", &run, "--state", &state, "--", "/usr/bin/python3", "-c", WRITES];
    world.levee(&exec).ok();
    let since = Instant::now();
    let init = || {
        let status = world.status();
        let all = status["compartments"].as_array().cloned().unwrap_or_default();
        all.iter().find(|one| one["label"] == LABEL).map(|one| one["init"].to_string())
    };
    // What writes cannot be ended, by process 1 or otherwise.
    let stalled = Stalled::store(&init().expect("it runs"));
    // Nobody uses the label: it ends 10 s after that, while it is turning the service off.
    std::thread::sleep(Duration::from_secs(6).saturating_sub(since.elapsed()));
    std::thread::scope(|scope| {
        let told = scope.spawn(|| posture(&world, "dark"));
        eventually(Duration::from_secs(30), "the label is told to end", || init().is_none());
        std::thread::sleep(Duration::from_secs(2));
        assert!(stalled.is_there());
        let is_over = told.is_finished();
        drop(stalled);
        let done = told.join().expect("it is told");
        assert!(!is_over, "it was said that nothing is left: {}{}", done.out, done.err);
        done.ok();
    });
}
