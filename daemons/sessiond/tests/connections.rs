//! A mediator asks about connections, against a real sessiond process; the test is the mediator.

mod common;

use common::*;
use levee_ipc::Channel;
use levee_ipc::client::{Reply, Request};
use levee_ipc::mediator::{Client as Who, MediatedSession, MediatorToSessiond, SessiondToMediator};
use levee_session::SessionId;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const MORE: &str = r#"
[[service]]
name = "shell"
port = 22
protocol = "tcp"
range = "SECRET..SECRET//NATO"
mode = "handoff"
command = ["/usr/sbin/sshd", "-i"]

[[network]]
interface = "ship0"
label = "SECRET"
address = "192.168.7.1/24"
services = ["shell"]
"#;

const LABEL: &str = "SECRET";

fn site() -> Site {
    let mut site = Site::new();
    site.site.push_str(MORE);
    site
}

/// A mediator at [`LABEL`]: its own view of its channel.
struct Mediator(Channel);

impl Mediator {
    fn attach(world: &World) -> Self {
        Self(world.attach_mediator(&label(LABEL)))
    }

    #[track_caller]
    fn hear(&self) -> SessiondToMediator {
        receive(&self.0).expect("a message")
    }

    /// Hears until all that there is has been named; the sessions.
    #[track_caller]
    fn synced(&self) -> Vec<MediatedSession> {
        let mut records = Vec::new();
        loop {
            match self.hear() {
                SessiondToMediator::Networks(networks) => {
                    assert_eq!(networks.len(), 1);
                    assert_eq!(networks[0].services, ["shell".parse().unwrap()]);
                }
                SessiondToMediator::Open(record) => {
                    self.0.send(&MediatorToSessiond::Opened(record.id)).unwrap();
                    records.push(record);
                }
                SessiondToMediator::Synced => return records,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Whether a connection is granted.
    #[track_caller]
    fn connect(&self, client: Who, service: &str, from: SocketAddr) -> bool {
        let service = service.parse().unwrap();
        self.0.send(&MediatorToSessiond::Connect { ticket: 7, client, service, from }).unwrap();
        loop {
            match self.hear() {
                SessiondToMediator::Pass(7) => return true,
                SessiondToMediator::Refuse(7) => return false,
                SessiondToMediator::Ping(number) => self.0.send(&MediatorToSessiond::Pong(number)).unwrap(),
                SessiondToMediator::Open(_) | SessiondToMediator::Synced => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_connection_is_granted_to_a_living_session_at_its_label_and_is_in_the_log_by_then() {
    let world = World::start(site());
    let mediator = Mediator::attach(&world);
    assert!(mediator.synced().is_empty());
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    client.ask(Request::Level(label(LABEL), None));
    let records = mediator.synced();
    assert_eq!(records.len(), 1);
    let record = &records[0];
    assert_eq!((record.user.as_str(), &record.services[..]), ("ada", &["shell".parse().unwrap()][..]));
    let Some(Reply::Opened(opened)) = client.next() else { panic!("no session") };
    assert_eq!((record.id, &record.inner), (opened.session, &opened.inner));

    let here = SocketAddr::new(opened.inner[0], 40_000);
    let session = || Who::Session(opened.session);
    let grants = |world: &World| world.place.log().matches("\"action\":\"connect\"").count();
    assert!(mediator.connect(session(), "shell", here));
    assert_eq!(grants(&world), 1, "it is in the log before it is answered");
    let line = world.place.log().lines().last().unwrap().to_owned();
    for part in ["\"user\":\"ada\"", "\"host\":\"ws1\"", "\"object\":\"shell\"", &here.to_string()] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(mediator.connect(
        Who::Network("ship0".parse().unwrap()),
        "shell",
        "192.168.7.9:5".parse().unwrap()
    ));
    assert_eq!(grants(&world), 2);

    let elsewhere = SocketAddr::new([10, 81, 255, 1].into(), 40_000);
    let other = SessionId::from_random([9; 16]);
    for (what, client, service, from) in [
        ("no session", Who::Session(other), "shell", here),
        ("another's address", session(), "shell", elsewhere),
        ("a service that nobody mediates", session(), "web", here),
        ("a service that there is not", session(), "mail", here),
        ("a network that there is not", Who::Network("ship1".parse().unwrap()), "shell", here),
        ("a service that the network has not", Who::Network("ship0".parse().unwrap()), "web", here),
    ] {
        assert!(!mediator.connect(client, service, from), "{what}");
    }
    assert_eq!(grants(&world), 2);
    let totals = world.status().counters;
    assert!(totals.contains(&("connections that no session or network has".to_owned(), 6)), "{totals:?}");
}

#[test]
fn where_the_site_says_written_a_grant_is_in_the_log_before_it_is_answered_and_a_kill_right_then_loses_none()
{
    let mut site = site();
    site.site = site.site.replace("mode = \"handoff\"\n", "mode = \"handoff\"\naudit = \"written\"\n");
    let world = World::start(site);
    let mediator = Mediator::attach(&world);
    mediator.synced();
    let grants = |log: String| log.matches("\"action\":\"connect\"").count();
    for count in 1..=20 {
        let host = "192.168.7.9:5".parse().unwrap();
        assert!(mediator.connect(Who::Network("ship0".parse().unwrap()), "shell", host));
        assert_eq!(grants(world.place.log()), count, "it is in the log before it is answered");
    }
    let site = world.kill();
    assert_eq!(grants(site.log()), 20);
    // The log goes on: each was sealed in its order. Only levee has failed, so nothing can be missing.
    let world = World::start(site);
    world.until("it has begun", |_| world.place.log().matches("\"action\":\"start\"").count() == 2);
    let log = world.place.log();
    assert!(!log.contains("may be missing"), "{log}");
    // The host has, if another run of it finds the file that says when sessiond last ran.
    let site = world.kill();
    let file = site.directory.join("last-ran");
    let ran = std::fs::read_to_string(&file).unwrap();
    let (boot, _) = ran.split_once(' ').unwrap();
    std::fs::write(&file, ran.replace(boot, &"0".repeat(boot.len()))).unwrap();
    let log = World::start(site).stop().log();
    assert_eq!(log.matches("may be missing").count(), 1, "{log}");
}

#[test]
fn a_session_is_over_when_its_mediator_has_ended_its_connections_or_is_replaced() {
    for dies in [false, true] {
        let world = World::start(site());
        let mediator = Mediator::attach(&world);
        mediator.synced();
        let client = world.connect("ws1");
        client.sign_on("ada", ADA);
        client.ask(Request::Level(label(LABEL), None));
        mediator.synced();
        let Some(Reply::Opened(opened)) = client.next() else { panic!("no session") };
        client.ask(Request::Logout);
        let SessiondToMediator::Close(id) = mediator.hear() else { panic!("the mediator is not told") };
        assert_eq!(id, opened.session);
        world.until("the vault has erased it", |shared| {
            shared.trace.iter().any(|line| line == "close SECRET")
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(world.trace().iter().all(|line| !line.starts_with("cut ")), "{:?}", world.trace());
        // What is asked meanwhile for a session that is on its way out is not granted.
        let from = SocketAddr::new(opened.inner[0], 40_000);
        assert!(!mediator.connect(Who::Session(id), "shell", from));
        if dies {
            let next = Mediator::attach(&world);
            assert!(next.synced().is_empty(), "the next one is not told of a session that ends");
        } else {
            mediator.0.send(&MediatorToSessiond::Closed(id)).unwrap();
        }
        assert!(matches!(client.next(), Some(Reply::LoggedOut)));
    }
}

#[test]
fn a_mediator_whose_answer_waits_behind_what_its_label_asks_is_not_killed() {
    use rustix::process::{Signal, kill_process};
    let world = World::start(site());
    let mediator = Mediator::attach(&world);
    mediator.synced();
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    client.ask(Request::Level(label(LABEL), None));
    mediator.synced();
    let Some(Reply::Opened(opened)) = client.next() else { panic!("no session") };
    client.ask(Request::Logout);
    let SessiondToMediator::Close(id) = mediator.hear() else { panic!("the mediator is not told") };
    world.until("the vault has erased it", |shared| shared.trace.iter().any(|line| line == "close SECRET"));
    let signal = |signal| kill_process(world.child.pid, signal).unwrap();
    signal(Signal::STOP);
    let from = SocketAddr::new(opened.inner[0], 40_000);
    for ticket in 1_000..1_200 {
        let service = "shell".parse().unwrap();
        let asks = MediatorToSessiond::Connect { ticket, client: Who::Session(id), service, from };
        mediator.0.send(&asks).unwrap();
    }
    mediator.0.send(&MediatorToSessiond::Closed(id)).unwrap();
    std::thread::sleep(Duration::from_millis(1_200));
    signal(Signal::CONT);
    assert!(matches!(client.next(), Some(Reply::LoggedOut)));
    assert!(!world.trace().iter().any(|line| line == "kill SECRET"), "{:#?}", world.trace());
}

#[test]
fn a_mediator_that_is_silent_or_says_what_is_no_message_is_killed_with_the_vault() {
    let world = World::start(site());
    let mediator = Mediator::attach(&world);
    mediator.synced();
    let kills = |world: &World| world.trace().iter().filter(|line| *line == "kill SECRET").count();
    mediator.0.send(&"no message of a mediator's").unwrap();
    let start = Instant::now();
    while kills(&world) == 0 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(world.status().counters.iter().any(|(name, _)| name.contains("a malformed message")));
    let mediator = Mediator::attach(&world);
    mediator.synced();
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    client.ask(Request::Level(label(LABEL), None));
    mediator.synced();
    let Some(Reply::Opened(_)) = client.next() else { panic!("no session") };
    client.ask(Request::Logout);
    let start = Instant::now();
    while kills(&world) < 2 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(matches!(client.next(), Some(Reply::LoggedOut)));
}

#[test]
fn one_person_has_so_many_connections_a_second_more_are_counted_and_not_written_and_others_have_theirs() {
    let mut site = site();
    site.site = site.site.replace("[limits]\n", "[limits]\nconnections = 1\n");
    let world = World::start(site);
    let mediator = Mediator::attach(&world);
    mediator.synced();
    let client = world.connect("ws1");
    client.sign_on("ada", ADA);
    client.ask(Request::Level(label(LABEL), None));
    mediator.synced();
    let Some(Reply::Opened(opened)) = client.next() else { panic!("no session") };
    let here = SocketAddr::new(opened.inner[0], 40_000);
    let before = Instant::now();
    let all = 200;
    let granted =
        (0..all).filter(|_| mediator.connect(Who::Session(opened.session), "shell", here)).count() as u64;
    let at_most = 10 + before.elapsed().as_secs() + 1;
    assert!((10..=at_most).contains(&granted), "{granted} of {all}, at most {at_most}");
    let lines = world.place.log().matches("\"action\":\"connect\"").count() as u64;
    assert_eq!(lines, granted, "what is not granted has no record of its own");
    // A host of a network has its own share.
    let host = || Who::Network("ship0".parse().unwrap());
    assert!(mediator.connect(host(), "shell", "192.168.7.9:5".parse().unwrap()));
    let what = "connections beyond the rate of one person or host";
    assert!(world.status().counters.contains(&(what.to_owned(), all - granted)));
}

#[test]
fn a_person_has_no_more_connections_recorded_by_many_sessions_than_by_one() {
    let mut site = site();
    site.site = site.site.replace("[limits]\n", "[limits]\nconnections = 1\n");
    let world = World::start(site);
    let mediator = Mediator::attach(&world);
    mediator.synced();
    let (before, mut granted) = (Instant::now(), 0);
    for _ in 0..4 {
        let client = world.connect("ws1");
        client.sign_on("ada", ADA);
        client.ask(Request::Level(label(LABEL), None));
        mediator.synced();
        let Some(Reply::Opened(opened)) = client.next() else { panic!("no session") };
        let here = SocketAddr::new(opened.inner[0], 40_000);
        let session = || Who::Session(opened.session);
        granted += (0..20).filter(|_| mediator.connect(session(), "shell", here)).count() as u64;
        client.ask(Request::Logout);
        let SessiondToMediator::Close(id) = mediator.hear() else { panic!("the mediator is not told") };
        mediator.0.send(&MediatorToSessiond::Closed(id)).unwrap();
        assert!(matches!(client.next(), Some(Reply::LoggedOut)));
    }
    let at_most = 10 + before.elapsed().as_secs() + 1;
    assert!((10..=at_most).contains(&granted), "{granted}, at most {at_most}");
    assert_eq!(world.place.log().matches("\"action\":\"connect\"").count() as u64, granted);
}

#[test]
fn a_host_of_a_network_has_no_more_connections_recorded_by_many_addresses_than_all_of_it_may() {
    let mut site = site();
    site.site = site.site.replace("[limits]\n", "[limits]\nconnections = 1\n");
    let world = World::start(site);
    let mediator = Mediator::attach(&world);
    mediator.synced();
    let (before, all) = (Instant::now(), 600);
    let from = |number: u16| SocketAddr::new([192, 168, 7, 2 + (number / 10) as u8].into(), 40_000);
    let host = || Who::Network("ship0".parse().unwrap());
    let granted = (0..all).filter(|number| mediator.connect(host(), "shell", from(*number))).count() as u64;
    let at_most = 16 * (10 + before.elapsed().as_secs() + 1);
    assert!((160..=at_most).contains(&granted), "{granted} of {all}, at most {at_most}");
    assert_eq!(world.place.log().matches("\"action\":\"connect\"").count() as u64, granted);
}
