//! The warden of a workstation ↔ the tpe's agent.

use super::{Part, Peer, Role};
use ipnet::IpNet;
use levee_policy::{DomainName, LabelName};
use levee_session::SessionId;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// What the tpe's agent is given and told.
#[derive(Debug, Serialize, Deserialize)]
pub enum TpePart {
    /// A sealed memory file with PEM certificates: its own chain, own certificate first.
    Chain,
    /// A sealed memory file with PEM certificates: the site's authority.
    Authority,
    /// A sealed memory file with a PEM revocation list of the authority (RFC 5280 5), positioned at its beginning. One that comes later
    /// replaces it, and the server must show its certificate again.
    Revocations,
    /// The listening socket for `levee-tpe` commands (Unix `SOCK_SEQPACKET`).
    Commands,
    /// Where the server's trusted path is.
    Server {
        /// Address and port.
        address: SocketAddr,
        /// The name that the certificate must have.
        name: DomainName,
    },
    /// Where keyer and vault find the server's tunnel, if it goes through a second one: that one's own socket.
    Tunnel(SocketAddr),
    /// A channel to the signer.
    Signer,
    /// A channel to the keyer.
    Keyer,
    /// A channel to the session's vault.
    Vault(LabelName),
    /// Something happened to the session.
    Workstation(WorkstationEvent),
}

impl Part for TpePart {
    const ROLES: &[Role] = &[Role::Tpe];
    type Says = TpeRequest;

    fn channel(to: &Peer) -> Option<Self> {
        Some(match (to.role, &to.label) {
            (Role::Signer, _) => Self::Signer,
            (Role::Keyer, _) => Self::Keyer,
            (Role::Vault, Some(label)) => Self::Vault(label.clone()),
            _ => return None,
        })
    }

    fn descriptors(&self) -> usize {
        if matches!(self, Self::Server { .. } | Self::Tunnel(_) | Self::Workstation(_)) { 0 } else { 1 }
    }

    fn is_late(&self) -> bool {
        match self {
            Self::Chain | Self::Authority | Self::Commands | Self::Server { .. } | Self::Tunnel(_) => false,
            Self::Revocations | Self::Signer | Self::Keyer | Self::Vault(_) | Self::Workstation(_) => true,
        }
    }
}

/// What the server gave a session.
#[derive(Debug, Serialize, Deserialize)]
pub struct Open {
    /// The session.
    pub session: SessionId,
    /// Its label.
    pub label: LabelName,
    /// Its inner addresses.
    pub inner: Vec<IpAddr>,
    /// Names for the compartment's `/etc/hosts`.
    pub hosts: Vec<(IpAddr, Vec<DomainName>)>,
    /// What is reached through the tunnel.
    pub reach: Vec<IpNet>,
    /// Inner MTU in bytes.
    pub mtu: u16,
    /// Without a word of [`TpeRequest::Heard`] for so long the session is over.
    pub patience: Duration,
}

/// The tpe → the workstation's warden.
#[derive(Debug, Serialize, Deserialize)]
pub enum TpeRequest {
    /// A session was opened: start a vault and an ephemeral compartment for it. There is one at a time.
    Open(Open),
    /// The server has answered what was asked at this time since the host's start (CLOCK_BOOTTIME).
    Heard(Duration),
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
