//! A stack, its gate, and who stands in a keyer's or sessiond's place may say anything at any rate and never read: that costs a bounded
//! amount of memory, and is the end of who hears it or of the channel. Needs root.

mod world;

use levee_hostile::{MOST, bears, flood, watched};
use levee_ipc::agree::{FromStack, ToStack};
use levee_ipc::vault::{
    Aggregation, Cipher, KeyerToVault, Sa, SessiondToVault, VaultToKeyer, VaultToSessiond,
};
use levee_ipc::warden::Order;
use levee_ipc::warden::stack::StackPart;
use levee_ipc::warden::vault::GatePart;
use levee_ipc::{Channel, Secret};
use levee_sys::pidfd::Child;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use world::*;

const LONG: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(10);

fn number(child: &Child) -> i32 {
    child.pid.as_raw_nonzero().get()
}

/// Floods: vault or gate → first stack; vault or gate → second stack.
#[test]
fn a_gate_that_asks_and_never_reads_is_cut_off_and_one_that_asks_without_end_keeps_no_stack_from_the_warden()
{
    for which in [Which::First, Which::Second] {
        let (stack, _control, gate) = stack_alone(which);
        let asks = |n: u64| ToStack::Close(session(n as u8));
        let asked = bears(number(&stack), &format!("{which:?}: a deaf gate"), || flood(&gate, LONG, asks));
        assert!(asked.cut && ends(&stack, SOON), "{which:?}: {asked:?}");

        // It reads, this time.
        let (stack, control, gate) = stack_alone(which);
        let over = AtomicBool::new(false);
        let stopped = std::thread::scope(|scope| {
            let gate = &gate;
            scope.spawn(|| {
                let answered = |_: &u64| !over.load(Ordering::Relaxed) && gate.recv::<FromStack>().is_ok();
                (0..).take_while(answered).count()
            });
            let loud = scope.spawn(move || flood(gate, LONG, asks));
            std::thread::sleep(Duration::from_millis(500));
            assert!(!ends(&stack, Duration::ZERO), "{which:?}: who reads is answered");
            control.send(&Order::<StackPart>::Stop).unwrap();
            let stopped = ends(&stack, SOON);
            over.store(true, Ordering::Relaxed);
            let _ = stack.kill();
            assert!(loud.join().unwrap().said > 1_000);
            stopped
        });
        assert!(stopped, "{which:?}: the warden is not heard");
    }
}

/// Keys that no gate takes.
fn refused(spi: u64) -> KeyerToVault {
    let sa = || Sa { spi: spi as u32, keying_material: Secret::new(vec![1; 36]).unwrap() };
    KeyerToVault::Install {
        session: session(9),
        cipher: Cipher::Aes256Gcm,
        esn: true,
        inbound: sa(),
        outbound: sa(),
        answered: false,
        peer: None,
        aggregation: Some(Aggregation { packet: 1_420, interval: None, fragment: true }),
    }
}

/// How much a stack has said.
static SAID: AtomicU64 = AtomicU64::new(0);

fn without_end(answer: &FromStack, _: usize) -> Option<FromStack> {
    let FromStack::Opened(_) = answer else { return None };
    SAID.fetch_add(1, Ordering::Relaxed);
    Some(FromStack::Taken(true))
}

/// Floods: first stack → vault or gate; second stack → vault or gate.
#[test]
fn a_stack_that_answers_without_end_ends_the_gate_and_nothing_passes() {
    for which in [Which::First, Which::Second] {
        let as_it_is = Box::new(|question: ToStack| question);
        let mut world = World::taken_over(Some((which, as_it_is)), without_end);
        world.up(Cipher::Aes256Gcm, true);
        let before = world.seen_inside();
        SAID.store(0, Ordering::Relaxed);
        let (ended, grown) = watched(number(&world.gate), || {
            world.ping(20, SOON / 20);
            world.ping(20, SOON / 20);
            ends(&world.gate, SOON)
        });
        assert!(ended && SAID.load(Ordering::Relaxed) > 0, "{which:?}: the gate goes on");
        assert!(grown < MOST, "{which:?}: {grown} KiB");
        assert!(world.seen_inside() - before <= 1, "{which:?}: something passes that was not agreed");
    }
}

/// A gate stands in a vault's place. Floods: sessiond → vault or gate; keyer → vault or gate.
#[test]
fn a_sessiond_or_keyer_that_asks_and_never_reads_is_cut_off_by_a_gate_and_the_other_is_answered() {
    let mut world = World::new();
    world.up(Cipher::Aes256Gcm, true);
    let gate = number(&world.gate);
    let asked = bears(gate, "a deaf sessiond", || flood(&world.sessiond, LONG, SessiondToVault::Ping));
    assert!(asked.cut, "{asked:?}");
    assert!(matches!(world.install(Cipher::Aes256Gcm, true), VaultToKeyer::Installed { .. }));

    let (sessiond, theirs) = Channel::pair().unwrap();
    world.warden.send_with(&Order::Give(GatePart::Sessiond), &[theirs.as_fd()]).unwrap();
    world.sessiond = sessiond;
    let asked = bears(gate, "a deaf keyer", || flood(&world.keyer, LONG, refused));
    assert!(asked.cut, "{asked:?}");
    world.sessiond.send(&SessiondToVault::Ping(7)).unwrap();
    assert!(matches!(hear(&world.sessiond), VaultToSessiond::Pong(7)));
}
