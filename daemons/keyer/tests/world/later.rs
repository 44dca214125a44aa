//! What a keyer is given while it runs.

use super::*;

impl Keyer {
    /// A channel to a sessiond that has come in the place of the one before it.
    pub fn another_sessiond(&self) -> Channel {
        attach(&self.control, KeyerPart::Sessiond)
    }
}
