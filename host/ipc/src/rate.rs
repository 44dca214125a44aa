//! How much of something may be done, against time.

use std::time::Duration;

/// Counts against time: a burst, and then so many a second.
#[derive(Debug)]
pub struct Rate {
    burst: u64,
    a_second: u64,
    /// Thousandths that are left.
    left: u64,
    /// When that was so.
    at: Duration,
}

impl Rate {
    /// With all of the burst there, at `now` on a clock that does not step.
    pub const fn new(burst: u32, a_second: u32, now: Duration) -> Self {
        let burst = burst as u64 * 1_000;
        Self { burst, a_second: a_second as u64, left: burst, at: now }
    }

    /// Whether one more may be; if so it has been counted.
    pub fn take(&mut self, now: Duration) -> bool {
        let passed = u64::try_from(now.saturating_sub(self.at).as_millis()).unwrap_or(u64::MAX);
        if passed > 0 {
            self.left = self.left.saturating_add(passed.saturating_mul(self.a_second)).min(self.burst);
            self.at = now;
        }
        let may = self.left >= 1_000;
        if may {
            self.left -= 1_000;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_taken_and_then_so_many_a_second() {
        let at = Duration::from_secs(100);
        let mut rate = Rate::new(400, 20, at);
        assert_eq!((0..10_000).filter(|_| rate.take(at)).count(), 400);
        // However often it is asked in between.
        let taken = (1..=10_000u64).filter(|ms| rate.take(at + Duration::from_millis(*ms))).count();
        assert!((199..=200).contains(&taken), "{taken} in ten seconds");
        let later = at + Duration::from_secs(100_000);
        assert_eq!((0..10_000).filter(|_| rate.take(later)).count(), 400);
    }

    #[test]
    fn a_clock_that_went_back_gives_nothing() {
        let mut rate = Rate::new(3, 1, Duration::from_secs(100));
        while rate.take(Duration::from_secs(100)) {}
        assert!(!rate.take(Duration::ZERO));
    }
}
