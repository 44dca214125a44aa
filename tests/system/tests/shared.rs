//! What two labels have in common: of everything that a process is born with, nothing but what is listed here, with its reason.
//!
//! Needs root, python3, curl, socat, nginx-light, iproute2, and levee's own programs (`cargo build --workspace --bins`).

mod shell;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};

use levee_system::host::{self, Process};
use levee_system::things::{things, told};
use levee_system::{World, sh, text};
use shell::inside;

/// Who works at which label; the first dominates the second.
const AT: [(&str, &str, &str); 2] = [("ws1", "ada", "SECRET//NATO,MED"), ("ws2", "mia", "CONFIDENTIAL//MED")];

/// A process for each connection, which stays as long as that does.
const HELD: &str = r#"
[[service]]
name = "held"
port = 7
protocol = "tcp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "handoff"
audit = "written"
command = ["/bin/cat"]
"#;

/// With each way for a connection to reach its service: directly, relayed, handed off.
fn site(name: &str) -> String {
    let small = include_str!("../../../conf/small/site.toml").replace("\"harbour\"", &format!("\"{name}\""));
    let relayed = small.replace("mode = \"direct\"", "mode = \"relay\"\naudit = \"written\"");
    assert_ne!(relayed, small);
    relayed + HELD + &shell::site("")
}

/// A server at which somebody works at each label.
struct Up {
    world: World,
    /// Who holds a connection that was handed off.
    holders: Vec<Child>,
}

impl std::ops::Deref for Up {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

fn up(name: &str) -> Up {
    let world = World::up(name, &site(&format!("port-{name}")), &["ws1", "ws2"]);
    let mut holders = Vec::new();
    for (workstation, user, label) in AT {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
        world.fetch(workstation, "http://www.harbour.example/").ok();
        assert_eq!(inside(&world, workstation, "print(1 + 1)").trim(), "2");
        let mut held = world.inside(workstation, &["socat", "-", "TCP:www.harbour.example:7"]);
        let mut holder = held.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start socat");
        let said = b"a connection that stays\n";
        holder.stdin.as_mut().expect("standard input").write_all(said).expect("say something");
        let mut back = vec![0; said.len()];
        holder.stdout.as_mut().expect("standard output").read_exact(&mut back).expect("it comes back");
        assert_eq!(back, said);
        holders.push(holder);
    }
    Up { world, holders }
}

/// The two labels' programs at once, each told when to begin.
fn both(world: &World, above: &str, below: &str) -> [String; 2] {
    let start = sh("python3", &["-c", "import time; print(time.time() + 3)"]).ok();
    let at = |program: &str| format!("T0={start}\n{program}");
    std::thread::scope(|scope| {
        let one = scope.spawn(|| inside(world, "ws1", &at(above)));
        let other = inside(world, "ws2", &at(below));
        [one.join().expect("the program above"), other]
    })
}

#[test]
fn what_a_service_above_logs_is_read_by_nobody_below_and_its_log_is_neither_emptied_nor_locked() {
    let world = up("logs");
    // Through what it has as standard error: a text above, and what can be read of it below.
    let [_, below] = both(
        &world,
        "import os,time\nwhile time.time()<T0: pass\nos.write(2,b'\\n@@@@the ship arrives at noon\\n'*64); print('written')",
        r#"
import os,time
got=b""
for name in (0, 1, 2, "/proc/self/fd/2", "/dev/stderr"):
    try: fd=os.open(name, os.O_RDONLY) if isinstance(name, str) else name
    except OSError: continue
    os.set_blocking(fd, False)
    end=time.time()+1
    while time.time()<T0+2 or time.time()<end:
        for take in (lambda: os.pread(fd, 1<<20, 0), lambda: os.read(fd, 1<<20)):
            try: got+=take()
            except OSError: pass
        time.sleep(.05)
try: os.ftruncate(2, 0); print("emptied")
except OSError: pass
print("read", len(got), b"arrives" in got)
"#,
    );
    assert_eq!(below.trim(), "read 0 False");

    // Locks on what every process has as standard input (open file description locks, fcntl(2)).
    let above = r#"
import os,fcntl,struct,time
LOCK=lambda kind: struct.pack("hhqqi4x",kind,0,4242,1,0)
bits=[int(x) for x in "".join(f"{b:08b}" for b in b"the ship arrives at noon")]
for i,b in enumerate(bits):
    while time.time()<T0+i*0.02: pass
    for fd in (0, 2):
        for kind in (1 if b else 2, 0 if b else 2):
            try: fcntl.fcntl(fd,37,LOCK(kind)); break
            except OSError: pass
time.sleep(.1); print("sent",len(bits))
"#;
    let below = r#"
import os,fcntl,struct,time
seen=0
for i in range(24*8):
    while time.time()<T0+i*0.02+0.015: pass
    for fd in (0, 2):
        try: seen+=struct.unpack("hhqqi4x",fcntl.fcntl(fd,36,struct.pack("hhqqi4x",1,0,4242,1,0)))[0]!=2
        except OSError: pass
print("seen",seen)
"#;
    let [above, below] = both(&world, above, below);
    assert_eq!((above.trim(), below.trim()), ("sent 192", "seen 0"));

    // What was written is in the label's own log, and in no other.
    let log = |label: &str| world.levee(&["log", label, "--state", &text(&world.path("state"))]).ok();
    assert!(log(AT[0].2).contains("shell: @@@@the ship arrives at noon\n"), "{}", log(AT[0].2));
    assert!(!log(AT[1].2).contains("@@@@"));
}

/// A process, and the label that it is of.
struct Placed {
    process: Process,
    label: &'static str,
    /// It is one of levee's own, not in the compartment.
    own: bool,
}

/// Every process of either label: what is in the compartments, and what levee runs for the label outside of them, which is known by
/// its uid.
fn placed(world: &World) -> Vec<Placed> {
    let status = world.status();
    let warden = world.server_pid();
    let all = host::below(warden);
    // Of one that has just ended, none.
    let uid = |process: &Process| -> Option<u32> {
        let status = read(process.pid, "status");
        status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok())
    };
    let base = uid(&host::child(warden, "levee-sessiond")).expect("sessiond's uid") - 1;
    let mut found = Vec::new();
    for (_, _, label) in AT {
        let compartments = status["compartments"].as_array().expect("compartments");
        let compartment = compartments.iter().find(|c| c["label"] == label).expect("it runs");
        let number = |key: &str| u32::try_from(compartment[key].as_u64().expect("a number")).expect("small");
        let (init, slot) = (number("init"), number("slot"));
        let first = Process::find(init).expect("process 1");
        let inside = std::iter::once(first).chain(host::below(init));
        found.extend(inside.map(|process| Placed { process, label, own: false }));
        let own = all.iter().filter(|process| {
            let offset = uid(process).map(|uid| uid.wrapping_sub(base));
            offset.is_some_and(|offset| (0x1000..0x1_0000).contains(&offset) && offset & 0xfff == slot)
        });
        found.extend(own.cloned().map(|process| Placed { process, label, own: true }));
    }
    for (_, _, label) in AT {
        let names: Vec<&str> =
            found.iter().filter(|p| p.label == label).map(|p| p.process.name.as_str()).collect();
        for name in [
            "levee-init",
            "levee-vault",
            "levee-mediator",
            "levee-logger",
            "levee-upflow",
            "nginx",
            "cat",
            "python3",
        ] {
            assert!(names.contains(&name), "no {name} at {label}: {names:?}");
        }
    }
    found
}

fn read(pid: u32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What may be common, and why that tells nobody anything.
fn allowed(thing: &str, of: &Placed) -> bool {
    // Every open file of these kinds has the one inode. That no open file is common is asked of the kernel below; that there is one
    // inode is one of the channels that `quiet` is about.
    let anonymous = thing.starts_with("inode ") && thing.contains("anon_inode:");
    // Of no compartment and without a name in any: nobody can change it.
    let time = thing.starts_with("namespace time");
    if anonymous || time {
        return true;
    }
    // Its program and its libraries are the host's: process 1 is levee's, and a service has no name for what that maps.
    let of_process_1 = thing.starts_with("page ") && of.process.name == "levee-init";
    // What follows is of levee's own processes alone. Landlock lets them open nothing, and their filters let them lock and watch
    // nothing (no flock, no fcntl but F_GETFD, no inotify, no word of a page on which they would wait or wake: sys
    // `no_two_processes_of_levees_meet_on_a_page_of_their_program`), so that a common inode, page or mount is only a name.
    let of_levees = of.own
        && (["mnt", "pid", "pid_for_children", "cgroup", "user"]
            .iter()
            .any(|kind| thing.starts_with(&format!("namespace {kind}:")))
            || thing.starts_with("mount ")
            || thing.starts_with("page ")
            || thing.starts_with("directory cwd")
            || thing.starts_with("directory root")
            || (thing.starts_with("inode ") && thing.ends_with("/dev/net/tun"))
            // Low is read by who dominates it: the snapshot is what one stage of upflow writes and the other reads.
            || (thing.starts_with("inode ") && of.process.name == "levee-upflow"));
    of_process_1 || of_levees
}

#[test]
fn no_two_labels_have_an_open_file_an_inode_a_mount_a_namespace_a_group_a_session_or_a_uid_in_common() {
    let world = up("shared");
    let all = placed(&world);
    let mut seen: BTreeMap<String, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
    let mut compared = BTreeSet::new();
    for one in &all {
        for (thing, places) in things(&one.process) {
            compared.insert(thing.split(' ').next().unwrap_or_default().to_owned());
            // What is allowed is allowed where everybody who has it is levee's own.
            if !allowed(&thing, one) {
                seen.entry(thing).or_default().entry(one.label).or_default().extend(places);
            }
        }
    }
    for kind in
        ["inode", "page", "directory", "namespace", "mount", "control", "session", "process", "uid", "gid"]
    {
        assert!(compared.contains(kind), "no {kind} was looked at: {compared:?}");
    }
    let common: Vec<String> = seen
        .iter()
        .filter(|(_, labels)| labels.len() > 1)
        .map(|(thing, labels)| format!("{thing}: {labels:?}"))
        .collect();
    assert!(common.is_empty(), "two labels have in common:\n{}", common.join("\n"));

    // Whatever their inodes are: no open file of one is one of the other's, nor one of the warden's standard ones.
    let files = |label: &str| -> Vec<(u32, u32)> {
        let of = all.iter().filter(|p| p.label == label).map(|p| p.process.pid);
        of.flat_map(|pid| {
            let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            entries.filter_map(move |e| Some((pid, e.file_name().to_str()?.parse().ok()?)))
        })
        .collect()
    };
    let (above, below) = (files(AT[0].2), files(AT[1].2));
    let warden = world.server_pid();
    let standard = (0..3).map(|fd| (warden, fd)).collect::<Vec<_>>();
    let mut pairs = String::new();
    let every = above.iter().flat_map(|a| below.iter().map(move |b| (a, b)));
    let outer = above.iter().chain(&below).flat_map(|a| standard.iter().map(move |b| (a, b)));
    for ((p, f), (q, g)) in every.chain(outer) {
        pairs.push_str(&format!("{p} {f} {q} {g}\n"));
    }
    assert!(above.len() > 20 && below.len() > 20, "{} and {} descriptors", above.len(), below.len());
    assert_eq!(told("shared.py", pairs), "", "the same open file");

    // A Unix socket has the names and interfaces of the network in which it was made, whoever has it.
    let inside = all.iter().filter(|one| !one.own).map(|one| (one.process.pid, one));
    let inside: BTreeMap<u32, &Placed> = inside.collect();
    let theirs = above.iter().chain(&below).filter(|(pid, _)| inside.contains_key(pid));
    let sockets = told("sockets.py", theirs.map(|(pid, fd)| format!("{pid} {fd}\n")).collect());
    let mediators = all.iter().filter(|one| one.process.name == "levee-mediator");
    let between: BTreeMap<&str, String> =
        mediators.map(|one| (one.label, one.process.namespace("net"))).collect();
    let mut seen = 0;
    for line in sockets.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let network = fs::read_link(format!("/proc/{}/ns/net", words[0]));
        // Of one that has ended meanwhile nothing is known.
        let Ok(network) = network else { continue };
        let of = inside[&words[0].parse::<u32>().expect("a number")];
        // Or of the network between the label's mediator and the daemons that it relays to, where a listener of theirs can accept and nothing else.
        let networks = [Some(text(&network)), between.get(of.label).cloned()];
        assert!(
            networks.contains(&Some(format!("net:[{}]", words[2]))),
            "descriptor {} of {} at {} is of the network {}, and not of {networks:?}",
            words[1],
            of.process.name,
            of.label,
            words[2]
        );
        seen += 1;
    }
    assert!(seen >= 6, "sockets of both labels were looked at:\n{sockets}");
}

#[test]
fn every_process_of_a_label_begins_the_same_way_however_the_server_was_started() {
    let world = up("birth");
    let mut mediators = None;
    for placed in placed(&world) {
        let (process, pid) = (&placed.process, placed.process.pid);
        let name = format!("{} {pid} at {}", process.name, placed.label);
        let stat = read(pid, "stat");
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        assert_eq!(fields[4], "0", "{name} has a terminal");
        // Nothing but what the site says and what says which descriptors are a service's.
        // (nginx writes its title over its environment.)
        let environment = if process.name == "nginx" { String::new() } else { read(pid, "environ") };
        for entry in environment.split('\0').filter(|entry| !entry.is_empty()) {
            let known = [
                "PATH=/usr/bin:/usr/sbin",
                "LISTEN_FDS=",
                "LISTEN_PID=",
                "LEVEE_LABEL=",
                "NGINX=",
                "LC_CTYPE=C.UTF-8",
                // Of a process for a connection: whose that is.
                "LEVEE_USER=",
                "REMOTE_ADDR=",
                "REMOTE_PORT=",
            ];
            assert!(!placed.own && known.iter().any(|k| entry.starts_with(k)), "{name} has {entry}");
        }
        assert_eq!(process.status("Umask"), "0022", "{name}");
        assert_eq!(process.status("NoNewPrivs"), "1", "{name}");
        // Blocked is what it blocks itself: process 1 and nginx wait for signals.
        let blocked = u64::from_str_radix(&process.status("SigBlk"), 16).expect("a mask");
        let own = if process.name == "levee-init" { 1 << 16 } else { 0 };
        assert_eq!(blocked & !own, 0, "{name} blocks {blocked:x}");
        // SIGPIPE by Rust's and Python's runtimes, SIGXFSZ by Python's, SIGSYS and SIGPIPE by nginx.
        let ignored = u64::from_str_radix(&process.status("SigIgn"), 16).expect("a mask");
        assert_eq!(ignored & !(1 << 12 | 1 << 24 | 1 << 30), 0, "{name} ignores {ignored:x}");
        let limits = read(pid, "limits");
        let limit = |what: &str| {
            let line = limits.lines().find(|l| l.starts_with(what)).unwrap_or_else(|| panic!("no {what}"));
            line[what.len()..].split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(limit("Max core file size"), ["1", "1"], "{name}");
        // A mediator's are its connections, as many as the host gives: the same at each label.
        let files = match process.name.as_str() {
            "levee-logger" => "2048".to_owned(),
            "levee-mediator" => {
                mediators.get_or_insert_with(|| limit("Max open files").swap_remove(0)).clone()
            }
            _ => "16384".to_owned(),
        };
        assert_eq!(limit("Max open files"), [files.as_str(), &files], "{name}");
        // A logger writes files, and none may be larger than its logs are.
        let written = if process.name == "levee-logger" { "1048576" } else { "unlimited" };
        for (what, hard) in [
            ("Max cpu time", "unlimited"),
            ("Max file size", written),
            ("Max address space", "unlimited"),
            ("Max realtime priority", "0"),
        ] {
            assert_eq!(limit(what)[1], hard, "{name}: {what}");
        }
        // Standard descriptors lead to nobody: nothing is read, and what is written goes to the label's logger alone.
        for number in 0..3 {
            let place = format!("/proc/{pid}/fd/{number}");
            let Ok(link) = fs::read_link(&place) else { continue };
            let link = text(&link);
            // (nginx makes its standard input /dev/null itself, and what the shell starts has its connection.)
            let known = ["/dev/null", "pipe:", "socket:"].iter().any(|known| link.starts_with(known));
            assert!(known, "{name}: descriptor {number} is {link}");
            assert!(!placed.own || link.starts_with("pipe:"), "{name}: descriptor {number} is {link}");
        }
    }
}
