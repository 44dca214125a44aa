//! Programs that an operator has run within a label: under the services' filter, with nothing to read, and what they write goes
//! into the label's log.

use super::RunningLabel;
use crate::compartment::service::Launch;
use levee_ipc::operator::Entering;
use levee_policy::site::Needs;
use rustix::process::Signal;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long one may run.
const LONGEST: Duration = Duration::from_secs(600);
/// How many run at a time.
const MOST: usize = 4;

/// One that runs, or has ended and was not told.
#[derive(Debug)]
pub(super) struct Executed {
    /// Its number inside, and in the log: none has it after it, so that what a program leaves running is not heard in another's place.
    ticket: u64,
    /// Who asks.
    asker: u64,
    until: Instant,
    result: Option<Result<u8, String>>,
}

impl RunningLabel {
    /// Starts a program, and says its number. What becomes of it is told by [`RunningLabel::executed`]; as long as it runs, so does the
    /// label.
    ///
    /// # Errors
    /// Why it cannot run.
    pub fn execute(&mut self, argv: Vec<String>, asker: u64) -> Result<u64, String> {
        if self.machine.is_some() {
            return Err(
                "this label has a kernel of its own: its warden there starts services alone".to_owned()
            );
        }
        if self.executing.len() >= MOST {
            return Err(format!("{MOST} programs run for operators at this label already"));
        }
        if argv.is_empty() {
            return Err("no program".to_owned());
        }
        self.tickets += 1;
        let source = Entering::source(self.tickets);
        let log = self.logs.end(&source, self.service_uid, true).map_err(|e| e.to_string())?;
        let start = Launch::command(self.tickets, argv, Vec::new(), &Needs::default());
        let started = self.compartment.run(start, &[log.as_fd(), log.as_fd()]);
        if let Err(e) = started {
            self.logs.forget(&source);
            return Err(e.to_string());
        }
        let until = Instant::now() + LONGEST;
        self.executing.push(Executed { ticket: self.tickets, asker, until, result: None });
        Ok(self.tickets)
    }

    /// Nobody waits for this one any more: its time is over.
    pub fn abandon(&mut self, asker: u64, now: Instant) {
        for one in self.executing.iter_mut().filter(|one| one.asker == asker) {
            one.until = now;
        }
    }

    /// One of them has ended, or none has this number.
    pub(super) fn execution_ended(&mut self, ticket: u64, result: Result<u8, String>) {
        if let Some(one) = self.executing.iter_mut().find(|one| one.ticket == ticket) {
            one.result = Some(result);
        }
    }

    /// Those that have ended since the last time: who asked, and what became of it. One that takes too long is killed.
    pub fn executed(&mut self, now: Instant) -> Vec<(u64, Result<u8, String>)> {
        for late in self.executing.iter().filter(|one| one.result.is_none() && one.until <= now) {
            // One that does not listen is over soon.
            let _ = self.compartment.signal(late.ticket, Signal::KILL.as_raw());
        }
        let mut told = Vec::new();
        self.executing.retain_mut(|one| match one.result.take() {
            Some(result) => {
                self.logs.forget(&Entering::source(one.ticket));
                told.push((one.asker, result));
                false
            }
            None => true,
        });
        told
    }

    /// Everything that runs for operators ends with the label.
    pub fn execution_askers(&self) -> impl Iterator<Item = u64> {
        self.executing.iter().map(|one| one.asker)
    }
}
