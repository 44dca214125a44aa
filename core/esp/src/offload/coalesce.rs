//! Putting packets of one flow together that came one behind the other.
//!
//! Only packets that differ in nothing but what segmenting changes are put together: IPv4 identification and lengths
//! in step, checksums right; with TCP sequence numbers in step, FIN and PSH on the last, CWR on the first; with UDP
//! datagrams of one size, the last one perhaps shorter, each still a datagram of its own. Everything else, IP options,
//! extension headers and fragments included, passes as it came.

use crate::inner::{Fragment, Inner, IpVersion, TCP, UDP};
use crate::offload::checksum::{Sum, pseudo_header, set_ipv4};
use crate::offload::segment::{CWR, FIN, PSH, TCP_CHECKSUM, UDP_CHECKSUM, transport_sum};
use crate::offload::{Gso, GsoKind, VNET_HEADER, Vnet};

/// The longest headers of a packet that is put together: IPv6, and TCP with all its options.
pub const MAX_HEADER: usize = 40 + 60;

/// RST, SYN, URG: such packets go alone.
const ALONE: u8 = 0x04 | 0x02 | 0x20;
const ACK: u8 = 0x10;

/// The most datagrams that Linux sends as one (`UDP_MAX_SEGMENTS` before 6.9).
const DATAGRAMS: usize = 64;

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
        if !plain || inner.fragment != Fragment::Whole {
            return None;
        }
        let (ip, transport) = packet.split_at_checked(inner.header)?;
        let length = match inner.protocol {
            TCP => {
                let flags = *transport.get(13)?;
                if flags & (ALONE | FIN | PSH) != 0 || flags & ACK == 0 {
                    return None;
                }
                usize::from(transport.get(12)? >> 4) * 4
            }
            UDP if is_plain_datagram(transport) => 8,
            _ => return None,
        };
        let size = transport.len().checked_sub(length)?;
        if (inner.protocol == TCP && length < 20) || size == 0 {
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
        let payload = packet.len().checked_sub(self.headers)?;
        // One that is not closed has room for as much as its packets have. Version, protocol and what makes a fragment are in the header,
        // which is compared.
        if self.is_closed() || inner.header != self.inner.header || payload == 0 || payload > self.size {
            return None;
        }
        let (our_ip, ours) = first.get_mut(..self.headers)?.split_at_mut_checked(self.inner.header)?;
        let (ip, transport) = packet.split_at_checked(self.inner.header)?;
        let theirs = transport.get(..self.headers - self.inner.header)?;
        if !self.same_ip(our_ip, ip)? {
            return None;
        }
        let last = match self.inner.protocol {
            TCP => self.tcp_follows(ours, theirs)?,
            _ if ours.get(0..4) == theirs.get(0..4)
                && is_plain_datagram(transport)
                && self.packets < DATAGRAMS =>
            {
                0
            }
            _ => return None,
        };
        if transport_sum(ip, transport, inner).folded() != [0xff, 0xff] {
            return None;
        }
        if self.inner.protocol == TCP {
            *ours.get_mut(13)? |= last;
        }
        self.length += payload;
        self.packets += 1;
        self.closed = last != 0 || payload < self.size;
        Some(())
    }

    /// Whether an IP header differs from the first one's in nothing but length, checksum and a matching identification.
    fn same_ip(&self, first: &[u8], this: &[u8]) -> Option<bool> {
        if self.inner.version == IpVersion::V6 {
            // All but the payload length.
            return Some(first.get(..4) == this.get(..4) && first.get(6..) == this.get(6..));
        }
        // Version, length and type of service; flags, offset, time to live, protocol; addresses.
        let same = |range: std::ops::Range<usize>| first.get(range.clone()) == this.get(range);
        let id = |ip: &[u8]| Some(u16::from_be_bytes(*ip.get(4..6)?.first_chunk()?));
        let (first_id, this_id) = (id(first)?, id(this)?);
        // Runs have fewer than 65,536 packets.
        let in_step = this_id == first_id.wrapping_add(self.packets as u16);
        // RFC 6864 4.1: with DF and not a fragment, the identification means nothing, and some never change it.
        let atomic = this.get(6)? & 0x40 != 0;
        Some(
            same(0..2)
                && same(6..10)
                && same(12..20)
                && (in_step || (atomic && this_id == first_id))
                && Sum::default().add(this).folded() == [0xff, 0xff],
        )
    }

    /// Whether a TCP header continues the first one's: its FIN and PSH if so.
    fn tcp_follows(&self, first: &[u8], this: &[u8]) -> Option<u8> {
        // Ports; acknowledgement and header length; window; urgent pointer and options.
        let same = |range: std::ops::Range<usize>| first.get(range.clone()) == this.get(range);
        if !same(0..4) || !same(8..13) || !same(14..16) || !same(18..this.len()) {
            return None;
        }
        let sequence = |tcp: &[u8]| Some(u32::from_be_bytes(*tcp.get(4..8)?.first_chunk()?));
        let before = (self.length - self.headers) as u32;
        if sequence(this)? != sequence(first)?.wrapping_add(before) {
            return None;
        }
        let (ours, theirs) = (*first.get(13)?, *this.get(13)?);
        let last = theirs & (FIN | PSH);
        ((ours & !CWR) == (theirs & !last)).then_some(last)
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
        let mut kind = match self.inner.version {
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
        let (at, transport) = (self.inner.header, self.length - self.inner.header);
        let mut offset = TCP_CHECKSUM;
        if self.inner.protocol == UDP {
            (kind, offset) = (GsoKind::Udp, UDP_CHECKSUM);
            packet.get_mut(at + 4..at + 6)?.copy_from_slice(&(transport as u16).to_be_bytes());
        }
        let sum = pseudo_header(packet, self.inner.version, self.inner.protocol, transport).folded();
        packet.get_mut(at + offset..at + offset + 2)?.copy_from_slice(&sum);
        let vnet = Vnet { checksum: Some((at, offset)), gso: Some(Gso { kind, size: self.size }) };
        Some(vnet.to_bytes(self.headers))
    }
}

/// Whether a datagram has the length it says and a checksum.
fn is_plain_datagram(transport: &[u8]) -> bool {
    match transport.first_chunk::<8>() {
        Some(&[_, _, _, _, l0, l1, c0, c1]) => {
            usize::from(u16::from_be_bytes([l0, l1])) == transport.len() && [c0, c1] != [0, 0]
        }
        None => false,
    }
}
