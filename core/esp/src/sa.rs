//! One security association in each direction: the packet transform (RFC 4303 3.3, 3.4).

use zeroize::Zeroizing;

use crate::aead::{Aead, AeadError, AeadProvider, NONCE, TAG};
use crate::suite::SALT;
use crate::{DropReason, ReplayWindow, SaKeys, Spi, Suite};

/// Bytes before the inner packet: SPI, sequence number, IV.
pub const ESP_HEADER: usize = 16;

/// Bytes of a sealed packet with an inner one of `inner` bytes: header, padding to 4 bytes with its length and the
/// next header, tag.
#[must_use]
pub const fn sealed_length(inner: usize) -> usize {
    ESP_HEADER + (inner + 2).next_multiple_of(4) + TAG
}

/// RFC 4303 2.6: the next header of a dummy packet.
pub(crate) const DUMMY: u8 = 59;

/// A pair of packets sent on one IV would give both away, so a sender asks for new keys well before the last.
pub(crate) const ASK_AT_32: u64 = (1 << 32) / 4 * 3;
/// With 64-bit numbers, long before any bound on what one key may protect.
const ASK_AT_64: u64 = 1 << 40;

struct Transform {
    spi: Spi,
    suite: Suite,
    extended: bool,
    salt: Zeroizing<[u8; SALT]>,
    key: Box<dyn Aead>,
}

impl Transform {
    fn new(spi: Spi, keys: &SaKeys, extended: bool, provider: &dyn AeadProvider) -> Result<Self, AeadError> {
        let key = provider.key(keys.suite(), keys.key())?;
        Ok(Self { spi, suite: keys.suite(), extended, salt: Zeroizing::new(keys.salt()), key })
    }

    /// RFC 4106 4, RFC 7634 2: salt, then the IV as sent.
    fn nonce(&self, iv: [u8; 8]) -> [u8; NONCE] {
        let [s0, s1, s2, s3] = *self.salt;
        let [a, b, c, d, e, f, g, h] = iv;
        [s0, s1, s2, s3, a, b, c, d, e, f, g, h]
    }

    /// RFC 4106 5: SPI and sequence number, the latter whole when extended.
    fn with_aad<T>(&self, sequence: u64, with: impl FnOnce(&[u8]) -> T) -> T {
        let [a, b, c, d] = self.spi.to_be_bytes();
        let [e, f, g, h, i, j, k, l] = sequence.to_be_bytes();
        if self.extended {
            with(&[a, b, c, d, e, f, g, h, i, j, k, l])
        } else {
            with(&[a, b, c, d, i, j, k, l])
        }
    }
}

/// The sending side.
pub struct OutboundSa {
    transform: Transform,
    /// The last sequence number used.
    sequence: u64,
    asked: bool,
}

impl OutboundSa {
    /// A new association that has sent nothing; the keys must never have been used in this direction before.
    ///
    /// # Errors
    /// [`AeadError`] when the provider does not take the key.
    pub fn new(
        spi: Spi,
        keys: &SaKeys,
        extended: bool,
        provider: &dyn AeadProvider,
    ) -> Result<Self, AeadError> {
        Ok(Self { transform: Transform::new(spi, keys, extended, provider)?, sequence: 0, asked: false })
    }

    /// The peer's SPI.
    #[must_use]
    pub fn spi(&self) -> Spi {
        self.transform.spi
    }

    /// The cipher suite.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.transform.suite
    }

    /// True once, when three quarters of the sequence numbers are used: time for new keys.
    pub fn is_expiring(&mut self) -> bool {
        let limit = if self.transform.extended { ASK_AT_64 } else { ASK_AT_32 };
        !self.asked && self.sequence >= limit && {
            self.asked = true;
            true
        }
    }

    /// Seals the inner packet at `buffer[ESP_HEADER..][..inner]` in place, the header before it and the trailer
    /// behind; answers the length of the whole, [`sealed_length`] of `inner`.
    ///
    /// # Errors
    /// [`DropReason::Oversize`] when `buffer` has not that length; [`DropReason::SequenceExhausted`] when no sequence
    /// number is left, now and for ever after.
    pub fn seal(&mut self, buffer: &mut [u8], inner: usize, next_header: u8) -> Result<usize, DropReason> {
        let length = sealed_length(inner);
        let buffer = buffer.get_mut(..length).ok_or(DropReason::Oversize)?;
        let last = if self.transform.extended { u64::MAX } else { u64::from(u32::MAX) };
        if self.sequence >= last {
            return Err(DropReason::SequenceExhausted);
        }
        // Used up even if what follows fails: an IV never comes twice.
        self.sequence += 1;
        let iv = self.sequence.to_be_bytes();
        let (header, rest) = buffer.split_first_chunk_mut::<ESP_HEADER>().ok_or(DropReason::Oversize)?;
        let (text, tag) = rest.split_last_chunk_mut::<TAG>().ok_or(DropReason::Oversize)?;

        let [a, b, c, d] = self.transform.spi.to_be_bytes();
        let [e, f, g, h, i, j, k, l] = iv;
        *header = [a, b, c, d, i, j, k, l, e, f, g, h, i, j, k, l];

        // RFC 4303 2.4: padding 1, 2, 3, …, its length, the next header.
        let trailer = text.get_mut(inner..).ok_or(DropReason::Oversize)?;
        let (padding, ends) = trailer.split_last_chunk_mut::<2>().ok_or(DropReason::Oversize)?;
        let mut count = 0;
        for byte in padding {
            count += 1;
            *byte = count;
        }
        *ends = [count, next_header];

        let nonce = self.transform.nonce(iv);
        let sealed =
            self.transform.with_aad(self.sequence, |aad| self.transform.key.seal_in_place(&nonce, aad, text));
        *tag = sealed.map_err(|AeadError| DropReason::Oversize)?;
        Ok(length)
    }
}

/// What was in a sealed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decrypted {
    /// Bytes of plaintext without padding, at the start of the buffer.
    pub length: usize,
    /// What it is (4, 41 or 59 are what this crate passes on or drops as dummy).
    pub next_header: u8,
    /// The whole sequence number.
    pub sequence: u64,
    /// No packet with a higher sequence number has arrived before.
    pub newest: bool,
}

/// The receiving side.
pub struct InboundSa {
    transform: Transform,
    window: ReplayWindow,
}

impl InboundSa {
    /// A new association that has received nothing.
    ///
    /// # Errors
    /// [`AeadError`] when the provider does not take the key.
    pub fn new(
        spi: Spi,
        keys: &SaKeys,
        extended: bool,
        provider: &dyn AeadProvider,
    ) -> Result<Self, AeadError> {
        Ok(Self {
            transform: Transform::new(spi, keys, extended, provider)?,
            window: ReplayWindow::new(extended),
        })
    }

    /// Our SPI.
    #[must_use]
    pub fn spi(&self) -> Spi {
        self.transform.spi
    }

    /// The replay window.
    #[must_use]
    pub fn window(&self) -> &ReplayWindow {
        &self.window
    }

    /// Opens the datagram at `buffer[from..]` and leaves its plaintext at `buffer[..length]`, so that packets of one
    /// aggregate can be laid one behind the other. Not for datagrams of another SPI.
    ///
    /// RFC 4303 3.4: sequence number checked, then authenticated, then the window advanced, then the padding verified.
    ///
    /// # Errors
    /// The reason to drop it; the content of `buffer` is then unspecified.
    pub fn open(&mut self, buffer: &mut [u8], from: usize) -> Result<Decrypted, DropReason> {
        let header: [u8; ESP_HEADER] =
            *buffer.get(from..).and_then(|datagram| datagram.first_chunk()).ok_or(DropReason::Truncated)?;
        let text = buffer.len().checked_sub(from + ESP_HEADER + TAG).ok_or(DropReason::Truncated)?;
        // RFC 4303 2.4: the trailer ends on a 4-byte boundary, so there are at least 4 bytes.
        if text < 4 || !text.is_multiple_of(4) {
            return Err(DropReason::Truncated);
        }
        let [a, b, c, d, s0, s1, s2, s3, iv @ ..] = header;
        if [a, b, c, d] != self.transform.spi.to_be_bytes() {
            return Err(DropReason::UnknownSpi);
        }
        let sequence = self.window.check(u32::from_be_bytes([s0, s1, s2, s3]))?;
        let nonce = self.transform.nonce(iv);
        let opened = self
            .transform
            .with_aad(sequence, |aad| self.transform.key.open_within(&nonce, aad, buffer, from + ESP_HEADER));
        let length = opened.map_err(|AeadError| DropReason::AuthFailed)?;
        let newest = self.window.advance(sequence)?;

        let plain = buffer.get(..length).ok_or(DropReason::AuthFailed)?;
        let (rest, &[padding, next_header]) = plain.split_last_chunk::<2>().ok_or(DropReason::BadPadding)?;
        let length = rest.len().checked_sub(usize::from(padding)).ok_or(DropReason::BadPadding)?;
        let (_, padding) = rest.split_at_checked(length).ok_or(DropReason::BadPadding)?;
        if padding.iter().zip(1_u8..=255).any(|(byte, expected)| *byte != expected) {
            return Err(DropReason::BadPadding);
        }
        Ok(Decrypted { length, next_header, sequence, newest })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// No cipher: the text stays as it is and the tag is zero, so that a test can write any plaintext.
    struct Clear;

    impl Aead for Clear {
        fn seal_in_place(&self, _: &[u8; NONCE], _: &[u8], _: &mut [u8]) -> Result<[u8; TAG], AeadError> {
            Ok([0; TAG])
        }

        fn open_within(
            &self,
            _: &[u8; NONCE],
            _: &[u8],
            buffer: &mut [u8],
            from: usize,
        ) -> Result<usize, AeadError> {
            let end = buffer.len().checked_sub(TAG).ok_or(AeadError)?;
            if buffer.get(end..) != Some(&[0; TAG]) {
                return Err(AeadError);
            }
            buffer.copy_within(from..end, 0);
            Ok(end - from)
        }
    }

    pub(crate) struct InClear;

    impl OutboundSa {
        /// As if so many packets had gone.
        pub(crate) fn after(&mut self, sequence: u64) {
            self.sequence = sequence;
        }
    }

    impl AeadProvider for InClear {
        fn name(&self) -> &'static str {
            "clear"
        }

        fn key(&self, _: Suite, _: &[u8]) -> Result<Box<dyn Aead>, AeadError> {
            Ok(Box::new(Clear))
        }
    }

    fn pair(extended: bool) -> (OutboundSa, InboundSa) {
        let keys = SaKeys::new(Suite::Aes128Gcm, &[1; 20]).unwrap();
        let spi = Spi::new(0x0010_0001).unwrap();
        let outbound = OutboundSa::new(spi, &keys, extended, &InClear).unwrap();
        (outbound, InboundSa::new(spi, &keys, extended, &InClear).unwrap())
    }

    /// A packet with this plaintext, trailer included.
    fn packet(sequence: u32, plain: &[u8]) -> Vec<u8> {
        let mut bytes = 0x0010_0001_u32.to_be_bytes().to_vec();
        bytes.extend(sequence.to_be_bytes());
        bytes.extend([0; 8]);
        bytes.extend(plain);
        bytes.extend([0; TAG]);
        bytes
    }

    #[test]
    fn padding_is_one_two_three_and_no_longer_than_the_packet() {
        let (_, mut inbound) = pair(false);
        let mut sequence = 0;
        let mut open = |plain: &[u8]| {
            sequence += 1;
            inbound.open(&mut packet(sequence, plain), 0).map(|opened| (opened.length, opened.next_header))
        };
        assert_eq!(open(&[9, 9, 0, 4]), Ok((2, 4)));
        assert_eq!(open(&[9, 1, 1, 4]), Ok((1, 4)));
        assert_eq!(open(&[1, 2, 2, 41]), Ok((0, 41)));
        assert_eq!(open(&[9, 1, 2, 3, 4, 5, 5, 4]), Ok((1, 4)));
        assert_eq!(open(&[9, 0, 1, 4]), Err(DropReason::BadPadding));
        assert_eq!(open(&[2, 1, 2, 4]), Err(DropReason::BadPadding));
        assert_eq!(open(&[1, 2, 3, 4]), Err(DropReason::BadPadding), "more padding than packet");
        assert_eq!(open(&[1, 2, 255, 4]), Err(DropReason::BadPadding));
        let longest: Vec<u8> = [7].into_iter().chain(1..=255).chain([0, 0, 255, 4]).collect();
        assert_eq!(open(&longest[..longest.len()]), Err(DropReason::BadPadding));
        let longest: Vec<u8> = [7, 7, 7].into_iter().chain(1..=255).chain([255, 4]).collect();
        assert_eq!(open(&longest), Ok((3, 4)));
    }

    #[test]
    fn bad_padding_uses_its_sequence_number_up_because_it_was_authentic() {
        let (_, mut inbound) = pair(false);
        assert_eq!(inbound.open(&mut packet(5, &[9, 9, 9, 4]), 0), Err(DropReason::BadPadding));
        assert_eq!(inbound.open(&mut packet(5, &[9, 9, 0, 4]), 0), Err(DropReason::Replay));
    }

    #[test]
    fn a_sender_of_32_bit_numbers_stops_at_the_last_and_asks_for_keys_before() {
        let (mut outbound, _) = pair(false);
        let mut buffer = vec![0; sealed_length(10)];
        outbound.sequence = ASK_AT_32 - 2;
        outbound.seal(&mut buffer, 10, 4).unwrap();
        assert!(!outbound.is_expiring());
        outbound.seal(&mut buffer, 10, 4).unwrap();
        assert!(outbound.is_expiring());
        assert!(!outbound.is_expiring(), "once");
        outbound.sequence = u64::from(u32::MAX) - 1;
        assert!(outbound.seal(&mut buffer, 10, 4).is_ok());
        assert_eq!(buffer[4..8], [0xff; 4]);
        for _ in 0..3 {
            assert_eq!(outbound.seal(&mut buffer, 10, 4), Err(DropReason::SequenceExhausted));
        }
    }

    #[test]
    fn a_sender_of_64_bit_numbers_goes_on_past_32_and_stops_at_the_last() {
        let (mut outbound, mut inbound) = pair(true);
        let mut buffer = vec![0; sealed_length(10)];
        outbound.sequence = u64::from(u32::MAX) - 1;
        inbound.window.advance(u64::from(u32::MAX) - 1).unwrap();
        for expected in [u64::from(u32::MAX), 1 << 32, (1 << 32) + 1] {
            outbound.seal(&mut buffer, 10, 4).unwrap();
            assert_eq!(buffer[8..16], expected.to_be_bytes());
            assert!(inbound.open(&mut buffer.clone(), 0).unwrap().newest);
            assert_eq!(inbound.window().top(), expected);
        }
        outbound.sequence = u64::MAX - 1;
        assert!(outbound.seal(&mut buffer, 10, 4).is_ok());
        assert_eq!(outbound.seal(&mut buffer, 10, 4), Err(DropReason::SequenceExhausted));
    }

    #[test]
    fn a_buffer_that_is_too_short_uses_no_sequence_number() {
        let (mut outbound, _) = pair(true);
        for length in 0..sealed_length(10) {
            assert_eq!(outbound.seal(&mut vec![0; length], 10, 4), Err(DropReason::Oversize));
        }
        assert_eq!(outbound.sequence, 0);
    }
}
