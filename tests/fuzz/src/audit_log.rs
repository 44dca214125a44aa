//! The audit log as `levee audit verify` reads it: with its first key, no log is sound but one that was written so, or the beginning
//! of one.
//!
//! Input: a byte of options, then the log. Options: 1: without the first key; 2: 32 octets behind the options are taken for a
//! checkpoint's saved state instead.

use std::sync::OnceLock;

use levee_policy::audit::{Action, AuditKey, Body, Chain, Event, Record, Sealer, Verdict, Verifier};

/// The log's first key.
const KEY: [u8; 32] = [7; 32];

/// A log of ten records and two checkpoints, whose signatures are five octets.
pub fn honest() -> &'static [u8] {
    static LOG: OnceLock<Vec<u8>> = OnceLock::new();
    LOG.get_or_init(|| {
        let mut sealer = Sealer::new(AuditKey::from_bytes(KEY));
        let mut log = Vec::new();
        for number in 0..10u64 {
            let event = Event {
                user: Some("ada".parse().expect("a name")).filter(|_| number % 2 == 0),
                host: Some("ws1".parse().expect("a name")).filter(|_| number % 3 == 0),
                label: Some("SECRET//NATO".parse().expect("a label")).filter(|_| number % 5 == 0),
                action: Action::Session,
                object: format!("\"object\" {number}\u{1b}"),
                verdict: if number % 2 == 0 { Verdict::Granted } else { Verdict::Denied },
                reason: "because".into(),
            };
            log.extend(sealer.seal(1_800_000_000_000 + number, &event).expect("it fits"));
            if number % 5 == 4 {
                let (count, hash) = (sealer.count(), *sealer.hash());
                log.extend(
                    sealer
                        .seal_checkpoint(1_800_000_000_100, count, hash, b"sign!".to_vec())
                        .expect("it fits"),
                );
            }
        }
        log
    })
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((&options, log)) = input.split_first() else { return };
    if options & 2 != 0 {
        if let Some(sealer) = Sealer::restore(log) {
            assert_eq!(&sealer.save()[..], log, "a state says one thing");
        }
        return;
    }
    let key = (options & 1 == 0).then(|| AuditKey::from_bytes(KEY));
    let sealed = key.is_some();
    let mut verifier = Verifier::new(key, |_, signature| signature == b"sign!");
    let (mut records, mut chain) = (0, Chain::START);
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        let record = verifier.line(line);
        chain = chain.with(&Chain::digest(line));
        let Some(record) = record else { continue };
        records += 1;
        let text = serde_json::to_string(&record).expect("it is written");
        let again: Record = serde_json::from_str(&text).expect("it is read");
        assert_eq!(again, record);
        if let Body::Event(event) = &record.body {
            assert!(event.action.as_str().len() <= line.len());
        }
    }
    let report = verifier.finish(None);
    assert!(report.signed <= records && report.checkpoints <= records);
    if sealed && report.is_sound() {
        assert!(honest().starts_with(log), "a log is sound that nobody sealed");
        assert_eq!(report.lines, chain.count);
    }
}
