//! Whole exchanges of an IKE endpoint with a peer that holds the right key and sends what it likes ([`Attacker`]).
//!
//! Input: a byte of options, then actions, each of one byte of kind, two of length, and its data. Options: 1: do not begin with an
//! honest handshake; 2: the peer announces fragments; 4: it announces childless SAs; 8: the victim grants nothing; 16: the victim takes
//! a child without a key exchange of its own; 64: it asks for AGGFRAG payloads and grants them.

use crate::attacker::{Attacker, KEY, Seen, chain};
use levee_ike::*;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Kinds of actions.
pub mod op {
    /// A protected request: exchange type, type of the first payload, payloads.
    pub const ASK: u8 = 0;
    /// A protected response to the victim's last request: type of the first payload, payloads.
    pub const ANSWER: u8 = 1;
    /// What the victim is told to do: one byte.
    pub const COMMAND: u8 = 2;
    /// Time passes: milliseconds in two bytes.
    pub const TIME: u8 = 3;
    /// IKE_AUTH with a true AUTH payload (asking or answering), and then these payloads: type of the first, payloads.
    pub const AUTH: u8 = 4;
    /// A fragment: exchange type, type of the first payload, number, total, payloads.
    pub const FRAGMENT: u8 = 5;
    /// An honest request for new keys of the IKE SA.
    pub const REKEY_ASK: u8 = 6;
    /// An honest answer to such a request of the victim.
    pub const REKEY_ANSWER: u8 = 7;
    /// A datagram as it is, but for the SPIs.
    pub const RAW: u8 = 8;
    /// IKE_SA_INIT with these payloads at its end: type of the first, payloads.
    pub const INIT: u8 = 9;
    /// How many there are.
    pub const COUNT: u8 = 10;
}

const LABEL: &str = "SECRET";
const VICTIM: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 4500);
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)), 4500);

struct Octets(u64);

impl Random for Octets {
    fn fill(&mut self, out: &mut [u8]) {
        for b in out {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            *b = (self.0 >> 56) as u8;
        }
    }
}

/// A victim and its attacker.
pub struct Duel {
    victim: Endpoint,
    /// The victim's peer.
    pub attacker: Attacker,
    /// The SA that the attacker has just rekeyed, and its new SPI.
    rekeying: Option<[u8; 8]>,
    now: Duration,
    rng: Octets,
    options: u8,
    next_spi: u32,
    ikes: BTreeSet<IkeId>,
    children: BTreeSet<(IkeId, u32)>,
    /// Children that the victim told of, and rekeyings of its IKE SA.
    pub made: (usize, usize),
    /// What the victim said, opened.
    pub seen: Vec<Seen>,
}

fn any() -> Vec<Selector> {
    vec![Selector::subnet([0, 0, 0, 0].into(), 0).expect("all")]
}

impl Duel {
    /// The two, before the first message.
    pub fn new(options: u8, victim_begins: bool) -> Self {
        Self::with(options, Attacker::new(!victim_begins), vec![])
    }

    /// The two, of which the attacker begins, and which have ML-KEM-768 in every IKE SA (RFC 9370).
    pub fn hybrid() -> Self {
        Self::with(4, Attacker::hybrid(true), vec![vec![KeyExchange::MlKem768]])
    }

    fn with(options: u8, attacker: Attacker, additional: Vec<Vec<KeyExchange>>) -> Self {
        let name = |s: &str| Identity::Fqdn(s.to_owned());
        let peer = Peer {
            local_id: name("victim.test"),
            remote_id: RemoteId::Exactly(name("peer.test")),
            local_auth: LocalAuth::SharedKey(KEY.to_vec().into()),
            remote_auth: RemoteAuth::SharedKey(KEY.to_vec().into()),
            childless: Childless::Allow,
            ppk: None,
        };
        let mut config = Config::new(vec![peer]);
        config.child[0].key_exchange_optional = options & 16 != 0;
        config.ike[0].additional = additional;
        Self {
            victim: Endpoint::new(config),
            attacker,
            rekeying: None,
            now: Duration::from_secs(1),
            rng: Octets(4711),
            options,
            next_spi: 0x0100_0000,
            ikes: BTreeSet::new(),
            children: BTreeSet::new(),
            made: (0, 0),
            seen: Vec::new(),
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: self.now, unix_seconds: 1_800_000_000 }
    }

    fn spi(&mut self) -> u32 {
        self.next_spi += 1;
        self.next_spi
    }

    fn child(&mut self) -> NewChild {
        let label = SecurityLabel::new(LABEL.as_bytes()).ok();
        NewChild {
            spi: self.spi(),
            label,
            local: any(),
            remote: any(),
            want_address: true,
            resource: Resource::new(b"ours"),
            aggfrag: self.options & 64 != 0,
        }
    }

    /// Takes everything out of the victim.
    fn drain(&mut self) {
        for turn in 0.. {
            assert!(turn < 5_000, "one input makes endless work");
            let now = self.now();
            match self.victim.poll(now, &mut self.rng) {
                Output::Transmit { datagram, path } => {
                    assert_eq!(path.local, VICTIM);
                    if let Some(seen) = self.attacker.hear(&datagram) {
                        self.follow(&seen);
                        self.seen.push(seen);
                    }
                }
                Output::Event(event) => self.on_event(event),
                Output::Wait(at) => {
                    assert!(at.is_none_or(|at| at > self.now), "a timer that is not ahead");
                    break;
                }
            }
        }
        assert!(self.victim.len() <= 64, "{} IKE SAs out of one", self.victim.len());
    }

    /// When the victim has granted new keys, the attacker goes on under them.
    fn follow(&mut self, seen: &Seen) {
        if seen.response
            && seen.exchange == 36
            && let Some(spi) = self.rekeying
            && let Some(next) = self.attacker.successor(true, spi, seen, &[])
        {
            self.rekeying = None;
            self.attacker = next;
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::ChildRequested(r) => {
                let wanted = r.labels.iter().find(|l| l.as_str() == Some(LABEL)).cloned();
                let decision = match wanted {
                    label if self.options & 8 == 0 && (label.is_some() || r.labels.is_empty()) => {
                        let (spi, assign) = (self.spi(), vec![InnerAddress::Address([10, 0, 0, 1].into())]);
                        ChildDecision::Accept {
                            spi,
                            label,
                            local: any(),
                            remote: any(),
                            assign,
                            resource: Resource::new(b"ours"),
                            aggfrag: self.options & 64 != 0,
                        }
                    }
                    _ => ChildDecision::Refuse,
                };
                self.command(Command::Decide { request: r.request, decision });
            }
            Event::IkeEstablished { ike, .. } => {
                assert!(self.ikes.insert(ike), "established twice");
            }
            Event::IkeClosed { ike, children, .. } => {
                self.ikes.remove(&ike);
                for spi in children {
                    assert!(self.children.remove(&(ike, spi)), "a child ends that never was");
                }
                assert!(!self.children.iter().any(|c| c.0 == ike), "a child outlives its IKE SA");
            }
            Event::ChildEstablished(c) => {
                let label = c.label.as_ref().and_then(|l| l.as_str().map(str::to_owned));
                assert!(label.is_none() || label.as_deref() == Some(LABEL), "a label nobody granted");
                assert!(c.role == Role::Initiator || self.options & 8 == 0, "granted by nobody");
                assert!(c.role == Role::Responder || label.is_some(), "not what the victim asked for");
                self.made.0 += 1;
                assert!(self.ikes.contains(&c.ike) && self.children.insert((c.ike, c.inbound)));
            }
            Event::ChildClosed { ike, inbound, .. } => {
                assert!(self.children.remove(&(ike, inbound)), "a child ends that never was");
            }
            Event::IkeRekeyed { .. } => self.made.1 += 1,
            _ => {}
        }
    }

    fn command(&mut self, command: Command) {
        let now = self.now();
        let _ = self.victim.command(command, now, &mut self.rng);
    }

    fn send(&mut self, datagram: Option<Vec<u8>>) {
        let path = Path { local: VICTIM, remote: PEER, marker: true };
        if let Some(d) = datagram {
            let now = self.now();
            self.victim.handle(&d, path, now, &mut self.rng);
        }
        self.drain();
    }

    fn notifications(&self) -> Vec<(u8, Vec<u8>)> {
        let notify = |kind: u16| (41, [&[0, 0], &kind.to_be_bytes()[..]].concat());
        let mut out = Vec::new();
        out.extend((self.options & 2 != 0).then(|| notify(16430)));
        out.extend((self.options & 4 != 0).then(|| notify(16418)));
        out
    }

    /// The first message of the two.
    pub fn begin(&mut self) {
        if !self.attacker.initiator {
            let path = Path { local: VICTIM, remote: PEER, marker: true };
            let (child, now) = (self.child(), self.now());
            self.victim.connect(0, path, None, Some(child), now, &mut self.rng).expect("connect");
            self.drain();
        }
    }

    /// An honest handshake.
    pub fn handshake(&mut self) {
        let more = self.notifications();
        let init = self.attacker.init(&more);
        self.send(Some(init));
        self.auth(0, &[]);
    }

    fn auth(&mut self, first: u8, more: &[u8]) {
        let Some((id, auth)) = self.attacker.auth("peer.test") else { return };
        let kind = if self.attacker.initiator { 35 } else { 36 };
        let (start, mut all) = chain(&[(kind, id), (39, auth)]);
        if first != 0 && !more.is_empty() {
            // The AUTH payload is the last but for what follows.
            let at = 4 + usize::from(u16::from_be_bytes([all[2], all[3]])) - 4;
            all[at] = first;
            all.extend_from_slice(more);
        }
        let message = if self.attacker.initiator {
            self.attacker.ask(35, start, &all)
        } else {
            self.attacker.answer(start, &all)
        };
        self.send(message);
    }

    /// Does one action.
    pub fn act(&mut self, kind: u8, data: &[u8]) {
        match (kind % op::COUNT, data) {
            (op::ASK, [exchange, first, chain @ ..]) => {
                let message = self.attacker.ask(*exchange, *first, chain);
                self.send(message);
            }
            (op::ANSWER, [first, chain @ ..]) => {
                let message = self.attacker.answer(*first, chain);
                self.send(message);
            }
            (op::COMMAND, [what, ..]) => self.tell(*what),
            (op::TIME, [a, b, ..]) => {
                self.now += Duration::from_millis(u64::from(u16::from_be_bytes([*a, *b])));
                self.drain();
            }
            (op::AUTH, [first, chain @ ..]) => self.auth(*first, chain),
            (op::FRAGMENT, [exchange, first, number, total, chain @ ..]) => {
                let numbers = [*number, *total];
                let message = self.attacker.fragment(*exchange, *first, chain, numbers, number == total);
                self.send(message);
            }
            (op::REKEY_ASK, _) => {
                let spi = [0xa8; 8];
                let (first, chain) = self.attacker.rekey_chain(spi);
                self.rekeying = Some(spi);
                let message = self.attacker.ask(36, first, &chain);
                self.send(message);
            }
            (op::REKEY_ANSWER, _) => self.grant_rekeying(),
            (op::RAW, datagram) => {
                let mut d = [&[0; 4], datagram].concat();
                if let Some(probe) = self.attacker.answer(0, &[]).filter(|_| d.len() >= 20) {
                    d[4..20].copy_from_slice(&probe[4..20]);
                }
                self.send(Some(d));
            }
            (op::INIT, [first, chain @ ..]) => {
                let more: Vec<(u8, Vec<u8>)> = crate::attacker::payloads(*first, chain)
                    .into_iter()
                    .map(|(k, b)| (k, b.to_vec()))
                    .collect();
                let message = self.attacker.init(&more);
                self.send(Some(message));
            }
            _ => {}
        }
    }

    /// The attacker answers the victim's request for new keys of the IKE SA, and goes on under them.
    fn grant_rekeying(&mut self) {
        let spi = [0xa9; 8];
        let request = self.seen.iter().rev().find(|s| !s.response && s.exchange == 36).cloned();
        let Some(request) = request else { return };
        let Some(next) = self.attacker.successor(false, spi, &request, &[]) else { return };
        let (first, chain) = self.attacker.rekey_chain(spi);
        let message = self.attacker.answer(first, &chain);
        self.send(message);
        self.attacker = next;
    }

    fn tell(&mut self, what: u8) {
        let Some(ike) = self.ikes.iter().next().copied() else { return };
        let child = self.children.iter().nth(usize::from(what >> 4)).map(|c| c.1);
        let command = match (what & 15, child) {
            (0, _) => Command::CreateChild { ike, child: self.child() },
            (1, Some(inbound)) => Command::RekeyChild { ike, inbound, spi: self.spi() },
            (2, Some(inbound)) => Command::CloseChild { ike, inbound },
            (3, _) => Command::RekeyIke { ike },
            (4, _) => Command::CloseIke { ike },
            _ => Command::Probe { ike },
        };
        self.command(command);
        self.drain();
    }
}

/// Runs an input and gives how many children the victim told of, and how many rekeyings of its IKE SA.
pub fn run(input: &[u8], victim_begins: bool) -> (usize, usize) {
    let Some((&options, mut rest)) = input.split_first() else { return (0, 0) };
    let mut duel = Duel::new(options, victim_begins);
    duel.begin();
    if options & 1 == 0 {
        duel.handshake();
    }
    let mut actions = 0;
    while let Some((&[kind, high, low], tail)) = rest.split_first_chunk::<3>() {
        let (data, tail) = tail.split_at(tail.len().min(usize::from(u16::from_be_bytes([high & 0x0f, low]))));
        rest = tail;
        actions += 1;
        if actions > 40 {
            break;
        }
        duel.act(kind, data);
    }
    duel.made
}

/// The victim began.
pub fn initiator(input: &[u8]) {
    run(input, true);
}

/// The attacker began.
pub fn responder(input: &[u8]) {
    run(input, false);
}
