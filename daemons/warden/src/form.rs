//! The two forms of a label's compartment behind one face: namespaces of the host's kernel, or a machine with its own.

use crate::compartment::{Compartment, Store};
use crate::machine::Machine;
use levee_ipc::warden::{IsolationForm, Role};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a machine may take to destroy a session's sockets. One that is silent for longer is ended, and its sockets with it.
const CUT: Duration = Duration::from_secs(5);

/// What a label's programs run in.
#[derive(Debug)]
pub enum Form {
    /// Namespaces.
    Compartment(Compartment),
    /// A kernel of its own.
    Machine {
        /// It.
        machine: Box<Machine>,
        /// What it was told to cut and has not, by ticket: until when it may.
        cuts: BTreeMap<u64, Instant>,
    },
}

impl Form {
    /// A machine.
    pub fn machine(machine: Machine) -> Self {
        Self::Machine { machine: Box::new(machine), cuts: BTreeMap::new() }
    }

    /// Which of the two.
    pub fn kind(&self) -> IsolationForm {
        match self {
            Self::Compartment(_) => IsolationForm::Compartment,
            Self::Machine { .. } => IsolationForm::Machine,
        }
    }

    /// The compartment on the host: the label's own, or that of its machine.
    pub fn outer(&self) -> &Compartment {
        match self {
            Self::Compartment(compartment) => compartment,
            Self::Machine { machine, .. } => machine.compartment(),
        }
    }

    /// Where its machine speaks, if it is one.
    pub fn port(&self) -> Option<&Arc<OwnedFd>> {
        match self {
            Self::Compartment(_) => None,
            Self::Machine { machine, .. } => machine.port(),
        }
    }

    /// Whether its machine has said more than was heard in its turn.
    pub fn has_more(&self) -> bool {
        matches!(self, Self::Machine { machine, .. } if machine.has_more())
    }

    /// The stores that the host has mounted for it: of a machine none.
    pub fn images(&self) -> &[Store] {
        match self {
            Self::Compartment(compartment) => compartment.images(),
            Self::Machine { .. } => &[],
        }
    }

    /// The stream by which a stage of upflow speaks with its half in the machine.
    pub fn documents(&self, role: Role) -> Option<BorrowedFd<'_>> {
        let Self::Machine { machine, .. } = self else { return None };
        let documents = machine.documents();
        let stream = if role == Role::Snapshot { &documents.out } else { &documents.below };
        stream.as_ref().map(AsFd::as_fd)
    }

    /// Whether it is still being built.
    pub fn is_building(&self) -> bool {
        match self {
            Self::Compartment(compartment) => compartment.is_building(),
            Self::Machine { machine, .. } => machine.is_building(),
        }
    }

    /// Whether it is late with a cut.
    pub fn is_late(&self) -> bool {
        match self {
            Self::Compartment(_) => false,
            Self::Machine { cuts, .. } => cuts.values().any(|until| *until <= Instant::now()),
        }
    }

    /// Whether it is to cut something.
    pub fn is_cutting(&self) -> bool {
        matches!(self, Self::Machine { cuts, .. } if !cuts.is_empty())
    }

    /// What a machine was told to cut and has not.
    pub fn uncut(&self) -> Vec<u64> {
        match self {
            Self::Compartment(_) => Vec::new(),
            Self::Machine { cuts, .. } => cuts.keys().copied().collect(),
        }
    }

    /// Kills everything in it.
    pub fn kill(&self) {
        // Its end shows on its pidfd; if it cannot be killed it has ended already.
        let _ = self.outer().kill();
    }

    /// Ends it at once.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn stop(self) -> levee_sys::Result<()> {
        match self {
            Self::Compartment(compartment) => compartment.stop(),
            Self::Machine { machine, .. } => machine.stop(),
        }
    }
}

/// When what a machine is told now must have been cut.
pub fn cut_by() -> Instant {
    Instant::now() + CUT
}
