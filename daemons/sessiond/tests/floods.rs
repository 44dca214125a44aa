//! Any of sessiond's peers may say anything at any rate and never read: that costs a bounded amount of memory, and nobody else their
//! turn.

mod common;

use common::*;
use levee_hostile::{Flood, flood};
use levee_ipc::Channel;
use levee_ipc::client::{ChildToSessiond, Dropped, Reply, Request, TpsToSessiond};
use levee_ipc::device::{Curve, Proof};
use levee_ipc::federation::{self, Envelope, Heard};
use levee_ipc::guard::{GuardToSessiond, SessiondToGuard};
use levee_ipc::keyer::FromKeyer;
use levee_ipc::mediator::{self, MediatorToSessiond};
use levee_ipc::signer::FromSigner;
use levee_ipc::vault::{Report, VaultToSessiond};
use levee_ipc::warden::sessiond::SessiondPart;
use levee_policy::HostName;
use levee_session::SessionId;
use std::time::Duration;

/// Of a peer that is not cut off.
const WHILE: Duration = Duration::from_secs(1);
/// Of one that is to be, sooner or later.
const LONG: Duration = Duration::from_secs(60);

fn session(number: u64) -> SessionId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    SessionId::from_random(id)
}

/// Whether nothing is lost but what the peer itself has: memory is bounded, and operators are answered.
fn bears(world: &World, what: &str, attack: impl FnOnce() -> Flood) -> Flood {
    let flood = levee_hostile::bears(world.child.pid.as_raw_nonzero().get(), what, attack);
    world.status();
    flood
}

/// Floods: keyer → sessiond; mediator → sessiond.
#[test]
fn a_keyer_or_mediator_that_asks_and_never_reads_is_cut_off_and_replaced() {
    let world = World::start(Site::new());
    let keyer = world.give(SessiondPart::Keyer);
    let wanted = |ticket| FromKeyer::Wanted {
        ticket,
        device: HostName::new("ws1").unwrap(),
        label: label("SECRET"),
        accreditation: Some("UNCLASSIFIED..SECRET//NATO".into()),
    };
    assert!(bears(&world, "a keyer", || flood(&keyer, LONG, wanted)).cut);
    world.until("another keyer", |shared| shared.trace.iter().any(|line| line == "replace Keyer"));

    let at = label("SECRET");
    let mediator = world.attach_mediator(&at);
    let connect = |ticket| MediatorToSessiond::Connect {
        ticket,
        client: mediator::Client::Session(session(ticket)),
        service: "web".parse().unwrap(),
        from: "10.81.0.9:4000".parse().unwrap(),
    };
    assert!(bears(&world, "a mediator", || flood(&mediator, LONG, connect)).cut);
    world.until("the mediator killed", |shared| shared.trace.iter().any(|line| line == "kill SECRET"));
    assert!(world.connect("ws1").sign_on("ada", ADA).labels.len() > 1);
}

#[test]
fn a_keyer_that_closes_its_channel_and_is_not_followed_by_another_is_replaced() {
    let world = World::start(Site::new());
    drop(world.give(SessiondPart::Keyer));
    world.until("another keyer", |shared| shared.trace.iter().any(|line| line == "replace Keyer"));
}

/// Floods: vault or gate → sessiond; mediator → sessiond; keyer → sessiond; tps → sessiond; signer → sessiond.
#[test]
fn whoever_says_anything_at_any_rate_costs_a_bounded_amount_and_others_are_served() {
    let world = World::start(Site::new());
    let give = |part| -> Channel { world.give(part) };
    let at = || SessiondPart::Vault { label: label("SECRET"), slot: 1 };

    let vault = give(at());
    bears(&world, "a vault: disagreements", || flood(&vault, WHILE, VaultToSessiond::Disagreed));
    bears(&world, "a vault: openings", || flood(&vault, WHILE, |n| VaultToSessiond::Opened(session(n))));
    let report = |n: u64| {
        let counters = (0..200).map(|other| (format!("counter {n} {other}"), n)).collect();
        VaultToSessiond::Report(Report { counters, ..Report::default() })
    };
    bears(&world, "a vault: reports", || flood(&vault, WHILE, report));
    // However often that was said, the log has a record a second.
    let records = world.place.log().matches("redundant stacks").count();
    assert!((1..20).contains(&records), "{records}");

    let mediator = world.attach_mediator(&label("SECRET"));
    let counters = |n: u64| MediatorToSessiond::Report((0..200).map(|o| (format!("{n} {o}"), n)).collect());
    bears(&world, "a mediator: reports", || flood(&mediator, WHILE, counters));
    let keyer = give(SessiondPart::Keyer);
    bears(&world, "a keyer: sessions without peer", || {
        flood(&keyer, WHILE, |n| FromKeyer::NoPeer(session(n)))
    });
    let dropped = |n: u64| FromKeyer::Dropped((0..200).map(|o| (format!("{n} {o}"), n)).collect());
    bears(&world, "a keyer: drops of ever new names", || flood(&keyer, WHILE, dropped));
    let ppk = |n: u64| FromKeyer::NewPpk {
        device: HostName::new(&format!("ws{n}")).unwrap(),
        id: levee_policy::PpkId::new(&format!("ppk-{n}")).unwrap(),
    };
    bears(&world, "a keyer: PPKs of ever new hosts", || flood(&keyer, WHILE, ppk));
    let tps = give(SessiondPart::Tps);
    let dropped = |n: u64| {
        let one = |o| Dropped { reason: format!("{n} {o}"), from: None, count: n };
        TpsToSessiond::Dropped((0..200).map(one).collect())
    };
    bears(&world, "the trusted path's server", || flood(&tps, WHILE, dropped));
    let signer = give(SessiondPart::Signer);
    bears(&world, "a signer", || {
        flood(&signer, WHILE, |n| FromSigner::Signature(vec![7; n as usize % 4_000]))
    });

    let what_is_no_message = || vec![0xffu8; 5_000];
    for (name, part) in [
        ("the trusted path's server", SessiondPart::Tps),
        ("a keyer", SessiondPart::Keyer),
        ("a signer", SessiondPart::Signer),
        ("a vault", at()),
    ] {
        let channel = give(part);
        assert!(bears(&world, name, || flood(&channel, LONG, |_| what_is_no_message())).cut, "{name}");
    }
}

/// Floods: tps child → sessiond.
#[test]
fn a_child_of_the_trusted_path_that_asks_and_never_reads_costs_little_and_others_sign_on() {
    let world = World::start(Site::new());
    let child = world.connect("ws2");
    let asks = |_| ChildToSessiond::Request(Request::Status);
    // It is cut off, or not heard any more until it has taken what it was told: which of the two is a matter of who is faster.
    bears(&world, "a child", || flood(child.channel(), WHILE, asks));
    assert!(world.connect("ws1").sign_on("ada", ADA).labels.len() > 1);
}

#[test]
fn a_guards_process_has_no_more_recorded_than_twice_what_the_site_lets_pass_however_often_it_begins_anew() {
    let partition = |name: &str, label: &str| {
        format!(
            "\n[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/usr/bin/true\"]\nmemory = \"96M\"\ndisk = \"8M\"\n"
        )
    };
    let mut site = Site::new();
    site.site += &["writer", "checker"].map(|name| partition(name, "SECRET")).concat();
    site.site += &partition("reader", "UNCLASSIFIED");
    site.site += "\n[[channel]]\nname = \"down\"\nkind = \"guard\"\nfrom = \"writer\"\nfilter = \"checker\"\nto = \"reader\"\n\
                  messages = \"10 in 1h\"\noctets = \"64K in 1h\"\n";
    let world = World::start(site);
    let mut passed = 0;
    for _ in 0..2 {
        let guard = world.give(SessiondPart::Guard("guard/down".parse().unwrap()));
        for ticket in 0..50 {
            guard.send(&GuardToSessiond::Ask { ticket, digest: [7; 32], octets: 9 }).unwrap();
            let answer = guard.recv::<SessiondToGuard>().unwrap().message;
            passed += usize::from(matches!(answer, SessiondToGuard::Pass(of) if of == ticket));
        }
    }
    let recorded = world.place.log().matches("\"action\":\"pass\"").count();
    assert_eq!((passed, recorded), (20, 20));
}

#[test]
fn trusted_paths_that_show_no_device_keep_nobody_who_shows_one_away() {
    let world = World::start(Site::new());
    let known = world.connect("ws1");
    // A host with a certificate begins as many as it likes, from as many addresses, and says no more than it must.
    let unshown: Vec<(Client, [u8; 32])> = (0..1_200)
        .map(|_| {
            let child = world.child();
            let nonce = child.challenge([3; 32]);
            (child, nonce)
        })
        .collect();
    // Of 1,200 the 1,024 newest are there.
    for (at, goes_on) in [(0, false), (175, false), (176, true), (1_199, true)] {
        let (child, nonce) = &unshown[at];
        let proof = world.place.devices.proof("ws2", nonce, &[3; 32]);
        let proved = child.call_quietly(Request::Prove(Box::new(proof)));
        assert_eq!(matches!(proved, Some(Reply::Alive)), goes_on, "{at}: {proved:?}");
    }
    known.sign_on("ada", ADA);
}

#[test]
fn while_many_show_whose_they_are_everybody_else_is_heard_in_between() {
    use rustix::process::{Signal, kill_process};
    let world = World::start(Site::new());
    let known = world.connect("ws1");
    let mut shown: Vec<(Client, Proof)> = Vec::new();
    for _ in 0..400 {
        let child = world.child();
        let nonce = child.challenge([3; 32]);
        // Its passport is good, and its signature is of another connection.
        shown.push((child, world.place.devices.proof("ws2", &nonce, &[4; 32])));
    }
    let signal = |signal| kill_process(world.child.pid, signal).unwrap();
    signal(Signal::STOP);
    for (child, proof) in &shown {
        child.ask(Request::Prove(Box::new(proof.clone())));
    }
    known.ask(Request::KeepAlive);
    signal(Signal::CONT);
    assert!(matches!(known.next(), Some(Reply::Alive)));
    signal(Signal::STOP);
    let answered = |(child, _): &&(Client, Proof)| child.channel().try_recv::<Reply>().is_ok();
    let before = shown.iter().filter(answered).count();
    signal(Signal::CONT);
    assert!(before < 200, "{before} were looked at first");
    assert_eq!(shown.iter().filter(|(child, _)| child.next().is_some()).count(), 400 - before);
}

#[test]
fn the_trusted_paths_server_is_heard_as_far_as_its_share_goes() {
    let world = World::start(Site::new());
    let tps = world.give(SessiondPart::Tps);
    let reason = "x".repeat(60_000);
    let dropped = |count| TpsToSessiond::Dropped(vec![Dropped { reason: reason.clone(), from: None, count }]);
    let flood = bears(&world, "the trusted path's server", || flood(&tps, WHILE, dropped));
    assert!(flood.said < 300, "{flood:?}");
    assert!(!flood.cut, "it is not ended for that");
}

/// The same server with another, which it never hears of but by the client of the table.
fn federated() -> Site {
    let mut site = Site::new();
    site.site += "\n[federation]\netcd = [\"10.77.0.9:2379\"]\netcd-name = \"etcd.example\"\n\
                  \n[[federation.peer]]\nname = \"two.example\"\naddress = \"10.77.0.8\"\n\
                  inner-address = \"10.80.0.2\"\ninner-pool = \"10.82.0.0/16\"\n";
    site
}

/// Floods: fsd → sessiond.
#[test]
fn a_client_of_the_table_that_tells_without_end_costs_little_and_what_is_no_message_has_it_replaced() {
    let world = World::start(federated());
    let two = || -> levee_policy::DomainName { "two.example".parse().unwrap() };
    // In a form that is read, by an authority that it is not.
    let passport = federation::Passport {
        server: two(),
        serial: vec![2; 20],
        not_after: 9,
        curve: Curve::P256,
        point: vec![4; 65],
    };
    let sealed = federation::Sealed { passport, signature: vec![5; 70] };
    let envelope = Envelope { sealed, statement: vec![0; 20_000], signature: vec![6; 70] }.encode().unwrap();
    let told = |attempt: u64| Heard::Told { attempt: attempt % 4, envelope: envelope.clone() };
    let page =
        |n: u64| Heard::Page { attempt: n % 4, server: two(), page: n as u16, bytes: vec![n as u8; 30_000] };
    let fsd = world.give(SessiondPart::Fsd);
    bears(&world, "statements", || flood(&fsd, WHILE, told));
    bears(&world, "pages", || flood(&fsd, WHILE, page));
    bears(&world, "joined", || flood(&fsd, WHILE, |n| Heard::Joined { attempt: n % 4 }));
    bears(&world, "written", || flood(&fsd, WHILE, |number| Heard::Written { attempt: number % 4, number }));
    bears(&world, "strange things", || {
        flood(&fsd, WHILE, |n| Heard::Strange { attempt: n % 4, count: u64::MAX - n })
    });
    let before = world.place.log().lines().count();
    bears(&world, "losses", || {
        flood(&fsd, WHILE, |n| Heard::Lost { attempt: n % 4, reason: format!("{n} {}", "x".repeat(200)) })
    });
    let records = world.place.log().lines().count() - before;
    assert!(records < 40, "{records} records");
    let nonsense = bears(&world, "nonsense", || flood(&fsd, LONG, |_| vec![0xffu8; 5_000]));
    assert!(nonsense.cut);
    world.until("another fsd", |shared| shared.trace.iter().any(|line| line == "replace Fsd"));
}

/// Floods: guard → sessiond.
#[test]
fn a_guard_that_asks_without_end_costs_little_and_others_are_served() {
    let world = World::start(Site::new());
    let guard = || world.give(SessiondPart::Guard("guard/down".parse().unwrap()));
    let asks = |ticket| GuardToSessiond::Ask { ticket, digest: [7; 32], octets: 9 };
    let asked = guard();
    // A guard that the site does not have: each is refused, and never read.
    bears(&world, "questions", || flood(&asked, WHILE, asks));
    let offers = |ticket| GuardToSessiond::Offer { ticket, content: vec![7; 30_000] };
    let offered = guard();
    bears(&world, "offers", || flood(&offered, WHILE, offers));
    let nonsense = guard();
    assert!(bears(&world, "nonsense", || flood(&nonsense, LONG, |_| vec![0xffu8; 5_000])).cut);
    assert!(world.connect("ws1").sign_on("ada", ADA).labels.len() > 1);
}

/// Floods: `levee` → sessiond.
#[test]
fn an_operators_command_that_says_more_than_one_thing_is_cut_off() {
    let world = World::start(Site::new());
    let operator = world.operator_connected();
    let asked =
        bears(&world, "an operator", || flood(&operator, LONG, |_| levee_ipc::operator::Command::Status));
    assert!(asked.cut, "{asked:?}");
}
