//! A partition's root, from what the site names to an image in memory. What the site names may be on a file system that does not answer (a
//! network's, or a program's): the warden never asks it anything. At each start a process of its own looks at it, and where it has changed
//! another makes the image anew, one at a time.

use crate::Fatal;
use crate::maker::{Leaving, Maker};
use crate::programs::Images;
use crate::waits::Waits;
use std::path::{Path, PathBuf};

/// How far it is.
#[derive(Debug, Default)]
pub struct Rooting {
    state: State,
    /// Those who looked at it or made it, and were told to end.
    leaving: Leaving,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Unknown,
    /// It is being looked at. However long that takes, it keeps nobody else waiting.
    Looks(Maker),
    /// There is none of what is there now.
    Wanted,
    Makes(Maker),
    There(PathBuf),
}

impl Rooting {
    /// Whether its image is being made.
    pub fn is_making(&self) -> bool {
        matches!(self.state, State::Makes(_))
    }

    /// What the site names is to be looked at anew when its image is asked for again.
    pub fn forget(&mut self) {
        if let State::Looks(maker) | State::Makes(maker) = std::mem::take(&mut self.state) {
            self.leaving.take(maker);
        }
    }

    /// Its image, once it is there. While others are made (`busy`) it is not.
    ///
    /// # Errors
    /// It cannot be looked at, or made.
    pub fn image(
        &mut self,
        root: &Path,
        images: &Images,
        busy: bool,
        waits: &mut Waits,
    ) -> Result<Option<PathBuf>, Fatal> {
        let fault = |why: &str| Fatal::new("make its root", why);
        loop {
            let (maker, makes) = match std::mem::take(&mut self.state) {
                State::There(image) if image.exists() => {
                    self.state = State::There(image.clone());
                    return Ok(Some(image));
                }
                State::Unknown | State::There(_) if !self.leaving.are_gone() => {
                    let why =
                        "its file system does not answer: who was to read it was told to end, and has not";
                    return Err(fault(why));
                }
                State::Unknown | State::There(_) => {
                    self.state = State::Looks(images.look(root, waits)?);
                    return Ok(None);
                }
                State::Wanted if busy => {
                    self.state = State::Wanted;
                    return Ok(None);
                }
                State::Wanted => {
                    self.state = State::Makes(images.make(root, waits)?);
                    return Ok(None);
                }
                State::Looks(maker) => (maker, false),
                State::Makes(maker) => (maker, true),
            };
            let Some(over) = maker.so_far() else {
                self.state = if makes { State::Makes(maker) } else { State::Looks(maker) };
                return Ok(None);
            };
            self.leaving.take(maker);
            over.map_err(|why| fault(&why))?;
            self.state = match images.find_root(root) {
                Some(image) => State::There(image),
                None if makes => return Err(fault("it is not there")),
                None => State::Wanted,
            };
        }
    }
}
