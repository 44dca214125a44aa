//! Process 1 of a compartment: it builds the compartment around itself, gives up the power to do so, and then
//! starts programs for the warden and reaps whatever ends.

mod build;
mod filters;
mod init;
mod mediated;

use std::os::fd::OwnedFd;

use levee_ipc::{Channel, RecvError};
use levee_sys::fork::inherited;

use super::proto::{CHANNEL_FD, FromInit, REASON_MAX, ToInit};

/// All of process 1. Returns when the warden is gone or nothing could be built; the end of process 1 is the end
/// of every process in the compartment.
///
/// # Errors
/// In words, for standard error; the warden has been told.
pub fn main() -> Result<(), String> {
    let channel =
        Channel::from_fd(inherited(CHANNEL_FD).map_err(|e| format!("no channel to the warden: {e}"))?);
    let built = build(&channel);
    match &built {
        Ok(()) => tell(&channel, &FromInit::Built)?,
        Err(reason) => tell(&channel, &FromInit::Failed { reason: shorten(reason) })?,
    }
    built?;
    init::run(&channel)
}

fn build(channel: &Channel) -> Result<(), String> {
    let mut steps = Vec::new();
    let images = loop {
        match channel.recv::<ToInit>().map(|received| received.message) {
            Ok(ToInit::Steps(more)) => steps.extend(more),
            Ok(ToInit::Build { images }) => break images,
            Ok(_) => return Err("the warden wants programs before there is a compartment".into()),
            Err(RecvError::Closed) => return Err("the warden is gone".into()),
            Err(e) => return Err(e.to_string()),
        }
    };
    let mut next = CHANNEL_FD;
    let mut take = || -> Result<OwnedFd, String> {
        next = next.saturating_add(1);
        inherited(next).map_err(|e| e.to_string())
    };
    let user = take()?;
    let images = (0..images).map(|_| take()).collect::<Result<Vec<_>, _>>()?;
    build::carry_out(&steps, &user, images).map_err(|e| e.to_string())
}

fn tell(channel: &Channel, message: &FromInit) -> Result<(), String> {
    channel.send(message).map_err(|e| format!("tell the warden: {e}"))
}

/// At most [`REASON_MAX`] bytes, cut at a character.
fn shorten(reason: &str) -> String {
    let end = reason
        .char_indices()
        .map(|(at, c)| at.saturating_add(c.len_utf8()))
        .take_while(|end| *end <= REASON_MAX)
        .last();
    reason.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}
