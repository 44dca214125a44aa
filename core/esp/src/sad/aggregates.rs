//! Sessions whose packets go in AGGFRAG payloads (RFC 9347).

use core::time::Duration;

use zeroize::Zeroize as _;

use crate::aggfrag::{AGGFRAG, Packer, Schedule};
use crate::sa::{DUMMY, ESP_HEADER};
use crate::sad::{Outer, Pair, Sad, Sealed};
use crate::{DropReason, Inner, Spi};

/// What waits to leave, and when it leaves.
pub(super) struct Sender {
    packer: Packer,
    schedule: Option<Schedule>,
    /// The pair whose packets carry the pieces, by its inbound SPI.
    by: Spi,
    /// Octets of a payload.
    payload: usize,
    /// Packets leave by a pair of another form now: what waits here leaves at once, by the pair for which it was gathered.
    is_left: bool,
}

impl Sender {
    fn new<K>(now: Duration, pair: &Pair<K>) -> Option<Self> {
        let (aggregation, _) = pair.aggregation.as_ref()?;
        let payload = aggregation.payload();
        Some(Self {
            packer: Packer::new(payload, aggregation.fragment),
            schedule: aggregation.interval.map(|interval| Schedule::new(now, interval)),
            by: pair.inbound.spi(),
            payload,
            is_left: false,
        })
    }

    /// Whether what waits can as well leave by this pair: in payloads of the same size, by a rate or without.
    fn suits<K>(&self, pair: &Pair<K>) -> bool {
        pair.aggregation.as_ref().is_some_and(|(other, _)| {
            other.payload() == self.payload && other.interval.is_some() == self.schedule.is_some()
        })
    }

    /// Packets that have not gone, or not to their end.
    pub(super) fn left(&self) -> u64 {
        self.packer.packets() + u64::from(self.packer.is_amid_a_packet())
    }
}

/// A packet of an AGGFRAG association, ready to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathered<K> {
    /// Whose.
    pub session: K,
    /// The datagram.
    pub sealed: Sealed,
}

impl<K: Copy + Ord> Sad<K> {
    /// Whether this datagram is of an association that carries AGGFRAG payloads: for [`Self::open_aggregate`].
    #[must_use]
    pub fn is_aggregate(&self, datagram: &[u8]) -> bool {
        let pair = || self.pairs.get(*self.by_spi.get(&Spi::of(datagram)?)?)?.as_ref();
        !self.gathering.is_empty() && pair().is_some_and(|pair| pair.aggregation.is_some())
    }

    /// Opens the datagram at `buffer[from..]` of an association that carries AGGFRAG payloads, and passes on every inner
    /// packet that is now whole and that its session's selectors allow. The others are counted by their reasons.
    ///
    /// # Errors
    /// The reason why the datagram as a whole is dropped, counted already.
    pub fn open_aggregate(
        &mut self,
        now: Duration,
        buffer: &mut [u8],
        from: usize,
        sender: Outer,
        outer_ecn: u8,
        pass: impl FnMut(K, &Inner, &mut [u8]),
    ) -> Result<(), DropReason> {
        let opened = self.try_open_aggregate(now, buffer, from, sender, outer_ecn, pass);
        if let Err(reason) = opened {
            self.counters.count(reason);
        }
        opened
    }

    fn try_open_aggregate(
        &mut self,
        now: Duration,
        buffer: &mut [u8],
        from: usize,
        sender: Outer,
        outer_ecn: u8,
        mut pass: impl FnMut(K, &Inner, &mut [u8]),
    ) -> Result<(), DropReason> {
        let (place, decrypted, _) = self.decrypt(buffer, from, sender)?;
        let payload = buffer.get_mut(..decrypted.length).ok_or(DropReason::Malformed)?;
        let Some(Some(pair)) = self.pairs.get_mut(place) else { return Err(DropReason::UnknownSpi) };
        let Some((_, reassembler)) = &mut pair.aggregation else { return Err(DropReason::BadNextHeader) };
        match decrypted.next_header {
            AGGFRAG => {}
            DUMMY => return Err(DropReason::Dummy),
            _ => return Err(DropReason::BadNextHeader),
        }
        let id = pair.session;
        let session = self.sessions.get_mut(&id).ok_or(DropReason::NoSession)?;
        let (mut packets, mut bytes) = (0, 0);
        // Two closures count.
        let counters = core::cell::RefCell::new(&mut self.counters);
        let count = |reason| {
            if let Ok(mut counters) = counters.try_borrow_mut() {
                counters.count(reason);
            }
        };
        let side = self.side;
        let admit = |packet: &mut [u8], ecn| match session.admit(now, side, packet, ecn, None) {
            // As long as it says: so the reassembler finds where it ends.
            Ok(inner) => {
                packets += 1;
                bytes += inner.length as u64;
                pass(id, &inner, packet);
            }
            Err(reason) => count(reason),
        };
        reassembler.take(payload, decrypted.sequence, outer_ecn, admit, count);
        self.counters.packets_in += packets;
        self.counters.bytes_in += bytes;
        pair.packets.0 += packets;
        pair.bytes.0 += bytes;
        Ok(())
    }

    /// Adds a packet of `length` octets that [`Self::route`] said goes with others; `write` lays it in its place, and says
    /// whether it could.
    ///
    /// # Errors
    /// The reason why it is dropped, counted already.
    pub fn gather(
        &mut self,
        now: Duration,
        id: K,
        length: usize,
        write: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), DropReason> {
        let gathered = self.try_gather(now, id, length, write);
        if let Err(reason) = gathered {
            self.counters.count(reason);
        }
        gathered
    }

    fn try_gather(
        &mut self,
        now: Duration,
        id: K,
        length: usize,
        write: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), DropReason> {
        self.bind(now, id);
        let session = self.sessions.get_mut(&id).ok_or(DropReason::NoSession)?;
        let sender = session.sender.as_mut().ok_or(DropReason::NoSa)?;
        sender.packer.push_with(length, write)?;
        if let Some(Some(pair)) = self.by_spi.get(&sender.by).and_then(|&place| self.pairs.get_mut(place)) {
            pair.packets.1 += 1;
            pair.bytes.1 += length as u64;
        }
        self.counters.packets_out += 1;
        self.counters.bytes_out += length as u64;
        Ok(())
    }

    /// Makes a session's sender, or turns it to the pair by which packets leave now. A packet whose beginning went by
    /// another pair first goes to its end there, and so does all that waits where the new pair is of another form.
    fn bind(&mut self, now: Duration, id: K) {
        let Some(session) = self.sessions.get(&id) else { return };
        let Some((_, pair)) = self.chosen(now, session) else { return };
        let by = pair.inbound.spi();
        let fits = match &session.sender {
            Some(sender) if sender.by == by => return,
            Some(sender) => sender.suits(pair),
            None => false,
        };
        let is_there = session.sender.as_ref().is_some_and(|sender| self.by_spi.contains_key(&sender.by));
        let fresh = if fits { None } else { Some(Sender::new(now, pair)) };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        match (&mut session.sender, fresh) {
            (Some(sender), None) if is_there && sender.packer.is_amid_a_packet() => {}
            // The same figures: what waits goes on waiting, and the moments stay where they were.
            (Some(sender), None) => {
                self.counters.count_many(DropReason::NoSa, u64::from(sender.packer.abandon()));
                sender.by = by;
            }
            (Some(sender), Some(_)) if is_there && sender.packer.waiting() > 0 => sender.is_left = true,
            (sender, fresh) => {
                // What waited to go by a pair that is no more goes nowhere.
                let left = sender.as_ref().map_or(0, |sender| sender.left());
                self.counters.count_many(DropReason::NoSa, left);
                *sender = fresh.flatten().map(Box::new);
            }
        }
    }

    /// Seals the next AGGFRAG packet that may leave into `buffer`, which has room for [`crate::sealed_length`] of any
    /// payload. At a constant rate packets leave when they are due, full or not; else when they are full or, with
    /// `rest`, when there is anything. `None` when there is nothing more to send now.
    pub fn next_gathered(&mut self, now: Duration, rest: bool, buffer: &mut [u8]) -> Option<Gathered<K>> {
        for _ in 0..self.gathering.len() {
            let &id = self.gathering.first()?;
            self.bind(now, id);
            if let Some(gathered) = self.gathered(now, id, rest, buffer) {
                return Some(gathered);
            }
            // The others have their turn before this one's next.
            self.gathering.rotate_left(1);
        }
        None
    }

    fn gathered(&mut self, now: Duration, id: K, rest: bool, buffer: &mut [u8]) -> Option<Gathered<K>> {
        let session = self.sessions.get(&id)?;
        let chosen = self.chosen(now, session).map(|(_, pair)| pair.inbound.spi());
        let sender = self.sessions.get_mut(&id)?.sender.as_mut()?;
        let Some(Some(pair)) = self.by_spi.get(&sender.by).and_then(|&place| self.pairs.get_mut(place))
        else {
            return None;
        };
        let (finish, is_left) = (chosen != Some(sender.by), sender.is_left);
        let fixed = sender.schedule.is_some();
        // Where the peer is not known, nothing is due: there is nowhere to send it.
        let peer = pair.peer?;
        let leaves = match &mut sender.schedule {
            Some(schedule) if !is_left => schedule.is_due(now),
            _ => sender.packer.is_full() || finish || rest,
        };
        if !leaves {
            return None;
        }
        let length = sender.packer.payload(buffer.get_mut(ESP_HEADER..)?, fixed, finish && !is_left)?;
        let sealed = pair.outbound.seal(buffer, length, AGGFRAG);
        if pair.outbound.is_expiring() {
            self.expiring.push((pair.inbound.spi(), id));
        }
        match sealed {
            Ok(length) => Some(Gathered { session: id, sealed: Sealed { length, peer } }),
            Err(reason) => {
                // Not sealed, so it is still plaintext.
                if let Some(payload) = buffer.get_mut(ESP_HEADER..ESP_HEADER + length) {
                    payload.zeroize();
                }
                self.counters.count(reason);
                None
            }
        }
    }

    /// When the next packet of a constant rate is due; `None` when there is no such rate.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        let due = |id: &K| {
            let sender = self.sessions.get(id)?.sender.as_ref()?;
            // One that has nowhere to go is not waited for.
            let place = *self.by_spi.get(&sender.by)?;
            self.pairs.get(place)?.as_ref()?.peer?;
            Some(sender.schedule.as_ref()?.next())
        };
        self.gathering.iter().filter_map(due).min()
    }
}
