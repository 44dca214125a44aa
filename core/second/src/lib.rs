//! ESP (RFC 4303) opened and checked by code written a second time, for labels whose stacks must agree.
//!
//! The first stack is `levee-esp`; of it, this crate has the trait of an AEAD and the names of the suites, and not a line of
//! packet code: sequence numbers, padding, headers, selectors and ECN are read here anew, plainly, with copies and
//! sets, where the first one works in place. It is a server's end of tunnels alone, without AGGFRAG.
//!
//! [`Second::open`] says what is in a datagram; [`Second::agrees`] says whether a datagram that the first stack sealed is
//! what should leave.
//!
//! It may not share packet code with the first stack, nor decide anything. Begin reading with `lib.rs`, then `plain.rs`.
#![forbid(unsafe_code)]

mod association;
mod fragments;
mod packet;
mod plain;
mod policy;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use levee_esp::{AeadProvider, Suite};

use association::{Inbound, Outbound};
use fragments::Wakes;
use packet::Packet;
use policy::Says;

pub use association::Half;
pub use plain::Plain;
pub use policy::Row;

/// An address outside the tunnel, and the number of the socket that reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Address and port.
    pub address: SocketAddr,
    /// The socket.
    pub socket: u8,
}

/// Why keys are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such session.
    NoSession,
    /// The SPI is reserved.
    Spi,
    /// The SPI is in use.
    SpiInUse,
    /// The keying material is not of the suite's length.
    Keys,
}

/// A session, with its pairs' inbound SPIs, oldest first.
struct Session {
    inner: Vec<IpAddr>,
    rows: Vec<Row>,
    pairs: Vec<u32>,
    wakes: Wakes,
}

impl Session {
    fn says(&self, packet: &Packet, local: IpAddr, remote: IpAddr, inward: bool) -> Says {
        let rows = self.rows.iter().map(|row| row.says(packet, local, remote, inward));
        rows.max().unwrap_or(Says::No)
    }

    /// Whether a packet may pass whose end on the server's side is `local`; `inward`: it comes from the tunnel.
    fn allows(&self, now: Duration, packet: &Packet, local: IpAddr, remote: IpAddr, inward: bool) -> bool {
        if packet.names_label {
            // Its label is that of the association (RFC 9478).
            return false;
        }
        match self.says(packet, local, remote, inward) {
            Says::No => false,
            Says::Yes => true,
            Says::ForPorts if packet.part.is_none() => true,
            Says::ForPorts | Says::PortsElsewhere => self.wakes.allows(now, inward, packet),
        }
    }

    /// It has passed.
    fn passed(&mut self, now: Duration, packet: &Packet, local: IpAddr, remote: IpAddr, inward: bool) {
        if self.says(packet, local, remote, inward) != Says::Yes {
            self.wakes.note(now, inward, packet);
        }
    }
}

/// A pair of associations.
struct Pair<K> {
    session: K,
    inbound: Inbound,
    outbound: Outbound,
    peer: Option<Outer>,
}

/// The sessions and keys of one label.
pub struct Second<K> {
    sessions: BTreeMap<K, Session>,
    pairs: BTreeMap<u32, Pair<K>>,
}

impl<K: Copy + Ord> Default for Second<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Copy + Ord> Second<K> {
    /// Nothing passes yet.
    #[must_use]
    pub fn new() -> Self {
        Self { sessions: BTreeMap::new(), pairs: BTreeMap::new() }
    }

    /// Takes a session, or replaces what is known of it. False if a row makes no sense or another session has one of
    /// the addresses; nothing has changed then.
    pub fn open_session(&mut self, id: K, inner: Vec<IpAddr>, rows: Vec<Row>) -> bool {
        let taken = |(other, session): (&K, &Session)| {
            *other != id && session.inner.iter().any(|a| inner.contains(a))
        };
        if !rows.iter().all(Row::is_sound) || self.sessions.iter().any(taken) {
            return false;
        }
        let pairs = self.sessions.remove(&id).map_or_else(Vec::new, |session| session.pairs);
        self.sessions.insert(id, Session { inner, rows, pairs, wakes: Wakes::default() });
        true
    }

    /// Ends a session; its keys are erased when this returns.
    pub fn close_session(&mut self, id: K) {
        for spi in self.sessions.remove(&id).map_or_else(Vec::new, |session| session.pairs) {
            self.pairs.remove(&spi);
        }
    }

    /// Takes the keys of a pair.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    #[expect(clippy::too_many_arguments, reason = "each is one thing that the keyer says")]
    pub fn install(
        &mut self,
        id: K,
        suite: Suite,
        extended: bool,
        inbound: Half<'_>,
        outbound: Half<'_>,
        peer: Option<Outer>,
        library: &dyn AeadProvider,
    ) -> Result<(), Refused> {
        let session = self.sessions.get_mut(&id).ok_or(Refused::NoSession)?;
        let reserved = |half: Half<'_>| half.spi < 256;
        if reserved(inbound) || reserved(outbound) {
            return Err(Refused::Spi);
        }
        if self.pairs.contains_key(&inbound.spi) {
            return Err(Refused::SpiInUse);
        }
        let latest = session.pairs.last().and_then(|spi| self.pairs.get(spi)?.peer);
        let pair = Pair {
            session: id,
            inbound: Inbound::new(suite, extended, inbound, library).ok_or(Refused::Keys)?,
            outbound: Outbound::new(suite, extended, outbound, library).ok_or(Refused::Keys)?,
            peer: peer.or(latest),
        };
        self.pairs.insert(inbound.spi, pair);
        session.pairs.push(inbound.spi);
        Ok(())
    }

    /// Erases the pair of this inbound SPI, if there is one.
    pub fn delete(&mut self, spi: u32) {
        if let Some(pair) = self.pairs.remove(&spi)
            && let Some(session) = self.sessions.get_mut(&pair.session)
        {
            session.pairs.retain(|other| *other != spi);
        }
    }

    /// At `now`, opens a datagram that came from `from` with this ECN field outside: the inner packet, if it may pass.
    #[must_use]
    pub fn open(&mut self, now: Duration, datagram: &[u8], from: Outer, ecn: u8) -> Option<Plain> {
        let spi = u32::from_be_bytes(datagram.get(..4)?.try_into().ok()?);
        let pair = self.pairs.get_mut(&spi)?;
        let opened = pair.inbound.open(datagram)?;
        if opened.newest {
            // RFC 7296 2.23: a server follows a peer that moves.
            pair.peer = Some(from);
        }
        let (mut text, next) = association::unpadded(opened.text)?;
        let version = match next {
            4 | 41 => next,
            // Of a dummy packet (RFC 4303 2.6), and of whatever else, there is nothing to open.
            _ => return None,
        };
        let session = self.sessions.get_mut(&pair.session)?;
        let packet = Packet::read(&text)?;
        if packet.next_header() != version
            || !session.inner.contains(&packet.source)
            || !session.allows(now, &packet, packet.destination, packet.source, true)
        {
            return None;
        }
        let length = packet.length;
        text.truncate(length);
        packet::mark_congestion(&mut text, ecn)?;
        session.passed(now, &packet, packet.destination, packet.source, true);
        Some(text)
    }

    /// Whether `sealed`, to go to `to` with this ECN field outside, is exactly the packet from the device sealed under a
    /// pair of the session whose packet it is, with a sequence number that no packet has had.
    #[must_use]
    pub fn agrees(&mut self, now: Duration, packet: &[u8], sealed: &[u8], to: Outer, ecn: u8) -> bool {
        self.try_agree(now, packet, sealed, to, ecn).is_some()
    }

    fn try_agree(&mut self, now: Duration, bytes: &[u8], sealed: &[u8], to: Outer, ecn: u8) -> Option<()> {
        let packet = Packet::read(bytes)?;
        let bytes = bytes.get(..packet.length)?;
        let mut sessions = self.sessions.values_mut();
        let session = sessions.find(|session| session.inner.contains(&packet.destination))?;
        if !session.allows(now, &packet, packet.source, packet.destination, false) {
            return None;
        }
        let spi = u32::from_be_bytes(sealed.get(..4)?.try_into().ok()?);
        // An outbound SPI is the peer's choice: only one of this session's own counts.
        let of_this = |own: &&u32| {
            self.pairs.get(*own).is_some_and(|pair| pair.outbound.spi() == spi && pair.peer == Some(to))
        };
        // Two pairs of one session may have one: then the one that opens it.
        let own: Vec<u32> = session.pairs.iter().filter(of_this).copied().collect();
        for inbound in own {
            let Some(pair) = self.pairs.get_mut(&inbound) else { continue };
            let Some(text) = pair.outbound.check(sealed) else { continue };
            let (text, next) = association::unpadded(text)?;
            let same = next == packet.next_header() && *text == *bytes && ecn & 3 == packet.ecn;
            if same {
                session.passed(now, &packet, packet.source, packet.destination, false);
            }
            return same.then_some(());
        }
        None
    }
}
