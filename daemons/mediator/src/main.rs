//! levee: the mediator of one label (MYSEA 2.3.2: the Secure Session Server, parent and child).
//!
//! It accepts the connections to services whose mode is `handoff` or `relay`. Each is for somebody: the peer's address is in
//! the record of a session, or of a single-level network, that sessiond gave it directly. Without a record, or where the service is
//! not in it, the connection is closed and counted. Else sessiond has the grant written, and synced where the site does not say `audit = "written"`, and then the connection
//! is handed to a server process that process 1 of the compartment starts for it (the mediator keeps a duplicate), or
//! relayed to the daemon. When the session ends, its connections are shut down before that is acknowledged.
//!
//! It reads no byte of a connection: those it relays go from socket to socket by way of a pipe (splice(2)).
//!
//! It may not read a byte of a connection, nor pass one on without a grant. Begin reading with `serve.rs`, then `records.rs`: whose connection it is.
#![forbid(unsafe_code)]

mod kept;
mod records;
mod relay;
mod serve;
mod shares;
mod start;
mod unread;

use std::process::ExitCode;

fn main() -> ExitCode {
    levee_daemon::run("levee-mediator", || start::start()?.map_or(Ok(()), serve::serve))
}
