//! Opening written a second time, plainly and with another library: both must come to the same end with every packet.

use std::collections::BTreeSet;

use levee_aead::Library;
use levee_esp::{Aead, AeadProvider, Decrypted, DropReason, InboundSa, SaKeys, Spi, Suite, WINDOW};
use proptest::prelude::*;

const SPI: u32 = 0x0010_0042;

/// RFC 4303 3.4, step by step, with copies and sets.
struct Second {
    key: Box<dyn Aead>,
    salt: Vec<u8>,
    extended: bool,
    top: i128,
    seen: BTreeSet<i128>,
}

impl Second {
    fn new(suite: Suite, material: &[u8], extended: bool) -> Self {
        let (key, salt) = material.split_at(suite.key_length());
        let key = Library::AwsLc.key(suite, key).unwrap();
        Self { key, salt: salt.to_vec(), extended, top: 0, seen: BTreeSet::new() }
    }

    fn open(&mut self, packet: &[u8]) -> Result<(Vec<u8>, u8), DropReason> {
        let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
        if packet.len() < 8 + 8 + 4 + 16 || !packet.len().is_multiple_of(4) {
            return Err(DropReason::Truncated);
        }
        if word(0) != SPI {
            return Err(DropReason::UnknownSpi);
        }
        // The one number with these low bits from the bottom of the window on.
        let low = i128::from(word(4));
        let bottom = self.top - i128::from(WINDOW) + 1;
        let sequence = if self.extended { bottom + (low - bottom).rem_euclid(1 << 32) } else { low };
        let good = 1..1_i128 << if self.extended { 64 } else { 32 };
        if !good.contains(&sequence) || sequence < bottom || self.seen.contains(&sequence) {
            return Err(DropReason::Replay);
        }
        let mut nonce = self.salt.clone();
        nonce.extend(&packet[8..16]);
        let mut aad = packet[..4].to_vec();
        let whole = (sequence as u64).to_be_bytes();
        aad.extend(if self.extended { &whole[..] } else { &whole[4..] });
        let mut text = packet[16..].to_vec();
        let length = self
            .key
            .open_within(&nonce.try_into().unwrap(), &aad, &mut text, 0)
            .map_err(|_| DropReason::AuthFailed)?;
        text.truncate(length);
        self.seen.insert(sequence);
        self.top = self.top.max(sequence);
        let next = text.pop().unwrap();
        let padding = usize::from(text.pop().unwrap());
        for expected in (1..=padding).rev() {
            if text.pop() != Some(expected as u8) {
                return Err(DropReason::BadPadding);
            }
        }
        Ok((text, next))
    }
}

/// A sealed packet with this number and everything behind the IV as given.
fn sealed(suite: Suite, material: &[u8], extended: bool, sequence: u64, text: &[u8]) -> Vec<u8> {
    let (key, salt) = material.split_at(suite.key_length());
    let whole = sequence.to_be_bytes();
    let mut packet = SPI.to_be_bytes().to_vec();
    let mut aad = packet.clone();
    aad.extend(if extended { &whole[..] } else { &whole[4..] });
    packet.extend(&whole[4..]);
    packet.extend(&whole);
    let nonce = [salt, &whole].concat();
    let mut text = text.to_vec();
    let key = Library::Ring.key(suite, key).unwrap();
    let tag = key.seal_in_place(&nonce.try_into().unwrap(), &aad, &mut text).unwrap();
    packet.extend(text);
    packet.extend(tag);
    packet
}

/// What happens to a packet.
#[derive(Clone, Debug)]
enum Harm {
    No,
    /// Padding that is not 1, 2, 3, …
    Padding(u8),
    Bit(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Longer(u8),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        8 => Just(Harm::No),
        1 => any::<u8>().prop_map(Harm::Padding),
        1 => (any::<prop::sample::Index>(), 0_u8..8).prop_map(|(at, bit)| Harm::Bit(at, bit)),
        1 => any::<prop::sample::Index>().prop_map(Harm::Cut),
        1 => (1_u8..9).prop_map(Harm::Longer),
    ]
}

/// Steps of a sequence number, among them ones across the window and across 2^32.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => 0_i64..4,
        3 => -40_i64..40,
        2 => -9_000_i64..9_000,
        1 => prop::sample::select(vec![-8_191_i64, -8_192, 8_191, 8_192, 1 << 31, (1 << 32) - 9_000, 1 << 32]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn two_openings_come_to_the_same_end_with_every_packet(
        suite in prop::sample::select(Suite::ALL.to_vec()),
        extended in any::<bool>(),
        start in prop_oneof![0_u64..10, Just(4_294_967_290), Just(8_589_934_500), Just(u64::MAX - 20)],
        packets in prop::collection::vec((step(), 0_usize..60, any::<u8>(), harm()), 1..60),
        gap in 0_usize..20,
    ) {
        let material: Vec<u8> = (0..suite.keying_material() as u8).collect();
        let keys = SaKeys::new(suite, &material).unwrap();
        let mut first = InboundSa::new(Spi::new(SPI).unwrap(), &keys, extended, &Library::Ring).unwrap();
        let mut second = Second::new(suite, &material, extended);
        let mut sequence = start;
        for (step, length, next, harm) in packets {
            sequence = sequence.saturating_add_signed(step);
            let pad = (4 - (length + 2) % 4) % 4;
            let mut text: Vec<u8> = (0..length as u8).collect();
            text.extend(1..=pad as u8);
            text.extend([pad as u8, next]);
            if let Harm::Padding(byte) = harm {
                let at = text.len() - 2;
                text[at] = byte;
            }
            let mut packet = sealed(suite, &material, extended, sequence, &text);
            match harm {
                Harm::No | Harm::Padding(_) => {}
                Harm::Bit(at, bit) => {
                    let at = at.index(packet.len());
                    packet[at] ^= 1 << bit;
                }
                Harm::Cut(at) => packet.truncate(at.index(packet.len())),
                Harm::Longer(by) => packet.extend(vec![0; usize::from(by)]),
            }
            let mut buffer = vec![0xaa; gap];
            buffer.extend(&packet);
            let one = first.open(&mut buffer, gap).map(|Decrypted { length, next_header, .. }| {
                (buffer[..length].to_vec(), next_header)
            });
            let other = second.open(&packet);
            prop_assert_eq!(one, other, "{} {:?}", sequence, harm);
        }
    }
}
