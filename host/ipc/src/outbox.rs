//! A channel that is never waited for.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use crate::{Channel, RecvError, SendError};
use serde::{Serialize, de::DeserializeOwned};

/// A channel to another daemon with the messages that it has not taken yet. A peer that never reads is as good as gone.
#[derive(Debug)]
pub struct Outbox<M> {
    channel: Option<Channel>,
    waiting: VecDeque<M>,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self { channel: None, waiting: VecDeque::new() }
    }
}

impl<M: Serialize> Outbox<M> {
    /// The most messages that wait.
    const LIMIT: usize = 65_536;

    /// Without a peer; what is sent is dropped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is a peer.
    pub fn is_open(&self) -> bool {
        self.channel.is_some()
    }

    /// A new peer takes the place of the old one, and gets nothing that was meant for it.
    pub fn replace(&mut self, channel: Channel) {
        self.waiting.clear();
        self.channel = Some(channel);
    }

    /// The descriptor to wait on, and whether for writing as well.
    pub fn watch(&self) -> Option<(BorrowedFd<'_>, bool)> {
        self.channel.as_ref().map(|channel| (channel.as_fd(), !self.waiting.is_empty()))
    }

    /// Sends now, or as soon as the peer reads.
    pub fn send(&mut self, message: M) {
        if self.channel.is_some() {
            self.waiting.push_back(message);
            self.flush();
        }
    }

    /// Sends what waits, as far as the peer takes it.
    pub fn flush(&mut self) {
        while let (Some(channel), Some(first)) = (&self.channel, self.waiting.front()) {
            match channel.try_send(first) {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err(SendError::Full) if self.waiting.len() <= Self::LIMIT => return,
                Err(_) => self.lose(),
            }
        }
    }

    /// The next message from the peer; `None` when there is none, and for good when the peer is gone or sends what
    /// is no message.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Option<T> {
        match self.channel.as_ref()?.try_recv() {
            Ok(received) => Some(received.message),
            Err(RecvError::Empty) => None,
            Err(_) => {
                self.lose();
                None
            }
        }
    }

    fn lose(&mut self) {
        self.channel = None;
        self.waiting.clear();
    }
}
