//! What servers of a site say, and when; and what they take of what another one says, at its edges. The other one is the test.

mod table;

use levee_session::federation::*;
use levee_session::{Stored, Time};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::time::Duration;
use table::*;

const ONE: &str = "one.example";
const TWO: &str = "two.example";
const TURN: Duration = Duration::from_millis(100);

type Digest = [u8; 32];

/// A page with these sessions, and its digest.
fn page(sessions: &[Stored]) -> (Digest, Vec<u8>) {
    let bytes = postcard::to_allocvec(&sessions).unwrap();
    (Sha256::digest(&bytes).into(), bytes)
}

const NONE: Digest = [0; 32];

/// The first server, alone: what the second said last, for which the test speaks from now on.
fn alone() -> (Site, Statement) {
    let mut site = Site::of(&[ONE, TWO]);
    site.machines.truncate(1);
    let last = site.said_last(TWO);
    (site, last)
}

/// The second's next statement, with these pages; it has heard what the first said last.
fn next(site: &Site, last: &mut Statement, pages: Vec<Digest>) -> Statement {
    let heard = site.said_last(ONE).number;
    last.number += 1;
    last.pages = pages;
    for word in &mut last.words {
        (word.heard, word.granted, word.done) = (heard, heard, heard);
    }
    last.clone()
}

/// What the first says to this statement, at once.
fn states(site: &mut Site, statement: Statement) -> usize {
    site.said.clear();
    site.hears(statement);
    site.said.iter().filter(|(_, said)| matches!(said, Said::State { .. })).count()
}

/// What it says of the second in what it said last.
fn word(site: &Site) -> Word {
    site.said_last(ONE).words[0].clone()
}

fn until_two(site: &Site) -> Vec<Time> {
    let of = |said: &Said| match said {
        Said::Until(Some(_), until) => Some(*until),
        _ => None,
    };
    site.said.iter().filter_map(|(_, said)| of(said)).collect()
}

#[test]
fn a_page_counts_for_the_attempt_that_it_came_by_and_its_own_are_none_that_it_waits_for() {
    let (mut site, mut two) = alone();
    let (digest, bytes) = page(&[record(9, "ws9")]);
    let statement = next(&site, &mut two, vec![digest]);
    site.hears(statement);
    let now = site.now;
    site.one().page(2, &name(TWO), 0, &bytes, now);
    site.one().page(1, &name(ONE), 0, &bytes, now);
    assert_eq!((site.one().shown().2, site.one().strange()), (0, 0));
    site.one().page(1, &name(TWO), 0, &bytes, now);
    assert_eq!((site.one().shown().2, site.one().strange()), (1, 0));
}

#[test]
fn a_change_a_new_run_and_a_new_grant_are_answered_at_once_and_nothing_else_is() {
    let (mut site, mut two) = alone();
    let statement = next(&site, &mut two, vec![]);
    assert_eq!(states(&mut site, statement), 0);
    // A session more, and that session no more.
    let (digest, bytes) = page(&[record(9, "ws9")]);
    let statement = next(&site, &mut two, vec![digest]);
    assert_eq!(states(&mut site, statement), 0, "the page has not come");
    let now = site.now;
    site.one().page(1, &name(TWO), 0, &bytes, now);
    site.pass_on();
    assert_eq!((word(&site).heard, site.one().shown().2), (two.number, 1));
    let statement = next(&site, &mut two, vec![NONE]);
    site.one().hear(1, statement, now);
    let said = std::iter::from_fn(|| site.one().poll()).filter(|said| matches!(said, Said::State { .. }));
    assert_eq!(said.count(), 1, "before the session is cut");
    // Another run, which has heard nothing of this one yet; then it has.
    let (mut site, mut two) = alone();
    (two.epoch, two.number) = (two.epoch + 1, 0);
    let mut statement = next(&site, &mut two, vec![]);
    statement.words.clear();
    assert_eq!(states(&mut site, statement), 1);
    let statement = next(&site, &mut two, vec![]);
    assert_eq!(states(&mut site, statement), 1);
    assert_eq!(word(&site).granted, two.number);
    // A grant that has just run out is given anew.
    let statement = next(&site, &mut two, vec![]);
    assert_eq!(states(&mut site, statement), 0);
    let from = site.now;
    while site.now < from.after(TTL) {
        site.turn();
    }
    let statement = next(&site, &mut two, vec![]);
    assert_eq!(states(&mut site, statement), 1);
}

#[test]
fn what_is_to_be_said_is_said_when_what_is_under_way_has_been_written_whatever_else_comes() {
    let (own, other) = (record(1, "ws1"), record(2, "ws2"));
    let counted = |site: &mut Site| {
        site.said.clear();
        site.pass_on();
        site.said.iter().filter(|(_, said)| matches!(said, Said::State { .. })).count()
    };
    // An end in the middle of others' beginnings.
    let (mut site, _) = alone();
    let now = site.now;
    site.one().publish(&own, now);
    site.one().publish(&other, now);
    site.one().withdraw(&own, now);
    assert_eq!(counted(&mut site), 2);
    // An end of what nobody has heard of yet.
    site.one().withdraw(&other, now);
    assert_eq!(counted(&mut site), 1);
    assert_eq!(site.said_last(ONE).pages, [NONE]);
    // A change of another's, heard in the middle.
    let (mut site, mut two) = alone();
    site.one().publish(&own, now);
    site.one().withdraw(&own, now);
    let (digest, bytes) = page(&[record(9, "ws9")]);
    let statement = next(&site, &mut two, vec![digest]);
    site.one().hear(1, statement, now);
    site.one().page(1, &name(TWO), 0, &bytes, now);
    assert_eq!(counted(&mut site), 2);
    assert_eq!((site.said_last(ONE).pages, word(&site).heard), (vec![NONE], two.number));
}

#[test]
fn a_word_is_fresh_for_a_lease_and_its_grant_holds_for_less() {
    // The second hears what the first said so long ago, and no more.
    let granted = |ago: Duration| {
        let (mut site, mut two) = alone();
        let before = site.said_last(ONE).number;
        while site.said_last(ONE).number == before {
            site.turn();
        }
        let mut statement = next(&site, &mut two, vec![]);
        let (made, heard) = (site.now, statement.words[0].heard);
        while site.now < made.after(ago) {
            site.turn();
        }
        statement.words[0].heard = heard;
        site.said.clear();
        let now = site.now;
        site.one().hear(1, statement.clone(), now);
        let until = until_two_of(&mut site);
        site.turn();
        while word(&site).heard != statement.number {
            site.turn();
        }
        (word(&site).granted == statement.number, until, made)
    };
    let span = TTL - TTL / 8;
    assert!(granted(TTL - TURN).0 && !granted(TTL).0);
    let (_, until, made) = granted(span - TURN);
    assert_eq!(until, [made.after(span)]);
    assert_eq!(granted(span).1, [], "it would be over");
    // The same again is nothing new.
    let (mut site, mut two) = alone();
    let statement = next(&site, &mut two, vec![]);
    site.said.clear();
    site.hears(statement);
    let before = until_two(&site).len();
    let mut again = two.clone();
    again.number += 1;
    site.hears(again);
    assert_eq!(until_two(&site).len(), before);
    // Nor is what it hears of itself a second time.
    let own = site.said_last(ONE);
    site.said.clear();
    site.hears(own);
    assert_eq!(site.said, []);
}

fn until_two_of(site: &mut Site) -> Vec<Time> {
    site.pass_on();
    until_two(site)
}

#[test]
fn an_end_that_is_said_again_takes_nothing_from_the_next_session_of_that_workstation() {
    let (first, second) = (record(1, "ws1"), record(2, "ws1"));
    for is_published in [false, true] {
        let (mut site, mut two) = alone();
        let now = site.now;
        site.one().publish(&first, now);
        site.one().withdraw(&first, now);
        site.one().publish(&second, now);
        site.one().withdraw(&first, now);
        site.pass_on();
        if is_published {
            let statement = next(&site, &mut two, vec![]);
            site.hears(statement);
            assert!(site.has(ONE, &Said::Published(second.id, Publication::Done)));
        }
        // The second server has one of the same workstation, all the same.
        let (digest, bytes) = page(&[record(9, "ws1")]);
        let statement = next(&site, &mut two, vec![digest]);
        site.said.clear();
        site.hears(statement);
        site.one().page(1, &name(TWO), 0, &bytes, now);
        site.pass_on();
        let unknown =
            |said: &Said| matches!(said, Said::Published(id, Publication::Unknown(_)) if *id == second.id);
        assert_eq!(site.has(ONE, &Said::Clash(second.id)), is_published);
        assert_eq!(site.said.iter().any(|(_, said)| unknown(said)), !is_published);
    }
}

#[test]
fn that_a_session_may_begin_is_said_when_the_others_have_its_page_however_many_there_are() {
    let (mut site, mut two) = alone();
    let now = site.now;
    for number in 0..500 {
        site.one().publish(&record(number, &format!("ws{number}")), now);
    }
    // In each statement some of the pages; the second server has heard it before the next is said.
    let (mut there, mut begun, mut statements) = (BTreeSet::new(), BTreeSet::new(), 0);
    loop {
        let said: Vec<Said> = std::iter::from_fn(|| site.one().poll()).collect();
        let mut heard = None;
        for said in said {
            match said {
                Said::State { statement, pages, .. } => {
                    for (_, bytes) in pages {
                        let sessions: Vec<Stored> = postcard::from_bytes(&bytes).unwrap();
                        there.extend(sessions.into_iter().map(|record| record.id));
                    }
                    heard = Some(statement.number);
                    site.last = vec![*statement];
                }
                Said::Published(id, Publication::Done) => {
                    assert!(there.contains(&id), "{id} has not been told");
                    begun.insert(id);
                }
                _ => {}
            }
        }
        let Some(heard) = heard else { break };
        statements += 1;
        let statement = next(&site, &mut two, vec![]);
        site.one().hear(1, statement, now);
        site.one().written(1, heard, now);
    }
    assert!(begun.len() == 500 && statements > 2, "{statements}");
}

#[test]
fn until_a_session_is_cut_nothing_is_said_to_be_done_that_may_have_ended_it() {
    let (mut site, mut two) = alone();
    let theirs = record(9, "ws9");
    let (digest, bytes) = page(std::slice::from_ref(&theirs));
    let statement = next(&site, &mut two, vec![digest]);
    site.hears(statement);
    let now = site.now;
    site.one().page(1, &name(TWO), 0, &bytes, now);
    site.pass_on();
    let before = two.number;
    assert_eq!(word(&site).done, before);
    let statement = next(&site, &mut two, vec![NONE]);
    site.one().hear(1, statement, now);
    let mut done = Vec::new();
    let mut look = |site: &mut Site| {
        while let Some(said) = site.one().poll() {
            if let Said::State { statement, .. } = said {
                site.one().written(1, statement.number, now);
                done.push((statement.words[0].heard, statement.words[0].done));
            }
        }
    };
    look(&mut site);
    site.one().cut(&name(TWO), theirs.id, now);
    look(&mut site);
    assert_eq!(done, [(before + 1, before), (before + 1, before + 1)]);
}

#[test]
fn a_statement_that_is_repeated_holds_up_no_end() {
    let (mut site, mut two) = alone();
    let (own, now) = (record(1, "ws1"), site.now);
    site.one().publish(&own, now);
    site.pass_on();
    let statement = next(&site, &mut two, vec![]);
    site.hears(statement.clone());
    assert!(site.has(ONE, &Said::Published(own.id, Publication::Done)));
    while site.now < now.after(TTL / 2) {
        site.turn();
    }
    site.hears(statement);
    let later = site.now;
    site.one().withdraw(&own, later);
    while !site.has(ONE, &Said::Withdrawn(own.id)) {
        site.turn();
    }
    assert_eq!(site.now, now.after(TTL), "a lease after it was heard");
}

#[test]
fn pages_that_have_come_are_kept_for_the_next_statement_that_has_them_too() {
    let pages: Vec<_> = (0..3).map(|n| page(&[record(n, &format!("ws{n}"))])).collect();
    let [(first, bytes), (second, old), (third, new)] = &pages[..] else { panic!() };
    for (come, then, used) in [((0, bytes), (1, new), 2), ((1, old), (0, bytes), 0)] {
        let (mut site, mut two) = alone();
        let now = site.now;
        let statement = next(&site, &mut two, vec![*first, *second]);
        site.hears(statement);
        site.one().page(1, &name(TWO), come.0, come.1, now);
        let statement = next(&site, &mut two, vec![*first, *third]);
        site.hears(statement);
        site.one().page(1, &name(TWO), then.0, then.1, now);
        assert_eq!((site.one().shown().2, site.one().strange()), (used, 0));
    }
}

#[test]
fn only_a_page_that_is_waited_for_is_strange_where_it_is_another() {
    let pages: Vec<_> = (0..3).map(|n| page(&[record(n, &format!("ws{n}"))])).collect();
    let (mut site, mut two) = alone();
    let now = site.now;
    let statement = next(&site, &mut two, vec![pages[0].0]);
    site.hears(statement);
    site.one().page(1, &name(TWO), 0, &pages[0].1, now);
    let statement = next(&site, &mut two, vec![pages[0].0, pages[1].0, NONE, pages[2].0]);
    site.hears(statement);
    site.one().page(1, &name(TWO), 1, &pages[1].1, now);
    // It is held, has come, is said to have nothing; and there is none.
    for (number, strange) in [(0, 0), (1, 0), (2, 0), (4, 0), (3, 1)] {
        let before = site.one().strange();
        site.one().page(1, &name(TWO), number, b"another", now);
        assert_eq!(site.one().strange() - before, strange, "{number}");
    }
    site.one().page(1, &name(TWO), 3, &pages[2].1, now);
    assert_eq!(site.one().shown().2, 3);
}

#[test]
fn of_sessions_with_one_name_or_at_one_workstation_the_first_counts() {
    let (mut site, mut two) = alone();
    let now = site.now;
    let all = [record(1, "ws1"), record(2, "ws1"), record(1, "ws3"), record(4, "ws4")];
    let (digest, bytes) = page(&all);
    let statement = next(&site, &mut two, vec![digest]);
    site.hears(statement);
    site.one().page(1, &name(TWO), 0, &bytes, now);
    site.pass_on();
    let appeared = |said: &Said| match said {
        Said::Appeared(shared) => Some(shared.record.clone()),
        _ => None,
    };
    let used: Vec<Stored> = site.said.iter().filter_map(|(_, said)| appeared(said)).collect();
    assert_eq!((used, site.one().strange()), (vec![all[0].clone(), all[3].clone()], 2));
}

#[test]
fn a_server_that_is_cut_off_waits_for_what_it_cuts_and_for_what_it_has_granted_and_for_nothing_else() {
    let begin = Time::from_millis(1_000_000);
    let cut_off = |own: Option<&Stored>| {
        let of = |me: &str, others: [&str; 2]| {
            Federation::new("harbour".parse().unwrap(), name(me), others.map(name), TTL, begin)
        };
        // The third is never heard of: what this server's run before may have granted it is over after a lease.
        let machines =
            vec![(name(ONE), of(ONE, [TWO, "three.example"])), (name(TWO), of(TWO, [ONE, "three.example"]))];
        let mut site = Site { machines, now: begin, said: vec![], last: vec![], hidden: None };
        for (_, machine) in &mut site.machines {
            machine.tick(begin);
            machine.joined(1, begin);
        }
        for _ in 0..10 {
            site.turn();
        }
        let (theirs, now) = (record(9, "ws9"), site.now);
        site.machines[1].1.publish(&theirs, now);
        site.pass_on();
        let (now, mut one) = (site.now, site.machines.remove(0).1);
        assert_eq!(one.shown().2, 1);
        if let Some(own) = own {
            one.publish(own, now);
        }
        one.lost(None, "the wire is gone", now);
        let said: Vec<Said> = std::iter::from_fn(|| one.poll()).collect();
        assert!(said.contains(&Said::Vanished(name(TWO), theirs.id)), "{said:?}");
        assert_eq!(one.shown(), (false, vec![], 0));
        (one, theirs.id, now)
    };
    // With nothing of its own it waits for the cut alone.
    let (mut one, theirs, now) = cut_off(None);
    assert_eq!(one.deadline(), None);
    one.cut(&name(TWO), theirs, now);
    assert!(one.deadline().is_some());
    // Its own session is over when nobody can use it any more.
    let own = record(1, "ws1");
    let (mut one, _, now) = cut_off(Some(&own));
    let (first, last) = (begin.after(TTL), now.after(TTL));
    for (due, said) in [(first, vec![]), (last, vec![Said::Withdrawn(own.id)])] {
        assert_eq!(one.deadline(), Some(due));
        one.tick(due.before(Duration::from_millis(1)));
        assert_eq!(one.poll(), None);
        one.tick(due);
        assert_eq!(std::iter::from_fn(|| one.poll()).collect::<Vec<_>>(), said);
    }
    assert_eq!(one.deadline(), None);
}

#[test]
fn a_statement_is_read_as_it_was_written_within_its_bounds_and_has_one_spelling() {
    let (_, last) = alone();
    let with = |words: usize, pages: usize| Statement {
        words: vec![last.words[0].clone(); words],
        pages: vec![[7; 32]; pages],
        ..last.clone()
    };
    for (words, pages, good) in [
        (0, 0, true),
        (PEERS, PAGES, true),
        (PEERS + 1, 0, false),
        (0, PAGES + 1, false),
        (PEERS + 1, PAGES + 1, false),
    ] {
        let statement = with(words, pages);
        let read = Statement::decode(&statement.encode());
        assert_eq!(read, good.then_some(statement), "{words} {pages}");
    }
    let small = Statement { epoch: 2, number: 1, ..with(0, 0) };
    let encoded = small.encode();
    let (front, numbers) = encoded.split_at(encoded.len() - 41);
    // Behind these, of postures: none was ever set, nothing is left of before, and the digest of none; and no signed log.
    let (numbers, postures) = numbers.split_at(4);
    assert_eq!(
        (numbers, &postures[..4], &postures[4..]),
        (&[2, 1, 0, 0][..], &[0, 0, 0, 1][..], &[0; 33][..])
    );
    for (octets, good) in [(SIGNATURE, true), (SIGNATURE + 1, false)] {
        let signed = Some(Signed { count: 9, hash: [3; 32], signature: vec![4; octets] });
        let statement = Statement { signed, ..small.clone() };
        assert_eq!(Statement::decode(&statement.encode()), good.then_some(statement), "{octets}");
    }
    for wrong in [&[2, 0x81, 0, 0, 0][..], &[2, 1, 0, 0, 0], &[2, 1, 0]] {
        assert_eq!(Statement::decode(&[front, wrong, postures].concat()), None, "{wrong:?}");
    }
    let signed = Statement::message(&encoded);
    assert_eq!(signed.strip_prefix(b"levee federation statement\0"), Some(&encoded[..]));
}

#[test]
fn what_could_not_go_on_here_appears_again_after_a_rest_that_grows_unless_its_server_ends_it() {
    let mut site = Site::of(&[ONE, TWO]);
    let (theirs, now) = (record(9, "ws9"), site.now);
    site.machines[1].1.publish(&theirs, now);
    let appeared = |site: &mut Site| {
        let is_it = |(of, said): &(_, Said)| {
            *of == name(ONE) && matches!(said, Said::Appeared(shared) if shared.record.id == theirs.id)
        };
        let count = site.said.iter().filter(|said| is_it(said)).count();
        site.said.clear();
        count
    };
    site.turn();
    site.turn();
    assert_eq!((appeared(&mut site), site.one().shown().2), (1, 1));
    for rest in [15, 30, 60, 120].map(Duration::from_secs) {
        let now = site.now;
        site.one().missing(&name(TWO), theirs.id, now);
        // It is told once.
        site.one().missing(&name(TWO), theirs.id, now);
        assert_eq!(site.one().shown().2, 0);
        while site.now < now.after(rest.saturating_sub(TURN)) {
            site.turn();
        }
        assert_eq!(appeared(&mut site), 0);
        assert!(site.one().deadline() <= Some(now.after(rest)));
        site.turn();
        assert_eq!((appeared(&mut site), site.one().shown().2), (1, 1), "after {rest:?}");
    }
    // Nobody waits for the end of what is not there, and it never comes back.
    let now = site.now;
    site.one().missing(&name(TWO), theirs.id, now);
    site.machines[1].1.withdraw(&theirs, now);
    for _ in 0..3 {
        site.turn();
    }
    assert!(site.has(TWO, &Said::Withdrawn(theirs.id)));
    assert!(!site.has(ONE, &Said::Vanished(name(TWO), theirs.id)));
    while site.now < now.after(Duration::from_secs(300)) {
        site.turn();
    }
    assert_eq!((appeared(&mut site), site.one().shown().2), (0, 0));
}

/// The first server, with a session of the second that could not go on there just now, and that session's page.
fn resting() -> (Site, Statement, (Digest, Vec<u8>)) {
    let (mut site, mut two) = alone();
    let theirs = record(9, "ws9");
    let page = page(std::slice::from_ref(&theirs));
    shows(&mut site, &mut two, &page);
    assert_eq!(appeared(&mut site), 1);
    let now = site.now;
    site.one().missing(&name(TWO), theirs.id, now);
    (site, two, page)
}

/// The second server states that it has what is on this page.
fn shows(site: &mut Site, two: &mut Statement, (digest, bytes): &(Digest, Vec<u8>)) {
    let statement = next(site, two, vec![*digest]);
    site.hears(statement);
    let now = site.now;
    site.one().page(1, &name(TWO), 0, bytes, now);
    site.pass_on();
}

fn appeared(site: &mut Site) -> usize {
    std::mem::take(&mut site.said).iter().filter(|(_, said)| matches!(said, Said::Appeared(_))).count()
}

#[test]
fn what_rests_does_so_too_where_its_server_was_not_heard_of_meanwhile() {
    let (mut site, mut two, page) = resting();
    let since = site.now;
    while !site.one().shown().1.is_empty() {
        site.turn();
    }
    while site.now < since.after(Duration::from_secs(14)) {
        site.turn();
        shows(&mut site, &mut two, &page);
    }
    assert_eq!((site.one().shown().1.len(), appeared(&mut site)), (1, 0));
    while site.now < since.after(Duration::from_secs(15)) {
        site.turn();
    }
    assert_eq!(appeared(&mut site), 1);
}

#[test]
fn nothing_is_kept_of_what_rested_when_it_is_over() {
    let (mut site, mut two, page) = resting();
    let statement = next(&site, &mut two, vec![NONE]);
    site.hears(statement);
    // One that its server calls the same is another.
    shows(&mut site, &mut two, &page);
    assert_eq!(appeared(&mut site), 1);
}

#[test]
fn who_was_cut_off_and_hears_all_anew_keeps_nothing_of_what_rested() {
    let (mut site, mut two, page) = resting();
    let now = site.now;
    site.one().lost(None, "the wire is gone", now);
    let attempt = loop {
        site.now = site.now.after(TURN);
        let now = site.now;
        site.one().tick(now);
        let said = std::iter::from_fn(|| site.one().poll()).collect::<Vec<_>>();
        let join = said.iter().find_map(|said| match said {
            Said::Join { attempt } => Some(*attempt),
            _ => None,
        });
        if let Some(attempt) = join {
            break attempt;
        }
    };
    let now = site.now;
    site.one().joined(attempt, now);
    let Some(Said::State { statement, .. }) = site.one().poll() else { panic!("it says nothing") };
    site.last = vec![*statement];
    let statement = next(&site, &mut two, vec![page.0]);
    site.one().hear(attempt, statement, now);
    site.one().page(attempt, &name(TWO), 0, &page.1, now);
    assert_eq!(site.one().shown().2, 1);
}

#[test]
fn what_could_not_go_on_here_and_is_over_meanwhile_is_cut() {
    let (mut site, mut two) = alone();
    let theirs = record(9, "ws9");
    shows(&mut site, &mut two, &page(std::slice::from_ref(&theirs)));
    let now = site.now;
    site.one().lost(None, "the wire is gone", now);
    assert_eq!(site.one().deadline(), None, "it is to be cut");
    site.one().missing(&name(TWO), theirs.id, now);
    assert!(site.one().deadline().is_some());
}
