//! What becomes of a child that the state machine tells of: which vault has its keys, and what is to be done when.

use super::*;
use crate::keyer::tests::{End, Told, WORKER, WORKERS};
use crate::timers::Timer;
use levee_ike::{Aggfrag, ChildSuite, KeyExchange, Path};

/// A server's session with one child, its IKE SA, and the child's SPI.
fn server() -> (Two, IkeId, u32) {
    let (two, keys, _) = Two::agreed();
    let ike = two.server.keyer.children.all[&keys.inbound.0].ike;
    (two, ike, keys.inbound.0)
}

/// A fresh SPI at this worker.
fn fresh(end: &mut End, slot: u16) -> u32 {
    end.keyer.fresh_spi_at(&label(), slot).expect("a worker that runs")
}

fn keys() -> EspKeys {
    let secret = |octets: usize| levee_ike::Secret::new(vec![7; octets]);
    EspKeys { encryption: secret(32), salt: secret(4), integrity: secret(0) }
}

/// A child of this IKE SA, as it is to be.
fn came(end: &End, ike: IkeId, inbound: u32) -> ChildEstablished {
    ChildEstablished {
        ike,
        role: Role::Responder,
        peer: 0,
        inbound,
        outbound: 4_096,
        inbound_keys: keys(),
        outbound_keys: keys(),
        label: Some(SecurityLabel::new(b"SECRET").expect("a label")),
        local: Vec::new(),
        remote: Vec::new(),
        suite: ChildSuite {
            encryption: Encryption::Aes256Gcm16,
            integrity: None,
            key_exchange: Some(KeyExchange::X25519),
            esn: true,
        },
        rekeys: None,
        path: Path { local: end.address, remote: end.address, marker: true },
        udp: true,
        aggfrag: None,
        resource: None,
    }
}

/// Tells of it, granted to this session; whether its keys went to its vault.
fn installs(two: &mut Two, child: ChildEstablished) -> bool {
    let inbound = child.inbound;
    two.server.keyer.children.grant(child.ike, inbound, session(1));
    two.server.keyer.established(child);
    assert!(two.server.keyer.children.granted.is_empty(), "it has come");
    two.settle();
    let kept = two.server.keyer.children.all.contains_key(&inbound);
    assert_eq!(two.server.keys().iter().any(|keys| keys.inbound.0 == inbound), kept);
    kept
}

#[test]
fn keys_that_are_not_as_they_must_be_go_to_no_vault() {
    let (mut two, ike, _) = server();
    let other = begun(&mut two.server, 1)[0];
    let slot = WORKERS[1];
    let counted = "keys that a vault was not to have";
    type Change = fn(&mut ChildEstablished);
    let cases: [(&str, Change, u64, bool); 8] = [
        ("as it is to be", |_| {}, 0, true),
        ("another label", |it| it.label = SecurityLabel::new(b"TOP").ok(), 0, false),
        ("no label", |it| it.label = None, 0, false),
        ("CBC", |it| it.suite.encryption = Encryption::Aes128Cbc, 0, false),
        ("CBC too", |it| it.suite.encryption = Encryption::Aes256Cbc, 0, false),
        ("AGGFRAG", |it| it.aggfrag = Some(Aggfrag { fragments: true }), 1, false),
        ("ChaCha20", |it| it.suite.encryption = Encryption::ChaCha20Poly1305, 0, true),
        ("no exchange of its own", |it| it.suite.key_exchange = None, 0, true),
    ];
    for (what, change, count, goes) in cases {
        let inbound = fresh(&mut two.server, slot);
        let mut child = came(&two.server, ike, inbound);
        change(&mut child);
        let before = two.server.counted(counted);
        assert_eq!(installs(&mut two, child), goes, "{what}");
        assert_eq!(two.server.counted(counted) - before, count, "{what}");
    }
    let inbound = fresh(&mut two.server, slot);
    let child = came(&two.server, other, inbound);
    assert!(!installs(&mut two, child), "its peer has not proved who it is");
    two.server.keyer.children.admit(KeyRecord { ciphers: Some(vec![Cipher::Aes128Gcm]), ..record(1) });
    let inbound = fresh(&mut two.server, slot);
    let child = came(&two.server, ike, inbound);
    assert!(!installs(&mut two, child), "its session's protection has not this cipher");
    assert_eq!(two.server.counted("its session's protection has not this cipher"), 1);
    let inbound = fresh(&mut two.server, slot);
    let mut child = came(&two.server, ike, inbound);
    child.suite.encryption = Encryption::Aes128Gcm16;
    assert!(installs(&mut two, child));
}

#[test]
fn keys_that_are_agreed_by_what_its_label_has_not_go_to_no_vault() {
    let (mut two, ike, _) = server();
    let told = "agreed by what does not count any more";
    let moved = |keying| Moved { keying, since: Duration::ZERO };
    let mut by = keying(None);
    for (exchange, goes) in
        [(Some(KeyExchange::X25519), true), (Some(KeyExchange::P384), false), (None, true)]
    {
        two.server.keyer.children.moved.insert(label(), moved(by.clone()));
        let inbound = fresh(&mut two.server, WORKERS[1]);
        let mut child = came(&two.server, ike, inbound);
        child.suite.key_exchange = exchange;
        assert_eq!(installs(&mut two, child), goes, "{exchange:?}");
    }
    assert_eq!(two.server.counted(told), 1);
    // What the IKE SA is agreed by counts as well.
    by.exchanges.curves = vec![Exchange::P384];
    two.server.keyer.children.moved.insert(label(), moved(by));
    let inbound = fresh(&mut two.server, WORKERS[1]);
    let mut child = came(&two.server, ike, inbound);
    child.suite.key_exchange = Some(KeyExchange::P384);
    assert!(!installs(&mut two, child));
    assert_eq!(two.server.counted(told), 2);
}

#[test]
fn keys_go_to_no_worker_that_is_gone_and_to_no_session_that_is_over() {
    let (mut two, ike, _) = server();
    let inbound = fresh(&mut two.server, WORKERS[1]);
    let child = came(&two.server, ike, inbound);
    two.server.keyer.established(child);
    two.settle();
    assert!(!two.server.keyer.children.all.contains_key(&inbound), "nobody was granted it");
    let inbound = fresh(&mut two.server, WORKERS[1]);
    two.server.no_vault(WORKERS[1]);
    two.settle();
    let child = came(&two.server, ike, inbound);
    assert!(!installs(&mut two, child));
    assert_eq!(two.server.keyer.fresh_spi_at(&label(), WORKERS[1]), None);
    let inbound = fresh(&mut two.server, WORKERS[0]);
    let child = came(&two.server, ike, inbound);
    two.server.keyer.children.end(session(1));
    assert!(!installs(&mut two, child));
}

/// What is due, and when, with what a keyer reports left out.
fn due(end: &mut End) -> Vec<(Duration, Timer)> {
    let timers = &mut end.keyer.timers;
    let next = std::iter::from_fn(|| {
        let at = timers.first()?;
        Some((at, timers.due(at)?))
    });
    next.filter(|(_, timer)| *timer != Timer::Report).collect()
}

/// Whether it is so long from now, or longer by no more than so much and the second that a slow machine takes.
fn is_in(at: Duration, end: &End, wait: Duration, longer: Duration) -> bool {
    let age = end.age();
    at <= age + wait + longer && at + Duration::from_secs(1) >= age + wait
}

#[test]
fn a_childs_times_are_its_places_and_its_protections() {
    let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
    let (mut two, ike, _) = server();
    let at_workstation = two.workstation.keyer.children.all.values().next().expect("a child").ike;
    two.server.no_vault(WORKERS[0]);
    two.settle();
    for (is_server, life, begins, longer) in [
        (true, None, 70 * minute, 10 * minute),
        (false, None, 50 * minute, 10 * minute),
        (true, Some(100 * second), 80 * second, 10 * second),
        (false, Some(100 * second), 70 * second, 10 * second),
        (true, Some(30 * minute), 24 * minute, 3 * minute),
    ] {
        let (end, ike, slot) = match is_server {
            true => (&mut two.server, ike, WORKERS[1]),
            false => (&mut two.workstation, at_workstation, WORKER),
        };
        end.keyer.children.admit(KeyRecord { key_life: life, ..record(1) });
        for rekeys in [None, Some(999)] {
            due(end);
            let inbound = fresh(end, slot);
            end.keyer.children.grant(ike, inbound, session(1));
            let child = ChildEstablished { rekeys, ..came(end, ike, inbound) };
            end.keyer.established(child);
            let due = due(end);
            let of = |timer: Timer| due.iter().find(|(_, it)| *it == timer).map(|(at, _)| *at);
            let rekey = of(Timer::Rekey(inbound)).expect("it is replaced in time");
            assert!(is_in(rekey, end, begins, longer), "{rekey:?} {life:?} {is_server}");
            let expire =
                of(Timer::Expire(inbound)).map(|at| is_in(at, end, life.unwrap_or_default(), Duration::ZERO));
            assert_eq!(expire, life.map(|_| true));
            let settle = of(Timer::Settle(session(1))).map(|at| is_in(at, end, OVERLAP, Duration::ZERO));
            assert_eq!(settle, rekeys.is_none().then_some(true));
            assert_eq!(due.len(), 1 + usize::from(life.is_some()) + usize::from(rekeys.is_none()));
        }
    }
}

#[test]
fn what_answers_a_rekeying_is_sent_by_later_and_what_begins_one_at_once() {
    let (mut two, ike, old) = server();
    for (role, rekeys, is_answer) in [
        (Role::Responder, None, false),
        (Role::Responder, Some(old), true),
        (Role::Initiator, None, false),
        (Role::Initiator, Some(old), false),
    ] {
        let inbound = fresh(&mut two.server, WORKERS[0]);
        two.server.keyer.children.grant(ike, inbound, session(1));
        let child = ChildEstablished { role, rekeys, ..came(&two.server, ike, inbound) };
        two.server.keyer.established(child);
        two.settle();
        let installed = two.server.keys().into_iter().find(|keys| keys.inbound.0 == inbound).expect("keys");
        assert_eq!(installed.answered, is_answer, "{role:?} {rekeys:?}");
        assert_eq!((installed.cipher, installed.outbound), (Cipher::Aes256Gcm, (4_096, vec![7; 36])));
    }
}

#[test]
fn what_was_asked_for_is_its_sessions_and_leaves_what_is_granted() {
    let (mut two, ike, _) = server();
    let (asked, granted) = (fresh(&mut two.server, WORKERS[0]), fresh(&mut two.server, WORKERS[1]));
    two.server.keyer.want(asked, session(1), ike);
    two.server.keyer.children.grant(ike, granted, session(1));
    let child = came(&two.server, ike, asked);
    two.server.keyer.established(child);
    assert!(two.server.keyer.children.all.contains_key(&asked) && two.server.keyer.children.under_way() == 0);
    assert_eq!(two.server.keyer.children.granted[&ike], (granted, session(1)));
    let other = fresh(&mut two.server, WORKERS[1]);
    let child = came(&two.server, ike, other);
    two.server.keyer.established(child);
    assert!(!two.server.keyer.children.all.contains_key(&other), "neither asked for nor granted");
}

#[test]
fn what_is_gone_is_erased_at_once_or_when_nothing_by_it_can_be_under_way() {
    let (mut two, ike, old) = server();
    let slot = slot_of_child(&two, old);
    let late = Duration::from_millis(1_500);
    for (replaced, stale, moved, told, then) in [
        (false, false, false, vec![Told::Delete(0)], None),
        (true, false, false, vec![Told::Retire(0)], Some(OVERLAP)),
        (true, false, true, vec![Told::Retire(0)], Some(MOVED_OVERLAP)),
        (true, true, false, vec![], None),
        (false, true, false, vec![], None),
    ] {
        let inbound = fresh(&mut two.server, slot);
        two.server.keyer.children.give(inbound, Child { stale, ..child(ike, 1) });
        let since = if moved { Duration::from_nanos(1) } else { Duration::ZERO };
        two.server.keyer.children.moved.insert(label(), Moved { keying: keying(None), since });
        two.server.keyer.at(late, Timer::Rekey(inbound));
        due(&mut two.server);
        two.server.told.clear();
        let before = two.server.keyer.children.count(session(1));
        two.server.keyer.child_gone(inbound, replaced);
        two.server.keyer.child_gone(inbound, replaced);
        assert_eq!(two.server.keyer.children.count(session(1)), before - 1);
        let forget = due(&mut two.server);
        two.settle();
        let about = |told: Told| match told {
            Told::Delete(spi) if spi == inbound => Told::Delete(0),
            Told::Retire(spi) if spi == inbound => Told::Retire(0),
            other => other,
        };
        assert!(two.server.told.iter().all(|(at, _)| *at == slot));
        assert_eq!(two.server.told().into_iter().map(about).collect::<Vec<_>>(), told);
        let is = |(at, timer): &(Duration, Timer)| match timer {
            Timer::Forget(at_label, of, spi) => {
                assert_eq!((at_label, *of, *spi), (&label(), session(1), inbound));
                is_in(*at, &two.server, then.expect("it is not erased yet"), Duration::ZERO)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(forget.iter().map(is).collect::<Vec<_>>(), then.map_or(vec![], |_| vec![true]));
    }
}

fn slot_of_child(two: &Two, inbound: u32) -> u16 {
    two.server.keyer.children.slot_of(inbound)
}
