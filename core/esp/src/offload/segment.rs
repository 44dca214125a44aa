//! Cutting a super-segment into packets.

use crate::inner::{Fragment, Inner, IpVersion, TCP, UDP};
use crate::offload::checksum::{pseudo_header, set_ipv4};
use crate::offload::{Gso, GsoKind};
use crate::{DropReason, offload::checksum::Sum};

pub(super) const FIN: u8 = 0x01;
pub(super) const PSH: u8 = 0x08;
pub(super) const CWR: u8 = 0x80;

/// Offset of TCP's checksum in its header.
pub(super) const TCP_CHECKSUM: usize = 16;
/// Offset of UDP's checksum in its header.
pub(super) const UDP_CHECKSUM: usize = 6;

/// The packets of one super-segment, each made when it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    packet: &'a [u8],
    inner: Inner,
    /// Bytes of all headers, which every packet repeats.
    headers: usize,
    size: usize,
}

impl<'a> Segments<'a> {
    /// The packets that `packet`, whose headers are `inner`, is to be cut into.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] when the packet is not what `gso` says: another version or protocol, a fragment,
    /// headers that are cut off.
    pub fn new(packet: &'a [u8], inner: Inner, gso: Gso) -> Result<Self, DropReason> {
        Self::try_new(packet, inner, gso).ok_or(DropReason::Malformed)
    }

    fn try_new(packet: &'a [u8], inner: Inner, gso: Gso) -> Option<Self> {
        let packet = packet.get(..inner.length)?;
        let transport = packet.get(inner.header..)?;
        let (protocol, length) = match gso.kind {
            GsoKind::TcpV4 | GsoKind::TcpV6 => (TCP, usize::from(transport.get(12)? >> 4) * 4),
            GsoKind::Udp => (UDP, 8),
        };
        let version_fits = match gso.kind {
            GsoKind::TcpV4 => inner.version == IpVersion::V4,
            GsoKind::TcpV6 => inner.version == IpVersion::V6,
            GsoKind::Udp => true,
        };
        let shortest = if protocol == TCP { 20 } else { 8 };
        if !version_fits
            || inner.protocol != protocol
            || inner.fragment != Fragment::Whole
            || length < shortest
            || transport.len() < length
            || gso.size == 0
        {
            return None;
        }
        Some(Self { packet, inner, headers: inner.header + length, size: gso.size })
    }

    /// How many packets; at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        (self.packet.len() - self.headers).div_ceil(self.size).max(1)
    }

    /// Bytes of the longest packet, which is the first.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.packet.len().min(self.headers + self.size)
    }

    /// Bytes of packet `number`.
    #[must_use]
    pub fn length(&self, number: usize) -> usize {
        let (from, to) = self.payload(number);
        self.headers + (to - from)
    }

    fn payload(&self, number: usize) -> (usize, usize) {
        let from = self.packet.len().min(self.headers.saturating_add(number.saturating_mul(self.size)));
        (from, self.packet.len().min(from.saturating_add(self.size)))
    }

    /// Writes packet `number` to the start of `out`, whole, checksums included; answers its length. `None` when
    /// `out` is too short.
    pub fn write(&self, number: usize, out: &mut [u8]) -> Option<usize> {
        let (from, to) = self.payload(number);
        let length = self.headers + (to - from);
        let out = out.get_mut(..length)?;
        let (headers, payload) = out.split_at_mut_checked(self.headers)?;
        headers.copy_from_slice(self.packet.get(..self.headers)?);
        // Behind headers of an even length, so that the parts' sums add up.
        let payload_sum = Sum::default().add_copying(payload, self.packet.get(from..to)?);

        // No packet is longer than 65,575 bytes, so lengths and counts fit their fields.
        match self.inner.version {
            IpVersion::V4 => {
                headers.get_mut(2..4)?.copy_from_slice(&(length as u16).to_be_bytes());
                let id = headers.get_mut(4..6)?.first_chunk_mut::<2>()?;
                *id = u16::from_be_bytes(*id).wrapping_add(number as u16).to_be_bytes();
                set_ipv4(headers, self.inner.header);
            }
            IpVersion::V6 => {
                headers.get_mut(4..6)?.copy_from_slice(&((length - 40) as u16).to_be_bytes());
            }
        }
        let (ip, transport) = out.split_at_mut_checked(self.inner.header)?;
        let field = match self.inner.protocol {
            TCP => {
                let sequence = transport.get_mut(4..8)?.first_chunk_mut::<4>()?;
                let before = (from - self.headers) as u32;
                *sequence = u32::from_be_bytes(*sequence).wrapping_add(before).to_be_bytes();
                let flags = transport.get_mut(13)?;
                if number > 0 {
                    *flags &= !CWR;
                }
                if to < self.packet.len() {
                    *flags &= !(FIN | PSH);
                }
                TCP_CHECKSUM
            }
            _ => {
                let datagram = transport.len() as u16;
                transport.get_mut(4..6)?.copy_from_slice(&datagram.to_be_bytes());
                UDP_CHECKSUM
            }
        };
        transport.get_mut(field..field + 2)?.copy_from_slice(&[0, 0]);
        let header = transport.get(..self.headers - self.inner.header)?;
        let pseudo = pseudo_header(ip, self.inner.version, self.inner.protocol, transport.len());
        let mut sum = pseudo.add(header).and(payload_sum).checksum();
        if self.inner.protocol == UDP && sum == [0, 0] {
            sum = [0xff, 0xff];
        }
        transport.get_mut(field..field + 2)?.copy_from_slice(&sum);
        Some(length)
    }
}

/// The sum over the pseudo-header and everything behind the IP header.
pub(super) fn transport_sum(ip: &[u8], transport: &[u8], inner: &Inner) -> Sum {
    pseudo_header(ip, inner.version, inner.protocol, transport.len()).add(transport)
}
