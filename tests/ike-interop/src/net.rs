//! Two network namespaces and the wire between them.

use crate::run;
use rustix::thread::LinkNameSpaceType;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Our address on the wire.
pub const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// strongSwan's address on the wire.
pub const THEIRS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// Two namespaces, deleted when dropped.
#[derive(Debug)]
pub struct Net {
    ours: String,
    theirs: String,
}

impl Net {
    /// Makes them. strongSwan's holds the inner address 10.9.2.1 besides the outer one.
    #[expect(clippy::new_without_default, reason = "it changes the machine")]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let tag = format!("{}-{n}", std::process::id());
        let net = Self { ours: format!("ikeo-{tag}"), theirs: format!("iket-{tag}") };
        run("ip", &["netns", "add", &net.ours]);
        run("ip", &["netns", "add", &net.theirs]);
        run(
            "ip",
            &[
                "-n",
                &net.ours,
                "link",
                "add",
                "wire",
                "type",
                "veth",
                "peer",
                "name",
                "wire",
                "netns",
                &net.theirs,
            ],
        );
        for (ns, address) in [(&net.ours, OURS), (&net.theirs, THEIRS)] {
            run("ip", &["-n", ns, "addr", "add", &format!("{address}/24"), "dev", "wire"]);
            run("ip", &["-n", ns, "link", "set", "lo", "up"]);
            run("ip", &["-n", ns, "link", "set", "wire", "up"]);
        }
        run("ip", &["-n", &net.theirs, "addr", "add", "10.9.2.1/32", "dev", "lo"]);
        net
    }

    /// A non-blocking UDP socket in our namespace.
    pub fn socket(&self, port: u16) -> UdpSocket {
        let ns = File::open(format!("/run/netns/{}", self.ours)).expect("our namespace");
        // On a thread of its own, which ends with its change of namespace.
        let bind = || {
            rustix::thread::move_into_link_name_space(ns.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("enter our namespace; run as root");
            UdpSocket::bind(SocketAddr::from((OURS, port))).expect("bind")
        };
        let socket = std::thread::scope(|s| s.spawn(bind).join()).expect("a socket");
        socket.set_nonblocking(true).expect("non-blocking");
        socket
    }

    /// The path of strongSwan's namespace.
    pub(crate) fn theirs(&self) -> String {
        format!("/run/netns/{}", self.theirs)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for ns in [&self.ours, &self.theirs] {
            let _ = std::process::Command::new("ip").args(["netns", "del", ns]).status();
        }
    }
}
