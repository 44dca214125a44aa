//! The second tunnel: QUIC datagrams (RFC 9000, 9221) around ESP and IKE, from a workstation to its server.
//!
//! It sees what an onlooker of the tunnel within would see, and has no key of it. Taken over, it can drop, delay, repeat and make up
//! datagrams, which ESP and IKE refuse as they refuse an onlooker's. Keyer and vaults of a site with two layers have loopback sockets
//! alone, so that nothing passes where this process does not.
//!
//! Where a site has a gateway, this is two processes on two hosts: the end of the tunnels there, and at the server one that passes on
//! (`relay.rs`).
//!
//! It may not have a key of the first tunnel, nor open a file. Begin reading with `serve.rs`, then `quic.rs`.
#![forbid(unsafe_code)]

pub mod carried;
pub mod crypto;
pub mod loopback;
pub mod quic;
mod relay;
mod serve;
mod start;
mod strangers;
mod together;

/// Works until the warden says that it is over.
///
/// # Errors
/// Why it cannot go on.
pub fn run() -> Result<(), levee_daemon::Fatal> {
    match start::start()? {
        Some(start::Work::End(started)) => serve::serve(*started),
        Some(start::Work::Relay(relay)) => relay.work(),
        None => Ok(()),
    }
}
