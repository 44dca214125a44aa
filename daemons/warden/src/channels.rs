//! One-way channels between partitions. Each is a process of its own that reads one socket and writes another: the ends of the partitions are made
//! anew whenever a partition's program starts, and the process is given the other ends, of which the wrong half is shut.

use crate::logs::Logs;
use crate::options::Options;
use crate::process::{Key, Process, Start};
use crate::uids::{Own, Uids};
use crate::{Fatal, log};
use levee_ipc::warden::Role;
use levee_ipc::warden::channel::{ChannelPart, Shape};
use levee_policy::flow::Passage;
use levee_policy::site;
use levee_policy::{LabelName, PartitionName, Site};
use levee_sys::ns::in_net;
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a writer can have written that was not taken yet, at most; and a reader not read.
const QUEUES: std::ops::RangeInclusive<u64> = 256 << 10..=16 << 20;
/// Turns that a queue has room for. A turn is 10 ms.
const TURNS_A_SECOND: u64 = 100;
const TURNS: u64 = 4;

/// A channel of the site.
#[derive(Debug)]
pub struct Way {
    asked: site::Channel,
    name: LabelName,
    place: u16,
    /// Whether its process has been started once.
    begun: bool,
    /// The other ends of those that the partitions have.
    below: Option<OwnedFd>,
    above: Option<OwnedFd>,
    /// Whether the process has not been given these yet.
    fresh: (bool, bool),
    counted: Vec<(String, u64)>,
}

impl Way {
    /// All of a site's.
    ///
    /// # Errors
    /// The site has a guard.
    pub fn all(site: &Site) -> Result<Vec<Self>, Fatal> {
        let one = |(asked, place): (&site::Channel, u16)| {
            let step = || format!("start the channel {}", asked.name());
            if asked.passage() == Passage::Guard {
                return Err(Fatal::new(step(), "this version checks guards and runs none"));
            }
            // No label's name has one slash.
            let name =
                LabelName::new(&format!("channel/{}", asked.name())).map_err(|e| Fatal::new(step(), e))?;
            let (below, above, counted) = (None, None, Vec::new());
            Ok(Self {
                asked: asked.clone(),
                name,
                place,
                begun: false,
                below,
                above,
                fresh: (false, false),
                counted,
            })
        };
        site.channels().iter().zip(0..).map(one).collect()
    }

    /// Its process.
    pub fn key(&self) -> Key {
        Key::at(Role::Channel, &self.name)
    }

    /// Whether its process is to be started for the first time.
    pub fn is_new(&self) -> bool {
        !self.begun
    }

    /// Its process, which has all ends still to be given.
    ///
    /// # Errors
    /// The step that failed.
    pub fn start(&mut self, options: &Options, uids: &Uids, logs: &Logs) -> Result<Process, Fatal> {
        self.begun = true;
        let fault =
            |e: &dyn std::fmt::Display| Fatal::new(format!("start the channel {}", self.asked.name()), e);
        let start = Start::new(self.key(), uids.own(Own::Channel(self.place)), options, logs);
        let started = Process::start_as::<ChannelPart>(start).map_err(|e| fault(&e))?;
        let asked = &self.asked;
        let shape = Shape { size: asked.size(), rate: asked.rate(), numbered: asked.is_numbered() };
        started.to().give(ChannelPart::Shape(shape), &[]).map_err(|e| fault(&e))?;
        self.fresh = (self.below.is_some(), self.above.is_some());
        Ok(started.into_process())
    }

    /// Gives its process, which is at work, the ends that it has not got yet.
    pub fn attach(&mut self, process: &Process) {
        for (part, end, fresh) in [
            (ChannelPart::Below, &self.below, &mut self.fresh.0),
            (ChannelPart::Above, &self.above, &mut self.fresh.1),
        ] {
            if let Some(end) = end.as_ref().filter(|_| *fresh) {
                *fresh = false;
                if let Err(e) = process.tell_as(part, &[end.as_fd()]) {
                    log!("{}: {e}: killing it", process.key);
                    process.kill();
                }
            }
        }
    }

    /// Has it say what it has carried.
    pub fn ask(process: &Process) {
        if process.tell_as(ChannelPart::Report, &[]).is_err() {
            process.kill();
        }
    }

    /// What it has carried, as it said last.
    pub fn counted(&mut self, counted: Vec<(String, u64)>) {
        self.counted = counted.into_iter().take(16).collect();
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
        network: BorrowedFd<'_>,
    ) -> Result<Option<OwnedFd>, levee_sys::Error> {
        let writes = self.asked.from() == partition;
        if !writes && self.asked.to() != partition {
            return Ok(None);
        }
        let fault = |e: rustix::io::Errno| levee_sys::Error::new("make the end of a channel", e);
        let flags = SocketFlags::CLOEXEC;
        let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (theirs, ours) = in_net(network, pair)?.map_err(fault)?;
        let turns = self.asked.rate() / TURNS_A_SECOND * TURNS;
        let queue = turns.clamp(*QUEUES.start(), *QUEUES.end());
        let queue = usize::try_from(queue).unwrap_or(usize::MAX);
        let (writer, half) = if writes { (&theirs, Shutdown::Write) } else { (&ours, Shutdown::Read) };
        set_socket_send_buffer_size_force(writer, queue).map_err(fault)?;
        shutdown(&ours, half).map_err(fault)?;
        if writes {
            (self.below, self.fresh.0) = (Some(ours), true);
        } else {
            (self.above, self.fresh.1) = (Some(ours), true);
        }
        Ok(Some(theirs))
    }
}

/// The ends of a partition's program that starts in this network, in the site file's order, each with its channel's name.
///
/// # Errors
/// The kernel's.
pub fn ends(
    ways: &mut [Way],
    partition: &PartitionName,
    network: BorrowedFd<'_>,
) -> Result<Vec<(String, OwnedFd)>, levee_sys::Error> {
    let mut ends = Vec::new();
    for way in ways {
        let name = way.asked.name().to_string();
        ends.extend(way.end(partition, network)?.map(|end| (name, end)));
    }
    Ok(ends)
}
