//! What a QUIC datagram carries (RFC 9221): an octet that says what, then a packet of the tunnel within.

/// One of four senders behind one tunnel: sessions of a workstation that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow(u8);

impl Flow {
    /// How many there are.
    pub const COUNT: u8 = 4;

    /// Counted around.
    pub fn new(number: u8) -> Self {
        Self(number % Self::COUNT)
    }

    /// 0 to 3.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The next, or the first again.
    #[must_use]
    pub fn next(self) -> Self {
        Self::new(self.0 + 1)
    }
}

/// Octets of the longest packet of the tunnel within. ESP of an inner packet of 1,280 octets has 1,316 (RFC 4303 2, RFC 4106): SPI and
/// number 8, IV 8, the packet, padding to 4 with its two octets, tag 16. IKE's fragments are shorter.
pub const LONGEST: usize = 1_316;

/// Octets that a QUIC datagram must have room for.
pub const NEEDED: usize = LONGEST + 1;

/// Asks for [`Carried::Proof`].
const ASK: u8 = 0x40;
/// Is as long as anything ever is.
const PROOF: u8 = 0x41;

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried<'a> {
    /// A packet of the tunnel within, from or for this sender.
    Packet(Flow, &'a [u8]),
    /// The workstation asks whether the longest packet reaches it.
    Ask,
    /// The answer, which is as long.
    Proof,
}

impl<'a> Carried<'a> {
    /// Reads a datagram's content. What is empty, longer than anything may be, or of another kind is nothing.
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (kind, rest) = datagram.split_first()?;
        match *kind {
            flow if flow < Flow::COUNT && !rest.is_empty() && rest.len() <= LONGEST => {
                Some(Self::Packet(Flow(flow), rest))
            }
            ASK if rest.is_empty() => Some(Self::Ask),
            PROOF if datagram.len() == NEEDED && rest.iter().all(|octet| *octet == 0) => Some(Self::Proof),
            _ => None,
        }
    }

    /// Writes it, if it may be.
    pub fn write(self) -> Option<Vec<u8>> {
        match self {
            Self::Packet(_, packet) if packet.is_empty() || packet.len() > LONGEST => None,
            Self::Packet(flow, packet) => {
                let mut datagram = Vec::with_capacity(packet.len() + 1);
                datagram.push(flow.0);
                datagram.extend_from_slice(packet);
                Some(datagram)
            }
            Self::Ask => Some(vec![ASK]),
            Self::Proof => {
                let mut datagram = vec![0; NEEDED];
                datagram.iter_mut().take(1).for_each(|first| *first = PROOF);
                Some(datagram)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        let longest = [7; LONGEST];
        let all = [
            Carried::Packet(Flow::new(3), &longest),
            Carried::Packet(Flow::new(4), b"x"),
            Carried::Ask,
            Carried::Proof,
        ];
        for carried in all {
            assert_eq!(Carried::parse(&carried.write().unwrap()), Some(carried));
        }
        assert_eq!(Carried::Packet(Flow::new(0), &[7; LONGEST + 1]).write(), None);
        assert_eq!(Carried::Packet(Flow::new(0), b"").write(), None);
        for nothing in
            [&b""[..], b"\0", b"\x03", b"\x04x", b"\x40x", b"\x41", &[0; NEEDED + 1], &[0x41; NEEDED]]
        {
            assert_eq!(Carried::parse(nothing), None, "{} octets", nothing.len());
        }
    }
}
