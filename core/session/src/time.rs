//! Time as the state machine sees it: an argument, never a clock.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Milliseconds since the Unix epoch, never decreasing within one run.
///
/// The shell takes the wall clock once, at its start, and adds monotonic time, so that times in the store stay
/// comparable across restarts while nobody who sets the clock moves a running session's deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(u64);

impl Time {
    /// The time this many milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This time and `span` more; the end of time where that is too much.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The beginning of the second that this is in. What may come at any time of a second comes with the rest, at one wake.
    pub const fn whole_second(self) -> Self {
        Self(self.0 / 1_000 * 1_000)
    }

    /// This time less `span`; the epoch where that is too much.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; nothing if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}
