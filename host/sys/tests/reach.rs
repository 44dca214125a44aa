//! Whom sockets of a control group may send datagrams to, whoever has them. Needs root.

use levee_sys::cgroup::{Cgroup, Limits};
use levee_sys::net::Net;
use levee_sys::ns::{in_net, new_net};
use levee_sys::reach::{Rule, within};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::{Mutex, PoisonError};

fn rule(to: &str, bits: u8, ports: std::ops::RangeInclusive<u16>, may: bool) -> Rule {
    Rule { to: (to.parse().unwrap(), bits), ports, may }
}

/// Somebody who listens there, by any port.
fn listener(address: &str) -> UdpSocket {
    UdpSocket::bind((address.parse::<IpAddr>().unwrap(), 0)).unwrap()
}

/// The process is in the group for a moment, with all that another test makes meanwhile.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn datagrams_go_where_the_first_rule_that_knows_the_destination_lets_them_and_nowhere_else() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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
    let made = within(&group, &rules, &rules, || (listener("0.0.0.0"), listener("::"))).unwrap();
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

#[test]
fn whichever_of_its_addresses_a_datagram_names_what_is_for_this_host_goes_where_it_may_here() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let name = format!("levee-test-{}-here", std::process::id());
    let limits = Limits { memory: 64 << 20, processes: 64, cpu_percent: Limits::ANY_TIME };
    let mut group = Cgroup::create(&name, limits).expect("a control group; run as root");
    let net = new_net().unwrap();
    let mut inside = Net::in_ns(net.as_fd()).unwrap();
    inside.add_veth("one", "two", None).unwrap();
    for (interface, address) in [
        ("lo", "127.0.0.1/8"),
        ("lo", "2001:db8::1/128"),
        ("one", "192.0.2.1/24"),
        ("one", "2001:db8:1::2/64"),
    ] {
        // (The kernel may have given the first by itself.)
        let _ = inside.add_address(interface, address.parse().unwrap());
    }
    ["lo", "one", "two"].into_iter().for_each(|interface| inside.set_up(interface).unwrap());
    in_net(net.as_fd(), || {
        let may = listener("127.0.0.1");
        let own = ["192.0.2.1", "127.0.0.2", "2001:db8::1", "::1"].map(listener);
        let here = [may.local_addr().unwrap()].map(|to| Rule {
            to: (to.ip(), 32),
            ports: to.port()..=to.port(),
            may: true,
        });
        let any = [rule("0.0.0.0", 0, 0..=u16::MAX, true), rule("::", 0, 0..=u16::MAX, true)];
        let made = within(&group, &any, &here, || (listener("0.0.0.0"), listener("::"))).unwrap();
        let sends = |to: SocketAddr| {
            let from = if to.is_ipv4() { &made.0 } else { &made.1 };
            from.send_to(b"x", to).map_err(|e| e.kind()).err()
        };
        assert_eq!(sends(may.local_addr().unwrap()), None);
        for own in &own {
            assert_eq!(sends(own.local_addr().unwrap()), Some(ErrorKind::PermissionDenied), "{own:?}");
            own.set_nonblocking(true).unwrap();
            assert!(own.recv(&mut [0]).is_err(), "{own:?} has heard it");
        }
        for other in ["192.0.2.9:7", "[2001:db8:1::9]:7"] {
            assert_eq!(sends(other.parse().unwrap()), None, "{other} is another host's");
        }
        assert_eq!(may.recv(&mut [0]).unwrap(), 1);
    })
    .unwrap();
    group.remove().unwrap();
}
