//! CREATE_CHILD_SA for the IKE SA itself: new keys for it and an unbroken life for its children (RFC 7296 1.3.2, 2.8, 2.18).

use super::established::{Current, Established, Standing, Task};
use super::followup::{Agreed, Followed};
use super::handshake::{NONCE, push_ke};
use super::{Sa, State, notification};
use crate::api::{CloseReason, Role};
use crate::channel::Channel;
use crate::crypto::ke::{self, Private};
use crate::crypto::keys::IkeKeys;
use crate::crypto::suite::{IkeProposal, KeyExchange, choose_ike};
use crate::drops::Drop;
use crate::endpoint::Ctx;
use crate::wire::{Chain, Exchange, Fields, Notify, NotifyKind, Proposal, kind};

/// IKE SAs that one SA's past rekeyings may have left and that have yet to end.
const MOST_KIN: usize = 4;

/// Our rekeying of the IKE SA, under way.
#[derive(Debug)]
pub(super) struct Rekeying {
    spi: u64,
    private: Private,
    ni: Vec<u8>,
    offered: Vec<IkeProposal>,
    tried: Vec<KeyExchange>,
    tries: u8,
    /// The peer rekeyed the SA meanwhile: the lower nonce of its exchange and our SPI of the SA that came of it.
    crossing: Option<(Vec<u8>, u64)>,
}

fn ike_spi(spi: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(spi.try_into().ok()?)).filter(|s| *s != 0)
}

impl Established {
    pub(super) fn begin_rekey(
        &mut self,
        tries: u8,
        method: Option<(KeyExchange, Vec<KeyExchange>)>,
        ctx: &mut Ctx<'_>,
    ) -> bool {
        let offered = self.proposals(ctx.config).to_vec();
        // What it has now is what the peer has most likely.
        let now = self.channel.suite.key_exchange;
        let mut methods = offered.iter().flat_map(|proposal| proposal.key_exchange.iter().copied());
        let first = if methods.clone().any(|method| method == now) { Some(now) } else { methods.next() };
        let (method, mut tried) = method.unwrap_or((first.unwrap_or(now), Vec::new()));
        tried.push(method);
        let Ok((private, public)) = Private::generate(method, ctx.rng) else { return false };
        let spi = ctx.new_spi();
        let mut ni = vec![0; NONCE];
        ctx.rng.fill(&mut ni);
        let mut chain = Chain::new();
        let offers: Vec<Proposal> =
            (1u8..).zip(&offered).map(|(number, p)| Proposal { number, ..p.offer(Some(spi)) }).collect();
        chain.push(kind::SA, |out| Proposal::write_all(&offers, out));
        chain.push(kind::NONCE, |out| out.extend_from_slice(&ni));
        push_ke(&mut chain, method, &public);
        let rekeying = Rekeying { spi, private, ni, offered, tried, tries, crossing: None };
        self.send(Current::RekeyingIke(Box::new(rekeying)), Exchange::CreateChild, &chain, ctx)
    }

    /// The peer's answer to our rekeying.
    pub(super) fn on_rekeyed(
        mut self: Box<Self>,
        r: Rekeying,
        fields: &Fields<'_>,
        ctx: &mut Ctx<'_>,
    ) -> Option<State> {
        let Rekeying { spi, private, ni, offered, tried, tries, crossing } = r;
        if let Some(n) = fields.error() {
            // The peer did not see the two cross, or ours did not please it: its own SA is the one.
            if let Some((_, theirs)) = crossing {
                return self.give_way(theirs, ctx);
            }
            let other =
                <[u8; 2]>::try_from(n.data).ok().and_then(|c| KeyExchange::from_code(u16::from_be_bytes(c)));
            match (n.kind, other) {
                (NotifyKind::InvalidKePayload, Some(k))
                    if offered.iter().any(|p| p.key_exchange.contains(&k)) && !tried.contains(&k) =>
                {
                    self.begin_rekey(tries, Some((k, tried)), ctx);
                    return Some(State::Established(self));
                }
                (NotifyKind::TemporaryFailure, _) if self.put_off(Task::RekeyIke, tries, ctx).is_none() => {
                    return Some(State::Established(self));
                }
                // The SA is as good as before.
                _ => {
                    self.not_rekeyed(n.kind.name(), ctx);
                    return Some(State::Established(self));
                }
            }
        }
        let read = || -> Option<Agreed> {
            let [proposal] = fields.sa.as_deref()? else { return None };
            let chosen = choose_ike(&offered, std::slice::from_ref(proposal))?;
            let method = private.method();
            let ke =
                fields.ke.filter(|ke| ke.method == method.code() && chosen.suite.key_exchange == method)?;
            Some(Agreed {
                role: Role::Initiator,
                ours: spi,
                theirs: ike_spi(&chosen.spi)?,
                suite: chosen.suite,
                shared: private.agree(ke.data).ok()?,
                more: Vec::new(),
                ni,
                nr: fields.nonce?.to_vec(),
            })
        };
        let Some(agreed) = read() else {
            return self.end(CloseReason::Protocol("answer to the rekeying of the IKE SA"), ctx);
        };
        if agreed.next_method().is_some() {
            // Two series cannot cross: the peer's own rekeying, which had none, goes first.
            if let Some((_, theirs)) = crossing {
                return self.give_way(theirs, ctx);
            }
            return match fields.notify(NotifyKind::AdditionalKeyExchange) {
                Some(n) if self.begin_following(agreed, n.data, tries, ctx) => Some(State::Established(self)),
                _ => self.end(CloseReason::Protocol("no link to IKE_FOLLOWUP_KE"), ctx),
            };
        }
        // RFC 7296 2.8.2: of two rekeyings that crossed, the one with the lowest of the four nonces made the redundant SA, which
        // who began it deletes; the other has the children, and who began that deletes the old SA.
        if let Some((lowest, theirs)) = crossing
            && agreed.lowest_nonce() < lowest.as_slice()
        {
            let mut redundant = self.sibling(self.new_channel(&agreed, ctx), Standing::Superseded, ctx);
            redundant.begin_close(ctx);
            self.spawn(redundant, spi, ctx);
            return self.give_way(theirs, ctx);
        }
        self.replaced_by_ours(&agreed, ctx)
    }

    /// The SA that we asked for takes over.
    pub(super) fn replaced_by_ours(mut self: Box<Self>, agreed: &Agreed, ctx: &mut Ctx<'_>) -> Option<State> {
        self.replaced_by_theirs(agreed, ctx);
        // RFC 7296 2.8: who began the rekeying deletes the old IKE SA.
        self.begin_close(ctx);
        Some(State::Established(self))
    }

    /// The SA that the peer asked for takes over.
    pub(super) fn replaced_by_theirs(&mut self, agreed: &Agreed, ctx: &mut Ctx<'_>) {
        let channel = self.new_channel(agreed, ctx);
        let successor = self.successor(channel, ctx);
        successor.announce(ctx);
        self.spawn(successor, agreed.ours, ctx);
    }

    /// The peer's SA that crossed ours has the children from now on; the peer deletes the old one.
    fn give_way(mut self: Box<Self>, theirs: u64, ctx: &mut Ctx<'_>) -> Option<State> {
        self.standing = Standing::Superseded;
        self.since = ctx.now.monotonic;
        ctx.bequests.push((theirs, self.id, self.legacy()));
        Some(State::Established(self))
    }

    /// Our SPI of the SA that the peer made while our own rekeying was under way.
    pub(super) fn crossing(&self) -> Option<u64> {
        match &self.current {
            Some(Current::RekeyingIke(r)) => r.crossing.as_ref().map(|(_, spi)| *spi),
            _ => None,
        }
    }

    /// The new SA's channel: SKEYSEED from the old SK_d with the old SA's prf, and new message IDs from 0 (RFC 7296 2.18).
    fn new_channel(&self, a: &Agreed, ctx: &Ctx<'_>) -> Channel {
        let old = &self.channel;
        let (spi_i, spi_r) = match a.role {
            Role::Initiator => (a.ours, a.theirs),
            Role::Responder => (a.theirs, a.ours),
        };
        let seed = IkeKeys::followed_seed(old.suite.prf, &old.sk_d, &a.shared, &a.ni, &a.nr, &a.more);
        let keys = IkeKeys::derive(&a.suite, &seed, &a.ni, &a.nr, spi_i, spi_r);
        let suite = a.suite.clone();
        let mut channel =
            Channel::new(a.role, spi_i, spi_r, suite, &keys, old.path, old.fragments, ctx.now, 0, 0);
        channel.follow = old.follow;
        channel
    }

    fn spawn(&self, other: Established, spi: u64, ctx: &mut Ctx<'_>) {
        ctx.spawned.push((spi, Sa { id: self.id, state: State::Established(Box::new(other)) }));
    }

    /// The peer rekeys the IKE SA. `Err` is the answer to a request that cannot be granted.
    pub(super) fn on_rekey_request(&mut self, fields: &Fields<'_>, ctx: &mut Ctx<'_>) -> Result<(), Chain> {
        let refuse = |kind: NotifyKind| notification(kind, &[]);
        // RFC 7296 2.25.2: not while an exchange about children is under way, nor over an SA that is being replaced. Our own rekeying
        // is no hindrance: the two cross (2.8.2). And a peer that rekeys faster than old SAs end is put off.
        let busy = match &self.current {
            None | Some(Current::News) => false,
            Some(Current::RekeyingIke(r)) => r.crossing.is_some(),
            Some(
                Current::Creating(_) | Current::Deleting { .. } | Current::ClosingIke | Current::Following(_),
            ) => true,
        };
        if !self.is_current() || busy || (ctx.kin)(self.id) > MOST_KIN {
            return Err(refuse(NotifyKind::TemporaryFailure));
        }
        let (Some(sa), Some(ke), Some(ni)) = (&fields.sa, fields.ke, fields.nonce) else {
            return Err(refuse(NotifyKind::InvalidSyntax));
        };
        let Some(chosen) = choose_ike(self.proposals(ctx.config), sa) else {
            ctx.counters.count(Drop::NoProposal);
            return Err(refuse(NotifyKind::NoProposalChosen));
        };
        let peer_spi = ike_spi(&chosen.spi).ok_or_else(|| refuse(NotifyKind::NoProposalChosen))?;
        let series = !chosen.suite.additional.is_empty();
        if series && matches!(self.current, Some(Current::RekeyingIke(_))) {
            return Err(refuse(NotifyKind::TemporaryFailure));
        }
        let method = chosen.suite.key_exchange;
        if ke.method != method.code() {
            return Err(notification(NotifyKind::InvalidKePayload, &method.code().to_be_bytes()));
        }
        let (public, shared) =
            ke::respond(method, ke.data, ctx.rng).map_err(|_| refuse(NotifyKind::InvalidSyntax))?;
        let spi = ctx.new_spi();
        let mut nr = vec![0; NONCE];
        ctx.rng.fill(&mut nr);
        let mut chain = Chain::new();
        chain.push(kind::SA, |out| Proposal::write_all(&[chosen.answer(Some(spi))], out));
        chain.push(kind::NONCE, |out| out.extend_from_slice(&nr));
        push_ke(&mut chain, method, &public);
        let agreed = Agreed {
            role: Role::Responder,
            ours: spi,
            theirs: peer_spi,
            suite: chosen.suite,
            shared,
            more: Vec::new(),
            ni: ni.to_vec(),
            nr,
        };
        if series {
            let (followed, link) = Followed::new(agreed, ctx);
            chain.push(kind::NOTIFY, Notify::write(NotifyKind::AdditionalKeyExchange, &link));
            self.respond(Exchange::CreateChild, &chain, ctx);
            self.followed = Some(Box::new(followed));
            return Ok(());
        }
        self.respond(Exchange::CreateChild, &chain, ctx);
        if let Some(Current::RekeyingIke(ours)) = &mut self.current {
            ours.crossing = Some((agreed.lowest_nonce().to_vec(), spi));
            let candidate = self.sibling(self.new_channel(&agreed, ctx), Standing::Candidate, ctx);
            self.spawn(candidate, spi, ctx);
            return Ok(());
        }
        self.replaced_by_theirs(&agreed, ctx);
        Ok(())
    }
}
