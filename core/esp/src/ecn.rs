//! Explicit congestion notification across the tunnel (RFC 6040), normal mode both ways.

use crate::DropReason;

/// Not ECN-capable.
pub const NOT_ECT: u8 = 0;
/// ECN-capable, ECT(1).
pub const ECT_1: u8 = 1;
/// ECN-capable, ECT(0).
pub const ECT_0: u8 = 2;
/// Congestion experienced.
pub const CE: u8 = 3;

/// RFC 6040 4.2, figure 4: the inner field on leaving the tunnel.
///
/// # Errors
/// [`DropReason::Ecn`] when congestion was marked on a packet that cannot carry the mark.
pub fn decapsulated(inner: u8, outer: u8) -> Result<u8, DropReason> {
    match (inner & 3, outer & 3) {
        (NOT_ECT, CE) => Err(DropReason::Ecn),
        (NOT_ECT, _) => Ok(NOT_ECT),
        (CE, _) | (_, CE) => Ok(CE),
        (ECT_0, ECT_1) => Ok(ECT_1),
        (inner, _) => Ok(inner),
    }
}

/// The ECN field of an inner packet; [`NOT_ECT`] when it is no IP packet.
#[must_use]
pub fn of(packet: &[u8]) -> u8 {
    match packet {
        [first, second, ..] if first >> 4 == 4 => second & 3,
        [first, second, ..] if first >> 4 == 6 => second >> 4 & 3,
        _ => NOT_ECT,
    }
}

/// Writes the ECN field of an inner packet, and corrects the IPv4 header checksum (RFC 1624, equation 3).
pub fn set(packet: &mut [u8], ecn: u8) {
    match packet {
        [first, second, rest @ ..] if *first >> 4 == 4 => {
            let old = u16::from_be_bytes([*first, *second]);
            *second = (*second & !3) | (ecn & 3);
            let new = u16::from_be_bytes([*first, *second]);
            if let Some([high, low]) = rest.get_mut(8..10) {
                let mut sum =
                    u32::from(!u16::from_be_bytes([*high, *low])) + u32::from(!old) + u32::from(new);
                sum = (sum & 0xffff) + (sum >> 16);
                sum = (sum & 0xffff) + (sum >> 16);
                // The carries are folded in, so the upper half is zero.
                [*high, *low] = (!(sum as u16)).to_be_bytes();
            }
        }
        [first, second, ..] if *first >> 4 == 6 => {
            *second = (*second & !0x30) | ((ecn & 3) << 4);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_the_tunnel_follows_the_table_of_rfc_6040() {
        let table = [
            // outer: Not-ECT, ECT(0), ECT(1), CE
            (NOT_ECT, [Ok(NOT_ECT), Ok(NOT_ECT), Ok(NOT_ECT), Err(DropReason::Ecn)]),
            (ECT_0, [Ok(ECT_0), Ok(ECT_0), Ok(ECT_1), Ok(CE)]),
            (ECT_1, [Ok(ECT_1), Ok(ECT_1), Ok(ECT_1), Ok(CE)]),
            (CE, [Ok(CE), Ok(CE), Ok(CE), Ok(CE)]),
        ];
        for (inner, row) in table {
            for (outer, expected) in [NOT_ECT, ECT_0, ECT_1, CE].into_iter().zip(row) {
                assert_eq!(decapsulated(inner, outer), expected, "inner {inner} outer {outer}");
            }
        }
    }

    #[test]
    fn setting_the_field_keeps_the_ipv4_checksum_right_and_touches_nothing_else() {
        let header = [
            0x45, 0xb8, 0x00, 0x54, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x01, 0x9d, 0xdb, 0xc0, 0x00, 0x02, 0x01,
            0xc6, 0x33, 0x64, 0x07,
        ];
        let sum = |bytes: &[u8]| {
            let mut sum: u32 = bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(c[1])).sum();
            while sum >> 16 != 0 {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            sum
        };
        let before = sum(&header);
        for ecn in 0..4 {
            let mut packet = header;
            set(&mut packet, ecn);
            assert_eq!(of(&packet), ecn);
            assert_eq!(sum(&packet), before);
            assert_eq!(packet[1] & !3, header[1] & !3);
            // Where the checksum is next to zero a carry carries once more.
            let mut near = 0;
            for id in 0..=u16::MAX {
                let mut packet = header;
                packet[4..6].copy_from_slice(&id.to_be_bytes());
                packet[10..12].fill(0);
                let checksum = !(sum(&packet) as u16);
                if (4..=0xfffc).contains(&checksum) {
                    continue;
                }
                packet[10..12].copy_from_slice(&checksum.to_be_bytes());
                set(&mut packet, ecn);
                assert_eq!((of(&packet), sum(&packet)), (ecn, 0xffff), "{checksum:x}");
                near += 1;
            }
            assert!(near >= 6, "{near}");
            // Whatever was in it before.
            for (class, id) in (0..=255).flat_map(|class| [0, 1, 0x7f, 0x80, 0xff].map(|id| (class, id))) {
                let mut packet = header;
                (packet[1], packet[4]) = (class, id);
                packet[10..12].fill(0);
                let checksum = !(sum(&packet) as u16);
                packet[10..12].copy_from_slice(&checksum.to_be_bytes());
                set(&mut packet, ecn);
                assert_eq!(
                    (of(&packet), packet[1] & !3, sum(&packet)),
                    (ecn, class & !3, 0xffff),
                    "{class} {id}"
                );
            }
            // What is of neither version has none, and is left alone.
            let mut other = [0x50, 0xff, 0xff, 0xff];
            set(&mut other, ecn);
            assert_eq!((of(&other), other), (NOT_ECT, [0x50, 0xff, 0xff, 0xff]));
            let mut v6 = [0x6a, 0xbc, 0xde, 0xf0];
            set(&mut v6, ecn);
            assert_eq!((of(&v6), v6[0], v6[1] & !0x30, v6[2]), (ecn, 0x6a, 0x8c, 0xde));
        }
    }
}
