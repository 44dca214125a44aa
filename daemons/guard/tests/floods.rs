//! sessiond may answer a guard anything at any rate: that costs a bounded amount of memory, and the warden is heard.

use levee_hostile::{bears, flood};
use levee_ipc::Channel;
use levee_ipc::guard::SessiondToGuard;
use levee_ipc::warden::channel::Shape;
use levee_ipc::warden::guard::{Bounds, GuardPart, GuardSays};
use levee_ipc::warden::{Order, Place, Said};
use levee_policy::site::Quota;
use levee_sys::spawn::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd as _;
use std::time::Duration;

const WHILE: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);

fn next(warden: &Channel) -> Said<GuardSays> {
    let limit = Timespec::try_from(Duration::from_secs(20)).unwrap();
    assert_eq!(poll(&mut [PollFd::new(warden, PollFlags::IN)], Some(&limit)), Ok(1), "nothing came");
    warden.recv().unwrap().message
}

/// Floods: sessiond → guard.
#[test]
fn a_sessiond_that_answers_what_nobody_asked_without_end_costs_little_and_the_warden_is_heard() {
    let (warden, theirs) = Channel::pair().unwrap();
    let mut program = Program::new(env!("CARGO_BIN_EXE_levee-guard"));
    let stderr = std::io::stderr();
    program.stdio[2] = Some(stderr.as_fd());
    program.fds = vec![theirs.as_fd()];
    let guard = program.start().unwrap();
    let pid = guard.pid.as_raw_nonzero().get();
    let quota = Quota { most: 1_000, within: LONG };
    let bounds = Bounds {
        shape: Shape { size: 64, rate: 1 << 20, numbered: false },
        messages: quota,
        octets: quota,
        answer: LONG,
        hours: None,
        schema: None,
        release: None,
    };
    warden.send(&Order::Give(GuardPart::Bounds(bounds))).unwrap();
    let give = || {
        let (sessiond, theirs) = Channel::pair().unwrap();
        warden.send_with(&Order::Give(GuardPart::Sessiond), &[theirs.as_fd()]).unwrap();
        sessiond
    };
    let sessiond = give();
    warden.send(&Order::<GuardPart>::Begin(Place::Server)).unwrap();
    assert!(matches!(next(&warden), Said::Ready));
    for (what, word) in [
        ("releases", SessiondToGuard::Pass as fn(u64) -> SessiondToGuard),
        ("refusals", SessiondToGuard::Refuse),
    ] {
        bears(pid, what, || flood(&sessiond, WHILE, word));
        // While it is told more and more.
        std::thread::scope(|scope| {
            let loud = scope.spawn(|| flood(&sessiond, WHILE, word));
            warden.send(&Order::Give(GuardPart::Report)).unwrap();
            assert!(matches!(next(&warden), Said::Says(GuardSays::Counted(_))), "{what}");
            loud.join().unwrap();
        });
    }
    let nonsense = bears(pid, "nonsense", || flood(&sessiond, LONG, |_| vec![0xffu8; 5_000]));
    assert!(nonsense.cut, "{nonsense:?}");
    let sessiond = give();
    assert!(bears(pid, "the next", || flood(&sessiond, WHILE, SessiondToGuard::Pass)).said > 1_000);
    let _ = guard.kill();
}
