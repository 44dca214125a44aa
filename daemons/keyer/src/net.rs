//! The sockets that the keyer was given.

use crate::source::Source;
use levee_daemon::{Events, Fatal, Watched};
use levee_ike::Path;
use levee_sys::udp;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// The longest datagram, and the longest aggregate of several.
pub const LONGEST: usize = 65_535;

/// A UDP socket, non-blocking.
#[derive(Debug)]
pub struct Socket {
    number: u64,
    fd: Watched<OwnedFd>,
    address: SocketAddr,
    /// It carries ESP too, so that IKE begins with four zero octets (RFC 3948 2.2).
    marker: bool,
}

/// All sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    all: Vec<Socket>,
    next: u64,
}

/// What a look at a socket gave.
pub enum Received<'a> {
    /// One datagram, or several that came together.
    Datagrams(std::slice::Chunks<'a, u8>, Path),
    /// Nothing is there.
    Nothing,
    /// Something that is no datagram for us.
    Nonsense,
}

impl Sockets {
    /// Takes a socket bound to `address`.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn add(
        &mut self,
        fd: OwnedFd,
        address: SocketAddr,
        marker: bool,
        events: &mut Events<Source>,
    ) -> Result<(), Fatal> {
        let number = self.next;
        let fd =
            events.watch(fd, Source::Socket(number)).map_err(|why| Fatal::new("wait for a socket", why))?;
        self.all.push(Socket { number, fd, address, marker });
        self.next += 1;
        Ok(())
    }

    /// Closes the oldest sockets beyond the newest `most`.
    pub fn keep(&mut self, most: usize) {
        let old = self.all.len().saturating_sub(most);
        self.all.drain(..old);
    }

    /// The way to `remote` through the newest socket that carries ESP too.
    pub fn path(&self, remote: SocketAddr) -> Option<Path> {
        let fits = |socket: &&Socket| socket.marker && socket.address.is_ipv4() == remote.is_ipv4();
        // What is behind a second tunnel is reached by the loopback interface.
        let near =
            |socket: &&Socket| fits(socket) && socket.address.ip().is_loopback() == remote.ip().is_loopback();
        let newest = || self.all.iter().rev();
        let socket = newest().find(near).or_else(|| newest().find(fits))?;
        Some(Path { local: socket.address, remote, marker: true })
    }

    /// Reads from the socket of this number.
    pub fn receive<'a>(&self, number: u64, buffer: &'a mut [u8]) -> Received<'a> {
        let Some(socket) = self.all.iter().find(|socket| socket.number == number) else {
            return Received::Nothing;
        };
        let received = match udp::receive(socket.fd.as_fd(), buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Received::Nothing,
            // What ICMP says about an earlier send: anyone could have said it.
            Err(_) => return Received::Nonsense,
        };
        if received.truncated {
            return Received::Nonsense;
        }
        let path = Path { local: socket.address, remote: received.from, marker: socket.marker };
        let whole = buffer.get(..received.length).unwrap_or_default();
        let step = received.segment.map_or(whole.len(), usize::from).max(1);
        Received::Datagrams(whole.chunks(step), path)
    }

    /// Sends a datagram. One that the kernel does not take is lost like any other: it is sent again in time.
    pub fn send(&self, path: Path, datagram: &[u8]) {
        let fits = |socket: &&Socket| socket.address == path.local && socket.marker == path.marker;
        if let Some(socket) = self.all.iter().find(fits) {
            let _ = udp::send(socket.fd.as_fd(), datagram, path.remote, None, 0);
        }
    }
}
