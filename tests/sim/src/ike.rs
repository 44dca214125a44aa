//! IKE endpoints in a world of faults.
//!
//! Invariants, checked at every step:
//! - two sides that both have a child SA agree on its keys, label, selectors and suite;
//! - no child is one side's alone for longer than it takes to notice that the other has it not (yet, or any more);
//! - a child is made by the responder only under a label that it grants at that moment;
//! - no child outlives its grant on either side: once a node has withdrawn a child's label, or is given a child under a label that it has
//!   withdrawn meanwhile, the child is deleted, and gone within the patience of two exchanges;
//! - no ESP key belongs to two SAs, and no AEAD nonce is used twice under one IKE key;
//! - an inbound SPI belongs to one child at a time.
//!
//! And when the network has been whole for long enough: each side's children are the other's, and none is left under a label that
//! its responder or its initiator has withdrawn.

use crate::network::{Faults, Network};
use crate::random::Dice;
use levee_ike::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

const LABELS: [&str; 3] = ["CONFIDENTIAL", "SECRET", NOBODYS];
/// Asked for now and then, and granted by nobody.
const NOBODYS: &str = "TOPSECRET";
/// While one of these lasts, the network is bad and the nodes are busy. Short worlds are many.
const BUSY: [u64; 4] = [10, 12, 15, 40];
/// Long enough for every retransmission and probe to end.
const QUIET: Duration = Duration::from_secs(400);

/// Until a child that may not be any more is gone: one exchange that is under way may use its whole patience, which is 76 seconds, and
/// the child's deletion after it.
const GONE: Duration = Duration::from_secs(152);

/// Until a child that the other side has not is gone: silence is noticed after 30 seconds, and believed after the probe's patience. What
/// is under way when it begins has its own.
const ALONE: Duration = Duration::from_secs(182);

/// What came of one run.
#[derive(Debug, Default, Clone, Copy)]
pub struct Summary {
    /// IKE SAs that were established, by both sides' count.
    pub established: usize,
    /// Child SAs, likewise.
    pub children: usize,
    /// Child SAs that replaced others.
    pub rekeyed: usize,
    /// IKE SAs that were rekeyed.
    pub ike_rekeyed: usize,
    /// Child SAs alive at the end.
    pub alive: usize,
    /// How often a NAT gave a node another port.
    pub roamed: usize,
    /// How often a peer was followed to another address.
    pub followed: usize,
    /// Child SAs that were deleted because their labels were withdrawn.
    pub withdrawn: usize,
}

struct Node {
    endpoint: Endpoint,
    /// Where it believes to be.
    address: SocketAddr,
    /// Where the others see it: behind a NAT somewhere else, and not always in the same place.
    outside: SocketAddr,
    /// Labels granted now.
    granted: BTreeSet<&'static str>,
    ikes: BTreeSet<IkeId>,
    children: BTreeMap<u32, ChildEstablished>,
    /// Children under withdrawn labels, and when they must be gone. No inbound SPI is ever used again.
    ending: BTreeMap<u32, Duration>,
    next_spi: u32,
    waiting: Vec<(Duration, ChildRequested)>,
    /// Keys with a PPK in them that are on their way.
    mixing: Vec<(Duration, RequestId, PpkKeys)>,
}

impl Node {
    /// Whether a child's label is granted now.
    fn grants(&self, child: &ChildEstablished) -> bool {
        child.label.as_ref().and_then(SecurityLabel::as_str).is_some_and(|l| self.granted.contains(l))
    }
}

/// A world of endpoints that all know each other.
pub struct World {
    nodes: Vec<Node>,
    network: Network<(usize, Path)>,
    dice: Dice,
    secrets: Dice,
    now: Duration,
    busy: Duration,
    /// Nonces seen: SPIs, direction and IV, with the datagram that had them.
    nonces: BTreeMap<(u128, bool, [u8; 8]), Vec<u8>>,
    /// ESP keys seen, with the SPI that they belong to.
    keys: BTreeMap<Vec<u8>, u32>,
    /// Children by (inbound, outbound) of the side that told first, until the other tells.
    told: BTreeMap<(u32, u32), Facts>,
    /// The children of all nodes: inbound and outbound SPI.
    alive: BTreeMap<u32, u32>,
    /// Children that the other side has not, by inbound SPI, and since when.
    alone: BTreeMap<u32, Duration>,
    summary: Summary,
    /// Whether PPKs are in all keys, and how long who holds them takes.
    ppks: bool,
    dice_for_ppks: Dice,
    /// `LEVEE_TRACE` is set: tell what happens.
    trace: bool,
}

/// What both sides of a child must agree on, in one side's words.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    inbound_keys: EspKeys,
    outbound_keys: EspKeys,
    label: Option<SecurityLabel>,
    local: Vec<Selector>,
    remote: Vec<Selector>,
    suite: ChildSuite,
}

fn name(i: usize) -> Identity {
    Identity::Fqdn(format!("n{i}.test"))
}

/// Where node `i` finds node `other` among its peers.
fn peer_index(i: usize, other: usize) -> usize {
    if other < i { other } else { other - 1 }
}

/// Stands in for who holds the PPKs: both ends of a pair mix the same into their keys. What prf+ makes of them is not tried here.
fn mix(id: &[u8], keys: PpkKeys) -> PpkKeys {
    let one = |key: Secret| -> Secret {
        let octets: Vec<u8> = key.iter().zip(id.iter().cycle()).map(|(a, b)| a.rotate_left(3) ^ b).collect();
        octets.into()
    };
    PpkKeys { d: one(keys.d), pi: one(keys.pi), pr: one(keys.pr) }
}

fn config(i: usize, n: usize, series: bool, ppks: bool, dice: &mut Dice) -> Config {
    let childless = [Childless::Allow, Childless::Allow, Childless::Never];
    let peers = (0..n)
        .filter(|o| *o != i)
        .map(|o| {
            let key = format!("the key of {} and {}", i.min(o), i.max(o)).into_bytes();
            Peer {
                local_id: name(i),
                remote_id: RemoteId::Exactly(name(o)),
                local_auth: LocalAuth::SharedKey(key.clone().into()),
                remote_auth: RemoteAuth::SharedKey(key.into()),
                childless: *dice.pick(&childless).unwrap_or(&Childless::Allow),
                ppk: ppks.then(|| {
                    let id = format!("the PPK of {} and {}", i.min(o), i.max(o)).into_bytes();
                    Ppk { id, former: None, mandatory: true }
                }),
            }
        })
        .collect();
    let mut config = Config::new(peers);
    if dice.chance(200) {
        config.limits.fragment_above = 256;
    }
    if dice.chance(100) {
        config.limits.cookie_above = 0;
    }
    if series {
        config.ike[0].additional = vec![vec![KeyExchange::MlKem768]];
        config.timers.half_open = Duration::from_secs(90);
    }
    if dice.chance(30) {
        config.ike[0].key_exchange = vec![KeyExchange::P256, KeyExchange::X25519];
    }
    config
}

impl World {
    /// A world of `n` endpoints.
    pub fn new(seed: u64, n: usize) -> Self {
        let mut dice = Dice::new(seed);
        // Additional key exchanges, in the first IKE SA and in its rekeyings (RFC 9370).
        let series = dice.chance(60);
        // PPKs between all of them (RFC 8784); by dice of their own.
        let mut dice_for_ppks = Dice::new(seed ^ 0x8784);
        let ppks = dice_for_ppks.chance(200);
        let nodes = (0..n)
            .map(|i| Node {
                endpoint: Endpoint::new(config(i, n, series, ppks, &mut dice)),
                address: address(10, i),
                // A third of the nodes is behind a NAT.
                outside: address(if i % 3 == 0 { 192 } else { 10 }, i),
                granted: LABELS[..2].iter().copied().collect(),
                ikes: BTreeSet::new(),
                children: BTreeMap::new(),
                ending: BTreeMap::new(),
                next_spi: u32::try_from(i + 1).unwrap_or(1) << 20,
                waiting: Vec::new(),
                mixing: Vec::new(),
            })
            .collect();
        let faults = Faults {
            lost: [0, 50, 200, 400][dice.below(4)],
            doubled: [0, 100][dice.below(2)],
            corrupted: [0, 20, 100][dice.below(3)],
            late: [0, 50][dice.below(2)],
        };
        let mut dice_for_time = Dice::new(!seed);
        let secrets = Dice::new(seed ^ 0x5ec2_e75e_c2e7_5ec2);
        Self {
            nodes,
            network: Network::new(faults),
            dice,
            secrets,
            now: Duration::ZERO,
            busy: Duration::from_secs(BUSY[dice_for_time.below(BUSY.len())]),
            nonces: BTreeMap::new(),
            keys: BTreeMap::new(),
            told: BTreeMap::new(),
            alive: BTreeMap::new(),
            alone: BTreeMap::new(),
            summary: Summary::default(),
            ppks,
            dice_for_ppks,
            trace: std::env::var_os("LEVEE_TRACE").is_some(),
        }
    }

    fn tell(&self, i: usize, what: &dyn std::fmt::Debug) {
        if self.trace {
            println!("{:>10.3} node {i}: {what:?}", self.now.as_secs_f64());
        }
    }

    /// Runs the busy time and the quiet time. An error tells which invariant broke.
    pub fn run(mut self) -> Result<Summary, String> {
        let n = self.nodes.len();
        let mut next_action = Duration::ZERO;
        let pace = Duration::from_millis(3000 / u64::try_from(n).unwrap_or(1));
        loop {
            self.settle()?;
            let busy = self.now < self.busy;
            if busy && self.now >= next_action {
                self.act()?;
                next_action = self.now + self.dice.time(pace * 2);
                continue;
            }
            if !busy {
                self.network.faults = Faults::default();
            }
            let timers: Vec<Duration> = (0..n).filter_map(|i| self.wait(i)).collect();
            let answers = self
                .nodes
                .iter()
                .flat_map(|x| x.waiting.iter().map(|(at, _)| *at).chain(x.mixing.iter().map(|(at, ..)| *at)));
            let action = if busy { Some(next_action) } else { None };
            let next = timers.into_iter().chain(answers).chain(self.network.next()).chain(action).min();
            match next {
                Some(at) if at < self.busy + QUIET => self.now = self.now.max(at),
                _ => break,
            }
        }
        self.at_the_end()?;
        Ok(self.summary)
    }

    fn clock(&self) -> Now {
        Now { monotonic: self.now, unix_seconds: 1_800_000_000 + self.now.as_secs() }
    }

    /// The time of a node's next timer, with everything due now already done.
    fn wait(&mut self, i: usize) -> Option<Duration> {
        let now = self.clock();
        match self.nodes[i].endpoint.poll(now, &mut self.secrets) {
            Output::Wait(at) => at,
            other => unreachable!("settled, yet {other:?}"),
        }
    }

    /// Delivers what has arrived, answers what is due, and drains all nodes, until nothing is left to do now.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            let mut idle = true;
            for i in 0..self.nodes.len() {
                idle &= !self.drain(i)?;
                idle &= !self.answer(i)?;
                idle &= !self.mixed(i)?;
            }
            let now = self.clock();
            if let Some(((to, path), datagram)) = self.network.arrive(self.now) {
                self.nodes[to].endpoint.handle(&datagram, path, now, &mut self.secrets);
                idle = false;
            }
            if idle {
                return Ok(());
            }
        }
    }

    fn drain(&mut self, i: usize) -> Result<bool, String> {
        let mut any = false;
        loop {
            let now = self.clock();
            match self.nodes[i].endpoint.poll(now, &mut self.secrets) {
                Output::Transmit { path, datagram } => {
                    self.check_nonce(&datagram)?;
                    // Where a node was before its NAT moved it, nobody is.
                    if let Some(to) = self.nodes.iter().position(|n| n.outside == path.remote) {
                        let (local, remote) = (self.nodes[to].address, self.nodes[i].outside);
                        let there = Path { local, remote, marker: true };
                        self.network.send(self.now, &(to, there), datagram, &mut self.dice);
                    }
                }
                Output::Event(event) => self.on_event(i, event)?,
                Output::Wait(_) => {
                    self.check_grants(i)?;
                    self.check_pairs(i)?;
                    return Ok(any);
                }
            }
            any = true;
        }
    }

    /// No AEAD nonce twice under one key: the IV in clear is the nonce's changing part, and a direction of an IKE SA has one key.
    fn check_nonce(&mut self, datagram: &[u8]) -> Result<(), String> {
        let message = datagram.get(4..).unwrap_or_default();
        let at = match message.get(16) {
            Some(46) => 32,
            Some(53) => 36,
            _ => return Ok(()),
        };
        let (Some(spis), Some(flags), Some(iv)) =
            (message.first_chunk::<16>(), message.get(19), message.get(at..at + 8))
        else {
            return Err("a short encrypted message".to_owned());
        };
        let iv = <[u8; 8]>::try_from(iv).map_err(|_| "IV")?;
        let key = (u128::from_be_bytes(*spis), flags & 8 != 0, iv);
        match self.nonces.get(&key) {
            Some(before) if before.as_slice() != message => Err("an AEAD nonce was used twice".to_owned()),
            Some(_) => Ok(()),
            None => {
                self.nonces.insert(key, message.to_vec());
                Ok(())
            }
        }
    }

    fn answer(&mut self, i: usize) -> Result<bool, String> {
        let due: Vec<ChildRequested> = {
            let now = self.now;
            let (due, rest) =
                std::mem::take(&mut self.nodes[i].waiting).into_iter().partition(|(at, _)| *at <= now);
            self.nodes[i].waiting = rest;
            let due: Vec<(Duration, ChildRequested)> = due;
            due.into_iter().map(|(_, r)| r).collect()
        };
        let any = !due.is_empty();
        for r in due {
            let later = self.dice.chance(30);
            let node = &mut self.nodes[i];
            let label =
                r.labels.iter().find(|l| l.as_str().is_some_and(|s| node.granted.contains(s))).cloned();
            let decision = match label {
                _ if later => ChildDecision::Later,
                Some(label) => {
                    node.next_spi += 1;
                    let spi = node.next_spi | 0x100;
                    node.next_spi = spi;
                    let (local, remote) = (any_address(), any_address());
                    ChildDecision::Accept {
                        spi,
                        label: Some(label),
                        local,
                        remote,
                        assign: Vec::new(),
                        resource: None,
                        aggfrag: false,
                    }
                }
                None => ChildDecision::Refuse,
            };
            let now = self.clock();
            let request = r.request;
            match self.nodes[i].endpoint.command(
                Command::Decide { request, decision },
                now,
                &mut self.secrets,
            ) {
                // The question went with its SA while it was open.
                Ok(()) | Err(CommandError::NoSuchRequest) => {}
                Err(e) => return Err(format!("a decision was not taken: {e}")),
            }
            self.drain(i)?;
        }
        Ok(any)
    }

    /// Gives a node the keys that are due.
    fn mixed(&mut self, i: usize) -> Result<bool, String> {
        let now = self.clock();
        let Some(due) = self.nodes[i].mixing.iter().position(|(at, ..)| *at <= now.monotonic) else {
            return Ok(false);
        };
        let (_, request, keys) = self.nodes[i].mixing.remove(due);
        let keys = Some(keys);
        match self.nodes[i].endpoint.command(Command::PpkMixed { request, keys }, now, &mut self.secrets) {
            // The IKE SA may have ended meanwhile.
            Ok(()) | Err(CommandError::NoSuchRequest) => Ok(true),
            Err(e) => Err(format!("keys with a PPK in them were not taken: {e}")),
        }
    }

    fn on_event(&mut self, i: usize, event: Event) -> Result<(), String> {
        self.tell(i, &event);
        match event {
            Event::MixPpk { request, id, keys, .. } => {
                let slow = self.dice_for_ppks.chance(300);
                let delay =
                    if slow { self.dice_for_ppks.time(Duration::from_secs(2)) } else { Duration::ZERO };
                self.nodes[i].mixing.push((self.now + delay, request, mix(&id, keys)));
            }
            Event::IkeEstablished { ppk, .. } if ppk.is_some() != self.ppks => {
                return Err("an IKE SA without the PPK that is mandatory".to_owned());
            }
            Event::IkeEstablished { ike, .. } => {
                self.summary.established += 1;
                if !self.nodes[i].ikes.insert(ike) {
                    return Err("one IKE SA was established twice".to_owned());
                }
            }
            Event::IkeRekeyed { .. } => self.summary.ike_rekeyed += 1,
            Event::IkeClosed { ike, children, .. } => {
                self.nodes[i].ikes.remove(&ike);
                for spi in children {
                    self.ended(i, spi)?;
                }
                if self.nodes[i].children.values().any(|c| c.ike == ike) {
                    return Err("a child outlived its IKE SA".to_owned());
                }
            }
            Event::IkeRekeyDue { .. } | Event::IkeNotRekeyed { .. } => {}
            Event::ChildRequested(r) => {
                let delay = if self.dice.chance(300) {
                    self.dice.time(Duration::from_millis(1500))
                } else {
                    Duration::ZERO
                };
                let at = self.now + delay;
                self.nodes[i].waiting.push((at, r));
            }
            Event::ChildEstablished(child) => self.on_child(i, child)?,
            Event::ChildFailed { .. } => {}
            Event::PathChanged { .. } => self.summary.followed += 1,
            Event::ChildClosed { inbound, .. } => self.ended(i, inbound)?,
            Event::Sign { .. } => return Err("nobody here signs".to_owned()),
        }
        Ok(())
    }

    fn on_child(&mut self, i: usize, child: ChildEstablished) -> Result<(), String> {
        self.summary.children += 1;
        self.summary.rekeyed += usize::from(child.rekeys.is_some());
        let node = &mut self.nodes[i];
        let label = child.label.as_ref().and_then(SecurityLabel::as_str).ok_or("an unlabelled child")?;
        let granted = node.granted.contains(label);
        if child.role == Role::Responder && !granted {
            return Err(format!("a child at {label}, which is not granted"));
        }
        for (keys, spi) in [(&child.inbound_keys, child.inbound), (&child.outbound_keys, child.outbound)] {
            match self.keys.insert(keys.encryption.to_vec(), spi) {
                Some(other) if other != spi => return Err("one ESP key for two SAs".to_owned()),
                _ => {}
            }
        }
        let facts = Facts {
            inbound_keys: child.inbound_keys.clone(),
            outbound_keys: child.outbound_keys.clone(),
            label: child.label.clone(),
            local: child.local.clone(),
            remote: child.remote.clone(),
            suite: child.suite.clone(),
        };
        match self.told.remove(&(child.outbound, child.inbound)) {
            Some(theirs) => {
                let seen_from_there = Facts {
                    inbound_keys: facts.outbound_keys,
                    outbound_keys: facts.inbound_keys,
                    local: facts.remote,
                    remote: facts.local,
                    ..facts
                };
                if theirs != seen_from_there {
                    return Err(format!(
                        "the two sides of a child differ: {theirs:?} and {seen_from_there:?}"
                    ));
                }
            }
            None => {
                self.told.insert((child.inbound, child.outbound), facts);
            }
        }
        let (ike, inbound) = (child.ike, child.inbound);
        self.alive.insert(inbound, child.outbound);
        if self.nodes[i].children.insert(inbound, child).is_some() {
            return Err("two children with one inbound SPI".to_owned());
        }
        // The answer came when the label had been withdrawn.
        if granted { Ok(()) } else { self.close(i, ike, inbound) }
    }

    fn ended(&mut self, i: usize, inbound: u32) -> Result<(), String> {
        self.alive.remove(&inbound);
        self.alone.remove(&inbound);
        let ended = self.nodes[i].children.remove(&inbound);
        ended.map(|_| ()).ok_or_else(|| "a child ended that never was".to_owned())
    }

    /// No child of a node is unknown to the other side, but for a time.
    fn check_pairs(&mut self, i: usize) -> Result<(), String> {
        for (inbound, c) in &self.nodes[i].children {
            if self.alive.get(&c.outbound) == Some(inbound) {
                self.alone.remove(inbound);
            } else if self.now > *self.alone.entry(*inbound).or_insert(self.now) + ALONE {
                return Err(format!("node {i} has had the child {inbound:08x} alone for too long"));
            }
        }
        Ok(())
    }

    /// No child of a node lives under a label that it has withdrawn, but for the time that its deletion may take.
    fn check_grants(&self, i: usize) -> Result<(), String> {
        let node = &self.nodes[i];
        for c in node.children.values().filter(|c| !node.grants(c)) {
            match node.ending.get(&c.inbound) {
                None => return Err(format!("node {i} has a child at {:?}, which it has withdrawn", c.label)),
                Some(by) if self.now > *by => {
                    return Err(format!(
                        "node {i} still has a child at {:?}, which it has withdrawn",
                        c.label
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Some node does something.
    fn act(&mut self) -> Result<(), String> {
        let n = self.nodes.len();
        let i = self.dice.below(n);
        let now = self.clock();
        let ikes: Vec<IkeId> = self.nodes[i].ikes.iter().copied().collect();
        let children: Vec<(IkeId, u32)> =
            self.nodes[i].children.values().map(|c| (c.ike, c.inbound)).collect();
        let most = if n == 2 { 2 } else { 3 };
        if ikes.len() < most && (ikes.is_empty() || self.dice.chance(100)) {
            let other = (i + 1 + self.dice.below(n - 1)) % n;
            let path = Path { local: self.nodes[i].address, remote: self.nodes[other].outside, marker: true };
            let child = self.wanted(i);
            let result = self.nodes[i].endpoint.connect(
                peer_index(i, other),
                path,
                None,
                Some(child),
                now,
                &mut self.secrets,
            );
            return result.map(|_| ()).map_err(|e| format!("connect: {e}"));
        }
        if self.nodes[i].outside.ip() != self.nodes[i].address.ip() && self.dice.chance(80) {
            self.summary.roamed += 1;
            let port = self.nodes[i].outside.port();
            self.nodes[i].outside.set_port(port + 1);
        }
        let Some(ike) = self.dice.pick(&ikes).copied() else { return Ok(()) };
        let child = self.dice.pick(&children).copied();
        let command = match (self.dice.below(21), child) {
            (0..=5, _) => Command::CreateChild { ike, child: self.wanted(i) },
            (6..=11, Some((ike, inbound))) => Command::RekeyChild { ike, inbound, spi: self.spi(i) },
            (12..=13, Some((ike, inbound))) => Command::CloseChild { ike, inbound },
            (14..=16, _) => Command::RekeyIke { ike },
            (17, _) => Command::CloseIke { ike },
            (18, _) => return self.withdraw(i),
            (19, _) => Command::NarrowIke { ike, proposals: self.narrowed(i) },
            _ => Command::Probe { ike },
        };
        self.tell(i, &command);
        match self.nodes[i].endpoint.command(command, now, &mut self.secrets) {
            Ok(()) | Err(CommandError::NoSuchChild | CommandError::NoSuchIke) => Ok(()),
            Err(e) => Err(format!("command: {e}")),
        }
    }

    /// A node withdraws a label: it grants no more children there and closes those that live.
    fn withdraw(&mut self, i: usize) -> Result<(), String> {
        let granted: Vec<&'static str> = self.nodes[i].granted.iter().copied().collect();
        let Some(gone) = self.dice.pick(&granted).copied() else { return Ok(()) };
        self.nodes[i].granted.remove(gone);
        self.close_withdrawn(i)
    }

    /// What a node does about children at labels that it does not grant (any more).
    fn close_withdrawn(&mut self, i: usize) -> Result<(), String> {
        let node = &self.nodes[i];
        let withdrawn = node.children.values().filter(|c| !node.grants(c));
        let close: Vec<(IkeId, u32)> = withdrawn.map(|c| (c.ike, c.inbound)).collect();
        close.into_iter().try_for_each(|(ike, inbound)| self.close(i, ike, inbound))
    }

    /// Has a node delete a child that may not be any more.
    fn close(&mut self, i: usize, ike: IkeId, inbound: u32) -> Result<(), String> {
        let now = self.clock();
        let node = &mut self.nodes[i];
        if node.ending.contains_key(&inbound) {
            return Ok(());
        }
        node.ending.insert(inbound, now.monotonic + GONE);
        self.summary.withdrawn += 1;
        match node.endpoint.command(Command::CloseChild { ike, inbound }, now, &mut self.secrets) {
            Ok(()) | Err(CommandError::NoSuchChild | CommandError::NoSuchIke) => Ok(()),
            Err(e) => Err(format!("close: {e}")),
        }
    }

    fn spi(&mut self, i: usize) -> u32 {
        let node = &mut self.nodes[i];
        node.next_spi = (node.next_spi + 1) | 0x100;
        node.next_spi
    }

    /// What an IKE SA's keys may be replaced by: P-256 alone, which everybody has, or anything again.
    fn narrowed(&mut self, i: usize) -> Option<Vec<IkeProposal>> {
        let mut proposals = self.nodes[i].endpoint.config().ike.clone();
        for proposal in &mut proposals {
            proposal.key_exchange = vec![KeyExchange::P256];
        }
        self.dice.chance(700).then_some(proposals)
    }

    fn wanted(&mut self, i: usize) -> NewChild {
        let granted = &self.nodes[i].granted;
        let labels: Vec<&str> = LABELS.into_iter().filter(|l| granted.contains(l) || *l == NOBODYS).collect();
        let label = labels[self.dice.below(labels.len())];
        let label = SecurityLabel::new(label.as_bytes()).ok();
        NewChild {
            spi: self.spi(i),
            label,
            local: any_address(),
            remote: any_address(),
            want_address: false,
            resource: None,
            aggfrag: false,
        }
    }

    /// After the quiet time: what one side has, the other has, and what was withdrawn is gone.
    fn at_the_end(&mut self) -> Result<(), String> {
        for (i, node) in self.nodes.iter().enumerate() {
            for c in node.children.values() {
                let other =
                    self.nodes.iter().flat_map(|n| n.children.values()).find(|o| o.inbound == c.outbound);
                if other.is_none_or(|o| o.outbound != c.inbound) {
                    return Err(format!("node {i} has the child {:08x} alone", c.inbound));
                }
                if !node.grants(c) {
                    return Err(format!(
                        "node {i} is left with a child at {:?}, which it has withdrawn",
                        c.label
                    ));
                }
                self.summary.alive += 1;
            }
        }
        Ok(())
    }
}

fn address(net: u8, i: usize) -> SocketAddr {
    SocketAddr::from(([net, 0, 0, u8::try_from(i).unwrap_or(0) + 1], 4500))
}

fn any_address() -> Vec<Selector> {
    Selector::subnet([0, 0, 0, 0].into(), 0).into_iter().collect()
}
