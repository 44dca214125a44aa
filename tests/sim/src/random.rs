//! Everything by chance in a world comes from one seed.

use std::time::Duration;

/// A repeatable source (SplitMix64). Nothing here is secret.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// A source for this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.bits() % u64::try_from(n).unwrap_or(1)).unwrap_or(0)
    }

    /// True in `per_mille` of 1000 cases.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.bits() % 1000 < u64::from(per_mille)
    }

    /// A time up to `most`.
    pub fn time(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.bits() % u64::try_from(most.as_micros()).unwrap_or(u64::MAX).max(1))
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        (!from.is_empty()).then(|| &from[self.below(from.len())])
    }
}

impl levee_ike::Random for Dice {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}
