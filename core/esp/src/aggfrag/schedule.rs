//! When packets of a constant rate are due.

use core::time::Duration;

/// A grid of moments, one `interval` apart. It knows time and nothing else, so that no traffic shows in it.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    interval: Duration,
    next: Duration,
}

impl Schedule {
    /// The most moments that are made good when a caller comes late; those before are lost.
    pub const LATE: u32 = 16;

    /// The first moment is now.
    #[must_use]
    pub fn new(now: Duration, interval: Duration) -> Self {
        Self { interval: interval.max(Duration::from_nanos(1)), next: now }
    }

    /// When the next packet is due.
    #[must_use]
    pub fn next(&self) -> Duration {
        self.next
    }

    /// Whether a packet is due; if so, the next one is due an interval later, wherever `now` is.
    pub fn is_due(&mut self, now: Duration) -> bool {
        if now < self.next {
            return false;
        }
        let late = (now - self.next).as_nanos() / self.interval.as_nanos();
        let lost = late.saturating_sub(u128::from(Self::LATE));
        // Back onto the grid. A sleep so long that this overflows has no grid to go back to.
        let lost = u32::try_from(lost).ok().and_then(|lost| self.interval.checked_mul(lost));
        self.next = match lost {
            Some(lost) => self.next.saturating_add(lost),
            None => now,
        };
        self.next = self.next.saturating_add(self.interval);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn packets_are_due_on_the_grid_however_irregularly_it_is_looked_at() {
        let mut schedule = Schedule::new(MILLI, 10 * MILLI);
        let mut due = Vec::new();
        for now in [0, 1, 2, 10, 12, 30, 30, 30, 31, 31, 40, 41, 55, 61, 61] {
            if schedule.is_due(now * MILLI) {
                due.push(now);
            }
        }
        assert_eq!(due, [1, 12, 30, 31, 41, 55, 61]);
        assert_eq!(schedule.next(), 71 * MILLI);
    }

    #[test]
    fn what_a_long_sleep_missed_does_not_come_all_at_once() {
        let mut schedule = Schedule::new(Duration::ZERO, MILLI);
        let burst = (0..100_000).take_while(|_| schedule.is_due(Duration::from_secs(3600))).count();
        assert_eq!(burst, Schedule::LATE as usize + 1);
        assert_eq!(schedule.next(), Duration::from_secs(3600) + MILLI, "still on the grid");
    }
}
