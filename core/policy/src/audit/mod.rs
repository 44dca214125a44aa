//! Audit records: what was decided, sealed so that a later change shows.
//!
//! Each line of the log is a JSON object that ends in a seal: an HMAC under a key that changes with every
//! record and is forgotten. Whoever takes the logging process over learns the present key, and with it can
//! forge only what comes after (Bellare and Yee, "Forward integrity for secure audit logs", 1997). The signer,
//! another process, is given each record's digest when the record is on the disk, keeps the running hash by itself, and
//! now and then signs it with the count: so a cut tail shows, and nobody but the signer can write a log anew.

mod action;
mod chain;
mod hex;
mod seal;
mod verify;

pub use action::{Action, Unknown};
pub use chain::Chain;
pub use hex::{Hash, Hex, encode as hex};
pub use seal::{AuditKey, SealError, Sealer};
pub use verify::{Fault, FaultKind, Report, Verifier};

use serde::{Deserialize, Serialize};

use crate::names::{HostName, LabelName, PpkId, UserName};

/// How a decision went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It was granted.
    Granted,
    /// It was denied.
    Denied,
    /// Something that is no decision happened, such as the end of a session.
    Noted,
}

/// What is to be recorded, before it has a time and a place in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Who, if a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserName>,
    /// From which workstation, if one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// The label of the subject, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<LabelName>,
    /// What was wanted, or happened.
    pub action: Action,
    /// Of what.
    pub object: String,
    /// How it went.
    pub verdict: Verdict,
    /// Why, in words.
    pub reason: String,
}

/// One record of the log, as its line says it, less the seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Number of the record, from 0 and without gaps.
    pub seq: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub time: u64,
    /// What it records.
    #[serde(flatten)]
    pub body: Body,
}

/// What a record records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// A decision, or something else that happened.
    Event(Event),
    /// A signature over everything before.
    Checkpoint(Checkpoint),
}

/// A signed statement about the log's beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// How many records it speaks of: those numbered below this.
    pub count: u64,
    /// The running hash after them.
    pub hash: Hash,
    /// The signer's signature of [`checkpoint_message`], in hexadecimal.
    pub signature: Hex,
}

/// The bytes that the signer signs for a checkpoint.
pub fn checkpoint_message(count: u64, hash: &Hash) -> Vec<u8> {
    let mut message = b"levee audit checkpoint\0".to_vec();
    message.extend_from_slice(&count.to_be_bytes());
    message.extend_from_slice(&hash.0);
    message
}

/// What begins a checkpoint that is kept elsewhere.
const KEPT: &str = "levee audit checkpoint ";

impl Checkpoint {
    /// As it is kept elsewhere: sent away, or witnessed by another server.
    pub fn kept(count: u64, hash: Hash, signature: Vec<u8>) -> String {
        format!("{KEPT}{count} {} {}", String::from(hash), String::from(Hex(signature)))
    }

    /// The one in a line of whatever keeps it: such a file, a syslog, another server's log.
    pub fn in_line(line: &str) -> Option<Self> {
        let (_, said) = line.split_once(KEPT)?;
        let mut words = said.split(|char: char| !char.is_ascii_alphanumeric());
        let (count, hash, signature) = (words.next()?, words.next()?, words.next()?);
        let hash = Hash::try_from(hash.to_owned()).ok()?;
        Some(Self { count: count.parse().ok()?, hash, signature: Hex::try_from(signature.to_owned()).ok()? })
    }
}

/// The label of a signature in PEM by which a signer's key vouches for the one that follows it ([`succession_message`]).
pub const SUCCESSION: &str = "LEVEE AUDIT KEY SUCCESSION";

/// What the record is about that a host has used the newer of two PPKs.
pub const PPK: &str = "PPK";

/// What that record says: `levee enrol rotate SITE ppk HOST --finish` looks for it.
pub fn ppk_used(id: &PpkId) -> String {
    format!("{id} is used: the one before it is not needed any more")
}

/// The bytes that a key signs for the one that follows it, which is given as a SubjectPublicKeyInfo (RFC 5280 4.1.2.7).
pub fn succession_message(next: &[u8]) -> Vec<u8> {
    [b"levee audit key succession\0", next].concat()
}

/// The name of a full part of the log, whose first record has this number: names sort as the parts follow each other.
pub fn part_name(first: u64) -> String {
    format!("audit-{first:020}.jsonl")
}

/// The number of a full part's first record, by the part's name; `None` of any other file.
pub fn part_first(name: &str) -> Option<u64> {
    let first = name.strip_prefix("audit-")?.strip_suffix(".jsonl")?.parse().ok()?;
    (part_name(first) == name).then_some(first)
}

/// Lines are no longer than this, in bytes with the newline.
pub const MAX_LINE: usize = 16 << 10;
