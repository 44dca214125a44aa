//! How much is taken from the writer, and when next: by the clock and what was taken alone.

use std::time::{Duration, Instant};

/// Nothing is taken more often.
const TURN: Duration = Duration::from_millis(10);
/// What the smallest message costs, in bytes: a turn takes only so many.
const LEAST: u64 = 64;
/// Messages that one turn takes, at most: to give them takes less than a turn, whatever becomes of them.
const MOST: u32 = 1_024;

/// An allowance that grows with time.
#[derive(Debug)]
pub struct Pace {
    /// Bytes a second.
    rate: u64,
    /// Bytes that may be taken; below zero after a message that was larger than what was left.
    left: i64,
    /// When it last grew, since the beginning.
    grew: Duration,
    /// Messages that this turn may still take.
    messages: u32,
}

impl Pace {
    /// Of so many bytes a second.
    pub fn new(rate: u64) -> Self {
        Self { rate: rate.max(1), left: 1, grew: Duration::ZERO, messages: MOST }
    }

    /// It is now so long since the beginning: the allowance grows, to what one turn may take at most.
    pub fn begin(&mut self, now: Duration) {
        self.messages = MOST;
        let passed = now.saturating_sub(self.grew).as_nanos();
        let grown = passed.saturating_mul(self.rate.into()) / Duration::from_secs(1).as_nanos();
        let most = (u128::from(self.rate) * TURN.as_nanos() / Duration::from_secs(1).as_nanos()).max(1);
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        // What is less than a byte grows on.
        if grown > 0 {
            self.left = self.left.saturating_add(i64::try_from(grown).unwrap_or(i64::MAX)).min(most);
            self.grew = now;
        }
    }

    /// Whether another message may be taken.
    pub fn allows(&self) -> bool {
        self.left > 0 && self.messages > 0
    }

    /// A message of so many bytes was taken.
    pub fn took(&mut self, bytes: usize) {
        let cost = u64::try_from(bytes).unwrap_or(u64::MAX).max(LEAST);
        self.left = self.left.saturating_sub(i64::try_from(cost).unwrap_or(i64::MAX));
        self.messages = self.messages.saturating_sub(1);
    }

    /// How long after the beginning of this turn the next may begin.
    pub fn rest(&self) -> Duration {
        let owed = u64::try_from(1i64.saturating_sub(self.left)).unwrap_or(0);
        let nanos = u128::from(owed) * Duration::from_secs(1).as_nanos() / u128::from(self.rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).max(TURN)
    }
}

/// A turn that begins so much later than it might have begins anew: what was not taken meanwhile is not made up for.
const LATE: Duration = Duration::from_millis(50);

/// When turns begin, each by the one before and not by when this process had the processor: how long it waited for that is what others did,
/// and neither how much is taken nor when the next turn begins is to show it.
#[derive(Debug)]
pub struct Turns {
    started: Instant,
    next: Instant,
}

impl Turns {
    /// The first may begin at once.
    pub fn new(now: Instant) -> Self {
        Self { started: now, next: now }
    }

    /// When the next may begin.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// One begins, since it may by `now`: the pace grows by when it was to begin.
    pub fn begin(&mut self, pace: &mut Pace, now: Instant) {
        if now.saturating_duration_since(self.next) >= LATE {
            self.next = now;
        }
        pace.begin(self.next.saturating_duration_since(self.started));
    }

    /// All that this one may take is taken.
    pub fn end(&mut self, pace: &Pace) {
        self.next += pace.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that a writer who always has a message of this size gets rid of in ten seconds.
    fn taken(rate: u64, size: usize) -> u64 {
        let (mut pace, mut now, mut bytes) = (Pace::new(rate), Duration::ZERO, 0);
        while now < Duration::from_secs(10) {
            pace.begin(now);
            while pace.allows() {
                pace.took(size);
                bytes += size as u64;
            }
            now += pace.rest();
        }
        bytes
    }

    #[test]
    fn so_much_is_taken_and_no_more_whatever_the_size() {
        for rate in [1 << 10, 1 << 20, 1 << 30] {
            for size in [64, 1_000, 65_536] {
                let (taken, due) = (taken(rate, size), rate * 10);
                // A message beyond at the end, and what a turn rounds.
                assert!(taken <= due + due / 50 + 2 * size as u64, "{rate} {size}: {taken} of {due}");
                // So many turns there are in ten seconds, and so many messages in each.
                let due = due.min(1_000 * u64::from(MOST) * size as u64);
                assert!(taken + 2 * size as u64 >= due * 9 / 10, "{rate} {size}: {taken} of {due}");
            }
        }
    }

    /// When each turn was to begin, and how much it took of a writer who always has a message, where each began so much late.
    fn turns(late: impl Fn(u32) -> Duration) -> Vec<(Duration, u64)> {
        let start = Instant::now();
        let (mut pace, mut turns, mut all) = (Pace::new(1 << 20), Turns::new(start), Vec::new());
        for number in 0..1_000 {
            let was_due = turns.next();
            turns.begin(&mut pace, was_due + late(number));
            let mut bytes = 0;
            while pace.allows() {
                pace.took(1_000);
                bytes += 1_000;
            }
            turns.end(&pace);
            all.push((was_due - start, bytes));
        }
        all
    }

    #[test]
    fn how_late_the_process_runs_changes_neither_the_turns_nor_what_they_take() {
        let prompt = turns(|_| Duration::ZERO);
        assert_eq!(turns(|number| Duration::from_micros(u64::from(number * 7_919 % 49_999))), prompt);
        let bytes: u64 = prompt.iter().map(|(_, bytes)| bytes).sum();
        let (last, _) = prompt.last().unwrap();
        assert!(
            bytes.abs_diff((last.as_secs_f64() * f64::from(1 << 20)) as u64) < 30_000,
            "{bytes} in {last:?}"
        );
        // What stood still for long does not take all at once what it has missed.
        let after = turns(|number| if number == 500 { Duration::from_secs(60) } else { Duration::ZERO });
        assert_eq!(after.len(), prompt.len());
        assert!(after.iter().zip(&prompt).all(|((_, one), (_, other))| one.abs_diff(*other) <= 1_000));
    }

    #[test]
    fn empty_messages_are_not_for_nothing_and_one_who_was_silent_has_no_more_than_a_turn() {
        assert_eq!(taken(1 << 20, 0), 0, "bytes");
        let mut pace = Pace::new(1 << 20);
        pace.begin(Duration::from_secs(3_600));
        let mut messages = 0;
        while pace.allows() {
            pace.took(0);
            messages += 1;
        }
        assert_eq!(messages, (1 << 20) / 100 / 64 + 1);
    }
}
