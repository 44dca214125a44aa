//! One-way channels between partitions, and guards. Each is a process of its own that reads one socket and writes another: the ends of the partitions are made
//! anew whenever a partition's program starts, and the process is given the other ends, of which the wrong half is shut.

use crate::compartment::Network;
use crate::edges::{self, CHANNEL, GUARD};
use crate::key::Key;
use crate::logs::Logs;
use crate::networks::Networks;
use crate::options::Options;
use crate::process::{Process, Start};
use crate::uids::Uids;
use crate::wires;
use crate::{Fatal, state};
use levee_ipc::warden::Role;
use levee_ipc::warden::channel::{ChannelPart, Shape};
use levee_ipc::warden::guard::{Bounds, GuardPart};
use levee_policy::site;
use levee_policy::{LabelName, PartitionName, Site};
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use std::os::fd::{AsFd, OwnedFd};

/// What a writer can have written that was not taken yet, at most; and a reader not read.
const QUEUES: std::ops::RangeInclusive<u64> = 256 << 10..=16 << 20;
/// Turns that a queue has room for. A turn is 10 ms.
const TURNS_A_SECOND: u64 = 100;
const TURNS: u64 = 4;

/// Which end: the writer's, the reader's; behind them that of a guard's filter.
const BELOW: usize = 0;
const ABOVE: usize = 1;

/// A channel of the site.
#[derive(Debug)]
pub struct Way {
    asked: site::Channel,
    name: LabelName,
    place: u16,
    /// Whether its process has been started once.
    begun: bool,
    ends: [End; 3],
    /// How often a filter has been given its end.
    filters: u64,
    counted: Vec<(String, u64)>,
}

/// The other end of one that a partition has.
#[derive(Debug, Default)]
struct End {
    kept: Option<OwnedFd>,
    /// The process has not been given it yet.
    fresh: bool,
    /// Nothing runs any more of the partition that had it.
    over: bool,
}

impl Way {
    /// What carries one.
    pub const ROLES: [Role; 2] = [Role::Channel, Role::Guard];

    /// All of a site's.
    ///
    /// # Errors
    /// One cannot be named, which of a site that has been read is not so.
    pub fn all(site: &Site) -> Result<Vec<Self>, Fatal> {
        let one = |(asked, place): (&site::Channel, u16)| {
            let kind = if asked.guard().is_some() { GUARD } else { CHANNEL };
            let name = edges::name(kind, asked.name());
            let name = name.map_err(|e| Fatal::new(format!("start the channel {}", asked.name()), e))?;
            let (asked, counted) = (asked.clone(), Vec::new());
            let ends = std::array::from_fn(|_| End::default());
            Ok(Self { asked, name, place, begun: false, ends, filters: 0, counted })
        };
        site.channels().iter().zip(0..).map(one).collect()
    }

    /// How often a guard's filter has been started, which is the number of its end.
    pub fn filters(&self) -> u64 {
        self.filters
    }

    /// The partition that filters, of a guard.
    pub fn filter(&self) -> Option<&PartitionName> {
        self.asked.guard().map(site::Guard::filter)
    }

    /// Its process.
    pub fn key(&self) -> Key {
        Key::at(if self.asked.guard().is_some() { Role::Guard } else { Role::Channel }, &self.name)
    }

    /// Whether its process is to be started for the first time.
    pub fn is_new(&self) -> bool {
        !self.begun
    }

    /// Its process, which has all ends still to be given.
    ///
    /// # Errors
    /// The step that failed.
    pub fn start(
        &mut self,
        options: &Options,
        uids: &Uids,
        logs: &Logs,
        networks: &Networks,
    ) -> Result<Process, Fatal> {
        self.begun = true;
        let fault =
            |e: &dyn std::fmt::Display| Fatal::new(format!("start the channel {}", self.asked.name()), e);
        let start = Start::new(self.key(), self.place, uids, options, logs);
        let asked = &self.asked;
        let shape = Shape { size: asked.size(), rate: asked.rate(), numbered: asked.is_numbered() };
        let process = match asked.guard() {
            None => {
                let started = Process::start_as::<ChannelPart>(start).map_err(|e| fault(&e))?;
                started.give_with(ChannelPart::Shape(shape), &[]).map_err(|e| fault(&e))?;
                if let Some(wire) = wires::told(asked) {
                    let none = || fault(&"it has no wire");
                    let keys = state::channel_keys(&options.state, asked.name());
                    let (key, next) = keys.map_err(|e| fault(&e))?;
                    let heard = (!wire.sends).then(|| state::channel_heard(&options.state, asked.name()));
                    let heard = heard.transpose().map_err(|e| fault(&e))?;
                    let two = [networks.socket(asked.name()).ok_or_else(none)?, key.as_fd()];
                    let with: Vec<_> = two.into_iter().chain(heard.iter().map(AsFd::as_fd)).collect();
                    started.give_with(ChannelPart::Wire(wire), &with).map_err(|e| fault(&e))?;
                    if let Some(next) = next {
                        started.give_with(ChannelPart::Next, &[next.as_fd()]).map_err(|e| fault(&e))?;
                    }
                }
                started.into_process()
            }
            Some(guard) => {
                let started = Process::start_as::<GuardPart>(start).map_err(|e| fault(&e))?;
                started.give_with(GuardPart::Bounds(bounds(shape, guard)), &[]).map_err(|e| fault(&e))?;
                started.into_process()
            }
        };
        self.ends.iter_mut().for_each(|end| end.fresh = end.kept.is_some());
        Ok(process)
    }

    /// Gives its process, which is at work, the ends that it has not got yet.
    pub fn attach(&mut self, process: &Process) {
        let is_guard = self.asked.guard().is_some();
        // The writer's last: what is taken before there is a reader is dropped.
        for (at, End { kept, fresh, over }) in self.ends.iter_mut().enumerate().rev() {
            let Some(end) = kept.as_ref().filter(|_| std::mem::take(fresh)) else { continue };
            match (is_guard, at) {
                (false, BELOW) => process.tell(ChannelPart::Below, &[end.as_fd()]),
                (false, _) => process.tell(ChannelPart::Above, &[end.as_fd()]),
                (true, BELOW) => process.tell(GuardPart::Below, &[end.as_fd()]),
                (true, ABOVE) => process.tell(GuardPart::Above, &[end.as_fd()]),
                (true, _) => process.tell(GuardPart::Filter(self.filters), &[end.as_fd()]),
            };
            if *over {
                *kept = None;
            }
        }
    }

    /// Nothing of this partition runs any more. Whatever it has sent through its end, that end among it, is to live no longer than it: so
    /// the process is told of the end by the socket itself, and takes what is left; the warden keeps nothing that would hold the rest.
    pub fn over(&mut self, partition: &PartitionName) {
        let Some(at) = self.place_of(partition) else { return };
        let Some(End { kept, fresh, over }) = self.ends.get_mut(at) else { return };
        let Some(end) = kept.as_ref().filter(|_| !std::mem::replace(over, true)) else { return };
        // Where that fails nobody has the other end.
        let _ = shutdown(end, Shutdown::Both);
        // A process that is yet to be started is given it first.
        if !*fresh {
            *kept = None;
        }
    }

    /// Which of the ends a partition has.
    fn place_of(&self, partition: &PartitionName) -> Option<usize> {
        [self.asked.from(), self.asked.to(), self.filter()].iter().position(|end| *end == Some(partition))
    }

    /// Gives its process, where that runs, the keys that there are now; `None` where both ends are here.
    ///
    /// # Errors
    /// What they are, and why they cannot be read: it goes on with those that it has.
    pub fn rekey(
        &self,
        process: Option<&Process>,
        options: &Options,
    ) -> Option<Result<(), (String, String)>> {
        self.asked.wire()?;
        let told = |process: &Process| -> std::io::Result<()> {
            let (key, next) = state::channel_keys(&options.state, self.asked.name())?;
            let with: Vec<_> = std::iter::once(&key).chain(&next).map(AsFd::as_fd).collect();
            process.tell(ChannelPart::Keys { next: next.is_some() }, &with);
            Ok(())
        };
        let object = || format!("key of the channel {}", self.asked.name());
        let fault = |e: std::io::Error| (object(), format!("it goes on with what it has: {e}"));
        // One that does not run has them when it is started.
        Some(process.map_or(Ok(()), told).map_err(fault))
    }

    /// Has it say what it has carried.
    pub fn ask(process: &Process) {
        match process.key.role {
            Role::Guard => process.tell(GuardPart::Report, &[]),
            _ => process.tell(ChannelPart::Report, &[]),
        };
    }

    /// What it has carried, as it said last.
    pub fn counted(&mut self, counted: Vec<(String, u64)>) {
        self.counted = counted;
    }

    /// What it has carried, for operators.
    pub fn counters(&self) -> impl Iterator<Item = (String, u64)> {
        let name = |what: &str| format!("channel {}: {what}", self.asked.name());
        self.counted.iter().map(move |(what, count)| (name(what), *count))
    }

    /// A new end for a partition's program, if it has one here. It is of the partition's own network: a Unix socket has the names, and the
    /// interfaces, of the network in which it was made (unix(7)), and another partition's would be of the same.
    fn end(
        &mut self,
        partition: &PartitionName,
        network: &Network,
    ) -> Result<Option<OwnedFd>, levee_sys::Error> {
        let Some(at) = self.place_of(partition) else { return Ok(None) };
        let fault = |e: rustix::io::Errno| levee_sys::Error::new("make the end of a channel", e);
        let flags = SocketFlags::CLOEXEC;
        let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (theirs, ours) = network.make(pair)?.map_err(fault)?;
        let turns = self.asked.rate() / TURNS_A_SECOND * TURNS;
        let queue = turns.clamp(*QUEUES.start(), *QUEUES.end());
        let queue = usize::try_from(queue).unwrap_or(usize::MAX);
        set_socket_send_buffer_size_force(if at == BELOW { &theirs } else { &ours }, queue).map_err(fault)?;
        // A filter answers where it is asked.
        match at {
            BELOW => shutdown(&ours, Shutdown::Write).map_err(fault)?,
            ABOVE => shutdown(&ours, Shutdown::Read).map_err(fault)?,
            _ => self.filters = self.filters.wrapping_add(1),
        }
        if let Some(end) = self.ends.get_mut(at) {
            *end = End { kept: Some(ours), fresh: true, over: false };
        }
        Ok(Some(theirs))
    }
}

/// What a guard is told of its bounds.
fn bounds(shape: Shape, guard: &site::Guard) -> Bounds {
    Bounds {
        shape,
        messages: guard.messages(),
        octets: guard.octets(),
        answer: guard.answer(),
        hours: guard.hours(),
        schema: guard.schema().map(str::to_owned),
        release: guard.release().map(site::Releasers::within),
    }
}

/// The ends of a partition's program that starts in this network, in the site file's order, each with its channel's name.
///
/// # Errors
/// The kernel's.
pub fn ends(
    ways: &mut [Way],
    partition: &PartitionName,
    network: &Network,
) -> Result<Vec<(String, OwnedFd)>, levee_sys::Error> {
    let mut ends = Vec::new();
    for way in ways {
        let name = way.asked.name().to_string();
        ends.extend(way.end(partition, network)?.map(|end| (name, end)));
    }
    Ok(ends)
}
