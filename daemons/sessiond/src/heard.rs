//! Up to when everybody has been heard. Whoever is silent is judged by that time: what they have said may wait unread here because this
//! process was held up, by a disk that is slow or a host that is busy.

use levee_daemon::MOST_SEEN;
use levee_session::Time;

/// What has been seen to since everybody was heard last.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    since: Time,
    seen: usize,
}

impl Heard {
    /// A turn has seen to so many of so many descriptors; its wait began at one time and ended at the other. Up to when everybody has been
    /// heard, once all that came in it is done; `None` if somebody may wait since then.
    pub(crate) fn turn(&mut self, [began, ended]: [Time; 2], seen: usize, all: usize) -> Option<Time> {
        if seen < MOST_SEEN {
            self.seen = 0;
            // What comes while it waits ends the wait.
            return Some(if seen == 0 { ended } else { began });
        }
        if self.seen == 0 {
            self.since = began;
        }
        self.seen += seen;
        // Those that were seen are behind the others.
        (self.seen >= all).then(|| {
            self.seen = 0;
            self.since
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_in_which_somebody_came_has_heard_everybody_up_to_its_beginning() {
        let [before, now] = [1_000, 9_000].map(Time::from_millis);
        let mut heard = Heard::default();
        assert_eq!(heard.turn([before, now], 0, 700), Some(now));
        assert_eq!(heard.turn([before, now], MOST_SEEN - 1, 700), Some(before));
    }

    #[test]
    fn where_more_are_ready_than_a_turn_sees_to_it_takes_as_many_turns_as_there_are_descriptors() {
        let mut heard = Heard::default();
        let mut turn = |at, seen| heard.turn([Time::from_millis(at), Time::from_millis(at + 1)], seen, 700);
        assert_eq!([turn(1, MOST_SEEN), turn(2, MOST_SEEN)], [None; 2]);
        assert_eq!(turn(3, MOST_SEEN), Some(Time::from_millis(1)));
        // And so on, however long it lasts.
        assert_eq!([turn(4, MOST_SEEN), turn(5, MOST_SEEN)], [None; 2]);
        assert_eq!(turn(6, 1), Some(Time::from_millis(6)));
        assert_eq!(turn(7, MOST_SEEN), None);
    }
}
