//! A mediator may ask process 1 of its label's compartment anything at any rate and never read: that costs it a bounded amount of memory,
//! and the warden is heard. Needs root and e2fsprogs.

mod common;

use common::Lab;
use levee_hostile::{bears, flood};
use levee_ipc::Channel;
use levee_ipc::mediator::ToStarter;
use levee_warden::compartment::Compartment;
use std::os::fd::AsFd as _;
use std::time::Duration;

const WHILE: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);

/// A channel as a label's mediator has it.
fn mediator(compartment: &Compartment) -> Channel {
    let (ours, theirs) = Channel::pair().unwrap();
    let stderr = std::io::stderr();
    compartment.mediate(Vec::new(), theirs, stderr.as_fd()).unwrap();
    ours
}

/// Floods: mediator → process 1 of its compartment.
#[test]
fn a_mediator_that_asks_and_never_reads_is_cut_off_and_the_next_and_the_warden_are_heard() {
    let lab = Lab::new("loud");
    let mut running = lab.start();
    assert_eq!(lab.shell(&mut running, "true").1, 0);
    let pid = running.process().expect("process 1").pid.as_raw_nonzero().get();
    let service = || "web".parse().unwrap();
    // Without its connection, and of a service that is not there: refused.
    let start = |ticket| ToStarter::Start {
        ticket,
        service: service(),
        user: None,
        from: "10.81.0.9:4000".parse().unwrap(),
    };
    let asked = mediator(&running);
    let refused = bears(pid, "starts", || flood(&asked, LONG, start));
    assert!(refused.cut, "{refused:?}");
    assert_eq!(lab.shell(&mut running, "true").1, 0, "after starts");
    for (what, word) in [
        (
            "preparations",
            &(|_| ToStarter::Prepare { service: service() }) as &(dyn Fn(u64) -> ToStarter + Sync),
        ),
        ("ends", &|ticket| ToStarter::End { ticket, at_once: true }),
    ] {
        let channel = mediator(&running);
        bears(pid, what, || flood(&channel, WHILE, word));
        let out = std::thread::scope(|scope| {
            let loud = scope.spawn(|| flood(&channel, WHILE, word));
            let (out, status) = lab.shell(&mut running, "echo heard");
            assert!(loud.join().unwrap().said > 0);
            (out, status)
        });
        assert_eq!(out, ("heard\n".to_owned(), 0), "{what}: the warden is not heard");
    }
    let channel = mediator(&running);
    let nonsense = bears(pid, "nonsense", || flood(&channel, LONG, |_| vec![0xffu8; 5_000]));
    assert!(nonsense.cut, "{nonsense:?}");
    running.stop().unwrap();
}
