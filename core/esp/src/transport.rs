//! ESP in transport mode (RFC 4303 3.1.1): what is behind an IP header is protected, the header stays.
//!
//! For peers that ask for it; levee's own tunnels never use it. Correct, not fast: packets are copied.

use crate::inner::{Fragment, Inner, IpVersion};
use crate::offload::set_ipv4;
use crate::sa::{DUMMY, ESP_HEADER, InboundSa, OutboundSa, sealed_length};
use crate::{DropReason, Spi};

/// ESP's protocol number.
pub const ESP: u8 = 50;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;

/// Where in a whole IP packet a security header stands or is to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderAt {
    pub(crate) version: IpVersion,
    /// Bytes before it.
    pub(crate) at: usize,
    /// Where the protocol number before it is.
    pub(crate) protocol: usize,
    /// Bytes of the packet.
    pub(crate) length: usize,
}

impl HeaderAt {
    /// Behind IPv4 options, and behind IPv6 hop-by-hop options and routing headers, which are for the way (RFC 4303
    /// 3.1.1); with `of`, behind destination options as well, where the header of that protocol stands already.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]; [`DropReason::Fragment`], since a security association in transport mode protects whole
    /// packets alone (RFC 4301 7).
    pub(crate) fn find(packet: &[u8], of: Option<u8>) -> Result<Self, DropReason> {
        // Its own protocol number is one that Inner does not follow.
        let inner = Inner::parse(packet)?;
        if inner.fragment != Fragment::Whole {
            return Err(DropReason::Fragment);
        }
        let found = match inner.version {
            IpVersion::V4 => Some((inner.header, 9)),
            IpVersion::V6 => Self::find_v6(packet.get(..inner.length).ok_or(DropReason::Malformed)?, of),
        };
        let (at, protocol) = found.ok_or(DropReason::Malformed)?;
        if of.is_some_and(|of| packet.get(protocol) != Some(&of)) {
            return Err(DropReason::BadNextHeader);
        }
        Ok(Self { version: inner.version, at, protocol, length: inner.length })
    }

    fn find_v6(packet: &[u8], of: Option<u8>) -> Option<(usize, usize)> {
        let (mut at, mut protocol) = (40, 6);
        // Inner::parse has seen that the chain ends.
        while let Some(&next) = packet.get(protocol) {
            let passed = match next {
                HOP_BY_HOP | ROUTING => true,
                DESTINATION => of.is_some(),
                _ => false,
            };
            if !passed {
                return Some((at, protocol));
            }
            let &[_, length] = packet.get(at..)?.first_chunk()?;
            protocol = at;
            at += 8 + usize::from(length) * 8;
        }
        None
    }

    /// The packet again with `body` instead of everything from the place on, and this protocol number before it.
    ///
    /// # Errors
    /// [`DropReason::Oversize`] when it becomes longer than its length field can say.
    pub(crate) fn rebuilt(&self, packet: &[u8], protocol: u8, body: &[&[u8]]) -> Result<Vec<u8>, DropReason> {
        let mut out = packet.get(..self.at).ok_or(DropReason::Malformed)?.to_vec();
        for part in body {
            out.extend_from_slice(part);
        }
        if let Some(field) = out.get_mut(self.protocol) {
            *field = protocol;
        }
        let (field, length) = match self.version {
            IpVersion::V4 => (2..4, out.len()),
            IpVersion::V6 => (4..6, out.len() - 40),
        };
        let length = u16::try_from(length).map_err(|_| DropReason::Oversize)?;
        out.get_mut(field).ok_or(DropReason::Malformed)?.copy_from_slice(&length.to_be_bytes());
        if self.version == IpVersion::V4 {
            set_ipv4(&mut out, self.at);
        }
        Ok(out)
    }
}

/// The SPI of a packet with ESP or, 4 bytes on, AH at its place.
fn spi_at(packet: &[u8], at: usize) -> Result<Spi, DropReason> {
    Spi::of(packet.get(at..).ok_or(DropReason::Truncated)?).ok_or(DropReason::UnknownSpi)
}

/// The SPI of an IP packet in ESP's protocol.
///
/// # Errors
/// When it is none.
pub fn spi(packet: &[u8]) -> Result<Spi, DropReason> {
    spi_at(packet, HeaderAt::find(packet, Some(ESP))?.at)
}

/// The packet with everything behind its IP header (IPv6: its headers for the way) sealed.
///
/// # Errors
/// When it is no whole packet, would become too long, or the association is used up.
pub fn seal(sa: &mut OutboundSa, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
    let place = HeaderAt::find(packet, None)?;
    let payload = packet.get(place.at..place.length).ok_or(DropReason::Malformed)?;
    let next = *packet.get(place.protocol).ok_or(DropReason::Malformed)?;
    let mut buffer = zeroize::Zeroizing::new(vec![0; sealed_length(payload.len())]);
    buffer
        .get_mut(ESP_HEADER..ESP_HEADER + payload.len())
        .ok_or(DropReason::Oversize)?
        .copy_from_slice(payload);
    let length = sa.seal(&mut buffer, payload.len(), next)?;
    place.rebuilt(packet, ESP, &[buffer.get(..length).ok_or(DropReason::Oversize)?])
}

/// The packet as it was before [`seal`]. Its selectors are for the caller to check.
///
/// # Errors
/// When it is no packet of this association, is not authentic, or has come before.
pub fn open(sa: &mut InboundSa, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
    let place = HeaderAt::find(packet, Some(ESP))?;
    let mut buffer =
        zeroize::Zeroizing::new(packet.get(place.at..place.length).ok_or(DropReason::Malformed)?.to_vec());
    let opened = sa.open(&mut buffer, 0)?;
    if opened.next_header == DUMMY {
        return Err(DropReason::Dummy);
    }
    let payload = buffer.get(..opened.length).ok_or(DropReason::Malformed)?;
    let packet = place.rebuilt(packet, opened.next_header, &[payload])?;
    Inner::parse(&packet)?;
    Ok(packet)
}
