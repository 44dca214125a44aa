//! Messages in a block, and symbols of one.
//!
//! ```text
//! 0  the number of its first message, 8 octets
//! 8  of each message its length, 4 octets, and what is in it; or 2^32 - 1, where the message is missing
//! ```

use crate::header::{Malformed, long, short};
use crate::{ALIGNMENT, BLOCK, Form};
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder, SourceBlockEncoder,
};

/// The length of a message that is missing.
const MISSING: u32 = u32::MAX;
/// Octets before the first message.
const FIRST: usize = 8;

/// A message, or nothing where it is missing.
pub type Message = Option<Vec<u8>>;

/// Messages that are put together into a block.
#[derive(Debug, Default)]
pub struct Filling {
    bytes: Vec<u8>,
    next: u64,
}

impl Filling {
    /// Whether a message of so many octets has room.
    pub fn has_room(&self, length: usize) -> bool {
        self.bytes.len().max(FIRST) + 4 + length <= BLOCK
    }

    /// Adds a message, which has room.
    pub fn add(&mut self, message: Option<&[u8]>) {
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&self.next.to_be_bytes());
        }
        let length = message.map_or(MISSING, |message| u32::try_from(message.len()).unwrap_or(MISSING));
        self.bytes.extend_from_slice(&length.to_be_bytes());
        self.bytes.extend_from_slice(message.unwrap_or_default());
        self.next = self.next.wrapping_add(1);
    }

    /// What has been put together, if anything.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        (!self.bytes.is_empty()).then(|| std::mem::take(&mut self.bytes))
    }

    /// The number of the next message.
    pub fn next(&self) -> u64 {
        self.next
    }
}

/// Reads a block: the number of its first message, and its messages, one at least.
///
/// # Errors
/// It is none.
pub fn read(block: &[u8], longest: usize) -> Result<(u64, Vec<Message>), Malformed> {
    let (first, mut rest) = (long(block, 0)?, block.get(FIRST..).unwrap_or_default());
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let length = short(rest, 0)?;
        rest = rest.get(4..).ok_or(Malformed)?;
        if length == MISSING {
            messages.push(None);
            continue;
        }
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (message, behind) =
            rest.split_at_checked(length).filter(|_| (1..=longest).contains(&length)).ok_or(Malformed)?;
        messages.push(Some(message.to_vec()));
        rest = behind;
    }
    // The number behind the last must be one.
    let count = u64::try_from(messages.len()).map_err(|_| Malformed)?;
    first.checked_add(count).filter(|_| count > 0).ok_or(Malformed)?;
    Ok((first, messages))
}

/// RFC 6330 4.4.1.2: one source block, no sub-blocks.
fn whole(form: &Form, symbols: u32) -> (ObjectTransmissionInformation, u64) {
    let length = u64::from(symbols) * u64::from(form.symbol);
    let alignment = u8::try_from(ALIGNMENT).unwrap_or(1);
    (ObjectTransmissionInformation::new(length, form.symbol, 1, 1, alignment), length)
}

/// All symbols of a block that are sent, by their numbers from 0 on: those of the block itself first.
pub fn symbols(form: &Form, block: &[u8]) -> Vec<Vec<u8>> {
    let symbols = form.symbols(u32::try_from(block.len()).unwrap_or(u32::MAX));
    let (config, length) = whole(form, symbols);
    let mut padded = block.to_vec();
    padded.resize(usize::try_from(length).unwrap_or(block.len()), 0);
    let encoder = SourceBlockEncoder::new(0, &config, &padded);
    let mut all = encoder.source_packets();
    all.extend(encoder.repair_packets(0, form.repair(symbols)));
    all.into_iter().map(|packet| packet.split().1).collect()
}

/// A block that is being put together.
#[derive(Debug)]
pub struct Gathering {
    decoder: SourceBlockDecoder,
    length: u32,
    /// Its own symbols.
    symbols: u32,
    /// Which have come, of all that are sent.
    came: Vec<bool>,
}

/// What a symbol did for its block.
#[derive(Debug, PartialEq, Eq)]
pub enum Added {
    /// Nothing: it is none that is sent, or was there.
    Nothing,
    /// There are not enough yet.
    More,
    /// The block.
    Whole(Vec<u8>),
}

impl Gathering {
    /// Of a block with so many octets, 1 to [`BLOCK`].
    pub fn new(form: &Form, length: u32) -> Self {
        let symbols = form.symbols(length);
        let (config, octets) = whole(form, symbols);
        let came = vec![false; usize::try_from(form.sent(length)).unwrap_or(0)];
        Self { decoder: SourceBlockDecoder::new(0, &config, octets), length, symbols, came }
    }

    /// Whether a symbol of a block of so many octets, with this number, is one that is sent and has not come.
    pub fn wants(&self, length: u32, number: u32) -> bool {
        let came = usize::try_from(number).ok().and_then(|number| self.came.get(number));
        length == self.length && came == Some(&false)
    }

    /// Adds a symbol.
    pub fn add(&mut self, form: &Form, number: u32, symbol: &[u8]) -> Added {
        let came = usize::try_from(number).ok().and_then(|number| self.came.get_mut(number));
        let Some(came) = came.filter(|came| !**came && symbol.len() == usize::from(form.symbol)) else {
            return Added::Nothing;
        };
        *came = true;
        let packet = EncodingPacket::new(PayloadId::new(0, number), symbol.to_vec());
        let Some(mut block) = self.decoder.decode([packet]) else { return Added::More };
        block.truncate(usize::try_from(self.length).unwrap_or(0));
        Added::Whole(block)
    }

    /// Whether any of its own symbols has not come.
    pub fn lacked(&self) -> bool {
        self.came.iter().zip(0..self.symbols).any(|(came, _)| !came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OVERHEAD;

    #[test]
    fn a_block_is_the_number_of_its_first_message_and_one_message_at_least() {
        let block = |first: u64, rest: &[u8]| [&first.to_be_bytes()[..], rest].concat();
        let read = |first, rest: &[u8]| read(&block(first, rest), 3);
        assert_eq!(read(7, &[0, 0, 0, 1, 9]), Ok((7, vec![Some(vec![9])])));
        assert_eq!(read(7, &[255, 255, 255, 255, 0, 0, 0, 1, 9]), Ok((7, vec![None, Some(vec![9])])));
        assert_eq!(read(u64::MAX - 1, &[0, 0, 0, 1, 9]), Ok((u64::MAX - 1, vec![Some(vec![9])])));
        for (first, rest) in [
            // None; none of no octets, none longer than any may be, none cut short; no number behind the last.
            (7, &[][..]),
            (7, &[0, 0, 0, 0]),
            (7, &[0, 0, 0, 4, 9, 9, 9, 9]),
            (7, &[0, 0, 0, 2, 9]),
            (7, &[0, 0, 0, 1, 9, 0]),
            (u64::MAX, &[0, 0, 0, 1, 9]),
        ] {
            assert!(read(first, rest).is_err(), "{first} {rest:?}");
        }
        assert!(super::read(&[0; 7], 3).is_err());
    }

    #[test]
    fn a_symbol_of_another_length_or_number_and_one_that_was_there_do_nothing() {
        let form = Form::new(512 + OVERHEAD, 3, 0).expect("a form");
        let block = vec![7; 1_000];
        let (all, mut gathering) = (symbols(&form, &block), Gathering::new(&form, 1_000));
        for (number, length) in [(0, 511), (0, 0), (6, 512), (u32::MAX, 512)] {
            assert_eq!(gathering.add(&form, number, &vec![7; length]), Added::Nothing, "{number} {length}");
        }
        assert_eq!(gathering.add(&form, 0, &all[0]), Added::More);
        assert_eq!(gathering.add(&form, 0, &all[0]), Added::Nothing);
        assert_eq!(gathering.add(&form, 5, &all[5]), Added::Whole(block));
    }
}
