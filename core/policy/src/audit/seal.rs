//! Seals records, one after the other.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::chain::Chain;
use super::hex::{Hash, Hex, decode, encode};
use super::{Body, Checkpoint, Event, MAX_LINE, Record};

/// Between a record's own text and its seal.
const SEAL: &[u8] = b",\"seal\":\"";
const END: &[u8] = b"\"}";

/// The key that seals one record; the next follows from it, the one before does not.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct AuditKey([u8; 32]);

impl AuditKey {
    /// The key of these bytes: for the first record, 32 random ones.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key's bytes, to be stored where only its holder can read them.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Replaces the key by its successor.
    pub(super) fn evolve(&mut self) {
        let mut next = Sha256::new().chain_update(b"levee audit evolve").chain_update(self.0).finalize();
        self.0.copy_from_slice(&next);
        next.as_mut_slice().zeroize();
    }

    fn mac(&self, text: &[u8]) -> Hmac<Sha256> {
        // RFC 2104 2: a key shorter than the block is filled up with zeros; a whole block cannot be refused.
        let mut block = Zeroizing::new([0u8; 64]);
        if let Some(head) = block.first_chunk_mut::<32>() {
            *head = self.0;
        }
        Hmac::<Sha256>::new((&*block).into()).chain_update(text)
    }
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditKey(..)")
    }
}

/// Why a record was not sealed. Nothing has changed, and what was to be recorded must not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealError {
    /// The line would be longer than [`MAX_LINE`].
    TooLong,
    /// It cannot be written as JSON.
    Unwritable,
    /// The checkpoint speaks of records that there are not.
    Ahead,
    /// The line read back is not the next one under this key.
    NotNext,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the audit record is too long",
            Self::Unwritable => "the audit record cannot be written as JSON",
            Self::Ahead => "the checkpoint speaks of records that there are not",
            Self::NotNext => "the line is not the next record under this key",
        })
    }
}

impl std::error::Error for SealError {}

/// The end of a log: what the next record needs.
///
/// It does no I/O. Write what [`Sealer::seal`] returns, sync it, then store [`Sealer::save`] over the last
/// one. After a crash [`Sealer::restore`] and give the lines since then to [`Sealer::catch_up`].
#[derive(Debug)]
pub struct Sealer {
    chain: Chain,
    key: AuditKey,
}

impl Sealer {
    /// Bytes of the stored form.
    pub const STATE: usize = 8 + 32 + 32;

    /// The beginning of a log. Give a copy of the first key to those who shall verify it, and keep none.
    pub fn new(first: AuditKey) -> Self {
        Self { chain: Chain::START, key: first }
    }

    /// How many records there are.
    pub fn count(&self) -> u64 {
        self.chain.count
    }

    /// The running hash over them.
    pub fn hash(&self) -> &Hash {
        &self.chain.hash
    }

    /// Both.
    pub fn chain(&self) -> Chain {
        self.chain
    }

    /// The stored form: count, present key, running hash.
    pub fn save(&self) -> Zeroizing<[u8; Self::STATE]> {
        let mut state = Zeroizing::new([0; Self::STATE]);
        let parts = self.chain.count.to_be_bytes().into_iter().chain(self.key.0).chain(self.chain.hash.0);
        state.iter_mut().zip(parts).for_each(|(place, byte)| *place = byte);
        state
    }

    /// A sealer from its stored form; `None` if it has another length.
    pub fn restore(state: &[u8]) -> Option<Self> {
        let (count, rest) = state.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let hash = rest.try_into().ok()?;
        Some(Self {
            chain: Chain { count: u64::from_be_bytes(*count), hash: Hash(hash) },
            key: AuditKey(*key),
        })
    }

    /// The next line of the log, newline included. `time` is in milliseconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// If the event does not fit in a line; then the log has not moved.
    pub fn seal(&mut self, time: u64, event: &Event) -> Result<Vec<u8>, SealError> {
        self.write(time, Body::Event(event.clone()))
    }

    /// The line of a checkpoint that the signer has signed.
    ///
    /// # Errors
    /// If it speaks of more records than there are.
    pub fn seal_checkpoint(
        &mut self,
        time: u64,
        count: u64,
        hash: Hash,
        signature: Vec<u8>,
    ) -> Result<Vec<u8>, SealError> {
        if count > self.chain.count {
            return Err(SealError::Ahead);
        }
        self.write(time, Body::Checkpoint(Checkpoint { count, hash, signature: Hex(signature) }))
    }

    /// Takes a line that was written after the state was stored, newline included.
    ///
    /// # Errors
    /// If it is not the next record under the present key: cut short by a crash, if the last; otherwise
    /// tampered with.
    pub fn catch_up(&mut self, line: &[u8]) -> Result<Record, SealError> {
        let record = open(line, &self.key).ok_or(SealError::NotNext)?;
        if record.seq != self.chain.count {
            return Err(SealError::NotNext);
        }
        self.advance(line);
        Ok(record)
    }

    fn write(&mut self, time: u64, body: Body) -> Result<Vec<u8>, SealError> {
        let mut line = serde_json::to_vec(&Record { seq: self.chain.count, time, body })
            .map_err(|_| SealError::Unwritable)?;
        if line.pop() != Some(b'}') {
            return Err(SealError::Unwritable);
        }
        let seal = self.key.mac(&line).finalize().into_bytes();
        line.extend_from_slice(SEAL);
        line.extend_from_slice(encode(&seal).as_bytes());
        line.extend_from_slice(END);
        line.push(b'\n');
        if line.len() > MAX_LINE {
            return Err(SealError::TooLong);
        }
        self.advance(&line);
        Ok(line)
    }

    fn advance(&mut self, line: &[u8]) {
        self.chain = self.chain.with(&Chain::digest(line));
        self.key.evolve();
    }
}

/// A line's own text without its seal, and the seal. `None` if the line is not of that form.
fn split(line: &[u8]) -> Option<(&[u8], [u8; 32])> {
    let line = line.strip_suffix(b"\n")?.strip_suffix(END)?;
    let (rest, seal) = line.split_at_checked(line.len().checked_sub(64)?)?;
    let seal = decode(std::str::from_utf8(seal).ok()?)?;
    Some((rest.strip_suffix(SEAL)?, seal.try_into().ok()?))
}

/// What a line says, whoever wrote it. `None` if it is no record at all.
pub(super) fn read(line: &[u8]) -> Option<Record> {
    if line.len() > MAX_LINE {
        return None;
    }
    let (text, _) = split(line)?;
    let mut text = text.to_vec();
    text.push(b'}');
    serde_json::from_slice(&text).ok()
}

/// What a line says, if this key sealed it.
pub(super) fn open(line: &[u8], key: &AuditKey) -> Option<Record> {
    let (text, seal) = split(line)?;
    key.mac(text).verify_slice(&seal).ok()?;
    read(line)
}
