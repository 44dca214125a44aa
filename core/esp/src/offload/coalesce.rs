//! Putting TCP packets together that came one behind the other.
//!
//! Only packets that differ in nothing but what segmenting changes are put together: sequence number, IPv4
//! identification and lengths in step, checksums right, FIN and PSH on the last, CWR on the first. Everything else,
//! IP options, extension headers and fragments included, passes as it came.

use crate::inner::{Fragment, Inner, IpVersion, TCP};
use crate::offload::checksum::{Sum, pseudo_header, set_ipv4};
use crate::offload::segment::{CWR, FIN, PSH, TCP_CHECKSUM, transport_sum};
use crate::offload::{Gso, GsoKind, VNET_HEADER, Vnet};

/// The longest headers of a packet that is put together: IPv6, and TCP with all its options.
pub const MAX_HEADER: usize = 40 + 60;

/// RST, SYN, URG: such packets go alone.
const ALONE: u8 = 0x04 | 0x02 | 0x20;
const ACK: u8 = 0x10;

/// The longest packet with a 16-bit length.
const LONGEST: usize = 65_535;

/// Packets put together so far. The bytes lie with the caller: the first packet's headers, then the payloads.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    inner: Inner,
    headers: usize,
    /// Payload of each packet but the last.
    size: usize,
    /// Bytes of headers and payloads.
    length: usize,
    packets: usize,
    /// Nothing may follow: the last was short or had FIN or PSH.
    closed: bool,
}

impl Run {
    /// A run that begins with this packet; `None` when it cannot have anything behind it and goes alone.
    #[must_use]
    pub fn start(packet: &[u8], inner: Inner) -> Option<Self> {
        let packet = packet.get(..inner.length)?;
        let plain = match inner.version {
            IpVersion::V4 => inner.header == 20,
            IpVersion::V6 => inner.header == 40,
        };
        if !plain || inner.protocol != TCP || inner.fragment != Fragment::Whole {
            return None;
        }
        let (ip, transport) = packet.split_at_checked(inner.header)?;
        let length = usize::from(transport.get(12)? >> 4) * 4;
        let flags = *transport.get(13)?;
        let size = transport.len().checked_sub(length)?;
        if length < 20 || size == 0 || flags & (ALONE | FIN | PSH) != 0 || flags & ACK == 0 {
            return None;
        }
        // An IPv4 header with a wrong checksum would get a right one.
        if inner.version == IpVersion::V4 && Sum::default().add(ip).folded() != [0xff, 0xff] {
            return None;
        }
        if transport_sum(ip, transport, &inner).folded() != [0xff, 0xff] {
            return None;
        }
        Some(Self {
            inner,
            headers: inner.header + length,
            size,
            length: packet.len(),
            packets: 1,
            closed: false,
        })
    }

    /// Bytes of the headers, which a packet that follows must have as well.
    #[must_use]
    pub fn headers(&self) -> usize {
        self.headers
    }

    /// Bytes of everything put together.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// How many packets.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Whether nothing can follow.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed || self.length + self.size > LONGEST
    }

    /// Takes `packet`, whose headers are `inner`, as the next one, where `first` are the run's own headers as they
    /// now stand. On `true` the caller lays the packet's payload behind what is there; FIN and PSH have been written
    /// to `first`. On `false` nothing has changed.
    pub fn append(&mut self, first: &mut [u8], packet: &[u8], inner: &Inner) -> bool {
        self.try_append(first, packet, inner).is_some()
    }

    fn try_append(&mut self, first: &mut [u8], packet: &[u8], inner: &Inner) -> Option<()> {
        let packet = packet.get(..inner.length)?;
        let same_kind = inner.version == self.inner.version
            && inner.protocol == TCP
            && inner.fragment == Fragment::Whole
            && inner.header == self.inner.header;
        let payload = packet.len().checked_sub(self.headers)?;
        if self.is_closed()
            || !same_kind
            || payload == 0
            || payload > self.size
            || self.length + payload > LONGEST
        {
            return None;
        }
        let (our_ip, our_tcp) = first.get_mut(..self.headers)?.split_at_mut_checked(self.inner.header)?;
        let (ip, transport) = packet.split_at_checked(self.inner.header)?;
        let tcp = transport.get(..self.headers - self.inner.header)?;

        match self.inner.version {
            IpVersion::V4 => {
                // Version, length and type of service; flags, offset, time to live, protocol; addresses.
                let same = |range: std::ops::Range<usize>| our_ip.get(range.clone()) == ip.get(range);
                if !same(0..2) || !same(6..10) || !same(12..20) {
                    return None;
                }
                let [ours, theirs] =
                    [&*our_ip, ip].map(|ip| Some(u16::from_be_bytes(*ip.get(4..6)?.first_chunk()?)));
                // RFC 6864 4.1: with DF and not a fragment, the identification means nothing, and some never change it.
                let atomic = ip.get(6)? & 0x40 != 0;
                let (ours, theirs) = (ours?, theirs?);
                let in_step = theirs == ours.wrapping_add(self.packets as u16);
                if !(in_step || (atomic && theirs == ours)) || Sum::default().add(ip).folded() != [0xff, 0xff]
                {
                    return None;
                }
            }
            IpVersion::V6 => {
                // All but the payload length.
                if our_ip.get(..4) != ip.get(..4) || our_ip.get(6..) != ip.get(6..) {
                    return None;
                }
            }
        }
        // Ports; acknowledgement and header length; window; urgent pointer and options.
        let same = |range: std::ops::Range<usize>| our_tcp.get(range.clone()) == tcp.get(range);
        if !same(0..4) || !same(8..13) || !same(14..16) || !same(18..tcp.len()) {
            return None;
        }
        let sequence = |tcp: &[u8]| Some(u32::from_be_bytes(*tcp.get(4..8)?.first_chunk()?));
        let before = (self.length - self.headers) as u32;
        if sequence(tcp)? != sequence(our_tcp)?.wrapping_add(before) {
            return None;
        }
        let (ours, theirs) = (*our_tcp.get(13)?, *tcp.get(13)?);
        let last = theirs & (FIN | PSH);
        if (ours & !CWR) != (theirs & !last) || transport_sum(ip, transport, inner).folded() != [0xff, 0xff] {
            return None;
        }
        *our_tcp.get_mut(13)? |= last;
        self.length += payload;
        self.packets += 1;
        self.closed = last != 0 || payload < self.size;
        Some(())
    }

    /// Finishes the headers at the start of `packet`; answers the header to put before it. One packet alone is left
    /// as it came.
    pub fn finish(self, packet: &mut [u8]) -> [u8; VNET_HEADER] {
        self.try_finish(packet).unwrap_or([0; VNET_HEADER])
    }

    fn try_finish(self, packet: &mut [u8]) -> Option<[u8; VNET_HEADER]> {
        if self.packets == 1 {
            return None;
        }
        // Checked in `append`: nothing is longer than 65,535.
        let kind = match self.inner.version {
            IpVersion::V4 => {
                packet.get_mut(2..4)?.copy_from_slice(&(self.length as u16).to_be_bytes());
                set_ipv4(packet, self.inner.header);
                GsoKind::TcpV4
            }
            IpVersion::V6 => {
                packet.get_mut(4..6)?.copy_from_slice(&((self.length - 40) as u16).to_be_bytes());
                GsoKind::TcpV6
            }
        };
        let transport = self.length - self.inner.header;
        let sum = pseudo_header(packet, self.inner.version, TCP, transport).folded();
        let field = self.inner.header + TCP_CHECKSUM;
        packet.get_mut(field..field + 2)?.copy_from_slice(&sum);
        let vnet = Vnet {
            checksum: Some((self.inner.header, TCP_CHECKSUM)),
            gso: Some(Gso { kind, size: self.size }),
        };
        Some(vnet.to_bytes(self.headers))
    }
}
