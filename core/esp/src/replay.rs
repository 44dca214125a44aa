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

    /// RFC 4303 A2.1 and A2.2, one by one: what each number that a packet can carry means beside each place of the window.
    #[test]
    fn the_half_that_is_not_sent_is_the_one_that_the_appendix_gives_at_every_edge() {
        const SUBSPACE: u64 = 1 << 32;
        // The window's lower edge just within the subspace, just below it, and far from either.
        for top_low in [0, 1, WINDOW - 2, WINDOW - 1, WINDOW, WINDOW + 1, 1 << 31, SUBSPACE - 2, SUBSPACE - 1]
        {
            for high in [0, 1, 7, SUBSPACE - 2, SUBSPACE - 1] {
                let top = high << 32 | top_low;
                if top == 0 {
                    continue;
                }
                let mut window = ReplayWindow::new(true);
                assert_eq!(window.advance(top), Ok(true));
                let bottom = (top_low + SUBSPACE - (WINDOW - 1)) % SUBSPACE;
                for from in [bottom, top_low, 0] {
                    for step in 0..5 {
                        let low = ((from + SUBSPACE + step - 2) % SUBSPACE) as u32;
                        // Of all numbers with these low bits the first that is not behind the window; there is none below zero.
                        let least = i128::from(top) - i128::from(WINDOW - 1);
                        let whole = least + (i128::from(low) - least).rem_euclid(1 << 32);
                        let expected = u64::try_from(whole).ok().filter(|n| *n != top && *n != 0);
                        assert_eq!(window.check(low).ok(), expected, "top {top:#x}, low {low:#x}");
                    }
                }
            }
        }
    }

    #[test]
    fn marking_checks_by_itself_what_is_old_and_what_was_seen() {
        let mut window = ReplayWindow::new(true);
        assert_eq!(window.advance(0), Err(DropReason::Replay));
        assert_eq!(window.advance(20_000), Ok(true));
        assert_eq!(window.advance(20_000), Err(DropReason::Replay), "seen, the highest");
        assert_eq!(window.advance(20_000 - WINDOW), Err(DropReason::Replay), "just behind the window");
        assert_eq!(window.advance(20_000 - WINDOW - 1), Err(DropReason::Replay));
        assert_eq!(window.advance(1), Err(DropReason::Replay));
        assert_eq!(window.advance(20_000 - WINDOW + 1), Ok(false), "the last within");
        assert_eq!(window.advance(20_000 - WINDOW + 1), Err(DropReason::Replay), "seen");
        assert_eq!((window.top(), window.advance(0)), (20_000, Err(DropReason::Replay)));
        // What was old or seen has marked nothing.
        assert_eq!(window.advance(20_001), Ok(true));
        assert_eq!(window.advance(19_999), Ok(false));
    }

    #[test]
    fn a_leap_forgets_every_word_between_and_no_other() {
        for leap in [1, 63, 64, 65, WINDOW - 1, WINDOW, WINDOW + 63, WINDOW + 64, WINDOW + 65, 3 * WINDOW] {
            let mut window = ReplayWindow::new(true);
            // Every number of a whole ring, so that what is not cleared shows.
            for sequence in 1..=WINDOW + 128 {
                window.advance(sequence).unwrap();
            }
            let top = WINDOW + 128 + leap;
            assert_eq!(window.advance(top), Ok(true));
            for sequence in top - (WINDOW - 1)..top {
                let seen = sequence <= WINDOW + 128;
                assert_eq!(window.advance(sequence).is_err(), seen, "{sequence} after a leap of {leap}");
            }
        }
    }
}
