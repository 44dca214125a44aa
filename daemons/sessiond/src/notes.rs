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
/// The most of them that one workstation, one label, or one other server, has: so that none can hide what others cause behind what it makes up. Beyond
/// them only what was done there is told apart.
const SHARE: usize = MOST / 8;
/// So many characters of why are looked at.
const MAX_WHY: usize = 256;
/// The most in all.
const MOST_WITH_REST: usize = MOST + 32;

/// What stands for what is not told apart.
const MANY: &str = "of many causes";

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
        let share = if cause.place() == (None, None, None) { MOST / 2 } else { SHARE };
        let of_its_place = self.open.keys().filter(|other| other.place() == cause.place());
        let has_share = self.open.contains_key(&cause) || of_its_place.count() < share;
        if !has_share {
            // Another server's stay its own.
            let object = cause.server().map_or_else(|| MANY.into(), ToOwned::to_owned);
            cause = Cause { object, why: String::new(), user: None, ..cause };
        }
        let has_place = self.open.len() < MOST || self.open.contains_key(&cause);
        if !has_place {
            cause = Cause {
                object: MANY.into(),
                why: String::new(),
                user: None,
                host: None,
                label: None,
                ..cause
            };
            if self.open.len() >= MOST_WITH_REST && !self.open.contains_key(&cause) {
                return None;
            }
        }
        let told_apart = has_share && has_place;
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
    /// Where it comes from: a workstation, or else a label, another server, or levee itself and strangers.
    fn place(&self) -> (Option<&HostName>, Option<&LabelName>, Option<&str>) {
        let is_alone = self.host.is_none() && self.label.is_none();
        (
            self.host.as_ref(),
            self.label.as_ref().filter(|_| self.host.is_none()),
            self.server().filter(|_| is_alone),
        )
    }

    /// Another server, where it is about what that one says.
    fn server(&self) -> Option<&str> {
        self.object.starts_with("server ").then_some(self.object.as_str())
    }

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
        assert_eq!(written, 3, "few of 195,000");
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
        let at = |n: usize| Event { host: HostName::new(&format!("ws{n}")).ok(), ..wrong(&format!("u{n}")) };
        let written = (0..100_000).filter(|n| notes.add(at(*n), T).is_some()).count();
        let said = notes.take(true, T);
        assert!(written <= MOST && said.len() == 1, "{written}, {}", said.len());
        assert!(said[0].user.is_none() && said[0].reason.starts_with("99744 in one minute"), "{said:?}");
        assert!(notes.due().is_none());
    }

    #[test]
    fn one_place_that_makes_up_causes_hides_nothing_of_another() {
        let mut notes = Notes::default();
        let invented = (0..100_000).filter(|n| notes.add(wrong(&format!("u{n}")), T).is_some()).count();
        assert_eq!(invented, SHARE);
        // A label's compartment, which gives reasons of its own.
        let of_label = |n: usize| Event {
            user: None,
            host: None,
            label: LabelName::new("SECRET").ok(),
            action: Action::Start,
            object: "service web".into(),
            verdict: Verdict::Noted,
            reason: std::iter::repeat_n('x', n % 200).chain(std::iter::repeat_n('y', n / 200)).collect(),
        };
        let told = (0..10_000).filter(|n| notes.add(of_label(*n), T).is_some()).count();
        assert_eq!(told, SHARE);
        // Another server, which names people and workstations that it makes up.
        let of_server = |n: usize| Event {
            user: None,
            host: None,
            action: Action::Session,
            object: "server two.example".into(),
            reason: std::iter::repeat_n('x', n % 200).chain(std::iter::repeat_n('y', n / 200)).collect(),
            ..wrong("mia")
        };
        let told = (0..10_000).filter(|n| notes.add(of_server(*n), T).is_some()).count();
        assert_eq!(told, SHARE);
        let another = Event { host: HostName::new("ws3").ok(), ..wrong("ada") };
        let written = (0..10).filter(|_| notes.add(another.clone(), T).is_some()).count() as u64;
        assert_eq!(written, FIRST, "who guesses elsewhere has a record of their own");
        let said = notes.take(true, T);
        let many =
            |at: &Event| at.object == MANY && at.user.is_none() && (at.host.is_some() || at.label.is_some());
        assert_eq!(
            said.iter().filter(|at| many(at)).count(),
            2,
            "each with its place and how many: {said:?}"
        );
        assert!(said.iter().any(|at| at.user == another.user && at.reason.starts_with("10 in")), "{said:?}");
    }
}
