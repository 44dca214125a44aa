//! Into the TUN device: what was opened is written, many packets at once where they go together.

use std::os::fd::OwnedFd;

use levee_daemon::Watched;
use levee_esp::Inner;
use levee_esp::offload::{Gso, GsoKind, Run, Segments, VNET_HEADER, Vnet};

/// IP protocol number.
const UDP: u8 = 17;

/// The TUN queue.
pub struct Tun {
    /// Its descriptor, non-blocking.
    pub fd: Watched<OwnedFd>,
    /// Inner MTU in bytes.
    pub mtu: u16,
    /// Whether each packet has a vnet header before it.
    pub vnet: bool,
}

/// The TUN queue, and what is known of it.
pub(crate) struct Device {
    pub(crate) tun: Tun,
    /// It takes datagrams together (kernels from 6.2 on), so far as we know.
    joins_datagrams: bool,
}

impl Device {
    pub(crate) fn new(tun: Tun) -> Self {
        Self { tun, joins_datagrams: true }
    }

    /// Whether it takes packets like this one together.
    pub(crate) fn joins(&self, inner: &Inner) -> bool {
        self.tun.vnet && (self.joins_datagrams || inner.protocol != UDP)
    }

    /// Begins a run with this packet, where there can be one.
    pub(crate) fn begin(&self, packet: &[u8], inner: Inner) -> Option<Run> {
        if self.joins(&inner) { Run::start(packet, inner) } else { None }
    }

    /// Writes a packet, or a super-segment of so many, behind its vnet header: the latter packet by packet if the device does
    /// not take it whole, by way of `piece`. Answers how many packets it did not take.
    pub(crate) fn deliver(&mut self, bytes: &[u8], packets: usize, piece: &mut [u8]) -> u64 {
        if self.write(bytes) {
            return 0;
        }
        if packets == 1 {
            return 1;
        }
        let Some((lost, kind)) = self.deliver_in_pieces(bytes, piece) else { return packets as u64 };
        self.joins_datagrams &= kind != GsoKind::Udp || lost > 0;
        lost
    }

    fn write(&self, bytes: &[u8]) -> bool {
        let bytes = if self.tun.vnet { bytes } else { bytes.get(VNET_HEADER..).unwrap_or(&[]) };
        rustix::io::write(&self.tun.fd, bytes) == Ok(bytes.len())
    }

    fn deliver_in_pieces(&self, bytes: &[u8], piece: &mut [u8]) -> Option<(u64, GsoKind)> {
        let (header, packet) = bytes.split_first_chunk::<VNET_HEADER>()?;
        let gso: Gso = Vnet::parse(header).ok()?.gso?;
        let segments = Segments::new(packet, Inner::parse(packet).ok()?, gso).ok()?;
        let mut lost = 0;
        for number in 0..segments.count() {
            let (header, place) = piece.split_first_chunk_mut::<VNET_HEADER>()?;
            *header = [0; VNET_HEADER];
            let end = VNET_HEADER + segments.write(number, place)?;
            lost += u64::from(!self.write(piece.get(..end)?));
        }
        Some((lost, gso.kind))
    }
}
