//! How much is heard of a peer that is one of many. What it says takes of the time that all have, and taken over it says what it likes without
//! end. It is not ended for that, as one under load is not to be: what is beyond its share is heard later.

use std::time::{Duration, Instant};

/// What a message takes of its peer's share, and once more for each [`PIECE`] of it: so 16,384 small ones are heard in a second. A good vault
/// that has keys for none of 10,000 sessions asks for all of them once a second.
const COST: Duration = Duration::from_nanos(61_035);
/// See [`COST`], in octets.
const PIECE: usize = 64;
/// So much of what it will have it may have at once: three small messages for each of 10,000 sessions.
const AHEAD: Duration = Duration::from_secs(2);
/// How long a peer that has had its share is not heard at least, so that it has no turn for each message.
const REST: Duration = Duration::from_millis(10);

/// What one peer has had.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// When all that it has had is paid for.
    paid: Instant,
}

impl Share {
    /// Nothing yet.
    pub fn new(now: Instant) -> Self {
        Self { paid: now }
    }

    /// Until when it is not heard, if it has had its share.
    pub fn rests(&self, now: Instant) -> Option<Instant> {
        let ahead = self.paid.saturating_duration_since(now);
        (ahead >= AHEAD).then(|| now + ahead.saturating_sub(AHEAD).saturating_add(REST))
    }

    /// It has said something of so many octets.
    pub fn spend(&mut self, octets: usize, now: Instant) {
        let pieces = u32::try_from(octets / PIECE).unwrap_or(u32::MAX).saturating_add(1);
        self.paid = self.paid.max(now) + COST.saturating_mul(pieces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many messages of this length are heard in so long of a peer that always has one.
    fn heard(octets: usize, time: Duration) -> u32 {
        let begun = Instant::now();
        let (mut share, mut now, mut heard) = (Share::new(begun), begun, 0);
        while now < begun + time {
            match share.rests(now) {
                Some(until) => now = until,
                None => {
                    share.spend(octets, now);
                    heard += 1;
                }
            }
        }
        heard
    }

    #[test]
    fn what_all_sessions_give_reason_for_is_heard_at_once_and_then_so_much_in_a_second() {
        for (octets, most) in [(1, 16_384), (63, 16_384), (64, 8_192), (16_000, 65), (64_000, 16)] {
            let (at_once, later) =
                (heard(octets, Duration::from_nanos(1)), heard(octets, Duration::from_secs(10)));
            assert!(at_once.abs_diff(most * 2) <= 6, "{octets}: {at_once}");
            assert!(later.abs_diff(most * 12) <= most / 5 + 10, "{octets}: {later}");
        }
        assert!(heard(17, Duration::from_nanos(1)) > 3 * 10_000);
    }

    #[test]
    fn one_that_was_silent_for_long_has_no_more_than_at_the_beginning() {
        let now = Instant::now();
        let mut share = Share::new(now);
        let later = now + Duration::from_secs(3_600);
        let spent = std::iter::repeat_with(|| share.spend(1, later)).take(32_768).count();
        assert_eq!(spent, 32_768);
        share.spend(1_000, later);
        assert!(share.rests(later).is_some() && share.rests(later + Duration::from_secs(1)).is_none());
    }
}
