//! The loop: messages first, then packets, each of them asked about before the next.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use levee_ipc::agree::{Bytes, FromStack, Outer, Outgoing, Sealed, ToStack};
use levee_ipc::tunnel::{Fatal, Peers, Socket};
use levee_ipc::vault::{KeyerToVault, Refusal, Report, SessiondToVault, VaultToKeyer, VaultToSessiond};
use levee_session::SessionId;
use levee_sys::udp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use zeroize::Zeroize as _;

use crate::stacks::Stack;
use crate::start::Started;

/// Packets of one descriptor before the others get their turn.
const TURN: usize = 16;
/// An alarm says how many packets there were since the last one, and does not come more often.
const ALARM: Duration = Duration::from_secs(1);
/// The longest packet, and with it the longest datagram or aggregate.
const LONGEST: usize = 65_535;

struct Gate {
    peers: Peers,
    tun: std::os::fd::OwnedFd,
    sockets: Vec<Socket>,
    first: Stack,
    second: Stack,
    /// Sessions that are open.
    open: BTreeSet<SessionId>,
    /// Inbound SPIs of the pairs that both stacks have, and whose they are.
    pairs: BTreeMap<u32, SessionId>,
    began: Instant,
    buffer: Vec<u8>,
    counts: Counts,
    /// Packets that nobody has been told of, and when somebody was.
    untold: u64,
    told: Option<Instant>,
}

/// What the gate itself counts.
#[derive(Default)]
struct Counts {
    /// The stacks disagreed.
    disagreed: u64,
    /// Device or socket did not take what both agreed about.
    not_taken: u64,
    /// Longer than the stacks are asked about.
    oversize: u64,
}

/// Works until the warden says stop or is gone.
///
/// # Errors
/// When a stack is gone or in doubt, the warden sends what is no message, or the TUN queue fails.
pub fn serve(started: Started) -> Result<(), Fatal> {
    let mut gate = Gate {
        peers: started.peers,
        tun: started.tun,
        sockets: started.sockets,
        first: started.first,
        second: started.second,
        open: BTreeSet::new(),
        pairs: BTreeMap::new(),
        began: Instant::now(),
        buffer: vec![0; LONGEST],
        counts: Counts::default(),
        untold: 0,
        told: None,
    };
    loop {
        let ready = gate.wait()?;
        if ready.control && !gate.peers.hear_warden()? {
            return Ok(());
        }
        gate.hear_sessiond()?;
        gate.hear_keyer()?;
        for number in 0..gate.sockets.len() {
            if ready.sockets & (1 << number) != 0 {
                gate.turn_socket(number)?;
            }
        }
        if ready.tun {
            gate.turn_tun()?;
        }
        gate.buffer.as_mut_slice().zeroize();
        gate.tell();
    }
}

/// What can be read.
#[derive(Default)]
struct Ready {
    control: bool,
    tun: bool,
    /// Socket `n` by bit `n`.
    sockets: u32,
}

impl Gate {
    fn wait(&self) -> Result<Ready, Fatal> {
        let reading = PollFlags::IN;
        let mut fds = vec![
            PollFd::new(self.peers.control(), reading),
            PollFd::new(&self.first, reading),
            PollFd::new(&self.second, reading),
            PollFd::new(&self.tun, reading),
        ];
        fds.extend(self.sockets.iter().map(|socket| PollFd::new(&socket.fd, reading)));
        let packets = fds.len();
        for (fd, writing) in [self.peers.sessiond.watch(), self.peers.keyer.watch()].into_iter().flatten() {
            let interest = if writing { reading | PollFlags::OUT } else { reading };
            fds.push(PollFd::from_borrowed_fd(fd, interest));
        }
        let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
        match poll(&mut fds, (self.untold > 0).then_some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(Fatal::new("wait", why)),
        }
        let is_ready = |place: usize| fds.get(place).is_some_and(|fd| !fd.revents().is_empty());
        for (place, stack) in [(1, &self.first), (2, &self.second)] {
            if is_ready(place) {
                // Nothing was asked: it is gone, or says what it should not.
                return Err(match stack.answer() {
                    Ok(said) => stack.out_of_turn(&said),
                    Err(why) => why,
                });
            }
        }
        let sockets =
            (4..packets).filter(|place| is_ready(*place)).fold(0, |all, place| all | 1 << (place - 4));
        Ok(Ready { control: is_ready(0), tun: is_ready(3), sockets })
    }

    /// Asks both stacks the same.
    fn both(&self, question: &ToStack) -> Result<(FromStack, FromStack), Fatal> {
        self.first.ask(question)?;
        self.second.ask(question)?;
        Ok((self.first.answer()?, self.second.answer()?))
    }

    fn turn_socket(&mut self, number: usize) -> Result<(), Fatal> {
        for _ in 0..TURN {
            let Some(socket) = self.sockets.get(number) else { return Ok(()) };
            let received = match udp::receive(socket.fd.as_fd(), &mut self.buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                // What ICMP says about an earlier send; taken with this call.
                Err(_) => continue,
            };
            if received.truncated {
                self.counts.oversize += 1;
                continue;
            }
            let from = Outer { address: received.from, socket: u8::try_from(number).unwrap_or(u8::MAX) };
            let step = received.segment.map_or(received.length.max(1), usize::from);
            let all = self.buffer.get(..received.length).unwrap_or(&[]);
            let datagrams: Vec<Option<Bytes>> = all.chunks(step).map(Bytes::new).collect();
            for datagram in datagrams {
                match datagram {
                    Some(datagram) => self.datagram(from, received.ecn, datagram)?,
                    None => self.counts.oversize += 1,
                }
            }
        }
        Ok(())
    }

    /// What is in a datagram goes to the device if both stacks find the same in it.
    fn datagram(&mut self, from: Outer, ecn: u8, datagram: Bytes) -> Result<(), Fatal> {
        match self.both(&ToStack::Datagram { from, ecn, datagram })? {
            (FromStack::Opened(one), FromStack::Opened(other)) if one == other => {
                // The first stack has counted why there is nothing.
                if let Some(packet) = one
                    && rustix::io::write(&self.tun, &packet) != Ok(packet.len())
                {
                    self.counts.not_taken += 1;
                }
                Ok(())
            }
            (FromStack::Opened(_), FromStack::Opened(_)) => {
                self.disagree();
                Ok(())
            }
            (FromStack::Opened(_), other) => Err(self.second.out_of_turn(&other)),
            (other, _) => Err(self.first.out_of_turn(&other)),
        }
    }

    fn turn_tun(&mut self) -> Result<(), Fatal> {
        for _ in 0..TURN {
            let length = match rustix::io::read(&self.tun, self.buffer.as_mut_slice()) {
                Ok(length) => length,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(why) => return Err(Fatal::new("read the TUN queue", why)),
            };
            match self.buffer.get(..length).and_then(Bytes::new) {
                Some(packet) => self.packet(packet)?,
                None => self.counts.oversize += 1,
            }
        }
        Ok(())
    }

    /// What the first stack makes of a packet leaves if the second one finds that packet in it.
    fn packet(&mut self, packet: Bytes) -> Result<(), Fatal> {
        let question = ToStack::Packet { now: self.began.elapsed(), packet: packet.clone() };
        let (sealed, expiring) = match self.first.tell(&question)? {
            FromStack::Sealed(Outgoing::Send(sealed, expiring)) => (sealed, expiring),
            FromStack::Sealed(Outgoing::Nothing) => return Ok(()),
            FromStack::Sealed(Outgoing::Wanted(session)) => {
                self.peers.keyer.send(VaultToKeyer::Acquire(session));
                return Ok(());
            }
            other => return Err(self.first.out_of_turn(&other)),
        };
        if let Some((spi, session)) = expiring {
            self.peers.keyer.send(VaultToKeyer::Expiring { spi, session });
        }
        match self.second.tell(&ToStack::Check { packet, sealed: sealed.clone() })? {
            FromStack::Agreed(true) => self.send(&sealed),
            FromStack::Agreed(false) => self.disagree(),
            other => return Err(self.second.out_of_turn(&other)),
        }
        Ok(())
    }

    fn send(&mut self, sealed: &Sealed) {
        let socket = self.sockets.get(usize::from(sealed.to.socket));
        let send = |socket: &Socket| {
            udp::send(socket.fd.as_fd(), &sealed.datagram, sealed.to.address, None, sealed.ecn).is_ok()
        };
        if !socket.is_some_and(send) {
            self.counts.not_taken += 1;
        }
    }

    fn disagree(&mut self) {
        self.counts.disagreed += 1;
        self.untold += 1;
    }

    /// Raises the alarm, and sends what waits.
    fn tell(&mut self) {
        if self.untold > 0
            && self.told.is_none_or(|told| told.elapsed() >= ALARM)
            && self.peers.sessiond.is_open()
        {
            self.peers.sessiond.send(VaultToSessiond::Disagreed(std::mem::take(&mut self.untold)));
            self.told = Some(Instant::now());
        }
        self.peers.flush();
    }

    fn hear_sessiond(&mut self) -> Result<(), Fatal> {
        while let Some(message) = self.peers.sessiond.receive::<SessiondToVault>() {
            match message {
                SessiondToVault::Open(record) => {
                    let id = record.id;
                    let taken = self.both(&ToStack::Open(record))?;
                    // What one of them does not take neither keeps.
                    if matches!(taken, (FromStack::Taken(true), FromStack::Taken(true))) {
                        self.open.insert(id);
                        self.peers.opened(id);
                    } else {
                        self.close(id)?;
                        self.peers.closed(id);
                    }
                }
                SessiondToVault::Close(id) => {
                    self.close(id)?;
                    self.peers.closed(id);
                }
                SessiondToVault::Synced => {
                    for id in self.peers.unnamed(self.open.iter().copied()) {
                        self.close(id)?;
                    }
                }
                SessiondToVault::Ping(number) => self.peers.sessiond.send(VaultToSessiond::Pong(number)),
                SessiondToVault::Report => {
                    let report = self.report()?;
                    self.peers.sessiond.send(VaultToSessiond::Report(report));
                }
            }
        }
        Ok(())
    }

    /// Ends a session in both stacks: its keys are erased when this returns.
    fn close(&mut self, id: SessionId) -> Result<(), Fatal> {
        self.open.remove(&id);
        self.pairs.retain(|_, session| *session != id);
        match self.both(&ToStack::Close(id))? {
            (FromStack::Taken(true), FromStack::Taken(true)) => Ok(()),
            (FromStack::Taken(true), other) => Err(self.second.out_of_turn(&other)),
            (other, _) => Err(self.first.out_of_turn(&other)),
        }
    }

    /// The first stack's counters, with the gate's own.
    fn report(&self) -> Result<Report, Fatal> {
        let mut report = match self.first.tell(&ToStack::Report)? {
            FromStack::Report(report) => report,
            other => return Err(self.first.out_of_turn(&other)),
        };
        let own = [("not-taken", self.counts.not_taken), ("oversize", self.counts.oversize)];
        for (name, count) in own {
            for (_, value) in report.counters.iter_mut().filter(|(counter, _)| counter == name) {
                *value = value.saturating_add(count);
            }
        }
        report.counters.push((Report::DISAGREED.to_owned(), self.counts.disagreed));
        Ok(report)
    }

    fn hear_keyer(&mut self) -> Result<(), Fatal> {
        while let Some(message) = self.peers.keyer.receive::<KeyerToVault>() {
            match message {
                KeyerToVault::Install { session, suite, esn, inbound, outbound, peer, aggregation } => {
                    let spi = inbound.spi;
                    if aggregation.is_some() {
                        let reason = Refusal::Aggregation;
                        self.peers.keyer.send(VaultToKeyer::Refused { spi, reason });
                        continue;
                    }
                    let peer = peer.and_then(|peer| self.reach(peer));
                    let now = self.began.elapsed();
                    let question = ToStack::Install { now, session, suite, esn, inbound, outbound, peer };
                    let refused = match self.both(&question)? {
                        (FromStack::Installed(Ok(())), FromStack::Installed(Ok(()))) => None,
                        (FromStack::Installed(Err(reason)), FromStack::Installed(Err(_))) => Some(reason),
                        // Keys that one alone would have are of no use to it.
                        (FromStack::Installed(Err(reason)), FromStack::Installed(Ok(()))) => {
                            self.forget(&self.second, spi)?;
                            Some(reason)
                        }
                        (FromStack::Installed(Ok(())), FromStack::Installed(Err(reason))) => {
                            self.forget(&self.first, spi)?;
                            Some(reason)
                        }
                        (FromStack::Installed(_), other) => return Err(self.second.out_of_turn(&other)),
                        (other, _) => return Err(self.first.out_of_turn(&other)),
                    };
                    if refused.is_none() {
                        self.pairs.insert(spi, session);
                    }
                    self.peers.keyer.send(match refused {
                        None => VaultToKeyer::Installed { spi },
                        Some(reason) => VaultToKeyer::Refused { spi, reason },
                    });
                }
                KeyerToVault::Only { session, spis } => {
                    let pairs = self.pairs.iter().filter(|(spi, of)| **of == session && !spis.contains(spi));
                    for spi in pairs.map(|(spi, _)| *spi).collect::<Vec<_>>() {
                        self.delete(spi)?;
                    }
                }
                KeyerToVault::Delete { spi } => self.delete(spi)?,
            }
        }
        Ok(())
    }

    fn delete(&mut self, spi: u32) -> Result<(), Fatal> {
        self.pairs.remove(&spi);
        self.forget(&self.first, spi)?;
        self.forget(&self.second, spi)
    }

    /// Has a stack erase a pair, if it has it.
    fn forget(&self, stack: &Stack, spi: u32) -> Result<(), Fatal> {
        match stack.tell(&ToStack::Delete { spi })? {
            FromStack::Taken(_) => Ok(()),
            other => Err(stack.out_of_turn(&other)),
        }
    }

    /// The socket that reaches an address.
    fn reach(&self, address: SocketAddr) -> Option<Outer> {
        let socket = Socket::reaching(&self.sockets, address)?;
        Some(Outer { address, socket: u8::try_from(socket).ok()? })
    }
}
