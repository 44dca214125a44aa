//! levee: the gate of a label whose stacks must agree.
//!
//! It stands where the label's vault would: the warden gives it the TUN queue, the UDP sockets and channels to sessiond and the
//! keyer. It has no keys and reads no packet. Whatever comes it gives to two stacks, processes that have the keys and
//! can do nothing but answer, and passes on only what both agree about. Doubt denies: where an answer differs, the
//! packet is dropped, counted and reported; where none comes within [`PATIENCE`] the gate ends, and nothing
//! passes until the warden has started all three anew and the keyer has made new keys.
//!
//! [`PATIENCE`]: stacks::PATIENCE
//!
//! It may not have a key, nor read a packet. Begin reading with `serve.rs`, then `together.rs`, where two answers are held against each other.
#![forbid(unsafe_code)]

mod serve;
mod stacks;
mod start;
mod together;

use std::process::ExitCode;

fn main() -> ExitCode {
    levee_daemon::run("levee-gate", || start::start()?.map_or(Ok(()), serve::serve))
}
