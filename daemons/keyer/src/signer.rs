//! What waits for the signer. It answers in the order in which it was asked.

use levee_ike::RequestId;
use levee_ipc::signer::{FromSigner, ToSigner};
use levee_ipc::{Channel, Outbox};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// Questions that may wait; a handshake beyond them fails.
const MOST: usize = 1_024;

/// The channel to the signer, and what was asked on it.
#[derive(Debug, Default)]
pub struct Signer {
    channel: Outbox<ToSigner>,
    asked: VecDeque<RequestId>,
}

impl Signer {
    /// Takes a new channel. What the old one owes will not be answered.
    pub fn replace(&mut self, channel: Channel) -> Vec<RequestId> {
        self.channel.replace(channel);
        self.asked.drain(..).collect()
    }

    /// The descriptor to wait on, and whether for writing as well.
    pub fn watch(&self) -> Option<(BorrowedFd<'_>, bool)> {
        self.channel.watch()
    }

    /// Asks for a signature over the octets of an IKE_AUTH (RFC 7296 2.15). False: there will be none.
    pub fn ask(&mut self, request: RequestId, octets: Vec<u8>) -> bool {
        if self.asked.len() >= MOST || !self.channel.is_open() {
            return false;
        }
        self.asked.push_back(request);
        self.channel.send(ToSigner::IkeAuth(octets));
        true
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        self.channel.flush();
    }

    /// The next answer: the request, and the signature or none.
    pub fn hear(&mut self) -> Option<(RequestId, Option<Vec<u8>>)> {
        if let Some(answer) = self.channel.receive::<FromSigner>() {
            let signature = match answer {
                FromSigner::Signature(signature) => Some(signature),
                FromSigner::Refused => None,
            };
            return self.asked.pop_front().map(|request| (request, signature));
        }
        // A signer that is gone owes nothing.
        if self.channel.is_open() { None } else { self.asked.pop_front().map(|request| (request, None)) }
    }
}
