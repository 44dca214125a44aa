//! What anybody can cause is counted, and written to the audit log as one record an interval.

use levee_policy::audit::{Action, Event, Verdict};
use levee_session::{Counted, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a summary is written, if there is something to say.
const INTERVAL: Duration = Duration::from_secs(60);
/// The most different things counted in one interval, and in all.
const MOST: usize = 256;
/// The most bytes of a summary.
const MAX_TEXT: usize = 4096;
const OTHERS: &str = "others";

/// Counters, in this interval and since the start.
pub struct Counts {
    interval: BTreeMap<String, u64>,
    total: BTreeMap<String, u64>,
    due: Option<Time>,
}

impl Counts {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self { interval: BTreeMap::new(), total: BTreeMap::new(), due: None }
    }

    /// Counts one event of the state machine.
    pub fn add(&mut self, counted: &Counted, now: Time) {
        add(&mut self.total, counted.what.to_owned(), 1);
        let mut text = counted.what.to_owned();
        if let Some(device) = &counted.device {
            text.push_str(" at ");
            text.push_str(device.as_str());
        }
        if let Some(user) = &counted.user {
            text.push_str(" as ");
            text.push_str(user.as_str());
        }
        self.count(text, 1, now);
    }

    /// Counts something that another process has counted.
    pub fn add_many(&mut self, what: &str, count: u64, now: Time) {
        let what: String = what.chars().filter(|c| !c.is_control()).take(64).collect();
        add(&mut self.total, what.clone(), count);
        self.count(what, count, now);
    }

    /// Counts something for the status alone.
    pub fn total(&mut self, what: &str, count: u64) {
        add(&mut self.total, what.to_owned(), count);
    }

    fn count(&mut self, text: String, count: u64, now: Time) {
        add(&mut self.interval, text, count);
        self.due.get_or_insert(now.after(INTERVAL));
    }

    /// When the next summary is due.
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// The summary of the interval that ends now, and a new interval; `None` if nothing was counted.
    pub fn summary(&mut self) -> Option<Event> {
        self.due = None;
        let counted = std::mem::take(&mut self.interval);
        if counted.is_empty() {
            return None;
        }
        let mut reason = String::new();
        for (what, count) in counted {
            let item = format!("{}{count} × {what}", if reason.is_empty() { "" } else { "; " });
            if reason.len() + item.len() > MAX_TEXT {
                reason.push_str("; and more");
                break;
            }
            reason.push_str(&item);
        }
        Some(Event {
            user: None,
            host: None,
            label: None,
            action: Action::Count,
            object: "refusals".into(),
            verdict: Verdict::Noted,
            reason,
        })
    }

    /// Counters since the start.
    pub fn totals(&self) -> Vec<(String, u64)> {
        self.total.iter().map(|(what, count)| (what.clone(), *count)).collect()
    }
}

fn add(counters: &mut BTreeMap<String, u64>, what: String, count: u64) {
    let what = if counters.len() < MOST || counters.contains_key(&what) { what } else { OTHERS.to_owned() };
    let counter = counters.entry(what).or_insert(0);
    *counter = counter.saturating_add(count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_policy::UserName;

    #[test]
    fn a_flood_of_refusals_is_one_record_of_bounded_size() {
        let mut counts = Counts::new();
        let now = Time::from_millis(5);
        for n in 0..100_000 {
            let user = UserName::new(&format!("u{n}")).unwrap();
            counts.add(&Counted { what: "a wrong password", device: None, user: Some(user) }, now);
        }
        let event = counts.summary().unwrap();
        assert!(event.reason.len() < MAX_TEXT + 64, "{}", event.reason.len());
        assert!(counts.summary().is_none());
        assert_eq!(counts.totals(), [("a wrong password".to_owned(), 100_000)]);
        assert!(counts.interval.is_empty() && counts.due().is_none());
    }
}
