//! What the warden waits for: descriptors, each with what it belongs to, in the event loop that every process of levee has. Whoever
//! holds a descriptor holds the wait for it, so that neither outlives the other.

use crate::key::Key;
use levee_daemon::{Events, Watched};
use levee_ipc::Channel;
use levee_policy::LabelName;
use levee_sys::pidfd::Child;
use levee_sys::signals::Signals;
use rustix::process::Signal;
use std::io;
use std::sync::Arc;

/// What a descriptor belongs to.
#[derive(Clone, Debug)]
pub enum Source {
    /// A signal has come.
    Signal,
    /// A process has said something.
    Said(Key),
    /// A process has ended.
    Ended(Key),
    /// A compartment's first process has said something.
    Inside(LabelName),
    /// A compartment has ended.
    CompartmentEnded(LabelName),
    /// Something has happened in a partition, or its logger has ended: its place among them.
    Partition(usize),
    /// A label's logger has ended.
    LabelsLogger(LabelName),
    /// The logger of the standing processes has ended.
    OwnLogger,
    /// A maker of stores or images has ended, or a last pass is over.
    Made,
}

/// All that is waited for.
pub type Waits = Events<Source>;

/// A channel that is waited for.
pub type WatchedChannel = Watched<Arc<Channel>>;

/// A process whose end is waited for.
pub type WatchedChild = Watched<Arc<Child>>;

/// Waits for the end of what has just been started; what cannot be waited for is ended.
///
/// # Errors
/// The kernel's.
pub fn made(child: &Arc<Child>, waits: &mut Waits) -> levee_sys::Result<WatchedChild> {
    waits.watch(Arc::clone(child), Source::Made).map_err(|e| {
        // That it could not be waited for is what is told.
        let _ = child.kill();
        levee_sys::Error::new("wait for a process", e)
    })
}

/// What signals ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// To end.
    pub stop: bool,
    /// To read the revocation list anew.
    pub reload: bool,
}

/// Takes every signal that has come. All that are held back ask for an end, but SIGUSR1.
///
/// # Errors
/// The kernel's.
pub fn asked(signals: &Signals) -> io::Result<Asked> {
    let mut asked = Asked::default();
    while let Some(signal) = signals.next().map_err(io::Error::other)? {
        if signal == Signal::USR1.as_raw() {
            asked.reload = true;
        } else {
            asked.stop = true;
        }
    }
    Ok(asked)
}
