//! Messages from one host to another over datagrams that go one way: nothing is acknowledged, and nothing is asked for again.
//!
//! The sender puts messages together into blocks, adds repair symbols to each (RaptorQ, RFC 6330), seals each symbol with the channel's
//! key and sends it as a datagram. The receiver opens what comes, puts blocks together again out of whichever symbols arrive, and gives
//! their messages on in order. What cannot be put together in time is given up, and told as missing.
//!
//! | file | idea |
//! |---|---|
//! | `header` | a datagram's header, read once into a type |
//! | `seal` | the keys of a sender's run |
//! | `keys` | the keys that a receiver takes |
//! | `block` | messages in a block, and symbols of one |
//! | `send` | the sender |
//! | `receive` | the receiver, within bounds whatever comes |
//!
//! It may not touch a socket, a clock or randomness: time and what a run is called are arguments. Begin reading with `send.rs`.
#![forbid(unsafe_code)]

mod block;
mod header;
mod keys;
mod receive;
mod seal;
mod send;

pub use header::{BLOCK, HEADER, Header, Kind, MESSAGE, Malformed, OVERHEAD, Run};
pub use keys::Keys;
pub use receive::{Counts, Heard, Reached, Receiver};
pub use seal::{KEY, Secret};
pub use send::Sender;

/// Repair symbols of a block beside the share that the site says: of a small block that share is one or two, and more get lost by chance.
const MORE_REPAIR: u32 = 4;

/// What both ends know of a channel from their site files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    symbol: u16,
    message: usize,
    repair: u32,
}

impl Form {
    /// Of datagrams with at most so many octets behind the UDP header, messages of at most so many, and so many repair symbols for a
    /// hundred others; `None` where that is not possible.
    pub fn new(datagram: usize, message: usize, repair: u32) -> Option<Self> {
        // RFC 6330 4.4.1.2: a symbol is a multiple of its alignment.
        let symbol = datagram.checked_sub(OVERHEAD)? / ALIGNMENT * ALIGNMENT;
        let sound = (512..=16_384).contains(&symbol) && (1..=MESSAGE).contains(&message) && repair <= 100;
        Some(Self { symbol: u16::try_from(symbol).ok()?, message, repair }).filter(|_| sound)
    }

    /// Octets of a datagram with a symbol.
    pub fn datagram(&self) -> usize {
        usize::from(self.symbol) + OVERHEAD
    }

    /// Symbols that a block of so many octets has.
    fn symbols(&self, length: u32) -> u32 {
        length.div_ceil(u32::from(self.symbol))
    }

    /// Symbols that are sent for it, of repair, too.
    fn sent(&self, length: u32) -> u32 {
        let symbols = self.symbols(length);
        symbols.saturating_add(self.repair(symbols))
    }

    /// Repair symbols that are sent for a block of so many symbols.
    fn repair(&self, symbols: u32) -> u32 {
        symbols.saturating_mul(self.repair).div_ceil(100).saturating_add(MORE_REPAIR)
    }
}

/// Of symbols, in octets.
const ALIGNMENT: usize = 8;
