//! Which slot an SPI names: the function that the kernel's program computes for each datagram (`levee_sys::udp`), so that the
//! keyer can choose SPIs that reach the vault they are for.
//!
//! It is Chaskey-12 (Mouha et al., SAC 2014; ISO/IEC 29192-6) over the SPI's four octets, lowest first, under a key that is drawn
//! at each start; the first word of the tag, modulo the number of slots. Who sees SPIs and has not the key cannot tell whether
//! two of them name one slot: `docs/esp.md` says why.

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::Spi;

/// Rounds of the permutation.
const ROUNDS: usize = 12;

/// The steering function of one run. Erased when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Steering {
    /// The state before the SPI is mixed in: key, subkey and padding.
    first: [u32; 4],
    /// What is mixed into the tag's first word.
    last: u32,
    slots: u16,
}

impl Steering {
    /// Octets of a key.
    pub const KEY: usize = 16;
    /// The most slots.
    pub const MOST: u16 = 4_095;

    /// With this key, to slots 1 to `slots`; `None` when there are none or more than [`Steering::MOST`].
    #[must_use]
    pub fn new(key: &[u8; Self::KEY], slots: u16) -> Option<Self> {
        if slots == 0 || slots > Self::MOST {
            return None;
        }
        let key = u128::from_le_bytes(*key);
        // A message that is no whole block has the second subkey, and a padding of 1, 0, 0, …
        let second = twice(twice(key));
        let first = words(key ^ second ^ (1 << 32));
        Some(Self { first, last: words(second)[0], slots })
    }

    /// The slot that this SPI names.
    #[must_use]
    pub fn slot(&self, spi: Spi) -> u16 {
        let mut v = self.first;
        v[0] ^= spi.get();
        for _ in 0..ROUNDS {
            round(&mut v);
        }
        let tag = v[0] ^ self.last;
        // Below 4,095.
        (tag % u32::from(self.slots)) as u16 + 1
    }

    /// An SPI of this slot, out of `random` numbers; `None` for a slot that there is not, or after 64 times as many tries as there
    /// are slots, which good numbers cause once in 10^27 times.
    pub fn spi(&self, slot: u16, mut random: impl FnMut() -> u32) -> Option<Spi> {
        if slot == 0 || slot > self.slots {
            return None;
        }
        (0..u32::from(self.slots) * 64).find_map(|_| Spi::new(random()).filter(|spi| self.slot(*spi) == slot))
    }
}

impl core::fmt::Debug for Steering {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Steering(.., {} slots)", self.slots)
    }
}

/// Multiplied by x in GF(2^128), by the polynomial x^128 + x^7 + x^2 + x + 1.
const fn twice(value: u128) -> u128 {
    (value << 1) ^ ((value >> 127) * 0x87)
}

/// The four words, lowest first.
const fn words(value: u128) -> [u32; 4] {
    // Each cast takes the low 32 bits.
    [value as u32, (value >> 32) as u32, (value >> 64) as u32, (value >> 96) as u32]
}

/// One round of the permutation.
fn round([v0, v1, v2, v3]: &mut [u32; 4]) {
    *v0 = v0.wrapping_add(*v1);
    *v1 = v1.rotate_left(5) ^ *v0;
    *v0 = v0.rotate_left(16);
    *v2 = v2.wrapping_add(*v3);
    *v3 = v3.rotate_left(8) ^ *v2;
    *v0 = v0.wrapping_add(*v3);
    *v3 = v3.rotate_left(13) ^ *v0;
    *v2 = v2.wrapping_add(*v1);
    *v1 = v1.rotate_left(7) ^ *v2;
    *v2 = v2.rotate_left(16);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of the published test vectors (chaskey12.c).
    const KEY: [u32; 4] = [0x833d_3433, 0x009f_389f, 0x2398_e64f, 0x417a_cf39];

    fn key() -> [u8; 16] {
        let mut octets = [0; 16];
        for (at, word) in octets.chunks_mut(4).zip(KEY) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        octets
    }

    #[test]
    fn it_is_chaskey_12_as_published() {
        // The message 00 01 02 03.
        let mut v = Steering::new(&key(), 1).unwrap().first;
        v[0] ^= 0x0302_0100;
        (0..ROUNDS).for_each(|_| round(&mut v));
        let last = words(twice(twice(u128::from_le_bytes(key()))));
        let tag = [v[0] ^ last[0], v[1] ^ last[1], v[2] ^ last[2], v[3] ^ last[3]];
        assert_eq!(tag, [0x0b2b_62db, 0x1e9e_3f50, 0xa1b8_dcad, 0xb427_9ae0]);
        let steering = Steering::new(&key(), 4_095).unwrap();
        assert_eq!(u32::from(steering.slot(Spi::new(0x0302_0100).unwrap())), 0x0b2b_62db % 4_095 + 1);
    }

    #[test]
    fn an_spi_that_was_chosen_for_a_slot_names_it() {
        let mut seed = 7_u32;
        let mut random = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed
        };
        for slots in [1, 2, 3, 64, 1_000, 4_095] {
            let steering = Steering::new(&[9; 16], slots).unwrap();
            for slot in (1..=slots).step_by(usize::from(slots / 16).max(1)).chain([slots]) {
                let spi = steering.spi(slot, &mut random).unwrap();
                assert_eq!(steering.slot(spi), slot);
            }
            assert_eq!(steering.spi(0, &mut random), None);
            assert_eq!(steering.spi(slots + 1, &mut random), None);
        }
        assert!(Steering::new(&[9; 16], 0).is_none());
        assert!(Steering::new(&[9; 16], 4_096).is_none());
    }

    #[test]
    fn numbers_that_never_name_the_slot_end_the_search() {
        let steering = Steering::new(&[1; 16], 2).unwrap();
        let one = Spi::new(70_000).unwrap();
        let mut tries = 0;
        let other = 3 - steering.slot(one);
        let stuck = steering.spi(other, || {
            tries += 1;
            one.get()
        });
        assert_eq!((stuck, tries), (None, 128));
        // RFC 4303 2.1: nor are reserved ones taken.
        assert_eq!(steering.spi(1, || 255), None);
    }

    /// Doubling in GF(2^128) is a permutation, and the carry is what the polynomial says.
    #[test]
    fn doubling_carries() {
        assert_eq!(twice(1), 2);
        assert_eq!(twice(1 << 127), 0x87);
        assert_eq!(twice(1 << 127 | 1), 0x85);
    }
}
