//! Time for the state machine: the wall clock at the start, and monotonic time since.

use levee_session::Time;
use levee_sys::clock::since_boot;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A clock that nobody sets while it runs, and that goes on while the host is suspended.
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

    /// How long to wait until the first of these times; for ever if there is none.
    pub fn until(&self, deadlines: impl IntoIterator<Item = Option<Time>>) -> Option<Duration> {
        let first = deadlines.into_iter().flatten().min()?;
        // One millisecond more than it may be, for the clock rounds downwards.
        Some(first.since(self.now()).saturating_add(Duration::from_millis(1)).min(Duration::from_secs(3600)))
    }
}
