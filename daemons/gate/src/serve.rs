//! The loop: messages first, then packets. As many as wait are asked about at once, and each of them is judged alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use levee_daemon::tunnel::{Ciphers, Peers, Socket};
use levee_daemon::{Events, Fatal, Order, TURN, Warden, Watched};
use levee_ipc::agree::{
    ARRIVING, Datagrams, Ends, FromStack, Outer, Outgoing, Packets, SealedPackets, ToStack,
};
use levee_ipc::vault::{KeyerToVault, Refusal, Report, SessiondToVault, VaultToKeyer, VaultToSessiond};
use levee_ipc::warden::vault::GatePart;
use levee_session::SessionId;
use levee_sys::udp;
use rustix::io::Errno;

use crate::stacks::Stack;
use crate::start::{Source, Started};
use crate::together::{self, Run};

/// And bytes: two full questions.
const TURN_BYTES: usize = 2 * ARRIVING;
/// Sends that go one by one after one that was refused as a whole.
const APART: u32 = 1_024;
/// An alarm says how many packets there were since the last one, and does not come more often.
const ALARM: Duration = Duration::from_secs(1);
/// The longest packet, and with it the longest datagram or aggregate.
const LONGEST: usize = 65_535;

struct Gate {
    events: Events<Source>,
    warden: Warden<GatePart>,
    peers: Peers,
    tun: Watched<OwnedFd>,
    /// What is before each packet of it.
    header: &'static [u8],
    sockets: Vec<Socket>,
    first: Stack,
    second: Stack,
    /// Sessions that are open.
    open: BTreeSet<SessionId>,
    /// Inbound SPIs of the pairs that both stacks have, and whose they are.
    pairs: BTreeMap<u32, SessionId>,
    ciphers: Ciphers,
    began: Instant,
    buffer: Vec<u8>,
    /// Bytes of the buffer that may have been written to since it was erased.
    used: usize,
    /// For so many more sends, datagrams go one by one: together they were refused.
    apart: u32,
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
    /// Longer than the stacks are asked about, or not one whole packet.
    oversize: u64,
}

/// Works until the warden says stop or is gone.
///
/// # Errors
/// When a stack is gone or in doubt, the warden sends what is no message, or the TUN queue fails.
pub fn serve(started: Started) -> Result<(), Fatal> {
    let mut gate = Gate {
        events: started.events,
        warden: started.warden,
        peers: started.peers,
        tun: started.tun,
        header: started.header,
        sockets: started.sockets,
        first: started.first,
        second: started.second,
        open: BTreeSet::new(),
        pairs: BTreeMap::new(),
        ciphers: Ciphers::default(),
        began: Instant::now(),
        buffer: vec![0; LONGEST],
        used: 0,
        apart: 0,
        counts: Counts::default(),
        untold: 0,
        told: None,
    };
    while gate.turn()? {}
    Ok(())
}

impl Gate {
    /// Waits for something, and does it. False when it is time to end.
    fn turn(&mut self) -> Result<bool, Fatal> {
        let (mut tun, mut sockets) = (false, Vec::new());
        for (source, _) in self.events.wait((self.untold > 0).then_some(ALARM))? {
            match source {
                Source::Warden => {
                    if !self.hear_warden()? {
                        return Ok(false);
                    }
                }
                Source::Sessiond => self.hear_sessiond()?,
                Source::Keyer => self.hear_keyer()?,
                Source::Tun => tun = true,
                Source::Socket(number) => sockets.push(number),
                Source::First => Self::unasked(&self.first)?,
                Source::Second => Self::unasked(&self.second)?,
            }
        }
        if let Some(answer) = self.ciphers.answer(|| self.pairs.keys().copied()) {
            self.peers.sessiond.send(answer);
        }
        for number in sockets {
            self.turn_socket(number)?;
        }
        if tun {
            self.turn_tun()?;
        }
        self.erase();
        self.tell();
        Ok(true)
    }

    /// A stack has something to read when the turn begins. What it was asked in the turn it may have answered since; if not, it is
    /// gone, or says what it should not.
    fn unasked(stack: &Stack) -> Result<(), Fatal> {
        match stack.has_said()? {
            None => Ok(()),
            Some(said) => Err(stack.out_of_turn(&said)),
        }
    }

    /// Does what the warden says. False when it is time to end.
    fn hear_warden(&mut self) -> Result<bool, Fatal> {
        while let Some(order) = self.warden.hear()? {
            match order {
                Order::Stop => return Ok(false),
                Order::Take(GatePart::Sessiond, with) => {
                    self.peers.sessiond_came(with.channel()?, &mut self.events, Source::Sessiond)?;
                }
                Order::Take(GatePart::Keyer, with) => {
                    self.peers.keyer.replace(with.channel()?, &mut self.events, Source::Keyer)?;
                }
                Order::Take(part, _) => return Err(Warden::unwanted(&part)),
            }
        }
        Ok(true)
    }

    /// Asks both stacks the same.
    fn both(&self, question: &ToStack) -> Result<(FromStack, FromStack), Fatal> {
        self.first.ask(question)?;
        self.second.ask(question)?;
        Ok((self.first.answer()?, self.second.answer()?))
    }

    fn turn_socket(&mut self, number: usize) -> Result<(), Fatal> {
        let mut datagrams = Datagrams::new();
        let mut bytes = 0;
        for _ in 0..TURN {
            if bytes >= TURN_BYTES {
                break;
            }
            let Some(socket) = self.sockets.get(number) else { break };
            let received = match udp::receive(socket.fd.as_fd(), &mut self.buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                // What ICMP says about an earlier send; taken with this call.
                Err(_) => continue,
            };
            bytes += received.length;
            self.used = self.used.max(received.length);
            if received.truncated {
                self.counts.oversize += 1;
                continue;
            }
            let outer = Outer { address: received.from, socket: u8::try_from(number).unwrap_or(u8::MAX) };
            let from = Ends { outer, ecn: received.ecn };
            let step = received.segment.map_or(received.length.max(1), usize::from);
            let mut begin = 0;
            while begin < received.length {
                let end = received.length.min(begin + step);
                if !datagrams.takes(end - begin) {
                    self.arrive(std::mem::take(&mut datagrams))?;
                }
                if !datagrams.add(from, self.buffer.get(begin..end).unwrap_or(&[])) {
                    self.counts.oversize += 1;
                }
                begin = end;
            }
        }
        self.arrive(datagrams)
    }
    /// What is in each datagram goes to the device if both stacks find the same in it.
    fn arrive(&mut self, datagrams: Datagrams<Ends>) -> Result<(), Fatal> {
        let asked = datagrams.len();
        if asked == 0 {
            return Ok(());
        }
        let (one, other) = match self.both(&ToStack::Datagrams { now: self.began.elapsed(), datagrams })? {
            (FromStack::Opened(one), FromStack::Opened(other))
                if one.len() == asked && other.len() == asked =>
            {
                (one, other)
            }
            (FromStack::Opened(one), other) if one.len() == asked => {
                return Err(self.second.out_of_turn(&other));
            }
            (other, _) => return Err(self.first.out_of_turn(&other)),
        };
        for (((), packet), ((), other)) in one.iter().zip(other.iter()) {
            if packet != other {
                self.disagree();
            } else if !packet.is_empty() && !self.give(packet) {
                // Where there is nothing, the first stack has counted why.
                self.counts.not_taken += 1;
            }
        }
        Ok(())
    }

    /// Whether the device takes a packet.
    fn give(&self, packet: &[u8]) -> bool {
        let behind = [IoSlice::new(self.header), IoSlice::new(packet)];
        rustix::io::writev(&self.tun, &behind) == Ok(self.header.len() + packet.len())
    }

    fn turn_tun(&mut self) -> Result<(), Fatal> {
        let mut packets = Packets::new();
        for _ in 0..TURN {
            let length = match rustix::io::read(&self.tun, self.buffer.as_mut_slice()) {
                Ok(length) => length,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(why) => return Err(Fatal::new("read the TUN queue", why)),
            };
            self.used = self.used.max(length);
            let head = self.header.len();
            let Some(packet) = self.buffer.get(..length).and_then(|read| whole(head, read)) else {
                self.counts.oversize += 1;
                continue;
            };
            if !packets.takes(packet.len()) {
                self.leave(std::mem::take(&mut packets))?;
            }
            let packet = self.buffer.get(head..length).unwrap_or(&[]);
            if !packets.add((), packet) {
                self.counts.oversize += 1;
            }
        }
        self.leave(packets)
    }

    /// What the first stack makes of each packet leaves if the second one finds that packet in it.
    fn leave(&mut self, packets: Packets) -> Result<(), Fatal> {
        if packets.is_empty() {
            return Ok(());
        }
        // One time for both: how long fragments of one datagram may take is asked of each.
        let now = self.began.elapsed();
        let question = ToStack::Packets { now, packets };
        let (packets, outgoing, expiring) = match (self.first.tell(&question)?, question) {
            (FromStack::Sealed { outgoing, expiring }, ToStack::Packets { packets, .. })
                if outgoing.len() == packets.len() =>
            {
                (packets, outgoing, expiring)
            }
            (other, _) => return Err(self.first.out_of_turn(&other)),
        };
        for (spi, session) in expiring {
            self.peers.keyer.send(VaultToKeyer::Expiring { spi, session });
        }
        let (mut asked, mut sealed, mut wanted) = (Packets::new(), SealedPackets::new(), BTreeSet::new());
        let mut whole = true;
        for (((), packet), (what, datagram)) in packets.iter().zip(outgoing.iter()) {
            match *what {
                Outgoing::Send(to) => whole &= asked.add((), packet) && sealed.add(to, datagram),
                Outgoing::Nothing => {}
                Outgoing::Wanted(session) => {
                    if wanted.insert(session) {
                        self.peers.keyer.send(VaultToKeyer::Acquire(session));
                    }
                }
            }
        }
        if !whole {
            // It cannot be: both are parts of what has the same bounds.
            return Err(Fatal::new("ask the stacks", "the question is too large"));
        }
        if asked.is_empty() {
            return Ok(());
        }
        let question = ToStack::Check { now, packets: asked, sealed };
        let (sealed, verdicts) = match (self.second.tell(&question)?, question) {
            (FromStack::Agreed(verdicts), ToStack::Check { sealed, .. })
                if verdicts.len() == sealed.len() =>
            {
                (sealed, verdicts)
            }
            (other, _) => return Err(self.second.out_of_turn(&other)),
        };
        for (agreed, _) in verdicts.iter() {
            if !agreed {
                self.disagree();
            }
        }
        for run in together::runs(&sealed, &verdicts) {
            self.send(&run, sealed.bytes().get(run.begin..run.end).unwrap_or(&[]));
        }
        Ok(())
    }

    fn send(&mut self, run: &Run, bytes: &[u8]) {
        let Some(socket) = self.sockets.get(usize::from(run.to.outer.socket)) else {
            self.counts.not_taken += run.count() as u64;
            return;
        };
        let send =
            |bytes, segment| udp::send(socket.fd.as_fd(), bytes, run.to.outer.address, segment, run.to.ecn);
        let several = run.count() > 1;
        let apart = several && self.apart > 0;
        if apart {
            self.apart -= 1;
        } else {
            match send(bytes, u16::try_from(run.segment).ok()) {
                Ok(()) => return,
                Err(error) if several && error.kind() != std::io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    self.counts.not_taken += run.count() as u64;
                    return;
                }
            }
        }
        // The kernel or the path does not take this many or this size at once: one by one then, and those that follow for a
        // while, since a try costs as much as a send.
        let mut taken = false;
        for datagram in bytes.chunks(run.segment.max(1)) {
            match send(datagram, None) {
                Ok(()) => taken = true,
                Err(_) => self.counts.not_taken += 1,
            }
        }
        if taken && !apart {
            self.apart = APART;
        }
    }

    /// Erases what the buffer had in it.
    fn erase(&mut self) {
        if let Some(used) = self.buffer.get_mut(..std::mem::take(&mut self.used)) {
            levee_ipc::erase(used);
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
    }

    fn hear_sessiond(&mut self) -> Result<(), Fatal> {
        for _ in 0..TURN {
            let Ok(Some(message)) = self.peers.sessiond.hear::<SessiondToVault>() else { break };
            match message {
                SessiondToVault::Open(record) => {
                    let id = record.id;
                    self.ciphers.protect(id, record.ciphers.clone());
                    // Where stacks must agree, all sessions go within a second tunnel or none does (`levee check`).
                    if record.layered && !self.sockets.iter().all(Socket::is_within) {
                        self.close(id)?;
                        self.peers.closed(id);
                        continue;
                    }
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
                // No site of several servers has redundant stacks; what cannot keep a lease does not go on.
                SessiondToVault::Until { .. } | SessiondToVault::OpenTheirs { .. } => {
                    return Err(Fatal::new("keep a lease", "a gate has none"));
                }
                SessiondToVault::Ciphers { number, ciphers, anew } => {
                    self.ciphers.set(number, (ciphers, anew), self.pairs.keys().copied());
                }
                SessiondToVault::Sever(number) => {
                    let mut whose = BTreeSet::new();
                    for spi in self.ciphers.sever(number) {
                        whose.extend(self.pairs.get(&spi).copied());
                        self.delete(spi)?;
                    }
                    self.ciphers.erased(whose, self.pairs.values().copied());
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
        self.ciphers.protect(id, None);
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
        for _ in 0..TURN {
            let Ok(Some(message)) = self.peers.keyer.hear::<KeyerToVault>() else { break };
            match message {
                KeyerToVault::Install {
                    session,
                    cipher,
                    esn,
                    inbound,
                    outbound,
                    answered,
                    peer,
                    aggregation,
                } => {
                    let spi = inbound.spi;
                    let refused = match () {
                        () if aggregation.is_some() => Some(Refusal::Aggregation),
                        () if !self.ciphers.allow(session, cipher) => Some(Refusal::Cipher),
                        () => None,
                    };
                    if let Some(reason) = refused {
                        self.peers.keyer.send(VaultToKeyer::Refused { spi, reason });
                        continue;
                    }
                    let peer = peer.and_then(|peer| self.reach(peer));
                    let now = self.began.elapsed();
                    let question =
                        ToStack::Install { now, session, cipher, esn, inbound, outbound, answered, peer };
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
                KeyerToVault::Retire { spi } => {
                    let now = self.began.elapsed();
                    self.taken(&self.first, &ToStack::Retire { now, spi })?;
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
        self.taken(stack, &ToStack::Delete { spi })
    }

    /// Tells a stack something that it may or may not have to do with.
    fn taken(&self, stack: &Stack, what: &ToStack) -> Result<(), Fatal> {
        match stack.tell(what)? {
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

/// The packet behind its header of so many octets (virtio 1.2, 5.1.6, or none), if nothing of it is left to the reader. What the kernel
/// made ready for the vault before this gate may be a super-segment, or lack its checksum.
fn whole(head: usize, read: &[u8]) -> Option<&[u8]> {
    const NEEDS_CSUM: u8 = 1;
    const GSO_NONE: u8 = 0;
    let (header, packet) = read.split_at_checked(head)?;
    match *header {
        [] => Some(packet),
        [flags, kind, ..] => (flags & NEEDS_CSUM == 0 && kind == GSO_NONE).then_some(packet),
        [_] => None,
    }
}
