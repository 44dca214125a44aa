//! levee: a guard, the one declared exception to the lattice.
//!
//! It takes from the writer at the site's rate, as a one-way channel does. Each message goes to the filter, a program of the site's in
//! a partition of its own, that sees one at a time and answers with what may pass, or with nothing. What it answers is held to the
//! site's bounds here (`host/bounds`), after the filter; sessiond has it in the audit log; then it is given to the reader. No socket leads back: from the writer it can only read, to the reader only write.
//!
//! | file | idea |
//! |---|---|
//! | `passage` | one message after another, from the writer through the filter to the reader |
//! | `serve` | the loop: who is heard, and what for |
//!
//! It may not pass what is beyond the bounds, nor before its record is written. Begin reading with `passage.rs`.
#![forbid(unsafe_code)]

pub mod passage;
mod serve;

pub use serve::run;
