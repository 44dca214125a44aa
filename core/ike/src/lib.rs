//! IKEv2 (RFC 7296) without I/O: a state machine for both roles and any number of IKE SAs, to which datagrams, time and random
//! octets are arguments, and which answers with datagrams, timers and events.
//!
//! [`Endpoint`] has three verbs. [`handle`](Endpoint::handle) takes a datagram from the network, [`command`](Endpoint::command) (with
//! [`connect`](Endpoint::connect)) takes a wish or an answer of the surrounding program, and [`poll`](Endpoint::poll) does what is due and
//! gives, one at a time, what there is to send, to decide or to know, and at last the time of the next timer.
//!
//! Three things are deliberately absent. Private keys and PPKs: who has them is another process, reached by [`Event::Sign`] and
//! [`Command::Signed`], [`Event::MixPpk`] and [`Command::PpkMixed`]. Decisions about who may have which child SA: [`Event::ChildRequested`] and [`Command::Decide`]. And the keys of
//! child SAs: they leave in [`Event::ChildEstablished`], once, and are kept nowhere here.
//!
//! Any datagram from anyone leads to no panic, bounded memory and bounded time; what is dropped is counted by reason ([`Drop`]).
//!
//! It may not have a socket, a clock, randomness of its own or a long-term key. Begin reading with `api.rs`, then `endpoint.rs`; an SA's life is from `sa/initiator.rs` or `sa/responder.rs` to `sa/established.rs`.

mod api;
mod channel;
mod config;
mod crypto;
mod door;
mod drops;
mod endpoint;
mod sa;
mod wire;

pub use api::{
    Aggfrag, ChildClosed, ChildDecision, ChildError, ChildEstablished, ChildRequested, CloseReason, Command,
    CommandError, Event, IkeId, InnerAddress, NewChild, Now, Output, Path, PeerIdentity, PpkKeys, Random,
    RequestId, Resource, Role,
};
pub use config::{Childless, Config, Limits, LocalAuth, Peer, Ppk, RemoteAuth, RemoteId, Timers};
pub use crypto::Secret;
pub use crypto::keys::EspKeys;
pub use crypto::pki::{CertificateError, InvalidCertificate, PeerCertificate, TrustAnchors, dns_names};
pub use crypto::sign::SignatureScheme;
pub use crypto::suite::{
    ChildProposal, ChildSuite, Encryption, IkeProposal, IkeSuite, Integrity, KeyExchange, Prf,
};
pub use door::Pass;
pub use drops::{Counters, Drop};
pub use endpoint::Endpoint;
pub use wire::{Identity, InvalidLabel, Malformed, SecurityLabel, Selector};
