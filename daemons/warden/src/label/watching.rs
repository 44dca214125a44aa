//! What is waited for of a label, and what time alone changes of it.

use super::RunningLabel;
use crate::waits::{Source, Waits, WatchedChannel, WatchedChild};
use levee_policy::LabelName;
use std::io;
use std::sync::Arc;

/// The waits for its compartment. (Its logger has its own.)
#[derive(Debug, Default)]
pub(super) struct Watches {
    said: Option<WatchedChannel>,
    ended: Option<WatchedChild>,
}

impl RunningLabel {
    /// Has waited for what there is to wait for now: what its compartment says and its end, and its logger's end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&mut self, name: &LabelName, waits: &mut Waits) -> io::Result<()> {
        let inside = || Source::Inside(name.clone());
        let Watches { said, ended } = &mut self.watches;
        if said.is_none() {
            *said = Some(waits.watch(Arc::clone(self.compartment.channel()), inside())?);
        }
        if let (None, Some(process)) = (&ended, self.compartment.process()) {
            *ended = Some(waits.watch(Arc::clone(process), Source::CompartmentEnded(name.clone()))?);
        }
        self.logs.watch(waits, || Source::LabelsLogger(name.clone()))
    }

    /// It is ending: what else comes of it is nobody's concern.
    pub fn watch_end_alone(&mut self) {
        // It is closed, and so has something to say, long before all is gone.
        self.watches.said = None;
        self.logs.unwatch();
    }

    /// Whether it is to be looked at again soon, though nothing happens: nobody uses it, it is awaited, a program runs for an operator, or its logger
    /// rests.
    pub fn is_unsettled(&self) -> bool {
        self.idle.is_some() || self.is_awaited() || !self.executing.is_empty() || self.logs.is_resting()
    }
}
