//! Children that two keyers agree on, from the first to the last.

use super::*;
use crate::keyer::tests::{End, Keys, Told, WORKER, WORKERS, slot_of};
use crate::timers::Timer;
use levee_ike::{Childless, Config, Endpoint};
use levee_ipc::keyer::{FromKeyer, ToKeyer};
use levee_ipc::vault::VaultToKeyer;

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

/// What vaults were told of pairs since the last look: which got keys, which are not sent by any more, and which are erased.
fn pairs(end: &mut End) -> (Vec<Keys>, Vec<u32>, Vec<u32>) {
    let (mut installed, mut retired, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
    for (slot, told) in std::mem::take(&mut end.told) {
        let spi = match &told {
            Told::Install(keys) => keys.inbound.0,
            Told::Retire(spi) | Told::Delete(spi) => *spi,
            Told::Only(..) => continue,
        };
        assert_eq!(slot_of(spi), slot, "the worker that the SPI names");
        match told {
            Told::Install(keys) => installed.push(keys),
            Told::Retire(spi) => retired.push(spi),
            _ => deleted.push(spi),
        }
    }
    (installed, retired, deleted)
}

/// The one pair that has taken this one's place at this end.
fn follows(end: &mut End, old: u32) -> Keys {
    let (mut installed, retired, deleted) = pairs(end);
    assert_eq!((installed.len(), retired, deleted), (1, vec![old], vec![]));
    installed.remove(0)
}

fn nothing() -> (Vec<Keys>, Vec<u32>, Vec<u32>) {
    (Vec::new(), Vec::new(), Vec::new())
}

#[test]
fn keys_are_replaced_in_time_by_whoever_comes_first_and_erased_when_nothing_by_them_is_under_way() {
    for by_server in [false, true] {
        let (mut two, there, here) = Two::agreed();
        two.later(OVERLAP);
        two.server.told.clear();
        two.workstation.told.clear();
        match by_server {
            true => two.server.later(Duration::from_secs(80 * 60)),
            false => two.workstation.later(Duration::from_secs(60 * 60)),
        }
        two.settle();
        let (server, workstation) =
            (follows(&mut two.server, there.inbound.0), follows(&mut two.workstation, here.inbound.0));
        assert_eq!((&server.inbound, &server.outbound), (&workstation.outbound, &workstation.inbound));
        assert_eq!((server.answered, workstation.answered), (!by_server, by_server));
        two.later(OVERLAP - Duration::from_secs(2));
        assert_eq!((pairs(&mut two.server), pairs(&mut two.workstation)), (nothing(), nothing()));
        two.later(Duration::from_secs(2));
        assert_eq!(pairs(&mut two.server).2, [there.inbound.0]);
        assert_eq!(pairs(&mut two.workstation).2, [here.inbound.0]);
    }
}

#[test]
fn what_its_vault_has_not_or_what_is_followed_is_not_replaced() {
    let (mut two, there, _) = Two::agreed();
    let (spi, ike) = (there.inbound.0, two.server.keyer.children.all[&there.inbound.0].ike);
    two.server.keyer.children.all.get_mut(&spi).unwrap().stale = true;
    two.server.keyer.rekey(spi);
    two.server.keyer.rekey(999);
    assert_eq!(two.server.keyer.children.under_way(), 0);
    two.server.keyer.children.all.get_mut(&spi).unwrap().stale = false;
    two.server.keyer.children.admit(KeyRecord { carriage: Carriage::Aggfrag, ..record(1) });
    let other = two.server.keyer.fresh_spi_at(&label(), WORKERS[1]).unwrap();
    two.server.keyer.children.give(other, Child { carriage: Carriage::Aggfrag, ..child(ike, 1) });
    two.server.keyer.rekey(spi);
    assert_eq!(two.server.keyer.children.under_way(), 0);
    two.server.keyer.child_gone(other, false);
    two.server.keyer.rekey(spi);
    assert_eq!(two.server.keyer.children.under_way(), 1);
}

#[test]
fn keys_that_are_as_old_as_they_may_be_go_at_once_whatever_the_peer_says() {
    let (mut two, there, here) = Two::agreed();
    pairs(&mut two.server);
    for _ in 0..2 {
        two.server.keyer.expire(there.inbound.0);
    }
    two.settle();
    assert_eq!(pairs(&mut two.server), (vec![], vec![], vec![there.inbound.0]));
    assert_eq!(pairs(&mut two.workstation).2, [here.inbound.0], "the peer is told");
    assert_eq!(two.server.counted("as old as their session's protection lets them be"), 1);
    assert_eq!(two.server.keyer.children.count(session(1)), 0);
}

#[test]
fn a_workstation_offers_what_its_sessions_protection_has_and_nothing_else() {
    for cipher in Cipher::all() {
        let mut two = Two::new();
        let wanted = KeyRecord { ciphers: Some(vec![*cipher]), ..record(1) };
        let (there, here) = two.agree(&wanted);
        assert_eq!((there.cipher, here.cipher), (*cipher, *cipher));
    }
}

#[test]
fn what_a_label_has_from_now_on_replaces_what_may_not_stay() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let fewer = |key_life| Keying { ciphers: vec![Cipher::Aes128Gcm, Cipher::Aes256Gcm], ..keying(key_life) };
    let (mut two, mut there, mut here) = Two::agreed();
    for (keying, stays) in [
        (keying(None), false),
        (keying(None), true),
        (keying(seconds(300)), false),
        (keying(seconds(400)), true),
        (keying(None), true),
        // Neither may keep, what is sealed by too much or what becomes too old.
        (fewer(None), false),
        (fewer(seconds(300)), false),
        (self::keying(seconds(300)), false),
    ] {
        two.server.told.clear();
        two.workstation.told.clear();
        two.server.keyer.move_to(label(), keying.clone());
        two.settle();
        assert_eq!(two.server.keyer.children.keying(&label()), Some(&keying));
        if stays {
            assert_eq!((pairs(&mut two.server), pairs(&mut two.workstation)), (nothing(), nothing()));
            continue;
        }
        let (old, then) = (there.inbound.0, here.inbound.0);
        (there, here) = (follows(&mut two.server, old), follows(&mut two.workstation, then));
        two.later(MOVED_OVERLAP);
        assert_eq!(pairs(&mut two.server).2, [old], "whoever did that waits for the old keys' end");
    }
}

#[test]
fn what_may_not_stay_has_an_end_whether_or_not_it_is_replaced() {
    let life = Duration::from_secs(100);
    let (mut two, there, _) = Two::agreed();
    let (spi, ike) = (there.inbound.0, two.server.keyer.children.all[&there.inbound.0].ike);
    let keyer = &mut two.server.keyer;
    let [stale, other] = [(); 2].map(|()| keyer.fresh_spi_at(&label(), WORKERS[1]).unwrap());
    keyer.children.give(stale, Child { stale: true, ..child(ike, 1) });
    keyer.children.insert(other, Child { label: "LOW".parse().unwrap(), ..child(ike, 1) });
    two.server.later(Duration::from_secs(30));
    two.server.keyer.move_to(label(), keying(Some(life)));
    let age = two.server.age();
    let timers = &mut two.server.keyer.timers;
    let mut ends = Vec::new();
    while let Some(at) = timers.first() {
        if let Some(Timer::Expire(spi)) = timers.due(at) {
            ends.push((spi, (age + life - at).as_secs_f64().round() as u64));
        }
    }
    assert_eq!(ends, [(spi, 30)], "it is thirty seconds old already");
}

#[test]
fn what_does_not_go_as_it_may_any_more_is_followed_by_the_workstation_or_a_second_later() {
    let constant = Carriage::Constant { interval: Duration::from_millis(4) };
    for (carriage, at_server, followed) in
        [(Carriage::Aggfrag, true, true), (constant, true, false), (Carriage::Aggfrag, false, false)]
    {
        let (mut two, there, here) = Two::agreed();
        let (end, spi) = match at_server {
            true => (&mut two.server, there.inbound.0),
            false => (&mut two.workstation, here.inbound.0),
        };
        end.keyer.children.admit(KeyRecord { carriage, ..record(1) });
        end.keyer.timers = Default::default();
        end.keyer.move_to(label(), keying(None));
        assert_eq!(end.keyer.children.under_way(), 0, "not at once");
        let (at, age) = (end.keyer.timers.first(), end.age());
        assert_eq!(at.is_some(), followed);
        if let Some(at) = at {
            assert!(at <= age + COMES && at + Duration::from_millis(500) > age + COMES);
            assert_eq!(end.keyer.timers.due(at), Some(Timer::Rekey(spi)));
        }
    }
}

#[test]
fn a_worker_in_anothers_place_has_no_keys_and_gets_others_when_it_is_asked_for() {
    let (mut two, there, here) = Two::agreed();
    let (spi, slot) = (there.inbound.0, slot_of(there.inbound.0));
    let ike = two.server.keyer.children.all[&spi].ike;
    let other = *WORKERS.iter().find(|worker| **worker != slot).unwrap();
    let [elsewhere, low] = [other, slot].map(|at| two.server.keyer.fresh_spi_at(&label(), at).unwrap());
    two.server.keyer.children.insert(elsewhere, child(ike, 1));
    two.server.keyer.children.insert(low, Child { label: "LOW".parse().unwrap(), ..child(ike, 1) });
    two.server.vault(slot);
    two.settle();
    let stale = |two: &Two, spi| two.server.keyer.children.all[&spi].stale;
    assert_eq!([spi, elsewhere, low].map(|spi| stale(&two, spi)), [true, false, false]);
    for spi in [elsewhere, low] {
        two.server.keyer.children.remove(spi);
    }
    pairs(&mut two.workstation);
    two.server.told.clear();
    two.server.say(&ToKeyer::Renew(record(1)));
    two.settle();
    let (installed, _, deleted) = pairs(&mut two.server);
    assert_eq!((installed.len(), deleted), (1, vec![]), "there is nothing to erase");
    let (installed, _, deleted) = pairs(&mut two.workstation);
    assert_eq!((installed.len(), deleted), (1, vec![here.inbound.0]), "what the server has not is closed");
    assert_eq!(two.server.keyer.children.count(session(1)), 1);
}

#[test]
fn keys_that_a_vault_refuses_are_closed_and_a_workstation_without_others_gives_up() {
    for at_server in [true, false] {
        let mut two = Two::new();
        let refuses = if at_server { &mut two.server } else { &mut two.workstation };
        refuses.refusal = Some(levee_ipc::vault::Refusal::Full);
        two.grants = Some(record(1));
        two.connect(&record(1));
        two.until("an answer", |two| {
            let end = if at_server { &two.server } else { &two.workstation };
            end.counted("a vault refused keys: Full") == 1
        });
        two.settle();
        for end in [&mut two.server, &mut two.workstation] {
            assert_eq!(end.keyer.children.all.len(), 0);
        }
        let failed = |said: &FromKeyer| matches!(said, FromKeyer::Failed { reason, .. } if reason.contains("refused the keys"));
        assert_eq!(two.workstation.said.iter().any(failed), !at_server, "{:?}", two.workstation.said);
        assert!(!two.server.said.iter().any(|said| matches!(said, FromKeyer::Failed { .. })));
    }
}

#[test]
fn only_the_worker_of_its_label_that_an_spi_names_can_refuse_its_keys() {
    let (mut two, _, here) = Two::agreed();
    let (spi, keyer) = (here.inbound.0, &mut two.workstation.keyer);
    let low: LabelName = "LOW".parse().unwrap();
    keyer.not_installed(&label(), WORKER + 1, spi, "it is another's");
    keyer.not_installed(&low, WORKER, spi, "it is another label's");
    keyer.not_installed(&label(), WORKER, 999, "nobody has it");
    assert!(!keyer.children.all[&spi].stale);
    // Beside another it is no reason to give up.
    let ike = keyer.children.all[&spi].ike;
    let other = keyer.fresh_spi_at(&label(), WORKER).unwrap();
    keyer.children.give(other, child(ike, 1));
    keyer.not_installed(&label(), WORKER, other, "it has no room");
    assert!(keyer.children.all[&other].stale && !keyer.children.all[&spi].stale);
    two.settle();
    assert!(!two.workstation.said.iter().any(|said| matches!(said, FromKeyer::Failed { .. })));
}

#[test]
fn a_packet_that_waits_at_a_worker_has_it_asked_for_keys_there_unless_they_have_just_come() {
    let (mut two, there, here) = Two::agreed();
    let slot = slot_of(there.inbound.0);
    pairs(&mut two.workstation);
    two.server.vault_says(slot, &VaultToKeyer::Acquire(session(1)));
    two.settle();
    assert_eq!(
        (pairs(&mut two.server), pairs(&mut two.workstation)),
        (nothing(), nothing()),
        "they are young"
    );
    two.later(YOUNG);
    let other = *WORKERS.iter().find(|worker| **worker != slot).unwrap();
    two.server.vault_says(other, &VaultToKeyer::Acquire(session(1)));
    two.settle();
    let (installed, _, deleted) = pairs(&mut two.server);
    assert_eq!((installed.len(), deleted), (1, vec![]));
    assert_eq!(slot_of(installed[0].inbound.0), other, "a further one, and the first stays");
    assert!(pairs(&mut two.workstation).2.is_empty());
    two.server.vault_says(slot, &VaultToKeyer::Acquire(session(1)));
    two.settle();
    let (installed, _, deleted) = pairs(&mut two.server);
    assert_eq!((installed.len(), deleted, slot_of(installed[0].inbound.0)), (1, vec![], slot));
    assert_eq!(pairs(&mut two.workstation).2, [here.inbound.0], "its vault had lost it");
    // One that its vault does not know is not young.
    two.server.keyer.children.all.get_mut(&installed[0].inbound.0).unwrap().stale = true;
    two.server.vault_says(slot, &VaultToKeyer::Acquire(session(1)));
    two.settle();
    assert_eq!(pairs(&mut two.server).0.len(), 1);
    two.server.vault_says(slot, &VaultToKeyer::Acquire(session(2)));
    two.settle();
    assert_eq!(pairs(&mut two.server), nothing(), "nobody's");
}

#[test]
fn a_child_is_asked_for_when_its_ike_sa_has_the_keys_that_its_label_asks_for() {
    let (mut two, there, _) = Two::agreed();
    let slot = slot_of(there.inbound.0);
    two.server.vault(slot);
    two.settle();
    let mut by = keying(None);
    by.exchanges.curves = vec![Exchange::P384];
    two.server.keyer.move_to(label(), by);
    two.settle();
    pairs(&mut two.server);
    two.server.vault_says(slot, &VaultToKeyer::Acquire(session(1)));
    assert_eq!(two.server.keyer.children.under_way(), 0, "not yet");
    two.settle();
    let (installed, ..) = pairs(&mut two.server);
    assert_eq!((installed.len(), slot_of(installed[0].inbound.0)), (1, slot));
}

#[test]
fn a_child_is_asked_for_only_where_there_is_none() {
    let (mut two, there, _) = Two::agreed();
    let (ike, slot) = (two.server.keyer.children.all[&there.inbound.0].ike, slot_of(there.inbound.0));
    let other = *WORKERS.iter().find(|worker| **worker != slot).unwrap();
    for (at, asks) in [(None, 0), (Some(slot), 0), (Some(other), 1), (Some(other), 1), (Some(77), 1)] {
        two.server.keyer.create(ike, session(1), at);
        assert_eq!(two.server.keyer.children.under_way(), asks, "{at:?}");
    }
    two.server.keyer.create(ike, session(2), None);
    assert_eq!(two.server.keyer.children.under_way(), 1, "of a session that is not there nothing");
}

#[test]
fn what_is_asked_for_is_its_sessions_with_a_resource_only_where_it_is_further() {
    let (mut two, ..) = Two::agreed();
    let (inner, reach) = (
        vec![Selector::host("10.81.0.5".parse().unwrap())],
        vec![Selector::subnet("10.80.0.1".parse().unwrap(), 32).unwrap()],
    );
    for (at_server, slot) in [(true, WORKERS[1]), (false, WORKER)] {
        let end = if at_server { &mut two.server } else { &mut two.workstation };
        end.keyer.children.admit(KeyRecord { session: session(2), ..record(2) });
        for (number, at, further) in
            [(1, None, false), (1, Some(slot), true), (2, None, false), (2, Some(slot), false)]
        {
            let child = end.keyer.new_child(session(number), at).unwrap();
            assert_eq!(child.resource.is_some(), further, "{number} {at:?}");
            assert!(at.is_none_or(|at| slot_of(child.spi) == at) && !child.aggfrag && !child.want_address);
            let sides = if at_server { (&reach, &inner) } else { (&inner, &reach) };
            assert_eq!((&child.local, &child.remote), sides);
            assert_eq!(child.label.as_ref().and_then(SecurityLabel::as_str), Some("SECRET"));
        }
        end.keyer.children.admit(KeyRecord { carriage: Carriage::Aggfrag, ..record(2) });
        assert!(end.keyer.new_child(session(2), None).unwrap().aggfrag);
        assert!(
            end.keyer.new_child(session(3), None).is_none()
                && end.keyer.new_child(session(1), Some(77)).is_none()
        );
    }
}

#[test]
fn a_child_that_did_not_come_about_is_asked_for_again_closed_or_done_without() {
    let minute = Duration::from_secs(60);
    let refused = || ChildError::Notified("TS_UNACCEPTABLE".to_owned());
    for (own_exchange, why, again, closed) in [
        (true, refused(), true, false),
        (false, refused(), false, true),
        (true, ChildError::Superseded, false, false),
        (false, ChildError::Superseded, false, false),
    ] {
        let (mut two, there, _) = Two::agreed();
        let spi = there.inbound.0;
        let ike = two.server.keyer.children.all[&spi].ike;
        two.server.keyer.children.all.get_mut(&spi).unwrap().own_exchange = own_exchange;
        two.server.keyer.timers = Default::default();
        two.server.keyer.want(999, session(1), ike);
        two.server.keyer.child_failed(ike, 999, Some(spi), &why);
        assert_eq!(two.server.keyer.children.under_way(), 0);
        let (at, age) = (two.server.keyer.timers.first(), two.server.age());
        assert_eq!(at.is_some(), again, "{why:?}");
        if let Some(at) = at {
            assert!(at <= age + minute && at + Duration::from_secs(1) > age + minute);
            assert_eq!(two.server.keyer.timers.due(at), Some(Timer::Rekey(spi)));
        }
        two.settle();
        assert_eq!(pairs(&mut two.server).2, if closed { vec![spi] } else { vec![] });
    }
}

#[test]
fn without_a_further_child_a_session_goes_on_and_without_any_a_workstation_says_so() {
    let counted = "the peer gave no further child SA of a session";
    let why = ChildError::Notified("TS_UNACCEPTABLE".to_owned());
    for (at_server, has, further, fails) in
        [(true, true, 1, false), (true, false, 0, false), (false, true, 1, false), (false, false, 0, true)]
    {
        let (mut two, there, here) = Two::agreed();
        let (end, spi) = match at_server {
            true => (&mut two.server, there.inbound.0),
            false => (&mut two.workstation, here.inbound.0),
        };
        let ike = end.keyer.children.all[&spi].ike;
        end.keyer.children.all.get_mut(&spi).unwrap().stale = !has;
        end.keyer.want(999, session(1), ike);
        end.keyer.child_failed(ike, 999, None, &why);
        // Of what nobody had asked for nothing is said.
        end.keyer.child_failed(ike, 998, None, &why);
        assert_eq!(end.counted(counted), further);
        let tries = std::iter::from_fn(|| end.keyer.timers.due(Duration::MAX));
        assert_eq!(tries.filter(|timer| *timer == Timer::Connect(session(1))).count(), usize::from(fails));
    }
}

#[test]
fn a_part_asks_once_for_what_goes_as_it_may_and_gives_up_the_rest_when_it_has_it() {
    let (mut two, _, here) = Two::agreed();
    let (spi, ike) = (here.inbound.0, two.workstation.keyer.children.all[&here.inbound.0].ike);
    let goes_on = |two: &mut Two, late| {
        let left = two.workstation.keyer.carry_otherwise(ike, session(1), late);
        (left, two.workstation.keyer.children.under_way())
    };
    assert_eq!(goes_on(&mut two, false), (false, 0), "all goes as it may");
    assert_eq!(goes_on(&mut two, true), (false, 0));
    let otherwise = KeyRecord { carriage: Carriage::Aggfrag, ..record(1) };
    two.grants = Some(otherwise.clone());
    two.workstation.keyer.children.admit(otherwise);
    assert_eq!(goes_on(&mut two, false), (true, 1));
    assert_eq!(goes_on(&mut two, false), (true, 1), "it is under way");
    pairs(&mut two.workstation);
    two.settle();
    let (installed, _, deleted) = pairs(&mut two.workstation);
    assert!(installed.len() == 1 && installed[0].aggregation.is_some() && deleted.is_empty());
    assert_eq!(goes_on(&mut two, false), (true, 0), "something may be under way to the old one");
    two.settle();
    assert_eq!(pairs(&mut two.workstation), nothing());
    two.later(MOVED_OVERLAP);
    assert_eq!(goes_on(&mut two, false), (true, 0));
    two.settle();
    assert_eq!(pairs(&mut two.workstation).2, [spi]);
    assert_eq!(goes_on(&mut two, false), (false, 0));
}

#[test]
fn what_goes_otherwise_is_given_up_late_without_anything_in_its_place() {
    let (mut two, _, here) = Two::agreed();
    let (spi, ike) = (here.inbound.0, two.workstation.keyer.children.all[&here.inbound.0].ike);
    two.workstation.keyer.children.admit(KeyRecord { carriage: Carriage::Aggfrag, ..record(1) });
    pairs(&mut two.workstation);
    two.workstation.keyer.children.all.get_mut(&spi).unwrap().stale = true;
    assert!(!two.workstation.keyer.carry_otherwise(ike, session(1), true), "its vault has it no more");
    two.workstation.keyer.children.all.get_mut(&spi).unwrap().stale = false;
    assert!(two.workstation.keyer.carry_otherwise(ike, session(1), true));
    assert_eq!(two.workstation.keyer.children.under_way(), 0);
    two.settle();
    assert_eq!(pairs(&mut two.workstation).2, [spi]);
}

#[test]
fn a_vault_is_told_all_that_its_session_has_and_what_may_still_arrive() {
    let (mut two, there, _) = Two::agreed();
    let old = there.inbound.0;
    two.server.keyer.rekey(old);
    two.settle();
    let new = follows(&mut two.server, old).inbound.0;
    two.server.keyer.settle(session(1));
    two.server.keyer.settle(session(2));
    two.settle();
    let only = Told::Only(session(1), vec![new, old]);
    assert_eq!(two.server.told(), [only.clone(), only], "each worker");
    two.server.keyer.children.all.get_mut(&new).unwrap().stale = true;
    two.server.keyer.settle(session(1));
    two.settle();
    assert_eq!(two.server.told(), [], "it is about to lose its last, or asks for keys");
}

#[test]
fn an_ike_sa_whose_place_is_taken_ends_when_the_other_has_had_keys_for_a_second() {
    let (mut two, ..) = Two::agreed();
    two.connect(&record(1));
    two.settle();
    let count = |two: &Two| (two.workstation.keyer.endpoint.len(), two.server.keyer.endpoint.len());
    assert_eq!(count(&two), (2, 2));
    two.later(MOVED_OVERLAP);
    assert_eq!(count(&two), (1, 1));
}

#[test]
fn a_child_without_a_key_exchange_of_its_own_gets_other_keys_at_once() {
    let mut two = Two::new();
    let workstation = &mut two.workstation.keyer;
    let mut config = Config::new(workstation.endpoint.config().peers.clone());
    config.ike = workstation.proposals.clone();
    config.peers[0].childless = Childless::Never;
    workstation.endpoint = Endpoint::new(config);
    two.grants = Some(record(1));
    two.connect(&record(1));
    let own = |end: &End| {
        let children: Vec<&Child> = end.keyer.children.all.values().collect();
        matches!(children[..], [Child { own_exchange: true, .. }])
    };
    two.until("a child with keys of its own at both", |two| own(&two.server) && own(&two.workstation));
    two.settle();
    assert!(two.server.keys().len() > 1, "there was one before it");
    assert_eq!(two.server.keyer.children.under_way(), 0);
}
