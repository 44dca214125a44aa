//! `[[partition]]` and `[[channel]]`: compartments that are always there, and the only ways between them.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::card;
use super::draft::DraftNetwork;
use super::guard::{self, Guard, ReadGuard};
use super::link::{self, ReadLink};
use super::problem::ProblemKind;
use super::read::{At, Keys, Reader};
use super::values::{PARTITION_NAME, command, label, quantity as read_quantity, unknown_word};
use super::wire::{self, ReadWire, Wire};
use super::{Limits, MAX_SLOTS, Needs, needs, quantity, reference, root};
use crate::flow::{self, Passage, Step};
use crate::label::{Label, Range};
use crate::names::{ChannelName, PartitionName, UserName};
use crate::vocabulary::{Vocabulary, nearest};

/// Partitions at most.
const MOST_PARTITIONS: usize = 64;
/// Channels at most.
const MOST_CHANNELS: usize = 64;
/// Channels that one partition has an end of, at most: each is a descriptor of its program.
const MOST_ENDS: usize = 16;

/// How often a partition that ends is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// So often within the time.
    pub times: u32,
    /// The time.
    pub within: Duration,
}

impl Default for Restart {
    fn default() -> Self {
        Self { times: 3, within: Duration::from_secs(60) }
    }
}

impl Restart {
    /// From `3 in 60s`.
    fn parse(text: &str) -> Option<Self> {
        let (times, within) = text.split_once(" in ")?;
        let (times, within) = (times.parse().ok()?, quantity::duration(within)?);
        let sound = times <= 100 && (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&within);
        sound.then_some(Self { times, within })
    }
}

/// A compartment that is there as long as the server runs, whether or not there are sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    name: PartitionName,
    label: Label,
    command: Vec<String>,
    root: Option<String>,
    memory: u64,
    reserved: u64,
    processes: u32,
    cpu_percent: u32,
    weight: u32,
    disk: u64,
    restart: Restart,
    needs: Needs,
    software: Vec<String>,
}

impl Partition {
    /// Its name, which is its host name, too.
    pub fn name(&self) -> &PartitionName {
        &self.name
    }

    /// The label of everything in it.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// Its program's absolute path and arguments: at least the former.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// Its root file system: the absolute path of a directory, or of an image (squashfs or EROFS); `None`: the host's programs.
    pub fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }

    /// Bytes of memory that it may have.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Bytes of memory that others' need does not take from it; no more than [`Partition::memory`].
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Processes and threads that it may have.
    pub fn processes(&self) -> u32 {
        self.processes
    }

    /// Processor time that it may have, in percent of one processor.
    pub fn cpu_percent(&self) -> u32 {
        self.cpu_percent
    }

    /// Its share of the processors while others want them, where a label's compartment has 100.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Bytes of its files.
    pub fn disk(&self) -> u64 {
        self.disk
    }

    /// How often it is started again.
    pub fn restart(&self) -> Restart {
        self.restart
    }

    /// Groups of system calls that it asks for.
    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    /// What of the host's software it needs beside the program itself: names of packages, and paths beneath `/usr`.
    pub fn software(&self) -> &[String] {
        &self.software
    }
}

/// A way from one partition to another; nothing comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    name: ChannelName,
    passage: Passage,
    from: Option<PartitionName>,
    to: Option<PartitionName>,
    wire: Option<Wire>,
    size: u32,
    rate: u64,
    numbered: bool,
    guard: Option<Guard>,
}

impl Channel {
    /// Its name.
    pub fn name(&self) -> &ChannelName {
        &self.name
    }

    /// Whether it is an exception to the lattice.
    pub fn passage(&self) -> Passage {
        self.passage
    }

    /// The partition that writes; `None` where it is on another host.
    pub fn from(&self) -> Option<&PartitionName> {
        self.from.as_ref()
    }

    /// The partition that reads; `None` where it is on another host.
    pub fn to(&self) -> Option<&PartitionName> {
        self.to.as_ref()
    }

    /// The network to the other host; `None` where both ends are here.
    pub fn wire(&self) -> Option<&Wire> {
        self.wire.as_ref()
    }

    /// Bytes that one message may have.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Bytes that it takes from the writer in a second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Whether the reader gets each message's number before it, so that it knows of those that are missing.
    pub fn is_numbered(&self) -> bool {
        self.numbered
    }

    /// What a guard has beside; `None` for a channel of another kind.
    pub fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }
}

/// A channel as read, with the places of its name and of its two ends.
pub(super) struct ReadChannel {
    pub name: At<ChannelName>,
    from: Option<At<PartitionName>>,
    to: Option<At<PartitionName>>,
    pub wire: Option<ReadWire>,
    guard: Option<ReadGuard>,
    channel: Channel,
}

impl ReadChannel {
    /// As it is known from now on.
    pub(super) fn into_channel(self) -> Channel {
        self.channel
    }

    /// Every partition that has an end.
    fn ends(&self) -> impl Iterator<Item = &At<PartitionName>> {
        let ends = [&self.from, &self.to].into_iter().flatten();
        ends.chain(self.guard.as_ref().map(|guard| &guard.filter))
    }

    /// Of one to or from another host, its end here, and whether that writes.
    pub(super) fn end(&self) -> Option<(&At<PartitionName>, bool)> {
        match (&self.from, &self.to) {
            (Some(from), None) => Some((from, true)),
            (None, Some(to)) => Some((to, false)),
            _ => None,
        }
    }
}

/// As read, with places.
pub(super) struct Draft {
    pub partitions: Vec<(At<PartitionName>, At<Label>, Partition)>,
    pub channels: Vec<ReadChannel>,
    pub links: Vec<ReadLink>,
}

impl Draft {
    /// The filters of all guards.
    pub(super) fn filters(&self) -> impl Iterator<Item = &PartitionName> {
        self.channels.iter().filter_map(|read| Some(&read.guard.as_ref()?.filter.value))
    }

    /// Each guard whose messages people release: who they are, and the label of what they are shown.
    pub(super) fn released(&self) -> impl Iterator<Item = (&[At<UserName>], &Label)> {
        self.channels.iter().filter_map(|read| {
            let releasers = &read.guard.as_ref()?.releasers;
            let from = self
                .partitions
                .iter()
                .find(|(name, ..)| read.from.as_ref().is_some_and(|from| name.value == from.value))?;
            (!releasers.is_empty()).then_some((releasers.as_slice(), &from.1.value))
        })
    }
}

/// Reads every `[[partition]]`, `[[channel]]` and `[[link]]`; `None` if one could not be read.
pub(super) fn read(
    reader: &mut Reader<'_>,
    root: &Keys<'_>,
    vocabulary: Option<&Vocabulary>,
    limits: Option<&Limits>,
) -> Option<Draft> {
    let limits = limits.copied().unwrap_or_default();
    let partitions = reader.tables(root.get("partition"), "[partition]", &reference::PARTITION.names());
    let partitions: Vec<_> =
        partitions.iter().map(|keys| partition(reader, vocabulary, &limits, keys)).collect();
    let channels = reader.tables(root.get("channel"), "[channel]", &reference::CHANNEL.names());
    let channels: Vec<_> = channels.iter().map(|keys| channel(reader, vocabulary, keys)).collect();
    let links = reader.tables(root.get("link"), "[link]", &reference::LINK.names());
    let links: Vec<_> = links.iter().map(|keys| link::read(reader, keys)).collect();
    for (count, most, value, what) in [
        (partitions.len(), MOST_PARTITIONS, root.get("partition"), "partitions"),
        (channels.len(), MOST_CHANNELS, root.get("channel"), "channels"),
        (links.len(), link::MOST, root.get("link"), "links"),
    ] {
        if let Some(value) = value.filter(|_| count > most) {
            let told = format!("there are {count} {what}");
            reader.problem(ProblemKind::TooLarge, &value.span(), told, format!("have {most} at most"));
        }
    }
    let partitions = partitions.into_iter().collect::<Option<_>>()?;
    let (channels, links): (Option<_>, Option<_>) =
        (channels.into_iter().collect(), links.into_iter().collect());
    Some(Draft { partitions, channels: channels?, links: links? })
}

fn partition(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    limits: &Limits,
    keys: &Keys<'_>,
) -> Option<(At<PartitionName>, At<Label>, Partition)> {
    let name = (reader.need(keys, "name", "\"sensor\""))
        .and_then(|value| reader.parsed::<PartitionName>(value, "partition name", PARTITION_NAME));
    let label = label(reader, vocabulary, keys);
    let command =
        (reader.need(keys, "command", "[\"/path/to/program\"]")).and_then(|value| command(reader, value));
    let mut size = |key, least: u64, default| match keys.get(key) {
        Some(value) => bytes(reader, value, key, least),
        None => Some(default),
    };
    let memory = size("memory", 16 << 20, limits.memory);
    let reserved = size("reserved", 1 << 20, 0);
    let disk = size("disk", 4 << 20, limits.store);
    let processes = match keys.get("processes") {
        Some(value) => reader.integer(value, "processes", 8..=32_768),
        None => Some(limits.processes.into()),
    };
    let cpu = match keys.get("cpu") {
        Some(value) => {
            let form = "a share of one processor from \"1%\" to \"102400%\"";
            read_quantity(reader, value, "cpu", quantity::percent, 1..=102_400, form)
        }
        None => Some(limits.cpu_percent.into()),
    };
    let weight = match keys.get("weight") {
        Some(value) => reader.integer(value, "weight", 1..=10_000),
        None => Some(100),
    };
    let restart = match keys.get("restart") {
        Some(value) => restart(reader, value),
        None => Some(Restart::default()),
    };
    let needs = needs::needs(reader, keys);
    let software = needs::software(reader, keys);
    let root = root::root(reader, keys);
    let (name, label, reserved, memory) = (name?, label?, reserved?, memory?);
    if reserved > memory {
        let what = format!("`{}` has more memory reserved than it may use", name.value);
        reader.problem(ProblemKind::TooLarge, &name.span, what, "lower `reserved`, or raise `memory`");
    }
    let partition = Partition {
        name: name.value.clone(),
        label: label.value.clone(),
        command: command?,
        root: root?,
        memory,
        reserved,
        processes: u32::try_from(processes?).ok()?,
        cpu_percent: u32::try_from(cpu?).ok()?,
        weight: u32::try_from(weight?).ok()?,
        disk: disk?,
        restart: restart?,
        needs: needs?,
        software: software?,
    };
    Some((name, label, partition))
}

fn bytes(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, key: &str, least: u64) -> Option<u64> {
    let form = format!("a size from \"{}M\" to \"1T\"", least >> 20);
    read_quantity(reader, value, key, quantity::size, least..=1 << 40, &form)
}

fn restart(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Option<Restart> {
    let text = reader.string(value, "restart")?;
    let restart = Restart::parse(text.value);
    if restart.is_none() {
        let what = format!("`{}` is not a rule for starting again", text.value);
        let remedy = "write how often in what time, such as \"3 in 60s\": 0 to 100 times in 1s to 1h";
        reader.problem(ProblemKind::BadValue, &text.span, what, remedy);
    }
    restart
}

fn channel(reader: &mut Reader<'_>, vocabulary: Option<&Vocabulary>, keys: &Keys<'_>) -> Option<ReadChannel> {
    const KINDS: [(&str, Passage); 2] = [("oneway", Passage::OneWay), ("guard", Passage::Guard)];
    let name = (reader.need(keys, "name", "\"readings\""))
        .and_then(|value| reader.parsed::<ChannelName>(value, "channel name", PARTITION_NAME));
    let passage = reader.need(keys, "kind", "\"oneway\"").and_then(|value| {
        let word = reader.string(value, "kind")?;
        let kind = KINDS.iter().find(|(kind, _)| *kind == word.value).map(|(_, passage)| *passage);
        if kind.is_none() {
            unknown_word(reader, &word, "kind of channel", KINDS.iter().map(|(kind, _)| *kind));
        }
        kind
    });
    let (from, to) = ends(reader, keys, passage)?;
    let wire = wire::read(reader, vocabulary, keys, from.is_some())?;
    let size = match keys.get("size") {
        _ if passage == Some(Passage::Guard) => guard::size(reader, keys),
        Some(value) => {
            let form = "a size from \"1K\" to \"64K\"";
            read_quantity(reader, value, "size", quantity::size, 1 << 10..=64 << 10, form)
        }
        None => Some(64 << 10),
    };
    let rate = match keys.get("rate") {
        Some(value) => {
            let form = "bytes a second from \"1K\" to \"1G\"";
            read_quantity(reader, value, "rate", quantity::size, 1 << 10..=1 << 30, form)
        }
        None => Some(1 << 20),
    };
    let numbered = match keys.get("numbered") {
        Some(value) => reader.boolean(value, "numbered"),
        None => Some(false),
    };
    let guard = match passage? {
        Passage::Guard => Some(guard::guard(reader, keys, size)?),
        Passage::OneWay => {
            guard::refuse(reader, keys)?;
            None
        }
    };
    let name = name?;
    let of = |end: &Option<At<PartitionName>>| end.as_ref().map(|end| end.value.clone());
    let channel = Channel {
        name: name.value.clone(),
        passage: passage?,
        from: of(&from),
        to: of(&to),
        wire: wire.as_ref().map(|read| read.wire.clone()),
        size: u32::try_from(size?).ok()?,
        rate: rate?,
        numbered: numbered?,
        guard: guard.as_ref().map(|read| read.guard.clone()),
    };
    Some(ReadChannel { name, from, to, wire, guard, channel })
}

/// An end of a channel that is here, if it is.
type ReadEnd = Option<At<PartitionName>>;

/// Both ends, or the one that is not on another host.
fn ends(reader: &mut Reader<'_>, keys: &Keys<'_>, passage: Option<Passage>) -> Option<(ReadEnd, ReadEnd)> {
    let end = |reader: &mut Reader<'_>, key| {
        let value = reader.need(keys, key, "\"sensor\"")?;
        reader.parsed::<PartitionName>(value, "partition name", PARTITION_NAME)
    };
    let Some(wire) = keys.get("wire") else {
        let (from, to) = (end(reader, "from"), end(reader, "to"));
        return Some((Some(from?), Some(to?)));
    };
    if passage == Some(Passage::Guard) {
        let what = "a guard has both ends and its filter here";
        let remedy = "remove `wire`, and let a one-way channel lead on to the other host";
        reader.problem(ProblemKind::BadValue, &wire.span(), what, remedy);
        return None;
    }
    match (keys.get("from"), keys.get("to")) {
        (Some(_), Some(to)) => {
            let what = "both ends are here, and there is a wire to another host";
            let remedy = "remove `wire`, or the end that is on the other host";
            reader.problem(ProblemKind::BadValue, &to.span(), what, remedy);
            None
        }
        (Some(_), None) => {
            if let Some(numbered) = keys.get("numbered") {
                let what = "the numbers of messages are for who reads them, on the other host";
                let remedy = "write `numbered` in that host's site file";
                reader.problem(ProblemKind::BadValue, &numbered.span(), what, remedy);
            }
            Some((Some(end(reader, "from")?), None))
        }
        (None, Some(_)) => Some((None, Some(end(reader, "to")?))),
        (None, None) => end(reader, "from").and(None),
    }
}

/// A partition has the host's kernel.
pub(super) fn outside(reader: &mut Reader<'_>, draft: &Draft, own_kernel: &[At<Range>]) {
    let within = |label: &Label| own_kernel.iter().any(|range| range.value.contains(label));
    for (name, label, _) in draft.partitions.iter().filter(|(_, label, _)| within(&label.value)) {
        let what = format!("the partition `{}` is at a label with a kernel of its own", name.value);
        let remedy = "leave its label out of `own-kernel`: a partition has the host's kernel";
        reader.problem(ProblemKind::Overlap, &label.span, what, remedy);
    }
}

/// Holds partitions and channels against each other, and the flow by all channels together against the lattice.
pub(super) fn check(
    reader: &mut Reader<'_>,
    draft: &Draft,
    networks: &[DraftNetwork],
    slots: Option<u16>,
    vocabulary: &Vocabulary,
) {
    let Draft { partitions, channels, links } = draft;
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
        if channel.passage == Passage::Guard && up {
            let what = format!("the guard `{}` is no exception: the lattice allows this flow", name.value);
            reader.problem(ProblemKind::BadValue, &name.span, what, "write `kind = \"oneway\"`");
        }
        filter(reader, draft, read, from);
        steps.push((name.value.as_str(), &name.span, Step { from, to, passage: channel.passage }));
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
    card::steps(networks, &mut places, &mut steps);
    wire::steps(channels, partitions.len(), &mut places, &mut steps);
    upward(partitions.len(), &places, &mut steps);
    forbidden(reader, &places, &steps, vocabulary);
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
    draft: &Draft,
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
fn filter(reader: &mut Reader<'_>, draft: &Draft, read: &ReadChannel, from: usize) {
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

/// A step of information from one place to another: what it is called, where the file says so, and between which places.
pub(super) type Way<'a> = (&'a str, &'a std::ops::Range<usize>, Step);

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
    let is_outside = |place: &usize| places.get(*place).is_some_and(|(name, _)| *name == wire::OUTSIDE);
    let remedy = if way.len() == 1 && (is_outside(from) || is_outside(to)) {
        "turn the channel round, or have its end here in a partition at the other host's label, and a guard between that and this one"
    } else if way.len() == 1 {
        "turn the channel round, or declare the exception with `kind = \"guard\"`"
    } else {
        "remove one of these channels, or declare the whole way as one guard"
    };
    reader.problem(ProblemKind::Flow, last, what, remedy);
}
