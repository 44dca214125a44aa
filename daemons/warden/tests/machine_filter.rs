//! The filter of a label's virtual machine. Needs root, e2fsprogs and perl-base: a program in the place of QEMU, in a real compartment.

mod common;

use std::os::fd::{AsFd, BorrowedFd};

use common::Lab;
use levee_warden::compartment::service::{Launch, Profile};
use levee_warden::compartment::{Compartment, Event, Plan, Store};

/// Status of a program that the kernel ends because of a system call: SIGSYS.
const ENDED: u8 = 128 + 31;
/// And of one that writes beyond the size that its files may have: SIGXFSZ.
const TOO_LARGE: u8 = 128 + 25;

fn status(lab: &Lab, compartment: &mut Compartment, script: &str) -> u8 {
    status_with(lab, compartment, script, &[])
}

/// The same, of one that has these descriptors from 3 on.
fn status_with(lab: &Lab, compartment: &mut Compartment, script: &str, fds: &[BorrowedFd<'_>]) -> u8 {
    let null = std::fs::File::open("/dev/null").unwrap();
    let start = Launch {
        ticket: 5,
        program: "/usr/bin/perl".into(),
        argv: vec!["perl".into(), "-e".into(), script.into()],
        env: Vec::new(),
        input: false,
        terminal: false,
        filter: Profile::Machine,
    };
    compartment.run(start, &[&[null.as_fd(), null.as_fd()], fds].concat()).unwrap();
    assert_eq!(lab.next(compartment), Event::Started(5));
    match lab.next(compartment) {
        Event::Exited(5, status) => status,
        other => panic!("{script}: {other:?}"),
    }
}

#[test]
fn what_a_machine_never_does_is_its_end() {
    let lab = Lab::new("machine-filter");
    let mut running = lab.start();
    let mut run = |script: &str| status(&lab, &mut running, script);
    assert_eq!(run("exit 7"), 7, "a program starts under it, reads and ends");
    for (what, call) in [
        ("a socket", "41, 1, 1, 0"),
        ("a connection", "42, 0, 0, 0"),
        ("another process", "57"),
        ("another process, by clone", "56, 17, 0, 0, 0, 0"),
        ("to trace", "101, 0, 0, 0, 0"),
        ("to mount", "165, 0, 0, 0, 0, 0"),
        ("a namespace", "272, 0"),
        ("a program for the kernel", "321, 0, 0, 0"),
        ("to signal others", "62, 1, 0"),
        ("to make a file", "257, -100, 0, 65, 0"),
        ("to make a file without a name", "257, -100, 0, 0x410002, 0"),
        ("to lock a file", "72, 0, 37, 0"),
        ("another network device", "16, 0, 0x400454ca, 0"),
        ("to hand descriptors on", "438, 0, 0, 0"),
        ("to change its disk's owner", "93, 0, 0, 0"),
    ] {
        assert_eq!(run(&format!("syscall({call}); exit 7")), ENDED, "{what} ({call})");
    }
    // What it tries and does without.
    for (call, errno) in [("435, 0, 0", 38), ("425, 1, 0", 38), ("99, 0", 1)] {
        let script = format!("exit(syscall({call}) == -1 && $! + 0 == {errno} ? 7 : 8)");
        assert_eq!(run(&script), 7, "{call}");
    }
    running.stop().unwrap();
}

#[test]
fn a_machine_writes_no_further_than_its_disks_go() {
    const SIZE: u64 = 16 << 20;
    let lab = Lab::new("machine-disk");
    let path = lab.directory.path().join("disk.img");
    Store::create(&path, SIZE).unwrap();
    // As the warden has it for QEMU.
    let disk = Store::disk(&path).unwrap();
    let mut running = lab.try_start(&Plan::new(&lab.spec).with_files_up_to(SIZE)).unwrap();
    let mut put = |offset: u64, raised: &str| {
        let write = format!("syscall(18, 3, $text, 4096, {offset}) == 4096");
        let call = format!("{raised} my $text = 'x' x 4096; exit({write} ? 7 : 8)");
        status_with(&lab, &mut running, &call, &[disk.as_fd()])
    };
    assert_eq!(put(0, ""), 7, "within it");
    assert_eq!(put(SIZE - 4096, ""), 7, "its last octets");
    assert_eq!(put(SIZE, ""), TOO_LARGE, "one octet further");
    assert_eq!(put(1 << 40, ""), TOO_LARGE, "a file with a hole of a tebibyte");
    // Nor when it has asked for more (RLIMIT_FSIZE is 1): the limit is a hard one, and nobody there may raise those.
    let raise = "my $limit = pack('QQ', 1 << 50, 1 << 50); syscall(302, 0, 1, $limit, 0);";
    assert_eq!(put(SIZE, raise), TOO_LARGE);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), SIZE);
    running.stop().unwrap();
}
