//! What a label's mediator hears: sessions from sessiond, which also has every grant in the audit log before it takes
//! effect; and what it asks of process 1 of its compartment, which starts server processes for the connections that it
//! hands off.
//!
//! A connection needs three things: a peer whose address is in a record, a service in that record, and sessiond's word that the
//! grant is durable. No message from anybody else counts.

use ipnet::IpNet;
use levee_policy::{InterfaceName, ServiceName, UserName};
use levee_session::SessionId;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// A session as its label's mediator knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediatedSession {
    /// The session.
    pub id: SessionId,
    /// Whose it is.
    pub user: UserName,
    /// The session's inner addresses, at most one of each family: who connects from there is the session.
    pub inner: Vec<IpAddr>,
    /// The services that it may reach; none means none.
    pub services: Vec<ServiceName>,
}

/// A single-level network as its label's mediator knows it: what its hosts may reach they reach without a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRecord {
    /// The interface by which the site file names it.
    pub interface: InterfaceName,
    /// The interface's own addresses with the network's prefix lengths. Whoever connects from the network and not
    /// from an own address is a host of the network.
    pub addresses: Vec<IpNet>,
    /// The services that its hosts may reach; none means none.
    pub services: Vec<ServiceName>,
}

/// For whom a connection is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Client {
    /// A session.
    Session(SessionId),
    /// A host on the single-level network at this interface.
    Network(InterfaceName),
}

/// sessiond → mediator.
#[derive(Debug, Serialize, Deserialize)]
pub enum SessiondToMediator {
    /// The label's single-level networks, all of them. Sent again, they replace what was.
    Networks(Vec<NetworkRecord>),
    /// This session exists. Sent again, it replaces the record.
    Open(MediatedSession),
    /// This session is over: shut its connections down, then answer [`MediatorToSessiond::Closed`].
    Close(SessionId),
    /// Every live session has been named on this channel; close all others.
    Synced,
    /// Answer with the same number, to show that you live.
    Ping(u64),
    /// Answer with [`MediatorToSessiond::Report`].
    Report,
    /// Answer to [`MediatorToSessiond::Connect`], by the mediator's own number: the connection is granted, and that is in the audit
    /// log and synced.
    Pass(u64),
    /// The other answer: it is not.
    Refuse(u64),
}

/// Mediator → sessiond.
#[derive(Debug, Serialize, Deserialize)]
pub enum MediatorToSessiond {
    /// The record is in place.
    Opened(SessionId),
    /// The session's connections are shut down, and no other will be passed on.
    Closed(SessionId),
    /// Answer to [`SessiondToMediator::Ping`].
    Pong(u64),
    /// What was passed on and what was refused: counter names and values since the mediator's start.
    Report(#[serde(deserialize_with = "crate::said::counts")] Vec<(String, u64)>),
    /// Somebody of whom there is a record connects to a service in it. Answered by [`SessiondToMediator::Pass`] or
    /// [`SessiondToMediator::Refuse`].
    Connect {
        /// The mediator's own number.
        ticket: u64,
        /// Who.
        client: Client,
        /// To which service.
        service: ServiceName,
        /// The client's address and port, as the compartment sees them.
        from: SocketAddr,
    },
}

/// Mediator → process 1 of its compartment.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToStarter {
    /// A connection to this service has come and is being decided about, the first in a while: have a server process ready for
    /// one. It gets no connection by that.
    Prepare {
        /// The service.
        service: ServiceName,
    },
    /// Start a server process of this service, as the warden said how. Its connection comes along.
    Start {
        /// The mediator's own number.
        ticket: u64,
        /// The service.
        service: ServiceName,
        /// For whom, if it is for a session.
        user: Option<UserName>,
        /// The client's address and port.
        from: SocketAddr,
    },
    /// The connection of this server process is shut down: have the process and its group end.
    End {
        /// Which.
        ticket: u64,
        /// Whether at once (`SIGKILL`) and not in good order (`SIGTERM`).
        at_once: bool,
    },
}

/// Process 1 of a compartment → mediator.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromStarter {
    /// The server process could not be started.
    Refused {
        /// Which.
        ticket: u64,
    },
    /// The server process has ended.
    Ended {
        /// Which.
        ticket: u64,
    },
}
