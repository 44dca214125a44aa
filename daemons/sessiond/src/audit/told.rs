//! What the signer knows of the log, and what it is to be told next: one thing at a time.

use levee_ipc::signer::{DIGESTS, ToSigner};
use levee_policy::audit::{Chain, Hash};
use std::collections::VecDeque;

/// The log as the signer knows it, and what is behind that.
pub struct Told {
    known: Chain,
    /// Digests of the records that follow, each with the hash of the log up to it.
    behind: VecDeque<(Hash, Hash)>,
    asked: Option<Asked>,
    /// It is another signer than before: how far is it?
    anew: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Where,
    Records,
    Checkpoint,
}

/// The signer's log is not this one: one of the two was put back, or written anew.
pub struct Different;

impl Told {
    /// The signer knows this much, and is to be told these digests.
    pub fn new(known: Chain, digests: impl IntoIterator<Item = Hash>) -> Self {
        let mut told = Self { known, behind: VecDeque::new(), asked: None, anew: false };
        digests.into_iter().for_each(|digest| told.push(digest));
        told
    }

    /// The log, all of it.
    pub fn end(&self) -> Chain {
        let count = self.known.count + self.behind.len() as u64;
        Chain { count, hash: self.behind.back().map_or(self.known.hash, |(_, hash)| *hash) }
    }

    /// The log as the signer knows it.
    pub fn known(&self) -> Chain {
        self.known
    }

    /// How many records the signer does not know.
    pub fn behind(&self) -> usize {
        self.behind.len()
    }

    /// Another record.
    pub fn push(&mut self, digest: Hash) {
        let next = self.end().with(&digest);
        self.behind.push_back((digest, next.hash));
    }

    /// The channel is another one, or there is none. What was asked is not answered any more; true if that was a checkpoint.
    pub fn lost(&mut self) -> bool {
        self.anew = true;
        self.asked.take() == Some(Asked::Checkpoint)
    }

    /// Whether nothing is being asked.
    pub fn is_idle(&self) -> bool {
        self.asked.is_none()
    }

    /// What to ask now: of the records below `synced`, those that the signer does not know.
    pub fn next(&mut self, synced: u64) -> Option<ToSigner> {
        if self.asked.is_some() {
            return None;
        }
        if self.anew {
            self.asked = Some(Asked::Where);
            return Some(ToSigner::AuditChain);
        }
        let count = usize::try_from(synced.saturating_sub(self.known.count)).unwrap_or(usize::MAX);
        let digests: Vec<[u8; 32]> =
            self.behind.iter().take(count.min(DIGESTS)).map(|(digest, _)| digest.0).collect();
        if digests.is_empty() {
            return None;
        }
        self.asked = Some(Asked::Records);
        Some(ToSigner::AuditRecords { from: self.known.count, digests })
    }

    /// Asks for a checkpoint over what the signer knows.
    pub fn checkpoint(&mut self) -> ToSigner {
        self.asked = Some(Asked::Checkpoint);
        ToSigner::AuditCheckpoint
    }

    /// The signer knows so much.
    ///
    /// # Errors
    /// If that is not how this log began.
    pub fn heard(&mut self, chain: Chain) -> Result<(), Different> {
        let steps = chain.count.checked_sub(self.known.count).ok_or(Different)?;
        let steps = usize::try_from(steps).map_err(|_| Different)?;
        let hash = match steps.checked_sub(1) {
            None => self.known.hash,
            Some(last) => self.behind.get(last).ok_or(Different)?.1,
        };
        if hash != chain.hash {
            return Err(Different);
        }
        self.behind.drain(..steps);
        self.known = chain;
        self.asked = None;
        self.anew = false;
        Ok(())
    }
}
