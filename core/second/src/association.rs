//! One association in each direction: sequence numbers and the AEAD (RFC 4303 3.3.3, 3.4.3, RFC 4106, RFC 7634).

use std::collections::BTreeSet;

use levee_esp::{Aead, AeadProvider, Suite};
use zeroize::Zeroizing;

use crate::plain::Plain;

/// SPI, sequence number, IV.
const HEAD: usize = 16;
/// The tag.
const TAG: usize = 16;
/// Sequence numbers that the window covers, the highest seen among them.
const WINDOW: i128 = 8_192;

/// One direction of a pair: an SPI and its keying material, key and salt.
#[derive(Clone, Copy)]
pub struct Half<'a> {
    /// The SPI, chosen by the receiver.
    pub spi: u32,
    /// The key, then the salt of 4 bytes (RFC 4106 8.1, RFC 7634 2).
    pub material: &'a [u8],
}

/// The key of one direction.
struct Key {
    spi: u32,
    extended: bool,
    salt: Zeroizing<[u8; 4]>,
    aead: Box<dyn Aead>,
}

impl Key {
    fn new(suite: Suite, extended: bool, half: Half<'_>, library: &dyn AeadProvider) -> Option<Self> {
        let (key, salt) = half.material.split_at_checked(suite.key_length())?;
        let salt = Zeroizing::new(salt.try_into().ok()?);
        Some(Self { spi: half.spi, extended, salt, aead: library.key(suite, key).ok()? })
    }

    /// The plaintext with its trailer, if the tag is right for this whole sequence number.
    fn open(&self, datagram: &[u8], sequence: u64) -> Option<Plain> {
        let mut nonce = Zeroizing::new([0; 12]);
        let (salt, iv) = nonce.split_at_mut_checked(4)?;
        salt.copy_from_slice(&*self.salt);
        iv.copy_from_slice(datagram.get(8..HEAD)?);
        let mut aad = self.spi.to_be_bytes().to_vec();
        // RFC 4106 5: the sequence number, whole where it is extended.
        let sequence = sequence.to_be_bytes();
        aad.extend(sequence.get(if self.extended { 0 } else { 4 }..)?);
        let mut text = Plain::of(datagram.get(HEAD..)?);
        let length = self.aead.open_within(&nonce, &aad, &mut text, 0).ok()?;
        text.truncate(length);
        Some(text)
    }
}

/// Whether a datagram has the form of one that was sealed: header, text of a multiple of 4 bytes, tag.
fn is_whole(datagram: &[u8]) -> bool {
    datagram.len() >= HEAD + 4 + TAG && datagram.len().is_multiple_of(4)
}

/// The sequence number's low 32 bits.
fn low(datagram: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(datagram.get(4..8)?.try_into().ok()?))
}

/// What was in a datagram.
pub(crate) struct Opened {
    /// Plaintext with its trailer.
    pub(crate) text: Plain,
    /// None with a higher number came before.
    pub(crate) newest: bool,
}

/// The receiving side.
pub(crate) struct Inbound {
    key: Key,
    /// The highest number seen; 0 before the first.
    top: i128,
    seen: BTreeSet<i128>,
}

impl Inbound {
    pub(crate) fn new(
        suite: Suite,
        extended: bool,
        half: Half<'_>,
        library: &dyn AeadProvider,
    ) -> Option<Self> {
        Some(Self { key: Key::new(suite, extended, half, library)?, top: 0, seen: BTreeSet::new() })
    }

    pub(crate) fn open(&mut self, datagram: &[u8]) -> Option<Opened> {
        if !is_whole(datagram) {
            return None;
        }
        let bottom = self.top - WINDOW + 1;
        let low = i128::from(low(datagram)?);
        // The one number with these low bits from the bottom of the window on.
        let sequence = if self.key.extended { bottom + (low - bottom).rem_euclid(1 << 32) } else { low };
        if sequence < 1 || sequence < bottom || self.seen.contains(&sequence) {
            return None;
        }
        let text = self.key.open(datagram, u64::try_from(sequence).ok()?)?;
        let newest = sequence > self.top;
        self.top = self.top.max(sequence);
        self.seen.insert(sequence);
        // What lies below the window is refused by that alone.
        while self.seen.first().is_some_and(|first| *first <= self.top - WINDOW) {
            self.seen.pop_first();
        }
        Some(Opened { text, newest })
    }
}

/// The sending side, seen from where it is checked.
pub(crate) struct Outbound {
    key: Key,
    /// The last number used; 0 before the first.
    last: u64,
}

impl Outbound {
    pub(crate) fn new(
        suite: Suite,
        extended: bool,
        half: Half<'_>,
        library: &dyn AeadProvider,
    ) -> Option<Self> {
        Some(Self { key: Key::new(suite, extended, half, library)?, last: 0 })
    }

    pub(crate) fn spi(&self) -> u32 {
        self.key.spi
    }

    /// The plaintext with its trailer of a datagram that may be sent: its IV is its whole sequence number, higher than
    /// every one before, so that no IV ever comes twice.
    pub(crate) fn check(&mut self, datagram: &[u8]) -> Option<Plain> {
        if !is_whole(datagram) {
            return None;
        }
        let sequence = u64::from_be_bytes(datagram.get(8..HEAD)?.try_into().ok()?);
        let too_high = !self.key.extended && sequence > u64::from(u32::MAX);
        if sequence <= self.last || too_high || u64::from(low(datagram)?) != sequence & 0xffff_ffff {
            return None;
        }
        let text = self.key.open(datagram, sequence)?;
        self.last = sequence;
        Some(text)
    }
}

/// Takes the trailer off: the next header, the padding's length and the padding itself, 1, 2, 3, … (RFC 4303 2.4).
pub(crate) fn unpadded(mut text: Plain) -> Option<(Plain, u8)> {
    let next = text.pop()?;
    for expected in (1..=text.pop()?).rev() {
        if text.pop()? != expected {
            return None;
        }
    }
    Some((text, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_aead::Library;

    #[test]
    fn no_more_numbers_are_kept_than_the_window_covers() {
        let (suite, material) = (Suite::ChaCha20Poly1305, [7; 36]);
        let half = Half { spi: 300, material: &material };
        let mut inbound = Inbound::new(suite, true, half, &Library::AwsLc).unwrap();
        let key = Library::Ring.key(suite, &material[..32]).unwrap();
        for sequence in 1..=WINDOW as u64 + 100 {
            let whole = sequence.to_be_bytes();
            let head = half.spi.to_be_bytes();
            let nonce = [&material[32..], &whole].concat().try_into().unwrap();
            let mut text = [0; 4];
            let tag = key.seal_in_place(&nonce, &[&head[..], &whole].concat(), &mut text).unwrap();
            let datagram = [&head[..], &whole[4..], &whole, &text, &tag].concat();
            assert!(inbound.open(&datagram).is_some_and(|opened| opened.newest));
        }
        assert_eq!(i128::try_from(inbound.seen.len()), Ok(WINDOW));
    }
}
