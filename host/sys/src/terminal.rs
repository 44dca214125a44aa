//! A line typed at a terminal that nobody is to see there.

use crate::error::Step;
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::signals::Signals;

/// What would leave the terminal silent, if it ended the process or stopped it at once.
const ENDING: [Signal; 5] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::TSTP];

/// Asks by `ask`, and waits until a line has been typed, which the terminal does not show; reading it does not wait then. What was typed before is
/// thrown away. A signal that ends or stops the process does so when the terminal shows again what is typed; what is stopped asks anew when it goes on.
/// For a process of one thread.
///
/// # Errors
/// `terminal` is none, `ask`'s, the kernel's.
pub fn typed_unseen(terminal: BorrowedFd<'_>, mut ask: impl FnMut() -> io::Result<()>) -> Result<()> {
    let step = || "ask at the terminal".to_owned();
    let before = tcgetattr(terminal).step(step)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent.local_modes.insert(LocalModes::ECHONL);
    loop {
        let held = Signals::new(&ENDING)?;
        tcsetattr(terminal, OptionalActions::Flush, &silent).step(step)?;
        let typed = ask().and_then(|()| wait(terminal, held.as_fd()));
        let shows = tcsetattr(terminal, OptionalActions::Now, &before);
        // What has come meanwhile does here what it does.
        held.release(&ENDING)?;
        shows.step(step)?;
        if typed.map_err(|e| Error::new(step(), e))? {
            return Ok(());
        }
    }
}

/// Whether a line has come, and not a signal.
fn wait(terminal: BorrowedFd<'_>, signals: BorrowedFd<'_>) -> io::Result<bool> {
    let mut either =
        [PollFd::from_borrowed_fd(terminal, PollFlags::IN), PollFd::from_borrowed_fd(signals, PollFlags::IN)];
    loop {
        match poll(&mut either, None) {
            Ok(_) => return Ok(either.last().is_none_or(|signals| signals.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
