//! Datagrams that flow in sessions while something happens to the server, and which of them are lost.

use crate::{World, eventually};
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A third workstation, and a service that sends every datagram back.
pub const MORE: &str = r#"
[[host]]
name = "ws3"
accreditation = "UNCLASSIFIED..SECRET//NATO,MED"

[[service]]
name = "echo"
port = 7
protocol = "udp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "direct"
command = ["/usr/bin/python3", "-c", """
import select, socket
s = socket.socket(fileno=3)
while True:
    select.select([s], [], [])
    try:
        data, peer = s.recvfrom(2048)
        s.sendto(data, peer)
    except OSError:
        pass
"""]
"#;

/// Sends a numbered datagram every 10 ms until standard input ends, then prints when each that did not come back was
/// sent, and how many there were.
const SENDER: &str = r#"
import select, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setblocking(False)
s.connect(("10.80.0.1", 7))
def answers(until):
    while True:
        left = until - time.time()
        if left <= 0:
            return
        if select.select([s], [], [], left)[0]:
            try:
                back = s.recv(2048)
            except OSError:
                continue
            sent.pop(back, None)
# The first starts the service.
sent = {}
while True:
    s.send(b"first")
    if select.select([s], [], [], 0.5)[0] and s.recv(2048) == b"first":
        break
answers(time.time() + 1)
sent, number = {}, 0
print("flowing", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    number += 1
    now = time.time()
    packet = b"%d" % number
    sent[packet] = now
    try:
        s.send(packet)
    except OSError:
        pass
    answers(now + 0.01)
answers(time.time() + 1)
for at in sorted(sent.values()):
    print("lost %.3f" % at)
print("sent %d" % number)
"#;

/// The time, as a sender says it.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs_f64()
}

/// A sender in a workstation's session.
#[derive(Debug)]
pub struct Sender(Child, std::path::PathBuf);

impl Sender {
    fn start(world: &World, workstation: &str) -> Self {
        let path = world.path(&format!("{workstation}.sender"));
        let out = std::fs::File::create(&path).expect("a file");
        let mut command = world.inside(workstation, &["python3", "-c", SENDER]);
        let child = command.stdin(Stdio::piped()).stdout(out).spawn().expect("start levee-tpe");
        Self(child, path)
    }

    /// How many were sent, and when those that never came back were.
    #[track_caller]
    fn outcome(mut self) -> (u64, Vec<f64>) {
        self.0.wait().expect("wait for the sender");
        let out = std::fs::read_to_string(&self.1).expect("what it printed");
        let lost = out.lines().filter_map(|line| line.strip_prefix("lost ")?.parse().ok()).collect();
        let sent = out.lines().find_map(|line| line.strip_prefix("sent ")?.parse().ok());
        (sent.unwrap_or_else(|| panic!("the sender did not end in good order: {out}")), lost)
    }
}

/// A sender at each of these workstations, whose datagrams come back; each with a name for it.
#[track_caller]
pub fn start<'a>(world: &World, at: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<(&'a str, Sender)> {
    let all = at.into_iter().map(|(workstation, name)| (name, Sender::start(world, workstation)));
    let all: Vec<_> = all.collect();
    for (_, Sender(_, path)) in &all {
        eventually(Duration::from_secs(30), "datagrams come back", || {
            std::fs::read_to_string(path).is_ok_and(|out| out.contains("flowing"))
        });
    }
    all
}

/// Stops all of them; how many each has sent, and when those that never came back were.
#[track_caller]
pub fn stop(mut senders: Vec<(&str, Sender)>) -> Vec<(&str, Vec<f64>)> {
    senders.iter_mut().for_each(|(_, sender)| drop(sender.0.stdin.take()));
    let all = senders.into_iter().map(|(name, sender)| {
        let (sent, lost) = sender.outcome();
        println!("{name}: {sent} sent, {} lost", lost.len());
        (name, lost)
    });
    all.collect()
}
