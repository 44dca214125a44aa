//! The initiator's way to an established IKE SA (RFC 7296 1.2, 2.6, 2.7, 2.16; RFC 9370; RFC 8784).

use super::child::{self, Making};
use super::established::Established;
use super::handshake::{
    Features, Handshake, NONCE, push_auth, push_certificate_request, push_certificates, push_ke,
};
use super::{NEWS, State, closed, notification};
use crate::api::{
    ChildError, CloseReason, CommandError, Event, IkeId, NewChild, Output, Path, PpkKeys, RequestId, Role,
};
use crate::channel::{Channel, Received, Retransmit, Waiting};
use crate::config::{Childless, LocalAuth, RemoteId};
use crate::crypto::Secret;
use crate::crypto::ke::Private;
use crate::crypto::keys::IkeKeys;
use crate::crypto::sign::SignatureScheme;
use crate::crypto::suite::{IkeSuite, KeyExchange, choose_ike};
use crate::door::Pass;
use crate::drops::Drop;
use crate::endpoint::Ctx;
use crate::wire::{
    Chain, Exchange, Fields, HEADER, Header, Notify, NotifyKind, Proposal, Shape, auth_method, kind, shape,
};
use std::net::SocketAddr;
use std::time::Duration;

/// Cookies and other groups that a responder may ask for before the initiator gives up.
const MOST_RESTARTS: u8 = 5;
/// How long an error in clear, which anyone could have sent, is outlived by hope for a real answer (RFC 7296 2.21.1).
const ERROR_GRACE: Duration = Duration::from_secs(2);

/// What an initiator is told.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) id: IkeId,
    pub(crate) peer: usize,
    pub(crate) spi: u64,
    pub(crate) path: Path,
    pub(crate) float: Option<SocketAddr>,
    pub(crate) pass: Option<Pass>,
    pub(crate) child: Option<NewChild>,
    pub(crate) initial_contact: bool,
}

/// IKE_SA_INIT is under way.
#[derive(Debug)]
pub(crate) struct InitSent {
    start: Start,
    ni: Vec<u8>,
    private: Private,
    public: Vec<u8>,
    tried: Vec<KeyExchange>,
    cookie: Option<Vec<u8>>,
    restarts: u8,
    message: Vec<u8>,
    retransmit: Retransmit,
    give_up: Option<(Duration, String)>,
}

/// Begins an IKE SA.
pub(crate) fn connect(start: Start, ctx: &mut Ctx<'_>) -> Result<State, CommandError> {
    let method = ctx
        .config
        .ike
        .iter()
        .find_map(|p| p.key_exchange.first().copied())
        .ok_or(CommandError::Impossible)?;
    let (private, public) = Private::generate(method, ctx.rng).map_err(|_| CommandError::Impossible)?;
    let mut ni = vec![0; NONCE];
    ctx.rng.fill(&mut ni);
    let message = init_request(&start, method, &public, &ni, None, ctx);
    let retransmit = Retransmit::start(vec![message.clone()], start.path, ctx);
    Ok(State::InitSent(Box::new(InitSent {
        start,
        ni,
        private,
        public,
        tried: vec![method],
        cookie: None,
        restarts: 0,
        message,
        retransmit,
        give_up: None,
    })))
}

fn init_request(
    start: &Start,
    method: KeyExchange,
    public: &[u8],
    ni: &[u8],
    cookie: Option<&[u8]>,
    ctx: &mut Ctx<'_>,
) -> Vec<u8> {
    let mut chain = Chain::new();
    // RFC 7296 2.6: the cookie is the first payload.
    if let Some(cookie) = cookie {
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::Cookie, cookie));
    }
    let offers: Vec<Proposal> =
        (1u8..).zip(&ctx.config.ike).map(|(number, p)| Proposal { number, ..p.offer(None) }).collect();
    chain.push(kind::SA, |out| Proposal::write_all(&offers, out));
    push_ke(&mut chain, method, public);
    chain.push(kind::NONCE, |out| out.extend_from_slice(ni));
    Features::write(&mut chain, start.spi, 0, start.path, ctx);
    if ctx.config.ike.iter().any(|p| !p.additional.is_empty()) {
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::IntermediateSupported, &[]));
    }
    if ctx.config.peers.get(start.peer).is_some_and(|p| p.ppk.is_some()) {
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::UsePpk, &[]));
    }
    if let Some(pass) = &start.pass {
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::LeveePass, &pass.show(start.spi, ni)));
    }
    chain.message(Header {
        spi_i: start.spi,
        spi_r: 0,
        next: 0,
        exchange: Exchange::Init,
        from_initiator: true,
        response: false,
        message_id: 0,
    })
}

impl InitSent {
    pub(super) fn child(&self) -> Option<&NewChild> {
        self.start.child.as_ref()
    }

    pub(super) fn id(&self) -> IkeId {
        self.start.id
    }

    pub(super) fn timer(&self) -> Duration {
        self.give_up.as_ref().map_or(self.retransmit.due, |(at, _)| (*at).min(self.retransmit.due))
    }

    pub(super) fn on_timer(mut self: Box<Self>, ctx: &mut Ctx<'_>) -> Option<State> {
        if let Some((at, why)) = &self.give_up
            && ctx.now.monotonic >= *at
        {
            let reason = CloseReason::Notified(why.clone());
            return self.fail(reason, ctx);
        }
        match self.retransmit.on_timer(self.start.path, ctx) {
            Waiting::Yes => Some(State::InitSent(self)),
            Waiting::Silent => self.fail(CloseReason::PeerSilent, ctx),
        }
    }

    fn fail(self: Box<Self>, reason: CloseReason, ctx: &mut Ctx<'_>) -> Option<State> {
        free_child(self.start.child.as_ref(), ctx);
        closed(self.start.id, reason, ctx);
        None
    }

    pub(super) fn on_message(
        mut self: Box<Self>,
        header: &Header,
        message: &[u8],
        from: Path,
        ctx: &mut Ctx<'_>,
    ) -> Option<State> {
        if header.exchange != Exchange::Init
            || !header.response
            || header.from_initiator
            || header.message_id != 0
        {
            ctx.counters.count(Drop::Unexpected);
            return Some(State::InitSent(self));
        }
        let body = message.get(HEADER..).unwrap_or_default();
        let fields = match shape(header.next, body).map(|o| match o {
            Shape::Clear(chain) => Fields::parse(header.next, chain),
            _ => Err(crate::wire::Malformed("IKE_SA_INIT").into()),
        }) {
            Ok(Ok(fields)) => fields,
            // Anyone could have sent it: drop it and wait for the real answer.
            Ok(Err(_)) | Err(_) => {
                ctx.counters.count(Drop::Malformed);
                return Some(State::InitSent(self));
            }
        };
        if let Some(cookie) = fields.notify(NotifyKind::Cookie)
            && (1..=64).contains(&cookie.data.len())
        {
            self.cookie = Some(cookie.data.to_vec());
            return self.restart(ctx);
        }
        if let Some(n) = fields.notify(NotifyKind::InvalidKePayload) {
            return match self.other_method(n.data, &ctx.config.ike) {
                Some(method) => self.with_method(method, ctx),
                None => self.doubt(NotifyKind::InvalidKePayload.name(), ctx),
            };
        }
        if let Some(n) = fields.error() {
            return self.doubt(n.kind.name(), ctx);
        }
        let Some(read) = self.read(header, &fields, ctx) else {
            ctx.counters.count(Drop::Refused);
            return self.doubt("an IKE_SA_INIT response that does not fit".to_owned(), ctx);
        };
        self.keyed(header, message, from, read, ctx)
    }

    /// RFC 7296 2.7, 3.4: the group that the responder wants must be one that was offered and not tried.
    fn other_method(&self, data: &[u8], ours: &[crate::crypto::suite::IkeProposal]) -> Option<KeyExchange> {
        let method = KeyExchange::from_code(u16::from_be_bytes(data.try_into().ok()?))?;
        let offered = ours.iter().any(|p| p.key_exchange.contains(&method));
        (offered && !self.tried.contains(&method)).then_some(method)
    }

    fn with_method(mut self: Box<Self>, method: KeyExchange, ctx: &mut Ctx<'_>) -> Option<State> {
        match Private::generate(method, ctx.rng) {
            Ok((private, public)) => {
                self.private = private;
                self.public = public;
                self.tried.push(method);
                self.restart(ctx)
            }
            Err(_) => self.fail(CloseReason::Protocol("random source"), ctx),
        }
    }

    fn restart(mut self: Box<Self>, ctx: &mut Ctx<'_>) -> Option<State> {
        if self.restarts >= MOST_RESTARTS {
            return self.fail(CloseReason::Protocol("too many restarts of IKE_SA_INIT"), ctx);
        }
        self.restarts += 1;
        let method = self.private.method();
        self.message = init_request(&self.start, method, &self.public, &self.ni, self.cookie.as_deref(), ctx);
        self.retransmit = Retransmit::start(vec![self.message.clone()], self.start.path, ctx);
        Some(State::InitSent(self))
    }

    /// An unauthenticated error: give a real answer a little more time, then fail with it.
    fn doubt(mut self: Box<Self>, why: String, ctx: &mut Ctx<'_>) -> Option<State> {
        if self.give_up.is_none() {
            self.give_up = Some((ctx.now.monotonic.saturating_add(ERROR_GRACE), why));
        }
        Some(State::InitSent(self))
    }

    fn read(
        &self,
        header: &Header,
        fields: &Fields<'_>,
        ctx: &Ctx<'_>,
    ) -> Option<(IkeSuite, Vec<u8>, Vec<u8>)> {
        let (Some([proposal]), Some(ke), Some(nr)) = (fields.sa.as_deref(), fields.ke, fields.nonce) else {
            return None;
        };
        let chosen = choose_ike(&ctx.config.ike, std::slice::from_ref(proposal))?;
        let fits = header.spi_r != 0
            && chosen.suite.key_exchange == self.private.method()
            && ke.method == self.private.method().code()
            && (chosen.suite.additional.is_empty() || fields.has(NotifyKind::IntermediateSupported));
        fits.then(|| (chosen.suite, ke.data.to_vec(), nr.to_vec()))
    }

    fn keyed(
        self: Box<Self>,
        header: &Header,
        message: &[u8],
        from: Path,
        (suite, share, nr): (IkeSuite, Vec<u8>, Vec<u8>),
        ctx: &mut Ctx<'_>,
    ) -> Option<State> {
        let Self { start, ni, private, message: init_request, .. } = *self;
        let Ok(shared) = private.agree(&share) else {
            free_child(start.child.as_ref(), ctx);
            closed(start.id, CloseReason::Protocol("key share"), ctx);
            return None;
        };
        // The notifications were parsed once already; reading them again spares the state a copy of them.
        let body = message.get(HEADER..).unwrap_or_default();
        let features = Fields::parse(header.next, body)
            .map(|f| Features::read(&f, start.spi, header.spi_r, from))
            .unwrap_or_default();
        let seed = IkeKeys::first_seed(suite.prf, &ni, &nr, &shared);
        let keys = IkeKeys::derive(&suite, &seed, &ni, &nr, start.spi, header.spi_r);
        let mut path = start.path;
        // RFC 7296 2.23: with a NAT between, everything goes on over port 4500.
        if features.udp
            && !path.marker
            && let Some(local) = start.float
        {
            path = Path { local, remote: SocketAddr::new(path.remote.ip(), 4500), marker: true };
        }
        let fragments = features.fragments;
        let channel = Channel::new(
            Role::Initiator,
            start.spi,
            header.spi_r,
            suite,
            &keys,
            path,
            fragments,
            ctx.now,
            1,
            0,
        );
        let mut channel = channel;
        // RFC 7296 2.23: who is behind a NAT must not follow the other.
        channel.follow = !features.nat_here;
        let hs = Handshake {
            id: start.id,
            channel,
            ni,
            nr,
            init_request,
            init_response: message.to_vec(),
            p_i: keys.p_i,
            p_r: keys.p_r,
            int_i: Secret::default(),
            int_r: Secret::default(),
            ppk: None,
            features,
            opened_at: from.remote,
        };
        next_exchange(hs, start, 0, ctx)
    }
}

pub(super) fn free_child(child: Option<&NewChild>, ctx: &mut Ctx<'_>) {
    if let Some(child) = child {
        ctx.spis.remove(&child.spi);
    }
}

fn fail(id: IkeId, child: Option<&NewChild>, reason: CloseReason, ctx: &mut Ctx<'_>) -> Option<State> {
    free_child(child, ctx);
    closed(id, reason, ctx);
    None
}

/// An IKE_INTERMEDIATE with an additional key exchange is under way.
#[derive(Debug)]
pub(crate) struct Exchanging {
    pub(super) hs: Handshake,
    start: Start,
    /// Which of the suite's additional key exchanges this is.
    step: usize,
    private: Private,
    request: Vec<u8>,
}

/// Goes on with the next additional key exchange, or with IKE_AUTH after the last.
fn next_exchange(mut hs: Handshake, start: Start, step: usize, ctx: &mut Ctx<'_>) -> Option<State> {
    let Some((_, method)) = hs.channel.suite.additional.get(step).copied() else {
        return authenticate(hs, start, ctx);
    };
    let Ok((private, public)) = Private::generate(method, ctx.rng) else {
        return fail(start.id, start.child.as_ref(), CloseReason::Protocol("random source"), ctx);
    };
    let mut chain = Chain::new();
    push_ke(&mut chain, method, &public);
    match hs.channel.request(Exchange::Intermediate, &chain, ctx) {
        Some(request) => Some(State::Exchanging(Box::new(Exchanging { hs, start, step, private, request }))),
        None => fail(start.id, start.child.as_ref(), CloseReason::Protocol("cannot send"), ctx),
    }
}

impl Exchanging {
    pub(super) fn child(&self) -> Option<&NewChild> {
        self.start.child.as_ref()
    }

    pub(super) fn on_timer(mut self: Box<Self>, ctx: &mut Ctx<'_>) -> Option<State> {
        match self.hs.channel.on_timer(ctx) {
            Waiting::Yes => Some(State::Exchanging(self)),
            Waiting::Silent => fail(self.start.id, self.start.child.as_ref(), CloseReason::PeerSilent, ctx),
        }
    }

    pub(super) fn on_message(
        mut self: Box<Self>,
        header: &Header,
        message: &[u8],
        from: Path,
        ctx: &mut Ctx<'_>,
    ) -> Option<State> {
        if !header.response {
            ctx.counters.count(Drop::Unexpected);
            return Some(State::Exchanging(self));
        }
        let Some(received) = self.hs.channel.receive(header, message, from, ctx) else {
            return Some(State::Exchanging(self));
        };
        let Self { mut hs, start, step, private, request } = *self;
        let method = private.method();
        let fields = Fields::parse(received.first, &received.plain);
        let (Ok(fields), Some(response)) = (&fields, &received.intermediate) else {
            return fail(start.id, start.child.as_ref(), CloseReason::Protocol("IKE_INTERMEDIATE"), ctx);
        };
        if let Some(n) = fields.error() {
            let reason = CloseReason::Notified(n.kind.name());
            return fail(start.id, start.child.as_ref(), reason, ctx);
        }
        let shared =
            fields.ke.filter(|ke| ke.method == method.code()).and_then(|ke| private.agree(ke.data).ok());
        let Some(shared) = shared else {
            return fail(start.id, start.child.as_ref(), CloseReason::Protocol("key share"), ctx);
        };
        hs.intermediate(&request, response);
        hs.mix_key_exchange(&shared);
        next_exchange(hs, start, step + 1, ctx)
    }
}

/// Our signature is awaited from the signer.
#[derive(Debug)]
pub(crate) struct Signing {
    pub(super) hs: Handshake,
    start: Start,
    scheme: SignatureScheme,
    pub(super) request: RequestId,
    pub(super) deadline: Duration,
}

/// The keys with the PPK in them are awaited from who holds it.
#[derive(Debug)]
pub(crate) struct Mixing {
    pub(super) hs: Handshake,
    start: Start,
    pub(super) request: RequestId,
    pub(super) deadline: Duration,
}

impl Mixing {
    pub(super) fn on_mixed(self: Box<Self>, keys: Option<PpkKeys>, ctx: &mut Ctx<'_>) -> Option<State> {
        let Self { mut hs, start, .. } = *self;
        let ppk = ctx.config.peers.get(start.peer).and_then(|peer| peer.ppk.as_ref());
        if ppk.is_some_and(|ppk| hs.take_mixed(ppk.id.clone(), keys)) {
            prove(hs, start, ctx)
        } else {
            fail(start.id, start.child.as_ref(), CloseReason::PpkNotMixed, ctx)
        }
    }

    pub(super) fn child(&self) -> Option<&NewChild> {
        self.start.child.as_ref()
    }
}

/// The keys are those of the last key exchange: with the PPK in them, if there is one, they prove who we are.
fn authenticate(hs: Handshake, start: Start, ctx: &mut Ctx<'_>) -> Option<State> {
    let Some(ppk) = ctx.config.peers.get(start.peer).and_then(|peer| peer.ppk.as_ref()) else {
        return prove(hs, start, ctx);
    };
    // RFC 8784 3: ours is mandatory, so a responder that does not know of PPKs is no peer.
    if !hs.features.ppk {
        let reason = CloseReason::Authentication("the peer does not use a PPK");
        return fail(start.id, start.child.as_ref(), reason, ctx);
    }
    let request = hs.ask_for_ppk(start.peer, &ppk.id, ctx);
    let deadline = ctx.now.monotonic.saturating_add(ctx.config.timers.half_open);
    Some(State::Mixing(Box::new(Mixing { hs, start, request, deadline })))
}

/// Proves who we are, or asks the signer to.
fn prove(hs: Handshake, start: Start, ctx: &mut Ctx<'_>) -> Option<State> {
    let Some(peer) = ctx.config.peers.get(start.peer) else {
        return fail(start.id, start.child.as_ref(), CloseReason::Protocol("no such peer"), ctx);
    };
    if peer.childless == Childless::Force && !hs.features.childless {
        let reason = CloseReason::Authentication("the peer does not support childless IKE SAs");
        return fail(start.id, start.child.as_ref(), reason, ctx);
    }
    let octets = hs.octets(Role::Initiator, &peer.local_id.write(), auth_id(&hs));
    match &peer.local_auth {
        LocalAuth::SharedKey(key) => {
            let auth = hs.shared_key_auth(key, &octets);
            send_auth(hs, start, auth_method::SHARED_KEY, &auth, ctx)
        }
        LocalAuth::Certificate { schemes, .. } => {
            let Some(scheme) = hs.scheme(schemes) else {
                let reason = CloseReason::Authentication("the peer takes none of our signature algorithms");
                return fail(start.id, start.child.as_ref(), reason, ctx);
            };
            let request = ctx.ask();
            let peer = start.peer;
            ctx.out.push_back(Output::Event(Event::Sign { request, ike: start.id, peer, scheme, octets }));
            let deadline = ctx.now.monotonic.saturating_add(ctx.config.timers.half_open);
            Some(State::Signing(Box::new(Signing { hs, start, scheme, request, deadline })))
        }
    }
}

/// The message ID of IKE_AUTH: it follows IKE_SA_INIT and one IKE_INTERMEDIATE for each additional key exchange.
fn auth_id(hs: &Handshake) -> u32 {
    1 + u32::try_from(hs.channel.suite.additional.len()).unwrap_or(0)
}

impl Signing {
    pub(super) fn on_signed(self: Box<Self>, signature: Option<Vec<u8>>, ctx: &mut Ctx<'_>) -> Option<State> {
        let Self { hs, start, scheme, .. } = *self;
        match signature {
            Some(signature) => {
                let data = scheme.auth_data(&signature);
                send_auth(hs, start, auth_method::DIGITAL_SIGNATURE, &data, ctx)
            }
            None => fail(start.id, start.child.as_ref(), CloseReason::NotSigned, ctx),
        }
    }

    pub(super) fn child(&self) -> Option<&NewChild> {
        self.start.child.as_ref()
    }
}

/// IKE_AUTH is under way.
#[derive(Debug)]
pub(crate) struct AuthSent {
    pub(super) hs: Handshake,
    start: Start,
    /// Whether the request asks for the child, which a childless SA leaves for later.
    asked: bool,
}

fn send_auth(mut hs: Handshake, start: Start, method: u8, auth: &[u8], ctx: &mut Ctx<'_>) -> Option<State> {
    let Some(peer) = ctx.config.peers.get(start.peer) else {
        return fail(start.id, start.child.as_ref(), CloseReason::Protocol("no such peer"), ctx);
    };
    let mut chain = Chain::new();
    let id = peer.local_id.write();
    chain.push(kind::ID_I, |out| out.extend_from_slice(&id));
    push_certificates(&mut chain, &peer.local_auth);
    push_certificate_request(&mut chain, &peer.remote_auth);
    if let RemoteId::Exactly(id) = &peer.remote_id {
        let id = id.write();
        chain.push(kind::ID_R, |out| out.extend_from_slice(&id));
    }
    push_auth(&mut chain, method, auth);
    if let Some(ppk) = &peer.ppk {
        // RFC 8784 5.1: type 2 is PPK_ID_FIXED.
        let data = [&[2], ppk.id.as_slice()].concat();
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::PpkIdentity, &data));
    }
    if start.initial_contact {
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::InitialContact, &[]));
    }
    // RFC 6023 2: without SA and TS payloads, when the responder said that it can.
    let childless = match peer.childless {
        Childless::Never => false,
        Childless::Allow | Childless::Force => hs.features.childless,
    };
    let mut asked = false;
    match &start.child {
        Some(child) if !childless => {
            asked = true;
            child::push_address_request(&mut chain, child);
            child::push_request_sa(&mut chain, child, false, ctx);
            child::push_request_ts(&mut chain, child);
        }
        None if !childless => {
            let reason = CloseReason::Authentication("the peer does not support childless IKE SAs");
            return fail(start.id, None, reason, ctx);
        }
        _ => {}
    }
    match hs.channel.request(Exchange::Auth, &chain, ctx) {
        Some(_) => Some(State::AuthSent(Box::new(AuthSent { hs, start, asked }))),
        None => fail(start.id, start.child.as_ref(), CloseReason::Protocol("cannot send"), ctx),
    }
}

impl AuthSent {
    pub(super) fn child(&self) -> Option<&NewChild> {
        self.start.child.as_ref()
    }

    pub(super) fn on_timer(mut self: Box<Self>, ctx: &mut Ctx<'_>) -> Option<State> {
        match self.hs.channel.on_timer(ctx) {
            Waiting::Yes => Some(State::AuthSent(self)),
            Waiting::Silent => fail(self.start.id, self.start.child.as_ref(), CloseReason::PeerSilent, ctx),
        }
    }

    pub(super) fn on_message(
        mut self: Box<Self>,
        header: &Header,
        message: &[u8],
        from: Path,
        ctx: &mut Ctx<'_>,
    ) -> Option<State> {
        // A request that overtook the response: it is dropped, and sent again when we know what the response says.
        if !header.response {
            ctx.counters.count(Drop::Unexpected);
            return Some(State::AuthSent(self));
        }
        match self.hs.channel.receive(header, message, from, ctx) {
            None => Some(State::AuthSent(self)),
            Some(r) => self.finish(&r, ctx),
        }
    }

    fn finish(self: Box<Self>, r: &Received, ctx: &mut Ctx<'_>) -> Option<State> {
        let Self { hs, start, asked } = *self;
        let child = start.child.as_ref();
        let Some(peer) = ctx.config.peers.get(start.peer) else {
            return fail(start.id, child, CloseReason::Protocol("no such peer"), ctx);
        };
        let fields = match Fields::parse(r.first, &r.plain) {
            Ok(fields) => fields,
            Err(_) => return self::reject(hs, child, CloseReason::Protocol("IKE_AUTH response"), ctx),
        };
        let Some((id, id_body)) = &fields.id_r else {
            let reason = match fields.error() {
                Some(n) => CloseReason::Notified(n.kind.name()),
                None => CloseReason::Protocol("IKE_AUTH response without identity"),
            };
            return fail(start.id, child, reason, ctx);
        };
        let expected = match &peer.remote_id {
            RemoteId::Exactly(expected) => expected == id,
            RemoteId::AnyCertified => {
                matches!(peer.remote_auth, crate::config::RemoteAuth::Certificate { .. })
            }
        };
        if !expected {
            return reject(hs, child, CloseReason::Authentication("the peer is somebody else"), ctx);
        }
        // RFC 8784 3: the responder tells that it used the PPK, or the AUTH payloads would not have fitted.
        if peer.ppk.is_some() && !fields.has(NotifyKind::PpkIdentity) {
            return reject(hs, child, CloseReason::Authentication("the peer did not use the PPK"), ctx);
        }
        let identity = match hs.verify(peer, Role::Responder, id, id_body, &fields, r.id, ctx) {
            Ok(identity) => identity,
            Err(reason) => return reject(hs, child, reason, ctx),
        };
        let ppk = hs.ppk.clone();
        let mut sa = Established::new(hs, start.peer, identity.clone(), Role::Initiator, ctx);
        ctx.out.push_back(Output::Event(Event::IkeEstablished {
            ike: start.id,
            role: Role::Initiator,
            peer: start.peer,
            identity,
            path: sa.channel.path,
            suite: sa.channel.suite.clone(),
            assigned: child::assigned(&fields),
            initial_contact: false,
            ppk,
        }));
        match start.child {
            Some(wanted) if asked => sa.first_child(&wanted, &fields, ctx),
            Some(wanted) => sa.want_child(wanted, ctx),
            None => {}
        }
        Some(State::Established(Box::new(sa)))
    }
}

impl Established {
    fn first_child(&mut self, wanted: &NewChild, fields: &Fields<'_>, ctx: &mut Ctx<'_>) {
        let answer = match fields.error() {
            Some(n) => Err(ChildError::Notified(n.kind.name())),
            None if fields.sa.is_none() => Err(ChildError::NotAnswered),
            None => child::read_answer(wanted, fields, true, ctx),
        };
        match answer {
            Ok((made, suite)) => {
                let making = Making {
                    ike: self.id,
                    peer: self.peer,
                    role: Role::Initiator,
                    prf: self.channel.suite.prf,
                    sk_d: &self.channel.sk_d,
                    shared: None,
                    ni: &self.first_ni,
                    nr: &self.first_nr,
                    path: self.channel.path,
                    udp: self.udp,
                    rekeys: None,
                };
                child::establish(&made, suite, &making, ctx);
                self.children.insert(made.inbound, made);
                self.forget_first_nonces();
            }
            Err(reason) => {
                self.forget_first_nonces();
                ctx.spis.remove(&wanted.spi);
                let bad = matches!(reason, ChildError::BadAnswer(_));
                let (ike, inbound) = (self.id, wanted.spi);
                ctx.out.push_back(Output::Event(Event::ChildFailed { ike, inbound, rekeys: None, reason }));
                if bad {
                    // The peer believes in a child that we do not: take it away again.
                    self.delete_unmade(wanted.spi, ctx);
                }
            }
        }
    }
}

/// RFC 7296 2.21.2: an initiator that does not believe the responder tells it in an INFORMATIONAL exchange, and forgets the SA.
fn reject(
    mut hs: Handshake,
    child: Option<&NewChild>,
    reason: CloseReason,
    ctx: &mut Ctx<'_>,
) -> Option<State> {
    let chain = notification(NotifyKind::AuthenticationFailed, &[]);
    hs.channel.request(NEWS, &chain, ctx);
    fail(hs.id, child, reason, ctx)
}
