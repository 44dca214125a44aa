//! `[[partition]]` and `[[channel]]`: compartments that are always there, and the only ways between them.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::guard::{self, Guard, ReadGuard};
use super::link::{self, ReadLink};
use super::problem::ProblemKind;
use super::read::{At, Reader, Table};
use super::values::{PARTITION_NAME, command, label, quantity as read_quantity, unknown_word};
use super::wire::{self, ReadWire, Wire};
use super::{Limits, Needs, needs, quantity, reference, root};
use crate::flow::Passage;
use crate::label::{Label, Range};
use crate::names::{ChannelName, PartitionName, UserName};
use crate::vocabulary::Vocabulary;

/// Partitions at most.
const MOST_PARTITIONS: usize = 64;
/// Channels at most.
const MOST_CHANNELS: usize = 64;

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
    pub from: ReadEnd,
    pub to: ReadEnd,
    pub wire: Option<ReadWire>,
    pub guard: Option<ReadGuard>,
    pub channel: Channel,
}

impl ReadChannel {
    /// As it is known from now on.
    pub(super) fn into_channel(self) -> Channel {
        self.channel
    }

    /// Every partition that has an end.
    pub(super) fn ends(&self) -> impl Iterator<Item = &At<PartitionName>> {
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
pub(super) struct DraftParts {
    pub partitions: Vec<(At<PartitionName>, At<Label>, Partition)>,
    pub channels: Vec<ReadChannel>,
    pub links: Vec<ReadLink>,
}

impl DraftParts {
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
    root: &Table<'_>,
    vocabulary: Option<&Vocabulary>,
    limits: Option<&Limits>,
) -> Option<DraftParts> {
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
    Some(DraftParts { partitions, channels: channels?, links: links? })
}

fn partition(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    limits: &Limits,
    keys: &Table<'_>,
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

fn channel(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    keys: &Table<'_>,
) -> Option<ReadChannel> {
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
pub(super) type ReadEnd = Option<At<PartitionName>>;

/// Both ends, or the one that is not on another host.
fn ends(reader: &mut Reader<'_>, keys: &Table<'_>, passage: Option<Passage>) -> Option<(ReadEnd, ReadEnd)> {
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
pub(super) fn outside(reader: &mut Reader<'_>, draft: &DraftParts, own_kernel: &[At<Range>]) {
    let within = |label: &Label| own_kernel.iter().any(|range| range.value.contains(label));
    for (name, label, _) in draft.partitions.iter().filter(|(_, label, _)| within(&label.value)) {
        let what = format!("the partition `{}` is at a label with a kernel of its own", name.value);
        let remedy = "leave its label out of `own-kernel`: a partition has the host's kernel";
        reader.problem(ProblemKind::Overlap, &label.span, what, remedy);
    }
}
