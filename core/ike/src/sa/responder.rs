//! The responder's way to an established IKE SA (RFC 7296 1.2, 2.6, 2.7, 2.21; RFC 6023; RFC 8784; RFC 9370).

use super::child::{self, Granted, Making, Offered};
use super::established::Established;
use super::handshake::{
    Features, Handshake, NONCE, push_auth, push_certificate_request, push_certificates, push_ke,
};
use super::{State, closed, notification, problem};
use crate::api::{
    ChildDecision, ChildRequested, CloseReason, CommandError, Event, IkeId, Output, Path, PeerIdentity,
    PpkKeys, RequestId, Role,
};
use crate::channel::{Channel, Received};
use crate::config::{Childless, Config, LocalAuth, Peer, Ppk, RemoteAuth, RemoteId};
use crate::crypto::Secret;
use crate::crypto::ke;
use crate::crypto::keys::IkeKeys;
use crate::crypto::sign::SignatureScheme;
use crate::crypto::suite::{Chosen, IkeSuite, choose_ike};
use crate::drops::Drop;
use crate::endpoint::Ctx;
use crate::wire::{
    AuthPayload, Chain, Exchange, Fields, Header, Identity, KeyShare, Notify, NotifyKind, Problem, Proposal,
    auth_method, kind,
};
use std::time::Duration;

/// IKE_SA_INIT is answered; IKE_INTERMEDIATE or IKE_AUTH is to come.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    pub(super) hs: Handshake,
    pub(super) deadline: Duration,
    /// How many of the suite's additional key exchanges are done.
    steps: usize,
}

/// What becomes of an IKE_SA_INIT request.
pub(crate) enum Opening {
    /// A half-open SA, and the response that it gave.
    Open(State),
    /// An answer that leaves no state, and what it counts as.
    Answer(Vec<u8>, Drop),
}

/// What this end supports beyond what both ends of every IKE SA do, and whose certificates it takes.
fn push_supported(chain: &mut Chain, suite: &IkeSuite, ppk: bool, ctx: &Ctx<'_>) {
    if ctx.config.peers.iter().any(|p| p.childless != Childless::Never) {
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::ChildlessSupported, &[]));
    }
    if !suite.additional.is_empty() {
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::IntermediateSupported, &[]));
    }
    if ppk {
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::UsePpk, &[]));
    }
    if let Some(peer) =
        ctx.config.peers.iter().find(|p| matches!(p.remote_auth, RemoteAuth::Certificate { .. }))
    {
        push_certificate_request(chain, &peer.remote_auth);
    }
}

/// What is chosen of a request's proposals, with its key share and nonce.
type Accepted<'a> = (Chosen<IkeSuite>, KeyShare<'a>, &'a [u8]);

/// What is chosen of a request, or how it is refused.
fn acceptable<'a>(fields: &Fields<'a>, config: &Config) -> Result<Accepted<'a>, (NotifyKind, Vec<u8>)> {
    let (Some(sa), Some(share), Some(ni)) = (&fields.sa, fields.ke, fields.nonce) else {
        return Err((NotifyKind::InvalidSyntax, Vec::new()));
    };
    let none = || (NotifyKind::NoProposalChosen, Vec::new());
    let chosen = choose_ike(&config.ike, sa).ok_or_else(none)?;
    // RFC 9370 2.2.1: additional key exchanges need IKE_INTERMEDIATE.
    if !chosen.suite.additional.is_empty() && !fields.has(NotifyKind::IntermediateSupported) {
        return Err(none());
    }
    let method = chosen.suite.key_exchange.code();
    if share.method != method {
        return Err((NotifyKind::InvalidKePayload, method.to_be_bytes().to_vec()));
    }
    Ok((chosen, share, ni))
}

/// Answers an IKE_SA_INIT request whose cookie, if one is needed, was checked. `None`: not even an answer.
pub(crate) fn open(
    id: IkeId,
    spi_r: u64,
    header: &Header,
    message: &[u8],
    fields: &Fields<'_>,
    from: Path,
    ctx: &mut Ctx<'_>,
) -> Option<Opening> {
    let answer_header = |spi_r| Header {
        spi_i: header.spi_i,
        spi_r,
        next: 0,
        exchange: Exchange::Init,
        from_initiator: false,
        response: true,
        message_id: 0,
    };
    let refuse = |kind, data: &[u8]| {
        let why = if kind == NotifyKind::NoProposalChosen { Drop::NoProposal } else { Drop::Refused };
        Some(Opening::Answer(notification(kind, data).message(answer_header(0)), why))
    };
    let (chosen, share, ni) = match acceptable(fields, ctx.config) {
        Ok(accepted) => accepted,
        Err((kind, data)) => return refuse(kind, &data),
    };
    let suite = chosen.suite.clone();
    let Ok((public, shared)) = ke::respond(suite.key_exchange, share.data, ctx.rng) else {
        return refuse(NotifyKind::InvalidSyntax, &[]);
    };
    let mut nr = vec![0; NONCE];
    ctx.rng.fill(&mut nr);
    let mut features = Features::read(fields, header.spi_i, 0, from);

    // RFC 8784 3: said only to those who said it, when there is some PPK.
    features.ppk &= ctx.config.peers.iter().any(|p| p.ppk.is_some());
    let mut chain = Chain::new();
    chain.push(kind::SA, |out| Proposal::write_all(&[chosen.answer(None)], out));
    push_ke(&mut chain, suite.key_exchange, &public);
    chain.push(kind::NONCE, |out| out.extend_from_slice(&nr));
    Features::write(&mut chain, header.spi_i, spi_r, from, ctx);
    push_supported(&mut chain, &suite, features.ppk, ctx);
    let init_response = chain.message(answer_header(spi_r));

    let seed = IkeKeys::first_seed(suite.prf, ni, &nr, &shared);
    let keys = IkeKeys::derive(&suite, &seed, ni, &nr, header.spi_i, spi_r);
    let mut channel = Channel::new(
        Role::Responder,
        header.spi_i,
        spi_r,
        suite,
        &keys,
        from,
        features.fragments,
        ctx.now,
        0,
        1,
    );
    channel.follow = true;
    let hs = Handshake {
        id,
        channel,
        ni: ni.to_vec(),
        nr,
        init_request: message.to_vec(),
        init_response,
        p_i: keys.p_i,
        p_r: keys.p_r,
        int_i: Secret::default(),
        int_r: Secret::default(),
        ppk: None,
        features,
        opened_at: from.remote,
    };
    let deadline = ctx.now.monotonic.saturating_add(ctx.config.timers.half_open);
    crate::channel::transmit(ctx, from, hs.init_response.clone());
    Some(Opening::Open(State::HalfOpen(Box::new(HalfOpen { hs, deadline, steps: 0 }))))
}

impl HalfOpen {
    /// The initiator did not get our answer, or a copy of its request was late: the same answer again (RFC 7296 2.1).
    pub(crate) fn init_again(&self, message: &[u8], from: Path, ctx: &mut Ctx<'_>) {
        if message == self.hs.init_request.as_slice() {
            crate::channel::transmit(ctx, from, self.hs.init_response.clone());
        } else {
            ctx.counters.count(Drop::Unexpected);
        }
    }

    pub(super) fn on_message(
        mut self: Box<Self>,
        header: &Header,
        message: &[u8],
        from: Path,
        ctx: &mut Ctx<'_>,
    ) -> Option<State> {
        let steps = self.hs.channel.suite.additional.len();
        let expected = if self.steps < steps { Exchange::Intermediate } else { Exchange::Auth };
        let repeated = header.exchange == Exchange::Intermediate && header.message_id < self.next_id();
        if header.exchange != expected && !repeated {
            ctx.counters.count(Drop::Unexpected);
            return Some(State::HalfOpen(self));
        }
        let Some(received) = self.hs.channel.receive(header, message, from, ctx) else {
            return Some(State::HalfOpen(self));
        };
        if received.exchange == Exchange::Intermediate {
            return self.on_intermediate(&received, ctx);
        }
        self.on_auth(received, ctx)
    }

    fn next_id(&self) -> u32 {
        1 + u32::try_from(self.steps).unwrap_or(0)
    }

    fn on_intermediate(mut self: Box<Self>, r: &Received, ctx: &mut Ctx<'_>) -> Option<State> {
        let method = self.hs.channel.suite.additional.get(self.steps).map(|(_, m)| *m)?;
        let mut chain = Chain::new();
        let shared = match Fields::parse(r.first, &r.plain) {
            Ok(f) => match f.ke.filter(|ke| ke.method == method.code()) {
                Some(ke) => ke::respond(method, ke.data, ctx.rng)
                    .map_err(|_| notification(NotifyKind::InvalidSyntax, &[])),
                None => Err(notification(NotifyKind::InvalidSyntax, &[])),
            },
            Err(p) => Err(problem(p)),
        };
        match shared {
            Ok((public, shared)) => {
                push_ke(&mut chain, method, &public);
                let response = self.hs.channel.respond(Exchange::Intermediate, &chain, ctx)?;
                self.hs.intermediate(r.intermediate.as_deref()?, &response);
                self.hs.mix_key_exchange(&shared);
                self.steps += 1;
                Some(State::HalfOpen(self))
            }
            Err(chain) => {
                self.hs.channel.respond(Exchange::Intermediate, &chain, ctx);
                None
            }
        }
    }

    fn on_auth(self: Box<Self>, r: Received, ctx: &mut Ctx<'_>) -> Option<State> {
        let Self { hs, deadline, .. } = *self;
        let mut fields = match Fields::parse(r.first, &r.plain) {
            Ok(fields) => fields,
            Err(p) => return unreadable(hs, p, ctx),
        };
        let found = find_peer(&fields, ctx)
            .and_then(|(index, peer)| proof(&hs, peer, &fields).map(|proof| (index, peer, proof)));
        match found {
            Ok((index, _, Proof::Auth)) => authenticate(hs, index, &fields, r.id, ctx),
            Ok((index, _, Proof::NoPpkAuth(data))) => {
                fields.auth = fields.auth.map(|auth| AuthPayload { data, ..auth });
                authenticate(hs, index, &fields, r.id, ctx)
            }
            Ok((index, _, Proof::WithPpk(ppk))) => {
                let request = hs.ask_for_ppk(index, ppk, ctx);
                drop(fields);
                let ppk = ppk.to_vec();
                Some(State::Keying(Box::new(Keying { hs, index, ppk, received: r, request, deadline })))
            }
            Err(reason) => refuse(hs, NotifyKind::AuthenticationFailed, reason, ctx),
        }
    }
}

/// The keys with the PPK in them are awaited, to check the peer's proof with.
#[derive(Debug)]
pub(crate) struct Keying {
    pub(super) hs: Handshake,
    /// Who the peer says that it is: index into the configured peers.
    index: usize,
    /// The PPK that it says it uses, by name.
    ppk: Vec<u8>,
    /// The IKE_AUTH request.
    received: Received,
    pub(super) request: RequestId,
    pub(super) deadline: Duration,
}

impl Keying {
    pub(super) fn on_message(
        mut self: Box<Self>,
        header: &Header,
        message: &[u8],
        from: Path,
        ctx: &mut Ctx<'_>,
    ) -> Option<State> {
        // As in [`Deciding`].
        self.hs.channel.receive(header, message, from, ctx);
        Some(State::Keying(self))
    }

    pub(super) fn on_mixed(self: Box<Self>, keys: Option<PpkKeys>, ctx: &mut Ctx<'_>) -> Option<State> {
        let Self { mut hs, index, ppk, received: r, .. } = *self;
        if !hs.take_mixed(ppk, keys) {
            return refuse(hs, NotifyKind::AuthenticationFailed, CloseReason::PpkNotMixed, ctx);
        }
        match Fields::parse(r.first, &r.plain) {
            Ok(fields) => authenticate(hs, index, &fields, r.id, ctx),
            Err(p) => unreadable(hs, p, ctx),
        }
    }
}

fn unreadable(mut hs: Handshake, p: Problem, ctx: &mut Ctx<'_>) -> Option<State> {
    hs.channel.respond(Exchange::Auth, &problem(p), ctx);
    closed(hs.id, CloseReason::Protocol("IKE_AUTH request"), ctx);
    None
}

/// Checks the peer's proof with the keys as they are now, and sees what else it asks for.
fn authenticate(
    hs: Handshake,
    index: usize,
    fields: &Fields<'_>,
    auth_id: u32,
    ctx: &mut Ctx<'_>,
) -> Option<State> {
    let Some(peer) = ctx.config.peers.get(index) else {
        return refuse(hs, NotifyKind::AuthenticationFailed, CloseReason::Protocol("no such peer"), ctx);
    };
    let proven = match &fields.id_i {
        Some((id, body)) => hs.verify(peer, Role::Initiator, id, body, fields, auth_id, ctx),
        None => Err(CloseReason::Authentication("no identity")),
    };
    let identity = match proven {
        Ok(identity) => identity,
        Err(reason) => return refuse(hs, NotifyKind::AuthenticationFailed, reason, ctx),
    };
    let initial_contact = fields.has(NotifyKind::InitialContact);
    let childless = fields.sa.is_none() && fields.ts_i.is_none() && fields.ts_r.is_none();
    if childless && peer.childless == Childless::Never {
        let reason = CloseReason::Protocol("a childless IKE_AUTH request where none is allowed");
        return refuse(hs, NotifyKind::InvalidSyntax, reason, ctx);
    }
    let authenticated = Authenticated { peer: index, identity, initial_contact, auth_id };
    if childless {
        return prove(hs, authenticated, Outcome::Childless, ctx);
    }
    // Between levee hosts no child may get keys without a key exchange of its own.
    if peer.childless == Childless::Force {
        return prove(hs, authenticated, Outcome::Refused(NotifyKind::NoProposalChosen), ctx);
    }
    let offered = match Offered::read(fields, true, ctx) {
        Ok(offered) => offered,
        Err(kind) => return prove(hs, authenticated, Outcome::Refused(kind), ctx),
    };
    let request = ctx.ask();
    ctx.out.push_back(Output::Event(Event::ChildRequested(ChildRequested {
        request,
        ike: hs.id,
        peer: index,
        identity: authenticated.identity.clone(),
        path: hs.channel.path,
        suite: hs.channel.suite.clone(),
        labels: offered.labels.clone(),
        local: offered.local.clone(),
        remote: offered.remote.clone(),
        rekeys: None,
        aggfrag: offered.aggfrag.is_some(),
        key_exchange: false,
        wants_address: offered.wants_address,
        resource: offered.resource.clone(),
    })));
    let deadline = ctx.now.monotonic.saturating_add(ctx.config.timers.half_open);
    Some(State::Deciding(Box::new(Deciding { hs, authenticated, offered, request, deadline })))
}

/// The peer, once it has proved who it is.
#[derive(Debug)]
struct Authenticated {
    peer: usize,
    identity: PeerIdentity,
    initial_contact: bool,
    auth_id: u32,
}

/// Finds the configured peer that the identities mean.
fn find_peer<'c>(fields: &Fields<'_>, ctx: &Ctx<'c>) -> Result<(usize, &'c Peer), CloseReason> {
    let Some((id, _)) = &fields.id_i else {
        return Err(CloseReason::Authentication("no identity"));
    };
    if fields.auth.is_none() {
        return Err(CloseReason::Authentication("the peer wants EAP"));
    }
    let wanted = fields.id_r.as_ref().map(|(id, _)| id);
    let fits = |p: &&Peer| {
        let remote = match &p.remote_id {
            RemoteId::Exactly(expected) => expected == id,
            RemoteId::AnyCertified => matches!(p.remote_auth, RemoteAuth::Certificate { .. }),
        };
        remote && wanted.is_none_or(|w: &Identity| *w == p.local_id)
    };
    let config: &'c crate::config::Config = ctx.config;
    let found = config.peers.iter().enumerate().find(|(_, p)| fits(p));
    found.ok_or(CloseReason::Authentication("no configured peer has these identities"))
}

/// What the initiator proves its identity with.
enum Proof<'c, 'm> {
    /// Its AUTH payload, by the keys as they are.
    Auth,
    /// Its AUTH payload, by keys that the PPK of this name is in.
    WithPpk(&'c [u8]),
    /// The data of its NO_PPK_AUTH notification in place of the AUTH payload's, by the keys as they are.
    NoPpkAuth(&'m [u8]),
}

/// RFC 8784 3, the responder's table: what an initiator may do about the PPK of the peer that it says it is.
fn proof<'c, 'm>(hs: &Handshake, peer: &'c Peer, fields: &Fields<'m>) -> Result<Proof<'c, 'm>, CloseReason> {
    // Without USE_PPK on both sides the notification means nothing.
    let said = fields.notify(NotifyKind::PpkIdentity).map(|n| n.data).filter(|_| hs.features.ppk);
    match (said, &peer.ppk) {
        // RFC 8784 5.1: type 2 is PPK_ID_FIXED.
        (Some([2, id @ ..]), Some(ppk)) if id == ppk.id.as_slice() => Ok(Proof::WithPpk(&ppk.id)),
        (Some([2, id @ ..]), Some(Ppk { former: Some(former), .. })) if id == former.as_slice() => {
            Ok(Proof::WithPpk(former))
        }
        (_, Some(Ppk { mandatory: true, .. })) => {
            Err(CloseReason::Authentication("the peer did not use the PPK"))
        }
        (Some(_), _) => match fields.notify(NotifyKind::NoPpkAuth) {
            Some(n) => Ok(Proof::NoPpkAuth(n.data)),
            None => Err(CloseReason::Authentication("the peer uses a PPK that is not the one it shares")),
        },
        (None, _) => Ok(Proof::Auth),
    }
}

fn refuse(mut hs: Handshake, kind: NotifyKind, reason: CloseReason, ctx: &mut Ctx<'_>) -> Option<State> {
    hs.channel.respond(Exchange::Auth, &notification(kind, &[]), ctx);
    closed(hs.id, reason, ctx);
    None
}

/// The peer is authenticated; its first child is being decided on.
#[derive(Debug)]
pub(crate) struct Deciding {
    pub(super) hs: Handshake,
    authenticated: Authenticated,
    offered: Offered,
    pub(super) request: RequestId,
    pub(super) deadline: Duration,
}

impl Deciding {
    pub(super) fn on_message(
        mut self: Box<Self>,
        header: &Header,
        message: &[u8],
        from: Path,
        ctx: &mut Ctx<'_>,
    ) -> Option<State> {
        // The request in progress came again, or nonsense: the channel counts it; nothing new can come before the answer.
        self.hs.channel.receive(header, message, from, ctx);
        Some(State::Deciding(self))
    }

    pub(super) fn on_decision(
        self: Box<Self>,
        decision: ChildDecision,
        ctx: &mut Ctx<'_>,
    ) -> (Option<State>, Result<(), CommandError>) {
        let outcome = match child::decide(&self.offered, &decision, self.hs.id, ctx) {
            Ok(Ok(granted)) => Outcome::Granted(granted),
            Ok(Err(kind)) => Outcome::Refused(kind),
            Err(e) => return (Some(State::Deciding(self)), Err(e)),
        };
        let Self { hs, authenticated, .. } = *self;
        (prove(hs, authenticated, outcome, ctx), Ok(()))
    }
}

/// What became of the first child.
#[derive(Debug)]
enum Outcome {
    Childless,
    Refused(NotifyKind),
    Granted(Granted),
}

/// Our signature is awaited from the signer.
#[derive(Debug)]
pub(crate) struct Answering {
    pub(super) hs: Handshake,
    authenticated: Authenticated,
    outcome: Outcome,
    scheme: SignatureScheme,
    pub(super) request: Option<RequestId>,
    pub(super) deadline: Duration,
}

/// Proves who we are, or asks the signer to.
fn prove(hs: Handshake, authenticated: Authenticated, outcome: Outcome, ctx: &mut Ctx<'_>) -> Option<State> {
    let Some(peer) = ctx.config.peers.get(authenticated.peer) else {
        return refuse(hs, NotifyKind::AuthenticationFailed, CloseReason::Protocol("no such peer"), ctx);
    };
    let octets = hs.octets(Role::Responder, &peer.local_id.write(), authenticated.auth_id);
    match &peer.local_auth {
        LocalAuth::SharedKey(key) => {
            let auth = hs.shared_key_auth(key, &octets);
            answer(hs, authenticated, outcome, auth_method::SHARED_KEY, &auth, ctx)
        }
        LocalAuth::Certificate { schemes, .. } => {
            let Some(scheme) = hs.scheme(schemes) else {
                release(&outcome, ctx);
                let reason = CloseReason::Authentication("the peer takes none of our signature algorithms");
                return refuse(hs, NotifyKind::AuthenticationFailed, reason, ctx);
            };
            let request = ctx.ask();
            let (ike, peer) = (hs.id, authenticated.peer);
            ctx.out.push_back(Output::Event(Event::Sign { request, ike, peer, scheme, octets }));
            let deadline = ctx.now.monotonic.saturating_add(ctx.config.timers.half_open);
            let request = Some(request);
            Some(State::Answering(Box::new(Answering {
                hs,
                authenticated,
                outcome,
                scheme,
                request,
                deadline,
            })))
        }
    }
}

fn release(outcome: &Outcome, ctx: &mut Ctx<'_>) {
    if let Outcome::Granted(granted) = outcome {
        ctx.spis.remove(&granted.child.inbound);
    }
}

impl Answering {
    pub(super) fn on_message(
        mut self: Box<Self>,
        header: &Header,
        message: &[u8],
        from: Path,
        ctx: &mut Ctx<'_>,
    ) -> Option<State> {
        self.hs.channel.receive(header, message, from, ctx);
        Some(State::Answering(self))
    }

    pub(super) fn on_signed(self: Box<Self>, signature: Option<Vec<u8>>, ctx: &mut Ctx<'_>) -> Option<State> {
        let Self { hs, authenticated, outcome, scheme, .. } = *self;
        match signature {
            Some(signature) => {
                let data = scheme.auth_data(&signature);
                answer(hs, authenticated, outcome, auth_method::DIGITAL_SIGNATURE, &data, ctx)
            }
            None => {
                release(&outcome, ctx);
                refuse(hs, NotifyKind::AuthenticationFailed, CloseReason::NotSigned, ctx)
            }
        }
    }

    pub(super) fn release(&self, ctx: &mut Ctx<'_>) {
        release(&self.outcome, ctx);
    }
}

/// Sends the IKE_AUTH response. With it the SA is established.
fn answer(
    mut hs: Handshake,
    who: Authenticated,
    outcome: Outcome,
    method: u8,
    auth: &[u8],
    ctx: &mut Ctx<'_>,
) -> Option<State> {
    let Some(peer) = ctx.config.peers.get(who.peer) else {
        release(&outcome, ctx);
        return refuse(hs, NotifyKind::AuthenticationFailed, CloseReason::Protocol("no such peer"), ctx);
    };
    let mut chain = Chain::new();
    let id = peer.local_id.write();
    chain.push(kind::ID_R, |out| out.extend_from_slice(&id));
    push_certificates(&mut chain, &peer.local_auth);
    push_auth(&mut chain, method, auth);
    if hs.ppk.is_some() {
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::PpkIdentity, &[]));
    }
    match &outcome {
        Outcome::Childless => {}
        Outcome::Refused(kind) => {
            chain.push(kind::NOTIFY, Notify::write(*kind, &[]));
        }
        Outcome::Granted(granted) => {
            child::push_assigned(&mut chain, &granted.assign);
            child::push_answer_sa(&mut chain, granted);
            child::push_answer_ts(&mut chain, &granted.child);
        }
    }
    if hs.channel.respond(Exchange::Auth, &chain, ctx).is_none() {
        release(&outcome, ctx);
        closed(hs.id, CloseReason::Protocol("cannot send"), ctx);
        return None;
    }
    let ppk = hs.ppk.clone();
    let mut sa = Established::new(hs, who.peer, who.identity.clone(), Role::Responder, ctx);
    ctx.out.push_back(Output::Event(Event::IkeEstablished {
        ike: sa.id,
        role: Role::Responder,
        peer: who.peer,
        identity: who.identity,
        path: sa.channel.path,
        suite: sa.channel.suite.clone(),
        assigned: Vec::new(),
        initial_contact: who.initial_contact,
        ppk,
    }));
    if let Outcome::Granted(granted) = outcome {
        let making = Making {
            ike: sa.id,
            peer: sa.peer,
            role: Role::Responder,
            prf: sa.channel.suite.prf,
            sk_d: &sa.channel.sk_d,
            shared: None,
            ni: &sa.first_ni,
            nr: &sa.first_nr,
            path: sa.channel.path,
            udp: sa.udp,
            rekeys: None,
        };
        child::establish(&granted.child, granted.chosen.suite.clone(), &making, ctx);
        sa.children.insert(granted.child.inbound, granted.child);
    }
    sa.forget_first_nonces();
    Some(State::Established(Box::new(sa)))
}
