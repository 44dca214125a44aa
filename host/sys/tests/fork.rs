//! Forked children and inherited descriptors. Each test needs a process with one thread: `harness = false`.

use levee_sys::fork::{Forker, inherited};
use rustix::process::{WaitOptions, waitpid};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

fn status(pid: rustix::process::Pid) -> i32 {
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
    status.exit_status().unwrap_or(-1)
}

fn a_child_has_the_kept_descriptors_and_no_others(forker: &Forker) {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let (other, _other) = std::io::pipe().unwrap();
    let number = other.as_raw_fd();
    let pid = forker
        .fork(vec![OwnedFd::from(writer)], move |mut kept| {
            let mut writer = std::fs::File::from(kept.pop().unwrap());
            let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
                .collect();
            let others = open.iter().filter(|&&fd| fd > 2 && fd != writer.as_raw_fd()).count();
            write!(writer, "{} {}", others, open.contains(&number)).unwrap();
            7
        })
        .unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!(status(pid), 7);
    // The directory that lists them is the one other.
    assert_eq!(said, "1 false");
}

fn a_program_with_two_threads_is_refused(forker: &Forker) {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv());
    assert!(forker.fork(Vec::new(), |_| 0).is_err());
    drop(stop);
    let _ = thread.join().unwrap();
}

fn what_was_not_inherited_cannot_be_taken_over() {
    assert!(inherited(-1).is_err());
    assert!(inherited(999).is_err());
    let own = std::fs::File::open("/dev/null").unwrap();
    assert!(inherited(own.as_raw_fd()).is_err(), "opened here");
    rustix::io::fcntl_setfd(&own, rustix::io::FdFlags::empty()).unwrap();
    let number = std::os::fd::IntoRawFd::into_raw_fd(own);
    let taken = inherited(number).unwrap();
    assert!(inherited(number).is_err(), "already taken");
    drop(taken);
}

fn main() {
    let forker = Forker::new().unwrap();
    a_child_has_the_kept_descriptors_and_no_others(&forker);
    a_program_with_two_threads_is_refused(&forker);
    what_was_not_inherited_cannot_be_taken_over();
    println!("3 tests passed");
}
