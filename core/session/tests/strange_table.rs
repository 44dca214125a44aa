//! A table in which somebody writes who is no server of the site, or has one server's key: nothing that they write is obeyed, what is
//! not a server's own is noticed, and nobody else's sessions end for it.

mod table;

use levee_policy::site::Placed;
use levee_session::federation::*;
use levee_session::{InForce, Stored, Time};
use std::time::Duration;
use table::*;

const BEGUN: Time = Time::from_millis(1_000);

#[test]
fn a_server_that_is_none_of_the_site_is_not_waited_for_and_its_sessions_are_not_taken() {
    let mut site = Site::of(&["one.example", "two.example"]);
    let own = site.published();
    let (before, now) = (site.one().strange(), site.now);
    for number in 1..=200 {
        site.hears(statement_of("stranger.example", 1, number, vec![]));
        site.one().page(1, &name("stranger.example"), 0, b"x", now);
    }
    let elsewhere =
        Statement { site: "other".parse().unwrap(), ..statement_of("two.example", u64::MAX, 1, vec![]) };
    site.hears(elsewhere);
    assert_eq!(site.one().strange() - before, 401);
    assert_eq!(site.one().shown(), (true, vec![name("two.example")], 0));
    // An end is over when the one real other server has cut it, and at once.
    site.one().withdraw(&own, now);
    for _ in 0..2 {
        site.turn();
    }
    assert!(site.has("one.example", &Said::Withdrawn(own.id)) && !site.is_fenced());
}

#[test]
fn that_a_server_has_cut_a_session_nobody_says_but_itself() {
    let names = ["one.example", "two.example", "three.example"];
    let mut site = Site::of(&names);
    let own = site.published();
    // The second server hears nothing any more, and so says nothing new.
    let (two, now) = (site.machines.remove(1), site.now);
    site.one().withdraw(&own, now);
    site.turn();
    let three = site.said_last("three.example");
    let about = |server: &str, done| Word { server: name(server), done, ..three.words[0].clone() };
    // The third has cut it, and says so of the second, too; of itself more than there is.
    let lies =
        vec![about("one.example", u64::MAX), about("two.example", u64::MAX), about("two.example", u64::MAX)];
    site.hears(Statement { number: three.number + 1000, words: lies, ..three.clone() });
    assert!(!site.has("one.example", &Said::Withdrawn(own.id)), "the second has not cut it");
    // A lease later the second can use nothing of the first any more, whoever says what.
    let from = site.now;
    while !site.has("one.example", &Said::Withdrawn(own.id)) {
        site.turn();
        assert!(site.now < from.after(TTL * 2), "it is not waited for longer");
    }
    assert!(site.now.since(from) > TTL * 3 / 4);
    let mut two = two.1;
    two.tick(site.now);
    assert_eq!(two.shown(), (false, vec![], 0));
}

#[test]
fn old_words_and_two_words_with_one_number_are_noticed_and_not_obeyed() {
    let mut site = Site::of(&["one.example", "two.example"]);
    let (theirs, now) = (record(9, "ws9"), site.now);
    let old = site.said_last("two.example");
    site.machines[1].1.publish(&theirs, now);
    for _ in 0..3 {
        site.turn();
    }
    assert_eq!(site.one().shown().2, 1);
    let before = site.one().strange();
    let last = site.said_last("two.example");
    site.hears(last.clone());
    assert_eq!(site.one().strange(), before, "the same again is nothing new");
    // It has no sessions in any of these.
    let other = Statement { pages: vec![], ..last.clone() };
    let of_before = Statement { epoch: last.epoch - 1, number: last.number + 9, ..other.clone() };
    for wrong in [old, other, of_before] {
        site.hears(wrong);
    }
    assert_eq!((site.one().strange() - before, site.one().shown().2), (3, 1));
    assert!(!site.said.iter().any(|(_, said)| matches!(said, Said::Vanished(..) | Said::Fence(_))));
}

#[test]
fn a_page_that_was_altered_or_is_longer_by_an_octet_is_not_taken_and_what_it_belongs_to_waits_for_it() {
    let mut site = Site::of(&["one.example", "two.example"]);
    let (theirs, now) = (record(9, "ws9"), site.now);
    site.machines[1].1.publish(&theirs, now);
    let mut stated = None;
    while let Some(said) = site.machines[1].1.poll() {
        if let Said::State { statement, pages, .. } = said {
            stated = Some((statement, pages));
        }
    }
    let (statement, pages) = stated.expect("it says so");
    let (page, bytes) = pages[0].clone();
    site.hears(*statement);
    let before = site.one().strange();
    for at in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1;
        site.one().page(1, &name("two.example"), page, &wrong, now);
    }
    for wrong in [&bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat(), &vec![0; 70_000], &[]] {
        site.one().page(1, &name("two.example"), page, wrong, now);
    }
    // In another place, or as another server's, it is nothing that anybody waits for.
    site.one().page(1, &name("two.example"), page + 1, &bytes, now);
    site.one().page(1, &name("stranger.example"), page, &bytes, now);
    assert_eq!(site.one().strange() - before, bytes.len() as u64 + 5);
    assert_eq!(site.one().shown().2, 0);
    site.one().page(1, &name("two.example"), page, &bytes, now);
    assert_eq!(site.one().shown().2, 1);
}

#[test]
fn a_server_whose_key_signs_what_it_did_not_say_fences_itself() {
    let other = |site: &Site| {
        let last = site.said_last("one.example");
        [
            Statement { words: vec![], ..last.clone() },
            Statement { number: last.number + 1, ..last.clone() },
            Statement { epoch: last.epoch + 1, number: 0, ..last },
        ]
    };
    for number in 0..3 {
        let mut site = Site::of(&["one.example", "two.example"]);
        site.published();
        let forged = other(&site)[number].clone();
        site.hears(forged);
        assert!(site.is_fenced());
    }
    // Nor has anybody begun at the same moment as it.
    let mut one = Federation::new("harbour".parse().unwrap(), name("one.example"), [], TTL, BEGUN);
    one.tick(BEGUN);
    one.hear(1, statement_of("one.example", BEGUN.as_millis(), 1, vec![]), BEGUN);
    assert!(std::iter::from_fn(|| one.poll()).any(|said| matches!(said, Said::Fence(_))));
    // What it said before, in this run or another, it only did not hear again.
    let mut site = Site::of(&["one.example", "two.example"]);
    let old = site.said_last("one.example");
    site.published();
    site.hears(old.clone());
    site.hears(Statement { epoch: old.epoch - 5, number: 900, ..old });
    assert!(!site.is_fenced());
}

#[test]
fn a_server_whose_clock_was_set_back_goes_on_from_its_last_run() {
    let now = BEGUN;
    let peers = [name("two.example")];
    let mut one = Federation::new("harbour".parse().unwrap(), name("one.example"), peers, TTL, now);
    one.tick(now);
    one.hear(1, statement_of("one.example", 900_000, 77, vec![]), now);
    one.joined(1, now);
    let epoch = std::iter::from_fn(|| one.poll()).find_map(|said| match said {
        Said::State { statement, .. } => Some(statement.epoch),
        _ => None,
    });
    assert_eq!(epoch, Some(900_001));
}

#[test]
fn no_server_has_more_sessions_here_than_its_share() {
    let names: Vec<String> = (0..14).map(|n| format!("s{n}.example")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut site = Site::of(&names);
    let now = site.now;
    for number in 0..1_500 {
        site.machines[1].1.publish(&record(number, &format!("ws{number}")), now);
    }
    for _ in 0..20 {
        site.turn();
    }
    let (_, others, theirs) = site.machines[0].1.shown();
    assert_eq!((others.len(), theirs), (13, 1_024));
    assert!(site.one().strange() > 400);
    // Of one that is the only other, there may be more.
    let mut site = Site::of(&["one.example", "two.example"]);
    let now = site.now;
    for number in 0..1_100 {
        site.machines[1].1.publish(&record(number, &format!("ws{number}")), now);
    }
    for _ in 0..20 {
        site.turn();
    }
    assert_eq!((site.one().shown().2, site.one().strange()), (1_100, 0));
}

#[test]
fn whoever_keeps_two_servers_from_hearing_each_other_again_and_again_has_sessions_appear_only_so_often() {
    let names: Vec<String> = (0..14).map(|n| format!("s{n}.example")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut site = Site::of(&names);
    let now = site.now;
    for number in 0..1_000 {
        site.machines[1].1.publish(&record(number, &format!("ws{number}")), now);
    }
    let appeared = |site: &mut Site| {
        let is_here =
            |(of, said): &&(_, Said)| *of == name("s0.example") && matches!(said, Said::Appeared(_));
        let count = site.said.iter().filter(is_here).count();
        site.said.clear();
        count
    };
    (0..20).for_each(|_| site.turn());
    assert_eq!((site.one().shown().2, appeared(&mut site)), (1_000, 1_000));
    // The second server is not heard for longer than a lease, and then it is: ten times.
    let (from, mut all) = (site.now, 0);
    for time in 0..10 {
        site.hidden = Some(name("s1.example"));
        let until = site.now.after(TTL * 2);
        while site.now < until {
            site.turn();
        }
        assert_eq!(site.one().shown().2, 0, "{time}");
        site.hidden = None;
        (0..20).for_each(|_| site.turn());
        all += appeared(&mut site);
        assert!(time > 0 || site.one().shown().2 == 1_000, "once costs nothing");
    }
    let minutes = usize::try_from(site.now.since(from).as_secs() / 60 + 1).unwrap();
    // Two shares less the thousand of before, and a quarter of one a minute.
    assert!(all <= 1_048 + minutes * 256, "{all} in {minutes} minutes");
    // When that is over all of them are there again, as soon as so many may appear.
    while site.one().shown().2 < 1_000 {
        site.turn();
        assert!(site.now < from.after(Duration::from_secs(600)), "{}", site.one().shown().2);
    }
}

#[test]
fn of_more_sessions_than_there_is_room_for_others_are_used_when_some_are_over_or_rest() {
    let names: Vec<String> = (0..14).map(|n| format!("s{n}.example")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut site = Site::of(&names);
    let theirs: Vec<_> = (0..1_100).map(|number| record(number, &format!("ws{number}"))).collect();
    let now = site.now;
    theirs.iter().for_each(|record| site.machines[1].1.publish(record, now));
    let turns = |site: &mut Site, turns: usize| (0..turns).for_each(|_| site.turn());
    let appeared = |site: &mut Site, id| {
        let is_it = |said: &Said| matches!(said, Said::Appeared(shared) if shared.record.id == id);
        let is_here = |(of, said): &(_, Said)| *of == name("s0.example") && is_it(said);
        let found = site.said.iter().any(is_here);
        site.said.clear();
        found
    };
    turns(&mut site, 20);
    assert_eq!(site.one().shown().2, 1_024);
    let used = |site: &Site, record: &Stored| {
        site.said.iter().any(|(of, said)| {
            *of == name("s0.example")
                && matches!(said, Said::Appeared(shared) if shared.record.id == record.id)
        })
    };
    let first = theirs.iter().find(|record| used(&site, record)).expect("one is used").clone();
    // Its place is taken while it rests; it comes back when there is one.
    let now = site.now;
    site.said.clear();
    site.one().missing(&name("s1.example"), first.id, now);
    turns(&mut site, 20);
    assert_eq!((site.one().shown().2, appeared(&mut site, first.id)), (1_024, false));
    turns(&mut site, 200);
    assert!(!appeared(&mut site, first.id), "there is no room for it");
    let now = site.now;
    let others = theirs.iter().filter(|record| record.id != first.id).take(500);
    others.for_each(|record| site.machines[1].1.withdraw(record, now));
    turns(&mut site, 20);
    assert_eq!((site.one().shown().2, appeared(&mut site, first.id)), (600, true), "all that there are");
}

#[test]
fn without_a_word_about_this_server_none_of_the_others_sessions_is_used() {
    let mut site = Site::of(&["one.example", "two.example"]);
    let (theirs, now) = (record(9, "ws9"), site.now);
    site.machines[1].1.publish(&theirs, now);
    for _ in 0..3 {
        site.turn();
    }
    assert_eq!(site.one().shown().2, 1);
    let last = site.said_last("two.example");
    // It goes on, and says that it hears this server; but grants it nothing new.
    let from = site.now;
    let mut number = last.number;
    while site.one().shown().2 == 1 {
        site.now = site.now.after(Duration::from_millis(200));
        let now = site.now;
        number += 1;
        let words =
            last.words.iter().map(|word| Word { heard: word.heard + number, ..word.clone() }).collect();
        site.one().tick(now);
        site.one().hear(1, Statement { number, words, ..last.clone() }, now);
        while site.one().poll().is_some() {}
        assert!(site.now < from.after(TTL), "no longer than a lease");
    }
}

/// What the first server says of settings when another says this of postures.
fn says(site: &mut Site, server: &str, setting: &Setting, postures: [u8; 32]) -> Vec<Said> {
    let last = site.said_last(server);
    let next = Statement { number: last.number + 1, setting: setting.clone(), postures, ..last };
    site.last.retain(|other| other.server != next.server);
    site.last.push(next.clone());
    site.said.clear();
    site.hears(next);
    let said = site.said.iter().filter(|(of, _)| *of == name("one.example")).map(|(_, said)| said.clone());
    said.filter(|said| matches!(said, Said::Set(..) | Said::Unlike(_) | Said::Kept(_))).collect()
}

fn setting(number: u64, at: &str, names: &[&str]) -> Setting {
    let everywhere = |name: &&str| Placed::everywhere(name.parse().unwrap());
    let in_force = names.iter().map(|name| InForce { what: everywhere(name), until: None }).collect();
    Setting { number, at: Some(name(at)), in_force }
}

/// The first server sets this, and waits for the others.
fn sets(site: &mut Site, setting: &Setting) {
    let (now, until) = (site.now, site.now.after(TTL));
    site.one().set(setting.clone(), until, true, now);
    site.one().kept(now);
    site.pass_on();
}

#[test]
fn who_says_another_thing_by_the_number_and_name_of_what_was_set_does_not_follow_it() {
    let mut site = Site::of(&["one.example", "two.example"]);
    let (set, lie) = (setting(1, "one.example", &["siege"]), setting(1, "one.example", &[]));
    sets(&mut site, &set);
    assert_eq!(says(&mut site, "two.example", &lie, [0; 32]), []);
    assert_eq!(says(&mut site, "two.example", &set, [0; 32]), [Said::Kept(vec![])]);
    // The other way round it is taken up, so that all come to the same.
    let mut site = Site::of(&["one.example", "two.example"]);
    sets(&mut site, &lie);
    assert_eq!(says(&mut site, "two.example", &set, [0; 32]), [Said::Set(name("two.example"), set)]);
}

#[test]
fn of_two_who_set_at_once_the_one_whose_setting_does_not_count_is_not_told_that_it_is_so() {
    let mut site = Site::of(&["one.example", "two.example"]);
    sets(&mut site, &setting(1, "one.example", &["siege"]));
    let theirs = setting(1, "two.example", &[]);
    for _ in 0..2 {
        let said = says(&mut site, "two.example", &theirs, [0; 32]);
        assert_eq!(said, [Said::Set(name("two.example"), theirs.clone())], "the other never had it");
    }
}

#[test]
fn what_is_not_taken_up_of_one_server_keeps_nobody_else_from_being_heard() {
    let mut site = Site::of(&["one.example", "two.example", "three.example"]);
    let far = setting(1 << 31, "two.example", &["siege"]);
    assert_eq!(says(&mut site, "two.example", &far, [1; 32]), [Said::Unlike(name("two.example"))]);
    assert_eq!(says(&mut site, "two.example", &far, [1; 32]), [], "once");
    let honest = setting(1, "three.example", &["siege"]);
    assert_eq!(
        says(&mut site, "three.example", &honest, [0; 32]),
        [Said::Set(name("three.example"), honest)]
    );
    // Its site file is the same since.
    assert_eq!(says(&mut site, "two.example", &far, [0; 32]), [Said::Set(name("two.example"), far)]);
}

#[test]
fn a_server_that_is_believed_no_more_keeps_nobody_from_setting_a_posture() {
    let mut site = Site::of(&["one.example", "two.example"]);
    says(&mut site, "two.example", &Setting::default(), [1; 32]);
    assert!(site.one().may_set().is_err());
    let now = site.now;
    site.one().disown(&name("two.example"), now);
    assert_eq!(site.one().may_set(), Ok(()));
}

#[test]
fn postures_that_no_operator_can_have_set_or_that_mean_something_else_here_are_not_taken_up() {
    let mut site = Site::of(&["one.example", "two.example"]);
    let two = name("two.example");
    let set = |number: u64, names: &[&str]| setting(number, "two.example", names);
    let strange = site.one().strange();
    // So many for each millisecond of the clock's.
    let furthest = site.now.as_millis() << 20;
    assert_eq!(says(&mut site, "two.example", &set(furthest + 1, &[]), [0; 32]), []);
    assert_eq!(site.one().strange(), strange + 1);
    // The postures of another file, and then their end, which means the same in every file.
    assert_eq!(says(&mut site, "two.example", &set(7, &["siege"]), [1; 32]), [Said::Unlike(two.clone())]);
    assert!(site.one().may_set().unwrap_err().contains("the site file of two.example has other postures"));
    let end = set(8, &[]);
    assert_eq!(says(&mut site, "two.example", &end, [1; 32]), [Said::Set(two.clone(), end.clone())]);
    let furthest = set(furthest, &["siege"]);
    assert_eq!(says(&mut site, "two.example", &furthest, [0; 32]), [Said::Set(two, furthest.clone())]);
    assert_eq!(site.one().may_set(), Ok(()));
    assert_eq!(site.one().strange(), strange + 1);
    sets(&mut site, &furthest);
    assert_eq!(says(&mut site, "two.example", &set(9, &[]), [0; 32]), [], "what came before");
}

#[test]
fn however_far_somebody_drove_the_numbers_a_server_that_was_down_meanwhile_follows_and_none_comes_to_their_end()
 {
    let mut site = Site::of(&["one.example", "two.example", "three.example"]);
    // As far as they are believed, every five seconds, at one that is up.
    let mut number = 0;
    for _ in 0..100 {
        site.now = site.now.after(Duration::from_secs(5));
        let now = site.now;
        site.one().tick(now);
        let far = [number + (1 << 32), now.as_millis() << 20].into_iter().max().unwrap();
        let drives = setting(far, "two.example", &[]);
        assert!(
            says(&mut site, "two.example", &drives, [0; 32])
                .contains(&Said::Set(name("two.example"), drives.clone()))
        );
        site.one().set(drives, now, false, now);
        number = far;
    }
    // One whose store is new.
    let mut fresh = Site::of(&["one.example", "two.example"]);
    let honest = setting((fresh.now.as_millis() << 20) - 1, "two.example", &["siege"]);
    let said = says(&mut fresh, "two.example", &honest, [0; 32]);
    assert_eq!(said, [Said::Set(name("two.example"), honest)]);
}

#[test]
fn a_session_is_over_by_its_own_servers_word_alone_whoever_else_names_it() {
    let mut site = Site::of(&["one.example", "two.example", "three.example"]);
    let (theirs, now) = (record(9, "ws9"), site.now);
    site.machines[1].1.publish(&theirs, now);
    site.turn();
    // Whoever has the third server's key reads the second's pages, and names that session in its own.
    let (again, now) = (record(9, "ws8"), site.now);
    assert_eq!(again.id, theirs.id);
    site.machines[2].1.publish(&again, now);
    site.turn();
    assert_eq!(site.one().shown().2, 2);
    let mut one = site.machines.remove(0).1;
    let now = site.now;
    let ends = |one: &mut Federation, machine: &mut Federation, record: &Stored| {
        machine.withdraw(record, now);
        let mut number = 0;
        while let Some(said) = machine.poll() {
            if let Said::State { statement, pages, .. } = said {
                (number, _) = (statement.number, machine.written(1, statement.number, now));
                let of = statement.server.clone();
                one.hear(1, *statement, now);
                pages.iter().for_each(|(page, bytes)| one.page(1, &of, *page, bytes, now));
            }
        }
        number
    };
    let ended = ends(&mut one, &mut site.machines[0].1, &theirs);
    ends(&mut one, &mut site.machines[1].1, &again);
    let mut said: Vec<Said> = std::iter::from_fn(|| one.poll()).collect();
    for owner in ["two.example", "three.example"] {
        assert!(said.contains(&Said::Vanished(name(owner), theirs.id)), "{said:?}");
    }
    // The vault has it still: what is over of the third's is nothing to the second's.
    one.cut(&name("three.example"), theirs.id, now);
    for at in 1..20 {
        one.tick(now.after(Duration::from_millis(at * 100)));
        while let Some(one_said) = one.poll() {
            if let Said::State { statement, .. } = &one_said {
                one.written(1, statement.number, now.after(Duration::from_millis(at * 100)));
            }
            said.push(one_said);
        }
    }
    let states = said.iter().filter_map(|said| match said {
        Said::State { statement, .. } => {
            statement.words.iter().find(|word| word.server == name("two.example"))
        }
        _ => None,
    });
    let done: Vec<u64> = states.map(|word| word.done).collect();
    assert!(!done.is_empty() && done.iter().all(|done| *done < ended), "{done:?}, {ended}");
}

#[test]
fn a_server_that_hears_all_and_carries_out_no_end_is_granted_nothing_until_nobody_waits_for_it() {
    let mut site = Site::of(&["one.example", "two.example"]);
    let own = site.published();
    let (_, begin) = (site.machines.remove(1), site.now);
    let two = site.said_last("two.example");
    let about = two.words[0].clone();
    site.one().withdraw(&own, begin);
    let mut number = two.number;
    while !site.has("one.example", &Said::Withdrawn(own.id)) {
        site.turn();
        let heard = site.said_last("one.example").number;
        number += 1;
        let words = vec![Word { heard, granted: heard, done: 0, ..about.clone() }];
        site.hears(Statement { number, words, ..two.clone() });
        assert!(site.now < begin.after(TTL * 3), "it is not waited for longer");
    }
    // It was granted something last just before the end was a lease old.
    assert_eq!(site.now, begin.after(TTL * 2 - Duration::from_millis(100)));
    assert!(!site.is_fenced());
    // It is a server as before when it has.
    for _ in 0..20 {
        site.turn();
        let heard = site.said_last("one.example").number;
        number += 1;
        let words = vec![Word { heard, granted: heard, done: heard, ..about.clone() }];
        site.hears(Statement { number, words, ..two.clone() });
    }
    let last = site.said_last("one.example");
    assert!(last.words[0].granted + 15 >= number, "{last:?}, {number}");
}

#[test]
fn a_server_whose_key_somebody_has_used_goes_on_behind_them_when_they_are_gone() {
    for (epoch, number) in [(0, 1_000), (5, 0)] {
        let mut site = Site::of(&["one.example", "two.example"]);
        let last = site.said_last("one.example");
        let forged = Statement { epoch: last.epoch + epoch, number: last.number + number, ..last.clone() };
        let (mut one, mut now) = (site.machines.remove(0).1, site.now);
        one.hear(1, forged.clone(), now);
        assert!(one.alarm().is_some_and(|why| why.contains("somebody else signs")));
        let (mut attempt, mut stated) = (1, None);
        for _ in 0..100 {
            now = now.after(Duration::from_millis(100));
            one.tick(now);
            while let Some(said) = one.poll() {
                match said {
                    Said::Join { attempt: new } => {
                        attempt = new;
                        // What is in the table is told, and it is the forged one.
                        one.hear(attempt, forged.clone(), now);
                        one.joined(attempt, now);
                    }
                    Said::State { statement, .. } => {
                        one.written(attempt, statement.number, now);
                        one.hear(attempt, (*statement).clone(), now);
                        stated = Some(statement);
                    }
                    _ => {}
                }
            }
        }
        let stated = stated.expect("it says something");
        assert!(stated.epoch > forged.epoch && one.shown().0, "{:?} {:?}", stated.epoch, one.shown());
    }
}

#[test]
fn a_server_whose_revoked_key_signed_a_run_without_end_comes_back_with_a_new_one() {
    let mut site = Site::of(&["one.example", "two.example"]);
    let last = site.said_last("two.example");
    site.hears(Statement { epoch: u64::MAX, ..last });
    for _ in 0..200 {
        site.turn();
    }
    assert!(site.one().shown().1.is_empty(), "all that it says is older");
    let now = site.now;
    // What is signed by the old key does not get so far any more.
    site.one().disown(&name("two.example"), now);
    for _ in 0..20 {
        site.turn();
    }
    assert_eq!(site.one().shown().1, [name("two.example")]);
}

#[test]
fn a_server_that_is_late_with_an_end_is_granted_something_by_the_word_that_it_is_carried_out() {
    let mut site = Site::of(&["one.example", "two.example"]);
    let own = site.published();
    let (_, begin) = (site.machines.remove(1), site.now);
    let two = site.said_last("two.example");
    let about = two.words[0].clone();
    site.one().withdraw(&own, begin);
    site.pass_on();
    let (ended, mut number) = (site.said_last("one.example").number, two.number);
    let mut says = |site: &mut Site, done: u64| {
        let heard = site.said_last("one.example").number;
        number += 1;
        let words = vec![Word { heard, granted: heard, done, ..about.clone() }];
        site.hears(Statement { number, words, ..two.clone() });
        number
    };
    while site.now < begin.after(TTL * 3 / 2) {
        site.turn();
        says(&mut site, ended - 1);
    }
    assert!(!site.has("one.example", &Said::Withdrawn(own.id)));
    let last = says(&mut site, ended);
    assert!(site.has("one.example", &Said::Withdrawn(own.id)));
    for _ in 0..20 {
        site.turn();
    }
    assert_eq!(site.said_last("one.example").words[0].granted, last);
}

#[test]
fn a_session_that_is_there_again_before_it_was_cut_is_used_when_it_is() {
    let mut site = Site::of(&["one.example", "two.example"]);
    let theirs = record(9, "ws9");
    let mut one = site.machines.remove(0).1;
    let (mut two, now) = (site.machines.remove(0).1, site.now);
    let says = |one: &mut Federation, two: &mut Federation| {
        while let Some(said) = two.poll() {
            if let Said::State { statement, pages, .. } = said {
                two.written(1, statement.number, now);
                one.hear(1, *statement, now);
                pages.iter().for_each(|(page, bytes)| one.page(1, &name("two.example"), *page, bytes, now));
            }
        }
        let said: Vec<Said> = std::iter::from_fn(|| one.poll()).collect();
        said.into_iter()
            .filter(|said| matches!(said, Said::Appeared(_) | Said::Vanished(..)))
            .collect::<Vec<_>>()
    };
    two.publish(&theirs, now);
    assert!(matches!(&says(&mut one, &mut two)[..], [Said::Appeared(_)]));
    two.withdraw(&theirs, now);
    assert!(matches!(&says(&mut one, &mut two)[..], [Said::Vanished(..)]));
    two.publish(&theirs, now);
    assert_eq!(says(&mut one, &mut two), [], "its vault has it still, as it was");
    one.cut(&name("two.example"), theirs.id, now);
    assert!(matches!(&says(&mut one, &mut two)[..], [Said::Appeared(_)]));
}
