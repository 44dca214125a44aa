//! In a test's virtual machine: levee's programs in the kernel, as that kernel verifies and runs them.
//!
//! `levee-guest-bpf PACKETS`: those of every kind of labelled link do what the filter does, with so many generated packets of each version;
//! those of control groups let datagrams go where they may, and draw source ports. Says how many packets were delivered.
#![forbid(unsafe_code)]

#[path = "../../../../daemons/warden/tests/twin/mod.rs"]
#[allow(dead_code)] // Some are for the warden's own tests.
mod twin;

use levee_sys::cgroup::{Cgroup, Limits};
use levee_sys::ports;
use levee_sys::reach::{Rule, within};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};

fn main() {
    let packets = std::env::args().nth(1).and_then(|n| n.parse().ok()).expect("a number of packets");
    twin::in_every_tag(100);
    println!("{:?} {:?} {:?}", twin::of_four(packets), twin::of_six(packets), twin::beside(packets));

    let limits = Limits { memory: 64 << 20, processes: 64, cpu_percent: Limits::ANY_TIME };
    let drawing = Cgroup::create("levee-guest-ports", limits).expect("a control group");
    ports::draw_apart(&drawing).expect("source ports are drawn");
    for procs in drawing.procs() {
        rustix::io::write(procs, b"0").expect("it enters the group");
    }
    let connection = TcpStream::connect(listening()).expect("a connection");
    let mut group = Cgroup::create("levee-guest-bpf", limits).expect("a control group");
    let listener = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("an address");
    let to = listener.local_addr().expect("an address");
    let may = [Rule { to: (to.ip(), 32), ports: to.port()..=to.port(), may: true }];
    let make = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).expect("a socket");
    let socket = within(&group, &may, &may, make).expect("the programs are taken");
    let sent =
        |port| socket.send_to(b"x", (Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port)).map_err(|e| e.kind());
    assert_eq!(sent(to.port()), Ok(1));
    assert_eq!(sent(to.port() ^ 1), Err(ErrorKind::PermissionDenied));
    println!("a connection from {:?}", connection.local_addr());
    group.remove().expect("it goes");
}

/// Where somebody listens, until the process ends.
fn listening() -> std::net::SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("an address");
    let at = listener.local_addr().expect("an address");
    std::thread::spawn(move || drop(listener.accept()));
    at
}
