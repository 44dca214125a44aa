//! The warden and what it starts. Every process finds its channel to the warden at descriptor [`CONTROL_FD`].
//!
//! The warden first sends [`FromWarden::Attach`] once for each descriptor of the process's job, then
//! [`FromWarden::Begin`]. The process sandboxes itself, answers [`ToWarden::Ready`], and only then reads a
//! byte from outside. A process whose channel to the warden closes ends at once.

use crate::Secret;
use crate::signer::Use;
use ipnet::IpNet;
use levee_policy::site::Mode;
use levee_policy::{DomainName, HostName, LabelName, PpkId, ServiceName, SiteName};
use levee_session::SessionId;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// The descriptor at which a process finds its channel to the warden.
pub const CONTROL_FD: i32 = 3;

/// A process that the warden starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Credentials, sessions, audit log.
    Sessiond,
    /// Long-term private keys.
    Signer,
    /// The trusted path's server.
    Tps,
    /// Key agreement.
    Keyer,
    /// The IPsec stack of one label; where redundant stacks must agree, their gate.
    Vault,
    /// The first of two stacks that must agree.
    Stack,
    /// The second of two stacks that must agree.
    Witness,
    /// Decides about each connection to services of one label, and hands it off or relays it.
    Mediator,
    /// Upflow's first stage: from a label's store to its snapshot.
    Snapshot,
    /// Upflow's second stage: from snapshots to one label's copies.
    Copy,
    /// The client of the table that the site's servers share.
    Fsd,
    /// The trusted path extension's agent (workstation).
    Tpe,
}

impl Role {
    /// The program's name.
    pub fn program(self) -> &'static str {
        match self {
            Self::Sessiond => "levee-sessiond",
            Self::Signer => "levee-signer",
            Self::Tps => "levee-tps",
            Self::Keyer => "levee-keyer",
            Self::Vault | Self::Stack => "levee-vault",
            Self::Witness => "levee-witness",
            Self::Mediator => "levee-mediator",
            Self::Snapshot | Self::Copy => "levee-upflow",
            Self::Fsd => "levee-fsd",
            Self::Tpe => "levee-tpe",
        }
    }
}

/// Where levee runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A server: many sessions, services.
    Server,
    /// A workstation: one person, one session at a time.
    Workstation,
}

/// What a descriptor is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attachment {
    /// A channel to another process. A second one for the same role and label replaces the first.
    Peer {
        /// Who is at the other end.
        role: Role,
        /// For a vault: its label.
        label: Option<LabelName>,
        /// For a vault: its steering slot, the top 12 bits of its inbound SPIs.
        slot: Option<u16>,
    },
    /// To the signer: a channel, and what may be signed on it.
    SignerClient(Use),
    /// A sealed memory file with the site file's text, already checked.
    Site,
    /// A sealed memory file with PEM certificates: own chain first.
    Chain,
    /// A sealed memory file with PEM certificates: the site's authority.
    Authority,
    /// To keyer, tps and tpe, and to sessiond when it is read anew: a sealed memory file with a PEM revocation list of the authority
    /// (RFC 5280 5), positioned at its beginning. One that comes later replaces it, and whoever it names is cut.
    Revocations,
    /// To the signer: a file with a PKCS#8 private key in PEM, for this use; one that is encrypted comes behind
    /// [`FromWarden::Passphrase`].
    PrivateKey(Use),
    /// To the signer: a file with the PPK of this name in PEM, which may be encrypted as private keys may.
    Ppk(PpkId),
    /// The directory of the process's own files (sessiond: store, credentials, audit log).
    Directory,
    /// A listening socket: tps: the trusted path's TCP; sessiond: operators' Unix `SOCK_SEQPACKET`;
    /// tpe: the same for `levee-tpe` commands.
    Listener,
    /// To a vault or the keyer: its socket of the steering group of this local address.
    Udp(SocketAddr),
    /// To the keyer: a socket that carries IKE alone, bound to this address (RFC 7296 2: port 500).
    Ike(SocketAddr),
    /// To a vault: its TUN queue and the inner MTU in bytes.
    Tun {
        /// Inner MTU in bytes.
        mtu: u16,
    },
    /// To a mediator: a listener of a service at this address, which is the mediator's from now on.
    Service {
        /// The service.
        name: ServiceName,
        /// `handoff` or `relay`. To relay, the mediator reaches the daemon at the same address in its own network.
        mode: Mode,
        /// Where the listener listens.
        address: SocketAddr,
    },
    /// To a mediator: the channel to process 1 of its compartment.
    Starter,
    /// To fsd: the site whose servers share a table, and this server. No descriptor comes along.
    Member {
        /// The site.
        site: SiteName,
        /// This server.
        server: DomainName,
    },
    /// To the tpe and its keyer: the outer address of the server's trusted path, and the name in its certificates. To fsd: a member of
    /// etcd.
    Server {
        /// Address and port.
        address: SocketAddr,
        /// The name that the certificate must have.
        name: DomainName,
    },
    /// To upflow's first stage: the root of its label's store, to be read.
    Store(LabelName),
    /// To upflow's first stage: the directory for its label's snapshot.
    Snapshot(LabelName),
    /// To upflow's second stage: directories with the snapshots of these labels, one descriptor for each, to be read.
    Snapshots(Vec<LabelName>),
    /// To upflow's second stage: the root of the reading label's copies, one directory for each label.
    Copies,
}

/// The warden → a process.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromWarden {
    /// A descriptor for the process, which comes along ([`Attachment::Server`] has none).
    Attach(Attachment),
    /// To the keyer: the signer has a PPK of this name (RFC 8784).
    Ppk {
        /// On a server: the host that shares it. On a workstation the server does.
        host: Option<HostName>,
        /// Its name.
        id: PpkId,
        /// Whether a host that begins without it is refused.
        mandatory: bool,
    },
    /// To the signer, before any key: what its encrypted keys are encrypted with (RFC 8018 6.2).
    Passphrase(Secret),
    /// Everything that the process needs to begin with has been attached.
    Begin(Place),
    /// To sessiond.
    Label(LabelEvent),
    /// To the tpe.
    Workstation(WorkstationEvent),
    /// To upflow: answer with [`ToWarden::Upflow`].
    Report,
    /// End in good order.
    Stop,
}

/// A process → the warden.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToWarden {
    /// Sandboxed, and at work.
    Ready,
    /// From the signer alone, in the place of [`ToWarden::Ready`]: which of its keys cannot be used, and why. It ends, and starting it
    /// again would change nothing.
    Unusable(String),
    /// From sessiond alone.
    Sessiond(SessiondRequest),
    /// From the tpe alone.
    Tpe(TpeRequest),
    /// From upflow alone: what it has copied, for each label or some of them.
    Upflow(Vec<UpflowReport>),
}

/// What upflow has done for one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpflowReport {
    /// Whose documents.
    pub label: LabelName,
    /// How many.
    pub counters: UpflowCounters,
}

/// What upflow has copied, and what it left behind and why. Totals count since the process's start; all others are
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
    /// Answered by [`LabelEvent::Compartments`].
    Compartments,
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
    /// What runs.
    Compartments {
        /// Each compartment.
        running: Vec<CompartmentStatus>,
        /// Datagrams at the tunnel's port that no process got, by reason; what is 0 is left out.
        steering: Vec<(String, u64)>,
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

/// One compartment as the warden sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompartmentStatus {
    /// Its label.
    pub label: LabelName,
    /// Its steering slot.
    pub slot: u16,
    /// Its first process, as the host numbers it.
    pub init: u32,
    /// Its vault, as the host numbers it.
    pub vault: u32,
    /// Milliseconds since it started.
    pub age: u64,
    /// Services that have been started, and how often.
    pub services: Vec<(String, u32)>,
    /// How often its vault was started.
    pub vault_starts: u32,
    /// What upflow left behind and what was dropped at its single-level networks, by reason; what is 0 is left out.
    pub counters: Vec<(String, u64)>,
}

/// The tpe → the workstation's warden.
#[derive(Debug, Serialize, Deserialize)]
pub enum TpeRequest {
    /// A session was opened: start a vault and an ephemeral compartment for it. There is one at a time.
    Open {
        /// The session.
        session: SessionId,
        /// Its label.
        label: LabelName,
        /// Its inner addresses.
        inner: Vec<IpAddr>,
        /// Names for the compartment's `/etc/hosts`.
        hosts: Vec<(IpAddr, Vec<DomainName>)>,
        /// What is reached through the tunnel.
        reach: Vec<IpNet>,
        /// Inner MTU in bytes.
        mtu: u16,
    },
    /// The session is over: kill everything in its compartment and remove it.
    Close(SessionId),
    /// Start a program in the compartment. Three descriptors come along: standard input, output, error.
    Run {
        /// The asker's own number.
        ticket: u64,
        /// Program and arguments.
        argv: Vec<String>,
        /// Environment, `NAME=value`.
        env: Vec<String>,
        /// Whether standard input is a terminal, to become the controlling one.
        terminal: bool,
    },
    /// Send a signal to a program that was started.
    Signal {
        /// Its number.
        ticket: u64,
        /// The signal's number.
        signal: i32,
    },
}

/// The workstation's warden → the tpe.
#[derive(Debug, Serialize, Deserialize)]
pub enum WorkstationEvent {
    /// Vault and compartment run. The vault's channel has been attached before, as soon as the vault was started: its
    /// record and keys need not wait for the compartment.
    Up(SessionId),
    /// They cannot be started; nothing of them is left.
    Failed {
        /// The session.
        session: SessionId,
        /// The step that failed, and why.
        reason: String,
    },
    /// The vault or the compartment is dead; nothing of either is left.
    Died(SessionId),
    /// Nothing of the session's vault and compartment is left.
    Closed(SessionId),
    /// A program has ended, or could not be started.
    Exited {
        /// Its number.
        ticket: u64,
        /// Exit status, or 128 plus the signal's number.
        status: Result<u8, String>,
    },
}
