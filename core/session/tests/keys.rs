//! Who is told of keys, and what is written of who is refused them.

mod server;

use levee_policy::audit::{Action, Verdict};
use levee_session::*;
use server::{CLIENT, Server, has, label};
use std::time::Duration;

fn wanted(device: &str) -> Event {
    let accreditation = Some("UNCLASSIFIED..SECRET//NATO,MED".to_owned());
    Event::Wanted { ticket: 1, device: device.parse().unwrap(), label: label(), accreditation }
}

/// Whether a refused negotiation was written, or counted.
fn written(said: &[Output]) -> bool {
    let is_written = has(
        said,
        |one| matches!(one, Output::Audit(entry) if entry.action == Action::Negotiate && entry.verdict == Verdict::Denied),
    );
    let is_counted = has(said, |one| matches!(one, Output::Count(_)));
    assert!(is_written != is_counted, "one of the two: {said:?}");
    is_written
}

#[test]
fn of_a_minutes_refused_negotiations_64_are_written_and_the_others_counted() {
    let (mut server, _) = Server::with_a_session();
    for _ in 0..2 {
        for number in 1..=70 {
            assert_eq!(written(&server.hear(wanted("ws2"))), number <= 64, "{number}");
        }
        server.now = server.now.after(Duration::from_millis(59_999));
        assert!(!written(&server.hear(wanted("ws2"))), "the minute is not over");
        server.now = server.now.after(Duration::from_millis(1));
    }
    assert!(written(&server.hear(wanted("ws2"))));
}

#[test]
fn a_keyer_that_is_new_is_told_of_sessions_whose_vaults_have_them_and_of_no_others() {
    let (mut server, id) = Server::with_a_session();
    let told = |said: &[Output]| has(said, |one| matches!(one, Output::Renew(record) if record.id == id));
    assert!(told(&server.hear(Event::KeyerCame)));
    // Its vault dies: until the next one has it, there is nobody to take keys.
    server.hear(Event::LabelDied(label()));
    assert!(!told(&server.hear(Event::KeyerCame)));
    server.hear(Event::LabelUp(label()));
    assert!(!told(&server.hear(Event::KeyerCame)));
    assert!(told(&server.hear(Event::VaultOpened(label(), id))));
    // One that is on its way out gets none.
    server.hear(Event::Request(CLIENT, Request::Logout));
    assert!(!told(&server.hear(Event::KeyerCame)));
}

#[test]
fn a_session_is_known_by_the_beginning_of_its_name_that_is_shown() {
    let (one, other) = (SessionId::from_random([7; 16]), SessionId::from_random([8; 16]));
    assert!(one.is_shown_as(&one.to_string()));
    for wrong in [other.to_string().as_str(), "", "07", "0707070707070", "07070707070g"] {
        assert!(!one.is_shown_as(wrong), "{wrong:?}");
    }
}
