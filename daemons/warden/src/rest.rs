//! How long what has ended rests before it is started again: longer each time that it ends soon, and short again when it has run for
//! a while.

use std::time::{Duration, Instant};

/// What ends for the first time rests so long before it is started again.
const FIRST: Duration = Duration::from_secs(1);
/// Nothing rests longer.
const MOST: Duration = Duration::from_secs(120);
/// What has run so long, and twice as long as it rested, has run for a while.
const WHILE: Duration = Duration::from_secs(20);

/// When something may be started again.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    /// The last rest; nothing while all has been well.
    last: Duration,
    began: Option<Instant>,
    until: Option<Instant>,
}

impl Rest {
    /// It has been started.
    pub fn began(&mut self, now: Instant) {
        (self.began, self.until) = (Some(now), None);
    }

    /// It has ended, or could not be started. How long it rests now.
    pub fn ended(&mut self, now: Instant) -> Duration {
        let ran = self.began.take().map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        let well = ran >= WHILE && ran >= self.last.saturating_mul(2);
        self.last = if well || self.last.is_zero() { FIRST } else { self.last.saturating_mul(2).min(MOST) };
        self.until = Some(now + self.last);
        self.last
    }

    /// Whether it may be started.
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_at_once_rests_longer_each_time_up_to_a_bound() {
        let (mut rest, mut now) = (Rest::default(), Instant::now());
        assert!(rest.is_over(now));
        let mut rests = Vec::new();
        for _ in 0..10 {
            rest.began(now);
            now += Duration::from_millis(100);
            let wait = rest.ended(now);
            assert!(!rest.is_over(now + wait - Duration::from_millis(1)));
            now += wait;
            assert!(rest.is_over(now));
            rests.push(wait.as_secs());
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 64, 120, 120, 120]);
        // One that could not even be started rests just as long.
        assert_eq!(rest.ended(now).as_secs(), 120);
    }

    #[test]
    fn what_has_run_for_a_while_rests_briefly() {
        let (mut rest, mut now) = (Rest::default(), Instant::now());
        for _ in 0..6 {
            rest.began(now);
            now += rest.ended(now);
        }
        assert_eq!(rest.last.as_secs(), 32);
        // Longer than a while, but not than it has rested: as bad as before.
        rest.began(now);
        now += Duration::from_secs(30);
        now += rest.ended(now);
        assert_eq!(rest.last.as_secs(), 64);
        rest.began(now);
        now += Duration::from_secs(128);
        assert_eq!(rest.ended(now).as_secs(), 1);
    }
}
