//! What is waited for of a label, and what time alone changes of it.

use super::RunningLabel;
use crate::waits::{Source, Waits};
use levee_policy::LabelName;
use std::io;

impl RunningLabel {
    /// Has waited for what there is to wait for now: what its compartment says and its end, and its logger's end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&mut self, name: &LabelName, waits: &mut Waits) -> io::Result<()> {
        let (said, ended) = (|| Source::Inside(name.clone()), || Source::CompartmentEnded(name.clone()));
        self.compartment.watch(waits, said, ended)?;
        self.logs.watch(waits, || Source::LabelsLogger(name.clone()))
    }

    /// It is ending: what else comes of it is nobody's concern.
    pub fn watch_end_alone(&mut self) {
        self.compartment.watch_end_alone();
        self.logs.unwatch();
    }

    /// Whether it is to be looked at again soon, though nothing happens: nobody uses it, it is awaited, a program runs for an operator, or its logger
    /// rests.
    pub fn is_unsettled(&self) -> bool {
        self.idle.is_some() || self.is_awaited() || !self.executing.is_empty() || self.logs.is_resting()
    }
}
