//! Images that something has open still: who wants them waits for that, and nobody else does.

use crate::Fatal;
use crate::compartment::Store;
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

    /// Whether somebody waits for that.
    pub fn is_awaited(&self) -> bool {
        self.0.is_some()
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
        let (mut held, start) = (Held::default(), Instant::now());
        let images = [image];
        let mut at = |seconds| held.is_in_the_way(&images, start + Duration::from_secs(seconds));
        assert!(at(0).unwrap() && at(29).unwrap());
        assert!(at(30).unwrap_err().to_string().contains("something else has it open"));
        // It begins anew.
        assert!(at(31).unwrap() && at(60).unwrap());
        drop(open);
        // What another test is just starting has it, too, until it executes its own program.
        let until = Instant::now() + Duration::from_secs(10);
        while at(60).unwrap() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!held.is_awaited());
    }
}
