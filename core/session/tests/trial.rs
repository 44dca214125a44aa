//! A label that an operator has started on trial: the answer, and what becomes of it.

use levee_policy::audit::Action;
use levee_policy::{LabelName, Site};
use levee_session::*;
use std::sync::Arc;

const OPERATOR: OperatorId = OperatorId(9);

struct Server(Sessions);

impl Server {
    fn new() -> Self {
        let site = Site::parse(include_str!("../../../conf/small/site.toml")).unwrap();
        Self(Sessions::new(Arc::new(site), vec![], [], [], [7; 16], NOW))
    }

    /// All that it says; what it is to record is recorded, what it is to cut is cut, passwords are right.
    fn hear(&mut self, event: Event) -> Vec<Output> {
        self.0.handle(event, NOW);
        let mut said = Vec::new();
        while let Some(output) = self.0.poll() {
            let next = match &output {
                Output::Commit(commit, ..) => Some(Event::Committed(*commit, true)),
                Output::Cut(cut, ..) => Some(Event::Cut(*cut, Some(0))),
                Output::Verify(client, _) => Some(Event::Verified(*client, Verified::Right(None))),
                _ => None,
            };
            next.into_iter().for_each(|next| self.0.handle(next, NOW));
            said.push(output);
        }
        said
    }
}

const NOW: Time = Time::from_millis(1_000_000_000);

fn label() -> LabelName {
    "SECRET".parse().unwrap()
}

fn answer(said: &[Output]) -> Option<&Result<(), String>> {
    said.iter().find_map(|output| match output {
        Output::Operator(OPERATOR, result) => Some(result),
        _ => None,
    })
}

fn asks(said: &[Output]) -> (bool, bool) {
    let needs = said.iter().any(|output| matches!(output, Output::Need(of) if *of == label()));
    (needs, said.iter().any(|output| matches!(output, Output::Release(of) if *of == label())))
}

#[test]
fn a_label_on_trial_is_started_recorded_and_released_when_it_is_up() {
    let mut server = Server::new();
    let said = server.hear(Event::Try(OPERATOR, label()));
    assert_eq!((asks(&said), answer(&said)), ((true, false), None));
    let recorded = |output: &Output| matches!(output, Output::Audit(entry) if entry.action == Action::Trial);
    assert!(said.iter().any(recorded), "{said:?}");
    let said = server.hear(Event::LabelUp(label()));
    assert_eq!((asks(&said), answer(&said)), ((false, true), Some(&Ok(()))));
    assert_eq!(answer(&server.hear(Event::LabelUp(label()))), None, "it is told once");
}

#[test]
fn why_a_label_on_trial_cannot_run_is_told_and_one_at_which_nothing_is_reached_is_refused() {
    let mut server = Server::new();
    server.hear(Event::Try(OPERATOR, label()));
    let said = server.hear(Event::LabelFailed(label(), "no room".into()));
    assert_eq!(answer(&said), Some(&Err("no room".into())));
    let said = server.hear(Event::Try(OPERATOR, "COSMIC".parse().unwrap()));
    assert!(answer(&said).is_some_and(Result::is_err) && !asks(&said).0, "{said:?}");
}

#[test]
fn a_session_that_ends_meanwhile_does_not_take_the_label_from_who_waits() {
    let mut server = Server::new();
    let client = ClientId(1);
    server.hear(Event::Hello { client, device: "ws1".parse().unwrap(), fingerprint: [1; 32] });
    server.hear(Event::Request(client, Request::Login("ada".parse().unwrap())));
    let level =
        Request::Level { label: label(), protection: None, id: SessionId::from_random([7; 16]), random: 1 };
    assert_eq!(asks(&server.hear(Event::Request(client, level))), (true, false));
    // It is being started for the session; an operator waits, and the session ends before its vault has heard of it.
    assert_eq!(asks(&server.hear(Event::Try(OPERATOR, label()))), (false, false));
    let other = OperatorId(8);
    let said = server.hear(Event::Disable(other, "ada".parse().unwrap(), true));
    let over = |output: &Output| matches!(output, Output::Operator(operator, Ok(())) if *operator == other);
    assert!(said.iter().any(over), "{said:?}");
    assert_eq!((asks(&said), answer(&said)), ((false, false), None));
    let said = server.hear(Event::LabelUp(label()));
    assert_eq!((asks(&said).1, answer(&said)), (true, Some(&Ok(()))));
}

#[test]
fn what_an_operator_does_in_a_label_is_recorded_before_the_label_is_started_for_it() {
    let mut server = Server::new();
    let argv = vec!["/bin/ls".to_owned(), "/srv".to_owned()];
    let said = server.hear(Event::Enter(OPERATOR, label(), Entering::Execute(argv.clone())));
    let recorded = said.iter().position(|output| {
        matches!(output, Output::Commit(_, entries, _) if entries[0].action == Action::Exec && entries[0].object == "/bin/ls /srv")
    });
    let needed = said.iter().position(|output| matches!(output, Output::Need(_)));
    assert!(recorded.is_some() && recorded < needed, "{said:?}");
    // It runs before the label is released: whoever runs it keeps the label.
    let said = server.hear(Event::LabelUp(label()));
    let runs = said.iter().position(
        |output| matches!(output, Output::Execute(OPERATOR, of, what) if *of == label() && *what == argv),
    );
    let released = said.iter().position(|output| matches!(output, Output::Release(_)));
    assert!(runs.is_some() && runs < released && answer(&said).is_none(), "{said:?}");

    let put = || Entering::Put { path: "a/b".into(), bytes: 3, sha256: "00".into() };
    assert_eq!(answer(&server.hear(Event::Enter(OPERATOR, label(), put()))), None);
    assert_eq!(answer(&server.hear(Event::LabelUp(label()))), Some(&Ok(())));
    assert!(answer(&server.hear(Event::Enter(OPERATOR, "COSMIC".parse().unwrap(), put()))).unwrap().is_err());
}

#[test]
fn no_two_files_that_are_put_read_alike_in_the_audit_log() {
    let recorded = |path: &str, bytes| {
        let what = Entering::Put { path: path.into(), bytes, sha256: "00".into() };
        let said = Server::new().hear(Event::Enter(OPERATOR, label(), what));
        let object = said.into_iter().find_map(|output| match output {
            Output::Commit(_, entries, _) => Some(entries[0].object.clone()),
            _ => None,
        });
        object.expect("it is recorded")
    };
    // Whoever reads from the left takes this for a file «a» of three bytes.
    assert!(!recorded("a, 3 bytes, SHA-256 00", 4).starts_with(&recorded("a", 3)));
    assert_eq!(recorded("a/b.html", 3), "a/b.html, 3 bytes, SHA-256 00");
}

#[test]
fn what_cannot_be_recorded_is_not_done() {
    let mut server = Server::new();
    server.0.handle(Event::Enter(OPERATOR, label(), Entering::Execute(vec!["/bin/ls".into()])), NOW);
    let Some(Output::Commit(commit, ..)) = server.0.poll() else { panic!("it is not recorded") };
    let said = server.hear(Event::Committed(commit, false));
    assert!(answer(&said).is_some_and(Result::is_err) && !asks(&said).0, "{said:?}");
    assert!(!server.hear(Event::LabelUp(label())).iter().any(|output| matches!(output, Output::Execute(..))));
}

#[test]
fn no_two_commands_read_alike_in_the_audit_log() {
    let words = ["", "a", "a b", "'", "a' 'b", "''", "\\", "\n", "$a", "é"];
    let one = words.iter().map(|a| vec![(*a).to_owned()]);
    let two = words.iter().flat_map(|a| words.iter().map(|b| vec![(*a).to_owned(), (*b).to_owned()]));
    let mut seen = std::collections::BTreeMap::new();
    for argv in one.chain(two) {
        let mut server = Server::new();
        let said = server.hear(Event::Enter(OPERATOR, label(), Entering::Execute(argv.clone())));
        let object = said.iter().find_map(|output| match output {
            Output::Commit(_, entries, _) => Some(entries[0].object.clone()),
            _ => None,
        });
        if let Some(before) = seen.insert(object.clone().expect("it is recorded"), argv.clone()) {
            panic!("{object:?} is {before:?} and {argv:?}");
        }
    }
}

#[test]
fn four_operators_wait_for_a_label_at_most_and_one_that_runs_is_answered_for_at_once() {
    let mut server = Server::new();
    for operator in 1..=5 {
        let said = server.hear(Event::Try(OperatorId(operator), label()));
        let refused = said.iter().any(|output| matches!(output, Output::Operator(_, Err(_))));
        assert_eq!(refused, operator == 5, "{said:?}");
    }
    let client = ClientId(1);
    server.hear(Event::Hello { client, device: "ws1".parse().unwrap(), fingerprint: [1; 32] });
    server.hear(Event::Request(client, Request::Login("ada".parse().unwrap())));
    let level =
        Request::Level { label: label(), protection: None, id: SessionId::from_random([7; 16]), random: 1 };
    server.hear(Event::Request(client, level));
    server.hear(Event::LabelUp(label()));
    let said = server.hear(Event::Try(OPERATOR, label()));
    assert_eq!((asks(&said), answer(&said)), ((false, false), Some(&Ok(()))));
}
