//! Images that something has open still: who wants them waits for that, and nobody else does.

use crate::Fatal;
use crate::compartment::Store;
use levee_policy::LabelName;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long somebody may wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// Since when an image is in the way.
#[derive(Debug, Default)]
pub struct Held(Option<Instant>);

impl Held {
    /// Whether one of these images, which are there, is in the way.
    ///
    /// # Errors
    /// It is for too long, or is not there.
    pub fn is_in_the_way(&mut self, images: &[PathBuf], now: Instant) -> Result<bool, Fatal> {
        for image in images {
            let fault = |e: &dyn std::fmt::Display| Fatal::new(format!("open {}", image.display()), e);
            if Store::is_free(image).map_err(|e| fault(&e))? {
                continue;
            }
            let since = *self.0.get_or_insert(now);
            if now.saturating_duration_since(since) < PATIENCE {
                return Ok(true);
            }
            self.0 = None;
            return Err(fault(&"something else has it open, perhaps a command that is stopped"));
        }
        self.0 = None;
        Ok(false)
    }
}

/// Labels that wait for theirs.
#[derive(Debug, Default)]
pub struct Waiting(BTreeMap<LabelName, Held>);

impl Waiting {
    /// Whether a label is to wait for one of these.
    ///
    /// # Errors
    /// As [`Held::is_in_the_way`]; then it waits no more.
    pub fn waits(&mut self, name: &LabelName, images: &[PathBuf], now: Instant) -> Result<bool, Fatal> {
        let mut held = self.0.remove(name).unwrap_or_default();
        let waits = held.is_in_the_way(images, now)?;
        if waits {
            self.0.insert(name.clone(), held);
        }
        Ok(waits)
    }

    /// Those that wait: each is to be tried again.
    pub fn names(&self) -> Vec<LabelName> {
        self.0.keys().cloned().collect()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nobody wants this label any more.
    pub fn release(&mut self, name: &LabelName) {
        self.0.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};

    #[test]
    fn who_wants_an_image_that_is_open_waits_and_not_for_ever() {
        let place = tempfile::tempdir().unwrap();
        let image = place.path().join("image");
        let open = std::fs::File::create(&image).unwrap();
        flock(&open, FlockOperation::LockExclusive).unwrap();
        let (mut waiting, start, name) = (Waiting::default(), Instant::now(), LabelName::new("LOW").unwrap());
        let images = [image];
        let mut at = |seconds| waiting.waits(&name, &images, start + Duration::from_secs(seconds));
        assert!(at(0).unwrap() && at(29).unwrap());
        assert!(at(30).unwrap_err().to_string().contains("something else has it open"));
        // It begins anew.
        assert!(at(31).unwrap() && at(60).unwrap());
        drop(open);
        assert!(!at(60).unwrap());
        assert!(waiting.is_empty());
    }
}
