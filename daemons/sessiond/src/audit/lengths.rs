//! Records as long as they can be, and longer; and how long the file is.

use super::tests::{START, fill, open, open_after, read};
use super::*;
use levee_policy::audit::Action;
use levee_session::SessionId;

#[test]
fn an_end_with_the_longest_names_has_room_and_a_note_that_is_too_long_is_told_as_far_as_it_goes() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open_after(place.path(), FULL, Chain::START).unwrap();
    let end = Event {
        user: Some("u".repeat(32).parse().unwrap()),
        host: Some("h".repeat(64).parse().unwrap()),
        label: Some("L".repeat(levee_policy::LabelName::MAX).parse().unwrap()),
        action: Action::End,
        object: SessionId::from_random([7; 16]).to_string(),
        verdict: Verdict::Noted,
        reason: "x".repeat(300),
    };
    let before = log.end;
    assert!(log.write(&[(Weight::End, end.clone())], Time::from_millis(u64::MAX), true));
    assert!(log.end - before <= FOR_END, "{}", log.end - before);
    for (object, reason) in [("o".to_owned(), "x".repeat(20_000)), ("\0".repeat(20_000), String::new())] {
        let long = Event { object, reason, ..end.clone() };
        let before = log.records();
        assert!(!log.write(&[(Weight::Grant, long.clone())], START, true), "what it permits is in it");
        assert!(log.write(&[(Weight::Note, long)], START, true));
        assert_eq!((log.records(), log.lost), (before + 1, 0));
        let text = std::fs::read(place.path().join(LOG)).unwrap();
        let text = String::from_utf8_lossy(records(&text));
        let last = text.lines().last().unwrap();
        assert!(last.len() > SHORTENED, "the note itself, and not that one was lost: {last}");
    }
    assert!(read(place.path()).1.is_sound());
}

/// What a file of the log has before the space ahead of the log's end.
pub(super) fn records(file: &[u8]) -> &[u8] {
    let end = file.iter().rposition(|byte| *byte != SPACE).map_or(0, |last| last + 1);
    &file[..end]
}

#[test]
fn a_record_is_written_over_space_that_the_file_has_already_so_that_its_sync_is_one_write() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut log = open(place, FULL).unwrap();
    let long = || std::fs::metadata(place.join(LOG)).unwrap().len();
    let mut lengths = Vec::new();
    while lengths.len() < 3 {
        fill(&mut log, 1);
        if lengths.last() != Some(&long()) {
            lengths.push(long());
        }
        assert!(log.end < long() || log.records() == 1, "{} of {}", log.end, long());
    }
    assert!(
        lengths.windows(2).all(|two| two[1] - two[0] >= WRITTEN),
        "{lengths:?}: all between change no length"
    );
    // Another run goes on in that space, and for a program that reads JSON it is none.
    let (before, known, had) = (long(), log.told.known(), log.records());
    drop(log);
    let mut log = open_after(place, FULL, known).unwrap();
    assert_eq!((log.records(), long()), (had, before));
    fill(&mut log, 1);
    assert_eq!(long(), before);
    let text = std::fs::read_to_string(place.join(LOG)).unwrap();
    let all: Vec<serde_json::Value> =
        serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(all.len() as u64, log.records());
    // What a crash of sessiond leaves half-written lies before space; behind such a line there is nothing but space.
    let (end, known) = (usize::try_from(log.end).unwrap(), log.told.known());
    drop(log);
    for (at, more, goes_on) in
        [(end, "", true), (end + 3_000, "", true), (end, "\n{}\n", false), (end + 3_000, "\n{}", false)]
    {
        let mut other = text.clone().into_bytes();
        other[at..at + 9].copy_from_slice(b"{\"at\":1,\"");
        other[at + 9..at + 9 + more.len()].copy_from_slice(more.as_bytes());
        std::fs::write(place.join(LOG), &other).unwrap();
        assert_eq!(open_after(place, FULL, known).is_ok(), goes_on, "{at} {more}");
    }
}
