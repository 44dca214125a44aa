//! Which label a datagram's first fragment had.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use levee_policy::Label;

/// Source, destination, protocol (0 for IPv6) and identification (RFC 791 3.2, RFC 8200 4.5).
pub(crate) type Key = ([u8; 16], [u8; 16], u8, u32);

/// Datagrams that are remembered.
const MOST: usize = 1_024;
/// How long one is: as long as Linux waits for the rest of one.
const LIFE: Duration = Duration::from_secs(30);

/// Labels of datagrams of which fragments are on their way.
///
/// When it is full, the oldest is forgotten. Then a fragment that disagrees is delivered at its own label and waits there
/// for the rest in vain: compartments put fragments together each for itself, so no two labels ever meet in one datagram.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    labels: BTreeMap<Key, Label>,
    order: VecDeque<(Duration, Key)>,
}

impl Fragments {
    /// Whether a fragment with this label may belong to the datagram.
    pub(crate) fn agrees(&mut self, key: Key, label: &Label, now: Duration) -> bool {
        while self.order.front().is_some_and(|(end, _)| *end <= now) {
            self.forget();
        }
        if let Some(first) = self.labels.get(&key) {
            return first == label;
        }
        if self.order.len() >= MOST {
            self.forget();
        }
        self.labels.insert(key, label.clone());
        self.order.push_back((now.saturating_add(LIFE), key));
        true
    }

    fn forget(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.labels.remove(&key);
        }
    }
}
