//! What each of levee's own processes may use, that it alone ends at its limit, that no memory of a process leaves it for a handler of
//! the host, and that a server ends without a word of alarm.
//!
//! Needs root, python3, curl, nginx-light, iproute2, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::host::{self, Process};
use levee_system::{World, eventually, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
const HIGH: &str = "SECRET//NATO,MED";
const LOW: &str = "UNCLASSIFIED";

fn site(name: &str) -> String {
    SITE.replace("\"harbour\"", &format!("\"{name}\""))
}

/// Levee's own processes that this warden has started, but process 1 of compartments.
fn daemons(warden: u32) -> Vec<Process> {
    // Of one that has just ended, nothing.
    let is_child = |process: &Process| {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
        status.contains(&format!("\nPPid:\t{warden}\n"))
    };
    let all = host::below(warden).into_iter().filter(is_child);
    all.filter(|process| process.name.starts_with("levee-") && process.name != "levee-init").collect()
}

#[test]
fn every_process_of_levee_has_a_group_of_its_own_with_limits_which_status_shows_and_which_goes_with_it() {
    let mut world = World::up("limits", &site("port-limits"), &["ws1", "ws2"]);
    for (workstation, user, label) in [("ws1", "ada", HIGH), ("ws2", "ugo", LOW)] {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
        world.fetch(workstation, PAGE).ok();
    }
    let all = daemons(world.server_pid());
    let mut groups = BTreeMap::new();
    for process in &all {
        let group = host::group(process.pid).unwrap_or_else(|| panic!("{process:?} is in no group"));
        let (usage, limit) = host::group_memory(&group);
        let number = |path: PathBuf| {
            fs::read_to_string(path).expect("a number").trim().parse::<u64>().expect("a number")
        };
        assert!(number(limit) <= 8 << 30, "{group}");
        assert!(number(usage) > 0, "{group}");
        assert_eq!(groups.insert(group, process.pid), None, "{process:?} shares its group");
    }
    for name in ["sessiond", "signer", "keyer", "tps", "vault", "logger", "upflow-snapshot"] {
        assert!(groups.keys().any(|group| group.starts_with(name)), "no {name}: {groups:?}");
    }
    let status = world.status();
    let shown = status["daemons"].as_array().expect("the processes");
    assert_eq!(shown.len(), groups.len(), "{shown:?}");
    for daemon in shown {
        let (used, limit) =
            (daemon["memory"].as_u64().expect("bytes"), daemon["memory_limit"].as_u64().expect("bytes"));
        assert!(used > 0 && used < limit, "{daemon}");
        assert!(
            daemon["processes"].as_u64() >= Some(1) && daemon["process_limit"].as_u64().is_some(),
            "{daemon}"
        );
    }
    let at = |name: &str| -> Vec<&Value> {
        shown.iter().filter(|daemon| daemon["name"] == name).map(|daemon| &daemon["label"]).collect()
    };
    assert_eq!(at("vault"), [HIGH, LOW]);
    assert_eq!(at("sessiond"), [&Value::Null]);
    // A client's child is in the group of the process that it is of.
    let tps = all.iter().find(|process| process.name == "levee-tps").expect("tps");
    let child = host::below(tps.pid).pop().expect("a client's child");
    assert_eq!(host::group(child.pid), host::group(tps.pid));
    world.stop_server();
    for group in groups.keys() {
        assert!(!memory_is_there(group), "{group} is left");
    }
}

fn memory_is_there(group: &str) -> bool {
    ["", "memory", "pids", "unified"].iter().any(|controller| {
        PathBuf::from("/sys/fs/cgroup").join(controller).join("levee/daemons").join(group).exists()
    })
}

#[test]
fn a_process_that_takes_more_memory_than_it_may_is_killed_alone_the_log_says_why_and_the_next_one_serves() {
    let world = World::up("oom", &site("port-oom"), &["ws1", "ws2"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", HIGH).ok();
    let before = daemons(world.server_pid());
    let sessiond = host::child(world.server_pid(), "levee-sessiond");
    // As little as it can do with: the next password is hashed by its other thread, in 19 MiB more.
    let (usage, limit) = host::group_memory(&host::group(sessiond.pid).expect("its group"));
    let used: u64 = fs::read_to_string(usage).expect("bytes").trim().parse().expect("a number");
    (1..=used.div_ceil(1 << 20))
        .rev()
        .map_while(|mib| fs::write(&limit, format!("{mib}M")).ok())
        .for_each(drop);
    world.login("ws2", "ugo");
    eventually(Duration::from_secs(20), "another sessiond", || {
        host::children(world.server_pid(), "levee-sessiond").iter().any(|other| other.pid != sessiond.pid)
    });
    assert!(!sessiond.runs());
    let log = fs::read_to_string(world.log("server")).expect("the warden's log");
    assert!(
        log.contains(
            "levee-sessiond ended: killed by signal 9: it had used all the memory that sessiond may"
        ),
        "{log}"
    );
    let left: Vec<u32> = daemons(world.server_pid()).iter().map(|process| process.pid).collect();
    for process in before.iter().filter(|process| process.pid != sessiond.pid) {
        assert!(left.contains(&process.pid), "{process:?} ended, too");
    }
    // The session is there still, and the next one can hash.
    eventually(Duration::from_secs(30), "ugo signs on", || {
        let done = world.login("ws2", "ugo");
        eprint!("{}", done.err);
        done.status == 0
    });
    world.fetch("ws1", PAGE).ok();
}

/// What the host does with cores, until this goes.
struct Pattern(String);

const PATTERN: &str = "/proc/sys/kernel/core_pattern";

impl Pattern {
    fn set(pattern: &str) -> Self {
        let before = fs::read_to_string(PATTERN).expect("core_pattern");
        fs::write(PATTERN, pattern).expect("set core_pattern");
        Self(before)
    }
}

impl Drop for Pattern {
    fn drop(&mut self) {
        fs::write(PATTERN, self.0.trim_end()).expect("restore core_pattern");
    }
}

const SHELL: &str = r#"
[[service]]
name = "shell"
port = 7000
protocol = "tcp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "direct"
command = ["/usr/bin/python3", "-c", '''
import socket,subprocess
l=socket.socket(fileno=3)
l.setblocking(True)
while True:
    c,a=l.accept()
    d=b""
    while True:
        b=c.recv(65536)
        if not b: break
        d+=b
    p=subprocess.Popen(["/usr/bin/python3","-u","-c",d.decode()],stdout=c.fileno())
    p.wait(); c.sendall(b"status %d" % p.returncode)
    c.shutdown(2); c.close()
''']
"#;

const CLIENT: &str = r#"
import socket,sys
s=socket.create_connection(("10.80.0.1",7000)); s.sendall(sys.argv[1].encode()); s.shutdown(1)
while True:
    b=s.recv(65536)
    if not b: break
    sys.stdout.write(b.decode())
"#;

#[test]
fn no_crash_of_a_service_or_of_levee_carries_memory_to_the_hosts_handler_whatever_limit_it_asks_for() {
    let world = World::up("cores", &(site("port-cores") + SHELL), &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", HIGH).ok();
    let inside = |program: &str| world.run("ws1", &["/usr/bin/python3", "-c", CLIENT, program]).ok();
    assert!(inside("print(1)").contains("status 0"));
    let (handler, seen) = (world.path("handler"), world.path("seen"));
    let script = format!("#!/bin/sh\necho \"$1 $(wc -c)\" >> {}\n", text(&seen));
    levee_system::write_script(&handler, &script);
    let pattern = Pattern::set(&format!("|{} %e", text(&handler)));
    // The handler works: it is given what crashes elsewhere on this host, even with a limit of 0.
    let _ = Command::new("sh").args(["-c", "ulimit -c 0; exec python3 -c 'import os; os.abort()'"]).status();
    eventually(Duration::from_secs(10), "the handler has been called", || seen.exists());
    let crash = "import os,resource
for limit in ((0, 0), (1, 1), (1 << 30, 1 << 30)):
    try: resource.setrlimit(resource.RLIMIT_CORE, limit); print('set', limit)
    except (OSError, ValueError): pass
os.abort()";
    assert_eq!(inside(crash).trim(), "status -6");
    assert_eq!(inside("import os; os.kill(os.getpid(), 11)").trim(), "status -11");
    let warden = world.server_pid();
    for name in ["levee-vault", "levee-keyer", "levee-logger"] {
        let process = host::child(warden, name);
        process.signal("ABRT");
        eventually(Duration::from_secs(10), "it is gone", || !process.runs());
    }
    drop(pattern);
    // Who is told of a crash is told before the process is gone.
    let seen = fs::read_to_string(&seen).expect("what the handler was given");
    let ours = seen.lines().filter(|line| line.starts_with("levee")).count();
    assert_eq!((seen.lines().count(), ours), (1, 0), "{seen}");
}

#[test]
fn a_server_that_is_stopped_says_nothing_of_processes_that_have_not_ended() {
    let mut world = World::up("quietend", &site("port-quiet"), &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", HIGH).ok();
    world.stop_server();
    let log = fs::read_to_string(world.log("server")).expect("the warden's log");
    assert!(!log.contains("has not ended"), "{log}");
}

#[test]
fn where_the_machine_has_no_memory_left_a_labels_processes_give_way_before_levees_own() {
    let world = World::up("gives-way", &(site("port-yields") + SHELL), &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", HIGH).ok();
    let of = |pid: u64| {
        fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))
            .expect("read it")
            .trim()
            .parse::<i32>()
            .expect("a number")
    };
    let init = world.status()["compartments"][0]["init"].as_u64().expect("process 1");
    let warden = world.server_pid();
    for name in ["levee-sessiond", "levee-keyer", "levee-signer"] {
        assert!(of(init) > of(host::child(warden, name).pid.into()), "{name}");
    }
    let inside = |program: &str| world.run("ws1", &["/usr/bin/python3", "-c", CLIENT, program]).ok();
    // What it starts begins the same way: many small processes are no less likely to be ended than one large one of levee's.
    assert!(inside("print(1)").contains("status 0"));
    for process in host::below(init.try_into().expect("a number")) {
        assert_eq!(of(process.pid.into()), of(init), "{}", process.name);
    }
}

/// Connects to itself, writes what fits, and goes: nobody accepts.
const LEAVES: &str = r#"
import socket,time
until=time.time()+60
listeners=[]
while time.time()<until:
    l=socket.socket(); l.setsockopt(socket.SOL_SOCKET,socket.SO_RCVBUF,1<<20); l.bind(("127.0.0.1",0)); l.listen(4096)
    listeners.append(l)
    for n in range(4000):
        c=socket.socket()
        # Where the machine's TCP has no room left a connection may be refused, or end.
        try: c.connect(l.getsockname()); c.settimeout(0); c.send(bytes(300000))
        except OSError: pass
        c.close()
"#;

#[test]
fn who_leaves_connections_that_nobody_accepts_in_memory_that_no_limit_counts_ends_alone() {
    let world = World::up("unaccepted", &(site("port-leaves") + SHELL), &["ws1", "ws2"]);
    for (workstation, user, label) in [("ws1", "ada", HIGH), ("ws2", "ugo", LOW)] {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
        world.fetch(workstation, PAGE).ok();
    }
    let init = |at: &str| {
        let status = world.status();
        let all = status["compartments"].as_array().expect("what runs").clone();
        all.iter().find(|one| one["label"] == at).map(|one| one["init"].as_u64().expect("process 1"))
    };
    let (high, low) = (init(HIGH).expect("it runs"), init(LOW).expect("it runs"));
    assert!(high > 0 && low > 0);
    // Its connection goes with the label, and nobody tells the client.
    let done = world.run("ws1", &["timeout", "20", "/usr/bin/python3", "-c", CLIENT, LEAVES]);
    assert!(!done.out.contains("status"), "{}", done.out);
    eventually(Duration::from_secs(20), "the label has ended, and begun again", || {
        init(HIGH).is_some_and(|now| now > 0 && now != high)
    });
    let log = fs::read_to_string(world.log("server")).expect("the warden's log");
    assert!(log.contains("connections waited there that nobody accepted"), "{log}");
    assert_eq!(init(LOW), Some(low));
    world.fetch("ws2", PAGE).ok();
    let recorded =
        world.levee(&["audit", "show", "--state", &text(&world.path("state")), "--label", HIGH]).ok();
    assert!(recorded.contains("that nobody accepted"), "{recorded}");
    eventually(Duration::from_secs(30), "its session is there still", || {
        world.fetch("ws1", PAGE).status == 0
    });
}
