//! IKE_FOLLOWUP_KE: the additional key exchanges of a rekeyed IKE SA (RFC 9370 2.2.4). The new SA begins when the last is done.

use super::established::{Current, Established, Task};
use super::handshake::push_ke;
use super::{State, notification};
use crate::api::{CloseReason, Role};
use crate::crypto::Secret;
use crate::crypto::ke::{self, Private};
use crate::crypto::suite::{IkeSuite, KeyExchange};
use crate::endpoint::Ctx;
use crate::wire::{Chain, Exchange, Fields, Notify, NotifyKind, kind};
use std::time::Duration;

/// Octets by which the two sides of a series name it.
const LINK: usize = 16;

/// What the two sides of a rekeying agreed, and the secrets that its key exchanges have given so far.
#[derive(Debug)]
pub(super) struct Agreed {
    /// Ours in the rekeying.
    pub(super) role: Role,
    pub(super) ours: u64,
    pub(super) theirs: u64,
    pub(super) suite: IkeSuite,
    pub(super) shared: Secret,
    /// Of the additional key exchanges, in their order (RFC 9370).
    pub(super) more: Vec<Secret>,
    pub(super) ni: Vec<u8>,
    pub(super) nr: Vec<u8>,
}

impl Agreed {
    /// The additional key exchange that is to be done next, until all are.
    pub(super) fn next_method(&self) -> Option<KeyExchange> {
        self.suite.additional.get(self.more.len()).map(|(_, method)| *method)
    }

    pub(super) fn lowest_nonce(&self) -> &[u8] {
        self.ni.as_slice().min(&self.nr)
    }
}

/// Our series, under way.
#[derive(Debug)]
pub(super) struct Following {
    agreed: Agreed,
    private: Private,
    tries: u8,
}

/// A series of the peer, between two of its requests.
#[derive(Debug)]
pub(super) struct Followed {
    agreed: Agreed,
    link: [u8; LINK],
    until: Duration,
}

impl Followed {
    /// Begins to wait for the first request; gives the link too, for our answer to CREATE_CHILD_SA.
    pub(super) fn new(agreed: Agreed, ctx: &mut Ctx<'_>) -> (Self, [u8; LINK]) {
        let mut link = [0; LINK];
        ctx.rng.fill(&mut link);
        let until = ctx.now.monotonic.saturating_add(ctx.config.timers.half_open.saturating_mul(3));
        (Self { agreed, link, until }, link)
    }
}

impl Established {
    /// Sends the next key exchange of a series. `false` when nothing can be sent.
    pub(super) fn begin_following(
        &mut self,
        agreed: Agreed,
        link: &[u8],
        tries: u8,
        ctx: &mut Ctx<'_>,
    ) -> bool {
        let Some(method) = agreed.next_method() else { return false };
        let Ok((private, public)) = Private::generate(method, ctx.rng) else { return false };
        let mut chain = Chain::new();
        push_ke(&mut chain, method, &public);
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::AdditionalKeyExchange, link));
        let following = Following { agreed, private, tries };
        self.send(Current::Following(Box::new(following)), Exchange::FollowupKe, &chain, ctx)
    }

    /// The peer's answer to one of our series.
    pub(super) fn on_followed(
        mut self: Box<Self>,
        f: Following,
        fields: &Fields<'_>,
        ctx: &mut Ctx<'_>,
    ) -> Option<State> {
        let Following { mut agreed, private, tries } = f;
        if let Some(n) = fields.error() {
            // STATE_NOT_FOUND or another: the old SA is as good as before, and the whole is tried again a few times.
            if self.put_off(Task::RekeyIke, tries, ctx).is_some() {
                self.not_rekeyed(n.kind.name(), ctx);
            }
            return Some(State::Established(self));
        }
        let method = private.method();
        let share = fields.ke.filter(|ke| ke.method == method.code());
        let Some(shared) = share.and_then(|ke| private.agree(ke.data).ok()) else {
            return self.end(CloseReason::Protocol("key share in IKE_FOLLOWUP_KE"), ctx);
        };
        agreed.more.push(shared);
        if agreed.next_method().is_none() {
            return self.replaced_by_ours(&agreed, ctx);
        }
        match fields.notify(NotifyKind::AdditionalKeyExchange) {
            Some(n) if self.begin_following(agreed, n.data, tries, ctx) => Some(State::Established(self)),
            _ => self.end(CloseReason::Protocol("IKE_FOLLOWUP_KE without a link to the next"), ctx),
        }
    }

    /// The next request of the peer's series. `Err` is the answer to one that is none.
    pub(super) fn on_followup_request(
        &mut self,
        fields: &Fields<'_>,
        ctx: &mut Ctx<'_>,
    ) -> Result<(), Chain> {
        let refuse = |kind: NotifyKind| notification(kind, &[]);
        let said = fields.notify(NotifyKind::AdditionalKeyExchange).map(|n| n.data);
        let fits = |f: &Followed| said == Some(&f.link) && ctx.now.monotonic < f.until;
        let Some(mut f) = self.followed.take().filter(|f| self.is_current() && fits(f)) else {
            // RFC 9370 2.2.4: what was kept is forgotten after a while.
            return Err(refuse(NotifyKind::StateNotFound));
        };
        let method = f.agreed.next_method().ok_or_else(|| refuse(NotifyKind::StateNotFound))?;
        let share = fields.ke.filter(|ke| ke.method == method.code());
        let (public, shared) = share
            .and_then(|ke| ke::respond(method, ke.data, ctx.rng).ok())
            .ok_or_else(|| refuse(NotifyKind::InvalidSyntax))?;
        f.agreed.more.push(shared);
        let more = f.agreed.next_method().is_some();
        let mut chain = Chain::new();
        push_ke(&mut chain, method, &public);
        if more {
            chain.push(kind::NOTIFY, Notify::write(NotifyKind::AdditionalKeyExchange, &f.link));
        }
        self.respond(Exchange::FollowupKe, &chain, ctx);
        if more {
            self.followed = Some(f);
        } else {
            self.replaced_by_theirs(&f.agreed, ctx);
        }
        Ok(())
    }
}
