//! When the next pass begins: a function of the source alone.
//!
//! A pass over many entries costs more, so it comes less often, but by the number of entries and not by measured
//! time: measured time would depend on what else the processor does, a reader's work included.

use std::time::{Duration, Instant};

/// The time from the beginning of one pass to the beginning of the next, for up to [`ENTRIES`] entries.
pub const PERIOD: Duration = Duration::from_millis(300);
/// Each so many entries, begun, cost one more [`PERIOD`] between passes.
pub const ENTRIES: u64 = 20_000;
/// The longest time between passes.
pub const LONGEST: Duration = Duration::from_secs(6);

/// The time between the beginnings of two passes over `entries` entries.
pub fn period(entries: u64) -> Duration {
    let steps = u32::try_from(entries.div_ceil(ENTRIES).max(1)).unwrap_or(u32::MAX);
    PERIOD.checked_mul(steps).map_or(LONGEST, |period| period.min(LONGEST))
}

/// Keeps the beat: passes begin at whole periods after each other; one that takes longer than a period makes the
/// next ones fall out, not bunch up.
#[derive(Debug)]
pub struct Schedule {
    next: Instant,
}

impl Schedule {
    /// The first pass begins at once.
    pub fn new(now: Instant) -> Self {
        Self { next: now }
    }

    /// How long until the next pass begins.
    pub fn wait(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    /// A pass over `entries` entries has ended: sets when the next begins.
    pub fn passed(&mut self, now: Instant, entries: u64) {
        let period = period(entries);
        let late = now.saturating_duration_since(self.next);
        let missed = u32::try_from(late.as_nanos() / period.as_nanos().max(1)).unwrap_or(u32::MAX - 1);
        self.next = period
            .checked_mul(missed.saturating_add(1))
            .and_then(|step| self.next.checked_add(step))
            .unwrap_or(now + period);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_keep_the_beat_and_a_slow_one_makes_others_fall_out() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        assert_eq!(schedule.wait(start), Duration::ZERO);
        schedule.passed(start + Duration::from_millis(20), 10);
        assert_eq!(schedule.wait(start), PERIOD);
        schedule.passed(start + PERIOD * 4 + Duration::from_millis(50), 10);
        assert_eq!(schedule.wait(start), PERIOD * 5);
    }

    #[test]
    fn more_entries_mean_fewer_passes_up_to_a_limit() {
        assert_eq!(period(0), PERIOD);
        assert_eq!(period(ENTRIES), PERIOD);
        assert_eq!(period(ENTRIES + 1), PERIOD * 2);
        assert_eq!(period(u64::MAX), LONGEST);
    }
}
