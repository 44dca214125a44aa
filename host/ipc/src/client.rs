//! The trusted path: a person's TPE ↔ tps child (inside TLS 1.3) ↔ sessiond.
//!
//! On the wire each message is padded to one of few lengths ([`crate::CLASSES`]), so that no label or name shows by one. The tps child parses
//! a message into these types and encodes it again for sessiond, which therefore never reads a client's bytes.

use crate::Secret;
use crate::device::Proof;
use crate::keyer::Pass;
use crate::vault::Carriage;
use ipnet::IpNet;
use levee_policy::decision::Carry;
use levee_policy::site::Protected;
use levee_policy::{ChannelName, DomainName, LabelName, ProtectionName, ServiceName, UserName};
use levee_prices::Told;
use levee_session::SessionId;
pub use levee_session::{Accessible, Consent, RefusalKind, ReleaseId, Released};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// For how long a TPE keeps a session, its programs and its files without an answer from the server, counted from when it
/// asked what was answered last. The server's own time begins later, so that nothing of a session is left here when the
/// server has ended it; a silence that is shorter than [`SILENCE`] cannot be told from none.
pub fn patience(grace: Duration) -> Duration {
    grace.max(SILENCE)
}

/// The most bytes one message has on the wire, length not counted.
pub const MAX_FRAME: usize = 16 * 1024;

/// A TPE with nothing to say sends a keep-alive so often.
pub const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// A trusted path on which nothing has come for so long is lost, on either side: two keep-alives, and TCP's attempts
/// to send the first of them again. A session's grace time begins then.
pub const SILENCE: Duration = levee_session::LOST;

/// tps → sessiond, on the parent's own channel.
#[derive(Debug, Serialize, Deserialize)]
pub enum TpsToSessiond {
    /// A client has connected from here; the channel of the child that serves it comes along.
    Client(SocketAddr),
    /// Connections that ended since the last such message, by how and from where.
    Dropped(Vec<Dropped>),
}

/// Connections that ended in one way and came from one network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// How they ended.
    pub reason: String,
    /// The /24 (IPv6: /64) that they came from; `None` where too many were told apart, or there was none.
    pub from: Option<IpNet>,
    /// How many.
    pub count: u64,
}

/// tps child → sessiond.
#[derive(Debug, Serialize, Deserialize)]
pub enum ChildToSessiond {
    /// First, once: TLS is up, with a certificate of the site. Whose it is, the child is not asked: the device proves it
    /// ([`Request::Prove`]).
    Hello {
        /// The connection's number, drawn from its keys ([`crate::device::EXPORTER`]).
        exporter: [u8; 32],
    },
    /// What the client asks.
    Request(Request),
}

/// TPE → server.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// First: what is the device to sign? Answered by [`Reply::Challenge`].
    Hello,
    /// Second: which device this is. Answered by [`Reply::Alive`]; nothing else is done before.
    Prove(Box<Proof>),
    /// Sign a person on.
    Login {
        /// Who.
        user: UserName,
        /// Their password.
        password: Secret,
        /// The code of their second factor, where the site asks for one.
        code: Option<Secret>,
    },
    /// Take a session up again after the trusted path was lost.
    Resume(SessionId),
    /// Open a session at this label, ending the one there is; with this protection beyond what every tunnel there has.
    Level(LabelName, Option<ProtectionName>),
    /// Change the password of the person signed on.
    Passwd {
        /// The present one.
        old: Secret,
        /// The new one.
        new: Secret,
    },
    /// What is so now?
    Status,
    /// Nothing; keeps the trusted path alive.
    KeepAlive,
    /// As [`Request::KeepAlive`]; and the person has done something since the request before.
    Active,
    /// Let nothing of the session pass until its person has proved themself again. Answered by [`Reply::Locked`].
    Lock,
    /// The person who is signed on proves themself. Answered by [`Reply::Unlocked`].
    Unlock {
        /// Their password.
        password: Secret,
        /// The code of their second factor, where the site asks for one.
        code: Option<Secret>,
    },
    /// End the session there is and sign off.
    Logout,
    /// Let this file out of the session there is, or into it.
    Carry(Carry),
    /// Which messages of guards wait for the person signed on? Answered by [`Reply::Releases`].
    Releases,
    /// Show such a message, from this octet on. Answered by [`Reply::Part`].
    ShowRelease {
        /// Which.
        id: ReleaseId,
        /// The first octet to be shown.
        from: u32,
    },
    /// A message that has been shown may pass, or may not. Answered by [`Reply::Released`].
    Release {
        /// Which.
        id: ReleaseId,
        /// SHA-256 of what was shown.
        digest: [u8; 32],
        /// What the person says.
        consent: Consent,
    },
    /// Which services at the session's label are for some people alone? Answered by [`Reply::Accesses`].
    Accesses,
    /// Somebody reaches a service of the person's at the session's label, or does not. Answered by [`Reply::AccessChanged`].
    Access {
        /// Which service.
        service: ServiceName,
        /// Who.
        user: UserName,
        /// Whether.
        admits: bool,
    },
}

/// Server → TPE: one for each request, in order; and those for which [`Reply::is_unasked`] at any time.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Answer to [`Request::Hello`]: a number that nobody has seen, to be signed ([`crate::device::proof_message`]).
    Challenge([u8; 32]),
    /// Signed on.
    LoggedIn(Login),
    /// A session is open at this label.
    Opened(Box<Opened>),
    /// The session goes on.
    Resumed(Status),
    /// The password is changed.
    PasswordChanged,
    /// Answer to [`Request::Status`].
    Status(Status),
    /// Answer to [`Request::KeepAlive`], [`Request::Active`] and [`Request::Prove`].
    Alive,
    /// Signed off; no packet of the session will pass any more.
    LoggedOut,
    /// No, and why, in words for the person.
    Refused {
        /// For programs.
        kind: RefusalKind,
        /// For people.
        reason: String,
    },
    /// Unasked: the session was ended by the server.
    Ended {
        /// Why, in words for the person.
        reason: String,
    },
    /// Unasked: what the person should know.
    Notice {
        /// In their words.
        reason: String,
    },
    /// Unasked: the server has signed the person off, and what they had is over.
    SignedOff {
        /// Why, in words for the person.
        reason: String,
    },
    /// Unasked: the server's keyer does not know this TPE any more, or the session's packets are to go in another way; negotiate keys anew.
    Renew {
        /// For that.
        passes: Vec<Pass>,
        /// How packets are to go from then on.
        carriage: Carriage,
    },
    /// Messages that wait, the oldest first.
    Releases(Vec<Release>),
    /// A part of a message.
    Part(Vec<u8>),
    /// What has become of a message.
    Released(Released),
    /// Services that are for some people alone.
    Accesses(Vec<Accessible>),
    /// It is so, and nothing passes by what was so before.
    AccessChanged,
    /// The file may pass; that it does is in the audit log.
    Carried,
    /// No packet of the session passes the server.
    Locked,
    /// Packets of the session pass the server again.
    Unlocked,
    /// Unasked: the server has locked the session.
    LockedUnasked {
        /// Why, in words for the person.
        reason: String,
    },
}

impl Reply {
    /// Whether it is no answer to a request.
    pub fn is_unasked(&self) -> bool {
        matches!(
            self,
            Self::Ended { .. }
                | Self::Notice { .. }
                | Self::SignedOff { .. }
                | Self::Renew { .. }
                | Self::LockedUnasked { .. }
        )
    }
}

/// A message of a guard that waits for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// By this it is asked for.
    pub id: ReleaseId,
    /// Which guard's.
    pub channel: ChannelName,
    /// SHA-256 of it.
    pub digest: [u8; 32],
    /// Octets of it.
    pub octets: u32,
    /// The label that it would get to.
    pub to: LabelName,
    /// How long it still waits.
    pub left: Duration,
    /// Who has released it.
    pub by: Vec<UserName>,
}

/// Somebody signed on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Login {
    /// Who.
    pub user: UserName,
    /// The labels at which a session may be opened from this TPE, lowest first, at most 256 of them; of more, the lowest and the highest.
    pub labels: Vec<LabelName>,
    /// What labels are made of, where there are more than could be listed.
    pub lattice: Option<Lattice>,
    /// The person's clearance, as the site file has it.
    pub clearance: String,
}

/// More labels than can be listed, by their parts: a level, some of the categories, the needed ones among them, and an integrity.
/// Which of them may be opened the server decides when it is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lattice {
    /// How many labels that makes.
    pub count: u64,
    /// Levels, lowest first.
    pub levels: Vec<String>,
    /// Categories in the site's order; none where they are too many for one message.
    pub categories: Vec<String>,
    /// The categories that every one of the labels has.
    pub needed: Vec<String>,
    /// What may stand behind the `@`, the cleanest first; one that is empty where the site has no integrity.
    pub integrity: Vec<String>,
}

/// A session was opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// Its name.
    pub session: SessionId,
    /// Its label.
    pub label: LabelName,
    /// The banner's colour.
    pub colour: Option<String>,
    /// The session's inner addresses.
    pub inner: Vec<IpAddr>,
    /// Inner addresses at which the services answer, the same at every level.
    pub services: Vec<IpAddr>,
    /// Names for the first of `services`.
    pub names: Vec<DomainName>,
    /// What is reached through the tunnel, and nothing else.
    pub reach: Vec<Reached>,
    /// What some of that is called: for the person to read, and for nothing else.
    pub offered: Vec<Offered>,
    /// Inner MTU in bytes.
    pub mtu: u16,
    /// How its packets are to go: to be asked for when keys are negotiated.
    pub carriage: Carriage,
    /// What its tunnel must have.
    pub protected: Protected,
    /// What that costs, or why nobody knows: for the person to read, and for nothing else.
    pub costs: Told,
    /// UDP port of the tunnel at the address of the trusted path.
    pub tunnel_port: u16,
    /// The site's other servers, whose services the session reaches as well.
    pub others: Vec<OtherServer>,
    /// For how long the server keeps the session when the trusted path is lost.
    pub grace: Duration,
    /// What the server's keyer knows this workstation by.
    pub passes: Vec<Pass>,
}

/// One thing that a session may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reached {
    /// Its address.
    pub address: IpAddr,
    /// The IP protocol's number.
    pub protocol: u8,
    /// Its port.
    pub port: u16,
}

/// A service, the same at every server of the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// Its name.
    pub service: ServiceName,
    /// The IP protocol's number.
    pub protocol: u8,
    /// Its port.
    pub port: u16,
}

/// The most octets that names of services take in [`Opened`]; it has none where they would show by its length (`shown.rs`).
pub const MAX_OFFERED: usize = 512;

/// Another server of the site.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OtherServer {
    /// The name in its certificate.
    pub name: DomainName,
    /// Where it receives the tunnel.
    pub tunnel: SocketAddr,
    /// Inner addresses at which its services answer.
    pub services: Vec<IpAddr>,
    /// Names for the first of `services`.
    pub names: Vec<DomainName>,
    /// What is reached there, and nothing else.
    pub reach: Vec<Reached>,
}

/// What is so now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Who is signed on.
    pub user: Option<UserName>,
    /// The session's name and label, if one is open.
    pub session: Option<(SessionId, LabelName)>,
    /// Seconds since the session's person signed on.
    pub age: u64,
    /// Whether the session is locked.
    pub locked: bool,
}
