//! Two endpoints and a wire between them, all in memory and all repeatable.
#![allow(dead_code, reason = "each test file uses its own part")]

use hmac::{Hmac, KeyInit, Mac};
use levee_ike::*;
use sha2::{Sha256, Sha384, Sha512};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// A repeatable source of octets (xorshift64*): tests must run the same way twice.
pub struct Seeded(pub u64);

impl Random for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for b in out {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            *b = (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8;
        }
    }
}

pub type Side = usize;
pub type Signer = Box<dyn FnMut(SignatureScheme, &[u8]) -> Vec<u8>>;
pub const A: Side = 0;
pub const B: Side = 1;

/// How one side answers the questions of its endpoint.
pub struct Shell {
    pub endpoint: Endpoint,
    pub address: SocketAddr,
    pub events: Vec<Event>,
    /// Labels that may be had; `None` among them stands for unlabelled.
    pub allowed: Vec<Option<&'static str>>,
    pub local: Vec<Selector>,
    pub remote: Vec<Selector>,
    pub assign: Vec<InnerAddress>,
    pub next_spi: u32,
    /// So many children that are each for a resource may be had.
    pub resources: usize,
    /// Signs for the Sign event.
    pub signer: Option<Signer>,
    /// PPKs by their names.
    pub ppks: BTreeMap<Vec<u8>, Vec<u8>>,
    /// AGGFRAG payloads are asked for and granted.
    pub aggfrag: bool,
    /// Questions about PPKs are kept and not answered.
    pub silent: bool,
    /// So many requests for children are put off.
    pub later: usize,
}

/// prf+ (PPK, key) of the key's own length (RFC 8784 3): one output of the prf, whose input ends in the octet 1 (RFC 7296 2.13).
pub fn mix(prf: Prf, ppk: &[u8], keys: &PpkKeys) -> PpkKeys {
    fn mac<M: Mac + KeyInit>(ppk: &[u8], key: &[u8]) -> Secret {
        let mut mac = <M as KeyInit>::new_from_slice(ppk).expect("a key of any length");
        mac.update(key);
        mac.update(&[1]);
        mac.finalize().into_bytes().to_vec().into()
    }
    let one = |key: &Secret| match prf {
        Prf::HmacSha256 => mac::<Hmac<Sha256>>(ppk, key),
        Prf::HmacSha384 => mac::<Hmac<Sha384>>(ppk, key),
        Prf::HmacSha512 => mac::<Hmac<Sha512>>(ppk, key),
    };
    PpkKeys { d: one(&keys.d), pi: one(&keys.pi), pr: one(&keys.pr) }
}

pub struct Pair {
    pub sides: [Shell; 2],
    pub rng: Seeded,
    pub time: Duration,
    /// Datagrams under way, with the side that they go to.
    pub wire: VecDeque<(Side, Path, Vec<u8>)>,
    /// Every datagram that was ever sent.
    pub log: Vec<(Side, Vec<u8>)>,
}

pub fn any() -> Vec<Selector> {
    vec![Selector::subnet([0, 0, 0, 0].into(), 0).expect("all")]
}

pub fn net(third: u8) -> Vec<Selector> {
    vec![Selector::subnet([10, 1, third, 0].into(), 24).expect("net")]
}

pub fn label(s: &str) -> SecurityLabel {
    SecurityLabel::new(s.as_bytes()).expect("label")
}

pub fn resource(name: &str) -> Resource {
    Resource::new(name.as_bytes()).expect("resource")
}

pub fn fqdn(s: &str) -> Identity {
    Identity::Fqdn(s.to_owned())
}

pub fn psk_peer(us: &str, them: &str, key: &[u8]) -> Peer {
    Peer {
        local_id: fqdn(us),
        remote_id: RemoteId::Exactly(fqdn(them)),
        local_auth: LocalAuth::SharedKey(key.to_vec().into()),
        remote_auth: RemoteAuth::SharedKey(key.to_vec().into()),
        childless: Childless::Allow,
        ppk: None,
    }
}

pub fn psk_configs() -> [Config; 2] {
    [
        Config::new(vec![psk_peer("a.test", "b.test", b"a shared key of some length")]),
        Config::new(vec![psk_peer("b.test", "a.test", b"a shared key of some length")]),
    ]
}

impl Pair {
    pub fn new(configs: [Config; 2], seed: u64) -> Self {
        let mut last = 1;
        let sides = configs.map(|config| {
            last += 1;
            Shell {
                endpoint: Endpoint::new(config),
                address: SocketAddr::from(([192, 0, 2, last], 4500)),
                events: Vec::new(),
                allowed: vec![Some("SECRET"), Some("CONFIDENTIAL"), None],
                local: any(),
                remote: any(),
                assign: Vec::new(),
                next_spi: u32::from(last) << 20 | 0x100,
                resources: 3,
                signer: None,
                ppks: BTreeMap::new(),
                aggfrag: false,
                silent: false,
                later: 0,
            }
        });
        Self {
            sides,
            rng: Seeded(seed | 1),
            time: Duration::from_secs(1),
            wire: VecDeque::new(),
            log: Vec::new(),
        }
    }

    pub fn now(&self) -> Now {
        Now { monotonic: self.time, unix_seconds: 1_790_000_000 + self.time.as_secs() }
    }

    pub fn path(&self, from: Side) -> Path {
        Path { local: self.sides[from].address, remote: self.sides[1 - from].address, marker: true }
    }

    pub fn spi(&mut self, side: Side) -> u32 {
        self.sides[side].next_spi += 1;
        self.sides[side].next_spi
    }

    pub fn child(&mut self, side: Side, l: Option<&str>) -> NewChild {
        NewChild {
            spi: self.spi(side),
            label: l.map(label),
            local: any(),
            remote: any(),
            want_address: false,
            resource: None,
            aggfrag: self.sides[side].aggfrag,
        }
    }

    pub fn connect(&mut self, side: Side, child: Option<NewChild>) -> IkeId {
        self.connect_with(side, None, child)
    }

    pub fn connect_with(&mut self, side: Side, pass: Option<Pass>, child: Option<NewChild>) -> IkeId {
        let (now, path) = (self.now(), self.path(side));
        self.sides[side]
            .endpoint
            .connect_with_pass(0, path, None, pass, child, now, &mut self.rng)
            .expect("connect")
    }

    pub fn try_command(&mut self, side: Side, command: Command) -> Result<(), CommandError> {
        let now = self.now();
        self.sides[side].endpoint.command(command, now, &mut self.rng)
    }

    pub fn command(&mut self, side: Side, command: Command) {
        self.try_command(side, command).expect("command");
    }

    /// Takes everything out of one side: datagrams to the wire, questions answered, events kept. Gives the next timer.
    pub fn drain(&mut self, side: Side) -> Option<Duration> {
        loop {
            let now = self.now();
            match self.sides[side].endpoint.poll(now, &mut self.rng) {
                Output::Transmit { path, datagram } => {
                    self.log.push((side, datagram.clone()));
                    self.wire.push_back((1 - side, path, datagram));
                }
                Output::Event(event) => self.on_event(side, event),
                Output::Wait(at) => return at,
            }
        }
    }

    fn on_event(&mut self, side: Side, event: Event) {
        match &event {
            Event::ChildRequested(r) => {
                let shell = &self.sides[side];
                let found = match r.labels.as_slice() {
                    [] => shell.allowed.contains(&None).then_some(None),
                    labels => {
                        labels.iter().find(|l| shell.allowed.contains(&l.as_str())).map(|l| Some(l.clone()))
                    }
                };
                let (local, remote, assign) =
                    (shell.local.clone(), shell.remote.clone(), shell.assign.clone());
                let additional = r.resource.is_some() && r.rekeys.is_none();
                let decision = match found {
                    _ if self.sides[side].later > 0 => {
                        self.sides[side].later -= 1;
                        ChildDecision::Later
                    }
                    Some(_) if additional && self.sides[side].resources == 0 => ChildDecision::NoMore,
                    Some(label) => {
                        self.sides[side].resources -= usize::from(additional);
                        let resource = Some(resource("there"));
                        let aggfrag = self.sides[side].aggfrag;
                        let spi = self.spi(side);
                        ChildDecision::Accept { spi, label, local, remote, assign, resource, aggfrag }
                    }
                    None => ChildDecision::Refuse,
                };
                let request = r.request;
                self.sides[side].events.push(event);
                self.command(side, Command::Decide { request, decision });
            }
            Event::Sign { request, scheme, octets, .. } => {
                let signature = self.sides[side].signer.as_mut().map(|s| s(*scheme, octets));
                let request = *request;
                self.command(side, Command::Signed { request, signature });
            }
            Event::MixPpk { request, id, prf, keys, .. } if !self.sides[side].silent => {
                let keys = self.sides[side].ppks.get(id).map(|ppk| mix(*prf, ppk, keys));
                let request = *request;
                self.command(side, Command::PpkMixed { request, keys });
            }
            _ => self.sides[side].events.push(event),
        }
    }

    /// Gives one datagram to whom it goes to.
    pub fn deliver(&mut self, to: Side, path: Path, datagram: &[u8]) {
        let now = self.now();
        let path = Path { local: path.remote, remote: path.local, marker: true };
        self.sides[to].endpoint.handle(datagram, path, now, &mut self.rng);
    }

    /// Runs until nothing is under way, without letting time pass. Each datagram goes through `fate`: how many copies arrive.
    pub fn run_with(&mut self, mut fate: impl FnMut(&[u8]) -> usize) {
        loop {
            self.drain(A);
            self.drain(B);
            let Some((to, path, datagram)) = self.wire.pop_front() else { return };
            for _ in 0..fate(&datagram) {
                self.deliver(to, path, &datagram);
            }
        }
    }

    pub fn run(&mut self) {
        self.run_with(|_| 1);
    }

    /// Lets time pass, and everything happen that falls into it.
    pub fn pass(&mut self, d: Duration) {
        let end = self.time + d;
        loop {
            self.run();
            let next = [self.drain(A), self.drain(B)].into_iter().flatten().min();
            match next {
                Some(at) if at <= end => self.time = self.time.max(at),
                _ => break,
            }
        }
        self.time = end;
        self.run();
    }

    pub fn take<T>(&mut self, side: Side, f: impl Fn(&Event) -> Option<T>) -> Vec<T> {
        self.sides[side].events.iter().filter_map(f).collect()
    }

    pub fn children(&self, side: Side) -> Vec<&ChildEstablished> {
        self.sides[side]
            .events
            .iter()
            .filter_map(|e| match e {
                Event::ChildEstablished(c) => Some(c),
                _ => None,
            })
            .collect()
    }

    pub fn established(&self, side: Side) -> Vec<IkeId> {
        self.sides[side]
            .events
            .iter()
            .filter_map(|e| match e {
                Event::IkeEstablished { ike, .. } => Some(*ike),
                _ => None,
            })
            .collect()
    }

    pub fn closed(&self, side: Side) -> Vec<&CloseReason> {
        self.sides[side]
            .events
            .iter()
            .filter_map(|e| match e {
                Event::IkeClosed { reason, .. } => Some(reason),
                _ => None,
            })
            .collect()
    }

    pub fn gone(&self, side: Side) -> Vec<(u32, ChildClosed)> {
        self.sides[side]
            .events
            .iter()
            .filter_map(|e| match e {
                Event::ChildClosed { inbound, reason, .. } => Some((*inbound, *reason)),
                _ => None,
            })
            .collect()
    }

    pub fn failed(&self, side: Side) -> Vec<&ChildError> {
        self.sides[side]
            .events
            .iter()
            .filter_map(|e| match e {
                Event::ChildFailed { reason, .. } => Some(reason),
                _ => None,
            })
            .collect()
    }

    /// Asserts that both sides made the same children, each with the keys of the other's opposite direction.
    pub fn assert_children_agree(&self) {
        let (a, b) = (self.children(A), self.children(B));
        assert_eq!(a.len(), b.len(), "both sides tell of as many children");
        for x in a {
            let y = b.iter().find(|y| y.inbound == x.outbound).expect("the other side has it");
            assert_eq!(x.inbound, y.outbound);
            assert!(x.inbound_keys == y.outbound_keys && x.outbound_keys == y.inbound_keys, "keys agree");
            assert!(x.inbound_keys != x.outbound_keys, "each direction has its own keys");
            assert_eq!((&x.label, &x.local, &x.remote, &x.suite), (&y.label, &y.remote, &y.local, &y.suite));
        }
    }
}
