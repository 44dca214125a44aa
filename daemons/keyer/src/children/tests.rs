//! Which children there are, and what becomes of them: told of one by hand, and agreed with a peer.

use super::*;
use crate::keyer::two::{Told, Two, WORKER, WORKERS, record, session, slot_of};

fn children() -> Children {
    Children::new(Steering::new(&[7; Steering::KEY], 4).expect("four slots"))
}

#[test]
fn keys_become_as_old_as_the_session_and_its_label_both_allow() {
    let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
    for (own, labels, expected) in [
        (None, None, None),
        (minutes(5), None, minutes(5)),
        (None, minutes(7), minutes(7)),
        (minutes(5), minutes(7), minutes(5)),
        (minutes(9), minutes(7), minutes(7)),
    ] {
        let mut children = children();
        let record = KeyRecord { key_life: own, ..record(1) };
        let exchanges = levee_policy::site::Exchanges { curves: Vec::new(), ml_kem: false };
        let keying = Keying { ciphers: Vec::new(), exchanges, key_life: labels };
        children.moved.insert(record.label.clone(), Moved { keying, since: Duration::ZERO });
        children.admit(record);
        assert_eq!(children.key_life(SessionId::from_random([1; 16])), expected, "{own:?} {labels:?}");
        assert_eq!(children.key_life(SessionId::from_random([2; 16])), None, "nobody's");
    }
}

#[test]
fn an_spi_that_esp_reserves_is_free_for_nobody_and_steered_nowhere() {
    let children = children();
    for spi in [0, 1, 255] {
        assert!(!children.is_free(spi) && children.slot_of(spi) == 0, "{spi}");
    }
    for spi in [256, u32::MAX] {
        assert!(children.is_free(spi) && (1..=4).contains(&children.slot_of(spi)), "{spi}");
    }
}

#[test]
fn a_session_with_no_keys_goes_to_the_first_of_the_workers_and_to_none_where_there_is_none() {
    let mut children = children();
    children.admit(record(1));
    let session = SessionId::from_random([1; 16]);
    for further in [false, true] {
        assert_eq!(children.place(session, &[], further), None);
        assert_eq!(children.place(session, &[3], further), Some(3));
        assert_eq!(children.place(session, &[2, 3, 4], further), Some(2));
    }
    assert!(!children.has(session) && children.count(session) == 0);
    assert_eq!(children.end(session), []);
    assert!(children.record(session).is_none());
}

#[test]
fn both_ends_have_each_others_keys_at_the_workers_that_their_spis_name() {
    let (mut two, there, here) = Two::agreed();
    assert_eq!((&there.inbound, &there.outbound), (&here.outbound, &here.inbound));
    assert_ne!(there.inbound.1, there.outbound.1);
    assert!(!there.answered && !here.answered);
    assert_eq!((there.session, there.cipher), (session(1), here.cipher));
    assert_eq!((there.peer, here.peer), (Some(two.workstation.address), Some(two.server.address)));
    assert!(WORKERS.contains(&slot_of(there.inbound.0)) && slot_of(here.inbound.0) == WORKER);
    for (end, spi) in [(&mut two.server, there.inbound.0), (&mut two.workstation, here.inbound.0)] {
        let children = &end.keyer.children;
        assert!(children.has(session(1)) && children.count(session(1)) == 1 && children.under_way() == 0);
        assert_eq!(children.session(spi), Some(session(1)));
    }
    two.later(OVERLAP);
    assert_eq!(two.server.told().len(), 2, "each worker is told what there is");
    assert_eq!(two.workstation.told(), [Told::Only(session(1), vec![here.inbound.0])]);
}
