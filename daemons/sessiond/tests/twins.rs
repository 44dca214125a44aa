//! A process that is taken over speaks for itself alone: what it says of another label's session, or of another's device, is nothing.

mod common;

use common::*;
use levee_ipc::client::{Reply, Request};
use levee_ipc::keyer::FromKeyer;
use levee_ipc::mediator::{Client as Who, MediatorToSessiond, SessiondToMediator};
use levee_ipc::vault::{Report, VaultToSessiond};
use levee_ipc::warden::sessiond::SessiondPart;
use levee_policy::HostName;
use std::net::SocketAddr;

const MORE: &str = r#"
[[service]]
name = "shell"
port = 22
protocol = "tcp"
range = "UNCLASSIFIED..SECRET//NATO"
mode = "handoff"
command = ["/usr/sbin/sshd", "-i"]
"#;

fn world() -> World {
    let mut site = Site::new();
    site.site.push_str(MORE);
    World::start(site)
}

#[test]
fn what_a_vault_or_mediator_says_of_another_labels_session_is_nothing() {
    let world = world();
    let victim = world.connect("ws1");
    victim.sign_on("ada", ADA);
    let opened = victim.open("SECRET");
    let id = opened.session;
    let before = world.place.log().len();

    let low = label("UNCLASSIFIED");
    let vault = world.give(SessiondPart::Vault { label: low.clone(), slot: 9 });
    let mediator = world.attach_mediator(&low);
    for round in 0..20 {
        let report = || Report { counters: vec![("SECRET packets in".into(), round)], ..Report::default() };
        for said in [
            VaultToSessiond::Opened(id),
            VaultToSessiond::Closed(id),
            VaultToSessiond::Pong(round),
            VaultToSessiond::Report(report()),
        ] {
            vault.send(&said).unwrap();
        }
        for said in
            [MediatorToSessiond::Opened(id), MediatorToSessiond::Closed(id), MediatorToSessiond::Pong(round)]
        {
            mediator.send(&said).unwrap();
        }
    }
    // A connection for the session, from its own address, to a service that it may reach, but asked for by another label's mediator.
    let from = SocketAddr::new(opened.inner[0], 40_000);
    let (client, service) = (Who::Session(id), "shell".parse().unwrap());
    mediator.send(&MediatorToSessiond::Connect { ticket: 7, client, service, from }).unwrap();
    let granted = loop {
        match receive::<SessiondToMediator>(&mediator).expect("an answer") {
            SessiondToMediator::Pass(7) => break true,
            SessiondToMediator::Refuse(7) => break false,
            SessiondToMediator::Open(record) => panic!("another label's session was told: {record:?}"),
            _ => {}
        }
    };
    assert!(!granted);
    let status = world.status();
    assert_eq!(status.sessions.len(), 1);
    assert_eq!((&status.sessions[0].label, status.sessions[0].attached), (&label("SECRET"), true));
    let secrets = status.vaults.iter().find(|(at, _)| *at == label("SECRET"));
    let forged =
        |(_, report): &(_, Report)| report.counters.iter().any(|(name, _)| name == "SECRET packets in");
    assert!(!secrets.is_some_and(forged), "a report is of who says it");
    assert!(matches!(victim.call(Request::KeepAlive), Reply::Alive));
    let log = world.place.log();
    assert!(!log[before..].contains("\"action\":\"connect\""), "{}", &log[before..]);
}

#[test]
fn a_keyer_that_asks_for_keys_gets_them_for_nobody_who_has_no_session_there() {
    let world = world();
    world.connect("ws1").sign_on("ada", ADA);
    let client = world.connect("ws2");
    client.sign_on("ugo", UGO);
    client.open("UNCLASSIFIED");
    let keyer = world.give(SessiondPart::Keyer);
    let all = Some("UNCLASSIFIED..SECRET//NATO".to_owned());
    // Who is signed on without a session; who has one elsewhere; who is not here; a workstation and a label that there are not.
    let cases = [
        ("ws1", "UNCLASSIFIED"),
        ("ws1", "SECRET"),
        ("ws2", "SECRET"),
        ("ws3", "UNCLASSIFIED"),
        ("ws9", "UNCLASSIFIED"),
        ("ws2", "NOWHERE"),
    ];
    for (ticket, (device, at)) in (0u64..).zip(cases) {
        let (device, label, accreditation) = (HostName::new(device).unwrap(), label(at), all.clone());
        keyer.send(&FromKeyer::Wanted { ticket, device, label, accreditation }).unwrap();
        loop {
            match receive(&keyer).expect("an answer") {
                levee_ipc::keyer::ToKeyer::Answer { ticket: about, record } if about == ticket => {
                    assert!(record.is_none(), "{:?}", cases[ticket as usize]);
                    break;
                }
                _ => {}
            }
        }
    }
}
