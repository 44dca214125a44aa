//! Two hosts with labelled networks on one link: what compartments of one label say to each other through the kernel's own stacks, in
//! streams that are cut up late or early, in fragments, and in errors.

use ipnet::IpNet;
use levee_policy::{CategorySet, Domain, Label, TagForm};
use levee_sys::net::Net;
use levee_sys::ns;
use levee_warden::edges::Edge;
use levee_warden::labelled::wire::LabelledWire;
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const STREAM: usize = 4 << 20;

/// A host: the link's end in a namespace of its own, and a compartment at each of two labels.
struct Host {
    wire: LabelledWire,
    outer: OwnedFd,
    compartments: Vec<OwnedFd>,
    addresses: [IpAddr; 2],
}

fn labels() -> [Label; 2] {
    [
        Label::confidential(0, CategorySet::empty()),
        Label::confidential(2, CategorySet::from_numbers([0, 3, 70]).unwrap()),
    ]
}

impl Host {
    /// With the last octet of its addresses.
    fn new(outer: OwnedFd, number: u8, pins: &std::path::Path) -> Self {
        let addresses: [IpNet; 2] = [format!("192.168.7.{number}/24"), format!("fd07::{number}/64")]
            .map(|text| text.parse().unwrap());
        let edge = Edge {
            interface: "ship0".parse().unwrap(),
            addresses: addresses.to_vec(),
            services: Vec::new(),
            hosts: Vec::new(),
            unlabelled: Vec::new(),
            is_labelled: true,
            neighbours: 64,
        };
        let domain =
            Domain::new(16, TagForm::Enumerated, [(0, 3), (2, 5)], [(0, 1), (3, 9), (70, 900)]).unwrap();
        let mut wire = LabelledWire::take(&edge, &domain, 2, outer.as_fd(), pins).unwrap();
        let mut compartments = Vec::new();
        for label in labels() {
            let compartment = ns::new_net().unwrap();
            wire.lay(&label, compartment.as_fd()).unwrap();
            let mut net = Net::in_ns(compartment.as_fd()).unwrap();
            net.set_up("lo").unwrap();
            for address in addresses {
                net.add_address("ship0", address).unwrap();
            }
            net.set_up("ship0").unwrap();
            compartments.push(compartment);
        }
        wire.raise(&edge).unwrap();
        Self { wire, outer, compartments, addresses: addresses.map(|address| address.addr()) }
    }

    /// Runs in the compartment of a label.
    fn at<T: Send>(&self, label: usize, act: impl FnOnce() -> T + Send) -> T {
        ns::in_net(self.compartments[label].as_fd(), act).unwrap()
    }

    /// Packets that came from the link and were dropped.
    fn refused(&self) -> Vec<(String, u64)> {
        let all = self.wire.counters().unwrap();
        all.into_iter().filter(|(name, _)| name.starts_with("dropped from")).collect()
    }
}

/// The two, and the directory of their pins.
struct Link {
    hosts: [Host; 2],
    _pins: tempfile::TempDir,
}

impl Link {
    fn up() -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test makes namespaces: run it as root");
        let pins = tempfile::tempdir().unwrap();
        let (one, other) = (ns::new_net().unwrap(), ns::new_net().unwrap());
        let mut net = Net::in_ns(one.as_fd()).unwrap();
        net.add_veth("ship0", "ship0", Some(other.as_fd())).unwrap();
        let hosts =
            [(one, 1), (other, 2)].map(|(outer, n)| Host::new(outer, n, &pins.path().join(n.to_string())));
        Self { hosts, _pins: pins }
    }
}

/// A router, by hand.
const ROUTER: &str = include_str!("../../../tests/system/probes/router.py");

/// The router between two hosts, which ends with it.
struct Router(Child);

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Link {
    /// With a router in between, through which packets of so many octets pass.
    fn routed(mtu: u32) -> (Self, Router) {
        assert!(rustix::process::geteuid().is_root(), "this test makes namespaces: run it as root");
        let pins = tempfile::tempdir().unwrap();
        let (one, other, router) = (ns::new_net().unwrap(), ns::new_net().unwrap(), ns::new_net().unwrap());
        ns::in_net(router.as_fd(), || {
            // It says nothing of its own.
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        })
        .unwrap();
        let mut net = Net::in_ns(router.as_fd()).unwrap();
        for (interface, end) in [("edge1", &one), ("edge2", &other)] {
            net.add_veth(interface, "ship0", Some(end.as_fd())).unwrap();
            net.set_up(interface).unwrap();
        }
        let started = ns::in_net(router.as_fd(), || {
            let mut command = Command::new("python3");
            command.args(["-c", ROUTER, &mtu.to_string(), "edge1", "edge2"]).stdout(Stdio::piped()).spawn()
        });
        let mut child = started.unwrap().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let hosts =
            [(one, 1), (other, 2)].map(|(outer, n)| Host::new(outer, n, &pins.path().join(n.to_string())));
        (Self { hosts, _pins: pins }, Router(child))
    }
}

/// What a program says that must succeed.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

impl Drop for Link {
    fn drop(&mut self) {
        for host in &self.hosts {
            if let Err(e) = host.wire.take_away(host.outer.as_fd()) {
                eprintln!("{e}");
            }
        }
    }
}

/// Sends a stream there, which is sent back, and reads it. The first octet that comes back is the label's number.
fn echoed(from: &Host, to: &Host, label: usize, address: IpAddr) {
    let listeners: Vec<TcpListener> =
        (0..2).map(|at| to.at(at, || TcpListener::bind((address, 7)).unwrap())).collect();
    let sent: Vec<u8> = (0..STREAM).map(|n| (n >> 3) as u8 ^ n as u8).collect();
    std::thread::scope(|scope| {
        for (at, listener) in (0u8..).zip(&listeners) {
            listener.set_nonblocking(true).unwrap();
            if usize::from(at) != label {
                continue;
            }
            scope.spawn(move || {
                let (mut stream, _) = accepted(listener);
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                stream.write_all(&[at]).unwrap();
                let mut heard = vec![0; STREAM];
                stream.read_exact(&mut heard).unwrap();
                stream.write_all(&heard).unwrap();
            });
        }
        let target = SocketAddr::new(address, 7);
        let mut stream = from.at(label, || TcpStream::connect_timeout(&target, PATIENCE).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(usize::from(first[0]), label, "{address}");
        stream.write_all(&sent).unwrap();
        let mut heard = vec![0; STREAM];
        stream.read_exact(&mut heard).unwrap();
        assert!(heard == sent, "{address} at {label}");
    });
    // Nobody at the other label heard anything.
    let other = listeners[1 - label].accept();
    assert_eq!(other.unwrap_err().kind(), ErrorKind::WouldBlock);
}

fn accepted(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok(accepted) => return accepted,
            Err(e) if e.kind() == ErrorKind::WouldBlock && std::time::Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => panic!("nobody connects: {e}"),
        }
    }
}

#[test]
fn streams_of_one_label_pass_whole_whoever_cuts_them_up_and_reach_no_other_label() {
    let link = Link::up();
    let [one, other] = &link.hosts;
    // Super-segments as the sender makes them; put together again where they arrive; and neither: each packet alone.
    for segments in ["late", "together again", "early"] {
        for host in &link.hosts {
            for (label, compartment) in host.compartments.iter().enumerate() {
                if segments == "early" {
                    Net::in_ns(compartment.as_fd()).unwrap().set_gso_max_size("ship0", 1_500).unwrap();
                }
                let gro = if segments == "together again" { "on" } else { "off" };
                let settings = host.at(label, || {
                    said("ethtool", &["-K", "ship0", "gro", gro]);
                    said("ethtool", &["-k", "ship0"])
                });
                assert!(settings.contains(&format!("generic-receive-offload: {gro}")), "{settings}");
            }
        }
        for label in 0..2 {
            for version in 0..2 {
                echoed(one, other, label, other.addresses[version]);
                echoed(other, one, label, one.addresses[version]);
            }
        }
    }
    assert_eq!((one.refused(), other.refused()), (vec![], vec![]));
}

#[test]
fn segments_that_the_link_brings_alone_are_joined_before_a_compartment_looks_at_them() {
    let link = Link::up();
    let [one, other] = &link.hosts;
    for host in &link.hosts {
        ns::in_net(host.wire.ns(), || said("ethtool", &["-K", "ship0", "tso", "off"])).unwrap();
    }
    // What the link has brought, and what the compartment's kernel has received in either version.
    let number = |text: &str, line: &str, at: usize| -> u64 {
        let values = text.lines().rev().find_map(|found| found.trim_start().strip_prefix(line)).unwrap();
        values.split_whitespace().nth(at).unwrap().parse().unwrap()
    };
    let brought = || {
        let devices = ns::in_net(other.wire.ns(), || said("cat", &["/proc/self/net/dev"])).unwrap();
        number(&devices, "ship0:", 1)
    };
    let received = || {
        let of = |file: &str| other.at(1, || said("cat", &[file]));
        number(&of("/proc/self/net/snmp"), "Ip:", 2) + number(&of("/proc/self/net/snmp6"), "Ip6InReceives", 0)
    };
    for version in 0..2 {
        let before = (brought(), received());
        echoed(one, other, 1, other.addresses[version]);
        let (brought, received) = (brought() - before.0, received() - before.1);
        assert!(brought > STREAM as u64 / 1_500, "version {version}: {brought}");
        assert!(received < brought / 2, "version {version}: {received} of {brought}");
    }
    assert_eq!((one.refused(), other.refused()), (vec![], vec![]));
}

#[test]
fn datagrams_pass_in_fragments_and_errors_come_back_at_the_label() {
    let link = Link::up();
    let [one, other] = &link.hosts;
    for (label, version) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (here, there) = (one.addresses[version], other.addresses[version]);
        let (asks, answers) = (open_at(one, label, version), open_at(other, label, version));
        asks.connect(answers.local_addr().unwrap()).unwrap();
        answers.connect(asks.local_addr().unwrap()).unwrap();
        let mut heard = vec![0; 65_536];
        for size in [1, 1_200, 1_500, 9_000, 40_000] {
            let sent: Vec<u8> = (0..size).map(|n| n as u8).collect();
            asks.send(&sent).unwrap();
            let n = answers.recv(&mut heard).unwrap();
            assert!(heard[..n] == sent, "{there} at {label}: {n} of {size}");
            answers.send(&heard[..n]).unwrap();
            let n = asks.recv(&mut heard).unwrap();
            assert!(heard[..n] == sent, "{here} at {label}: {n} of {size}");
        }
        // Nobody hears there any more: an ICMP error says so, at its label.
        drop(answers);
        asks.send(b"?").unwrap();
        assert_eq!(asks.recv(&mut heard).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{there}");
    }
    assert_eq!((one.refused(), other.refused()), (vec![], vec![]));
}

#[test]
fn what_the_path_takes_is_told_by_routers_at_the_label_and_obeyed_with_room_for_it() {
    const MTU: usize = 1_440;
    let (link, _router) = Link::routed(MTU as u32);
    let [one, other] = &link.hosts;
    // What the option takes of each label in each version. At the second one a wire takes so little that IPv4 passes by itself.
    for (label, version, cost) in [(0, 0, 12), (0, 1, 16), (1, 1, 128)] {
        echoed(one, other, label, other.addresses[version]);
        echoed(other, one, label, one.addresses[version]);
        for (here, there) in [(one, other), (other, one)] {
            let route =
                here.at(label, || said("ip", &["route", "get", &there.addresses[version].to_string()]));
            let told = route.split_once(" mtu ").and_then(|(_, rest)| rest.split_whitespace().next());
            assert_eq!(told, Some((MTU - cost).to_string().as_str()), "{label}: {route}");
        }
        // Datagrams are cut to it from now on, and each fragment leaves with its label.
        let (asks, answers) = (open_at(one, label, version), open_at(other, label, version));
        asks.connect(answers.local_addr().unwrap()).unwrap();
        let mut heard = vec![0; 65_536];
        for size in [1, 900, MTU - 200, MTU - cost, MTU, 30_000] {
            let sent: Vec<u8> = (0..size).map(|n| n as u8).collect();
            asks.send(&sent).unwrap();
            let n = answers.recv(&mut heard).unwrap();
            assert!(heard[..n] == sent, "{label}: {n} of {size}");
        }
    }
    assert_eq!((one.refused(), other.refused()), (vec![], vec![]));
}

/// A socket for datagrams of a host's, at a label.
fn open_at(host: &Host, label: usize, version: usize) -> UdpSocket {
    let socket = host.at(label, || UdpSocket::bind((host.addresses[version], 0)).unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[test]
fn a_link_with_no_room_for_ipv6_beside_a_label_is_not_taken() {
    let pins = tempfile::tempdir().unwrap();
    let (outer, far, compartment) = (ns::new_net().unwrap(), ns::new_net().unwrap(), ns::new_net().unwrap());
    let mut net = Net::in_ns(outer.as_fd()).unwrap();
    net.add_veth("ship0", "ship0", Some(far.as_fd())).unwrap();
    let domain = Domain::new(16, TagForm::Bitmap, [(0, 3)], []).unwrap();
    let label = Label::confidential(0, CategorySet::empty());
    // A label without categories takes 16 octets.
    for (mtu, taken) in [(1_295, false), (1_296, true)] {
        net.set_mtu("ship0", mtu).unwrap();
        let edge = Edge {
            interface: "ship0".parse().unwrap(),
            addresses: vec!["fd07::1/64".parse().unwrap()],
            services: Vec::new(),
            hosts: Vec::new(),
            unlabelled: Vec::new(),
            is_labelled: true,
            neighbours: 64,
        };
        let mut wire = LabelledWire::take(&edge, &domain, 1, outer.as_fd(), pins.path()).unwrap();
        let laid = wire.lay(&label, compartment.as_fd());
        wire.take_away(outer.as_fd()).unwrap();
        match laid {
            Ok(()) => assert!(taken, "{mtu}"),
            Err(e) => assert!(!taken && e.to_string().contains("raise the interface's MTU"), "{mtu}: {e}"),
        }
    }
}
