//! A session in the place of another: the change of level, and what becomes of it where the first cannot be ended, or nobody waits any more.

mod server;

use levee_policy::LabelName;
use levee_policy::audit::Action;
use levee_session::*;
use server::*;

fn lower() -> LabelName {
    "CONFIDENTIAL".parse().unwrap()
}

fn next() -> SessionId {
    SessionId::from_random([8; 16])
}

fn level() -> Event {
    Event::Request(CLIENT, Request::Level { label: lower(), protection: None, id: next(), random: 2 })
}

#[test]
fn where_the_first_cannot_be_ended_in_good_order_the_second_does_not_begin_and_is_over() {
    let (mut server, id) = Server::with_a_session();
    server.hear(level());
    server.hear(Event::LabelUp(lower()));
    let mut cut = cuts(&server.hear(Event::VaultClosed(label(), id)));
    for tried in 1..=5 {
        let said = server.hear(Event::Cut(cut[0], None));
        assert_eq!(is_reply(&said, is_unavailable), tried == 5, "{said:?}");
        let ended = |output: &Output| matches!(output, Output::Audit(entry) if entry.object == next().to_string() && entry.label == Some(lower()));
        assert_eq!(has(&said, ended), tried == 5, "{said:?}");
        cut = cuts(&server.wait(true).1);
    }
    assert!(server.machine.shown().map(|shown| shown.id).eq([id]), "the first is pursued still");
    // What was dropped does not come back when that is over; the person may ask anew.
    let said = server.hear(Event::Cut(cut[0], Some(0)));
    assert!(!has(&said, |output| matches!(output, Output::Need(_))), "{said:?}");
    assert!(has(&server.hear(level()), |output| matches!(output, Output::Need(of) if *of == lower())));
}

#[test]
fn the_store_forgets_the_second_behind_the_change_that_brought_it_in() {
    let (mut server, id) = Server::with_a_session();
    server.hear(level());
    server.hear(Event::LabelUp(lower()));
    let cut = cuts(&server.hear(Event::VaultClosed(label(), id)));
    let mut commits = |event| {
        server.machine.handle(event, BEGIN);
        let said = std::iter::from_fn(|| server.machine.poll()).filter_map(|output| match output {
            Output::Commit(commit, _, changes) => Some((commit, changes)),
            _ => None,
        });
        said.collect::<Vec<_>>()
    };
    let [(logged, changes)] = &commits(Event::Cut(cut[0], Some(0)))[..] else { panic!("one record") };
    assert_eq!(changes[..], []);
    let [(end, changes)] = &commits(Event::Committed(*logged, true))[..] else { panic!("one change") };
    assert!(
        matches!(&changes[..], [Change::Remove(old, ..), Change::Put(new)] if *old == id && new.id == next()),
        "{changes:?}"
    );
    // Nobody waits for it any more, and the store has not got it yet.
    assert_eq!(commits(Event::Gone(CLIENT)), []);
    let [(logged, changes)] = &commits(Event::Committed(*end, true))[..] else { panic!("one record") };
    assert_eq!(changes[..], []);
    let [(_, changes)] = &commits(Event::Committed(*logged, true))[..] else { panic!("one change") };
    assert!(matches!(&changes[..], [Change::Remove(new, ..)] if *new == next()), "{changes:?}");
}

#[test]
fn the_record_of_a_session_says_what_it_may_reach_up_to_so_much() {
    let small = include_str!("../../../conf/small/site.toml");
    for (services, more) in [(1, None), (32, None), (33, Some(" and 1 more")), (40, Some(" and 8 more"))] {
        let mut site = small.to_owned();
        for n in 1..services {
            let port = 8_000 + n;
            site += &format!(
                "\n[[service]]\nname = \"s{n}\"\nport = {port}\nprotocol = \"tcp\"\nrange = \"SECRET\"\nmode = \"direct\"\nprogram = \"nginx\"\n"
            );
        }
        let site = levee_policy::Site::parse(&site).unwrap();
        let machine = Sessions::new(std::sync::Arc::new(site), vec![], [], [], [7; 16], BEGIN);
        let mut server = Server { machine, now: BEGIN };
        server.hear(Event::Hello { client: CLIENT, device: "ws1".parse().unwrap(), fingerprint: [1; 32] });
        server.hear(Event::Request(CLIENT, Request::Login("ada".parse().unwrap())));
        let level = Request::Level { label: label(), protection: None, id: next(), random: 2 };
        let said = server.hear(Event::Request(CLIENT, level));
        let reason = said.iter().find_map(|output| match output {
            Output::Commit(_, entries, _) => entries.iter().find(|entry| entry.action == Action::Session),
            _ => None,
        });
        let reason = &reason.expect("it is recorded").reason;
        let (_, reach) = reason.split_once("; from 10.80.1.").expect("its address");
        let (_, reach) = reach.split_once(" to ").expect("what it reaches");
        let (all, rest) = reach.split_at(reach.find(" and ").unwrap_or(reach.len()));
        assert!(all.split(' ').all(|one| one.starts_with("10.80.0.1:8") && one.ends_with("/tcp")), "{all}");
        assert_eq!((all.split(' ').count(), rest), (services.min(32), more.unwrap_or_default()));
    }
}
