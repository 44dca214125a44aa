//! levee: a one-way channel between two partitions.
//!
//! It has a descriptor on each side, both Unix sockets that keep messages whole and of which one half is shut: from the writer it can
//! only read, to the reader it can only write. It takes from the writer at the site's rate, by its own clock, whatever becomes of the
//! messages above: what the reader has no room for is dropped and counted, and no writer ever learns of it. In each turn everything is
//! taken below before anything is given above.
//!
//! | file | idea |
//! |---|---|
//! | `serve` | what is taken, what is given, and what is counted |
//!
//! It may not look into a message, nor speak with anybody but the warden. Begin reading with `serve.rs`.
#![forbid(unsafe_code)]

mod serve;

use std::process::ExitCode;

fn main() -> ExitCode {
    levee_daemon::run("levee-channel", serve::run)
}
