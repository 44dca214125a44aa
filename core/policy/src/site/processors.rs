//! `[[processors]]`: processors of the host on which nothing of another label runs.

use std::collections::BTreeSet;

use super::problem::ProblemKind;
use super::read::{At, Reader, Table};
use super::reference;
use super::vault::ranges;
use crate::label::{Label, Range};
use crate::vocabulary::Vocabulary;

/// The highest number of a processor, more than any host has.
const HIGHEST: u16 = 8_191;

/// Processors that some labels have for themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processors {
    numbers: BTreeSet<u16>,
    labels: Vec<Range>,
}

impl Processors {
    /// Their numbers, as the host counts them.
    pub fn numbers(&self) -> &BTreeSet<u16> {
        &self.numbers
    }

    /// Whether what is at this label runs on them, and nowhere else.
    pub fn are_of(&self, label: &Label) -> bool {
        self.labels.iter().any(|range| range.contains(label))
    }

    /// Whether they are one label's alone: then nothing of another runs beside it, whenever it runs.
    pub fn are_of_one(&self) -> bool {
        matches!(self.labels.as_slice(), [one] if one.low() == one.high())
    }
}

/// Reads all `[[processors]]`. No processor is in two of them, and no label.
pub(super) fn read(
    reader: &mut Reader<'_>,
    root: &Table<'_>,
    vocabulary: Option<&Vocabulary>,
) -> Option<Vec<Processors>> {
    let tables = reader.tables(root.get("processors"), "[processors]", &reference::PROCESSORS.names());
    let read: Vec<_> = tables.iter().map(|keys| one(reader, keys, vocabulary)).collect();
    let mut all: Vec<At<Processors>> = Vec::new();
    for next in read.iter().flatten() {
        for before in &all {
            if let Some(twice) = before.value.numbers.intersection(&next.value.numbers).next() {
                let what = format!("processor {twice} is in two [[processors]]");
                reader.problem(ProblemKind::Duplicate, &next.span, what, "give each to one of them");
            }
            let meet = |one: &Range| next.value.labels.iter().any(|other| one.intersection(other).is_some());
            if before.value.labels.iter().any(meet) {
                let what = "a label is in two [[processors]]";
                let remedy = "give each label's processors in one of them";
                reader.problem(ProblemKind::Duplicate, &next.span, what, remedy);
            }
        }
        all.push(At::new(next.value.clone(), next.span.clone()));
    }
    read.into_iter().map(|one| one.map(|one| one.value)).collect()
}

fn one(reader: &mut Reader<'_>, keys: &Table<'_>, vocabulary: Option<&Vocabulary>) -> Option<At<Processors>> {
    let form = "numbers and ranges of them, such as \"2-3,6\"";
    let numbers = reader.need(keys, "numbers", "\"2-3\"");
    let numbers = numbers.and_then(|value| reader.parsed::<Numbers>(value, "list of processors", form));
    let labels =
        reader.need(keys, "labels", "[\"SECRET\"]").and_then(|_| ranges(reader, keys, "labels", vocabulary));
    let labels: Vec<Range> = labels?.into_iter().map(|range| range.value).collect();
    if labels.is_empty() {
        let what = "these processors are of no label, and nothing would run on them";
        reader.problem(ProblemKind::BadValue, &keys.span(), what, "name their labels");
    }
    Some(At::new(Processors { numbers: numbers?.value.0, labels }, keys.span()))
}

/// As `numbers` is written, which is how the kernel writes it (cpuset(7), "List format").
struct Numbers(BTreeSet<u16>);

/// It is not.
#[derive(Debug)]
struct NotNumbers;

impl std::fmt::Display for NotNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a processor has a number from 0 to {HIGHEST}")
    }
}

impl std::str::FromStr for Numbers {
    type Err = NotNumbers;

    fn from_str(text: &str) -> Result<Self, NotNumbers> {
        let number = |text: &str| text.trim().parse::<u16>().ok().filter(|number| *number <= HIGHEST);
        let mut all = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first).ok_or(NotNumbers)?, number(last).ok_or(NotNumbers)?);
            if first > last {
                return Err(NotNumbers);
            }
            all.extend(first..=last);
        }
        Ok(Self(all))
    }
}
