//! What goes in and out of an [`Endpoint`](crate::Endpoint) besides datagrams.

use crate::crypto::Secret;
use crate::crypto::keys::EspKeys;
use crate::crypto::pki::{CertificateError, PeerCertificate};
use crate::crypto::sign::SignatureScheme;
use crate::crypto::suite::{ChildSuite, IkeProposal, IkeSuite, Prf};
use crate::wire::{Identity, SecurityLabel, Selector};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A source of octets that nobody can predict.
pub trait Random {
    /// Fills `out` entirely.
    fn fill(&mut self, out: &mut [u8]);
}

impl<F: FnMut(&mut [u8])> Random for F {
    fn fill(&mut self, out: &mut [u8]) {
        self(out);
    }
}

/// The time at which something happens, on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Time since some fixed moment, never going back: timers live on it.
    pub monotonic: Duration,
    /// Seconds since 1970-01-01 UTC: certificates are checked against it.
    pub unix_seconds: u64,
}

/// The names of the two ends of a datagram's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Whether the local socket carries ESP too, so that IKE messages begin with four zero octets (RFC 3948 2.2): true for port
    /// 4500 and its like, false for port 500.
    pub marker: bool,
}

/// An IKE SA, through all its rekeyings. Never used twice by an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IkeId(pub(crate) u64);

impl IkeId {
    /// The number, for logs.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A question that an event puts. Never used twice by an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) u64);

/// Who began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// This endpoint sent the first message.
    Initiator,
    /// The peer sent the first message.
    Responder,
}

/// Who the peer proved to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The identity it claimed and proved.
    pub id: Identity,
    /// Its certificate, when it proved the identity by one.
    pub certificate: Option<PeerCertificate>,
}

/// What [`Endpoint::poll`](crate::Endpoint::poll) gives.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "moved out of one queue once; a box would cost more than it saves"
)]
pub enum Output {
    /// Send this.
    Transmit {
        /// From where to where. The datagram has its non-ESP marker already.
        path: Path,
        /// The datagram.
        datagram: Vec<u8>,
    },
    /// Something happened or must be decided.
    Event(Event),
    /// Nothing more now: call again at this time on the monotonic clock, if any, or after the next input.
    Wait(Option<Duration>),
}

/// Something that happened, or a question.
#[derive(Debug)]
pub enum Event {
    /// A question: sign `octets` with the private key of `Config::peers[peer]`'s local authentication, and answer with
    /// [`Command::Signed`].
    Sign {
        /// Repeat it in the answer.
        request: RequestId,
        /// The IKE SA being made.
        ike: IkeId,
        /// Index into the configured peers.
        peer: usize,
        /// With which algorithm. The signature's form is told there.
        scheme: SignatureScheme,
        /// The octets to sign (RFC 7296 2.15), not hashed yet.
        octets: Vec<u8>,
    },
    /// A question: mix the PPK of this name into keys of an IKE SA (RFC 8784 3), and answer with [`Command::PpkMixed`]. A peer
    /// that is not authenticated yet can cause it.
    MixPpk {
        /// Repeat it in the answer.
        request: RequestId,
        /// The IKE SA being made.
        ike: IkeId,
        /// Index into the configured peers.
        peer: usize,
        /// PPK_ID_FIXED, as `Config::peers[peer]` has it: that of now, or the one before it.
        id: Vec<u8>,
        /// By which prf.
        prf: Prf,
        /// The keys as they are.
        keys: PpkKeys,
    },
    /// Both sides are authenticated.
    IkeEstablished {
        /// The IKE SA.
        ike: IkeId,
        /// Who began it.
        role: Role,
        /// Index into the configured peers.
        peer: usize,
        /// Who the peer is.
        identity: PeerIdentity,
        /// Where it is.
        path: Path,
        /// Its algorithms.
        suite: IkeSuite,
        /// The inner addresses that the peer assigned to us by configuration payload.
        assigned: Vec<InnerAddress>,
        /// The peer said that it has no other IKE SA with us (INITIAL_CONTACT): older ones with this identity are dead.
        initial_contact: bool,
        /// The PPK in its keys (RFC 8784), if there is one, by name.
        ppk: Option<Vec<u8>>,
    },
    /// The IKE SA was rekeyed; its children live on.
    IkeRekeyed {
        /// The IKE SA; its name stays.
        ike: IkeId,
        /// The algorithms from now on.
        suite: IkeSuite,
    },
    /// Its keys were not replaced: the peer refuses, or puts it off too often. The old ones are as good as before.
    IkeNotRekeyed {
        /// The IKE SA.
        ike: IkeId,
        /// What the peer said.
        reason: String,
    },
    /// The IKE SA and all its children are gone. Children are not told one by one.
    IkeClosed {
        /// The IKE SA.
        ike: IkeId,
        /// Why.
        reason: CloseReason,
        /// Inbound SPIs of the children that went with it.
        children: Vec<u32>,
    },
    /// The IKE SA has lived as long as it should: answer with [`Command::RekeyIke`] or [`Command::CloseIke`].
    IkeRekeyDue {
        /// The IKE SA.
        ike: IkeId,
    },
    /// A question: may the peer have this child SA? Answer with [`Command::Decide`].
    ChildRequested(ChildRequested),
    /// A child SA exists. Its keys are here and nowhere else.
    ChildEstablished(ChildEstablished),
    /// A child SA that this endpoint asked for did not come about.
    ChildFailed {
        /// The IKE SA, which stays.
        ike: IkeId,
        /// The inbound SPI that was meant for it, free again.
        inbound: u32,
        /// The child that was to be rekeyed, by its inbound SPI; it stays.
        rekeys: Option<u32>,
        /// Why.
        reason: ChildError,
    },
    /// A child SA is gone.
    ChildClosed {
        /// The IKE SA, which stays.
        ike: IkeId,
        /// Its SPI towards us.
        inbound: u32,
        /// Its SPI towards the peer.
        outbound: u32,
        /// Why.
        reason: ChildClosed,
    },
    /// The peer is reached elsewhere now (RFC 7296 2.23).
    PathChanged {
        /// The IKE SA.
        ike: IkeId,
        /// The new way.
        path: Path,
    },
}

/// The keys of an IKE SA that a PPK is mixed into (RFC 8784 3), each as long as the prf's output: prf+ (PPK, key) of that length takes
/// each one's place. Erased when dropped; not printable.
#[derive(Debug, PartialEq, Eq)]
pub struct PpkKeys {
    /// SK_d.
    pub d: Secret,
    /// SK_pi.
    pub pi: Secret,
    /// SK_pr.
    pub pr: Secret,
}

/// An address that one peer assigns to the other (RFC 7296 3.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InnerAddress {
    /// The address to use inside the tunnel.
    Address(IpAddr),
    /// A name server inside the tunnel.
    Dns(IpAddr),
}

/// The peer asks for a child SA, or to rekey one.
#[derive(Debug, Clone)]
pub struct ChildRequested {
    /// Repeat it in the answer.
    pub request: RequestId,
    /// The IKE SA: established, or about to be (its peer is authenticated in either case).
    pub ike: IkeId,
    /// Index into the configured peers.
    pub peer: usize,
    /// Who asks.
    pub identity: PeerIdentity,
    /// From where.
    pub path: Path,
    /// What the IKE SA's keys were agreed by.
    pub suite: IkeSuite,
    /// The labels to choose from (RFC 9478); none when the peer wants an unlabelled SA.
    pub labels: Vec<SecurityLabel>,
    /// Addresses on our side that the peer wants to reach.
    pub local: Vec<Selector>,
    /// Addresses on its own side.
    pub remote: Vec<Selector>,
    /// The child to be replaced, by its inbound SPI. Its label is the request's: anything else was refused already.
    pub rekeys: Option<u32>,
    /// Whether it asks for AGGFRAG payloads in a form that can be given (RFC 9347 5.1).
    pub aggfrag: bool,
    /// Whether the child has a key exchange of its own.
    pub key_exchange: bool,
    /// Whether the peer asks for an inner address by configuration payload.
    pub wants_address: bool,
    /// The child is one of several with the same label and selectors, each for one resource (RFC 9611); this is the peer's.
    pub resource: Option<Resource>,
}

/// The name of a resource, such as a processor or a worker, that one of several child SAs with the same label and selectors is for
/// (RFC 9611 5.1). It means something to its sender alone, and may be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resource(Vec<u8>);

impl Resource {
    /// A name of at most 64 octets; `None` when it is longer.
    pub fn new(octets: &[u8]) -> Option<Self> {
        (octets.len() <= 64).then(|| Self(octets.to_vec()))
    }

    /// The octets.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The answer to [`ChildRequested`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildDecision {
    /// It may.
    Accept {
        /// The inbound SPI: at least 256 and used by no other child of this endpoint.
        spi: u32,
        /// The label: one of those asked for; `None` only where none was asked for.
        label: Option<SecurityLabel>,
        /// Most that the peer may reach on our side; what it asked for beyond is cut off.
        local: Vec<Selector>,
        /// Most that it may be on its side.
        remote: Vec<Selector>,
        /// What to assign to the peer, if it asked.
        assign: Vec<InnerAddress>,
        /// Our resource, told to a peer that named one of its own (RFC 9611); more children like this one are then welcome.
        resource: Option<Resource>,
        /// Whether to grant AGGFRAG payloads to a peer that asks for them (RFC 9347 5.1).
        aggfrag: bool,
    },
    /// It has as many children with these selectors as it may have: TS_MAX_QUEUE (RFC 9611 5.2), and the IKE SA stays.
    NoMore,
    /// Not now: TEMPORARY_FAILURE (RFC 7296 2.25), and it may ask again.
    Later,
    /// It may not: TS_UNACCEPTABLE, and the IKE SA stays.
    Refuse,
}

/// A child SA, with its keys.
#[derive(Debug)]
pub struct ChildEstablished {
    /// The IKE SA that made it.
    pub ike: IkeId,
    /// Who began the exchange that made it.
    pub role: Role,
    /// Index into the configured peers.
    pub peer: usize,
    /// SPI towards us.
    pub inbound: u32,
    /// SPI towards the peer.
    pub outbound: u32,
    /// Keys towards us.
    pub inbound_keys: EspKeys,
    /// Keys towards the peer.
    pub outbound_keys: EspKeys,
    /// The label, for the SA's life.
    pub label: Option<SecurityLabel>,
    /// Our side.
    pub local: Vec<Selector>,
    /// The peer's side.
    pub remote: Vec<Selector>,
    /// Its algorithms. `suite.key_exchange` is `None` when its keys follow from the IKE SA's.
    pub suite: ChildSuite,
    /// The child that this one replaces, by its inbound SPI. Who began the rekeying deletes that one.
    pub rekeys: Option<u32>,
    /// Where packets go and come from.
    pub path: Path,
    /// Whether ESP goes in UDP (RFC 3948).
    pub udp: bool,
    /// AGGFRAG payloads, and nothing else, if both ends want them (RFC 9347).
    pub aggfrag: Option<Aggfrag>,
    /// The peer's resource, where both ends named one: the peer takes more children with this label and these selectors (RFC 9611).
    pub resource: Option<Resource>,
}

/// What the peer said of AGGFRAG payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aggfrag {
    /// Whether it takes packets in pieces.
    pub fragments: bool,
}

/// What a wanted child SA is to be like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChild {
    /// The inbound SPI: at least 256 and used by no other child of this endpoint.
    pub spi: u32,
    /// The label. The peer must agree to exactly this one.
    pub label: Option<SecurityLabel>,
    /// Our side.
    pub local: Vec<Selector>,
    /// The peer's side.
    pub remote: Vec<Selector>,
    /// Whether to ask for an inner address by configuration payload; only in the first exchange.
    pub want_address: bool,
    /// Our resource, when this is to be one of several children with this label and these selectors (RFC 9611). A peer that has
    /// enough answers TS_MAX_QUEUE.
    pub resource: Option<Resource>,
    /// Whether to ask for AGGFRAG payloads (RFC 9347 5.1). A peer that does not know them says nothing, and the child comes without.
    pub aggfrag: bool,
}

/// A wish, or an answer to a question.
#[derive(Debug)]
pub enum Command {
    /// The answer to [`Event::Sign`]. `None`: there will be no signature, and the IKE SA fails.
    Signed {
        /// As in the event.
        request: RequestId,
        /// The signature, in the form that its scheme tells.
        signature: Option<Vec<u8>>,
    },
    /// The answer to [`Event::MixPpk`]. `None`, and keys of another length: there are none, and the IKE SA fails.
    PpkMixed {
        /// As in the event.
        request: RequestId,
        /// The keys with the PPK in them.
        keys: Option<PpkKeys>,
    },
    /// The answer to [`Event::ChildRequested`].
    Decide {
        /// As in the event.
        request: RequestId,
        /// The answer.
        decision: ChildDecision,
    },
    /// Ask the peer for a child SA, with a key exchange of its own.
    CreateChild {
        /// The IKE SA.
        ike: IkeId,
        /// What it is to be like.
        child: NewChild,
    },
    /// Replace a child SA by one with new keys, the same label and the same selectors.
    RekeyChild {
        /// The IKE SA.
        ike: IkeId,
        /// The child, by its inbound SPI.
        inbound: u32,
        /// The new child's inbound SPI.
        spi: u32,
    },
    /// Delete a child SA.
    CloseChild {
        /// The IKE SA.
        ike: IkeId,
        /// The child, by its inbound SPI.
        inbound: u32,
    },
    /// From now on the IKE SA's keys are replaced by what one of these proposals has, whoever begins; `None`: by what the configuration
    /// has. The keys that it has stay until then.
    NarrowIke {
        /// The IKE SA.
        ike: IkeId,
        /// The preferred first; none at all is refused.
        proposals: Option<Vec<IkeProposal>>,
    },
    /// Replace the IKE SA's keys.
    RekeyIke {
        /// The IKE SA.
        ike: IkeId,
    },
    /// Delete the IKE SA and its children.
    CloseIke {
        /// The IKE SA.
        ike: IkeId,
    },
    /// Forget the IKE SA and its children at once and without a word: the peer has said that it has them no more (RFC 7296 2.4).
    ForgetIke {
        /// The IKE SA.
        ike: IkeId,
    },
    /// Ask the peer whether it is alive (RFC 7296 2.4). Silence ends in [`CloseReason::PeerSilent`].
    Probe {
        /// The IKE SA.
        ike: IkeId,
    },
}

/// Why a command was not taken. The state is as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandError {
    /// No such IKE SA, or it is not established (yet, or any more).
    NoSuchIke,
    /// No such child SA, or it is being replaced or deleted already.
    NoSuchChild,
    /// No such question, or it was answered, or it went with its IKE SA.
    NoSuchRequest,
    /// No such configured peer.
    NoSuchPeer,
    /// The SPI is below 256 or in use.
    SpiInUse,
    /// The label was not among those asked for.
    WrongLabel,
    /// Too much is queued, or the endpoint is full.
    Busy,
    /// The configuration or the random source does not allow it.
    Impossible,
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoSuchIke => "no such established IKE SA",
            Self::NoSuchChild => "no such child SA, or it is being replaced or deleted",
            Self::NoSuchRequest => "no such open question",
            Self::NoSuchPeer => "no such configured peer",
            Self::SpiInUse => "the SPI is below 256 or in use",
            Self::WrongLabel => "the label was not asked for",
            Self::Busy => "too much is queued",
            Self::Impossible => "the configuration or the random source does not allow it",
        })
    }
}

impl std::error::Error for CommandError {}

/// Why an IKE SA is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// This endpoint was told to delete or to forget it.
    Local,
    /// The peer deleted it.
    Peer,
    /// No answer to any retransmission.
    PeerSilent,
    /// The peer sent this error notification, by its registered name.
    Notified(String),
    /// The peer's certificate or signature was not believed.
    Certificate(CertificateError),
    /// The peer's shared key, identity, PPK or kind of authentication was wrong.
    Authentication(&'static str),
    /// The peer broke the protocol; the text says where.
    Protocol(&'static str),
    /// The signature that was asked for did not come.
    NotSigned,
    /// The PPK was not mixed in by who holds it.
    PpkNotMixed,
    /// The handshake took too long.
    TimedOut,
}

/// Why a child SA that this endpoint asked for did not come about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildError {
    /// The peer sent this error notification, by its registered name: TS_UNACCEPTABLE when it refuses the label or selectors.
    Notified(String),
    /// The peer's answer was not an answer to the request: another label, wider selectors, other algorithms.
    BadAnswer(&'static str),
    /// The child to be rekeyed went away, or the peer's own rekeying of it won.
    Superseded,
    /// The IKE SA was made without it because the peer is childless-only or said nothing of it.
    NotAnswered,
}

/// Why a child SA is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildClosed {
    /// This endpoint was told to delete it.
    Local,
    /// The peer deleted it.
    Peer,
    /// Its successor took its place.
    Rekeyed,
    /// Of two that replaced the same child at once this one lost (RFC 7296 2.8.1).
    Collision,
}
