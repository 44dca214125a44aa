//! Up to when everybody has been heard. Whoever is silent is judged by that time: what they have said may wait unread here because this
//! process was held up, by a disk that is slow or a host that is busy, or behind what they have said before.

use levee_daemon::{MOST_SEEN, TURN};
use levee_session::Time;

/// So many turns it takes to hear all that one had said when the first of them began: the 278 messages that a socket keeps, and what is sent
/// meanwhile, as many in all as one person may ask a mediator for at once.
const BEHIND: usize = 512 / TURN;

/// What has been seen to since everybody was heard last.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    since: Time,
    turns: usize,
    seen: usize,
    /// More were ready in one of these turns than it sees to.
    was_full: bool,
    /// One of those that are judged may have had more to say in one of them than it hears; and in this one.
    had_more: bool,
    has_more: bool,
}

impl Heard {
    /// One of those that are judged has said as much in this turn as is heard of one, and may have more to say.
    pub(crate) fn may_have_more(&mut self) {
        self.has_more = true;
    }

    /// A turn whose wait began then has seen to so many of so many descriptors. Up to when everybody has been heard; `None` if somebody may wait
    /// since then. That is never later than the wait's beginning, also where it ended and nobody had come: this process may have been held up
    /// before it looked at the clock again.
    pub(crate) fn turn(&mut self, began: Time, seen: usize, all: usize) -> Option<Time> {
        let has_more = std::mem::take(&mut self.has_more);
        if !has_more && seen < MOST_SEEN {
            *self = Self::default();
            return Some(began);
        }
        if self.turns == 0 {
            self.since = began;
        }
        self.turns += 1;
        self.seen += seen;
        self.was_full |= seen >= MOST_SEEN;
        self.had_more |= has_more;
        let rounds = if self.had_more { BEHIND } else { 1 };
        // Those that were seen are behind the others.
        let is_over =
            if self.was_full { self.seen >= all.saturating_mul(rounds) } else { self.turns >= rounds };
        is_over.then(|| std::mem::take(self).since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(heard: &mut Heard, at: u64, seen: usize) -> Option<u64> {
        heard.turn(Time::from_millis(at), seen, 700).map(Time::as_millis)
    }

    #[test]
    fn a_turn_has_heard_everybody_up_to_its_beginning_whether_or_not_somebody_came() {
        let mut heard = Heard::default();
        assert_eq!(turn(&mut heard, 1_000, 0), Some(1_000));
        assert_eq!(turn(&mut heard, 2_000, MOST_SEEN - 1), Some(2_000));
    }

    #[test]
    fn where_more_are_ready_than_a_turn_sees_to_it_takes_as_many_turns_as_there_are_descriptors() {
        let mut heard = Heard::default();
        // And so on, however long it lasts.
        for at in [1, 4, 7] {
            assert_eq!(turn(&mut heard, at, MOST_SEEN), None);
            assert_eq!(turn(&mut heard, at + 1, MOST_SEEN), None);
            assert_eq!(turn(&mut heard, at + 2, MOST_SEEN), Some(at));
        }
    }

    #[test]
    fn who_says_more_than_a_turn_hears_is_heard_for_some_turns_and_who_never_ends_stops_no_time() {
        let mut heard = Heard::default();
        for first in [1, 101] {
            for at in first..first + 7 {
                heard.may_have_more();
                assert_eq!(turn(&mut heard, at, 3), None);
            }
            heard.may_have_more();
            assert_eq!(turn(&mut heard, first + 7, 3), Some(first));
        }
        // Also where more are ready than a turn sees to: then each is heard in one of three.
        heard.may_have_more();
        let turns = (1..).take_while(|at| turn(&mut heard, *at, MOST_SEEN).is_none()).count();
        assert_eq!(turns + 1, (700 * BEHIND).div_ceil(MOST_SEEN));
        // Once all has been heard in one turn it is so, whatever was before.
        for (at, seen) in [(500, 1), (600, 0)] {
            heard.may_have_more();
            assert_eq!(turn(&mut heard, at, MOST_SEEN), None);
            assert_eq!(turn(&mut heard, at + 1, seen), Some(at + 1));
        }
    }
}
