//! A real gate with both real stacks: what passes, what does not, and what happens when one of them is wrong or gone. The
//! test plays warden, sessiond, keyer and the client. Needs root.

mod world;

use std::time::{Duration, Instant};

use levee_ipc::agree::{Items, ToStack};
use levee_ipc::vault::{Cipher, Refusal, SessiondToVault, VaultToKeyer, VaultToSessiond};
use levee_session::SessionId;
use levee_sys::tun::Offload;
use world::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn packets_pass_both_ways_where_both_stacks_agree_in_every_suite() {
    for (cipher, esn) in
        [(Cipher::Aes128Gcm, true), (Cipher::Aes256Gcm, false), (Cipher::ChaCha20Poly1305, true)]
    {
        let mut world = World::new();
        world.up(cipher, esn);
        for length in [0, 1, 100, 1_300] {
            assert!(world.ping(length, 10 * SECOND), "{cipher:?} {length}");
        }
        let counters = world.counters();
        assert_eq!((counters["disagreed"], counters["packets-in"], counters["packets-out"]), (0, 4, 4));
        // A new pair in the place of the old one.
        world.keys(cipher, esn);
        assert!(world.ping(64, 10 * SECOND));
        assert_eq!(world.counters()["disagreed"], 0);
    }
}

#[test]
fn what_anybody_may_send_passes_nowhere_and_is_no_disagreement() {
    let mut world = World::new();
    world.up(Cipher::Aes256Gcm, true);
    assert!(world.ping(20, 10 * SECOND));
    let good = world.request(20);
    for at in 0..good.len() {
        let mut wrong = good.clone();
        wrong[at] ^= 0x40;
        world.send(&wrong);
        world.send(&good[..at]);
    }
    world.send(&good);
    world.send(&good);
    assert!(world.ping(20, 10 * SECOND));
    let counters = world.counters();
    assert_eq!((counters["disagreed"], counters["packets-in"]), (0, 3), "{counters:?}");
    assert!(counters["auth-failed"] > 50 && counters["replay"] == 1, "{counters:?}");
}

/// Changes one bit of a key on its way to one of the stacks.
fn spoil(inbound: bool) -> impl FnMut(ToStack) -> ToStack + Send + 'static {
    move |question| match question {
        ToStack::Install {
            now,
            session,
            cipher,
            esn,
            inbound: arriving,
            outbound: leaving,
            answered,
            peer,
        } => {
            let (arriving, leaving) =
                if inbound { (other_key(&arriving), leaving) } else { (arriving, other_key(&leaving)) };
            ToStack::Install {
                now,
                session,
                cipher,
                esn,
                inbound: arriving,
                outbound: leaving,
                answered,
                peer,
            }
        }
        other => other,
    }
}

#[test]
fn with_another_key_in_either_stack_nothing_passes_and_the_alarm_is_raised() {
    for which in [Which::First, Which::Second] {
        for inbound in [true, false] {
            let mut world = World::with(Some((which, Box::new(spoil(inbound)))));
            world.up(Cipher::Aes256Gcm, true);
            assert!(!world.ping(20, SECOND / 2), "{which:?} {inbound}");
            match hear_within(&world.sessiond, 10 * SECOND) {
                Some(VaultToSessiond::Disagreed(packets)) => assert!(packets >= 1),
                other => panic!("{which:?} {inbound}: no alarm but {other:?}"),
            }
            let counters = world.counters();
            assert!(counters["disagreed"] >= 1, "{which:?} {inbound}: {counters:?}");
            // Nothing of the session came to its compartment, or from there to the client.
            assert_eq!(world.seen_inside(), u64::from(!inbound), "{which:?} {inbound}");
        }
    }
}

#[test]
fn the_first_stack_hears_by_what_to_send_and_the_second_takes_either() {
    for which in [Which::First, Which::Second] {
        let (heard, hears) = std::sync::mpsc::channel();
        let listen = move |question| {
            // The test may be over.
            let _ = match &question {
                ToStack::Install { answered, .. } => heard.send(format!("answered {answered}")),
                ToStack::Retire { spi, .. } => heard.send(format!("retire {spi}")),
                _ => Ok(()),
            };
            question
        };
        let mut world = World::with(Some((which, Box::new(listen))));
        world.up(Cipher::Aes256Gcm, true);
        world.answered = true;
        let VaultToKeyer::Installed { spi } = world.install(Cipher::Aes256Gcm, true) else {
            panic!("no keys")
        };
        world.retire(spi);
        assert!(world.ping(20, 10 * SECOND), "{which:?}");
        world.keys(Cipher::Aes256Gcm, true);
        let mut expected = vec!["answered false".to_owned(), "answered true".into(), "answered true".into()];
        if which == Which::First {
            expected.insert(2, format!("retire {spi}"));
        }
        assert_eq!(hears.try_iter().collect::<Vec<_>>(), expected, "{which:?}");
        assert_eq!(world.counters()["disagreed"], 0, "{which:?}");
    }
}

/// As many echo requests as are asked about at once.
const SEVERAL: usize = 5;

#[test]
fn what_came_together_is_asked_about_and_leaves_together() {
    let mut world = World::new();
    world.up(Cipher::Aes256Gcm, true);
    world.receive_together();
    let requests: Vec<_> = (0..SEVERAL).map(|_| world.request(500)).collect();
    world.send_together(&requests);
    assert_eq!(world.answers(SEVERAL, 10 * SECOND), ((1..=5).collect(), SEVERAL));
    let counters = world.counters();
    assert_eq!((counters["disagreed"], counters["packets-in"], counters["packets-out"]), (0, 5, 5));
}

#[test]
fn where_the_path_refuses_many_at_once_they_leave_one_by_one() {
    let mut world = World::new();
    world.up(Cipher::Aes256Gcm, true);
    world.receive_together();
    // Each is now sent in two fragments, which is more than a segment may be.
    world.set_outer_mtu(1_280);
    for round in 0..2 {
        world.hold();
        for _ in 0..SEVERAL {
            let request = world.request(1_300);
            world.send(&request);
        }
        world.wake();
        let numbers = (round * 5 + 1..=round * 5 + 5).collect();
        assert_eq!(world.answers(SEVERAL, 10 * SECOND), (numbers, 1));
    }
    assert_eq!(world.counters()["not-taken"], 0);
}

#[test]
fn more_than_one_question_can_hold_is_asked_in_several() {
    let mut world = World::new();
    world.up(Cipher::Aes256Gcm, true);
    world.receive_together();
    // Too many for one question, and too large for one.
    for (first, count, length) in [(1, 70, 100), (71, 50, 1_300)] {
        world.hold();
        for _ in 0..count {
            let request = world.request(length);
            world.send(&request);
        }
        world.wake();
        let (answers, together) = world.answers(usize::from(count), 10 * SECOND);
        assert_eq!(answers, (first..first + count).collect::<Vec<_>>());
        assert!(together > SEVERAL, "{together}");
    }
    assert_eq!(world.counters()["disagreed"], 0);
}

/// Whether an item is one of the test's own; the kernel now and then sends short packets of IPv6 to the device.
fn is_ours(bytes: &[u8]) -> bool {
    bytes.len() > 500
}

/// Whether all of the test's are in one question.
fn are_all<H, const BYTES: usize>(batch: &Items<H, BYTES>) -> bool {
    batch.iter().filter(|(_, bytes)| is_ours(bytes)).count() == SEVERAL
}

/// The same items, but for the one in the middle, of which one bit is another.
fn but_one<H: Copy, const BYTES: usize>(batch: &Items<H, BYTES>) -> Items<H, BYTES> {
    let (mut other, mut ours) = (Items::new(), 0);
    for (head, bytes) in batch.iter() {
        let mut bytes = bytes.to_vec();
        if is_ours(&bytes) {
            // Of an echo request or reply and of a datagram alike, this is in the payload.
            bytes[50] ^= u8::from(ours == SEVERAL / 2);
            ours += 1;
        }
        assert!(other.add(*head, &bytes));
    }
    other
}

/// The same items, but for the last.
fn without_one<H: Copy, const BYTES: usize>(batch: &Items<H, BYTES>) -> Items<H, BYTES> {
    let mut other = Items::new();
    for (head, bytes) in batch.iter().take(batch.len() - 1) {
        assert!(other.add(*head, bytes));
    }
    other
}

/// The questions about packets, and which stack is asked.
const QUESTIONS: [(&str, Which); 4] = [
    ("datagrams", Which::First),
    ("datagrams", Which::Second),
    ("packets", Which::First),
    ("check", Which::Second),
];

#[test]
fn of_packets_asked_about_together_only_the_one_that_is_not_agreed_about_is_dropped() {
    for (name, which) in QUESTIONS {
        let change = move |question| match question {
            ToStack::Datagrams { now, datagrams } if name == "datagrams" && are_all(&datagrams) => {
                ToStack::Datagrams { now, datagrams: but_one(&datagrams) }
            }
            ToStack::Packets { now, packets } if name == "packets" && are_all(&packets) => {
                ToStack::Packets { now, packets: but_one(&packets) }
            }
            ToStack::Check { now, packets, sealed } if name == "check" && are_all(&packets) => {
                ToStack::Check { now, packets: but_one(&packets), sealed }
            }
            other => other,
        };
        let mut world = World::with(Some((which, Box::new(change))));
        world.up(Cipher::Aes256Gcm, true);
        let requests: Vec<_> = (0..SEVERAL).map(|_| world.request(500)).collect();
        world.send_together(&requests);
        assert_eq!(world.answers(SEVERAL - 1, 10 * SECOND).0, [1, 2, 4, 5], "{name} {which:?}");
        match hear_within(&world.sessiond, 10 * SECOND) {
            Some(VaultToSessiond::Disagreed(1)) => {}
            other => panic!("{name} {which:?}: not one alarm about one packet but {other:?}"),
        }
        assert_eq!(world.counters()["disagreed"], 1, "{name} {which:?}");
        // What was dropped stays away, and the next ones pass.
        assert!(world.ping(20, 10 * SECOND));
        let inside = if name == "datagrams" { SEVERAL } else { SEVERAL + 1 };
        assert_eq!(world.seen_inside(), inside as u64, "{name} {which:?}");
    }
}

#[test]
fn an_answer_about_another_number_of_packets_ends_the_gate_and_nothing_passes() {
    for (name, which) in QUESTIONS {
        let change = move |question| match question {
            ToStack::Datagrams { now, datagrams } if name == "datagrams" => {
                ToStack::Datagrams { now, datagrams: without_one(&datagrams) }
            }
            ToStack::Packets { now, packets } if name == "packets" && are_all(&packets) => {
                ToStack::Packets { now, packets: without_one(&packets) }
            }
            ToStack::Check { now, packets, sealed } if name == "check" => {
                ToStack::Check { now, packets: without_one(&packets), sealed: without_one(&sealed) }
            }
            other => other,
        };
        let mut world = World::with(Some((which, Box::new(change))));
        world.up(Cipher::Aes256Gcm, true);
        let requests: Vec<_> = (0..SEVERAL).map(|_| world.request(500)).collect();
        world.send_together(&requests);
        assert!(ends(&world.gate, 10 * SECOND), "{name} {which:?}: the gate goes on");
        assert!(world.answers(1, SECOND / 20).0.is_empty(), "{name} {which:?}");
        let inside = if name == "datagrams" { 0 } else { SEVERAL };
        assert_eq!(world.seen_inside(), inside as u64, "{name} {which:?}");
        for which in [Which::First, Which::Second] {
            assert!(ends(world.stack(which), 10 * SECOND), "{name}: the {which:?} stack goes on");
        }
    }
}

#[test]
fn a_stack_that_dies_or_is_silent_takes_the_gate_with_it_and_neither_passes_anything_alone() {
    for which in [Which::First, Which::Second] {
        for signal in [rustix::process::Signal::KILL, rustix::process::Signal::STOP] {
            let mut world = World::new();
            world.up(Cipher::Aes256Gcm, true);
            assert!(world.ping(20, 10 * SECOND));
            let before = world.seen_inside();
            rustix::process::kill_process(world.stack(which).pid, signal).unwrap();
            // A silent one shows only when it is asked.
            assert!(!world.ping(20, SECOND / 2), "{which:?} {signal:?}");
            assert!(ends(&world.gate, 10 * SECOND), "{which:?} {signal:?}: the gate goes on");
            assert_eq!(world.seen_inside(), before, "{which:?} {signal:?}");
            let other = if which == Which::First { Which::Second } else { Which::First };
            assert!(ends(world.stack(other), 10 * SECOND), "{which:?} {signal:?}: the other stack goes on");
        }
    }
}

#[test]
fn keys_are_in_both_stacks_and_not_in_the_gate_and_in_nobody_once_the_session_is_over() {
    let mut world = World::new();
    world.up(Cipher::Aes256Gcm, true);
    assert!(world.ping(20, 10 * SECOND));
    let keys = world.material();
    for key in &keys {
        assert_eq!(occurrences(&world.gate, &key[..16]), 0, "the gate keeps no key");
        for which in [Which::First, Which::Second] {
            assert!(occurrences(world.stack(which), &key[..16]) > 0, "{which:?} has the key");
        }
    }
    world.sessiond.send(&SessiondToVault::Close(session(1))).unwrap();
    assert!(matches!(hear(&world.sessiond), VaultToSessiond::Closed(id) if id == session(1)));
    for key in &keys {
        for process in [&world.gate, world.stack(Which::First), world.stack(Which::Second)] {
            assert_eq!(occurrences(process, &key[..16]), 0, "a key outlived its session");
        }
    }
    assert!(!world.ping(20, SECOND / 2));
}

#[test]
fn keys_that_one_stack_refuses_neither_keeps() {
    // The second is told of another session than the keys are for.
    let deaf = |question| match question {
        ToStack::Open(mut record) => {
            record.id = session(7);
            ToStack::Open(record)
        }
        other => other,
    };
    let mut world = World::with(Some((Which::Second, Box::new(deaf))));
    world.open();
    assert!(matches!(world.install(Cipher::Aes256Gcm, true), VaultToKeyer::Refused { .. }));
    for key in world.material() {
        assert_eq!(occurrences(world.stack(Which::First), &key[..16]), 0);
    }
    assert!(!world.ping(20, SECOND / 2));
}

/// What the gate says of a change, if it is over within `limit`.
fn moved(world: &World, limit: Duration) -> Option<(u64, Vec<SessionId>)> {
    match hear_within(&world.sessiond, limit)? {
        VaultToSessiond::Moved { number, severed } => Some((number, severed)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ciphers_that_sessiond_does_not_allow_are_refused_and_who_does_not_follow_is_severed() {
    let mut world = World::new();
    world.up(Cipher::Aes256Gcm, true);
    let old = world.material();
    let change = |world: &World, number, cipher| {
        let ciphers = vec![cipher];
        world.sessiond.send(&SessiondToVault::Ciphers { number, ciphers, anew: false }).unwrap();
    };
    change(&world, 7, Cipher::ChaCha20Poly1305);
    assert_eq!(moved(&world, SECOND / 2), None, "there are keys from before");
    let refused = world.install(Cipher::Aes256Gcm, true);
    assert!(matches!(refused, VaultToKeyer::Refused { reason: Refusal::Cipher, .. }), "{refused:?}");
    world.keys(Cipher::ChaCha20Poly1305, true);
    assert!(world.ping(20, 10 * SECOND));
    assert_eq!(moved(&world, SECOND / 2), None, "the old ones are there still");
    world.sessiond.send(&SessiondToVault::Sever(7)).unwrap();
    assert_eq!(moved(&world, 10 * SECOND), Some((7, Vec::new())), "it has new ones");
    for which in [Which::First, Which::Second] {
        assert!(old.iter().all(|key| occurrences(world.stack(which), &key[..16]) == 0), "{which:?}");
    }
    assert!(world.ping(20, 10 * SECOND));
    change(&world, 8, Cipher::ChaCha20Poly1305);
    assert_eq!(moved(&world, 10 * SECOND), Some((8, Vec::new())), "it is so already");
    change(&world, 9, Cipher::Aes128Gcm);
    world.sessiond.send(&SessiondToVault::Sever(9)).unwrap();
    assert_eq!(moved(&world, 10 * SECOND), Some((9, vec![session(1)])));
    assert!(!world.ping(20, SECOND / 2));
}

#[test]
fn a_session_has_keys_for_its_own_ciphers_alone_where_stacks_must_agree() {
    let mut world = World::new();
    world.ciphers = Some(vec![Cipher::ChaCha20Poly1305]);
    world.open();
    let refused = world.install(Cipher::Aes256Gcm, true);
    assert!(matches!(refused, VaultToKeyer::Refused { reason: Refusal::Cipher, .. }), "{refused:?}");
    assert!(!world.ping(20, SECOND / 2));
    world.keys(Cipher::ChaCha20Poly1305, true);
    assert!(world.ping(20, 10 * SECOND));
}

#[test]
fn what_the_kernel_left_to_the_reader_goes_nowhere_and_is_counted() {
    let mut world = World::new();
    world.up(Cipher::Aes256Gcm, true);
    assert!(world.ping(20, 10 * SECOND));
    let before = world.counters();
    // As when the vault before this gate was still the device's reader: the checksum is left to it.
    world.limit_offload(Offload::Tcp);
    world.send_inside();
    world.limit_offload(Offload::None);
    // The gate may be asked before it has looked at its device.
    let until = Instant::now() + 10 * SECOND;
    let mut after = world.counters();
    while after["oversize"] == before["oversize"] && Instant::now() < until {
        after = world.counters();
    }
    assert_eq!((after["oversize"], after["packets-out"]), (before["oversize"] + 1, before["packets-out"]));
    world.send_inside();
    assert!(world.ping(20, 10 * SECOND));
    let after = world.counters();
    assert_eq!((after["packets-out"], after["disagreed"]), (before["packets-out"] + 2, 0));
}

#[test]
fn before_a_machine_packets_have_no_header_and_pass_when_both_stacks_agree() {
    let mut world = World::without_headers();
    world.up(Cipher::Aes256Gcm, true);
    assert!(world.ping(20, 10 * SECOND));
    assert!(world.ping(1_200, 10 * SECOND));
    world.send_inside();
    let counted = world.counters();
    assert_eq!((counted["oversize"], counted["disagreed"]), (0, 0), "{counted:?}");
}

#[test]
fn all_three_are_sandboxed_and_neither_stack_has_a_device_or_a_socket_of_the_network() {
    let world = World::new();
    for process in [&world.gate, world.stack(Which::First), world.stack(Which::Second)] {
        let pid = process.pid.as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "Threads:\t1"] {
            assert!(status.contains(line), "{line} in {status}");
        }
    }
    let open = |process: &levee_sys::pidfd::Child| -> Vec<String> {
        std::fs::read_dir(format!("/proc/{}/fd", process.pid.as_raw_nonzero()))
            .unwrap()
            .map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap().to_string_lossy().into_owned())
            .collect()
    };
    for which in [Which::First, Which::Second] {
        // Standard streams, the channels to warden and gate, and what waits for both.
        let open = open(world.stack(which));
        assert_eq!(open.iter().filter(|path| path.starts_with("socket:")).count(), 2, "{open:?}");
        assert_eq!(open.len(), 6, "{open:?}");
    }
    // The gate: channels to warden, sessiond, keyer and both stacks, one UDP socket, the device, and what waits for all of them.
    let open = open(&world.gate);
    assert_eq!(open.iter().filter(|path| path.starts_with("socket:")).count(), 6, "{open:?}");
    assert_eq!(open.iter().filter(|path| path.ends_with("/net/tun")).count(), 1, "{open:?}");
    assert_eq!(open.len(), 11, "{open:?}");
}
