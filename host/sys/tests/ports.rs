//! Source ports of connections from within a control group, and what somebody outside sees of them: nothing. Needs root.

mod within;

use levee_sys::cgroup::{Cgroup, Limits};
use levee_sys::ports;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, socket_with};
use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Set for the process that is in the group.
const WITHIN: &str = "LEVEE_TEST_PORTS";
/// The test that has this process connect.
const CONNECTS: &str = "a_connection_from_within_has_a_port_and_keeps_its_address";
/// Where nobody listens, and no other test looks.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 83, 19, 4)), 9);

/// The port that a connection from `from` to `to` is given, if the kernel lets it have one, whatever becomes of it. `from` may be an address without a port.
fn connected(from: Option<SocketAddr>, to: SocketAddr) -> Option<SocketAddr> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None).unwrap();
    if let Some(from) = from {
        levee_sys::tcp::bind_address_alone(&socket).unwrap();
        bind(&socket, &from).unwrap();
    }
    // Nobody is there; only a socket without a port is what must not be.
    if connect(&socket, &to) == Err(rustix::io::Errno::PERM) {
        return None;
    }
    SocketAddr::try_from(getsockname(&socket).unwrap()).ok()
}

fn ports(number: usize) -> Vec<u16> {
    (0..number).map(|_| connected(None, NOWHERE).expect("a port").port()).collect()
}

/// A group whose connections have ports of their own.
fn group(what: &str) -> Cgroup {
    let name = format!("levee-test-{}-{what}", std::process::id());
    let limits = Limits { memory: 64 << 20, processes: 64, cpu_percent: Limits::ANY_TIME };
    let group = Cgroup::create(&name, limits).expect("a control group; run as root");
    ports::draw_apart(&group).unwrap();
    group
}

/// This process again, in the group: what it says of its ports, once it has ended.
fn ports_within(group: &Cgroup) -> String {
    let said = within::again(group, CONNECTS, (WITHIN, "1"));
    said.lines().find_map(|line| line.split_once("ports: ")).expect("ports").1.to_owned()
}

#[test]
fn a_connection_from_within_has_a_port_and_keeps_its_address() {
    if std::env::var(WITHIN).is_ok() {
        // Until it is in the group.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        let seven: SocketAddr = (Ipv4Addr::new(127, 0, 0, 7), 0).into();
        assert_eq!(connected(Some(seven), NOWHERE).unwrap().ip(), seven.ip());
        let six: SocketAddr = (Ipv6Addr::LOCALHOST, 9).into();
        let mapped: SocketAddr = (Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 9).into();
        for to in [six, mapped] {
            let port = connected(None, to).expect("a port").port();
            assert!((32_768..61_000).contains(&port), "{to}: {port}");
        }
        println!("\nports: {}", ports(400).iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
        return;
    }
    let mut group = group("address");
    let said = ports_within(&group);
    assert_eq!(said.split(' ').count(), 400);
    group.remove().unwrap();
}

#[test]
fn connections_from_within_are_not_counted_where_others_look_and_do_not_show_what_others_did() {
    let mut group = group("counted");
    // Who is outside moves the counter by at most 16 each time: it sees its own, and no other.
    let (mut seen, mut last) = (Vec::new(), ports(1)[0]);
    let mut drawn = Vec::new();
    for _ in 0..5 {
        drawn.extend(ports_within(&group).split(' ').map(|port| port.parse::<u16>().unwrap()));
        let next = ports(1)[0];
        seen.push((i32::from(next) - i32::from(last)).rem_euclid(28_232));
        last = next;
    }
    // A stranger's ends may have the same hash, one in 65,536.
    let own = seen.iter().filter(|step| **step <= 16).count();
    assert!(own >= 4, "400 connections within are seen outside: {seen:?}");
    // Who is within draws by no counter: as often down as up, and the parity of either kind.
    let up = drawn.windows(2).filter(|two| two[0] < two[1]).count();
    let odd = drawn.iter().filter(|port| *port % 2 == 1).count();
    for (what, number) in [("rise", up), ("are odd", odd)] {
        assert!((800..1_200).contains(&number), "{number} of {} ports {what}", drawn.len());
    }
    group.remove().unwrap();
}
