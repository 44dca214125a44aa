//! When a slot ends and the next begins; what is told of it.

use levee_ipc::warden::frames::{Frame, FramesState};
use levee_policy::site::Quota;
use std::time::{Duration, Instant};

/// Ends of slots whose lateness is remembered.
const REMEMBERED: usize = 4096;

/// The slot that it is now.
#[derive(Debug)]
pub struct Clock {
    frame: Frame,
    at: usize,
    began: Instant,
}

impl Clock {
    /// The first slot begins now; none where the frame has no slot.
    pub fn new(frame: Frame, now: Instant) -> Option<Self> {
        (!frame.slots.is_empty()).then_some(Self { frame, at: 0, began: now })
    }

    /// The number of the slot.
    pub fn slot(&self) -> u16 {
        u16::try_from(self.at).unwrap_or(u16::MAX)
    }

    /// The number of the one that comes.
    pub fn next_slot(&self) -> u16 {
        u16::try_from(self.following()).unwrap_or(u16::MAX)
    }

    fn following(&self) -> usize {
        (self.at + 1) % self.frame.slots.len().max(1)
    }

    /// When it ends.
    pub fn end(&self) -> Instant {
        self.began + micros(self.frame.slots.get(self.at).copied().unwrap_or(0))
    }

    /// How long what is to stop may take until it is killed.
    pub fn patience(&self) -> Duration {
        micros(self.frame.stop)
    }

    /// How long what is to stop may take until it is late.
    pub fn margin(&self) -> Duration {
        micros(self.frame.margin)
    }

    /// How often something may be late.
    pub fn late(&self) -> Option<Quota> {
        self.frame.late
    }

    /// When the next one begins, where all had stopped at this moment.
    pub fn next_begin(&self, stopped: Instant) -> Instant {
        (self.end() + self.margin()).max(stopped)
    }

    /// The next slot begins; all had stopped at this moment.
    pub fn turn(&mut self, stopped: Instant) {
        self.began = self.next_begin(stopped);
        self.at = self.following();
    }
}

fn micros(micros: u32) -> Duration {
    Duration::from_micros(micros.into())
}

/// What is told of the ends of slots.
#[derive(Debug, Default)]
pub struct Told {
    pub state: FramesState,
    lateness: Vec<u32>,
    next: usize,
}

impl Told {
    /// A slot has ended, and so long after its end all had stopped; `late` if that was beyond the margin.
    pub fn ended(&mut self, lateness: Duration, late: bool) {
        let lateness = u32::try_from(lateness.as_micros()).unwrap_or(u32::MAX);
        if self.lateness.len() < REMEMBERED {
            self.lateness.push(lateness);
        } else if let Some(oldest) = self.lateness.get_mut(self.next) {
            *oldest = lateness;
            self.next = (self.next + 1) % REMEMBERED;
        }
        self.state.ended = self.state.ended.saturating_add(1);
        self.state.late = self.state.late.saturating_add(late.into());
    }

    /// What the warden is told.
    pub fn state(&mut self) -> FramesState {
        let mut sorted = self.lateness.clone();
        sorted.sort_unstable();
        let at = |thousandth: usize| {
            let place = (sorted.len().saturating_sub(1) * thousandth).div_ceil(1000);
            sorted.get(place).copied().unwrap_or(0)
        };
        (self.state.median, self.state.most) = (at(500), at(999));
        self.state.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        Frame { slots: vec![10_000, 5_000], margin: 500, stop: 100_000, late: None }
    }

    #[test]
    fn what_stops_within_the_margin_changes_no_slot() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut clock = Clock::new(frame(), start).unwrap();
        assert_eq!((clock.slot(), clock.next_slot(), clock.end()), (0, 1, at(10_000)));
        for stopped in [10_000, 10_003, 10_499, 10_500] {
            assert_eq!(clock.next_begin(at(stopped)), at(10_500));
        }
        clock.turn(at(10_200));
        assert_eq!((clock.slot(), clock.next_slot(), clock.end()), (1, 0, at(15_500)));
        clock.turn(at(15_501));
        assert_eq!((clock.slot(), clock.end()), (0, at(26_000)));
    }

    #[test]
    fn what_stops_late_takes_nothing_from_the_next_slot() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut clock = Clock::new(frame(), start).unwrap();
        clock.turn(at(40_000));
        assert_eq!((clock.slot(), clock.end()), (1, at(45_000)));
    }

    #[test]
    fn a_frame_without_slots_is_none() {
        assert!(Clock::new(Frame { slots: Vec::new(), ..frame() }, Instant::now()).is_none());
    }

    #[test]
    fn the_last_ends_of_slots_are_told_by_their_median_and_their_worst() {
        let mut told = Told::default();
        assert_eq!(told.state(), FramesState::default());
        for lateness in 0..10_000 {
            told.ended(Duration::from_micros(lateness), lateness > 9_000);
        }
        let state = told.state();
        assert_eq!((state.ended, state.late), (10_000, 999));
        // Of 5,904 to 9,999.
        assert_eq!((state.median, state.most), (7_952, 9_995));
    }
}
