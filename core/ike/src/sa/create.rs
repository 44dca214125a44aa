//! CREATE_CHILD_SA for child SAs: new ones and rekeyed ones, asked for and answered (RFC 7296 1.3.1, 1.3.3, 2.8, 2.25).

use super::child::{self, Making, Offered};
use super::established::{Current, Established, Task};
use super::handshake::{NONCE, push_ke};
use super::{State, notification};
use crate::api::{
    ChildClosed, ChildDecision, ChildError, ChildRequested, CommandError, Event, NewChild, Output, RequestId,
    Role,
};
use crate::crypto::ke::{self, Private};
use crate::crypto::suite::KeyExchange;
use crate::endpoint::Ctx;
use crate::wire::{Chain, Exchange, Fields, Notify, NotifyKind, Protocol, kind};

/// A child SA that we asked for.
#[derive(Debug)]
pub(super) struct Creating {
    pub(super) wanted: NewChild,
    /// The child to be rekeyed, by its inbound SPI.
    pub(super) rekeys: Option<u32>,
    private: Private,
    ni: Vec<u8>,
    tried: Vec<KeyExchange>,
    tries: u8,
    /// The peer rekeyed the same child meanwhile: the lower nonce of its exchange and the child that came of it (RFC 7296 2.8.1).
    crossing: Option<(Vec<u8>, u32)>,
    /// SPIs that the peer deleted and that we do not know: if one is the answer's, the answer was overtaken by the deletion.
    pub(super) withdrawn: Vec<u32>,
}

/// A child SA that the peer asked for and that waits for a decision.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: RequestId,
    offered: Offered,
    rekeys: Option<u32>,
    ni: Vec<u8>,
    share: Option<(KeyExchange, Vec<u8>)>,
}

impl Established {
    /// Sends a request for a child, with the first method of our first proposal or with `method`.
    pub(super) fn begin_create(
        &mut self,
        wanted: NewChild,
        rekeys: Option<u32>,
        method: Option<(KeyExchange, Vec<KeyExchange>)>,
        tries: u8,
        ctx: &mut Ctx<'_>,
    ) {
        if let Some(old) = rekeys
            && !self.children.contains_key(&old)
        {
            return self.child_failed(wanted.spi, rekeys, ChildError::Superseded, ctx);
        }
        let (method, mut tried) = match method {
            Some(given) => given,
            None => match ctx.config.child_at(&wanted.label).iter().find_map(|p| p.key_exchange.first()) {
                Some(first) => (*first, Vec::new()),
                None => {
                    return self.child_failed(
                        wanted.spi,
                        rekeys,
                        ChildError::BadAnswer("no key exchange configured"),
                        ctx,
                    );
                }
            },
        };
        tried.push(method);
        let Ok((private, public)) = Private::generate(method, ctx.rng) else {
            return self.child_failed(wanted.spi, rekeys, ChildError::BadAnswer("random source"), ctx);
        };
        let mut ni = vec![0; NONCE];
        ctx.rng.fill(&mut ni);
        let mut chain = Chain::new();
        if let Some(old) = rekeys {
            // RFC 7296 1.3.3: the SPI is the one on which we receive.
            chain.push(kind::NOTIFY, Notify::write_esp(NotifyKind::RekeySa, old, &[]));
        }
        child::push_request_sa(&mut chain, &wanted, true, ctx);
        chain.push(kind::NONCE, |out| out.extend_from_slice(&ni));
        push_ke(&mut chain, method, &public);
        child::push_request_ts(&mut chain, &wanted);
        let spi = wanted.spi;
        let creating =
            Creating { wanted, rekeys, private, ni, tried, tries, crossing: None, withdrawn: Vec::new() };
        if !self.send(Current::Creating(Box::new(creating)), Exchange::CreateChild, &chain, ctx) {
            self.child_failed(spi, rekeys, ChildError::NotAnswered, ctx);
        }
    }

    /// The peer has refused a child: it is asked for otherwise, later, or not at all.
    fn not_created(
        &mut self,
        n: &Notify<'_>,
        wanted: NewChild,
        rekeys: Option<u32>,
        tried: Vec<KeyExchange>,
        tries: u8,
        ctx: &mut Ctx<'_>,
    ) {
        match n.kind {
            NotifyKind::InvalidKePayload => {
                let other = <[u8; 2]>::try_from(n.data)
                    .ok()
                    .and_then(|c| KeyExchange::from_code(u16::from_be_bytes(c)));
                let ours = |k: &KeyExchange| {
                    ctx.config.child_at(&wanted.label).iter().any(|p| p.key_exchange.contains(k))
                };
                if let Some(k) = other.filter(|k| ours(k) && !tried.contains(k)) {
                    return self.begin_create(wanted, rekeys, Some((k, tried)), tries, ctx);
                }
            }
            NotifyKind::TemporaryFailure if rekeys.is_none_or(|old| self.children.contains_key(&old)) => {
                let spi = wanted.spi;
                if self.put_off(Task::Create { wanted, rekeys }, tries, ctx).is_some() {
                    self.child_failed(spi, rekeys, ChildError::Notified(n.kind.name()), ctx);
                }
                return;
            }
            // RFC 7296 2.25: the peer no longer has the child, so ours is of no use either.
            NotifyKind::ChildSaNotFound => {
                if let Some(old) = rekeys {
                    self.drop_child(old, ChildClosed::Peer, ctx);
                }
            }
            _ => {}
        }
        self.child_failed(wanted.spi, rekeys, ChildError::Notified(n.kind.name()), ctx);
    }

    /// The peer's answer to our request.
    pub(super) fn on_created(&mut self, c: Creating, fields: &Fields<'_>, ctx: &mut Ctx<'_>) {
        let Creating { wanted, rekeys, private, ni, tried, tries, crossing, withdrawn } = c;
        if let Some(n) = fields.error() {
            return self.not_created(n, wanted, rekeys, tried, tries, ctx);
        }
        let answer = child::read_answer(&wanted, fields, false, ctx).and_then(|(made, suite)| {
            let nr = fields.nonce.ok_or(ChildError::BadAnswer("no nonce"))?;
            let method = private.method();
            let share =
                fields.ke.filter(|ke| suite.key_exchange == Some(method) && ke.method == method.code());
            let shared = share
                .ok_or(ChildError::BadAnswer("key exchange"))
                .and_then(|ke| private.agree(ke.data).map_err(|_| ChildError::BadAnswer("key share")))?;
            Ok((made, suite, nr, shared))
        });
        let (mut made, suite, nr, shared) = match answer {
            Ok(a) => a,
            Err(reason) => {
                let spi = wanted.spi;
                self.child_failed(spi, rekeys, reason, ctx);
                return self.delete_unmade(spi, ctx);
            }
        };
        if withdrawn.contains(&made.outbound) {
            return self.child_failed(wanted.spi, rekeys, ChildError::Superseded, ctx);
        }
        made.replaces = rekeys;
        let making = Making {
            ike: self.id,
            peer: self.peer,
            role: Role::Initiator,
            prf: self.channel.suite.prf,
            sk_d: &self.channel.sk_d,
            shared: Some(&shared),
            ni: &ni,
            nr,
            path: self.channel.path,
            udp: self.udp,
            rekeys,
        };
        child::establish(&made, suite, &making, ctx);
        let new = made.inbound;
        self.children.insert(new, made);
        let Some(old) = rekeys else { return };
        // RFC 7296 2.8.1: of two exchanges that rekeyed one child at once, that with the lowest of the four nonces made the
        // redundant one, and who began it deletes it; the other deletes the old child.
        let lowest = ni.as_slice().min(nr);
        match crossing {
            Some((theirs, _)) if lowest < theirs.as_slice() => {
                self.delete_later(new, ChildClosed::Collision, ctx)
            }
            _ => self.delete_later(old, ChildClosed::Rekeyed, ctx),
        }
    }

    /// The peer's request in CREATE_CHILD_SA.
    pub(super) fn on_create_request(&mut self, fields: &Fields<'_>, ctx: &mut Ctx<'_>) {
        let ike = fields.sa.as_ref().is_some_and(|sa| sa.iter().any(|p| p.protocol == Protocol::Ike));
        let read = if ike {
            self.on_rekey_request(fields, ctx).map(|()| None)
        } else {
            self.read_child(fields, ctx).map(Some)
        };
        match read {
            Ok(None) => {}
            Ok(Some(asked)) => {
                ctx.out.push_back(Output::Event(Event::ChildRequested(ChildRequested {
                    request: asked.request,
                    ike: self.id,
                    peer: self.peer,
                    identity: self.identity.clone(),
                    path: self.channel.path,
                    suite: self.channel.suite.clone(),
                    labels: asked.offered.labels.clone(),
                    local: asked.offered.local.clone(),
                    remote: asked.offered.remote.clone(),
                    rekeys: asked.rekeys,
                    aggfrag: asked.offered.aggfrag.is_some(),
                    key_exchange: asked.share.is_some(),
                    wants_address: asked.offered.wants_address,
                    resource: asked.offered.resource.clone(),
                })));
                self.asked = Some(Box::new(asked));
            }
            Err(chain) => self.respond(Exchange::CreateChild, &chain, ctx),
        }
    }

    /// Reads a request for a child, up to the question whether the peer may have it.
    fn read_child(&mut self, fields: &Fields<'_>, ctx: &mut Ctx<'_>) -> Result<Asked, Chain> {
        let refuse = |kind: NotifyKind| notification(kind, &[]);
        // RFC 7296 2.25.2: no new children while the IKE SA is being replaced or closed.
        if !self.is_current()
            || matches!(
                self.current,
                Some(Current::RekeyingIke(_) | Current::Following(_) | Current::ClosingIke)
            )
        {
            return Err(refuse(NotifyKind::TemporaryFailure));
        }
        if self.children.len() >= ctx.config.limits.children {
            return Err(refuse(NotifyKind::NoAdditionalSas));
        }
        let mut offered = Offered::read(fields, false, ctx).map_err(refuse)?;
        let ni = fields.nonce.ok_or_else(|| refuse(NotifyKind::InvalidSyntax))?.to_vec();
        let share = match (offered.chosen.suite.key_exchange, fields.ke) {
            (None, _) => None,
            (Some(method), Some(ke)) if ke.method == method.code() => Some((method, ke.data.to_vec())),
            (Some(method), _) => {
                return Err(notification(NotifyKind::InvalidKePayload, &method.code().to_be_bytes()));
            }
        };
        let rekeys = match fields.notify(NotifyKind::RekeySa) {
            None => None,
            Some(n) => Some(self.read_rekeyed(n, &mut offered)?),
        };
        Ok(Asked { request: ctx.ask(), offered, rekeys, ni, share })
    }

    /// Finds the child to be rekeyed. Its label is the only one its successor may have (RFC 9478 2.2).
    fn read_rekeyed(&self, n: &Notify<'_>, offered: &mut Offered) -> Result<u32, Chain> {
        let spi = <[u8; 4]>::try_from(n.spi).map(u32::from_be_bytes);
        let old = spi.ok().and_then(|spi| self.children.values().find(|c| c.outbound == spi));
        let Some(old) = old.filter(|_| n.protocol == Protocol::Esp.code()) else {
            // It may be the child whose making we have yet to hear of: the peer asks again when the lost answer has been repeated.
            if matches!(self.current, Some(Current::Creating(_))) {
                return Err(notification(NotifyKind::TemporaryFailure, &[]));
            }
            // RFC 7296 2.25.1: the notification repeats the SPI.
            let mut chain = Chain::new();
            match spi {
                Ok(spi) => chain.push(kind::NOTIFY, Notify::write_esp(NotifyKind::ChildSaNotFound, spi, &[])),
                Err(_) => chain.push(kind::NOTIFY, Notify::write(NotifyKind::ChildSaNotFound, &[])),
            };
            return Err(chain);
        };
        if self.is_deleting(old.inbound) {
            return Err(notification(NotifyKind::TemporaryFailure, &[]));
        }
        offered.labels.retain(|l| Some(l) == old.label.as_ref());
        if offered.labels.first() != old.label.as_ref() {
            return Err(notification(NotifyKind::TsUnacceptable, &[]));
        }
        Ok(old.inbound)
    }

    /// Why a child is not rekeyed any more: it may have gone while the question was open, or our own rekeying of it was answered
    /// meanwhile, and it goes (RFC 7296 2.25.1). Its maker would not know that the two crossed, and both new ones would stay.
    fn hindrance(&self, old: u32) -> Option<NotifyKind> {
        if !self.children.contains_key(&old) {
            return Some(NotifyKind::ChildSaNotFound);
        }
        self.is_deleting(old).then_some(NotifyKind::TemporaryFailure)
    }

    pub(super) fn on_decision(
        mut self: Box<Self>,
        request: RequestId,
        decision: ChildDecision,
        ctx: &mut Ctx<'_>,
    ) -> (Option<State>, Result<(), CommandError>) {
        let Some(asked) = self.asked.take_if(|a| a.request == request) else {
            return (Some(State::Established(self)), Err(CommandError::NoSuchRequest));
        };
        // No honest peer grants us a new IKE SA while its own request for a child is open; the child would go with the old one.
        if !self.is_current() {
            self.respond(Exchange::CreateChild, &notification(NotifyKind::TemporaryFailure, &[]), ctx);
            return (Some(State::Established(self)), Ok(()));
        }
        let decided = child::decide(&asked.offered, &decision, self.id, ctx);
        let mut granted = match decided {
            Ok(Ok(granted)) => granted,
            Ok(Err(kind)) => {
                self.respond(Exchange::CreateChild, &notification(kind, &[]), ctx);
                return (self.next(ctx), Ok(()));
            }
            Err(e) => {
                self.asked = Some(asked);
                return (Some(State::Established(self)), Err(e));
            }
        };
        let Asked { rekeys, ni, share, .. } = *asked;
        let spi = granted.child.inbound;
        if let Some(hindrance) = rekeys.and_then(|old| self.hindrance(old)) {
            ctx.spis.remove(&spi);
            self.respond(Exchange::CreateChild, &notification(hindrance, &[]), ctx);
            return (self.next(ctx), Ok(()));
        }
        let exchanged = match &share {
            None => None,
            Some((method, data)) => match ke::respond(*method, data, ctx.rng) {
                Ok(done) => Some((*method, done)),
                Err(_) => {
                    ctx.spis.remove(&spi);
                    self.respond(Exchange::CreateChild, &notification(NotifyKind::InvalidSyntax, &[]), ctx);
                    return (self.next(ctx), Ok(()));
                }
            },
        };
        let mut nr = vec![0; NONCE];
        ctx.rng.fill(&mut nr);
        let mut chain = Chain::new();
        child::push_answer_sa(&mut chain, &granted);
        chain.push(kind::NONCE, |out| out.extend_from_slice(&nr));
        if let Some((method, (public, _))) = &exchanged {
            push_ke(&mut chain, *method, public);
        }
        child::push_answer_ts(&mut chain, &granted.child);
        self.respond(Exchange::CreateChild, &chain, ctx);
        granted.child.replaces = rekeys;
        let making = Making {
            ike: self.id,
            peer: self.peer,
            role: Role::Responder,
            prf: self.channel.suite.prf,
            sk_d: &self.channel.sk_d,
            shared: exchanged.as_ref().map(|(_, (_, shared))| shared),
            ni: &ni,
            nr: &nr,
            path: self.channel.path,
            udp: self.udp,
            rekeys,
        };
        child::establish(&granted.child, granted.chosen.suite.clone(), &making, ctx);
        self.children.insert(spi, granted.child);
        if let Some(Current::Creating(c)) = &mut self.current
            && c.rekeys.is_some()
            && c.rekeys == rekeys
        {
            c.crossing = Some((ni.min(nr), spi));
        }
        (self.next(ctx), Ok(()))
    }
}
