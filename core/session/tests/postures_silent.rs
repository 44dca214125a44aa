//! A change of posture where a label's own processes do not do their part: the site waits for none of them longer than it has said.

mod server;

use levee_policy::Site;
use levee_policy::site::Placed;
use levee_session::federation::Setting;
use levee_session::*;
use server::{BEGIN, Server, has, label};
use std::sync::Arc;
use std::time::Duration;

const SITE: &str = concat!(
    include_str!("../../../conf/small/site.toml"),
    "\n[[posture]]\nname = \"siege\"\nciphers = [\"chacha20-poly1305\"]\nfollow = \"4s\"\n",
    "[[posture]]\nname = \"storm\"\nciphers = [\"chacha20-poly1305\"]\nfollow = \"4s\"\n"
);
const OPERATOR: OperatorId = OperatorId(9);

fn wish(posture: Option<&str>) -> Event {
    let what = Placed { posture: posture.map(|name| name.parse().unwrap()), labels: None };
    Event::Posture(OPERATOR, Wish { what, lasting: None, reason: "a drill".into() })
}

/// As [`Server::hear`]; nothing at any label is off.
fn hear(server: &mut Server, event: Event) -> Vec<Output> {
    let mut said = server.hear(event);
    let kept: Vec<u64> = said
        .iter()
        .filter_map(|one| match one {
            Output::Postures(number, _) => Some(*number),
            _ => None,
        })
        .collect();
    said.extend(kept.into_iter().flat_map(|number| server.hear(Event::PosturesKept(number))));
    said
}

/// The number by which the vault is to say that it has nothing old.
fn asked(said: &[Output]) -> Option<u64> {
    said.iter().find_map(|one| match one {
        Output::Vault(_, ToVault::Ciphers(number, ..)) => Some(*number),
        _ => None,
    })
}

fn later(server: &mut Server, time: Duration) -> Vec<Output> {
    // As it would be asked: the vault says that it lives whenever it is.
    let until = server.now.after(time);
    let mut said = Vec::new();
    while let Some(due) = server.machine.deadline().filter(|due| *due <= until) {
        server.now = due;
        said.extend(hear(server, Event::Tick));
    }
    server.now = until;
    said.extend(hear(server, Event::Tick));
    said
}

fn is_done(said: &[Output]) -> bool {
    has(said, |one| matches!(one, Output::Operator(OPERATOR, Ok(()))))
}

#[test]
fn a_vault_that_lives_and_does_not_say_that_it_has_nothing_old_is_killed_when_its_time_is_over() {
    let (mut server, _) = Server::with_a_session_at(SITE);
    asked(&hear(&mut server, wish(Some("siege")))).unwrap();
    let kills = |said: &[Output]| has(said, |one| matches!(one, Output::Kill(at) if *at == label()));
    let said = later(&mut server, Duration::from_millis(4_500));
    assert!(has(&said, |one| matches!(one, Output::Vault(_, ToVault::Sever(_)))), "{said:?}");
    assert!(!kills(&said), "it has a moment to erase what is old");
    let said = later(&mut server, Duration::from_secs(1));
    assert!(kills(&said), "{said:?}");
    // That it is dead is its answer, and the next change is not kept waiting.
    assert!(is_done(&hear(&mut server, Event::LabelDied(label()))));
    let said = hear(&mut server, wish(None));
    assert!(!has(&said, |one| matches!(one, Output::Operator(_, Err(_)))), "{said:?}");
}

#[test]
fn a_mediator_that_is_started_again_while_a_posture_changes_has_its_vault_forget_nothing_that_is_old() {
    let (mut server, _) = Server::with_a_session_at(SITE);
    let number = asked(&hear(&mut server, wish(Some("siege")))).unwrap();
    // The vault is the same: what it has said that it will answer it answers.
    let said = hear(&mut server, Event::LabelUp(label()));
    assert_eq!(asked(&said), Some(number), "{said:?}");
    let said = later(&mut server, Duration::from_millis(4_500));
    assert!(
        has(&said, |one| matches!(one, Output::Vault(_, ToVault::Sever(of)) if *of == number)),
        "{said:?}"
    );
    assert!(is_done(&hear(&mut server, Event::Moved(label(), number, Vec::new()))));
    // Then it is asked by another.
    assert_ne!(asked(&hear(&mut server, Event::LabelUp(label()))), Some(number));
}

/// A server that was started again under a posture, with a session at a label whose vault is there still; the session, by which number the
/// vault is asked, and whether all that it has is old. `followed`: the run before has said that nothing of before was left.
fn started_again(followed: bool) -> (Server, SessionId, u64, bool) {
    let stored = Stored {
        id: SessionId::from_random([7; 16]),
        user: "ada".parse().unwrap(),
        device: "ws1".parse().unwrap(),
        fingerprint: [1; 32],
        label: label(),
        inner: vec!["10.80.1.7".parse().unwrap()],
        opened: BEGIN,
        protection: None,
    };
    let id = stored.id;
    let site = Arc::new(Site::parse(SITE).unwrap());
    let machine = Sessions::new(site, vec![stored], [], [], [7; 16], BEGIN);
    let mut server = Server { machine, now: BEGIN };
    let in_force = vec![InForce { what: Placed::everywhere("siege".parse().unwrap()), until: None }];
    server.machine.take_postures((Setting { number: 1, at: None, in_force }, followed), BEGIN);
    hear(&mut server, Event::Tick);
    let said = hear(&mut server, Event::LabelUp(label()));
    let anew = has(&said, |one| matches!(one, Output::Vault(_, ToVault::Ciphers(.., true))));
    hear(&mut server, Event::VaultOpened(label(), id));
    (server, id, asked(&said).unwrap(), anew)
}

#[test]
fn who_had_not_followed_when_the_process_was_started_again_is_severed_by_the_next_in_as_long() {
    let (mut server, id, number, _) = started_again(true);
    // Its mediator is new, too.
    assert_eq!(asked(&hear(&mut server, Event::LabelUp(label()))), Some(number));
    let severs = |said: &[Output]| {
        has(said, |one| matches!(one, Output::Vault(_, ToVault::Sever(of)) if *of == number))
    };
    assert!(!severs(&later(&mut server, Duration::from_millis(3_900))));
    assert!(severs(&later(&mut server, Duration::from_millis(200))));
    hear(&mut server, Event::Moved(label(), number, vec![id]));
    assert!(server.machine.live(id).is_none(), "it has no keys that count");
    // Once: the next to come up has nothing of before.
    hear(&mut server, Event::LabelUp(label()));
    assert!(!severs(&later(&mut server, Duration::from_secs(9))));
}

#[test]
fn a_vault_that_says_nothing_of_what_the_run_before_was_to_have_erased_is_killed_in_its_time() {
    let (mut server, ..) = started_again(true);
    let kills = |said: &[Output]| said.iter().filter(|one| matches!(one, Output::Kill(_))).count();
    assert_eq!(kills(&later(&mut server, Duration::from_millis(4_500))), 0, "it has a moment to erase it");
    assert_eq!(kills(&later(&mut server, Duration::from_millis(600))), 1);
    assert_eq!(kills(&later(&mut server, Duration::from_secs(9))), 0, "once");
}

/// Whether the store is to say that nothing of before is left.
fn followed(said: &[Output]) -> bool {
    let is_it = |change: &Change| matches!(change, Change::Followed);
    has(said, |one| matches!(one, Output::Commit(_, _, changes) if changes.iter().any(is_it)))
}

#[test]
fn a_posture_that_was_recorded_and_not_told_when_the_process_ended_has_all_keys_replaced_by_the_next() {
    // Of other curves, or a shorter life, a vault sees nothing by itself.
    for was_followed in [true, false] {
        let (mut server, _, number, anew) = started_again(was_followed);
        assert_eq!(anew, !was_followed);
        let said = hear(&mut server, Event::Moved(label(), number, vec![]));
        assert_eq!(followed(&said), !was_followed, "{said:?}");
    }
    // Another that changes nothing there has not had it replaced.
    let (mut server, _, number, _) = started_again(false);
    let said = hear(&mut server, wish(Some("storm")));
    assert!(asked(&said).is_none() && is_done(&said) && !followed(&said), "{said:?}");
    assert!(followed(&hear(&mut server, Event::Moved(label(), number, vec![]))));
    let (mut server, _) = Server::with_a_session_at(SITE);
    let said = hear(&mut server, wish(Some("siege")));
    assert!(!followed(&said));
    assert!(followed(&hear(&mut server, Event::Moved(label(), asked(&said).unwrap(), vec![]))));
}
