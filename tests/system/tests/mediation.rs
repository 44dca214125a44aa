//! Connections that a mediator decides about: handed to a server process for each (git's daemon, as inetd would), or
//! relayed to a daemon (nginx). Both are as Debian ships them.

use levee_system::host::{self, Process};
use levee_system::{Done, World, eventually, sh};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
/// `told` says what it has been told, and then all that it hears.
const MORE: &str = r#"
[[service]]
name = "git"
port = 9418
protocol = "tcp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "handoff"
command = ["/usr/lib/git-core/git-daemon", "--inetd", "--export-all", "--base-path=/srv/own"]

[[service]]
name = "told"
port = 7
protocol = "tcp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "handoff"
socket = "listen-fds"
command = ["/bin/sh", "-c", "echo $LISTEN_FDS $(($LISTEN_PID - $$)) $LEVEE_USER $LEVEE_LABEL $REMOTE_ADDR >&3; exec cat <&3 >&3"]
"#;
/// Hears neither the end of its connection nor a polite signal.
const DEAF: &str = r#"
[[service]]
name = "deaf"
port = 9
protocol = "tcp"
range = "SECRET"
mode = "handoff"
command = ["/bin/sh", "-c", "trap '' TERM; echo here; while :; do sleep 60; done"]
"#;
const PAGE: &str = "http://www.harbour.example/";
const LABEL: &str = "SECRET";

/// As [`SITE`], with what is handed off, and with its web service relayed.
fn up(name: &str) -> World {
    up_with(name, &site())
}

fn site() -> String {
    format!("{}{MORE}", SITE.replace("mode = \"direct\"", "mode = \"relay\""))
}

fn up_with(name: &str, site: &str) -> World {
    let world = World::up(name, site, &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LABEL).ok();
    world
}

/// The one compartment that runs, as operators see it.
fn compartment(world: &World) -> serde_json::Value {
    world.status()["compartments"][0].clone()
}

/// Its first process, as the host numbers it.
fn init(world: &World) -> u32 {
    compartment(world)["init"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a compartment")
}

/// What its mediator has counted under this name.
fn counted(world: &World, name: &str) -> u64 {
    let compartment = compartment(world);
    let counters = compartment["counters"].as_array().cloned().unwrap_or_default();
    let count = counters.iter().find(|counter| counter[0] == name);
    count.and_then(|counter| counter[1].as_u64()).unwrap_or(0)
}

/// The server's mediator.
fn mediator(world: &World) -> Process {
    host::child(world.server_pid(), "levee-mediator")
}

/// Runs a command in the compartment, as its services run.
#[track_caller]
fn inside(world: &World, script: &str) -> Done {
    let target = init(world).to_string();
    let ids = ["--setuid", "1000", "--setgid", "1000"];
    let mut all = vec!["--target", &target, "--all"];
    all.extend(ids);
    all.extend(["sh", "-c", script]);
    sh("nsenter", &all)
}

/// A connection of a session's, held open.
struct Open {
    client: Child,
    out: BufReader<ChildStdout>,
}

impl Open {
    #[track_caller]
    fn to(world: &World, port: u16) -> Self {
        Self::from(world, "ws1", port)
    }

    #[track_caller]
    fn from(world: &World, workstation: &str, port: u16) -> Self {
        let address = format!("TCP:www.harbour.example:{port}");
        Self::running(world, workstation, &["socat", "-", &address])
    }

    /// What this program of a session's holds open.
    #[track_caller]
    fn running(world: &World, workstation: &str, command: &[&str]) -> Self {
        let mut command = world.inside(workstation, command);
        let mut client =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start levee-tpe");
        let out = BufReader::new(client.stdout.take().expect("standard output"));
        Self { client, out }
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line
    }

    fn say(&mut self, text: &str) {
        let input = self.client.stdin.as_mut().expect("standard input");
        // Whether anybody hears it is what the test asks.
        let _ = input.write_all(text.as_bytes()).and_then(|()| input.flush());
    }

    /// What comes until the end.
    fn rest(mut self) -> String {
        drop(self.client.stdin.take());
        let mut rest = String::new();
        let _ = self.out.read_to_string(&mut rest);
        let _ = self.client.wait();
        rest
    }
}

#[test]
fn connections_are_handed_to_servers_as_inetd_and_systemd_do_and_relayed_to_a_daemon() {
    let world = up("modes");
    // Relayed to nginx.
    let page = world.fetch("ws1", PAGE).ok();
    assert!(page.contains(&format!("<h1>{LABEL}</h1>")), "{page}");
    // What has no process until somebody comes is in the status all the same, as long as the site file is as it was.
    let handoff = || world.status()["site_file"]["handoff"][LABEL].clone();
    assert_eq!(handoff(), serde_json::json!(["git", "told"]));
    let run = levee_system::text(&world.path("run"));
    let shown = world.levee(&["status", "--run", &run]).ok();
    assert!(shown.contains("git (handoff) told (handoff)"), "{shown}");
    // Handed off as systemd does with Accept=yes.
    let mut told = Open::to(&world, 7);
    let line = told.line();
    assert!(line.starts_with("1 0 ada SECRET 10.80.1."), "{line}");
    told.say("over and out\n");
    assert_eq!(told.rest(), "over and out\n", "the end of one way leaves the other open");
    // Handed off as inetd does: a repository that the label's own store has.
    let script = "set -e; cd /srv/own; export HOME=/tmp; git init -q -b main book; cd book; echo once > page; git add page; \
                  git -c user.name=a -c user.email=a@b commit -qm one";
    inside(&world, script).ok();
    let clone = "cd /tmp && git clone -q git://www.harbour.example/book && cat book/page";
    assert_eq!(world.run("ws1", &["sh", "-c", clone]).ok(), "once\n");
    eventually(Duration::from_secs(5), "every connection has ended", || {
        counted(&world, "connections open") == 0
    });
    assert_eq!(counted(&world, "connections handed off"), 2);
    assert_eq!(counted(&world, "connections relayed"), 1);
}

#[test]
fn it_is_the_same_over_ipv6() {
    let site = site().replace("\"10.80.0.1\"", "\"fd80::1\"").replace("\"10.80.1.0/24\"", "\"fd80:1::/64\"");
    let world = up_with("modes-six", &site);
    assert!(world.fetch("ws1", PAGE).ok().contains(&format!("<h1>{LABEL}</h1>")));
    let mut told = Open::to(&world, 7);
    let line = told.line();
    assert!(line.starts_with("1 0 ada SECRET fd80:1::"), "{line}");
    told.rest();
}

#[test]
fn logging_out_ends_what_was_handed_off_or_relayed_before_it_is_acknowledged_and_every_grant_is_in_the_log() {
    ends_and_is_in_the_log("modes-end", &format!("{}{DEAF}", site()));
}

#[test]
fn it_is_the_same_where_grants_are_written_and_synced_soon_after() {
    let site = format!("{}{DEAF}", site());
    let written = ["relay", "handoff"].iter().fold(site, |site, mode| {
        let mode = format!("mode = \"{mode}\"\n");
        site.replace(&format!("\n{mode}"), &format!("\naudit = \"written\"\n{mode}"))
    });
    assert_eq!(written.matches("audit = \"written\"").count(), 4);
    ends_and_is_in_the_log("modes-soon", &written);
}

fn ends_and_is_in_the_log(name: &str, site: &str) {
    let world = up_with(name, site);
    let mut told = Open::to(&world, 7);
    told.line();
    let mut deaf = Open::to(&world, 9);
    assert_eq!(deaf.line(), "here\n");
    // The daemon waits for a request that does not come.
    let page = Open::to(&world, 80);
    eventually(Duration::from_secs(5), "all are open", || counted(&world, "connections open") == 3);
    let (init, mediator) = (init(&world), mediator(&world));
    let servers = host::below(init).into_iter().filter(|process| ["cat", "sh"].contains(&&*process.name));
    let servers = servers.collect::<Vec<_>>();
    assert_eq!(servers.len(), 2);
    world.tpe("ws1", &["logout"]).ok();
    let net = format!("--net=/proc/{init}/ns/net");
    let left = sh("nsenter", &[&net, "ss", "-Htn", "state", "established"]).ok();
    assert_eq!(left, "", "connections outlive the session");
    assert_eq!(counted(&world, "connections ended with their session"), 3);
    eventually(Duration::from_secs(8), "the server processes have ended", || {
        servers.iter().all(|s| !s.runs())
    });
    assert!(mediator.runs());
    drop((told.rest(), page.rest(), deaf.rest()));

    let log =
        world.levee(&["audit", "show", "--json", "--state", &levee_system::text(&world.path("state"))]).ok();
    for service in ["told", "web", "deaf"] {
        let granted = log.lines().filter(|line| {
            line.contains("\"action\":\"connect\"")
                && line.contains(&format!("\"object\":\"{service}\""))
                && line.contains("\"user\":\"ada\"")
                && line.contains("\"host\":\"ws1\"")
                && line.contains("granted")
        });
        assert_eq!(granted.count(), 1, "{service}: {log}");
    }
}

#[test]
fn who_has_no_session_is_refused_and_counted_and_a_mediator_that_dies_takes_its_connections_with_it() {
    let world = up("modes-none");
    let net = format!("--net=/proc/{}/ns/net", init(&world));
    // A program of the compartment's own has no session.
    for port in [7, 80] {
        let to = format!("TCP:10.80.0.1:{port},connect-timeout=2");
        assert_eq!(sh("nsenter", &[&net, "socat", "-u", &to, "-"]).out, "");
    }
    assert_eq!(counted(&world, "connections refused: no record"), 2);
    assert_eq!(counted(&world, "connections handed off") + counted(&world, "connections relayed"), 0);
    // And nobody but the mediator reaches the daemon, which has not even been started.
    assert!(host::below(init(&world)).iter().all(|process| process.name != "nginx"));

    let mut told = Open::to(&world, 7);
    told.line();
    // It has said its line before it becomes `cat`.
    let server = || host::below(init(&world)).into_iter().find(|process| process.name == "cat");
    eventually(Duration::from_secs(5), "there is a server process", || server().is_some());
    let server = server().expect("a server process");
    let first = mediator(&world);
    first.kill();
    eventually(Duration::from_secs(5), "the server process has ended", || !server.runs());
    assert_eq!(told.rest(), "");
    // Whoever comes while it ends is cut off with the others.
    let is_another = || {
        host::below(world.server_pid()).iter().any(|one| one.name == "levee-mediator" && one.pid != first.pid)
    };
    eventually(Duration::from_secs(10), "there is another mediator", is_another);
    // It has the same listeners, and is told of the session that there is.
    let mut again = Open::to(&world, 7);
    assert!(again.line().starts_with("1 0 ada "));
    assert!(!first.runs() && mediator(&world).runs());
    assert!(world.fetch("ws1", PAGE).ok().contains(LABEL));
    drop(again.rest());
}

#[test]
fn no_more_connections_are_handed_off_at_a_time_than_half_of_the_processes_and_the_last_is_for_somebody_else()
{
    let site = site().replace("processes = 256", "processes = 8");
    let world = World::up("modes-most", &site, &["ws1", "ws2"]);
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.login(workstation, user).ok();
        world.level(workstation, "CONFIDENTIAL").ok();
    }
    let of = |workstation: &str| Open::from(&world, workstation, 7);
    let mut open: Vec<Open> = (0..3).map(|_| of("ws1")).collect();
    open.iter_mut().for_each(|one| drop(one.line()));
    assert_eq!(of("ws1").rest(), "");
    assert_eq!(counted(&world, "connections refused: too many of one person or host"), 1);
    let mut hers = of("ws2");
    assert!(hers.line().starts_with("1 0 mia "));
    assert_eq!(of("ws2").rest(), "");
    assert_eq!(counted(&world, "connections refused: too many"), 1);
    // Each has one, and so the next that is left is for nobody who has one already; of two, one is for whoever asks.
    open.drain(1..).for_each(|one| drop(one.rest()));
    eventually(Duration::from_secs(5), "there is room for another", || {
        let mut another = of("ws1");
        let came = another.line().starts_with("1 0 ada ");
        another.rest();
        came
    });
    open.into_iter().chain([hers]).for_each(|one| drop(one.rest()));
}

/// Says again what it hears, to whoever connects.
const ECHO: &str = r#"
[[service]]
name = "echo"
port = 7000
protocol = "tcp"
range = "SECRET"
mode = "relay"
software = ["python3"]
command = ["/usr/bin/python3", "-c", '''
import os, selectors, socket
wait = selectors.DefaultSelector()
listeners = [socket.socket(fileno=3 + n) for n in range(int(os.environ["LISTEN_FDS"]))]
for listener in listeners:
    wait.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in wait.select():
        try:
            if key.fileobj in listeners:
                wait.register(key.fileobj.accept()[0], selectors.EVENT_READ)
                continue
            said = key.fileobj.recv(100)
            key.fileobj.send(said)
        except OSError:
            said = b""
        if not said:
            wait.unregister(key.fileobj)
            key.fileobj.close()
''']
"#;

/// Opens connections to it, some at a time, each used once, until one is refused; says how many it has, and uses each again when it is
/// told to.
const MANY: &str = r#"
import socket, sys
def used(number, one):
    try:
        one.sendall(b"%8d" % number)
        return one.recv(8, socket.MSG_WAITALL) == b"%8d" % number
    except ConnectionError:
        return False
every, more = [], 100
while more == 100:
    some = [socket.create_connection(("www.harbour.example", 7000), 60) for _ in range(100)]
    good = [one for number, one in enumerate(some) if used(number, one)]
    every += good
    more = len(good)
print(len(every), flush=True)
sys.stdin.readline()
print(sum(used(number, one) for number, one in enumerate(every)), flush=True)
sys.stdin.readline()
for one in every[2000:]:
    one.close()
print(len(every[:2000]), flush=True)
sys.stdin.readline()
"#;

/// The descriptors that a mediator is given (80,000, where root may raise what it was started with), and how many connections of one
/// person it relays with them: four fifths of a sixth, when 1,024 and half of the processes are left out.
fn most_of_one_person() -> u64 {
    const WANTED: u64 = 80_000;
    let can_raise = sh("prlimit", &[&format!("--nofile={WANTED}:{WANTED}"), "true"]).status == 0;
    let has = || sh("prlimit", &["--nofile", "--output=HARD", "--noheadings"]).ok().trim().parse().ok();
    let given = if can_raise { WANTED } else { has().map_or(WANTED, |has: u64| has.min(WANTED)) };
    let most = ((given - 1024 - 128) / 6).min(12_500);
    (4 * most - 4).div_ceil(5)
}

#[test]
fn ten_thousand_connections_of_one_person_are_relayed_at_once_where_there_are_descriptors_in_little_memory() {
    let most = most_of_one_person();
    // In an emulated machine the trusted path may be silent for long meanwhile.
    let site = SITE.replace("connections = 50", "connections = 100000").replace("\"30s\"", "\"30m\"");
    let echo = ECHO.replace("mode = \"relay\"", "mode = \"relay\"\naudit = \"written\"");
    assert!(site.contains("grace = \"30m\"") && echo.contains("written"));
    let world = up_with("modes-many", &format!("{site}{echo}"));
    let mediator = mediator(&world);
    let inside = world.inside("ws1", &["python3", "-c", MANY]);
    let mut client = std::process::Command::new("prlimit");
    client.arg("--nofile=12000:12000").arg(inside.get_program()).args(inside.get_args());
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start prlimit");
    let out = BufReader::new(client.stdout.take().expect("standard output"));
    let mut open = Open { client, out };
    assert_eq!(open.line(), format!("{most}\n"));
    assert_eq!(counted(&world, "connections relayed"), most);
    assert_eq!(counted(&world, "connections open"), most);
    assert!(counted(&world, "connections refused: too many of one person or host") > 0);
    open.say("\n");
    assert_eq!(open.line(), format!("{most}\n"));
    let resident: u64 = mediator.status("VmRSS").trim_end_matches(" kB").trim().parse().expect("a number");
    let (usage, _) = host::group_memory(&host::group(mediator.pid).expect("its group"));
    let usage = std::fs::read_to_string(usage).expect("its memory");
    let all: u64 = usage.trim().parse().expect("a number");
    println!(
        "{most} relayed: {resident} KiB resident, {} KiB with what the kernel counts as its own",
        all >> 10
    );
    // 256 MiB for 10,000.
    assert!(all / most < (256 << 20) / 10_000, "the mediator's group has {all} bytes for {most}");
    // Those that are left at the end have a second to be over, also where a processor is emulated.
    open.say("\n");
    let left: u64 = open.line().trim().parse().expect("a number");
    eventually(Duration::from_secs(900), "the others are over", || {
        counted(&world, "connections open") == left
    });
    world.tpe("ws1", &["logout"]).ok();
    assert_eq!(counted(&world, "connections open"), 0);
    assert_eq!(counted(&world, "connections ended with their session"), left);
}

#[test]
fn a_mediator_is_sandboxed_under_an_own_uid_and_in_a_network_without_anybody() {
    let world = up("modes-box");
    let mediator = mediator(&world);
    for (what, is) in [("Seccomp", "2"), ("NoNewPrivs", "1"), ("CapEff", "0000000000000000")] {
        assert_eq!(mediator.status(what), is, "{what}");
    }
    let vault = host::child(world.server_pid(), "levee-vault");
    assert_ne!(mediator.status("Uid"), vault.status("Uid"));
    let inside = Process::find(init(&world)).expect("a compartment");
    for other in [&inside, &vault] {
        assert_ne!(mediator.namespace("net"), other.namespace("net"));
    }
    let net = format!("--net=/proc/{}/ns/net", mediator.pid);
    let links = sh("nsenter", &[&net, "ip", "-br", "link"]).ok();
    assert_eq!(links.lines().count(), 1, "{links}");
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", mediator.pid)).expect("a running process");
    let targets: Vec<String> = descriptors
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .filter(|target| target.starts_with('/'))
        .collect();
    assert!(targets.is_empty(), "{targets:?}");
}

/// Server processes that wait for a connection: children of process 1 that are still a copy of it.
fn ready(init: u32) -> Vec<Process> {
    let own = Process::find(init).expect("a compartment").name;
    host::children(init, &own)
}

#[test]
fn server_processes_wait_ready_only_for_a_service_that_is_used_and_what_befalls_them_keeps_nobody_else() {
    let mut world = up("modes-ready");
    let init = init(&world);
    assert_eq!(ready(init), [], "nobody has used anything");
    let ask = |world: &World| {
        let mut told = Open::to(world, 7);
        let line = told.line();
        (told, line)
    };
    ask(&world).0.rest();
    let two = |what: &str| eventually(Duration::from_secs(5), what, || ready(init).len() == 2);
    two("two wait for the next connections, and none for git's");
    for one in ready(init) {
        assert_eq!(one.status("NoNewPrivs"), "1");
        assert_eq!(one.status("CapEff"), "0000000000000000");
        assert_ne!(one.status("Uid"), Process::find(init).expect("a compartment").status("Uid"));
        // Its filter is on top of the compartment's.
        let filters = |process: &Process| process.status("Seccomp_filters").parse::<u32>().expect("a number");
        assert!(filters(&one) > filters(&Process::find(init).expect("a compartment")));
    }
    // One of those serves the next connection, for whom it is.
    let before: Vec<u32> = ready(init).into_iter().map(|process| process.pid).collect();
    let (told, line) = ask(&world);
    assert!(line.starts_with("1 0 ada SECRET 10.80.1."), "{line}");
    // That of the connection before may still be there.
    let serves = |process: Process| process.name == "cat" && before.contains(&process.pid);
    eventually(Duration::from_secs(5), "one of those serves", || host::below(init).into_iter().any(serves));
    told.rest();
    // Killed by somebody at the label, they cost the next connection nothing but time.
    two("another has taken its place");
    ready(init).iter().for_each(Process::kill);
    let (told, line) = ask(&world);
    assert!(line.starts_with("1 0 ada SECRET 10.80.1."), "{line}");
    told.rest();
    // One that is stopped keeps its own connection, and neither process 1 nor the end of the session.
    two("and others again");
    ready(init).iter().for_each(|process| process.signal("STOP"));
    let stuck = [Open::to(&world, 7), Open::to(&world, 7)];
    eventually(Duration::from_secs(5), "both are handed off", || counted(&world, "connections open") == 2);
    let (told, line) = ask(&world);
    assert!(line.starts_with("1 0 ada SECRET 10.80.1."), "{line}");
    told.rest();
    world.tpe("ws1", &["logout"]).ok();
    eventually(Duration::from_secs(8), "the stopped ones have ended", || {
        counted(&world, "connections open") == 0
    });
    stuck.into_iter().for_each(|one| drop(one.rest()));
    // They end with their mediator and with the label.
    let old = ready(init);
    assert!(!old.is_empty());
    mediator(&world).kill();
    eventually(Duration::from_secs(5), "they have ended", || !old.iter().any(Process::runs));
    world.login("ws1", "ada").ok();
    world.level("ws1", LABEL).ok();
    ask(&world).0.rest();
    two("two wait");
    let last = ready(init);
    world.stop_server();
    assert!(!last.iter().any(Process::runs));
}

/// As a service that is taken over: takes the address of another as soon as nothing listens there, and answers in its place.
const TAKE: &str = r#"
import socket, time
address = (socket.gethostbyname('www.harbour.example'), 7)
while True:
    time.sleep(0.001)
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind(address)
        taken.listen()
    except OSError:
        taken.close()
        continue
    while True:
        connection, _ = taken.accept()
        connection.sendall(b'taken\n')
        connection.close()
"#;

#[test]
fn while_a_mediator_rests_nobody_at_its_label_gets_the_addresses_of_its_services() {
    let mut world = up_with("taken", &format!("{}{ECHO}", site()));
    let target = init(&world).to_string();
    let mut taker = std::process::Command::new("nsenter")
        .args(["--target", &target, "--all", "--setuid", "1000", "--setgid", "1000", "python3", "-c", TAKE])
        .spawn()
        .expect("start nsenter");
    let rests = || world.status()["alarms"].to_string().contains("ends again and again");
    eventually(Duration::from_secs(30), "the mediator rests", || {
        host::children(world.server_pid(), "levee-mediator").iter().for_each(Process::kill);
        rests()
    });
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(Open::to(&world, 7).rest(), "", "nobody has decided about this connection");
    eventually(Duration::from_secs(30), "a mediator decides again", || {
        let mut told = Open::to(&world, 7);
        let line = told.line();
        told.rest();
        assert!(!line.contains("taken"), "{line}");
        line.starts_with("1 0 ada SECRET 10.80.1.")
    });
    taker.kill().and_then(|()| taker.wait()).expect("end nsenter");
    world.stop_server();
}

/// A daemon behind a mediator that is taken over: of two connections that the mediator has made to it, it undoes one, and uses its socket,
/// which is of the mediator's network, to connect to the web server of its label under another session's address.
const THIEF: &str = r#"
[[service]]
name = "thief"
port = 7001
protocol = "tcp"
range = "SECRET"
mode = "relay"
software = ["python3"]
command = ["/usr/bin/python3", "-c", '''
import ctypes, socket
listener = socket.socket(fileno=3)
listener.setblocking(True)
tells, used = listener.accept()[0], listener.accept()[0]
undone = ctypes.CDLL(None).connect(used.fileno(), bytes(16), 16)
used.settimeout(3)
try:
    used.bind(("10.80.1.99", 0))
    used.connect(("10.80.0.1", 80))
    said = "connected as " + used.getsockname()[0]
except OSError as e:
    said = type(e).__name__
tells.sendall(f"{undone} {said}\n".encode())
''']
"#;

#[test]
fn a_daemon_behind_a_mediator_connects_to_no_other_in_the_mediators_network() {
    let mut world = up_with("thief", &format!("{}{THIEF}", site()));
    let mut tells = Open::to(&world, 7001);
    eventually(Duration::from_secs(10), "it is relayed", || counted(&world, "connections open") == 1);
    let used = Open::to(&world, 7001);
    assert_eq!(tells.line(), "0 TimeoutError\n");
    [tells, used].into_iter().for_each(|one| drop(one.rest()));
    world.stop_server();
}

/// Says as much as is taken, to whoever connects.
const FLOOD: &str = r#"
[[service]]
name = "flood"
port = 7001
protocol = "tcp"
range = "CONFIDENTIAL//MED"
mode = "relay"
software = ["python3"]
command = ["/usr/bin/python3", "-c", '''
import os, selectors, socket
wait = selectors.DefaultSelector()
listeners = [socket.socket(fileno=3 + n) for n in range(int(os.environ["LISTEN_FDS"]))]
for listener in listeners:
    wait.register(listener, selectors.EVENT_READ)
much = bytes(1 << 20)
while True:
    for key, _ in wait.select():
        if key.fileobj in listeners:
            one = key.fileobj.accept()[0]
            one.setblocking(False)
            wait.register(one, selectors.EVENT_WRITE)
            continue
        try:
            key.fileobj.send(much)
        except BlockingIOError:
            pass
        except OSError:
            wait.unregister(key.fileobj)
            key.fileobj.close()
''']
"#;

/// Opens so many connections to it, one after another, and reads so much of each, fast, and then nothing more. Says how long that took, and ends when it
/// is told to.
const READS: &str = r#"
import socket, sys, time
begun, every = time.time(), []
for _ in range(int(sys.argv[1])):
    one, left = socket.create_connection(("www.harbour.example", 7001), 60), int(sys.argv[2])
    every.append(one)
    while left > 0:
        left -= len(one.recv(1 << 20))
print(time.time() - begun, flush=True)
sys.stdin.readline()
"#;

#[test]
fn who_leaves_forty_relayed_connections_unread_takes_little_room_and_none_of_what_others_read() {
    let world = World::up("modes-unread", &format!("{}{FLOOD}", site()), &["ws1", "ws2"]);
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.login(workstation, user).ok();
        world.level(workstation, "CONFIDENTIAL//MED").ok();
    }
    let reads = |workstation: &str, connections: &str, octets: &str| {
        let mut open = Open::running(&world, workstation, &["python3", "-c", READS, connections, octets]);
        let took: f64 = open.line().trim().parse().expect("seconds");
        (open, took)
    };
    let alone = reads("ws2", "1", "20000000").1;
    let (unread, _) = reads("ws1", "40", "3000000");
    let beside = reads("ws2", "1", "20000000").1;
    let (usage, _) = host::group_memory(&host::group(mediator(&world).pid).expect("its group"));
    // Where sockets are counted by themselves, and where they are a line of all.
    let alone_counted = std::fs::read_to_string(usage.with_file_name("memory.kmem.tcp.usage_in_bytes"));
    let all = std::fs::read_to_string(usage.with_file_name("memory.stat")).expect("its memory");
    let line = || all.lines().find_map(|line| line.strip_prefix("sock ")).map(str::to_owned);
    let kept: u64 = alone_counted.ok().or_else(line).expect("its sockets").trim().parse().expect("a number");
    println!("20 MB in {alone:.2} s, beside {} KiB in {beside:.2} s", kept >> 10);
    // Less than half of all that the mediator's group has for sockets where they are counted by themselves, 192 MiB, which sixty such connections had.
    assert!(kept < 96 << 20, "{kept} octets are kept of what nobody reads");
    assert!(beside < 8.0, "20 MB took {beside:.1} s, and {alone:.1} s before");
    drop(unread.rest());
}

/// Reads nothing of its first connection until it has a second: says then what was there and what came after all, and sends more that nobody asked for.
const LATE: &str = r#"
[[service]]
name = "late"
port = 7002
protocol = "tcp"
range = "CONFIDENTIAL//MED"
mode = "relay"
software = ["python3"]
command = ["/usr/bin/python3", "-c", '''
import array, fcntl, os, select, socket, termios, time
listeners = [socket.socket(fileno=3 + n) for n in range(int(os.environ["LISTEN_FDS"]))]
first, second = [select.select(listeners, [], [])[0][0].accept()[0] for _ in range(2)]
there, came = array.array("i", [0]), 0
fcntl.ioctl(first, termios.FIONREAD, there)
first.settimeout(2)
try:
    while octets := len(first.recv(1 << 20)):
        came += octets
except OSError:
    pass
second.sendall(b"%d %d\n" % (there[0], came) + bytes(60000))
second.close()
while True:
    time.sleep(60)
''']
"#;

/// Sends until it has waited for a second, or says what it hears first, its own end, and then nothing until it is told to; and
/// stays until it is told to go.
const TO_LATE: &str = r#"
import socket, sys
one = socket.socket()
one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
one.settimeout(30)
one.connect(("www.harbour.example", 7002))
if sys.argv[1] == "sends":
    one.settimeout(1)
    try:
        while True:
            one.send(bytes(1 << 20))
    except OSError:
        print("it waits", flush=True)
else:
    print(one.recv(64).split(b"\n")[0].decode(), flush=True)
    one.shutdown(socket.SHUT_WR)
    sys.stdin.readline()
    while one.recv(1 << 20):
        pass
    print("all", flush=True)
sys.stdin.readline()
"#;

#[test]
fn nothing_of_a_connection_passes_after_its_session_and_what_is_not_taken_of_one_that_is_over_counts_as_its_persons()
 {
    let world = World::up("modes-late", &format!("{}{LATE}", site()), &["ws1", "ws2"]);
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.login(workstation, user).ok();
        world.level(workstation, "CONFIDENTIAL//MED").ok();
    }
    let mut sends = Open::running(&world, "ws1", &["python3", "-c", TO_LATE, "sends"]);
    assert_eq!(sends.line(), "it waits\n");
    world.tpe("ws1", &["logout"]).ok();
    assert_eq!(counted(&world, "connections open"), 0);
    let mut hears = Open::running(&world, "ws2", &["python3", "-c", TO_LATE, "hears"]);
    let heard = hears.line();
    let numbers: Vec<u64> =
        heard.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    let [there, came] = *numbers.as_slice() else { panic!("{heard}") };
    assert!(there > 0 && came == there, "{} octets passed after the session", came.saturating_sub(there));
    // The daemon has closed and the client has said its end: what it does not read waits at the mediator.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(counted(&world, "connections open"), 1);
    hears.say("\n");
    assert_eq!(hears.line(), "all\n");
    eventually(Duration::from_secs(5), "it is over", || counted(&world, "connections open") == 0);
    drop((sends.rest(), hears.rest()));
}

/// So many connections that begin a request and never end it; says when they are there, and stays.
const BEGINS: &str = r#"
import socket, time
there = []
while len(there) < 1200:
    there.append(socket.create_connection(("www.harbour.example", 80), 3))
    there[-1].sendall(b"GET / HT")
    if len(there) > 450: time.sleep(0.021)
print("there", flush=True)
time.sleep(20)
"#;

#[test]
fn who_begins_a_thousand_requests_and_ends_none_leaves_others_the_pages_of_their_level() {
    let world = World::up("begins", &site(), &["ws1", "ws2"]);
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.login(workstation, user).ok();
        world.level(workstation, "CONFIDENTIAL//MED").ok();
    }
    let mut begins = world.inside("ws1", &["python3", "-c", BEGINS]);
    let mut begins = begins.stdout(Stdio::piped()).spawn().expect("a program that begins requests");
    let mut said = String::new();
    let told = begins.stdout.take().expect("what it says");
    BufReader::new(told).read_line(&mut said).expect("that they are there");
    assert_eq!(said, "there\n");
    for _ in 0..5 {
        assert!(world.fetch("ws2", PAGE).ok().contains("<h1>CONFIDENTIAL//MED</h1>"));
    }
    assert!(begins.try_wait().expect("whether it goes on").is_none(), "they are there still");
    begins.kill().expect("end it");
    begins.wait().expect("its end");
}
