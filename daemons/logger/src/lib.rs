//! levee: writes down what the processes of one label say.
//!
//! There is one logger for each label that runs, and one for levee's own standing processes. What a process writes to its
//! standard error goes into a pipe of its own. The logger reads these pipes and nothing else. It writes to two files, which are
//! its label's alone, and it has no other descriptor, no path and no way to anybody.
//!
//! | file | idea |
//! |---|---|
//! | `source` | from a pipe's bytes to lines |
//! | `pair` | two files used in turn, so that their size has a bound |
//! | `serve` | the process |
//!
//! It may not open anything by name, nor say anything to anybody. Begin reading with `serve.rs`.
#![forbid(unsafe_code)]

mod pair;
mod serve;
mod source;

pub use levee_ipc::visible;
pub use pair::Pair;
pub use serve::serve;
pub use source::{LINE, Source};
