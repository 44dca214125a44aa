//! What is due is done at the time that `deadline` gives, and not before: whoever waits until then is neither late, nor turns round and
//! round.

mod server;

use levee_policy::{DomainName, Site};
use levee_session::federation::*;
use levee_session::*;
use server::{BEGIN, CLIENT, Server, cuts, has, is_reply, is_unavailable, label};
use std::sync::Arc;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(8);

fn name(text: &str) -> DomainName {
    text.parse().unwrap()
}

fn federation(me: &str, others: &[&str]) -> Federation {
    let others = others.iter().map(|other| name(other));
    Federation::new("harbour".parse().unwrap(), name(me), others, TTL, BEGIN)
}

/// Ticks when the next thing is due, and says when that was and what came of it. Nothing is due any more then, and nothing was before.
fn next(machine: &mut Federation) -> (Time, Vec<Said>) {
    let due = machine.deadline().expect("something is due");
    let before = due.before(Duration::from_millis(1));
    machine.tick(before);
    assert!(machine.poll().is_none(), "before it is due");
    machine.tick(due);
    // What that began may be due at once, and it takes one more turn.
    if machine.deadline().is_some_and(|next| next <= due) {
        machine.tick(due);
    }
    assert!(machine.deadline().is_none_or(|next| next > due), "it goes round");
    (due, std::iter::from_fn(|| machine.poll()).collect())
}

fn after(seconds: u64) -> Time {
    BEGIN.after(Duration::from_secs(seconds))
}

fn statements(said: &[Said]) -> Vec<&Statement> {
    let of = said.iter().filter_map(|said| match said {
        Said::State { statement, .. } => Some(&**statement),
        _ => None,
    });
    of.collect()
}

fn stored(number: u8) -> Stored {
    Stored {
        id: SessionId::from_random([number; 16]),
        user: "ada".parse().unwrap(),
        device: "ws1".parse().unwrap(),
        fingerprint: [1; 32],
        label: "SECRET".parse().unwrap(),
        inner: vec!["10.80.2.7".parse().unwrap()],
        opened: Time::default(),
        protection: None,
    }
}

#[test]
fn a_server_that_is_told_nothing_of_the_table_asks_again_after_a_lease() {
    let mut one = federation("one.example", &["two.example"]);
    for attempt in 1..=3 {
        let (at, said) = next(&mut one);
        assert_eq!(at, BEGIN.after(TTL * (attempt as u32 - 1)));
        assert_eq!(said, [Said::Join { attempt }]);
    }
    // That of an attempt before tells it nothing.
    one.joined(2, one.deadline().unwrap().before(Duration::from_secs(1)));
    assert!(one.poll().is_none());
}

#[test]
fn what_is_not_known_to_be_in_the_table_is_said_again_four_times_a_lease_and_at_its_end_all_is_cut() {
    let mut one = federation("one.example", &["two.example"]);
    assert_eq!(next(&mut one).1, [Said::Join { attempt: 1 }]);
    one.joined(1, BEGIN);
    let said: Vec<_> = std::iter::from_fn(|| one.poll()).collect();
    assert_eq!(statements(&said)[0].number, 1);
    for number in 2..=4 {
        let (at, said) = next(&mut one);
        assert_eq!(at, after(2 * (number - 1)));
        assert_eq!(statements(&said)[0].number, number);
    }
    let (at, said) = next(&mut one);
    assert_eq!(at, after(8));
    assert!(matches!(&said[..], [Said::Fence(_)]), "{said:?}");
    assert_eq!(one.shown(), (false, vec![], 0));
    let (at, said) = next(&mut one);
    assert!(at > after(8) && matches!(said[..], [Said::Join { attempt: 3.. }]), "{at:?} {said:?}");
}

#[test]
fn what_is_in_the_table_is_said_again_eight_times_a_lease_and_counts_when_it_has_come_back() {
    let mut one = federation("one.example", &["two.example"]);
    next(&mut one);
    one.joined(1, BEGIN);
    let mut said: Vec<_> = std::iter::from_fn(|| one.poll()).collect();
    let mut at = BEGIN;
    for number in 1..=5 {
        let statement = statements(&said)[0].clone();
        assert_eq!((statement.number, at), (number, after(number - 1)));
        assert_eq!(one.shown().0, number > 1, "it is a member by what came back");
        // Another attempt's, another's number: neither says anything of this one.
        one.written(2, number, at);
        one.written(1, number + 1, at);
        one.written(1, number, at);
        one.hear(2, statement.clone(), at);
        assert!(one.poll().is_none());
        one.hear(1, statement, at);
        let until = at.after(TTL - TTL / 8);
        assert_eq!(one.poll(), Some(Said::Until(None, until)));
        (at, said) = next(&mut one);
    }
    // From here on nothing comes back.
    let mut fenced = None;
    while fenced.is_none() {
        fenced = said.iter().any(|said| matches!(said, Said::Fence(_))).then_some(at);
        (at, said) = next(&mut one);
    }
    assert_eq!(fenced, Some(after(4).after(TTL - TTL / 8)));
}

/// Two members, each of which hears at once what the other says, and itself.
fn members() -> ([Federation; 2], Time) {
    let mut pair = [federation("one.example", &["two.example"]), federation("two.example", &["one.example"])];
    for machine in &mut pair {
        machine.tick(BEGIN);
        machine.joined(1, BEGIN);
    }
    let mut now = BEGIN;
    for _ in 0..12 {
        while hear(&mut pair, now) {}
        now = pair.iter().filter_map(Federation::deadline).min().unwrap();
        pair.iter_mut().for_each(|machine| machine.tick(now));
    }
    while hear(&mut pair, now) {}
    (pair, now)
}

/// Whether anything was said that both have heard.
fn hear(pair: &mut [Federation; 2], now: Time) -> bool {
    let mut heard = false;
    for from in 0..2 {
        while let Some(said) = pair[from].poll() {
            let Said::State { attempt, statement, pages } = said else { continue };
            heard = true;
            pair[from].written(attempt, statement.number, now);
            for machine in pair.iter_mut() {
                machine.hear(1, (*statement).clone(), now);
                for (page, bytes) in &pages {
                    machine.page(1, &statement.server, *page, bytes, now);
                }
            }
        }
    }
    heard
}

#[test]
fn what_another_server_has_is_used_until_its_word_runs_out_and_an_end_waits_for_it_until_its_grant_has() {
    let (mut pair, now) = members();
    let (own, theirs) = (stored(1), Stored { device: "ws2".parse().unwrap(), ..stored(2) });
    pair[0].publish(&own, now);
    pair[1].publish(&theirs, now);
    while hear(&mut pair, now) {}
    assert_eq!(pair[0].shown(), (true, vec![name("two.example")], 1));
    let [one, two] = &mut pair;
    // The second says nothing any more; what the first says comes back to it.
    one.withdraw(&own, now);
    let (mut withdrawn, mut vanished, mut at) = (None, None, now);
    let mut said: Vec<_> = std::iter::from_fn(|| one.poll()).collect();
    while withdrawn.is_none() || vanished.is_none() {
        assert!(
            !one.shown().1.is_empty()
                || vanished.is_some()
                || said.iter().any(|said| matches!(said, Said::Vanished(..)))
        );
        for word in said {
            match word {
                Said::State { statement, .. } => {
                    one.written(1, statement.number, at);
                    one.hear(1, *statement, at);
                }
                Said::Withdrawn(id) if id == own.id => withdrawn = Some(at),
                Said::Vanished(_, id) if id == theirs.id => vanished = Some(at),
                Said::Fence(why) => panic!("{why}"),
                _ => {}
            }
        }
        // What came of that; then the next that is due.
        said = std::iter::from_fn(|| one.poll()).collect();
        if said.is_empty() {
            (at, said) = next(one);
        }
        assert!(at < now.after(TTL * 3));
    }
    // Both counted from what was heard and made last, which was now.
    assert_eq!(
        vanished,
        Some(now.after(TTL - TTL / 8)),
        "its word is of when this server's statement was made"
    );
    assert_eq!(withdrawn, Some(now.after(TTL)), "and it was granted something until then");
    // By then the other has cut everything for itself.
    let fenced = |two: &mut Federation| {
        let (at, said) = next(two);
        said.iter().any(|said| matches!(said, Said::Fence(_))).then_some(at)
    };
    assert!(std::iter::from_fn(|| Some(fenced(two))).flatten().next() <= withdrawn);
}

#[test]
fn a_vault_that_does_not_say_that_a_session_is_erased_is_killed_when_its_second_is_over() {
    let (mut server, _) = Server::with_a_session();
    server.hear(Event::Request(CLIENT, Request::Logout));
    let (late, said) = server.wait(true);
    assert_eq!(late, Duration::from_secs(1));
    assert!(has(&said, |output| matches!(output, Output::Kill(of) if *of == label())), "{said:?}");
}

#[test]
fn sockets_that_are_not_cut_are_tried_again_each_second_and_the_fifth_time_whoever_waits_is_told() {
    let (mut server, id) = Server::with_a_session();
    let mut cut = server.cutting(id);
    for tried in 1..=7 {
        let [of] = cut[..] else { panic!("one address: {cut:?}") };
        let said = server.hear(Event::Cut(of, None));
        assert_eq!(is_reply(&said, is_unavailable), tried == 5, "{said:?}");
        // Of an attempt that is over, nothing is heard.
        assert!(server.hear(Event::Cut(of, Some(0))).is_empty());
        let (later, said) = server.wait(true);
        assert_eq!(later, Duration::from_secs(1));
        cut = cuts(&said);
    }
    assert_eq!(server.machine.shown().len(), 1, "until they are cut it is not over");
    server.hear(Event::Cut(cut[0], Some(3)));
    assert_eq!(server.machine.shown().len(), 0);
}

#[test]
fn an_end_that_could_not_be_recorded_is_recorded_a_second_later_and_whoever_waits_is_told_at_once() {
    let (mut server, id) = Server::with_a_session();
    let cut = server.cutting(id);
    let said = server.hear_with(Event::Cut(cut[0], Some(0)), false);
    assert!(is_reply(&said, is_unavailable), "{said:?}");
    for _ in 0..3 {
        let (later, said) = server.wait(false);
        assert_eq!(later, Duration::from_secs(1));
        assert!(matches!(said[..], [Output::Commit(..)]), "{said:?}");
        assert_eq!(server.machine.shown().len(), 1);
    }
    let (later, said) = server.wait(true);
    assert_eq!((later, server.machine.shown().len()), (Duration::from_secs(1), 0));
    assert!(has(&said, |output| matches!(output, Output::Release(of) if *of == label())), "{said:?}");
}

#[test]
fn a_workstation_that_does_not_come_back_has_its_session_for_its_grace_time() {
    let (mut server, id) = Server::with_a_session();
    assert!(server.hear(Event::Gone(CLIENT)).is_empty());
    let (later, said) = server.wait(true);
    assert_eq!(later, Duration::from_secs(30), "the site's");
    assert!(has(&said, |output| matches!(output, Output::Revoke(of) if *of == id)), "{said:?}");
    assert!(
        has(&said, |output| matches!(output, Output::Vault(_, ToVault::Close(of)) if *of == id)),
        "{said:?}"
    );
}

/// Time passes, and what falls into it is done.
fn until(server: &mut Server, time: Time, durable: bool) -> Vec<Output> {
    let mut said = Vec::new();
    while let Some(due) = server.machine.deadline().filter(|due| *due <= time) {
        server.now = due.max(server.now);
        said.extend(server.hear_with(Event::Tick, durable));
    }
    server.now = time;
    said
}

#[test]
fn what_was_due_for_the_making_of_a_session_hurries_nothing_of_its_end() {
    // It had 60 seconds for that, and the session ends shortly before.
    let (before, then) = (BEGIN.after(Duration::from_millis(59_500)), BEGIN.after(Duration::from_secs(60)));
    // The vault has a second to erase it.
    let (mut server, _) = Server::with_a_session();
    until(&mut server, before, true);
    server.hear(Event::Request(CLIENT, Request::Logout));
    let killed = |said: &[Output]| has(said, |output| matches!(output, Output::Kill(_)));
    assert!(!killed(&until(&mut server, then, true)));
    assert!(killed(&until(&mut server, before.after(SILENCE), true)));
    // Sockets that could not be destroyed are tried again after a second.
    let (mut server, id) = Server::with_a_session();
    until(&mut server, before, true);
    for cut in server.cutting(id) {
        server.hear(Event::Cut(cut, None));
    }
    assert!(cuts(&until(&mut server, then, true)).is_empty());
    assert!(!cuts(&until(&mut server, before.after(RETRY), true)).is_empty());
    // So is the record of its end.
    let (mut server, id) = Server::with_a_session();
    until(&mut server, before, true);
    for cut in server.cutting(id) {
        server.hear_with(Event::Cut(cut, Some(0)), false);
    }
    let records = |said: &[Output]| has(said, |output| matches!(output, Output::Commit(..)));
    assert!(!records(&until(&mut server, then, false)));
    assert!(records(&until(&mut server, before.after(RETRY), false)));
}

#[test]
fn a_session_whose_label_is_late_has_the_time_that_its_vault_may_take() {
    let site = Site::parse(include_str!("../../../conf/small/site.toml")).unwrap();
    let machine = Sessions::new(Arc::new(site), vec![], [], [], [7; 16], BEGIN);
    let mut server = Server { machine, now: BEGIN };
    server.hear(Event::Hello { client: CLIENT, device: "ws1".parse().unwrap(), fingerprint: [1; 32] });
    server.hear(Event::Request(CLIENT, Request::Login("ada".parse().unwrap())));
    let id = SessionId::from_random([7; 16]);
    server.hear(Event::Request(CLIENT, Request::Level { label: label(), protection: None, id, random: 1 }));
    until(&mut server, BEGIN.after(START).before(Duration::from_millis(1)), true);
    server.hear(Event::LabelUp(label()));
    let last = server.now.after(OPENING);
    let killed = |said: &[Output]| has(said, |output| matches!(output, Output::Kill(_)));
    assert!(!killed(&until(&mut server, last.before(Duration::from_millis(1)), true)));
    assert!(killed(&until(&mut server, last, true)));
}

#[test]
fn what_became_of_a_socket_in_an_attempt_that_is_over_says_nothing_of_the_next() {
    let site = include_str!("../../../conf/small/site.toml")
        .replacen("inner-address = \"10.80.0.1\"", "inner-address = [\"10.80.0.1\", \"fd00:80::1\"]", 1)
        .replacen("inner-pool = \"10.80.1.0/24\"", "inner-pool = [\"10.80.1.0/24\", \"fd00:81::/64\"]", 1);
    let (mut server, id) = Server::with_a_session_at(&site);
    let [first, second] = server.cutting(id)[..] else { panic!("one for each address") };
    server.hear(Event::Cut(first, None));
    let (_, said) = server.wait(true);
    let again = cuts(&said);
    assert_eq!(again.len(), 2);
    // The answer of before, late.
    server.hear(Event::Cut(second, None));
    for cut in again {
        assert_eq!(server.machine.shown().len(), 1);
        server.hear(Event::Cut(cut, Some(0)));
    }
    assert_eq!(server.machine.shown().len(), 0);
}

#[test]
fn a_vault_is_asked_whether_it_lives_five_seconds_after_its_last_answer_and_when_it_is_lost_it_has_a_second()
{
    let (mut server, _) = Server::with_a_session();
    let ms = |ms| BEGIN.after(Duration::from_millis(ms));
    // The test answers, late: what was due by an answer in time is due no more.
    let mut at = |time: Time, event| {
        server.machine.handle(event, time);
        std::iter::from_fn(|| server.machine.poll()).collect::<Vec<_>>()
    };
    let asked = |said: &[Output]| {
        said.iter().find_map(|output| match output {
            Output::Vault(_, ToVault::Ping(number)) => Some(*number),
            _ => None,
        })
    };
    let number = asked(&at(ms(5_000), Event::Tick)).expect("it is asked");
    at(ms(6_000), Event::VaultPong(label(), number));
    assert_eq!(asked(&at(ms(10_000), Event::Tick)), None);
    let number = asked(&at(ms(11_000), Event::Tick)).expect("it is asked");
    at(ms(11_500), Event::VaultPong(label(), number));
    let killed = |said: &[Output]| has(said, |output| matches!(output, Output::Kill(_)));
    at(ms(15_500), Event::VaultLost(label()));
    assert!(!killed(&at(ms(16_000), Event::Tick)) && !killed(&at(ms(16_499), Event::Tick)));
    assert!(killed(&at(ms(16_500), Event::Tick)));
}

#[test]
fn a_session_whose_workstation_is_gone_ends_in_time_though_its_vault_is_silent_and_is_slow_to_die() {
    let (mut server, id) = Server::with_a_session();
    server.hear(Event::Gone(CLIENT));
    let gone = server.now;
    server.now = gone.after(Duration::from_secs(10));
    server.hear(Event::LabelDied(label()));
    server.hear(Event::LabelUp(label()));
    // It says nothing of the session, and is killed for it; that it is dead nobody says.
    server.now = gone.after(Duration::from_secs(26));
    assert!(has(&server.hear(Event::Tick), |output| matches!(output, Output::Kill(_))));
    assert!(server.machine.live(id).is_some());
    server.now = gone.after(Duration::from_secs(30));
    server.hear(Event::Tick);
    assert!(server.machine.live(id).is_none(), "the site's grace time is over");
}

#[test]
fn a_vault_that_does_not_close_a_session_is_killed_in_its_time_however_often_its_mediator_begins_anew() {
    let (mut server, _) = Server::with_a_session();
    let begun = server.now;
    server.hear(Event::Request(CLIENT, Request::Logout));
    let killed = (0..20).find(|_| {
        server.now = server.now.after(Duration::from_millis(300));
        let mut said = server.hear(Event::Tick);
        said.extend(server.hear(Event::LabelUp(label())));
        has(&said, |one| matches!(one, Output::Kill(at) if *at == label()))
    });
    assert!(killed.is_some() && server.now.since(begun) < Duration::from_millis(1_300));
}
