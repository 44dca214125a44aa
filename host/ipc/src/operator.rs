//! The `levee` command ↔ sessiond, on a Unix socket that only root can open.

use crate::vault::Report;
pub use crate::warden::PartitionOrder;
use crate::warden::{CompartmentStatus, PartitionStatus};
use levee_policy::site::Placed;
use levee_policy::{DomainName, HostName, LabelName, PartitionName, ProtectionName, SiteName, UserName};
use levee_prices::{Carried, Prices, Unpriced};
pub use levee_session::{Access, Accessible};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The `levee` command → sessiond: one request a connection.
#[derive(Debug, Serialize, Deserialize)]
pub enum Command {
    /// Everything that runs.
    Status,
    /// End the session shown by this name.
    End(String),
    /// What is to become of this partition.
    Partition(PartitionName, PartitionOrder),
    /// This person may not sign on from now on, and their sessions end; or they may again.
    Disable(UserName, bool),
    /// Start this label, to see whether it can run here; it is stopped again if nobody has a session there.
    Try(LabelName),
    /// Do this within the label, which is started for it where it does not run. Of a file, [`Answer::Ended`] says that it may be put
    /// there now; of a program, [`Answer::Began`] that it runs and [`Answer::Exited`] that it has ended. It is killed when the connection is
    /// closed.
    Enter(LabelName, Entering),
    /// This person's credentials are others now: to be recorded.
    Changed(UserName),
    /// Put a posture in force, or the default back; answered when nothing older is left.
    Posture(Posture),
    /// Whom services at this label are for.
    Accesses(LabelName),
    /// Somebody reaches a service, or does not; answered when nothing passes by what was so before.
    Access(Access),
    /// What tunnels cost here, and of which kind each session's is.
    Prices,
}

/// What an operator does within a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entering {
    /// Puts a file into its store.
    Put {
        /// Where, in the store.
        path: String,
        /// How long it is.
        bytes: u64,
        /// What it is.
        sha256: [u8; 32],
    },
    /// Has this program run, with these arguments, the first its path: at most [`Entering::WORDS`] of them.
    Execute(Vec<String>),
}

impl Entering {
    /// Of what source the lines of a program with this number are. No service can have such a name.
    pub fn source(number: u64) -> String {
        format!("levee exec {number}")
    }

    /// The most words of a command.
    pub const WORDS: usize = 64;
    /// The most octets of a command, or of a path.
    pub const OCTETS: usize = 4096;

    /// Whether it is within its bounds.
    pub fn is_bounded(&self) -> bool {
        match self {
            Self::Put { path, .. } => !path.is_empty() && path.len() <= Self::OCTETS,
            Self::Execute(words) => {
                (1..=Self::WORDS).contains(&words.len())
                    && words.iter().map(String::len).sum::<usize>() <= Self::OCTETS
            }
        }
    }
}

/// What an operator wishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posture {
    /// Which, and at which labels.
    pub what: Placed,
    /// For how many seconds; `None`: until another is set.
    pub seconds: Option<u64>,
    /// Why.
    pub reason: String,
}

/// A posture in force, or the default over one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// Which, and at which labels.
    pub what: Placed,
    /// For how many more milliseconds; `None`: until another is set.
    pub left_ms: Option<u64>,
}

/// What tunnels cost at a server, as far as that was measured there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Priced {
    /// What was measured, or why there is nothing.
    pub prices: Result<Prices, Unpriced>,
    /// Sessions as operators name them, as many as a status shows, and how the packets of each go; `None`: in a way that nobody measures.
    pub sessions: Vec<(String, Option<Carried>)>,
}

/// sessiond → the `levee` command.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Answer to [`Command::Prices`].
    Prices(Box<Priced>),
    /// Answer to [`Command::Status`].
    Status(Box<ServerStatus>),
    /// It is done, or ordered; of a session that was to end no packet will pass any more.
    Ended,
    /// The program runs; its lines in its label's log are of this source.
    Began(String),
    /// Answer to [`Command::Accesses`].
    Accesses(Vec<Accessible>),
    /// The program has ended: its exit status, or 128 plus the signal's number.
    Exited(u8),
    /// It cannot be done, and why.
    Failed(String),
}

/// Everything that runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The site.
    pub site: SiteName,
    /// Sessions, at most 256 of them.
    pub sessions: Vec<SessionStatus>,
    /// How many sessions there are in all.
    pub session_count: u64,
    /// Compartments.
    pub compartments: Vec<CompartmentStatus>,
    /// Partitions, whether they run or not.
    pub partitions: Vec<PartitionStatus>,
    /// Each vault's last report; at most 64 of them.
    pub vaults: Vec<(LabelName, Report)>,
    /// sessiond's own counters: what was refused or dropped, by reason.
    pub counters: Vec<(String, u64)>,
    /// Datagrams at the tunnel's port that no process got, by reason.
    pub steering: Vec<(String, u64)>,
    /// What ends again and again or cannot start, in words.
    pub alarms: Vec<String>,
    /// Audit records written.
    pub audit_records: u64,
    /// What is in force: the last that has a label counts there.
    #[serde(default)]
    pub postures: Vec<InForce>,
    /// The labels at which nothing less than a posture counts, by the site file.
    #[serde(default)]
    pub floors: Vec<Placed>,
    /// Whether a change of posture is under way.
    #[serde(default)]
    pub moving: bool,
    /// Whom an operator has disabled, at most 256 of them.
    #[serde(default)]
    pub disabled: Vec<UserName>,
    /// How the server is one of several, where it is.
    pub federation: Option<FederationStatus>,
}

/// A server among the others of its site.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FederationStatus {
    /// Whether it has a lease; without one, nothing passes.
    pub member: bool,
    /// The others that have one.
    pub others: Vec<DomainName>,
    /// Sessions of theirs that may be used here.
    pub theirs: u64,
    /// How often the table had something that no server of the site writes; not obeyed.
    #[serde(default)]
    pub strange: u64,
}

/// One session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionStatus {
    /// As operators name it.
    pub id: String,
    /// Who.
    pub user: UserName,
    /// From which TPE.
    pub host: HostName,
    /// At which label.
    pub label: LabelName,
    /// Its inner addresses.
    pub inner: Vec<IpAddr>,
    /// Milliseconds since its person signed on.
    pub age_ms: u64,
    /// Whether its trusted path is up; if not, it ends after the site's grace time.
    pub attached: bool,
    /// Whether nothing of it passes until its person has proved themself.
    pub locked: bool,
    /// What was asked of its tunnel beyond what every tunnel at its label has.
    #[serde(default)]
    pub protections: Vec<ProtectionName>,
}
