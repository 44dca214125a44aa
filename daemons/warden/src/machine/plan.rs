//! The start of a machine as data: the compartment on the host that QEMU runs in, its hardware, and the compartment within.

use std::path::PathBuf;
use std::time::Duration;

use levee_policy::site::Needs;
use levee_sys::cgroup::Limits;

use super::hardware::{Accelerator, Hardware};
use super::proto::{Whole, Wire};
use super::qemu::IMAGE;
use crate::compartment::service::Served;
use crate::compartment::{self, Files, Inside, Outside, Programs};

/// Mebibytes that a machine has beyond what its services may use: for its kernel, and what it keeps of programs.
const KERNEL: u64 = 192;
/// Mebibytes that QEMU itself may use.
const QEMU: u64 = 192;
/// Threads that QEMU may have.
const THREADS: u64 = 64;
/// Bytes of each scratch file system in the compartment that QEMU runs in.
const SCRATCH: u64 = 1 << 20;

/// The machine's disks, as its kernel names them.
const OWN_DISK: &str = "/dev/vda";
/// See [`OWN_DISK`].
const PROGRAMS_DISK: &str = "/dev/vdb";
/// See [`OWN_DISK`].
const BELOW_DISK: &str = "/dev/vdc";

/// A machine, before it is planned.
#[derive(Debug, Clone)]
pub struct MachineSpec {
    /// What the label's compartment is to be; its files must be a store, and its programs an image.
    pub compartment: compartment::Spec,
    /// The directory of the image that it boots.
    pub image: PathBuf,
    /// How its processor is made.
    pub accelerator: Accelerator,
    /// Its end of its wire.
    pub wire: Wire,
    /// Its services.
    pub services: Vec<Served>,
    /// Whether another label could read its documents.
    pub read: bool,
}

/// The start of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachinePlan {
    /// The compartment on the host, whose one program is QEMU.
    pub host: compartment::Plan,
    /// What QEMU is to make.
    pub hardware: Hardware,
    /// The image of the label's own store.
    pub own: PathBuf,
    /// The image of the services' programs.
    pub programs: PathBuf,
    /// The image with the copies of dominated labels' documents.
    pub below: Option<PathBuf>,
    /// The inner steps of the compartment in the machine.
    pub inside: Vec<Inside>,
    /// All else that process 1 of the machine is told.
    pub whole: Whole,
}

impl MachinePlan {
    /// Every step that starting `spec` takes; `None` if it has no store or no image of programs.
    pub fn new(spec: MachineSpec) -> Option<Self> {
        let Files::Store { own, below } = spec.compartment.files.clone() else { return None };
        let Programs::Image(programs) = spec.compartment.programs.clone() else { return None };
        let limits = spec.compartment.limits;
        let memory = (limits.memory >> 20).saturating_add(KERNEL);
        let hardware = Hardware {
            accelerator: spec.accelerator,
            memory,
            processors: limits.cpu_percent.div_ceil(100).max(1),
            below: below.is_some(),
        };

        let mut host = spec.compartment.clone();
        host.limits = Limits { memory: memory.saturating_add(QEMU) << 20, processes: THREADS, ..limits };
        host.hostname = "machine".into();
        host.hosts = Vec::new();
        host.pages = false;
        host.files = Files::Scratch { bytes: SCRATCH };
        host.scratch = SCRATCH;
        host.needs = Needs::default();
        // QEMU is not one of the services' programs.
        host.programs = Programs::Host;
        let mut host = compartment::Plan::new(&host);
        let end =
            host.inside.iter().position(|step| *step == Inside::ChangeRoot).unwrap_or(host.inside.len());
        let mut more = vec![
            Inside::Directory(IMAGE.into()),
            Inside::Programs { from: spec.image.display().to_string(), path: IMAGE.into() },
        ];
        if spec.accelerator == Accelerator::Kvm {
            more.push(Inside::Device { path: "/dev/kvm".into(), major: 10, minor: 232 });
        }
        host.inside.splice(end..end, more);

        let mut within = spec.compartment;
        within.cgroup = "levee/label".into();
        // What its kernel runs is one label's.
        within.contexts = None;
        // It reads them by a disk, into its own memory: what it has read, nobody else sees.
        within.programs = Programs::Image(PROGRAMS_DISK.into());
        within.files =
            Files::Store { own: OWN_DISK.into(), below: below.as_ref().map(|_| BELOW_DISK.into()) };
        let within = compartment::Plan::new(&within);
        let whole = Whole {
            label: within.label,
            // Whose counters its kernel has, nobody else sees.
            outside: within.outside.into_iter().filter(|step| *step != Outside::SourcePorts).collect(),
            wire: spec.wire,
            services: spec.services,
            off: Default::default(),
            below: below.is_some(),
            read: spec.read,
            time: Duration::ZERO,
        };
        Some(Self { host, hardware, own, programs, below, inside: within.inside, whole })
    }
}
