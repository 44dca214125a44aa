//! When the next pass begins: a function of the source alone.
//!
//! A first stage that has notices of every change waits for one; where it has not, and behind a copy, the beat decides. A pass
//! over many entries costs more, so it comes less often, but by the number of entries and not by measured time: measured time
//! would depend on what else the processor does, a reader's work included.

use std::time::{Duration, Instant, SystemTime};

/// The time from the beginning of one pass over a store to the beginning of the next, for up to [`ENTRIES`] entries.
pub const PERIOD: Duration = Duration::from_millis(300);
/// The same of a second stage, which looks at a number for each label below.
pub const COPIES: Duration = Duration::from_millis(400);
/// The same once nothing below has changed for [`LIVELY`]: each look wakes a processor.
pub const RESTING: Duration = Duration::from_millis(800);
/// How long after a change a second stage looks often: few changes come alone.
pub const LIVELY: Duration = Duration::from_secs(10);
/// Each so many entries, begun, cost one more period between passes.
pub const ENTRIES: u64 = 20_000;
/// The longest time between passes, also where nothing was noticed: a file may change by a mapping, or by a name elsewhere.
pub const LONGEST: Duration = Duration::from_secs(6);
/// After a first notice it waits for so long: few changes come alone.
pub const SETTLE: Duration = Duration::from_millis(30);

/// The time between the beginnings of two passes over `entries` entries.
fn period(base: Duration, entries: u64) -> Duration {
    let steps = u32::try_from(entries.div_ceil(ENTRIES).max(1)).unwrap_or(u32::MAX);
    base.checked_mul(steps).map_or(LONGEST, |period| period.min(LONGEST))
}

/// Keeps the beat: passes begin at whole periods after each other; one that takes longer than a period makes the
/// next ones fall out, not bunch up.
#[derive(Debug)]
pub struct Schedule {
    base: Duration,
    next: Instant,
    /// The next beat, before which no notice brings a pass.
    beat: Instant,
}

impl Schedule {
    /// The first pass begins at once, those after it a `base` apart.
    pub fn new(base: Duration, now: Instant) -> Self {
        Self { base, next: now, beat: now }
    }

    /// How long until the next pass begins.
    pub fn wait(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    /// As [`Schedule::new`], but those after the first come at whole multiples of `base` by the clock that says what time it is now: all that
    /// wait for such times wake together, and what one of them has looked at is near for the next. Who sets the clock later changes nothing here.
    pub fn joined(base: Duration, now: Instant, clock: SystemTime) -> Self {
        let clock = clock.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let into = clock.as_nanos().checked_rem(base.as_nanos()).and_then(|into| u64::try_from(into).ok());
        let whole = now.checked_sub(Duration::from_nanos(into.unwrap_or(0))).unwrap_or(now);
        Self { base, next: whole, beat: whole }
    }

    /// From the next pass on they are so far apart.
    pub fn be(&mut self, base: Duration) {
        self.base = base;
    }

    /// A pass over `entries` entries has ended: sets when the next begins. If every change from now on is noticed, that is late.
    pub fn passed(&mut self, now: Instant, entries: u64, noticed: bool) {
        let period = period(self.base, entries);
        let late = now.saturating_duration_since(self.next);
        let missed = u32::try_from(late.as_nanos() / period.as_nanos().max(1)).unwrap_or(u32::MAX - 1);
        self.beat = period
            .checked_mul(missed.saturating_add(1))
            .and_then(|step| self.next.checked_add(step))
            .unwrap_or(now + period);
        self.next = if noticed { self.beat.max(now + LONGEST) } else { self.beat };
    }

    /// The pass had more to do than one may: the next one goes on at once.
    pub fn goes_on(&mut self, now: Instant) {
        (self.next, self.beat) = (now, now);
    }

    /// Something has changed.
    pub fn noticed(&mut self, now: Instant) {
        self.next = self.next.min(self.beat.max(now + SETTLE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_keep_the_beat_and_a_slow_one_makes_others_fall_out() {
        let start = Instant::now();
        let mut schedule = Schedule::new(PERIOD, start);
        assert_eq!(schedule.wait(start), Duration::ZERO);
        schedule.passed(start + Duration::from_millis(20), 10, false);
        assert_eq!(schedule.wait(start), PERIOD);
        schedule.passed(start + PERIOD * 4 + Duration::from_millis(50), 10, false);
        assert_eq!(schedule.wait(start), PERIOD * 5);
    }

    #[test]
    fn who_began_at_other_times_wakes_at_the_same() {
        let start = Instant::now();
        let ends = |began: u64| {
            let began = Duration::from_millis(began);
            let clock = SystemTime::UNIX_EPOCH + Duration::from_millis(7_700) + began;
            let mut schedule = Schedule::joined(COPIES, start + began, clock);
            assert_eq!(schedule.wait(start + began), Duration::ZERO, "the first pass comes at once");
            schedule.passed(start + began, 0, false);
            start + began + schedule.wait(start + began)
        };
        assert_eq!(ends(0), start + Duration::from_millis(300), "a clock's 8,000");
        assert_eq!(ends(299), ends(0));
        assert_eq!(ends(300), ends(0) + COPIES);
    }
    #[test]
    fn more_entries_mean_fewer_passes_up_to_a_limit() {
        let period = |entries| period(PERIOD, entries);
        assert_eq!(period(0), PERIOD);
        assert_eq!(period(ENTRIES), PERIOD);
        assert_eq!(period(ENTRIES + 1), PERIOD * 2);
        assert_eq!(period(u64::MAX), LONGEST);
    }
    #[test]
    fn who_rests_looks_less_often_from_the_next_pass_on() {
        let start = Instant::now();
        let mut schedule = Schedule::new(COPIES, start);
        schedule.passed(start, 0, false);
        schedule.be(RESTING);
        assert_eq!(schedule.wait(start), COPIES);
        schedule.passed(start + COPIES, 0, false);
        assert_eq!(schedule.wait(start), COPIES + RESTING);
    }
    #[test]
    fn where_every_change_is_noticed_a_pass_follows_a_notice_and_else_comes_late() {
        let start = Instant::now();
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut schedule = Schedule::new(PERIOD, start);
        schedule.passed(after(10), 10, true);
        assert_eq!(schedule.wait(after(10)), LONGEST);
        schedule.noticed(after(50));
        assert_eq!(schedule.wait(start), PERIOD, "not before the beat");
        schedule.passed(after(310), 10, true);
        schedule.noticed(after(2_000));
        schedule.noticed(after(2_020));
        assert_eq!(schedule.wait(after(2_000)), SETTLE);
        schedule.passed(after(2_040), 10, false);
        assert_eq!(schedule.wait(after(2_030)), PERIOD, "what could not be finished comes with the beat");
    }
}
