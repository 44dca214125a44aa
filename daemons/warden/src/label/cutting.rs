//! Sockets of sessions that end, destroyed a few at a time: who has opened them in heaps keeps only its own label waiting.

use super::RunningLabel;
use crate::compartment::CUT;
use crate::log;
use levee_ipc::warden::LabelEvent;
use levee_sys::sockdiag::Doomed;
use std::net::IpAddr;
use std::time::Instant;

/// How many a label's compartment loses in a turn.
const AT_ONCE: usize = 128;
/// How many are listed at a time.
const LISTED: usize = 16_384;

/// What is being cut.
#[derive(Debug)]
pub(super) struct Cut {
    ticket: u64,
    /// `None`: they end with the compartment, which has been killed.
    doomed: Option<Doomed>,
    until: Instant,
}

impl RunningLabel {
    /// Begins to destroy the sockets of a session's inner address in its compartment; answers what sessiond is told if that was all.
    pub(super) fn begin_to_cut(&mut self, inner: IpAddr, ticket: u64) -> Option<LabelEvent> {
        match Doomed::find(self.network.ns(), inner, LISTED) {
            Ok(doomed) => {
                let mut cut = Cut { ticket, doomed: Some(doomed), until: Instant::now() + CUT };
                let done = cut.go_on();
                if done.is_none() {
                    self.cutting.push(cut);
                }
                done
            }
            Err(e) => {
                log!("the sockets of {inner} cannot be destroyed: {e}");
                Some(LabelEvent::Cut { ticket, sockets: None })
            }
        }
    }

    /// Destroys some more. What takes too long ends with the compartment.
    pub fn go_on_cutting(&mut self) {
        let Some(cut) = self.cutting.iter_mut().find(|cut| cut.doomed.is_some()) else { return };
        let ticket = cut.ticket;
        if let Some(done) = cut.go_on() {
            self.cutting.retain(|cut| cut.ticket != ticket);
            self.cut.push(done);
        } else if cut.until <= Instant::now() {
            cut.doomed = None;
            log!("{}: connections take too long to be cut: ending it", self.compartment.label());
            self.kill();
        }
    }

    /// Whether there is more to destroy at once.
    pub fn has_more_to_cut(&self) -> bool {
        self.left.is_some() || self.cutting.iter().any(|cut| cut.doomed.is_some())
    }

    /// What it was told to cut and has not: when its compartment or machine has ended, it has.
    pub fn uncut(&self) -> Vec<u64> {
        self.compartment.uncut().chain(self.cutting.iter().map(|cut| cut.ticket)).collect()
    }
}

impl Cut {
    /// Destroys some; the end, if that was it.
    fn go_on(&mut self) -> Option<LabelEvent> {
        let doomed = self.doomed.as_mut()?;
        let sockets = match doomed.destroy(AT_ONCE) {
            Ok(true) => return None,
            Ok(false) => u32::try_from(doomed.destroyed()).ok(),
            Err(e) => {
                log!("sockets cannot be destroyed: {e}");
                None
            }
        };
        Some(LabelEvent::Cut { ticket: self.ticket, sockets })
    }
}
