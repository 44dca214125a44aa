//! Full-factorial attribution: what each factor costs, and what factors cost together beyond their parts.
//!
//! With k factors of two levels each and every cell measured once per block, the effect of a set S of
//! factors in one block is the mean over cells of ±y, the sign being the product over S of −1 (level 0)
//! or +1 (level 1), times 2. On logs an effect is a factor of multiplication, on raw times an addition;
//! where an interaction vanishes on one scale, that scale is how the costs combine.

use crate::{Interval, interval};

/// The effect of one set of factors.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Which factors, by index, rising; one is a main effect.
    pub factors: Vec<usize>,
    /// Effect over blocks, on the scale of the values given.
    pub interval: Interval,
}

/// Effects of all sets of factors. `cells[b][c]` is the value in block b of cell c, whose bit f is the
/// level of factor f; blocks lacking a cell must be left out by the caller. `None` unless every block has
/// 2^k cells and there are at least three.
pub fn attribute(k: usize, cells: &[Vec<f64>], seed: u64) -> Option<Vec<Effect>> {
    let count = 1_usize.checked_shl(k as u32)?;
    if k == 0 || k > 6 || cells.iter().any(|b| b.len() != count) {
        return None;
    }
    (1..count)
        .map(|set| {
            let per_block: Vec<f64> = cells
                .iter()
                .map(|block| {
                    let sum: f64 = block
                        .iter()
                        .enumerate()
                        .map(|(cell, y)| {
                            // one factor of −1 for each factor of the set at its low level
                            let low = (set & !cell).count_ones();
                            if low % 2 == 0 { *y } else { -*y }
                        })
                        .sum();
                    2.0 * sum / count as f64
                })
                .collect();
            let factors = (0..k).filter(|f| set >> f & 1 == 1).collect();
            Some(Effect { factors, interval: interval(&per_block, seed ^ set as u64)? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn main_effects_and_their_interaction_are_recovered() {
        // y = 10 + 2a + 3b + 1ab with a, b in {0, 1}: effects at the middle of the other factor.
        let cells: Vec<Vec<f64>> = (0..12)
            .map(|b| {
                let drift = f64::from(b) * 0.5;
                vec![10.0 + drift, 12.0 + drift, 13.0 + drift, 16.0 + drift]
            })
            .collect();
        let e = attribute(2, &cells, 1).expect("complete");
        let of =
            |f: &[usize]| e.iter().find(|x| x.factors == f).map(|x| x.interval.estimate).expect("every set");
        assert!((of(&[0]) - 2.5).abs() < 1e-9);
        assert!((of(&[1]) - 3.5).abs() < 1e-9);
        assert!((of(&[0, 1]) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn an_incomplete_block_is_refused() {
        assert!(attribute(2, &[vec![1.0; 4], vec![1.0; 3], vec![1.0; 4]], 1).is_none());
    }
}
