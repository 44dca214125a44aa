//! When a password may be tried: guessing is slowed, and nobody can lock another person out.

use crate::Time;
use levee_policy::{HostName, UserName};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
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

/// Names of people at one TPE share so many places, chosen by a keyed hash: whatever names are tried, known or not, a TPE costs the
/// same memory, and nobody can tell by their delay which names there are. Two people at one TPE may share a place, and each other's delay.
const PLACES: usize = 64;

#[derive(Clone, Copy)]
struct Waits {
    failures: u32,
    not_before: Time,
}

struct Tpe {
    /// The theoretical arrival time of its next attempt (a virtual-scheduling leaky bucket).
    arrival: Time,
    places: [Waits; PLACES],
}

impl Tpe {
    /// The arrival time with one attempt more.
    fn next(&self, now: Time) -> Time {
        self.arrival.max(now).after(SLOT).min(now.after(BURST + LONGEST))
    }
}

/// Two limits, both held per TPE, so that what happens at one TPE delays nobody at another: a delay that doubles
/// for each failure of one person at one TPE, and a budget for all attempts of one TPE.
///
/// Every attempt is charged as a failure when it is admitted and given back when it succeeds: a client that
/// hangs up before the answer gains nothing. What is kept is bounded by the number of the site's TPEs.
pub struct Delays {
    tpes: BTreeMap<HostName, Box<Tpe>>,
    /// What the hash of names is keyed with: nobody chooses whose place they share.
    secret: [u8; 16],
    swept: Time,
}

impl Delays {
    /// Nothing tried yet. `secret` is random.
    pub fn new(secret: [u8; 16]) -> Self {
        Self { tpes: BTreeMap::new(), secret, swept: Time::default() }
    }

    /// When the next attempt's password might be looked at, if it came now. Nothing is charged.
    pub fn next(&self, host: &HostName, user: &UserName, now: Time) -> Time {
        let Some(tpe) = self.tpes.get(host) else { return now };
        let Some(place) = tpe.places.get(self.place(user)) else { return now.after(LONGEST) };
        now.max(place.not_before).max(tpe.next(now).before(BURST)).min(now.after(LONGEST))
    }

    /// Charges an attempt, and says when the password may be looked at: at most [`LONGEST`] from now.
    pub fn admit(&mut self, host: &HostName, user: &UserName, now: Time) -> Time {
        self.sweep(now);
        let (at, start) = (self.place(user), self.next(host, user, now));
        let fresh =
            || Box::new(Tpe { arrival: now, places: [Waits { failures: 0, not_before: now }; PLACES] });
        let tpe = self.tpes.entry(host.clone()).or_insert_with(fresh);
        tpe.arrival = tpe.next(now);
        let Some(place) = tpe.places.get_mut(at) else { return now.after(LONGEST) };
        if now.since(place.not_before) >= MEMORY {
            place.failures = 0;
        }
        place.failures = place.failures.saturating_add(1);
        place.not_before = match place.failures.checked_sub(FREE) {
            None => start,
            Some(excess) => {
                start.after(Duration::from_secs(1u64.checked_shl(excess).unwrap_or(u64::MAX)).min(LONGEST))
            }
        };
        start
    }

    /// The password was right: the attempt costs nothing.
    pub fn succeeded(&mut self, host: &HostName, user: &UserName) {
        let at = self.place(user);
        let Some(tpe) = self.tpes.get_mut(host) else { return };
        tpe.arrival = tpe.arrival.before(SLOT);
        if let Some(place) = tpe.places.get_mut(at) {
            *place = Waits { failures: 0, not_before: Time::default() };
        }
    }

    /// SipHash of a name behind the secret.
    fn place(&self, user: &UserName) -> usize {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.secret);
        hasher.write(user.as_str().as_bytes());
        usize::try_from(hasher.finish() % PLACES as u64).unwrap_or(0)
    }

    fn sweep(&mut self, now: Time) {
        if now.since(self.swept) < MEMORY {
            return;
        }
        self.swept = now;
        self.tpes.retain(|_, tpe| {
            now.since(tpe.arrival) < MEMORY
                || tpe.places.iter().any(|place| place.failures > 0 && now.since(place.not_before) < MEMORY)
        });
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
        let mut delays = Delays::new([7; 16]);
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
        let mut delays = Delays::new([7; 16]);
        for n in 0..10_000u64 {
            delays.admit(&host("ws1"), &user("ann"), T.after(Duration::from_millis(n)));
        }
        let now = T.after(Duration::from_secs(11));
        assert_eq!(delays.admit(&host("ws2"), &user("ann"), now), now);
    }

    #[test]
    fn spraying_users_at_one_tpe_is_slowed_but_locks_nobody_out() {
        let mut delays = Delays::new([7; 16]);
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
        let mut delays = Delays::new([7; 16]);
        for _ in 0..1_000 {
            assert_eq!(delays.admit(&host("ws1"), &user("ann"), T), T);
            delays.succeeded(&host("ws1"), &user("ann"));
        }
    }

    #[test]
    fn names_that_are_never_used_again_take_no_more_memory_and_delay_as_real_ones_do() {
        let mut delays = Delays::new([7; 16]);
        let mut waits = Vec::new();
        for n in 0..100_000u64 {
            let now = T.after(Duration::from_millis(10 * n));
            waits.push(delays.admit(&host("ws1"), &user(&format!("u{n}")), now).since(now));
        }
        assert_eq!(delays.tpes.len(), 1);
        assert!(waits.iter().all(|wait| *wait <= LONGEST));
        // Whom it hits is not for the guesser to choose: another key, another place.
        let places: std::collections::BTreeSet<usize> =
            (0..16).map(|key| Delays::new([key; 16]).place(&user("ann"))).collect();
        assert!(places.len() > 8, "{places:?}");
    }

    #[test]
    fn what_is_not_tried_for_long_is_forgotten() {
        let mut delays = Delays::new([7; 16]);
        for n in 0..100 {
            delays.admit(&host("ws1"), &user(&format!("u{n}")), T);
        }
        let later = T.after(Duration::from_secs(3600));
        delays.admit(&host("ws2"), &user("ann"), later);
        assert_eq!(delays.tpes.len(), 1);
    }

    #[test]
    fn what_counted_last_a_quarter_of_an_hour_ago_is_swept_out_and_nothing_later_is() {
        let ms = Duration::from_millis(1);
        let kept = |arrival: Time, failures: u32, not_before: Time, now: Time| {
            let mut delays = Delays::new([7; 16]);
            let mut places = [Waits { failures: 0, not_before: Time::default() }; PLACES];
            places[PLACES - 1] = Waits { failures, not_before };
            delays.tpes.insert(host("ws1"), Box::new(Tpe { arrival, places }));
            delays.swept = T;
            delays.sweep(now);
            delays.tpes.len() == 1
        };
        let now = T.after(MEMORY);
        assert!(!kept(T, 0, T, now) && kept(T.after(ms), 0, T, now), "the budget");
        assert!(!kept(T, 1, T, now) && kept(T, 1, T.after(ms), now), "a person's failures");
        assert!(!kept(T, 0, T.after(ms), now), "who has none waits for nothing");
        assert!(kept(T.before(ms), 0, T, now.before(ms)), "it was swept less than so long ago");
    }

    #[test]
    fn a_persons_failures_count_until_a_quarter_of_an_hour_after_their_wait() {
        for (early, counted) in [(Duration::from_millis(1), 6), (Duration::ZERO, 1)] {
            let mut delays = Delays::new([7; 16]);
            let (ws, ann) = (host("ws1"), user("ann"));
            (0..5).fold(T, |at, _| delays.admit(&ws, &ann, at));
            let place = delays.place(&ann);
            let waited = delays.tpes[&ws].places[place].not_before;
            delays.admit(&ws, &ann, waited.after(MEMORY).before(early));
            assert_eq!(delays.tpes[&ws].places[place].failures, counted);
        }
    }

    #[test]
    fn a_tpes_budget_and_a_persons_failures_are_remembered_for_a_quarter_of_an_hour() {
        let minute = |n: u64| Duration::from_secs(60 * n);
        for (after, waits) in [(minute(14), true), (minute(16), false)] {
            let mut delays = Delays::new([7; 16]);
            let (ws, ann) = (host("ws1"), user("ann"));
            let mut last = T;
            for _ in 0..6 {
                last = delays.admit(&ws, &ann, last);
            }
            // Others' attempts have what is forgotten swept out meanwhile.
            delays.admit(&host("ws2"), &user("bob"), last.after(after));
            let now = last.after(after);
            let first = delays.admit(&ws, &ann, now);
            assert_eq!(first, now, "nobody waits for longer than half a minute");
            let second = delays.admit(&ws, &ann, now);
            assert_eq!(second > now, waits, "{after:?}");
        }
    }
}
