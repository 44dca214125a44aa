//! The authentication header (RFC 4302) in transport and tunnel mode: packets in clear that nobody can change.
//!
//! For peers that ask for it. Correct, not fast: packets are copied.
//!
//! ```text
//! | next header | length in words - 2 | reserved (2) | SPI (4) | sequence number (4) | ICV (16) | padding (IPv6: 4) |
//! ```

use core::net::IpAddr;

use subtle::ConstantTimeEq as _;

use crate::inner::IpVersion;
use crate::mac::{ICV, Mac, MacProvider};
use crate::offload::set_ipv4;
use crate::transport::HeaderAt;
use crate::{AeadError, DropReason, Inner, ReplayWindow, Spi, ecn};

/// AH's protocol number.
pub const AH: u8 = 51;

/// Bytes before the ICV.
const FIXED: usize = 12;

/// The sending side.
pub struct AhOutbound {
    spi: Spi,
    extended: bool,
    mac: Box<dyn Mac>,
    sequence: u64,
}

/// The receiving side.
pub struct AhInbound {
    spi: Spi,
    mac: Box<dyn Mac>,
    extended: bool,
    window: ReplayWindow,
}

impl AhOutbound {
    /// A new association that has sent nothing.
    ///
    /// # Errors
    /// [`AeadError`] when the provider does not take the key.
    pub fn new(spi: Spi, key: &[u8], extended: bool, provider: &dyn MacProvider) -> Result<Self, AeadError> {
        Ok(Self { spi, extended, mac: provider.mac(key)?, sequence: 0 })
    }

    /// The packet with an authentication header (transport mode).
    ///
    /// # Errors
    /// When it is no whole packet, has what AH cannot cover, would become too long, or no sequence number is left.
    pub fn protect(&mut self, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
        let place = HeaderAt::find(packet, None)?;
        let payload = packet.get(place.at..place.length).ok_or(DropReason::Malformed)?;
        let next = *packet.get(place.protocol).ok_or(DropReason::Malformed)?;
        let last = if self.extended { u64::MAX } else { u64::from(u32::MAX) };
        if self.sequence >= last {
            return Err(DropReason::SequenceExhausted);
        }
        self.sequence += 1;
        // RFC 4302 3.3.3.2.1: a multiple of 4 bytes in IPv4, of 8 in IPv6.
        let padding = match place.version {
            IpVersion::V4 => 0,
            IpVersion::V6 => 4,
        };
        let words = ((FIXED + ICV + padding) / 4 - 2) as u8;
        let [a, b, c, d] = self.spi.to_be_bytes();
        let [h0, h1, h2, h3, s0, s1, s2, s3] = self.sequence.to_be_bytes();
        let header = [next, words, 0, 0, a, b, c, d, s0, s1, s2, s3];
        let mut icv = [0; ICV + 4];
        let icv = icv.get_mut(..ICV + padding).ok_or(DropReason::Malformed)?;
        let blank = place.rebuilt(packet, AH, &[&header, icv, payload])?;
        let covered = immutable(&blank, place)?;
        let high = [h0, h1, h2, h3];
        let sum = self.mac.sum(&[&covered, if self.extended { &high } else { &[] }]);
        icv.get_mut(..ICV).ok_or(DropReason::Malformed)?.copy_from_slice(&sum);
        place.rebuilt(packet, AH, &[&header, icv, payload])
    }

    /// The packet whole behind a new IP header and an authentication header (tunnel mode).
    ///
    /// # Errors
    /// As [`Self::protect`]; [`DropReason::Malformed`] when the addresses are of two families.
    pub fn protect_in_tunnel(
        &mut self,
        packet: &[u8],
        from: IpAddr,
        to: IpAddr,
    ) -> Result<Vec<u8>, DropReason> {
        let id = self.sequence as u16;
        self.protect(&encapsulated(packet, from, to, id)?)
    }
}

impl AhInbound {
    /// A new association that has received nothing.
    ///
    /// # Errors
    /// [`AeadError`] when the provider does not take the key.
    pub fn new(spi: Spi, key: &[u8], extended: bool, provider: &dyn MacProvider) -> Result<Self, AeadError> {
        Ok(Self { spi, extended, mac: provider.mac(key)?, window: ReplayWindow::new(extended) })
    }

    /// The packet without its authentication header, once it has been verified (transport mode). Its selectors are for the
    /// caller to check.
    ///
    /// # Errors
    /// When it is no packet of this association, is not authentic, or has come before.
    pub fn verify(&mut self, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
        let place = HeaderAt::find(packet, Some(AH))?;
        let body = packet.get(place.at..place.length).ok_or(DropReason::Truncated)?;
        let header: &[u8; FIXED] = body.first_chunk().ok_or(DropReason::Truncated)?;
        let &[next, words, _, _, a, b, c, d, s0, s1, s2, s3] = header;
        if [a, b, c, d] != self.spi.to_be_bytes() {
            return Err(DropReason::UnknownSpi);
        }
        let length = (usize::from(words) + 2) * 4;
        // Some align to 8 bytes in IPv4 as well.
        let fits = match place.version {
            IpVersion::V4 => length == FIXED + ICV || length == FIXED + ICV + 4,
            IpVersion::V6 => length == FIXED + ICV + 4,
        };
        if !fits {
            return Err(DropReason::Truncated);
        }
        let payload = body.get(length..).ok_or(DropReason::Truncated)?;
        let sequence = self.window.check(u32::from_be_bytes([s0, s1, s2, s3]))?;
        let mut blank = packet.get(..place.length).ok_or(DropReason::Truncated)?.to_vec();
        let icv = blank.get_mut(place.at + FIXED..place.at + FIXED + ICV).ok_or(DropReason::Truncated)?;
        let claimed = icv.to_vec();
        icv.fill(0);
        let covered = immutable(&blank, place)?;
        let [h0, h1, h2, h3, ..] = sequence.to_be_bytes();
        let high = [h0, h1, h2, h3];
        let sum = self.mac.sum(&[&covered, if self.extended { &high } else { &[] }]);
        if !bool::from(sum[..].ct_eq(&claimed)) {
            return Err(DropReason::AuthFailed);
        }
        self.window.advance(sequence)?;
        let packet = place.rebuilt(packet, next, &[payload])?;
        Inner::parse(&packet)?;
        Ok(packet)
    }

    /// The packet that was whole behind the authentication header (tunnel mode).
    ///
    /// # Errors
    /// As [`Self::verify`]; [`DropReason::BadNextHeader`] when it is no packet.
    pub fn verify_in_tunnel(&mut self, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
        let outer = self.verify(packet)?;
        let place = HeaderAt::find(&outer, None)?;
        let mut inner = outer.get(place.at..place.length).ok_or(DropReason::Malformed)?.to_vec();
        let parsed = Inner::parse(&inner)?;
        if outer.get(place.protocol) != Some(&parsed.version.next_header()) {
            return Err(DropReason::BadNextHeader);
        }
        inner.truncate(parsed.length);
        let before = ecn::of(&inner);
        let after = ecn::decapsulated(before, ecn::of(packet))?;
        if after != before {
            ecn::set(&mut inner, after);
        }
        Ok(inner)
    }
}

/// A packet behind a new header (RFC 4301 5.1.2).
fn encapsulated(packet: &[u8], from: IpAddr, to: IpAddr, id: u16) -> Result<Vec<u8>, DropReason> {
    let inner = Inner::parse(packet)?;
    let packet = packet.get(..inner.length).ok_or(DropReason::Malformed)?;
    // The class goes outside as it is, ECN with it (RFC 6040 4.1, normal mode).
    let class = match packet {
        [_, class, ..] if inner.version == IpVersion::V4 => *class,
        [first, second, ..] => first << 4 | second >> 4,
        _ => return Err(DropReason::Malformed),
    };
    let mut out = Vec::new();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = u16::try_from(20 + packet.len()).map_err(|_| DropReason::Oversize)?;
            // Don't-fragment is the inner packet's; who sends IPv6 does not expect it to be fragmented.
            let fragment = match inner.version {
                IpVersion::V4 => packet.get(6).copied().unwrap_or(0) & 0x40,
                IpVersion::V6 => 0x40,
            };
            let [l0, l1] = length.to_be_bytes();
            let [i0, i1] = id.max(1).to_be_bytes();
            out.extend([0x45, class, l0, l1, i0, i1, fragment, 0, 64, inner.version.next_header(), 0, 0]);
            out.extend(from.octets());
            out.extend(to.octets());
            set_ipv4(&mut out, 20);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let [l0, l1] = u16::try_from(packet.len()).map_err(|_| DropReason::Oversize)?.to_be_bytes();
            out.extend([0x60 | class >> 4, class << 4, 0, 0, l0, l1, inner.version.next_header(), 64]);
            out.extend(from.octets());
            out.extend(to.octets());
        }
        _ => return Err(DropReason::Malformed),
    }
    out.extend_from_slice(packet);
    Ok(out)
}

/// The packet with everything that may change on the way set to zero (RFC 4302 3.3.3.1).
fn immutable(packet: &[u8], place: HeaderAt) -> Result<Vec<u8>, DropReason> {
    let mut out = packet.to_vec();
    let good = match place.version {
        IpVersion::V4 => immutable_v4(&mut out, place.at),
        IpVersion::V6 => immutable_v6(&mut out, place.at),
    };
    good.map(|()| out).ok_or(DropReason::Malformed)
}

fn immutable_v4(packet: &mut [u8], header: usize) -> Option<()> {
    // Type of service; flags and offset; time to live; checksum.
    for field in [1..2, 6..9, 10..12] {
        packet.get_mut(field)?.fill(0);
    }
    let mut at = 20;
    while at < header {
        let kind = *packet.get(at)?;
        let length = match kind {
            // End, and the padding behind it, which is zero.
            0 => break,
            // No operation.
            1 => 1,
            _ => usize::from(*packet.get(at + 1)?),
        };
        if length == 0 || (kind != 1 && length < 2) || at + length > header {
            return None;
        }
        match kind {
            // RFC 4302 A1: security, extended security, commercial security, router alert, multi-destination.
            1 | 130 | 133 | 134 | 148 | 149 => {}
            // Source routes change the destination on the way: not followed here.
            131 | 137 => return None,
            _ => packet.get_mut(at..at + length)?.fill(0),
        }
        at += length;
    }
    Some(())
}

fn immutable_v6(packet: &mut [u8], end: usize) -> Option<()> {
    // Class, flow label; hop limit.
    *packet.get_mut(0)? = 0x60;
    packet.get_mut(1..4)?.fill(0);
    *packet.get_mut(7)? = 0;
    let (mut at, mut kind) = (40, *packet.get(6)?);
    while at < end {
        let &[next, words] = packet.get(at..)?.first_chunk()?;
        let length = 8 + usize::from(words) * 8;
        let header = packet.get_mut(at..at + length)?;
        match kind {
            // RFC 4302 A2: options that say of themselves that they may change.
            0 | 60 => options(header)?,
            // A routing header that is not at its end changes the destination on the way: not followed here.
            43 if header.get(3) == Some(&0) => {}
            _ => return None,
        }
        (at, kind) = (at + length, next);
    }
    Some(())
}

fn options(header: &mut [u8]) -> Option<()> {
    let mut at = 2;
    while at < header.len() {
        let kind = *header.get(at)?;
        if kind == 0 {
            at += 1;
            continue;
        }
        let length = usize::from(*header.get(at + 1)?);
        let data = header.get_mut(at + 2..at + 2 + length)?;
        if kind & 0x20 != 0 {
            data.fill(0);
        }
        at += 2 + length;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No code: every value is zero, since it is the numbers that are looked at.
    struct Nothing;

    impl Mac for Nothing {
        fn sum(&self, _: &[&[u8]]) -> [u8; ICV] {
            [0; ICV]
        }
    }

    /// RFC 4302 3.3.2: a number is not used twice, with 32 bits or with 64.
    #[test]
    fn the_last_number_is_used_and_none_behind_it() {
        let packet =
            [&[0x45, 0, 0, 24, 0, 0, 0, 0, 64, 1, 0, 0][..], &[10, 0, 0, 1, 10, 0, 0, 2, 8, 0, 0, 0]]
                .concat();
        for (extended, last) in [(false, u64::from(u32::MAX)), (true, u64::MAX)] {
            let spi = Spi::new(0x1234).unwrap();
            let mut outbound = AhOutbound { spi, extended, mac: Box::new(Nothing), sequence: last - 1 };
            let signed = outbound.protect(&packet).unwrap();
            assert_eq!(signed[28..32], [0xff; 4]);
            assert_eq!(outbound.protect(&packet), Err(DropReason::SequenceExhausted));
            assert_eq!(outbound.sequence, last);
        }
    }
}
