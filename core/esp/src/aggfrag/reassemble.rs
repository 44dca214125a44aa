//! Taking payloads apart.

use zeroize::Zeroizing;

use crate::aggfrag::Header;
use crate::{DropReason, ecn};

/// Outer packets whose pieces are kept, and with them how far apart the first and the last piece of one packet may be.
const SLOTS: u64 = 256;

/// The most octets of pieces that are kept.
const HELD: usize = 256 * 1024;

/// A slot's room beyond this is given back when the slot is used anew.
const KEPT: usize = 2_048;

/// The longest inner packet: IPv6, with a payload of 16 bits.
const LONGEST: usize = 40 + 65_535;

/// What an outer packet is to those beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing known: not arrived, or given up.
    Missing,
    /// Nothing but padding, which may stand between the pieces of a packet (RFC 9347 2.2.3).
    Padding,
    /// Nothing but the middle of one packet.
    Middle,
    /// The end of a packet, or the beginning of another, or both.
    Edge,
}

struct Slot {
    sequence: u64,
    kind: Kind,
    /// The end (or middle) of a packet, then the beginning of another.
    bytes: Zeroizing<Vec<u8>>,
    /// Octets of the former; 0 once they are used.
    head: usize,
    /// Where the latter begins; `bytes.len()` when there is none or it is used.
    tail: usize,
    ecn: u8,
}

impl Slot {
    fn has_tail(&self) -> bool {
        self.tail < self.bytes.len()
    }
}

/// Finds the whole packets in AGGFRAG payloads. Payloads may come in any order: packets that lie whole in one payload
/// are passed on at once, pieces are kept until the others have come, at most 256 payloads and 256 KiB of them.
pub struct Reassembler {
    slots: Vec<Slot>,
    /// The highest sequence number seen.
    newest: u64,
    /// Octets in the slots.
    held: usize,
    whole: Zeroizing<Vec<u8>>,
}

impl Default for Reassembler {
    fn default() -> Self {
        Self::new()
    }
}

impl Reassembler {
    /// Before the first payload.
    #[must_use]
    pub fn new() -> Self {
        let slot = || Slot {
            sequence: 0,
            kind: Kind::Missing,
            bytes: Zeroizing::new(Vec::new()),
            head: 0,
            tail: 0,
            ecn: 0,
        };
        Self {
            slots: (0..SLOTS).map(|_| slot()).collect(),
            newest: 0,
            held: 0,
            whole: Zeroizing::new(Vec::with_capacity(LONGEST)),
        }
    }

    /// Octets that are kept.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Takes the payload of the outer packet with this (whole) sequence number, each of which comes at most once, and
    /// ECN field. Every inner packet that is now whole goes to `pass` with the ECN field of what it came in, every
    /// reason to drop one to `drop`.
    pub fn take(
        &mut self,
        payload: &mut [u8],
        sequence: u64,
        outer_ecn: u8,
        mut pass: impl FnMut(&mut [u8], u8),
        mut drop: impl FnMut(DropReason),
    ) {
        let header = match Header::parse(payload) {
            Ok(header) => header,
            Err(reason) => return drop(reason),
        };
        let Some(blocks) = payload.get_mut(header.length..) else { return drop(DropReason::Malformed) };
        let head = header.offset.min(blocks.len());
        let (end, starting) = blocks.split_at_mut(head);
        let kind = if head == 0 && starting.first().is_none_or(|first| first >> 4 == 0) {
            Kind::Padding
        } else if header.offset > end.len() {
            Kind::Middle
        } else {
            Kind::Edge
        };
        let (whole, tail, malformed) = split(starting);
        if malformed {
            drop(DropReason::Malformed);
        }
        let Some(begun) = starting.get(whole..tail) else { return };
        let keep = self.admits(sequence, end.len() + begun.len(), &mut drop);
        if keep {
            self.put(sequence, kind, end, begun, outer_ecn);
            // In the order in which they were sent: the one that ends here before those that begin here.
            self.complete(sequence, &mut pass, &mut drop);
        } else if !end.is_empty() || !begun.is_empty() {
            drop(DropReason::FragmentLost);
        }
        let mut rest = starting.get_mut(..whole).unwrap_or(&mut []);
        while let Some(length) = length_of(rest).filter(|length| *length <= rest.len()) {
            let (packet, behind) = rest.split_at_mut(length);
            pass(packet, outer_ecn);
            rest = behind;
        }
        if keep {
            // What begins here may end in a packet that has overtaken this one.
            self.complete_from(sequence, &mut pass, &mut drop);
        }
    }

    fn slot(&self, sequence: u64) -> Option<&Slot> {
        // Smaller than SLOTS.
        self.slots.get((sequence % SLOTS) as usize).filter(|slot| slot.sequence == sequence)
    }

    fn slot_mut(&mut self, sequence: u64) -> Option<&mut Slot> {
        self.slots.get_mut((sequence % SLOTS) as usize)
    }

    fn kind(&self, sequence: u64) -> Kind {
        self.slot(sequence).map_or(Kind::Missing, |slot| slot.kind)
    }

    /// Whether pieces of this outer packet can be kept; makes room for them.
    fn admits(&mut self, sequence: u64, octets: usize, drop: &mut impl FnMut(DropReason)) -> bool {
        if sequence.saturating_add(SLOTS) <= self.newest {
            return false;
        }
        // Those that leave the window, each once.
        let first = self.newest.saturating_add(1).max(sequence.saturating_sub(SLOTS - 1));
        for gone in first..=sequence {
            self.clear(gone, drop);
        }
        self.newest = self.newest.max(sequence);
        self.clear(sequence, drop);
        // The end of a packet and the beginning of another are far fewer than all that may be kept.
        for oldest in self.newest.saturating_sub(SLOTS - 1)..=self.newest {
            if self.held + octets <= HELD {
                break;
            }
            if self.slot(oldest).is_some() {
                self.clear(oldest, drop);
            }
        }
        true
    }

    /// Empties the slot of `sequence`, whatever is in it.
    fn clear(&mut self, sequence: u64, drop: &mut impl FnMut(DropReason)) {
        let Some(slot) = self.slot_mut(sequence) else { return };
        let octets = slot.bytes.len();
        if slot.head > 0 || slot.has_tail() {
            drop(DropReason::FragmentLost);
        }
        if slot.bytes.capacity() > KEPT {
            slot.bytes = Zeroizing::new(Vec::new());
        }
        slot.bytes.clear();
        (slot.kind, slot.head, slot.tail) = (Kind::Missing, 0, 0);
        self.held -= octets;
    }

    fn put(&mut self, sequence: u64, kind: Kind, end: &[u8], tail: &[u8], ecn: u8) {
        let Some(slot) = self.slot_mut(sequence) else { return };
        let octets = end.len() + tail.len();
        if slot.bytes.capacity() < octets {
            // Not grown, which would leave a copy behind.
            slot.bytes = Zeroizing::new(Vec::with_capacity(octets));
        }
        slot.bytes.extend_from_slice(end);
        slot.bytes.extend_from_slice(tail);
        (slot.sequence, slot.kind, slot.head, slot.tail) = (sequence, kind, end.len(), end.len());
        slot.ecn = ecn;
        self.held += octets;
    }

    /// The outer packet with the end of what goes on behind `sequence`, if it and all between have come.
    fn end_behind(&self, sequence: u64) -> Option<u64> {
        (sequence.saturating_add(1)..=self.newest).find_map(|at| match self.kind(at) {
            Kind::Missing => Some(None),
            Kind::Padding | Kind::Middle => None,
            Kind::Edge => Some(Some(at)),
        })?
    }

    /// The outer packet with the beginning of what `sequence` goes on with, if it and all between have come.
    fn beginning_before(&self, sequence: u64) -> Option<u64> {
        let oldest = self.newest.saturating_sub(SLOTS - 1).max(1);
        (oldest..sequence).rev().find_map(|at| match self.kind(at) {
            Kind::Missing => Some(None),
            Kind::Padding | Kind::Middle => None,
            Kind::Edge => Some(Some(at)),
        })?
    }

    /// Passes the packet on that ends in `sequence` or goes through it, if all of it is here.
    fn complete(
        &mut self,
        sequence: u64,
        pass: &mut impl FnMut(&mut [u8], u8),
        drop: &mut impl FnMut(DropReason),
    ) {
        // Forwards first: what comes in order has nothing behind it, and that is seen at once.
        let end = match self.slot(sequence) {
            Some(slot) if slot.kind == Kind::Edge => Some(sequence),
            Some(_) => self.end_behind(sequence),
            None => None,
        };
        if let Some(end) = end.filter(|end| self.slot(*end).is_some_and(|slot| slot.head > 0))
            && let Some(beginning) = self.beginning_before(sequence)
            && self.slot(beginning).is_some_and(Slot::has_tail)
        {
            self.join(beginning, end, pass, drop);
        }
    }

    /// Passes the packet on that begins in `sequence` and does not end there, if all of it is here.
    fn complete_from(
        &mut self,
        sequence: u64,
        pass: &mut impl FnMut(&mut [u8], u8),
        drop: &mut impl FnMut(DropReason),
    ) {
        if self.slot(sequence).is_some_and(Slot::has_tail)
            && let Some(end) = self.end_behind(sequence)
            && self.slot(end).is_some_and(|slot| slot.head > 0)
        {
            self.join(sequence, end, pass, drop);
        }
    }

    /// Joins the pieces from the end of `beginning` to the start of `end`. All between are there.
    fn join(
        &mut self,
        beginning: u64,
        end: u64,
        pass: &mut impl FnMut(&mut [u8], u8),
        drop: &mut impl FnMut(DropReason),
    ) {
        let mut whole = core::mem::take(&mut self.whole);
        whole.clear();
        let (mut mark, mut fits) = (0, true);
        for at in beginning..=end {
            let Some(slot) = self.slot_mut(at) else { continue };
            let piece = if at == beginning {
                let from = core::mem::replace(&mut slot.tail, slot.bytes.len());
                slot.bytes.get(from..)
            } else {
                slot.bytes.get(..core::mem::take(&mut slot.head))
            };
            let piece = piece.unwrap_or(&[]);
            if at == beginning || slot.ecn == ecn::CE {
                mark = slot.ecn;
            }
            fits &= whole.len() + piece.len() <= LONGEST;
            if fits {
                whole.extend_from_slice(piece);
            }
            // What is used makes room for others. (Which of the slot's pieces there were stays known.)
            if slot.head == 0 && !slot.has_tail() {
                let used = slot.bytes.len();
                slot.bytes.clear();
                slot.tail = 0;
                self.held -= used;
            }
        }
        // Else these were pieces of more than one packet.
        if fits && length_of(&whole) == Some(whole.len()) {
            pass(&mut whole, mark);
        } else {
            drop(DropReason::Malformed);
        }
        self.whole = whole;
    }
}

/// Bytes of the packet at the start of `bytes` by its own header; `None` when too little of it is there to say, when it
/// is padding, or no packet.
fn length_of(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [first, _, a, b, ..] if first >> 4 == 4 => {
            Some(usize::from(u16::from_be_bytes([*a, *b]))).filter(|length| *length >= 20)
        }
        [first, _, _, _, a, b, ..] if first >> 4 == 6 => Some(40 + usize::from(u16::from_be_bytes([*a, *b]))),
        _ => None,
    }
}

/// Where the packets that lie whole at the start of `blocks` end, and where the beginning of one behind them does; the
/// two are one where nothing or padding follows. The flag says that something follows that is neither.
fn split(blocks: &[u8]) -> (usize, usize, bool) {
    let mut at = 0;
    loop {
        let rest = blocks.get(at..).unwrap_or(&[]);
        match (length_of(rest), rest.first().map(|first| first >> 4)) {
            (Some(length), _) if length <= rest.len() => at += length,
            (Some(_), _) => return (at, blocks.len(), false),
            // Too little of a header to say how long.
            (None, Some(4)) if rest.len() < 4 => return (at, blocks.len(), false),
            (None, Some(6)) => return (at, blocks.len(), false),
            (None, None | Some(0)) => return (at, at, false),
            (None, Some(_)) => return (at, at, true),
        }
    }
}
