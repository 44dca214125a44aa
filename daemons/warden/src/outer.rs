//! The sockets that the world reaches: made once, before anything else runs, and kept until the warden ends.
//!
//! Closing one socket of a steering group re-orders the others, so every one stays open here, whatever becomes
//! of the process that reads it.

use crate::there::there;
use levee_ipc::Secret;
use levee_ipc::warden::keyer::KeyerPart;
use levee_sys::udp::{Dropped, SteeringGroup, SteeringKey, steering_group};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes asked for each tunnel socket's queues.
pub const QUEUE: usize = 4 << 20;

// The two crates know nothing of each other.
const _: () = assert!(levee_sys::udp::MAX_SLOTS == levee_policy::site::MAX_SLOTS);

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// How long the processes of a warden that was killed may keep an address: the kernel is ending them.
const REMAINS: Duration = Duration::from_secs(10);

/// Opens a socket, waiting while the remains of a warden that was killed still hold its address.
pub fn patiently<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + REMAINS;
    loop {
        match open() {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// What could not be opened, why, and what to do about it.
pub fn named(what: &str, address: SocketAddr, error: &io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            "; no interface of this host has this address: give it to one, or write the host's own under `addresses`"
        }
        io::ErrorKind::AddrInUse => {
            "; another program, or another site's server, has this port: give one of them another"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("{what} at {address}: {error}{remedy}"))
}

/// The tunnel's steering groups, one for each outer address.
///
/// # Errors
/// The kernel's, with the address.
pub fn tunnels(addresses: &[SocketAddr], slots: u16, key: &SteeringKey) -> io::Result<Vec<SteeringGroup>> {
    addresses
        .iter()
        .map(|&address| {
            patiently(|| steering_group(address, slots, QUEUE, key))
                .map_err(|e| named("the tunnel's UDP socket", address, &e))
        })
        .collect()
}

/// What the keyer is told of the steering, beside us and the kernel the only one who is. `None` never comes about: the key is short.
pub fn steering(key: &SteeringKey, slots: u16) -> Option<KeyerPart> {
    Some(KeyerPart::Steering { key: Secret::new(key.expose().to_vec())?, slots })
}

/// Datagrams at the tunnel's port that no process got, by reason; what is 0 is left out.
pub fn dropped(tunnels: &[SteeringGroup]) -> Vec<(String, u64)> {
    let all: Vec<_> = tunnels.iter().filter_map(|group| group.dropped().ok()).collect();
    let sum = |of: fn(&Dropped) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
    let counts = [
        ("an SPI that none may have", sum(|dropped| dropped.sink)),
        ("an SPI of a slot that is idle or whose queue is full", sum(|dropped| dropped.slots)),
        ("no room in the keyer's queue", sum(|dropped| dropped.first)),
    ];
    counts.into_iter().filter(|(_, count)| *count > 0).map(|(why, count)| (why.to_owned(), count)).collect()
}

/// The sockets of IKE alone, one for each outer address.
///
/// # Errors
/// The kernel's, with the address.
pub fn ike(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<Vec<(SocketAddr, OwnedFd)>> {
    addresses
        .map(|address| {
            let socket = levee_sys::udp::bind(address, QUEUE);
            Ok((address, socket.map_err(|e| named("IKE's UDP socket", address, &e))?))
        })
        .collect()
}

/// Where the tunnel within a second one is: on the loopback interface, whose addresses no other takes packets for (RFC 1122 3.2.1.3).
pub fn within(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
}

/// The trusted path's listener.
///
/// # Errors
/// The kernel's, with the address.
pub fn trusted_path(address: SocketAddr) -> io::Result<OwnedFd> {
    let named = |e: io::Error| named("the trusted path's TCP socket", address, &e);
    let listener = patiently(|| TcpListener::bind(address)).map_err(named)?;
    // std listens with a backlog of 128; a second listen() widens it.
    listen(&listener, BACKLOG).map_err(|e| named(e.into()))?;
    listener.set_nonblocking(true).map_err(named)?;
    Ok(listener.into())
}

/// A Unix `SOCK_SEQPACKET` listener that only the owner of `path` (root) can open.
///
/// # Errors
/// The kernel's, with the path.
pub fn local(path: &Path) -> io::Result<OwnedFd> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("the socket {}: {e}", path.display()));
    there(std::fs::remove_file(path)).map_err(named)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let make = || -> io::Result<OwnedFd> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        // Listening last: nobody can connect before the mode is set.
        listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    make().map_err(named)
}

/// Lets a group of this host connect to a socket in a directory of root's. Nothing else in the directory can be listed, and
/// whatever is there goes by its own mode.
///
/// # Errors
/// There is no such group, or the kernel's.
pub fn open_to(directory: &Path, socket: &Path, group: &str) -> io::Result<()> {
    let gid = group_of(&std::fs::read_to_string("/etc/group")?, group)
        .ok_or_else(|| io::Error::other("this host has no such group: `groupadd` makes it"))?;
    std::os::unix::fs::chown(socket, None, Some(gid))?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o660))?;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o711))
}

/// The number of a group (group(5)).
fn group_of(groups: &str, name: &str) -> Option<u32> {
    let mut lines = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.find_map(|fields| match fields.as_slice() {
        [known, _, gid, ..] if *known == name => gid.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\nlevee-people:x:1200:\nlevee:x:1201:ada,mia\n";
        assert_eq!(group_of(groups, "levee"), Some(1201));
        assert_eq!(group_of(groups, "lev"), None);
        assert_eq!(group_of("levee:x:many:\n", "levee"), None);
    }

    #[test]
    fn an_address_that_the_host_has_not_is_named_with_what_to_do() {
        // RFC 5737: nobody's.
        let error = trusted_path("192.0.2.1:7443".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("192.0.2.1:7443") && error.contains("`addresses`"), "{error}");
        let error = ike(std::iter::once("192.0.2.1:500".parse().unwrap())).unwrap_err().to_string();
        assert!(error.contains("192.0.2.1:500") && error.contains("`addresses`"), "{error}");
    }
}
