//! Network namespaces and the wire between them.

use crate::run;
use rustix::thread::LinkNameSpaceType;
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Our address on the wire.
pub const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// strongSwan's address on the wire.
pub const THEIRS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The address of whoever is behind a NAT, and that of the NAT towards it.
pub const INSIDE: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 2);
const NAT: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 1);
/// Our IPv6 address on the wire.
pub const OURS6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// strongSwan's IPv6 address on the wire.
pub const THEIRS6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// Who is behind a NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// Nobody.
    Nobody,
    /// We are: strongSwan sees [`OURS`], which is the NAT's, and ports from 20000 on.
    Us,
    /// strongSwan is, likewise.
    Them,
}

/// Two namespaces, and perhaps a third that translates addresses between them; deleted when dropped.
#[derive(Debug)]
pub struct Net {
    ours: String,
    theirs: String,
    nat: Option<String>,
    behind: Behind,
}

impl Net {
    /// Two namespaces with a wire. strongSwan's holds the inner addresses 10.9.2.1 and fd00:2::1 besides the outer ones.
    #[expect(clippy::new_without_default, reason = "it changes the machine")]
    pub fn new() -> Self {
        Self::with_nat(Behind::Nobody)
    }

    /// With one side behind an nftables masquerade that changes source ports too.
    pub fn with_nat(behind: Behind) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let tag = format!("{}-{n}", std::process::id());
        let nat = (behind != Behind::Nobody).then(|| format!("iken-{tag}"));
        let net = Self { ours: format!("ikeo-{tag}"), theirs: format!("iket-{tag}"), nat, behind };
        run("ip", &["netns", "add", &net.ours]);
        run("ip", &["netns", "add", &net.theirs]);
        match &net.nat {
            None => {
                wire(&net.ours, OURS, &net.theirs, THEIRS);
                for (ns, address) in [(&net.ours, OURS6), (&net.theirs, THEIRS6)] {
                    run("ip", &["-n", ns, "addr", "add", &format!("{address}/64"), "dev", "wire", "nodad"]);
                }
            }
            Some(nat) => {
                run("ip", &["netns", "add", nat]);
                let (inside, seen, outside, there) = match behind {
                    Behind::Them => (&net.theirs, THEIRS, &net.ours, OURS),
                    Behind::Us | Behind::Nobody => (&net.ours, OURS, &net.theirs, THEIRS),
                };
                wire(inside, INSIDE, nat, NAT);
                run("ip", &["-n", nat, "link", "set", "wire", "name", "in"]);
                wire(nat, seen, outside, there);
                run("ip", &["-n", inside, "route", "add", "default", "via", &NAT.to_string()]);
                let nat_run = |args: &[&str]| run("ip", &[&["netns", "exec", nat], args].concat());
                nat_run(&["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
                nat_run(&["nft", "add table ip nat"]);
                nat_run(&["nft", "add chain ip nat post { type nat hook postrouting priority 100; }"]);
                nat_run(&[
                    "nft",
                    "add rule ip nat post oifname wire ip protocol udp masquerade to :20000-30000",
                ]);
            }
        }
        run("ip", &["-n", &net.theirs, "addr", "add", "10.9.2.1/32", "dev", "lo"]);
        run("ip", &["-n", &net.theirs, "addr", "add", "fd00:2::1/128", "dev", "lo", "nodad"]);
        net
    }

    /// Our own address, as we see it.
    pub fn our_address(&self) -> Ipv4Addr {
        if self.behind == Behind::Us { INSIDE } else { OURS }
    }

    /// A non-blocking UDP socket in our namespace.
    pub fn socket(&self, port: u16) -> UdpSocket {
        Self::socket_in(&self.ours, SocketAddr::from((self.our_address(), port)))
    }

    /// A non-blocking UDP socket in strongSwan's namespace, where none runs.
    pub fn their_socket(&self, port: u16) -> UdpSocket {
        Self::socket_in(&self.theirs, SocketAddr::from((THEIRS, port)))
    }

    fn socket_in(name: &str, address: SocketAddr) -> UdpSocket {
        let ns = File::open(format!("/run/netns/{name}")).expect("the namespace");
        // On a thread of its own, which ends with its change of namespace.
        let bind = || {
            rustix::thread::move_into_link_name_space(ns.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("enter the namespace; run as root");
            UdpSocket::bind(address).expect("bind")
        };
        let socket = std::thread::scope(|s| s.spawn(bind).join()).expect("a socket");
        socket.set_nonblocking(true).expect("non-blocking");
        socket
    }

    /// Our namespace and strongSwan's.
    pub fn spaces(&self) -> [File; 2] {
        [&self.ours, &self.theirs].map(|ns| File::open(format!("/run/netns/{ns}")).expect("a namespace"))
    }

    /// The path of strongSwan's namespace.
    pub(crate) fn theirs(&self) -> String {
        format!("/run/netns/{}", self.theirs)
    }

    /// The path of our namespace.
    pub(crate) fn ours(&self) -> String {
        format!("/run/netns/{}", self.ours)
    }
}

/// Joins two namespaces by a veth pair with an end called `wire` in each.
fn wire(a: &str, address_a: Ipv4Addr, b: &str, address_b: Ipv4Addr) {
    let pair = ["link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns"];
    run("ip", &[&["-n", a], &pair[..], &[b]].concat());
    for (ns, address) in [(a, address_a), (b, address_b)] {
        run("ip", &["-n", ns, "addr", "add", &format!("{address}/24"), "dev", "wire"]);
        run("ip", &["-n", ns, "link", "set", "lo", "up"]);
        run("ip", &["-n", ns, "link", "set", "wire", "up"]);
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for ns in [Some(&self.ours), Some(&self.theirs), self.nat.as_ref()].into_iter().flatten() {
            let _ = std::process::Command::new("ip").args(["netns", "del", ns]).status();
        }
    }
}
