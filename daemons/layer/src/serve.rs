//! The loop: sockets to QUIC, QUIC to sockets.

use crate::carried::{Carried, Flow, NEEDED};
use crate::loopback::{Loopback, Loopbacks, between, from_between};
use crate::quic::{Handle, MOST_OF_A_HOST, News, Out, Quic};
use crate::together::Together;
use levee_daemon::tunnel::Socket;
use levee_daemon::{Events, Fatal, Order, TURN, Warden, Watched};
use levee_ipc::say;
use levee_ipc::warden::LayerState;
use levee_ipc::warden::layer::LayerPart;
use levee_policy::DomainName;
use levee_sys::udp::{self, Received};
use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

/// The longest datagram or aggregate.
pub const LONGEST: usize = 65_535;
/// After so many octets that came what came is seen to: of all that one turn hears a tunnel has no room for more than a part. The next
/// aggregate has room behind them.
const AT_ONCE: usize = 32 << 10;
/// A workstation asks so often for the proof that the longest packet reaches it, while it has none.
const ASKING: Duration = Duration::from_millis(200);
/// And is answered no sooner again than this: what it asks by has an octet, of which many go in one packet, and an answer is as long as anything.
const ANSWERED: Duration = Duration::from_millis(100);
/// How long without a tunnel, or without that proof, until it is said.
const PATIENCE: Duration = Duration::from_secs(4);
/// The longest wait before another try.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What is waited for.
#[derive(Clone, Debug)]
pub enum Source {
    Warden,
    /// By its number.
    Outer(usize),
    Inner,
}

/// What it works with.
pub struct Started {
    pub events: Events<Source>,
    pub warden: Warden<LayerPart>,
    pub outer: Vec<Socket>,
    pub inner: Watched<OwnedFd>,
    pub quic: Quic,
    pub side: Side,
    pub sessions: Vec<SocketAddr>,
}

/// Which end this is.
pub enum Side {
    Server(Server),
    Workstation(Workstation),
}

impl Side {
    /// A server's, or its gateway's.
    pub fn server(to: To) -> Self {
        Self::Server(Server {
            to,
            loopbacks: Loopbacks::default(),
            here: BTreeMap::new(),
            tunnels: BTreeMap::new(),
        })
    }

    /// A workstation's, with the server's second tunnel.
    pub fn workstation(server: SocketAddr, name: DomainName) -> Self {
        Self::Workstation(Workstation {
            server,
            name,
            handle: None,
            proved: false,
            sessions: BTreeMap::new(),
            next: Flow::new(0),
            said: None,
            since: Instant::now(),
            again: Instant::now(),
            wait: ASKING,
            why: "it has not answered yet".to_owned(),
        })
    }
}

impl Side {
    /// In which tunnel a datagram from inside goes, and what of it is the packet; if whoever sent it may.
    fn whose<'d>(&self, received: &Received, datagram: &'d [u8]) -> Option<(Handle, Flow, &'d [u8])> {
        match self {
            Self::Server(server) => {
                let (loopback, flow, packet) = match server.to {
                    To::Here(tunnel) if received.from == SocketAddr::V4(tunnel) => {
                        let (loopback, flow) = received.to.and_then(Loopback::of)?;
                        (loopback, flow, datagram)
                    }
                    To::Beyond(beyond) if received.from == beyond => from_between(datagram)?,
                    _ => return None,
                };
                Some((*server.here.get(&loopback)?, flow, packet))
            }
            Self::Workstation(workstation) if workstation.proved => {
                let mut sessions = workstation.sessions.iter();
                let (flow, _) = sessions.find(|(_, address)| **address == received.from)?;
                Some((workstation.handle?, *flow, datagram))
            }
            Self::Workstation(_) => None,
        }
    }
}

/// Who takes what comes out of a server's tunnels.
#[derive(Clone, Copy, Debug)]
pub enum To {
    /// The steering group of this host.
    Here(SocketAddrV4),
    /// A server to which this is the gateway.
    Beyond(SocketAddr),
}

/// A server's tunnels.
pub struct Server {
    to: To,
    loopbacks: Loopbacks,
    here: BTreeMap<Loopback, Handle>,
    tunnels: BTreeMap<usize, Tunnel>,
}

struct Tunnel {
    loopback: Loopback,
    /// The certificate.
    who: Vec<u8>,
    since: Instant,
    /// When it was last shown that the longest packet reaches it.
    answered: Option<Instant>,
}

impl Tunnel {
    /// Whether it is answered now.
    fn may_have(&mut self, now: Instant) -> bool {
        let may = self.answered.is_none_or(|last| now.duration_since(last) >= ANSWERED);
        if may {
            self.answered = Some(now);
        }
        may
    }
}

/// A workstation's tunnel.
pub struct Workstation {
    server: SocketAddr,
    name: DomainName,
    handle: Option<Handle>,
    /// The longest packet has come through.
    proved: bool,
    sessions: BTreeMap<Flow, SocketAddr>,
    next: Flow,
    said: Option<LayerState>,
    /// When it was last as it should be, or began.
    since: Instant,
    /// When something is to be tried again.
    again: Instant,
    wait: Duration,
    why: String,
}

struct Layer {
    warden: Warden<LayerPart>,
    outer: Vec<Socket>,
    inner: Watched<OwnedFd>,
    quic: Quic,
    side: Side,
    buffer: Vec<u8>,
    /// What is for keyer and vaults.
    together: Together,
}

/// Works until the warden says stop or is gone.
///
/// # Errors
/// When the warden sends what is no message, or what can be waited for cannot be any more.
pub fn serve(started: Started) -> Result<(), Fatal> {
    let Started { mut events, warden, outer, inner, quic, side, sessions } = started;
    let mut layer =
        Layer { warden, outer, inner, quic, side, buffer: vec![0; LONGEST], together: Together::default() };
    sessions.into_iter().for_each(|session| layer.session(session));
    loop {
        let now = Instant::now();
        let next = [layer.quic.next_due(), layer.next_try()].into_iter().flatten().min();
        let limit = next.map(|next| next.saturating_duration_since(now) + Duration::from_micros(100));
        for (source, _) in events.wait(limit)? {
            match source {
                Source::Warden => {
                    if !layer.hear_warden()? {
                        return Ok(());
                    }
                }
                Source::Outer(number) => layer.hear_outside(number),
                Source::Inner => layer.hear_inside(),
            }
        }
        layer.see_to_tunnel();
        layer.work();
    }
}

/// Sends from the socket that has this local address, or one of the family. What the kernel does not take is lost like any other.
fn send(outer: &[Socket], out: &Out<'_>) {
    let exact = outer.iter().find(|socket| Some(socket.address.ip()) == out.from);
    let socket = exact.or_else(|| outer.iter().find(|socket| socket.address.is_ipv4() == out.to.is_ipv4()));
    if let Some(socket) = socket {
        let _ = udp::send(socket.fd.as_fd(), out.bytes, out.to, out.segment, 0);
    }
}

impl Layer {
    fn hear_warden(&mut self) -> Result<bool, Fatal> {
        while let Some(order) = self.warden.hear()? {
            match order {
                Order::Stop => return Ok(false),
                Order::Take(LayerPart::Session(address), _) => self.session(address),
                Order::Take(part, _) => return Err(Warden::unwanted(&part)),
            }
        }
        Ok(true)
    }

    fn session(&mut self, address: SocketAddr) {
        if let Side::Workstation(workstation) = &mut self.side {
            workstation.sessions.insert(workstation.next, address);
            workstation.next = workstation.next.next();
        }
    }

    fn hear_outside(&mut self, number: usize) {
        let mut heard = 0;
        for _ in 0..TURN {
            let Self { outer, quic, buffer, .. } = self;
            let Some(socket) = outer.get(number) else { return };
            let received = match udp::receive(socket.fd.as_fd(), buffer) {
                Ok(received) if !received.truncated => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                // What ICMP says about an earlier send: anyone could have said it.
                _ => continue,
            };
            for datagram in received.datagrams(buffer) {
                let to = socket.address.ip();
                quic.receive(Instant::now(), received.from, to, datagram, &mut |out| send(outer, &out));
            }
            self.see_to(&mut heard, received.length);
        }
    }

    /// Does what is due, where so much has come since it last did.
    fn see_to(&mut self, heard: &mut usize, more: usize) {
        *heard += more;
        if *heard >= AT_ONCE {
            *heard = 0;
            self.work();
        }
    }

    /// What keyer and vaults send. Nobody else's is taken.
    fn hear_inside(&mut self) {
        let mut heard = 0;
        for _ in 0..TURN {
            let received = match udp::receive(self.inner.as_fd(), &mut self.buffer) {
                Ok(received) if !received.truncated => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                _ => continue,
            };
            for datagram in received.datagrams(&self.buffer) {
                let Some((handle, flow, packet)) = self.side.whose(&received, datagram) else { continue };
                if self.quic.room(handle) >= NEEDED
                    && let Some(datagram) = Carried::Packet(flow, packet).write()
                {
                    self.quic.send(handle, datagram);
                }
            }
            self.see_to(&mut heard, received.length);
        }
    }

    fn work(&mut self) {
        loop {
            let outer = &self.outer;
            let news = self.quic.work(Instant::now(), &mut |out| send(outer, &out));
            if news.is_empty() {
                return self.together.leave(self.inner.as_fd());
            }
            for one in news {
                match one {
                    News::Up(handle, who) => self.up(handle, who),
                    News::Datagram(handle, datagram) => self.came(handle, &datagram),
                    News::Gone(handle, why) => self.gone(handle, why),
                }
            }
        }
    }

    fn up(&mut self, handle: Handle, who: Vec<u8>) {
        let now = Instant::now();
        let Side::Server(server) = &mut self.side else { return };
        // A workstation that comes back does not wait for its old tunnel's end.
        let theirs = server.tunnels.iter().filter(|(_, tunnel)| tunnel.who == who);
        let oldest = theirs.clone().min_by_key(|(_, tunnel)| tunnel.since).map(|(number, _)| *number);
        if let Some(oldest) = oldest.filter(|_| theirs.count() >= MOST_OF_A_HOST) {
            server.forget(oldest);
            self.quic.close(now, quinn_proto::ConnectionHandle(oldest));
        }
        let Server { loopbacks, here, tunnels, .. } = server;
        let Some(loopback) = loopbacks.take(|loopback| here.contains_key(&loopback)) else { return };
        here.insert(loopback, handle);
        tunnels.insert(handle.0, Tunnel { loopback, who, since: now, answered: None });
    }

    fn came(&mut self, handle: Handle, datagram: &[u8]) {
        match (&mut self.side, Carried::parse(datagram)) {
            (Side::Server(server), Some(Carried::Packet(flow, packet))) => {
                if let Some(Tunnel { loopback, .. }) = server.tunnels.get(&handle.0) {
                    let inner = self.inner.as_fd();
                    match server.to {
                        To::Here(tunnel) => {
                            self.together.add(inner, Some(loopback.address(flow)), tunnel.into(), packet);
                        }
                        To::Beyond(beyond) => {
                            self.together.add(inner, None, beyond, &between(*loopback, flow, packet));
                        }
                    }
                }
            }
            (Side::Server(server), Some(Carried::Ask)) => {
                let tunnel = server.tunnels.get_mut(&handle.0);
                if self.quic.room(handle) >= NEEDED
                    && tunnel.is_some_and(|tunnel| tunnel.may_have(Instant::now()))
                    && let Some(proof) = Carried::Proof.write()
                {
                    self.quic.send(handle, proof);
                }
            }
            (Side::Workstation(workstation), Some(Carried::Proof)) if workstation.handle == Some(handle) => {
                workstation.proved = true;
            }
            (Side::Workstation(workstation), Some(Carried::Packet(flow, packet)))
                if workstation.handle == Some(handle) && workstation.proved =>
            {
                if let Some(session) = workstation.sessions.get(&flow) {
                    self.together.add(self.inner.as_fd(), None, *session, packet);
                }
            }
            _ => {}
        }
    }

    fn gone(&mut self, handle: Handle, why: String) {
        match &mut self.side {
            Side::Server(server) => server.forget(handle.0),
            Side::Workstation(workstation) if workstation.handle == Some(handle) => {
                (workstation.handle, workstation.proved, workstation.why) = (None, false, why);
                workstation.again = Instant::now() + workstation.wait;
                workstation.wait = (workstation.wait * 2).min(LONGEST_WAIT);
            }
            Side::Workstation(_) => {}
        }
    }

    fn next_try(&self) -> Option<Instant> {
        match &self.side {
            Side::Server(_) => None,
            Side::Workstation(workstation) => Some(workstation.again),
        }
    }

    /// A workstation's tunnel is made, proved to carry what it must, and made again.
    fn see_to_tunnel(&mut self) {
        let now = Instant::now();
        let Side::Workstation(workstation) = &mut self.side else { return };
        if now >= workstation.again {
            workstation.again = now + ASKING;
            match workstation.handle {
                None => match self.quic.connect(now, workstation.server, workstation.name.as_str()) {
                    Ok(handle) => workstation.handle = Some(handle),
                    Err(why) => workstation.why = why,
                },
                Some(handle) if !workstation.proved => {
                    if let Some(ask) = Carried::Ask.write() {
                        self.quic.send(handle, ask);
                    }
                }
                Some(_) => workstation.again = now + PATIENCE,
            }
        }
        let room = workstation.handle.map_or(0, |handle| self.quic.room(handle));
        let state = if workstation.proved && room >= NEEDED {
            (workstation.since, workstation.wait) = (now, ASKING);
            LayerState::Up
        } else if now.duration_since(workstation.since) < PATIENCE {
            return;
        } else if room > 0 {
            LayerState::Down(format!(
                "the path to the server carries too little: datagrams of {room} octets, and two layers need {NEEDED} both ways"
            ))
        } else {
            LayerState::Down(format!("no second tunnel to {}: {}", workstation.server, workstation.why))
        };
        if workstation.said.as_ref() != Some(&state) {
            match &state {
                LayerState::Up => say!("levee-layer: the second tunnel is up"),
                LayerState::Down(why) => say!("levee-layer: {why}"),
            }
            workstation.said = Some(state.clone());
            self.warden.say(state);
        }
    }
}

impl Server {
    fn forget(&mut self, number: usize) {
        if let Some(tunnel) = self.tunnels.remove(&number) {
            self.here.remove(&tunnel.loopback);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_again_and_again_for_the_longest_packet_is_sent_one_in_a_tenth_of_a_second() {
        let since = Instant::now();
        let loopback = Loopbacks::default().take(|_| false).unwrap();
        let mut tunnel = Tunnel { loopback, who: Vec::new(), since, answered: None };
        let answers = (0..1_000).filter(|n| tunnel.may_have(since + Duration::from_millis(*n)));
        assert_eq!(answers.count(), 10);
        assert!(ASKING > ANSWERED, "whoever asks as it should has an answer each time");
    }
}
