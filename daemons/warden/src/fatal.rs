//! Why the warden does not start, or stops.

use std::fmt;
use std::path::Path;

/// Why the warden does not start, or stops.
#[derive(Debug)]
pub struct Fatal {
    step: String,
    why: String,
}

impl Fatal {
    /// The step that failed (completing "cannot …"), and why.
    pub fn new(step: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self { step: step.to_string(), why: why.to_string() }
    }

    /// The signer cannot use one of its keys.
    pub fn keys(directory: &Path, why: String) -> Self {
        Self::new(format!("use the keys in {}", directory.display()), why)
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.why)
    }
}

impl std::error::Error for Fatal {}
