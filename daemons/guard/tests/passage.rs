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

/// One that people release, its reader's end, and what waits for them: these, which the filter let through each as soon as it may.
fn waiting(messages: &[&[u8]]) -> (Passage, OwnedFd, Vec<u64>) {
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
    let mut tickets = Vec::new();
    for message in messages {
        passage.came(Some(message.to_vec()));
        assert!(passage.ask_filter(&filter));
        send(&end, message, SendFlags::DONTWAIT).unwrap();
        match passage.hear_filter(&filter, false).unwrap().expect("within the bounds") {
            GuardToSessiond::Offer { ticket, content } if content == *message => tickets.push(ticket),
            other => panic!("{other:?}"),
        }
        sleep(WITHIN);
    }
    (passage, reader, tickets)
}

/// What waits no more, by what sessiond is told.
fn settled(passage: &mut Passage) -> Vec<u64> {
    let told = passage.untold(Instant::now());
    let settled = told.into_iter().filter_map(|said| match said {
        GuardToSessiond::Settled(ticket) => Some(ticket),
        _ => None,
    });
    settled.collect()
}

#[test]
fn what_may_pass_and_has_not_does_not_once_sessiond_says_so_or_cannot_say_so_any_more() {
    for lost in [false, true] {
        let (mut passage, reader, tickets) = waiting(&[b"one", b"two", b"three"]);
        tickets.iter().for_each(|ticket| passage.answered(&SessiondToGuard::Pass(*ticket)));
        passage.pass();
        assert_eq!(got(&reader).as_deref(), Some(&b"one"[..]));
        assert_eq!(settled(&mut passage), tickets[..1]);
        match lost {
            true => passage.sessiond_lost(),
            false => passage.answered(&SessiondToGuard::NotReleased(tickets[1])),
        }
        sleep(WITHIN);
        passage.pass();
        let next = got(&reader);
        assert_eq!(next.as_deref(), (!lost).then_some(&b"three"[..]));
        assert_eq!(settled(&mut passage), if lost { &[] } else { &tickets[2..] });
        let people =
            passage.counts().into_iter().find(|(what, _)| what.contains("not released by two people"));
        assert_eq!(people.map(|(_, count)| count), Some(if lost { 2 } else { 1 }));
        // A word that was under way is for nothing that there is.
        passage.answered(&SessiondToGuard::Pass(tickets[1]));
        passage.pass();
        assert_eq!((got(&reader), settled(&mut passage)), (None, vec![tickets[1]]));
    }
}

#[test]
fn what_people_let_wait_and_release_at_once_passes_no_faster_than_anything_else() {
    // Three that the filter lets through, each as soon as it may.
    let (mut passage, reader, tickets) = waiting(&[b"one", b"two", b"three"]);
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
