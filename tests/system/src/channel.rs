//! What a covert channel carried: known bits first, from which the receiver learns to tell ones from zeros, then others
//! that it must guess.

/// Bits that both ends know.
pub const KNOWN_BITS: usize = 32;

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
