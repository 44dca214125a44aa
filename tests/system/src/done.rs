//! Commands of this host, and what they gave.

use std::process::{Command, Output, Stdio};

/// What a command gave.
#[derive(Clone, Debug)]
pub struct Done {
    /// Exit status, or -1 where a signal ended it.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Done {
    /// The output of a command that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.status, 0, "it failed:\n{}{}", self.out, self.err);
        self.out
    }

    /// The errors of a command that must have failed.
    #[track_caller]
    pub fn refused(self) -> String {
        assert_ne!(self.status, 0, "it should have failed:\n{}{}", self.out, self.err);
        format!("{}{}", self.out, self.err)
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command of this host to its end.
#[track_caller]
pub fn sh(program: &str, arguments: &[&str]) -> Done {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e} (scripts/need test installs it)"))
        .into()
}
