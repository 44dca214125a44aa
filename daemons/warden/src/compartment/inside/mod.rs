//! Process 1 of a compartment: it builds the compartment around itself, gives up the power to do so, and then
//! starts programs for the warden and reaps whatever ends.

mod build;
mod filters;
mod front;
mod init;
mod mediated;
mod nginx;
mod program;
mod service;
mod serving;

use std::os::fd::OwnedFd;

use levee_ipc::{Channel, Received, RecvError};
use levee_sys::fork::inherited;

use super::proto::{CHANNEL_FD, FromInit, ToInit, shorten, tell};
use front::GivenMachine;
use service::{Offered, Services};

/// All of process 1. Returns when the warden is gone or nothing could be built; the end of process 1 is the end
/// of every process in the compartment.
///
/// # Errors
/// In words, for standard error; the warden has been told.
pub fn main() -> Result<(), String> {
    let channel =
        Channel::from_fd(inherited(CHANNEL_FD).map_err(|e| format!("no channel to the warden: {e}"))?);
    let mut is_built = false;
    let outcome = build(&channel).and_then(|given| init::run(&channel, given, &mut is_built));
    if let (Err(reason), false) = (&outcome, is_built) {
        tell(&channel, &FromInit::Failed(shorten(reason)))?;
    }
    outcome
}

/// Builds the compartment. What it is given for afterwards: its services, and the machine that it may be for.
fn build(channel: &Channel) -> Result<(Services, GivenMachine), String> {
    let mut steps = Vec::new();
    let (mut services, mut given) = (Services::default(), GivenMachine::default());
    let images = loop {
        let Received { message, fds } = match channel.recv::<ToInit>() {
            Ok(received) => received,
            Err(RecvError::Closed) => return Err("the warden is gone".into()),
            Err(e) => return Err(e.to_string()),
        };
        match message {
            ToInit::Steps(more) => steps.extend(more),
            ToInit::Service { served, off } => services.add(Offered::new(served, off, fds)?),
            ToInit::Within(more) => given.steps.extend(more),
            ToInit::Machine(machine) => given.machine = Some((machine, fds)),
            ToInit::Log => given.logs.extend(fds),
            ToInit::Build { images } => break images,
            _ => return Err("the warden wants programs before there is a compartment".into()),
        }
    };
    let mut next = CHANNEL_FD;
    let mut take = || -> Result<OwnedFd, String> {
        next = next.saturating_add(1);
        inherited(next).map_err(|e| e.to_string())
    };
    let user = take()?;
    let images = (0..images).map(|_| take()).collect::<Result<Vec<_>, _>>()?;
    build::carry_out(&steps, &user, images).map_err(|e| e.to_string())?;
    Ok((services, given))
}
