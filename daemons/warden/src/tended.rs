//! What is seen to when it has changed, and not with every turn: a turn costs by what happens, not by how much runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::time::{Duration, Instant};

/// What is not settled is seen to so often, however many turns there are meanwhile.
const EVERY: Duration = Duration::from_millis(100);

/// A map that remembers what of it has been changed.
#[derive(Debug)]
pub struct Tended<K, V> {
    all: BTreeMap<K, V>,
    changed: BTreeSet<K>,
    /// What time alone will change.
    unsettled: BTreeSet<K>,
    /// When all of those were seen to.
    last: Option<Instant>,
}

impl<K, V> Default for Tended<K, V> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), changed: BTreeSet::new(), unsettled: BTreeSet::new(), last: None }
    }
}

/// To look at what there is.
impl<K, V> Deref for Tended<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl<K: Clone + Ord, V> Tended<K, V> {
    /// Takes over something new, to be seen to.
    pub fn insert(&mut self, key: K, value: V) {
        self.changed.insert(key.clone());
        self.all.insert(key, value);
    }

    /// To change it: it is to be seen to.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let value = self.all.get_mut(key)?;
        self.changed.insert(key.clone());
        Some(value)
    }

    /// Takes it out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.changed.remove(key);
        self.unsettled.remove(key);
        self.all.remove(key)
    }

    /// All, to change what need not be seen to.
    pub fn iter_quietly_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.all.iter_mut()
    }

    /// What is to be seen to now. Of each [`Tended::seen`] is to be told.
    pub fn due(&mut self, now: Instant) -> Vec<K> {
        let mut due = std::mem::take(&mut self.changed);
        if self.last.is_none_or(|last| now.saturating_duration_since(last) >= EVERY) {
            self.last = Some(now);
            due.extend(self.unsettled.iter().cloned());
        }
        due.into_iter().collect()
    }

    /// It has been seen to; whether time alone will change it.
    pub fn seen(&mut self, key: &K, unsettled: bool) {
        self.changed.remove(key);
        if unsettled && self.all.contains_key(key) {
            self.unsettled.insert(key.clone());
        } else {
            self.unsettled.remove(key);
        }
    }

    /// It is to be seen to with the next turn, too.
    pub fn again(&mut self, key: &K) {
        if self.all.contains_key(key) {
            self.changed.insert(key.clone());
        }
    }

    /// Whether something is to be seen to at once.
    pub fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Whether something is to be seen to soon.
    pub fn is_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_sees_to_what_has_changed_and_to_nothing_else() {
        let (mut all, now) = (Tended::default(), Instant::now());
        (0..1_000u32).for_each(|key| all.insert(key, ()));
        assert_eq!(all.due(now).len(), 1_000);
        (0..1_000).for_each(|key| all.seen(&key, false));
        assert!(all.due(now + EVERY).is_empty() && !all.is_changed() && !all.is_unsettled());
        assert!(all.get(&7).is_some() && all.get_mut(&2_000).is_none());
        all.get_mut(&3).unwrap();
        assert!(all.is_changed());
        assert_eq!(all.due(now + EVERY), [3]);
        [3, 2_000].iter().for_each(|key| all.again(key));
        assert_eq!(all.due(now + EVERY), [3], "what is not there is not seen to");
    }

    #[test]
    fn what_time_alone_changes_is_seen_to_again_and_again_but_not_with_every_turn() {
        let (mut all, mut now) = (Tended::default(), Instant::now());
        all.insert('a', ());
        all.insert('b', ());
        let mut seen = 0;
        for _ in 0..1_000 {
            for key in all.due(now) {
                all.seen(&key, key == 'a');
                seen += 1;
            }
            now += Duration::from_millis(1);
        }
        assert!((10..=13).contains(&seen), "{seen}");
        assert!(all.is_unsettled() && !all.is_changed());
        all.seen(&'a', false);
        assert!(!all.is_unsettled());
        // One that has gone is not to be seen to, whatever is said of it.
        all.remove(&'b');
        all.seen(&'b', true);
        assert!(!all.is_unsettled() && all.due(now + EVERY).is_empty());
    }
}
