//! The warden ↔ the two stages of upflow.

use super::{Part, Peer, Role};
use levee_policy::LabelName;
use serde::{Deserialize, Serialize};

/// What upflow's first stage is given and told.
#[derive(Debug, Serialize, Deserialize)]
pub enum SnapshotPart {
    /// The root of its label's store, to be read.
    Store(LabelName),
    /// The directory for its label's snapshot, and the number that it advances with every change (`levee_sys::generation`).
    Snapshot(LabelName),
    /// Of a label that has a kernel of its own, the stream that documents go out by: within, in the place of the snapshot; outside, in
    /// the place of the store.
    Documents(LabelName),
    /// Say what has been copied.
    Report,
}

impl Part for SnapshotPart {
    const ROLES: &[Role] = &[Role::Snapshot];
    type Says = UpflowCounters;

    fn channel(_: &Peer) -> Option<Self> {
        None
    }

    fn descriptors(&self) -> usize {
        match self {
            Self::Store(_) | Self::Documents(_) => 1,
            Self::Snapshot(_) => 2,
            Self::Report => 0,
        }
    }

    fn is_late(&self) -> bool {
        matches!(self, Self::Report)
    }
}

/// What upflow's second stage is given and told.
#[derive(Debug, Serialize, Deserialize)]
pub enum CopyPart {
    /// Directories with the snapshots of these labels, to be read: two descriptors for each, the second of the number that changes with it.
    Snapshots(Vec<LabelName>),
    /// The root of the reading label's copies, one directory for each label.
    Copies,
    /// Of a label that has a kernel of its own, the stream that documents come in by: outside, in the place of the copies; within, in the
    /// place of the snapshots.
    Documents(LabelName),
    /// Say what has been copied.
    Report,
}

impl Part for CopyPart {
    const ROLES: &[Role] = &[Role::Copy];
    type Says = UpflowCounters;

    fn channel(_: &Peer) -> Option<Self> {
        None
    }

    fn descriptors(&self) -> usize {
        match self {
            Self::Snapshots(labels) => 2 * labels.len(),
            Self::Copies | Self::Documents(_) => 1,
            Self::Report => 0,
        }
    }

    fn is_late(&self) -> bool {
        matches!(self, Self::Report)
    }
}

/// What upflow has copied, of all its labels, and what it left behind and why. Totals count since the process's start; all others are
/// of the last pass, so that a file that stays behind counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpflowCounters {
    /// Passes over the source (total).
    pub passes: u64,
    /// Files and directories that were copied, again or anew (total).
    pub copied: u64,
    /// Files and directories that were removed (total).
    pub removed: u64,
    /// Files there are.
    pub files: u64,
    /// Directories there are.
    pub directories: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files that a lease kept from being read; an older copy stays.
    pub leased: u64,
    /// Files that changed while they were read; an older copy stays.
    pub changing: u64,
    /// Links, FIFOs, sockets, devices.
    pub special: u64,
    /// Files and directories that may not be read.
    pub unreadable: u64,
    /// Files and directories beyond the limit on their number, as far as they were seen.
    pub excess_entries: u64,
    /// Files beyond the limit on their size together.
    pub excess_bytes: u64,
    /// Directories beneath too many others.
    pub too_deep: u64,
    /// Errors of source or destination.
    pub failed: u64,
}

impl UpflowCounters {
    /// What was left behind, and why; what is 0 is left out.
    pub fn left_behind(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("leased", self.leased),
            ("changing", self.changing),
            ("neither file nor directory", self.special),
            ("unreadable", self.unreadable),
            ("too many", self.excess_entries),
            ("too large", self.excess_bytes),
            ("too deep", self.too_deep),
            ("failed", self.failed),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }

    /// Files and directories.
    pub fn entries(&self) -> u64 {
        self.files.saturating_add(self.directories)
    }
}

/// Of all labels that a stage serves.
impl std::iter::Sum for UpflowCounters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            passes: sum.passes.saturating_add(one.passes),
            copied: sum.copied.saturating_add(one.copied),
            removed: sum.removed.saturating_add(one.removed),
            files: sum.files.saturating_add(one.files),
            directories: sum.directories.saturating_add(one.directories),
            bytes: sum.bytes.saturating_add(one.bytes),
            leased: sum.leased.saturating_add(one.leased),
            changing: sum.changing.saturating_add(one.changing),
            special: sum.special.saturating_add(one.special),
            unreadable: sum.unreadable.saturating_add(one.unreadable),
            excess_entries: sum.excess_entries.saturating_add(one.excess_entries),
            excess_bytes: sum.excess_bytes.saturating_add(one.excess_bytes),
            too_deep: sum.too_deep.saturating_add(one.too_deep),
            failed: sum.failed.saturating_add(one.failed),
        })
    }
}
