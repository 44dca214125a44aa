//! What somebody sees who sees SPIs, and has not the key.

use levee_esp::{Spi, Steering};

/// SPIs of each slot that are looked at.
const MANY: usize = 20_000;

fn generator(mut seed: u64) -> impl FnMut() -> u32 {
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 16) as u32
    }
}

fn key(random: &mut impl FnMut() -> u32) -> [u8; 16] {
    [(); 16].map(|()| random() as u8)
}

/// How far `ones` of `all` fair coins are from the middle, in standard deviations.
fn deviation(ones: usize, all: usize) -> f64 {
    (ones as f64 - all as f64 / 2.0).abs() / (all as f64 / 4.0).sqrt()
}

#[test]
fn no_bit_and_no_two_bits_of_an_spi_tell_its_slot() {
    let mut random = generator(0x0123_4567_89ab_cdef);
    for slots in [2, 64] {
        let steering = Steering::new(&key(&mut random), slots).unwrap();
        for slot in 1..=2 {
            let spis: Vec<u32> = (0..MANY).map(|_| steering.spi(slot, &mut random).unwrap().get()).collect();
            // 528 parities of two slots in two groups of slots: by chance one is beyond 5.5 once in some 12,000 runs; the seed is
            // fixed. The top twelve bits as the slot were beyond 140.
            for a in 0..32 {
                for b in a..32 {
                    let parity = |spi: &&u32| {
                        if a == b { *spi >> a & 1 == 1 } else { (*spi >> a ^ *spi >> b) & 1 == 1 }
                    };
                    let off = deviation(spis.iter().filter(parity).count(), MANY);
                    assert!(off < 5.5, "bits {a} and {b} of slot {slot} of {slots}: {off:.1}");
                }
            }
        }
    }
}

#[test]
fn spis_that_differ_little_are_at_one_slot_no_more_often_than_any() {
    let mut random = generator(0xfeed_5678_9abc_def0);
    let steering = Steering::new(&key(&mut random), 2).unwrap();
    for bit in 0..32 {
        let slot = |spi| steering.slot(Spi::new(spi).unwrap());
        // Two high bits, so that neither is reserved.
        let spis = (0..MANY).map(|_| random() | 0x0300_0000);
        let same = spis.filter(|spi| slot(*spi) == slot(spi ^ 1 << bit)).count();
        let off = deviation(same, MANY);
        assert!(off < 5.0, "bit {bit}: {off:.1}");
    }
}

#[test]
fn every_slot_of_every_number_of_slots_has_spis() {
    let mut random = generator(99);
    for slots in 1..=Steering::MOST {
        let steering = Steering::new(&key(&mut random), slots).unwrap();
        let spi = steering.spi(slots, &mut random).unwrap();
        assert_eq!(steering.slot(spi), slots);
    }
    let steering = Steering::new(&key(&mut random), Steering::MOST).unwrap();
    let mut seen = vec![false; usize::from(Steering::MOST)];
    for number in 256..256 + 100_000 {
        seen[usize::from(steering.slot(Spi::new(number).unwrap())) - 1] = true;
    }
    assert!(seen.iter().all(|seen| *seen));
}

#[test]
fn for_a_slot_that_there_is_not_no_number_is_asked_for() {
    let steering = Steering::new(&key(&mut generator(5)), 64).unwrap();
    for slot in [0, 65, u16::MAX] {
        assert_eq!(steering.spi(slot, || panic!("slot {slot}")), None);
    }
    assert!([1, 64].into_iter().all(|slot| steering.spi(slot, generator(6)).is_some()));
}

#[test]
fn another_key_is_another_function() {
    let mut random = generator(5);
    let key = key(&mut random);
    let slots = 64;
    let of = |key: &[u8; 16]| Steering::new(key, slots).unwrap();
    for bit in 0..128 {
        let mut other = key;
        other[bit / 8] ^= 1 << (bit % 8);
        let same = (0..4_096_u32)
            .map(|n| Spi::new(n << 12 | 0x123).unwrap())
            .filter(|spi| of(&key).slot(*spi) == of(&other).slot(*spi))
            .count();
        // 64 by chance, with a deviation of 8.
        assert!((20..110).contains(&same), "bit {bit} of the key: {same}");
    }
}
