//! Connections that do not go on, and what is kept of them all: where that is too much, somebody's is broken off. A connection counts that has not moved as
//! much since it was looked at last as is kept of it now; one that is read has moved many times as much.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::shares::Holder;

/// Octets of the kernel's memory that may be kept of those that do not go on, of all holders together: half of what a mediator may have for sockets where these are
/// counted by themselves.
pub const MOST: usize = 96 << 20;

/// How often it is looked at them.
const EVERY: Duration = Duration::from_secs(2);

/// Which connections something is kept of, or may be.
#[derive(Debug, Default)]
pub struct Unread {
    /// How much each had moved when it was looked at last.
    moved: BTreeMap<u64, u64>,
    /// When it is looked at them next. While all are idle nothing wakes for it.
    at: Option<Instant>,
}

impl Unread {
    /// Something moves in this connection.
    pub fn touch(&mut self, ticket: u64) {
        self.moved.entry(ticket).or_insert(0);
        self.at.get_or_insert_with(|| Instant::now() + EVERY);
    }

    /// How long until they are to be looked at.
    pub fn wait(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Whose connections do not go on, and what is kept of each, by `of`: its holder, how much it has moved in all, and how much is kept of it.
    pub fn look(&mut self, of: impl Fn(u64) -> Option<(Holder, u64, usize)>) -> Vec<(Holder, u64, usize)> {
        let mut slow = Vec::new();
        self.moved.retain(|ticket, before| {
            let Some((holder, moved, kept)) = of(*ticket).filter(|(_, _, kept)| *kept > 0) else {
                return false;
            };
            let since = moved.saturating_sub(std::mem::replace(before, moved));
            if since < kept as u64 {
                slow.push((holder, *ticket, kept));
            }
            true
        });
        self.at = (!self.moved.is_empty()).then(|| Instant::now() + EVERY);
        slow
    }
}

/// Which of them are to be broken off so that no more than so much is kept: of the holder of whom most is kept the one of which most is, the oldest of
/// equals, and so on.
pub fn too_much(slow: Vec<(Holder, u64, usize)>, most: usize) -> Vec<u64> {
    let mut all: usize = slow.iter().map(|(_, _, kept)| kept).sum();
    let mut by: BTreeMap<Holder, (usize, Vec<(usize, u64)>)> = BTreeMap::new();
    for (holder, ticket, kept) in slow {
        let (sum, own) = by.entry(holder).or_default();
        *sum += kept;
        own.push((kept, u64::MAX - ticket));
    }
    for (_, own) in by.values_mut() {
        own.sort_unstable();
    }
    let mut ends = Vec::new();
    while all > most {
        let Some((sum, own)) = by.values_mut().max_by_key(|(sum, _)| *sum) else { break };
        let Some((kept, ticket)) = own.pop() else { break };
        *sum -= kept;
        all -= kept;
        ends.push(u64::MAX - ticket);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(name: &str) -> Holder {
        Holder::Person(name.parse().unwrap())
    }

    #[test]
    fn who_has_most_that_does_not_go_on_loses_the_largest_and_nobody_else_does() {
        let mut slow = vec![(person("mia"), 1, 4 << 20), (person("ben"), 2, 4 << 10)];
        slow.extend((3..27).map(|ticket| (person("ada"), ticket, 4 << 20)));
        slow.push((person("ada"), 27, 5 << 20));
        assert_eq!(too_much(slow.clone(), 200 << 20), [0; 0]);
        // 105 MiB and a little: the largest, and then the oldest.
        assert_eq!(too_much(slow.clone(), MOST), [27, 3, 4]);
        // Of twelve who have as much each.
        let twelve: Vec<_> =
            (0..48).map(|ticket| (person(&format!("p{}", ticket / 4)), ticket, 4 << 20)).collect();
        let ends = too_much(twelve, MOST);
        assert_eq!(ends.len(), 24);
        assert!((0..12).all(|p| ends.iter().filter(|ticket| *ticket / 4 == p).count() == 2), "{ends:?}");
        // Nothing is left to break off where even nothing is too much.
        assert_eq!(too_much(slow, 0).len(), 27);
    }

    #[test]
    fn what_is_read_is_not_counted_however_much_is_under_way_and_the_idle_are_not_looked_at() {
        let mut unread = Unread::default();
        assert_eq!(unread.wait(), None);
        for ticket in [1, 2, 3, 4] {
            unread.touch(ticket);
        }
        assert!(unread.wait().unwrap() > Duration::from_secs(1));
        let ada = || person("ada");
        // One that has stopped, one that goes on, one that has ended, one that is idle.
        let first = unread.look(|ticket| match ticket {
            1 => Some((ada(), 9_000, 10_000)),
            2 => Some((ada(), 50_000, 10_000)),
            4 => Some((ada(), 50_000, 0)),
            _ => None,
        });
        assert_eq!(first, [(ada(), 1, 10_000)]);
        // An octet now and then is not going on.
        let second = unread.look(|ticket| match ticket {
            1 => Some((ada(), 9_001, 10_000)),
            2 => Some((ada(), 90_000, 10_000)),
            _ => panic!("{ticket}"),
        });
        assert_eq!(second, [(ada(), 1, 10_000)]);
        assert_eq!(unread.look(|_| None), []);
        assert_eq!(unread.wait(), None, "nothing wakes for the idle");
    }
}
