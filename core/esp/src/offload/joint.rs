//! Packets that do not lie one behind the other, put together in a buffer of their own.

use zeroize::{Zeroize as _, Zeroizing};

use crate::Inner;
use crate::offload::{Run, VNET_HEADER};

/// The longest packet: IPv6, with a payload of 16 bits.
const LONGEST: usize = 40 + 65_535;

/// One packet or the packets of one flow that came one behind the other, joined as by [`Run`]. Erased when dropped.
pub struct Joint {
    /// Room for a vnet header, then what is here.
    buffer: Zeroizing<Vec<u8>>,
    /// Bytes of what is here; 0 when nothing is.
    length: usize,
    /// What others may be joined to.
    run: Option<Run>,
}

/// What is to be written to the device at once.
#[derive(Debug, PartialEq, Eq)]
pub struct Whole<'a> {
    /// A vnet header, then the packet or super-segment.
    pub bytes: &'a mut [u8],
    /// How many packets it is made of.
    pub packets: usize,
}

impl Default for Joint {
    fn default() -> Self {
        Self::new()
    }
}

impl Joint {
    /// With nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self { buffer: Zeroizing::new(vec![0; VNET_HEADER + LONGEST]), length: 0, run: None }
    }

    /// Takes a copy of a packet whose headers are `inner`: alone, or behind what it goes with. `joins`: others may be
    /// joined to it. False when it does not go with what is here, which is to be [taken out](Self::take) first.
    pub fn add(&mut self, packet: &[u8], inner: &Inner, joins: bool) -> bool {
        self.try_add(packet, inner, joins).is_some()
    }

    fn try_add(&mut self, packet: &[u8], inner: &Inner, joins: bool) -> Option<()> {
        let packet = packet.get(..inner.length)?;
        let place = self.buffer.get_mut(VNET_HEADER..)?;
        if self.length == 0 {
            place.get_mut(..packet.len())?.copy_from_slice(packet);
            self.run = if joins { Run::start(packet, *inner) } else { None };
            self.length = packet.len();
            return Some(());
        }
        let run = self.run.as_mut()?;
        let (first, behind) = place.split_at_mut_checked(self.length)?;
        let payload = packet.get(run.headers()..)?;
        let behind = behind.get_mut(..payload.len())?;
        if !run.append(first, packet, inner) {
            return None;
        }
        behind.copy_from_slice(payload);
        self.length = run.length();
        Some(())
    }

    /// Whether something is here to which nothing can be joined any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.length > 0 && self.run.as_ref().is_none_or(Run::is_closed)
    }

    /// What is here, finished; then nothing is.
    pub fn take(&mut self) -> Option<Whole<'_>> {
        let length = core::mem::take(&mut self.length);
        if length == 0 {
            return None;
        }
        let bytes = self.buffer.get_mut(..VNET_HEADER + length)?;
        let (header, packet) = bytes.split_first_chunk_mut::<VNET_HEADER>()?;
        let (finished, packets) = match self.run.take() {
            Some(run) => (run.finish(packet), run.packets()),
            None => ([0; VNET_HEADER], 1),
        };
        *header = finished;
        Some(Whole { bytes, packets })
    }

    /// Erases everything.
    pub fn clear(&mut self) {
        self.buffer.as_mut_slice().zeroize();
        (self.length, self.run) = (0, None);
    }
}
