//! A peer that says anything: while it proves who it is, and after. It has the keys of its IKE SA in its own hands.

mod auth;
mod children;
mod first;
mod life;
mod rekeying;

use super::handshake::{Handshake, push_auth, push_ke};
use super::initiator::Start;
use super::*;
use crate::api::{ChildRequested, NewChild, Now, Random, Role};
use crate::channel::{Channel, Received};
use crate::config::{Childless, LocalAuth, Peer, RemoteAuth, RemoteId};
use crate::crypto::Secret;
use crate::crypto::ke::{self, Private};
use crate::crypto::keys::IkeKeys;
use crate::crypto::sign::SignatureScheme;
use crate::crypto::suite::{ChildProposal, IkeProposal, KeyExchange, choose_child, choose_ike};
use crate::endpoint::Endpoint;
use crate::wire::{Fields, HEADER, Identity, Proposal, Selector, TrafficSelectors, auth_method};

const KEY: &[u8] = b"a shared key of some length";

/// xorshift64*: tests must run the same way twice.
struct Seeded(u64);

impl Random for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for octet in out {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            *octet = (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8;
        }
    }
}

fn path(ours: bool) -> Path {
    let address = |host| SocketAddr::from(([192, 0, 2, host], 500));
    let (local, remote) = if ours { (1, 2) } else { (2, 1) };
    Path { local: address(local), remote: address(remote), marker: false }
}

fn name(of: &str) -> Identity {
    Identity::Fqdn(of.to_owned())
}

fn any() -> Vec<Selector> {
    vec![Selector::subnet([0, 0, 0, 0].into(), 0).expect("all")]
}

fn wish(spi: u32) -> NewChild {
    let (label, resource) = (None, None);
    NewChild { spi, label, local: any(), remote: any(), want_address: false, resource, aggfrag: false }
}

/// Ours, for a peer with a shared key.
fn config() -> Config {
    Config::new(vec![Peer {
        local_id: name("ours.test"),
        remote_id: RemoteId::Exactly(name("theirs.test")),
        local_auth: LocalAuth::SharedKey(KEY.to_vec().into()),
        remote_auth: RemoteAuth::SharedKey(KEY.to_vec().into()),
        childless: Childless::Allow,
        ppk: None,
    }])
}

struct Rogue {
    ours: Endpoint,
    /// What surrounds its side.
    around: Endpoint,
    hs: Handshake,
    random: Seeded,
    now: Now,
    /// Requests of ours that it has not answered.
    asked: Vec<Received>,
    /// Answers of ours.
    answered: Vec<Received>,
    events: Vec<Event>,
    /// When ours wants to be called again.
    due: Option<Duration>,
}

fn transmitted(of: &mut Endpoint, now: Now, random: &mut Seeded) -> Vec<u8> {
    match of.poll(now, random) {
        Output::Transmit { datagram, .. } => datagram,
        other => panic!("{other:?}"),
    }
}

fn header(of: &[u8]) -> Header {
    Header::parse(of).expect("a header").0
}

/// It begins, and goes as far as where it has to prove who it is.
fn begun((ours, around): (&mut Endpoint, &mut Endpoint), now: Now, random: &mut Seeded) -> Handshake {
    let start = Start {
        id: IkeId(1),
        peer: 0,
        spi: 0x7777,
        path: path(false),
        float: None,
        pass: None,
        child: None,
        initial_contact: false,
    };
    let mut state = around.with_ctx(now, random, |ctx| connect(start, ctx)).expect("begun");
    // IKE_SA_INIT, and any IKE_INTERMEDIATE.
    loop {
        let request = transmitted(around, now, random);
        ours.handle(&request, path(true), now, random);
        let response = transmitted(ours, now, random);
        let head = header(&response);
        let on = |ctx: &mut Ctx<'_>| state.on_message(&head, &response, path(false), ctx);
        let hs = match around.with_ctx(now, random, on).expect("it goes on") {
            State::Signing(signing) => signing.hs,
            State::Mixing(mixing) => mixing.hs,
            other => {
                state = other;
                continue;
            }
        };
        while !matches!(around.poll(now, random), Output::Wait(_)) {}
        return hs;
    }
}

/// Ours begins, with this child, and it answers.
fn answered(
    (ours, around): (&mut Endpoint, &mut Endpoint),
    child: Option<NewChild>,
    now: Now,
    random: &mut Seeded,
) -> Handshake {
    ours.connect(0, path(true), None, child, now, random).expect("begun");
    let request = transmitted(ours, now, random);
    let head = header(&request);
    let fields = Fields::parse(head.next, &request[HEADER..]).expect("payloads");
    let answers = |ctx: &mut Ctx<'_>| open(IkeId(1), 0x7777, &head, &request, &fields, path(false), ctx);
    let opening = around.with_ctx(now, random, answers);
    let Some(Opening::Open(State::HalfOpen(open))) = opening else { panic!("not open") };
    let response = transmitted(around, now, random);
    ours.handle(&response, path(true), now, random);
    open.hs
}

impl Rogue {
    /// Both have keys, and nobody has proved anything: it begins, or ours does, with this child.
    fn meets(config: Config, begins: bool, child: Option<NewChild>) -> Self {
        Self::meets_over(false, config, begins, child)
    }

    /// The same, where it says that there is a translation of addresses between, or not.
    fn meets_over(nat: bool, config: Config, begins: bool, child: Option<NewChild>) -> Self {
        let mut around = super::tests::config();
        around.ike.clone_from(&config.ike);
        around.force_udp = nat;
        around.limits.clone_from(&config.limits);
        around.peers[0].ppk.clone_from(&config.peers[0].ppk);
        // It stops where it would have to sign.
        around.peers[0].local_auth =
            LocalAuth::Certificate { chain: Vec::new(), schemes: SignatureScheme::DEFAULT.to_vec() };
        let (mut ours, mut around) = (Endpoint::new(config), Endpoint::new(around));
        let mut random = Seeded(7);
        let now = Now { monotonic: Duration::from_secs(100), unix_seconds: 1_790_000_000 };
        let both = (&mut ours, &mut around);
        let hs = if begins { begun(both, now, &mut random) } else { answered(both, child, now, &mut random) };
        let (asked, answered, events) = (Vec::new(), Vec::new(), Vec::new());
        let mut rogue = Self { ours, around, hs, random, now, asked, answered, events, due: None };
        rogue.hear();
        rogue
    }

    /// Both are established, without a child.
    fn connected(config: Config, begins: bool) -> Self {
        let mut rogue = Self::meets(config, begins, None);
        if begins {
            let further = u32::try_from(rogue.hs.channel.suite.additional.len()).expect("few");
            let chain = rogue.proof(1 + further);
            rogue.ask(Exchange::Auth, &chain).expect("an answer");
        } else {
            let request = rogue.asked.pop().expect("IKE_AUTH");
            let chain = rogue.proof(request.id);
            rogue.answer(Exchange::Auth, &chain);
        }
        assert!(matches!(rogue.events.as_slice(), [Event::IkeEstablished { .. }]), "{:?}", rogue.events);
        rogue
    }

    /// Its ID and AUTH payloads.
    fn proof(&self, message_id: u32) -> Chain {
        let (role, id) = (self.hs.channel.role, name("theirs.test").write());
        let kind = if role == Role::Initiator { kind::ID_I } else { kind::ID_R };
        let auth = self.hs.shared_key_auth(KEY, &self.hs.octets(role, &id, message_id));
        let mut chain = Chain::new();
        chain.push(kind, |out| out.extend_from_slice(&id));
        push_auth(&mut chain, auth_method::SHARED_KEY, &auth);
        chain
    }

    /// The name of ours.
    fn ike(&self) -> IkeId {
        let named = |event: &Event| match event {
            Event::IkeEstablished { ike, .. } => Some(*ike),
            _ => None,
        };
        self.events.iter().find_map(named).expect("established")
    }

    /// Takes what ours says.
    fn hear(&mut self) {
        loop {
            match self.ours.poll(self.now, &mut self.random) {
                Output::Transmit { datagram, .. } => {
                    let Self { around, hs, random, now, .. } = self;
                    let take = |ctx: &mut Ctx<'_>| {
                        hs.channel.receive(&header(&datagram), &datagram, path(false), ctx)
                    };
                    match around.with_ctx(*now, random, take) {
                        Some(received) if received.response => self.answered.push(received),
                        Some(received) => self.asked.push(received),
                        None => {}
                    }
                }
                Output::Event(event) => self.events.push(event),
                Output::Wait(due) => {
                    self.due = due;
                    return;
                }
            }
        }
    }

    /// Gives what it has said to ours.
    fn say(&mut self) {
        loop {
            match self.around.poll(self.now, &mut self.random) {
                Output::Transmit { datagram, .. } => {
                    self.ours.handle(&datagram, path(true), self.now, &mut self.random);
                }
                Output::Event(_) => {}
                Output::Wait(_) => return self.hear(),
            }
        }
    }

    /// Asks this; the answer, if there is one already.
    fn ask(&mut self, exchange: Exchange, chain: &Chain) -> Option<Received> {
        let Self { around, hs, random, now, .. } = self;
        around.with_ctx(*now, random, |ctx| hs.channel.request(exchange, chain, ctx)).expect("sent");
        self.say();
        self.answered.pop()
    }

    /// Answers the last request of ours.
    fn answer(&mut self, exchange: Exchange, chain: &Chain) {
        let Self { around, hs, random, now, .. } = self;
        around.with_ctx(*now, random, |ctx| hs.channel.respond(exchange, chain, ctx)).expect("sent");
        self.say();
    }

    fn refuse(&mut self, kind: NotifyKind, data: &[u8]) {
        self.answer(Exchange::CreateChild, &notification(kind, data));
    }

    fn try_command(&mut self, command: Command) -> Result<(), CommandError> {
        let done = self.ours.command(command, self.now, &mut self.random);
        self.hear();
        done
    }

    fn command(&mut self, command: Command) {
        self.try_command(command).expect("a command");
    }

    /// Lets ours do what is due at this time.
    fn at(&mut self, time: Duration) {
        self.now.monotonic = time;
        self.hear();
    }

    /// How often this was told.
    fn told(&self, what: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| what(event)).count()
    }

    /// Why ours ended.
    fn closed(&self) -> Option<&CloseReason> {
        self.events.iter().find_map(|event| match event {
            Event::IkeClosed { reason, .. } => Some(reason),
            _ => None,
        })
    }

    fn children(&self) -> Vec<u32> {
        let made = |event: &Event| match event {
            Event::ChildEstablished(child) => Some(child.inbound),
            _ => None,
        };
        self.events.iter().filter_map(made).collect()
    }

    /// What became of children that ours wanted: by inbound SPI, and why not.
    fn failed(&self) -> Vec<(u32, crate::api::ChildError)> {
        let failed = |event: &Event| match event {
            Event::ChildFailed { inbound, reason, .. } => Some((*inbound, reason.clone())),
            _ => None,
        };
        self.events.iter().filter_map(failed).collect()
    }

    fn gone(&self) -> Vec<(u32, crate::api::ChildClosed)> {
        let gone = |event: &Event| match event {
            Event::ChildClosed { inbound, reason, .. } => Some((*inbound, *reason)),
            _ => None,
        };
        self.events.iter().filter_map(gone).collect()
    }

    fn questions(&self) -> Vec<&ChildRequested> {
        let question = |event: &'_ Event| matches!(event, Event::ChildRequested(_));
        let questions = self.events.iter().filter(|event| question(event));
        questions.filter_map(|e| if let Event::ChildRequested(r) = e { Some(r) } else { None }).collect()
    }

    /// Ours grants the last child that was asked for.
    fn grant(&mut self, spi: u32) {
        let request = self.questions().last().expect("a question").request;
        let (assign, label, resource) = (Vec::new(), None, None);
        let (local, remote) = (any(), any());
        let decision = ChildDecision::Accept { spi, label, local, remote, assign, resource, aggfrag: false };
        self.command(Command::Decide { request, decision });
    }
}

/// The body of a payload with the critical bit (RFC 7296 3.2), which is the second octet of the four before it.
fn critically(out: &mut Vec<u8>) {
    let at = out.len() - 3;
    out[at] = 0x80;
    out.push(9);
}

/// Whether a message has this notification; its data.
fn says(received: &Received, kind: NotifyKind) -> Option<Vec<u8>> {
    let fields = Fields::parse(received.first, &received.plain).expect("payloads");
    fields.notify(kind).map(|n| n.data.to_vec())
}

/// What a message deletes.
fn deletes(received: &Received) -> Vec<crate::wire::Delete> {
    Fields::parse(received.first, &received.plain).expect("payloads").deletes
}

/// An answer to a request of ours for a child, or its own request for one, part by part.
#[derive(Clone)]
struct Said {
    proposals: Vec<Proposal>,
    nonce: Vec<u8>,
    share: Option<(u16, Vec<u8>)>,
    selectors: bool,
    rekeys: Option<u32>,
}

impl Said {
    fn chain(&self) -> Chain {
        let mut chain = Chain::new();
        if let Some(old) = self.rekeys {
            chain.push(kind::NOTIFY, Notify::write_esp(NotifyKind::RekeySa, old, &[]));
        }
        chain.push(kind::SA, |out| Proposal::write_all(&self.proposals, out));
        chain.push(kind::NONCE, |out| out.extend_from_slice(&self.nonce));
        if let Some((method, public)) = &self.share {
            chain.push(kind::KE, |out| {
                out.extend_from_slice(&method.to_be_bytes());
                out.extend_from_slice(&[0, 0]);
                out.extend_from_slice(public);
            });
        }
        if self.selectors {
            chain.push(kind::TS_I, |out| TrafficSelectors::write(&any(), None, out));
            chain.push(kind::TS_R, |out| TrafficSelectors::write(&any(), None, out));
        }
        chain
    }

    /// Its own request for a child.
    fn asks(rogue: &mut Rogue, spi: u32, nonce: u8, rekeys: Option<u32>) -> Self {
        let (_, public) = Private::generate(KeyExchange::X25519, &mut rogue.random).expect("a key");
        Self {
            proposals: vec![ChildProposal::default().offer(spi, true)],
            nonce: vec![nonce; 32],
            share: Some((KeyExchange::X25519.code(), public)),
            selectors: true,
            rekeys,
        }
    }

    /// An honest answer to a request of ours for a child.
    fn grants(rogue: &mut Rogue, request: &Received, spi: u32, nonce: u8) -> Self {
        let fields = Fields::parse(request.first, &request.plain).expect("payloads");
        let offered = fields.sa.expect("proposals");
        let chosen = choose_child(&[ChildProposal::default()], &offered, false).expect("one");
        let share = fields.ke.expect("a share");
        let method = KeyExchange::from_code(share.method).expect("known");
        let (public, _) = ke::respond(method, share.data, &mut rogue.random).expect("agreed");
        Self {
            proposals: vec![chosen.answer(spi)],
            nonce: vec![nonce; 32],
            share: Some((share.method, public)),
            selectors: true,
            rekeys: None,
        }
    }
}
