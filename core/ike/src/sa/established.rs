//! An established IKE SA: its children, its queue of things to do, and its news (RFC 7296 1.4, 2.4, 2.25).

use super::child::{Child, usable_spi};
use super::create::{Asked, Creating};
use super::followup::{Followed, Following};
use super::handshake::Handshake;
use super::rekey::Rekeying;
use super::{NEWS, State, notification, problem};
use crate::api::{
    ChildClosed, ChildError, CloseReason, Command, CommandError, Event, IkeId, NewChild, Output, Path,
    PeerIdentity, Role,
};
use crate::channel::{Channel, Received, Waiting};
use crate::config::Config;
use crate::crypto::suite::IkeProposal;
use crate::drops::Drop;
use crate::endpoint::Ctx;
use crate::wire::{Chain, Delete, Exchange, Fields, Header, NotifyKind, kind};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Things to do that one IKE SA remembers.
const MOST_TASKS: usize = 1_024;

/// Something to do once the exchange before it is over.
#[derive(Debug, Clone)]
pub(super) enum Task {
    Create {
        wanted: NewChild,
        rekeys: Option<u32>,
    },
    /// Children by inbound SPI.
    Delete(u32, ChildClosed),
    RekeyIke,
    CloseIke,
    Probe,
}

/// A task, when to do it, and how often the peer has put it off.
#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) task: Task,
    pub(super) due: Duration,
    pub(super) tries: u8,
}

/// Our exchange that is under way.
#[derive(Debug)]
pub(super) enum Current {
    Creating(Box<Creating>),
    Deleting {
        inbound: u32,
        why: ChildClosed,
    },
    RekeyingIke(Box<Rekeying>),
    /// The additional key exchanges of our rekeying.
    Following(Box<Following>),
    ClosingIke,
    /// A request whose response matters only in that it comes.
    News,
}

/// What an IKE SA is among those of one name, of which a rekeying makes two for a while and a crossing one three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has the children.
    Current,
    /// The peer made it while our own rekeying was under way; whether it is to have the children is not decided yet (RFC 7296 2.8.2).
    Candidate,
    /// Another has the children; this one only waits for its end.
    Superseded,
}

/// What passes from an IKE SA to the one that takes its place.
#[derive(Debug, Default)]
pub(crate) struct Legacy {
    children: BTreeMap<u32, Child>,
    queue: VecDeque<Queued>,
    narrowed: Option<Vec<IkeProposal>>,
}

impl Legacy {
    /// Ends what nobody inherits.
    pub(crate) fn end(self, id: IkeId, ctx: &mut Ctx<'_>) {
        let children: Vec<u32> = self.children.into_keys().collect();
        for spi in &children {
            ctx.spis.remove(spi);
        }
        free_queued(self.queue, ctx);
        let reason = CloseReason::Protocol("the new IKE SA was taken away");
        ctx.out.push_back(Output::Event(Event::IkeClosed { ike: id, reason, children }));
    }
}

/// Gives back the inbound SPIs of children that were never asked for.
fn free_queued(queue: VecDeque<Queued>, ctx: &mut Ctx<'_>) {
    for q in queue {
        if let Task::Create { wanted, .. } = q.task {
            ctx.spis.remove(&wanted.spi);
        }
    }
}

/// An established IKE SA.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) id: IkeId,
    pub(crate) channel: Channel,
    pub(crate) peer: usize,
    pub(crate) identity: PeerIdentity,
    /// Who began the first IKE SA; rekeyings do not change it.
    pub(crate) role: Role,
    /// ESP goes in UDP.
    pub(crate) udp: bool,
    /// By inbound SPI.
    pub(crate) children: BTreeMap<u32, Child>,
    /// The nonces of IKE_SA_INIT, until the first child was made or not.
    pub(crate) first_ni: Vec<u8>,
    pub(crate) first_nr: Vec<u8>,
    pub(super) queue: VecDeque<Queued>,
    /// What its keys may be replaced by, where that is less than the configuration has.
    narrowed: Option<Vec<IkeProposal>>,
    pub(super) current: Option<Current>,
    /// The peer's request that waits for a decision.
    pub(super) asked: Option<Box<Asked>>,
    /// The peer's rekeying that additional key exchanges are to follow.
    pub(super) followed: Option<Box<Followed>>,
    pub(crate) standing: Standing,
    /// A candidate's first request: the peer has decided for it, and is answered when we have.
    stash: Option<Received>,
    pub(super) since: Duration,
    told_due: bool,
}

impl Established {
    pub(super) fn new(hs: Handshake, peer: usize, identity: PeerIdentity, role: Role, ctx: &Ctx<'_>) -> Self {
        let Handshake { id, mut channel, ni, nr, features, .. } = hs;
        channel.follow = !features.nat_here;
        Self {
            id,
            channel,
            peer,
            identity,
            role,
            udp: features.udp || ctx.config.force_udp,
            children: BTreeMap::new(),
            first_ni: ni,
            first_nr: nr,
            queue: VecDeque::new(),
            narrowed: None,
            current: None,
            asked: None,
            followed: None,
            standing: Standing::Current,
            stash: None,
            since: ctx.now.monotonic,
            told_due: false,
        }
    }

    /// The SA that takes over from `self` with a new channel: it has its children and its queue.
    pub(super) fn successor(&mut self, channel: Channel, ctx: &Ctx<'_>) -> Self {
        self.standing = Standing::Superseded;
        self.since = ctx.now.monotonic;
        let Legacy { children, queue, narrowed } = self.legacy();
        Self { children, queue, narrowed, ..self.sibling(channel, Standing::Current, ctx) }
    }

    /// What the SA has to give away.
    pub(super) fn legacy(&mut self) -> Legacy {
        Legacy {
            children: std::mem::take(&mut self.children),
            queue: std::mem::take(&mut self.queue),
            narrowed: self.narrowed.take(),
        }
    }

    /// Another SA with the same peer, with nothing in it.
    pub(super) fn sibling(&self, channel: Channel, standing: Standing, ctx: &Ctx<'_>) -> Self {
        Self {
            id: self.id,
            channel,
            peer: self.peer,
            identity: self.identity.clone(),
            role: self.role,
            udp: self.udp,
            children: BTreeMap::new(),
            first_ni: Vec::new(),
            first_nr: Vec::new(),
            queue: VecDeque::new(),
            narrowed: None,
            current: None,
            asked: None,
            followed: None,
            standing,
            stash: None,
            since: ctx.now.monotonic,
            told_due: false,
        }
    }

    /// The nonces of IKE_SA_INIT are of use for the first child alone.
    pub(super) fn forget_first_nonces(&mut self) {
        self.first_ni = Vec::new();
        self.first_nr = Vec::new();
    }

    /// The peer's SA was chosen of two: it has the children now, and answers what the peer asked meanwhile.
    pub(crate) fn inherit(mut self: Box<Self>, legacy: Legacy, ctx: &mut Ctx<'_>) -> Option<State> {
        self.standing = Standing::Current;
        self.since = ctx.now.monotonic;
        (self.children, self.queue, self.narrowed) = (legacy.children, legacy.queue, legacy.narrowed);
        self.announce(ctx);
        let next = match self.stash.take() {
            Some(request) => self.on_request(&request, ctx),
            None => Some(State::Established(self)),
        };
        match next {
            Some(State::Established(sa)) => sa.next(ctx),
            other => other,
        }
    }

    /// What its keys may be replaced by, the preferred first.
    pub(super) fn proposals<'a>(&'a self, config: &'a Config) -> &'a [IkeProposal] {
        self.narrowed.as_deref().unwrap_or(&config.ike)
    }

    /// Tells that the SA has the keys that it had.
    pub(super) fn not_rekeyed(&self, reason: String, ctx: &mut Ctx<'_>) {
        ctx.out.push_back(Output::Event(Event::IkeNotRekeyed { ike: self.id, reason }));
    }

    /// Tells that the SA has new keys.
    pub(super) fn announce(&self, ctx: &mut Ctx<'_>) {
        let suite = self.channel.suite.clone();
        ctx.out.push_back(Output::Event(Event::IkeRekeyed { ike: self.id, suite }));
    }

    /// How long an SA that is not current waits for its end. A candidate outlives the patience of our own exchange.
    fn patience(&self, config: &Config) -> Duration {
        self.since.saturating_add(config.timers.half_open.saturating_mul(match self.standing {
            Standing::Candidate => 5,
            Standing::Current | Standing::Superseded => 2,
        }))
    }

    pub(super) fn is_current(&self) -> bool {
        self.standing == Standing::Current
    }

    pub(super) fn timer(&self, config: &Config) -> Option<Duration> {
        let timers = &config.timers;
        let queued = if self.current.is_none() { self.queue.iter().map(|q| q.due).min() } else { None };
        let live = self.is_current() && self.current.is_none();
        [
            self.channel.timer(),
            queued,
            timers.liveness.filter(|_| live).map(|d| self.channel.heard.saturating_add(d)),
            timers.ike_rekey.filter(|_| live && !self.told_due).map(|d| self.since.saturating_add(d)),
            // An SA whose deletion the peer forgets is forgotten too.
            (!self.is_current()).then(|| self.patience(config)),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(super) fn on_timer(mut self: Box<Self>, ctx: &mut Ctx<'_>) -> Option<State> {
        if self.channel.on_timer(ctx) == Waiting::Silent {
            return self.end(CloseReason::PeerSilent, ctx);
        }
        let now = ctx.now.monotonic;
        let timers = &ctx.config.timers;
        if !self.is_current() {
            if now >= self.patience(ctx.config) {
                return None;
            }
        } else {
            if let Some(d) = timers.ike_rekey
                && !self.told_due
                && now >= self.since.saturating_add(d)
            {
                self.told_due = true;
                ctx.out.push_back(Output::Event(Event::IkeRekeyDue { ike: self.id }));
            }
            if let Some(d) = timers.liveness
                && self.current.is_none()
                && now >= self.channel.heard.saturating_add(d)
            {
                self.push(Task::Probe, ctx);
            }
        }
        self.next(ctx)
    }

    /// Ends the SA at once. What it held is free again; only a current SA is announced.
    pub(super) fn end(mut self: Box<Self>, reason: CloseReason, ctx: &mut Ctx<'_>) -> Option<State> {
        let children: Vec<u32> = std::mem::take(&mut self.children).into_keys().collect();
        for spi in &children {
            ctx.spis.remove(spi);
        }
        free_queued(std::mem::take(&mut self.queue), ctx);
        if let Some(Current::Creating(c)) = self.current.take() {
            ctx.spis.remove(&c.wanted.spi);
        }
        if self.is_current() {
            ctx.out.push_back(Output::Event(Event::IkeClosed { ike: self.id, reason, children }));
        }
        None
    }

    fn push(&mut self, task: Task, ctx: &Ctx<'_>) {
        self.queue.push_back(Queued { task, due: ctx.now.monotonic, tries: 0 });
    }

    /// Puts a task off because the peer was busy (RFC 7296 2.25: TEMPORARY_FAILURE), for a time that differs between the two
    /// sides. Gives it back when it was put off too often.
    pub(super) fn put_off(&mut self, task: Task, tries: u8, ctx: &mut Ctx<'_>) -> Option<Task> {
        if tries >= 8 {
            return Some(task);
        }
        let mut jitter = [0; 2];
        ctx.rng.fill(&mut jitter);
        let wait = Duration::from_millis(100 + u64::from(u16::from_be_bytes(jitter)) / 64);
        let due = ctx.now.monotonic.saturating_add(wait);
        self.queue.push_back(Queued { task, due, tries: tries + 1 });
        None
    }

    /// Begins the next task, when no exchange of ours is under way.
    pub(super) fn next(mut self: Box<Self>, ctx: &mut Ctx<'_>) -> Option<State> {
        while self.current.is_none() && self.is_current() {
            let now = ctx.now.monotonic;
            let Some(at) = self.queue.iter().position(|q| q.due <= now) else { break };
            let Some(Queued { task, tries, .. }) = self.queue.remove(at) else { break };
            // What we begin over this SA must end over it: the peer's series, whose end would replace it, is tried anew later. A
            // peer that leaves a series open thus holds nothing up.
            if !matches!(task, Task::Probe) {
                self.followed = None;
            }
            let sent = match task {
                Task::Create { wanted, rekeys } => {
                    self.begin_create(wanted, rekeys, None, tries, ctx);
                    true
                }
                Task::Delete(inbound, why) => self.begin_delete(inbound, why, ctx),
                Task::RekeyIke => self.begin_rekey(tries, None, ctx),
                Task::CloseIke => self.begin_close(ctx),
                Task::Probe => self.send(Current::News, Exchange::Informational, &Chain::new(), ctx),
            };
            if !sent {
                return self.end(CloseReason::Protocol("message IDs used up"), ctx);
            }
        }
        Some(State::Established(self))
    }

    /// Sends a request and remembers what it was.
    pub(super) fn send(
        &mut self,
        current: Current,
        exchange: Exchange,
        chain: &Chain,
        ctx: &mut Ctx<'_>,
    ) -> bool {
        let sent = self.channel.request(exchange, chain, ctx).is_some();
        if sent {
            self.current = Some(current);
        }
        sent
    }

    fn begin_delete(&mut self, inbound: u32, why: ChildClosed, ctx: &mut Ctx<'_>) -> bool {
        if !self.children.contains_key(&inbound) {
            return true;
        }
        self.send(Current::Deleting { inbound, why }, NEWS, &delete_children(&[inbound]), ctx)
    }

    pub(super) fn begin_close(&mut self, ctx: &mut Ctx<'_>) -> bool {
        let mut chain = Chain::new();
        chain.push(kind::DELETE, |out| out.extend_from_slice(&[1, 0, 0, 0]));
        self.send(Current::ClosingIke, NEWS, &chain, ctx)
    }

    /// Takes a child away that the peer made by an answer which we do not accept. Its outbound SPI is of no use; the inbound one
    /// is what the Delete payload names.
    pub(super) fn delete_unmade(&mut self, inbound: u32, ctx: &mut Ctx<'_>) {
        if self.current.is_none() {
            self.send(Current::News, NEWS, &delete_children(&[inbound]), ctx);
        }
    }

    /// Queues a child that could not be asked for in IKE_AUTH. Its SPI is taken already.
    pub(super) fn want_child(&mut self, wanted: NewChild, ctx: &mut Ctx<'_>) {
        self.begin_create(wanted, None, None, 0, ctx);
    }

    pub(super) fn on_message(
        mut self: Box<Self>,
        header: &Header,
        message: &[u8],
        from: Path,
        ctx: &mut Ctx<'_>,
    ) -> Option<State> {
        let before = self.channel.path;
        let Some(received) = self.channel.receive(header, message, from, ctx) else {
            return Some(State::Established(self));
        };
        if self.channel.path != before && self.is_current() {
            ctx.out.push_back(Output::Event(Event::PathChanged { ike: self.id, path: self.channel.path }));
        }
        let next = if received.response {
            self.on_response(&received, ctx)
        } else if self.standing == Standing::Candidate && !closes(&received) {
            self.stash = Some(received);
            Some(State::Established(self))
        } else {
            self.on_request(&received, ctx)
        };
        match next {
            Some(State::Established(sa)) => sa.next(ctx),
            other => other,
        }
    }

    fn on_request(mut self: Box<Self>, r: &Received, ctx: &mut Ctx<'_>) -> Option<State> {
        let fields = match Fields::parse(r.first, &r.plain) {
            Ok(fields) => fields,
            Err(p) => {
                // RFC 7296 2.21.3: a request that is authentic and malformed ends the IKE SA; an unknown critical payload does not.
                let fatal = matches!(p, crate::wire::Problem::Malformed(_));
                self.respond(r.exchange, &problem(p), ctx);
                if fatal {
                    return self.end(CloseReason::Protocol("malformed request"), ctx);
                }
                return Some(State::Established(self));
            }
        };
        match r.exchange {
            Exchange::Informational => self.on_news(&fields, ctx),
            Exchange::CreateChild => {
                self.on_create_request(&fields, ctx);
                Some(State::Established(self))
            }
            Exchange::FollowupKe => {
                if let Err(chain) = self.on_followup_request(&fields, ctx) {
                    self.respond(r.exchange, &chain, ctx);
                }
                Some(State::Established(self))
            }
            Exchange::Init | Exchange::Auth | Exchange::Intermediate => {
                ctx.counters.count(Drop::Unexpected);
                self.respond(r.exchange, &notification(NotifyKind::InvalidSyntax, &[]), ctx);
                Some(State::Established(self))
            }
        }
    }

    /// Answers the peer's request. That nothing can be sent means that 2^32 messages were: the SA ends by its timers.
    pub(super) fn respond(&mut self, exchange: Exchange, chain: &Chain, ctx: &mut Ctx<'_>) {
        self.channel.respond(exchange, chain, ctx);
    }

    fn on_news(mut self: Box<Self>, fields: &Fields<'_>, ctx: &mut Ctx<'_>) -> Option<State> {
        if fields.deletes.contains(&Delete::Ike) {
            // RFC 7296 1.4.1: the answer to the deletion of an IKE SA is empty.
            self.respond(NEWS, &Chain::new(), ctx);
            if let Some(spi) = self.crossing() {
                // RFC 7296 2.8.2: the peer has decided for its own rekeying; ours is forgotten.
                self.current = None;
                ctx.bequests.push((spi, self.id, self.legacy()));
                return None;
            }
            return self.end(CloseReason::Peer, ctx);
        }
        if fields.has(NotifyKind::AuthenticationFailed) {
            self.respond(NEWS, &Chain::new(), ctx);
            return self.end(CloseReason::Notified(NotifyKind::AuthenticationFailed.name()), ctx);
        }
        let mut ours = Vec::new();
        for delete in &fields.deletes {
            let Delete::Esp(spis) = delete else { continue };
            for spi in spis {
                let Some(inbound) = self.children.values().find(|c| c.outbound == *spi).map(|c| c.inbound)
                else {
                    // The answer that made this child may be lost, and the deletion have overtaken its repetition.
                    if let Some(Current::Creating(c)) = &mut self.current
                        && c.withdrawn.len() < 64
                    {
                        c.withdrawn.push(*spi);
                    }
                    continue;
                };
                // RFC 7296 1.4.1: SAs that we are deleting ourselves are not named in the answer.
                let crossing =
                    matches!(self.current, Some(Current::Deleting { inbound: i, .. }) if i == inbound);
                if !crossing {
                    ours.push(inbound);
                }
                let replaced = self.children.values().any(|c| c.replaces == Some(inbound));
                let why = if replaced { ChildClosed::Rekeyed } else { ChildClosed::Peer };
                self.drop_child(inbound, why, ctx);
            }
        }
        let chain = if ours.is_empty() { Chain::new() } else { delete_children(&ours) };
        self.respond(NEWS, &chain, ctx);
        Some(State::Established(self))
    }

    /// Forgets a child and tells so.
    pub(super) fn drop_child(&mut self, inbound: u32, reason: ChildClosed, ctx: &mut Ctx<'_>) {
        if let Some(child) = self.children.remove(&inbound) {
            ctx.spis.remove(&inbound);
            let (ike, outbound) = (self.id, child.outbound);
            ctx.out.push_back(Output::Event(Event::ChildClosed { ike, inbound, outbound, reason }));
        }
    }

    fn on_response(mut self: Box<Self>, r: &Received, ctx: &mut Ctx<'_>) -> Option<State> {
        let current = self.current.take();
        let fields = match Fields::parse(r.first, &r.plain) {
            Ok(fields) => fields,
            Err(_) => {
                // RFC 7296 2.21.3: a malformed authentic response means that the two sides no longer understand each other.
                self.current = current;
                return self.end(CloseReason::Protocol("malformed response"), ctx);
            }
        };
        match current {
            Some(Current::Creating(creating)) => {
                self.on_created(*creating, &fields, ctx);
                Some(State::Established(self))
            }
            Some(Current::Deleting { inbound, why }) => {
                self.drop_child(inbound, why, ctx);
                Some(State::Established(self))
            }
            Some(Current::RekeyingIke(rekeying)) => self.on_rekeyed(*rekeying, &fields, ctx),
            Some(Current::Following(following)) => self.on_followed(*following, &fields, ctx),
            Some(Current::ClosingIke) => self.end(CloseReason::Local, ctx),
            Some(Current::News) | None => Some(State::Established(self)),
        }
    }

    pub(super) fn on_command(
        mut self: Box<Self>,
        command: Command,
        ctx: &mut Ctx<'_>,
    ) -> (Option<State>, Result<(), CommandError>) {
        if matches!(command, Command::ForgetIke { .. }) {
            return (self.end(CloseReason::Local, ctx), Ok(()));
        }
        match self.enqueue(command, ctx) {
            Ok(()) => (self.next(ctx), Ok(())),
            Err(e) => (Some(State::Established(self)), Err(e)),
        }
    }

    fn enqueue(&mut self, command: Command, ctx: &mut Ctx<'_>) -> Result<(), CommandError> {
        if !self.is_current() {
            return Err(CommandError::NoSuchIke);
        }
        if self.queue.len() >= MOST_TASKS {
            return Err(CommandError::Busy);
        }
        let task = match command {
            Command::CreateChild { child, .. } => {
                self.take_spi(child.spi, ctx)?;
                Task::Create { wanted: child, rekeys: None }
            }
            Command::RekeyChild { inbound, spi, .. } => {
                let old = self.children.get(&inbound).ok_or(CommandError::NoSuchChild)?;
                if self.is_leaving(inbound) || self.children.values().any(|c| c.replaces == Some(inbound)) {
                    return Err(CommandError::NoSuchChild);
                }
                let wanted = NewChild {
                    spi,
                    label: old.label.clone(),
                    local: old.local.clone(),
                    remote: old.remote.clone(),
                    want_address: false,
                    resource: old.resource.as_ref().map(|(ours, _)| ours.clone()),
                    aggfrag: old.aggfrag.is_some(),
                };
                self.take_spi(spi, ctx)?;
                Task::Create { wanted, rekeys: Some(inbound) }
            }
            Command::CloseChild { inbound, .. } => {
                if !self.children.contains_key(&inbound) {
                    return Err(CommandError::NoSuchChild);
                }
                // Closing goes before all else: revocation must not wait behind new children.
                let queued = Queued {
                    task: Task::Delete(inbound, ChildClosed::Local),
                    due: ctx.now.monotonic,
                    tries: 0,
                };
                self.queue.push_front(queued);
                return Ok(());
            }
            Command::NarrowIke { proposals, .. } => {
                if proposals.as_ref().is_some_and(Vec::is_empty) {
                    return Err(CommandError::Impossible);
                }
                if self.narrowed != proposals {
                    // A series that the peer has begun may be for what is not left.
                    self.followed = None;
                }
                self.narrowed = proposals;
                return Ok(());
            }
            Command::RekeyIke { .. } => Task::RekeyIke,
            Command::CloseIke { .. } => {
                self.queue.push_front(Queued { task: Task::CloseIke, due: ctx.now.monotonic, tries: 0 });
                return Ok(());
            }
            Command::Probe { .. } => Task::Probe,
            // Nothing to queue: it was done.
            Command::ForgetIke { .. } => return Err(CommandError::NoSuchIke),
            Command::Signed { .. } | Command::PpkMixed { .. } | Command::Decide { .. } => {
                return Err(CommandError::NoSuchRequest);
            }
        };
        self.push(task, ctx);
        Ok(())
    }

    fn take_spi(&self, spi: u32, ctx: &mut Ctx<'_>) -> Result<(), CommandError> {
        if !usable_spi(spi) || ctx.spis.contains_key(&spi) {
            return Err(CommandError::SpiInUse);
        }
        ctx.spis.insert(spi, self.id);
        Ok(())
    }

    /// Whether a child is being deleted, or rekeyed by us, or soon will be.
    pub(super) fn is_leaving(&self, inbound: u32) -> bool {
        let rekeys = |t: &Task| matches!(t, Task::Create { rekeys: Some(old), .. } if *old == inbound);
        self.is_deleting(inbound)
            || matches!(&self.current, Some(Current::Creating(c)) if c.rekeys == Some(inbound))
            || self.queue.iter().any(|q| rekeys(&q.task))
    }

    /// Whether our deletion of a child is under way, or waits for its turn.
    pub(super) fn is_deleting(&self, inbound: u32) -> bool {
        matches!(self.current, Some(Current::Deleting { inbound: i, .. }) if i == inbound)
            || self.queue.iter().any(|q| matches!(q.task, Task::Delete(i, _) if i == inbound))
    }

    /// Queues the deletion of a child.
    pub(super) fn delete_later(&mut self, inbound: u32, why: ChildClosed, ctx: &Ctx<'_>) {
        self.push(Task::Delete(inbound, why), ctx);
    }

    /// Tells that a wanted child did not come about.
    pub(super) fn child_failed(
        &self,
        inbound: u32,
        rekeys: Option<u32>,
        reason: ChildError,
        ctx: &mut Ctx<'_>,
    ) {
        ctx.spis.remove(&inbound);
        ctx.out.push_back(Output::Event(Event::ChildFailed { ike: self.id, inbound, rekeys, reason }));
    }
}

/// Whether a request deletes the IKE SA that it came over.
fn closes(r: &Received) -> bool {
    Fields::parse(r.first, &r.plain).is_ok_and(|f| f.deletes.contains(&Delete::Ike))
}

fn delete_children(inbound: &[u32]) -> Chain {
    let mut chain = Chain::new();
    chain.push(kind::DELETE, |out| {
        out.extend_from_slice(&[3, 4]);
        out.extend_from_slice(&u16::try_from(inbound.len()).unwrap_or(0).to_be_bytes());
        for spi in inbound {
            out.extend_from_slice(&spi.to_be_bytes());
        }
    });
    chain
}
