//! Making payloads.

use std::collections::VecDeque;

use zeroize::Zeroizing;

use crate::DropReason;
use crate::aggfrag::HEADER;

/// Packets that wait to leave in AGGFRAG payloads; erased when dropped.
pub struct Packer {
    /// Octets of a payload, its header included.
    payload: usize,
    fragment: bool,
    /// Packets one behind the other, from `at` to `end`. Never grows, so that no copy is left behind.
    bytes: Zeroizing<Vec<u8>>,
    at: usize,
    end: usize,
    /// Octets left of a packet whose beginning has gone.
    begun: usize,
    /// Lengths of the packets behind that one.
    lengths: VecDeque<usize>,
}

impl Packer {
    /// The most octets that wait.
    pub const LIMIT: usize = 128 * 1024;

    /// Payloads of `payload` octets at most, their header included; `fragment`: a packet may go in pieces.
    #[must_use]
    pub fn new(payload: usize, fragment: bool) -> Self {
        Self {
            payload: payload.max(HEADER + 1),
            fragment,
            bytes: Zeroizing::new(vec![0; Self::LIMIT]),
            at: 0,
            end: 0,
            begun: 0,
            lengths: VecDeque::new(),
        }
    }

    /// Octets that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.end - self.at
    }

    /// Packets of which nothing has gone.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.lengths.len() as u64
    }

    /// Whether the end of a packet has still to go, whose beginning is gone.
    #[must_use]
    pub fn is_amid_a_packet(&self) -> bool {
        self.begun > 0
    }

    /// Whether what waits fills a payload.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting() >= self.room()
    }

    fn room(&self) -> usize {
        self.payload - HEADER
    }

    /// Adds an inner packet, which must be as long as its own header says.
    ///
    /// # Errors
    /// [`DropReason::Oversize`] when it never fits, [`DropReason::QueueFull`] when too much waits.
    pub fn push(&mut self, packet: &[u8]) -> Result<(), DropReason> {
        self.push_with(packet.len(), |place| {
            place.copy_from_slice(packet);
            true
        })
    }

    /// As [`Self::push`], a packet of `length` octets that `write` lays in its place.
    ///
    /// # Errors
    /// As there, and [`DropReason::Malformed`] when `write` finds that there is no such packet.
    pub fn push_with(
        &mut self,
        length: usize,
        write: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), DropReason> {
        if length > usize::from(u16::MAX) || (!self.fragment && length > self.room()) {
            return Err(DropReason::Oversize);
        }
        if length == 0 {
            return Ok(());
        }
        if self.waiting() + length > Self::LIMIT {
            return Err(DropReason::QueueFull);
        }
        if self.end + length > Self::LIMIT {
            self.bytes.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.waiting());
        }
        let end = self.end + length;
        let place = self.bytes.get_mut(self.end..end).ok_or(DropReason::QueueFull)?;
        if !write(place) {
            return Err(DropReason::Malformed);
        }
        self.end = end;
        self.lengths.push_back(length);
        Ok(())
    }

    /// Writes the next payload to the start of `out` and answers its length: as much as fits of what waits, with
    /// `finish` no more than the end of the packet whose beginning has gone. With `fixed` it has always the same
    /// length, padded if need be, even if nothing waits (RFC 9347 2.2.3): else `None` when there is nothing.
    pub fn payload(&mut self, out: &mut [u8], fixed: bool, finish: bool) -> Option<usize> {
        let out = out.get_mut(..self.payload)?;
        let (header, blocks) = out.split_first_chunk_mut::<HEADER>()?;
        // What is begun is the rest of a packet of at most 65,535 octets.
        let [o0, o1] = (self.begun as u16).to_be_bytes();
        *header = [0, 0, o0, o1];
        let mut used = 0;
        while used < blocks.len() {
            if self.begun == 0 {
                match self.lengths.front() {
                    Some(&length) if !finish && (self.fragment || length <= blocks.len() - used) => {
                        self.begun = length;
                        self.lengths.pop_front();
                    }
                    _ => break,
                }
            }
            let take = self.begun.min(blocks.len() - used);
            let from = self.bytes.get(self.at..self.at + take)?;
            blocks.get_mut(used..used + take)?.copy_from_slice(from);
            self.begun -= take;
            self.at += take;
            used += take;
        }
        if self.at == self.end {
            (self.at, self.end) = (0, 0);
        }
        if fixed {
            // RFC 9347 6.1.4: a block that begins with zero is padding to the end.
            blocks.get_mut(used..)?.fill(0);
            return Some(self.payload);
        }
        (used > 0).then_some(HEADER + used)
    }

    /// Forgets the end of a packet whose beginning has gone by a way that is no more; whether there was one.
    pub fn abandon(&mut self) -> bool {
        self.at += self.begun;
        core::mem::take(&mut self.begun) > 0
    }
}
