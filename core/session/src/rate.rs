//! How much of something may be done, against time.

use std::time::Duration;

/// One of what is counted: so many a minute come back in a millisecond as may be done in a minute.
const ONE: u64 = 60_000;

/// Counts against time: a burst, and then so many a second or minute.
#[derive(Debug)]
pub struct Rate {
    burst: u64,
    a_minute: u64,
    /// [`ONE`]ths that are left.
    left: u64,
    /// When that was so.
    at: Duration,
}

impl Rate {
    /// With all of the burst there, at `now` on a clock that does not step.
    pub const fn new(burst: u32, a_second: u32, now: Duration) -> Self {
        Self::with(burst as u64, a_second as u64 * 60, now)
    }

    /// As [`Rate::new`], with so many a minute.
    pub const fn a_minute(burst: u32, a_minute: u32, now: Duration) -> Self {
        Self::with(burst as u64, a_minute as u64, now)
    }

    const fn with(burst: u64, a_minute: u64, now: Duration) -> Self {
        let burst = burst * ONE;
        Self { burst, a_minute, left: burst, at: now }
    }

    /// Whether one more may be; if so it has been counted.
    pub fn take(&mut self, now: Duration) -> bool {
        let may = self.has(now);
        if may {
            self.left -= ONE;
        }
        may
    }

    /// Whether one more may be. It is not counted.
    pub fn has(&mut self, now: Duration) -> bool {
        let passed = u64::try_from(now.saturating_sub(self.at).as_millis()).unwrap_or(u64::MAX);
        if passed > 0 {
            self.left = self.left.saturating_add(passed.saturating_mul(self.a_minute)).min(self.burst);
            self.at = now;
        }
        self.left >= ONE
    }

    /// Whether all of the burst is there again, so that nothing is lost with the value.
    pub fn is_full(&self, now: Duration) -> bool {
        let passed = u64::try_from(now.saturating_sub(self.at).as_millis()).unwrap_or(u64::MAX);
        self.left.saturating_add(passed.saturating_mul(self.a_minute)) >= self.burst
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
    fn few_a_minute_are_a_rate_too() {
        let at = Duration::from_secs(100);
        let mut rate = Rate::a_minute(4, 30, at);
        assert_eq!((0..100).filter(|_| rate.take(at)).count(), 4);
        assert!(!rate.is_full(at));
        let taken = (1..=600_000u64).filter(|ms| rate.take(at + Duration::from_millis(*ms))).count();
        assert!((299..=300).contains(&taken), "{taken} in ten minutes");
        assert!(rate.is_full(at + Duration::from_secs(608)));
    }

    #[test]
    fn a_clock_that_went_back_gives_nothing() {
        let mut rate = Rate::new(3, 1, Duration::from_secs(100));
        while rate.take(Duration::from_secs(100)) {}
        assert!(!rate.take(Duration::ZERO));
    }
}
