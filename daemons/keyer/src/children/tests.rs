//! Which children there are, and what becomes of them: told of one by hand, and agreed with a peer.

use super::*;
use crate::keyer::tests::{Two, begun, label, record, session};

use levee_policy::site::Exchange;

mod peers;
mod told;

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

/// Four slots, two sessions, and so many IKE SAs of which nothing will come.
fn begun_with(count: usize) -> (Children, Vec<IkeId>) {
    let mut children = children();
    [1, 2].into_iter().for_each(|number| children.admit(record(number)));
    (children, begun(&mut Two::new().workstation, count))
}

/// A child of this session, made when the keyer began.
fn child(ike: IkeId, number: u8) -> Child {
    Child {
        ike,
        session: session(number),
        label: label(),
        made: Duration::ZERO,
        stale: false,
        own_exchange: true,
        carriage: Carriage::Each,
    }
}

/// The first SPIs of this slot.
fn spis(children: &Children, slot: u16) -> [u32; 3] {
    let all = (256..).filter(|spi| children.slot_of(*spi) == slot).take(3).collect::<Vec<u32>>();
    all.try_into().expect("three")
}

impl Children {
    /// A session has this child of this IKE SA, of which nobody else knows.
    pub fn give_session(&mut self, inbound: u32, ike: IkeId, session: SessionId) {
        self.give(inbound, Child { session, ..child(ike, 1) });
    }

    fn give(&mut self, inbound: u32, child: Child) {
        self.sessions.get_mut(&child.session).expect("a session").children.insert(inbound);
        self.insert(inbound, child);
    }
}

#[test]
fn what_comes_in_is_found_by_its_slot_until_it_is_gone() {
    let (mut children, ikes) = begun_with(1);
    let ([one, two, _], [other, ..]) = (spis(&children, 3), spis(&children, 1));
    [one, two, other].into_iter().for_each(|spi| children.insert(spi, child(ikes[0], 1)));
    assert_eq!(children.by_slot[&3], BTreeSet::from([one, two]));
    assert!(children.remove(one).is_some_and(|child| child.session == session(1)));
    assert!(children.remove(one).is_none() && children.session(one).is_none());
    assert_eq!(children.by_slot, BTreeMap::from([(1, BTreeSet::from([other])), (3, BTreeSet::from([two]))]));
    assert!(children.remove(two).is_some());
    assert_eq!(children.by_slot.keys().collect::<Vec<_>>(), [&1]);
}

#[test]
fn an_spi_is_free_that_no_child_has_nor_is_to_have() {
    let (mut children, ikes) = begun_with(1);
    let [has, wanted, granted] = spis(&children, 2);
    assert!([has, wanted, granted].iter().all(|spi| children.is_free(*spi)));
    children.insert(has, child(ikes[0], 1));
    children.wanted.insert(wanted, (session(1), ikes[0]));
    children.grant(ikes[0], granted, session(1));
    assert!(![has, wanted, granted].iter().any(|spi| children.is_free(*spi)));
    assert_eq!(children.under_way(), 1);
}

#[test]
fn an_ike_sas_labels_are_those_of_its_children_that_their_vaults_know() {
    let (mut children, ikes) = begun_with(2);
    let other: LabelName = "LOW".parse().expect("a label");
    children.give(256, child(ikes[0], 1));
    children.give(257, Child { stale: true, label: other.clone(), ..child(ikes[0], 1) });
    children.give(258, Child { label: other.clone(), ..child(ikes[1], 2) });
    assert_eq!(children.labels_of(ikes[0]), BTreeSet::from([label()]));
    assert_eq!(children.labels_of(ikes[1]), BTreeSet::from([other]));
}

/// How keys are agreed at a label: by X25519 and any cipher.
fn keying(key_life: Option<Duration>) -> Keying {
    let exchanges = levee_policy::site::Exchanges { curves: vec![Exchange::X25519], ml_kem: false };
    Keying { ciphers: Cipher::all().to_vec(), exchanges, key_life }
}

#[test]
fn what_was_made_before_its_labels_word_is_told_but_for_what_is_not_replaced_by_its_like() {
    let (mut children, ikes) = begun_with(2);
    let other: LabelName = "LOW".parse().expect("a label");
    let since = Duration::from_secs(10);
    children.moved.insert(label(), Moved { keying: keying(None), since });
    let (before, at) = (since - Duration::from_nanos(1), since);
    for (spi, one) in [
        (256, Child { made: before, ..child(ikes[0], 1) }),
        (257, Child { made: at, ..child(ikes[0], 1) }),
        (258, Child { made: before, stale: true, ..child(ikes[0], 1) }),
        (259, Child { made: before, label: other, ..child(ikes[0], 1) }),
        (260, Child { made: before, carriage: Carriage::Aggfrag, ..child(ikes[0], 1) }),
        (261, Child { made: before, ..child(ikes[1], 1) }),
    ] {
        children.give(spi, one);
    }
    assert_eq!((children.made_before(ikes[0]), children.made_before(ikes[1])), (vec![256], vec![261]));
}

#[test]
fn a_child_whose_packets_may_not_go_so_any_more_is_followed_by_one_whose_packets_go_as_they_may() {
    let (mut children, ikes) = begun_with(1);
    let carried = |carriage| Child { carriage, ..child(ikes[0], 1) };
    children.admit(KeyRecord { carriage: Carriage::Aggfrag, ..record(1) });
    children.give(256, carried(Carriage::Each));
    assert!(children.goes_otherwise(256) && !children.goes_otherwise(999));
    assert!(!children.is_followed(256), "there is no other");
    children.give(257, carried(Carriage::Each));
    children.give(258, Child { stale: true, ..carried(Carriage::Aggfrag) });
    children.give(259, Child { carriage: Carriage::Aggfrag, ..child(ikes[0], 2) });
    assert!(
        !children.is_followed(256),
        "neither by its like, nor by what its vault has not, nor by another session's"
    );
    children.give(260, carried(Carriage::Aggfrag));
    assert!(children.is_followed(256) && children.is_followed(257));
    assert!(!children.goes_otherwise(260) && !children.is_followed(260) && !children.is_followed(999));
}

#[test]
fn only_what_does_not_go_at_a_constant_rate_is_replaced_unasked() {
    let (mut children, ikes) = begun_with(1);
    children.give(256, child(ikes[0], 1));
    let constant = Carriage::Constant { interval: Duration::from_millis(4) };
    for (carriage, may) in [(Carriage::Each, true), (Carriage::Aggfrag, true), (constant, false)] {
        children.admit(KeyRecord { carriage, ..record(1) });
        assert_eq!(children.may_follow(256), may, "{carriage:?}");
    }
    assert!(!children.may_follow(999));
}

#[test]
fn a_session_has_what_its_vault_knows_or_is_about_to_have() {
    let (mut children, ikes) = begun_with(2);
    let ([one, two, three], [other, ..]) = (spis(&children, 2), spis(&children, 4));
    let has = |children: &Children| {
        let at = |slot| children.has_at(session(1), slot);
        (children.has(session(1)), at(2), at(4), children.count(session(1)))
    };
    children.give(one, child(ikes[0], 2));
    children.wanted.insert(two, (session(2), ikes[0]));
    assert_eq!(has(&children), (false, false, false, 0), "it is another session's");
    children.give(three, Child { stale: true, ..child(ikes[0], 1) });
    assert_eq!(has(&children), (false, false, false, 1));
    children.wanted.insert(other, (session(1), ikes[1]));
    assert_eq!(has(&children), (true, false, true, 1));
    children.grant(ikes[0], 999, session(1));
    children.grant(ikes[1], 998, session(1));
    children.forget(ikes[1]);
    assert_eq!(has(&children), (false, false, false, 1));
    assert_eq!((children.under_way(), children.granted.len()), (1, 1), "of other IKE SAs all stays");
    children.all.get_mut(&three).expect("it is there").stale = false;
    assert_eq!(has(&children), (true, true, false, 1));
    assert_eq!(children.end(session(1)), [(ikes[0], three)]);
    assert_eq!((has(&children), children.label(session(1))), ((false, false, false, 0), None));
    assert_eq!(children.label(session(2)), Some(&label()));
}

#[test]
fn a_session_keeps_to_its_worker_and_goes_to_the_emptiest_with_what_is_further() {
    let (mut children, ikes) = begun_with(3);
    let at = |children: &Children, slot: u16, nth: usize| spis(children, slot)[nth];
    let slots = [2, 3, 4];
    let place = |children: &Children, further| children.place(session(1), &slots, further);
    // Of another session there are two at the first, and one each at the others.
    for (slot, nth) in [(2, 0), (2, 1), (3, 0), (4, 0)] {
        children.give(at(&children, slot, nth), child(ikes[0], 2));
    }
    assert_eq!((place(&children, false), place(&children, true)), (Some(3), Some(3)));
    // What is asked for and what is granted is about to be there.
    children.wanted.insert(at(&children, 3, 1), (session(2), ikes[1]));
    assert_eq!(place(&children, false), Some(4));
    children.grant(ikes[1], at(&children, 4, 1), session(2));
    children.grant(ikes[2], at(&children, 4, 2), session(2));
    assert_eq!(place(&children, false), Some(2));
    children.forget(ikes[2]);
    // Those whose worker died say nothing.
    for nth in [0, 1] {
        let spi = at(&children, 2, nth);
        children.all.get_mut(&spi).expect("it is there").stale = true;
    }
    assert_eq!(place(&children, false), Some(2));
    children.give(at(&children, 4, 2), Child { stale: true, ..child(ikes[0], 1) });
    assert_eq!(place(&children, false), Some(2), "its own neither");
    // Where the session is, it stays; further ones go where it has fewest, and of these where there is fewest of all.
    let spi = at(&children, 4, 2);
    children.all.get_mut(&spi).expect("it is there").stale = false;
    assert_eq!((place(&children, false), place(&children, true)), (Some(4), Some(2)));
    children.wanted.insert(at(&children, 2, 2), (session(1), ikes[0]));
    assert_eq!((place(&children, false), place(&children, true)), (Some(2), Some(3)));
    children.grant(ikes[2], at(&children, 3, 2), session(1));
    assert_eq!(place(&children, true), Some(2), "one each, and here are fewest");
}
