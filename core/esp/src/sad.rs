//! The security association database (RFC 4301 4.4.2) with the sessions that its associations serve.

mod aggregates;

pub use aggregates::Gathered;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

use zeroize::Zeroizing;

use crate::aead::AeadProvider;
use crate::aggfrag::{Aggregation, Reassembler};
use crate::fragments::{Step, Trails};
use crate::inner::{Direction, Fragment};
use crate::sa::{DUMMY, Decrypted, InboundSa, OutboundSa};
use crate::selector::Verdict;
use crate::{Counters, DropReason, Inner, IpVersion, SaKeys, SelectorSet, Spi, Suite, WaitQueue, ecn};

/// Which end of the tunnels this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sessions' inner addresses are at the far ends: a packet's destination names its session. Follows peers
    /// that move.
    Server,
    /// The session's inner addresses are here: a packet's source names its session, and where parts of one session are at several
    /// servers, each a session here, its selectors name the part. The peer stays where it is.
    Workstation,
}

/// An address outside the tunnel, and which of the caller's sockets reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Address and port.
    pub address: SocketAddr,
    /// The caller's own number for the socket.
    pub socket: usize,
}

/// A session: whose packets, and which of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPolicy {
    /// Inner addresses; on a server each belongs to one session.
    pub inner: Vec<IpAddr>,
    /// What may pass.
    pub selectors: SelectorSet,
    /// The caller's socket by which alone its packets come and go; `None`: by any.
    pub only: Option<usize>,
}

/// Why a session is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// Another session has one of the inner addresses.
    AddressInUse,
    /// No more sessions fit.
    Full,
}

/// A pair of associations to install.
pub struct Install<K> {
    /// Whose.
    pub session: K,
    /// 64-bit sequence numbers.
    pub extended: bool,
    /// Our SPI and the keys of packets that arrive.
    pub inbound: (Spi, SaKeys),
    /// The peer's SPI and the keys of packets that leave.
    pub outbound: (Spi, SaKeys),
    /// The peer asked for it in an older pair's place, and has it when it hears our answer: until something has come through it, packets
    /// leave by the older for as long as that is there (RFC 7296 2.8).
    pub answered: bool,
    /// Where the peer is, if known.
    pub peer: Option<Outer>,
    /// AGGFRAG payloads (RFC 9347), both ways, and how they leave; `None`: one packet each.
    pub aggregation: Option<Aggregation>,
}

/// Why a pair is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallError {
    /// There is no such session.
    NoSession,
    /// The inbound SPI is in use.
    SpiInUse,
    /// The AEAD library does not take the keys.
    Keys,
    /// No more pairs fit, in all or for this session.
    Full,
    /// Sizes or times of AGGFRAG that make no sense.
    Aggregation,
    /// The peer is not where the session's packets alone may go.
    Outside,
}

/// An inbound and an outbound association, installed and deleted together.
pub struct Pair<K> {
    session: K,
    inbound: InboundSa,
    outbound: OutboundSa,
    peer: Option<Outer>,
    /// Its session's, when it was installed.
    only: Option<usize>,
    aggregation: Option<(Aggregation, Box<Reassembler>)>,
    /// From when on it is used without a sign that the peer has it; `None`: not before.
    settles: Option<Duration>,
    /// Something has arrived: the peer has the pair too.
    confirmed: bool,
    /// From when on it is used no more where there is another: the peer is about to erase it.
    retires: Option<Duration>,
    packets: (u64, u64),
    bytes: (u64, u64),
}

/// A pair as shown to operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairView<K> {
    /// Whose.
    pub session: K,
    /// Our SPI.
    pub inbound: Spi,
    /// The peer's SPI.
    pub outbound: Spi,
    /// The suite of both.
    pub suite: Suite,
    /// How its packets go in AGGFRAG payloads, if they do.
    pub aggregation: Option<Aggregation>,
    /// Where its packets go.
    pub peer: Option<SocketAddr>,
    /// Inner packets received and sent.
    pub packets: (u64, u64),
    /// Inner bytes received and sent.
    pub bytes: (u64, u64),
}

struct Session {
    policy: SessionPolicy,
    /// Places of its pairs, oldest first.
    pairs: Vec<usize>,
    waiting: WaitQueue,
    asked: Option<Duration>,
    /// Datagrams whose fragments are under way.
    trails: Trails,
    /// What leaves in AGGFRAG payloads.
    sender: Option<Box<aggregates::Sender>>,
}

/// An inner packet that may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened<K> {
    /// Whose.
    pub session: K,
    /// Its headers; it lies at the start of the buffer, `inner.length` bytes long.
    pub inner: Inner,
    /// The peer has moved to the sender's address.
    pub moved: bool,
}

/// A datagram ready to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Its bytes, from the start of the buffer.
    pub length: usize,
    /// Where it goes.
    pub peer: Outer,
}

/// Where an inner packet goes.
pub enum Route<'a, K> {
    /// Through this pair.
    Through(Lane<'a, K>),
    /// Nowhere until the session has keys: give it to [`Sad::hold`].
    Wait(K),
    /// With others, in AGGFRAG payloads: give it to [`Sad::gather`].
    Gather(K),
}

/// The way out for packets of one flow. Borrowed, so that it cannot outlive a change of keys.
pub struct Lane<'a, K> {
    pair: &'a mut Pair<K>,
    counters: &'a mut Counters,
    expiring: &'a mut Vec<(Spi, K)>,
    version: IpVersion,
    peer: Outer,
}

/// Where a packet from the device goes.
struct Found<K> {
    id: K,
    /// What its passing changes.
    step: Step,
    /// The place of the pair, and its peer; `None` while there is none.
    through: Option<(usize, Outer)>,
}

/// The sessions and security associations of one label.
pub struct Sad<K> {
    side: Side,
    sessions: BTreeMap<K, Session>,
    by_address: BTreeMap<IpAddr, K>,
    pairs: Vec<Option<Box<Pair<K>>>>,
    /// Places of `pairs` without one.
    free: Vec<usize>,
    by_spi: BTreeMap<Spi, usize>,
    expiring: Vec<(Spi, K)>,
    /// Sessions whose packets leave in AGGFRAG payloads, in the order of their turns.
    gathering: Vec<K>,
    /// Something may be waiting for keys.
    waiting: bool,
    /// What passed and what did not.
    pub counters: Counters,
}

impl<K: Copy + Ord> Sad<K> {
    /// The most sessions.
    pub const SESSIONS: usize = 16_384;
    /// The most pairs.
    pub const PAIRS: usize = 65_536;
    /// The most pairs of one session: one in use, one coming, and what simultaneous rekeys leave behind.
    pub const PAIRS_OF_ONE: usize = 16;
    /// How long a new pair's outbound half gives way to an older one while nothing has arrived through it, where the peer has it already.
    pub const SETTLE: Duration = Duration::from_millis(500);
    /// How long until keys are asked for again.
    pub const ASK_AGAIN: Duration = Duration::from_secs(1);

    /// An empty database: nothing passes.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self {
            side,
            sessions: BTreeMap::new(),
            by_address: BTreeMap::new(),
            pairs: Vec::new(),
            free: Vec::new(),
            by_spi: BTreeMap::new(),
            expiring: Vec::new(),
            gathering: Vec::new(),
            waiting: false,
            counters: Counters::default(),
        }
    }

    /// Takes a session, or replaces the policy of one that is there; its pairs stay, unless they are to go by another socket.
    ///
    /// # Errors
    /// [`SessionError`]; nothing has changed then.
    pub fn open_session(&mut self, id: K, policy: SessionPolicy) -> Result<(), SessionError> {
        let other = |address: &IpAddr| self.by_address.get(address).is_some_and(|&owner| owner != id);
        if self.side == Side::Server && policy.inner.iter().any(other) {
            return Err(SessionError::AddressInUse);
        }
        if self.sessions.len() >= Self::SESSIONS && !self.sessions.contains_key(&id) {
            return Err(SessionError::Full);
        }
        for address in self.sessions.get(&id).map_or(&[][..], |session| &session.policy.inner) {
            if self.by_address.get(address) == Some(&id) {
                self.by_address.remove(address);
            }
        }
        for &address in &policy.inner {
            self.by_address.entry(address).or_insert(id);
        }
        let moved = self.sessions.get_mut(&id).filter(|session| session.policy.only != policy.only);
        for place in moved.map(|session| std::mem::take(&mut session.pairs)).unwrap_or_default() {
            self.remove(place);
        }
        match self.sessions.get_mut(&id) {
            Some(session) => {
                session.policy = policy;
                session.trails = Trails::default();
            }
            None => {
                let (waiting, trails) = (WaitQueue::default(), Trails::default());
                let new = Session { policy, pairs: Vec::new(), waiting, asked: None, trails, sender: None };
                self.sessions.insert(id, new);
            }
        }
        Ok(())
    }

    /// Ends a session: its keys and its waiting packets are erased when this returns. Answers whether it was there.
    pub fn close_session(&mut self, id: K) -> bool {
        let Some(mut session) = self.sessions.remove(&id) else { return false };
        for address in &session.policy.inner {
            if self.by_address.get(address) == Some(&id) {
                self.by_address.remove(address);
                // Another part of it, at another server, goes on.
                let part = self.sessions.iter().find(|(_, other)| other.policy.inner.contains(address));
                self.by_address.extend(part.map(|(&part, _)| (*address, part)));
            }
        }
        for place in session.pairs {
            self.remove(place);
        }
        self.gathering.retain(|other| *other != id);
        let gathered = session.sender.as_ref().map_or(0, |sender| sender.left());
        self.counters.count_many(DropReason::NoSession, session.waiting.clear() + gathered);
        true
    }

    /// The sessions there are.
    pub fn sessions(&self) -> impl Iterator<Item = K> + '_ {
        self.sessions.keys().copied()
    }

    /// Takes a pair of associations; packets leave through it at once, or where there is an older pair as [`Install::answered`] says, else
    /// after [`Self::SETTLE`].
    ///
    /// # Errors
    /// [`InstallError`]; nothing has changed then and the keys are erased.
    pub fn install(
        &mut self,
        now: Duration,
        install: Install<K>,
        provider: &dyn AeadProvider,
    ) -> Result<(), InstallError> {
        let Install { session: id, extended, inbound, outbound, answered, peer, aggregation } = install;
        let ((spi, in_keys), (out_spi, out_keys)) = (inbound, outbound);
        let session = self.sessions.get_mut(&id).ok_or(InstallError::NoSession)?;
        if self.by_spi.contains_key(&spi) {
            return Err(InstallError::SpiInUse);
        }
        if self.by_spi.len() >= Self::PAIRS || session.pairs.len() >= Self::PAIRS_OF_ONE {
            return Err(InstallError::Full);
        }
        if aggregation.is_some_and(|aggregation| !aggregation.is_sound()) {
            return Err(InstallError::Aggregation);
        }
        // A rekeyed pair's peer is where the older one's is, if the keyer does not know better.
        let last = session.pairs.last().and_then(|&place| self.pairs.get(place)?.as_ref()?.peer);
        let (peer, only) = (peer.or(last), session.policy.only);
        if peer.is_some_and(|peer| only.is_some_and(|only| peer.socket != only)) {
            return Err(InstallError::Outside);
        }
        let pair = Box::new(Pair {
            session: id,
            inbound: InboundSa::new(spi, &in_keys, extended, provider).map_err(|_| InstallError::Keys)?,
            outbound: OutboundSa::new(out_spi, &out_keys, extended, provider)
                .map_err(|_| InstallError::Keys)?,
            peer,
            only,
            aggregation: aggregation.map(|aggregation| (aggregation, Box::new(Reassembler::new()))),
            settles: (!answered).then(|| now.saturating_add(Self::SETTLE)),
            confirmed: false,
            retires: None,
            packets: (0, 0),
            bytes: (0, 0),
        });
        let place = self.free.pop().unwrap_or_else(|| {
            self.pairs.push(None);
            self.pairs.len() - 1
        });
        if let Some(free) = self.pairs.get_mut(place) {
            *free = Some(pair);
        }
        self.by_spi.insert(spi, place);
        session.pairs.push(place);
        if aggregation.is_some() && !self.gathering.contains(&id) {
            self.gathering.push(id);
        }
        Ok(())
    }

    /// Has packets leave by another pair of its session than that with this inbound SPI, where there is one; what arrives by it is taken as
    /// before (RFC 7296 2.8: the peer has asked to close it). After [`Self::SETTLE`], in which the peer is heard by the other or has taken
    /// that into use at least: who asks to close a pair may still be about to. Answers whether it is there.
    pub fn retire(&mut self, now: Duration, spi: Spi) -> bool {
        let place = self.by_spi.get(&spi).copied();
        let pair = place.and_then(|place| self.pairs.get_mut(place)?.as_mut());
        pair.map(|pair| pair.retires = Some(now.saturating_add(Self::SETTLE))).is_some()
    }

    /// Erases the pair with this inbound SPI; answers whose it was.
    pub fn delete(&mut self, spi: Spi) -> Option<K> {
        let place = *self.by_spi.get(&spi)?;
        let id = self.remove(place)?;
        if let Some(session) = self.sessions.get_mut(&id) {
            session.pairs.retain(|&other| other != place);
        }
        Some(id)
    }

    fn remove(&mut self, place: usize) -> Option<K> {
        let pair = self.pairs.get_mut(place)?.take()?;
        self.free.push(place);
        self.by_spi.remove(&pair.inbound.spi());
        self.expiring.retain(|(spi, _)| *spi != pair.inbound.spi());
        Some(pair.session)
    }

    /// Opens the datagram at `buffer[from..]` that came from `sender` with this ECN field outside, checks what was
    /// in it against the session's selectors, and leaves it at the start of `buffer`.
    ///
    /// # Errors
    /// The reason why it is dropped, counted already; the content of `buffer` is then unspecified.
    pub fn open(
        &mut self,
        now: Duration,
        buffer: &mut [u8],
        from: usize,
        sender: Outer,
        outer_ecn: u8,
    ) -> Result<Opened<K>, DropReason> {
        let opened = self.try_open(now, buffer, from, sender, outer_ecn);
        match &opened {
            Ok(opened) => {
                self.counters.packets_in += 1;
                self.counters.bytes_in += opened.inner.length as u64;
            }
            Err(reason) => self.counters.count(*reason),
        }
        opened
    }

    fn try_open(
        &mut self,
        now: Duration,
        buffer: &mut [u8],
        from: usize,
        sender: Outer,
        outer_ecn: u8,
    ) -> Result<Opened<K>, DropReason> {
        let (place, Decrypted { length, next_header, .. }, moved) = self.decrypt(buffer, from, sender)?;
        let packet = buffer.get_mut(..length).ok_or(DropReason::Malformed)?;
        let Some(Some(pair)) = self.pairs.get_mut(place) else { return Err(DropReason::UnknownSpi) };
        if next_header == DUMMY {
            return Err(DropReason::Dummy);
        }
        // RFC 9347 2.2.4: an association carries AGGFRAG payloads alone, or none.
        let known = [IpVersion::V4, IpVersion::V6].iter().any(|version| version.next_header() == next_header);
        if !known || pair.aggregation.is_some() {
            return Err(DropReason::BadNextHeader);
        }
        let session = self.sessions.get_mut(&pair.session).ok_or(DropReason::NoSession)?;
        let inner = session.admit(now, self.side, packet, outer_ecn, Some(next_header))?;
        pair.packets.0 += 1;
        pair.bytes.0 += inner.length as u64;
        Ok(Opened { session: pair.session, inner, moved })
    }

    /// Opens a datagram; answers the place of its pair, and whether the peer has moved.
    fn decrypt(
        &mut self,
        buffer: &mut [u8],
        from: usize,
        sender: Outer,
    ) -> Result<(usize, Decrypted, bool), DropReason> {
        let datagram = buffer.get(from..).ok_or(DropReason::Truncated)?;
        if datagram.len() < 4 {
            return Err(DropReason::Truncated);
        }
        let spi = Spi::of(datagram).ok_or(DropReason::UnknownSpi)?;
        let place = self.by_spi.get(&spi).copied();
        let (place, pair) = match place.and_then(|place| Some((place, self.pairs.get_mut(place)?))) {
            Some((place, Some(pair))) => (place, pair),
            _ => return Err(DropReason::UnknownSpi),
        };
        // Before anything is done with it: what comes elsewhere neither moves the peer nor uses up a number.
        if pair.only.is_some_and(|only| sender.socket != only) {
            return Err(DropReason::Outside);
        }
        let decrypted = pair.inbound.open(buffer, from)?;
        pair.confirmed = true;
        // RFC 7296 2.23: the end that is not behind a NAT follows the one that is, on authenticated packets alone;
        // an older packet that arrives late says nothing about now.
        let moved = decrypted.newest
            && pair.peer != Some(sender)
            && match self.side {
                Side::Server => true,
                Side::Workstation => pair.peer.is_none(),
            };
        if moved {
            pair.peer = Some(sender);
        }
        Ok((place, decrypted, moved))
    }

    /// Where a packet that came from the device goes. Checked before anything waits or is asked for, so that a packet
    /// that may not pass causes nothing.
    ///
    /// # Errors
    /// The reason why it is dropped, counted already.
    pub fn route(&mut self, now: Duration, inner: &Inner) -> Result<Route<'_, K>, DropReason> {
        // Looked up twice, because a borrow that is returned from one branch lasts through all of them.
        let found = self.find(now, inner).map(|Found { id, step, through }| {
            // What waits has not passed: it is looked at anew when there are keys, and the fragments behind it do not pass before it.
            if let Some(session) = self.sessions.get_mut(&id).filter(|_| through.is_some()) {
                session.trails.take(now, step);
            }
            (id, through)
        });
        match found {
            Ok((id, Some((place, peer)))) => match self.pairs.get_mut(place) {
                Some(Some(pair)) if pair.aggregation.is_some() => Ok(Route::Gather(id)),
                Some(Some(pair)) => Ok(Route::Through(Lane {
                    pair,
                    counters: &mut self.counters,
                    expiring: &mut self.expiring,
                    version: inner.version,
                    peer,
                })),
                _ => {
                    self.counters.count(DropReason::NoSa);
                    Err(DropReason::NoSa)
                }
            },
            Ok((id, None)) => Ok(Route::Wait(id)),
            Err(reason) => {
                self.counters.count(reason);
                Err(reason)
            }
        }
    }

    /// Whose a packet from the device is, what its passing changes, and the pair it goes through.
    fn find(&self, now: Duration, inner: &Inner) -> Result<Found<K>, DropReason> {
        let address = match self.side {
            Side::Server => inner.destination,
            Side::Workstation => inner.source,
        };
        let id = *self.by_address.get(&address).ok_or(DropReason::NoSession)?;
        let session = self.sessions.get(&id).ok_or(DropReason::NoSession)?;
        let (id, session, step) = match session.step(now, inner, Direction::Out) {
            Ok(step) => (id, session, step),
            Err(why) => self.other_part(now, &address, inner).ok_or(why)?,
        };
        match self.chosen(now, session) {
            None => Ok(Found { id, step, through: None }),
            Some((place, pair)) => {
                let peer = pair.peer.ok_or(DropReason::NoPeer)?;
                Ok(Found { id, step, through: Some((place, peer)) })
            }
        }
    }

    /// On a workstation: the part of the session, at another server, that a packet may go to.
    fn other_part(&self, now: Duration, address: &IpAddr, inner: &Inner) -> Option<(K, &Session, Step)> {
        let parts = self.sessions.iter().filter(|_| self.side == Side::Workstation);
        let mut parts = parts.filter(|(_, session)| session.policy.inner.contains(address));
        parts.find_map(|(&id, session)| Some((id, session, session.step(now, inner, Direction::Out).ok()?)))
    }

    /// The pair by which a session's packets leave.
    fn chosen(&self, now: Duration, session: &Session) -> Option<(usize, &Pair<K>)> {
        let pair = |place: &usize| self.pairs.get(*place).and_then(|pair| Some((*place, &**pair.as_ref()?)));
        let settled = |pair: &Pair<K>| pair.confirmed || pair.settles.is_some_and(|at| at <= now);
        let newest_first = || session.pairs.iter().rev().filter_map(pair);
        let current = || newest_first().filter(|(_, pair)| pair.retires.is_none_or(|at| now < at));
        current()
            .find(|(_, pair)| settled(pair))
            // None has settled: then the oldest is the likeliest to be known to the peer.
            .or_else(|| current().next_back())
            .or_else(|| newest_first().next())
    }

    /// Keeps a copy of what [`Self::route`] said must wait. True when keys should be asked for now.
    pub fn hold(&mut self, now: Duration, id: K, packet: &[u8]) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else {
            self.counters.count(DropReason::NoSession);
            return false;
        };
        self.counters.count_many(DropReason::NoSa, session.waiting.push(now, packet));
        self.waiting = true;
        let ask = session.asked.is_none_or(|asked| now.saturating_sub(asked) >= Self::ASK_AGAIN);
        if ask {
            session.asked = Some(now);
        }
        ask
    }

    /// The next packet of this session that waited; to be routed anew.
    pub fn release(&mut self, id: K) -> Option<Zeroizing<Vec<u8>>> {
        self.sessions.get_mut(&id)?.waiting.pop()
    }

    /// Drops packets that have waited too long. To be called about once a second.
    pub fn expire(&mut self, now: Duration) {
        if !self.waiting {
            return;
        }
        let mut dropped = 0;
        self.waiting = false;
        for session in self.sessions.values_mut() {
            dropped += session.waiting.expire(now);
            self.waiting |= !session.waiting.is_empty();
        }
        self.counters.count_many(DropReason::WaitedTooLong, dropped);
    }

    /// Whether a packet may be waiting for keys; exact after [`Self::expire`].
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.waiting
    }

    /// A pair that is near the end of its sequence numbers, each named once.
    pub fn next_expiring(&mut self) -> Option<(Spi, K)> {
        self.expiring.pop()
    }

    /// Every pair, in no order.
    pub fn pairs(&self) -> impl Iterator<Item = PairView<K>> + '_ {
        self.pairs.iter().flatten().map(|pair| PairView {
            session: pair.session,
            inbound: pair.inbound.spi(),
            outbound: pair.outbound.spi(),
            suite: pair.outbound.suite(),
            aggregation: pair.aggregation.as_ref().map(|(aggregation, _)| *aggregation),
            peer: pair.peer.map(|peer| peer.address),
            packets: pair.packets,
            bytes: pair.bytes,
        })
    }

    /// How many pairs there are.
    #[must_use]
    pub fn pair_count(&self) -> usize {
        self.by_spi.len()
    }
}

impl Session {
    /// Whether an inner packet that came through one of this session's associations may go on; marks congestion on it.
    /// `version`: ESP's next header field, where there was one for it.
    fn admit(
        &mut self,
        now: Duration,
        side: Side,
        packet: &mut [u8],
        outer_ecn: u8,
        version: Option<u8>,
    ) -> Result<Inner, DropReason> {
        let inner = Inner::parse(packet)?;
        if version.is_some_and(|version| version != inner.version.next_header()) {
            return Err(DropReason::Malformed);
        }
        let own = match side {
            Side::Server => inner.source,
            Side::Workstation => inner.destination,
        };
        if !self.policy.inner.contains(&own) {
            return Err(DropReason::Selector);
        }
        let step = self.step(now, &inner, Direction::In)?;
        let before = ecn::of(packet);
        let after = ecn::decapsulated(before, outer_ecn)?;
        if after != before {
            ecn::set(packet, after);
        }
        self.trails.take(now, step);
        Ok(inner)
    }

    /// Whether the selectors let a packet pass, and of a fragment that they cannot judge alone those before it; what that one changes
    /// when it has passed (RFC 4301 7.3).
    fn step(&self, now: Duration, inner: &Inner, direction: Direction) -> Result<Step, DropReason> {
        if inner.labelled {
            return Err(DropReason::Labelled);
        }
        match self.policy.selectors.verdict(inner, direction) {
            Verdict::No => Err(DropReason::Selector),
            Verdict::Freely => Ok(Step::Nothing),
            Verdict::ByPorts if inner.fragment == Fragment::Whole => Ok(Step::Nothing),
            Verdict::ByPorts | Verdict::ByTrail => {
                self.trails.step(now, direction, inner).ok_or(DropReason::Fragment)
            }
        }
    }
}

impl<K: Copy> Lane<'_, K> {
    /// Whose packets these are.
    #[must_use]
    pub fn session(&self) -> K {
        self.pair.session
    }

    /// Where its datagrams go.
    #[must_use]
    pub fn peer(&self) -> Outer {
        self.peer
    }

    /// Seals the packet at `buffer[ESP_HEADER..][..length]`, of the flow that was routed, where it lies.
    ///
    /// # Errors
    /// The reason why it is dropped, counted already.
    pub fn seal(&mut self, buffer: &mut [u8], length: usize) -> Result<Sealed, DropReason> {
        let sealed = self.pair.outbound.seal(buffer, length, self.version.next_header());
        if self.pair.outbound.is_expiring() {
            self.expiring.push((self.pair.inbound.spi(), self.pair.session));
        }
        match sealed {
            Ok(sealed) => {
                for packets in [&mut self.pair.packets.1, &mut self.counters.packets_out] {
                    *packets += 1;
                }
                for bytes in [&mut self.pair.bytes.1, &mut self.counters.bytes_out] {
                    *bytes += length as u64;
                }
                Ok(Sealed { length: sealed, peer: self.peer })
            }
            Err(reason) => {
                self.counters.count(reason);
                Err(reason)
            }
        }
    }
}

#[cfg(test)]
mod tests;
