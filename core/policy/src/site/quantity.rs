//! Sizes, times and shares as the site file writes them.

use std::time::Duration;

/// A number followed by a unit out of the list.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Bytes, from `64K`, `512M`, `2G` or `1T` (powers of 1,024).
pub(super) fn size(text: &str) -> Option<u64> {
    scaled(text, &[("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)])
}

/// A time, from `500ms`, `30s`, `5m` or `1h`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    scaled(text, &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)]).map(Duration::from_millis)
}

/// A short time, from `100us` or `2ms`.
pub(super) fn brief(text: &str) -> Option<Duration> {
    scaled(text, &[("us", 1), ("ms", 1_000)]).map(Duration::from_micros)
}

/// Percent of one processor, from `150%`.
pub(super) fn percent(text: &str) -> Option<u64> {
    scaled(text, &[("%", 1)])
}
