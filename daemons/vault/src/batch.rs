//! A batch: sealed datagrams of one size for one peer, one behind the other, that leave in one send.

use std::io;
use std::os::fd::AsFd as _;

use levee_daemon::tunnel::Socket;
use levee_esp::{ESP_HEADER, Outer};
use levee_session::SessionId;
use levee_sys::udp;
use zeroize::Zeroize as _;

/// Batches that go one by one after one that was refused as a whole.
const APART: u32 = 1_024;

/// This socket takes nothing more until it can be written. What was to be sent is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what was to be sent is kept, and has to be sent again"]
pub struct Full {
    /// The socket's number.
    pub socket: usize,
}

/// Where a datagram goes: datagrams for different ones leave apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct To {
    /// The peer, and the socket that reaches it.
    pub peer: Outer,
    /// What the outer header says of congestion (RFC 3168 5).
    pub ecn: u8,
    /// The session.
    pub session: SessionId,
}

/// What a batch holds.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing.
    Empty,
    /// At least one datagram.
    Holds(Load),
}

/// The datagrams of a batch that is not empty.
#[derive(Clone, Copy, Debug)]
struct Load {
    to: To,
    /// Size of each but the last, which may be shorter.
    segment: usize,
    packets: usize,
    /// Bytes of all of them.
    bytes: usize,
    end: End,
    leaves: Leaves,
}

/// Whether another datagram may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// The last is shorter than the others.
    Closed,
}

/// How they leave.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    /// In one send.
    Together,
    /// One by one. So many bytes had gone before the socket was full.
    Apart { gone: usize },
}

/// A batch, and the buffer that it is gathered in.
pub(crate) struct Batch {
    buffer: Vec<u8>,
    state: State,
    /// Datagrams that the socket did not take, until they are counted.
    lost: u64,
    /// For so many more batches, datagrams go one by one: together they were refused.
    apart: u32,
}

impl Batch {
    /// An empty one, for datagrams of no more than `longest` bytes.
    pub fn new(longest: usize) -> Self {
        Self { buffer: vec![0; udp::MAX_SEND + longest], state: State::Empty, lost: 0, apart: 0 }
    }

    /// Bytes that are gathered. Behind them is room.
    fn used(&self) -> usize {
        match self.state {
            State::Empty => 0,
            State::Holds(load) => load.bytes,
        }
    }

    /// Datagrams that were lost since this was last asked.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Drops what is gathered for this session, and answers how many datagrams that was.
    pub fn forget(&mut self, session: SessionId) -> u64 {
        match self.state {
            State::Holds(load) if load.to.session == session => {
                self.state = State::Empty;
                load.packets as u64
            }
            _ => 0,
        }
    }

    /// Whether there may be no room for a datagram of `octets`.
    pub fn is_nearly_full(&self, octets: usize) -> bool {
        match self.state {
            State::Empty => octets > udp::MAX_SEND,
            State::Holds(load) => load.packets >= udp::MAX_SEGMENTS || load.bytes + octets > udp::MAX_SEND,
        }
    }

    /// The room behind what is gathered, for a datagram that may be [added](Self::added) then.
    pub fn free(&mut self) -> &mut [u8] {
        let used = self.used();
        self.buffer.get_mut(used..).unwrap_or_default()
    }

    /// Where that room begins.
    pub fn place(&self) -> usize {
        self.used()
    }

    /// Moves a datagram that was laid at `place` to where that room begins now, which is not behind it.
    pub fn move_up(&mut self, place: usize, length: usize) {
        let used = self.used();
        if place + length <= self.buffer.len() && used <= place {
            self.buffer.copy_within(place..place + length, used);
        }
    }

    /// Whether a datagram of `sealed` bytes can go with what is gathered.
    pub fn takes(&self, to: To, sealed: usize) -> bool {
        match self.state {
            State::Empty => true,
            State::Holds(load) => {
                load.end == End::Open
                    && load.to == to
                    && sealed <= load.segment
                    && load.packets < udp::MAX_SEGMENTS
                    && load.bytes + sealed <= udp::MAX_SEND
            }
        }
    }

    /// A datagram, sealed already, has been laid where the room begins, and the batch [takes](Self::takes) it.
    pub fn added(&mut self, to: To, length: usize) {
        match &mut self.state {
            State::Empty => {
                let (end, leaves) = (End::Open, Leaves::Together);
                self.state =
                    State::Holds(Load { to, segment: length, packets: 1, bytes: length, end, leaves });
            }
            State::Holds(load) => {
                load.end = if length < load.segment { End::Closed } else { End::Open };
                load.bytes += length;
                load.packets += 1;
            }
        }
    }

    /// Adds a packet of `length` bytes: `write` lays it out and `seal` seals it, where it is then sent from.
    pub fn add(
        &mut self,
        to: To,
        length: usize,
        write: impl FnOnce(&mut [u8]) -> bool,
        seal: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) {
        let free = self.free();
        let Some(place) = free.get_mut(ESP_HEADER..ESP_HEADER + length) else { return };
        let sealed = if write(place) { seal(free) } else { None };
        let Some(sealed) = sealed else {
            // Not sealed, so it is still plaintext.
            if let Some(place) = free.get_mut(ESP_HEADER..ESP_HEADER + length) {
                place.zeroize();
            }
            return;
        };
        self.added(to, sealed);
    }

    /// Sends everything.
    ///
    /// # Errors
    /// The socket is full. What has not gone is kept.
    pub fn flush(&mut self, sockets: &[Socket]) -> Result<(), Full> {
        let State::Holds(load) = &mut self.state else { return Ok(()) };
        let (to, full) = (load.to, Full { socket: load.to.peer.socket });
        let Some(socket) = sockets.get(full.socket) else {
            self.lost += load.packets as u64;
            self.state = State::Empty;
            return Ok(());
        };
        let bytes = self.buffer.get(..load.bytes).unwrap_or(&[]);
        let send = |bytes, segment| udp::send(socket.fd.as_fd(), bytes, to.peer.address, segment, to.ecn);
        let segment = if load.packets > 1 { u16::try_from(load.segment).ok() } else { None };
        let begun = match load.leaves {
            Leaves::Apart { gone } => Some(gone),
            Leaves::Together if segment.is_some() && self.apart > 0 => {
                self.apart -= 1;
                Some(0)
            }
            Leaves::Together => match send(bytes, segment) {
                Ok(()) => None,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(full),
                Err(_) => Some(0),
            },
        };
        if let Some(mut gone) = begun {
            // The kernel or the path does not take this many or this size at once: one by one then, and those that
            // follow for a while, since a try costs as much as a send.
            let mut taken = gone > 0;
            for datagram in bytes.get(gone..).unwrap_or(&[]).chunks(load.segment.max(1)) {
                match send(datagram, None) {
                    Ok(()) => taken = true,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(full),
                    Err(_) => self.lost += 1,
                }
                gone += datagram.len();
                load.leaves = Leaves::Apart { gone };
            }
            if taken && segment.is_some() && self.apart == 0 {
                self.apart = APART;
            }
        }
        self.state = State::Empty;
        Ok(())
    }
}
