//! User namespaces. Needs root.

use std::sync::mpsc::channel;
use std::time::Duration;

use levee_sys::ns::{IdRange, new_user};

#[test]
fn user_namespaces_are_made_by_many_threads_at_once() {
    let (done, all) = channel();
    for thread in 0..8 {
        let done = done.clone();
        std::thread::spawn(move || {
            for n in 0..25 {
                let outside = 3_000_000_000 + 1_000 * (25 * thread + n);
                new_user(IdRange { inside: 0, outside, count: 1_000 }).unwrap();
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..8 {
        all.recv_timeout(Duration::from_secs(60)).expect("two that wait for each other wait for ever");
    }
}
