//! The laboratory on this host's kernel: real namespaces, real sockets, real counters. Needs root and iproute2.

use levee_lab::client::Target;
use levee_lab::counters::{Net, NetDelta};
use levee_lab::netns::{Group, Namespace, tool};
use levee_lab::sample::{Flag, Ledger, Rules, Sample, judge};
use levee_lab::workload::{Closer, Kind, Outcome, Task};
use levee_lab::{design::Layout, sample::Load};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const LAB: &str = env!("CARGO_BIN_EXE_levee-lab");
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 214, 0, 2);

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A pair of namespaces with a server in one.
struct Pair {
    server: Killed,
    client: Namespace,
    there: Namespace,
}

fn pair(part: &str) -> Pair {
    let client = Namespace::new(&format!("{part}a")).expect("root and iproute2 (apt-get install iproute2)");
    let there = Namespace::new(&format!("{part}b")).expect("root");
    client.link(&there, Ipv4Addr::new(10, 214, 0, 1), SERVER, "eth0").expect("veth");
    let mut child = Command::new(LAB)
        .args(["serve", "--listen", "10.214.0.2:7000", "--close", "10.214.0.2:7001", "--congestion", "cubic"])
        .args(["--with-parent", "--netns"])
        .arg(there.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the server");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    Pair { server: Killed(child), client, there }
}

fn task(kind: Kind) -> Task {
    Task {
        kind,
        seconds: 0.2,
        warmup: 0.02,
        write_size: 65_536,
        datagram: 1_344,
        fetch: 65_536,
        open_rate: None,
        closer: Closer::Server,
        congestion: "cubic".into(),
        sources: Vec::new(),
    }
}

fn client(p: &Pair, t: &Task, more: &[&str]) -> Output {
    Command::new(LAB)
        .args(["client", "--task", &serde_json::to_string(t).expect("a task is JSON")])
        .args(["--target", "10.214.0.2:7000", "--close", "10.214.0.2:7001", "--netns"])
        .arg(p.client.path())
        .args(more)
        .output()
        .expect("run the client")
}

fn measured(o: &Output) -> Outcome {
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    serde_json::from_slice(&o.stdout).expect("the client prints an outcome")
}

fn flags(o: &Outcome, layout: Layout) -> Vec<Flag> {
    let load = Load { wall: 0.25, ..Load::default() };
    judge(Some(o), Some(&NetDelta::default()), None, &load, &Rules::default(), layout, Some(0)).0
}

#[test]
fn every_workload_measures_and_the_congestion_control_is_that_of_both_ends() {
    let p = pair("w");
    for kind in Kind::ALL {
        let o = measured(&client(&p, &task(kind), &[]));
        assert!(o.value > 0.0 && o.seconds > 0.0, "{o:?}");
        if !matches!(kind, Kind::UdpStream | Kind::UdpRr) {
            assert_eq!(o.congestion.as_deref(), Some("cubic"), "{kind}");
            assert_eq!(o.server_congestion.as_deref(), Some("cubic"), "{kind}");
        }
        if let Some(l) = &o.latency {
            // the histogram holds every transaction, and its median agrees with the rate
            assert_eq!(l.count(), o.transactions, "{kind}");
            let mean = o.seconds / o.transactions as f64 * 1e9;
            let median = l.quantile(0.5).expect("not empty") as f64;
            assert!(median < 3.0 * mean, "{kind}: median {median}, mean {mean}");
        }
    }
}

#[test]
fn an_open_loop_offers_its_rate_and_charges_a_stall_to_every_request_it_delays() {
    const STALL: Duration = Duration::from_millis(50);
    let p = pair("o");
    let server = p.server.0.id();
    let segments = || Net::read(&server.to_string()).expect("root").values["Tcp.InSegs"];
    let stalled = |t: Task| {
        let before = segments();
        std::thread::scope(|scope| {
            let client = scope.spawn(|| measured(&client(&p, &t, &[])));
            while segments() < before + 100 {
                std::thread::sleep(Duration::from_millis(1));
            }
            tool("kill", &["-STOP", &server.to_string()]).expect("kill");
            std::thread::sleep(STALL);
            tool("kill", &["-CONT", &server.to_string()]).expect("kill");
            client.join().expect("the client")
        })
    };
    let late = |o: &Outcome| {
        let l = o.latency.as_ref().expect("latencies");
        let slow = l.buckets.iter().filter(|b| b.0 > 10_000_000).map(|b| b.1).sum::<u64>();
        (slow, l.quantile(0.99).expect("some"), l.quantile(1.0).expect("some"))
    };
    let open = stalled(Task { open_rate: Some(2000.0), warmup: 0.0, seconds: 0.5, ..task(Kind::TcpRr) });
    assert_eq!(open.transactions, 1000);
    assert!((open.value / 2000.0 - 1.0).abs() < 0.25, "{}", open.value);
    // 100 requests fell due in the stall, each waited for what was left of it: 80 of them for more than 10 ms. A busy host stops the
    // server a little after it was told to.
    let (slow, p99, longest) = late(&open);
    assert!(slow >= 50 && p99 >= 25_000_000 && longest >= 35_000_000, "{slow} {p99} {longest}");
    // a closed loop has one request under way, and so shows a stall to one
    let closed = stalled(Task { warmup: 0.0, seconds: 0.3, ..task(Kind::TcpRr) });
    let (slow, p99, longest) = late(&closed);
    assert!(slow < 20 && p99 < 10_000_000 && longest >= 35_000_000, "{slow} {p99} {longest}");
}

#[test]
fn datagrams_that_vanish_unseen_break_the_ledger_and_the_trial_is_flagged() {
    let p = pair("u");
    let counted = || {
        let server = p.server.0.id().to_string();
        let before = Net::read(&server).expect("root");
        let o = measured(&client(&p, &Task { seconds: 0.2, ..task(Kind::UdpStream) }, &[]));
        let moved = Net::read(&server).expect("root").since(&before);
        let l = Ledger::of(&o, &o.net.expect("counters"), &moved, None).expect("datagrams");
        let load = Load { wall: 1.0, ..Load::default() };
        (l, judge(Some(&o), Some(&moved), Some(&l), &load, &Rules::default(), Layout::Together, Some(0)).0)
    };
    // On a busy host the server may not have read yet what waits at its socket, which is counted when it is read: another try.
    let again = || {
        std::thread::sleep(Duration::from_millis(100));
        counted()
    };
    let (l, flags) = std::iter::once(counted())
        .chain(std::iter::repeat_with(again).take(20))
        .find(|(l, _)| l.missing == 0)
        .expect("a ledger that balances");
    assert!(l.sent > 100 && l.sent == l.wire, "{l:?}");
    assert_eq!(l.wire, l.device_drops + l.socket_drops + l.other_drops + l.read, "{l:?}");
    assert!(!flags.contains(&Flag::Ledger), "{l:?}");
    // a filter that drops one in sixteen, by the last byte of its number, is counted by none of these
    let rules = "add table ip t; add chain ip t c { type filter hook input priority 0; }; \
                 add rule ip t c udp dport 7000 udp length > 100 @th,192,8 & 15 == 0 drop";
    tool("ip", &["netns", "exec", &p.there.name, "nft", rules]).expect("nftables");
    let (l, flags) = counted();
    assert!(l.missing > 10 && flags.contains(&Flag::Ledger), "{l:?} {flags:?}");
}

#[test]
fn a_congestion_control_that_the_server_does_not_use_fails_the_trial() {
    let p = pair("g");
    let o = client(&p, &Task { congestion: "reno".into(), ..task(Kind::TcpRr) }, &[]);
    assert!(!o.status.success());
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(said.contains("the server's congestion control is cubic, not reno"), "{said}");
}

#[test]
fn connections_leave_time_wait_with_the_side_that_closes_first() {
    let p = pair("t");
    for kind in [Kind::TcpCc, Kind::TcpCrr] {
        let o = measured(&client(&p, &task(kind), &[]));
        assert_eq!(o.time_wait, Some((0, 0)), "{kind}: the server closes first");
        assert!(flags(&o, Layout::Together).is_empty());
    }
    let t = Task { closer: Closer::Client, seconds: 0.05, ..task(Kind::TcpCc) };
    let o = measured(&client(&p, &t, &[]));
    let (before, after) = o.time_wait.expect("readable");
    assert!(after > before, "the client closed first: {before} {after}");
    assert_eq!(flags(&o, Layout::Together), [Flag::TimeWait], "and would be rejected");
}

#[test]
fn a_contended_processor_is_seen_by_the_client_itself() {
    let p = pair("c");
    let spin = "while :; do :; done";
    let _busy =
        Killed(Command::new("taskset").args(["-c", "0", "sh", "-c", spin]).spawn().expect("util-linux"));
    std::thread::sleep(Duration::from_millis(100));
    let o = measured(&client(&p, &task(Kind::TcpRr), &["--cpu", "0"]));
    assert!(flags(&o, Layout::Apart).contains(&Flag::Contended), "waited {:?}", o.waited);
}

#[test]
fn a_role_is_taken_before_the_program_that_measures_runs() {
    let ns = Namespace::new("ro").expect("root and iproute2");
    let group = Group::new("ro").expect("root").expect("cgroup v2");
    let o = Command::new(LAB)
        .args(["become", "--cpu", "0", "--netns"])
        .arg(ns.path())
        .arg("--cgroup")
        .arg(group.path())
        .args(["--", "sh", "-c", "nproc; ip -o link; cat /proc/self/cgroup"])
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&o.stdout).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.first(), Some(&"1"), "one processor: {said}");
    assert_eq!(said.matches("mtu").count(), 1, "the loopback device alone: {said}");
    let own = group.path().file_name().expect("a name").to_string_lossy().into_owned();
    assert!(lines.iter().any(|l| l.starts_with("0::") && l.ends_with(&own)), "{said}");
    assert!(group.seconds() > Some(0.0), "its time is counted");
}

#[test]
fn the_server_serves_one_connection_that_inetd_hands_it() {
    let l = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let mut near = TcpStream::connect(l.local_addr().expect("bound")).expect("connect");
    let (far, _) = l.accept().expect("accept");
    let mut child = Command::new(LAB)
        .args(["serve", "--inetd"])
        .stdin(Stdio::from(OwnedFd::from(far)))
        .stdout(Stdio::null())
        .spawn()
        .expect("start");
    near.write_all(b"e12").expect("write");
    near.shutdown(Shutdown::Write).expect("shutdown");
    let mut back = Vec::new();
    near.read_to_end(&mut back).expect("read");
    assert_eq!(back, b"e12");
    assert!(child.wait().expect("wait").success());
}

#[test]
fn the_server_takes_a_listener_that_listen_fds_passes() {
    let l = TcpListener::bind("127.0.0.1:0").expect("loopback");
    l.set_nonblocking(true).expect("as a warden passes them");
    let to = l.local_addr().expect("bound");
    let _server = Killed(
        Command::new(LAB)
            .args(["serve", "--passed"])
            .envs([("LISTEN_FDS", "1"), ("LISTEN_FDS_FIRST_FD", "0")])
            .stdin(Stdio::from(OwnedFd::from(l)))
            .stdout(Stdio::null())
            .spawn()
            .expect("start"),
    );
    for _ in 0..3 {
        let mut s = TcpStream::connect(to).expect("connect");
        s.write_all(b"c").expect("write");
        let mut back = Vec::new();
        s.read_to_end(&mut back).expect("read");
        assert_eq!(back, b"c");
    }
}

#[test]
fn connections_come_from_one_address_after_the_other() {
    let p = pair("r");
    let first = Ipv4Addr::new(10, 214, 0, 192);
    p.client.addresses(&p.there, first, 26, Ipv4Addr::new(10, 214, 0, 1), "eth0").expect("iproute2");
    let sources = (192..208).map(|d| Ipv4Addr::new(10, 214, 0, d)).collect();
    let o = measured(&client(&p, &Task { sources, ..task(Kind::TcpCc) }, &[]));
    assert!(o.transactions >= 16 && flags(&o, Layout::Together).is_empty(), "{o:?}");
    // the server closes first, so it still knows whom it served
    let there = p.there.name.as_str();
    let said = tool("ip", &["netns", "exec", there, "ss", "-Htn", "state", "time-wait"]).expect("iproute2");
    let peers: std::collections::BTreeSet<_> =
        said.lines().filter_map(|l| l.split_whitespace().nth(3)?.rsplit_once(':')).map(|(a, _)| a).collect();
    assert_eq!(peers.iter().filter(|a| a.starts_with("10.214.0.")).count(), 16, "{peers:?}");
}

/// A mediator in a namespace, with a listener made there.
fn mediator(ns: &Namespace, scheme: &str, port: u16, close: bool) -> Killed {
    let at = SocketAddr::from((SERVER, port));
    let file = fs::File::open(ns.path()).expect("the namespace");
    let listener = std::thread::spawn(move || {
        let net = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(file.as_fd(), net).expect("root");
        TcpListener::bind(at).expect("bind")
    });
    let listener = listener.join().expect("the thread");
    listener.set_nonblocking(true).expect("as a warden passes them");
    let mut c = Command::new("nsenter");
    c.arg(format!("--net={}", ns.path().display())).arg(LAB).args(["mediate", "--scheme", scheme]);
    c.args(close.then_some("--close"));
    c.envs([("LISTEN_FDS", "1"), ("LISTEN_FDS_FIRST_FD", "0")]);
    let mut child = c.stdin(OwnedFd::from(listener)).stdout(Stdio::piped()).spawn().expect("util-linux");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n", "{scheme}");
    Killed(child)
}

#[test]
fn every_scheme_of_mediation_carries_every_tcp_workload_and_leaves_the_client_no_time_wait() {
    let near = Namespace::new("ma").expect("root and iproute2");
    let far = Namespace::new("mb").expect("root");
    near.link(&far, Ipv4Addr::new(10, 214, 0, 1), SERVER, "eth0").expect("veth");
    for ns in [&near, &far] {
        levee_lab::netns::pin_congestion(&ns.path(), "cubic").expect("iproute2");
    }
    for (i, scheme) in ["inetd", "proxy", "spawn-copy"].into_iter().enumerate() {
        let port = 7000 + 10 * i as u16;
        let _all = mediator(&far, scheme, port, false);
        let _close = mediator(&far, scheme, port + 1, true);
        let target = format!("{SERVER}:{port}");
        let close = format!("{SERVER}:{}", port + 1);
        for kind in [Kind::TcpStream, Kind::TcpMaerts, Kind::TcpRr, Kind::TcpCc, Kind::TcpCrr, Kind::TcpFetch]
        {
            let t = task(kind);
            let trial = || {
                let o = Command::new(LAB)
                    .args(["client", "--task", &serde_json::to_string(&t).expect("a task is JSON")])
                    .args(["--target", &target, "--close", &close, "--netns"])
                    .arg(near.path())
                    .output()
                    .expect("run the client");
                assert!(o.status.success(), "{scheme} {kind}: {}", String::from_utf8_lossy(&o.stderr));
                let o = measured(&o);
                assert!(o.value > 0.0, "{scheme} {kind}: {o:?}");
                o
            };
            let mut o = trial();
            if let Kind::TcpCc | Kind::TcpCrr | Kind::TcpFetch = kind {
                // On a busy host both ends may close a connection at the same moment; a trial with such a one does not count.
                for _ in 0..3 {
                    if !flags(&o, Layout::Together).is_empty() {
                        o = trial();
                    }
                }
                assert!(
                    flags(&o, Layout::Together).is_empty(),
                    "{scheme} {kind}: the server closes first: {o:?}"
                );
            }
        }
    }
}

const TINY: &str = r#"
name = "tiny"
title = "Tiny"
question = "Does a run work?"
[[arm]]
name = "base"
baseline = true
drive = { path = "link", mediation = "none", session = "here" }
[[arm]]
name = "other server"
drive = { path = "link", mediation = "none", session = "elsewhere" }
[[workload]]
kind = "TCP_CRR"
[[workload]]
kind = "UDP_STREAM"
[form.quick]
blocks = 4
seconds = 0.06
warmup = 0.01
layouts = ["together"]
"#;

fn samples(dir: &Path) -> Vec<Sample> {
    let text = fs::read_to_string(dir.join("samples.ndjson")).expect("samples");
    text.lines().map(|l| serde_json::from_str(l).expect("a sample")).collect()
}

fn leftovers(pid: u32) -> Vec<String> {
    let name = format!("levlab{pid}");
    let list = tool("ip", &["netns", "list"]).expect("iproute2");
    list.lines()
        .filter(|l| l.strip_prefix(&name).is_some_and(|r| !r.starts_with(|c: char| c.is_ascii_digit())))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_run_that_is_stopped_keeps_what_it_measured_and_resumes_to_its_report() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("tiny.toml");
    fs::write(&file, TINY).expect("write");
    let out = dir.path().join("run");
    let run = |more: &[&str]| {
        let mut c = Command::new(LAB);
        c.arg("run")
            .arg(&file)
            .arg("--out")
            .arg(&out)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        c
    };
    let child = run(&["--seed", "7"]).spawn().expect("start");
    let pid = child.id();
    while samples_so_far(&out) < 3 {
        std::thread::sleep(Duration::from_millis(20));
    }
    tool("kill", &["-INT", &pid.to_string()]).expect("kill");
    let o = child.wait_with_output().expect("wait");
    assert_eq!(o.status.code(), Some(130), "{}", String::from_utf8_lossy(&o.stderr));
    assert!(leftovers(pid).is_empty(), "{:?}", leftovers(pid));
    let kept = samples(&out);
    assert!(kept.iter().filter(|s| s.accepted).count() < 24, "stopped before its end");

    // a kill in the middle of a line, too, costs that line only
    let mut f = fs::OpenOptions::new().append(true).open(out.join("samples.ndjson")).expect("open");
    f.write_all(b"{\"schema\":1,\"seq\":").expect("write");
    let o = run(&["--resume"]).output().expect("resume");
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(o.status.success() && said.contains("trial 24/24") && said.contains("0:00 to go"), "{said}");
    let all = samples(&out);
    assert_eq!(all[..kept.len()], kept[..], "what was measured is kept");
    let mut done: Vec<usize> = all.iter().filter(|s| s.accepted).map(|s| s.trial).collect();
    let n = done.len();
    done.dedup();
    assert_eq!(done.len(), n, "no trial twice");
    assert!(done.windows(2).all(|w| w[0] < w[1]));
    // 4 blocks of 2 workloads of 3 arms; a broken trial may be missing, and then says why
    let missing = 24 - n;
    let rejected =
        all.iter().filter(|s| !s.accepted && s.flags.iter().any(|f| *f != Flag::Contended)).count();
    assert!(missing * 2 <= rejected, "{missing} missing, {rejected} rejected");
    for file in ["manifest.json", "env.json", "samples.csv", "summary.json", "report.html"] {
        assert!(out.join(file).exists(), "{file}");
    }
    let page = fs::read_to_string(out.join("report.html")).expect("the page");
    for outside in ["src=\"http", "url(http", "<script", "@import", "<link"] {
        assert!(!page.contains(outside), "the page needs nothing else: {outside}");
    }
}

#[test]
fn in_the_papers_mode_the_client_closes_first_and_a_signal_ends_the_wait() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("connections.toml");
    let udp = "[[workload]]\nkind = \"UDP_STREAM\"\n";
    assert!(TINY.contains(udp));
    fs::write(&file, TINY.replace(udp, "").replace("blocks = 4", "blocks = 3")).expect("write");
    let run = |out: &Path, more: &[&str]| {
        let mut c = Command::new(LAB);
        c.arg("run").arg(&file).arg("--out").arg(out).args(more);
        c.stdout(Stdio::piped()).stderr(Stdio::piped());
        c
    };
    let short = dir.path().join("short");
    let o = run(&short, &["--wait", "0.05"]).output().expect("run");
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let all = samples(&short);
    for s in &all {
        assert!(!s.flags.contains(&Flag::TimeWait), "the mode allows it: {s:?}");
        let (before, after) = s.outcome.as_ref().and_then(|o| o.time_wait).expect("readable");
        assert!(after > before, "the client closes first: {before} {after}");
    }
    assert_eq!(all.iter().filter(|s| s.accepted).count(), 9);

    let long = dir.path().join("long");
    let mut child = run(&long, &["--two-minutes"]).spawn().expect("start");
    while !long.join("env.json").exists() {
        assert!(child.try_wait().expect("wait").is_none(), "it ended before its first trial");
        std::thread::sleep(Duration::from_millis(20));
    }
    tool("kill", &["-INT", &child.id().to_string()]).expect("kill");
    let o = child.wait_with_output().expect("wait");
    assert_eq!(o.status.code(), Some(130), "{}", String::from_utf8_lossy(&o.stderr));
    assert!(samples(&long).is_empty(), "the wait before the first trial was not sat through");
}

/// Other people's tools, each on what it can do.
#[test]
fn every_second_opinion_is_asked_on_the_same_link_and_counted_in_the_same_groups() {
    let arm = |name: &str, more: &str| {
        let drive = "drive = { path = \"link\", mediation = \"none\", session = \"here\" }";
        format!("[[arm]]\nname = \"{name}\"\n{more}\n{drive}\n")
    };
    let mut text =
        String::from("name = \"others\"\ntitle = \"Others\"\nquestion = \"Do the tools answer?\"\n");
    text.push_str(&arm("ours", "baseline = true"));
    let tools = [("iperf3", "TCP_STREAM_SELECT"), ("qperf", "TCP_RR"), ("wrk", "TCP_HTTP")];
    for (name, _) in tools {
        text.push_str(&arm(name, &format!("tool = \"{name}\"")));
    }
    // each once: tools count whole seconds
    tools
        .iter()
        .for_each(|(_, kind)| text.push_str(&format!("[[workload]]\nkind = \"{kind}\"\nevery = 3\n")));
    text.push_str("[form.quick]\nblocks = 3\nseconds = 0.1\nwarmup = 0.01\nlayouts = [\"apart\"]\n");
    let dir = tempfile::tempdir().expect("a directory");
    let (file, out) = (dir.path().join("others.toml"), dir.path().join("run"));
    fs::write(&file, text).expect("write");
    let o = Command::new(LAB).arg("run").arg(&file).arg("--out").arg(&out).output().expect("run");
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(o.status.success() && !said.contains("absent"), "apt-get install iperf3 qperf wrk: {said}");
    let all = samples(&out);
    for (name, workload) in tools {
        let of: Vec<_> = all.iter().filter(|s| s.arm == name).collect();
        assert!(of.iter().all(|s| s.workload == workload), "{name} is asked for what it can do");
        assert!(of.iter().any(|s| s.accepted), "{name}: {:?}", of.iter().map(|s| &s.why).collect::<Vec<_>>());
        // a second at work is no background, but the time of the roles
        for s in of {
            assert!(s.load.client > Some(0.0) && s.load.server > Some(0.0), "{name}: {:?}", s.load);
            assert!(s.warmup > Some(0.0), "{name}: the path was not warmed");
            let o = s.outcome.as_ref().expect("it measured");
            assert!(o.cpu_seconds > 0.0 && o.seconds == 1.0, "{name}: {o:?}");
            assert!(o.time_wait.is_some(), "the counters are read as for ours");
            // wrk closes first now and then, on a busy host often; no port is taken over
            assert_eq!(o.net.expect("counters").tw_reused, 0, "{name}: {o:?}");
        }
    }
    assert!(all.iter().all(|s| s.warmup.is_none() == (s.arm == "ours")));
}

#[test]
fn every_arm_that_levee_takes_part_in_comes_up_measures_and_leaves_nothing() {
    let beside = Path::new(LAB).with_file_name("levee-warden");
    assert!(beside.exists(), "{} is not built: cargo build --workspace --bins", beside.display());
    let arm = |name: &str, path: &str, mediation: &str| {
        let base = if name == "base" { "baseline = true\n" } else { "" };
        let drive = format!("path = \"{path}\", mediation = \"{mediation}\", session = \"here\"");
        format!("[[arm]]\nname = \"{name}\"\n{base}drive = {{ {drive} }}\n")
    };
    let mut text = String::from("name = \"levee\"\ntitle = \"levee\"\nquestion = \"Do the arms come up?\"\n");
    let ways = [
        ("base", "link", "none"),
        ("bare behind the tunnel", "tunnel", "none"),
        ("direct over a link", "link", "direct"),
        ("direct", "tunnel", "direct"),
        ("inetd", "tunnel", "inetd"),
        ("proxy", "link", "proxy"),
        ("spawn-copy", "tunnel", "spawn-copy"),
        ("handoff", "tunnel", "handoff"),
        ("relay over a link", "link", "relay"),
        ("handoff, written", "link", "handoff-written"),
        ("relay, written", "tunnel", "relay-written"),
    ];
    ways.iter().for_each(|(n, p, m)| text.push_str(&arm(n, p, m)));
    text.push_str("[[workload]]\nkind = \"TCP_CRR\"\n[[workload]]\nkind = \"UDP_STREAM\"\n");
    text.push_str("[form.quick]\nblocks = 3\nseconds = 0.05\nwarmup = 0.01\nlayouts = [\"together\"]\n");
    let dir = tempfile::tempdir().expect("a directory");
    let (file, out) = (dir.path().join("levee.toml"), dir.path().join("run"));
    fs::write(&file, text).expect("write");
    let child = Command::new(LAB)
        .arg("run")
        .arg(&file)
        .arg("--out")
        .arg(&out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let pid = child.id();
    let o = child.wait_with_output().expect("wait");
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(o.status.success() && !said.contains("absent"), "{said}");
    let all = samples(&out);
    for (name, path, mediation) in ways {
        for workload in ["TCP_CRR", "UDP_STREAM"] {
            let by_connection = !matches!(mediation, "none" | "direct");
            let of: Vec<_> = all.iter().filter(|s| s.arm == name && s.workload == workload).collect();
            if by_connection && workload == "UDP_STREAM" {
                assert!(of.is_empty(), "{name} is for connections");
                continue;
            }
            for l in of.iter().filter(|s| s.accepted).filter_map(|s| s.ledger.as_ref()) {
                assert_eq!(l.opened.is_some(), path == "tunnel", "{name}: {l:?}");
                let through = l.opened.unwrap_or(l.wire - l.device_drops);
                assert_eq!(through, l.read + l.socket_drops + l.other_drops, "{name}: {l:?}");
            }
            let good = of.iter().any(|s| s.accepted);
            assert!(good, "{name} {workload}: {:?}", of.iter().map(|s| &s.why).collect::<Vec<_>>());
        }
    }
    assert!(leftovers(pid).is_empty(), "{:?}", leftovers(pid));
    for place in ["/usr/local/share", "/tmp"] {
        let is_left = |name: &str| name.starts_with(&format!("levlab{pid}"));
        let names =
            fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| is_left(name)).collect::<Vec<_>>(), [""; 0], "{place}");
    }
}

fn samples_so_far(out: &Path) -> usize {
    fs::read_to_string(out.join("samples.ndjson")).map_or(0, |t| t.lines().count())
}

#[test]
fn a_target_that_nobody_serves_is_an_error_in_words() {
    let none =
        Target { all: SocketAddr::from(([127, 0, 0, 1], 1)), close: SocketAddr::from(([127, 0, 0, 1], 1)) };
    let e = levee_lab::client::run(&task(Kind::TcpCrr), none).expect_err("refused");
    assert!(e.to_string().contains("refused"), "{e}");
}
