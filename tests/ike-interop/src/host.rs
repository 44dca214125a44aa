//! An endpoint on real sockets and the real clock.

use crate::net::{Net, OURS, THEIRS};
use crate::pki::Key;
use levee_ike::*;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

/// A label.
pub fn label(s: &str) -> SecurityLabel {
    SecurityLabel::new(s.as_bytes()).expect("a label")
}

struct System(SystemRandom);

impl Random for System {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out).expect("random octets");
    }
}

/// prf+ (PPK, key) of the key's own length (RFC 8784 3): one output of the prf, whose input ends in the octet 1 (RFC 7296 2.13).
fn mix(prf: Prf, ppk: &[u8], keys: &PpkKeys) -> PpkKeys {
    let algorithm = match prf {
        Prf::HmacSha256 => hmac::HMAC_SHA256,
        Prf::HmacSha384 => hmac::HMAC_SHA384,
        Prf::HmacSha512 => hmac::HMAC_SHA512,
    };
    let ppk = hmac::Key::new(algorithm, ppk);
    let one =
        |key: &Secret| Secret::new(hmac::sign(&ppk, &[key.as_slice(), &[1]].concat()).as_ref().to_vec());
    PpkKeys { d: one(&keys.d), pi: one(&keys.pi), pr: one(&keys.pr) }
}

/// An endpoint in our namespace, with ports 500 and 4500.
pub struct Host {
    /// The state machine.
    pub endpoint: Endpoint,
    address: Ipv4Addr,
    /// Where the last datagram on port 4500 came from.
    pub peer: SocketAddr,
    plain: UdpSocket,
    shared: UdpSocket,
    started: Instant,
    rng: System,
    /// All events but questions.
    pub events: Vec<Event>,
    /// Labels that may be had; `None` among them stands for unlabelled.
    pub allowed: Vec<Option<&'static str>>,
    /// What may be reached here, and from where.
    pub local: Vec<Selector>,
    /// What the peer may be.
    pub remote: Vec<Selector>,
    /// What is assigned to who asks.
    pub assign: Vec<InnerAddress>,
    key: Option<Key>,
    /// PPKs by their names.
    pub ppks: BTreeMap<Vec<u8>, Vec<u8>>,
    next_spi: u32,
    /// The sequence numbers used last, by outbound SPI: none may come twice.
    sequences: BTreeMap<u32, u32>,
    /// ESP datagrams that came.
    pub esp: Vec<Vec<u8>>,
    /// Children that the peer asked for.
    pub requests: usize,
    /// Datagrams that came, IKE and not.
    pub received: usize,
}

impl Host {
    /// An endpoint in our namespace. `key` signs for it.
    pub fn new(net: &Net, config: Config, key: Option<Key>) -> Self {
        Self::with(net.socket(500), net.socket(4500), config, key)
    }

    /// An endpoint on these non-blocking sockets, the second one with the non-ESP marker.
    pub fn with(plain: UdpSocket, shared: UdpSocket, config: Config, key: Option<Key>) -> Self {
        let subnet = |third| Selector::subnet([10, 9, third, 0].into(), 24).expect("a subnet");
        let address = match plain.local_addr().expect("an address").ip() {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => OURS,
        };
        Self {
            endpoint: Endpoint::new(config),
            address,
            peer: SocketAddr::from((THEIRS, 4500)),
            plain,
            shared,
            started: Instant::now(),
            rng: System(SystemRandom::new()),
            events: Vec::new(),
            allowed: vec![Some("SECRET"), None],
            local: vec![subnet(1)],
            remote: vec![subnet(2)],
            assign: Vec::new(),
            key,
            ppks: BTreeMap::new(),
            next_spi: 0x0010_0000,
            sequences: BTreeMap::new(),
            esp: Vec::new(),
            requests: 0,
            received: 0,
        }
    }

    fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970");
        Now { monotonic: self.started.elapsed(), unix_seconds: unix.as_secs() }
    }

    /// A fresh inbound SPI.
    pub fn spi(&mut self) -> u32 {
        self.next_spi += 1;
        self.next_spi
    }

    /// A child between our subnet and strongSwan's.
    pub fn child(&mut self, l: Option<&str>) -> NewChild {
        let (local, remote) = (self.local.clone(), self.remote.clone());
        NewChild {
            spi: self.spi(),
            label: l.map(label),
            local,
            remote,
            want_address: false,
            resource: None,
            aggfrag: false,
        }
    }

    /// Begins an IKE SA from port 4500 to port 4500, or from 500 to 500 with the way open to 4500.
    pub fn connect(&mut self, port: u16, child: Option<NewChild>) -> IkeId {
        self.connect_between(SocketAddr::from((self.address, port)), SocketAddr::from((THEIRS, port)), child)
    }

    /// The same between other addresses.
    pub fn connect_between(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        child: Option<NewChild>,
    ) -> IkeId {
        let path = Path { local, remote, marker: local.port() == 4500 };
        let now = self.now();
        let float = Some(SocketAddr::new(local.ip(), 4500));
        self.endpoint.connect(0, path, float, child, now, &mut self.rng).expect("connect")
    }

    /// Gives a command.
    pub fn command(&mut self, command: Command) {
        self.try_command(command).expect("command");
    }

    /// Gives a command that the peer may have made pointless.
    pub fn try_command(&mut self, command: Command) -> Result<(), CommandError> {
        let now = self.now();
        self.endpoint.command(command, now, &mut self.rng)
    }

    /// Moves datagrams and answers questions until `done` holds or time is up; says whether it held.
    pub fn run(&mut self, patience: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = Instant::now() + patience;
        loop {
            self.turn();
            if done(self) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn turn(&mut self) {
        let mut buffer = [0; 65_536];
        for marker in [false, true] {
            loop {
                let socket = if marker { &self.shared } else { &self.plain };
                let Ok((n, remote)) = socket.recv_from(&mut buffer) else { break };
                self.received += 1;
                let datagram = &buffer[..n];
                if marker {
                    self.peer = remote;
                }
                if marker && !datagram.starts_with(&[0; 4]) {
                    self.esp.push(datagram.to_vec());
                    continue;
                }
                let local = socket.local_addr().expect("an address");
                let now = self.now();
                self.endpoint.handle(datagram, Path { local, remote, marker }, now, &mut self.rng);
            }
        }
        loop {
            let now = self.now();
            match self.endpoint.poll(now, &mut self.rng) {
                Output::Transmit { path, datagram } => {
                    let socket = if path.marker { &self.shared } else { &self.plain };
                    socket.send_to(&datagram, path.remote).expect("send");
                }
                Output::Event(Event::Sign { request, scheme, octets, .. }) => {
                    let signature = self.key.as_ref().map(|k| k.sign(scheme, &octets));
                    self.command(Command::Signed { request, signature });
                }
                Output::Event(Event::MixPpk { request, id, prf, keys, .. }) => {
                    let keys = self.ppks.get(&id).map(|ppk| mix(prf, ppk, &keys));
                    self.command(Command::PpkMixed { request, keys });
                }
                Output::Event(Event::ChildRequested(r)) => {
                    self.requests += 1;
                    let decision = self.decide(&r);
                    self.command(Command::Decide { request: r.request, decision });
                }
                Output::Event(event) => self.events.push(event),
                Output::Wait(_) => return,
            }
        }
    }

    fn decide(&mut self, r: &ChildRequested) -> ChildDecision {
        let label = match r.labels.as_slice() {
            [] if self.allowed.contains(&None) => None,
            labels => match labels.iter().find(|l| self.allowed.contains(&l.as_str())) {
                Some(l) => Some(l.clone()),
                None => return ChildDecision::Refuse,
            },
        };
        let (local, remote, assign) = (self.local.clone(), self.remote.clone(), self.assign.clone());
        ChildDecision::Accept {
            spi: self.spi(),
            label,
            local,
            remote,
            assign,
            resource: None,
            aggfrag: false,
        }
    }

    /// The next sequence number of a child.
    pub(crate) fn next_sequence(&mut self, outbound: u32) -> u32 {
        let last = self.sequences.entry(outbound).or_default();
        *last += 1;
        *last
    }

    /// Sends an ESP datagram to strongSwan.
    pub fn send_esp(&self, datagram: &[u8]) {
        self.shared.send_to(datagram, self.peer).expect("send");
    }

    /// Children that were made, in order.
    pub fn children(&self) -> Vec<&ChildEstablished> {
        self.events
            .iter()
            .filter_map(|e| match e {
                Event::ChildEstablished(c) => Some(c),
                _ => None,
            })
            .collect()
    }

    /// Children that ended, in order, by inbound SPI.
    pub fn ended(&self) -> Vec<(u32, ChildClosed)> {
        self.events
            .iter()
            .filter_map(|e| match e {
                Event::ChildClosed { inbound, reason, .. } => Some((*inbound, *reason)),
                _ => None,
            })
            .collect()
    }

    /// Why children did not come about.
    pub fn failures(&self) -> Vec<&ChildError> {
        self.events
            .iter()
            .filter_map(|e| match e {
                Event::ChildFailed { reason, .. } => Some(reason),
                _ => None,
            })
            .collect()
    }

    /// The IKE SAs that were established, in order.
    pub fn established(&self) -> Vec<IkeId> {
        self.events
            .iter()
            .filter_map(|e| match e {
                Event::IkeEstablished { ike, .. } => Some(*ike),
                _ => None,
            })
            .collect()
    }

    /// Why IKE SAs ended, in order.
    pub fn closed(&self) -> Vec<&CloseReason> {
        self.events
            .iter()
            .filter_map(|e| match e {
                Event::IkeClosed { reason, .. } => Some(reason),
                _ => None,
            })
            .collect()
    }
}
