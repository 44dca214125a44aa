//! What is kept running: how often it has ended, when it is started again, and what an operator is to know of it. What belongs to
//! one label fails with that label: it rests, and nobody else hears of it.

use crate::key::Key;
use crate::rest::Rest;
use levee_policy::LabelName;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// So often something may end soon and is started again at once.
const FREE: u32 = 8;
/// So often a label may fail to start before who asks for it is refused for a while.
const TRIES: u32 = 2;

/// Something that is kept running.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// A process; for all that is a label's vault, its first worker.
    Process(Key),
    /// A label's compartment: its process 1.
    Compartment(LabelName),
    /// A label's start.
    Start(LabelName),
}

impl Kept {
    /// The label that it belongs to, if any.
    pub fn label(&self) -> Option<&LabelName> {
        match self {
            Self::Process(key) => key.label.as_ref(),
            Self::Compartment(label) | Self::Start(label) => Some(label),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(key) => f.write_str(key.role.program()),
            Self::Compartment(_) => f.write_str("the compartment"),
            Self::Start(_) => f.write_str("the start"),
        }
    }
}

/// What becomes of something that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is started again at once.
    Again,
    /// It has ended too often, and rests so long.
    Rests(Duration),
}

/// Of one thing that is kept running.
#[derive(Debug)]
struct One {
    rest: Rest,
    /// When it is started again, if it waits for that.
    due: Option<Instant>,
    /// It has rested, and has not run well for a while since: why, and when it ended last.
    trouble: Option<(String, Instant)>,
}

/// All that is kept running.
#[derive(Debug, Default)]
pub struct Keeping(BTreeMap<Kept, One>);

impl Keeping {
    fn one(&mut self, what: Kept) -> &mut One {
        let free = if matches!(what, Kept::Start(_)) { TRIES } else { FREE };
        self.0.entry(what).or_insert_with(|| One { rest: Rest::after(free), due: None, trouble: None })
    }

    /// It has been started.
    pub fn began(&mut self, what: Kept, now: Instant) {
        let one = self.one(what);
        one.due = None;
        one.rest.began(now);
    }

    /// It has ended, or could not be started: how, in words.
    pub fn ended(&mut self, what: Kept, how: &str, now: Instant) -> Verdict {
        let one = self.one(what);
        let wait = one.rest.ended(now);
        if wait.is_zero() {
            return Verdict::Again;
        }
        one.trouble = Some((how.to_owned(), now));
        one.due = Some(now + wait);
        Verdict::Rests(wait)
    }

    /// It could not even be started: it rests, whatever it did before.
    pub fn failed(&mut self, what: Kept, why: &str, now: Instant) -> Duration {
        loop {
            // At most a few times: then nothing is free any more.
            if let Verdict::Rests(wait) = self.ended(what.clone(), why, now) {
                return wait;
            }
        }
    }

    /// Whether it has run, and has not been let go since.
    pub fn has_run(&self, what: &Kept) -> bool {
        self.0.contains_key(what)
    }

    /// What is to be started now; it does not wait any more.
    pub fn due(&mut self, now: Instant) -> Vec<Kept> {
        let is_due = |one: &mut One| one.due.take_if(|at| *at <= now).is_some();
        self.0.iter_mut().filter_map(|(what, one)| is_due(one).then(|| what.clone())).collect()
    }

    /// Why it rests and for how long still; `None` where it does not.
    pub fn rests(&self, what: &Kept, now: Instant) -> Option<String> {
        let one = self.0.get(what)?;
        let left = one.due?.checked_duration_since(now)?;
        let why = one.trouble.as_ref().map_or("it has ended", |(why, _)| why.as_str());
        Some(format!("{why}; tried again in {} s", left.as_secs().saturating_add(1)))
    }

    /// What was in trouble and has run well for a while.
    pub fn well(&mut self, now: Instant) -> Vec<Kept> {
        let is_well = |one: &mut One| one.trouble.take_if(|_| one.rest.is_well(now)).is_some();
        self.0.iter_mut().filter_map(|(what, one)| is_well(one).then(|| what.clone())).collect()
    }

    /// A label's compartment has been taken down: its processes are not started again by themselves.
    pub fn stopped(&mut self, label: &LabelName) {
        self.forget(|what| matches!(what, Kept::Process(_)) && what.label() == Some(label));
    }

    /// Nobody needs this label: what was to be started for it is not, and what ended there is forgotten once it has rested.
    pub fn release(&mut self, label: &LabelName, now: Instant) {
        self.forget(|what| what.label() == Some(label));
        self.0.retain(|what, one| what.label() != Some(label) || !one.rest.is_over(now));
    }

    fn forget(&mut self, whose: impl Fn(&Kept) -> bool) {
        let those = self.0.iter_mut().filter(|(what, _)| whose(what));
        those.for_each(|(_, one)| (one.due, one.trouble) = (None, None));
    }

    /// Whether [`Keeping::due`] and [`Keeping::well`] are to be asked.
    pub fn is_busy(&self) -> bool {
        self.0.values().any(|one| one.due.is_some() || one.trouble.is_some())
    }

    /// What an operator is to know.
    pub fn alarms(&self, now: Instant) -> Vec<String> {
        let line = |(what, one): (&Kept, &One)| {
            let (how, since) = one.trouble.as_ref()?;
            let at = what.label().map(|label| format!("{label}: ")).unwrap_or_default();
            let next = one.due.map_or_else(
                || "it runs again".to_owned(),
                |due| {
                    format!("it is started again in {} s", due.saturating_duration_since(now).as_secs() + 1)
                },
            );
            let ago = now.saturating_duration_since(*since).as_secs();
            Some(format!("{at}{what} ends again and again ({how}, {ago} s ago); {next}"))
        };
        self.0.iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::WHILE;
    use levee_ipc::warden::Role;

    fn vault() -> Kept {
        Kept::Process(Key::at(Role::Vault, &"SECRET".parse().unwrap()))
    }

    #[test]
    fn what_ends_too_often_rests_with_an_alarm_and_is_well_when_it_has_run_for_a_while() {
        let (mut keeping, mut now) = (Keeping::default(), Instant::now());
        for _ in 0..FREE {
            keeping.began(vault(), now);
            now += Duration::from_secs(1);
            assert_eq!(keeping.ended(vault(), "killed by signal 9", now), Verdict::Again);
        }
        assert!(!keeping.is_busy() && keeping.alarms(now).is_empty());
        keeping.began(vault(), now);
        assert_eq!(keeping.ended(vault(), "killed by signal 9", now), Verdict::Rests(Duration::from_secs(1)));
        assert!(keeping.due(now).is_empty());
        assert_eq!(
            keeping.alarms(now),
            [
                "SECRET: levee-vault ends again and again (killed by signal 9, 0 s ago); it is started again in 2 s"
            ]
        );
        now += Duration::from_secs(1);
        assert_eq!(keeping.due(now), [vault()]);
        assert!(keeping.due(now).is_empty(), "once");
        keeping.began(vault(), now);
        assert!(keeping.alarms(now)[0].ends_with("it runs again"));
        assert!(keeping.well(now).is_empty());
        now += WHILE;
        assert_eq!(keeping.well(now), [vault()]);
        assert!(!keeping.is_busy() && keeping.alarms(now).is_empty());
    }

    #[test]
    fn who_lets_a_label_go_does_not_make_its_trouble_new() {
        let (mut keeping, now) = (Keeping::default(), Instant::now());
        let label: LabelName = "SECRET".parse().unwrap();
        let start = Kept::Start(label.clone());
        for _ in 0..=TRIES {
            keeping.ended(start.clone(), "no store", now);
        }
        assert!(keeping.rests(&start, now).is_some_and(|why| why == "no store; tried again in 2 s"));
        keeping.release(&label, now);
        assert!(!keeping.is_busy());
        // The rest it had goes on to count.
        assert_eq!(keeping.ended(start.clone(), "no store", now), Verdict::Rests(Duration::from_secs(2)));
        let later = now + Duration::from_secs(600);
        keeping.release(&label, later);
        assert_eq!(keeping.ended(start, "no store", later), Verdict::Again);
    }
}
