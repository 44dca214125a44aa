//! The warden ↔ sessiond.

use super::frames::FramesState;
use super::upflow::UpflowCounters;
use super::{Part, Peer, Role};
use levee_policy::site::Placed;
use levee_policy::{LabelName, PartitionName};
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::net::IpAddr;

/// What sessiond is given and told.
#[derive(Debug, Serialize, Deserialize)]
pub enum SessiondPart {
    /// A sealed memory file with the site file's text, already checked.
    Site,
    /// The directory of its own files: store, credentials, audit log.
    Directory,
    /// A sealed memory file with the auditor's public key in PEM.
    Auditor,
    /// A sealed memory file with PEM certificates: the site's authority, by which devices are believed.
    Authority,
    /// A sealed memory file with the server's passport of the federation, behind its certificate. Where the site has several servers.
    Federation,
    /// A sealed memory file with PEM certificates: the authority by which the site's other servers are believed. As there.
    FederationAuthority,
    /// The operators' listening socket (Unix `SOCK_SEQPACKET`).
    Operators,
    /// A channel to the signer, for the audit log's checkpoints.
    Signer,
    /// A channel to the trusted path's server.
    Tps,
    /// A channel to the keyer.
    Keyer,
    /// A channel to etcd's client.
    Fsd,
    /// A channel to one worker of a label's vault.
    Vault {
        /// The vault's label.
        label: LabelName,
        /// The worker's steering slot.
        slot: u16,
    },
    /// A channel to a label's mediator.
    Mediator(LabelName),
    /// A channel to a guard, by the name that its process has: `guard/` and its own.
    Guard(LabelName),
    /// A sealed memory file with a PEM revocation list of the authority (RFC 5280 5), positioned at its beginning: whoever it names is
    /// cut.
    Revocations,
    /// A sealed memory file with the revocation lists of the authority of the site's servers, as [`SessiondPart::Revocations`]: the server
    /// whose passport it names is believed no more.
    FederationRevocations,
    /// A sealed memory file with [`WhatRuns`], positioned at its beginning.
    Running,
    /// Something happened at a label.
    Label(LabelEvent),
}

impl Part for SessiondPart {
    const ROLES: &[Role] = &[Role::Sessiond];
    type Says = SessiondRequest;

    fn channel(to: &Peer) -> Option<Self> {
        Some(match (to.role, &to.label, to.slot) {
            (Role::Signer, ..) => Self::Signer,
            (Role::Tps, ..) => Self::Tps,
            (Role::Keyer, ..) => Self::Keyer,
            (Role::Fsd, ..) => Self::Fsd,
            (Role::Vault, Some(label), Some(slot)) => Self::Vault { label: label.clone(), slot },
            (Role::Mediator, Some(label), _) => Self::Mediator(label.clone()),
            (Role::Guard, Some(name), _) => Self::Guard(name.clone()),
            _ => return None,
        })
    }

    fn descriptors(&self) -> usize {
        if matches!(self, Self::Label(_)) { 0 } else { 1 }
    }

    fn is_late(&self) -> bool {
        // An authority, or the server's passport, is another one when its keys were made anew.
        !matches!(self, Self::Site | Self::Directory | Self::Auditor | Self::Operators)
    }
}

/// sessiond → warden.
#[derive(Debug, Serialize, Deserialize)]
pub enum SessiondRequest {
    /// A session opens at this label: have its vault and compartment run. Answered by [`LabelEvent::Up`] or
    /// [`LabelEvent::Failed`]; the channels to the vault are attached before.
    Need(LabelName),
    /// No session is left at this label.
    Release(LabelName),
    /// This label's vault does not answer: kill it. Answered by [`LabelEvent::Died`].
    Kill(LabelName),
    /// This standing process does not read what it is told, or says what is no message: kill it, so that another takes its place.
    Replace(Role),
    /// Destroy the sockets of this session's inner address in the label's compartment. Answered by
    /// [`LabelEvent::Cut`].
    Cut {
        /// In which compartment.
        label: LabelName,
        /// The session's inner address.
        inner: IpAddr,
        /// The asker's own number.
        ticket: u64,
    },
    /// An operator has this program run at a label that runs. Answered by [`LabelEvent::Executing`] and [`LabelEvent::Executed`].
    Execute {
        /// Where.
        label: LabelName,
        /// The program and its arguments.
        argv: Vec<String>,
        /// The asker's own number.
        ticket: u64,
    },
    /// Nobody waits for this program of an operator's any more: it is killed.
    Abandon {
        /// Where.
        label: LabelName,
        /// The asker's own number.
        ticket: u64,
    },
    /// An operator wants this to become of a partition. Answered by [`LabelEvent::Partition`].
    Partition {
        /// Which.
        name: PartitionName,
        /// What.
        order: PartitionOrder,
        /// The asker's own number.
        ticket: u64,
    },
    /// These postures are in force, the last over those before it: services that they have off do not run. Answered by
    /// [`LabelEvent::Postures`] with this number, unless others are said before. Where the site has postures no service is on before this
    /// is said once.
    Postures {
        /// Which, and where.
        in_force: Vec<Placed>,
        /// The asker's own number.
        ticket: u64,
    },
    /// Answered by [`SessiondPart::Running`].
    Compartments,
}

/// The most alarms in one message.
pub const MOST_ALARMS: usize = 64;

/// What runs, as operators see it. It goes as a file, since there is no bound to how many labels a site has.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WhatRuns {
    /// Each compartment.
    pub running: Vec<CompartmentStatus>,
    /// What each stage of upflow has done that serves one of them.
    pub upflow: Vec<(LabelName, Role, UpflowCounters)>,
    /// Each partition, whether it runs or not.
    pub partitions: Vec<PartitionStatus>,
    /// Datagrams at the tunnel's port that no process got, by reason; what is 0 is left out.
    pub steering: Vec<(String, u64)>,
    /// How the frames are kept, where the site has some.
    pub frames: Option<FramesState>,
    /// What an operator must know of: what ends again and again, or cannot start. At most [`MOST_ALARMS`].
    pub alarms: Vec<String>,
}

impl WhatRuns {
    /// The most octets of one: some thousands of labels, each with all that can be said of one.
    const MOST: u64 = 64 << 20;

    /// As it is in its file.
    pub fn octets(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Reads it from its file.
    ///
    /// # Errors
    /// The kernel's; it is none.
    pub fn read(file: impl Read) -> io::Result<Self> {
        let mut octets = Vec::new();
        file.take(Self::MOST).read_to_end(&mut octets)?;
        crate::decode(&octets).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }
}

/// Warden → sessiond.
#[derive(Debug, Serialize, Deserialize)]
pub enum LabelEvent {
    /// Vault and compartment run. The vault's channel has been attached before, as soon as the vault was started: its
    /// record and keys need not wait for the compartment.
    Up(LabelName),
    /// They cannot be started; nothing of them is left.
    Failed {
        /// Which.
        label: LabelName,
        /// The step that failed, and why.
        reason: String,
    },
    /// The label's vault is dead, its keys with it. A new one follows with [`LabelEvent::Up`], unless it was stopped
    /// because no session was left: then it follows when one needs it.
    Died(LabelName),
    /// The sockets are gone.
    Cut {
        /// The asker's number.
        ticket: u64,
        /// How many there were; `None` if they could not be destroyed.
        sockets: Option<u32>,
    },
    /// A partition is what it is to be, or why it cannot.
    Partition {
        /// The asker's number.
        ticket: u64,
        /// Whether the order was carried out; a partition that is turned on, or replaced, starts as soon as it can.
        result: Result<(), String>,
    },
    /// At no label anything runs of a service that is off.
    Postures {
        /// The asker's number.
        ticket: u64,
    },
    /// An operator's program has been started.
    Executing {
        /// The asker's number.
        ticket: u64,
        /// What its lines have in its label's log: each program that runs has a number of its own.
        number: u64,
    },
    /// An operator's program has ended, or could not be started.
    Executed {
        /// The asker's number.
        ticket: u64,
        /// Its exit status, or 128 plus the signal's number; or why it does not run.
        result: Result<u8, String>,
    },
    /// `levee enrol rotate` has made a key anew.
    Rotated {
        /// What it wrote of that: a line that says which key, and one that says the rest.
        text: Vec<u8>,
        /// It has begun, and is not known to have ended.
        begun: bool,
    },
    /// Something the warden did that belongs in the audit log.
    Note {
        /// At which label.
        label: Option<LabelName>,
        /// What it was about.
        object: String,
        /// Whether it was done.
        done: bool,
        /// Why, or why not.
        reason: String,
    },
}

/// What a label's compartment is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationForm {
    /// Namespaces of the host's kernel.
    Compartment,
    /// A virtual machine, with a kernel of its own.
    Machine,
}

impl std::fmt::Display for IsolationForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Compartment => "compartment",
            Self::Machine => "machine",
        })
    }
}

/// What is to become of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartitionOrder {
    /// It ends, and stays off.
    Stop,
    /// It runs, however often it has ended.
    Start,
    /// It ends, and runs anew with what its root is then.
    Replace,
}

/// One partition as the warden sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionStatus {
    /// Its name.
    pub name: PartitionName,
    /// Its label.
    pub label: LabelName,
    /// `runs`, `waits`, or `off: ` and why.
    pub state: String,
    /// Its first process, as the host numbers it; 0 where there is none.
    pub init: u32,
    /// Milliseconds since it was started.
    pub age_ms: u64,
    /// How often it was started.
    pub starts: u32,
    /// Its share of the processors, where a label's compartment has 100.
    pub weight: u32,
    /// Processor time that it may use, in percent of one processor.
    pub cpu_percent: u32,
    /// Bytes of memory that are kept for it.
    pub reserved: u64,
}

/// One compartment as the warden sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompartmentStatus {
    /// Its label.
    pub label: LabelName,
    /// What it is made of.
    pub form: IsolationForm,
    /// Its steering slot.
    pub slot: u16,
    /// Its first process, as the host numbers it.
    pub init: u32,
    /// Its vault, as the host numbers it.
    pub vault: u32,
    /// Milliseconds since it started.
    pub age_ms: u64,
    /// Services that have been started, and how often.
    pub services: Vec<(String, u32)>,
    /// Services that are off, and why.
    pub off: Vec<(String, String)>,
    /// How often its vault was started.
    pub vault_starts: u32,
    /// What upflow left behind and what was dropped at its single-level networks, by reason; what is 0 is left out.
    pub counters: Vec<(String, u64)>,
}
