//! Which datagrams can leave in one send: neighbours of one size for one place.

use levee_ipc::agree::{Ends, MOST, SealedPackets, Verdicts};
use levee_sys::udp;

const _: () = assert!(MOST <= udp::MAX_SEGMENTS);

/// Datagrams that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where they go.
    pub to: Ends,
    /// Where they begin.
    pub begin: usize,
    /// Where they end.
    pub end: usize,
    /// The size of each but the last, which may be shorter.
    pub segment: usize,
}

impl Run {
    /// How many there are.
    pub fn count(&self) -> usize {
        (self.end - self.begin).div_ceil(self.segment.max(1)).max(1)
    }

    /// Whether the next one, of `length` bytes, can go with them.
    fn takes(&self, to: Ends, begin: usize, length: usize) -> bool {
        let all_alike = (self.end - self.begin).is_multiple_of(self.segment.max(1));
        self.to == to && self.end == begin && all_alike && (1..=self.segment).contains(&length)
    }
}

/// What is agreed about, in its order.
pub fn runs(sealed: &SealedPackets<Ends>, verdicts: &Verdicts) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut end = 0;
    for ((to, datagram), (agreed, _)) in sealed.iter().zip(verdicts.iter()) {
        let begin = end;
        end += datagram.len();
        if !agreed {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.takes(*to, begin, datagram.len()) => run.end = end,
            _ => runs.push(Run { to: *to, begin, end, segment: datagram.len() }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_ipc::agree::Outer;

    fn to(port: u16, ecn: u8) -> Ends {
        Ends { outer: Outer { address: ([192, 0, 2, 1], port).into(), socket: 0 }, ecn }
    }

    /// Begin, end, segment and count of each run of datagrams of these lengths, places and verdicts.
    fn of(datagrams: &[(usize, Ends, bool)]) -> Vec<(usize, usize, usize, usize)> {
        let (mut sealed, mut verdicts) = (SealedPackets::new(), Verdicts::new());
        for (length, to, agreed) in datagrams {
            assert!(sealed.add(*to, &vec![1; *length]) && verdicts.add(*agreed, &[]));
        }
        let runs = runs(&sealed, &verdicts);
        runs.iter().map(|run| (run.begin, run.end, run.segment, run.count())).collect()
    }

    #[test]
    fn neighbours_of_one_size_go_together_and_a_shorter_one_ends_them() {
        let a = to(1, 0);
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[(100, a, true)]), [(0, 100, 100, 1)]);
        let lengths = [100, 100, 60, 60, 100, 100].map(|length| (length, a, true));
        assert_eq!(of(&lengths), [(0, 260, 100, 3), (260, 320, 60, 1), (320, 520, 100, 2)]);
    }

    #[test]
    fn what_goes_elsewhere_goes_alone_and_what_is_not_agreed_about_goes_nowhere() {
        let (a, b, marked) = (to(1, 0), to(2, 0), to(1, 3));
        let two = [(100, a, true), (100, b, true), (100, marked, true), (100, marked, true)];
        assert_eq!(of(&two), [(0, 100, 100, 1), (100, 200, 100, 1), (200, 400, 100, 2)]);
        let gap = [(100, a, false), (100, a, true), (100, a, false), (100, a, true), (100, a, true)];
        assert_eq!(of(&gap), [(100, 200, 100, 1), (300, 500, 100, 2)]);
        assert_eq!(of(&[(100, a, false); 3]), []);
    }
}
