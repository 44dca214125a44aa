//! Descriptors of a person's whose close waits, at the agent's socket.

mod world;

use levee_ipc::client::RefusalKind;
use levee_ipc::tpe::{Answer, Command, Input, MAX_CARRIED, Output};
use levee_ipc::{Channel, Secret};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with, sockopt,
};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use world::World;
use world::common::readable;

/// Longer than the test waits for anything.
const LINGERS: Duration = Duration::from_secs(600);

/// A connection that whoever closes it last waits for: its peer takes nothing.
fn lingering(listener: &TcpListener) -> OwnedFd {
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 64 * 1024]).is_ok() {}
    // One that does not block is not waited for.
    stream.set_nonblocking(false).unwrap();
    sockopt::set_socket_linger(&stream, Some(LINGERS)).unwrap();
    stream.into()
}

fn connected(socket: &Path) -> Channel {
    let ours = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&ours, &SocketAddrUnix::new(socket).unwrap()).unwrap();
    Channel::from_fd(ours)
}

/// A message with more descriptors than its receiver has room for: the kernel closes those, in the receiver.
fn too_many(to: &Channel, fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(30))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
    sendmsg(to, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::empty()).unwrap();
}

/// The processes whose parent is this one.
fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// The agent, the process that takes connections, and those that hear one each.
fn family(world: &World) -> Vec<u32> {
    let agent = world.agent.pid.as_raw_nonzero().get().unsigned_abs();
    let acceptors = children(agent);
    let hearing: Vec<u32> = acceptors.iter().copied().flat_map(children).collect();
    [vec![agent], acceptors, hearing].concat()
}

fn signal(family: &[u32], signal: Signal) {
    for pid in family {
        let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal);
    }
}

fn is_answered(world: &World, when: &str) {
    let person = connected(&world.socket);
    person.send(&Command::Status).unwrap();
    assert!(readable(&person, Duration::from_secs(3)), "{when}: the agent stands still");
    assert!(matches!(person.recv::<Answer>().unwrap().message, Answer::Status(_)), "{when}");
}

fn run(input: Input) -> Command {
    Command::Run { argv: vec!["/bin/true".into()], env: vec![], input, output: Output::Discard }
}

#[test]
fn a_descriptor_whose_close_waits_keeps_nobody_else_waiting_and_who_hears_it_is_ended() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    type Says<'a> = &'a dyn Fn(&Channel, &[BorrowedFd<'_>]);
    let ways: [(&str, usize, Says<'_>); 6] = [
        ("with a command", 1, &|to, fds| to.send_with(&Command::Status, fds).unwrap()),
        ("with what is no command", 1, &|to, fds| to.send_with(&[0xffu8; 32], fds).unwrap()),
        ("where a file belongs", 1, &|to, fds| to.send_with(&run(Input::Import), fds).unwrap()),
        ("where a terminal belongs", 1, &|to, fds| to.send_with(&run(Input::Terminal), fds).unwrap()),
        ("more than a message has room for", 30, &|to, fds| too_many(to, fds)),
        ("behind a command, unread", 1, &|to, fds| {
            to.send(&Command::Active).unwrap();
            to.send_with(&Command::Status, fds).unwrap();
        }),
    ];
    for (way, count, says) in ways {
        let theirs: Vec<_> = (0..count).map(|_| lingering(&listener)).collect();
        let person = connected(&world.socket);
        std::thread::sleep(Duration::from_millis(200));
        // Nobody closes them before they are closed here: who hears of them has them last.
        let family = family(&world);
        signal(&family, Signal::STOP);
        says(&person, &theirs.iter().map(AsFd::as_fd).collect::<Vec<_>>());
        drop(theirs);
        signal(&family, Signal::CONT);
        std::thread::sleep(Duration::from_millis(200));
        is_answered(&world, way);
        drop(person);
        is_answered(&world, way);
    }
    world.until("nobody hears who has gone", |world| family(world).len() == 2);
    world.log_in();
    world.level("SECRET");
    is_answered(&world, "in a session");
}

#[test]
fn a_file_to_carry_in_that_cannot_be_read_costs_its_person_alone() {
    let world = World::new();
    world.log_in();
    world.level("SECRET");
    // What a name alone says of itself is not believed, nor that a pipe is a file.
    let name =
        rustix::fs::open("/dev/pts/ptmx", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let (pipe, _writer) = std::io::pipe().unwrap();
    for (what, input, fd) in
        [("a name", Input::Terminal, name.as_fd()), ("a pipe", Input::Import, pipe.as_fd())]
    {
        let person = connected(&world.socket);
        person.send_with(&run(input), &[fd]).unwrap();
        let answer = person.recv::<Answer>().unwrap().message;
        assert!(matches!(answer, Answer::Refused { .. }), "{what}: {answer:?}");
    }
    let person = connected(&world.socket);
    person.send(&run(Input::Import)).unwrap();
    let answer = person.recv::<Answer>().unwrap().message;
    assert!(matches!(answer, Answer::Refused { .. }), "no file: {answer:?}");
}

/// Has a large file carried in again and again, of which each takes the agent some time; says so when this is dropped.
fn carries_in(socket: std::path::PathBuf, goes_on: Arc<AtomicBool>) {
    let file = memfd_create("large", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, MAX_CARRIED).unwrap();
    while goes_on.load(Ordering::Relaxed) {
        let person = connected(&socket);
        if person.send_with(&run(Input::Import), &[file.as_fd()]).is_ok() {
            let _ = person.recv::<Answer>();
        }
    }
}

#[test]
fn who_has_files_carried_in_without_a_pause_keeps_other_commands_waiting_for_one_turn() {
    let world = World::new();
    let login = Command::Login {
        user: "ada".parse().unwrap(),
        password: Secret::new(b"correct horse".to_vec()).unwrap(),
        code: None,
    };
    let level = Command::Level("UNCLASSIFIED".parse().unwrap(), None);
    let goes_on = Arc::new(AtomicBool::new(true));
    let ill: Vec<_> = (0..8)
        .map(|_| {
            let (socket, goes_on) = (world.socket.clone(), Arc::clone(&goes_on));
            std::thread::spawn(move || carries_in(socket, goes_on))
        })
        .collect();
    // Before anybody is signed on, without a session, and in one.
    for (what, command) in [("login", login), ("level", level), ("lock", Command::Lock)] {
        std::thread::sleep(Duration::from_millis(500));
        let until = Instant::now() + Duration::from_secs(8);
        let answer = loop {
            let person = connected(&world.socket);
            person.send(&command).unwrap();
            let left = until.saturating_duration_since(Instant::now());
            assert!(readable(&person, left), "{what}: the agent hears those who carry in alone");
            // Here they are of the same account, whose connections may be too many for a moment.
            match person.recv::<Answer>().unwrap().message {
                Answer::Refused { reason, .. } if reason.contains("too many connections") => {}
                answer => break answer,
            }
        };
        assert!(!matches!(answer, Answer::Refused { .. }), "{what}: {answer:?}");
    }
    goes_on.store(false, Ordering::Relaxed);
    ill.into_iter().for_each(|one| one.join().unwrap());
}

#[test]
fn what_is_to_be_carried_in_without_a_session_is_not_carried_into_one_that_is_being_opened() {
    let world = World::new();
    world.log_in();
    let file = memfd_create("file", MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&file, b"text").unwrap();
    let agent = [world.agent.pid.as_raw_nonzero().get().unsigned_abs()];
    signal(&agent, Signal::STOP);
    let (level, person) = (connected(&world.socket), connected(&world.socket));
    level.send(&Command::Level("SECRET".parse().unwrap(), None)).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    person.send_with(&run(Input::Import), &[file.as_fd()]).unwrap();
    signal(&agent, Signal::CONT);
    let answer = person.recv::<Answer>().unwrap().message;
    assert!(matches!(answer, Answer::Refused { kind: RefusalKind::NoSession, .. }), "{answer:?}");
    assert!(matches!(level.recv::<Answer>().unwrap().message, Answer::Opened(_)));
}
