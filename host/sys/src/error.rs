//! One error for the crate: the step that failed, and what the kernel said.

use std::{fmt, io};

/// A step that the kernel refused.
#[derive(Debug)]
pub struct Error {
    step: String,
    source: io::Error,
}

/// `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// `step` reads as an order ("mount tmpfs on /tmp"), so that the message says what was being tried.
    pub fn new(step: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { step: step.into(), source: source.into() }
    }

    /// An error whose cause is not an errno: bad input or an impossible answer.
    pub fn invalid(step: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(step, io::Error::new(io::ErrorKind::InvalidInput, why.into()))
    }

    /// What was being done.
    pub fn step(&self) -> &str {
        &self.step
    }

    /// The errno, where the kernel gave one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Names the step that an `io` or `rustix` result belongs to.
pub(crate) trait Step<T> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Step<T> for std::result::Result<T, E> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::new(step(), e))
    }
}
