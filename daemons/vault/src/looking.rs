//! Whether it pays to look for more packets before sleeping. A wake from sleep costs more than the way through the vault,
//! but a processor that looks is one that nobody else has. So a vault looks on only while packets have come soon of late,
//! never longer than its bound, and not where something else wants the processor.
//!
//! Whether packets come soon depends on whether it looks: where it sleeps, every answer waits for wakes first, its own and its
//! peer's. So from time to time it tries looking where that could make the difference, and what it saw while it was not to look
//! says nothing.
//!
//! Time is an argument; nothing here waits.

use std::time::Duration;

/// What is found so soon had come already: it says nothing of how long the next pause will be.
const THERE: Duration = Duration::from_micros(3);
/// A pause counts as at most so many bounds, so that a long one is forgotten after some short ones.
const LONGEST: u32 = 4;
/// Each pause moves the mean by a part in so many.
const WEIGHT: u32 = 8;
/// Who yields the processor and has it back only after this has taken it from somebody who computes: a wake would have cost less.
/// Those by whom packets come and go have shorter turns, which are no reason to sleep: 50 µs and more on a slow host.
const AWAY: Duration = Duration::from_micros(500);
/// So long it then sleeps whenever there is nothing.
const REST: Duration = Duration::from_millis(1);
/// Twice as long each further time, up to 1 s: on a processor that is wanted for long, looking would only use up the share of
/// it by which the kernel wakes the vault before others.
const DOUBLINGS: u32 = 10;
/// Unless so long has passed since the last rest, longer than a turn of whoever computes all the time: then half as long.
const CALM: Duration = Duration::from_millis(5);

/// Where packets come later than its bound, but no later than so many, sooner may be what looking makes of it.
const NEARLY: u32 = 2;
/// It then looks after so many packets, by which the mean has moved by seven eighths.
const TRIAL: u32 = 16;
/// And again so long after one that was in vain, twice as long each further time, up to 1.3 s: all trials together take two
/// thousandths of a processor then.
const AGAIN: Duration = Duration::from_millis(10);
const AGAIN_DOUBLINGS: u32 = 7;

/// What has been seen of late.
#[derive(Debug)]
pub struct Looking {
    /// The longest time to look; zero for never.
    bound: Duration,
    /// Moving mean of the pauses.
    mean: Duration,
    /// When the last packet had been dealt with.
    last: Option<Duration>,
    /// Before this it does not look, because somebody wanted the processor.
    rest: Duration,
    /// How often the rest has doubled.
    wanted: u32,
    /// Packets to come, after which it looks for the trial's sake.
    trial: u32,
    /// Before this it tries no more.
    again: Duration,
    /// How many trials were in vain, one after the other.
    vain: u32,
}

impl Looking {
    /// Looks for up to `bound`. At first nothing is known, so it sleeps.
    pub fn new(bound: Duration) -> Self {
        Self {
            bound,
            mean: bound * LONGEST,
            last: None,
            rest: Duration::ZERO,
            wanted: 0,
            trial: 0,
            again: Duration::ZERO,
            vain: 0,
        }
    }

    /// Packets were found at `found` and dealt with by `done`.
    pub fn came(&mut self, found: Duration, done: Duration) {
        let free = self.last.filter(|last| *last >= self.rest);
        let pause = free.map(|last| found.saturating_sub(last));
        if let Some(pause) = pause.filter(|pause| *pause >= THERE) {
            let pause = pause.min(self.bound * LONGEST);
            self.mean = (self.mean * (WEIGHT - 1) + pause) / WEIGHT;
            self.try_out(found);
        }
        self.last = Some(done);
    }

    /// Begins a trial where one is due, goes on with it, or ends it.
    fn try_out(&mut self, now: Duration) {
        let nearly = self.mean <= self.bound * NEARLY;
        if self.mean <= self.bound {
            (self.trial, self.vain) = (0, 0);
        } else if self.trial > 0 {
            self.trial = if nearly { self.trial - 1 } else { 0 };
            if self.trial == 0 {
                self.again = now + AGAIN * 2_u32.pow(self.vain);
                self.vain = (self.vain + 1).min(AGAIN_DOUBLINGS);
            }
        } else if nearly && now >= self.again {
            self.trial = TRIAL;
        }
    }

    /// Whether to look again rather than to sleep.
    pub fn looks(&self, now: Duration) -> bool {
        (self.mean <= self.bound || self.trial > 0)
            && now >= self.rest
            && self.last.is_some_and(|last| now.saturating_sub(last) < self.bound)
    }

    /// The processor was offered to whoever wants it, and came back at `now` after `away`.
    pub fn offered(&mut self, away: Duration, now: Duration) {
        if away > AWAY {
            let calm = now.saturating_sub(self.rest) >= CALM;
            self.wanted = if calm { self.wanted.saturating_sub(1) } else { (self.wanted + 1).min(DOUBLINGS) };
            self.rest = now + REST * 2_u32.pow(self.wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = micros(100);
    /// What one look takes.
    const LOOK: Duration = micros(1);

    const fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// A vault whose packets come after these pauses, with how often it looks in vain in each.
    struct Life {
        looking: Looking,
        now: Duration,
        /// How long each offer of the processor takes.
        away: Duration,
    }

    impl Life {
        fn new() -> Self {
            Self { looking: Looking::new(BOUND), now: micros(1_000), away: Duration::ZERO }
        }

        /// The next packet comes after `pause`, which is spent looking or asleep; how often it looked.
        fn packet_after(&mut self, pause: Duration) -> u32 {
            let (comes, mut looks) = (self.now + pause, 0);
            while self.now < comes && self.looking.looks(self.now) {
                looks += 1;
                self.now += LOOK + self.away;
                self.looking.offered(self.away, self.now);
            }
            self.now = self.now.max(comes);
            self.looking.came(self.now, self.now + micros(2));
            self.now += micros(2);
            looks
        }

        fn packets_after(&mut self, pause: Duration, count: usize) -> Vec<u32> {
            (0..count).map(|_| self.packet_after(pause)).collect()
        }
    }

    #[test]
    fn where_packets_come_soon_it_looks_until_the_next_one_is_there() {
        let mut life = Life::new();
        assert_eq!(life.packet_after(micros(60)), 0, "nothing is known yet");
        let looks = life.packets_after(micros(60), 40);
        assert_eq!(looks[0], 0);
        assert!(looks[20..].iter().all(|looks| *looks == 60), "{looks:?}");
    }

    #[test]
    fn when_nothing_comes_any_more_it_looks_for_its_bound_once_and_never_again() {
        let mut life = Life::new();
        life.packets_after(micros(20), 100);
        assert_eq!(life.packet_after(Duration::from_secs(3_600)), 100, "a turn a microsecond, for the bound");
    }

    #[test]
    fn packets_that_come_later_than_the_bound_are_slept_for() {
        for pause in [250, 1_000, 1_000_000] {
            let mut life = Life::new();
            life.packets_after(micros(20), 100);
            let looks = life.packets_after(micros(pause), 1_000);
            assert!(looks[20..].iter().all(|looks| *looks == 0), "{pause}: {looks:?}");
        }
    }

    #[test]
    fn where_packets_come_little_later_than_the_bound_trials_take_two_thousandths_of_a_processor() {
        for pause in [110, 150, 199] {
            let mut life = Life::new();
            life.packets_after(micros(pause), 20_000);
            let (began, mut looked) = (life.now, 0);
            while life.now - began < Duration::from_secs(10) {
                looked += life.packet_after(micros(pause));
            }
            // A microsecond each.
            assert!((1_000..=20_000).contains(&looked), "{pause}: {looked}");
        }
    }

    /// Packets come after 60 µs where it looks, and after 130 where it sleeps, as there others must be woken as well.
    fn answers(life: &mut Life, count: usize) -> usize {
        (0..count)
            .filter(|_| {
                let looks = life.looking.looks(life.now);
                life.packet_after(micros(if looks { 60 } else { 130 })) > 0
            })
            .count()
    }

    #[test]
    fn where_packets_come_soon_only_if_it_looks_it_finds_out_that_looking_pays() {
        let mut life = Life::new();
        answers(&mut life, 50);
        assert_eq!(answers(&mut life, 100), 100);
        // A longer pause or some end it, and it is tried again.
        for _ in 0..3 {
            life.packets_after(micros(2_000), 10);
            assert_eq!(answers(&mut life, 1), 0);
            answers(&mut life, 200);
            assert_eq!(answers(&mut life, 100), 100);
        }
        // What it sees while it rests says nothing of how it is without.
        life.away = micros(600);
        answers(&mut life, 1);
        life.away = Duration::ZERO;
        let rested = (0..1_000).take_while(|_| answers(&mut life, 1) == 0).count();
        assert!((5..=10).contains(&rested), "1 ms, and no longer: {rested}");
        assert_eq!(answers(&mut life, 100), 100);
    }

    #[test]
    fn bursts_with_long_pauses_between_them_are_slept_for_however_many_packets_a_burst_has() {
        let mut life = Life::new();
        let mut looks = 0;
        for _ in 0..200 {
            for _ in 0..50 {
                looks += life.packet_after(micros(1));
            }
            looks += life.packet_after(micros(2_000));
        }
        assert_eq!(looks, 0);
    }

    #[test]
    fn one_long_pause_is_forgiven_and_two_are_not() {
        let mut life = Life::new();
        life.looking.again = Duration::MAX;
        life.packets_after(micros(30), 100);
        assert_eq!(life.packet_after(micros(50_000)), 100);
        assert_eq!(life.packet_after(micros(30)), 30);
        life.packets_after(micros(50_000), 2);
        assert_eq!(life.packet_after(micros(30)), 0);
    }

    #[test]
    fn whoever_else_wants_the_processor_has_it() {
        let mut life = Life::new();
        life.packets_after(micros(20), 100);
        life.away = Duration::from_millis(3);
        let looks: u32 = life.packets_after(micros(20), 200_000).iter().sum();
        // 4.4 s of packets: 1, 2, 4, to 1,024 ms without a look between two that cost something, then 1,024 again.
        assert!((10..=15).contains(&looks), "{looks}");
        life.away = Duration::ZERO;
        life.packets_after(micros(20), 50_000);
        assert_eq!(life.packet_after(micros(20)), 20, "nobody wants it any more");
    }

    #[test]
    fn whoever_wants_the_processor_for_a_moment_now_and_then_puts_off_little() {
        let mut life = Life::new();
        life.packets_after(micros(20), 100);
        let mut found = 0;
        for _ in 0..1_000 {
            life.away = micros(600);
            life.packet_after(micros(20));
            life.away = Duration::ZERO;
            found += life.packets_after(micros(20), 500).iter().filter(|looks| **looks > 0).count();
        }
        assert!(found > 400_000, "{found} of 500,000");
    }

    #[test]
    fn a_peers_turn_on_the_same_processor_is_no_reason_to_sleep() {
        let mut life = Life::new();
        life.away = micros(60);
        assert!(life.packets_after(micros(40), 100)[50..].iter().all(|looks| *looks > 0));
    }

    #[test]
    fn with_no_bound_it_never_looks() {
        let mut looking = Looking::new(Duration::ZERO);
        for n in 0..100 {
            looking.came(micros(n * 10), micros(n * 10 + 1));
            assert!(!looking.looks(micros(n * 10 + 1)));
        }
    }
    #[test]
    fn what_is_as_long_as_a_bound_counts_as_it_says() {
        // Found after THERE a packet says something of the next pause, and sooner it says nothing.
        for (pause, counts) in [(THERE, true), (THERE - Duration::from_nanos(1), false)] {
            let mut looking = Looking::new(BOUND);
            looking.came(micros(10), micros(10));
            looking.came(micros(10) + pause, micros(10) + pause);
            assert_eq!(looking.mean < BOUND * LONGEST, counts, "{pause:?}");
        }
        let mut looking = Looking { mean: BOUND, last: Some(micros(10)), ..Looking::new(BOUND) };
        assert!(looking.looks(micros(109)) && !looking.looks(micros(110)), "for its bound");
        looking.mean += Duration::from_nanos(1);
        assert!(!looking.looks(micros(11)), "the pauses are longer");
        // Whoever had the processor no longer than that costs nothing, and a rest has an end.
        let mut looking = Looking { mean: BOUND, ..Looking::new(BOUND) };
        looking.offered(AWAY, micros(20));
        assert_eq!((looking.rest, looking.wanted), (Duration::ZERO, 0));
        looking.offered(AWAY + Duration::from_nanos(1), micros(20));
        assert_eq!((looking.rest, looking.wanted), (micros(20) + REST * 2, 1));
        looking.last = Some(looking.rest);
        assert!(looking.looks(looking.rest) && !looking.looks(looking.rest - Duration::from_nanos(1)));
        // After CALM it rests half as long, and sooner twice.
        for (early, wanted) in [(Duration::ZERO, 0), (Duration::from_nanos(1), 2)] {
            let mut looking = Looking { wanted: 1, rest: micros(20), ..Looking::new(BOUND) };
            looking.offered(AWAY * 2, micros(20) + CALM - early);
            assert_eq!(looking.wanted, wanted, "{early:?}");
        }
    }
}
