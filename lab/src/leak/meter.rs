//! One channel measured: the window and the number of symbols that carry most, then, on fresh symbols, what they carry.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::Carried;
use super::attacker::{self, End, Job};
use super::channels::{Channel, Processors};
use super::stand::last_processor;
use levee_stats::capacity::{Windows, capacity, rough, symbols};

/// Most windows of one measurement.
const MOST: usize = 20_000;
/// Of one short try.
const TRY: usize = 1_000;
/// Fewest windows, however long each is.
const FEWEST: usize = 40;

/// Who answers for the programs: a new one above (0) or below (1) for each job.
pub type Ends<'a> = &'a mut dyn FnMut(usize) -> io::Result<End>;

/// What was found, with what it was found from; or what refused it.
pub type Measured = Result<(Carried, Windows), String>;

/// What measures.
#[derive(Debug)]
pub struct Meter {
    /// How many symbols the attacker knows of each of its channels.
    ranges: BTreeMap<String, usize>,
    seed: u64,
    /// Where time is cut into frames: seconds of one.
    frame: Option<f64>,
    /// The processor that the label above has for itself, where it has one; the label below has the first one then.
    pub above: Option<usize>,
}

impl Meter {
    /// Asks the attacker's program what it knows. Where time is cut into frames of so many seconds, windows of one, two and four are tried
    /// besides those of the table: the ends run in turn.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn new(program: &Path, seed: u64, frame: Option<f64>) -> io::Result<Meter> {
        let said = crate::netns::tool(&crate::operate::text(program), &["list"])?;
        let one = |line: &str| {
            let (name, symbols) = line.split_once(' ')?;
            Some((name.to_owned(), symbols.parse().ok()?))
        };
        Ok(Meter { ranges: said.lines().filter_map(one).collect(), seed, frame, above: None })
    }

    /// Measures a channel for about so many seconds, and as long again for the tries before.
    ///
    /// # Errors
    /// When an end does not end in good order.
    pub fn measure(&self, ends: Ends<'_>, channel: &Channel, seconds: f64) -> io::Result<Measured> {
        let Some(range) = self.ranges.get(&channel.program).copied() else {
            return Ok(Err("the attacker has none of this kind on this machine".into()));
        };
        let mut attempt = |window: f64, symbols_: usize, most: f64, limit: usize, seed: u64| {
            let count = ((most / window) as usize).clamp(FEWEST, limit);
            let job = Job {
                program: channel.program.clone(),
                argument: channel.argument.clone(),
                window,
                processors: match (self.above, channel.processors) {
                    (Some(own), _) => [own, 0],
                    (None, Processors::Apart) => [0, last_processor()],
                    (None, Processors::Same) => [0, 0],
                },
                symbols: symbols_,
                range,
                sent: symbols(symbols_, count, seed),
            };
            attacker::run(&job, ends(0)?, ends(1)?)
        };
        // The longest are left out where there is no time for them.
        let frames = self.frame.iter().flat_map(|frame| [1.0, 2.0, 4.0].map(|n| n * frame));
        let windows: Vec<f64> = channel.windows.iter().map(|us| f64::from(*us) / 1e6).chain(frames).collect();
        let shortest = windows.iter().copied().fold(f64::INFINITY, f64::min);
        let forms: Vec<(f64, usize)> = windows
            .into_iter()
            .filter(|w| *w == shortest || w * FEWEST as f64 <= 2.0 * seconds)
            .flat_map(|w| [2, 4, 16].into_iter().filter(|k| *k <= range).map(move |k| (w, k)))
            .collect();
        let mut best = (0.0, forms.first().copied().unwrap_or((1e-3, 2)));
        for (form, number) in forms.iter().zip(1..).filter(|_| forms.len() > 1) {
            let tried = attempt(form.0, form.1, seconds / forms.len() as f64, TRY, self.seed + 100 + number)?;
            let rate = match &tried {
                Ok(windows) => rough(windows, self.seed) / form.0,
                Err(why) => return Ok(Err(why.clone())),
            };
            if rate > best.0 {
                best = (rate, *form);
            }
        }
        let (window, k) = best.1;
        let measured = attempt(window, k, seconds, MOST, self.seed)?;
        Ok(measured.map(|w| (Carried::of(&w, window, capacity(&w, self.seed)), w)))
    }
}
