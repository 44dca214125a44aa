//! What an endpoint is told once.

use crate::crypto::Secret;
use crate::crypto::pki::TrustAnchors;
use crate::crypto::sign::SignatureScheme;
use crate::crypto::suite::{ChildProposal, IkeProposal};
use crate::wire::{Identity, SecurityLabel};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The configuration of an [`Endpoint`](crate::Endpoint).
#[derive(Debug)]
pub struct Config {
    /// Whom to talk to. A request's identities choose the first entry that fits.
    pub peers: Vec<Peer>,
    /// Proposals for IKE SAs, the preferred first.
    pub ike: Vec<IkeProposal>,
    /// Proposals for child SAs, the preferred first.
    pub child: Vec<ChildProposal>,
    /// The same for child SAs of these labels, in place of those. Where a label has none here, nothing is agreed at it.
    pub labelled: BTreeMap<SecurityLabel, Vec<ChildProposal>>,
    /// Say a wrong address in NAT detection, so that every peer sends ESP in UDP (RFC 7296 2.23 allows it: "encapsulation may be
    /// forced"). levee's vaults receive nothing else.
    pub force_udp: bool,
    /// Bounds.
    pub limits: Limits,
    /// Times.
    pub timers: Timers,
}

impl Config {
    /// The defaults, with these peers.
    pub fn new(peers: Vec<Peer>) -> Self {
        Self {
            peers,
            ike: vec![IkeProposal::default()],
            child: vec![ChildProposal::default()],
            labelled: BTreeMap::new(),
            force_udp: true,
            limits: Limits::default(),
            timers: Timers::default(),
        }
    }

    /// What may be agreed for a child that has one of these labels: of the first with proposals of its own, if one has.
    pub(crate) fn child_at<'a>(
        &self,
        labels: impl IntoIterator<Item = &'a SecurityLabel>,
    ) -> &[ChildProposal] {
        labels.into_iter().find_map(|label| self.labelled.get(label)).unwrap_or(&self.child)
    }
}

/// Bounds on what others can make an endpoint keep.
#[derive(Debug, Clone)]
pub struct Limits {
    /// IKE SAs in all.
    pub ike_sas: usize,
    /// Half-open IKE SAs of strangers, as responder; at each bound an old one gives way.
    pub half_open: usize,
    /// Half-open IKE SAs of those who began with a [`Pass`](crate::Pass), beside those of strangers.
    pub half_open_with_pass: usize,
    /// Half-open IKE SAs from one IPv4 address or one IPv6 /64.
    pub half_open_per_network: usize,
    /// Half-open IKE SAs from one IPv4 /24 or one IPv6 /48.
    pub half_open_per_wide_network: usize,
    /// Key exchanges that strangers can have begun in a second, and a quarter more for networks that have many already: what they can
    /// cost.
    pub strangers_per_second: u32,
    /// Half-open IKE SAs of strangers above which a cookie is demanded (RFC 7296 2.6).
    pub cookie_above: usize,
    /// Child SAs of one IKE SA.
    pub children: usize,
    /// Octets of a datagram's UDP payload above which a message is fragmented (RFC 7383).
    pub fragment_above: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ike_sas: 16_384,
            half_open: 4_096,
            half_open_with_pass: 1_024,
            half_open_per_network: 64,
            half_open_per_wide_network: 512,
            strangers_per_second: 400,
            cookie_above: 128,
            children: 256,
            fragment_above: 1_232,
        }
    }
}

/// Times.
#[derive(Debug, Clone)]
pub struct Timers {
    /// Until the first retransmission; each next wait is longer by 1.8.
    pub retransmit: Duration,
    /// Retransmissions before the peer counts as silent.
    pub tries: u32,
    /// From the first message to the established IKE SA, as responder.
    pub half_open: Duration,
    /// Silence after which the peer is asked whether it lives; `None`: never.
    pub liveness: Option<Duration>,
    /// Age at which [`Event::IkeRekeyDue`](crate::Event::IkeRekeyDue) comes; `None`: never.
    pub ike_rekey: Option<Duration>,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            retransmit: Duration::from_millis(1_000),
            tries: 6,
            half_open: Duration::from_secs(30),
            liveness: Some(Duration::from_secs(30)),
            ike_rekey: Some(Duration::from_secs(4 * 3600)),
        }
    }
}

/// Which identities a [`Peer`] may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteId {
    /// This one.
    Exactly(Identity),
    /// Any that a certificate under the trust anchors names. With a shared key it means none.
    AnyCertified,
}

/// How this endpoint proves its identity.
#[derive(Debug, Clone)]
pub enum LocalAuth {
    /// By a shared key of high entropy.
    SharedKey(Secret),
    /// By a certificate, whose private key is elsewhere ([`Event::Sign`](crate::Event::Sign)).
    Certificate {
        /// The own certificate first, then the authorities between it and the peer's anchors, in DER.
        chain: Vec<Vec<u8>>,
        /// What the private key can sign with, the preferred first.
        schemes: Vec<SignatureScheme>,
    },
}

/// How the peer must prove its identity.
#[derive(Debug, Clone)]
pub enum RemoteAuth {
    /// By a shared key.
    SharedKey(Secret),
    /// By a certificate.
    Certificate {
        /// Who may have issued it.
        anchors: Arc<TrustAnchors>,
        /// What it may be signed with.
        schemes: Vec<SignatureScheme>,
    },
}

/// Whether IKE SAs are made without a first child (RFC 6023).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Childless {
    /// A first child in IKE_AUTH, where one is wanted.
    Never,
    /// Childless if the peer can, as initiator; either, as responder.
    Allow,
    /// Childless or not at all: between levee hosts, so that every child has a key exchange of its own.
    Force,
}

/// A post-quantum preshared key (RFC 8784), by its name. The key itself is elsewhere ([`Event::MixPpk`](crate::Event::MixPpk)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ppk {
    /// PPK_ID_FIXED, by which the two ends name the key.
    pub id: Vec<u8>,
    /// While one key follows another: the one before it, which is taken from a peer that begins with it. An endpoint that begins uses
    /// `id`.
    pub former: Option<Vec<u8>>,
    /// Whether a peer that begins without it is refused. An endpoint that begins uses the key that it has, and takes no answer
    /// without.
    pub mandatory: bool,
}

/// A peer, or all peers that are alike.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Who we are to it.
    pub local_id: Identity,
    /// Who it may be.
    pub remote_id: RemoteId,
    /// How we prove it.
    pub local_auth: LocalAuth,
    /// How it proves it.
    pub remote_auth: RemoteAuth,
    /// Whether the first exchange makes a child.
    pub childless: Childless,
    /// The PPK shared with it.
    pub ppk: Option<Ppk>,
}
