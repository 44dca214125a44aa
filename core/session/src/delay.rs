//! When a password may be tried: guessing is slowed, and nobody can lock another person out.

use crate::Time;
use levee_policy::{HostName, UserName};
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest anybody ever waits for their password to be looked at.
pub const LONGEST: Duration = Duration::from_secs(30);
/// So many passwords may fail for one person at one TPE before the next has to wait.
const FREE: u32 = 3;
/// A TPE may try so many passwords at once…
const BURST: Duration = Duration::from_secs(20);
/// …and then one in this time, whomever they are for.
const SLOT: Duration = Duration::from_secs(2);
/// What is not tried for so long is forgotten.
const MEMORY: Duration = Duration::from_secs(15 * 60);

struct Pair {
    failures: u32,
    not_before: Time,
}

/// Two limits, both held per TPE, so that what happens at one TPE delays nobody at another: a delay that doubles
/// for each failure of one person at one TPE, and a budget for all attempts of one TPE.
///
/// Every attempt is charged as a failure when it is admitted and given back when it succeeds: a client that
/// hangs up before the answer gains nothing.
#[derive(Default)]
pub struct Delays {
    pairs: BTreeMap<(HostName, UserName), Pair>,
    // Per TPE: the theoretical arrival time of its next attempt (a virtual-scheduling leaky bucket).
    hosts: BTreeMap<HostName, Time>,
    swept: Time,
}

impl Delays {
    /// Charges an attempt, and says when the password may be looked at: at most [`LONGEST`] from now.
    pub fn admit(&mut self, host: &HostName, user: &UserName, now: Time) -> Time {
        self.sweep(now);
        let arrival = self.hosts.entry(host.clone()).or_insert(now);
        *arrival = (*arrival).max(now).after(SLOT).min(now.after(BURST + LONGEST));
        let budget = arrival.before(BURST);
        let pair =
            self.pairs.entry((host.clone(), user.clone())).or_insert(Pair { failures: 0, not_before: now });
        let start = now.max(pair.not_before).max(budget).min(now.after(LONGEST));
        pair.failures = pair.failures.saturating_add(1);
        pair.not_before = match pair.failures.checked_sub(FREE) {
            None => start,
            Some(excess) => {
                start.after(Duration::from_secs(1u64.checked_shl(excess).unwrap_or(u64::MAX)).min(LONGEST))
            }
        };
        start
    }

    /// The password was right: the attempt costs nothing.
    pub fn succeeded(&mut self, host: &HostName, user: &UserName) {
        self.pairs.remove(&(host.clone(), user.clone()));
        if let Some(arrival) = self.hosts.get_mut(host) {
            *arrival = arrival.before(SLOT);
        }
    }

    fn sweep(&mut self, now: Time) {
        if now.since(self.swept) < MEMORY {
            return;
        }
        self.swept = now;
        self.pairs.retain(|_, pair| now.since(pair.not_before) < MEMORY);
        self.hosts.retain(|_, arrival| now.since(*arrival) < MEMORY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name).unwrap()
    }

    fn user(name: &str) -> UserName {
        UserName::new(name).unwrap()
    }

    const T: Time = Time::from_millis(1_000_000);

    #[test]
    fn three_mistakes_are_free_and_the_next_wait_doubles_up_to_half_a_minute() {
        let mut delays = Delays::default();
        let (ws, ann) = (host("ws1"), user("ann"));
        let mut now = T;
        let mut waits = Vec::new();
        for _ in 0..12 {
            let start = delays.admit(&ws, &ann, now);
            waits.push(start.since(now).as_secs());
            now = start;
        }
        assert_eq!(waits, [0, 0, 0, 1, 2, 4, 8, 16, 30, 30, 30, 30]);
    }

    #[test]
    fn guessing_at_one_tpe_delays_nobody_at_another() {
        let mut delays = Delays::default();
        for n in 0..10_000u64 {
            delays.admit(&host("ws1"), &user("ann"), T.after(Duration::from_millis(n)));
        }
        let now = T.after(Duration::from_secs(11));
        assert_eq!(delays.admit(&host("ws2"), &user("ann"), now), now);
    }

    #[test]
    fn spraying_users_at_one_tpe_is_slowed_but_locks_nobody_out() {
        let mut delays = Delays::default();
        let mut last = Duration::ZERO;
        for n in 0..1_000 {
            last = delays.admit(&host("ws1"), &user(&format!("u{n}")), T).since(T);
        }
        assert!(last > Duration::from_secs(20), "{last:?}");
        let wait = delays.admit(&host("ws1"), &user("ann"), T).since(T);
        assert!(wait <= LONGEST, "{wait:?}");
    }

    #[test]
    fn a_right_password_costs_nothing() {
        let mut delays = Delays::default();
        for _ in 0..1_000 {
            assert_eq!(delays.admit(&host("ws1"), &user("ann"), T), T);
            delays.succeeded(&host("ws1"), &user("ann"));
        }
    }

    #[test]
    fn what_is_not_tried_for_long_is_forgotten() {
        let mut delays = Delays::default();
        for n in 0..100 {
            delays.admit(&host("ws1"), &user(&format!("u{n}")), T);
        }
        delays.admit(&host("ws2"), &user("ann"), T.after(Duration::from_secs(3600)));
        assert_eq!(delays.pairs.len(), 1);
        assert_eq!(delays.hosts.len(), 1);
    }
}
