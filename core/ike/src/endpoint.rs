//! All IKE SAs of one program, and the way from a datagram to the one that it is for.

use crate::api::{Command, CommandError, IkeId, NewChild, Now, Output, Path, Random, RequestId};
use crate::channel::transmit;
use crate::config::{Config, Peer, RemoteAuth};
use crate::crypto::pki::TrustAnchors;
use crate::crypto::suite::{ChildProposal, Encryption, IkeProposal, KeyExchange};
use crate::door::{Door, Guest, Knock, Pass, Verdict};
use crate::drops::{Counters, Drop};
use crate::sa::{Legacy, Opening, Sa, Standing, Start, State, connect, notification, open};
use crate::wire::{
    Exchange, Fields, HEADER, Header, HeaderError, NotifyKind, Problem, SecurityLabel, Shape, shape,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Octets of an IKE_SA_INIT request beyond which it is dropped: many proposals and the largest key share fit twice.
const MOST_INIT: usize = 8_192;

/// What a state needs of its surroundings for one step.
pub(crate) struct Ctx<'a> {
    pub(crate) config: &'a Config,
    pub(crate) rng: &'a mut dyn Random,
    pub(crate) now: Now,
    pub(crate) out: &'a mut VecDeque<Output>,
    pub(crate) counters: &'a mut Counters,
    /// Inbound SPIs in use or promised.
    pub(crate) spis: &'a mut BTreeMap<u32, IkeId>,
    /// IKE SAs that a step made besides its own.
    pub(crate) spawned: Vec<(u64, Sa)>,
    /// What an IKE SA left to another, under that one's SPI.
    pub(crate) bequests: Vec<(u64, IkeId, Legacy)>,
    /// How many other IKE SAs have a name.
    pub(crate) kin: &'a dyn Fn(IkeId) -> usize,
    /// Questions that a step put.
    asked: Vec<RequestId>,
    next_request: &'a mut u64,
    taken: &'a dyn Fn(u64) -> bool,
}

impl Ctx<'_> {
    /// A new question's name.
    pub(crate) fn ask(&mut self) -> RequestId {
        let id = RequestId(*self.next_request);
        *self.next_request += 1;
        self.asked.push(id);
        id
    }

    /// A new IKE SPI: random, not zero, not in use here.
    pub(crate) fn new_spi(&mut self) -> u64 {
        new_spi(self.rng, self.taken)
    }
}

fn new_spi(rng: &mut dyn Random, taken: &dyn Fn(u64) -> bool) -> u64 {
    let mut bytes = [0; 8];
    rng.fill(&mut bytes);
    let mut spi = u64::from_be_bytes(bytes);
    // The next free one: a loop that ends even when the source repeats itself.
    while spi == 0 || taken(spi) {
        spi = spi.wrapping_add(1);
    }
    spi
}

/// All IKE SAs of one program.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    /// By the SPI that we chose.
    sas: BTreeMap<u64, Sa>,
    /// Where each SA is now; rekeyings move it.
    ids: BTreeMap<IkeId, u64>,
    timers: BTreeSet<(Duration, u64)>,
    due: BTreeMap<u64, Duration>,
    questions: BTreeMap<RequestId, u64>,
    door: Door,
    spis: BTreeMap<u32, IkeId>,
    counters: Counters,
    out: VecDeque<Output>,
    next_id: u64,
    next_request: u64,
    /// The last datagram was a stranger's.
    strange: bool,
}

impl Endpoint {
    /// An endpoint without IKE SAs.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            sas: BTreeMap::new(),
            ids: BTreeMap::new(),
            timers: BTreeSet::new(),
            due: BTreeMap::new(),
            questions: BTreeMap::new(),
            door: Door::default(),
            spis: BTreeMap::new(),
            counters: Counters::default(),
            out: VecDeque::new(),
            next_id: 1,
            next_request: 1,
            strange: false,
        }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Another peer to talk to; its number, for [`Endpoint::connect`].
    pub fn add_peer(&mut self, peer: Peer) -> usize {
        self.config.peers.push(peer);
        self.config.peers.len() - 1
    }

    /// Checks the certificates of all peers against other authorities and revocation lists from now on. IKE SAs that are established
    /// stay: see [`TrustAnchors::revokes`].
    pub fn trust(&mut self, anchors: Arc<TrustAnchors>) {
        for peer in &mut self.config.peers {
            if let RemoteAuth::Certificate { anchors: believed, .. } = &mut peer.remote_auth {
                *believed = Arc::clone(&anchors);
            }
        }
    }

    /// From now on child SAs of this label are agreed with these encryption algorithms and (`None`: all) key exchanges alone, as far as the
    /// configuration has them, the preferred encryption first. Those that are there stay until they are rekeyed.
    pub fn narrow(
        &mut self,
        label: SecurityLabel,
        encryption: &[Encryption],
        exchanges: Option<&[KeyExchange]>,
    ) {
        let narrowed = self.config.child.iter().filter_map(|all| {
            let both = encryption.iter().copied().filter(|one| all.encryption.contains(one));
            let both: Vec<Encryption> = both.collect();
            let key_exchange = all
                .key_exchange
                .iter()
                .copied()
                .filter(|one| exchanges.is_none_or(|some| some.contains(one)));
            let key_exchange: Vec<KeyExchange> = key_exchange.collect();
            (!both.is_empty() && !key_exchange.is_empty()).then(|| ChildProposal {
                encryption: both,
                key_exchange,
                ..all.clone()
            })
        });
        let narrowed = narrowed.collect();
        self.config.labelled.insert(label, narrowed);
    }

    /// From now on IKE SAs are begun and answered with these proposals. Those that are there stay.
    pub fn propose(&mut self, proposals: Vec<IkeProposal>) {
        self.config.ike = proposals;
    }

    /// How many IKE SAs there are: half-open, established, and on their way out.
    pub fn len(&self) -> usize {
        self.sas.len()
    }

    /// Whether there are no IKE SAs.
    pub fn is_empty(&self) -> bool {
        self.sas.is_empty()
    }

    /// How many half-open IKE SAs there are as responder.
    pub fn half_open(&self) -> usize {
        self.door.len()
    }

    /// A way in that strangers do not have, for somebody who is known by other means. It is good once, and as long as this endpoint is.
    pub fn make_pass(&mut self, rng: &mut dyn Random) -> Pass {
        self.door.make_pass(rng)
    }

    /// What was dropped.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes a datagram that came from `path.remote` to `path.local`.
    pub fn handle(&mut self, datagram: &[u8], path: Path, now: Now, rng: &mut dyn Random) {
        if let Err(why) = self.try_handle(datagram, path, now, rng) {
            self.counters.count(why);
        }
    }

    /// The established IKE SA that a datagram says it is for. Anybody can say so: what comes of it shows when it is handled.
    pub fn whose(&self, datagram: &[u8], path: Path) -> Option<IkeId> {
        let message = if path.marker { datagram.strip_prefix(&[0; 4])? } else { datagram };
        let (header, _) = Header::parse(message).ok()?;
        let sa = self.sas.get(if header.from_initiator { &header.spi_r } else { &header.spi_i })?;
        (matches!(sa.state, State::Established(_)) && sa.peer_spi_fits(&header)).then_some(sa.id)
    }

    /// How long the datagram took that was handled last. Of a stranger's it counts: they have a part of the time, whatever they ask for.
    pub fn took(&mut self, time: Duration, now: Now) {
        if self.strange {
            self.door.spend(time, now.monotonic);
        }
    }

    fn try_handle(
        &mut self,
        datagram: &[u8],
        path: Path,
        now: Now,
        rng: &mut dyn Random,
    ) -> Result<(), Drop> {
        self.strange = false;
        let message = match path.marker {
            true => datagram.strip_prefix(&[0; 4]).ok_or(Drop::Header)?,
            false => datagram,
        };
        let header = match Header::parse(message) {
            Ok((header, _)) => header,
            Err(HeaderError::Malformed) => return Err(Drop::Header),
            Err(HeaderError::UnknownExchange) => return Err(Drop::Exchange),
            Err(HeaderError::MajorVersion { spi_i, spi_r, exchange, message_id, response }) => {
                // RFC 7296 2.5: a request is answered, with the highest version spoken, which the header says.
                if !response && exchange == 34 && spi_r == 0 {
                    let header = Header {
                        spi_i,
                        spi_r,
                        next: 0,
                        exchange: Exchange::Init,
                        from_initiator: false,
                        response: true,
                        message_id,
                    };
                    self.answer(
                        notification(NotifyKind::InvalidMajorVersion, &[]).message(header),
                        path,
                        now,
                        rng,
                    );
                }
                return Err(Drop::Version);
            }
        };
        let first = header.exchange == Exchange::Init && !header.response;
        if first {
            return self.on_init(&header, message, path, now, rng);
        }
        let spi = if header.from_initiator { header.spi_r } else { header.spi_i };
        let known = self.sas.get(&spi).is_some_and(|sa| sa.peer_spi_fits(&header));
        if !known {
            return Err(Drop::UnknownSpi);
        }
        self.strange = self.door.is_strangers(spi);
        if self.strange && self.door.is_spent(now.monotonic) {
            return Err(Drop::Busy);
        }
        self.step(spi, now, rng, |state, ctx| (state.on_message(&header, message, path, ctx), ()));
        Ok(())
    }

    fn answer(&mut self, message: Vec<u8>, path: Path, now: Now, rng: &mut dyn Random) {
        self.with_ctx(now, rng, |ctx| transmit(ctx, path, message));
    }

    fn on_init(
        &mut self,
        header: &Header,
        message: &[u8],
        path: Path,
        now: Now,
        rng: &mut dyn Random,
    ) -> Result<(), Drop> {
        if !header.from_initiator || header.spi_r != 0 || header.message_id != 0 {
            return Err(Drop::Unexpected);
        }
        if let Some(spi) = self.door.begun(path.remote, header.spi_i) {
            self.step(spi, now, rng, |state, ctx| {
                match &state {
                    State::HalfOpen(s) => s.init_again(message, path, ctx),
                    _ => ctx.counters.count(Drop::InProgress),
                }
                (Some(state), ())
            });
            return Ok(());
        }
        // It is kept until IKE_AUTH, which signs it: no more of it than a first message can need.
        if message.len() > MOST_INIT {
            return Err(Drop::Malformed);
        }
        let body = message.get(HEADER..).ok_or(Drop::Header)?;
        let Shape::Clear(chain) = shape(header.next, body).map_err(|_| Drop::Malformed)? else {
            return Err(Drop::Unexpected);
        };
        let answer_header = Header { from_initiator: false, response: true, ..*header };
        let fields = match Fields::parse(header.next, chain) {
            Ok(fields) => fields,
            Err(Problem::Malformed(_)) => return Err(Drop::Malformed),
            Err(Problem::Critical(kind)) => {
                let chain = notification(NotifyKind::UnsupportedCriticalPayload, &[kind]);
                self.answer(chain.message(answer_header), path, now, rng);
                return Err(Drop::Malformed);
            }
        };
        let knock = Knock {
            spi_i: header.spi_i,
            nonce: fields.nonce.ok_or(Drop::Malformed)?,
            cookie: fields.notify(NotifyKind::Cookie).map(|n| n.data),
            pass: fields.notify(NotifyKind::LeveePass).map(|n| n.data),
            path,
        };
        self.strange = true;
        let guest = match self.door.knock(knock, &self.config.limits, now, rng) {
            Verdict::Enter { guest, full } => {
                self.strange = guest == Guest::Stranger;
                if let Some(candidates) = full {
                    self.make_way(&candidates)?;
                }
                guest
            }
            Verdict::Cookie(cookie) => {
                self.answer(notification(NotifyKind::Cookie, &cookie).message(answer_header), path, now, rng);
                return Err(Drop::Cookie);
            }
            Verdict::Busy => return Err(Drop::Busy),
        };
        if self.sas.len() >= self.config.limits.ike_sas {
            return Err(Drop::Full);
        }
        let id = self.new_id();
        let spi = new_spi(rng, &|s| self.sas.contains_key(&s));
        let opening = self.with_ctx(now, rng, |ctx| open(id, spi, header, message, &fields, path, ctx));
        match opening {
            Some(Opening::Open(state)) => {
                self.door.enter(guest, path.remote, header.spi_i, spi);
                self.insert(spi, Sa { id, state }, now);
                Ok(())
            }
            Some(Opening::Answer(message, why)) => {
                self.answer(message, path, now, rng);
                Err(why)
            }
            None => Err(Drop::Refused),
        }
    }

    /// Forgets the first of these half-open SAs whose peer has said nothing yet that takes others' time to answer. It was never
    /// announced, so it ends in silence.
    fn make_way(&mut self, candidates: &[u64]) -> Result<(), Drop> {
        let waits = |spi: &&u64| self.sas.get(spi).is_some_and(|sa| matches!(sa.state, State::HalfOpen(_)));
        let spi = *candidates.iter().find(waits).ok_or(Drop::HalfOpen)?;
        let Sa { id, state } = self.sas.remove(&spi).ok_or(Drop::HalfOpen)?;
        if let Some((from, spi_i)) = state.opened_at() {
            self.door.leave(from, spi_i, spi);
        }
        self.forget(spi, id);
        self.counters.count(Drop::GaveWay);
        Ok(())
    }

    fn new_id(&mut self) -> IkeId {
        let id = IkeId(self.next_id);
        self.next_id += 1;
        id
    }

    pub(crate) fn with_ctx<T>(
        &mut self,
        now: Now,
        rng: &mut dyn Random,
        f: impl FnOnce(&mut Ctx<'_>) -> T,
    ) -> T {
        let sas = &self.sas;
        let mut ctx = Ctx {
            config: &self.config,
            rng,
            now,
            out: &mut self.out,
            counters: &mut self.counters,
            spis: &mut self.spis,
            spawned: Vec::new(),
            bequests: Vec::new(),
            kin: &|id| sas.values().filter(|sa| sa.id == id).count(),
            asked: Vec::new(),
            next_request: &mut self.next_request,
            taken: &|s| sas.contains_key(&s),
        };
        f(&mut ctx)
    }

    /// Takes one SA's state through a step and puts what comes of it back.
    fn step<T>(
        &mut self,
        spi: u64,
        now: Now,
        rng: &mut dyn Random,
        f: impl FnOnce(State, &mut Ctx<'_>) -> (Option<State>, T),
    ) -> Option<T> {
        let Sa { id, state } = self.sas.remove(&spi)?;
        let was_half_open = state.is_half_open().then(|| state.opened_at());
        let (next, asked, spawned, bequests, answer) = self.with_ctx(now, rng, |ctx| {
            let (next, answer) = f(state, ctx);
            let (asked, spawned) = (std::mem::take(&mut ctx.asked), std::mem::take(&mut ctx.spawned));
            (next, asked, spawned, std::mem::take(&mut ctx.bequests), answer)
        });
        let still_half_open = next.as_ref().is_some_and(State::is_half_open);
        if let Some(Some((address, spi_i))) = was_half_open
            && !still_half_open
        {
            self.door.leave(address, spi_i, spi);
        }
        match next {
            Some(state) => {
                for q in asked {
                    self.questions.insert(q, spi);
                }
                self.insert_timer(spi, &state, now);
                self.sas.insert(spi, Sa { id, state });
            }
            None => self.forget(spi, id),
        }
        for (spi, sa) in spawned {
            self.insert(spi, sa, now);
        }
        for (spi, id, legacy) in bequests {
            self.inherit(spi, id, legacy, now, rng);
        }
        Some(answer)
    }

    /// Gives an SA's children to the candidate that was chosen to follow it. If the peer has taken that away, all ends.
    fn inherit(&mut self, spi: u64, id: IkeId, legacy: Legacy, now: Now, rng: &mut dyn Random) {
        let candidate = |sa: &Sa| matches!(&sa.state, State::Established(e) if e.standing == Standing::Candidate && e.id == id);
        if self.sas.get(&spi).is_some_and(candidate) {
            self.ids.insert(id, spi);
            self.step(spi, now, rng, |state, ctx| match state {
                State::Established(e) => (e.inherit(legacy, ctx), ()),
                other => (Some(other), ()),
            });
        } else {
            self.ids.remove(&id);
            self.with_ctx(now, rng, |ctx| legacy.end(id, ctx));
        }
    }

    fn insert(&mut self, spi: u64, sa: Sa, now: Now) {
        let current = !matches!(&sa.state, State::Established(e) if e.standing != Standing::Current);
        if current {
            self.ids.insert(sa.id, spi);
        }
        self.insert_timer(spi, &sa.state, now);
        self.sas.insert(spi, sa);
    }

    fn insert_timer(&mut self, spi: u64, state: &State, now: Now) {
        // A timer is always ahead: whatever a state asks for, the work of one moment ends.
        let soonest = now.monotonic.saturating_add(Duration::from_millis(1));
        let due = state.timer(&self.config).map(|due| due.max(soonest));
        if let Some(old) = self.due.remove(&spi) {
            self.timers.remove(&(old, spi));
        }
        if let Some(due) = due {
            self.due.insert(spi, due);
            self.timers.insert((due, spi));
        }
    }

    fn forget(&mut self, spi: u64, id: IkeId) {
        if let Some(old) = self.due.remove(&spi) {
            self.timers.remove(&(old, spi));
        }
        if self.ids.get(&id) == Some(&spi) {
            self.ids.remove(&id);
        }
        self.questions.retain(|_, s| *s != spi);
    }

    /// Begins an IKE SA with `Config::peers[peer]`, and with it a child if one is given. `float` is our address with a socket that
    /// carries ESP, to go on from when a NAT is found and `path` has no marker (RFC 7296 2.23).
    pub fn connect(
        &mut self,
        peer: usize,
        path: Path,
        float: Option<SocketAddr>,
        child: Option<NewChild>,
        now: Now,
        rng: &mut dyn Random,
    ) -> Result<IkeId, CommandError> {
        self.connect_with_pass(peer, path, float, None, child, now, rng)
    }

    /// As [`Endpoint::connect`], with a pass that the peer made.
    #[expect(clippy::too_many_arguments, reason = "each is one fact about the SA that is begun")]
    pub fn connect_with_pass(
        &mut self,
        peer: usize,
        path: Path,
        float: Option<SocketAddr>,
        pass: Option<Pass>,
        child: Option<NewChild>,
        now: Now,
        rng: &mut dyn Random,
    ) -> Result<IkeId, CommandError> {
        if peer >= self.config.peers.len() {
            return Err(CommandError::NoSuchPeer);
        }
        if self.sas.len() >= self.config.limits.ike_sas {
            return Err(CommandError::Busy);
        }
        if let Some(child) = &child
            && (child.spi < 256 || self.spis.contains_key(&child.spi))
        {
            return Err(CommandError::SpiInUse);
        }
        let id = self.new_id();
        let spi = new_spi(rng, &|s| self.sas.contains_key(&s));
        let inbound = child.as_ref().map(|c| c.spi);
        let initial_contact =
            !self.sas.values().any(|sa| matches!(&sa.state, State::Established(e) if e.peer == peer));
        let start = Start { id, peer, spi, path, float, pass, child, initial_contact };
        let state = self.with_ctx(now, rng, |ctx| connect(start, ctx))?;
        if let Some(inbound) = inbound {
            self.spis.insert(inbound, id);
        }
        self.insert(spi, Sa { id, state }, now);
        Ok(id)
    }

    /// Takes a wish or an answer. An error leaves everything as it was.
    pub fn command(&mut self, command: Command, now: Now, rng: &mut dyn Random) -> Result<(), CommandError> {
        let spi = match &command {
            Command::Signed { request, .. }
            | Command::PpkMixed { request, .. }
            | Command::Decide { request, .. } => {
                self.questions.get(request).copied().ok_or(CommandError::NoSuchRequest)?
            }
            Command::CreateChild { ike, .. }
            | Command::RekeyChild { ike, .. }
            | Command::CloseChild { ike, .. }
            | Command::NarrowIke { ike, .. }
            | Command::RekeyIke { ike }
            | Command::CloseIke { ike }
            | Command::ForgetIke { ike }
            | Command::Probe { ike } => self.ids.get(ike).copied().ok_or(CommandError::NoSuchIke)?,
        };
        let request = match &command {
            Command::Signed { request, .. }
            | Command::PpkMixed { request, .. }
            | Command::Decide { request, .. } => Some(*request),
            _ => None,
        };
        let result = self.step(spi, now, rng, |state, ctx| match command {
            Command::Signed { request, signature } => state.on_signed(request, signature, ctx),
            Command::PpkMixed { request, keys } => state.on_ppk_mixed(request, keys, ctx),
            Command::Decide { request, decision } => state.on_decision(request, decision, ctx),
            other => state.on_command(other, ctx),
        });
        let result = result.unwrap_or(Err(CommandError::NoSuchIke));
        if let Some(request) = request
            && result.is_ok()
        {
            self.questions.remove(&request);
        }
        result
    }

    /// Does what is due and gives the next thing to send, to decide, or to know; [`Output::Wait`] when there is none.
    pub fn poll(&mut self, now: Now, rng: &mut dyn Random) -> Output {
        loop {
            if let Some(out) = self.out.pop_front() {
                return out;
            }
            match self.timers.first().copied() {
                Some((due, spi)) if due <= now.monotonic => {
                    self.timers.remove(&(due, spi));
                    self.due.remove(&spi);
                    self.step(spi, now, rng, |state, ctx| (state.on_timer(ctx), ()));
                }
                next => return Output::Wait(next.map(|(due, _)| due)),
            }
        }
    }
}
