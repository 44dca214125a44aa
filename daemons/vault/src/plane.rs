//! The data path: TUN → ESP → UDP and back, in buffers that are made once.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use levee_aead::Library;
use levee_daemon::tunnel::Socket;
use levee_esp::offload::{Joint, MAX_HEADER, Run, Segments, VNET_HEADER, Vnet, Whole, complete_checksum};
use levee_esp::{
    Aead, AeadError, AeadProvider, DropReason, Inner, Outer, Route, Sad, Suite, TOO_BIG, ecn, too_big,
};
use levee_session::SessionId;
use levee_sys::udp;
use rustix::io::Errno;
use zeroize::Zeroize as _;

use crate::batch::{Batch, Full, To};
use crate::device::{Device, Tun};

/// Items handled for one descriptor before the others get their turn: enough small packets for one full send.
const TURN: usize = 64;
/// And bytes: about as many super-segments as keep a turn short.
const TURN_BYTES: usize = 8 * LONGEST;
/// And packets out of super-segments, of which a virtual machine says how small they are: more than those of a usual size in so many bytes.
const TURN_PIECES: usize = 1_024;
/// The longest inner packet, and with it the longest datagram.
const LONGEST: usize = 65_535;

/// What makes the vault's AEAD keys.
pub struct Libraries {
    /// The library chosen for each suite, in the order of [`Suite::ALL`].
    pub by_suite: [Library; 3],
    /// What a key is used as: itself, but in the laboratory.
    pub aead: fn(Box<dyn Aead>) -> Box<dyn Aead>,
}

impl AeadProvider for Libraries {
    fn name(&self) -> &'static str {
        "by suite"
    }

    fn key(&self, suite: Suite, key: &[u8]) -> Result<Box<dyn Aead>, AeadError> {
        let library = Suite::ALL.iter().zip(self.by_suite).find(|(of, _)| **of == suite).ok_or(AeadError)?.1;
        library.key(suite, key).map(self.aead)
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
    Blocked(Full),
}

/// Why a packet from the TUN queue has not gone.
enum Stop {
    /// It waits for this socket.
    Full(Full),
    /// The turn is over: the rest of it goes in the next one.
    Over,
    /// It never will.
    Dropped(DropReason),
}

impl From<Full> for Stop {
    fn from(full: Full) -> Self {
        Self::Full(full)
    }
}

impl From<DropReason> for Stop {
    fn from(reason: DropReason) -> Self {
        Self::Dropped(reason)
    }
}

/// Another piece of a super-segment is to go, of these that have gone in this turn: whether it may.
pub(crate) fn next_piece(gone: &mut usize) -> bool {
    let may = *gone < TURN_PIECES;
    *gone += usize::from(may);
    may
}

/// The data path of one worker.
pub struct Plane {
    pub(crate) device: Device,
    sockets: Vec<Socket>,
    /// The sessions and their security associations.
    pub sad: Sad<SessionId>,
    from_tun: Vec<u8>,
    /// Bytes in `from_tun` that still have to go, because a socket was full.
    stalled: usize,
    /// The pieces of a super-segment in `from_tun` that have gone.
    pub(crate) gone: usize,
    /// How many have gone in this turn.
    pub(crate) pieces: usize,
    pub(crate) from_net: Vec<u8>,
    /// One packet, cut out of what the device would not take whole.
    pub(crate) piece: Vec<u8>,
    /// Packets out of AGGFRAG payloads; empty between turns.
    pub(crate) joint: Joint,
    pub(crate) batch: Batch,
    /// Sessions whose first packet waits: the keyer is to be asked.
    pub acquire: Vec<SessionId>,
    /// Counts what has been read from the queue, and what was authentic of what came from outside: a stranger's datagrams are
    /// no reason to look for more.
    pub moved: u64,
}

impl Plane {
    /// A plane over these descriptors; nothing passes until `sad` has sessions and keys.
    pub fn new(tun: Tun, sockets: Vec<Socket>, sad: Sad<SessionId>) -> Self {
        Self {
            device: Device::new(tun),
            sockets,
            sad,
            from_tun: vec![0; VNET_HEADER + LONGEST],
            from_net: vec![0; VNET_HEADER + LONGEST],
            batch: Batch::new(levee_esp::sealed_length(LONGEST)),
            stalled: 0,
            gone: 0,
            pieces: 0,
            piece: vec![0; VNET_HEADER + levee_esp::sealed_length(LONGEST)],
            joint: Joint::new(),
            acquire: Vec::new(),
            moved: 0,
        }
    }

    /// The TUN queue.
    pub fn tun(&self) -> &Tun {
        &self.device.tun
    }

    /// The UDP sockets.
    pub fn sockets(&self) -> &[Socket] {
        &self.sockets
    }

    /// Ends a session: its keys, its waiting packets and what buffers hold of any session are erased on return.
    pub fn close(&mut self, id: SessionId) {
        self.sad.close_session(id);
        self.sad.counters.count_many(DropReason::NoSession, self.batch.forget(id));
        (self.stalled, self.gone) = (0, 0);
        for buffer in [&mut self.from_tun, &mut self.from_net, &mut self.piece] {
            buffer.as_mut_slice().zeroize();
        }
        self.joint.clear();
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
        let head = if self.device.tun.vnet { 0 } else { VNET_HEADER };
        let mut bytes = 0;
        self.pieces = 0;
        for _ in 0..TURN {
            if bytes >= TURN_BYTES {
                break;
            }
            if self.stalled == 0 {
                let Some(free) = buffer.get_mut(head..) else { return Ok(Turn::Drained) };
                self.stalled = match rustix::io::read(&self.device.tun.fd, free) {
                    Ok(length) => head + length,
                    Err(Errno::AGAIN) => {
                        return Ok(self.send_rest(now).map_or_else(Turn::Blocked, |()| Turn::Drained));
                    }
                    Err(Errno::INTR) => continue,
                    // A device that is down has nothing to say.
                    Err(Errno::IO) => return Ok(Turn::Drained),
                    Err(error) => return Err(error.into()),
                };
            }
            self.moved = self.moved.wrapping_add(1);
            match self.send(now, buffer.get(..self.stalled).unwrap_or(&[])) {
                Ok(true) => {}
                Ok(false) => break,
                Err(full) => return Ok(Turn::Blocked(full)),
            }
            bytes += std::mem::take(&mut self.stalled);
        }
        Ok(self.send_rest(now).map_or_else(Turn::Blocked, |()| Turn::More))
    }

    /// Sends again what waited for keys of this session.
    pub fn release(&mut self, now: Duration, id: SessionId) {
        let gone = std::mem::take(&mut self.gone);
        while let Some(packet) = self.sad.release(id) {
            self.pieces = 0;
            if !self.send(now, &packet).unwrap_or(false) {
                self.gone = 0;
                self.sad.counters.count(DropReason::NotTaken);
            }
        }
        self.gone = gone;
        // A socket that is full now is tried again at the next turn.
        let _ = self.send_rest(now);
    }

    /// Seals the inner packet in `bytes`, behind its vnet header, and adds it to the batch; a super-segment in pieces. Whether that was all of it; if
    /// not, `gone` says how many pieces are done with.
    ///
    /// # Errors
    /// There is no room, since a socket is full; that was not all of it.
    fn send(&mut self, now: Duration, bytes: &[u8]) -> Result<bool, Full> {
        match self.try_send(now, bytes) {
            Ok(()) => Ok(true),
            Err(Stop::Full(full)) => Err(full),
            Err(Stop::Over) => Ok(false),
            Err(Stop::Dropped(reason)) => {
                self.sad.counters.count(reason);
                Ok(true)
            }
        }
    }

    fn try_send(&mut self, now: Duration, bytes: &[u8]) -> Result<(), Stop> {
        let (header, packet) = bytes.split_first_chunk::<VNET_HEADER>().ok_or(DropReason::Malformed)?;
        let vnet = if self.device.tun.vnet { Vnet::parse(header)? } else { Vnet::default() };
        let inner = Inner::parse(packet)?;
        let packet = packet.get(..inner.length).ok_or(DropReason::Malformed)?;
        let segments = vnet.gso.map(|gso| Segments::new(packet, inner, gso)).transpose()?;
        // A virtual machine says what its card left to do, and need not be right.
        if vnet.checksum.is_some_and(|(start, offset)| {
            !inner.has_checksum(start, offset)
                || start.saturating_add(offset).saturating_add(2) > packet.len()
        }) {
            return Err(DropReason::Malformed.into());
        }
        // The device's MTU sees to this, unless someone in the compartment's network has raised it.
        let longest = segments.map_or(packet.len(), |segments| segments.longest());
        let oversize = longest > usize::from(self.device.tun.mtu);
        let mut lane = match self.sad.route(now, &inner) {
            // Said only of packets that would have passed.
            Ok(_) if oversize => {
                self.tell_too_big(packet, &inner);
                return Err(DropReason::Oversize.into());
            }
            Ok(Route::Through(lane)) => lane,
            Ok(Route::Wait(id)) => {
                if self.sad.hold(now, id, bytes) {
                    self.acquire.push(id);
                }
                return Ok(());
            }
            Ok(Route::Gather(id)) => {
                let is_all = self.gather(now, id, packet, &inner, segments, vnet.checksum)?;
                return if is_all { Ok(()) } else { Err(Stop::Over) };
            }
            // Counted where it was found.
            Err(_) => return Ok(()),
        };
        let to = To { peer: lane.peer(), ecn: ecn::of(packet), session: lane.session() };
        let count = segments.map_or(1, |segments| segments.count());
        while self.gone < count {
            if !next_piece(&mut self.pieces) {
                return Err(Stop::Over);
            }
            let number = self.gone;
            let length = segments.map_or(packet.len(), |segments| segments.length(number));
            if !self.batch.takes(to, levee_esp::sealed_length(length)) {
                self.batch.flush(&self.sockets)?;
            }
            self.gone += 1;
            self.batch.add(
                to,
                length,
                |place| match (segments, vnet.checksum) {
                    (Some(segments), _) => segments.write(number, place).is_some(),
                    (None, checksum) => {
                        place.copy_from_slice(packet);
                        checksum.is_none_or(|(start, offset)| {
                            complete_checksum(place, start, offset, inner.protocol).is_ok()
                        })
                    }
                },
                |buffer| lane.seal(buffer, length).map(|sealed| sealed.length).ok(),
            );
        }
        self.gone = 0;
        Ok(())
    }

    /// Tells the sender of a packet, in the compartment, what would pass (RFC 4301 8.2).
    fn tell_too_big(&mut self, packet: &[u8], inner: &Inner) {
        let mut message = [0; VNET_HEADER + TOO_BIG];
        let (head, room) = message.split_at_mut(VNET_HEADER);
        let Ok(room) = room.try_into() else { return };
        let Some(length) = too_big(packet, inner, self.device.tun.mtu, room) else { return };
        // One packet, whole: a header of zeros.
        let from = if self.device.tun.vnet { 0 } else { head.len() };
        // A message that the device does not take is one that came to nothing; the sender's next packet brings another.
        let _ =
            rustix::io::write(&self.device.tun.fd, message.get(from..VNET_HEADER + length).unwrap_or(&[]));
    }

    /// Sends what is gathered.
    ///
    /// # Errors
    /// The socket that is full, if one is.
    pub fn flush(&mut self) -> Result<(), Full> {
        let sent = self.batch.flush(&self.sockets);
        self.sad.counters.count_many(DropReason::NotTaken, self.batch.take_lost());
        sent
    }

    /// Reads datagrams from a socket, opens them and passes what is in them to the TUN queue.
    pub fn turn_socket(&mut self, now: Duration, number: usize) -> Turn {
        let turn = self.drain_socket(now, number);
        self.deliver_joint();
        turn
    }

    fn drain_socket(&mut self, now: Duration, number: usize) -> Turn {
        let mut bytes = 0;
        for _ in 0..TURN {
            if bytes >= TURN_BYTES {
                break;
            }
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
            bytes += received.length;
            let from = Outer { address: received.from, socket: number };
            let step = received.segment.map_or(received.length.max(1), usize::from);
            let (mut at, mut joined) = (0, None);
            // An empty datagram is one as well.
            while at < received.length || (at == 0 && received.length == 0) {
                let end = received.length.min(at + step);
                joined = self.open(now, joined, VNET_HEADER + at, VNET_HEADER + end, from, received.ecn);
                at += step;
            }
            self.deliver(joined);
        }
        Turn::More
    }

    /// Opens the datagram at `from_net[begin..end]`. Where packets have been joined before it, its plaintext is laid so
    /// that its payload follows theirs, on the assumption that it goes with them: then nothing is moved.
    fn open(
        &mut self,
        now: Duration,
        joined: Option<Joined>,
        begin: usize,
        end: usize,
        from: Outer,
        outer_ecn: u8,
    ) -> Option<Joined> {
        if self.sad.is_aggregate(self.from_net.get(begin..end)?) {
            self.deliver(joined);
            self.open_aggregate(now, begin..end, from, outer_ecn);
            return None;
        }
        // What came before goes before.
        self.deliver_joint();
        let Some(mut joined) = joined else {
            let datagram = self.from_net.get_mut(begin..end)?;
            let opened = self.sad.open(now, datagram, 0, from, outer_ecn).ok()?;
            self.moved = self.moved.wrapping_add(1);
            return self.begin(begin, opened.inner);
        };
        let headers = joined.run.headers();
        let tail = joined.start + joined.run.length();
        let place = tail - headers;
        // The end of the last payload lies where the new headers go.
        let mut under = [0; MAX_HEADER];
        let under = under.get_mut(..headers)?;
        under.copy_from_slice(self.from_net.get(place..tail)?);
        let datagram = self.from_net.get_mut(place..end)?;
        let opened = match self.sad.open(now, datagram, begin - place, from, outer_ecn) {
            Ok(opened) => opened,
            Err(_) => {
                self.from_net.get_mut(place..tail)?.copy_from_slice(under);
                return Some(joined);
            }
        };
        self.moved = self.moved.wrapping_add(1);
        let packet = self.from_net.get(place..place + opened.inner.length)?;
        if joined.run.append(&mut joined.first, packet, &opened.inner) {
            self.from_net.get_mut(place..tail)?.copy_from_slice(under);
            return Some(joined);
        }
        let over = self.from_net.get_mut(place..tail)?;
        over.swap_with_slice(under);
        self.deliver(Some(joined));
        self.from_net.get_mut(place..tail)?.copy_from_slice(under);
        self.begin(place, opened.inner)
    }

    /// Passes the packet at `from_net[start..]` on, or keeps it for those that follow.
    fn begin(&mut self, start: usize, inner: Inner) -> Option<Joined> {
        let packet = self.from_net.get(start..start + inner.length)?;
        if let Some(run) = self.device.begin(packet, inner) {
            let mut first = [0; MAX_HEADER];
            first.get_mut(..run.headers())?.copy_from_slice(packet.get(..run.headers())?);
            return Some(Joined { run, start, first });
        }
        self.write([0; VNET_HEADER], start, inner.length, 1);
        None
    }

    fn deliver(&mut self, joined: Option<Joined>) {
        let Some(Joined { run, start, first }) = joined else { return };
        let Some(packet) = self.from_net.get_mut(start..start + run.length()) else { return };
        if let (Some(to), Some(from)) = (packet.get_mut(..run.headers()), first.get(..run.headers())) {
            to.copy_from_slice(from);
        }
        let header = run.finish(packet);
        self.write(header, start, run.length(), run.packets());
    }

    /// Writes `from_net[start..][..length]`, so many packets, to the device. What lies before has been dealt with, so the
    /// header may lie on it.
    fn write(&mut self, header: [u8; VNET_HEADER], start: usize, length: usize, packets: usize) {
        let Some(bytes) = self.from_net.get_mut(start - VNET_HEADER..start + length) else { return };
        if let Some(place) = bytes.first_chunk_mut() {
            *place = header;
        }
        let lost = self.device.deliver(bytes, packets, &mut self.piece);
        self.sad.counters.count_many(DropReason::NotTaken, lost);
    }

    /// Passes on what has come out of AGGFRAG payloads.
    pub(crate) fn deliver_joint(&mut self) {
        if let Some(Whole { bytes, packets }) = self.joint.take() {
            let lost = self.device.deliver(bytes, packets, &mut self.piece);
            self.sad.counters.count_many(DropReason::NotTaken, lost);
        }
    }
}

/// Packets laid one behind the other in `from_net`.
struct Joined {
    run: Run,
    /// Where the first begins.
    start: usize,
    /// Its headers as they now stand; those in the buffer are covered when later ones are opened.
    first: [u8; MAX_HEADER],
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use levee_daemon::Events;
    use levee_esp::{
        AddressRange, ESP_HEADER, Install, PortRange, SaKeys, Selector, SelectorSet, SessionPolicy, Side,
        Spi, sealed_length,
    };

    use super::*;

    const SPIS: [u32; 2] = [0x100, 0x200];

    /// The end of a session with these inbound and outbound SPIs, whose other end is there.
    fn end(side: Side, [inbound, outbound]: [u32; 2], peer: Outer) -> Sad<SessionId> {
        let any = AddressRange::prefix("0.0.0.0".parse().unwrap(), 0).unwrap();
        let ports = PortRange::ANY;
        let all =
            Selector { local: any, remote: any, protocol: None, local_ports: ports, remote_ports: ports };
        let policy = SessionPolicy {
            inner: vec!["10.0.0.2".parse().unwrap()],
            selectors: SelectorSet::new(vec![all]),
            only: None,
        };
        let (mut sad, session) = (Sad::new(side), SessionId::from_random([1; 16]));
        sad.open_session(session, policy).unwrap();
        let sa = |spi: u32| {
            let material = vec![spi as u8 | (spi >> 8) as u8; Suite::Aes256Gcm.keying_material()];
            (Spi::new(spi).unwrap(), SaKeys::new(Suite::Aes256Gcm, &material).unwrap())
        };
        let pair = Install {
            session,
            extended: true,
            inbound: sa(inbound),
            outbound: sa(outbound),
            answered: false,
            peer: Some(peer),
            aggregation: None,
        };
        sad.install(Duration::ZERO, pair, &Library::Ring).unwrap();
        sad
    }

    /// A server's plane, the other end of its TUN queue, its socket's address, and a peer's socket.
    fn plane(events: &mut Events<()>, vnet: bool) -> (Plane, UnixDatagram, SocketAddr, UdpSocket) {
        let mut watch = |fd: OwnedFd| events.watch(fd, ()).unwrap();
        let (queue, compartment) = UnixDatagram::pair().unwrap();
        queue.set_nonblocking(true).unwrap();
        let (socket, peer) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let tun = Tun { fd: watch(queue.into()), mtu: 1_400, vnet };
        let sockets = vec![Socket { fd: watch(socket.into()), address }];
        let to = Outer { address: peer.local_addr().unwrap(), socket: 0 };
        (Plane::new(tun, sockets, end(Side::Server, SPIS, to)), compartment, address, peer)
    }

    #[test]
    fn a_checksum_that_the_compartment_leaves_to_do_changes_nothing_but_tcps_and_udps_own() {
        let mut events = Events::new().unwrap();
        let (mut plane, compartment, _, peer) = plane(&mut events, true);
        peer.set_nonblocking(true).unwrap();
        // From the server to the client, as one of UDP's ports may.
        let packet = [
            &[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2][..],
            &[0, 9, 0, 9, 0, 8, 0, 0],
        ]
        .concat();
        let nobody = Outer { address: "127.0.0.1:9".parse().unwrap(), socket: 0 };
        let mut client = end(Side::Workstation, [SPIS[1], SPIS[0]], nobody);
        for start in 0..28_u16 {
            for offset in 0..28_u16 {
                let [s, o] = [start, offset].map(u16::to_ne_bytes);
                let header = [1, 0, 0, 0, 0, 0, s[0], s[1], o[0], o[1]];
                compartment.send(&[&header[..], &packet].concat()).unwrap();
                plane.turn_tun(Duration::ZERO).unwrap();
                let mut datagram = [0; 200];
                let is_own = (start, offset) == (20, 6);
                let Ok(length) = peer.recv(&mut datagram) else {
                    assert!(!is_own, "what the kernel leaves is done");
                    continue;
                };
                assert!(is_own, "{start}+{offset}: completed behind what was decided");
                let from = Outer { address: "127.0.0.1:9".parse().unwrap(), socket: 0 };
                let opened = client.open(Duration::ZERO, &mut datagram[..length], 0, from, 0).unwrap();
                assert_eq!(opened.inner.source, "10.0.0.1".parse::<std::net::IpAddr>().unwrap());
            }
        }
    }

    #[test]
    fn a_super_segment_of_the_smallest_pieces_takes_more_than_one_turn() {
        let mut events = Events::new().unwrap();
        let (mut plane, compartment, _, _peer) = plane(&mut events, true);
        // 3,000 octets of TCP, of which the device says that one goes in each packet.
        let head = [0x45, 0, 0x0b, 0xe0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let transport = [0, 9, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0];
        let one = 1_u16.to_ne_bytes();
        let [start, offset] = [20_u16, 16].map(u16::to_ne_bytes);
        let header = [1, 1, 0, 0, one[0], one[1], start[0], start[1], offset[0], offset[1]];
        compartment.send(&[&header[..], &head, &transport, &[7; 3_000]].concat()).unwrap();
        let mut turn = || (plane.turn_tun(Duration::ZERO).unwrap(), plane.gone);
        assert_eq!(turn(), (Turn::More, TURN_PIECES));
        assert_eq!(turn(), (Turn::More, 2 * TURN_PIECES));
        assert_eq!(turn(), (Turn::Drained, 0));
    }

    #[test]
    fn a_datagram_that_is_not_authentic_is_no_reason_to_look_for_more() {
        let mut events = Events::new().unwrap();
        let (mut plane, compartment, address, peer) = plane(&mut events, false);

        // From the client to the server: 28 bytes of UDP.
        let packet = [
            &[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1][..],
            &[0, 9, 0, 9, 0, 8, 0, 0],
        ]
        .concat();
        let nobody = Outer { address: "127.0.0.1:9".parse().unwrap(), socket: 0 };
        let mut client = end(Side::Workstation, [SPIS[1], SPIS[0]], nobody);
        let Ok(Route::Through(mut lane)) = client.route(Duration::ZERO, &Inner::parse(&packet).unwrap())
        else {
            panic!("no way")
        };
        let mut datagram = vec![0; sealed_length(packet.len())];
        datagram[ESP_HEADER..][..packet.len()].copy_from_slice(&packet);
        lane.seal(&mut datagram, packet.len()).unwrap();

        let mut forged = datagram.clone();
        *forged.last_mut().unwrap() ^= 1;
        for bad in [&forged[..], &[0; 64], &[]] {
            peer.send_to(bad, address).unwrap();
            plane.turn_socket(Duration::ZERO, 0);
            assert_eq!(plane.moved, 0);
        }
        peer.send_to(&datagram, address).unwrap();
        plane.turn_socket(Duration::ZERO, 0);
        assert_eq!(plane.moved, 1);
        assert_eq!(compartment.recv(&mut [0; 100]).unwrap(), packet.len());
        peer.send_to(&datagram, address).unwrap();
        plane.turn_socket(Duration::ZERO, 0);
        assert_eq!(plane.moved, 1, "a repetition");
    }
}
