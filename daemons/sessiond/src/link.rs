//! A channel whose peer may be slow: what it does not take now waits, in order.

use levee_ipc::{Channel, Received, RecvError, SendError};
use rustix::event::PollFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One end of a channel, and the messages that its peer has not taken yet.
pub struct Link<M> {
    channel: Channel,
    waiting: VecDeque<M>,
}

impl<M: Serialize> Link<M> {
    /// Takes over a descriptor from the warden.
    pub fn new(fd: OwnedFd) -> Self {
        Self { channel: Channel::from_fd(fd), waiting: VecDeque::new() }
    }

    /// Sends a message, or keeps it until the peer takes it. A peer that is gone is noticed when it is heard.
    pub fn send(&mut self, message: M) {
        self.waiting.push_back(message);
        self.flush();
    }

    /// Sends what waits, as far as the peer takes it.
    pub fn flush(&mut self) {
        while let Some(message) = self.waiting.front() {
            match self.channel.try_send(message) {
                Err(SendError::Full) => return,
                // Closed: the end of the channel is an event of its own. Too large: no message of ours is.
                Ok(()) | Err(_) => {
                    self.waiting.pop_front();
                }
            }
        }
    }

    /// Whether the peer has taken everything.
    pub fn is_clear(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What to poll for.
    pub fn interest(&self) -> PollFlags {
        if self.waiting.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    /// Takes one message if one is there.
    pub fn receive<T: DeserializeOwned>(&self) -> Result<Received<T>, RecvError> {
        self.channel.try_recv()
    }
}

impl<M> AsFd for Link<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
