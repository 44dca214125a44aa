//! A stack that is taken over: what it says unasked is no answer to anything.

mod world;

use levee_ipc::agree::{Datagrams, FromStack, ToStack};
use levee_ipc::vault::Cipher;
use std::time::Duration;
use world::*;

const SECOND: Duration = Duration::from_secs(1);

/// Behind each answer about datagrams another one, about a packet that nobody sent: it lies there when the next question is asked.
fn one_more(answer: &FromStack, number: usize) -> Option<FromStack> {
    let (FromStack::Opened(_), 0) = (answer, number) else { return None };
    let mut forged = Datagrams::new();
    assert!(forged.add((), &[0x45; 40]));
    Some(FromStack::Opened(forged))
}

#[test]
fn what_a_stack_says_unasked_passes_nothing_and_ends_the_gate() {
    for which in [Which::First, Which::Second] {
        let as_it_is = Box::new(|question: ToStack| question);
        let mut world = World::taken_over(Some((which, as_it_is)), one_more);
        world.up(Cipher::Aes256Gcm, true);
        let before = world.seen_inside();
        // The first may pass: both have agreed about it before the twin says more.
        world.ping(20, SECOND / 2);
        let passed = world.seen_inside() - before;
        assert!(passed <= 1, "{which:?}: {passed}");
        for _ in 0..5 {
            world.ping(20, SECOND / 10);
        }
        assert!(world.seen_inside() - before <= passed.max(1), "{which:?}: something forged has passed");
        assert!(ends(&world.gate, 10 * SECOND), "{which:?}: the gate goes on");
    }
}
