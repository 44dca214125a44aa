//! What a process says of itself in words and counts, bounded where it is read. Whoever hears it puts it beside what others say, into one
//! message, one record or one line: none of them can take the room of the others there, whatever it has become.

use serde::{Deserialize, Deserializer};

/// The most counts that one process has.
const ROWS: usize = 64;
/// The most characters of what one is called.
const NAME: usize = 128;
/// The most characters of a reason.
const REASON: usize = 300;
/// The most numbers that one process lists.
const NUMBERS: usize = 16;

/// Counts by name: the first of them, each by the beginning of its name.
pub(crate) fn counts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, u64)>, D::Error> {
    let all = Vec::<(String, u64)>::deserialize(from)?;
    Ok(all.into_iter().take(ROWS).map(|(what, count)| (beginning(&what, NAME), count)).collect())
}

/// Why something is so: the beginning of it.
pub(crate) fn reason<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(beginning(&String::deserialize(from)?, REASON))
}

/// Numbers: the first of them.
pub(crate) fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    let mut all = Vec::deserialize(from)?;
    all.truncate(NUMBERS);
    Ok(all)
}

fn beginning(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}

#[cfg(test)]
mod tests {
    use crate::federation::Heard;
    use crate::keyer::FromKeyer;
    use crate::mediator::MediatorToSessiond;
    use crate::vault::Report;
    use crate::warden::channel::Counted;
    use crate::warden::guard::GuardSays;
    use crate::warden::{FramesState, LayerState};
    use serde::{Serialize, de::DeserializeOwned};

    /// As it is read at the other end.
    fn heard<T: Serialize + DeserializeOwned>(said: &T) -> T {
        postcard::from_bytes(&postcard::to_allocvec(said).unwrap()).unwrap()
    }

    #[test]
    fn whatever_a_process_counts_takes_no_more_than_its_room() {
        let few = vec![("messages passed".to_owned(), 3)];
        let one_long = vec![("ü".repeat(30_000), 1)];
        let escapes = vec![("\u{1b}[2J\u{9b}x".repeat(9), 1)];
        let many: Vec<_> = (0..9_000).map(|n| (format!("{n}"), n)).collect();
        for all in [few.clone(), one_long, escapes, many] {
            let said = || all.clone();
            let heard = [
                heard(&Counted(said())).0,
                match heard(&GuardSays::Counted(said())) {
                    GuardSays::Counted(all) => all,
                    GuardSays::Stuck(..) => Vec::new(),
                },
                match heard(&MediatorToSessiond::Report(said())) {
                    MediatorToSessiond::Report(all) => all,
                    _ => Vec::new(),
                },
                match heard(&FromKeyer::Dropped(said())) {
                    FromKeyer::Dropped(all) => all,
                    _ => Vec::new(),
                },
                heard(&Report { counters: said(), ..Report::default() }).counters,
            ];
            for counts in heard {
                assert!((1..=64).contains(&counts.len()), "{}", counts.len());
                let is_bounded =
                    |name: &str| name.chars().count() <= 128 && !name.chars().any(char::is_control);
                assert!(counts.iter().all(|(name, _)| is_bounded(name)), "{counts:?}");
                assert!(all != few || counts == few);
            }
        }
    }

    #[test]
    fn whatever_a_process_gives_as_a_reason_or_lists_takes_no_more_than_its_room() {
        let long = || "why\n".repeat(10_000);
        let GuardSays::Stuck(7, stuck) = heard(&GuardSays::Stuck(7, long())) else {
            panic!("something else")
        };
        let LayerState::Down(down) = heard(&LayerState::Down(long())) else { panic!("something else") };
        let Heard::Lost { reason: lost, .. } = heard(&Heard::Lost { attempt: 1, reason: long() }) else {
            panic!("something else")
        };
        for reason in [stuck, down, lost] {
            assert_eq!(reason, "why".repeat(100));
        }
        let state = FramesState { stuck: (0..20_000).collect(), ..FramesState::default() };
        assert_eq!(heard(&state).stuck, (0..16).collect::<Vec<_>>());
    }
}
