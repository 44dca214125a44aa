//! Connections of programs that have ended: the kernel goes on sending what they had written, for minutes where the other end takes nothing. They
//! end with what ran there, a few at a time: who has left them in heaps keeps only its own label or partition waiting.

use crate::log;
use levee_sys::sockdiag::Doomed;
use std::fmt::Display;
use std::os::fd::BorrowedFd;

/// How many end in a turn.
const AT_ONCE: usize = 128;

/// What is left in a network namespace in which no program runs any more.
#[derive(Debug, Default)]
pub struct Leavings {
    doomed: Option<Doomed>,
    gone: bool,
}

impl Leavings {
    /// Ends some; whether nothing more is to be done.
    pub fn are_gone(&mut self, net: BorrowedFd<'_>, whose: &dyn Display) -> bool {
        if !self.gone {
            self.gone = self.go_on(net).unwrap_or_else(|e| {
                log!("{whose}: connections that its programs have left are there still: {e}");
                true
            });
        }
        self.gone
    }

    fn go_on(&mut self, net: BorrowedFd<'_>) -> levee_sys::Result<bool> {
        let doomed = match &mut self.doomed {
            Some(doomed) => doomed,
            None => self.doomed.insert(Doomed::left(net)?),
        };
        Ok(!doomed.destroy(AT_ONCE)?)
    }
}
