//! Packets that wait for a security association (RFC 4301 4.4.2: acquire).

use core::time::Duration;
use std::collections::VecDeque;

use zeroize::Zeroizing;

/// A bounded queue, oldest dropped first; what leaves it unsent is erased.
#[derive(Debug, Default)]
pub struct WaitQueue {
    packets: VecDeque<(Duration, Zeroizing<Vec<u8>>)>,
    bytes: usize,
}

impl WaitQueue {
    /// The most packets that wait.
    pub const PACKETS: usize = 64;
    /// The most bytes that wait, all packets together.
    pub const BYTES: usize = 256 * 1024;
    /// How long one may wait.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    /// Adds a copy of `packet`; answers how many others were dropped for it (itself, if it can never fit).
    pub fn push(&mut self, now: Duration, packet: &[u8]) -> u64 {
        if packet.len() > Self::BYTES {
            return 1;
        }
        let mut dropped = 0;
        while self.packets.len() >= Self::PACKETS || self.bytes + packet.len() > Self::BYTES {
            let Some((_, oldest)) = self.packets.pop_front() else { break };
            self.bytes -= oldest.len();
            dropped += 1;
        }
        self.bytes += packet.len();
        self.packets.push_back((now, Zeroizing::new(packet.to_vec())));
        dropped
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        let (_, packet) = self.packets.pop_front()?;
        self.bytes -= packet.len();
        Some(packet)
    }

    /// Drops what has waited for longer than [`Self::PATIENCE`]; answers how many.
    pub fn expire(&mut self, now: Duration) -> u64 {
        let mut dropped = 0;
        while self.packets.front().is_some_and(|(since, _)| now.saturating_sub(*since) > Self::PATIENCE) {
            self.pop();
            dropped += 1;
        }
        dropped
    }

    /// Drops everything; answers how many.
    pub fn clear(&mut self) -> u64 {
        let dropped = self.packets.len() as u64;
        self.packets.clear();
        self.bytes = 0;
        dropped
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_there_is_no_room() {
        let mut queue = WaitQueue::default();
        for n in 0..WaitQueue::PACKETS {
            assert_eq!(queue.push(Duration::ZERO, &[n as u8; 100]), 0);
        }
        assert_eq!(queue.push(Duration::ZERO, &[200; 100]), 1);
        assert_eq!(queue.pop().unwrap()[0], 1);
        assert_eq!(queue.push(Duration::ZERO, &vec![7; WaitQueue::BYTES]), 63);
        assert_eq!(queue.push(Duration::ZERO, &vec![8; WaitQueue::BYTES + 1]), 1);
        assert_eq!(queue.pop().unwrap().len(), WaitQueue::BYTES);
        assert!(queue.is_empty());
    }

    /// As many octets as there are in the packets that wait, whichever way they went.
    #[test]
    fn there_is_room_for_256_kib_whatever_has_waited_before() {
        let mut queue = WaitQueue::default();
        let half = vec![1; WaitQueue::BYTES / 2];
        let turns: [fn(&mut WaitQueue) -> u64; 3] = [
            |queue| u64::from(queue.pop().is_some()) + u64::from(queue.pop().is_some()),
            |queue| queue.expire(WaitQueue::PATIENCE * 2),
            WaitQueue::clear,
        ];
        for (turn, empty) in turns.iter().cycle().take(30).enumerate() {
            assert!(queue.is_empty() && queue.pop().is_none(), "{turn}");
            // Both together are exactly as many, and an octet more costs the older its place.
            assert_eq!(
                (queue.push(Duration::ZERO, &half), queue.push(Duration::ZERO, &half)),
                (0, 0),
                "{turn}"
            );
            assert!(!queue.is_empty());
            assert_eq!(queue.push(Duration::ZERO, &[2]), 1, "{turn}");
            assert_eq!(empty(&mut queue), 2, "{turn}");
        }
    }

    #[test]
    fn all_that_has_waited_too_long_goes_at_once_and_nothing_else() {
        let mut queue = WaitQueue::default();
        assert_eq!((queue.expire(Duration::from_secs(99)), queue.clear()), (0, 0));
        for second in 1..=5 {
            queue.push(Duration::from_secs(second), &[second as u8]);
        }
        assert_eq!(
            queue.expire(WaitQueue::PATIENCE + Duration::from_secs(3)),
            2,
            "one has waited just as long as it may"
        );
        assert_eq!(queue.pop().unwrap()[..], [3]);
        assert_eq!(queue.expire(WaitQueue::PATIENCE + Duration::from_secs(9)), 2);
        assert!(queue.is_empty());
    }

    #[test]
    fn nothing_waits_for_ever() {
        let mut queue = WaitQueue::default();
        queue.push(Duration::from_secs(1), &[1]);
        queue.push(Duration::from_secs(5), &[2]);
        assert_eq!(queue.expire(Duration::from_secs(11)), 0);
        assert_eq!(queue.expire(Duration::from_secs(12)), 1);
        assert_eq!(queue.clear(), 1);
    }
}
