//! How much of something there may be in what time: of a guard's messages, of ends of slots.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeValue;

use super::problem::ProblemKind;
use super::quantity;
use super::read::Reader;

/// So much in any stretch of time of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// So many messages, octets, or ends of slots.
    pub most: u64,
    /// The time.
    pub within: Duration,
}

impl Quota {
    /// From `10 in 60s`, or `64K in 60s`.
    fn parse(text: &str, unit: fn(&str) -> Option<u64>) -> Option<Self> {
        let (most, within) = text.split_once(" in ")?;
        let (most, within) = (unit(most)?, quantity::duration(within)?);
        let times = Duration::from_secs(1)..=Duration::from_secs(86_400);
        (most > 0 && times.contains(&within)).then_some(Self { most, within })
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} s", self.most, self.within.as_secs_f32())
    }
}

/// Reads one, in these units.
pub(super) fn quota(
    reader: &mut Reader<'_>,
    value: &Spanned<DeValue<'_>>,
    key: &str,
    unit: fn(&str) -> Option<u64>,
) -> Option<Quota> {
    const FORM: &str = "how much in what time, such as \"10 in 60s\" or \"64K in 1h\": in 1s to 24h, at most 100000 but for octets";
    let text = reader.text(value, key, FORM)?;
    // Each of what is counted is remembered for as long: so many at most.
    let quota = Quota::parse(text.value, unit).filter(|quota| key == "octets" || quota.most <= 100_000);
    if quota.is_none() {
        let what = format!("`{}` is no bound", text.value);
        reader.problem(ProblemKind::BadValue, &text.span, what, format!("write {FORM}"));
    }
    quota
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_how_much_in_what_time() {
        let count = |text: &str| text.parse().ok();
        let quota = Quota::parse("10 in 60s", count).unwrap();
        assert_eq!((quota.most, quota.within), (10, Duration::from_secs(60)));
        assert_eq!(Quota::parse("64K in 1h", quantity::size).unwrap().most, 65_536);
        for wrong in ["0 in 60s", "10 in 0s", "10", "10 in 25h", "ten in 60s", "10  in 60s"] {
            assert_eq!(Quota::parse(wrong, count), None, "{wrong}");
        }
    }
}
