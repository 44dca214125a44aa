//! A label whose stacks must agree: its gate, and the two stacks that it asks.
//!
//! The gate has the TUN device and the sockets and no keys; each stack has the keys and neither device nor socket. What
//! sessiond and the keyer say to the label's vault, the gate says to both stacks. A datagram goes to both, and what
//! was in it goes on only if both answer the same bytes. A packet goes to the first stack, which seals it; what it
//! made goes out only if the second one finds that very packet in it.
//!
//! The gate asks one thing at a time, and each [`ToStack`] has one [`FromStack`] for an answer. So both stacks see the same
//! events in one order.

use crate::vault::{Refusal, Report, Sa, SessionRecord, Suite};
use levee_session::SessionId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::net::SocketAddr;
use std::time::Duration;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A packet or a datagram of up to [`Bytes::MOST`] bytes: erased when dropped, absent from every `Debug` output.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    /// The most bytes: two of them fit one message. Labels whose stacks must agree take no larger datagram.
    pub const MOST: usize = 16 << 10;

    /// A copy of `bytes`; `None` if there are more than [`Bytes::MOST`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= Self::MOST).then(|| Self(bytes.to_vec()))
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "at most {} bytes", Bytes::MOST)
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Bytes::new(bytes).ok_or_else(|| E::invalid_length(bytes.len(), &self))
            }
        }
        deserializer.deserialize_bytes(Visitor)
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
        suite: Suite,
        /// Extended sequence numbers (RFC 4303 2.2.1).
        esn: bool,
        /// Packets that arrive.
        inbound: Sa,
        /// Packets that leave.
        outbound: Sa,
        /// Where the peer is, if known.
        peer: Option<Outer>,
    },
    /// Erase the pair that arrives under this SPI. Answered by [`FromStack::Taken`].
    Delete {
        /// The inbound SPI.
        spi: u32,
    },
    /// A datagram came. Answered by [`FromStack::Opened`].
    Datagram {
        /// From where.
        from: Outer,
        /// The ECN field of its outer header.
        ecn: u8,
        /// What is behind the UDP header.
        datagram: Bytes,
    },
    /// To the first stack alone: a packet came from the device. Answered by [`FromStack::Sealed`].
    Packet {
        /// Now.
        now: Duration,
        /// The packet.
        packet: Bytes,
    },
    /// To the second stack alone: is this that packet, sealed as it should be? Answered by [`FromStack::Agreed`].
    Check {
        /// What came from the device.
        packet: Bytes,
        /// What the first stack made of it.
        sealed: Sealed,
    },
    /// To the first stack alone. Answered by [`FromStack::Report`].
    Report,
}

/// A datagram to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// What goes behind the UDP header.
    pub datagram: Bytes,
    /// Where it goes.
    pub to: Outer,
    /// The ECN field of its outer header.
    pub ecn: u8,
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
    /// The packet that may pass; `None` if none may.
    Opened(Option<Bytes>),
    /// What is to be sent.
    Sealed(Outgoing),
    /// Whether it is.
    Agreed(bool),
    /// Counters and associations.
    Report(Report),
}

/// What becomes of a packet that is to leave.
#[derive(Debug, Serialize, Deserialize)]
pub enum Outgoing {
    /// It leaves so; and, once for each pair, the inbound SPI and the session of a pair near its end.
    Send(Sealed, Option<(u32, SessionId)>),
    /// It is dropped, and counted.
    Nothing,
    /// It is dropped, and this session needs keys.
    Wanted(SessionId),
}
