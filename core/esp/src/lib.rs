//! ESP (RFC 4303), without I/O: bytes and time are arguments. In tunnel mode by a [`Sad`]; [`transport`] mode and [`ah`] for
//! peers that need them.
//!
//! A [`Sad`] holds the sessions of one label and their security associations. A datagram from the socket goes into
//! [`Sad::open`] and comes out as an inner packet that its session's selectors allow, or as a [`DropReason`]; an
//! inner packet from the TUN device goes into [`Sad::seal`] and comes out as a datagram. Nothing else passes, and a
//! packet passes only when there are both keys and a session.
//!
//! The bytes are those behind the UDP header (RFC 3948): a security parameter index, never zero, first.
//!
//! ```text
//! 0       4        8          16                                            n-16      n
//! | SPI   | seq    | IV (8)   | inner packet | padding | pad len | next hdr | tag (16)|
//! ```
//!
//! Begin reading with `sad.rs`, then `sa.rs` and `selector.rs`. It may not have a socket, a clock or a thread, and makes no key.
#![forbid(unsafe_code)]

mod aead;
pub mod aggfrag;
pub mod ah;
mod drops;
pub mod ecn;
mod fragments;
mod inner;
mod mac;
pub mod offload;
mod replay;
mod sa;
mod sad;
mod selector;
mod spi;
mod steering;
mod suite;
mod toobig;
pub mod transport;
mod wait;

pub use aead::{Aead, AeadError, AeadProvider, NONCE, TAG};
pub use drops::{Counters, DropReason};
pub use inner::{Direction, Fragment, Inner, IpVersion, Piece};
pub use mac::{ICV, MAC_KEY, Mac, MacProvider};
pub use replay::{ReplayWindow, WINDOW};
pub use sa::{Decrypted, ESP_HEADER, InboundSa, OutboundSa, sealed_length};
pub use sad::{
    Gathered, Install, InstallError, Lane, Opened, Outer, Pair, PairView, Route, Sad, Sealed, SessionError,
    SessionPolicy, Side,
};
pub use selector::{AddressRange, PortRange, Selector, SelectorSet, Verdict};
pub use spi::Spi;
pub use steering::Steering;
pub use suite::{SaKeys, Suite};
pub use toobig::{TOO_BIG, too_big};
pub use wait::WaitQueue;
