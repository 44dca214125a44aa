//! How long what has ended rests before it is started again: not at all the first few times, then longer each time that it ends soon,
//! and not at all again when it has run for a while.

use levee_policy::site::Restart;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The first rest.
const FIRST: Duration = Duration::from_secs(1);
/// Nothing rests longer.
const MOST: Duration = Duration::from_secs(120);
/// What has run so long, and twice as long as it rested, has run for a while.
pub const WHILE: Duration = Duration::from_secs(20);

/// What somebody may say of their own accord: more than all services of a label that fail at once have its process 1 say.
pub const UNASKED: Restart = Restart { times: 512, within: Duration::from_secs(1) };

/// When something may be started again.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    /// So often it may end soon without a rest.
    free: u32,
    /// How often it has ended soon.
    times: u32,
    /// The last rest; nothing while all has been well.
    last: Duration,
    began: Option<Instant>,
    until: Option<Instant>,
}

impl Rest {
    /// Of something that may end soon so often without a rest.
    pub fn after(free: u32) -> Self {
        Self { free, ..Self::default() }
    }

    /// It has been started.
    pub fn began(&mut self, now: Instant) {
        (self.began, self.until) = (Some(now), None);
    }

    /// It has ended, or could not be started. How long it rests now.
    pub fn ended(&mut self, now: Instant) -> Duration {
        if self.is_well(now) {
            (self.times, self.last) = (0, Duration::ZERO);
        }
        self.began = None;
        self.times = self.times.saturating_add(1);
        if self.times > self.free {
            self.last = if self.last.is_zero() { FIRST } else { self.last.saturating_mul(2).min(MOST) };
        }
        self.until = Some(now + self.last);
        self.last
    }

    /// Whether it may be started.
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// How long it rests still.
    pub fn left(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Whether it has run for a while.
    pub fn is_well(&self, now: Instant) -> bool {
        let ran = self.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        ran >= WHILE && ran >= self.last.saturating_mul(2)
    }
}

/// How often within what time something that ends is started again.
#[derive(Debug)]
pub struct Rule {
    restart: Restart,
    /// When it was started again, as far as that counts still.
    again: VecDeque<Instant>,
}

impl Rule {
    /// It has not ended yet.
    pub fn new(restart: Restart) -> Self {
        Self { restart, again: VecDeque::new() }
    }

    /// It has ended: whether it is started again.
    pub fn allows(&mut self, now: Instant) -> bool {
        while self.again.front().is_some_and(|at| now.saturating_duration_since(*at) > self.restart.within) {
            self.again.pop_front();
        }
        let allows = u32::try_from(self.again.len()).is_ok_and(|times| times < self.restart.times);
        if allows {
            self.again.push_back(now);
        }
        allows
    }

    /// Whether anything has ended by it: it has been started again, or never is.
    pub fn has_ended_something(&self) -> bool {
        self.restart.times == 0 || !self.again.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_at_once_rests_longer_each_time_up_to_a_bound() {
        let (mut rest, mut now) = (Rest::after(2), Instant::now());
        assert!(rest.is_over(now));
        let mut rests = Vec::new();
        for _ in 0..12 {
            rest.began(now);
            now += Duration::from_millis(100);
            let wait = rest.ended(now);
            assert_eq!(rest.left(now), wait);
            assert!(wait.is_zero() || !rest.is_over(now + wait - Duration::from_millis(1)));
            now += wait;
            assert!(rest.is_over(now));
            rests.push(wait.as_secs());
        }
        assert_eq!(rests, [0, 0, 1, 2, 4, 8, 16, 32, 64, 120, 120, 120]);
        // One that could not even be started rests just as long.
        assert_eq!(rest.ended(now).as_secs(), 120);
    }

    #[test]
    fn what_has_run_for_a_while_is_as_good_as_new() {
        let (mut rest, mut now) = (Rest::default(), Instant::now());
        for _ in 0..6 {
            rest.began(now);
            now += rest.ended(now);
        }
        assert_eq!(rest.last.as_secs(), 32);
        // Longer than a while, but not than it has rested: as bad as before.
        rest.began(now);
        now += Duration::from_secs(30);
        assert!(!rest.is_well(now));
        now += rest.ended(now);
        assert_eq!(rest.last.as_secs(), 64);
        rest.began(now);
        now += Duration::from_secs(128);
        assert!(rest.is_well(now));
        assert_eq!(rest.ended(now).as_secs(), 1);
    }

    #[test]
    fn it_is_started_again_so_often_in_the_time_and_no_more_until_that_has_passed() {
        let restart = Restart { times: 2, within: Duration::from_secs(10) };
        let (mut rule, start) = (Rule::new(restart), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!([0, 1, 2, 10].map(|second| rule.allows(at(second))), [true, true, false, false]);
        // The first of the two is over.
        assert_eq!([11, 11, 12].map(|second| rule.allows(at(second))), [true, false, true]);
        let mut never = Rule::new(Restart { times: 0, ..restart });
        assert!(!never.allows(start));
    }
}
