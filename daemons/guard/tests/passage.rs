//! A guard's bounds hold for what its reader gets, whenever that was let through.

use levee_guard::passage::Passage;
use levee_ipc::guard::{GuardToSessiond, SessiondToGuard};
use levee_ipc::warden::channel::Shape;
use levee_ipc::warden::guard::Bounds;
use levee_policy::site::Quota;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_millis(600);

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn got(reader: &OwnedFd) -> Option<Vec<u8>> {
    let mut room = [0; 64];
    let (_, length) = recv(reader, &mut room[..], RecvFlags::DONTWAIT).ok()?;
    Some(room[..length].to_vec())
}

#[test]
fn what_people_let_wait_and_release_at_once_passes_no_faster_than_anything_else() {
    let bounds = Bounds {
        shape: Shape { size: 64, rate: 1 << 20, numbered: false },
        messages: Quota { most: 1, within: WITHIN },
        octets: Quota { most: 1 << 10, within: WITHIN },
        answer: Duration::from_secs(60),
        hours: None,
        schema: None,
        release: Some(Duration::from_secs(3_600)),
    };
    let mut passage = Passage::new(bounds, None, 0);
    let ((reader, above), (filter, end)) = (pair(), pair());
    passage.reader_came(above);
    // Three that the filter lets through, each as soon as it may.
    let mut tickets = Vec::new();
    for message in [&b"one"[..], b"two", b"three"] {
        passage.came(Some(message.to_vec()));
        assert!(passage.ask_filter(&filter));
        send(&end, message, SendFlags::DONTWAIT).unwrap();
        match passage.hear_filter(&filter, false).unwrap().expect("within the bounds") {
            GuardToSessiond::Offer { ticket, content } if content == message => tickets.push(ticket),
            other => panic!("{other:?}"),
        }
        sleep(WITHIN);
    }
    // Two people release all of them in one moment.
    let released = Instant::now();
    tickets.into_iter().for_each(|ticket| passage.answered(&SessiondToGuard::Pass(ticket)));
    passage.pass();
    assert_eq!(got(&reader).as_deref(), Some(&b"one"[..]));
    assert_eq!(got(&reader), None, "one passes in this time, and no more");
    sleep(WITHIN / 4);
    passage.pass();
    if released.elapsed() < WITHIN {
        assert_eq!(got(&reader), None, "the time is not over");
    }
    // The others are not lost: the guard wakes for each.
    for (message, number) in [(&b"two"[..], 1), (b"three", 2)] {
        assert!(passage.deadline().is_some(), "something waits");
        let next = loop {
            passage.pass();
            match got(&reader) {
                Some(next) => break next,
                None => sleep(Duration::from_millis(5)),
            }
            assert!(released.elapsed() < WITHIN * 100, "it has not come");
        };
        assert_eq!(next, message);
        assert!(released.elapsed() >= WITHIN * number - Duration::from_millis(50));
    }
}
