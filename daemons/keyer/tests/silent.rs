//! A host that has, or had, a certificate of the site, and answers nothing of what the server asks, neither the end of an IKE SA nor anything
//! before it; or asks without a pause.

mod world;

use levee_hostile::resident;
use levee_ike::{Childless, Event, Identity, IkeProposal, KeyExchange};
use levee_ipc::keyer::{FromKeyer, ToKeyer};
use levee_ipc::vault::{KeyerToVault, VaultToKeyer};
use levee_ipc::warden::Place;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use time::OffsetDateTime;
use world::*;

const MOMENT: Duration = Duration::from_millis(500);

fn client(authority: &Authority, host: &world::Identity, server: &Keyer) -> Client {
    Client::new(authority, host, Identity::Fqdn("ws1".into()), server.group.address(), Childless::Allow)
}

#[test]
fn a_host_that_begins_again_and_again_and_answers_no_end_takes_no_more_room_than_its_eight_ike_sas() {
    let authority = Authority::new();
    let server = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    let pid = server.process.pid.as_raw_nonzero().get();
    let host = authority.identity("ws1", Some(RANGE));
    // Only with its first does it say that it begins anew.
    let mut client = client(&authority, &host, &server);
    client.deaf = true;
    let mut begin = |times| {
        for _ in 0..times {
            client.connect_without_child();
            client.until("an IKE SA", |events| {
                events.iter().any(|event| matches!(event, Event::IkeEstablished { .. }))
            });
            client.events.clear();
        }
    };
    begin(20);
    let before = resident(pid);
    begin(800);
    let grown = resident(pid).saturating_sub(before);
    assert!(grown < 8 * 1_024, "{grown} KiB");
}

#[test]
fn a_revoked_host_that_answers_nothing_has_no_keys_at_once_and_asks_for_no_others() {
    let authority = Authority::new();
    let server = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    let vault = server.vault(&label("SECRET"), SLOT);
    let host = authority.identity("ws1", Some(RANGE));
    let mut client = client(&authority, &host, &server);
    client.connect("SECRET");
    client.until("a question for sessiond", |_| readable(&server.asker, Duration::ZERO));
    let FromKeyer::Wanted { ticket, .. } = server.said() else { panic!("no question") };
    server.tell(&ToKeyer::Answer { ticket, record: Some(record(1, "SECRET")) });
    client.until("a child", |events| events.iter().any(|event| matches!(event, Event::ChildEstablished(_))));
    let spi = keys(&vault).inbound.0;
    // Other keys are asked for, and from here on it hears nothing.
    vault.send(&VaultToKeyer::Expiring { spi, session: session(1) }).unwrap();
    std::thread::sleep(MOMENT);
    server.revoke(&authority.list(&[&host.serial], 24));
    assert!(matches!(server.said(), FromKeyer::Revoked(_)));
    assert!(readable(&vault, MOMENT), "it has its keys still");
    assert_eq!(deleted(&vault), spi);
    // Who has the host's new certificate may have a session by now.
    client.ask("SECRET");
    client.say();
    assert!(!readable(&server.asker, MOMENT) || !matches!(next(&server.asker), FromKeyer::Wanted { .. }));
}

#[test]
fn an_ike_sa_ends_with_the_certificate_by_which_it_was_made_and_another_ones_goes_on() {
    // As of a host that was lost and enrolled anew, where nobody revoked what was to run out.
    let authority = Authority::new();
    let server = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    let vault = server.vault(&label("SECRET"), SLOT);
    let end = OffsetDateTime::now_utc() + time::Duration::seconds(3);
    let (old, new) =
        (authority.identity_until("ws1", Some(RANGE), end), authority.identity("ws1", Some(RANGE)));
    let [mut stolen, mut own] = [&old, &new].map(|host| client(&authority, host, &server));
    let has = |client: &mut Client, what: &str, of: fn(&Event) -> bool| {
        client.until(what, |events| events.iter().any(of));
        client.events.clear();
    };
    let has_keys = |event: &Event| matches!(event, Event::ChildEstablished(_));
    // With its first each says that it begins anew.
    stolen.connect_without_child();
    has(&mut stolen, "an IKE SA", |event| matches!(event, Event::IkeEstablished { .. }));
    let [of_its_own, of_the_old] = [(&mut own, 1), (&mut stolen, 2)].map(|(client, number)| {
        client.connect("SECRET");
        client.until("a question for sessiond", |_| readable(&server.asker, Duration::ZERO));
        let FromKeyer::Wanted { ticket, .. } = server.said() else { panic!("no question") };
        server.tell(&ToKeyer::Answer { ticket, record: Some(record(number, "SECRET")) });
        client.until("a child", |events| events.iter().any(has_keys));
        keys(&vault).inbound.0
    });
    own.events.clear();
    std::thread::sleep(
        (end - OffsetDateTime::now_utc()).max(time::Duration::ZERO).unsigned_abs() + MOMENT * 3,
    );
    stolen.ask("SECRET");
    stolen.say();
    let asks = readable(&server.asker, MOMENT) && matches!(next(&server.asker), FromKeyer::Wanted { .. });
    assert!(!asks, "it asks for others");
    let told = std::iter::from_fn(|| readable(&vault, MOMENT).then(|| next::<KeyerToVault>(&vault)));
    let erased = told.filter_map(|told| match told {
        KeyerToVault::Delete { spi } => Some(spi),
        _ => None,
    });
    assert_eq!(erased.collect::<Vec<_>>(), [of_the_old], "and {of_its_own} is the other's");
    server.tell(&ToKeyer::Renew(record(3, "SECRET")));
    has(&mut own, "a child of another session", has_keys);
}

#[test]
fn of_a_server_whose_certificate_has_run_out_a_workstation_keeps_no_keys() {
    let authority = Authority::new();
    let end = OffsetDateTime::now_utc() + time::Duration::seconds(3);
    let server = Keyer::new(Place::Server, &authority, authority.identity_until(SERVER, None, end));
    let workstation = Keyer::new(Place::Workstation, &authority, authority.identity("ws1", Some(RANGE)));
    let (there, here) = (server.vault(&label("SECRET"), SLOT), workstation.vault(&label("SECRET"), 1));
    let connect =
        ToKeyer::Connect { record: record(1, "SECRET"), server: server.group.address(), passes: vec![] };
    workstation.tell(&connect);
    let FromKeyer::Wanted { ticket, .. } = server.said() else { panic!("no question") };
    server.tell(&ToKeyer::Answer { ticket, record: Some(record(1, "SECRET")) });
    let (_, here_is) = (keys(&there), keys(&here));
    assert_eq!(deleted(&here), here_is.inbound.0);
    assert!(OffsetDateTime::now_utc() > end);
}

#[test]
fn who_is_revoked_while_its_question_waits_for_an_answer_gets_neither_an_ike_sa_nor_keys() {
    // It has an IKE SA by then, or has proved who it is and is to have one with the answer.
    for childless in [Childless::Allow, Childless::Never] {
        let authority = Authority::new();
        let server = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
        let vault = server.vault(&label("SECRET"), SLOT);
        let host = authority.identity("ws1", Some(RANGE));
        let id = Identity::Fqdn("ws1".into());
        let mut client = Client::new(&authority, &host, id, server.group.address(), childless);
        client.deaf = true;
        client.connect("SECRET");
        client.until("a question for sessiond", |_| readable(&server.asker, Duration::ZERO));
        let FromKeyer::Wanted { ticket, .. } = server.said() else { panic!("no question") };
        // The label of who has the host's new certificate may be long about its start.
        server.revoke(&authority.list(&[&host.serial], 24));
        std::thread::sleep(MOMENT);
        server.tell(&ToKeyer::Answer { ticket, record: Some(record(1, "SECRET")) });
        let until = Instant::now() + MOMENT;
        client.until("its keys", |_| Instant::now() > until || readable(&vault, Duration::ZERO));
        assert!(!readable(&vault, MOMENT), "{:?}", next::<KeyerToVault>(&vault));
        match childless {
            Childless::Allow => assert!(matches!(server.said(), FromKeyer::Revoked(_))),
            _ => server.counts("no IKE SA: the certificate is revoked"),
        }
    }
}

#[test]
fn of_a_host_that_was_enrolled_anew_what_its_new_certificate_has_goes_on() {
    let authority = Authority::new();
    let server = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    let vault = server.vault(&label("SECRET"), SLOT);
    let [old, new] = [(); 2].map(|()| authority.identity("ws1", Some(RANGE)));
    let [mut stolen, mut own] = [&old, &new].map(|host| client(&authority, host, &server));
    let has = |client: &mut Client, what: &str, of: fn(&Event) -> bool| {
        client.until(what, |events| events.iter().any(of));
        client.events.clear();
    };
    let is_up = |event: &Event| matches!(event, Event::IkeEstablished { .. });
    let has_ended = |event: &Event| matches!(event, Event::IkeClosed { .. });
    let has_keys = |event: &Event| matches!(event, Event::ChildEstablished(_));
    stolen.connect_without_child();
    has(&mut stolen, "an IKE SA", is_up);
    own.connect("SECRET");
    own.until("a question for sessiond", |_| readable(&server.asker, Duration::ZERO));
    let FromKeyer::Wanted { ticket, .. } = server.said() else { panic!("no question") };
    server.tell(&ToKeyer::Answer { ticket, record: Some(record(1, "SECRET")) });
    has(&mut own, "a child", has_keys);
    let of_its_own = keys(&vault).inbound.0;
    // Another, so that it does not say that it begins anew and the server forgets all others.
    stolen.connect_without_child();
    has(&mut stolen, "an IKE SA", is_up);
    server.revoke(&authority.list(&[&old.serial], 24));
    has(&mut stolen, "the end", has_ended);
    // sessiond ends what the old one began by itself. What it hears next is that the session that it asks for has a peer.
    server.tell(&ToKeyer::Renew(record(2, "SECRET")));
    has(&mut own, "a child of another session", has_keys);
    assert!(!readable(&server.asker, MOMENT) || matches!(next(&server.asker), FromKeyer::Dropped(_)));
    let told = std::iter::from_fn(|| readable(&vault, MOMENT).then(|| next::<KeyerToVault>(&vault)));
    let erased = |told: &KeyerToVault| matches!(told, KeyerToVault::Delete { spi } if *spi == of_its_own);
    assert!(!told.into_iter().any(|told| erased(&told)));
}

#[test]
fn a_host_that_has_its_ike_sas_replaced_without_a_pause_takes_a_part_of_the_time() {
    let authority = Authority::new();
    let server = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    let host = authority.identity("ws1", Some(RANGE));
    let pid = server.process.pid.as_raw_nonzero().get();
    let ran = || {
        let said = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        Duration::from_nanos(said.split(' ').next().unwrap().parse().unwrap())
    };
    let costly = || {
        let all = [KeyExchange::P384];
        vec![IkeProposal { key_exchange: all.to_vec(), ..IkeProposal::default() }]
    };
    let (began, over) = (Barrier::new(5), Instant::now() + Duration::from_secs(5));
    let taken = std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = client(&authority, &host, &server);
            let began = &began;
            scope.spawn(move || {
                client.connect_without_child();
                client.until("an IKE SA", |events| {
                    events.iter().any(|event| matches!(event, Event::IkeEstablished { .. }))
                });
                began.wait();
                while Instant::now() < over {
                    client.rekey_ike(costly());
                    client.until("other keys", |events| {
                        Instant::now() >= over
                            || events.iter().any(|event| matches!(event, Event::IkeRekeyed { .. }))
                    });
                    client.events.retain(|event| matches!(event, Event::IkeEstablished { .. }));
                }
            });
        }
        began.wait();
        let (since, before) = (Instant::now(), ran());
        std::thread::sleep(Duration::from_secs(3));
        (ran() - before).as_secs_f64() / since.elapsed().as_secs_f64()
    });
    // A sixth, and what costs little. Without a bound four of them have half of it and more, and as much for themselves.
    assert!(taken < 0.35, "{taken}");
}
