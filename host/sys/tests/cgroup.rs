//! What a control group's limits hold, with processes that try to have more. Needs root.

mod within;

use levee_sys::cgroup::{Cgroup, Limits};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

/// A group's memory, in bytes.
const MEMORY: u64 = 64 << 20;
/// Set for the process that is in the group: what it is to fill.
const FILL: &str = "LEVEE_TEST_FILL";
/// A test that has this process do that.
const FILLS: &str = "what_waits_in_sockets_is_within_a_groups_limit";

/// Sends into connections that nobody reads; returns the bytes that wait there. Ends where nothing more is taken, or at twice the limit.
fn fill_tcp() -> u64 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (mut held, mut waits) = (Vec::new(), 0);
    for _ in 0..300 {
        let Ok(mut from) = TcpStream::connect(address) else { break };
        from.set_nonblocking(true).unwrap();
        let (to, _) = listener.accept().unwrap();
        loop {
            match from.write(&[0; 65_536]) {
                Ok(bytes) => waits += bytes as u64,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => panic!("{e}"),
            }
            if waits > 2 * MEMORY {
                return waits;
            }
        }
        held.push((from, to));
    }
    waits
}

/// The same with datagrams. What is not taken is dropped, so what is there is counted by receiving it.
fn fill_udp() -> u64 {
    let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let sockets: Vec<UdpSocket> = (0..900)
        .map(|_| {
            let to = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address: SocketAddr = to.local_addr().unwrap();
            for _ in 0..4 {
                // It may find no room: that is what is looked for.
                let _ = from.send_to(&[0; 60_000], address);
            }
            to.set_nonblocking(true).unwrap();
            to
        })
        .collect();
    let mut waits = 0;
    let mut buffer = vec![0; 65_536];
    for socket in sockets {
        while let Ok(bytes) = socket.recv(&mut buffer) {
            waits += bytes as u64;
        }
    }
    waits
}

/// Bytes that a process in a group of its own got to wait in sockets.
fn held(what: &str) -> u64 {
    let name = format!("levee-test-{}-{what}", std::process::id());
    let limits = Limits { memory: MEMORY, processes: 64, cpu_percent: Limits::ANY_TIME };
    let mut group = Cgroup::create(&name, limits).expect("a control group; run as root");
    let said = within::again(&group, FILLS, (FILL, what));
    group.remove().unwrap();
    let number = said.lines().find_map(|line| line.split_once("waits: ")).expect("what waits");
    number.1.trim().parse().unwrap()
}

#[test]
fn what_waits_in_sockets_is_within_a_groups_limit() {
    if let Ok(what) = std::env::var(FILL) {
        // Until it is in the group.
        let mut nothing = Vec::new();
        std::io::stdin().read_to_end(&mut nothing).unwrap();
        println!("\nwaits: {}", if what == "tcp" { fill_tcp() } else { fill_udp() });
        return;
    }
    for what in ["tcp", "udp"] {
        let bytes = held(what);
        assert!(bytes > 0, "{what}: nothing waits, so nothing was tried");
        assert!(bytes < MEMORY, "{what}: {bytes} bytes wait in sockets of a group that may have {MEMORY}");
    }
}

const WHERE: &str = "LEVEE_TEST_WHERE";
const RUNS: &str = "what_is_started_in_a_group_of_some_processors_runs_there_and_nowhere_else";

#[test]
fn what_is_started_in_a_group_of_some_processors_runs_there_and_nowhere_else() {
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let last = (0..rustix::thread::CpuSet::MAX_CPU).rfind(|number| all.is_set(*number)).unwrap();
    if std::env::var(WHERE).is_ok() {
        let mut nothing = Vec::new();
        std::io::stdin().read_to_end(&mut nothing).unwrap();
        // Whatever it asks for.
        let mut every = rustix::thread::CpuSet::new();
        (0..rustix::thread::CpuSet::MAX_CPU).for_each(|number| every.set(number));
        let _ = rustix::thread::sched_setaffinity(None, &every);
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        println!("\n{}", status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap());
        return;
    }
    let name = format!("levee-test-{}-where", std::process::id());
    let limits = Limits { memory: MEMORY, processes: 64, cpu_percent: Limits::ANY_TIME };
    let mut group = Cgroup::create(&name, limits).expect("a control group; run as root");
    group.keep_to(&last.to_string()).unwrap();
    let said = within::again(&group, RUNS, (WHERE, "1"));
    group.remove().unwrap();
    assert!(said.lines().any(|line| line == format!("Cpus_allowed_list:\t{last}")), "{said}");
}
