//! The inner halves of upflow's two stages: what the label's store has is told outward, what dominated labels have is told
//! inward and kept on a disk of its own. The host's kernel mounts neither.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use levee_ipc::Channel;
use levee_ipc::warden::{Attachment, FromWarden, Place};
use levee_policy::LabelName;
use levee_sys::mount::Attributes;
use levee_sys::ns::IdRange;
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use rustix::process::Resource;
use rustix::thread::{Gid, Uid};

use super::port;
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
        let stage = |number: usize, attributes, uid, what, port_number| -> Result<Stage, String> {
            let store = compartment.images().get(number).ok_or("there is no such disk")?;
            let seen = Some(IdRange { inside: SERVICE_UID, outside: uid, count: 1 });
            let directory = store.mount(attributes, seen).map_err(|e| e.to_string())?.into_fd();
            let stream = port(port_number)?;
            Stage::start(uid, &[(what, directory), (Attachment::Documents(label.clone()), stream)])
        };
        let own = Attachment::Store(label.clone());
        let out = read.then(|| stage(0, Attributes::READ_ONLY_DATA, OUT_UID, own, OUT_PORT)).transpose()?;
        let copies = Attachment::Copies;
        let below = below.then(|| stage(1, Attributes::DATA, IN_UID, copies, IN_PORT)).transpose()?;
        Ok(Self { out, below })
    }

    /// The store is told of for the last time, and both end.
    pub fn finish(self) {
        if let Some(Stage { child, control }) = self.out {
            // One that does not end in time is ended: what was told last stays.
            if control.try_send(&FromWarden::Stop).is_err() || !matches!(child.wait(LAST_PASS), Ok(Some(_))) {
                let _ = child.kill();
            }
        }
        if let Some(Stage { child, .. }) = self.below {
            let _ = child.kill();
        }
    }
}

impl Stage {
    fn start(uid: u32, parts: &[(Attachment, OwnedFd)]) -> Result<Self, String> {
        let failed = |e: &dyn std::fmt::Display| format!("start levee-upflow: {e}");
        let (control, theirs) = Channel::pair().map_err(|e| failed(&e))?;
        let mut program = Program::new(PathBuf::from(PROGRAMS).join("levee-upflow"));
        program.fds = vec![theirs.as_fd()];
        program.identity = Some((Uid::from_raw(uid), Gid::from_raw(uid)));
        program.limits.push((Resource::Nofile, DESCRIPTORS));
        program.new_keyring = true;
        program.new_namespaces = Program::ISOLATED;
        let child = program.start().map_err(|e| failed(&e))?;
        for (what, fd) in parts {
            let fds: [BorrowedFd<'_>; 1] = [fd.as_fd()];
            control.try_send_with(&FromWarden::Attach(what.clone()), &fds).map_err(|e| failed(&e))?;
        }
        control.try_send(&FromWarden::Begin(Place::Server)).map_err(|e| failed(&e))?;
        Ok(Self { child, control })
    }
}
