//! A table in which somebody writes who is no server of the site, or has one server's key: nothing that they write is obeyed, what is
//! not a server's own is noticed, and nobody else's sessions end for it.

use levee_policy::DomainName;
use levee_session::federation::*;
use levee_session::{SessionId, Stored, Time};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(8);
const LEASE: u64 = 77;

fn name(text: &str) -> DomainName {
    text.parse().unwrap()
}

fn record(number: u8, device: &str) -> Stored {
    Stored {
        id: SessionId::from_random([number; 16]),
        user: "ada".parse().unwrap(),
        device: device.parse().unwrap(),
        fingerprint: [1; 32],
        label: "SECRET".parse().unwrap(),
        inner: vec!["10.80.2.7".parse().unwrap()],
        opened: Time::default(),
    }
}

fn server(of: &str, lease: u64, joined: u64, beat: u64, cut: u64) -> Entry {
    Entry::Server { name: name(of), lease, joined, beat, cut }
}

/// The server `one`, a member beside `two`.
struct One {
    machine: Federation,
    now: Time,
    revision: u64,
}

impl One {
    fn member() -> Self {
        let peers = [name("two.example")].into();
        let now = Time::from_millis(1_000);
        let mut one =
            Self { machine: Federation::new(name("one.example"), peers, TTL, now), now, revision: 10 };
        one.machine.tick(now);
        assert!(matches!(one.said().as_slice(), [Said::Ask(Ask::Join { attempt: 1, .. })]));
        let entries = vec![server("one.example", LEASE, 9, 0, 0), server("two.example", 5, 3, 40, 8)];
        one.machine.hear(Heard::There { attempt: 1, entries }, now);
        one.machine.hear(Heard::Joined { attempt: 1, lease: LEASE, revision: 10 }, now);
        assert!(one.said().iter().any(|said| matches!(said, Said::Until(_))));
        one
    }

    fn said(&mut self) -> Vec<Said> {
        std::iter::from_fn(|| self.machine.poll()).collect()
    }

    fn sees(&mut self, changes: Vec<TableChange>) -> Vec<Said> {
        self.revision += 1;
        let changes = changes.into_iter().map(|change| (self.revision, change)).collect();
        self.machine.hear(Heard::Changed { attempt: 1, revision: self.revision, changes }, self.now);
        self.said()
    }

    fn puts(&mut self, entry: Entry) -> Vec<Said> {
        self.sees(vec![TableChange::Put(entry)])
    }

    /// A session of its own in the table.
    fn published(&mut self) -> Stored {
        let own = record(1, "ws1");
        self.machine.publish(own.clone(), self.now);
        self.machine.hear(Heard::Published { attempt: 1, session: own.id, done: Some(true) }, self.now);
        self.said();
        let shared = Shared { owner: name("one.example"), record: own.clone() };
        assert_eq!(self.puts(Entry::Session(shared)), [], "its own word comes back");
        own
    }
}

fn is_fenced(said: &[Said]) -> bool {
    said.iter().any(|said| matches!(said, Said::Fence(_)))
}

#[test]
fn a_server_that_is_none_of_the_site_is_not_waited_for_and_its_sessions_are_not_taken() {
    let mut one = One::member();
    let own = one.published();
    assert_eq!(one.puts(server("stranger.example", 6, 4, 1, 0)), []);
    for number in 0..200 {
        let shared = Shared { owner: name("stranger.example"), record: record(number, "ws9") };
        assert_eq!(one.puts(Entry::Session(shared)), []);
    }
    assert_eq!(one.machine.shown(), (true, vec![name("two.example")], 0));
    assert_eq!(one.machine.strange(), 201);
    // An end is over when the one real other server has cut it.
    one.machine.withdraw(&own);
    one.said();
    one.sees(vec![TableChange::SessionGone("ws1".parse().unwrap())]);
    let gone = one.revision;
    one.machine.hear(Heard::Withdrawn { attempt: 1, session: own.id, revision: Some(gone) }, one.now);
    assert!(!one.said().contains(&Said::Withdrawn(own.id)), "the other server has not cut it");
    assert!(one.puts(server("two.example", 5, 3, 41, gone)).contains(&Said::Withdrawn(own.id)));
}

#[test]
fn a_server_whose_own_key_says_what_it_did_not_write_fences_itself() {
    for forged in [server("one.example", LEASE, 9, 900, 900), server("one.example", LEASE, 9, 1, 900)] {
        let mut one = One::member();
        one.published();
        assert!(is_fenced(&one.puts(forged)));
    }
    let mut one = One::member();
    assert!(is_fenced(&one.sees(vec![TableChange::Spoilt(name("one.example"), LEASE)])));
    let mut one = One::member();
    assert!(is_fenced(&one.sees(vec![TableChange::ServerGone(name("one.example"), LEASE)])));
    // What it wrote comes back and is no such thing.
    let mut one = One::member();
    assert!(!is_fenced(&one.puts(server("one.example", LEASE, 9, 1, 10))));
}

#[test]
fn a_server_whose_session_was_touched_by_somebody_else_fences_itself() {
    let altered = |own: &Stored| Stored { user: "mia".parse().unwrap(), ..own.clone() };
    let forged =
        |owner: &str, record: Stored| TableChange::Put(Entry::Session(Shared { owner: name(owner), record }));
    let mut one = One::member();
    let own = one.published();
    assert!(is_fenced(&one.sees(vec![forged("one.example", altered(&own))])));
    let mut one = One::member();
    one.published();
    assert!(is_fenced(&one.sees(vec![forged("two.example", record(2, "ws1"))])));
    let mut one = One::member();
    one.published();
    assert!(is_fenced(&one.sees(vec![TableChange::SessionGone("ws1".parse().unwrap())])));
}

#[test]
fn a_key_of_its_own_name_that_it_did_not_write_is_not_waited_for_for_ever() {
    let mut one = One::member();
    // Later than its own: nobody but a liar writes that. Earlier: a run before this one, which has lost its lease by the next.
    assert_eq!(one.puts(server("one.example", 78, 11, 1, 0)), []);
    assert_eq!(one.machine.strange(), 1);
    one.puts(server("one.example", 70, 2, 1, 0));
    let own = one.published();
    one.machine.withdraw(&own);
    one.sees(vec![TableChange::SessionGone("ws1".parse().unwrap())]);
    let gone = one.revision;
    one.machine.hear(Heard::Withdrawn { attempt: 1, session: own.id, revision: Some(gone) }, one.now);
    assert!(!one.puts(server("two.example", 5, 3, 41, gone)).contains(&Said::Withdrawn(own.id)));
    // Its lease goes on.
    let (mut beat, mut over) = (1, false);
    for _ in 0..12 {
        one.now = one.now.after(TTL / 8);
        one.machine.tick(one.now);
        let said = one.said();
        let told = said.iter().find_map(|said| match said {
            Said::Ask(Ask::Beat { number, cut, .. }) => Some((*number, *cut)),
            _ => None,
        });
        let (number, cut) = told.expect("a beat");
        beat = number;
        let said = one.puts(server("one.example", LEASE, 9, number, cut));
        let number = said.iter().find_map(|said| match said {
            Said::Ask(Ask::Renew { number, .. }) => Some(*number),
            _ => None,
        });
        over |= said.contains(&Said::Withdrawn(own.id));
        assert!(!over || beat >= 8, "no lease of that run has ended yet");
        one.machine.hear(Heard::Renewed { attempt: 1, number: number.expect("a renewal") }, one.now);
        one.said();
    }
    assert!(beat > 10 && over);
}

#[test]
fn a_spoilt_key_of_another_server_does_not_count_as_its_word_or_its_end() {
    let mut one = One::member();
    let own = one.published();
    one.machine.withdraw(&own);
    one.sees(vec![TableChange::SessionGone("ws1".parse().unwrap())]);
    let gone = one.revision;
    one.machine.hear(Heard::Withdrawn { attempt: 1, session: own.id, revision: Some(gone) }, one.now);
    assert!(!one.sees(vec![TableChange::Spoilt(name("two.example"), 5)]).contains(&Said::Withdrawn(own.id)));
    assert!(one.puts(server("two.example", 5, 3, 41, gone)).contains(&Said::Withdrawn(own.id)));
}
