//! Who has taken over one of the warden's processes says anything at any rate.

use super::*;
use levee_hostile::{Flood, flood};
use levee_ipc::warden::{
    channel, frames, fsd, guard, keyer, layer, mediator, sessiond, signer, stack, tpe, tps, upflow, vault,
};
use rustix::process::Signal;
use serde::Serialize;
use std::time::{Duration, Instant};

/// For how long each is heard.
const WHILE: Duration = Duration::from_millis(200);

const ROLES: [Role; 16] = [
    Role::Sessiond,
    Role::Signer,
    Role::Tps,
    Role::Keyer,
    Role::Vault,
    Role::Stack,
    Role::Witness,
    Role::Mediator,
    Role::Snapshot,
    Role::Copy,
    Role::Channel,
    Role::Frames,
    Role::Guard,
    Role::Fsd,
    Role::Tpe,
    Role::Layer,
];

/// A process that does nothing, and the other end of its channel.
fn quiet(role: Role) -> (Process, Channel) {
    let (ours, theirs) = Channel::pair().unwrap();
    let key = Key::of(role);
    // Each test has groups of its own.
    let group =
        Group::make(key.name(), 0x7100_0000 + std::process::id() % 0x1_0000, None).expect("needs root");
    let mut program = Program::new("/bin/sleep");
    program.args.push("600".into());
    program.cgroups = group.cgroup().procs().collect();
    let child = Arc::new(program.start().unwrap());
    let kind = Kind::of::<fsd::FsdPart>();
    let (control, begun, unasked) = (Arc::new(ours), Cell::new(true), Rule::new(UNASKED));
    (Process { key, child, group, control, kind, begun, ready: false, unasked }, theirs)
}

/// What came of a process of a role that says this without end: how often it was heard, and whether what it said was its end.
fn heard<T: Serialize>(role: Role, word: impl Fn(u64) -> T + Sync) -> (u64, bool) {
    let (mut process, theirs) = quiet(role);
    let begun = Instant::now();
    let (mut heard, mut ended) = (0, false);
    std::thread::scope(|scope| {
        let loud = scope.spawn(|| flood(&theirs, WHILE, &word));
        while !ended && begun.elapsed() < WHILE {
            match process.hear() {
                Ok(_) => heard += 1,
                Err(RecvError::Empty) => std::thread::sleep(Duration::from_micros(50)),
                // As `Processes::hear` does.
                Err(_) => ended = true,
            }
        }
        let Flood { said, .. } = loud.join().unwrap();
        assert!(said > 0 && said >= heard, "{role:?}: said {said} times");
    });
    process.child.signal(Signal::KILL).unwrap();
    process.wait(Duration::from_secs(5));
    (heard, ended)
}

/// What this role's process may say of its own accord, without end.
fn says<P: Part>(role: Role, word: impl Fn(u64) -> P::Says + Sync) -> (u64, bool) {
    assert!(P::ROLES.contains(&role));
    heard(role, move |number| Said::Says(word(number)))
}

/// And of those that have nothing to say: that it is at work.
fn is_at_work<P: Part<Says = Nothing>>(role: Role) -> (u64, bool) {
    assert!(P::ROLES.contains(&role));
    heard(role, |_| Said::<Nothing>::Ready)
}

/// Floods: every role → warden.
#[test]
fn whoever_speaks_without_end_is_ended_and_whoever_asks_is_held_back() {
    let counts = |n: u64| vec![("x".repeat(n as usize % 200), n)];
    for role in ROLES {
        let (heard, ended) = match role {
            Role::Tps => is_at_work::<tps::TpsPart>(role),
            Role::Keyer => is_at_work::<keyer::KeyerPart>(role),
            Role::Vault => is_at_work::<vault::VaultPart>(role),
            Role::Stack | Role::Witness => is_at_work::<stack::StackPart>(role),
            Role::Mediator => is_at_work::<mediator::MediatorPart>(role),
            Role::Fsd => is_at_work::<fsd::FsdPart>(role),
            Role::Signer => says::<signer::SignerPart>(role, |n| Unusable(n.to_string())),
            Role::Snapshot => says::<upflow::SnapshotPart>(role, |_| UpflowCounters::default()),
            Role::Copy => says::<upflow::CopyPart>(role, |_| UpflowCounters::default()),
            Role::Channel => says::<channel::ChannelPart>(role, |n| Counted(counts(n))),
            Role::Frames => says::<frames::FramesPart>(role, |_| FramesState::default()),
            Role::Guard => says::<guard::GuardPart>(role, |n| GuardSays::Stuck(n, "no answer".into())),
            Role::Layer => says::<layer::LayerPart>(role, |_| LayerState::Down("no answer".into())),
            // These ask, and each word has its answer: they are heard a turn at a time (`server.rs`, `workstation.rs`).
            Role::Sessiond => says::<sessiond::SessiondPart>(role, |_| SessiondRequest::Compartments),
            Role::Tpe => says::<tpe::TpePart>(role, |n| TpeRequest::Heard(Duration::from_secs(n))),
        };
        let asks = [Role::Sessiond, Role::Tpe].contains(&role);
        assert_ne!(ended, asks, "{role:?}: heard {heard} times");
        assert!(asks || heard <= u64::from(UNASKED.times), "{role:?}: heard {heard} times");
        // And what is no message is the end of anyone.
        let (heard, ended) = self::heard(role, |_| vec![0xffu8; 5_000]);
        assert!(ended && heard == 0, "{role:?}: heard {heard} times");
    }
}
