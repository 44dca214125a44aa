//! The session there is, its parts at other servers, and what becomes of either when a server gives nothing.

use super::*;
use crate::keyer::tests::{End, SERVER, Two, WORKER, WORKERS, begun, record, session};
use levee_ipc::keyer::ToKeyer;
use levee_ipc::vault::{Carriage, VaultToKeyer};

/// Why a session failed, each time that it was said.
fn failed(end: &mut End) -> Vec<String> {
    let said = std::mem::take(&mut end.said).into_iter();
    said.filter_map(|said| if let FromKeyer::Failed { reason, .. } = said { Some(reason) } else { None })
        .collect()
}

/// A workstation whose session has begun and has no keys.
fn without_keys() -> Two {
    let mut two = Two::new();
    two.is_slow = true;
    two.connect(&record(1));
    two
}

/// What is said when this happens to the session.
fn says(what: impl Fn(&mut Keyer)) -> Vec<String> {
    let mut two = without_keys();
    what(&mut two.workstation.keyer);
    two.settle();
    failed(&mut two.workstation)
}

#[test]
fn why_a_server_gave_no_keys_is_said_in_words_that_help() {
    let refused = |why: ChildError| says(move |keyer| keyer.keys_refused(session(1), &why));
    let notified = |error: &str| ChildError::Notified(error.to_owned());
    for (why, words) in [
        (notified("TS_UNACCEPTABLE"), "made anew (`levee enrol host`)"),
        (notified("NO_PROPOSAL_CHOSEN"), "the server refuses keys (NO_PROPOSAL_CHOSEN)"),
        (ChildError::BadAnswer("no nonce"), "the server's answer is wrong: no nonce"),
        (ChildError::NotAnswered, "the server gave no keys"),
    ] {
        let told = refused(why);
        assert!(told.len() == 1 && told[0].contains(words), "{told:?}");
    }
    let gone = |why: CloseReason| {
        says(move |keyer| {
            let ike = keyer.workstation.live[&session(1)].connecting.unwrap();
            keyer.server_gone(ike, &why);
        })
    };
    let notified = |error: &str| CloseReason::Notified(error.to_owned());
    for (why, words) in [
        (CloseReason::Peer, "the server ended the negotiation"),
        (CloseReason::PeerSilent, "the server does not answer"),
        (notified("NO_PROPOSAL_CHOSEN"), "its bundle and the site file differ in `suites`"),
        (notified("AUTHENTICATION_FAILED"), "the server says AUTHENTICATION_FAILED"),
        (CloseReason::NotSigned, "the workstation's signer did not sign"),
    ] {
        let told = gone(why);
        assert!(told.len() == 1 && told[0].contains(words), "{told:?}");
    }
}

#[test]
fn only_the_ike_sa_of_a_session_is_missed() {
    let (mut two, ..) = Two::agreed();
    let other = begun(&mut two.workstation, 1)[0];
    let has = |end: &End| {
        let live = &end.keyer.workstation.live[&session(1)];
        (live.ike, live.failures)
    };
    let before = has(&two.workstation);
    assert!(before.0.is_some() && before.1 == 0);
    two.workstation.keyer.server_gone(other, &CloseReason::PeerSilent);
    assert_eq!(has(&two.workstation), before);
    two.workstation.keyer.server_gone(before.0.unwrap(), &CloseReason::PeerSilent);
    assert_eq!(has(&two.workstation), (None, 1));
}

#[test]
fn a_session_that_had_keys_is_tried_again_later_and_later_and_ten_times() {
    let (mut two, ..) = Two::agreed();
    let mut wait = FIRST_WAIT;
    for number in 1..TRIES {
        wait = (wait * 2).min(LONGEST_WAIT);
        two.workstation.keyer.timers = Default::default();
        two.workstation.keyer.try_later(session(1), "no reason");
        let (age, at) = (two.workstation.age(), two.workstation.keyer.timers.first().expect("a time"));
        assert!(
            at + Duration::from_millis(200) > age + wait && at <= age + wait + FIRST_WAIT,
            "{number}: {at:?}"
        );
        assert_eq!(two.workstation.keyer.timers.due(at), Some(Timer::Connect(session(1))));
        let live = two.workstation.keyer.workstation.of(session(1)).unwrap();
        assert!(live.waiting && live.failures == number);
        live.waiting = false;
    }
    assert!(failed(&mut two.workstation).is_empty());
    two.workstation.keyer.try_later(session(1), "no reason");
    two.settle();
    assert_eq!(failed(&mut two.workstation), ["no reason"]);
    assert!(two.workstation.keyer.workstation.live.is_empty() && two.workstation.keyer.endpoint.is_empty());
}

#[test]
fn while_another_try_waits_nothing_else_is_set() {
    let (mut two, ..) = Two::agreed();
    let keyer = &mut two.workstation.keyer;
    keyer.timers = Default::default();
    keyer.try_later(session(1), "no reason");
    keyer.try_later(session(1), "no reason");
    let timers = &mut keyer.timers;
    assert_eq!(std::iter::from_fn(|| timers.due(Duration::MAX)).count(), 1);
}

#[test]
fn what_a_server_began_ends_with_its_certificate() {
    let (mut two, ..) = Two::agreed();
    let end = two.workstation.keyer.workstation.live[&session(1)].certificate.as_ref().unwrap().ends();
    assert_eq!(two.workstation.keyer.workstation.first_end(), Some(end + 1));
    two.workstation.keyer.server_ran_out(end);
    two.settle();
    assert_eq!(two.workstation.keyer.endpoint.len(), 1);
    two.workstation.keyer.server_ran_out(end + 1);
    two.settle();
    assert_eq!((two.workstation.keyer.endpoint.len(), two.server.keyer.endpoint.len()), (0, 0));
    assert_eq!(two.workstation.keyer.workstation.first_end(), None);
}

#[test]
fn the_tpe_hears_once_that_there_are_keys() {
    let (mut two, _, here) = Two::agreed();
    two.workstation.keyer.rekey(here.inbound.0);
    two.settle();
    assert_eq!(two.workstation.keys().len(), 1);
    let completed = |said: &&FromKeyer| matches!(said, FromKeyer::Completed(of) if *of == session(1));
    assert_eq!(two.workstation.said.iter().filter(completed).count(), 1);
}

#[test]
fn another_session_takes_the_place_of_the_one_there_is() {
    let (mut two, _, here) = Two::agreed();
    two.agree(&record(2));
    two.settle();
    let live: Vec<SessionId> = two.workstation.keyer.workstation.live.keys().copied().collect();
    assert_eq!(live, [session(2)]);
    assert_eq!(two.workstation.keyer.endpoint.len(), 1);
    assert!(two.workstation.keyer.children.session(here.inbound.0).is_none());
    // The one there is keeps what it has while it is connected anew.
    let ike = two.workstation.keyer.workstation.live[&session(2)].ike;
    two.connect(&record(2));
    let live = &two.workstation.keyer.workstation.live[&session(2)];
    let under_way = live.connecting;
    assert!(live.ike == ike && under_way.is_some());
    two.connect(&record(2));
    assert_eq!(two.workstation.keyer.workstation.live[&session(2)].connecting, under_way, "it is under way");
}

#[test]
fn a_packet_that_waits_begins_what_is_not_under_way() {
    let (mut two, ..) = Two::agreed();
    two.workstation.vault(2);
    two.later(Duration::from_secs(1));
    two.workstation.told.clear();
    let ike = two.workstation.keyer.workstation.live[&session(1)].ike;
    let count =
        |two: &Two| (two.workstation.keyer.endpoint.len(), two.workstation.keyer.children.under_way());
    for (connecting, waiting, has, after) in [
        (true, false, true, (1, 0)),
        (false, true, true, (1, 0)),
        (true, true, true, (1, 0)),
        (false, false, true, (1, 1)),
        (false, false, false, (2, 2)),
    ] {
        let live = two.workstation.keyer.workstation.of(session(1)).unwrap();
        (live.connecting, live.waiting) = (ike.filter(|_| connecting), waiting);
        live.ike = ike.filter(|_| has);
        // At a worker that has no keys of it.
        two.workstation.keyer.reach_server(session(1), 2);
        assert_eq!(count(&two), after, "{connecting} {waiting} {has}");
    }
}

#[test]
fn a_server_gets_no_child_at_another_label_than_the_sessions() {
    let (mut two, ..) = Two::agreed();
    let low: levee_policy::LabelName = "LOW".parse().unwrap();
    two.workstation.vault_of(low.clone(), WORKER);
    two.workstation.keyer.children.admit(KeyRecord { label: low, ..record(1) });
    two.later(Duration::from_secs(1));
    two.server.told.clear();
    WORKERS.iter().for_each(|slot| two.server.vault_says(*slot, &VaultToKeyer::Acquire(session(1))));
    two.settle();
    assert!(two.server.keys().is_empty());
}

/// A part of the session at another server, which is the same one under a number of its own.
fn with_part(record: &KeyRecord) -> Two {
    let (mut two, ..) = Two::agreed();
    let (server, name) = (two.server.address, SERVER.parse().unwrap());
    two.workstation.say(&ToKeyer::Admit { record: record.clone(), server, name });
    two
}

#[test]
fn a_part_comes_with_its_first_packet_says_nothing_and_goes_with_its_session() {
    let mut two = with_part(&record(2));
    two.settle();
    assert_eq!(two.workstation.keyer.endpoint.len(), 1, "nothing waits for it");
    assert_eq!(two.workstation.keyer.workstation.live[&session(2)].peer, 1);
    // Admitted again it has the same peer.
    let (server, name) = (two.server.address, SERVER.parse().unwrap());
    two.workstation.say(&ToKeyer::Admit { record: record(2), server, name });
    assert_eq!(two.workstation.keyer.endpoint.config().peers.len(), 2);
    let (server, name) = (two.server.address, "other.example".parse().unwrap());
    two.workstation.say(&ToKeyer::Admit { record: record(3), server, name });
    assert_eq!(two.workstation.keyer.workstation.live[&session(3)].peer, 2);
    two.workstation.say(&ToKeyer::Admit {
        record: record(3),
        server,
        name: "other.example".parse().unwrap(),
    });
    assert_eq!(two.workstation.keyer.endpoint.config().peers.len(), 3);
    two.grants = Some(record(2));
    two.workstation.said.clear();
    two.workstation.vault_says(WORKER, &VaultToKeyer::Acquire(session(2)));
    two.settle();
    let keys = two.workstation.keys();
    assert!(keys.len() == 1 && keys[0].session == session(2));
    // (The session itself is not another's: it stays.)
    assert_eq!(two.workstation.keyer.workstation.live.len(), 3);
    two.workstation.keyer.give_up(session(2), "no reason");
    two.settle();
    assert!(failed(&mut two.workstation).is_empty(), "the session does without");
    assert!(two.workstation.keyer.workstation.live[&session(2)].ike.is_none());
    two.workstation.keyer.try_later(session(2), "no reason");
    assert!(failed(&mut two.workstation).is_empty());
    two.workstation.said.clear();
    two.workstation.say(&ToKeyer::Revoke(session(1)));
    two.settle();
    assert_eq!(two.workstation.keyer.workstation.live.len(), 0);
}

#[test]
fn a_part_whose_packets_may_go_otherwise_is_asked_about_every_second_and_not_for_ever() {
    let mut two = with_part(&record(2));
    two.grants = Some(record(2));
    two.workstation.vault_says(WORKER, &VaultToKeyer::Acquire(session(2)));
    two.settle();
    let otherwise = KeyRecord { carriage: Carriage::Aggfrag, ..record(2) };
    let asked = |two: &mut Two| two.workstation.keyer.workstation.of(session(2)).unwrap().asked;
    assert_eq!(asked(&mut two), 0, "all goes as it may");
    two.is_slow = true;
    let (server, name) = (two.server.address, SERVER.parse().unwrap());
    two.workstation.keyer.timers = Default::default();
    two.workstation.say(&ToKeyer::Admit { record: otherwise.clone(), server, name });
    assert_eq!(asked(&mut two), 2);
    let again = |two: &mut Two| {
        let timers = &mut two.workstation.keyer.timers;
        std::iter::from_fn(|| timers.due(Duration::MAX)).filter(|it| *it == Timer::Change(session(2))).count()
    };
    assert_eq!(again(&mut two), 1);
    let name = SERVER.parse().unwrap();
    two.workstation.say(&ToKeyer::Admit { record: otherwise, server, name });
    assert_eq!((asked(&mut two), again(&mut two)), (1, 0), "one look is under way");
    for (before, after, looks) in [(1, 2, 1), (MOST_ASKED - 1, MOST_ASKED, 1), (MOST_ASKED, 0, 0)] {
        two.workstation.keyer.workstation.of(session(2)).unwrap().asked = before;
        two.workstation.keyer.change_part(session(2));
        assert_eq!((asked(&mut two), again(&mut two)), (after, looks), "{before}");
    }
}

#[test]
fn a_session_with_a_server_whose_certificate_is_revoked_is_over() {
    for (names, over) in [(&["ws1"][..], false), (&["ws1", SERVER], true)] {
        let (mut two, ..) = Two::agreed();
        two.workstation.revokes(&two.ca, names);
        two.settle();
        let told = failed(&mut two.workstation);
        assert_eq!(told, if over { vec!["the server's certificate is revoked"] } else { vec![] });
        assert_eq!(two.workstation.keyer.workstation.live.is_empty(), over);
    }
}
