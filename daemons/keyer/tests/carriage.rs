//! How packets go in what two keyers agree: each in its own, in AGGFRAG payloads (RFC 9347), or at a constant rate.

mod world;

use levee_ike::{Childless, Event, Identity};
use levee_ipc::keyer::{FromKeyer, KeyRecord, ToKeyer};
use levee_ipc::vault::{Carriage, Cipher, VaultToKeyer};
use levee_ipc::warden::Place;
use levee_policy::site::Keying;
use std::time::Duration;
use world::*;

const MOMENT: Duration = Duration::from_millis(300);

#[test]
fn packets_go_in_aggfrag_payloads_where_sessiond_and_the_workstation_say_so_and_after_a_rekeying_too() {
    let with = |aggfrag| {
        let carriage = if aggfrag { Carriage::Aggfrag } else { Carriage::Each };
        KeyRecord { carriage, ..record(1, "SECRET") }
    };
    for (here, there) in [(true, true), (true, false), (false, true), (false, false)] {
        let pair = Pair::new();
        pair.connect(with(here));
        pair.answer("SECRET", Some(with(there)));
        let keys_here = keys(&pair.at_workstation);
        assert_eq!(keys(&pair.secret).aggregation, keys_here.aggregation, "{here} {there}");
        assert_eq!(keys_here.aggregation.is_some(), here && there, "{here} {there}");
        let expiring = VaultToKeyer::Expiring { spi: keys_here.inbound.0, session: session(1) };
        pair.at_workstation.send(&expiring).unwrap();
        pair.answer("SECRET", Some(with(there)));
        assert_eq!(keys(&pair.secret).aggregation, keys_here.aggregation, "{here} {there}");
        assert_eq!(keys(&pair.at_workstation).aggregation, keys_here.aggregation, "{here} {there}");
    }
}

#[test]
fn at_a_constant_rate_both_vaults_have_it_and_a_peer_that_agreed_to_none_has_no_keys() {
    let interval = Duration::from_millis(4);
    let with = |carriage| KeyRecord { carriage, ..record(1, "SECRET") };
    let pair = Pair::new();
    pair.connect(with(Carriage::Constant { interval }));
    pair.answer("SECRET", Some(with(Carriage::Constant { interval })));
    let keys_here = keys(&pair.at_workstation);
    assert_eq!(keys_here.aggregation.map(|it| it.interval), Some(Some(interval)));
    assert_eq!(keys(&pair.secret).aggregation, keys_here.aggregation);

    // The workstation was told of none: the server's vault never hears of its keys.
    let pair = Pair::new();
    pair.connect(with(Carriage::Each));
    pair.answer("SECRET", Some(with(Carriage::Constant { interval })));
    let said = pair.server.said();
    assert!(matches!(said, FromKeyer::Refused { reason, .. } if reason.contains("constant rate")));
    assert!(silent(&pair.secret, MOMENT) && silent(&pair.at_workstation, MOMENT));
}

#[test]
fn a_part_of_a_session_goes_otherwise_as_soon_as_its_server_does_and_keeps_its_keys_until_then() {
    let constant = Carriage::Constant { interval: Duration::from_millis(4) };
    let part = |carriage| KeyRecord { carriage, ..record(1, "SECRET") };
    let pair = Pair::new();
    let admit = |carriage| {
        let (server, name) = (pair.server.group.address(), SERVER.parse().unwrap());
        pair.workstation.tell(&ToKeyer::Admit { record: part(carriage), server, name });
    };
    admit(Carriage::Each);
    pair.at_workstation.send(&VaultToKeyer::Acquire(session(1))).unwrap();
    pair.answer("SECRET", Some(part(Carriage::Each)));
    let (mut there, mut here) = (keys(&pair.secret), keys(&pair.at_workstation));
    // The workstation is told first. What it asks for in vain it asks for again, and what it has it keeps.
    admit(constant);
    pair.answer("SECRET", Some(part(Carriage::Each)));
    let in_vain = keys(&pair.secret);
    assert_eq!((in_vain.aggregation, deleted(&pair.secret)), (None, in_vain.inbound.0));
    for carriage in [constant, Carriage::Each] {
        if carriage == Carriage::Each {
            // This way round it has nothing to take back.
            admit(carriage);
            pair.answer("SECRET", Some(part(constant)));
            assert!(
                matches!(pair.server.said(), FromKeyer::Refused { reason, .. } if reason.contains("constant rate"))
            );
        }
        assert!(silent(&pair.at_workstation, MOMENT));
        pair.answer("SECRET", Some(part(carriage)));
        let (new_there, new_here) = (keys(&pair.secret), keys(&pair.at_workstation));
        let constant = carriage == constant;
        assert_eq!((new_here.aggregation.is_some(), new_there.aggregation), (constant, new_here.aggregation));
        // Both serve, until nothing can be under way by the old ones.
        assert!(silent(&pair.at_workstation, MOMENT));
        assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
        assert_eq!(deleted(&pair.secret), there.inbound.0);
        (there, here) = (new_there, new_here);
    }
    assert!(!readable(&pair.server.asker, Duration::from_secs(2)), "it has what it is to have");
}

#[test]
fn another_client_that_offers_aggfrag_has_keys_at_a_label_whose_packets_go_one_by_one() {
    let authority = Authority::new();
    let server = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    let vault = server.vault(&label("SECRET"), SLOT);
    let host = authority.identity("ws1", Some(RANGE));
    let id = Identity::Fqdn("ws1".into());
    let mut client = Client::new(&authority, &host, id, server.group.address(), Childless::Never);
    client.aggfrag = true;
    client.connect("SECRET");
    client.until("a question for sessiond", |_| readable(&server.asker, Duration::ZERO));
    let FromKeyer::Wanted { ticket, .. } = server.said() else { panic!("no question") };
    server.tell(&ToKeyer::Answer { ticket, record: Some(record(1, "SECRET")) });
    // Its first child, and the one with keys of its own that the server replaces it by at once.
    for children in [1, 2] {
        let made = |e: &&Event| matches!(e, Event::ChildEstablished(child) if child.aggfrag.is_none());
        client.until("a child", |events| events.iter().filter(made).count() >= children);
        assert_eq!(keys(&vault).aggregation, None);
    }
}

#[test]
fn keys_whose_packets_may_not_go_as_they_do_are_not_replaced_by_their_like() {
    let (pair, there, here) = Pair::agreed();
    let constant = Carriage::Constant { interval: Duration::from_millis(4) };
    let other = || KeyRecord { carriage: constant, ..record(1, "SECRET") };
    pair.server.tell(&ToKeyer::Renew(other()));
    let ciphers = vec![Cipher::ChaCha20Poly1305];
    pair.server.tell(&ToKeyer::Keying(label("SECRET"), Keying { ciphers, ..keying(&ALL, false) }));
    assert!(silent(&pair.secret, MOMENT) && silent(&pair.at_workstation, MOMENT));
    pair.connect(other());
    pair.answer("SECRET", Some(other()));
    assert!(keys(&pair.secret).aggregation.is_some() && keys(&pair.at_workstation).aggregation.is_some());
    assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
    assert_eq!(deleted(&pair.secret), there.inbound.0);
}

#[test]
fn who_is_told_nothing_of_aggfrag_has_other_keys_soon_and_who_comes_with_it_keeps_them() {
    let packed = || KeyRecord { carriage: Carriage::Aggfrag, ..record(1, "SECRET") };
    let narrowed = |server: &Keyer| {
        server.tell(&ToKeyer::Renew(packed()));
        let ciphers = vec![Cipher::ChaCha20Poly1305];
        server.tell(&ToKeyer::Keying(label("SECRET"), Keying { ciphers, ..keying(&ALL, false) }));
    };
    // Nobody has told the client.
    let (pair, there, _) = Pair::agreed();
    narrowed(&pair.server);
    assert!(silent(&pair.secret, MOMENT), "a workstation would come by itself");
    let new = keys(&pair.secret);
    assert_eq!((new.aggregation, new.cipher), (None, Cipher::ChaCha20Poly1305));
    assert_eq!(deleted(&pair.secret), there.inbound.0);
    // It comes with it.
    let (pair, there, _) = Pair::agreed();
    narrowed(&pair.server);
    pair.connect(packed());
    pair.answer("SECRET", Some(packed()));
    assert!(keys(&pair.secret).aggregation.is_some());
    assert_eq!(deleted(&pair.secret), there.inbound.0);
    assert!(silent(&pair.secret, Duration::from_secs(2)), "what it has is not replaced once more");
}
