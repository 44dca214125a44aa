//! People sign on, open sessions and leave, against a real sessiond process.

mod common;

use common::*;
use levee_ipc::Secret;
use levee_ipc::client::{ChildToSessiond, RefusalKind, Reply, Request};
use levee_ipc::device::Proof;
use levee_ipc::keyer::{FromKeyer, KeyRecord};
use levee_ipc::operator;
use levee_policy::site::Placed;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

fn position(trace: &[String], what: &str) -> usize {
    trace
        .iter()
        .position(|line| line.starts_with(what))
        .unwrap_or_else(|| panic!("no {what:?} in {trace:#?}"))
}

#[test]
fn a_person_signs_on_opens_a_session_changes_level_and_logs_out() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    let login = client.sign_on("ada", ADA);
    assert_eq!(login.clearance, "UNCLASSIFIED..SECRET//NATO");
    assert_eq!(login.labels.len(), 6);

    let low = client.open("UNCLASSIFIED");
    assert_eq!((low.mtu, low.tunnel_port), (1400, 4500));
    assert_eq!(low.inner.len(), 1);
    let record = world.shared(|s| s.vaults[&label("UNCLASSIFIED")][&low.session].clone());
    assert_eq!(record.inner, low.inner);
    assert_eq!(record.selectors.len(), 1);
    let selector = &record.selectors[0];
    assert_eq!(selector.local.to_string(), "10.80.0.1/32");
    assert_eq!(selector.remote.addr(), low.inner[0]);
    assert_eq!(
        (selector.protocol, selector.local_ports, selector.remote_ports),
        (Some(6), (80, 80), (0, 65535))
    );

    let high = client.open("SECRET//NATO");
    assert_eq!(high.colour.as_deref(), Some("red"));
    assert_ne!(high.inner, low.inner);
    world.until("the label before is left", |s| !s.vaults.contains_key(&label("UNCLASSIFIED")));
    let trace = world.trace();
    let order = ["close UNCLASSIFIED", "cut 10.81.", "open SECRET//NATO", "client Opened"];
    let second = trace.iter().rposition(|line| line == "client Opened").unwrap();
    assert!(position(&trace, order[0]) < position(&trace, order[1]), "{trace:#?}");
    assert!(position(&trace, order[1]) < position(&trace, order[2]), "{trace:#?}");
    assert!(position(&trace, order[2]) < second, "{trace:#?}");

    assert!(matches!(client.call(Request::KeepAlive), Reply::Alive));
    match client.call(Request::Status) {
        Reply::Status(status) => assert_eq!(status.session, Some((high.session, label("SECRET//NATO")))),
        other => panic!("{other:?}"),
    }
    assert!(matches!(client.call(Request::Logout), Reply::LoggedOut));
    let trace = world.trace();
    let acknowledged = position(&trace, "client LoggedOut");
    assert!(position(&trace, "close SECRET//NATO") < acknowledged, "{trace:#?}");
    let cuts = trace.iter().take(acknowledged).filter(|line| line.starts_with("cut ")).count();
    assert_eq!(cuts, 2, "{trace:#?}");
    assert_eq!(world.sessions_in_vaults(), 0);
}

#[test]
fn an_unknown_user_and_a_wrong_password_get_the_same_answer() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    let wrong = client.login("ada", "not the password");
    let unknown = client.login("nobody-here", "not the password");
    assert_eq!(refusal(&wrong), Some(RefusalKind::Credentials));
    assert_eq!(format!("{wrong:?}"), format!("{unknown:?}"));
    // And a right one works all the same.
    client.sign_on("ada", ADA);
}

#[test]
fn an_unknown_user_and_a_wrong_password_take_the_same_time() {
    let world = World::start(Site::new());
    let (first, second) = (world.connect("ws1"), world.connect("ws2"));
    // The least of three: what else runs on the machine only adds. None has failed often enough to have to wait.
    let least = |user: &str| {
        let time = |client: &Client| {
            let start = Instant::now();
            assert_eq!(refusal(&client.login(user, "not the password")), Some(RefusalKind::Credentials));
            start.elapsed()
        };
        [time(&first), time(&second), time(&first)].into_iter().min().unwrap()
    };
    let (wrong, unknown) = (least("ada"), least("nobody-here"));
    println!("a wrong password: {wrong:?}, an unknown user: {unknown:?}");
    // Without the hash it would be a thirtieth or less.
    assert!(unknown > wrong / 4 && wrong > unknown / 4, "{wrong:?} and {unknown:?} tell them apart");
}

#[test]
fn failures_slow_down_that_person_at_that_workstation_and_nobody_else() {
    let world = World::start(Site::new());
    let guesser = world.connect("ws1");
    for _ in 0..4 {
        guesser.login("ada", "a guess");
    }
    let start = Instant::now();
    guesser.ask(Request::Login {
        user: "ada".parse().unwrap(),
        password: levee_ipc::Secret::new(b"a guess".to_vec()).unwrap(),
        code: None,
    });
    let elsewhere = world.connect("ws2");
    let own = Instant::now();
    elsewhere.sign_on("ada", ADA);
    let waited = own.elapsed();
    assert_eq!(refusal(&guesser.next().unwrap()), Some(RefusalKind::Credentials));
    assert!(start.elapsed() >= Duration::from_secs(1), "the guesser waits");
    assert!(waited < start.elapsed(), "and nobody waits for the guesser");
}

#[test]
fn a_level_outside_the_clearance_is_refused_and_changes_nothing() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    client.sign_on("ugo", UGO);
    let session = client.open("UNCLASSIFIED").session;
    let refused = client.level("SECRET");
    assert_eq!(refusal(&refused), Some(RefusalKind::Label), "{refused:?}");
    assert_eq!(refusal(&client.level("NOWHERE")), Some(RefusalKind::Label));
    match client.call(Request::Status) {
        Reply::Status(status) => assert_eq!(status.session.map(|(id, _)| id), Some(session)),
        other => panic!("{other:?}"),
    }
    let log = world.stop().log();
    assert!(log.lines().any(|line| line.contains("\"denied\"") && line.contains("\"SECRET\"")), "{log}");
}

#[test]
fn one_person_at_a_time_sits_at_a_workstation() {
    let world = World::start(Site::new());
    let first = world.connect("ws1");
    first.sign_on("ada", ADA);
    let second = world.connect("ws1");
    assert_eq!(refusal(&second.login("ugo", UGO)), Some(RefusalKind::AlreadyLoggedIn));
    assert_eq!(refusal(&first.login("ada", ADA)), Some(RefusalKind::AlreadyLoggedIn));
    assert_eq!(refusal(&second.level("UNCLASSIFIED")), Some(RefusalKind::NotLoggedIn));
    assert!(matches!(first.call(Request::Logout), Reply::LoggedOut));
    second.sign_on("ugo", UGO);
}

#[test]
fn a_dropped_trusted_path_is_resumed_by_the_same_workstation_alone() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    let session = client.open("SECRET").session;
    drop(client);
    let thief = world.connect("ws2");
    assert_eq!(refusal(&thief.call(Request::Resume(session))), Some(RefusalKind::NoSession));
    let client = world.connect("ws1");
    match client.call(Request::Resume(session)) {
        Reply::Resumed(status) => {
            assert_eq!(status.session, Some((session, label("SECRET"))));
            assert_eq!(status.user.unwrap().as_str(), "ada");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(client.call(Request::Logout), Reply::LoggedOut));
    assert_eq!(world.sessions_in_vaults(), 0);
}

#[test]
fn a_session_ends_when_its_trusted_path_stays_away() {
    let world = World::start(Site::new().with_grace("1s"));
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    let session = client.open("SECRET").session;
    drop(client);
    world.until("the session ends", |shared| shared.trace.iter().any(|line| line == "release SECRET"));
    let client = world.connect("ws1");
    assert_eq!(refusal(&client.call(Request::Resume(session))), Some(RefusalKind::NoSession));
}

#[test]
fn a_vault_that_does_not_close_is_killed_and_only_then_is_the_logout_acknowledged() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    client.open("SECRET");
    world.shared(|shared| shared.faults.vaults_keep_sessions = true);
    let start = Instant::now();
    assert!(matches!(client.call(Request::Logout), Reply::LoggedOut));
    assert!(start.elapsed() >= Duration::from_secs(1));
    let trace = world.trace();
    assert!(position(&trace, "kill SECRET") < position(&trace, "cut "), "{trace:#?}");
    assert!(position(&trace, "cut ") < position(&trace, "client LoggedOut"), "{trace:#?}");
}

#[test]
fn a_vault_whose_answer_waits_unread_while_sessiond_is_held_up_is_not_killed() {
    // On a busy host the vault's second may be over before sessiond is held up: that says nothing.
    let mut tries = (0..5).filter_map(|_| held_up());
    let trace = tries.next().expect("a host that is less busy");
    assert!(!trace.iter().any(|line| line == "kill SECRET"), "{trace:#?}");
}

/// What becomes of a vault that has answered while sessiond was held up; none where that began too late.
fn held_up() -> Option<Vec<String>> {
    use rustix::process::{Signal, kill_process};
    let world = World::start(Site::new());
    let (client, other) = (world.connect("ws1"), world.connect("ws2"));
    client.sign_on("ada", ADA);
    client.open("SECRET");
    world.shared(|shared| shared.faults.vaults_close_later = true);
    let begun = Instant::now();
    client.ask(Request::Logout);
    world.until("the vault is asked", |shared| !shared.closing.is_empty());
    // As a disk does that takes longer for a record. Somebody else is the first of whom it hears then.
    let signal = |signal| kill_process(world.child.pid, signal).unwrap();
    signal(Signal::STOP);
    let in_time = begun.elapsed() < Duration::from_millis(700);
    other.ask(Request::Releases);
    world.shared(|shared| shared.faults.vaults_close_later = false);
    world.until("it has answered", |shared| shared.closing.is_empty());
    std::thread::sleep(Duration::from_millis(1_200));
    signal(Signal::CONT);
    assert!(matches!(client.next(), Some(Reply::LoggedOut)));
    in_time.then(|| world.trace())
}

#[test]
fn a_vault_that_lives_and_says_nothing_of_a_posture_is_killed_when_its_time_is_over_and_keeps_no_other_posture()
 {
    let mut place = Site::new();
    place.site += "\n[[posture]]\nname = \"siege\"\nciphers = [\"chacha20-poly1305\"]\nfollow = \"2s\"\n";
    let world = World::start(place);
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    client.open("SECRET");
    world.shared(|shared| shared.faults.vaults_keep_keys = true);
    let set = |name: Option<&str>| {
        let what = Placed { posture: name.map(|name| name.parse().unwrap()), labels: None };
        let wish = operator::Posture { what, seconds: None, reason: "a drill".into() };
        let start = Instant::now();
        let done = world.operator(&operator::Command::Posture(wish));
        assert!(matches!(done, operator::Answer::Ended), "{done:?}");
        start.elapsed()
    };
    let took = set(Some("siege"));
    assert!(took >= Duration::from_secs(3), "it had its time, and a moment more: {took:?}");
    assert!(world.trace().iter().any(|line| line == "kill SECRET"), "{:#?}", world.trace());
    world.shared(|shared| shared.faults.vaults_keep_keys = false);
    set(None);
}

#[test]
fn a_logout_whose_sockets_cannot_be_cut_is_not_acknowledged() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    client.open("SECRET");
    world.shared(|shared| shared.faults.no_cut = true);
    let refused = client.call(Request::Logout);
    assert_eq!(refusal(&refused), Some(RefusalKind::Unavailable), "{refused:?}");
    world.shared(|shared| shared.faults.no_cut = false);
    // It is still pursued, and the next attempt finds it done.
    assert!(matches!(client.call(Request::Logout), Reply::LoggedOut));
}

#[test]
fn a_vault_that_dies_gets_its_sessions_back_and_their_workstations_are_asked_for_keys() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    let opened = client.open("SECRET");
    world.shared(|shared| shared.crash = Some(label("SECRET")));
    assert!(matches!(client.next(), Some(Reply::Renew { .. })));
    assert!(world.shared(|shared| shared.vaults[&label("SECRET")].contains_key(&opened.session)));
    let trace = world.trace();
    let renewed = trace.iter().rposition(|line| line == "renew SECRET").expect("the keyer is told");
    assert!(trace.iter().rposition(|line| line == "open SECRET").unwrap() < renewed, "{trace:#?}");
}

/// Asks sessiond what a keyer asks, and waits for the answer.
fn keys(world: &World, ticket: u64, device: &str, at: &str, range: Option<&str>) -> Option<KeyRecord> {
    let question = FromKeyer::Wanted {
        ticket,
        device: device.parse().unwrap(),
        label: label(at),
        accreditation: range.map(ToOwned::to_owned),
    };
    world.shared(|shared| shared.questions.push(question));
    world.until("an answer", |shared| shared.answers.iter().any(|(of, _)| *of == ticket));
    world.shared(|shared| shared.answers.iter().find(|(of, _)| *of == ticket).unwrap().1.clone())
}

#[test]
fn keys_are_for_a_host_that_has_a_session_at_that_label_now_and_within_its_certificates_range() {
    let world = World::start(Site::new());
    const ALL: Option<&str> = Some("UNCLASSIFIED..SECRET//NATO");
    assert_eq!(keys(&world, 1, "ws1", "SECRET", ALL), None, "nobody has a session");
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    assert_eq!(keys(&world, 2, "ws1", "SECRET", ALL), None, "signed on is not a session");
    let opened = client.open("SECRET");
    let record = keys(&world, 3, "ws1", "SECRET", ALL).expect("the session there is");
    assert_eq!((record.session, record.device.as_str()), (opened.session, "ws1"));
    assert_eq!((record.label.as_str(), &record.inner), ("SECRET", &opened.inner));
    let addresses: BTreeSet<_> = opened.reach.iter().map(|reached| reached.address.into()).collect();
    assert_eq!(record.reach, addresses.into_iter().collect::<Vec<_>>());
    // The workstation is told protocol and port of each thing, as the vault is.
    assert!(opened.reach.iter().all(|reached| [6, 17].contains(&reached.protocol) && reached.port > 0));
    for (ticket, device, at, range) in [
        (4, "ws2", "SECRET", ALL),
        (5, "ws1", "UNCLASSIFIED", ALL),
        (6, "ws1", "SECRET//NATO", ALL),
        (7, "ws1", "COSMIC", ALL),
        (8, "ws1", "SECRET", None),
        (9, "ws1", "SECRET", Some("UNCLASSIFIED")),
        (10, "ws1", "SECRET", Some("LOW..HIGH")),
        (11, "ws9", "SECRET", ALL),
    ] {
        assert_eq!(keys(&world, ticket, device, at, range), None, "{device} at {at} with {range:?}");
    }
    assert!(keys(&world, 12, "ws1", "SECRET", ALL).is_some());
    assert!(matches!(client.call(Request::Logout), Reply::LoggedOut));
    assert_eq!(keys(&world, 13, "ws1", "SECRET", ALL), None, "the session is over");
    drop(client);
    // What a certificate's accreditation does not cover is in the audit log: whose it was, at which label, and why not.
    let log = world.stop().log();
    for reason in [
        "its certificate has no accreditation",
        "its certificate is accredited for UNCLASSIFIED",
        "the accreditation in its certificate is not of this site",
    ] {
        let parts = [
            r#""host":"ws1","label":"SECRET","action":"negotiate","object":"SECRET","verdict":"denied""#,
            &format!(r#""reason":"{reason}""#),
        ];
        let records = log.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
        assert_eq!(records.count(), 1, "{reason}\n{log}");
    }
}

#[test]
fn an_operator_sees_sessions_and_ends_one() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    let opened = client.open("SECRET");
    let status = world.status();
    assert_eq!((status.session_count, status.sessions.len(), status.vaults.len()), (1, 1, 1));
    assert_eq!(
        status.steering,
        [("an SPI that none may have".to_owned(), 3)],
        "what the warden counts is shown"
    );
    let shown = &status.sessions[0];
    assert_eq!((shown.user.as_str(), shown.host.as_str(), shown.attached), ("ada", "ws1", true));
    assert_eq!(shown.id, opened.session.to_string());
    assert!(matches!(
        world.operator(&operator::Command::End("000000000000".into())),
        operator::Answer::Failed(_)
    ));
    assert!(matches!(world.operator(&operator::Command::End(shown.id.clone())), operator::Answer::Ended));
    assert_eq!(world.sessions_in_vaults(), 0);
    assert!(matches!(client.next(), Some(Reply::Ended { .. })));
    assert_eq!(world.status().session_count, 0);
}

#[test]
fn a_changed_password_is_the_one_that_counts() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    let secret = |text: &str| levee_ipc::Secret::new(text.as_bytes().to_vec()).unwrap();
    let change = |old: &str, new: &str| client.call(Request::Passwd { old: secret(old), new: secret(new) });
    assert_eq!(refusal(&change("wrong", "a new password")), Some(RefusalKind::Credentials));
    assert_eq!(refusal(&change(ADA, "short")), Some(RefusalKind::Unavailable));
    assert!(matches!(change(ADA, "a new password"), Reply::PasswordChanged));
    assert!(matches!(client.call(Request::Logout), Reply::LoggedOut));
    assert_eq!(refusal(&client.login("ada", ADA)), Some(RefusalKind::Credentials));
    client.sign_on("ada", "a new password");
}

#[test]
fn a_lock_survives_kills_of_sessiond_until_its_person_has_proved_themself_and_no_longer() {
    let secret = |text: &str| Secret::new(text.as_bytes().to_vec()).unwrap();
    let is_locked = |client: &Client, session| match client.call(Request::Resume(session)) {
        Reply::Resumed(status) => status.locked,
        other => panic!("{other:?}"),
    };
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    let session = client.open("SECRET").session;
    assert!(matches!(client.call(Request::Lock), Reply::Locked));
    let world = World::start(world.kill());
    let client = world.connect("ws1");
    assert!(is_locked(&client, session));
    world.until("its vault is told", |shared| {
        shared.vaults[&label("SECRET")].get(&session).is_some_and(|record| record.selectors.is_empty())
    });
    assert!(matches!(client.call(Request::Unlock { password: secret(ADA), code: None }), Reply::Unlocked));
    let world = World::start(world.kill());
    assert!(!is_locked(&world.connect("ws1"), session));
}

#[test]
fn sessions_survive_a_kill_of_sessiond() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    let kept = client.open("SECRET");
    let other = world.connect("ws2");
    other.sign_on("ugo", UGO);
    let gone = other.open("UNCLASSIFIED");
    assert!(matches!(other.call(Request::Logout), Reply::LoggedOut));
    let place = world.kill();
    place.shared.lock().unwrap().trace.clear();

    let world = World::start(place);
    world.until("the vault has the session again", |shared| {
        shared.trace.iter().any(|line| line == "synced SECRET")
    });
    assert!(world.shared(|shared| shared.vaults[&label("SECRET")].contains_key(&kept.session)));
    let trace = world.trace();
    assert!(position(&trace, "open SECRET") < position(&trace, "synced SECRET"), "{trace:#?}");
    let other = world.connect("ws2");
    assert_eq!(refusal(&other.call(Request::Resume(gone.session))), Some(RefusalKind::NoSession));
    let client = world.connect("ws1");
    assert!(matches!(client.call(Request::Resume(kept.session)), Reply::Resumed(_)));
    assert!(matches!(client.call(Request::Logout), Reply::LoggedOut));
    let place = world.kill();
    place.shared.lock().unwrap().trace.clear();

    let world = World::start(place);
    assert_eq!(world.status().session_count, 0);
    // The address that was given back rests across restarts.
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    for _ in 0..20 {
        assert_ne!(client.open("SECRET").inner, kept.inner);
    }
}

#[test]
fn a_session_does_not_go_on_where_the_hosts_clock_was_set_back_while_sessiond_did_not_run() {
    // By the wall clock alone it is known how long its person has been signed on.
    for (ahead, goes_on) in [(3_600_000, false), (-3_600_000, true)] {
        let world = World::start(Site::new());
        let client = world.connect("ws1");
        client.sign_on("ada", ADA);
        let session = client.open("SECRET").session;
        let place = world.kill();
        // As if the clock had been an hour ahead under this run, or behind.
        let file = place.directory.join("last-ran");
        let ran = std::fs::read_to_string(&file).unwrap();
        let wall = ran.split_ascii_whitespace().nth(2).unwrap();
        let then = (wall.parse::<i64>().unwrap() + ahead).to_string();
        std::fs::write(&file, ran.replace(wall, &then)).unwrap();
        let world = World::start(place);
        let client = world.connect("ws1");
        match client.call(Request::Resume(session)) {
            Reply::Resumed(_) => assert!(goes_on),
            other => assert!(!goes_on && refusal(&other) == Some(RefusalKind::NoSession), "{other:?}"),
        }
    }
}

#[test]
fn a_session_that_the_site_no_longer_grants_ends_at_the_next_start() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    let session = client.open("SECRET").session;
    let mut place = world.kill();
    place.shared.lock().unwrap().trace.clear();
    place.site = place.site.replace("UNCLASSIFIED..SECRET//NATO\"\n\n[[user]]", "UNCLASSIFIED\"\n\n[[user]]");

    let world = World::start(place);
    world.until("it is over", |shared| shared.trace.iter().any(|line| line == "release SECRET"));
    let trace = world.trace();
    assert!(!trace.iter().any(|line| line.starts_with("open ")), "{trace:#?}");
    assert!(position(&trace, "close SECRET") < position(&trace, "cut "), "{trace:#?}");
    assert!(position(&trace, "cut ") < position(&trace, "release SECRET"), "{trace:#?}");
    let client = world.connect("ws1");
    assert_eq!(refusal(&client.call(Request::Resume(session))), Some(RefusalKind::NoSession));
    assert!(world.stop().log().contains("is cleared for"));
}

#[test]
fn who_changes_level_in_a_loop_leaves_others_their_sessions_at_every_label_and_after_a_start() {
    // Room for thirteen sessions at a label.
    let mut site = Site::new();
    site.site = site.site.replace("10.81.0.0/16", "10.81.0.0/28");
    let mut world = World::start(site);
    for _ in 0..2 {
        let low = world.connect("ws2");
        low.sign_on("ugo", UGO);
        for n in 0..300 {
            let mut reply = low.level("UNCLASSIFIED");
            // On a busy host a vault may be late, and is replaced: then keys are to be agreed anew.
            while matches!(reply, Reply::Renew { .. }) {
                reply = low.next().unwrap();
            }
            assert!(matches!(reply, Reply::Opened(_)), "change {n}: {reply:?}");
        }
        let ada = world.connect("ws1");
        ada.sign_on("ada", ADA);
        for label in ["UNCLASSIFIED", "CONFIDENTIAL", "SECRET", "SECRET//NATO", "UNCLASSIFIED"] {
            ada.open(label);
        }
        assert!(matches!(ada.call(Request::Logout), Reply::LoggedOut));
        assert!(matches!(low.call(Request::Logout), Reply::LoggedOut));
        world = World::start(world.stop());
    }
}

#[test]
fn a_taken_over_tps_child_cannot_say_whose_connection_it_has() {
    let world = World::start(Site::new());
    let devices = &world.place.devices;
    let (mine, theirs) = ([3; 32], [4; 32]);
    // What ws2 has signed on a connection of its own.
    let other = world.child();
    let nonce = other.challenge(theirs);
    let overheard = devices.proof("ws2", &nonce, &theirs);
    type Forge<'a> = Box<dyn Fn(&[u8; 32]) -> Proof + 'a>;
    let forged: Vec<(&str, Forge)> = vec![
        (
            "its own signature under another's passport",
            Box::new(|nonce| Proof {
                sealed: devices.passport("ws2", |_| {}),
                signature: devices.sign("ws1", nonce, &mine),
            }),
        ),
        ("a proof for another connection", Box::new(|_| overheard.clone())),
        ("one for another number", Box::new(|nonce| devices.proof("ws2", nonce, &theirs))),
        (
            "its own passport with another's name",
            Box::new(|nonce| {
                let mut proof = devices.proof("ws1", nonce, &mine);
                proof.sealed.passport.device = levee_policy::HostName::new("ws2").unwrap();
                proof
            }),
        ),
        ("a passport of another authority", Box::new(|nonce| Devices::new().proof("ws2", nonce, &mine))),
        (
            "one that has run out",
            Box::new(|nonce| Proof {
                sealed: devices.passport("ws2", |passport| passport.not_after = 1_700_000_000),
                signature: devices.sign("ws2", nonce, &mine),
            }),
        ),
        (
            "one with a key of another length",
            Box::new(|nonce| {
                let mut proof = devices.proof("ws2", nonce, &mine);
                proof.sealed.passport.point.push(0);
                proof
            }),
        ),
    ];
    for (what, forge) in forged {
        let child = world.child();
        let nonce = child.challenge(mine);
        let answer = child.call_quietly(Request::Prove(Box::new(forge(&nonce))));
        assert_eq!(answer.as_ref().and_then(refusal), Some(RefusalKind::Protocol), "{what}: {answer:?}");
        assert!(child.call_quietly(Request::Status).is_none(), "{what}: it is cut");
    }
    // Nothing before the proof, and one proof each.
    let child = world.child();
    let password = Secret::new(ADA.as_bytes().to_vec()).unwrap();
    child.challenge(mine);
    assert!(
        child.call_quietly(Request::Login { user: "ada".parse().unwrap(), password, code: None }).is_none()
    );
    let child = world.connect("ws1");
    let again = devices.proof("ws2", &nonce, &mine);
    assert!(child.call_quietly(Request::Prove(Box::new(again))).is_none());
    // The honest ones are let in.
    assert!(matches!(other.call_quietly(Request::Prove(Box::new(overheard))), Some(Reply::Alive)));
    other.sign_on("ada", ADA);
}

#[test]
fn a_revoked_workstation_stays_out_whatever_was_restarted_before_the_list_came() {
    let mut site = Site::new();
    let devices = std::sync::Arc::clone(&site.devices);
    site.revoked = Some(devices.list(&[]));
    let world = World::start(site);
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    client.open("SECRET");
    // Killed, it has forgotten which certificate ws1 has shown; the session is there again.
    let world = World::start(world.kill());
    world.until("it is there", |shared| shared.vaults.values().any(|sessions| !sessions.is_empty()));
    world.revoke(&devices.list(&["ws1"]));
    world.until("it has ended", |shared| shared.vaults.values().all(|sessions| sessions.is_empty()));
    let refused = |world: &World| {
        let child = world.child();
        let nonce = child.challenge([3; 32]);
        let proof = devices.proof("ws1", &nonce, &[3; 32]);
        let answer = child.call_quietly(Request::Prove(Box::new(proof)));
        matches!(answer, Some(Reply::Refused { reason, .. }) if reason.contains("revoked"))
    };
    assert!(refused(&world));
    world.connect("ws2").sign_on("ada", ADA);
    // The next one reads the list at its start.
    let mut site = world.kill();
    site.revoked = Some(devices.list(&["ws1"]));
    let world = World::start(site);
    assert!(refused(&world));
}

/// What sessiond says to somebody who asks for a level all the same, until it hears them no more.
fn asks_in_vain(client: &Client) {
    let level = Request::Level(label("UNCLASSIFIED"), None);
    let _ = client.channel().send(&ChildToSessiond::Request(level));
    while let Some(reply) = receive::<Reply>(client.channel()) {
        assert!(matches!(reply, Reply::Ended { .. }), "{reply:?}");
    }
}

#[test]
fn a_workstation_that_is_revoked_asks_for_nothing_more_though_its_connection_is_up() {
    let world = World::start(Site::new());
    let (client, other) = (world.connect("ws1"), world.connect("ws2"));
    client.sign_on("ada", ADA);
    client.open("SECRET");
    other.sign_on("ugo", UGO);
    other.open("UNCLASSIFIED");
    let devices = std::sync::Arc::clone(&world.place.devices);
    world.revoke(&devices.list(&["ws1"]));
    world.until("it has ended", |shared| shared.vaults.values().map(BTreeMap::len).sum::<usize>() == 1);
    // The trusted path's server, which is to end the connection, hangs, or is somebody else's.
    asks_in_vain(&client);
    assert!(matches!(other.level("UNCLASSIFIED"), Reply::Opened(_)), "another one's goes on");
}

#[test]
fn of_a_workstation_that_was_enrolled_anew_what_the_revoked_certificate_began_ends_and_nothing_else() {
    let world = World::start(Site::new());
    let devices = std::sync::Arc::clone(&world.place.devices);
    let old = world.connect("ws1");
    old.sign_on("ada", ADA);
    old.open("SECRET");
    devices.enrol_anew("ws1", "ws1 anew");
    let new = world.connect("ws1");
    world.revoke(&devices.list(&["ws1"]));
    world.until("it has ended", |shared| shared.vaults.values().all(BTreeMap::is_empty));
    asks_in_vain(&old);
    new.sign_on("ada", ADA);
    new.open("SECRET");
    // Once more, by the same list: what the new one has begun stays.
    world.revoke(&devices.list(&["ws1"]));
    assert!(matches!(new.call(Request::Status), Reply::Status(status) if status.session.is_some()));
    assert_eq!(world.sessions_in_vaults(), 1);
}

#[test]
fn what_a_workstation_began_ends_with_its_certificate_and_another_ones_goes_on() {
    let world = World::start(Site::new());
    let devices = std::sync::Arc::clone(&world.place.devices);
    let (client, other) = (world.child(), world.connect("ws2"));
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let sealed = devices.passport("ws1", |passport| passport.not_after = now + 4);
    let signature = devices.sign("ws1", &client.challenge([3; 32]), &[3; 32]);
    let proved = client.call_quietly(Request::Prove(Box::new(Proof { sealed, signature })));
    assert!(matches!(proved, Some(Reply::Alive)));
    client.sign_on("ada", ADA);
    client.open("SECRET");
    other.sign_on("ugo", UGO);
    other.open("UNCLASSIFIED");
    assert_eq!(world.sessions_in_vaults(), 2);
    world.until("it has ended", |shared| shared.vaults.values().map(BTreeMap::len).sum::<usize>() == 1);
    asks_in_vain(&client);
    assert!(matches!(other.level("UNCLASSIFIED"), Reply::Opened(_)));
    assert!(world.stop().log().contains("the certificate of its workstation has run out"));
}

#[test]
fn a_session_does_not_come_back_at_what_another_label_is_called_after_a_migration() {
    let world = World::start(Site::new());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    let session = client.open("SECRET").session;
    let mut site = world.kill();
    // What was SECRET is TOP, and what was CONFIDENTIAL is SECRET.
    let levels = r#"["UNCLASSIFIED", "CONFIDENTIAL", "SECRET"]"#;
    assert!(site.site.contains(levels));
    site.site =
        site.site.replace(levels, r#"["UNCLASSIFIED", "SECRET", "TOP"]"#).replace("SECRET//", "TOP//");
    // As `levee state migrate` leaves it.
    let last = site.directory.join("last-ran");
    let boot = std::fs::read_to_string(&last).unwrap().split(' ').next().unwrap().to_owned();
    std::fs::write(&last, format!("{:<95}\n", format!("{boot} {0} {0}", u64::MAX))).unwrap();
    let world = World::start(site);
    let answer = world.connect("ws1").call(Request::Resume(session));
    assert_eq!(refusal(&answer), Some(RefusalKind::NoSession), "{answer:?}");
    world.until("no vault has it", |shared| shared.vaults.values().all(BTreeMap::is_empty));
}

#[test]
fn a_disabled_person_is_out_at_once_at_every_workstation_and_after_a_start_until_enabled() {
    let disable = |user: &str, disable| operator::Command::Disable(user.parse().unwrap(), disable);
    let mut world = World::start(Site::new());
    let (one, two) = (world.connect("ws1"), world.connect("ws2"));
    one.sign_on("ada", ADA);
    one.open("SECRET");
    two.sign_on("ugo", UGO);
    two.open("UNCLASSIFIED");
    assert!(matches!(world.operator(&disable("ada", true)), operator::Answer::Ended));
    assert_eq!(world.sessions_in_vaults(), 1, "ada's is over when the operator is told, ugo's goes on");
    assert!(matches!(two.level("UNCLASSIFIED"), Reply::Opened(_)));
    for _ in 0..2 {
        let refused = world.connect("ws1").login("ada", ADA);
        assert!(
            matches!(&refused, Reply::Refused { reason, .. } if reason.contains("disabled")),
            "{refused:?}"
        );
        // Who does not know the password does not learn it.
        let refused = world.connect("ws1").login("ada", "a guess at it");
        assert_eq!(refusal(&refused), Some(RefusalKind::Credentials));
        world = World::start(world.kill());
    }
    assert!(matches!(world.operator(&disable("nobody", true)), operator::Answer::Failed(_)));
    assert!(matches!(world.operator(&disable("ada", false)), operator::Answer::Ended));
    world.connect("ws1").sign_on("ada", ADA);
    let log = world.stop().log();
    for action in ["disable", "enable"] {
        assert!(log.contains(&format!(r#""user":"ada","action":"{action}","object":"person""#)), "{log}");
    }
}
