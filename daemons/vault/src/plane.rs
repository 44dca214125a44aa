//! The data path: TUN → ESP → UDP and back, in buffers that are made once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use levee_aead::Library;
use levee_esp::{
    Aead, AeadError, AeadProvider, DropReason, ESP_HEADER, Inner, Outer, Route, Sad, Suite, ecn,
};
use levee_session::SessionId;
use levee_sys::tun::VNET_HEADER;
use levee_sys::udp;
use rustix::io::Errno;
use zeroize::Zeroize as _;

/// Items handled for one descriptor before the others get their turn.
const TURN: usize = 64;
/// The longest inner packet, and with it the longest datagram.
const LONGEST: usize = 65_535;

/// The TUN queue.
pub struct Tun {
    /// Its descriptor, non-blocking.
    pub fd: OwnedFd,
    /// Inner MTU in bytes.
    pub mtu: u16,
    /// Whether each packet has a vnet header before it.
    pub vnet: bool,
}

/// A UDP socket of a steering group.
pub struct Socket {
    /// Its descriptor, non-blocking.
    pub fd: OwnedFd,
    /// The local address.
    pub address: SocketAddr,
}

/// The library chosen for each suite, in the order of [`Suite::ALL`].
pub struct Libraries(pub [Library; 3]);

impl AeadProvider for Libraries {
    fn name(&self) -> &'static str {
        "by suite"
    }

    fn key(&self, suite: Suite, key: &[u8]) -> Result<Box<dyn Aead>, AeadError> {
        let library = Suite::ALL.iter().zip(self.0).find(|(of, _)| **of == suite).ok_or(AeadError)?.1;
        library.key(suite, key)
    }
}

/// What a turn with a descriptor led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing is left to read.
    Drained,
    /// There may be more; the others first.
    More,
    /// Nothing can go out until this socket can be written.
    Blocked(usize),
}

/// Sealed datagrams of one size for one peer, one behind the other, that leave in one send.
struct Batch {
    buffer: Vec<u8>,
    used: usize,
    /// Size of each but the last, which may be shorter and then ends the batch.
    segment: usize,
    packets: usize,
    to: Option<(Outer, u8, SessionId)>,
    closed: bool,
    /// Datagrams that the socket did not take, until they are counted.
    lost: u64,
}

/// The data path of one worker.
pub struct Plane {
    tun: Tun,
    sockets: Vec<Socket>,
    /// The sessions and their security associations.
    pub sad: Sad<SessionId>,
    from_tun: Vec<u8>,
    /// Bytes in `from_tun` that still have to go, because a socket was full.
    stalled: usize,
    from_net: Vec<u8>,
    batch: Batch,
    /// Sessions whose first packet waits: the keyer is to be asked.
    pub acquire: Vec<SessionId>,
}

impl Plane {
    /// A plane over these descriptors; nothing passes until `sad` has sessions and keys.
    pub fn new(tun: Tun, sockets: Vec<Socket>, sad: Sad<SessionId>) -> Self {
        Self {
            tun,
            sockets,
            sad,
            from_tun: vec![0; VNET_HEADER + LONGEST],
            from_net: vec![0; VNET_HEADER + LONGEST],
            batch: Batch {
                buffer: vec![0; udp::MAX_SEND + levee_esp::sealed_length(LONGEST)],
                used: 0,
                segment: 0,
                packets: 0,
                to: None,
                closed: false,
                lost: 0,
            },
            stalled: 0,
            acquire: Vec::new(),
        }
    }

    /// The TUN queue.
    pub fn tun(&self) -> &Tun {
        &self.tun
    }

    /// The UDP sockets.
    pub fn sockets(&self) -> &[Socket] {
        &self.sockets
    }

    /// The number of the socket by which `address` is reached; `None` when we have none of its family.
    pub fn socket_for(&self, address: SocketAddr) -> Option<usize> {
        self.sockets.iter().position(|socket| socket.address.is_ipv4() == address.is_ipv4())
    }

    /// Ends a session: its keys, its waiting packets and what buffers hold of any session are erased on return.
    pub fn close(&mut self, id: SessionId) {
        self.sad.close_session(id);
        if self.batch.to.is_some_and(|(_, _, of)| of == id) {
            self.sad.counters.count_many(DropReason::NoSession, self.batch.packets as u64);
            self.batch.clear();
        }
        self.stalled = 0;
        for buffer in [&mut self.from_tun, &mut self.from_net] {
            buffer.as_mut_slice().zeroize();
        }
    }

    /// Reads packets from the TUN queue, seals them and sends them.
    ///
    /// # Errors
    /// When the queue is gone: nothing can be done without.
    pub fn turn_tun(&mut self, now: Duration) -> io::Result<Turn> {
        let mut buffer = std::mem::take(&mut self.from_tun);
        let turn = self.drain_tun(now, &mut buffer);
        self.from_tun = buffer;
        turn
    }

    fn drain_tun(&mut self, now: Duration, buffer: &mut [u8]) -> io::Result<Turn> {
        let head = if self.tun.vnet { 0 } else { VNET_HEADER };
        for _ in 0..TURN {
            if self.stalled == 0 {
                let Some(free) = buffer.get_mut(head..) else { return Ok(Turn::Drained) };
                self.stalled = match rustix::io::read(&self.tun.fd, free) {
                    Ok(length) => head + length,
                    Err(Errno::AGAIN) => return Ok(self.flush().map_or(Turn::Drained, Turn::Blocked)),
                    Err(Errno::INTR) => continue,
                    // A device that is down has nothing to say.
                    Err(Errno::IO) => return Ok(Turn::Drained),
                    Err(error) => return Err(error.into()),
                };
            }
            if let Some(socket) = self.send(now, buffer.get(..self.stalled).unwrap_or(&[])) {
                return Ok(Turn::Blocked(socket));
            }
            self.stalled = 0;
        }
        Ok(self.flush().map_or(Turn::More, Turn::Blocked))
    }

    /// Sends again what waited for keys of this session.
    pub fn release(&mut self, now: Duration, id: SessionId) {
        while let Some(packet) = self.sad.release(id) {
            if self.send(now, &packet).is_some() {
                self.sad.counters.count(DropReason::NotTaken);
            }
        }
        // A socket that is full now is tried again at the next turn.
        let _ = self.flush();
    }

    /// Seals the inner packet in `bytes`, behind its vnet header, and adds it to the batch. Answers the socket that
    /// is full when there is no room; then nothing has been done.
    fn send(&mut self, now: Duration, bytes: &[u8]) -> Option<usize> {
        let packet = bytes.get(VNET_HEADER..).unwrap_or(&[]);
        let inner = match Inner::parse(packet) {
            Ok(inner) => inner,
            Err(reason) => {
                self.sad.counters.count(reason);
                return None;
            }
        };
        let packet = packet.get(..inner.length).unwrap_or(&[]);
        // The device's MTU sees to this, unless someone in the compartment's network has raised it.
        if packet.len() > usize::from(self.tun.mtu) {
            self.sad.counters.count(DropReason::Oversize);
            return None;
        }
        let mut lane = match self.sad.route(now, &inner) {
            Ok(Route::Through(lane)) => lane,
            Ok(Route::Wait(id)) => {
                if self.sad.hold(now, id, bytes) {
                    self.acquire.push(id);
                }
                return None;
            }
            Err(_) => return None,
        };
        let to = (lane.peer(), ecn::of(packet), lane.session());
        if !self.batch.takes(to, levee_esp::sealed_length(packet.len()))
            && let Some(socket) = self.batch.flush(&self.sockets)
        {
            return Some(socket);
        }
        self.batch.add(to, packet, |buffer| lane.seal(buffer, packet.len()).map(|sealed| sealed.length).ok());
        None
    }

    /// Sends what is gathered; answers the socket that is full, if one is.
    pub fn flush(&mut self) -> Option<usize> {
        let blocked = self.batch.flush(&self.sockets);
        self.sad.counters.count_many(DropReason::NotTaken, std::mem::take(&mut self.batch.lost));
        blocked
    }

    /// Reads datagrams from a socket, opens them and passes what is in them to the TUN queue.
    pub fn turn_socket(&mut self, number: usize) -> Turn {
        for _ in 0..TURN {
            let Some(socket) = self.sockets.get(number) else { return Turn::Drained };
            let Some(buffer) = self.from_net.get_mut(VNET_HEADER..) else { return Turn::Drained };
            let received = match udp::receive(socket.fd.as_fd(), buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Drained,
                // What ICMP says about an earlier send; taken with this call.
                Err(_) => continue,
            };
            if received.truncated {
                self.sad.counters.count(DropReason::Oversize);
                continue;
            }
            let from = Outer { address: received.from, socket: number };
            let step = received.segment.map_or(received.length.max(1), usize::from);
            let mut at = 0;
            // An empty datagram is one as well.
            while at < received.length || (at == 0 && received.length == 0) {
                let end = received.length.min(at + step);
                self.open(at, end, from, received.ecn);
                at += step;
            }
        }
        Turn::More
    }

    /// Opens the datagram at `at..end` behind the headroom. Its plaintext begins where the datagram began, so the
    /// vnet header before it lies on what has been dealt with.
    fn open(&mut self, at: usize, end: usize, from: Outer, outer_ecn: u8) {
        let start = VNET_HEADER + at;
        let Some(datagram) = self.from_net.get_mut(start..VNET_HEADER + end) else { return };
        let Ok(opened) = self.sad.open(datagram, 0, from, outer_ecn) else { return };
        let first = if self.tun.vnet { start - VNET_HEADER } else { start };
        if let Some(header) = self.from_net.get_mut(first..start) {
            header.fill(0);
        }
        let Some(packet) = self.from_net.get(first..start + opened.inner.length) else { return };
        match rustix::io::write(&self.tun.fd, packet) {
            Ok(written) if written == packet.len() => {}
            _ => self.sad.counters.count(DropReason::NotTaken),
        }
    }
}

impl Batch {
    fn clear(&mut self) {
        (self.used, self.segment, self.packets, self.to, self.closed) = (0, 0, 0, None, false);
    }

    /// Whether a datagram of `sealed` bytes can go with what is gathered.
    fn takes(&self, to: (Outer, u8, SessionId), sealed: usize) -> bool {
        self.packets == 0
            || (!self.closed
                && self.to == Some(to)
                && sealed <= self.segment
                && self.packets < udp::MAX_SEGMENTS
                && self.used + sealed <= udp::MAX_SEND)
    }

    fn add(
        &mut self,
        to: (Outer, u8, SessionId),
        packet: &[u8],
        seal: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) {
        let Some(free) = self.buffer.get_mut(self.used..) else { return };
        let Some(place) = free.get_mut(ESP_HEADER..ESP_HEADER + packet.len()) else { return };
        place.copy_from_slice(packet);
        let Some(length) = seal(free) else {
            // Not sealed, so it is still plaintext.
            if let Some(place) = free.get_mut(ESP_HEADER..ESP_HEADER + packet.len()) {
                place.zeroize();
            }
            return;
        };
        if self.packets == 0 {
            self.segment = length;
            self.to = Some(to);
        }
        self.closed = length < self.segment;
        self.used += length;
        self.packets += 1;
    }

    /// Sends everything; answers the socket that would block, with everything kept.
    fn flush(&mut self, sockets: &[Socket]) -> Option<usize> {
        let Some((to, ecn, _)) = self.to else { return None };
        let Some(socket) = sockets.get(to.socket) else {
            self.lost += self.packets as u64;
            self.clear();
            return None;
        };
        let bytes = self.buffer.get(..self.used).unwrap_or(&[]);
        let segment = if self.packets > 1 { u16::try_from(self.segment).ok() } else { None };
        match udp::send(socket.fd.as_fd(), bytes, to.address, segment, ecn) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(to.socket),
            // The kernel or the path does not take this many or this size at once: one by one then.
            Err(_) => {
                for datagram in bytes.chunks(self.segment.max(1)) {
                    if udp::send(socket.fd.as_fd(), datagram, to.address, None, ecn).is_err() {
                        self.lost += 1;
                    }
                }
            }
        }
        self.clear();
        None
    }
}
