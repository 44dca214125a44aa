//! What is waited for of a label, and what time alone changes of it.

use super::RunningLabel;
use crate::form::Form;
use crate::service::Service;
use crate::waits::{Source, Waits, WatchedChannel, WatchedChild, WatchedFd};
use levee_policy::LabelName;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// The waits for its compartment. (Its services and its logger have their own.)
#[derive(Debug, Default)]
pub(super) struct Watches {
    said: Option<WatchedChannel>,
    ended: Option<WatchedChild>,
    port: Option<WatchedFd>,
}

impl RunningLabel {
    /// Has waited for what there is to wait for now: what its compartment says and its end, its logger's end, and who comes to a
    /// service that does not run.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&mut self, name: &LabelName, waits: &mut Waits, now: Instant) -> io::Result<()> {
        let inside = || Source::Inside(name.clone());
        let Watches { said, ended, port } = &mut self.watches;
        if said.is_none() {
            *said = Some(waits.watch(Arc::clone(self.form.outer().channel()), inside())?);
        }
        if let (None, Some(process)) = (&ended, self.form.outer().process()) {
            *ended = Some(waits.watch(Arc::clone(process), Source::CompartmentEnded(name.clone()))?);
        }
        match self.form.port() {
            None => *port = None,
            Some(stream) if port.is_none() => *port = Some(waits.watch(Arc::clone(stream), inside())?),
            Some(_) => {}
        }
        // The kernel does not know of what has been read already.
        port.iter().filter(|_| self.form.has_more()).for_each(WatchedFd::wake);
        self.logs.watch(waits, || Source::LabelsLogger(name.clone()))?;
        if !self.form.is_building() {
            for (index, service) in self.services.iter_mut().enumerate() {
                service.watch(waits, || Source::Wanted(name.clone(), index), now)?;
            }
        }
        Ok(())
    }

    /// It is ending: what else comes of it is nobody's concern.
    pub fn watch_end_alone(&mut self) {
        self.watches.port = None;
        // It is closed, and so has something to say, long before all is gone.
        self.watches.said = None;
        self.logs.unwatch();
    }

    /// Whether it is to be looked at again soon, though nothing happens: nobody uses it, it is awaited, a program runs for an operator, its logger or a service
    /// rests or is to run, or it is not clear yet what has become of one.
    pub fn is_unsettled(&self, now: Instant) -> bool {
        let here = matches!(self.form, Form::Compartment(_));
        let unsettled = |service: &Service| {
            service.is_unsettled() || service.rests(now) || (here && service.is_missing())
        };
        self.idle.is_some()
            || self.is_awaited()
            || !self.executing.is_empty()
            || self.logs.is_resting()
            || self.services.iter().any(unsettled)
    }
}
