//! A label whose stacks must agree: its gate, and the two stacks that it asks.
//!
//! The gate has the TUN device and the sockets and no keys; each stack has the keys and neither device nor socket. What
//! sessiond and the keyer say to the label's vault, the gate says to both stacks. A datagram goes to both, and what
//! was in it goes on only if both answer the same bytes. A packet goes to the first stack, which seals it; what it
//! made goes out only if the second one finds that very packet in it.
//!
//! The gate asks one thing at a time, and each [`ToStack`] has one [`FromStack`] for an answer. So both stacks see the same
//! events in one order. Packets come several to a question, each judged as if it were alone: an answer about
//! packets has as many items as the question, in its order, and one with any other number is no answer.

use crate::room::Room;
use crate::vault::{Cipher, Refusal, Report, Sa, SessionRecord};
use levee_session::SessionId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::net::SocketAddr;
use std::time::Duration;

/// The most packets in one question: as many as one send may have segments.
pub const MOST: usize = 64;
/// The most bytes of packets that are to leave, all together, and of one: what is made of them must fit beside them into
/// one message ([`ToStack::Check`]).
pub const LEAVING: usize = 30_000;
/// The most bytes of datagrams that came, all together, and of one.
pub const ARRIVING: usize = 63_000;
/// No packet is longer by more than this when it is sealed.
pub const GROWTH: usize = 40;

/// Packets that came from the device.
pub type Packets = Items<(), LEAVING>;
/// Datagrams that came, or packets that were in them.
pub type Datagrams<H> = Items<H, ARRIVING>;
/// Packets that are sealed.
pub type SealedPackets<H> = Items<H, { LEAVING + MOST * GROWTH }>;
/// A yes or no about each.
pub type Verdicts = Items<bool, 0>;

/// Up to [`MOST`] items of `BYTES` bytes together, each with something said of it: erased when dropped, absent from every
/// `Debug` output.
pub struct Items<H, const BYTES: usize> {
    /// What is said of each item, and its length. Together the items are as long as what is in `room`.
    items: Vec<(H, u16)>,
    room: Room,
}

impl<H, const BYTES: usize> Items<H, BYTES> {
    /// An empty one.
    pub fn new() -> Self {
        Self { items: Vec::with_capacity(MOST), room: Room::new() }
    }

    /// Whether an item of `length` bytes can be added.
    pub fn takes(&self, length: usize) -> bool {
        self.items.len() < MOST && self.room.filled().len() + length <= BYTES
    }

    /// Adds an item. False, and nothing has changed, if it is too much.
    #[must_use]
    pub fn add(&mut self, head: H, bytes: &[u8]) -> bool {
        let Ok(length) = u16::try_from(bytes.len()) else { return false };
        if !self.takes(bytes.len()) || !self.room.add(bytes) {
            return false;
        }
        self.items.push((head, length));
        true
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// What is said of each item, and its bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&H, &[u8])> {
        let mut rest = self.room.filled();
        self.items.iter().map(move |(head, length)| {
            let (bytes, after) = rest.split_at_checked(usize::from(*length)).unwrap_or_default();
            rest = after;
            (head, bytes)
        })
    }

    /// The bytes of all items, one behind the other.
    pub fn bytes(&self) -> &[u8] {
        self.room.filled()
    }
}

impl<H, const BYTES: usize> Default for Items<H, BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H, const BYTES: usize> std::fmt::Debug for Items<H, BYTES> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} items of {} bytes", self.len(), self.bytes().len())
    }
}

impl<H: Serialize, const BYTES: usize> Serialize for Items<H, BYTES> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.items, Bytes(self.bytes())).serialize(serializer)
    }
}

impl<'de, H: Deserialize<'de>, const BYTES: usize> Deserialize<'de> for Items<H, BYTES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (items, Filled::<BYTES>(room)) = <(Vec<(H, u16)>, _)>::deserialize(deserializer)?;
        let total: usize = items.iter().map(|(_, length)| usize::from(*length)).sum();
        if items.len() > MOST || total != room.filled().len() {
            return Err(de::Error::custom("items that are too many, or not as long as they are said to be"));
        }
        Ok(Self { items, room })
    }
}

/// Bytes to be written out.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Up to `BYTES` bytes that were read in.
struct Filled<const BYTES: usize>(Room);

impl<'de, const BYTES: usize> Deserialize<'de> for Filled<BYTES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<const BYTES: usize>;
        impl<const BYTES: usize> de::Visitor<'_> for Visitor<BYTES> {
            type Value = Room;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "at most {BYTES} bytes")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Room, E> {
                let mut room = Room::new();
                if bytes.len() > BYTES || !room.add(bytes) {
                    return Err(E::invalid_length(bytes.len(), &self));
                }
                Ok(room)
            }
        }
        deserializer.deserialize_bytes(Visitor::<BYTES>).map(Self)
    }
}

/// An address outside the tunnel, and the number of the gate's socket that reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outer {
    /// Address and port.
    pub address: SocketAddr,
    /// The gate's socket.
    pub socket: u8,
}

/// Where a datagram came from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// The other end.
    pub outer: Outer,
    /// The ECN field of its outer header.
    pub ecn: u8,
}

/// Gate → stack. Times are the gate's, since its start.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToStack {
    /// This session exists. Answered by [`FromStack::Taken`].
    Open(SessionRecord),
    /// This session is over. Answered by [`FromStack::Taken`] once its keys are erased.
    Close(SessionId),
    /// Keys for a session. Answered by [`FromStack::Installed`].
    Install {
        /// Now.
        now: Duration,
        /// Whose.
        session: SessionId,
        /// For both directions.
        cipher: Cipher,
        /// Extended sequence numbers (RFC 4303 2.2.1).
        esn: bool,
        /// Packets that arrive.
        inbound: Sa,
        /// Packets that leave.
        outbound: Sa,
        /// As in [`KeyerToVault::Install`](crate::vault::KeyerToVault::Install).
        answered: bool,
        /// Where the peer is, if known.
        peer: Option<Outer>,
    },
    /// To the first stack alone, as [`KeyerToVault::Retire`](crate::vault::KeyerToVault::Retire). Answered by [`FromStack::Taken`].
    Retire {
        /// Now.
        now: Duration,
        /// The inbound SPI.
        spi: u32,
    },
    /// Erase the pair that arrives under this SPI. Answered by [`FromStack::Taken`].
    Delete {
        /// The inbound SPI.
        spi: u32,
    },
    /// Datagrams came: what is behind their UDP headers. Answered by [`FromStack::Opened`].
    Datagrams {
        /// Now.
        now: Duration,
        /// The datagrams.
        datagrams: Datagrams<Ends>,
    },
    /// To the first stack alone: packets came from the device. Answered by [`FromStack::Sealed`].
    Packets {
        /// Now.
        now: Duration,
        /// The packets.
        packets: Packets,
    },
    /// To the second stack alone: are these those packets, sealed as they should be? Answered by [`FromStack::Agreed`].
    Check {
        /// Now: what the first stack was told.
        now: Duration,
        /// What came from the device.
        packets: Packets,
        /// What the first stack made of each, and where it goes.
        sealed: SealedPackets<Ends>,
    },
    /// To the first stack alone. Answered by [`FromStack::Report`].
    Report,
}

/// Stack → gate.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromStack {
    /// Sandboxed, and at work: said once, unasked.
    Ready,
    /// Whether it was taken.
    Taken(bool),
    /// Whether the keys were taken.
    Installed(Result<(), Refusal>),
    /// The packets that may pass; an empty one where none may.
    Opened(Datagrams<()>),
    /// What is to be sent.
    Sealed {
        /// What becomes of each packet, with the datagram that goes behind the UDP header; an empty one where none goes.
        outgoing: SealedPackets<Outgoing>,
        /// The inbound SPI and the session of each pair near its end: once for each, at most [`MOST`] at a time.
        expiring: Vec<(u32, SessionId)>,
    },
    /// Whether each is as it should be.
    Agreed(Verdicts),
    /// Counters and associations.
    Report(Report),
}

/// What becomes of a packet that is to leave.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Outgoing {
    /// It goes there.
    Send(Ends),
    /// It is dropped, and counted.
    Nothing,
    /// It is dropped, and this session needs keys.
    Wanted(SessionId),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Channel, MAX_MESSAGE};

    /// As many items as there may be, as long as they may be, each with what takes most room beside it.
    fn largest<H: Copy, const BYTES: usize>(head: H) -> Items<H, BYTES> {
        let mut batch = Items::new();
        for n in 0..MOST {
            let length = if n == 0 { BYTES - BYTES / MOST * (MOST - 1) } else { BYTES / MOST };
            assert!(batch.add(head, &vec![0xff; length]));
        }
        assert_eq!((batch.len(), batch.bytes().len()), (MOST, BYTES));
        assert!(!batch.takes(1) && !batch.add(head, &[0]) && !batch.add(head, &[]));
        batch
    }

    fn envelope() -> Ends {
        let address = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap();
        Ends { outer: Outer { address, socket: 255 }, ecn: 255 }
    }

    #[test]
    fn the_largest_questions_and_answers_fit_a_message() {
        let (gate, stack) = Channel::pair().unwrap();
        let questions = [
            ToStack::Datagrams { now: Duration::MAX, datagrams: largest(envelope()) },
            ToStack::Packets { now: Duration::MAX, packets: largest(()) },
            ToStack::Check { now: Duration::MAX, packets: largest(()), sealed: largest(envelope()) },
        ];
        for question in questions {
            // Were they less alike, a few lengths would take three bytes instead of two.
            assert!(postcard::to_allocvec(&question).unwrap().len() + 8 <= MAX_MESSAGE);
            gate.send(&question).unwrap();
            let heard = stack.recv::<ToStack>().unwrap().message;
            assert_eq!(format!("{heard:?}"), format!("{question:?}"));
        }
        let id = SessionId::from_random([0xff; 16]);
        let answers = [
            FromStack::Opened(largest(())),
            FromStack::Sealed {
                outgoing: largest(Outgoing::Send(envelope())),
                expiring: vec![(u32::MAX, id); MOST],
            },
            FromStack::Agreed((0..MOST).fold(Items::new(), |mut verdicts, _| {
                assert!(verdicts.add(true, &[]));
                verdicts
            })),
        ];
        for answer in answers {
            stack.send(&answer).unwrap();
            gate.recv::<FromStack>().unwrap();
        }
    }

    #[test]
    fn items_come_as_they_went_and_nothing_of_them_is_shown() {
        let mut batch = Datagrams::new();
        let items: [&[u8]; 4] = [b"one", b"", b"three", b"4"];
        for (n, item) in items.into_iter().enumerate() {
            assert!(batch.add(n, item));
        }
        let encoded = postcard::to_allocvec(&batch).unwrap();
        let batch: Datagrams<usize> = postcard::from_bytes(&encoded).unwrap();
        assert!(batch.iter().eq([0, 1, 2, 3].iter().zip(items)));
        assert_eq!(format!("{batch:?}"), "4 items of 9 bytes");
    }

    #[test]
    fn a_batch_that_is_not_what_it_says_is_none() {
        let parse = |lengths: &[u16], bytes: usize| {
            let bytes = vec![7; bytes];
            let encoded = postcard::to_allocvec(&(lengths, Bytes(&bytes))).unwrap();
            postcard::from_bytes::<Items<(), 200>>(&encoded).is_ok()
        };
        assert!(parse(&[100, 0, 100], 200) && parse(&[], 0) && parse(&[1; MOST], MOST));
        assert!(!parse(&[1; MOST + 1], MOST + 1), "too many");
        assert!(!parse(&[100, 101], 201), "too long");
        assert!(
            !parse(&[100, 99], 200) && !parse(&[100, 101], 200) && !parse(&[], 1),
            "lengths that are wrong"
        );
        assert!(!parse(&[u16::MAX, u16::MAX, 2], 0));
    }
}
