//! Machines: the other form of a compartment, with a kernel of its own.
//!
//! A label's machine is a small virtual machine. QEMU is the one program of a compartment on the host, with its namespaces,
//! uid, filter and limits, and has descriptors only: a TAP device, the images of its disks, a socket for each port. In the
//! machine, process 1 (levee-init) builds a compartment as the warden does on a host, with the same plan.
//!
//! | file | idea |
//! |---|---|
//! | [`plan`](MachinePlan) | every step of its start, in order |
//! | `hardware` | what it is made of |
//! | `qemu` | the command line that makes it |
//! | [`image`] | what it boots |
//! | [`proto`] | what process 1 of the compartment that it runs in, and process 1 of the machine, say to each other |
//! | [`guest`] | process 1 of the machine |
//! | `wire` | its network: a TAP device, and the way from there to the vault's TUN device |
//!
//! The host's kernel mounts no file system that a machine has written, and shares no page with it but read-only images.

pub mod guest;
mod hardware;
pub mod image;
mod plan;
pub mod proto;
mod qemu;
mod wire;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use levee_policy::site::Processor;
use levee_sys::clock::counter_khz;
use levee_sys::{Error, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::compartment::proto::ToInit;
use crate::compartment::{BATCH, Compartment, Inside, Network, Store};
use hardware::Descriptor;
use proto::{CONTROL_PORT, IN_PORT, OUT_PORT};

pub use hardware::{Accelerator, Hardware};
pub use plan::{MachinePlan, MachineSpec};
pub use qemu::PROGRAM;

/// The rate of the processor's time-stamp counter, measured once: nothing in a machine without hardware support can.
static COUNTER: OnceLock<Option<u32>> = OnceLock::new();

/// How the processors of a site's machines are made. The first time it takes a tenth of a second where they are emulated.
pub fn accelerator(processor: Processor) -> Accelerator {
    match processor {
        Processor::Kvm => Accelerator::Kvm,
        Processor::Emulated => {
            let measured = COUNTER.get_or_init(|| counter_khz(Duration::from_millis(100)));
            Accelerator::Tcg { counter_khz: *measured }
        }
    }
}

/// The host's ends of the ports for documents.
#[derive(Debug, Default)]
pub struct DocumentPorts {
    /// The label's own come out here.
    pub out: Option<OwnedFd>,
    /// Those of dominated labels go in here.
    pub below: Option<OwnedFd>,
}

/// Makes the machine's wire in `network`, opens its disks, and begins the compartment that it runs in, with `init` (levee-init) as process 1 and
/// `log` as its standard error and QEMU's. Process 1 starts QEMU and hears the machine; what services write there comes out at `logs`, in
/// their order. The compartment is built once the machine has booted.
///
/// # Errors
/// The step that failed; what had been made is undone, but for what is in `network`.
pub fn begin(
    plan: &MachinePlan,
    network: &Network,
    init: &Path,
    log: BorrowedFd<'_>,
    logs: Vec<OwnedFd>,
) -> Result<(Compartment, DocumentPorts)> {
    let said = || log.try_clone_to_owned().map_err(|e| Error::new("open a machine's log", e));
    let mut largest = 0;
    let missing = || Error::invalid("start a machine", "it is to have a descriptor that is not made");
    let (mut fds, mut ports) = (Vec::new(), BTreeMap::new());
    for what in plan.hardware.descriptors() {
        fds.push(match what {
            Descriptor::Tap => wire::make(network, &plan.whole.wire)?,
            Descriptor::Port(number) => {
                let (ours, theirs) = port(network)?;
                ports.insert(number, ours);
                theirs
            }
            Descriptor::Own => disk(&plan.own, &mut largest)?,
            Descriptor::Below => disk(plan.below.as_ref().ok_or_else(missing)?, &mut largest)?,
            Descriptor::Programs => {
                let opened = File::open(&plan.programs);
                opened.map_err(|e| Error::new("open the programs of a machine", e))?.into()
            }
        });
    }
    // Before them the port, which process 1 keeps, and standard output and error.
    fds.splice(0..0, [ports.remove(&CONTROL_PORT).ok_or_else(missing)?, said()?, said()?]);
    let steps = Inside::batches(&plan.inside, BATCH).into_iter();
    let mut first: Vec<_> = steps.map(|batch| (ToInit::Within(batch), Vec::new())).collect();
    first.push((ToInit::Machine(Box::new((plan.hardware, plan.whole.clone()))), fds));
    first.extend(logs.into_iter().map(|log| (ToInit::Log, vec![log])));
    let host = plan.host.clone().with_files_up_to(largest);
    let compartment = Compartment::begin(&host, network, init, log, first)?;
    Ok((compartment, DocumentPorts { out: ports.remove(&OUT_PORT), below: ports.remove(&IN_PORT) }))
}

/// Opens a disk. QEMU writes no further than the largest goes: the room behind them is others'.
fn disk(path: &Path, largest: &mut u64) -> Result<OwnedFd> {
    let file = Store::disk(path)?;
    let size = file.metadata().map_err(|e| Error::new("measure a disk", e))?.len();
    *largest = size.max(*largest);
    Ok(file.into())
}

/// A stream of bytes: our end, which does not block, and QEMU's. Both are of the compartment's network, not of the host's.
fn port(network: &Network) -> Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = network.make(|| socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None));
    pair?.map_err(|e| Error::new("make a machine's port", e))
}
