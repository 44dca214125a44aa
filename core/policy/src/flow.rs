//! Where information can get by declared channels, however many steps it takes.
//!
//! Places have a label each, and nothing in common but the channels between them. A one-way channel is allowed where its
//! upper end dominates its lower one. A guard is the site's own exception: what may be at its `from` may be at its `to`,
//! and so wherever that may flow. Two guards one behind the other are an exception that nobody has declared, and so is
//! anything else that only several steps together bring about (the cascade problem).

use crate::label::Label;
use std::collections::VecDeque;

/// Whether a channel is an exception to the lattice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Allowed only where the lattice allows it.
    OneWay,
    /// Declared by the site to pass what the lattice forbids, from its one label to its other.
    Guard,
}

/// What is called so leads from one place outside to another that dominates it, as the lattice allows.
pub(crate) const UPWARD: &str = "upward";

/// A channel between two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The place where something is written.
    pub from: usize,
    /// The place where it is read.
    pub to: usize,
    /// By what right.
    pub passage: Passage,
}

/// The shortest way by which information gets from a place to another where the lattice forbids it and no one guard
/// allows it: the numbers of its steps, in order. Of several as short, one from the first place that has one; `None` if
/// there is none.
///
/// A step whose ends are no places is none.
pub fn forbidden(places: &[Label], steps: &[Step]) -> Option<Vec<usize>> {
    let mut shortest: Option<Vec<usize>> = None;
    for (start, source) in places.iter().enumerate() {
        // Which step reached a place first: the search is by breadth, so that is by the fewest.
        let mut reached: Vec<Option<usize>> = vec![None; places.len()];
        let mut next = VecDeque::from([start]);
        while let Some(at) = next.pop_front() {
            for (number, step) in steps.iter().enumerate().filter(|(_, step)| step.from == at) {
                let Some((reach, label)) = reached.get_mut(step.to).zip(places.get(step.to)) else {
                    continue;
                };
                if step.to == start || reach.is_some() {
                    continue;
                }
                *reach = Some(number);
                next.push_back(step.to);
                if !allowed(source, label, places, steps) {
                    let way = way(start, step.to, &reached, steps);
                    if shortest.as_ref().is_none_or(|least| way.len() < least.len()) {
                        shortest = Some(way);
                    }
                }
            }
        }
    }
    shortest
}

/// Whether the site lets information of a place at `from` be at a place at `to`.
fn allowed(from: &Label, to: &Label, places: &[Label], steps: &[Step]) -> bool {
    to.dominates(from)
        || steps.iter().filter(|step| step.passage == Passage::Guard).any(|guard| {
            let (above, below) = (places.get(guard.from), places.get(guard.to));
            above.is_some_and(|above| above.dominates(from)) && below.is_some_and(|below| to.dominates(below))
        })
}

/// The steps that led from `start` to `end`.
fn way(start: usize, end: usize, reached: &[Option<usize>], steps: &[Step]) -> Vec<usize> {
    let mut way = Vec::new();
    let mut at = end;
    while at != start
        && let Some(number) = reached.get(at).copied().flatten()
        && let Some(step) = steps.get(number)
    {
        way.push(number);
        at = step.from;
    }
    way.reverse();
    way
}
