//! Datagrams on their way.

use crate::random::Dice;
use std::collections::BTreeMap;
use std::time::Duration;

/// What goes wrong, in cases of a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Datagrams that vanish.
    pub lost: u32,
    /// Datagrams that arrive twice.
    pub doubled: u32,
    /// Datagrams with some bits turned.
    pub corrupted: u32,
    /// Datagrams that are very late, and so out of order.
    pub late: u32,
}

/// Datagrams of type `T` (with their addresses) and when they arrive.
#[derive(Debug)]
pub struct Network<T> {
    under_way: BTreeMap<(Duration, u64), (T, Vec<u8>)>,
    sent: u64,
    /// What goes wrong from now on.
    pub faults: Faults,
}

impl<T: Clone> Network<T> {
    /// An empty network.
    pub fn new(faults: Faults) -> Self {
        Self { under_way: BTreeMap::new(), sent: 0, faults }
    }

    /// Puts a datagram under way, as chance will have it.
    pub fn send(&mut self, now: Duration, to: &T, mut datagram: Vec<u8>, dice: &mut Dice) {
        if dice.chance(self.faults.lost) {
            return;
        }
        let copies = if dice.chance(self.faults.doubled) { 2 } else { 1 };
        if dice.chance(self.faults.corrupted) && !datagram.is_empty() {
            for _ in 0..=dice.below(3) {
                let at = dice.below(datagram.len());
                datagram[at] ^= 1 << dice.below(8);
            }
        }
        for _ in 0..copies {
            let mut delay = Duration::from_millis(1) + dice.time(Duration::from_millis(40));
            if dice.chance(self.faults.late) {
                delay += dice.time(Duration::from_secs(8));
            }
            self.sent += 1;
            self.under_way.insert((now + delay, self.sent), (to.clone(), datagram.clone()));
        }
    }

    /// When the next one arrives.
    pub fn next(&self) -> Option<Duration> {
        self.under_way.keys().next().map(|(at, _)| *at)
    }

    /// What has arrived by now, one at a time.
    pub fn arrive(&mut self, now: Duration) -> Option<(T, Vec<u8>)> {
        let first = self.under_way.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
