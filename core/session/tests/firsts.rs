//! One person is the first at so many labels, for each of which a store is made that stays; others have theirs.

mod server;

use levee_policy::{LabelName, Site};
use levee_session::*;
use server::{BEGIN, CLIENT, Server, is_reply};
use std::sync::Arc;

const LABELS: [&str; 4] = ["UNCLASSIFIED", "CONFIDENTIAL", "CONFIDENTIAL//MED", "UNCLASSIFIED//MED"];

fn server(firsts: &[(&str, &str)]) -> Server {
    let text =
        include_str!("../../../conf/small/site.toml").replace("first-labels = 128", "first-labels = 2");
    let site = Arc::new(Site::parse(&text).unwrap());
    let mut machine = Sessions::new(site, vec![], [], [], [7; 16], BEGIN);
    machine
        .remember_firsts(firsts.iter().map(|(label, user)| (label.parse().unwrap(), user.parse().unwrap())));
    Server { machine, now: BEGIN }
}

/// A person signs on, asks for a session, and signs off: what was said of it, with everything recorded or nothing.
fn ask(server: &mut Server, user: &str, label: &str, number: u8, durable: bool) -> Vec<Output> {
    server.hear(Event::Hello { client: CLIENT, device: "ws1".parse().unwrap(), fingerprint: [1; 32] });
    server.hear(Event::Request(CLIENT, Request::Login(user.parse().unwrap())));
    let label: LabelName = label.parse().unwrap();
    let id = SessionId::from_random([number; 16]);
    let level = Request::Level { label: label.clone(), protection: None, id, random: number.into() };
    let mut said = server.hear_with(Event::Request(CLIENT, level), durable);
    if durable {
        said.extend(server.hear(Event::LabelUp(label.clone())));
        said.extend(server.hear(Event::VaultOpened(label.clone(), id)));
        server.hear(Event::Request(CLIENT, Request::Logout));
        let cuts = server::cuts(&server.hear(Event::VaultClosed(label.clone(), id)));
        cuts.into_iter().for_each(|cut| drop(server.hear(Event::Cut(cut, Some(0)))));
    }
    server.hear(Event::Gone(CLIENT));
    said
}

fn opens(server: &mut Server, user: &str, label: &str, number: u8) -> bool {
    let said = ask(server, user, label, number, true);
    let opened = is_reply(&said, |reply| matches!(reply, Reply::Opened { .. }));
    let of = |reply: &Reply| matches!(reply, Reply::Refused(RefusalKind::Unavailable, why) if why.contains("first-labels"));
    assert!(opened || is_reply(&said, of), "{said:?}");
    let denied =
        said.iter().any(|one| matches!(one, Output::Audit(entry) if entry.reason.contains("first-labels")));
    assert_eq!(denied, !opened, "{said:?}");
    opened
}

#[test]
fn a_person_who_was_the_first_at_as_many_labels_as_one_may_goes_where_somebody_was() {
    let [one, two, three, four] = LABELS;
    let mut server = server(&[]);
    assert!(opens(&mut server, "ada", one, 1) && opens(&mut server, "ada", two, 2));
    assert!(!opens(&mut server, "ada", three, 3));
    // Where she was she may be again, and so where another was; he has a share of his own.
    assert!(opens(&mut server, "ada", one, 4));
    assert!(opens(&mut server, "mia", three, 5) && opens(&mut server, "ada", three, 6));
    assert!(opens(&mut server, "mia", four, 7) && opens(&mut server, "ada", four, 8));
}

#[test]
fn who_was_first_is_known_after_a_start_and_a_label_of_no_site_counts_for_nobody() {
    let [one, two, three, _] = LABELS;
    let mut server = self::server(&[(one, "ada"), (two, "ada")]);
    assert!(!opens(&mut server, "ada", three, 1));
    let mut server = self::server(&[(one, "ada"), ("GONE", "ada"), (two, "mia")]);
    assert!(opens(&mut server, "ada", three, 1));
}

#[test]
fn what_could_not_be_recorded_counts_for_nothing_and_is_recorded_the_next_time() {
    let mut server = server(&[]);
    let first = |said: &[Output]| {
        said.iter().any(|one| {
            matches!(one, Output::Commit(_, _, changes) if changes.iter().any(|one| matches!(one, Change::First(..))))
        })
    };
    for number in 1..4 {
        assert!(first(&ask(&mut server, "ada", LABELS[0], number, false)));
    }
    assert!(first(&ask(&mut server, "ada", LABELS[0], 4, true)));
    assert!(!first(&ask(&mut server, "ada", LABELS[0], 5, true)));
    assert!(opens(&mut server, "ada", LABELS[1], 6));
    assert!(!opens(&mut server, "ada", LABELS[2], 7));
}

#[test]
fn a_disk_that_takes_nothing_gives_nobody_their_share_back() {
    let [one, two, three, _] = LABELS;
    let mut server = self::server(&[(one, "ada"), (two, "ada")]);
    // Another's session there is not recorded: that ada was the first there is, and stays.
    for number in 1..4 {
        ask(&mut server, "mia", one, number, false);
    }
    assert!(!opens(&mut server, "ada", three, 4));
}
