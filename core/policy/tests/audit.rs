//! The audit log: what sealing and checkpoints bring to light.

use levee_policy::audit::{
    Action, AuditKey, Body, Chain, Checkpoint, Event, FaultKind, MAX_LINE, Report, SealError, Sealer,
    Verdict, Verifier, checkpoint_message, part_first, part_name, ppk_used, succession_message,
};

fn event(object: &str) -> Event {
    Event {
        user: Some("ada".parse().unwrap()),
        host: Some("ws1".parse().unwrap()),
        label: Some("SECRET//NATO".parse().unwrap()),
        action: Action::Connect,
        object: object.to_owned(),
        verdict: Verdict::Granted,
        reason: "`web` is offered at SECRET//NATO".to_owned(),
    }
}

fn first() -> AuditKey {
    AuditKey::from_bytes([7; 32])
}

/// A stand-in for a signature scheme: who knows the prefix can sign. Real signatures are the signer's.
fn sign(message: &[u8]) -> Vec<u8> {
    let mut signature = b"signed:".to_vec();
    signature.extend_from_slice(message);
    signature
}

/// Records 0 to 19, with checkpoints as number 10 and 19.
fn log() -> Vec<Vec<u8>> {
    let mut sealer = Sealer::new(first());
    (0..20u64)
        .map(|number| {
            if number == 10 || number == 19 {
                let (count, hash) = (sealer.count(), *sealer.hash());
                let signature = sign(&checkpoint_message(count, &hash));
                sealer.seal_checkpoint(1_000 + number, count, hash, signature).unwrap()
            } else {
                sealer.seal(1_000 + number, &event(&format!("object {number}"))).unwrap()
            }
        })
        .collect()
}

fn verify(lines: &[Vec<u8>], key: Option<AuditKey>, expected: Option<u64>) -> Report {
    let mut verifier = Verifier::new(key, |message, signature| sign(message) == signature);
    for line in lines {
        verifier.line(line);
    }
    verifier.finish(expected)
}

fn kinds(report: &Report) -> Vec<(u64, FaultKind)> {
    report.faults.iter().map(|fault| (fault.line, fault.kind)).collect()
}

#[test]
fn an_untouched_log_is_sound_and_says_what_it_proves() {
    let report = verify(&log(), Some(first()), Some(20));
    assert!(report.is_sound(), "{:?}", report.faults);
    assert_eq!((report.lines, report.checkpoints, report.signed), (20, 2, 19));
    assert!(report.statement[0].starts_with("Each of the 20 records"), "{:?}", report.statement);
    let report = verify(&log(), None, None);
    assert!(report.is_sound());
    assert!(report.statement[0].contains("not checked"));
    assert_eq!(report.signed, 19);
}

#[test]
fn every_line_is_json_and_reads_back_as_it_was_written() {
    let log = log();
    let value: serde_json::Value = serde_json::from_slice(&log[3]).unwrap();
    assert_eq!(value["seq"], 3);
    assert_eq!(value["time"], 1_003);
    assert_eq!(value["event"]["user"], "ada");
    assert_eq!(value["event"]["verdict"], "granted");
    assert_eq!(value["seal"].as_str().unwrap().len(), 64);
    let mut verifier = Verifier::new(Some(first()), |_, _| true);
    let records: Vec<_> = log.iter().map(|line| verifier.line(line).unwrap()).collect();
    assert_eq!(records[3].body, Body::Event(event("object 3")));
    assert!(matches!(&records[19].body, Body::Checkpoint(checkpoint) if checkpoint.count == 19));
}

#[test]
fn an_altered_byte_anywhere_is_found_at_its_line_and_nowhere_else() {
    let whole = log();
    for line in [0usize, 5, 18] {
        for at in 0..whole[line].len() - 1 {
            let mut altered = whole.clone();
            altered[line][at] ^= 1;
            let report = verify(&altered, Some(first()), Some(20));
            let own: Vec<_> = report.faults.iter().filter(|f| f.line == line as u64 + 1).collect();
            assert!(!own.is_empty(), "byte {at} of line {line} was altered unseen");
            // What follows is sealed as before; only checkpoints no longer fit.
            let others = report.faults.iter().filter(|f| f.line != line as u64 + 1);
            assert!(
                others.into_iter().all(|fault| fault.kind == FaultKind::WrongHash),
                "{:?}",
                report.faults
            );
        }
    }
}

#[test]
fn a_record_taken_out_is_missed_with_the_key_and_without() {
    for gone in 0..19 {
        let mut lines = log();
        lines.remove(gone);
        for key in [Some(first()), None] {
            let report = verify(&lines, key, None);
            let found = kinds(&report);
            assert!(
                found.contains(&(gone as u64 + 1, FaultKind::Missing)),
                "record {gone} is gone, and found is {found:?}"
            );
        }
    }
}

#[test]
fn two_records_that_changed_places_are_found() {
    let mut lines = log();
    lines.swap(4, 5);
    let found = kinds(&verify(&lines, Some(first()), None));
    assert!(
        found.contains(&(5, FaultKind::Missing)) && found.contains(&(6, FaultKind::Reordered)),
        "{found:?}"
    );
}

#[test]
fn a_cut_tail_is_found_by_the_count_and_is_admitted_as_unproved_without() {
    let mut lines = log();
    lines.truncate(15);
    assert_eq!(kinds(&verify(&lines, Some(first()), Some(20))), [(16, FaultKind::CutOff)]);
    let unproved = verify(&lines, Some(first()), None);
    assert!(unproved.statement.iter().any(|said| said.contains("may have been cut off")));
    let half = lines[14].len() / 2;
    lines[14].truncate(half);
    assert_eq!(kinds(&verify(&lines, Some(first()), None)), [(15, FaultKind::CutOff)]);
}

#[test]
fn wherever_a_log_is_cut_and_whatever_of_anothers_is_joined_to_it_is_found() {
    let ours = log();
    for records in 0..ours.len() {
        let cut = verify(&ours[..records], Some(first()), Some(20));
        assert_eq!(kinds(&cut), [(records as u64 + 1, FaultKind::CutOff)], "after {records}");
        let half = [&ours[..records], &[ours[records][..40].to_vec()]].concat();
        assert!(!verify(&half, Some(first()), None).is_sound(), "in {records}");
        assert!(!verify(&ours[records + 1..], Some(first()), Some(20)).is_sound(), "up to {records}");
    }
    // Another server's, whose records have the same words.
    let mut sealer = Sealer::new(AuditKey::from_bytes([8; 32]));
    let theirs: Vec<_> = (0..20u64)
        .map(|number| {
            if number != 10 && number != 19 {
                return sealer.seal(1_000 + number, &event(&format!("object {number}"))).unwrap();
            }
            let (count, hash) = (sealer.count(), *sealer.hash());
            let mut signature = sign(&checkpoint_message(count, &hash));
            signature.reverse();
            sealer.seal_checkpoint(1_000 + number, count, hash, signature).unwrap()
        })
        .collect();
    for until in 0..=20 {
        for from in 0..20 {
            let joined = [&ours[..until], &theirs[from..]].concat();
            assert!(!verify(&joined, Some(first()), None).is_sound(), "{until} and from {from}");
            // Without the auditor's key the numbers and the checkpoints are all that there is.
            let is_sound = verify(&joined, None, None).is_sound();
            assert!(!is_sound, "{until} and from {from}");
        }
    }
}

#[test]
fn a_log_written_anew_with_the_first_key_fails_at_the_signers_checkpoints() {
    let mut sealer = Sealer::new(first());
    let mut forged: Vec<Vec<u8>> = (0..10).map(|n| sealer.seal(n, &event("forged")).unwrap()).collect();
    let (count, hash) = (sealer.count(), *sealer.hash());
    forged.push(sealer.seal_checkpoint(10, count, hash, b"not the signer".to_vec()).unwrap());
    assert_eq!(kinds(&verify(&forged, Some(first()), None)), [(11, FaultKind::BadSignature)]);
    // The signer's own checkpoint of the true log, copied into the forged one.
    let mut sealer = Sealer::new(first());
    let mut forged: Vec<Vec<u8>> = (0..10).map(|n| sealer.seal(n, &event("forged")).unwrap()).collect();
    let mut honest = Sealer::new(first());
    for line in &log()[..10] {
        honest.catch_up(line).unwrap();
    }
    let signature = sign(&checkpoint_message(10, honest.hash()));
    forged.push(sealer.seal_checkpoint(10, 10, *honest.hash(), signature).unwrap());
    assert_eq!(kinds(&verify(&forged, Some(first()), None)), [(11, FaultKind::WrongHash)]);
}

#[test]
fn who_takes_the_present_key_can_forge_nothing_earlier() {
    let lines = log();
    let mut sealer = Sealer::new(first());
    for line in &lines[..12] {
        sealer.catch_up(line).unwrap();
    }
    // All the thief has is the state at record 12; a record numbered 5 needs the key of record 5.
    let state = sealer.save();
    let stolen = AuditKey::from_bytes(state[8..40].try_into().unwrap());
    let mut thief = Sealer::new(stolen);
    let forged: Vec<Vec<u8>> = (0..6).map(|n| thief.seal(n, &event("forged")).unwrap()).collect();
    let mut with = lines.clone();
    with[5] = forged[5].clone();
    assert!(kinds(&verify(&with, Some(first()), None)).contains(&(6, FaultKind::Altered)));
}

#[test]
fn a_checkpoint_may_stand_behind_records_sealed_while_the_signer_worked() {
    let mut sealer = Sealer::new(first());
    let mut lines = vec![sealer.seal(0, &event("a")).unwrap()];
    let (count, hash) = (sealer.count(), *sealer.hash());
    lines.push(sealer.seal(1, &event("b")).unwrap());
    lines.push(sealer.seal_checkpoint(2, count, hash, sign(&checkpoint_message(count, &hash))).unwrap());
    let report = verify(&lines, Some(first()), Some(3));
    assert!(report.is_sound(), "{:?}", report.faults);
    assert_eq!(report.signed, 1);
    assert_eq!(sealer.seal_checkpoint(3, 99, hash, vec![]), Err(SealError::Ahead));
}

#[test]
fn a_restored_sealer_goes_on_after_the_lines_since_it_was_stored() {
    let lines = log();
    let mut sealer = Sealer::new(first());
    for line in &lines[..7] {
        sealer.catch_up(line).unwrap();
    }
    let mut restored = Sealer::restore(&*sealer.save()).unwrap();
    assert_eq!(restored.catch_up(&lines[8]), Err(SealError::NotNext));
    assert_eq!(restored.catch_up(&lines[7][..20]), Err(SealError::NotNext));
    for line in &lines[7..] {
        restored.catch_up(line).unwrap();
    }
    let mut all = lines.clone();
    all.push(restored.seal(9_999, &event("after")).unwrap());
    assert!(verify(&all, Some(first()), Some(21)).is_sound());
    assert!(Sealer::restore(&[0; Sealer::STATE - 1]).is_none());
    assert!(Sealer::restore(&[0; Sealer::STATE + 1]).is_none());
}

#[test]
fn a_record_too_long_for_a_line_is_refused_and_the_log_does_not_move() {
    let mut sealer = Sealer::new(first());
    assert_eq!(sealer.seal(0, &event(&"x".repeat(20_000))), Err(SealError::TooLong));
    let line = sealer.seal(0, &event("short")).unwrap();
    assert!(verify(&[line], Some(first()), Some(1)).is_sound());
}

#[test]
fn a_line_is_as_long_as_a_line_may_be_and_a_longer_one_is_none() {
    let bare = Sealer::new(first()).seal(0, &event("")).unwrap().len();
    let fitting = "x".repeat(MAX_LINE - bare);
    let line = Sealer::new(first()).seal(0, &event(&fitting)).unwrap();
    assert_eq!(line.len(), MAX_LINE);
    assert!(verify(&[line], Some(first()), Some(1)).is_sound());
    assert_eq!(Sealer::new(first()).seal(0, &event(&format!("{fitting}x"))), Err(SealError::TooLong));
    // Blanks change nothing in what JSON says, so that without the key it is the length alone.
    let line = Sealer::new(first()).seal(0, &event("")).unwrap();
    for (length, faults) in [(MAX_LINE, vec![]), (MAX_LINE + 1, vec![(1, FaultKind::Malformed)])] {
        let blanks = vec![b' '; length - line.len()];
        let long = [b"{", &blanks[..], &line[1..]].concat();
        assert_eq!(kinds(&verify(&[long], None, None)), faults, "{length}");
    }
}

/// A sealer whose next record has this number, and the first key.
fn sealer_at(count: u64) -> Sealer {
    let mut state = Sealer::new(first()).save();
    state[..8].copy_from_slice(&count.to_be_bytes());
    Sealer::restore(&*state).unwrap()
}

#[test]
fn a_checkpoint_holds_up_to_65536_records_behind_what_it_speaks_of() {
    for (behind, holds) in [(65_535, true), (65_536, true), (65_537, false)] {
        let mut verifier = Verifier::new(None, |message, signature| sign(message) == signature);
        (0..behind).for_each(|_| drop(verifier.line(b"\n")));
        let start = Chain::START.hash;
        let line = sealer_at(behind).seal_checkpoint(0, 0, start, sign(&checkpoint_message(0, &start)));
        verifier.line(&line.unwrap());
        assert_eq!(verifier.finish(None).checkpoints, u64::from(holds), "{behind}");
    }
}

#[test]
fn without_the_key_a_number_is_believed_up_to_two_to_the_24_ahead() {
    for (number, found) in [(1 << 24, FaultKind::Missing), ((1 << 24) + 1, FaultKind::Altered)] {
        let line = sealer_at(number).seal(0, &event("")).unwrap();
        assert_eq!(kinds(&verify(&[line], None, None)), [(1, found)], "{number}");
    }
}

#[test]
fn behind_records_that_are_missing_all_is_as_it_was_sealed() {
    for (gone, what) in [(4..5, "record 4 is missing"), (4..6, "records 4 to 5 are missing")] {
        let mut lines = log()[..9].to_vec();
        lines.drain(gone);
        for key in [Some(first()), None] {
            let report = verify(&lines, key, None);
            assert_eq!(kinds(&report), [(5, FaultKind::Missing)]);
            assert_eq!((report.faults[0].what.as_str(), report.lines), (what, lines.len() as u64));
        }
    }
}

#[test]
fn what_stands_since_the_last_checkpoint_is_said_by_what_it_rests_on() {
    const SEALS: &str =
        "Since the last checkpoint there are 1 record, which rest on seals. The log should have at least";
    const ALONE: &str = "Since the last checkpoint there are 1 record: they rest on seals alone, and more may have been cut off.";
    const UNPROVED: &str = "What stands since the last checkpoint is not proved yet (1 record).";
    let all = log();
    let seals = |expected: u64| format!("{SEALS} {expected} records, and has 20.");
    for (lines, key, expected, wanted) in [
        (20, true, None, Some(ALONE.to_owned())),
        (20, true, Some(19), Some(seals(19))),
        (20, true, Some(20), Some(seals(20))),
        (20, true, Some(21), Some(ALONE.to_owned())),
        (20, false, None, Some(UNPROVED.to_owned())),
        (20, false, Some(20), Some(UNPROVED.to_owned())),
        (3, false, None, None),
        (0, false, None, None),
        (0, true, None, None),
        (0, true, Some(0), None),
    ] {
        let report = verify(&all[..lines], key.then(first), expected);
        assert_eq!((report.lines, report.is_sound()), (lines as u64, expected != Some(21)));
        let said: Vec<&String> =
            report.statement.iter().filter(|said| said.contains("ince the last")).collect();
        assert_eq!(said, wanted.iter().collect::<Vec<_>>(), "{lines} {key} {expected:?}");
        let chained =
            report.statement.iter().any(|said| said.starts_with("The signer chained the first 19 records"));
        assert_eq!(chained, lines == 20, "{:?}", report.statement);
        assert_eq!(
            report.statement.iter().any(|said| said.starts_with("The signer has signed no")),
            lines < 20
        );
    }
    let forged = Sealer::new(AuditKey::from_bytes([8; 32])).seal(0, &event("")).unwrap();
    let report = verify(&[forged], Some(first()), None);
    assert!(report.statement.iter().any(|said| said.starts_with("No checkpoint holds")), "{report:?}");
}

/// Logs have the one, and keys have signed the other: neither ever changes.
#[test]
fn the_words_of_a_ppk_that_is_used_and_of_a_key_that_follows_are_these() {
    let used = ppk_used(&"ws1.2".parse().unwrap());
    assert_eq!(used, "ws1.2 is used: the one before it is not needed any more");
    assert_eq!(succession_message(b"key"), b"levee audit key succession\0key");
}

#[test]
fn a_key_is_not_shown() {
    assert_eq!(format!("{:?}", first()), "AuditKey(..)");
    assert!(!format!("{:?}", Sealer::new(first())).contains('7'));
}

#[test]
fn a_full_parts_name_says_which_record_is_its_first_and_no_other_name_does() {
    for first in [0, 17, u64::MAX] {
        assert_eq!(part_first(&part_name(first)), Some(first));
    }
    assert!(part_name(9) < part_name(10), "names sort as parts follow each other");
    for other in [
        "audit.jsonl",
        "audit-17.jsonl",
        "audit-old.jsonl",
        "audit-0000000000000000001x.jsonl",
        "audit-+0000000000000000017.jsonl",
        "audit-00000000000000000017.jsonl.gz",
        "audit-99999999999999999999.jsonl",
    ] {
        assert_eq!(part_first(other), None, "{other}");
    }
}

/// Old logs have these words, and whoever looks for a record by its action has them in a program: they never change.
#[test]
fn the_words_of_actions_in_the_log_are_these() {
    let words = "access audit change change-password connect count disable enable end exec export import lock negotiate pass posture \
                 put read release restore resume run session sign-off sign-on start stop trial unlock witness";
    let found: Vec<&str> = Action::ALL.iter().map(Action::as_str).collect();
    assert_eq!(found.join(" "), words.split_whitespace().collect::<Vec<_>>().join(" "));
    for action in Action::ALL {
        let text = format!("\"{}\"", action.as_str());
        assert_eq!(serde_json::to_string(action).unwrap(), text);
        let read: Action = serde_json::from_str(&text).unwrap();
        assert_eq!(&read, action);
    }
    assert!(Action::ALL.is_sorted(), "they are counted and told in the order of their words");
}

#[test]
fn a_log_with_an_action_of_another_version_is_read_as_it_is_written() {
    for text in [r#""teleport""#, r#""""#, r#""Session""#] {
        let read: Action = serde_json::from_str(text).unwrap();
        assert!(matches!(read, Action::Unknown(_)), "{text}");
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
    for text in ["1", "null", "{}", r#"["session"]"#] {
        assert!(serde_json::from_str::<Action>(text).is_err(), "{text}");
    }
}

/// The log's checkpoints, as other places keep them.
fn kept(log: &[Vec<u8>]) -> Vec<String> {
    let mut verifier = Verifier::new(None, |_, _| true);
    let records = log.iter().filter_map(|line| verifier.line(line));
    let of = |record: levee_policy::audit::Record| match record.body {
        Body::Checkpoint(one) => Some(Checkpoint::kept(one.count, one.hash, one.signature.0)),
        Body::Event(_) => None,
    };
    records.filter_map(of).collect()
}

fn verify_with(lines: &[Vec<u8>], kept: &[String]) -> Report {
    let mut verifier = Verifier::new(None, |message, signature| sign(message) == signature);
    for line in kept {
        assert!(verifier.keep(&Checkpoint::in_line(line).unwrap()), "{line}");
    }
    for line in lines {
        verifier.line(line);
    }
    verifier.finish(None)
}

#[test]
fn a_log_that_was_written_anew_or_cut_off_is_not_the_one_of_which_a_checkpoint_was_kept_elsewhere() {
    let log = log();
    let kept = kept(&log);
    assert_eq!(kept.len(), 2);
    let report = verify_with(&log, &kept);
    assert!(report.is_sound(), "{:?}", report.faults);
    let says = |report: &Report, what: &str| report.statement.iter().any(|said| said.contains(what));
    assert!(
        says(&report, "2 checkpoints were kept elsewhere, the last of the first 19 records"),
        "{report:?}"
    );
    assert!(says(
        &verify_with(&log, &kept[..1]),
        "1 checkpoint was kept elsewhere, the last of the first 10 records"
    ));

    // Cut off: behind the first that was kept, and before it.
    assert_eq!(kinds(&verify_with(&log[..12], &kept)), [(13, FaultKind::CutOff)]);
    assert!(verify_with(&log[..12], &kept[..1]).is_sound());
    assert_eq!(kinds(&verify_with(&log[..9], &kept[..1])), [(10, FaultKind::CutOff)]);

    // Written anew by who has all keys of the host: another log, whole and signed.
    let mut sealer = Sealer::new(first());
    let anew: Vec<Vec<u8>> = (0..30u64)
        .map(|number| match number {
            29 => {
                let (count, hash) = (sealer.count(), *sealer.hash());
                sealer.seal_checkpoint(29, count, hash, sign(&checkpoint_message(count, &hash))).unwrap()
            }
            _ => sealer.seal(number, &event("nothing happened")).unwrap(),
        })
        .collect();
    assert!(verify(&anew, Some(first()), None).is_sound());
    let report = verify_with(&anew, &kept);
    assert_eq!(kinds(&report), [(10, FaultKind::WrongHash), (19, FaultKind::WrongHash)]);
    // They sign for as many records of it, and have that kept, too: behind what is kept already, or before it where files are given so.
    let chain = anew[..10].iter().fold(Chain::START, |chain, line| chain.with(&Chain::digest(line)));
    let other = Checkpoint::kept(10, chain.hash, sign(&checkpoint_message(10, &chain.hash)));
    let both = [&kept[..1], &[other]].concat();
    for both in [both.clone(), both.into_iter().rev().collect()] {
        let report = verify_with(&anew, &both);
        assert!(
            report.faults.iter().any(|fault| fault.what.contains("two checkpoints that differ")),
            "{report:?}"
        );
    }
}

#[test]
fn a_kept_checkpoint_is_found_wherever_its_line_is_and_another_signers_says_nothing() {
    let line = kept(&log()).remove(0);
    let own = Checkpoint::in_line(&line).unwrap();
    for around in [
        format!("Nov 30 11:00:00 host levee-signer: {line}"),
        format!("{{\"event\":{{\"reason\":\"{line}\"}},\"seal\":\"00\"}}\n"),
        format!("{line}\n"),
    ] {
        assert_eq!(Checkpoint::in_line(&around), Some(own.clone()), "{around}");
    }
    for wrong in ["", "levee audit checkpoint ", "levee audit checkpoint 7", "levee audit checkpoint x 00 00"]
    {
        assert_eq!(Checkpoint::in_line(wrong), None, "{wrong}");
    }
    let short = line.replacen(&String::from(own.hash), "00ff", 1);
    assert_eq!(Checkpoint::in_line(&short), None);
    let mut verifier = Verifier::new(None, |message, signature| sign(message) == signature);
    assert!(!verifier.keep(&Checkpoint { count: own.count + 1, ..own }));
    let report = verifier.finish(None);
    assert!(report.is_sound() && !report.statement.iter().any(|said| said.contains("kept elsewhere")));
}

#[test]
fn a_log_that_has_just_begun_is_sound_and_says_what_is_still_to_come() {
    let begun = &log()[..3];
    for key in [Some(first()), None] {
        let report = verify(begun, key, None);
        assert!(report.is_sound() && report.signed == 0, "{report:?}");
        let said = report.statement.join(" ");
        assert!(said.contains("The signer has signed no checkpoint yet"), "{said}");
        assert!(
            said.contains("signed within two minutes") && !said.contains("No checkpoint holds"),
            "{said}"
        );
    }
}
