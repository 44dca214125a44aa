//! What a covert channel carried: known bits first, from which the receiver learns to tell ones from zeros, then others
//! that it must guess.

/// Bits that both ends know.
pub const KNOWN_BITS: usize = 32;

/// So many standard deviations apart, ones and zeros are told apart: by chance once in some ten million channels.
pub const APART: f64 = 5.3;

/// The known bits, and as many more of a linear congruential generator.
pub fn bits(more: usize) -> Vec<u32> {
    let mut state = 12_345_u32;
    let random = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        state >> 30 & 1
    });
    [0, 1].into_iter().cycle().take(KNOWN_BITS).chain(random.take(more)).collect()
}

/// How many of the unknown bits a receiver gets wrong that knows the means of the known ones, and how many there are.
pub fn decode(bits: &[u32], seen: &[f64]) -> (usize, usize) {
    let (known, rest) = seen.split_at(KNOWN_BITS);
    let mean = |bit: u32| {
        let of = known.iter().zip(bits).filter(|(_, b)| **b == bit).map(|(s, _)| *s);
        of.sum::<f64>() / (KNOWN_BITS as f64 / 2.0)
    };
    let (zero, one) = (mean(0), mean(1));
    let sent = &bits[KNOWN_BITS..];
    let wrong =
        rest.iter().zip(sent).filter(|(s, b)| ((**s - zero).abs() > (**s - one).abs()) != (**b == 1)).count();
    (wrong, sent.len())
}

/// Bits that one use of a binary symmetric channel carries which gets so many of so many wrong (Shannon).
pub fn capacity(wrong: usize, sent: usize) -> f64 {
    let error = wrong as f64 / sent as f64;
    let h = |p: f64| if p <= 0.0 || p >= 1.0 { 0.0 } else { -p * p.log2() };
    1.0 - h(error) - h(1.0 - error)
}

/// How far ones and zeros lie apart in what was seen: the rank sum of Mann and Whitney, in standard deviations. A refusal
/// is a value like others: what is refused now and then would tell as much.
pub fn separation(bits: &[u32], seen: &[Option<f64>]) -> f64 {
    let values: Vec<f64> = seen.iter().map(|value| value.unwrap_or(f64::NEG_INFINITY)).collect();
    let of = |bit: u32| values.iter().zip(bits).filter(move |(_, b)| **b == bit).map(|(value, _)| *value);
    let (ones, zeros): (Vec<f64>, Vec<f64>) = (of(1).collect(), of(0).collect());
    let wins: f64 = ones
        .iter()
        .flat_map(|one| zeros.iter().map(move |zero| (one, zero)))
        .map(|(one, zero)| if one > zero { 1.0 } else { f64::from(u8::from(one == zero)) * 0.5 })
        .sum();
    let (n, m) = (ones.len() as f64, zeros.len() as f64);
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    let ties: f64 =
        sorted.chunk_by(|a, b| a == b).map(|tie| (tie.len() as f64).powi(3) - tie.len() as f64).sum();
    let all = n + m;
    let variance = n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance <= 0.0 { 0.0 } else { (wins - n * m / 2.0).abs() / variance.sqrt() }
}
