//! Whose keys are replaced next, where those of many are to be at once. Each replacement wants a processor at both ends for some milliseconds; a hundred
//! begun in one moment keep packets waiting for one on a host that is small, or on a server that all of them ask.
//!
//! Time is an argument; nothing here waits.

use levee_policy::LabelName;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// So many peers are asked at a time.
const AT_ONCE: usize = 8;
/// Whoever has not answered for so long is waited for no more before another is asked.
const PATIENCE: Duration = Duration::from_millis(50);
/// All have been asked after this, however many there are and whether or not they answer: who is asked late has less time to follow.
pub const ALL: Duration = Duration::from_millis(500);

/// An IKE SA whose children at a label are to have other keys, or that is itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn<I> {
    /// Whose.
    pub ike: I,
    /// At which label.
    pub label: LabelName,
    /// Its children, too, and not only where its own keys are not what the label allows.
    pub children: bool,
}

/// Those that wait for their turn, by what tells IKE SAs apart.
#[derive(Debug)]
pub struct Pace<I> {
    waiting: VecDeque<Turn<I>>,
    asked: BTreeMap<I, Duration>,
    patience: Duration,
}

impl<I> Default for Pace<I> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), asked: BTreeMap::new(), patience: PATIENCE }
    }
}

impl<I: Copy + Ord> Pace<I> {
    /// These are to be asked, behind those that wait already.
    pub fn put(&mut self, turns: impl IntoIterator<Item = Turn<I>>) {
        self.waiting.extend(turns);
        let each = ALL.mul_f64(AT_ONCE as f64 / self.waiting.len().max(1) as f64);
        self.patience = each.min(PATIENCE);
    }

    /// Who is to be asked now. `is_busy` says of an IKE SA that was asked whether it has still to answer.
    pub fn next(&mut self, now: Duration, is_busy: impl Fn(I) -> bool) -> Option<Turn<I>> {
        if self.waiting.is_empty() {
            self.asked.clear();
            return None;
        }
        let patience = self.patience;
        self.asked.retain(|ike, since| now.saturating_sub(*since) < patience && is_busy(*ike));
        if self.asked.len() >= AT_ONCE {
            return None;
        }
        let turn = self.waiting.pop_front()?;
        self.asked.insert(turn.ike, now);
        Some(turn)
    }

    /// This one is gone.
    pub fn forget(&mut self, ike: I) {
        self.waiting.retain(|turn| turn.ike != ike);
        self.asked.remove(&ike);
    }

    /// When somebody is to be asked whether or not anybody answers; `None` where nobody waits.
    pub fn due(&self) -> Option<Duration> {
        let first = self.asked.values().min().filter(|_| !self.waiting.is_empty())?;
        Some(first.saturating_add(self.patience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(many: u64) -> impl Iterator<Item = Turn<u64>> {
        (0..many).map(|ike| Turn { ike, label: "LOW".parse().unwrap(), children: true })
    }

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_next_is_asked_when_one_has_answered() {
        let mut pace = Pace::default();
        pace.put(turns(20));
        let begun = |pace: &mut Pace<u64>, busy: &[u64], now| {
            std::iter::from_fn(|| pace.next(now, |ike| busy.contains(&ike)))
                .map(|turn| turn.ike)
                .collect::<Vec<_>>()
        };
        let all: Vec<u64> = (0..20).collect();
        assert_eq!(begun(&mut pace, &all, ms(0)), all[..8]);
        assert_eq!(begun(&mut pace, &all, ms(1)), [0_u64; 0]);
        pace.forget(8);
        // Two have answered.
        assert_eq!(begun(&mut pace, &all[2..], ms(2)), [9, 10]);
        assert_eq!(pace.due(), Some(PATIENCE));
        // Nobody else does: those that were asked first are waited for no more.
        assert_eq!(begun(&mut pace, &all[2..], ms(50)), [11, 12, 13, 14, 15, 16]);
        assert_eq!(begun(&mut pace, &all[2..], ms(51)), [0_u64; 0]);
        assert_eq!(begun(&mut pace, &all[2..], ms(52)), [17, 18]);
        assert_eq!(begun(&mut pace, &[], ms(53)), [19]);
        assert_eq!(pace.due(), None);
        assert_eq!(begun(&mut pace, &all, ms(54)), [0_u64; 0]);
    }

    #[test]
    fn all_have_been_asked_within_half_a_second_though_none_answers() {
        for many in [1, 8, 9, 79, 80, 81, 100, 1_000, 4_096] {
            let mut pace = Pace::default();
            pace.put(turns(many));
            let (mut now, mut asked) = (ms(0), 0);
            loop {
                while pace.next(now, |_| true).is_some() {
                    asked += 1;
                }
                let Some(due) = pace.due() else { break };
                assert!(due > now, "{many}");
                now = due;
            }
            assert_eq!(asked, many);
            assert!(now <= ALL, "{many}: {now:?}");
        }
    }
}
