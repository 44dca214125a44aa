//! The inner halves of upflow's two stages: what the label's store has is told outward, what dominated labels have is told
//! inward and kept on a disk of its own. The host's kernel mounts neither.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use levee_ipc::Channel;
use levee_ipc::warden::upflow::{CopyPart, SnapshotPart};
use levee_ipc::warden::{Nothing, Order, Part, Place};
use levee_policy::LabelName;
use levee_sys::mount::{Attributes, Mount};
use levee_sys::ns::IdRange;
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;

use super::boot::port;
use crate::compartment::{Compartment, SERVICE_UID};
use crate::machine::image::PROGRAMS;
use crate::machine::proto::{IN_PORT, OUT_PORT};

/// Uids of the two, which are no compartment's.
const OUT_UID: u32 = 60_001;
/// See [`OUT_UID`].
const IN_UID: u32 = 60_002;

/// How long the last pass over the store may take.
const LAST_PASS: Duration = Duration::from_secs(2);

/// Descriptors that a stage may have.
const DESCRIPTORS: u64 = 1024;

/// The halves that run.
#[derive(Debug)]
pub struct Documents {
    out: Option<Stage>,
    below: Option<Stage>,
}

#[derive(Debug)]
struct Stage {
    child: Child,
    control: Channel,
}

impl Documents {
    /// Starts them, as far as the label's documents are read and it reads others'.
    ///
    /// # Errors
    /// In words.
    pub fn start(
        label: &LabelName,
        read: bool,
        below: bool,
        compartment: &Compartment,
    ) -> Result<Self, String> {
        let directory = |number: usize, attributes, uid| -> Result<OwnedFd, String> {
            let store = compartment.images().get(number).ok_or("there is no such disk")?;
            let seen = Some(IdRange { inside: SERVICE_UID, outside: uid, count: 1 });
            store.mount(attributes, seen).map(Mount::into_fd).map_err(|e| e.to_string())
        };
        let out = || {
            let store =
                (SnapshotPart::Store(label.clone()), directory(0, Attributes::READ_ONLY_DATA, OUT_UID)?);
            Stage::start(OUT_UID, None, &[store, (SnapshotPart::Documents(label.clone()), port(OUT_PORT)?)])
        };
        let inward = || {
            let copies = (CopyPart::Copies, directory(1, Attributes::DATA, IN_UID)?);
            Stage::start(
                IN_UID,
                Some("--copy"),
                &[copies, (CopyPart::Documents(label.clone()), port(IN_PORT)?)],
            )
        };
        let (out, below) = (read.then(out).transpose()?, below.then(inward).transpose()?);
        Ok(Self { out, below })
    }

    /// The store is told of for the last time, and both end.
    pub fn finish(self) {
        if let Some(Stage { child, control }) = self.out {
            // One that does not end in time is ended: what was told last stays.
            let stop = Order::<Nothing>::Stop;
            if control.try_send(&stop).is_err() || !matches!(child.wait(LAST_PASS), Ok(Some(_))) {
                let _ = child.kill();
            }
        }
        if let Some(Stage { child, .. }) = self.below {
            let _ = child.kill();
        }
    }
}

impl Stage {
    fn start(uid: u32, argument: Option<&str>, parts: &[(impl Part, OwnedFd)]) -> Result<Self, String> {
        let failed = |e: &dyn std::fmt::Display| format!("start levee-upflow: {e}");
        let (control, theirs) = Channel::pair().map_err(|e| failed(&e))?;
        let path = PathBuf::from(PROGRAMS).join("levee-upflow");
        let mut program = Program::daemon(path, uid, DESCRIPTORS);
        program.args.extend(argument.map(Into::into));
        program.fds = vec![theirs.as_fd()];
        let child = program.start().map_err(|e| failed(&e))?;
        for (part, fd) in parts {
            control.try_send_with(&Order::Give(part), &[fd.as_fd()]).map_err(|e| failed(&e))?;
        }
        control.try_send(&Order::<Nothing>::Begin(Place::Server)).map_err(|e| failed(&e))?;
        Ok(Self { child, control })
    }
}
