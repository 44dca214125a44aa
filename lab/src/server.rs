//! Servers, and the addresses from which clients come to them.

use crate::netns::Namespace;
use crate::role::Role;
use std::io::{self, BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Prefix of the block of addresses that clients take one after the other: with each, every port is free again.
const POOL_BITS: u8 = 26;

/// The addresses of the block of the client at `at`: the last quarter of its /24.
fn pool(at: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> {
    let [a, b, c, _] = at.octets();
    (192..=255).map(move |d| Ipv4Addr::new(a, b, c, d))
}

/// Of the block, those that are an address of one host: not the broadcast address of the /24.
pub(crate) fn usable(at: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> {
    pool(at).filter(|a| a.octets()[3] != 255)
}

/// Gives `near` the block of addresses of its address `at`, for connections to `far`.
pub(crate) fn give_pool(
    near: &Namespace,
    far: &Namespace,
    at: Ipv4Addr,
    dev: &str,
) -> io::Result<Vec<Ipv4Addr>> {
    if let Some(first) = pool(at).next() {
        near.addresses(far, first, POOL_BITS, at, dev)?;
    }
    Ok(usable(at).collect())
}

/// A server process, killed when dropped.
#[derive(Debug)]
pub(crate) struct Server(Child);

impl Server {
    /// This one.
    pub(crate) fn of(child: Child) -> Server {
        Server(child)
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts a server of the workloads in a role, and waits until it is ready.
pub(crate) fn serve_as(role: &Role, args: &[&str]) -> io::Result<Server> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("serve")
        .args(args)
        .args(role.args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let out = child.stdout.take();
    let server = Server(child);
    let mut line = String::new();
    if let Some(out) = out {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.trim() == "ready" {
        Ok(server)
    } else {
        Err(io::Error::other(format!("the server with {} did not start (see above)", args.join(" "))))
    }
}
