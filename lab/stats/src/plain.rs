//! Means, spreads and quantiles, and p-values for a whole family.

/// Confidence of every interval, and one minus the error rate of every family.
pub const CONFIDENCE: f64 = 0.95;

/// Arithmetic mean; `None` of nothing.
pub fn mean(x: &[f64]) -> Option<f64> {
    (!x.is_empty()).then(|| x.iter().sum::<f64>() / x.len() as f64)
}

/// Sample standard deviation (n − 1).
pub fn sd(x: &[f64]) -> Option<f64> {
    let m = mean(x)?;
    (x.len() > 1).then(|| (x.iter().map(|v| (v - m).powi(2)).sum::<f64>() / (x.len() - 1) as f64).sqrt())
}

/// Quantile by linear interpolation between order statistics (Hyndman and Fan, type 7).
pub fn quantile(x: &[f64], q: f64) -> Option<f64> {
    let mut s: Vec<f64> = x.iter().copied().filter(|v| v.is_finite()).collect();
    s.sort_by(f64::total_cmp);
    let last = s.len().checked_sub(1)?;
    let h = q.clamp(0.0, 1.0) * last as f64;
    let (lo, hi) = (*s.get(h.floor() as usize)?, *s.get(h.ceil() as usize)?);
    Some(lo + (hi - lo) * (h - h.floor()))
}

/// Holm's step-down adjustment: p-values that hold for the whole family at once, in the order given.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut out = vec![1.0; p.len()];
    let mut least: f64 = 0.0;
    for (rank, &i) in order.iter().enumerate() {
        least = least.max(((p.len() - rank) as f64 * p[i]).min(1.0));
        out[i] = least;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_agree_with_the_type_seven_definition() {
        let x = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&x, 0.5), Some(2.5));
        assert_eq!(quantile(&x, 0.25), Some(1.75));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn holm_agrees_with_the_textbook_example() {
        // p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") in R
        let h = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (a, b) in h.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((a - b).abs() < 1e-12, "{h:?}");
        }
    }
}
