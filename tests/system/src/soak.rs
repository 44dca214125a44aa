//! A server under attack for a while: three labels' people work, while everything that belongs to a fourth label is hostile, from its
//! vault to its services, and strangers try the outer ports.
//!
//! What is looked at: that nobody at the three labels loses anything, that no process grows, and how much longer a good person's
//! sign-on takes than before.

use crate::{Done, World, crowd, host, sh, text};
use crowd::Seat;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
/// The label of which everything is hostile.
const HOSTILE: &str = "CONFIDENTIAL";
/// Those at which people work.
const GOOD: [(&str, &str); 3] = [("ws1", "UNCLASSIFIED"), ("ws2", "SECRET"), ("ws3", "SECRET//NATO")];
/// Where nothing but sign-ons are done.
const DESK: &str = "ws5";
/// Programs of a label that its twin can stand for.
const TWINS: [&str; 4] = ["levee-vault", "levee-mediator", "levee-upflow", "levee-logger"];
/// A service that says what a terminal would obey, without end, and fills its store; and one behind the mediator.
const SERVICES: &str = r#"
[[service]]
name = "noise"
port = 7
protocol = "tcp"
range = "CONFIDENTIAL..CONFIDENTIAL"
mode = "direct"
command = ["/usr/bin/sh", "-c", '''while :; do
    head -c 1000000000 /dev/zero >/srv/own/fill 2>/dev/null
    n=0; while [ $n -lt 1000 ]; do printf "noise %s \033]52;c;x\007\n" $n; n=$((n+1)); done
    sleep 1
done''']

[[service]]
name = "shell"
port = 22
protocol = "tcp"
range = "CONFIDENTIAL..CONFIDENTIAL"
mode = "handoff"
command = ["/usr/bin/cat"]

[[host]]
name = "ws3"
accreditation = "UNCLASSIFIED..SECRET//NATO,MED"

[[host]]
name = "ws4"
accreditation = "UNCLASSIFIED..SECRET//NATO,MED"

[[host]]
name = "ws5"
accreditation = "UNCLASSIFIED..SECRET//NATO,MED"
"#;

/// What one process had of memory, in KiB.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Its name and number.
    pub process: String,
    /// After a quarter of the time.
    pub early: u64,
    /// The most in the last quarter.
    pub late: u64,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// For how long there was an attack.
    pub lasted: Duration,
    /// Pages that people fetched, by label.
    pub pages: BTreeMap<String, u64>,
    /// What people at good labels, or at the desk, did not get.
    pub lost: Vec<String>,
    /// The processes that were there all the time.
    pub memory: Vec<Memory>,
    /// Median seconds of a sign-on before the attack and during it, and how many during it.
    pub sign_on: (f64, f64, usize),
    /// How often a process of the hostile label ended.
    pub ends: usize,
    /// The largest file of the hostile label's log, in octets.
    pub largest_log: u64,
    /// What strangers sent.
    pub strangers: u64,
    /// What `levee status` warns of at the end.
    pub alarms: Vec<String>,
}

impl Findings {
    /// What grew by more than so many KiB.
    pub fn grown(&self, most: u64) -> Vec<&Memory> {
        self.memory.iter().filter(|one| one.late > one.early + most).collect()
    }

    /// How many times as long a sign-on took.
    pub fn ratio(&self) -> f64 {
        self.sign_on.1 / self.sign_on.0
    }
}

fn site() -> String {
    let whole = "accreditation = \"UNCLASSIFIED..SECRET//NATO,MED\"";
    let site = SITE.replace("accreditation = \"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\"", whole);
    format!("{site}{SERVICES}")
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A sign-on and the end of it: how long the first took.
fn sign_on(world: &World) -> Result<f64, Done> {
    let begun = Instant::now();
    let done = world.login(DESK, "ada");
    let took = begun.elapsed().as_secs_f64();
    let over = world.tpe(DESK, &["logout"]);
    if done.status == 0 && over.status == 0 {
        Ok(took)
    } else {
        Err(if done.status == 0 { over } else { done })
    }
}

fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Datagrams and connections of nobody to the server's outer ports, some 400 a second.
fn strangers(world: &World, over: &AtomicBool, sent: &AtomicU64) {
    let namespace = fs::File::open(format!("/run/netns/{}", world.namespace("ws4"))).expect("a namespace");
    let socket = levee_sys::ns::in_net(namespace.as_fd(), || UdpSocket::bind("0.0.0.0:0"));
    let socket = socket.expect("enter the namespace").expect("a socket");
    let mut number = 1u64;
    while !over.load(Ordering::Relaxed) {
        // No two alike, and none of any sense: to IKE in each of its places, and to some slot.
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise = number.to_be_bytes().repeat(40);
        let header = [&[0u8; 8][..], &[33, 0x20, 34, 8, 0, 0, 0, 0, 0, 0, 0, 92], &noise[..64]].concat();
        let ike = [&number.to_be_bytes()[..], &header].concat();
        for (port, datagram) in [(500, &ike), (4500, &noise), (4500, &[&[0u8; 4][..], &ike].concat())] {
            // What is not taken is not missed.
            let _ = socket.send_to(datagram, SocketAddr::from(([10, 77, 0, 1], port)));
            sent.fetch_add(1, Ordering::Relaxed);
        }
        if number.is_multiple_of(8) {
            let server = SocketAddr::from(([10, 77, 0, 1], 7443));
            let dial = || TcpStream::connect_timeout(&server, Duration::from_millis(200));
            if let Ok(Ok(mut stream)) = levee_sys::ns::in_net(namespace.as_fd(), dial) {
                let _ = stream.write_all(&noise);
            }
            sent.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(8));
    }
}

/// The uid that it runs under; none of one that has ended meanwhile, as a maker of stores does.
fn uid(process: &host::Process) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next().map(str::to_owned)
}

/// Has every process of the hostile label replaced by its twin: those under uids that nobody had before. The others stay.
fn take_over(world: &World, twins: &Path, before: &BTreeSet<String>) -> Vec<host::Process> {
    let all = host::below(world.server_pid()).into_iter().filter_map(|one| Some((uid(&one)?, one)));
    let (theirs, others): (Vec<_>, Vec<_>) = all.partition(|(uid, _)| !before.contains(uid));
    let theirs: Vec<(String, host::Process)> =
        theirs.into_iter().filter(|(_, one)| TWINS.contains(&one.name.as_str())).collect();
    for program in TWINS {
        assert!(theirs.iter().any(|(_, one)| one.name == program), "no {program} at {HOSTILE}: {theirs:?}");
    }
    let list: String = theirs.iter().map(|(uid, one)| format!("{} {uid}\n", one.name)).collect();
    fs::write(twins.join("hostile"), list).expect("say who is hostile");
    for (_, one) in theirs {
        sh("kill", &["-KILL", &one.pid.to_string()]).ok();
    }
    others.into_iter().map(|(_, one)| one).collect()
}

/// Whoever is at the hostile label asks for it again and again.
fn goes_on_trying(world: &World, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        // It may wait for a minute to be told that the label does not start.
        let mut asked = world.tpe_command("ws4", &["level", HOSTILE]);
        let asked = asked.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut asked = asked.expect("run levee-tpe");
        while !over.load(Ordering::Relaxed) && asked.try_wait().expect("look at it").is_none() {
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = asked.kill();
        asked.wait().expect("reap it");
        if over.load(Ordering::Relaxed) {
            return;
        }
        world.run("ws4", &["curl", "-s", "--max-time", "1", "telnet://www.harbour.example:7"]);
        std::thread::sleep(Duration::from_secs(2));
    }
}

/// What the operator is told.
fn alarms(world: &World) -> Vec<String> {
    let status = world.status();
    let alarms = status["alarms"].as_array().into_iter().flatten();
    alarms.filter_map(|alarm| alarm.as_str().map(str::to_owned)).collect()
}

/// Runs all of it, with an attack that lasts so long.
///
/// # Panics
/// The server does not come up, or anything else is wrong before the attack.
pub fn run(lasts: Duration) -> Findings {
    let mut world = World::new("soak", &site(), &["ws1", "ws2", "ws3", "ws4", "ws5"]);
    let twins = world.replace_by_twins(&TWINS);
    world.start_server();
    for workstation in ["ws1", "ws2", "ws3", "ws4", "ws5"] {
        world.start_workstation(workstation);
    }
    let seats = GOOD.map(|(workstation, label)| Seat {
        workstation: workstation.into(),
        user: "ada".into(),
        label: label.into(),
    });
    for seat in &seats {
        world.login(&seat.workstation, "ada").ok();
        world.level(&seat.workstation, &seat.label).ok();
        assert_eq!(crowd::fault(&world.fetch(&seat.workstation, PAGE), &seat.label, &seats), None);
    }
    let usual: Vec<f64> = (0..7).map(|_| sign_on(&world).expect("a sign-on")).collect();
    let uids = host::below(world.server_pid()).iter().filter_map(uid).collect();
    world.login("ws4", "ada").ok();
    world.level("ws4", HOSTILE).ok();
    // The services of the hostile label begin with their first connection, and answer nothing.
    for port in ["7", "22"] {
        let url = format!("telnet://www.harbour.example:{port}");
        world.run("ws4", &["curl", "-s", "--max-time", "1", &url]);
    }
    let good = take_over(&world, &twins, &uids);

    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    let mut found = Findings::default();
    std::thread::scope(|scope| {
        let (world, over, sent, seats) = (&world, &over, &sent, &seats);
        scope.spawn(move || strangers(world, over, sent));
        scope.spawn(move || goes_on_trying(world, over));
        let people: Vec<_> = seats
            .iter()
            .map(|seat| {
                scope.spawn(move || {
                    let (mut pages, mut lost) = (0, Vec::new());
                    while !over.load(Ordering::Relaxed) {
                        let page = world.fetch(&seat.workstation, PAGE);
                        pages += 1;
                        lost.extend(crowd::fault(&page, &seat.label, seats));
                        std::thread::sleep(Duration::from_millis(500));
                    }
                    (pages, lost)
                })
            })
            .collect();
        let desk = scope.spawn(move || {
            let (mut times, mut lost) = (Vec::new(), Vec::new());
            while !over.load(Ordering::Relaxed) {
                match sign_on(world) {
                    Ok(took) => times.push(took),
                    Err(done) => lost.push(format!("a sign-on: {}", done.err.trim())),
                }
                std::thread::sleep(Duration::from_secs(1));
            }
            (times, lost)
        });
        let mut early: BTreeMap<host::Process, u64> = BTreeMap::new();
        let mut late: BTreeMap<host::Process, u64> = BTreeMap::new();
        while begun.elapsed() < lasts {
            let (quarter, last) = (begun.elapsed() > lasts / 4, begun.elapsed() > lasts * 3 / 4);
            for process in good.iter().filter(|process| process.runs()) {
                let Some(now) = resident(process.pid) else { continue };
                if quarter {
                    early.entry(process.clone()).or_insert(now);
                }
                if last {
                    let most = late.entry(process.clone()).or_insert(now);
                    *most = now.max(*most);
                }
            }
            // A label that rests is told of while it does.
            if found.alarms.is_empty() {
                found.alarms = alarms(world);
            }
            std::thread::sleep((lasts / 40).min(Duration::from_secs(5)));
        }
        over.store(true, Ordering::Relaxed);
        found.lasted = begun.elapsed();
        for (seat, person) in seats.iter().zip(people) {
            let (pages, lost) = person.join().expect("a person");
            found.pages.insert(seat.label.clone(), pages);
            found.lost.extend(lost);
        }
        let (times, lost) = desk.join().expect("the desk");
        found.lost.extend(lost);
        found.sign_on = (median(usual.clone()), median(times.clone()), times.len());
        found.memory = late
            .into_iter()
            .filter_map(|(process, late)| {
                let early = *early.get(&process)?;
                Some(Memory { process: format!("{} {}", process.name, process.pid), early, late })
            })
            .collect();
    });
    found.strangers = sent.load(Ordering::Relaxed);
    for process in good.iter().filter(|process| TWINS.contains(&process.name.as_str()) && !process.runs()) {
        found.lost.push(format!("{} of another label ended", process.name));
    }
    let log = fs::read_to_string(world.log("server")).unwrap_or_default();
    found.ends = log.lines().filter(|line| line.contains(HOSTILE) && line.contains("ended")).count();
    let files = sh("find", &[&text(&world.path("state/logs")), "-type", "f", "-printf", "%s %p\n"]).ok();
    let sizes = files.lines().filter_map(|line| line.split(' ').next()?.parse::<u64>().ok());
    found.largest_log = sizes.max().unwrap_or_default();
    found
}
