//! Frames: which groups of processes what keeps the frames (`daemons/frames`) has been given, and what it says of them.

use crate::process::Process;
use levee_ipc::warden::FramesState;
use levee_ipc::warden::frames::{Frame, FramesPart};
use levee_policy::site::Frames;
use levee_policy::{LabelName, Site};
use levee_sys::cgroup::Cgroup;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::os::fd::AsFd;
use std::time::Duration;

/// A group of processes, and whose it is.
pub struct Member<'a> {
    /// Its label, by which it runs in slots; or what has none, and runs at any time.
    pub at: &'a LabelName,
    /// What it is called.
    pub what: &'a dyn Display,
    /// The group.
    pub group: &'a Cgroup,
}

/// What has been given.
#[derive(Debug, Default)]
pub struct Framed {
    /// By the group's number, what it is called.
    given: BTreeMap<u64, String>,
    /// Groups that were stopped while nothing kept the frames.
    held: BTreeSet<u64>,
    state: FramesState,
    /// Of those before the process that keeps the frames now.
    killed: u64,
}

impl Framed {
    /// Another process keeps the frames, which has no group yet.
    pub fn begins_anew(&mut self) {
        self.killed = self.killed.saturating_add(std::mem::take(&mut self.state).killed);
        self.given.clear();
        self.held.clear();
    }

    /// Nothing keeps the frames: what runs by them stands still until something does. Else what ran when the last one ended would run on beside
    /// what the next one begins with, and what is new would run at any time.
    pub fn hold<'a>(&mut self, site: &Site, members: impl Iterator<Item = Member<'a>>) {
        for Member { at, group, .. } in members {
            if site.label(at).is_some_and(|label| !site.runs_apart(&label))
                && self.held.insert(group.number())
                && group.freeze().is_err()
            {
                // It can be killed, or is gone.
                let _ = group.kill();
            }
        }
    }

    /// Gives these groups to the process that keeps the frames, as far as it has not got them, and forgets all others. One that cannot be
    /// given, and so would run at any time, is killed.
    pub fn give<'a>(
        &mut self,
        process: &Process,
        (site, frames): (&Site, &Frames),
        members: impl Iterator<Item = Member<'a>>,
    ) {
        let mut before = std::mem::take(&mut self.given);
        for Member { at, what, group } in members {
            let number = group.number();
            // This is done in each turn of the warden's loop: what has been given costs no more than this.
            if let Some(name) = before.remove(&number) {
                self.given.insert(number, name);
                continue;
            }
            // What carries a channel or a guard is of no label, and runs at any time.
            let Some(label) = site.label(at) else { continue };
            // Nor does what has processors for itself alone.
            if site.runs_apart(&label) {
                continue;
            }
            let slots = frames.of(&label);
            // It stands still until it has been heard of where the frames are kept, which can be in the middle of a slot's end.
            let Ok(reins) = group.freeze().and_then(|()| group.reins()) else {
                // It can be killed, or is gone.
                let _ = group.kill();
                continue;
            };
            if !process.tell(FramesPart::Group { number, slots }, &reins.each_ref().map(AsFd::as_fd)) {
                return;
            }
            self.given.insert(number, what.to_string());
        }
    }

    /// What it said last.
    pub fn said(&mut self, state: FramesState) {
        self.state = state;
    }

    /// How it goes, with what went before.
    pub fn state(&self) -> FramesState {
        FramesState { killed: self.killed.saturating_add(self.state.killed), ..self.state.clone() }
    }

    /// What an operator must know.
    pub fn alarms(&self) -> impl Iterator<Item = String> {
        self.state.stuck.iter().map(|number| {
            // Of a label that has ended nothing else is known.
            let name = self.given.get(number).map_or("a label that has ended", String::as_str);
            format!("{name} does not stop or does not run as its slots of the frame say")
        })
    }
}

/// The frame as the process that keeps it is told.
pub fn frame(frames: &Frames) -> Frame {
    let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    Frame {
        slots: frames.slots().iter().map(|slot| micros(slot.time())).collect(),
        margin: micros(frames.margin()),
        stop: micros(frames.stop()),
        late: frames.late(),
    }
}

/// Refuses what would never run.
///
/// # Errors
/// The site has frames, and none of their slots is for this label, which has no processors for itself either.
pub fn has_slot(site: &Site, name: &LabelName) -> Result<(), crate::Fatal> {
    let label = site.label(name);
    let none = |frames: &Frames| {
        label.as_ref().is_none_or(|label| frames.of(label).is_empty() && !site.runs_apart(label))
    };
    if !site.frames().is_some_and(none) {
        return Ok(());
    }
    let why = "no slot of [frames] is for it: name it in one, or add one without `labels`";
    Err(crate::Fatal::new(format!("start {name}"), why))
}
