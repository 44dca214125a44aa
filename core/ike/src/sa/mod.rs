//! One IKE SA from its first message to its last. Each state is a type; a transition consumes one and gives the next, or nothing
//! when the SA is gone.

mod child;
mod create;
mod established;
mod followup;
mod handshake;
mod initiator;
mod rekey;
mod responder;

use crate::api::{
    ChildDecision, CloseReason, Command, CommandError, Event, IkeId, Output, Path, PpkKeys, RequestId,
};
use crate::config::Config;
use crate::drops::Drop;
use crate::endpoint::Ctx;
use crate::wire::{Chain, Exchange, Header, Notify, NotifyKind, Problem, kind};
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use established::{Established, Legacy, Standing};
pub(crate) use initiator::{Start, connect};
pub(crate) use responder::{Opening, open};

/// An IKE SA under the SPI that we chose for it.
#[derive(Debug)]
pub(crate) struct Sa {
    pub(crate) id: IkeId,
    pub(crate) state: State,
}

/// Where an IKE SA stands.
#[derive(Debug)]
pub(crate) enum State {
    /// Initiator: IKE_SA_INIT is under way.
    InitSent(Box<initiator::InitSent>),
    /// Initiator: an IKE_INTERMEDIATE with an additional key exchange is under way (RFC 9370).
    Exchanging(Box<initiator::Exchanging>),
    /// Initiator: the keys with the PPK in them are awaited from who holds it (RFC 8784).
    Mixing(Box<initiator::Mixing>),
    /// Initiator: our signature is awaited from the signer.
    Signing(Box<initiator::Signing>),
    /// Initiator: IKE_AUTH is under way.
    AuthSent(Box<initiator::AuthSent>),
    /// Responder: IKE_SA_INIT is answered; IKE_INTERMEDIATE or IKE_AUTH is to come.
    HalfOpen(Box<responder::HalfOpen>),
    /// Responder: the keys with the PPK in them are awaited, to check the peer's proof with (RFC 8784).
    Keying(Box<responder::Keying>),
    /// Responder: the peer is authenticated; its first child is being decided on.
    Deciding(Box<responder::Deciding>),
    /// Responder: our signature is awaited from the signer.
    Answering(Box<responder::Answering>),
    /// Both are authenticated.
    Established(Box<Established>),
}

impl Sa {
    /// Whether the header's other SPI is the one that this SA's peer chose; while it has yet to choose, any is.
    pub(crate) fn peer_spi_fits(&self, header: &Header) -> bool {
        let channel = match &self.state {
            State::InitSent(_) => return true,
            State::Exchanging(s) => &s.hs.channel,
            State::Mixing(s) => &s.hs.channel,
            State::Signing(s) => &s.hs.channel,
            State::AuthSent(s) => &s.hs.channel,
            State::HalfOpen(s) => &s.hs.channel,
            State::Keying(s) => &s.hs.channel,
            State::Deciding(s) => &s.hs.channel,
            State::Answering(s) => &s.hs.channel,
            State::Established(s) => &s.channel,
        };
        header.spi_i == channel.spi_i && header.spi_r == channel.spi_r
    }
}

impl State {
    /// As responder before the end of IKE_AUTH: where IKE_SA_INIT came from, and the initiator's SPI.
    pub(crate) fn opened_at(&self) -> Option<(SocketAddr, u64)> {
        let hs = match self {
            Self::HalfOpen(s) => &s.hs,
            Self::Keying(s) => &s.hs,
            Self::Deciding(s) => &s.hs,
            Self::Answering(s) => &s.hs,
            _ => return None,
        };
        Some((hs.opened_at, hs.channel.spi_i))
    }

    pub(crate) fn is_half_open(&self) -> bool {
        matches!(self, Self::HalfOpen(_) | Self::Keying(_) | Self::Deciding(_) | Self::Answering(_))
    }

    pub(crate) fn on_message(
        self,
        header: &Header,
        message: &[u8],
        from: Path,
        ctx: &mut Ctx<'_>,
    ) -> Option<Self> {
        match self {
            Self::InitSent(s) => s.on_message(header, message, from, ctx),
            Self::Exchanging(s) => s.on_message(header, message, from, ctx),
            Self::Mixing(_) | Self::Signing(_) => {
                ctx.counters.count(Drop::Unexpected);
                Some(self)
            }
            Self::AuthSent(s) => s.on_message(header, message, from, ctx),
            Self::HalfOpen(s) => s.on_message(header, message, from, ctx),
            Self::Keying(s) => s.on_message(header, message, from, ctx),
            Self::Deciding(s) => s.on_message(header, message, from, ctx),
            Self::Answering(s) => s.on_message(header, message, from, ctx),
            Self::Established(s) => s.on_message(header, message, from, ctx),
        }
    }

    pub(crate) fn timer(&self, config: &Config) -> Option<Duration> {
        match self {
            Self::InitSent(s) => Some(s.timer()),
            Self::Exchanging(s) => s.hs.channel.timer(),
            Self::Mixing(s) => Some(s.deadline),
            Self::Signing(s) => Some(s.deadline),
            Self::AuthSent(s) => s.hs.channel.timer(),
            Self::HalfOpen(s) => Some(s.deadline),
            Self::Keying(s) => Some(s.deadline),
            Self::Deciding(s) => Some(s.deadline),
            Self::Answering(s) => Some(s.deadline),
            Self::Established(s) => s.timer(config),
        }
    }

    pub(crate) fn on_timer(self, ctx: &mut Ctx<'_>) -> Option<Self> {
        let now = ctx.now.monotonic;
        let (id, deadline) = match self {
            Self::InitSent(s) => return s.on_timer(ctx),
            Self::Exchanging(s) => return s.on_timer(ctx),
            Self::AuthSent(s) => return s.on_timer(ctx),
            Self::Established(s) => return s.on_timer(ctx),
            Self::Mixing(ref s) => (s.hs.id, s.deadline),
            Self::Signing(ref s) => (s.hs.id, s.deadline),
            Self::HalfOpen(ref s) => (s.hs.id, s.deadline),
            Self::Keying(ref s) => (s.hs.id, s.deadline),
            Self::Deciding(ref s) => (s.hs.id, s.deadline),
            Self::Answering(ref s) => (s.hs.id, s.deadline),
        };
        if now < deadline {
            return Some(self);
        }
        // A half-open SA that nobody authenticated was never announced, so it ends in silence.
        if !matches!(self, Self::HalfOpen(_)) {
            closed(id, CloseReason::TimedOut, ctx);
        }
        self.release(ctx);
        None
    }

    /// Gives back the inbound SPI that an SA took for its first child before it ended.
    fn release(&self, ctx: &mut Ctx<'_>) {
        let child = match self {
            Self::InitSent(s) => s.child(),
            Self::Exchanging(s) => s.child(),
            Self::Mixing(s) => s.child(),
            Self::Signing(s) => s.child(),
            Self::AuthSent(s) => s.child(),
            Self::Answering(s) => return s.release(ctx),
            Self::HalfOpen(_) | Self::Keying(_) | Self::Deciding(_) | Self::Established(_) => None,
        };
        initiator::free_child(child, ctx);
    }

    pub(crate) fn on_signed(
        self,
        request: RequestId,
        signature: Option<Vec<u8>>,
        ctx: &mut Ctx<'_>,
    ) -> (Option<Self>, Result<(), CommandError>) {
        match self {
            Self::Signing(s) if s.request == request => (s.on_signed(signature, ctx), Ok(())),
            Self::Answering(s) if s.request == Some(request) => (s.on_signed(signature, ctx), Ok(())),
            other => (Some(other), Err(CommandError::NoSuchRequest)),
        }
    }

    pub(crate) fn on_ppk_mixed(
        self,
        request: RequestId,
        keys: Option<PpkKeys>,
        ctx: &mut Ctx<'_>,
    ) -> (Option<Self>, Result<(), CommandError>) {
        match self {
            Self::Mixing(s) if s.request == request => (s.on_mixed(keys, ctx), Ok(())),
            Self::Keying(s) if s.request == request => (s.on_mixed(keys, ctx), Ok(())),
            other => (Some(other), Err(CommandError::NoSuchRequest)),
        }
    }

    pub(crate) fn on_decision(
        self,
        request: RequestId,
        decision: ChildDecision,
        ctx: &mut Ctx<'_>,
    ) -> (Option<Self>, Result<(), CommandError>) {
        match self {
            Self::Deciding(s) if s.request == request => s.on_decision(decision, ctx),
            Self::Established(s) => s.on_decision(request, decision, ctx),
            other => (Some(other), Err(CommandError::NoSuchRequest)),
        }
    }

    pub(crate) fn on_command(
        self,
        command: Command,
        ctx: &mut Ctx<'_>,
    ) -> (Option<Self>, Result<(), CommandError>) {
        match self {
            Self::Established(s) => s.on_command(command, ctx),
            other if matches!(command, Command::CloseIke { .. }) => {
                // Nothing is agreed yet: silence is enough, the peer's half-open SA ends by its own timer.
                let id = other.id();
                other.release(ctx);
                closed(id, CloseReason::Local, ctx);
                (None, Ok(()))
            }
            other => (Some(other), Err(CommandError::NoSuchIke)),
        }
    }

    fn id(&self) -> IkeId {
        match self {
            Self::InitSent(s) => s.id(),
            Self::Exchanging(s) => s.hs.id,
            Self::Mixing(s) => s.hs.id,
            Self::Signing(s) => s.hs.id,
            Self::AuthSent(s) => s.hs.id,
            Self::HalfOpen(s) => s.hs.id,
            Self::Keying(s) => s.hs.id,
            Self::Deciding(s) => s.hs.id,
            Self::Answering(s) => s.hs.id,
            Self::Established(s) => s.id,
        }
    }
}

/// Tells that an IKE SA without children is gone.
fn closed(id: IkeId, reason: CloseReason, ctx: &mut Ctx<'_>) {
    ctx.out.push_back(Output::Event(Event::IkeClosed { ike: id, reason, children: Vec::new() }));
}

/// A chain of one notification.
pub(crate) fn notification(kind_: NotifyKind, data: &[u8]) -> Chain {
    let mut chain = Chain::new();
    chain.push(kind::NOTIFY, Notify::write(kind_, data));
    chain
}

/// The answer to a request that no parser took (RFC 7296 2.5, 2.21.2).
fn problem(p: Problem) -> Chain {
    match p {
        Problem::Critical(kind) => notification(NotifyKind::UnsupportedCriticalPayload, &[kind]),
        Problem::Malformed(_) => notification(NotifyKind::InvalidSyntax, &[]),
    }
}

/// The message IDs with which each side begins once the handshake is over are counted by the channel; this is the exchange of all
/// later messages that carry no more than news.
const NEWS: Exchange = Exchange::Informational;

#[cfg(test)]
mod tests;
