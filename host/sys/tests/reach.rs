//! Whom sockets of a control group may send datagrams to, whoever has them. Needs root.

use levee_sys::cgroup::{Cgroup, Limits};
use levee_sys::reach::{Rule, within};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};

fn rule(to: &str, bits: u8, ports: std::ops::RangeInclusive<u16>, may: bool) -> Rule {
    Rule { to: (to.parse().unwrap(), bits), ports, may }
}

/// Somebody who listens there, by any port.
fn listener(address: &str) -> UdpSocket {
    UdpSocket::bind((address.parse::<IpAddr>().unwrap(), 0)).unwrap()
}

#[test]
fn datagrams_go_where_the_first_rule_that_knows_the_destination_lets_them_and_nowhere_else() {
    let name = format!("levee-test-{}-reach", std::process::id());
    let limits = Limits { memory: 64 << 20, processes: 64, cpu_percent: Limits::ANY_TIME };
    let mut group = Cgroup::create(&name, limits).expect("a control group; run as root");
    let before = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let (one, other, apart, six) =
        (listener("127.0.0.1"), listener("127.0.0.1"), listener("127.77.0.9"), listener("::1"));
    let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
    let rules = [
        rule("127.0.0.1", 32, port(&one)..=port(&one), true),
        rule("127.77.0.0", 16, 0..=u16::MAX, true),
        rule("127.0.0.0", 8, 0..=u16::MAX, false),
        rule("::1", 128, port(&six)..=port(&six), true),
        rule("::", 0, 0..=u16::MAX, false),
        rule("0.0.0.0", 0, 1_024..=u16::MAX, true),
    ];
    let made = within(&group, &rules, || (listener("0.0.0.0"), listener("::"))).unwrap();
    assert_eq!(std::fs::read_to_string("/proc/self/cgroup").unwrap(), before, "it is back where it was");
    let sends = |from: &UdpSocket, to: SocketAddr| from.send_to(b"x", to).map_err(|e| e.kind()).err();
    let refused = Some(ErrorKind::PermissionDenied);
    let mapped = |socket: &UdpSocket| {
        let IpAddr::V4(address) = socket.local_addr().unwrap().ip() else { panic!("IPv4") };
        SocketAddr::new(address.to_ipv6_mapped().into(), port(socket))
    };
    for (to, expected) in [(&one, None), (&other, refused), (&apart, None)] {
        assert_eq!(sends(&made.0, to.local_addr().unwrap()), expected, "{to:?}");
        assert_eq!(sends(&made.1, mapped(to)), expected, "{to:?} from IPv6");
    }
    assert_eq!(sends(&made.1, six.local_addr().unwrap()), None);
    assert_eq!(sends(&made.1, (Ipv6Addr::LOCALHOST, 53).into()), refused);
    // Another of this process' own is held by nothing: nobody listens there, which is another error or none.
    assert_ne!(sends(&listener("::"), (Ipv6Addr::LOCALHOST, 53).into()), refused);
    // (TEST-NET-1, RFC 5737. By a route or without one, it is not refused.)
    assert_eq!(sends(&made.0, "192.0.2.1:1023".parse().unwrap()), refused);
    assert_ne!(sends(&made.0, "192.0.2.1:1024".parse().unwrap()), refused);
    for (socket, count) in [(&one, 2), (&other, 0), (&apart, 2), (&six, 1)] {
        socket.set_nonblocking(true).unwrap();
        let came = (0..9).filter(|_| socket.recv(&mut [0]).is_ok()).count();
        assert_eq!(came, count, "{socket:?}");
    }
    group.remove().unwrap();
}
