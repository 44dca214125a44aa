//! Trusted paths of one workstation beside each other: who has the session, and who may do what over which of them.

mod server;

use levee_policy::decision::{Carry, Direction};
use levee_policy::{ServiceName, Site};
use levee_session::*;
use server::*;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");

fn hello(client: u64, device: &str) -> Event {
    Event::Hello { client: ClientId(client), device: device.parse().unwrap(), fingerprint: [1; 32] }
}

/// Whether this client was told this.
fn told(said: &[Output], client: u64, wanted: impl Fn(&Reply) -> bool) -> bool {
    has(said, |output| matches!(output, Output::Reply(of, reply) if of.0 == client && wanted(reply)))
}

fn refuses(said: &[Output], client: u64, kind: RefusalKind) -> bool {
    told(said, client, |reply| matches!(reply, Reply::Refused(of, _) if *of == kind))
}

fn cut_off(said: &[Output]) -> Vec<u64> {
    let cut = |output: &Output| match output {
        Output::Disconnect(client) => Some(client.0),
        _ => None,
    };
    said.iter().filter_map(cut).collect()
}

fn file() -> Carry {
    Carry { direction: Direction::Export, bytes: 1, digest: [7; 32] }
}

#[test]
fn a_workstation_has_eight_trusted_paths_and_idle_ones_of_its_own_make_room() {
    let (mut server, _) = Server::with_a_session();
    for client in 101..=120 {
        assert!(cut_off(&server.hear(hello(client, "ws2"))).is_empty() || client > 108);
    }
    // The first has a person, who stays whatever comes.
    for client in 2..=8 {
        assert!(cut_off(&server.hear(hello(client, "ws1"))).is_empty(), "{client}");
    }
    let mut gone = Vec::new();
    for client in 9..=20 {
        gone.extend(cut_off(&server.hear(hello(client, "ws1"))));
    }
    assert_eq!(gone, (2..=13).collect::<Vec<u64>>(), "the oldest of its own that nobody uses");
    let said = server.hear(Event::Request(CLIENT, Request::Status));
    assert!(told(&said, 1, |reply| matches!(reply, Reply::Status(status) if status.session.is_some())));
}

#[test]
fn a_path_that_is_in_use_makes_no_room() {
    let site = Site::parse(SITE).unwrap();
    let mut machine = Sessions::new(Arc::new(site), vec![], [], [], [7; 16], BEGIN);
    let mut now = |event| {
        machine.handle(event, BEGIN);
        std::iter::from_fn(|| machine.poll()).collect::<Vec<_>>()
    };
    // Eight whose passwords are being looked at.
    for client in 1..=8 {
        now(hello(client, "ws1"));
        now(Event::Request(ClientId(client), Request::Login("ada".parse().unwrap())));
    }
    assert_eq!(cut_off(&now(hello(9, "ws1"))), [9]);
    assert!(cut_off(&now(hello(10, "ws2"))).is_empty());
}

#[test]
fn another_path_of_the_workstation_has_nothing_of_its_session() {
    let (mut server, id) = Server::with_a_session();
    server.hear(hello(2, "ws1"));
    let said = server.hear(Event::Request(ClientId(2), Request::Status));
    assert!(told(&said, 2, |reply| matches!(reply, Reply::Status(status)
        if status.session.is_none() && status.user.is_none())));
    let said = server.hear(Event::Request(ClientId(2), Request::Carry(file())));
    assert!(refuses(&said, 2, RefusalKind::NoSession) && !told(&said, 2, |r| matches!(r, Reply::Carried)));
    let said = server.hear(Event::Request(ClientId(2), Request::Passwd));
    assert!(refuses(&said, 2, RefusalKind::NotLoggedIn));
    // Nor is anybody's password looked at there while somebody is signed on.
    let said = server.hear(Event::Request(ClientId(2), Request::Login("mia".parse().unwrap())));
    assert!(refuses(&said, 2, RefusalKind::AlreadyLoggedIn));
    assert!(!has(&said, |output| matches!(output, Output::Verify(..))));
    assert!(server.machine.live(id).is_some());
    // Its own path has it.
    let said = server.hear(Event::Request(CLIENT, Request::Carry(file())));
    assert!(told(&said, 1, |reply| matches!(reply, Reply::Carried)));
}

#[test]
fn a_file_is_carried_once_that_is_recorded_and_no_more_often_than_the_site_allows() {
    let (mut server, _) = Server::with_a_session();
    let carry = || Event::Request(CLIENT, Request::Carry(file()));
    let said = server.hear_with(carry(), false);
    assert!(is_reply(&said, is_unavailable) && !is_reply(&said, |reply| matches!(reply, Reply::Carried)));
    // 600 in a minute, twice as many at once; one was granted and not recorded.
    for n in 1..1_200 {
        assert!(is_reply(&server.hear(carry()), |reply| matches!(reply, Reply::Carried)), "{n}");
    }
    let said = server.hear(carry());
    assert!(refuses(&said, 1, RefusalKind::Carry) && has(&said, |output| matches!(output, Output::Audit(_))));
    server.now = server.now.after(Duration::from_millis(100));
    assert!(is_reply(&server.hear(carry()), |reply| matches!(reply, Reply::Carried)));
}

#[test]
fn a_password_is_changed_once_that_is_recorded() {
    let (mut server, _) = Server::with_a_session();
    let stores = |said: &[Output]| has(said, |output| matches!(output, Output::StorePassword(..)));
    let said = server.hear_with(Event::Request(CLIENT, Request::Passwd), false);
    assert!(is_reply(&said, is_unavailable) && !stores(&said));
    let said = server.hear(Event::Request(CLIENT, Request::Passwd));
    assert!(stores(&said) && !is_reply(&said, |reply| matches!(reply, Reply::PasswordChanged)));
    let said = server.hear(Event::PasswordStored(CLIENT, true));
    assert!(is_reply(&said, |reply| matches!(reply, Reply::PasswordChanged)));
}

#[test]
fn a_session_goes_on_over_the_path_that_takes_it_up_within_its_grace_and_over_no_other() {
    // Over another one while the first has not been missed.
    let (mut server, id) = Server::with_a_session();
    server.hear(hello(2, "ws1"));
    let said = server.hear(Event::Request(ClientId(2), Request::Resume(id)));
    assert!(told(&said, 2, |reply| matches!(reply, Reply::Resumed(status) if status.session.is_some())));
    assert_eq!(cut_off(&said), [1]);
    let said = server.hear(Event::Request(ClientId(2), Request::Carry(file())));
    assert!(told(&said, 2, |reply| matches!(reply, Reply::Carried)));
    // Thirty seconds after the last one is gone, and no later.
    for (late, good) in [(Duration::from_millis(1), true), (Duration::ZERO, false)] {
        let (mut server, id) = Server::with_a_session();
        server.hear(Event::Gone(CLIENT));
        server.hear(hello(2, "ws1"));
        server.now = server.now.after(Duration::from_secs(30)).before(late);
        let said = server.hear(Event::Request(ClientId(2), Request::Resume(id)));
        assert_eq!(told(&said, 2, |reply| matches!(reply, Reply::Resumed(_))), good, "{late:?}");
        assert_eq!(refuses(&said, 2, RefusalKind::NoSession), !good, "{late:?}");
    }
    // Not while somebody signs on there: they would end it next.
    let (mut server, id) = Server::with_a_session();
    server.hear(Event::Gone(CLIENT));
    server.hear(hello(2, "ws1"));
    server.hear(hello(3, "ws1"));
    let login = Event::Request(ClientId(2), Request::Login("mia".parse().unwrap()));
    server.machine.handle(login, server.now);
    let verified = Event::Verified(ClientId(2), Verified::Right(None));
    server.machine.handle(verified, server.now);
    let mut commits = Vec::new();
    while let Some(output) = server.machine.poll() {
        if let Output::Commit(commit, ..) = output {
            commits.push(commit);
        }
    }
    let said = server.hear(Event::Request(ClientId(3), Request::Resume(id)));
    assert!(refuses(&said, 3, RefusalKind::AlreadyLoggedIn), "{said:?}");
    assert_eq!(commits.len(), 1);
}

#[test]
fn a_code_is_taken_once_and_none_before_it_after() {
    let site = SITE.replacen("name = \"ada\"", "name = \"ada\"\nsecond-factor = \"totp\"", 1);
    let machine = Sessions::new(Arc::new(Site::parse(&site).unwrap()), vec![], [], [], [7; 16], BEGIN);
    let mut server = Server { machine, now: BEGIN };
    for (n, (step, good)) in
        [(None, false), (Some(5), true), (Some(5), false), (Some(4), false), (None, false), (Some(6), true)]
            .into_iter()
            .enumerate()
    {
        // Each has waited for as long as anybody has to.
        server.now = server.now.after(Duration::from_secs(3_600));
        let client = ClientId(n as u64 + 1);
        server.hear(hello(client.0, "ws1"));
        let login = Event::Request(client, Request::Login("ada".parse().unwrap()));
        server.machine.handle(login, server.now);
        server.machine.handle(Event::Verified(client, Verified::Right(step)), server.now);
        let said = server.hear(Event::Tick);
        assert_eq!(told(&said, client.0, |reply| matches!(reply, Reply::LoggedIn(_))), good, "{n}");
        assert_eq!(refuses(&said, client.0, RefusalKind::Credentials), !good, "{n}");
        server.hear(Event::Gone(client));
    }
}

#[test]
fn a_connection_is_a_sessions_own_from_its_own_address_at_its_own_label() {
    let (server, id) = Server::with_a_session_at(&SITE.replacen("mode = \"direct\"", "mode = \"relay\"", 1));
    let service = |name: &str| name.parse::<ServiceName>().unwrap();
    let shown = server.machine.live(id).expect("it lives");
    let from = shown.inner[0];
    let other: IpAddr = "10.80.1.254".parse().unwrap();
    assert_ne!(from, other);
    let connects = |id, at: &str, from, name: &str| {
        server.machine.connect(id, &at.parse().unwrap(), from, &service(name)).is_some()
    };
    assert!(connects(id, "SECRET", from, "web"));
    assert!(!connects(id, "CONFIDENTIAL", from, "web") && !connects(id, "SECRET", other, "web"));
    assert!(!connects(id, "SECRET", from, "another"));
    assert!(!connects(SessionId::from_random([8; 16]), "SECRET", from, "web"));
}

#[test]
fn a_password_that_has_to_wait_is_not_looked_at_when_something_else_is_due() {
    let site = Site::parse(&SITE.replacen("slots = 64", "idle-lock = \"5m\"\nslots = 64", 1)).unwrap();
    let machine = Sessions::new(Arc::new(site), vec![], [], [], [7; 16], BEGIN);
    let mut server = Server { machine, now: BEGIN };
    server.hear(hello(1, "ws1"));
    server.hear(Event::Request(CLIENT, Request::Login("ada".parse().unwrap())));
    let after = |seconds| BEGIN.after(Duration::from_secs(seconds));
    let mut hear = |event, now| {
        server.machine.handle(event, now);
        let said: Vec<_> = std::iter::from_fn(|| server.machine.poll()).collect();
        has(&said, |output| matches!(output, Output::Verify(..)))
    };
    // Wrong ones, each as soon as it may be: the ninth waits until one second after the five minutes.
    let mut now = 240;
    for wait in [0, 0, 0, 1, 2, 4, 8, 16] {
        assert_eq!(hear(Event::Request(CLIENT, Request::Passwd), after(now)), wait == 0);
        now += wait;
        assert!(wait == 0 || hear(Event::Tick, after(now)));
        hear(Event::Verified(CLIENT, Verified::Wrong), after(now));
    }
    assert_eq!(now, 271);
    assert!(!hear(Event::Request(CLIENT, Request::Passwd), after(271)));
    assert!(!hear(Event::Tick, after(300)), "five minutes since the sign-on");
    assert!(hear(Event::Tick, after(301)));
}

#[test]
fn a_workstation_that_the_site_does_not_have_gets_no_trusted_path() {
    let (mut server, _) = Server::with_a_session();
    assert_eq!(cut_off(&server.hear(hello(2, "ws9"))), [2]);
    let said = server.hear(Event::Request(ClientId(2), Request::Login("ada".parse().unwrap())));
    assert!(!has(&said, |output| matches!(output, Output::Verify(..))), "{said:?}");
}

#[test]
fn a_code_that_was_taken_before_a_start_is_not_taken_after_it() {
    let site = SITE.replacen("name = \"ada\"", "name = \"ada\"\nsecond-factor = \"totp\"", 1);
    for (step, good) in [(4, false), (5, false), (6, true)] {
        let mut machine =
            Sessions::new(Arc::new(Site::parse(&site).unwrap()), vec![], [], [], [7; 16], BEGIN);
        machine.remember_codes([("ada".parse().unwrap(), 5)]);
        let mut server = Server { machine, now: BEGIN };
        server.hear(hello(1, "ws1"));
        server.machine.handle(Event::Request(CLIENT, Request::Login("ada".parse().unwrap())), BEGIN);
        server.machine.handle(Event::Verified(CLIENT, Verified::Right(Some(step))), BEGIN);
        let said = server.hear(Event::Tick);
        assert_eq!(told(&said, 1, |reply| matches!(reply, Reply::LoggedIn(_))), good, "{step}");
    }
}

#[test]
fn the_record_of_a_request_that_is_over_grants_nothing_to_the_next() {
    let site = Site::parse(SITE).unwrap();
    let machine = Sessions::new(Arc::new(site), vec![], [], [], [7; 16], BEGIN);
    let mut server = Server { machine, now: BEGIN };
    // What is to be recorded waits for the test.
    let ask = |server: &mut Server, request: Request| {
        server.machine.handle(Event::Request(CLIENT, request), BEGIN);
        server.machine.handle(Event::Verified(CLIENT, Verified::Right(None)), BEGIN);
        let mut commits = std::iter::from_fn(|| server.machine.poll()).filter_map(|output| match output {
            Output::Commit(commit, ..) => Some(commit),
            _ => None,
        });
        commits.next().expect("it is to be recorded")
    };
    let login = || Request::Login("ada".parse().unwrap());
    server.hear(hello(1, "ws1"));
    let first = ask(&mut server, login());
    server.hear(Event::Gone(CLIENT));
    server.hear(hello(1, "ws1"));
    let second = ask(&mut server, login());
    let logged_in = |said: &[Output]| told(said, 1, |reply| matches!(reply, Reply::LoggedIn(_)));
    assert!(!logged_in(&server.hear(Event::Committed(first, true))));
    assert!(logged_in(&server.hear(Event::Committed(second, true))));
    // So with a password that is to be another.
    let first = ask(&mut server, Request::Passwd);
    server.hear(Event::Gone(CLIENT));
    server.hear(hello(1, "ws1"));
    server.hear(Event::Request(CLIENT, login()));
    let second = ask(&mut server, Request::Passwd);
    let stores = |said: &[Output]| has(said, |output| matches!(output, Output::StorePassword(..)));
    assert!(!stores(&server.hear(Event::Committed(first, true))));
    assert!(stores(&server.hear(Event::Committed(second, true))));
}

#[test]
fn an_end_that_the_store_does_not_take_is_in_the_log_once_and_pursued() {
    let (mut server, id) = Server::with_a_session();
    server.hear(Event::Request(CLIENT, Request::Logout));
    // A log that is written, before a store that is not, for half a minute.
    let (mut records, mut refused) = (0, 0);
    let mut event = Event::VaultClosed(label(), id);
    for second in 0..60 {
        let mut events = vec![std::mem::replace(&mut event, Event::Tick)];
        while let Some(event) = events.pop() {
            server.machine.handle(event, server.now);
            while let Some(output) = server.machine.poll() {
                match output {
                    Output::Cut(cut, ..) => events.push(Event::Cut(cut, Some(1))),
                    Output::Commit(commit, entries, changes) => {
                        records += entries.len();
                        let durable = changes.is_empty() || second >= 30;
                        server.machine.handle(Event::Committed(commit, durable), server.now);
                    }
                    Output::Reply(CLIENT, reply) if is_unavailable(&reply) => refused += 1,
                    _ => {}
                }
            }
        }
        server.now = server.now.after(Duration::from_secs(1));
        assert_eq!(server.machine.shown().all(|shown| shown.id != id), second >= 30, "{second}");
    }
    assert_eq!((records, refused), (1, 1));
}

#[test]
fn however_much_is_said_of_why_a_session_ends_its_record_is_none_that_is_too_long() {
    // By what reads etcd's answers, by process 1 of its label.
    let why = "because ".repeat(8_000);
    for event in [Event::Fence(why.clone()), Event::LabelFailed(label(), why)] {
        let (mut server, id) = Server::with_a_session();
        let mut said = server.hear(event);
        said.extend(server.hear(Event::VaultClosed(label(), id)));
        for cut in cuts(&said) {
            said.extend(server.hear(Event::Cut(cut, Some(0))));
        }
        let reasons = said.iter().filter_map(|output| match output {
            Output::Commit(_, entries, _) => Some(entries.iter().map(|entry| entry.reason.len())),
            _ => None,
        });
        let reasons: Vec<usize> = reasons.flatten().collect();
        assert!(reasons.len() == 1 && reasons[0] <= 300, "{reasons:?}");
        assert!(server.machine.shown().all(|shown| shown.id != id));
    }
}
