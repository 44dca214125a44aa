//! Agrees keys by IKEv2 (`levee-ike`) and hands each pair to the one vault of its label.
//!
//! On a server it answers whoever has a certificate of the site's authority, and asks sessiond at every negotiation
//! whether that host has a session at that label now. On a workstation it negotiates for the one session there is.
//! It has no long-term key: the signer signs.
//!
//! It may not keep a key that it has given away, nor say who has a session. Begin reading with `keyer.rs`, then `server.rs` or `workstation.rs`.
#![forbid(unsafe_code)]

mod accreditation;
mod carriage;
mod children;
mod exchanges;
mod keyer;
mod net;
mod server;
mod shares;
mod signer;
mod source;
mod start;
mod timers;
mod workstation;

fn main() -> std::process::ExitCode {
    levee_daemon::run("levee-keyer", || start::start()?.map_or(Ok(()), keyer::serve))
}
