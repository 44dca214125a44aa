//! The end of a process that cannot go on.

use std::fmt;
use std::process::ExitCode;

/// Why the process ends.
#[derive(Debug)]
pub struct Fatal {
    step: &'static str,
    why: String,
}

impl Fatal {
    /// `step` failed because of `why`.
    pub fn new(step: &'static str, why: impl fmt::Display) -> Self {
        Self { step, why: why.to_string() }
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.why)
    }
}

impl std::error::Error for Fatal {}

/// Runs a daemon, and makes of its end an exit status and a line on standard error.
pub fn run<E: fmt::Display>(name: &str, daemon: impl FnOnce() -> Result<(), E>) -> ExitCode {
    match daemon() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            levee_ipc::say!("{name}: {why}");
            ExitCode::FAILURE
        }
    }
}
