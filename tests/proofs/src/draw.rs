//! Numbers drawn by chance, the same in each run.

use std::collections::BTreeSet;

/// A source of numbers (xorshift64*).
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// From this seed, which is not 0.
    pub fn new(seed: u64) -> Self {
        assert_ne!(seed, 0);
        Self(seed)
    }

    /// Any 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Any 128 bits.
    pub fn wide(&mut self) -> u128 {
        u128::from(self.number()) << 64 | u128::from(self.number())
    }

    /// Below this bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// One of these.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        let at = self.below(of.len() as u64) as usize;
        of[at]
    }

    /// Of any length in bits, so that small numbers come as often as large ones.
    pub fn sized(&mut self) -> u64 {
        let bits = self.below(64);
        self.number() >> bits
    }
}

/// Every number within `reach` of one of `middles` that 64 bits can say.
pub fn around(middles: &[u64], reach: u64) -> BTreeSet<u64> {
    let near = |middle: &u64| middle.saturating_sub(reach)..=middle.saturating_add(reach);
    middles.iter().flat_map(near).collect()
}
