//! `[frames]`: when what may run. Time is cut into frames, all alike, and a frame into slots; in a slot runs only what the slot is for.

use std::time::Duration;

use super::draft::Draft;
use super::problem::ProblemKind;
use super::processors::Processors;
use super::quantity::brief;
use super::quota::{Quota, quota};
use super::read::{At, Reader, Table};
use super::reference;
use super::values::quantity as read_quantity;
use super::vault::ranges;
use crate::label::{Label, Range};
use crate::vocabulary::Vocabulary;

/// The most slots of a frame.
const MOST: usize = 64;
/// What a slot's time may be, in microseconds.
const TIMES: std::ops::RangeInclusive<u64> = 1_000..=50_000;
/// What the pause between two slots may be, in microseconds.
const MARGINS: std::ops::RangeInclusive<u64> = 0..=10_000;
const MARGIN: u64 = 500;
/// How long what does not stop may live on, in microseconds.
const STOPS: std::ops::RangeInclusive<u64> = 1_000..=500_000;
/// What it is where the file does not say, and the frame leaves as much, in microseconds.
const STOP: u64 = 100_000;
/// The longest that a vault may stand still, half of the silence after which it is taken for hung and its label ends (`levee-session`,
/// `SILENCE`).
pub const STANDSTILL: Duration = Duration::from_millis(500);

/// One slot of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    labels: Option<Vec<Range>>,
    time: Duration,
}

impl Slot {
    /// Whether what is at this label runs in it.
    pub fn covers(&self, label: &Label) -> bool {
        self.labels.as_ref().is_none_or(|ranges| ranges.iter().any(|range| range.contains(label)))
    }

    /// How long it takes.
    pub fn time(&self) -> Duration {
        self.time
    }
}

/// The frame of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frames {
    slots: Vec<Slot>,
    margin: Duration,
    stop: Duration,
    late: Option<Quota>,
}

impl Frames {
    /// Its slots, in their order; at least one.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The slots in which what is at this label runs, from 0; none, and it never runs.
    pub fn of(&self, label: &Label) -> Vec<u16> {
        (0..).zip(&self.slots).filter(|(_, slot)| slot.covers(label)).map(|(number, _)| number).collect()
    }

    /// Between the end of one slot and the beginning of the next, in which what ran has to stop.
    pub fn margin(&self) -> Duration {
        self.margin
    }

    /// How long what does not stop may live on.
    pub fn stop(&self) -> Duration {
        self.stop
    }

    /// For how many ends of slots, in what time, a control group's processes may stop later than within the margin: what is late more often is
    /// killed.
    pub fn late(&self) -> Option<Quota> {
        self.late
    }

    /// The longest that something may wait for its slot: every slot's time and pause, each slot ended by something that stops just before it
    /// would be killed, and one by something that was killed and is waited for as long again.
    fn longest(&self) -> Duration {
        let count = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let slots: Duration = self.slots.iter().map(Slot::time).sum();
        slots + self.margin * count + self.stop * count.saturating_add(1)
    }
}

/// What `stop` is where the file does not say: as much as this frame leaves, and no more than is of use.
fn stop_that_fits(slots: &[Slot], margin: Duration) -> Duration {
    let none = Frames { slots: slots.to_vec(), margin, stop: Duration::ZERO, late: None };
    let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
    let left = STANDSTILL.saturating_sub(none.longest()) / count.saturating_add(1);
    left.clamp(Duration::from_micros(*STOPS.start()), Duration::from_micros(STOP))
}

/// Reads `[frames]`, where there is one.
pub(super) fn read(
    reader: &mut Reader<'_>,
    root: &Table<'_>,
    vocabulary: Option<&Vocabulary>,
) -> Option<Option<At<Frames>>> {
    let Some(value) = root.get("frames") else { return Some(None) };
    let keys = reader.subtable(value, "[frames]", &reference::FRAMES.names())?;
    let margin = time(reader, &keys, "margin", MARGIN, MARGINS, "a time from \"0us\" to \"10ms\"");
    let stop = match keys.get("stop") {
        None => Some(None),
        Some(_) => time(reader, &keys, "stop", STOP, STOPS, "a time from \"1ms\" to \"500ms\"").map(Some),
    };
    let late = match keys.get("late") {
        None => Some(None),
        Some(value) => quota(reader, value, "late", |text| text.parse().ok()).map(Some),
    };
    let slots = reader.need(&keys, "slot", "[{ time = \"10ms\" }]");
    let is_missing = slots.is_none();
    let slots = reader.tables(slots, "frames.slot", &reference::SLOT.names());
    if !is_missing && slots.is_empty() || slots.len() > MOST {
        let what = format!("a frame has {} slots", slots.len());
        let remedy = format!("list 1 to {MOST} of them, each under [[frames.slot]]");
        reader.problem(ProblemKind::OutOfBounds, &keys.span(), what, remedy);
    }
    let slots: Vec<_> = slots.iter().map(|keys| slot(reader, keys, vocabulary)).collect();
    let slots = slots.into_iter().collect::<Option<Vec<_>>>().filter(|slots| !slots.is_empty())?;
    let (margin, stop, late) = (margin?, stop?, late?);
    if late.is_some() && margin.is_zero() {
        let what = "without a margin everything ends late, and is killed when it has so often";
        reader.problem(ProblemKind::BadValue, &keys.span(), what, "remove `late`, or raise `margin`");
    }
    let stop = stop.unwrap_or_else(|| stop_that_fits(&slots, margin));
    let frames = Frames { slots, margin, stop, late };
    if frames.longest() > STANDSTILL {
        let what = format!(
            "something may wait {} ms for its slot, and a vault that says nothing for a second is taken for hung",
            frames.longest().as_millis()
        );
        let remedy = format!(
            "let the slots' times and margins, and `stop` once for each slot and once more, be {} ms in all at most",
            STANDSTILL.as_millis()
        );
        reader.problem(ProblemKind::OutOfBounds, &keys.span(), what, remedy);
    }
    Some(Some(At::new(frames, keys.span())))
}

fn slot(reader: &mut Reader<'_>, keys: &Table<'_>, vocabulary: Option<&Vocabulary>) -> Option<Slot> {
    let labels = match keys.get("labels") {
        None => Some(None),
        Some(_) => ranges(reader, keys, "labels", vocabulary).map(Some),
    };
    let form = "a time from \"1ms\" to \"50ms\"";
    let time = reader.need(keys, "time", "\"10ms\"");
    let time = time.and_then(|value| read_quantity(reader, value, "time", micros, TIMES, form));
    let labels = labels?.map(|ranges| ranges.into_iter().map(|range| range.value).collect());
    Some(Slot { labels, time: Duration::from_micros(time?) })
}

fn time(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    key: &str,
    default: u64,
    bounds: std::ops::RangeInclusive<u64>,
    form: &str,
) -> Option<Duration> {
    let micros = match keys.get(key) {
        None => Some(default),
        Some(value) => read_quantity(reader, value, key, micros, bounds, form),
    };
    micros.map(Duration::from_micros)
}

fn micros(text: &str) -> Option<u64> {
    u64::try_from(brief(text)?.as_micros()).ok()
}

/// What has no slot never runs: that is told where the file itself shows it. A label between the ends of a service's range is told as it
/// is started.
pub(super) fn check(reader: &mut Reader<'_>, frames: &At<Frames>, own: &[Processors], draft: &Draft) {
    let Some(vocabulary) = &draft.vocabulary else { return };
    let partitions = draft.parts.iter().flat_map(|parts| &parts.partitions);
    let partitions = partitions.map(|(name, label, _)| (format!("partition `{}`", name.value), &label.value));
    let services = draft.services.read.iter().flat_map(|service| {
        let ends = [service.range.value.low(), service.range.value.high()];
        ends.map(|end| (format!("service `{}`", service.name.value), end))
    });
    let without = partitions.chain(services).find(|(_, label)| {
        // What has processors for itself alone runs at any time.
        let alone = |processors: &Processors| processors.are_of(label) && processors.are_of_one();
        frames.value.of(label).is_empty() && !own.iter().any(alone)
    });
    if let Some((what, label)) = without {
        let Some(label) = vocabulary.text(label) else { return };
        let what = format!("no slot is for {label}, where the {what} is: it would never run");
        let remedy = "name its label in a slot, or add a slot without `labels`, which is for all";
        reader.problem(ProblemKind::BadValue, &frames.span, what, remedy);
    }
    patient(reader, &frames.value, own, draft);
}

/// A guard waits for its filter longer than that may stand still: else messages were refused, and the filter started again, for nothing.
fn patient(reader: &mut Reader<'_>, frames: &Frames, own: &[Processors], draft: &Draft) {
    let Some(parts) = &draft.parts else { return };
    for guard in parts.channels.iter().filter_map(|channel| channel.guard.as_ref()) {
        let filter = parts.partitions.iter().find(|(name, ..)| name.value == guard.filter.value);
        let Some((_, label, _)) = filter else { continue };
        let alone = own.iter().any(|processors| processors.are_of(&label.value) && processors.are_of_one());
        if alone || guard.guard.answer() > frames.longest() {
            continue;
        }
        let (answer, longest) = (guard.guard.answer().as_millis(), frames.longest().as_millis());
        let what = format!(
            "the guard waits {answer} ms for its filter `{}`, which may stand still for {longest} ms of a frame",
            guard.filter.value
        );
        let remedy = format!("give it a longer `answer`, such as \"{}ms\"", longest.saturating_mul(4));
        reader.problem(ProblemKind::OutOfBounds, &guard.filter.span, what, remedy);
    }
}
