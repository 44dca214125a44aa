//! How much a channel carries, from what was sent and what was seen in each window.
//!
//! What is seen is cut into few values without a look at what was sent; a window that was overslept is a value of its own. The
//! capacity of the channel matrix is Blahut's and Arimoto's (IEEE Trans. Inf. Theory 18, 1972). An estimate from samples is too
//! high even where nothing passes: that much is found by shuffling what was sent, and taken off; 95 of 100 shuffles stay below the
//! zero-leakage bound (Cock, Ge, Murray, Heiser: The Last Mile, CCS 2014; Ge, Yarom, Chothia, Heiser: Time Protection, EuroSys 2019).

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::{mean, quantile, sd};

/// Shuffles, and bootstrap replicates.
const REPLICATES: usize = 200;
/// Windows that follow one another are drawn together: what disturbs one disturbs the next.
const BLOCK: usize = 10;

/// What both ends did in each window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    /// Values that a window can have.
    pub symbols: usize,
    /// What was sent.
    pub sent: Vec<usize>,
    /// What was seen; `None` where the receiver overslept or could not look.
    pub seen: Vec<Option<f64>>,
    /// In how many the sender was not done in time.
    pub late: usize,
}

/// Bits a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// The estimate, without its bias; not below zero.
    pub bits: f64,
    /// Ends of its 95 % interval.
    pub lo: f64,
    /// The same.
    pub hi: f64,
    /// What 95 of 100 channels that carry nothing stay below.
    pub zero: f64,
}

impl Capacity {
    /// Whether more was seen than a channel that carries nothing shows.
    pub fn found(&self) -> bool {
        self.bits > self.zero && self.lo > 0.0
    }
}

/// Cuts what was seen into few values: each its own where there are few, else as many quantiles.
fn cut(seen: &[Option<f64>], symbols: usize) -> (Vec<usize>, usize) {
    let mut all: Vec<f64> = seen.iter().copied().flatten().collect();
    all.sort_by(f64::total_cmp);
    let mut values = all.clone();
    values.dedup();
    let most = (2 * symbols).max(8);
    let edges: Vec<f64> = if values.len() <= 2 * most {
        values.windows(2).map(|w| (w[0] + w[1]) / 2.0).collect()
    } else {
        let mut edges: Vec<f64> = (1..most).map(|i| all[i * all.len() / most]).collect();
        edges.dedup();
        edges
    };
    let place = |v: &Option<f64>| match v {
        Some(v) => edges.partition_point(|e| e <= v),
        None => edges.len() + 1,
    };
    (seen.iter().map(place).collect(), edges.len() + 2)
}

/// Capacity in bits of the channel that these pairs were drawn from, with its bias.
fn raw(sent: &[usize], seen: &[usize], symbols: usize, values: usize) -> f64 {
    let mut counts = vec![0.0; symbols * values];
    for (x, y) in sent.iter().zip(seen) {
        if let Some(cell) = counts.get_mut(x * values + y) {
            *cell += 1.0;
        }
    }
    let rows: Vec<Vec<f64>> = counts
        .chunks(values)
        .map(|row| (row.iter().sum::<f64>(), row))
        .filter(|(all, _)| *all > 0.0)
        .map(|(all, row)| row.iter().map(|n| n / all).collect())
        .collect();
    blahut_arimoto(&rows)
}

/// Capacity of a channel matrix, `rows[x][y]` the chance of seeing y where x was sent; to 1/1000 of a bit.
pub fn blahut_arimoto(rows: &[Vec<f64>]) -> f64 {
    let Some(values) = rows.first().map(Vec::len) else { return 0.0 };
    let mut input = vec![1.0 / rows.len() as f64; rows.len()];
    let mut low = 0.0;
    for _ in 0..300 {
        let mut output = vec![0.0; values];
        for (p, row) in input.iter().zip(rows) {
            output.iter_mut().zip(row).for_each(|(o, q)| *o += p * q);
        }
        let divergence = |row: &Vec<f64>| -> f64 {
            let terms = row.iter().zip(&output).filter(|(q, o)| **q > 0.0 && **o > 0.0);
            terms.map(|(q, o)| q * (q / o).log2()).sum()
        };
        let d: Vec<f64> = rows.iter().map(divergence).collect();
        let weights: Vec<f64> = input.iter().zip(&d).map(|(p, d)| p * d.exp2()).collect();
        let all: f64 = weights.iter().sum();
        low = all.log2();
        let high = d.iter().copied().fold(0.0, f64::max);
        if high - low < 1e-3 {
            break;
        }
        input = weights.iter().map(|w| w / all).collect();
    }
    low
}

/// Bits a window, without an interval: to compare short tries.
pub fn rough(windows: &Windows, seed: u64) -> f64 {
    let (seen, values) = cut(&windows.seen, windows.symbols);
    let of = |sent: &[usize]| raw(sent, &seen, windows.symbols, values);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut shuffled = windows.sent.clone();
    let mut nothing = || {
        shuffled.shuffle(&mut random);
        of(&shuffled)
    };
    let bias = (0..10).map(|_| nothing()).sum::<f64>() / 10.0;
    of(&windows.sent) - bias
}

/// What these windows show.
pub fn capacity(windows: &Windows, seed: u64) -> Capacity {
    let n = windows.sent.len().min(windows.seen.len());
    if n < 2 * BLOCK || windows.symbols < 2 || windows.seen.iter().all(Option::is_none) {
        return Capacity::default();
    }
    let sent = &windows.sent[..n];
    let (seen, values) = cut(&windows.seen[..n], windows.symbols);
    let of = |sent: &[usize], seen: &[usize]| raw(sent, seen, windows.symbols, values);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut shuffled = sent.to_vec();
    let nothing: Vec<f64> = (0..REPLICATES)
        .map(|_| {
            shuffled.shuffle(&mut random);
            of(&shuffled, &seen)
        })
        .collect();
    let bias = mean(&nothing).unwrap_or(0.0);
    let again: Vec<f64> = (0..REPLICATES)
        .map(|_| {
            let (mut x, mut y) = (Vec::with_capacity(n), Vec::with_capacity(n));
            while x.len() < n {
                let at = random.random_range(0..=n - BLOCK);
                x.extend_from_slice(&sent[at..at + BLOCK]);
                y.extend_from_slice(&seen[at..at + BLOCK]);
            }
            of(&x, &y)
        })
        .collect();
    let estimate = of(sent, &seen) - bias;
    let reach = 1.96 * sd(&again).unwrap_or(0.0);
    Capacity {
        bits: estimate.max(0.0),
        lo: (estimate - reach).max(0.0),
        hi: (estimate + reach).max(0.0),
        zero: (quantile(&nothing, 0.95).unwrap_or(0.0) - bias).max(0.0),
    }
}

/// Symbols to send, each as likely as any other.
pub fn symbols(symbols: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(0..symbols)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    fn h(p: f64) -> f64 {
        -p * p.log2() - (1.0 - p) * (1.0 - p).log2()
    }

    /// A channel of a known rate: symbols through `noise`, which may lose one.
    fn through(k: usize, n: usize, noise: impl Fn(usize, &mut ChaCha8Rng) -> Option<f64>) -> Windows {
        let sent = symbols(k, n, 5);
        let mut random = ChaCha8Rng::seed_from_u64(9);
        let seen = sent.iter().map(|x| noise(*x, &mut random)).collect();
        Windows { symbols: k, sent, seen, late: 0 }
    }

    fn about(c: Capacity, known: f64) {
        assert!((c.bits / known - 1.0).abs() < 0.05, "{c:?}, known {known}");
        assert!(c.lo < known * 1.01 && c.hi > known * 0.99 && c.found(), "{c:?}, known {known}");
    }

    #[test]
    fn channels_of_known_rates_are_found_within_five_percent() {
        for p in [0.02, 0.1, 0.2] {
            let bsc = through(2, 20_000, |x, r| Some(if r.random_bool(p) { 1 - x } else { x } as f64));
            about(capacity(&bsc, 1), 1.0 - h(p));
        }
        let erased = through(2, 10_000, |x, r| (!r.random_bool(0.3)).then_some(x as f64));
        about(capacity(&erased, 1), 0.7);
        let sixteen = through(16, 10_000, |x, _| Some(x as f64));
        about(capacity(&sixteen, 1), 4.0);
        // Each of 16 as often its neighbour as itself: log2 16 − 1.
        let typewriter =
            through(16, 10_000, |x, r| Some(((x + usize::from(r.random_bool(0.5))) % 16) as f64));
        about(capacity(&typewriter, 1), 3.0);
    }

    /// Blahut and Arimoto's point: a channel whose best input is not uniform. Z channel, half of the ones lost: log2 5/4 … = 0.3219.
    #[test]
    fn the_best_input_is_found_where_it_is_not_uniform() {
        let z = blahut_arimoto(&[vec![1.0, 0.0], vec![0.5, 0.5]]);
        assert!((z - 0.3219).abs() < 2e-3, "{z}");
    }

    /// Two bells a standard deviation of 1 wide and 2 apart carry 0.4859 bits (numeric integration); cut into eight, a little less.
    #[test]
    fn what_is_seen_may_be_continuous() {
        let bell = |r: &mut ChaCha8Rng| (0..12).map(|_| r.random::<f64>()).sum::<f64>() - 6.0;
        let c = capacity(&through(2, 20_000, |x, r| Some(2.0 * x as f64 + bell(r))), 1);
        assert!(c.bits > 0.45 && c.bits < 0.50, "{c:?}");
    }

    #[test]
    fn a_silent_sender_is_not_found() {
        let mut found = 0;
        for seed in 0..40 {
            let mut w = through(4, 1_000, |_, r| r.random_bool(0.9).then(|| r.random::<f64>()));
            w.sent = symbols(4, 1_000, 100 + seed);
            let c = capacity(&w, seed);
            assert!(c.bits < 0.02, "{c:?}");
            found += usize::from(c.found());
        }
        assert!(found <= 6, "{found} of 40 at a level of 5 in 100");
    }

    #[test]
    fn who_never_looks_sees_nothing() {
        let w = Windows { symbols: 2, sent: symbols(2, 100, 1), seen: vec![None; 100], late: 0 };
        assert_eq!(capacity(&w, 1), Capacity::default());
        assert_eq!(capacity(&Windows::default(), 1), Capacity::default());
    }
}
