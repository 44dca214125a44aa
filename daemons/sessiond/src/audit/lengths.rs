//! Records as long as they can be, and longer.

use super::tests::{START, open_after, read};
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
        let text = std::fs::read_to_string(place.path().join(LOG)).unwrap();
        let last = text.lines().last().unwrap();
        assert!(last.len() > SHORTENED, "the note itself, and not that one was lost: {last}");
    }
    assert!(read(place.path()).1.is_sound());
}
