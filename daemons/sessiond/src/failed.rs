//! Labels, and services, that did not start when they were asked for last: what an operator is to know of them, also when the label has ended since.

use levee_policy::LabelName;
use levee_session::Time;
use std::collections::BTreeMap;

/// So many are told of, the latest.
const MOST: usize = 16;

/// And so many of one label, so that its services hide no other's.
const OF_ONE: usize = 4;

/// So many characters of why are told; the audit log has all.
const LONGEST: usize = 200;

/// Each with why it did not start, and when: a label, and with words a service of it.
#[derive(Default)]
pub struct Failed(BTreeMap<(LabelName, Option<String>), (String, Time)>);

impl Failed {
    /// The label does not start, or what the words name does not.
    pub fn add(&mut self, label: &LabelName, what: Option<&str>, why: &str, now: Time) {
        let key = (label.clone(), what.map(str::to_owned));
        self.0.insert(key, (why.chars().take(LONGEST).collect(), now));
        let of_label = self.0.keys().filter(|(of, _)| of == label).count();
        let goes = |of: &LabelName| of_label <= OF_ONE || of == label;
        let oldest = self.0.iter().filter(|((of, _), _)| goes(of)).min_by_key(|(_, (_, at))| *at);
        if (self.0.len() > MOST || of_label > OF_ONE)
            && let Some(oldest) = oldest.map(|(key, _)| key.clone())
        {
            self.0.remove(&oldest);
        }
    }

    /// It runs.
    pub fn remove(&mut self, label: &LabelName, what: Option<&str>) {
        self.0.remove(&(label.clone(), what.map(str::to_owned)));
    }

    /// In words, but for services of which others (`told`) say it already.
    pub fn alarms(&self, now: Time, told: &[String]) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(move |((label, what), (why, at))| {
            let ago = now.since(*at).as_secs();
            let Some(what) = what else {
                return Some(format!(
                    "{label} does not start ({why}, {ago} s ago); it is tried again when it is asked for"
                ));
            };
            let is_told = told.iter().any(|one| one.starts_with(&format!("{label}: {what} ")));
            let said =
                format!("{label}: {what} did not start when it was asked for last ({why}, {ago} s ago)");
            (!is_told).then_some(said)
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
        assert_eq!(failed.alarms(later, &[]).count(), 0);
        failed.add(&label(1), None, "no space", begin);
        let told: Vec<String> = failed.alarms(later, &[]).collect();
        assert_eq!(told, ["L1 does not start (no space, 9 s ago); it is tried again when it is asked for"]);
        failed.remove(&label(1), None);
        assert_eq!(failed.alarms(later, &[]).count(), 0);
    }

    #[test]
    fn a_service_that_did_not_start_is_told_of_once_and_until_it_has() {
        let (mut failed, begin) = (Failed::default(), Time::from_millis(1_000));
        let later = begin.after(Duration::from_secs(90));
        failed.add(&label(1), Some("service web"), "exit status 1", begin);
        // The label has begun again since, and nobody has asked for the service.
        failed.remove(&label(1), None);
        let told: Vec<String> = failed.alarms(later, &[]).collect();
        assert_eq!(
            told,
            ["L1: service web did not start when it was asked for last (exit status 1, 90 s ago)"]
        );
        let others = ["L1: service web does not start (exit status 1, 90 s ago)".to_owned()];
        assert_eq!(failed.alarms(later, &others).count(), 0);
        assert_eq!(failed.alarms(later, &["L1: service webmail does not start".to_owned()]).count(), 1);
        failed.remove(&label(1), Some("service web"));
        assert_eq!(failed.alarms(later, &[]).count(), 0);
    }

    #[test]
    fn a_label_whose_services_do_not_start_hides_no_others() {
        let (mut failed, begin) = (Failed::default(), Time::from_millis(1_000));
        failed.add(&label(2), None, "no space", begin);
        for number in 0..100_u64 {
            let what = format!("service s{number}");
            failed.add(&label(1), Some(&what), "exit status 1", begin.after(Duration::from_secs(number + 1)));
        }
        let told: Vec<String> = failed.alarms(begin.after(Duration::from_secs(999)), &[]).collect();
        assert_eq!(told.iter().filter(|one| one.starts_with("L1: ")).count(), OF_ONE);
        assert!(told.iter().any(|one| one.starts_with("L2 does not start")), "{told:?}");
    }

    #[test]
    fn however_many_do_not_start_the_latest_are_told_of_and_no_more() {
        let (mut failed, begin) = (Failed::default(), Time::from_millis(1_000));
        for number in 0..1_000 {
            failed.add(
                &label(number),
                None,
                &"x".repeat(5_000),
                begin.after(Duration::from_secs(number as u64)),
            );
        }
        let told: Vec<String> = failed.alarms(begin.after(Duration::from_secs(999)), &[]).collect();
        assert_eq!(told.len(), MOST);
        assert!(
            told.iter().all(|one| one.len() < LONGEST + 100) && told.iter().any(|one| one.contains("L999 "))
        );
        assert!(!told.iter().any(|one| one.contains("L983 ")), "{told:?}");
    }
}
