//! The models of the window against replays, held to `ReplayWindow`.

use levee_esp::{ReplayWindow, WINDOW};
use levee_proofs::{Case, Draw, Model, around, bits, none};
use std::collections::BTreeSet;

const SUBSPACE: u64 = 1 << 32;
/// Numbers that the ring of words has bits for.
const RING: u64 = WINDOW + 64;

#[test]
fn the_half_that_is_not_sent_is_inferred_by_the_code_as_by_its_model() {
    let mut draw = Draw::new(0x7e57_0001);
    let last = 7 * SUBSPACE;
    let mut tops =
        around(&[0, WINDOW / 2, WINDOW, SUBSPACE, SUBSPACE + WINDOW, last, last + WINDOW, u64::MAX], 3);
    tops.extend(around(&[u64::MAX - WINDOW, u64::MAX - SUBSPACE + WINDOW], 3));
    tops.extend((0..60).map(|_| draw.sized()));
    tops.extend((0..60).map(|_| draw.number()));
    let mut cases = Vec::new();
    for top in tops {
        let mut window = ReplayWindow::new(true);
        assert!(top == 0 || window.advance(top) == Ok(true));
        let edges = [top, top.wrapping_sub(WINDOW), top.wrapping_add(1), 0];
        let near = edges.iter().flat_map(|edge| (0..5).map(|n| edge.wrapping_add(n).wrapping_sub(2) as u32));
        let mut lows: BTreeSet<u32> = near.collect();
        lows.extend((0..4).map(|_| draw.number() as u32));
        for low in lows {
            let given = format!("{} {}", bits(64, top), bits(32, low));
            let code = window.check(low);
            // Of what is inferred, 0 and the one that was seen are refused.
            let (none, top) = (bits(64, 0_u64), bits(64, top));
            let fresh = format!("(not (or (= (whole {given}) {none}) (= (whole {given}) {top})))");
            cases.push(Case::truth(format!("(and (is-whole {given}) {fresh})"), code.is_ok()));
            cases.extend(code.map(|whole| Case::bits(format!("(whole {given})"), 64, whole)));
        }
    }
    assert!(cases.len() > 4_000, "{} cases", cases.len());
    none(&Model::read("sequence").compare(&cases));
}

/// A number for a window whose highest is `top`, that has had these: at its edges, at those of words and of the ring, or had before.
fn next(draw: &mut Draw, top: u64, had: &[u64], most: u64) -> u64 {
    let leap = draw.one(&[1, 2, 63, 64, 65, WINDOW - 64, WINDOW, WINDOW + 1, RING - 1, RING, RING + 64]);
    let back = draw.one(&[0, 1, 63, 64, WINDOW - 65, WINDOW - 64, WINDOW - 1, WINDOW, WINDOW + 1, RING]);
    let any = match draw.below(8) {
        0 | 1 if !had.is_empty() => draw.one(had),
        0..=2 => top.saturating_add(leap),
        3 => top.saturating_add(draw.below(3 * WINDOW)),
        4 | 5 => top.saturating_sub(back),
        6 => top.saturating_sub(draw.below(WINDOW)),
        _ => top.saturating_add(draw.sized()),
    };
    any.min(most)
}

/// A window with what it has accepted. The model has it all from the beginning: no step rests on what it said of another.
struct Run {
    window: ReplayWindow,
    had: Vec<u64>,
    /// Which was the highest before each.
    tops: Vec<u64>,
}

impl Run {
    fn new(extended: bool) -> Self {
        Self { window: ReplayWindow::new(extended), had: Vec::new(), tops: Vec::new() }
    }

    fn step(&mut self, number: u64, cases: &mut Vec<Case>) {
        let top = self.window.top();
        let place = format!("(index (div {number} 64)) (mod {number} 64)");
        let before =
            self.had.iter().zip(&self.tops).fold("bit-first".to_owned(), |bit, (had, top)| {
                format!("(bit-after {top} {had} {place} {bit})")
            });
        let model_top = if self.had.is_empty() { "top-first".to_owned() } else { top.to_string() };
        let is_checked = self.window.check(number as u32) == Ok(number);
        let code = self.window.advance(number);
        // What is seen before a packet is authenticated is what holds behind it.
        assert!(!is_checked || code.is_ok(), "{number} at a top of {top}");
        cases.push(Case::truth(format!("(accepts {model_top} {number} {before})"), code.is_ok()));
        if code.is_ok() {
            let term = format!("(top-after {model_top} {number})");
            cases.push(Case::written(term, self.window.top().to_string()));
            self.had.push(number);
            self.tops.push(top);
        }
    }
}

/// Numbers from a first one on, so that one comes again when what was seen of it lies in the word that is cleared next, or was just.
const RUNS: [&[u64]; 6] = [
    &[0, RING + 1, RING, 0],
    &[0, WINDOW, RING + 1, RING, 0],
    &[0, WINDOW - 1, 0, WINDOW - 1, 1, WINDOW - 2],
    &[0, WINDOW - 60, 0, 4, WINDOW - 60],
    &[0, WINDOW, 0, 1, WINDOW + 63, 63, 64],
    &[64, 0, RING - 1, RING, RING + 63, RING + 64, 64, 0],
];

#[test]
fn what_the_window_accepts_after_any_numbers_is_what_its_model_accepts() {
    let mut draw = Draw::new(0x7e57_0002);
    let mut cases = Vec::new();
    for begin in [0, 1, 62, 63, 64, 5 * SUBSPACE, u64::MAX - 3 * WINDOW, u64::MAX - RING - 64] {
        for numbers in RUNS {
            let mut run = Run::new(true);
            numbers.iter().for_each(|number| run.step(begin + number, &mut cases));
        }
    }
    for number in 0..150_u32 {
        let extended = number % 2 == 0;
        let most = if extended { u64::MAX } else { u64::from(u32::MAX) };
        let mut run = Run::new(extended);
        for step in 0..14 {
            let far = step == 0 && number % 3 == 0;
            let next = if far { draw.sized() } else { next(&mut draw, run.window.top(), &run.had, most) };
            run.step(next.min(most), &mut cases);
        }
    }
    assert!(cases.len() > 2_500, "{} cases", cases.len());
    none(&Model::read("replay").compare(&cases));
}
