//! levee: keeps the frames. Time is cut into frames and these into slots (`[frames]` of the site file); in a slot runs only what it is for.
//!
//! It has three descriptors of each group of processes, and so can stop it, let it run and kill it; it has no other file, no channel but the
//! warden's, and reads nothing that a label's program has written. A slot's length depends on nothing that any program does, but for one thing: what
//! does not stop within the margin makes the next slot begin later, which is counted, and is killed before long.
//!
//! | file | idea |
//! |---|---|
//! | `group` | what is stopped, let run and killed |
//! | `clock` | when a slot ends and the next begins; what is told of it |
//! | `serve` | one slot after the other |
//!
//! It may not open a file, nor read what a program at a label has written. Begin reading with `clock.rs`, which has no kernel in it.
#![forbid(unsafe_code)]

mod clock;
mod group;
mod serve;

use std::process::ExitCode;

fn main() -> ExitCode {
    levee_daemon::run("levee-frames", serve::run)
}
