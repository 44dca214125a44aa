//! Time for the state machine: the wall clock at the start, and monotonic time since.

use levee_session::Time;
use levee_sys::clock::since_boot;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds that the host's clock may be set by, before it is said, and before a start that finds it set back has no session go on.
pub const MOST_SET: u64 = 30;

/// A clock that nobody sets while it runs, and that goes on while the host is suspended.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall: Time,
    start: Duration,
}

impl Clock {
    /// Reads the wall clock, once.
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall: Time::default().after(wall), start: since_boot() }
    }

    /// Now.
    pub fn now(&self) -> Time {
        self.wall.after(since_boot().saturating_sub(self.start))
    }

    /// This time on the host's monotonic clock, which other processes read alike.
    pub fn monotonic(&self, at: Time) -> Duration {
        levee_sys::clock::monotonic().saturating_add(at.since(self.now()))
    }

    /// That the host's clock was set since the start, if it was: what is recorded, and when a certificate ends, goes by what it was.
    pub fn alarm(&self) -> Option<String> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (wall, here) = (wall.as_secs(), self.now().as_millis() / 1_000);
        let which = if wall > here { "forward" } else { "back" };
        (wall.abs_diff(here) > MOST_SET).then(|| {
            format!(
                "the host's clock was set {which} by {} s since levee-sessiond started: the times in the audit log, and ends of certificates, go by \
                 what it was, until it is started anew",
                wall.abs_diff(here)
            )
        })
    }

    /// How long to wait until the first of these times; for ever if there is none.
    pub fn until(&self, deadlines: impl IntoIterator<Item = Option<Time>>) -> Option<Duration> {
        let first = deadlines.into_iter().flatten().min()?;
        // One millisecond more than it may be, for the clock rounds downwards.
        Some(first.since(self.now()).saturating_add(Duration::from_millis(1)).min(Duration::from_secs(3600)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_the_hosts_clock_was_set_is_told_and_changes_no_time_here() {
        let clock = Clock::start();
        assert_eq!(clock.alarm(), None);
        // As if it had been another one then.
        let before = clock.now().since(Time::default());
        let at = |wall| Clock { wall: Time::default().after(wall), start: clock.start };
        let back = at(before + Duration::from_secs(3_600));
        assert!(back.alarm().unwrap().contains("set back by 3"), "{:?}", back.alarm());
        let forward = at(before - Duration::from_secs(3_600));
        assert!(forward.alarm().unwrap().contains("set forward by 3"), "{:?}", forward.alarm());
        assert!(back.now().since(clock.now()) > Duration::from_secs(3_590));
    }
}
