//! The start of a compartment where nobody else is served meanwhile: within a machine, and in tests.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Instant;

use levee_sys::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::network::Network;
use super::plan::Plan;
use super::proto::FromInit as Event;
use super::start::{Compartment, Given};

impl Compartment {
    /// Carries out `plan` with the program `init` (levee-init) as process 1, in `network`, and waits until that is done. Process 1 has
    /// the caller's standard error.
    ///
    /// # Errors
    /// As for [`Compartment::begin`], and a step of process 1's that failed or took too long.
    pub fn start(plan: &Plan, network: &Network, init: &Path) -> Result<Self> {
        Self::start_with(plan, network, init, Vec::new())
    }

    /// As [`Compartment::start`], with services ([`super::proto::ToInit::Service`]).
    ///
    /// # Errors
    /// As [`Compartment::start`].
    pub fn start_with(plan: &Plan, network: &Network, init: &Path, given: Vec<Given>) -> Result<Self> {
        let mut compartment = Self::begin(plan, network, init, std::io::stderr().as_fd(), given)?;
        let whole = "build the compartment";
        let failed = |step: &str, reason: String| Error::invalid(step, reason);
        while let Some(until) = compartment.building {
            let left = until.saturating_duration_since(Instant::now());
            let wait = || -> std::result::Result<(), Box<dyn std::error::Error>> {
                let mut fds = [PollFd::new(&compartment.channel, PollFlags::IN)];
                match poll(&mut fds, Some(&Timespec::try_from(left)?)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
                    Err(e) => Err(e.into()),
                }
            };
            wait().map_err(|e| failed(whole, e.to_string()))?;
            let events = compartment.events().map_err(|e| failed(whole, e.to_string()))?;
            if let Some(Event::Failed(reason)) = events.into_iter().next() {
                let (step, why) = reason.split_once(": ").unwrap_or((whole, &reason));
                return Err(failed(step, why.to_owned()));
            }
        }
        Ok(compartment)
    }
}
