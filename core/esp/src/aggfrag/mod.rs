//! AGGFRAG payloads (RFC 9347): inner packets as one stream of octets, cut into outer packets wherever it suits.
//!
//! ```text
//! | sub-type | reserved | block offset (2) | end of an earlier packet | packet | packet | begin of a packet |
//! | sub-type | reserved | block offset (2) | packet | padding                                              |
//! ```
//!
//! A [`Packer`] makes payloads, a [`Reassembler`] takes them apart again in whatever order they come; a [`Schedule`]
//! says when they are due, where they go at a constant rate. All three depend on their arguments alone.

mod header;
mod pack;
mod reassemble;
mod schedule;

use core::time::Duration;

use crate::sa::sealed_length;

pub use header::{Congestion, Header};
pub use pack::Packer;
pub use reassemble::Reassembler;
pub use schedule::Schedule;

/// ESP's next header for AGGFRAG payloads (RFC 9347 6.1).
pub const AGGFRAG: u8 = 144;

/// Octets of the header without congestion control, the one that is sent (RFC 9347 6.1.1).
pub const HEADER: usize = 4;

/// How packets leave in AGGFRAG payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregation {
    /// Octets of an ESP packet, from the SPI to the tag: never more, and with `interval` never fewer.
    pub packet: u16,
    /// Time from one packet to the next, whether there is something to send or not; `None`: as packets come.
    pub interval: Option<Duration>,
    /// Whether the peer takes fragments (RFC 9347 5.1, the D bit). Without, a packet that does not fit is dropped.
    pub fragment: bool,
}

impl Aggregation {
    /// The shortest ESP packet that can be asked for.
    pub const SHORTEST: u16 = 64;
    /// The shortest interval.
    pub const FASTEST: Duration = Duration::from_micros(10);

    /// Whether these figures make sense together.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.packet >= Self::SHORTEST && self.interval.is_none_or(|interval| interval >= Self::FASTEST)
    }

    /// Octets of the AGGFRAG payload, its header included: as many as a packet has room for.
    #[must_use]
    pub fn payload(&self) -> usize {
        let packet = usize::from(self.packet.max(Self::SHORTEST));
        (packet - sealed_length(0)) / 4 * 4 + 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_fills_a_packet_as_far_as_padding_to_four_octets_allows() {
        for packet in Aggregation::SHORTEST..=u16::MAX {
            let payload = Aggregation { packet, interval: None, fragment: true }.payload();
            assert!(sealed_length(payload) <= usize::from(packet));
            assert!(sealed_length(payload + 1) > usize::from(packet), "{packet}: {payload}");
        }
    }
}
