//! Labels that did not start when they were asked for last: what an operator is to know of them.

use levee_policy::LabelName;
use levee_session::Time;
use std::collections::BTreeMap;

/// So many labels are told of, the latest.
const MOST: usize = 16;

/// So many characters of why are told; the audit log has all.
const LONGEST: usize = 200;

/// The labels, each with why it did not start, and when.
#[derive(Default)]
pub struct Failed(BTreeMap<LabelName, (String, Time)>);

impl Failed {
    /// It does not start.
    pub fn add(&mut self, label: &LabelName, why: &str, now: Time) {
        self.0.insert(label.clone(), (why.chars().take(LONGEST).collect(), now));
        if self.0.len() > MOST
            && let Some(oldest) = self.0.iter().min_by_key(|(_, (_, at))| *at).map(|(label, _)| label.clone())
        {
            self.0.remove(&oldest);
        }
    }

    /// It runs.
    pub fn remove(&mut self, label: &LabelName) {
        self.0.remove(label);
    }

    /// In words.
    pub fn alarms(&self, now: Time) -> impl Iterator<Item = String> {
        self.0.iter().map(move |(label, (why, at))| {
            let ago = now.since(*at).as_secs();
            format!("{label} does not start ({why}, {ago} s ago); it is tried again when it is asked for")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn label(number: usize) -> LabelName {
        LabelName::new(&format!("L{number}")).unwrap()
    }

    #[test]
    fn a_label_that_does_not_start_is_told_with_why_and_since_when_until_it_runs() {
        let (mut failed, begin) = (Failed::default(), Time::from_millis(1_000));
        let later = begin.after(Duration::from_secs(9));
        assert_eq!(failed.alarms(later).count(), 0);
        failed.add(&label(1), "no space", begin);
        let told: Vec<String> = failed.alarms(later).collect();
        assert_eq!(told, ["L1 does not start (no space, 9 s ago); it is tried again when it is asked for"]);
        failed.remove(&label(1));
        assert_eq!(failed.alarms(later).count(), 0);
    }

    #[test]
    fn however_many_do_not_start_the_latest_are_told_of_and_no_more() {
        let (mut failed, begin) = (Failed::default(), Time::from_millis(1_000));
        for number in 0..1_000 {
            failed.add(&label(number), &"x".repeat(5_000), begin.after(Duration::from_secs(number as u64)));
        }
        let told: Vec<String> = failed.alarms(begin.after(Duration::from_secs(999))).collect();
        assert_eq!(told.len(), MOST);
        assert!(
            told.iter().all(|one| one.len() < LONGEST + 100) && told.iter().any(|one| one.contains("L999 "))
        );
        assert!(!told.iter().any(|one| one.contains("L983 ")), "{told:?}");
    }
}
