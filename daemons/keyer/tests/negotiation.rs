//! IKEv2 between two keyers, each a process, on real sockets.

mod world;

use levee_ike::{
    ChildProposal, Childless, CloseReason, Config, Encryption, Endpoint, Event, Identity, IkeProposal,
    KeyExchange, LocalAuth, Now, Output, Path, Peer, Prf, Random, RemoteAuth, RemoteId,
};
use levee_ipc::keyer::{FromKeyer, ToKeyer};
use levee_ipc::vault::{KeyerToVault, Refusal, VaultToKeyer};
use levee_ipc::warden::Place;
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};
use std::cell::{Cell, RefCell};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use world::*;

const MOMENT: Duration = Duration::from_millis(300);

#[test]
fn both_vaults_of_the_session_get_the_same_keys_and_no_other_vault_gets_any() {
    let (pair, there, here) = Pair::agreed();
    assert_eq!((there.session, here.session), (session(1), session(1)));
    assert_eq!(here.inbound, there.outbound);
    assert_eq!(here.outbound, there.inbound);
    assert_ne!(here.inbound.1, here.outbound.1);
    assert_eq!(slot_of(there.inbound.0), SLOT);
    assert_eq!(slot_of(here.inbound.0), 1);
    assert_eq!(here.peer, Some(pair.server.group.address()));
    assert_eq!(there.peer, Some(pair.workstation.group.address()));
    assert!(!readable(&pair.unclassified, MOMENT), "another label's vault hears nothing");
}

#[test]
fn no_key_stays_in_a_keyers_memory_once_its_vault_has_it() {
    let (pair, there, _) = Pair::agreed();
    for keyer in [&pair.server, &pair.workstation] {
        // What the keyer does remember is found, so what is not found is not there.
        assert!(remembers(&keyer.process, session(1).as_bytes()));
        for (_, material) in [&there.inbound, &there.outbound] {
            // Half a key is a find too.
            for half in material[..32].chunks(16) {
                assert!(!remembers(&keyer.process, half));
            }
        }
    }
}

#[test]
fn without_sessionds_word_there_are_no_keys() {
    let pair = Pair::new();
    pair.connect(record(1, "SECRET"));
    pair.answer("SECRET", None);
    match pair.workstation.said() {
        FromKeyer::Failed { session: of, reason } => {
            assert_eq!(of, session(1));
            assert!(reason.contains("TS_UNACCEPTABLE"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    // Nor for another label, or another host, than the one that was asked about.
    for other in [record(1, "UNCLASSIFIED"), {
        let mut other = record(1, "SECRET");
        other.device = "ws2".parse().unwrap();
        other
    }] {
        pair.connect(record(1, "SECRET"));
        pair.answer("SECRET", Some(other));
        assert!(matches!(pair.workstation.said(), FromKeyer::Failed { .. }));
        assert!(matches!(pair.server.said(), FromKeyer::Refused { .. }));
    }
    for vault in [&pair.secret, &pair.unclassified, &pair.at_workstation] {
        assert!(!readable(vault, MOMENT));
    }
}

#[test]
fn a_host_of_another_sites_authority_is_not_even_asked_about() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = Keyer::new(Place::Server, &ours, ours.identity(SERVER, None));
    let _vault = server.vault(&label("SECRET"), SLOT);
    let stranger = Keyer::new(Place::Workstation, &ours, theirs.identity("ws1", Some(RANGE)));
    let _at_stranger = stranger.vault(&label("SECRET"), 1);
    stranger.tell(&ToKeyer::Connect {
        record: record(1, "SECRET"),
        server: server.group.address(),
        passes: Vec::new(),
    });
    assert!(matches!(stranger.said(), FromKeyer::Failed { .. }));
    // What was dropped is told each so often; nothing else is.
    match next::<FromKeyer>(&server.asker) {
        FromKeyer::Dropped(reasons) => {
            assert!(reasons.iter().any(|(why, _)| why.contains("certificate")), "{reasons:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_session_that_is_over_has_no_keys_left_on_either_side() {
    let (pair, there, here) = Pair::agreed();
    pair.server.tell(&ToKeyer::Revoke(session(1)));
    assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
    assert_eq!(deleted(&pair.secret), there.inbound.0);
}

#[test]
fn a_session_that_ends_while_its_keys_are_being_replaced_has_none_left_on_either_side() {
    // The workstation has asked for other keys, and sessiond has not answered when the session ends.
    let (pair, there, here) = Pair::agreed();
    pair.at_workstation.send(&VaultToKeyer::Expiring { spi: here.inbound.0, session: session(1) }).unwrap();
    let FromKeyer::Wanted { ticket, .. } = pair.server.said() else { panic!("no question") };
    pair.server.tell(&ToKeyer::Revoke(session(1)));
    pair.server.tell(&ToKeyer::Answer { ticket, record: None });
    assert_eq!(deleted(&pair.secret), there.inbound.0);
    assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
    assert!(silent(&pair.secret, MOMENT) && silent(&pair.at_workstation, MOMENT));
}

#[test]
fn a_vault_hears_of_new_keys_whether_the_peer_asked_for_them_in_others_place() {
    let (pair, there, here) = Pair::agreed();
    // The first are in nobody's place, whoever asked for them.
    assert_eq!((there.answered, here.answered), (false, false));
    pair.at_workstation.send(&VaultToKeyer::Expiring { spi: here.inbound.0, session: session(1) }).unwrap();
    pair.answer("SECRET", Some(record(1, "SECRET")));
    let old = (there.inbound.0, here.inbound.0);
    let (there, here) = (keys(&pair.secret), keys(&pair.at_workstation));
    assert_eq!((there.answered, here.answered), (true, false));
    // Neither sends by the old ones when one has asked to close them, and what is under way is taken for a while.
    assert_eq!((retired(&pair.secret), retired(&pair.at_workstation)), old);
    pair.secret.send(&VaultToKeyer::Expiring { spi: there.inbound.0, session: session(1) }).unwrap();
    let (here, there) = (keys(&pair.at_workstation), keys(&pair.secret));
    assert_eq!((there.answered, here.answered), (false, true));
}

#[test]
fn a_workstation_that_begins_anew_says_so_and_what_it_had_before_is_erased_at_once() {
    let (pair, there, _) = Pair::agreed();
    pair.workstation.process.kill().unwrap();
    let anew = Keyer::new(Place::Workstation, &pair.authority, pair.authority.identity("ws1", Some(RANGE)));
    let vault = anew.vault(&label("SECRET"), 1);
    let server = pair.server.group.address();
    anew.tell(&ToKeyer::Connect { record: record(1, "SECRET"), server, passes: Vec::new() });
    // INITIAL_CONTACT comes before it is known what else the workstation may have.
    assert_eq!(deleted(&pair.secret), there.inbound.0);
    pair.answer("SECRET", Some(record(1, "SECRET")));
    assert_eq!(keys(&pair.secret).outbound, keys(&vault).inbound);
}

#[test]
fn a_session_has_so_many_pairs_and_no_more() {
    const MOST: u16 = 32;
    let (pair, ..) = Pair::agreed();
    let workers: Vec<_> = (2..=MOST + 1).map(|slot| pair.workstation.vault(&label("SECRET"), slot)).collect();
    let (last, others) = workers.split_last().unwrap();
    let mut newest = None;
    for worker in others {
        worker.send(&VaultToKeyer::Acquire(session(1))).unwrap();
        pair.answer("SECRET", Some(record(1, "SECRET")));
        let (there, here) = (keys(&pair.secret), keys(worker));
        assert_eq!(there.outbound, here.inbound);
        newest = Some((worker, here.inbound.0));
    }
    last.send(&VaultToKeyer::Acquire(session(1))).unwrap();
    pair.answer("SECRET", Some(record(1, "SECRET")));
    assert!(silent(last, MOMENT) && silent(&pair.secret, MOMENT));
    // What replaces one of them is none more.
    let (worker, spi) = newest.unwrap();
    worker.send(&VaultToKeyer::Expiring { spi, session: session(1) }).unwrap();
    pair.answer("SECRET", Some(record(1, "SECRET")));
    assert_eq!(keys(&pair.secret).outbound, keys(worker).inbound);
}

/// The key exchanges of the children that a client has.
fn exchanges(events: &[Event]) -> Vec<bool> {
    let exchange = |event: &Event| match event {
        Event::ChildEstablished(child) => Some(child.suite.key_exchange.is_some()),
        _ => None,
    };
    events.iter().filter_map(exchange).collect()
}

/// How the attempt of a client with these proposals ends: with a question for sessiond, or with this reason. Notes what is reported as
/// dropped meanwhile.
fn attempt(
    server: &Keyer,
    authority: &Authority,
    (ike, child): (IkeProposal, ChildProposal),
    dropped: &RefCell<String>,
) -> Result<(), String> {
    // Not the host that has a session: it would begin anew.
    let host = authority.identity("ws2", Some(RANGE));
    let mut config = Client::config(authority, &host, Identity::Fqdn("ws2".into()), Childless::Allow);
    (config.ike, config.child) = (vec![ike], vec![child]);
    let mut client = Client::with(config, &host, server.group.address());
    client.connect("SECRET");
    let asked = Cell::new(false);
    let failed = |e: &Event| matches!(e, Event::IkeClosed { .. } | Event::ChildFailed { .. });
    client.until("an end", |events| {
        while readable(&server.asker, Duration::ZERO) {
            match next(&server.asker) {
                FromKeyer::Wanted { device, .. } if device.as_str() == "ws2" => asked.set(true),
                other => dropped.borrow_mut().push_str(&format!("{other:?}")),
            }
        }
        asked.get() || events.iter().any(failed)
    });
    match client.events.iter().find(|e| failed(e)) {
        Some(end) => Err(format!("{end:?}")),
        None => Ok(()),
    }
}

#[test]
fn with_cnsas_suites_both_keyers_agree_on_its_algorithms_and_whoever_offers_others_alone_gets_nothing() {
    for suites in ["cnsa", "cnsa-ml-kem"] {
        let arguments = ["--suites", suites];
        let (pair, there, here) =
            Pair::of(Authority::on(&PKCS_ECDSA_P384_SHA384), &arguments, &[], &[]).agree();
        assert_eq!((here.inbound, here.cipher), (there.outbound, levee_ipc::vault::Cipher::Aes256Gcm));
        let server = &pair.server;
        let dropped = RefCell::new(String::new());
        let (ike, child) = (IkeProposal::cnsa(vec![]), ChildProposal::cnsa());
        let offers = |ike, child| attempt(server, &pair.authority, (ike, child), &dropped);
        let hybrid = |method| IkeProposal::cnsa(vec![vec![method]]);
        offers(hybrid(KeyExchange::MlKem1024), child.clone()).unwrap();
        assert_eq!(offers(ike.clone(), child.clone()).is_ok(), suites == "cnsa");
        let refused = |ike| {
            let said = offers(ike, child.clone()).unwrap_err();
            assert!(said.contains("NO_PROPOSAL_CHOSEN"), "{said}");
        };
        let method = KeyExchange::MlKem1024;
        refused(hybrid(KeyExchange::MlKem768));
        refused(IkeProposal { encryption: vec![Encryption::Aes128Gcm16], ..hybrid(method) });
        refused(IkeProposal { encryption: vec![Encryption::ChaCha20Poly1305], ..hybrid(method) });
        refused(IkeProposal { prf: vec![Prf::HmacSha256], ..hybrid(method) });
        refused(IkeProposal { key_exchange: vec![KeyExchange::X25519], ..hybrid(method) });
        // An IKE SA as it should be, and a child that is not.
        let weak = ChildProposal { encryption: vec![Encryption::Aes128Gcm16], ..child.clone() };
        let said = offers(hybrid(method), weak).unwrap_err();
        assert!(said.contains("NO_PROPOSAL_CHOSEN"), "{said}");
        // A certificate of the authority's, for a key that is not on P-384.
        let authority = pair.authority.vouching(&PKCS_ECDSA_P256_SHA256);
        let said = attempt(server, &authority, (hybrid(method), child.clone()), &dropped).unwrap_err();
        assert!(said.contains("takes none of our signature algorithms"), "{said}");
        let counted = "a peer offers no algorithms that this site takes";
        if suites == "cnsa" && !dropped.borrow().contains(counted) {
            server.counts(counted);
        }
    }
}

#[test]
fn another_client_with_a_first_child_gets_a_second_at_once_and_none_by_another_name_than_its_ppks() {
    let authority = Authority::new();
    for (mandatory, childless) in [
        (true, Childless::Allow),
        (true, Childless::Never),
        (false, Childless::Allow),
        (false, Childless::Never),
    ] {
        let ppk = SharedPpk { host: Some("ws1"), id: "ws1-ppk", mandatory, key: None };
        let server = Keyer::start(Place::Server, &authority, authority.identity(SERVER, None), &[], &[ppk]);
        let vault = server.vault(&label("SECRET"), SLOT);
        let host = authority.identity("ws1", Some(RANGE));
        // The certificate's name that is not the one by which the server knows whose PPK it is.
        let id = Identity::Mail("keeper@ws1".into());
        let mut client = Client::new(&authority, &host, id, server.group.address(), childless);
        client.connect("SECRET");
        let heard = || readable(&server.asker, Duration::ZERO);
        if mandatory {
            let closed = |e: &Event| matches!(e, Event::IkeClosed { reason: CloseReason::Peer, .. });
            client.until("the end of the IKE SA", |events| events.iter().any(closed));
            assert!(exchanges(&client.events).is_empty());
            // Nobody is asked about it; one that has asked for a child already is reported.
            match childless {
                Childless::Never => match server.said() {
                    FromKeyer::Refused { device: Some(device), reason, .. } => {
                        assert_eq!(device.as_str(), "ws1");
                        assert!(reason.contains("by another identity"), "{reason}");
                    }
                    other => panic!("{other:?}"),
                },
                _ => assert!(!heard()),
            }
            assert!(silent(&vault, Duration::ZERO));
            continue;
        }
        client.until("a question for sessiond", |_| heard());
        match server.said() {
            FromKeyer::Wanted { ticket, device, .. } => {
                assert_eq!(device.as_str(), "ws1");
                server.tell(&ToKeyer::Answer { ticket, record: Some(record(1, "SECRET")) });
            }
            other => panic!("{other:?}"),
        }
        // A first child's keys follow from the IKE SA's, so that it is replaced at once.
        let expected: &[bool] = if childless == Childless::Never { &[false, true] } else { &[true] };
        client.until("its children", |events| exchanges(events) == expected);
        for _ in expected {
            assert_eq!(keys(&vault).session, session(1));
        }
    }
}

#[test]
fn a_pair_that_is_nearly_used_up_is_replaced_before_it_is_deleted() {
    let (pair, there, here) = Pair::agreed();
    pair.at_workstation.send(&VaultToKeyer::Expiring { spi: here.inbound.0, session: session(1) }).unwrap();
    pair.answer("SECRET", Some(record(1, "SECRET")));
    let (new_there, new_here) = (keys(&pair.secret), keys(&pair.at_workstation));
    assert_eq!(new_here.inbound, new_there.outbound);
    assert_ne!(new_here.inbound.1, here.inbound.1);
    // The old pair stays for packets that are under way.
    assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
    assert_eq!(deleted(&pair.secret), there.inbound.0);
}

#[test]
fn a_vault_that_was_started_anew_gets_new_keys_once_sessiond_says_that_it_knows_the_session() {
    let (pair, there, here) = Pair::agreed();
    let secret = pair.server.vault(&label("SECRET"), SLOT);
    assert!(silent(&secret, MOMENT), "not before it has the session's record");
    pair.server.tell(&ToKeyer::Renew(record(1, "SECRET")));
    let new_there = keys(&secret);
    let new_here = keys(&pair.at_workstation);
    assert_eq!(new_here.inbound, new_there.outbound);
    assert_ne!(new_there.inbound.1, there.inbound.1);
    assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
    assert!(silent(&secret, MOMENT), "the new vault hears nothing of what it never had");
}

#[test]
fn a_packet_that_waits_brings_keys() {
    let (pair, there, here) = Pair::agreed();
    // Both ends lose their keys, as when the server ends a child.
    pair.server.tell(&ToKeyer::Revoke(session(1)));
    assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
    assert_eq!(deleted(&pair.secret), there.inbound.0);
    pair.at_workstation.send(&VaultToKeyer::Acquire(session(1))).unwrap();
    pair.answer("SECRET", Some(record(1, "SECRET")));
    assert_eq!(keys(&pair.secret).outbound, keys(&pair.at_workstation).inbound);
    // Another label's vault cannot ask for this session.
    pair.unclassified.send(&VaultToKeyer::Acquire(session(1))).unwrap();
    assert!(!readable(&pair.server.asker, MOMENT));
}

#[test]
fn a_keyer_that_knows_no_peer_says_so_and_a_workstation_that_is_told_to_comes_again() {
    let authority = Authority::new();
    let server = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    let _secret = server.vault(&label("SECRET"), SLOT);
    server.tell(&ToKeyer::Renew(record(1, "SECRET")));
    assert!(matches!(server.said(), FromKeyer::NoPeer(of) if of == session(1)));

    // What there was is given up only once there is something new, and what is under way has had time to arrive.
    let (pair, there, here) = Pair::agreed();
    let began = Instant::now();
    pair.connect(record(1, "SECRET"));
    pair.answer("SECRET", Some(record(1, "SECRET")));
    let (new_there, new_here) = (keys(&pair.secret), keys(&pair.at_workstation));
    assert_eq!(new_here.inbound, new_there.outbound);
    assert_ne!(new_here.inbound.1, here.inbound.1);
    assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(deleted(&pair.secret), there.inbound.0);
}

#[test]
fn what_a_keyer_that_died_had_agreed_is_erased_once_there_is_something_new() {
    let (pair, ..) = Pair::agreed();
    // Its successor, whose vaults have what they had: it can name none of it.
    let server = Keyer::new(Place::Server, &pair.authority, pair.authority.identity(SERVER, None));
    let secret = server.vault(&label("SECRET"), SLOT);
    pair.server.process.kill().unwrap();
    let pair = Pair { server, secret, tickets: 0.into(), ..pair };
    pair.connect(record(1, "SECRET"));
    pair.answer("SECRET", Some(record(1, "SECRET")));
    let (there, here) = (keys(&pair.secret), keys(&pair.at_workstation));
    assert_eq!(here.inbound, there.outbound);
    match next(&pair.secret) {
        KeyerToVault::Only { session: of, spis } => {
            assert_eq!((of, spis), (session(1), vec![there.inbound.0]));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_vault_that_refuses_keys_means_no_keys() {
    let pair = Pair::new();
    pair.connect(record(1, "SECRET"));
    pair.answer("SECRET", Some(record(1, "SECRET")));
    let KeyerToVault::Install { inbound, .. } = next(&pair.secret) else { panic!("no keys") };
    pair.secret.send(&VaultToKeyer::Refused { spi: inbound.spi, reason: Refusal::NoSession }).unwrap();
    let here = keys(&pair.at_workstation);
    assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
}

#[test]
fn a_revoked_workstation_is_cut_at_once_and_comes_no_more() {
    let (pair, there, here) = Pair::agreed();
    // A list without it changes nothing.
    pair.server.revoke(&pair.authority.list(&[b"another"], 24));
    pair.connect(record(1, "SECRET"));
    pair.answer("SECRET", Some(record(1, "SECRET")));
    let (new_there, new_here) = (keys(&pair.secret), keys(&pair.at_workstation));
    let old = [deleted(&pair.at_workstation), deleted(&pair.secret)];
    assert_eq!(old, [here.inbound.0, there.inbound.0]);

    pair.server.revoke(&pair.authority.list(&[&pair.serial], 24));
    match pair.server.said() {
        FromKeyer::Revoked(device) => assert_eq!(device.as_str(), "ws1"),
        other => panic!("{other:?}"),
    }
    assert_eq!(deleted(&pair.at_workstation), new_here.inbound.0);
    assert_eq!(deleted(&pair.secret), new_there.inbound.0);
    // Its keyer tries again by itself, and sessiond is not even asked.
    pair.server.counts("no IKE SA: the certificate is revoked");
    assert!(silent(&pair.secret, MOMENT));
}

#[test]
fn a_workstation_with_a_list_that_names_its_server_gives_the_session_up_at_once_and_agrees_no_other() {
    let (pair, there, here) = Pair::agreed();
    // A list without it changes nothing.
    pair.workstation.revoke(&pair.authority.list(&[&pair.serial], 24));
    pair.workstation.revoke("nonsense");
    assert!(silent(&pair.at_workstation, MOMENT) && silent(&pair.secret, MOMENT));
    pair.workstation.revoke(&pair.authority.list(&[&pair.server_serial], 24));
    let failed = |wanted: &str| match pair.workstation.said() {
        FromKeyer::Failed { session: of, reason } => {
            assert_eq!(of, session(1));
            assert!(reason.contains(wanted), "{reason}");
        }
        other => panic!("{other:?}"),
    };
    failed("the server's certificate is revoked");
    assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
    assert_eq!(deleted(&pair.secret), there.inbound.0);
    pair.connect(record(1, "SECRET"));
    failed("revoked");
    assert!(silent(&pair.at_workstation, MOMENT));
}

#[test]
fn with_a_list_of_another_authority_or_a_stale_one_nobody_is_believed() {
    for stale in [false, true] {
        let pair = Pair::new();
        let other = Authority::new();
        let list = if stale { pair.authority.list(&[], -24) } else { other.list(&[], 24) };
        pair.server.revoke(&list);
        pair.connect(record(1, "SECRET"));
        assert!(matches!(pair.workstation.said(), FromKeyer::Failed { .. }));
        // What is no list at all changes nothing: the one before it counts on.
        pair.server.revoke("nonsense");
        pair.server.revoke(&pair.authority.list(&[], 24));
        pair.connect(record(1, "SECRET"));
        pair.answer("SECRET", Some(record(1, "SECRET")));
        assert_eq!(keys(&pair.secret).outbound, keys(&pair.at_workstation).inbound);
    }
}

#[test]
fn a_ppk_that_host_and_server_share_is_in_their_keys_and_a_host_that_must_use_it_gets_none_without() {
    const THERE: SharedPpk = SharedPpk {
        host: Some("ws1"),
        id: "ws1-ppk",
        mandatory: true,
        key: Some(b"a PPK of 32 octets and some more"),
    };
    const HERE: SharedPpk = SharedPpk { host: None, ..THERE };
    const OPTIONAL: SharedPpk = SharedPpk { mandatory: false, ..THERE };
    let another = |host| SharedPpk { host: Some(host), id: "another", ..THERE };
    for (there, here) in [
        (&[another("ws2"), THERE][..], &[HERE][..]),
        (&[OPTIONAL], &[HERE]),
        // What one host must do is nothing to another.
        (&[another("ws2"), OPTIONAL], &[]),
        (&[another("ws2")], &[]),
    ] {
        let pair = Pair::start(&[], there, here);
        pair.connect(record(1, "SECRET"));
        pair.answer("SECRET", Some(record(1, "SECRET")));
        let (old_there, old_here) = (keys(&pair.secret), keys(&pair.at_workstation));
        assert_eq!(old_there.outbound, old_here.inbound, "{there:?} {here:?}");
    }
    let cases = [
        (vec![THERE], vec![], "the peer did not use the PPK", "AUTHENTICATION_FAILED"),
        (vec![another("ws1")], vec![HERE], "the peer did not use the PPK", "AUTHENTICATION_FAILED"),
        (vec![OPTIONAL], vec![another("ws1")], "is not the one it shares", "AUTHENTICATION_FAILED"),
        (
            vec![THERE],
            vec![SharedPpk { key: Some(b"32 octets, or more, of another key"), ..HERE }],
            "",
            "AUTHENTICATION_FAILED",
        ),
        (
            vec![SharedPpk { key: None, ..THERE }],
            vec![HERE],
            "the signer has not this PPK",
            "AUTHENTICATION_FAILED",
        ),
        (vec![THERE], vec![SharedPpk { key: None, ..HERE }], "", "the workstation's signer has not the PPK"),
        (vec![], vec![HERE], "", "the peer does not use a PPK"),
    ];
    // What was dropped is told every ten seconds: they wait for it side by side.
    std::thread::scope(|scope| {
        for (there, here, server, workstation) in cases {
            scope.spawn(move || {
                let here: Vec<SharedPpk> =
                    here.into_iter().map(|ppk| SharedPpk { host: None, ..ppk }).collect();
                let pair = Pair::start(&[], &there, &here);
                pair.connect(record(1, "SECRET"));
                match pair.workstation.said() {
                    FromKeyer::Failed { reason, .. } if reason.contains(workstation) => {}
                    other => panic!("{there:?} {here:?}: {other:?}"),
                }
                if !server.is_empty() {
                    pair.server.counts(server);
                }
                assert!(silent(&pair.secret, Duration::ZERO) && silent(&pair.at_workstation, Duration::ZERO));
            });
        }
    });
}

#[test]
fn a_workstation_asks_for_ml_kem_and_nothing_less() {
    let authority = Authority::new();
    let workstation = Keyer::new(Place::Workstation, &authority, authority.identity("ws1", Some(RANGE)));
    let _vault = workstation.vault(&label("SECRET"), 1);
    let server = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    workstation.tell(&ToKeyer::Connect {
        record: record(1, "SECRET"),
        server: server.local_addr().unwrap(),
        passes: Vec::new(),
    });
    let mut buffer = [0; 2048];
    let (length, _) = server.recv_from(&mut buffer).unwrap();
    // Behind the marker and the header, the SA payload: its one proposal is the last (RFC 7296 3.3.1).
    let sa = &buffer[4 + 28..length];
    let sa = &sa[4..usize::from(u16::from_be_bytes([sa[2], sa[3]]))];
    assert_eq!(sa[0], 0, "one proposal");
    // Its transforms of type 6, the first additional key exchange: ML-KEM-768 alone (RFC 9370 4.1).
    let (mut at, mut additional) = (8 + usize::from(sa[6]), Vec::new());
    while at < sa.len() {
        if sa[at + 4] == 6 {
            additional.push(u16::from_be_bytes([sa[at + 6], sa[at + 7]]));
        }
        at += usize::from(u16::from_be_bytes([sa[at + 2], sa[at + 3]]));
    }
    assert_eq!(additional, [36]);
}

#[test]
fn what_is_lost_is_sent_again_and_what_comes_twice_counts_once() {
    let pair = Pair::new();
    let relay = Relay::before(pair.server.group.address());
    relay.set(Fate::FirstLost);
    pair.workstation.tell(&ToKeyer::Connect {
        record: record(1, "SECRET"),
        server: relay.address,
        passes: Vec::new(),
    });
    pair.answer("SECRET", Some(record(1, "SECRET")));
    assert_eq!(keys(&pair.secret).outbound, keys(&pair.at_workstation).inbound);
    assert!(silent(&pair.secret, MOMENT) && silent(&pair.at_workstation, MOMENT));
}

#[test]
fn each_end_notices_that_the_other_is_gone_erases_its_keys_and_agrees_anew_when_it_is_back() {
    let pair = Pair::with(&["--liveness", "1", "--tries", "1"]);
    let relay = Relay::before(pair.server.group.address());
    pair.workstation.tell(&ToKeyer::Connect {
        record: record(1, "SECRET"),
        server: relay.address,
        passes: Vec::new(),
    });
    pair.answer("SECRET", Some(record(1, "SECRET")));
    let (there, here) = (keys(&pair.secret), keys(&pair.at_workstation));
    // Silence alone is no death: each asks, and the other answers.
    assert!(silent(&pair.secret, Duration::from_secs(4)) && silent(&pair.at_workstation, MOMENT));
    relay.set(Fate::Lost);
    assert_eq!(deleted(&pair.secret), there.inbound.0);
    assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
    relay.set(Fate::Arrives);
    pair.answer("SECRET", Some(record(1, "SECRET")));
    let (new_there, new_here) = (keys(&pair.secret), keys(&pair.at_workstation));
    assert_eq!(new_there.outbound, new_here.inbound);
    assert_ne!(new_there.inbound.1, there.inbound.1);
}

/// A first message as strangers send it: well-formed, with a key share, and nothing behind it.
fn first_message(number: u8, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    struct Counting(u8);
    impl Random for Counting {
        fn fill(&mut self, out: &mut [u8]) {
            out.fill_with(|| {
                self.0 = self.0.wrapping_mul(5).wrapping_add(17);
                self.0
            });
            out.iter_mut().step_by(3).for_each(|octet| *octet ^= self.0);
        }
    }
    let key = b"never used".to_vec();
    let peer = Peer {
        local_id: Identity::Fqdn("stranger.example".into()),
        remote_id: RemoteId::Exactly(Identity::Fqdn(SERVER.into())),
        local_auth: LocalAuth::SharedKey(key.clone().into()),
        remote_auth: RemoteAuth::SharedKey(key.into()),
        childless: Childless::Allow,
        ppk: None,
    };
    let mut endpoint = Endpoint::new(Config::new(vec![peer]));
    let now = Now { monotonic: Duration::ZERO, unix_seconds: 0 };
    let path = Path { local: from, remote: to, marker: true };
    let mut random = Counting(number);
    endpoint.connect(0, path, None, None, now, &mut random).unwrap();
    let Output::Transmit { mut datagram, .. } = endpoint.poll(now, &mut random) else { panic!("no message") };
    // An SPI of its own: the first eight octets behind the marker.
    datagram[4] = number;
    datagram[5] = 1;
    datagram
}

#[test]
fn an_onlooker_sees_the_same_lengths_for_every_label() {
    let labels = ["U", "SECRET", "SECRET//NATO,MED,CRYPTO,AND-MORE-WORDS-THAN-A-LABEL-SHOULD-HAVE"];
    let lengths = labels.map(|at| {
        let pair = Pair::new();
        let (there, here) = (pair.server.vault(&label(at), 11), pair.workstation.vault(&label(at), 2));
        let relay = Relay::before(pair.server.group.address());
        let passes = pair.server.passes.borrow_mut().pop().into_iter().collect();
        pair.workstation.tell(&ToKeyer::Connect { record: record(1, at), server: relay.address, passes });
        pair.answer(at, Some(record(1, at)));
        // Each keyer may have another of the label's vaults here, whose keys come first.
        let there = if at == "SECRET" { vec![&pair.secret, &there] } else { vec![&there] };
        let here = if at == "SECRET" { vec![&pair.at_workstation, &here] } else { vec![&here] };
        for vaults in [there, here] {
            let told = vaults.iter().find(|vault| readable(vault, Duration::from_secs(5)));
            keys(told.expect("keys at one of them"));
        }
        assert!(matches!(pair.workstation.said(), FromKeyer::Completed(_)));
        // A busy host may have had something sent twice.
        relay.lengths().into_iter().collect::<std::collections::BTreeSet<_>>()
    });
    // IKE_SA_INIT, IKE_INTERMEDIATE, IKE_AUTH and CREATE_CHILD_SA, the long ones in fragments.
    assert!(lengths[0].len() >= 6, "{lengths:?}");
    assert_eq!(lengths[0], lengths[1]);
    assert_eq!(lengths[0], lengths[2]);
}

#[test]
fn strangers_that_never_go_on_are_asked_for_cookies_and_a_workstation_comes_through() {
    let pair = Pair::new();
    let server = pair.server.group.address();
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let from = socket.local_addr().unwrap();
    let (mut answered, mut cookies) = (0, 0);
    for number in 1..=48 {
        socket.send_to(&first_message(number, from, server), server).unwrap();
        let mut buffer = [0; 2048];
        let (length, _) = socket.recv_from(&mut buffer).unwrap();
        let message = &buffer[4..length];
        // A Notify payload (41) first, and of type COOKIE (16390): RFC 7296 2.6, 3.10.
        if message[16] == 41 && message[34..36] == 16_390_u16.to_be_bytes() {
            cookies += 1;
        } else {
            assert_eq!(cookies, 0, "no state is kept once cookies are asked for");
            answered += 1;
        }
    }
    assert!(answered >= 8 && cookies >= 8, "{answered} answered, {cookies} cookies");
    // The workstation comes from the same address, gives its cookie, and has its keys.
    pair.connect(record(1, "SECRET"));
    pair.answer("SECRET", Some(record(1, "SECRET")));
    assert_eq!(keys(&pair.secret).outbound, keys(&pair.at_workstation).inbound);
}

#[test]
fn sessions_are_spread_over_a_labels_workers_and_each_worker_gets_keys_of_its_own_when_it_needs_them() {
    const OTHER: u16 = 5;
    let (pair, first, _) = Pair::agreed();
    let other = pair.server.vault(&label("SECRET"), OTHER);
    let slot = |keys: &Keys| slot_of(keys.inbound.0);
    assert_eq!(slot(&first), SLOT);

    // RFC 9611: a packet waits at the other worker, which gets a pair beside the first one's.
    other.send(&VaultToKeyer::Acquire(session(1))).unwrap();
    let (further, here) = (keys(&other), keys(&pair.at_workstation));
    assert_eq!((slot(&further), further.session), (OTHER, session(1)));
    assert_eq!(further.outbound, here.inbound);
    assert!(!readable(&pair.secret, MOMENT) && !readable(&pair.at_workstation, MOMENT));

    // What replaces a pair is for the same worker, whoever asks.
    other.send(&VaultToKeyer::Expiring { spi: further.inbound.0, session: session(1) }).unwrap();
    let (next_there, next_here) = (keys(&other), keys(&pair.at_workstation));
    assert_eq!((slot(&next_there), &next_there.outbound), (OTHER, &next_here.inbound));
    assert_eq!(deleted(&other), further.inbound.0);
    assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
    let expiring = VaultToKeyer::Expiring { spi: next_here.inbound.0, session: session(1) };
    pair.at_workstation.send(&expiring).unwrap();
    pair.answer("SECRET", Some(record(1, "SECRET")));
    assert_eq!(slot(&keys(&other)), OTHER);

    // A worker does not get keys for another's SPI replaced, and with the session all of its keys go.
    pair.secret.send(&VaultToKeyer::Expiring { spi: next_there.inbound.0, session: session(1) }).unwrap();
    assert!(!readable(&pair.server.asker, MOMENT));
    pair.server.tell(&ToKeyer::Revoke(session(1)));
    assert_eq!(deleted(&pair.secret), first.inbound.0);
    assert_eq!(slot_of(deleted(&other)), OTHER);
}

#[test]
fn a_workstations_further_worker_meets_the_servers_worker_that_has_least_of_its_session() {
    const OTHER: u16 = 11;
    let pair = Pair::new();
    let other = pair.server.vault(&label("SECRET"), OTHER);
    let second = pair.workstation.vault(&label("SECRET"), 2);
    pair.connect(record(1, "SECRET"));
    pair.answer("SECRET", Some(record(1, "SECRET")));
    assert_eq!(keys(&pair.secret).outbound, keys(&pair.at_workstation).inbound);
    second.send(&VaultToKeyer::Acquire(session(1))).unwrap();
    pair.answer("SECRET", Some(record(1, "SECRET")));
    let (there, here) = (keys(&other), keys(&second));
    assert_eq!((there.outbound.clone(), slot_of(here.inbound.0)), (here.inbound, 2));
}

#[test]
fn a_peer_that_has_its_keys_replaced_again_and_again_leaves_nothing_behind() {
    let (pair, _, here) = Pair::agreed();
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pair.server.process.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().to_owned();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap()
    };
    let install = |vault: &levee_ipc::Channel| loop {
        if let KeyerToVault::Install { inbound, .. } = told(vault) {
            vault.send(&VaultToKeyer::Installed { spi: inbound.spi }).unwrap();
            break inbound.spi;
        }
    };
    let mut spi = here.inbound.0;
    let mut replace = || {
        pair.at_workstation.send(&VaultToKeyer::Expiring { spi, session: session(1) }).unwrap();
        pair.answer("SECRET", Some(record(1, "SECRET")));
        install(&pair.secret);
        spi = install(&pair.at_workstation);
    };
    // For five seconds what was replaced is remembered: it may still arrive.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        replace();
    }
    let before = memory();
    (0..8_000).for_each(|_| replace());
    // Two hundred octets each were 1,600 KiB.
    let more = memory().saturating_sub(before);
    assert!(more < 800, "{more} KiB more");
}
