//! The header of an AGGFRAG payload.

use crate::DropReason;
use crate::aggfrag::HEADER;

/// Octets of the header with congestion control (RFC 9347 6.1.2).
const LONG: usize = 24;

/// What a payload says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Octets until the first packet that begins in this payload or, when there are more than the payload has, in a
    /// later one.
    pub offset: usize,
    /// Octets of the header: the data blocks are behind it.
    pub length: usize,
    /// What the peer reports of the path.
    pub congestion: Option<Congestion>,
}

/// The congestion-control part (RFC 9347 6.1.2). Read so that a peer that sends it is understood; nothing follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// The sender probes the path MTU with this packet.
    pub path_mtu_probe: bool,
    /// The sender has seen congestion marked.
    pub ecn: bool,
    /// Inverse of the loss event rate (RFC 5348), 0: none.
    pub loss_event_rate: u32,
    /// Round-trip time in microseconds, 22 bits.
    pub rtt: u32,
    /// Microseconds between what is echoed came and this packet left, 21 bits.
    pub echo_delay: u32,
    /// Microseconds from one packet to the next, 21 bits.
    pub transmit_delay: u32,
    /// The sender's time, to be echoed.
    pub time: u32,
    /// The echo of ours.
    pub echo: u32,
}

impl Header {
    /// Reads the header of a payload. Reserved bits are ignored, as RFC 9347 6.1 asks.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] when it is cut off or of a sub-type that nobody has defined.
    pub fn parse(payload: &[u8]) -> Result<Self, DropReason> {
        let &[kind, flags, o0, o1] = payload.first_chunk::<HEADER>().ok_or(DropReason::Malformed)?;
        let offset = usize::from(u16::from_be_bytes([o0, o1]));
        match kind {
            0 => Ok(Self { offset, length: HEADER, congestion: None }),
            1 => {
                let whole: &[u8; LONG] = payload.first_chunk().ok_or(DropReason::Malformed)?;
                let &[_, _, _, _, l0, l1, l2, l3, t @ ..] = whole;
                let &[t0, t1, t2, t3, t4, t5, t6, t7, v0, v1, v2, v3, e0, e1, e2, e3] = &t;
                let times = u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
                // 22, 21 and 21 bits: all fit.
                let part = |shift: u32, bits: u32| (times >> shift & ((1 << bits) - 1)) as u32;
                let congestion = Congestion {
                    path_mtu_probe: flags & 2 != 0,
                    ecn: flags & 1 != 0,
                    loss_event_rate: u32::from_be_bytes([l0, l1, l2, l3]),
                    rtt: part(42, 22),
                    echo_delay: part(21, 21),
                    transmit_delay: part(0, 21),
                    time: u32::from_be_bytes([v0, v1, v2, v3]),
                    echo: u32::from_be_bytes([e0, e1, e2, e3]),
                };
                Ok(Self { offset, length: LONG, congestion: Some(congestion) })
            }
            _ => Err(DropReason::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_with_congestion_control_is_read_field_by_field() {
        let mut bytes = vec![1, 0xfd, 0x12, 0x34, 0, 0, 1, 0];
        let times: u64 = 0x3f_fffe << 42 | 0x1a_bcde << 21 | 0x10_0001;
        bytes.extend(times.to_be_bytes());
        bytes.extend([0, 0, 0, 7, 0, 0, 0, 9]);
        let expected = Congestion {
            path_mtu_probe: false,
            ecn: true,
            loss_event_rate: 256,
            rtt: 0x3f_fffe,
            echo_delay: 0x1a_bcde,
            transmit_delay: 0x10_0001,
            time: 7,
            echo: 9,
        };
        let header = Header { offset: 0x1234, length: 24, congestion: Some(expected) };
        assert_eq!(Header::parse(&bytes), Ok(header));
        // The flags are their own, each by itself.
        for (flags, probe, ecn) in
            [(0, false, false), (1, false, true), (2, true, false), (3, true, true), (0xfc, false, false)]
        {
            bytes[1] = flags;
            let congestion = Header::parse(&bytes).unwrap().congestion.unwrap();
            assert_eq!((congestion.path_mtu_probe, congestion.ecn), (probe, ecn), "{flags}");
        }
        for length in 0..24 {
            assert_eq!(Header::parse(&bytes[..length]), Err(DropReason::Malformed));
        }
        assert_eq!(Header::parse(&[2; 24]), Err(DropReason::Malformed));
        let short = Header { offset: 3, length: 4, congestion: None };
        assert_eq!(Header::parse(&[0, 0xff, 0, 3]), Ok(short), "reserved bits are ignored");
    }
}
