//! Programs that an operator has run within a label: under the services' filter, with nothing to read, and what they write goes
//! into the label's log.

use super::RunningLabel;
use crate::compartment::service::Launch;
use crate::form::Form;
use levee_ipc::operator::Entering;
use levee_policy::site::Needs;
use rustix::process::Signal;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long one may run.
const LONGEST: Duration = Duration::from_secs(600);
/// How many run at a time, by their numbers: lines of none are taken for another's.
const NUMBERS: std::ops::RangeInclusive<u8> = 1..=4;

/// One that runs, or has ended and was not told.
#[derive(Debug)]
pub(super) struct Executed {
    /// Its number inside.
    ticket: u64,
    /// Who asks.
    asker: u64,
    number: u8,
    until: Instant,
    result: Option<Result<u8, String>>,
}

impl RunningLabel {
    /// Starts a program, and says its number. What becomes of it is told by [`RunningLabel::executed`]; as long as it runs, so does the
    /// label.
    ///
    /// # Errors
    /// Why it cannot run.
    pub fn execute(&mut self, argv: Vec<String>, asker: u64) -> Result<u8, String> {
        let Form::Compartment(compartment) = &mut self.form else {
            return Err(
                "this label has a kernel of its own: its warden there starts services alone".to_owned()
            );
        };
        let number =
            NUMBERS.into_iter().find(|number| self.executing.iter().all(|one| one.number != *number));
        let number = number
            .ok_or_else(|| format!("{} programs run for operators at this label already", NUMBERS.end()))?;
        let program = argv.first().cloned().ok_or("no program")?;
        let log =
            self.logs.end(&Entering::source(number), self.service_uid, true).map_err(|e| e.to_string())?;
        self.tickets += 1;
        let launch = Launch { program, argv, env: Vec::new(), needs: Needs::default() };
        let started = compartment.run(launch.start(self.tickets), &[log.as_fd(), log.as_fd()]);
        started.map_err(|e| e.to_string())?;
        let until = Instant::now() + LONGEST;
        self.executing.push(Executed { ticket: self.tickets, asker, number, until, result: None });
        Ok(number)
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
        if let Form::Compartment(compartment) = &self.form {
            for late in self.executing.iter().filter(|one| one.result.is_none() && one.until <= now) {
                // One that does not listen is over soon.
                let _ = compartment.signal(late.ticket, Signal::KILL.as_raw());
            }
        }
        let mut told = Vec::new();
        self.executing.retain_mut(|one| match one.result.take() {
            Some(result) => {
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
