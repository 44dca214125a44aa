//! The sockets that the world reaches: made once, before anything else runs, and kept until the warden ends.
//!
//! Closing one socket of a steering group re-orders the others, so every one stays open here, whatever becomes
//! of the process that reads it.

use levee_sys::udp::{SteeringGroup, steering_group};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes asked for each tunnel socket's queues.
pub const QUEUE: usize = 4 << 20;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// How long the processes of a warden that was killed may keep an address: the kernel is ending them.
const REMAINS: Duration = Duration::from_secs(10);

/// Opens a socket, waiting while the remains of a warden that was killed still hold its address.
fn patiently<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
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

/// The tunnel's steering groups, one for each outer address.
///
/// # Errors
/// The kernel's, with the address.
pub fn tunnels(addresses: &[SocketAddr], slots: u16) -> io::Result<Vec<SteeringGroup>> {
    addresses
        .iter()
        .map(|&address| {
            patiently(|| steering_group(address, slots, QUEUE))
                .map_err(|e| io::Error::new(e.kind(), format!("the tunnel's UDP socket at {address}: {e}")))
        })
        .collect()
}

/// The sockets of IKE alone, one for each outer address.
///
/// # Errors
/// The kernel's, with the address.
pub fn ike(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<Vec<(SocketAddr, OwnedFd)>> {
    addresses
        .map(|address| {
            let named =
                |e: io::Error| io::Error::new(e.kind(), format!("IKE's UDP socket at {address}: {e}"));
            Ok((address, levee_sys::udp::bind(address, QUEUE).map_err(named)?))
        })
        .collect()
}

/// The trusted path's listener.
///
/// # Errors
/// The kernel's, with the address.
pub fn trusted_path(address: SocketAddr) -> io::Result<OwnedFd> {
    let named =
        |e: io::Error| io::Error::new(e.kind(), format!("the trusted path's TCP socket at {address}: {e}"));
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
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(named(e)),
        _ => {}
    }
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
