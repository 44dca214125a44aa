//! Holds the long-term private keys and signs one typed thing at a time; holds the PPKs and mixes one into the keys of an IKE SA;
//! chains the records of the audit log, so that what sessiond has once written it cannot write anew.
//!
//! Every channel has one use, which the warden says when it attaches it; a request of another use, or of the
//! wrong form, is refused. No file is opened after the start, and nothing but descriptors is ever named.
//!
//! It may not sign octets of any other form, nor open a file once it has begun. Begin reading with `serve.rs`, then `content.rs`: what may be signed.
#![forbid(unsafe_code)]

mod away;
mod content;
mod keys;
mod ledger;
mod ppk;
mod serve;

fn main() -> std::process::ExitCode {
    levee_daemon::run("levee-signer", serve::serve)
}
