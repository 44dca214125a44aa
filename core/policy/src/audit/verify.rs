//! Finds what was altered, is missing, stands elsewhere or was cut off, and says what the rest proves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use serde::Serialize;

use super::chain::Chain;
use super::hex::Hash;
use super::seal::{AuditKey, open, read};
use super::{Body, Checkpoint, Record, checkpoint_message};

/// A checkpoint may stand this many records behind the last it speaks of, while the signer was at work.
const BEHIND: usize = 1 << 16;

/// Telling a gap or a moved record from an altered one takes evolving a key through the records between:
/// so many steps in all, so that a log made to cost much does not.
const STEPS: u64 = 1 << 24;

/// The kind of a fault in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Not a record at all.
    Malformed,
    /// The seal does not fit: the line was altered, or is another's.
    Altered,
    /// Records between this and the one before are not there.
    Missing,
    /// The record's number is one that has passed.
    Reordered,
    /// A checkpoint whose hash is not that of the records before it.
    WrongHash,
    /// A checkpoint whose signature is not the signer's.
    BadSignature,
    /// The log ends before it should.
    CutOff,
}

/// One fault in a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The line, from 1.
    pub line: u64,
    /// Its kind.
    pub kind: FaultKind,
    /// What is wrong, in words.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// What a log proves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Lines read.
    pub lines: u64,
    /// Checkpoints that hold.
    pub checkpoints: u64,
    /// Records that the last of them speaks of.
    pub signed: u64,
    /// Everything found wrong.
    pub faults: Vec<Fault>,
    /// What it proves and what it does not, in sentences.
    pub statement: Vec<String>,
}

impl Report {
    /// Whether nothing was found wrong.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Reads a log line by line.
pub struct Verifier<F> {
    first: Option<AuditKey>,
    key: Option<AuditKey>,
    steps: u64,
    check: F,
    line: u64,
    next: u64,
    chain: Chain,
    /// Running hashes, the newest last.
    hashes: VecDeque<Hash>,
    checkpoints: u64,
    signed: u64,
    /// What was kept elsewhere: how many records, and the running hash after them.
    kept: BTreeMap<u64, Hash>,
    /// Of so many records two are kept that differ.
    contradicted: BTreeSet<u64>,
    faults: Vec<Fault>,
}

impl<F: FnMut(&[u8], &[u8]) -> bool> Verifier<F> {
    /// A verifier for a log from its first record on.
    ///
    /// With the log's first key, seals are checked. Without, only checkpoints are: `check` is given a
    /// message ([`checkpoint_message`]) and a signature, and says whether the signature is the signer's.
    pub fn new(key: Option<AuditKey>, check: F) -> Self {
        Self {
            first: key.clone(),
            key,
            steps: STEPS,
            check,
            line: 0,
            next: 0,
            chain: Chain::START,
            hashes: VecDeque::from([Chain::START.hash]),
            checkpoints: 0,
            signed: 0,
            kept: BTreeMap::new(),
            contradicted: BTreeSet::new(),
            faults: Vec::new(),
        }
    }

    /// A checkpoint that was kept elsewhere, before the log is read. False: it is not of this log's signer, and says nothing of it.
    pub fn keep(&mut self, checkpoint: &Checkpoint) -> bool {
        let message = checkpoint_message(checkpoint.count, &checkpoint.hash);
        let is_own = (self.check)(&message, &checkpoint.signature.0);
        // The first that is kept stands: who has the signer's key later can only add to what is elsewhere.
        if is_own && *self.kept.entry(checkpoint.count).or_insert(checkpoint.hash) != checkpoint.hash {
            self.contradicted.insert(checkpoint.count);
        }
        is_own
    }

    /// Takes the next line, newline included. Gives back what it says, if it is a record at all.
    pub fn line(&mut self, line: &[u8]) -> Option<Record> {
        self.line += 1;
        let record = self.examine(line);
        self.chain = self.chain.with(&Chain::digest(line));
        if self.hashes.len() > BEHIND {
            self.hashes.pop_front();
        }
        self.hashes.push_back(self.chain.hash);
        let count = self.chain.count;
        if self.kept.get(&count).is_some_and(|hash| *hash != self.chain.hash) {
            let what =
                format!("the first {count} records are not those of which a checkpoint was kept elsewhere");
            self.fault(FaultKind::WrongHash, what);
        }
        record
    }

    /// Ends the log. `expected` is how many records there should be at least, from elsewhere: the
    /// logging process's own state, or a checkpoint kept apart.
    pub fn finish(mut self, expected: Option<u64>) -> Report {
        for count in std::mem::take(&mut self.contradicted) {
            let what = format!(
                "of the first {count} records two checkpoints that differ were kept elsewhere: the log was written anew"
            );
            self.fault(FaultKind::WrongHash, what);
        }
        let kept = self.kept.keys().next_back().copied();
        let expected = expected.max(kept);
        if let Some(expected) = expected.filter(|expected| *expected > self.next) {
            let what = format!("the log ends after {} records; there were {expected}", self.next);
            self.line += 1;
            self.fault(FaultKind::CutOff, what);
            self.line -= 1;
        }
        let statement = self.statement(expected);
        Report {
            lines: self.line,
            checkpoints: self.checkpoints,
            signed: self.signed,
            faults: self.faults,
            statement,
        }
    }

    fn examine(&mut self, line: &[u8]) -> Option<Record> {
        if line.last() != Some(&b'\n') {
            self.fault(FaultKind::CutOff, "the last line has no end: it was cut off");
            return None;
        }
        let Some(record) = read(line) else {
            self.fault(FaultKind::Malformed, "not an audit record");
            // It stands where a record was.
            self.step();
            return None;
        };
        // With a key, a line's number is believed only if its seal fits the key of that number; otherwise
        // one altered digit would be taken for a gap and turn everything after it into faults.
        if record.seq != self.next && !self.number_is_real(line, record.seq) {
            self.fault(
                FaultKind::Altered,
                format!("record {} was altered: its seal does not fit", self.next),
            );
            self.step();
            return Some(record);
        }
        let Some(gap) = record.seq.checked_sub(self.next) else {
            let what = format!("record {} stands where {} belongs", record.seq, self.next);
            self.fault(FaultKind::Reordered, what);
            return Some(record);
        };
        if gap > 0 {
            let what = match gap {
                1 => format!("record {} is missing", self.next),
                _ => format!("records {} to {} are missing", self.next, record.seq - 1),
            };
            self.fault(FaultKind::Missing, what);
            self.skip(gap);
        }
        let sealed = self.key.as_ref().is_none_or(|key| open(line, key).is_some());
        self.step();
        if !sealed {
            let what = format!("record {} was altered: its seal does not fit", record.seq);
            self.fault(FaultKind::Altered, what);
        } else if let Body::Checkpoint(checkpoint) = &record.body {
            self.checkpoint(checkpoint, record.seq);
        }
        Some(record)
    }

    fn number_is_real(&mut self, line: &[u8], seq: u64) -> bool {
        let (mut key, steps) = match (&self.key, &self.first) {
            (Some(key), _) if seq >= self.next => (key.clone(), seq - self.next),
            (_, Some(first)) => (first.clone(), seq),
            // Without a key all there is to go by is what the line says.
            _ => return seq.abs_diff(self.next) <= STEPS,
        };
        let Some(left) = self.steps.checked_sub(steps) else { return false };
        self.steps = left;
        for _ in 0..steps {
            key.evolve();
        }
        open(line, &key).is_some()
    }

    fn skip(&mut self, records: u64) {
        if self.key.is_some() {
            // Few: each has cost one of `steps` before.
            (0..records).for_each(|_| self.step());
        } else {
            self.next = self.next.saturating_add(records);
        }
    }

    fn step(&mut self) {
        self.next = self.next.saturating_add(1);
        if let Some(key) = &mut self.key {
            key.evolve();
        }
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint, seq: u64) {
        // The newest hash is that of all lines before this one, which number `seq` if none is missing.
        let hash = seq
            .checked_sub(checkpoint.count)
            .and_then(|back| usize::try_from(back).ok())
            .and_then(|back| self.hashes.len().checked_sub(back + 1))
            .and_then(|at| self.hashes.get(at));
        if hash != Some(&checkpoint.hash) {
            let what = format!("the first {} records are not those that were signed", checkpoint.count);
            self.fault(FaultKind::WrongHash, what);
            return;
        }
        let message = checkpoint_message(checkpoint.count, &checkpoint.hash);
        if !(self.check)(&message, &checkpoint.signature.0) {
            self.fault(FaultKind::BadSignature, "the checkpoint's signature is not the signer's");
            return;
        }
        self.checkpoints += 1;
        self.signed = self.signed.max(checkpoint.count);
    }

    fn fault(&mut self, kind: FaultKind, what: impl Into<String>) {
        self.faults.push(Fault { line: self.line, kind, what: what.into() });
    }

    fn statement(&self, expected: Option<u64>) -> Vec<String> {
        let mut said = Vec::new();
        if !self.faults.is_empty() {
            said.push(format!(
                "The log has {}. It is not the log that was written.",
                number(self.faults.len() as u64, "fault")
            ));
        } else if self.key.is_some() {
            said.push(format!(
                "Each of the {} records is as it was sealed, and in its place. That holds against whoever took \
                 levee-sessiond over, or became root, after a record was written: they learned later keys alone.",
                self.next
            ));
        } else {
            said.push(format!(
                "Nothing is wrong with the {}: their numbers follow each other. Seals were not checked, because the first \
                 key was not given; with the auditor's key the log can be proved against root as well.",
                number(self.next, "record")
            ));
        }
        if self.signed > 0 {
            said.push(format!(
                "The signer chained the first {} as they were written, and signed them as they stand here ({}). That \
                 holds against a levee-sessiond that was taken over, whatever it knows; not against root, who has the \
                 signer's key too.",
                number(self.signed, "record"),
                number(self.checkpoints, "checkpoint")
            ));
        } else if self.faults.is_empty() {
            said.push(
                "The signer has signed no checkpoint yet. A log that has begun is signed within two minutes; until then \
                 who has the first key could have written it anew."
                    .to_owned(),
            );
        } else {
            said.push(
                "No checkpoint holds: who has the first key could have written the whole log anew."
                    .to_owned(),
            );
        }
        if let Some(last) = self.kept.keys().next_back().filter(|_| self.faults.is_empty()) {
            said.push(format!(
                "The log is the one of which {} kept elsewhere, the last of the first {}. That holds against root as well, who is not root there.",
                match self.kept.len() {
                    1 => "1 checkpoint was".to_owned(),
                    count => format!("{count} checkpoints were"),
                },
                number(*last, "record")
            ));
        }
        let tail = number(self.next.saturating_sub(self.signed), "record");
        match (self.key.is_some(), expected) {
            _ if self.signed >= self.next => {}
            (true, Some(expected)) if expected <= self.next => said.push(format!(
                "Since the last checkpoint there are {tail}, which rest on seals. The log should have at least \
                 {expected} records, and has {}.",
                self.next
            )),
            (true, _) => said.push(format!(
                "Since the last checkpoint there are {tail}: they rest on seals alone, and more may have been cut off."
            )),
            (false, _) if self.signed > 0 => {
                said.push(format!("What stands since the last checkpoint is not proved yet ({tail})."));
            }
            (false, _) => {}
        }
        said.push(
            "What a levee-sessiond wrote after it was taken over may be false: nothing proves it.".to_owned(),
        );
        said
    }
}

fn number(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::super::{Action, Event, Sealer, Verdict};
    use super::*;

    #[test]
    fn a_gap_costs_as_many_steps_as_records_are_missing_in_it() {
        let (user, host, label) = (None, None, None);
        let (object, reason) = (String::new(), String::new());
        let event =
            Event { user, host, label, action: Action::Connect, object, verdict: Verdict::Noted, reason };
        let first = AuditKey::from_bytes([7; 32]);
        let mut sealer = Sealer::new(first.clone());
        let lines: Vec<Vec<u8>> = (0..40).map(|time| sealer.seal(time, &event).unwrap()).collect();
        for (gone, kind, left) in
            [(5, FaultKind::Missing, 0), (4, FaultKind::Missing, 1), (6, FaultKind::Altered, 5)]
        {
            let mut verifier = Verifier::new(Some(first.clone()), |_, _| true);
            verifier.steps = 5;
            for line in lines[..20].iter().chain(&lines[20 + gone..20 + gone + 1]) {
                verifier.line(line);
            }
            let found: Vec<_> = verifier.faults.iter().map(|fault| (fault.line, fault.kind)).collect();
            assert_eq!((found, verifier.steps), (vec![(21, kind)], left));
        }
    }
}
