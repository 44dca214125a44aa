//! What comes along with a part of a kit.

use crate::Fatal;
use levee_ipc::Channel;
use levee_ipc::warden::Part;
use std::os::fd::OwnedFd;

/// The descriptors that came with a part: as many as it has.
#[derive(Debug)]
pub struct Descriptors(Vec<OwnedFd>);

impl Descriptors {
    pub(crate) fn of(part: &impl Part, fds: Vec<OwnedFd>) -> Result<Self, Fatal> {
        let expected = part.descriptors();
        if fds.len() == expected {
            return Ok(Self(fds));
        }
        Err(Fatal::new("take a part", format!("{part:?} has {expected} descriptors, and not {}", fds.len())))
    }

    /// The only one.
    ///
    /// # Errors
    /// The part has another number of them.
    pub fn one(mut self) -> Result<OwnedFd, Fatal> {
        let only = if self.0.len() == 1 { self.0.pop() } else { None };
        only.ok_or_else(|| Fatal::new("take a part", "it has not one descriptor"))
    }

    /// The only one, a channel.
    ///
    /// # Errors
    /// As [`Descriptors::one`].
    pub fn channel(self) -> Result<Channel, Fatal> {
        self.one().map(Channel::from_fd)
    }

    /// Both of two.
    ///
    /// # Errors
    /// The part has another number of them.
    pub fn two(self) -> Result<(OwnedFd, OwnedFd), Fatal> {
        let two: Result<[OwnedFd; 2], _> = self.0.try_into();
        two.map(Into::into).map_err(|_| Fatal::new("take a part", "it has not two descriptors"))
    }

    /// All of them.
    pub fn all(self) -> Vec<OwnedFd> {
        self.0
    }
}
