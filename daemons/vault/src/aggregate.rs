//! The data path of associations that carry AGGFRAG payloads (RFC 9347).

use std::ops::Range;
use std::time::Duration;

use levee_esp::offload::{Segments, Whole, complete_checksum};
use levee_esp::{DropReason, Gathered, Inner, Outer, ecn};
use levee_session::SessionId;

use crate::batch::{Full, To};
use crate::plane::{Plane, next_piece};

/// Room for another packet of the usual size in a batch; more than the path takes anyway.
const USUAL: usize = 9_000;

impl Plane {
    /// Adds a packet from the device, or the pieces of a super-segment, to what its session sends. Whether that was all of it: the turn may be over; `gone`
    /// then says how many pieces are done with.
    ///
    /// # Errors
    /// There is no room, since a socket is full; that was not all of it.
    pub(crate) fn gather(
        &mut self,
        now: Duration,
        id: SessionId,
        packet: &[u8],
        inner: &Inner,
        segments: Option<Segments<'_>>,
        checksum: Option<(usize, usize)>,
    ) -> Result<bool, Full> {
        let count = segments.map_or(1, |segments| segments.count());
        while self.gone < count {
            if !next_piece(&mut self.pieces) {
                return Ok(false);
            }
            // What fills a packet goes first, so that there is room.
            self.send_gathered(now, false)?;
            let number = self.gone;
            self.gone += 1;
            let length = segments.map_or(packet.len(), |segments| segments.length(number));
            // A drop is counted where it is found.
            let _ = self.sad.gather(now, id, length, |place| match segments {
                Some(segments) => segments.write(number, place).is_some(),
                None => {
                    place.copy_from_slice(packet);
                    checksum.is_none_or(|(start, offset)| {
                        complete_checksum(place, start, offset, inner.protocol).is_ok()
                    })
                }
            });
        }
        self.gone = 0;
        Ok(true)
    }

    /// Puts AGGFRAG packets that may leave now into the batch: full ones, those that are due, and with `rest` what there
    /// is.
    ///
    /// # Errors
    /// The socket that is full, if one is.
    pub(crate) fn send_gathered(&mut self, now: Duration, rest: bool) -> Result<(), Full> {
        loop {
            if self.batch.is_nearly_full(USUAL) {
                self.flush()?;
            }
            // Sealed where it is sent from.
            let Some(next) = self.sad.next_gathered(now, rest, self.batch.free()) else { return Ok(()) };
            let Gathered { session, sealed } = next;
            // RFC 9347 4: packets of several kinds go together, so the outside says nothing of theirs.
            let to = To { peer: sealed.peer, ecn: ecn::NOT_ECT, session };
            if !self.batch.takes(to, sealed.length) {
                let place = self.batch.place();
                if let Err(full) = self.flush() {
                    self.sad.counters.count(DropReason::NotTaken);
                    return Err(full);
                }
                self.batch.move_up(place, sealed.length);
            }
            self.batch.added(to, sealed.length);
        }
    }

    /// Sends everything that may leave now.
    ///
    /// # Errors
    /// The socket that is full, if one is.
    pub fn send_rest(&mut self, now: Duration) -> Result<(), Full> {
        self.send_gathered(now, true)?;
        self.flush()
    }

    /// Opens the AGGFRAG packet at `from_net[at]`. Every inner packet that is now whole is joined to those before it,
    /// or goes to the device behind them.
    pub(crate) fn open_aggregate(&mut self, now: Duration, at: Range<usize>, from: Outer, outer_ecn: u8) {
        let Some(buffer) = self.from_net.get_mut(at) else { return };
        let (joint, device, piece) = (&mut self.joint, &mut self.device, &mut self.piece);
        let mut lost = 0;
        // A drop is counted where it is found.
        let opened = self.sad.open_aggregate(now, buffer, 0, from, outer_ecn, |_, inner, packet| {
            let joins = device.joins(inner);
            let mut added = joint.add(packet, inner, joins);
            if !added {
                if let Some(Whole { bytes, packets }) = joint.take() {
                    lost += device.deliver(bytes, packets, piece);
                }
                added = joint.add(packet, inner, joins);
            }
            lost += u64::from(!added);
            if joint.is_closed()
                && let Some(Whole { bytes, packets }) = joint.take()
            {
                lost += device.deliver(bytes, packets, piece);
            }
        });
        self.moved = self.moved.wrapping_add(u64::from(opened.is_ok()));
        self.sad.counters.count_many(DropReason::NotTaken, lost);
    }
}
