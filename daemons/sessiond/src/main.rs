//! Credentials, sessions, audit log: everything that a person's permission depends on.
//!
//! One thread hears every channel and holds every decision; a few more hash passwords, or wait until the log is on the disk. It reads
//! no byte that a client wrote: the trusted path's children parse those into the types of `levee_ipc::client`.
//!
//! It may not parse a client's bytes, hold a private key or see a packet. Begin reading with `daemon.rs`; the decisions are in `core/session` and `core/policy`.
#![forbid(unsafe_code)]

mod audit;
mod auditor;
mod away;
mod clock;
mod codes;
mod convert;
mod counts;
mod daemon;
mod devices;
mod failed;
mod federation;
mod guards;
mod heard;
mod known;
mod mediation;
mod notes;
mod offer;
mod operators;
mod passes;
mod passwords;
mod prices;
mod rates;
mod revoked;
mod start;
mod statements;
mod store;
mod vaults;
mod worded;

fn main() -> std::process::ExitCode {
    levee_daemon::run("levee-sessiond", start::serve)
}
