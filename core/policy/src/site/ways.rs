//! The ways that information takes between partitions, networks and other hosts, all together, held against the lattice.

use super::guard::ReadGuard;
use super::link::{self, ReadLink};
use super::partition::{DraftParts, ReadChannel, ReadEnd};
use super::problem::ProblemKind;
use super::read::{At, Reader};
use super::server::MAX_SLOTS;
use super::tables::DraftNetwork;
use super::wire::ReadWire;
use crate::flow::{self, Passage, Step};
use crate::label::Label;
use crate::names::PartitionName;
use crate::vocabulary::{Vocabulary, nearest};

/// Channels that one partition has an end of, at most: each is a descriptor of its program.
const MOST_ENDS: usize = 16;

/// What all networks of one label are together, in a way that information takes: hosts there may speak with each other, and levee
/// cannot say that they do not.
const NETWORK: &str = "its network";

/// The other hosts of one label together, in a way that information takes: they may speak with each other.
const ANOTHER: &str = "another host";

/// A step of information from one place to another: what it is called, where the file says so, and between which places.
type Way<'a> = (&'a str, &'a std::ops::Range<usize>, Step);

/// Holds partitions and channels against each other, and the flow by all channels together against the lattice.
pub(super) fn check(
    reader: &mut Reader<'_>,
    draft: &DraftParts,
    networks: &[DraftNetwork],
    slots: Option<u16>,
    vocabulary: &Vocabulary,
) {
    let DraftParts { partitions, channels, links } = draft;
    let places = usize::from(slots.unwrap_or(0)).saturating_add(partitions.len());
    if let Some((name, ..)) = partitions.first().filter(|_| places > usize::from(MAX_SLOTS)) {
        let what = format!("partitions and labels that run at once are {places} together");
        let remedy = format!("lower `slots` of [server]: have {MAX_SLOTS} of both");
        reader.problem(ProblemKind::TooLarge, &name.span, what, remedy);
    }
    for (name, ..) in partitions {
        let ends = channels.iter().flat_map(ReadChannel::ends).filter(|end| end.value == name.value);
        if ends.count() > MOST_ENDS {
            let what = format!("the partition `{}` has more than {MOST_ENDS} channels", name.value);
            reader.problem(ProblemKind::TooLarge, &name.span, what, "part it in two");
        }
    }
    let place = |name: &PartitionName| partitions.iter().position(|(known, ..)| known.value == *name);
    let mut steps = Vec::new();
    for read in channels {
        let ReadChannel { name, from, to, channel, .. } = read;
        unknown(reader, draft, read.ends());
        let at = |end: &ReadEnd| end.as_ref().and_then(|end| place(&end.value));
        let (Some(from), Some(to)) = (at(from), at(to)) else { continue };
        if from == to {
            let what = format!("the channel `{}` leads from a partition to itself", name.value);
            reader.problem(ProblemKind::BadValue, &name.span, what, "name two partitions");
            continue;
        }
        let up = partitions
            .get(to)
            .zip(partitions.get(from))
            .is_some_and(|(to, from)| to.1.value.dominates(&from.1.value));
        if channel.passage() == Passage::Guard && up {
            let what = format!("the guard `{}` is no exception: the lattice allows this flow", name.value);
            reader.problem(ProblemKind::BadValue, &name.span, what, "write `kind = \"oneway\"`");
        }
        filter(reader, draft, read, from);
        steps.push((name.value.as_str(), &name.span, Step { from, to, passage: channel.passage() }));
    }
    for ReadLink { name, ends, .. } in links {
        unknown(reader, draft, ends);
        let [Some(one), Some(other)] = ends.each_ref().map(|end| place(&end.value)) else { continue };
        let step = |from, to| (name.value.as_str(), &name.span, Step { from, to, passage: Passage::OneWay });
        // One whose ends differ in label is told of by itself.
        if one != other
            && partitions.get(one).map(|one| &one.1.value)
                == partitions.get(other).map(|other| &other.1.value)
        {
            steps.extend([step(one, other), step(other, one)]);
        }
    }
    let label = |name: &PartitionName| {
        partitions.iter().find(|(known, ..)| known.value == *name).map(|(_, label, _)| &label.value)
    };
    link::check(reader, links, label);
    let mut places: Vec<(&str, &Label)> =
        partitions.iter().map(|(name, label, _)| (name.value.as_str(), &label.value)).collect();
    of_networks(networks, &mut places, &mut steps);
    of_wires(channels, partitions.len(), &mut places, &mut steps);
    upward(partitions.len(), &places, &mut steps);
    forbidden(reader, &places, &steps, vocabulary);
}

/// Adds what partitions' networks are for the flow: at each label one place, a way into each of the partitions and out of it.
fn of_networks<'a>(
    networks: &'a [DraftNetwork],
    places: &mut Vec<(&'a str, &'a Label)>,
    steps: &mut Vec<Way<'a>>,
) {
    let partitions = places.len();
    for network in networks {
        let label = network.labels.value.low();
        let Some(owner) = &network.partition else { continue };
        let known = places
            .iter()
            .take(partitions)
            .position(|(name, at)| *name == owner.value.as_str() && network.domain.is_none() && *at == label);
        // One that is nobody's, or at another label, is told of by itself.
        let Some(inside) = known else { continue };
        let outside = places.iter().skip(partitions).position(|(_, at)| *at == label);
        let outside = outside.map_or(places.len(), |at| at + partitions);
        if outside == places.len() {
            places.push((NETWORK, label));
        }
        for (from, to) in [(inside, outside), (outside, inside)] {
            let step = Step { from, to, passage: Passage::OneWay };
            steps.push((network.interface.value.as_str(), &network.interface.span, step));
        }
    }
}

/// Adds what wires are for the flow: at each label one place outside, the same as a network's, and a way to or from it.
fn of_wires<'a>(
    channels: &'a [ReadChannel],
    partitions: usize,
    places: &mut Vec<(&'a str, &'a Label)>,
    steps: &mut Vec<Way<'a>>,
) {
    for read in channels {
        let Some(ReadWire { label, .. }) = &read.wire else { continue };
        let Some((here, sends)) = read.end() else { continue };
        let known = places.iter().take(partitions).position(|(name, _)| *name == here.value.as_str());
        // One that is nobody's is told of by itself.
        let Some(inside) = known else { continue };
        let outside = places.iter().skip(partitions).position(|(_, at)| **at == label.value);
        let outside = outside.map_or(places.len(), |at| at + partitions);
        if outside == places.len() {
            places.push((ANOTHER, &label.value));
        }
        let (from, to) = if sends { (inside, outside) } else { (outside, inside) };
        steps.push((read.name.value.as_str(), &label.span, Step { from, to, passage: Passage::OneWay }));
    }
}

/// Adds what the lattice lets be outside: from one place there to each that dominates it. levee itself carries documents so, from what hosts of
/// one network write to what hosts of another read (upflow), and of others it cannot say that they do not.
fn upward<'a>(partitions: usize, places: &[(&'a str, &'a Label)], steps: &mut Vec<Way<'a>>) {
    let outside = || places.iter().enumerate().skip(partitions);
    let mut more = Vec::new();
    for (from, (_, below)) in outside() {
        let touches = |(.., step): &&Way<'a>| step.from == from || step.to == from;
        let Some((_, span, _)) = steps.iter().find(touches) else { continue };
        for (to, _) in outside().filter(|(to, (_, above))| *to != from && above.dominates(below)) {
            more.push((flow::UPWARD, *span, Step { from, to, passage: Passage::OneWay }));
        }
    }
    steps.extend(more);
}

/// Tells of ends that are no partitions.
fn unknown<'a>(
    reader: &mut Reader<'_>,
    draft: &DraftParts,
    ends: impl IntoIterator<Item = &'a At<PartitionName>>,
) {
    let known = || draft.partitions.iter().map(|(known, ..)| known.value.as_str());
    for end in ends.into_iter().filter(|end| known().all(|name| name != end.value.as_str())) {
        let near = nearest(end.value.as_str(), known());
        let remedy = match &near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "declare it under [[partition]], or remove what leads there".to_owned(),
        };
        let what = format!("the site has no partition `{}`", end.value);
        reader.problem_near(ProblemKind::UnknownName, &end.span, what, near, remedy);
    }
}

/// A guard's filter is at the label of what it sees, and has to do with nothing else: so the guard is one step, and its label is what the
/// exception is for.
fn filter(reader: &mut Reader<'_>, draft: &DraftParts, read: &ReadChannel, from: usize) {
    let Some(ReadGuard { filter, .. }) = &read.guard else { return };
    let of = |end: &&At<PartitionName>| end.value == filter.value;
    let links = draft.links.iter().flat_map(|link| &link.ends);
    if draft.channels.iter().flat_map(ReadChannel::ends).chain(links).filter(of).count() > 1 {
        let what = format!("the filter `{}` has another channel or link", filter.value);
        let remedy = "give it a partition of its own: it has one guard's messages, and nothing else";
        reader.problem(ProblemKind::Overlap, &filter.span, what, remedy);
    }
    let label = |at: usize| draft.partitions.get(at).map(|(_, label, _)| &label.value);
    let at = draft.partitions.iter().position(|(name, ..)| name.value == filter.value);
    if at.is_some_and(|at| label(at) != label(from)) {
        let of = read.from.as_ref().map_or("", |from| from.value.as_str());
        let what = format!("the filter `{}` is not at the label of `{of}`", filter.value);
        reader.problem(ProblemKind::Flow, &filter.span, what, "give both partitions the same label");
    }
}

/// Tells the shortest way by which information gets where it must not.
fn forbidden(reader: &mut Reader<'_>, places: &[(&str, &Label)], steps: &[Way<'_>], vocabulary: &Vocabulary) {
    let labels: Vec<Label> = places.iter().map(|(_, label)| (*label).clone()).collect();
    let plain: Vec<Step> = steps.iter().map(|(_, _, step)| *step).collect();
    let Some(way) = flow::forbidden(&labels, &plain) else { return };
    let at = |place: usize| {
        let (name, label) = places.get(place)?;
        Some(format!("{name} ({})", vocabulary.text(label).unwrap_or_default()))
    };
    let way: Vec<_> = way.iter().filter_map(|number| steps.get(*number)).collect();
    let Some((_, last, Step { from, to, .. })) = way.last() else { return };
    let mut text = String::new();
    for (name, _, step) in &way {
        text.push_str(&format!("{} -[{name}]-> ", at(step.from).unwrap_or_default()));
    }
    text.push_str(&at(*to).unwrap_or_default());
    let what = format!("information gets where the lattice forbids it: {text}");
    let is_outside = |place: &usize| places.get(*place).is_some_and(|(name, _)| *name == ANOTHER);
    let remedy = if way.len() == 1 && (is_outside(from) || is_outside(to)) {
        "turn the channel round, or have its end here in a partition at the other host's label, and a guard between that and this one"
    } else if way.len() == 1 {
        "turn the channel round, or declare the exception with `kind = \"guard\"`"
    } else {
        "remove one of these channels, or declare the whole way as one guard"
    };
    reader.problem(ProblemKind::Flow, last, what, remedy);
}
