//! The warden and what it starts: what is the same for all of them. Each role's own side is a file beside this one.
//!
//! Every process finds its channel to the warden at descriptor [`CONTROL_FD`]. The warden first sends [`FromWarden::Attach`] once
//! for each [`Part`] of the role's kit, then [`FromWarden::Begin`]. The process sandboxes itself, answers [`ToWarden::Ready`], and
//! only then reads a byte from outside. A process whose channel to the warden closes ends at once.
//!
//! A role's parts are one enum of its own, and all that the warden can say to a process of this role. What is said is
//! checked on both sides, in one place each: the warden's handle and `levee-daemon`.

pub mod fsd;
pub mod keyer;
pub mod mediator;
pub mod sessiond;
pub mod signer;
pub mod stack;
pub mod tpe;
pub mod tps;
pub mod upflow;
pub mod vault;

pub use sessiond::{CompartmentStatus, LabelEvent, SessiondRequest};
pub use tpe::{TpeRequest, WorkstationEvent};
pub use upflow::{UpflowCounters, UpflowReport};

use crate::Secret;
use crate::signer::Use;
use levee_policy::site::Mode;
use levee_policy::{DomainName, HostName, LabelName, PpkId, ServiceName, SiteName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::net::SocketAddr;

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

/// One thing that the warden may say to a process of one role: a thing of its kit, mostly a descriptor, or news.
pub trait Part: Serialize + DeserializeOwned + Debug + 'static {
    /// Whose: of one role, but where two have the same to be given.
    const ROLES: &[Role];
    /// What a process of this role says to the warden, beside that it is ready.
    type Says: Serialize + DeserializeOwned + Debug;

    /// The end of a channel to this other process; `None` if the two do not speak.
    fn channel(to: &Peer) -> Option<Self>;

    /// How many descriptors come along.
    fn descriptors(&self) -> usize {
        1
    }

    /// Whether it may come when the process is at work.
    fn is_late(&self) -> bool;
}

/// Who is at the other end of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its role.
    pub role: Role,
    /// Its label, where it has one.
    pub label: Option<LabelName>,
    /// The steering slot of the vault that is at one of the ends: the top 12 bits of its inbound SPIs.
    pub slot: Option<u16>,
}

/// What a role has to say to the warden that has nothing to say.
#[derive(Debug, Serialize, Deserialize)]
pub enum Nothing {}

/// The warden → a process of the role whose parts these are.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order<P> {
    /// A part, with its descriptors.
    Give(P),
    /// Everything that the process needs to begin with has been given.
    Begin(Place),
    /// End in good order.
    Stop,
}

/// A process → the warden.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said<S> {
    /// Sandboxed, and at work. Said once.
    Ready,
    /// What its role has to say.
    Says(S),
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
    /// To sessiond: a sealed memory file with the auditor's public key in PEM.
    Auditor,
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
    /// To a stage of upflow at this label, which has a kernel of its own: the stream that documents go in or out by. It stands
    /// where the host has no directory of the label's: for the store or the copies outside, for the snapshots within.
    Documents(LabelName),
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
