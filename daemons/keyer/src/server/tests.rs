//! Who is asked about, what is answered, and what becomes of a peer.

use super::*;
use crate::keyer::tests::{RANGE, Told, Two, WORKERS, label, record, session, slot_of};
use levee_ipc::vault::{Carriage, VaultToKeyer};

/// What sessiond was told of refusals.
fn refused(two: &Two) -> Vec<&str> {
    let said = two.server.said.iter();
    let why =
        said.map(|said| if let FromKeyer::Refused { reason, .. } = said { reason.as_str() } else { "" });
    why.filter(|why| !why.is_empty()).collect()
}

#[test]
fn sessiond_is_asked_about_a_host_its_label_and_its_accreditation_once_for_each_child() {
    let (mut two, ..) = Two::agreed();
    two.connect(&record(1));
    two.settle();
    let asked = |said: &FromKeyer| match said {
        FromKeyer::Wanted { ticket, device, label: at, accreditation } => {
            assert_eq!((device.as_str(), at), ("ws1", &label()));
            (*ticket, accreditation.clone())
        }
        other => panic!("{other:?}"),
    };
    let asked: Vec<_> = two.asked.iter().map(asked).collect();
    assert_eq!(asked, [(1, Some(RANGE.to_owned())), (2, Some(RANGE.to_owned()))]);
    let ike = *two.server.keyer.server.peers.keys().last().unwrap();
    assert_eq!(two.server.keyer.server.host_of(ike).map(HostName::as_str), Some("ws1"));
}

#[test]
fn an_answer_that_is_of_something_else_gives_no_keys() {
    let another = |device: &str, at: &str| KeyRecord {
        device: device.parse().unwrap(),
        label: at.parse().unwrap(),
        ..record(1)
    };
    let constant =
        KeyRecord { carriage: Carriage::Constant { interval: Duration::from_millis(4) }, ..record(1) };
    let other = "sessiond answered something else";
    for (grants, why) in [
        (Some(another("ws2", "SECRET")), vec![other]),
        (Some(another("ws1", "LOW")), vec![other]),
        (Some(another("ws2", "LOW")), vec![other]),
        (Some(constant), vec!["it did not ask for a constant rate"]),
        (None, vec![]),
    ] {
        let mut two = Two::new();
        two.grants = grants;
        two.connect(&record(1));
        two.until("an end", |two| {
            two.workstation.said.iter().any(|said| matches!(said, FromKeyer::Failed { .. }))
        });
        two.settle();
        assert_eq!(refused(&two), why);
        assert!(two.server.keys().is_empty() && two.workstation.keys().is_empty());
    }
}

#[test]
fn without_a_vault_there_are_no_keys() {
    let mut two = Two::new();
    WORKERS.iter().for_each(|slot| two.server.no_vault(*slot));
    two.settle();
    two.grants = Some(record(1));
    two.connect(&record(1));
    two.settle();
    assert_eq!(refused(&two), ["its label's vault is not up"]);
}

#[test]
fn who_would_have_answered_is_gone_and_another_gets_passes() {
    let mut two = Two::new();
    two.is_slow = true;
    two.connect(&record(1));
    two.until("a question", |two| two.asked.len() == 1);
    two.settle();
    assert_eq!(two.server.keyer.server.asked.len(), 1);
    two.server.another_asker();
    two.until("an answer", |two| {
        two.workstation.said.iter().any(|said| matches!(said, FromKeyer::Failed { .. }))
    });
    assert!(two.server.keyer.server.asked.is_empty());
    let passes = |said: &FromKeyer| matches!(said, FromKeyer::Passes(passes) if passes.len() == PASSES);
    assert!(two.server.said.iter().any(passes), "{:?}", two.server.said);
}

#[test]
fn of_a_peer_that_is_gone_nothing_is_kept() {
    let (mut two, ..) = Two::agreed();
    let server = &two.server.keyer.server;
    assert_eq!((server.peers.len(), server.by_host.len(), server.ends.len()), (1, 1, 1));
    assert_eq!(server.first_end(), server.ends.first().map(|(end, _)| end + 1));
    two.is_slow = true;
    two.workstation.vault(2);
    two.later(Duration::from_secs(1));
    two.workstation.vault_says(2, &VaultToKeyer::Acquire(session(1)));
    two.until("a question", |two| two.server.keyer.server.asked.len() == 1);
    let ike = *two.server.keyer.server.peers.keys().next().unwrap();
    two.server.keyer.expel(ike);
    two.settle();
    let server = &two.server.keyer.server;
    assert!(server.by_host.is_empty() && server.ends.is_empty() && server.asked.is_empty());
    assert_eq!(server.first_end(), None);
}

#[test]
fn a_peer_goes_with_its_certificate_and_not_before() {
    let (mut two, there, _) = Two::agreed();
    let (end, ike) = *two.server.keyer.server.ends.first().unwrap();
    let now = two.server.keyer.now().unix_seconds;
    for (ends, goes) in [(now + 60, false), (now - 1, true)] {
        two.server.keyer.server.ends = BTreeSet::from([(ends, ike)]);
        two.server.keyer.see_to_certificates();
        assert_eq!(two.server.counted("its certificate has run out"), u64::from(goes));
    }
    assert!(end > now);
    two.settle();
    assert!(two.server.told().contains(&Told::Delete(there.inbound.0)));
    assert_eq!((two.server.keyer.endpoint.len(), two.workstation.keyer.endpoint.len()), (0, 0), "it is told");
}

#[test]
fn a_session_has_so_many_children_and_each_is_replaced_all_the_same() {
    for (count, more) in [(MOST_CHILDREN - 1, true), (MOST_CHILDREN, false)] {
        let (mut two, _, here) = Two::agreed();
        let ike = *two.server.keyer.server.peers.keys().next().unwrap();
        two.workstation.vault(2);
        two.later(Duration::from_secs(1));
        two.workstation.told.clear();
        let further = |two: &mut Two| {
            two.workstation.vault_says(2, &VaultToKeyer::Acquire(session(1)));
            two.settle();
            two.workstation.keys()
        };
        for _ in 1..count {
            let spi = two.server.keyer.fresh_spi_at(&label(), WORKERS[0]).unwrap();
            two.server.keyer.children.give_session(spi, ike, session(1));
        }
        let keys = further(&mut two);
        assert_eq!(keys.len(), usize::from(more), "{count}");
        let own = |spi: u32| slot_of(spi) == 2;
        assert!(keys.iter().all(|keys| own(keys.inbound.0)));
        assert_eq!(two.workstation.counted("the peer gave no further child"), u64::from(!more));
        // What is there is replaced, however many there are.
        for spi in keys.iter().map(|keys| keys.inbound.0).chain([here.inbound.0]) {
            two.workstation.keyer.rekey(spi);
            two.settle();
            assert_eq!(two.workstation.keys().len(), 1, "{spi}");
        }
    }
}

#[test]
fn who_is_revoked_is_cut_at_once_and_sessiond_hears_of_it() {
    for (names, cut) in [(&["ws2"][..], false), (&["ws2", "ws1"], true)] {
        let (mut two, there, _) = Two::agreed();
        two.server.told.clear();
        two.server.revokes(&two.ca, names);
        two.settle();
        let revoked = |said: &FromKeyer| matches!(said, FromKeyer::Revoked(host) if host.as_str() == "ws1");
        assert_eq!(two.server.said.iter().any(revoked), cut);
        assert_eq!(two.server.told().contains(&Told::Delete(there.inbound.0)), cut);
        assert_eq!(two.server.keyer.server.peers.is_empty(), cut);
    }
}

#[test]
fn a_list_counts_for_who_showed_a_certificate_before_it_came() {
    let (mut two, ..) = Two::agreed();
    let (_, certificate) = two.server.keyer.server.peers.values().next().unwrap().clone();
    assert!(!two.server.keyer.is_revoked_by_now(&certificate), "there is no list");
    two.server.revokes(&two.ca, &["ws1"]);
    assert!(two.server.keyer.is_revoked_by_now(&certificate));
    two.server.later(LONGEST_PROOF - Duration::from_secs(10));
    assert!(two.server.keyer.is_revoked_by_now(&certificate));
    two.server.later(Duration::from_secs(10));
    assert!(!two.server.keyer.is_revoked_by_now(&certificate), "nobody's proof takes so long");
}

#[test]
fn a_proof_that_is_not_believed_is_told_by_its_name_where_it_has_one() {
    let named = |which: &str| CertificateError::Algorithm(which.to_owned());
    let unnamed = ["an algorithm that has no name", "a method that has no name"];
    for (why, has_name) in [
        (named("RSA"), true),
        (named("the algorithm 1.2.3.4"), false),
        (CertificateError::Method(1), true),
        (CertificateError::Method(14), true),
        (CertificateError::Method(0), false),
        (CertificateError::Method(15), false),
        (CertificateError::Revoked, true),
        (CertificateError::Signature, true),
    ] {
        let told = told_of(&why);
        assert_eq!(told == why.to_string(), has_name, "{told}");
        assert_eq!(unnamed.iter().any(|what| told.contains(what)), !has_name, "{told}");
    }
}
