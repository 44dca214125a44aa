//! What a sender is told of a packet that does not fit the tunnel (RFC 4301 8.2, RFC 1191 4, RFC 8201 4).

use crate::inner::{Fragment, Inner, IpVersion};
use crate::offload::checksum::{Sum, pseudo_header, set_ipv4};

/// Room for the longest message: IPv6's is no longer than the least MTU of a link (RFC 4443 2.4 c).
pub const TOO_BIG: usize = 1_280;

/// RFC 1812 4.3.2.3: as much of the packet as leaves the message at this length.
const LONGEST_V4: usize = 576;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const HOPS: u8 = 64;

/// Writes to `out` the ICMP message by which the sender of `packet`, with these headers, learns that nothing above `mtu`
/// bytes passes; answers its length. It comes from the packet's own destination, the only address there that is sure
/// to be no address of the sender's.
///
/// `None` where the standards want none: an IPv4 packet that may be fragmented, a later fragment, another ICMP error, a
/// packet to many (RFC 1122 3.2.2, RFC 4443 2.4 e); and where the packet is shorter than its headers.
#[must_use]
pub fn too_big(packet: &[u8], inner: &Inner, mtu: u16, out: &mut [u8; TOO_BIG]) -> Option<usize> {
    if inner.fragment == Fragment::Later || inner.source.is_multicast() || inner.source.is_unspecified() {
        return None;
    }
    match inner.version {
        IpVersion::V4 => v4(packet, inner, mtu, out),
        IpVersion::V6 => v6(packet, inner, mtu, out),
    }
}

fn v4(packet: &[u8], inner: &Inner, mtu: u16, out: &mut [u8; TOO_BIG]) -> Option<usize> {
    const HEADERS: usize = 20 + 8;
    let may_be_fragmented = packet.get(6)? & 0x40 == 0;
    let is_error = inner.protocol == ICMP && matches!(packet.get(inner.header)?, 3 | 4 | 5 | 11 | 12);
    if may_be_fragmented || is_error || inner.destination.is_multicast() {
        return None;
    }
    let quoted = packet.get(..packet.len().min(LONGEST_V4 - HEADERS))?;
    let length = HEADERS + quoted.len();
    let message = out.get_mut(..length)?;
    let (header, icmp) = message.split_at_mut_checked(20)?;
    header.fill(0);
    let [l0, l1] = u16::try_from(length).ok()?.to_be_bytes();
    header.get_mut(..10)?.copy_from_slice(&[0x45, 0, l0, l1, 0, 0, 0, 0, HOPS, ICMP]);
    header.get_mut(12..16)?.copy_from_slice(packet.get(16..20)?);
    header.get_mut(16..20)?.copy_from_slice(packet.get(12..16)?);
    set_ipv4(header, 20);
    let [m0, m1] = mtu.to_be_bytes();
    icmp.get_mut(..8)?.copy_from_slice(&[3, 4, 0, 0, 0, 0, m0, m1]);
    icmp.get_mut(8..)?.copy_from_slice(quoted);
    let sum = Sum::default().add(icmp).checksum();
    icmp.get_mut(2..4)?.copy_from_slice(&sum);
    Some(length)
}

fn v6(packet: &[u8], inner: &Inner, mtu: u16, out: &mut [u8; TOO_BIG]) -> Option<usize> {
    const HEADERS: usize = 40 + 8;
    // Errors have the high bit clear. To many is no reason to be silent here (RFC 4443 2.4 e.3).
    if inner.protocol == ICMPV6 && packet.get(inner.header)? & 0x80 == 0 {
        return None;
    }
    // Not from an address that can be nobody's.
    if inner.destination.is_multicast() {
        return None;
    }
    let quoted = packet.get(..packet.len().min(TOO_BIG - HEADERS))?;
    let length = HEADERS + quoted.len();
    let message = out.get_mut(..length)?;
    let [l0, l1] = u16::try_from(length - 40).ok()?.to_be_bytes();
    message.get_mut(..8)?.copy_from_slice(&[0x60, 0, 0, 0, l0, l1, ICMPV6, HOPS]);
    message.get_mut(8..24)?.copy_from_slice(packet.get(24..40)?);
    message.get_mut(24..40)?.copy_from_slice(packet.get(8..24)?);
    let [m0, m1] = mtu.to_be_bytes();
    message.get_mut(40..48)?.copy_from_slice(&[2, 0, 0, 0, 0, 0, m0, m1]);
    message.get_mut(48..)?.copy_from_slice(quoted);
    let sum = pseudo_header(message, IpVersion::V6, ICMPV6, length - 40).add(message.get(40..)?).checksum();
    message.get_mut(42..44)?.copy_from_slice(&sum);
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4_packet(flags: u8, protocol: u8, first: u8) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0x05, 0xdc, 1, 2, flags, 0, 64, protocol, 0, 0];
        packet.extend([10, 0, 0, 2, 10, 9, 0, 1, first]);
        packet.resize(1_500, 0x17);
        set_ipv4(&mut packet, 20);
        packet
    }

    fn v6_packet(protocol: u8, first: u8) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0x05, 0xb4, protocol, 64];
        packet.extend([0xfd; 16]);
        packet.extend([0xfc; 16]);
        packet.push(first);
        packet.resize(1_500, 0x17);
        packet
    }

    fn answer(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
        let mut out = [0xee; TOO_BIG];
        let length = too_big(packet, &Inner::parse(packet).unwrap(), mtu, &mut out)?;
        Some(out[..length].to_vec())
    }

    /// RFC 1122 3.2.2, RFC 4443 2.4 e: none of these is anybody who could be told.
    #[test]
    fn nobody_is_told_of_a_later_fragment_or_what_came_from_many_or_from_no_address() {
        let mut out = [0; TOO_BIG];
        for (place, source) in
            [(12, [224, 0, 0, 1]), (12, [239, 255, 255, 255]), (12, [0, 0, 0, 0]), (12, [10, 0, 0, 2])]
        {
            let mut packet = v4_packet(0x40, 17, 0);
            packet[place..place + 4].copy_from_slice(&source);
            set_ipv4(&mut packet, 20);
            let inner = Inner::parse(&packet).unwrap();
            assert_eq!(
                too_big(&packet, &inner, 1_400, &mut out).is_some(),
                source == [10, 0, 0, 2],
                "{source:?}"
            );
        }
        let mut packet = v4_packet(0x40, 17, 0);
        packet[7] = 1;
        set_ipv4(&mut packet, 20);
        let inner = Inner::parse(&packet).unwrap();
        assert_eq!(inner.fragment, Fragment::Later);
        assert_eq!(too_big(&packet, &inner, 1_400, &mut out), None);
    }

    #[test]
    fn a_sender_over_ipv4_is_told_the_mtu_and_shown_the_start_of_its_packet() {
        let packet = v4_packet(0x40, 17, 0);
        let message = answer(&packet, 1_400).unwrap();
        assert_eq!(message.len(), 576);
        let inner = Inner::parse(&message).unwrap();
        assert_eq!(
            (inner.source, inner.destination),
            ("10.9.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())
        );
        assert_eq!(inner.length, 576);
        assert_eq!(message[20..22], [3, 4]);
        assert_eq!(message[26..28], 1_400_u16.to_be_bytes());
        assert_eq!(message[28..], packet[..548]);
        assert_eq!(Sum::default().add(&message[..20]).folded(), [0xff, 0xff]);
        assert_eq!(Sum::default().add(&message[20..]).folded(), [0xff, 0xff]);
    }

    #[test]
    fn a_sender_over_ipv6_is_told_the_mtu_and_shown_the_start_of_its_packet() {
        let packet = v6_packet(17, 0);
        let message = answer(&packet, 1_400).unwrap();
        assert_eq!(message.len(), 1_280);
        let inner = Inner::parse(&message).unwrap();
        assert_eq!((inner.protocol, inner.length), (ICMPV6, 1_280));
        assert_eq!(message[40..42], [2, 0]);
        assert_eq!(message[44..48], 1_400_u32.to_be_bytes());
        assert_eq!(message[48..], packet[..1_232]);
        let sum = pseudo_header(&message, IpVersion::V6, ICMPV6, 1_240).add(&message[40..]);
        assert_eq!(sum.folded(), [0xff, 0xff]);
    }

    #[test]
    fn nobody_is_told_where_the_standards_want_silence() {
        assert_eq!(answer(&v4_packet(0, 17, 0), 1_400), None, "it may be fragmented");
        for error in [3, 4, 5, 11, 12] {
            assert_eq!(answer(&v4_packet(0x40, ICMP, error), 1_400), None, "ICMP error {error}");
        }
        assert!(answer(&v4_packet(0x40, ICMP, 8), 1_400).is_some(), "an echo is no error");
        assert_eq!(answer(&v6_packet(ICMPV6, 1), 1_400), None);
        assert!(answer(&v6_packet(ICMPV6, 128), 1_400).is_some());
        let mut many = v4_packet(0x40, 17, 0);
        many[16] = 224;
        assert_eq!(answer(&many, 1_400), None);
        let mut nobody = v4_packet(0x40, 17, 0);
        nobody[12..16].fill(0);
        assert_eq!(answer(&nobody, 1_400), None);
    }
}
