//! What the filters in `conf/seccomp` allow and forbid, tried in child processes.

use std::time::Duration;

use levee_sys::pidfd;
use levee_sys::pidfd::{Child, Exit};
use levee_sys::sandbox::{self, Access, Sandbox};
use levee_sys::seccomp::Filter;
use rustix::fd::AsFd;

const VAULT: &str = include_str!("../../../conf/seccomp/vault.toml");
const KEYER: &str = include_str!("../../../conf/seccomp/keyer.toml");
const GATE: &str = include_str!("../../../conf/seccomp/gate.toml");
const STACK: &str = include_str!("../../../conf/seccomp/stack.toml");
const MEDIATOR: &str = include_str!("../../../conf/seccomp/mediator.toml");
const SIGNER: &str = include_str!("../../../conf/seccomp/signer.toml");
const ACCEPTOR: &str = include_str!("../../../conf/seccomp/acceptor.toml");
const CONNECTION: &str = include_str!("../../../conf/seccomp/connection.toml");
const MACHINE: &str = include_str!("../../../conf/seccomp/machine.toml");
const SCREEN: &str = include_str!("../../../conf/seccomp/screen.toml");
const TPE: &str = include_str!("../../../conf/seccomp/tpe.toml");
const TPS: &str = include_str!("../../../conf/seccomp/tps.toml");
const TPS_CHILD: &str = include_str!("../../../conf/seccomp/tps-child.toml");
const SESSIOND: &str = include_str!("../../../conf/seccomp/sessiond.toml");
const LOGGER: &str = include_str!("../../../conf/seccomp/logger.toml");
const UPFLOW: &str = include_str!("../../../conf/seccomp/upflow.toml");
const FSD: &str = include_str!("../../../conf/seccomp/fsd.toml");
const CHANNEL: &str = include_str!("../../../conf/seccomp/channel.toml");
const FRAMES: &str = include_str!("../../../conf/seccomp/frames.toml");
const GUARD: &str = include_str!("../../../conf/seccomp/guard.toml");
const LAYER: &str = include_str!("../../../conf/seccomp/layer.toml");
const SERVICE: &str = include_str!("../../../conf/seccomp/service.toml");

const ALL: [(&str, &str); 21] = [
    ("acceptor", ACCEPTOR),
    ("connection", CONNECTION),
    ("vault", VAULT),
    ("keyer", KEYER),
    ("gate", GATE),
    ("stack", STACK),
    ("channel", CHANNEL),
    ("frames", FRAMES),
    ("guard", GUARD),
    ("layer", LAYER),
    ("mediator", MEDIATOR),
    ("signer", SIGNER),
    ("screen", SCREEN),
    ("tpe", TPE),
    ("tps", TPS),
    ("tps-child", TPS_CHILD),
    ("sessiond", SESSIOND),
    ("logger", LOGGER),
    ("upflow", UPFLOW),
    ("fsd", FSD),
    ("service", SERVICE),
];

/// Runs `child` in a fork of this process, which ends with the status that it returns.
fn fork(child: impl FnOnce() -> i32) -> levee_sys::Result<Child> {
    // SAFETY: glibc's fork keeps its own locks consistent in the child; a Rust lock that another thread held could
    // hang the child, not corrupt memory. The child never returns into the caller's frames.
    match unsafe { libc::fork() } {
        0 => {
            let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(101);
            // SAFETY: ends the child without running the parent's exit handlers a second time.
            unsafe { libc::_exit(status) }
        }
        pid => {
            let pid = rustix::process::Pid::from_raw(pid).expect("a child");
            Ok(Child { pid, pidfd: pidfd::open(pid)? })
        }
    }
}

/// Runs `f` in a child under `filter` and says how the child ended; 99 is a sandbox that failed.
fn under(filter: &str, f: impl FnOnce() -> i32) -> Exit {
    let child = fork(|| match Sandbox::new(filter).enter() {
        Ok(()) => f(),
        Err(e) => {
            eprintln!("{e}");
            99
        }
    })
    .unwrap();
    child.wait(Duration::from_secs(20)).unwrap().expect("the child ends")
}

/// The errno of a raw system call with integer arguments; 0 if it succeeds.
fn errno(call: libc::c_long, args: [libc::c_long; 5]) -> i32 {
    // SAFETY: every caller passes integers, null pointers or descriptors that are not open.
    let answer = unsafe { libc::syscall(call, args[0], args[1], args[2], args[3], args[4], 0usize) };
    if answer < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

#[test]
fn every_filter_compiles_and_loads_and_lets_the_process_end_in_order() {
    for (name, text) in ALL {
        assert_eq!(under(text, || 7), Exit::Status(7), "{name}");
    }
}

#[test]
fn a_vault_or_keyer_that_touches_its_socket_or_a_process_dies() {
    for (name, text) in &ALL[..5] {
        for (what, call) in [
            ("setsockopt", libc::SYS_setsockopt),
            ("connect", libc::SYS_connect),
            ("bind", libc::SYS_bind),
            ("shutdown", libc::SYS_shutdown),
            ("ioctl", libc::SYS_ioctl),
            ("ptrace", libc::SYS_ptrace),
            ("socket", libc::SYS_socket),
            ("openat", libc::SYS_openat),
            ("execve", libc::SYS_execve),
            ("clone", libc::SYS_clone),
            ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ] {
            // What it may read Landlock says.
            let reads = (*name, what) == ("acceptor", "openat");
            let flags = if reads { i64::from(libc::O_WRONLY) } else { 0 };
            let exit = under(text, || {
                errno(call, [-1, 0, flags, 0, 0]);
                0
            });
            // There it is refused: libc asks for the host's time zone.
            let refused = (*name, what) == ("layer", "openat");
            let expected = if refused { Exit::Status(0) } else { Exit::Signal(libc::SIGSYS) };
            assert_eq!(exit, expected, "{name}: {what}");
        }
    }
}

#[test]
fn who_opens_nothing_connects_to_nobody_and_starts_nothing_dies_where_it_tries() {
    let calls = |which: &[(&'static str, libc::c_long)]| which.to_vec();
    let opens = calls(&[
        ("open", libc::SYS_open),
        ("openat", libc::SYS_openat),
        ("openat2", libc::SYS_openat2),
        ("creat", libc::SYS_creat),
        ("execve", libc::SYS_execve),
        ("execveat", libc::SYS_execveat),
        ("ptrace", libc::SYS_ptrace),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("bpf", libc::SYS_bpf),
    ]);
    let speaks = calls(&[
        ("socket", libc::SYS_socket),
        ("socketpair", libc::SYS_socketpair),
        ("connect", libc::SYS_connect),
        ("bind", libc::SYS_bind),
    ]);
    for (name, text) in ALL {
        // Each of these says in its own filter what it needs there, and why.
        let opens =
            if ["layer", "fsd", "sessiond", "upflow", "service"].contains(&name) { &[][..] } else { &opens };
        let speaks = if ["mediator", "fsd", "tpe", "service"].contains(&name) { &[][..] } else { &speaks };
        for (what, call) in opens.iter().chain(speaks) {
            // It reads in which login of the host somebody is, as far as Landlock lets it, and opens nothing to write.
            let reads = (name, *what) == ("acceptor", "openat");
            let flags = if reads { i64::from(libc::O_WRONLY) } else { 0 };
            let exit = under(text, || {
                errno(*call, [-1, 0, flags, 0, 0]);
                0
            });
            assert_eq!(exit, Exit::Signal(libc::SIGSYS), "{name}: {what}");
        }
    }
}

#[test]
fn no_filter_lets_a_close_wait() {
    // SO_LINGER: whoever closes the connection last would wait for its peer. The descriptor is none; a filter that lets the call through
    // shows in that.
    for (name, text) in ALL.into_iter().chain([("machine", MACHINE)]) {
        let linger = i64::from(libc::SO_LINGER);
        let exit =
            under(text, || errno(libc::SYS_setsockopt, [-1, i64::from(libc::SOL_SOCKET), linger, 0, 0]));
        assert_ne!(exit, Exit::Status(libc::EBADF), "{name}");
    }
}

#[test]
fn an_upflow_stage_that_watches_what_has_only_a_name_or_who_reads_dies() {
    let (add, only_directories) = (libc::FAN_MARK_ADD, libc::FAN_MARK_ONLYDIR);
    let flags = i64::from(add | only_directories);
    let mark = |flags, events: u64, directory, path| {
        move || errno(libc::SYS_fanotify_mark, [-1, flags, events.cast_signed(), directory, path])
    };
    let changes = libc::FAN_CREATE
        | libc::FAN_DELETE
        | libc::FAN_MOVED_FROM
        | libc::FAN_MOVED_TO
        | libc::FAN_MODIFY
        | libc::FAN_ATTRIB
        | libc::FAN_CLOSE_WRITE
        | libc::FAN_EVENT_ON_CHILD
        | libc::FAN_ONDIR;
    // The descriptor is none; a filter that lets the call through shows in that.
    assert_eq!(under(UPFLOW, mark(flags, changes, 0, 0)), Exit::Status(libc::EBADF));
    // The second path has zeros in its low half. Labels above read what the first stage writes: it is not to see that.
    for (flags, events, directory, path) in [
        (flags, changes, 0, 1),
        (flags, changes, 0, 1 << 32),
        (flags, changes, i64::from(libc::AT_FDCWD), 0),
        (i64::from(add | libc::FAN_MARK_FILESYSTEM), changes, 0, 0),
        (flags, changes | libc::FAN_OPEN, 0, 0),
        (flags, changes | libc::FAN_ACCESS, 0, 0),
        (flags, changes | libc::FAN_CLOSE_NOWRITE, 0, 0),
        (flags, libc::FAN_OPEN | libc::FAN_ONDIR | libc::FAN_EVENT_ON_CHILD, 0, 0),
    ] {
        let exit = under(UPFLOW, mark(flags, events, directory, path));
        assert_eq!(exit, Exit::Signal(libc::SIGSYS), "{flags} {events:x} {directory} {path}");
    }
}

/// futex(2) on a word of this program's own code: a page of a file, which every process has that runs the program.
fn on_a_common_page(operation: libc::c_int, patience: Duration) -> i64 {
    let word = (number as fn(&str) -> libc::c_long as usize) & !3;
    // SAFETY: aligned, and code of this program, which can be read and which nobody changes.
    let value = unsafe { *(word as *const u32) };
    let value = if operation == libc::FUTEX_WAIT { value } else { 1 };
    let limit = libc::timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: 0 };
    // SAFETY: the word and the limit are there during the call, which writes to neither.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, value, &raw const limit, 0, 0) }
}

#[test]
fn no_two_processes_of_levees_meet_on_a_page_of_their_program() {
    const PATIENCE: Duration = Duration::from_secs(2);
    let killed = Exit::Signal(libc::SIGSYS);
    for (name, text) in ALL.into_iter().filter(|(name, _)| *name != "service") {
        // As vaults, mediators, loggers and stages of upflow at two labels would, taken over.
        let below = fork(|| match Sandbox::new(text).enter() {
            Ok(()) => i32::from(on_a_common_page(libc::FUTEX_WAIT, PATIENCE) != 0),
            Err(_) => 99,
        });
        let above = under(text, || {
            let until = std::time::Instant::now() + PATIENCE;
            while std::time::Instant::now() < until {
                if on_a_common_page(libc::FUTEX_WAKE, PATIENCE) > 0 {
                    return 0;
                }
            }
            1
        });
        let below = below.unwrap().wait(Duration::from_secs(20)).unwrap().expect("it ends");
        assert_eq!(above, killed, "{name}: one woke another");
        // Who has threads waits for their ends, and hears nobody else.
        let waits = ["fsd", "sessiond"].contains(&name);
        assert_eq!(below, if waits { Exit::Status(1) } else { killed }, "{name}");
    }
}

#[test]
fn no_daemon_has_of_the_machines_pages_or_has_all_processors_interrupted() {
    for (name, text) in ALL.into_iter().filter(|(name, _)| *name != "service") {
        let flags = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB);
        for (what, call) in [
            ("a huge page", (libc::SYS_mmap, [0, 2 << 20, 3, flags, -1])),
            ("pages made one", (libc::SYS_madvise, [0, 4096, i64::from(libc::MADV_MERGEABLE), 0, 0])),
            ("small pages made a large one", (libc::SYS_madvise, [0, 4096, 25, 0, 0])),
        ] {
            let exit = under(text, || errno(call.0, call.1));
            assert_eq!(exit, Exit::Signal(libc::SIGSYS), "{name}: {what}");
        }
    }
}

#[test]
fn a_thread_that_gives_back_much_memory_at_once_goes_on() {
    // The allocator of a second thread asks a file of /proc how to shrink its heap: 300 sessions that ended at once killed fsd.
    for (name, text) in [("fsd", FSD), ("sessiond", SESSIOND)] {
        let exit = under(text, || {
            let churn = || {
                let blocks: Vec<Vec<u8>> = (0..500).map(|n| vec![n as u8; 100_000]).collect();
                let sum: usize = blocks.iter().map(|block| usize::from(block[99_999])).sum();
                drop(blocks);
                sum
            };
            let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(churn)).collect();
            i32::from(threads.into_iter().any(|thread| thread.join().is_err()))
        });
        assert_eq!(exit, Exit::Status(0), "{name}");
    }
}

#[test]
fn no_daemon_may_map_memory_executable() {
    for (name, text) in &ALL[..11] {
        let exit = under(text, || errno(libc::SYS_mmap, [0, 4096, 5, 0x22, -1]));
        assert_eq!(exit, Exit::Signal(libc::SIGSYS), "{name}");
        assert_eq!(under(text, || errno(libc::SYS_mmap, [0, 4096, 3, 0x22, -1])), Exit::Status(0), "{name}");
    }
}

#[test]
fn a_service_is_refused_what_namespaces_do_not_separate() {
    let new_user = i64::from(libc::CLONE_NEWUSER);
    for (what, call, args, expected) in [
        ("sysinfo", libc::SYS_sysinfo, [0, 0, 0, 0, 0], libc::EPERM),
        ("another limit on cores", libc::SYS_prlimit64, [0, 4, 0, 0, 0], libc::EPERM),
        ("another limit on cores, the old way", libc::SYS_setrlimit, [4, 0, 0, 0, 0], libc::EPERM),
        ("AF_VSOCK", libc::SYS_socket, [40, 1, 0, 0, 0], libc::EPERM),
        ("AF_ALG", libc::SYS_socket, [38, 5, 0, 0, 0], libc::EPERM),
        ("AF_PACKET", libc::SYS_socket, [17, 3, 0, 0, 0], libc::EPERM),
        ("SCTP", libc::SYS_socket, [2, 1, 132, 0, 0], libc::EPERM),
        ("SCTP without saying so", libc::SYS_socket, [2, 5, 0, 0, 0], libc::EPERM),
        ("DCCP without saying so", libc::SYS_socket, [2, 6, 0, 0, 0], libc::EPERM),
        ("routing netlink", libc::SYS_socket, [16, 3, 0, 0, 0], libc::EPERM),
        ("SIOCGARP", libc::SYS_ioctl, [-1, 0x8954, 0, 0, 0], libc::EPERM),
        ("F_OFD_SETLK", libc::SYS_fcntl, [0, 37, 0, 0, 0], libc::EPERM),
        ("F_GETLK", libc::SYS_fcntl, [0, 5, 0, 0, 0], libc::EPERM),
        ("flock", libc::SYS_flock, [-1, 1, 0, 0, 0], libc::EPERM),
        ("FUTEX_WAKE of others", libc::SYS_futex, [0, 1, 1, 0, 0], libc::EPERM),
        ("futex_waitv", libc::SYS_futex_waitv, [0, 0, 0, 0, 0], libc::EPERM),
        ("pidfd_open", libc::SYS_pidfd_open, [1, 0, 0, 0, 0], libc::EPERM),
        ("clone(PIDFD)", libc::SYS_clone, [i64::from(libc::CLONE_PIDFD) | 17, 0, 0, 0, 0], libc::EPERM),
        ("SO_PEERPIDFD", libc::SYS_getsockopt, [-1, 1, 77, 0, 0], libc::EPERM),
        ("SO_PASSPIDFD", libc::SYS_setsockopt, [-1, 1, 76, 0, 0], libc::EPERM),
        ("semget", libc::SYS_semget, [0, 1, 0, 0, 0], libc::EPERM),
        ("mq_open", libc::SYS_mq_open, [0, 0, 0, 0, 0], libc::EPERM),
        ("io_setup", libc::SYS_io_setup, [1, 0, 0, 0, 0], libc::EPERM),
        ("SO_COOKIE", libc::SYS_getsockopt, [-1, 1, 57, 0, 0], libc::EPERM),
        ("a line discipline", libc::SYS_ioctl, [-1, 0x5423, 0, 0, 0], libc::EPERM),
        ("sock_diag netlink", libc::SYS_socket, [16, 3, 4, 0, 0], libc::EPERM),
        ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0], libc::ENOSYS),
        ("inotify_init1", libc::SYS_inotify_init1, [0, 0, 0, 0, 0], libc::ENOSYS),
        ("a lease", libc::SYS_fcntl, [0, 1024, 0, 0, 0], libc::EPERM),
        ("directory notification", libc::SYS_fcntl, [0, 1026, 2, 0, 0], libc::EPERM),
        ("fanotify", libc::SYS_fanotify_init, [0, 0, 0, 0, 0], libc::EPERM),
        ("clone3", libc::SYS_clone3, [0, 0, 0, 0, 0], libc::ENOSYS),
        ("clone(NEWUSER)", libc::SYS_clone, [new_user | 17, 0, 0, 0, 0], libc::EPERM),
        ("unshare", libc::SYS_unshare, [new_user, 0, 0, 0, 0], libc::EPERM),
        ("setns", libc::SYS_setns, [-1, 0, 0, 0, 0], libc::EPERM),
        ("keyctl", libc::SYS_keyctl, [0, 0, 0, 0, 0], libc::EPERM),
        ("add_key", libc::SYS_add_key, [0, 0, 0, 0, 0], libc::EPERM),
        ("request_key", libc::SYS_request_key, [0, 0, 0, 0, 0], libc::EPERM),
        ("bpf", libc::SYS_bpf, [0, 0, 0, 0, 0], libc::EPERM),
        ("perf_event_open", libc::SYS_perf_event_open, [0, 0, 0, 0, 0], libc::EPERM),
        ("ptrace", libc::SYS_ptrace, [0, 0, 0, 0, 0], libc::EPERM),
        ("process_vm_readv", libc::SYS_process_vm_readv, [1, 0, 0, 0, 0], libc::EPERM),
        ("mount", libc::SYS_mount, [0, 0, 0, 0, 0], libc::EPERM),
        ("fsopen", libc::SYS_fsopen, [0, 0, 0, 0, 0], libc::EPERM),
        ("open_tree", libc::SYS_open_tree, [-1, 0, 0, 0, 0], libc::EPERM),
        ("move_mount", libc::SYS_move_mount, [-1, 0, -1, 0, 0], libc::EPERM),
        ("mount_setattr", libc::SYS_mount_setattr, [-1, 0, 0, 0, 0], libc::EPERM),
        ("umount2", libc::SYS_umount2, [0, 0, 0, 0, 0], libc::EPERM),
        ("pivot_root", libc::SYS_pivot_root, [0, 0, 0, 0, 0], libc::EPERM),
        ("chroot", libc::SYS_chroot, [0, 0, 0, 0, 0], libc::EPERM),
        ("userfaultfd", libc::SYS_userfaultfd, [0, 0, 0, 0, 0], libc::EPERM),
        ("kexec_load", libc::SYS_kexec_load, [0, 0, 0, 0, 0], libc::EPERM),
        ("init_module", libc::SYS_init_module, [0, 0, 0, 0, 0], libc::EPERM),
        ("syslog", libc::SYS_syslog, [10, 0, 0, 0, 0], libc::EPERM),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, [-1, 0, 0, 0, 0], libc::EPERM),
        ("TIOCSTI", libc::SYS_ioctl, [-1, 0x5412, 0, 0, 0], libc::EPERM),
        ("personality", libc::SYS_personality, [0x0008_0000, 0, 0, 0, 0], libc::EPERM),
        ("a program for a socket", libc::SYS_setsockopt, [-1, 1, 26, 0, 0], libc::EPERM),
        ("a program for sockets that share a port", libc::SYS_setsockopt, [-1, 1, 51, 0, 0], libc::EPERM),
        ("the times of packets", libc::SYS_setsockopt, [-1, 1, 29, 0, 0], libc::EPERM),
        ("SO_TIMESTAMPING_NEW", libc::SYS_setsockopt, [-1, 1, 65, 0, 0], libc::EPERM),
        ("the time of a packet", libc::SYS_ioctl, [-1, 0x8906, 0, 0, 0], libc::EPERM),
        ("SIOCGSTAMPNS_NEW", libc::SYS_ioctl, [-1, 0x8010_8907, 0, 0, 0], libc::EPERM),
        ("TCP_MD5SIG", libc::SYS_setsockopt, [-1, 6, 14, 0, 0], libc::EPERM),
        ("a flow label", libc::SYS_setsockopt, [-1, 41, 32, 0, 0], libc::EPERM),
        ("SO_LINGER", libc::SYS_setsockopt, [-1, 1, 13, 0, 0], libc::EPERM),
        ("a source route", libc::SYS_setsockopt, [-1, 0, 4, 0, 0], libc::EPERM),
        ("a source route of IPv6", libc::SYS_setsockopt, [-1, 41, 57, 0, 0], libc::EPERM),
        ("a source route of IPv6, the old way", libc::SYS_setsockopt, [-1, 41, 5, 0, 0], libc::EPERM),
        ("all options of IPv6 at once", libc::SYS_setsockopt, [-1, 41, 6, 0, 0], libc::EPERM),
        ("options for each hop", libc::SYS_setsockopt, [-1, 41, 54, 0, 0], libc::EPERM),
        ("options for the destination", libc::SYS_setsockopt, [-1, 41, 59, 0, 0], libc::EPERM),
        ("UDP_ENCAP", libc::SYS_setsockopt, [-1, 17, 100, 0, 0], libc::EPERM),
        ("UDP_GRO", libc::SYS_setsockopt, [-1, 17, 104, 0, 0], libc::EPERM),
        ("UDP_SEGMENT", libc::SYS_setsockopt, [-1, 17, 103, 0, 0], libc::EBADF),
        ("IP_MINTTL", libc::SYS_setsockopt, [-1, 0, 21, 0, 0], libc::EPERM),
        ("IPV6_MINHOPCOUNT", libc::SYS_setsockopt, [-1, 41, 73, 0, 0], libc::EPERM),
        ("IP_FREEBIND", libc::SYS_setsockopt, [-1, 0, 15, 0, 0], libc::EPERM),
        ("IP_LOCAL_PORT_RANGE", libc::SYS_setsockopt, [-1, 0, 51, 0, 0], libc::EPERM),
        ("IPV6_FREEBIND", libc::SYS_setsockopt, [-1, 41, 78, 0, 0], libc::EPERM),
        ("TCP_TX_DELAY", libc::SYS_setsockopt, [-1, 6, 37, 0, 0], libc::EPERM),
        ("a bound of its use of processors", libc::SYS_sched_setattr, [0, 0, 0, 0, 0], libc::EPERM),
        ("a core for itself", libc::SYS_prctl, [62, 0, 0, 0, 0], libc::EPERM),
        ("TCP_NODELAY", libc::SYS_setsockopt, [-1, 6, 1, 0, 0], libc::EBADF),
        ("IPV6_V6ONLY", libc::SYS_setsockopt, [-1, 41, 26, 0, 0], libc::EBADF),
        ("SO_KEEPALIVE", libc::SYS_setsockopt, [-1, 1, 9, 0, 0], libc::EBADF),
        ("IP_TOS", libc::SYS_setsockopt, [-1, 0, 1, 0, 0], libc::EBADF),
        ("huge pages", libc::SYS_mmap, [0, 2 << 20, 3, 0x40022, -1], libc::EPERM),
        ("a file of huge pages", libc::SYS_memfd_create, [0, 4, 0, 0, 0], libc::EPERM),
        ("pages made one", libc::SYS_madvise, [0, 4096, 12, 0, 0], libc::EPERM),
        ("all pages made one", libc::SYS_prctl, [67, 1, 0, 0, 0], libc::EPERM),
        ("small pages made a large one", libc::SYS_madvise, [0, 4096, 25, 0, 0], libc::EPERM),
        ("interrupts of whoever agrees", libc::SYS_membarrier, [2, 0, 0, 0, 0], libc::EPERM),
        ("to agree to them", libc::SYS_membarrier, [4, 0, 0, 0, 0], libc::EPERM),
        ("to agree to those of one's own threads", libc::SYS_membarrier, [16, 0, 0, 0, 0], 0),
        ("a filter that has calls written down", libc::SYS_prctl, [22, 2, 0, 0, 0], libc::EPERM),
        ("the same by seccomp(2)", libc::SYS_seccomp, [1, 0, 0, 0, 0], libc::EPERM),
        (
            "refusals of Landlock that are written down",
            libc::SYS_landlock_create_ruleset,
            [0, 0, 1, 0, 0],
            libc::EPERM,
        ),
        ("the priority of every process", libc::SYS_getpriority, [2, 0, 0, 0, 0], libc::EPERM),
        ("to set it", libc::SYS_setpriority, [2, 0, 0, 0, 0], libc::EPERM),
        ("the same for input and output", libc::SYS_ioprio_get, [3, 0, 0, 0, 0], libc::EPERM),
        ("to set that", libc::SYS_ioprio_set, [3, 0, 0, 0, 0], libc::EPERM),
        ("a signal to every process", libc::SYS_kill, [-1, 0, 0, 0, 0], libc::EPERM),
        ("a signal to its own", libc::SYS_kill, [0, 0, 0, 0, 0], 0),
        ("bridges", libc::SYS_ioctl, [-1, 0x8940, 0, 0, 0], libc::EPERM),
        ("virtual networks", libc::SYS_ioctl, [-1, 0x8982, 0, 0, 0], libc::EPERM),
    ] {
        assert_eq!(under(SERVICE, || errno(call, args)), Exit::Status(expected), "{what}");
    }
}

/// `rtnl_mutex` is one for all networks of the machine, and a group that is left is looked for in the list of all. These are the calls of which it was read.
#[test]
fn a_service_does_nothing_under_the_one_lock_of_all_networks() {
    for (what, call, args, expected) in [
        ("IP_ADD_MEMBERSHIP", libc::SYS_setsockopt, [-1, 0, 35, 0, 0], libc::EPERM),
        ("IP_DROP_MEMBERSHIP", libc::SYS_setsockopt, [-1, 0, 36, 0, 0], libc::EPERM),
        ("MCAST_JOIN_GROUP", libc::SYS_setsockopt, [-1, 0, 42, 0, 0], libc::EPERM),
        ("MCAST_MSFILTER", libc::SYS_setsockopt, [-1, 0, 48, 0, 0], libc::EPERM),
        ("IP_MULTICAST_ALL", libc::SYS_setsockopt, [-1, 0, 49, 0, 0], libc::EBADF),
        ("IPV6_JOIN_GROUP", libc::SYS_setsockopt, [-1, 41, 20, 0, 0], libc::EPERM),
        ("IPV6_ADDRFORM", libc::SYS_setsockopt, [-1, 41, 1, 0, 0], libc::EPERM),
        ("MCAST_JOIN_GROUP of IPv6", libc::SYS_setsockopt, [-1, 41, 42, 0, 0], libc::EPERM),
        ("sources of a group", libc::SYS_getsockopt, [-1, 0, 41, 0, 0], libc::EPERM),
        ("SIOCETHTOOL", libc::SYS_ioctl, [-1, 0x8946, 0, 0, 0], libc::EPERM),
        ("SIOCGIFCONF", libc::SYS_ioctl, [-1, 0x8912, 0, 0, 0], libc::EPERM),
        ("SIOCGIFADDR", libc::SYS_ioctl, [-1, 0x8915, 0, 0, 0], libc::EPERM),
        ("MRT_INIT", libc::SYS_setsockopt, [-1, 0, 200, 0, 0], libc::EPERM),
        ("MRT_FLUSH", libc::SYS_setsockopt, [-1, 0, 212, 0, 0], libc::EPERM),
        ("MRT6_INIT", libc::SYS_setsockopt, [-1, 41, 200, 0, 0], libc::EPERM),
        ("SIOCSIFDSTADDR", libc::SYS_ioctl, [-1, 0x8918, 0, 0, 0], libc::EPERM),
        ("SIOCBONDSLAVEINFOQUERY", libc::SYS_ioctl, [-1, 0x8993, 0, 0, 0], libc::EPERM),
        ("SIOCBONDINFOQUERY", libc::SYS_ioctl, [-1, 0x8994, 0, 0, 0], libc::EPERM),
        ("UDP_GRO by another name", libc::SYS_setsockopt, [-1, 136, 104, 0, 0], libc::EPERM),
        ("SIOCGHWTSTAMP", libc::SYS_ioctl, [-1, 0x89b1, 0, 0, 0], libc::EPERM),
        ("SIOCGIWNAME of wireless networks", libc::SYS_ioctl, [-1, 0x8b01, 0, 0, 0], libc::EPERM),
        ("SIOCIWLASTPRIV", libc::SYS_ioctl, [-1, 0x8bff, 0, 0, 0], libc::EPERM),
    ] {
        assert_eq!(under(SERVICE, || errno(call, args)), Exit::Status(expected), "{what}");
    }
}

#[test]
fn a_service_has_the_kernel_walk_no_thousands_who_wait_and_send_nothing_in_nobodys_time() {
    for (what, call, args, expected) in [
        ("SO_MAX_PACING_RATE", libc::SYS_setsockopt, [-1, 1, 47, 0, 0], libc::EPERM),
        ("poll of many", libc::SYS_poll, [0, 1_024, 0, 0, 0], libc::EPERM),
        ("ppoll of many", libc::SYS_ppoll, [0, 4_096, 0, 0, 0], libc::EPERM),
        ("poll of fewer", libc::SYS_poll, [0, 1_023, 0, 0, 0], libc::EFAULT),
        ("select of many", libc::SYS_select, [1_025, 0, 0, 0, 0], libc::EPERM),
    ] {
        assert_eq!(under(SERVICE, || errno(call, args)), Exit::Status(expected), "{what}");
    }
}

#[test]
fn nothing_of_a_service_waits_in_memory_that_its_group_does_not_count_but_what_nobody_accepts() {
    for (what, call, args, expected) in [
        ("IP_RECVERR", libc::SYS_setsockopt, [-1, 0, 11, 0, 0], libc::EPERM),
        ("IPV6_RECVERR", libc::SYS_setsockopt, [-1, 41, 25, 0, 0], libc::EPERM),
        ("UDP_CORK", libc::SYS_setsockopt, [-1, 17, 1, 0, 0], libc::EPERM),
        ("TCP_ZEROCOPY_RECEIVE", libc::SYS_getsockopt, [-1, 6, 35, 0, 0], libc::EPERM),
        ("TCP_INFO", libc::SYS_getsockopt, [-1, 6, 11, 0, 0], libc::EBADF),
        ("MSG_MORE", libc::SYS_sendto, [-1, 0, 0, 0x8000, 0], libc::EPERM),
        ("MSG_MORE of a message", libc::SYS_sendmsg, [-1, 0, 0x8000, 0, 0], libc::EPERM),
        ("MSG_MORE of many", libc::SYS_sendmmsg, [-1, 0, 0, 0xc000, 0], libc::EPERM),
        ("splice", libc::SYS_splice, [-1, 0, -1, 0, 1], libc::EINVAL),
        ("tee", libc::SYS_tee, [-1, -1, 1, 0, 0], libc::EINVAL),
        ("sendfile without an offset", libc::SYS_sendfile, [-1, -1, 0, 1, 0], libc::EINVAL),
        ("sendfile from an offset", libc::SYS_sendfile, [-1, -1, 8, 1, 0], libc::EFAULT),
        ("what is sent whole", libc::SYS_sendto, [-1, 0, 0, 0x4000, 0], libc::EBADF),
    ] {
        assert_eq!(under(SERVICE, || errno(call, args)), Exit::Status(expected), "{what}");
    }
}

#[test]
fn a_service_may_still_start_threads_and_processes_and_open_sockets() {
    let exit = under(SERVICE, || {
        let thread = std::thread::spawn(|| 5).join().unwrap_or(0);
        let socket = i32::from(std::net::UdpSocket::bind("127.0.0.1:0").is_ok());
        // As libc does it, without a pidfd.
        // SAFETY: the child of this process of one thread only ends; `status` outlives the call.
        let status = unsafe {
            let (child, mut status) = (libc::fork(), 0);
            if child == 0 {
                libc::_exit(3)
            }
            libc::waitpid(child, &raw mut status, 0);
            status
        };
        thread + socket + i32::from(libc::WEXITSTATUS(status) == 3)
    });
    assert_eq!(exit, Exit::Status(7));
}

#[test]
fn a_group_that_is_asked_for_is_let_through_and_no_other() {
    let wake = [0, 1, 1, 0, 0];
    for (group, call, args) in [
        ("locks", libc::SYS_flock, [-1, 1, 0, 0, 0]),
        ("locks", libc::SYS_fcntl, [-1, 37, 0, 0, 0]),
        ("netlink", libc::SYS_socket, [16, 3, 0, 0, 0]),
        ("netlink", libc::SYS_ioctl, [-1, 0x8954, 0, 0, 0]),
        ("netlink", libc::SYS_ioctl, [-1, 0x8912, 0, 0, 0]),
        ("own-sandbox", libc::SYS_seccomp, [1, 0, 0, 0, 0]),
        ("own-sandbox", libc::SYS_prctl, [22, 2, 0, 0, 0]),
        ("own-sandbox", libc::SYS_landlock_create_ruleset, [0, 0, 1, 0, 0]),
        ("pidfd", libc::SYS_pidfd_open, [-1, 0, 0, 0, 0]),
        ("shared-futex", libc::SYS_futex, wake),
        ("shared-futex", libc::SYS_futex_waitv, [0, 0, 0, 0, 0]),
        ("sysv-ipc", libc::SYS_semget, [0, -1, 0, 0, 0]),
        ("message-queues", libc::SYS_mq_unlink, [0, 0, 0, 0, 0]),
        ("async-io", libc::SYS_io_setup, [0, 0, 0, 0, 0]),
        ("corked-sends", libc::SYS_sendto, [-1, 0, 0, 0x8000, 0]),
        ("corked-sends", libc::SYS_sendmsg, [-1, 0, 0x8000, 0, 0]),
        ("corked-sends", libc::SYS_setsockopt, [-1, 17, 1, 0, 0]),
    ] {
        for other in Filter::groups(SERVICE).unwrap() {
            let filter = Filter::compile_with(SERVICE, &[&other]).unwrap();
            let child = fork(|| {
                let loaded = sandbox::forbid_dumps().is_ok()
                    && rustix::thread::set_no_new_privs(true).is_ok()
                    && filter.apply().is_ok();
                if loaded { errno(call, args) } else { 99 }
            });
            let exit = child.unwrap().wait(Duration::from_secs(5)).unwrap();
            let refused = exit == Some(Exit::Status(libc::EPERM));
            assert_eq!(refused, other != group, "{call} with the group {other}: {exit:?}");
        }
    }
    // What the groups add to a call goes beside what every service has.
    let filter = Filter::compile_with(SERVICE, &["locks", "netlink"]).unwrap();
    let child = fork(|| {
        if rustix::thread::set_no_new_privs(true).is_err() || filter.apply().is_err() {
            return 99;
        }
        let lease = errno(libc::SYS_fcntl, [0, 1024, 0, 0, 0]);
        let duplicate = errno(libc::SYS_fcntl, [0, 1030, 0, 0, 0]);
        i32::from(lease == libc::EPERM) + 2 * i32::from(duplicate == 0)
    });
    assert_eq!(child.unwrap().wait(Duration::from_secs(5)).unwrap(), Some(Exit::Status(3)));
}

#[test]
fn landlock_leaves_only_the_given_directory() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("inside"), "x").unwrap();
    let fd = std::fs::File::open(dir.path()).unwrap();
    let child = fork(|| {
        let files = [(fd.as_fd(), Access::Read)];
        if (Sandbox { filter: SERVICE, files: &files, tcp: false }).enter().is_err() {
            return 99;
        }
        let read = |path: &std::path::Path| std::fs::read(path).is_ok();
        let write = std::fs::write(dir.path().join("new"), "y").is_ok();
        let connect = std::net::TcpStream::connect("127.0.0.1:1").err().and_then(|e| e.raw_os_error());
        i32::from(read(&dir.path().join("inside")))
            + 2 * i32::from(read("/etc/hostname".as_ref()) || read("/etc/passwd".as_ref()))
            + 4 * i32::from(write)
            + 8 * i32::from(connect != Some(libc::EACCES))
    })
    .unwrap();
    assert_eq!(child.wait(Duration::from_secs(5)).unwrap(), Some(Exit::Status(1)));
}

#[test]
fn a_filter_with_a_mistake_is_refused_with_the_place() {
    for (text, expected) in [
        ("default = \"kill\"\n[allow]\nread = \"\"", "read is allowed without a reason"),
        ("default = \"kill\"\n[allow]\nreed = \"x\"", "reed"),
        ("default = \"EWHAT\"\n[allow]\nread = \"x\"", "no errno EWHAT"),
        ("default = \"kill\"\n[allow]\nread = { why = \"x\", when = [\"arg9 == 1\"] }", "arg9"),
        ("default = \"kill\"\n[allow]\nread = { why = \"x\", when = [] }", "empty"),
        ("default = \"kill\"\nextra = 1\n[allow]\nread = \"x\"", "extra"),
        (
            "default = \"kill\"\n[allow]\nread = \"x\"\n[refuse]\nread = { errno = \"EPERM\", why = \"y\" }",
            "both allowed and refused",
        ),
    ] {
        let error = Filter::compile(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// What a filter's text says, as far as it is needed here.
#[derive(serde::Deserialize)]
struct Text {
    default: String,
    #[serde(default)]
    runtime: bool,
    allow: toml::Table,
    #[serde(default)]
    seldom: toml::Table,
    #[serde(default)]
    refuse: toml::Table,
    #[serde(default)]
    group: std::collections::BTreeMap<String, Group>,
}

/// What the runtime of levee's own processes does.
const RUNTIME: &str = include_str!("../../../conf/seccomp/runtime.toml");

#[derive(serde::Deserialize)]
struct Runtime {
    allow: toml::Table,
    seldom: toml::Table,
}

#[derive(serde::Deserialize)]
struct Group {
    allow: toml::Table,
}

/// Numbers of system calls of this architecture are below it, with room for those to come.
const NUMBERS: libc::c_long = 500;

/// uretprobe and uprobe of x86-64: newer kernels ask no filter about them. They do nothing but for who was sent there by a probe.
const PROBES: [libc::c_long; 2] = [335, 336];

/// A call's number, from the compiler's own table.
fn number(call: &str) -> libc::c_long {
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let text = format!(
        r#"{{"one":{{"mismatch_action":"allow","match_action":"kill_process","filter":[{{"syscall":{call:?}}}]}}}}"#
    );
    let program = seccompiler::compile_from_json(text.as_bytes(), arch).unwrap().remove("one").unwrap();
    // The first comparison is with the architecture.
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    program.iter().filter(|instruction| instruction.code == equal).nth(1).unwrap().k.into()
}

#[test]
fn each_call_that_a_filter_does_not_name_kills_who_makes_it_or_is_refused_to_a_service() {
    let mut numbers = std::collections::HashMap::new();
    for (name, filter) in ALL {
        let Text { default, runtime, allow, seldom, refuse, group } = toml::from_str(filter).unwrap();
        let common: Runtime = toml::from_str(RUNTIME).unwrap();
        let common = common.allow.keys().chain(common.seldom.keys()).filter(|_| runtime);
        let groups = group.values().flat_map(|group| group.allow.keys());
        let named: std::collections::HashSet<libc::c_long> = allow
            .keys()
            .chain(seldom.keys())
            .chain(refuse.keys())
            .chain(groups)
            .chain(common)
            .map(|call| *numbers.entry(call.clone()).or_insert_with(|| number(call)))
            .collect();
        let expected = match default.as_str() {
            "kill" => Exit::Signal(libc::SIGSYS),
            "EPERM" => Exit::Status(libc::EPERM),
            other => panic!("{name} answers {other}"),
        };
        let compiled = Filter::compile(filter).unwrap();
        // What is not there at all is forbidden, too, and so is what another table of numbers has (x32).
        let others = (0..NUMBERS).map(|n| n | 0x4000_0000).step_by(60);
        let forbidden = (0..NUMBERS).filter(|n| !named.contains(n)).chain(others);
        let mut tried = 0;
        for call in forbidden {
            let child = fork(|| match rustix::thread::set_no_new_privs(true) {
                Ok(()) if compiled.apply().is_ok() => errno(call, [-1; 5]),
                _ => 99,
            });
            let exit = child.unwrap().wait(Duration::from_secs(20)).unwrap();
            let without = [Exit::Signal(libc::SIGILL), Exit::Status(libc::ENXIO)].map(Some);
            let of_kernel = PROBES.contains(&call) && without.contains(&exit);
            assert!(exit == Some(expected) || of_kernel, "{name}: call {call}: {exit:?}");
            tried += 1;
        }
        assert!(tried > 200, "{name}: {tried}");
    }
}

/// The text of a filter with the runtime's calls written out, but for one call.
fn without(filter: &str, call: &str) -> String {
    let mut text: toml::Table = toml::from_str(filter).unwrap();
    if text.remove("runtime").is_some() {
        let common: toml::Table = toml::from_str(RUNTIME).unwrap();
        for part in ["allow", "seldom"] {
            let own = text.entry(part).or_insert_with(|| toml::Table::new().into()).as_table_mut().unwrap();
            for (call, why) in common[part].as_table().unwrap() {
                own.entry(call).or_insert_with(|| why.clone());
            }
        }
    }
    for part in ["allow", "seldom"] {
        text.get_mut(part).and_then(|part| part.as_table_mut()?.remove(call));
    }
    toml::to_string(&text).unwrap()
}

/// That each is made, system `each_call_that_a_filter_allows_is_made_or_stands_under_seldom` shows.
#[test]
fn each_call_that_is_taken_away_from_a_filter_is_missed_by_who_makes_it() {
    let mut tried = 0;
    for (name, filter) in ALL.into_iter().filter(|(name, _)| *name != "service") {
        let Text { runtime, allow, seldom, .. } = toml::from_str(filter).unwrap();
        let common: Runtime = toml::from_str(RUNTIME).unwrap();
        let common = common.allow.keys().chain(common.seldom.keys()).filter(|_| runtime);
        let calls: std::collections::BTreeSet<&String> =
            allow.keys().chain(seldom.keys()).chain(common).collect();
        for call in calls {
            let (less, number) = (Filter::compile(&without(filter, call)).unwrap(), number(call));
            let child = fork(|| match rustix::thread::set_no_new_privs(true) {
                Ok(()) if less.apply().is_ok() => errno(number, [-1; 5]),
                _ => 99,
            });
            let exit = child.unwrap().wait(Duration::from_secs(20)).unwrap();
            assert_eq!(exit, Some(Exit::Signal(libc::SIGSYS)), "{name} without {call}");
            tried += 1;
        }
    }
    assert!(tried > 500, "{tried}");
}
