//! The anti-replay window (RFC 4303 3.4.3) with extended sequence numbers (RFC 4303 appendix A), as a ring of words
//! (RFC 6479).

use crate::DropReason;

/// Sequence numbers that the window covers behind the highest seen, itself included.
pub const WINDOW: u64 = 8_192;

const WORDS: usize = (WINDOW as usize) / 64 + 1;

/// Which sequence numbers have been seen.
#[derive(Clone)]
pub struct ReplayWindow {
    /// The highest authenticated sequence number; 0 before the first.
    top: u64,
    /// Bit `n % 64` of word `n / 64 % WORDS` is for sequence number `n`. One word more than the window needs, so that
    /// a new word can be cleared whole.
    seen: [u64; WORDS],
    extended: bool,
}

impl ReplayWindow {
    /// A window before any packet; `extended` for 64-bit sequence numbers.
    #[must_use]
    pub fn new(extended: bool) -> Self {
        Self { top: 0, seen: [0; WORDS], extended }
    }

    /// The highest sequence number seen.
    #[must_use]
    pub fn top(&self) -> u64 {
        self.top
    }

    /// The whole sequence number of a packet that carries `low`, if it is new so far as is known before the packet
    /// has been authenticated. Changes nothing.
    ///
    /// # Errors
    /// [`DropReason::Replay`] when it is old or seen, or no such number exists.
    pub fn check(&self, low: u32) -> Result<u64, DropReason> {
        let sequence = self.whole(low).ok_or(DropReason::Replay)?;
        if sequence == 0 || self.is_old(sequence) || self.is_marked(sequence) {
            return Err(DropReason::Replay);
        }
        Ok(sequence)
    }

    /// Marks `sequence` seen, once its packet has been authenticated; answers whether it is the highest so far.
    ///
    /// # Errors
    /// [`DropReason::Replay`] when it was seen or has become old since [`Self::check`].
    pub fn advance(&mut self, sequence: u64) -> Result<bool, DropReason> {
        if sequence == 0 || self.is_old(sequence) || self.is_marked(sequence) {
            return Err(DropReason::Replay);
        }
        let newest = sequence > self.top;
        if newest {
            let (from, to) = (self.top / 64, sequence / 64);
            // More words than there are need each be cleared only once.
            for word in (from + 1..=to).take(WORDS) {
                if let Some(word) = self.seen.get_mut(index(word)) {
                    *word = 0;
                }
            }
            self.top = sequence;
        }
        if let Some(word) = self.seen.get_mut(index(sequence / 64)) {
            *word |= 1 << (sequence % 64);
        }
        Ok(newest)
    }

    fn is_old(&self, sequence: u64) -> bool {
        self.top.checked_sub(sequence).is_some_and(|age| age >= WINDOW)
    }

    fn is_marked(&self, sequence: u64) -> bool {
        sequence <= self.top
            && self.seen.get(index(sequence / 64)).is_some_and(|word| word >> (sequence % 64) & 1 == 1)
    }

    /// RFC 4303 A2.1: the half that is not sent, from where the window stands.
    fn whole(&self, low: u32) -> Option<u64> {
        if !self.extended {
            return Some(u64::from(low));
        }
        let (high, top_low) = (self.top >> 32, self.top & 0xffff_ffff);
        let low = u64::from(low);
        let high = if top_low >= WINDOW - 1 {
            // Case A: the window lies within one subspace of 2^32.
            if low >= top_low - (WINDOW - 1) { high } else { high.checked_add(1)? }
        } else {
            // Case B: it reaches back into the subspace before, where there is one.
            let bottom = (top_low + (1 << 32)) - (WINDOW - 1);
            if low >= bottom { high.checked_sub(1)? } else { high }
        };
        (high <= u64::from(u32::MAX)).then_some(high << 32 | low)
    }
}

fn index(word: u64) -> usize {
    // Smaller than WORDS.
    (word % WORDS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(window: &mut ReplayWindow, low: u32) -> Result<u64, DropReason> {
        let sequence = window.check(low)?;
        window.advance(sequence).map(|_| sequence)
    }

    #[test]
    fn zero_is_never_a_sequence_number() {
        for extended in [false, true] {
            assert_eq!(ReplayWindow::new(extended).check(0), Err(DropReason::Replay));
        }
    }

    #[test]
    fn the_window_covers_its_size_and_no_more() {
        let mut window = ReplayWindow::new(false);
        assert_eq!(pass(&mut window, 10_000), Ok(10_000));
        assert_eq!(window.check(10_000 - 8_192), Err(DropReason::Replay));
        assert_eq!(pass(&mut window, 10_000 - 8_191), Ok(1_809));
        assert_eq!(pass(&mut window, 10_000 - 8_191), Err(DropReason::Replay));
    }

    #[test]
    fn a_check_alone_changes_nothing() {
        let mut window = ReplayWindow::new(true);
        for _ in 0..3 {
            assert_eq!(window.check(4_000_000_000), Ok(4_000_000_000));
            assert_eq!(window.top(), 0);
        }
        assert_eq!(pass(&mut window, 1), Ok(1));
    }

    #[test]
    fn an_extended_number_passes_from_one_subspace_to_the_next_and_back() {
        let mut window = ReplayWindow::new(true);
        let end = u32::MAX;
        assert_eq!(pass(&mut window, 2_000_000_000), Ok(2_000_000_000));
        assert_eq!(pass(&mut window, end - 1), Ok(u64::from(end) - 1));
        assert_eq!(pass(&mut window, 5), Ok((1 << 32) + 5));
        assert_eq!(pass(&mut window, end), Ok(u64::from(end)), "late, from the subspace before");
        assert_eq!(pass(&mut window, 0), Ok(1 << 32));
        assert_eq!(pass(&mut window, end), Err(DropReason::Replay));
    }

    #[test]
    fn the_last_extended_number_is_not_followed_by_the_first() {
        let mut window = ReplayWindow::new(true);
        window.advance(u64::MAX).unwrap();
        assert_eq!(window.check(0), Err(DropReason::Replay));
        assert_eq!(window.check(1_000), Err(DropReason::Replay));
        assert_eq!(window.check(u32::MAX - 1), Ok(u64::MAX - 1));
    }
}
