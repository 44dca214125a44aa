//! A datagram's header, read once into a type. All numbers have their highest octet first.
//!
//! ```text
//!  0  version, 1          1  kind: 0 a symbol, 1 a beat      2  nothing, 2 octets
//!  4  when the sender began, in nanoseconds, 8 octets       12  a random number of its run, 8 octets
//! 20  the block, 8 octets
//! 28  octets of the block, 4; of a beat 0                   32  the symbol's number, 4 octets; of a beat its own
//! 36  sealed: a symbol, or of a beat the number of the next message; then the tag, 16 octets
//! ```

use levee_esp::{NONCE, TAG};

/// Octets of a message at most.
pub const MESSAGE: usize = 64 << 10;

/// Octets of a block at most: two of the longest messages, how long each is, and the number of the first.
pub const BLOCK: usize = 2 * (MESSAGE + 4) + 8;

/// Octets of a header.
pub const HEADER: usize = 36;
/// Octets of a datagram that are not its symbol's.
pub const OVERHEAD: usize = HEADER + TAG;

const VERSION: u8 = 1;
/// Above all numbers of symbols (RFC 6330 3.2 has 24 bits for them): so no nonce is used twice.
const BEAT: u32 = 1 << 31;

/// A sender's life, from its start to its end: each has keys of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// When it began, in nanoseconds since 1970 by its own clock: a later one takes the place of one before it.
    pub began: u64,
    /// Drawn at its start.
    pub random: u64,
}

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A symbol of a block.
    Symbol {
        /// Octets of the block: 1 to [`BLOCK`].
        length: u32,
        /// The symbol's number (RFC 6330: ESI), below 2^24.
        number: u32,
    },
    /// That the sender is there, and up to which block it has sent.
    Beat(u32),
}

/// What a datagram begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose it is.
    pub run: Run,
    /// The block; of a beat the one that is sent next.
    pub block: u64,
    /// What it is.
    pub kind: Kind,
}

/// It is no datagram of a one-way channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Header {
    /// Reads one, which must be all of what is there.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(bytes: &[u8; HEADER]) -> Result<Self, Malformed> {
        let [version, kind, 0, 0, ..] = bytes else { return Err(Malformed) };
        if *version != VERSION {
            return Err(Malformed);
        }
        let run = Run { began: long(bytes, 4)?, random: long(bytes, 12)? };
        let (block, length, number) = (long(bytes, 20)?, short(bytes, 28)?, short(bytes, 32)?);
        let kind = match kind {
            0 if (1..=BLOCK).contains(&usize::try_from(length).map_err(|_| Malformed)?)
                && number < 1 << 24 =>
            {
                Kind::Symbol { length, number }
            }
            1 if length == 0 && number & BEAT != 0 => Kind::Beat(number & !BEAT),
            _ => return Err(Malformed),
        };
        Ok(Self { run, block, kind })
    }

    /// Writes it.
    pub fn write(&self) -> [u8; HEADER] {
        let (kind, length, number) = match self.kind {
            Kind::Symbol { length, number } => (0, length, number),
            Kind::Beat(number) => (1, 0, number | BEAT),
        };
        let mut bytes = [0; HEADER];
        let fields: [&[u8]; 6] = [
            &[VERSION, kind, 0, 0],
            &self.run.began.to_be_bytes(),
            &self.run.random.to_be_bytes(),
            &self.block.to_be_bytes(),
            &length.to_be_bytes(),
            &number.to_be_bytes(),
        ];
        let all = fields.into_iter().flatten();
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
        bytes
    }

    /// No two datagrams of a run have the same.
    pub(crate) fn nonce(&self) -> [u8; NONCE] {
        let number = match self.kind {
            Kind::Symbol { number, .. } => number,
            Kind::Beat(number) => number | BEAT,
        };
        let mut nonce = [0; NONCE];
        let all = self.block.to_be_bytes().into_iter().chain(number.to_be_bytes());
        nonce.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        nonce
    }
}

pub(crate) fn long(bytes: &[u8], at: usize) -> Result<u64, Malformed> {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Malformed)?;
    Ok(u64::from_be_bytes(*field))
}

pub(crate) fn short(bytes: &[u8], at: usize) -> Result<u32, Malformed> {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Malformed)?;
    Ok(u32::from_be_bytes(*field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_datagrams_of_a_run_have_the_same_nonce() {
        let run = Run { began: 1, random: 2 };
        let mut nonces = BTreeSet::new();
        for block in [0, 1, 255, 256, 1 << 32, u64::MAX] {
            for number in [0, 1, 255, 256, 1 << 16, (1 << 24) - 1] {
                for kind in [Kind::Symbol { length: 1, number }, Kind::Beat(number)] {
                    assert!(nonces.insert(Header { run, block, kind }.nonce()), "{block} {kind:?}");
                }
            }
        }
        assert_eq!(nonces.len(), 6 * 6 * 2);
    }
}
