//! How long changes of posture take while every session carries traffic, and whether a packet is lost.
//!
//! `cargo run -p levee-system --bin posture-times -- [SESSIONS [CHANGES [curves|stacks|workers|aggfrag|services]]]` (after `cargo build --workspace --bins`), as root.
//! With `services` it is how soon nothing passes any more of what a posture has off. Server and workstations are on this host, so all have its processors. Ctrl-C ends it early, with what was measured. Prints the table of docs/reports/postures.md.
#![forbid(unsafe_code)]

use levee_system::{World, text};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../../conf/small/site.toml");
const LABELS: [&str; 3] = ["SECRET//NATO,MED", "CONFIDENTIAL//MED", "UNCLASSIFIED"];
/// Two postures: each change is from one of them to the other.
struct Kind {
    tables: &'static str,
    names: [&'static str; 2],
    /// What they are, in words.
    says: &'static str,
}
/// IKE SAs and tunnels get new keys.
const CIPHERS: Kind = Kind {
    tables: "[[posture]]\nname = \"siege\"\nciphers = [\"chacha20-poly1305\"]\nfollow = \"20s\"\n",
    names: ["siege", "default"],
    says: "`aes-256-gcm` first and `chacha20-poly1305` alone",
};
/// IKE SAs get new keys, with ML-KEM, and then tunnels do.
const CURVES: Kind = Kind {
    tables: "[[posture]]\nname = \"siege\"\nexchanges = [\"P-384\"]\nfollow = \"20s\"\n\
             [[posture]]\nname = \"field\"\nexchanges = [\"X25519\"]\nfollow = \"20s\"\n",
    names: ["siege", "field"],
    says: "P-384 and X25519",
};
/// Another vault begins at each label, and tunnels get new keys.
const STACKS: Kind = Kind {
    tables: "[[posture]]\nname = \"siege\"\nagree = true\nfollow = \"20s\"\n",
    names: ["siege", "default"],
    says: "two stacks that agree and one vault",
};
/// Another vault of more processes begins at each label, and tunnels get new keys.
const WORKERS: Kind = Kind {
    tables: "[[posture]]\nname = \"siege\"\nworkers = 2\nfollow = \"20s\"\n",
    names: ["siege", "default"],
    says: "two processes of a label's vault and one",
};
/// Tunnels get new keys, whose packets go otherwise.
const AGGFRAG: Kind = Kind {
    tables: "[[posture]]\nname = \"siege\"\naggfrag = true\nfollow = \"20s\"\n",
    names: ["siege", "default"],
    says: "AGGFRAG payloads and a packet in each",
};
/// Nothing is served.
const OFF: Kind = Kind {
    tables: "[[posture]]\nname = \"siege\"\nservices = []\n",
    names: ["siege", "default"],
    says: "no service and all",
};
const SESSIONS: usize = 6;
const CHANGES: usize = 200;
/// How long the same is carried without a change.
const ALONE: Duration = Duration::from_secs(120);
/// Until every program sends.
const SETTLES: Duration = Duration::from_secs(5);

/// The site, with a person and a workstation for each session.
fn site(sessions: usize, kind: &Kind) -> String {
    let range = "UNCLASSIFIED..SECRET//NATO,MED";
    let more = (3..=sessions)
        .map(|n| format!("[[host]]\nname = \"ws{n}\"\naccreditation = \"{range}\"\n"))
        .chain((1..=sessions).map(|n| format!("[[user]]\nname = \"p{n}\"\nclearance = \"{range}\"\n")));
    // The second workstation of the small site may not have every label, and its pool is for few.
    let all = SITE
        .replace(
            "accreditation = \"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\"",
            &format!("accreditation = \"{range}\""),
        )
        .replace("10.80.1.0/24", "10.80.16.0/20");
    format!("{all}\n{}{}{SERVICES}", more.collect::<String>(), kind.tables)
}

/// What the server's vaults dropped, by reason.
fn dropped(status: &Value) -> BTreeMap<String, u64> {
    let passed = ["packets-in", "packets-out", "bytes-in", "bytes-out"];
    let mut sums = BTreeMap::new();
    let vaults = status["vaults"].as_object().into_iter().flatten();
    for (name, count) in vaults.filter_map(|(_, vault)| vault["counters"].as_object()).flatten() {
        if !passed.contains(&name.as_str()) {
            *sums.entry(name.clone()).or_default() += count.as_u64().unwrap_or(0);
        }
    }
    sums
}

/// Services that give back what they are sent: datagrams, and streams.
const SERVICES: &str = r#"
[[service]]
name = "datagrams"
port = 7001
protocol = "udp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "direct"
software = ["python3"]
command = ["/usr/bin/python3", "-c", """
import socket
s=socket.socket(fileno=3)
s.setblocking(True)
while True:
    d,a=s.recvfrom(2048)
    try: s.sendto(d,a)
    except OSError: pass
"""]

[[service]]
name = "streams"
port = 7002
protocol = "tcp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "direct"
software = ["python3"]
command = ["/usr/bin/python3", "-c", """
import selectors,socket
l=socket.socket(fileno=3)
l.setblocking(False)
all=selectors.DefaultSelector()
all.register(l,1)
while True:
    for key,_ in all.select():
        s=key.fileobj
        if s is l:
            s,_=l.accept()
            s.setblocking(True)
            s.setsockopt(6,1,1)
            all.register(s,1)
            continue
        try: d=s.recv(65536)
        except OSError: d=b''
        if d: s.sendall(d)
        else: all.unregister(s); s.close()
"""]
"#;

/// Sends a datagram and as much of a stream every 50 ms until its input ends, and prints of each what came back: how many, in how many
/// windows of 200 ms less than half of what is due, how many silences of more than 100 ms, in which that is so, too, and the longest.
const CLIENT: &str = r#"
import json,select,socket,struct,sys,time
EVERY,SIZE,WINDOW=.05,200,.2
udp=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); udp.connect(("10.80.0.1",7001))
tcp=socket.create_connection(("10.80.0.1",7002)); tcp.setsockopt(6,1,1)
for s in (udp,tcp): s.setblocking(False)
class Of:
    def __init__(self): self.got,self.windows,self.last,self.silence,self.silences=0,{},None,0,0
    def came(self,now,n):
        self.got+=n
        w=int((now-begun)/WINDOW); self.windows[w]=self.windows.get(w,0)+n
        if self.last is not None:
            self.silence=max(self.silence,now-self.last)
            self.silences+=now-self.last>2*EVERY
        self.last=now
    def told(self,until):
        of=range(2,int((until-begun)/WINDOW)-1)
        few=sum(self.windows.get(w,0)<WINDOW/EVERY/2 for w in of)
        return {"got":self.got,"windows":len(of),"few":few,"silence":self.silence,"silences":self.silences}
begun=time.monotonic()
seen,d,t,sent,rest=set(),Of(),Of(),0,0
due,ends,unsent=begun,None,b""
while ends is None or time.monotonic()<ends:
    wait=max(0,due-time.monotonic()) if ends is None else .05
    ready,_,_=select.select([udp,tcp]+([sys.stdin] if ends is None else []),[],[],wait)
    now=time.monotonic()
    if sys.stdin in ready: ends,until=now+2,now
    if udp in ready:
        try:
            n,=struct.unpack("!Q",udp.recv(2048)[:8])
            if n not in seen: seen.add(n); d.came(now,1)
        except OSError: pass
    if tcp in ready:
        rest+=len(tcp.recv(65536)); t.came(now,rest//SIZE); rest%=SIZE
    while ends is None and due<=now:
        try: udp.send(struct.pack("!Q",sent)+bytes(SIZE-8))
        except OSError: pass
        unsent+=bytes(SIZE)
        try: unsent=unsent[tcp.send(unsent):]
        except BlockingIOError: pass
        sent+=1; due+=EVERY
print(json.dumps({"sent":sent,"datagrams":d.told(until),"stream":t.told(until)}))
"#;

/// Sends a datagram and a piece of a stream every 5 ms until its input ends, and prints between which two answers there was a silence of more
/// than 50 ms (CLOCK_MONOTONIC, in seconds). A stream that is silent for 100 ms is begun anew.
const LISTENER: &str = r#"
import json,select,socket,sys,time
EVERY,SILENT=.005,.05
udp=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); udp.connect(("10.80.0.1",7001)); udp.setblocking(False)
class Flow:
    def __init__(self): self.last,self.silences=time.monotonic(),[]
    def came(self):
        now=time.monotonic()
        if now-self.last>SILENT: self.silences.append((self.last,now))
        self.last=now
datagrams,stream=Flow(),Flow()
def begin():
    global tcp,begun
    tcp,begun=socket.socket(),time.monotonic(); tcp.setblocking(False); tcp.setsockopt(6,1,1); tcp.connect_ex(("10.80.0.1",7002))
begin()
due=time.monotonic()
while True:
    ready,_,_=select.select([udp,tcp,sys.stdin],[],[],max(0,due-time.monotonic()))
    if sys.stdin in ready: break
    if udp in ready:
        try: udp.recv(2048); datagrams.came()
        except OSError: pass
    if tcp in ready:
        try: got=tcp.recv(65536)
        except OSError: got=b""
        if got: stream.came()
        else: tcp.close(); time.sleep(.005); begin()
    now=time.monotonic()
    if now>max(stream.last,begun)+.1: tcp.close(); begin()
    if due<=now:
        for s in (udp,tcp):
            try: s.send(bytes(16))
            except OSError: pass
        due=max(due+EVERY,now)
print(json.dumps({"datagrams":datagrams.silences,"stream":stream.silences}))
"#;

/// What came back of what sessions sent.
#[derive(Debug, Default)]
struct Carried {
    sent: u64,
    datagrams: Back,
    streams: Back,
    /// Sessions whose program did not end as it should.
    failed: usize,
}

#[derive(Debug, Default)]
struct Back {
    got: u64,
    windows: u64,
    /// Windows with less than half of what is due.
    few: u64,
    /// Silences of more than 100 ms.
    silences: u64,
    /// The longest, in seconds.
    silence: f64,
}

impl Back {
    fn add(&mut self, said: &Value) {
        let number = |name: &str| said[name].as_u64().unwrap_or(0);
        self.got += number("got");
        self.windows += number("windows");
        self.few += number("few");
        self.silences += number("silences");
        self.silence = self.silence.max(said["silence"].as_f64().unwrap_or(f64::INFINITY));
    }
}

/// Has each session carry a stream and datagrams during this.
fn carried(world: &World, sessions: usize, during: impl FnOnce()) -> Carried {
    let client = |number: usize| {
        let mut client = world.inside(&format!("ws{number}"), &["/usr/bin/python3", "-c", CLIENT]);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program that sends")
    };
    let mut clients: Vec<_> = (1..=sessions).map(client).collect();
    std::thread::sleep(SETTLES);
    during();
    clients.iter_mut().for_each(|client| drop(client.stdin.take()));
    let mut all = Carried::default();
    for client in clients {
        let said = client.wait_with_output().expect("what it says").stdout;
        match serde_json::from_slice::<Value>(&said) {
            Ok(said) => {
                all.sent += said["sent"].as_u64().unwrap_or(0);
                all.datagrams.add(&said["datagrams"]);
                all.streams.add(&said["stream"]);
            }
            Err(_) => all.failed += 1,
        }
    }
    all
}

/// One change that has every service off, and the change back (CLOCK_MONOTONIC, in seconds).
struct Off {
    asked: f64,
    acknowledged: f64,
    back: f64,
}

/// Seconds since the host was started, as programs in compartments count them.
fn now() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// What became of flows that a posture has off.
#[derive(Default)]
struct Bound {
    /// Their last answers, in ms after the command's start.
    ends: Vec<f64>,
    /// Of these, after its end.
    late: usize,
    went_on: usize,
    /// They had not come again since the change before.
    absent: usize,
}

impl Bound {
    /// Of each session's silences, from one answer to the next.
    fn of(sessions: &[Vec<(f64, f64)>], rounds: &[Off]) -> Bound {
        let mut bound = Bound::default();
        for silences in sessions {
            for Off { asked, acknowledged, back } in rounds {
                match silences.iter().find(|(last, next)| last < back && next > back) {
                    None => bound.went_on += 1,
                    Some((last, _)) if *last < asked - 0.05 => bound.absent += 1,
                    Some((last, _)) => {
                        bound.ends.push((last - asked) * 1e3);
                        bound.late += usize::from(last > acknowledged);
                    }
                }
            }
        }
        bound.ends.sort_by(f64::total_cmp);
        bound
    }
}

/// How long flows that a posture has off have gone on, since the command that sets it was begun.
fn narrowing(
    world: &World,
    sessions: usize,
    changes: usize,
    set: &dyn Fn(&str) -> bool,
    is_over: &dyn Fn() -> bool,
) {
    let client = |number: usize| {
        let mut client = world.inside(&format!("ws{number}"), &["/usr/bin/python3", "-c", LISTENER]);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program that sends")
    };
    let mut clients: Vec<_> = (1..=sessions).map(client).collect();
    std::thread::sleep(SETTLES);
    let mut rounds = Vec::new();
    while rounds.len() < changes && !is_over() {
        let asked = now();
        assert!(set("siege"), "it is acknowledged");
        let acknowledged = now();
        std::thread::sleep(Duration::from_millis(150));
        let back = now();
        assert!(set("default"), "it is acknowledged");
        // A stream that is begun anew has come by then.
        std::thread::sleep(Duration::from_millis(400));
        rounds.push(Off { asked, acknowledged, back });
    }
    clients.iter_mut().for_each(|client| drop(client.stdin.take()));
    let told: Vec<Value> = clients
        .into_iter()
        .map(|client| client.wait_with_output().expect("what it says").stdout)
        .map(|said| serde_json::from_slice(&said).expect("JSON"))
        .collect();
    let flows = ["datagrams", "stream"].map(|flow| {
        let silences = |said: &Value| serde_json::from_value(said[flow].clone()).expect("pairs of numbers");
        Bound::of(&told.iter().map(silences).collect::<Vec<_>>(), &rounds)
    });
    println!(
        "{sessions} sessions, each with a datagram and a piece of a stream every 5 ms; {} changes\n",
        rounds.len()
    );
    println!("| of each session and change | datagrams | streams |\n|---|---|---|");
    let row = |what: &str, of: &dyn Fn(&Bound) -> String| {
        println!("| {what} | {} | {} |", of(&flows[0]), of(&flows[1]));
    };
    row("measured", &|bound| bound.ends.len().to_string());
    row("last answer after the command's start, ms: median, 99 and 99.9 of 100, most", &|bound| {
        [0.5, 0.99, 0.999, 1.0].map(|share| format!("{:.0}", quantile(&bound.ends, share))).join(", ")
    });
    row("after the command's end", &|bound| bound.late.to_string());
    row("went on", &|bound| bound.went_on.to_string());
    row("were not there", &|bound| bound.absent.to_string());
    let mut took: Vec<f64> = rounds.iter().map(|round| (round.acknowledged - round.asked) * 1e3).collect();
    took.sort_by(f64::total_cmp);
    println!(
        "\nThe command took {:.0} ms (median; {:.0} at most).",
        quantile(&took, 0.5),
        quantile(&took, 1.0)
    );
}

/// Of sorted values.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

fn main() {
    levee_system::ends_what_it_started();
    // What was measured until then is told, and what was started ends.
    let over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&over)).expect("hear of a signal");
    }
    let is_over = || over.load(Ordering::Relaxed);
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual| arguments.next().map_or(usual, |word| word.parse().expect("a number"));
    let (sessions, changes) = (number(SESSIONS), number(CHANGES));
    let kind = match arguments.next().as_deref() {
        None => CIPHERS,
        Some("curves") => CURVES,
        Some("stacks") => STACKS,
        Some("workers") => WORKERS,
        Some("aggfrag") => AGGFRAG,
        Some("services") => OFF,
        Some(other) => panic!("`curves`, `stacks`, `workers`, `aggfrag`, `services`, or nothing: {other}"),
    };
    let names: Vec<String> = (1..=sessions).map(|n| format!("ws{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::up("postimes", &site(sessions, &kind), &names);
    for (number, (name, label)) in (1..).zip(names.iter().zip(LABELS.iter().cycle())) {
        world.login(name, &format!("p{number}")).ok();
        world.level(name, label).ok();
    }
    let run = text(&world.path("run"));
    let set = |name: &str| world.levee(&["posture", "set", name, "--reason", "measured", "--run", &run]);
    if kind.says == OFF.says {
        return narrowing(&world, sessions, changes, &|name| set(name).status == 0, &is_over);
    }
    eprintln!("{sessions} sessions; {} s without a change, then {changes} changes", ALONE.as_secs());
    let mut waited = Duration::ZERO;
    let alone = carried(&world, sessions, || {
        let begun = Instant::now();
        while waited < ALONE && !is_over() {
            std::thread::sleep(Duration::from_millis(100));
            waited = begun.elapsed();
        }
    });
    let drops = dropped(&world.status());
    let began = Instant::now();
    let mut times: Vec<f64> = Vec::new();
    let mut refused = 0;
    let changing = carried(&world, sessions, || {
        for (number, name) in (1..).zip(kind.names.iter().cycle().take(changes)) {
            if is_over() {
                break;
            }
            let start = Instant::now();
            let well = set(name).out.contains("no tunnel has keys from before");
            if well {
                times.push(start.elapsed().as_secs_f64() * 1e3)
            } else {
                refused += 1
            }
            if number % 100 == 0 {
                eprintln!("{number} changes");
            }
        }
    });
    let took = began.elapsed().as_secs_f64();
    let drops_after = dropped(&world.status());
    let left = world.status()["session_count"].as_u64().unwrap_or(0);
    times.sort_by(f64::total_cmp);
    let at = |share: f64| quantile(&times, share);
    println!("# Changes of posture under traffic\n");
    println!(
        "`cargo run -p levee-system --bin posture-times -- {sessions} {changes}`, all on one host: {sessions} sessions at {} labels, each \
         with a datagram of 200 octets and as much of a stream every 50 ms, there and back; {changes} changes between {}, one after \
         another, in {took:.0} s.\n",
        LABELS.len().min(sessions),
        kind.says
    );
    println!("| what | with changes | without, {} s |\n|---|---|---|", waited.as_secs());
    println!("| changes acknowledged; not | {}; {refused} | |", times.len());
    println!(
        "| time to acknowledgement, ms: least, median, 99th of 100, most | {:.0}, {:.0}, {:.0}, {:.0} | |",
        at(0.0),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    let row = |what: &str, of: &dyn Fn(&Carried) -> String| {
        println!("| {what} | {} | {} |", of(&changing), of(&alone));
    };
    row("datagrams sent; not back", &|all| format!("{}; {}", all.sent, all.sent - all.datagrams.got));
    row("pieces of streams sent; not back", &|all| format!("{}; {}", all.sent, all.sent - all.streams.got));
    row("windows of 200 ms of a session; with less than half of its datagrams", &|all| {
        format!("{}; {}", all.datagrams.windows, all.datagrams.few)
    });
    row("the same of its stream", &|all| format!("{}; {}", all.streams.windows, all.streams.few));
    row("silences of more than 100 ms of a session's datagrams; of its stream", &|all| {
        format!("{}; {}", all.datagrams.silences, all.streams.silences)
    });
    row("longest silence of a session's datagrams, of its stream, ms", &|all| {
        format!("{:.0}, {:.0}", all.datagrams.silence * 1e3, all.streams.silence * 1e3)
    });
    row("sessions whose program failed", &|all| all.failed.to_string());
    println!("| sessions at the end, of {sessions} | {left} | |");
    for (name, count) in drops_after {
        let count = count - drops.get(&name).copied().unwrap_or(0);
        if count > 0 {
            println!("| packets that a vault of the server dropped: {name} | {count} | |");
        }
    }
}
