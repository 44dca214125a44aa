//! levee: a one-way channel between two partitions.
//!
//! It has a descriptor on each side, both Unix sockets that keep messages whole and of which one half is shut: from the writer it can
//! only read, to the reader it can only write. It takes from the writer at the site's rate, by its own clock, whatever becomes of the
//! messages above: what the reader has no room for is dropped and counted, and no writer ever learns of it. In each turn everything is
//! taken below before anything is given above.
//!
//! Where one end is on another host, the process there is of the same program. The one that sends gives what it takes to a socket by which
//! nothing can be heard; the one that receives takes from a socket by which nothing can be said, and gives on what `levee-oneway` makes of it.
//!
//! | file | idea |
//! |---|---|
//! | `start` | what the warden gives, and which form that makes it |
//! | `serve` | between two partitions: what is taken, and what is given |
//! | `far` | the wire to another host, and its keys |
//! | `send` | to another host |
//! | `receive` | from another host |
//! | `above` | the upper side, and what is counted there |
//!
//! It may not look into a message, nor speak with anybody but the warden. Begin reading with `serve.rs`.
#![forbid(unsafe_code)]

mod above;
mod far;
mod filter;
mod receive;
mod send;
mod serve;
mod start;

use std::process::ExitCode;

fn main() -> ExitCode {
    levee_daemon::run("levee-channel", start::run)
}
