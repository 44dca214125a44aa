//! Records that nobody waits for: the first few of a cause are written one by one, the others counted, and written as one.

use levee_policy::audit::{Action, Event, Verdict};
use levee_policy::{HostName, LabelName, UserName};
use levee_session::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// So many alike are written as they come, in one interval.
const FIRST: u64 = 3;
/// After it the others are written as one.
const INTERVAL: Duration = Duration::from_secs(60);
/// The most causes told apart in one interval; beyond them only what was done is.
const MOST: usize = 256;
/// So many characters of why are looked at.
const MAX_WHY: usize = 256;
/// The most in all.
const MOST_WITH_REST: usize = MOST + 32;

/// What makes two records alike: all but the numbers in why.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Cause {
    action: Action,
    object: String,
    user: Option<UserName>,
    host: Option<HostName>,
    label: Option<LabelName>,
    granted: Option<bool>,
    why: String,
}

struct Window {
    until: Time,
    seen: u64,
    /// Why, as the last of them says.
    reason: String,
}

/// Causes of the present interval.
#[derive(Default)]
pub struct Notes {
    open: BTreeMap<Cause, Window>,
}

impl Notes {
    /// Takes a record. Gives it back if it is to be written now; otherwise it is counted.
    pub fn add(&mut self, event: Event, now: Time) -> Option<Event> {
        let mut cause = Cause::of(&event);
        let told_apart = self.open.len() < MOST || self.open.contains_key(&cause);
        if !told_apart {
            let (object, why) = ("of many causes".into(), String::new());
            cause = Cause { object, why, user: None, host: None, label: None, ..cause };
            if self.open.len() >= MOST_WITH_REST && !self.open.contains_key(&cause) {
                return None;
            }
        }
        let fresh = || Window { until: now.after(INTERVAL), seen: 0, reason: String::new() };
        let window = self.open.entry(cause).or_insert_with(fresh);
        window.seen = window.seen.saturating_add(1);
        if window.seen <= FIRST && told_apart {
            return Some(event);
        }
        window.reason = event.reason;
        None
    }

    /// When [`Notes::take`] has something to say next.
    pub fn due(&self) -> Option<Time> {
        self.open.values().map(|window| window.until).min()
    }

    /// What was counted in intervals that are over; with `all`, in the others, too.
    pub fn take(&mut self, all: bool, now: Time) -> Vec<Event> {
        let mut said = Vec::new();
        self.open.retain(|cause, window| {
            if !all && window.until > now {
                return true;
            }
            if !window.reason.is_empty() {
                said.push(cause.summary(window));
            }
            false
        });
        said
    }
}

impl Cause {
    fn of(event: &Event) -> Self {
        let Event { user, host, label, action, object, verdict, reason } = event.clone();
        let why = reason.chars().filter(|c| !c.is_ascii_digit()).take(MAX_WHY).collect();
        let granted = match verdict {
            Verdict::Granted => Some(true),
            Verdict::Denied => Some(false),
            Verdict::Noted => None,
        };
        Self { action, object, user, host, label, granted, why }
    }

    fn summary(&self, window: &Window) -> Event {
        let Self { action, object, user, host, label, granted, .. } = self.clone();
        let verdict = match granted {
            Some(true) => Verdict::Granted,
            Some(false) => Verdict::Denied,
            None => Verdict::Noted,
        };
        let reason = format!("{} in one minute; the last: {}", window.seen, window.reason);
        Event { user, host, label, action, object, verdict, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Time = Time::from_millis(1_000_000);

    fn wrong(user: &str) -> Event {
        Event {
            user: Some(UserName::new(user).unwrap()),
            host: Some(HostName::new("ws2").unwrap()),
            label: None,
            action: Action::SignOn,
            object: "ws2".into(),
            verdict: Verdict::Denied,
            reason: "wrong password".into(),
        }
    }

    #[test]
    fn the_first_few_of_a_cause_are_records_of_their_own_and_the_others_one_with_their_count() {
        let mut notes = Notes::default();
        let written = (0..195_000).filter(|_| notes.add(wrong("mia"), T).is_some()).count();
        assert_eq!(written as u64, FIRST);
        assert!(notes.add(wrong("ada"), T).is_some(), "another's are another cause");
        assert!(notes.take(false, T).is_empty());
        let due = notes.due().unwrap();
        let said = notes.take(false, due);
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].user, Some(UserName::new("mia").unwrap()));
        assert_eq!(said[0].reason, "195000 in one minute; the last: wrong password");
        // A new interval begins.
        assert!(notes.due().is_none() && notes.add(wrong("mia"), due).is_some());
    }

    #[test]
    fn any_number_of_causes_is_a_bounded_number_of_records() {
        let mut notes = Notes::default();
        let written = (0..100_000).filter(|n| notes.add(wrong(&format!("u{n}")), T).is_some()).count();
        let said = notes.take(true, T);
        assert!(written <= MOST && said.len() == 1, "{written}, {}", said.len());
        assert!(said[0].user.is_none() && said[0].reason.starts_with("99744 in one minute"), "{said:?}");
        assert!(notes.due().is_none());
    }
}
