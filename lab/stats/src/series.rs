//! What a sequence of trials says about the machine: memory from trial to trial, and steps in its level.

use crate::mean;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// The least trials on each side of a step.
const SIDE: usize = 6;
/// Permutations for each step's p-value.
const PERMUTATIONS: usize = 499;

/// Lag-1 autocorrelation; `None` for fewer than four values or no variation.
pub fn lag1(x: &[f64]) -> Option<f64> {
    let m = mean(x)?;
    let all: f64 = x.iter().map(|v| (v - m).powi(2)).sum();
    let next: f64 = x.iter().zip(x.iter().skip(1)).map(|(a, b)| (a - m) * (b - m)).sum();
    (x.len() >= 4 && all > 0.0).then_some(next / all)
}

/// The best place to split `x`, and how far the cumulated sum strays there, in units of its spread.
fn strongest(x: &[f64]) -> Option<(usize, f64)> {
    let m = mean(x)?;
    let n = x.len() as f64;
    let spread = (x.iter().map(|v| (v - m).powi(2)).sum::<f64>() / n).sqrt();
    if spread == 0.0 {
        return None;
    }
    let mut sum = 0.0;
    let mut best = None;
    for (i, v) in x.iter().enumerate() {
        sum += v - m;
        let left = (i + 1) as f64;
        if i + 1 >= SIDE && x.len() - (i + 1) >= SIDE {
            let score = sum.abs() / spread / (left * (n - left) / n).sqrt();
            if best.is_none_or(|(_, s)| score > s) {
                best = Some((i + 1, score));
            }
        }
    }
    best
}

/// Where the level of `x` steps: binary segmentation, each step at p < 0.01 by permutation. Indices of
/// the first value behind each step, rising.
pub fn change_points(x: &[f64], seed: u64) -> Vec<usize> {
    let mut found = Vec::new();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut open = vec![(0, x.len())];
    while let Some((from, to)) = open.pop() {
        let part = &x[from..to];
        let Some((at, score)) = strongest(part) else { continue };
        let mut shuffled = part.to_vec();
        let as_far = (0..PERMUTATIONS)
            .filter(|_| {
                shuffled.shuffle(&mut rng);
                strongest(&shuffled).is_some_and(|(_, s)| s >= score)
            })
            .count();
        if ((as_far + 1) as f64) / ((PERMUTATIONS + 1) as f64) < 0.01 {
            found.push(from + at);
            open.push((from, from + at));
            open.push((from + at, to));
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn a_step_is_found_where_it_is() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let x: Vec<f64> =
            (0..60).map(|i| rng.random_range(-1.0..1.0) + if i < 35 { 0.0 } else { 2.0 }).collect();
        let found = change_points(&x, 1);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].abs_diff(35) <= 2, "{found:?}");
    }

    #[test]
    fn noise_alone_seldom_has_a_step() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let runs = (0..100)
            .filter(|&k| {
                let x: Vec<f64> = (0..40).map(|_| rng.random_range(-1.0..1.0)).collect();
                !change_points(&x, k).is_empty()
            })
            .count();
        assert!(runs <= 5, "{runs} of 100 at p < 0.01");
    }

    #[test]
    fn alternation_and_drift_have_the_signs_they_should() {
        let alternating: Vec<f64> = (0..20).map(|i| f64::from(i % 2)).collect();
        let drift: Vec<f64> = (0..20).map(f64::from).collect();
        assert!(lag1(&alternating).expect("varies") < -0.8);
        assert!(lag1(&drift).expect("varies") > 0.7);
        assert_eq!(lag1(&[1.0; 10]), None);
    }
}
