//! The differential recorder (`levee lab record`): what changes below when somebody above does everything that it may. It knows no
//! channel, and so finds those that nobody thought of.
//!
//! Below, a program asks for everything that its filter allows (`lab/attacker/record.c`); above, another uses everything
//! (`lab/attacker/drive.c`), or rests. Rounds of both kinds come in random order. An answer differs if in every batch of rounds those
//! of driven rounds lie wholly apart from those of quiet ones: as values, or, for what is counted up, as what it advanced since the
//! round before. Times are kept apart: they always differ, and the meter measures them.

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Write};
use std::thread;
use std::time::{Duration, Instant};

use super::attacker::End;

/// Every answer that was given, by what was asked.
pub type Record = BTreeMap<String, String>;

/// One round: whether somebody above was at work, and what was answered below.
pub type Round = (bool, Record);

/// An answer that depends on what happens above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What was asked.
    pub what: String,
    /// Whether it is what a counter advanced, not the answer itself.
    pub advances: bool,
    /// An answer in quiet rounds.
    pub quiet: String,
    /// An answer in driven rounds.
    pub driven: String,
}

fn ask(mut end: End, job: &str, mut each: impl FnMut(&str)) -> io::Result<()> {
    writeln!(end.to, "{job}")?;
    end.to.flush()?;
    let mut line = Vec::new();
    loop {
        line.clear();
        if end.from.read_until(b'\n', &mut line)? == 0 {
            return Err(io::Error::other(format!("the attacker ended within {job:?}")));
        }
        let text = String::from_utf8_lossy(&line);
        if text == "end\n" {
            return Ok(());
        }
        each(text.trim_end_matches('\n'));
    }
}

/// Asks for everything once. `inherited` descriptors from 3 on are looked at, too.
///
/// # Errors
/// When the program below does not end in good order.
pub fn record(below: End, inherited: usize) -> io::Result<Record> {
    let mut all = Record::new();
    ask(below, &format!("record {inherited}"), |line| {
        if let Some((what, answer)) = line.split_once('\t') {
            all.insert(what.to_owned(), answer.to_owned());
        }
    })?;
    Ok(all)
}

/// A driver at work: it has done what comes and goes, and holds what can be held. How long that took.
fn drive(above: End, inherited: usize) -> io::Result<(End, Duration)> {
    let begin = Instant::now();
    let mut above = above;
    writeln!(above.to, "drive {inherited}")?;
    above.to.flush()?;
    said(&mut above, "ready\n")?;
    Ok((above, begin.elapsed()))
}

/// It goes on until it is told that this was enough, and leaves nothing.
fn enough(mut above: End) -> io::Result<()> {
    above.to.write_all(b"enough\n")?;
    above.to.flush()?;
    said(&mut above, "end\n")
}

fn said(above: &mut End, wanted: &str) -> io::Result<()> {
    let mut line = String::new();
    above.from.read_line(&mut line)?;
    if line == wanted { Ok(()) } else { Err(io::Error::other(format!("the driver said {line:?}"))) }
}

/// Rounds in random order, `each` of both kinds. `end` answers a new program above (0) or below (1).
///
/// # Errors
/// When a program does not end in good order.
pub fn batch(
    mut end: impl FnMut(usize) -> io::Result<End>,
    each: usize,
    inherited: usize,
    seed: u64,
) -> io::Result<Vec<Round>> {
    let mut order: Vec<bool> = [true, false].into_iter().cycle().take(2 * each).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let mut random = ChaCha8Rng::seed_from_u64(seed + 1);
    // Rounds of both kinds take as long, so that clocks differ in neither: a quiet one waits as long as some driven one took.
    let (first, took) = drive(end(0)?, inherited)?;
    enough(first)?;
    let mut took = vec![took];
    let mut rounds = vec![(false, record(end(1)?, inherited)?)];
    for driven in order {
        thread::sleep(Duration::from_millis(random.random_range(0..200)));
        if !driven {
            thread::sleep(took[random.random_range(0..took.len())]);
            rounds.push((false, record(end(1)?, inherited)?));
            thread::sleep(Duration::from_millis(random.random_range(0..50)));
            continue;
        }
        let (above, time) = drive(end(0)?, inherited)?;
        took.push(time);
        rounds.push((true, record(end(1)?, inherited)?));
        enough(above)?;
    }
    Ok(rounds)
}

/// The numbers in an answer; or its words, where there are none.
fn parts(answer: &str) -> Vec<Result<i64, &str>> {
    let numbers: Vec<Result<i64, &str>> = answer
        .split(|c: char| !(c.is_ascii_digit() || c == '-'))
        .filter_map(|w| w.parse().ok().map(Ok))
        .collect();
    if numbers.is_empty() || answer.contains(|c: char| c.is_ascii_alphabetic()) && answer.len() > 300 {
        return vec![Err(answer)];
    }
    numbers
}

/// Whether numbers of the two kinds lie wholly apart.
fn apart(quiet: &[i64], driven: &[i64]) -> bool {
    let ends = |x: &[i64]| Some((*x.iter().min()?, *x.iter().max()?));
    matches!((ends(quiet), ends(driven)), (Some((a, b)), Some((c, d))) if b < c || d < a)
}

/// Answers to one question in a batch, first the round before all others.
fn of_one(what: &str, answers: &[(bool, &str)]) -> Option<Difference> {
    let (_, rounds) = answers.split_first()?;
    let texts = |kind: bool| rounds.iter().filter(move |(driven, _)| *driven == kind).map(|(_, a)| *a);
    let difference = |advances: bool, quiet: String, driven: String| {
        Some(Difference { what: what.to_owned(), advances, quiet, driven })
    };
    let example = |kind: bool| texts(kind).next().unwrap_or_default().to_owned();
    let (quiet, driven): (BTreeSet<&str>, BTreeSet<&str>) = (texts(false).collect(), texts(true).collect());
    if quiet.is_disjoint(&driven) && (quiet.len() == 1 || driven.len() == 1) {
        return difference(false, example(false), example(true));
    }
    let numbers: Vec<Vec<Result<i64, &str>>> = answers.iter().map(|(_, a)| parts(a)).collect();
    let width = numbers.iter().map(Vec::len).min()?;
    for place in 0..width {
        let column: Option<Vec<i64>> = numbers.iter().map(|n| n.get(place).copied()?.ok()).collect();
        let Some(column) = column else { continue };
        let split = |values: &[i64]| -> (Vec<i64>, Vec<i64>) {
            let of = |kind: bool| {
                let those = values.iter().zip(rounds).filter(move |(_, (driven, _))| *driven == kind);
                those.map(|(v, _)| *v).collect()
            };
            (of(false), of(true))
        };
        let (quiet, driven) = split(column.get(1..)?);
        if apart(&quiet, &driven) {
            return difference(false, format!("{quiet:?}"), format!("{driven:?}"));
        }
        let steps: Vec<i64> = column.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
        let (quiet, driven) = split(&steps);
        if apart(&quiet, &driven) {
            return difference(true, format!("{quiet:?}"), format!("{driven:?}"));
        }
    }
    None
}

/// What differs in every batch.
pub fn differences(batches: &[Vec<Round>]) -> Vec<Difference> {
    let one = |rounds: &Vec<Round>| -> BTreeMap<String, Difference> {
        let asked: BTreeSet<&String> = rounds.iter().flat_map(|(_, r)| r.keys()).collect();
        let of = |what: &&String| {
            let answers: Vec<(bool, &str)> = rounds
                .iter()
                .map(|(d, r)| (*d, r.get(*what).map_or("not answered", String::as_str)))
                .collect();
            of_one(what, &answers)
        };
        asked
            .iter()
            .filter(|w| !w.starts_with("time of "))
            .filter_map(|w| Some(((**w).clone(), of(w)?)))
            .collect()
    };
    let mut all = batches.iter().map(one);
    let Some(first) = all.next() else { return Vec::new() };
    let kept = all.fold(first, |kept, next| {
        kept.into_iter()
            .filter(|(what, d)| next.get(what).is_some_and(|n| n.advances == d.advances))
            .collect()
    });
    kept.into_values().collect()
}

/// Least times in quiet and driven rounds, in ns, by what was done.
pub fn times(batches: &[Vec<Round>]) -> BTreeMap<String, [i64; 2]> {
    let mut all: BTreeMap<String, [Vec<f64>; 2]> = BTreeMap::new();
    for (driven, record) in batches.iter().flatten() {
        for (what, answer) in record.iter().filter(|(w, _)| w.starts_with("time of ")) {
            let both = all.entry(what.clone()).or_default();
            both[usize::from(*driven)].extend(answer.parse::<f64>().ok());
        }
    }
    let middle = |x: &[f64]| levee_stats::quantile(x, 0.5).unwrap_or(0.0) as i64;
    all.into_iter().map(|(what, both)| (what, [middle(&both[0]), middle(&both[1])])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(answers: &[(bool, &str)]) -> Vec<Round> {
        let one = |(d, a): &(bool, &str)| (*d, Record::from([("x".to_owned(), (*a).to_owned())]));
        answers.iter().map(one).collect()
    }

    fn found(answers: &[(bool, &str)]) -> Option<bool> {
        let batch = rounds(answers);
        differences(&[batch.clone(), batch]).first().map(|d| d.advances)
    }

    #[test]
    fn a_value_that_the_driver_changes_is_found() {
        let one = [(false, "7"), (true, "9"), (false, "7"), (true, "9"), (false, "7"), (true, "12")];
        assert_eq!(found(&one), Some(false));
        let words = [(false, "refused"), (false, "refused"), (true, "done"), (true, "done")];
        assert_eq!(found(&words), Some(false));
    }

    #[test]
    fn a_counter_that_always_rises_is_found_by_what_it_advances() {
        let one = [
            (false, "id: 100"),
            (false, "id: 103"),
            (true, "id: 190"),
            (false, "id: 192"),
            (true, "id: 280"),
        ];
        assert_eq!(found(&one), Some(true));
    }

    #[test]
    fn noise_is_not_reported() {
        let one = [(false, "1"), (false, "5"), (true, "3"), (false, "2"), (true, "4"), (true, "1")];
        assert_eq!(found(&one), None);
        // Names that are new in every round.
        let two = [(false, "a"), (false, "b"), (true, "c"), (false, "d"), (true, "e")];
        assert_eq!(found(&two), None);
        // In one batch alone.
        let (three, four) =
            ([(false, "1"), (false, "1"), (true, "2")], [(false, "1"), (false, "2"), (true, "2")]);
        assert_eq!(differences(&[rounds(&three), rounds(&four)]), []);
    }
}
