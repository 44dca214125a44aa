//! Several labels below one: what one of them does costs the others' documents nothing. The second stage is the program itself, under a uid
//! of its own, in its sandbox and with the memory that the warden gives it.

use levee_ipc::warden::upflow::CopyPart;
use levee_ipc::warden::{Nothing, Order, Place, Said};
use levee_ipc::{Channel, Stream};
use levee_sys::cgroup::{self, Cgroup};
use levee_sys::generation::{self, Writer};
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use levee_upflow::area::Area;
use levee_upflow::mirror::Limits;
use levee_upflow::receive::Receiver;
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Signal;
use rustix::thread::{Gid, Uid};
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SECOND: u32 = 0x7ff0_0012;

/// Less than the warden gives it (`daemons/warden/src/bounds.rs`).
const MEMORY: u64 = 128 << 20;

/// On a busy host.
const PATIENCE: Duration = Duration::from_secs(30);

struct Running {
    child: Child,
    _channel: Channel,
    group: Cgroup,
}

impl Running {
    /// A second stage with what it writes to, and the snapshots of these labels.
    fn start(name: &str, what: CopyPart, to: OwnedFd, snapshots: &[(&str, Snapshot)]) -> Self {
        assert!(rustix::process::geteuid().is_root(), "run it as root");
        let limits = cgroup::Limits { memory: MEMORY, processes: 8, cpu_percent: cgroup::Limits::ANY_TIME };
        let group = Cgroup::create_own(&format!("levee-below-{name}"), limits).unwrap();
        let (ours, theirs) = Channel::pair().unwrap();
        let errors = std::io::stderr();
        let mut program = Program::new(env!("CARGO_BIN_EXE_levee-upflow"));
        program.args.push("--copy".into());
        program.fds = vec![theirs.as_fd()];
        program.stdio = [None, None, Some(errors.as_fd())];
        program.identity = Some((Uid::from_raw(SECOND), Gid::from_raw(SECOND)));
        program.new_namespaces = Program::ISOLATED;
        program.cgroups = group.procs().collect();
        program.die_with_parent = false; // of the test's thread
        let child = program.start().unwrap();
        drop(program);
        ours.send_with(&Order::Give(what), &[to.as_fd()]).unwrap();
        let names = snapshots.iter().map(|(label, _)| label.parse().unwrap()).collect();
        let opened: Vec<File> =
            snapshots.iter().map(|(_, snapshot)| File::open(&snapshot.path).unwrap()).collect();
        let with = opened.iter().zip(snapshots);
        let fds: Vec<_> =
            with.flat_map(|(opened, (_, snapshot))| [opened.as_fd(), snapshot.seen.as_fd()]).collect();
        ours.send_with(&Order::Give(CopyPart::Snapshots(names)), &fds).unwrap();
        ours.send(&Order::<Nothing>::Begin(Place::Server)).unwrap();
        match ours.recv::<Said<Nothing>>().expect("a first message").message {
            Said::Ready => Self { child, _channel: ours, group },
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.signal(Signal::KILL);
        let _ = self.child.wait(Duration::from_secs(10));
        let _ = self.group.remove();
    }
}

/// A snapshot, as a first stage writes it.
struct Snapshot {
    path: PathBuf,
    tells: Writer,
    seen: OwnedFd,
}

fn snapshot(place: &Path, label: &str) -> Snapshot {
    let path = place.join(label);
    fs::create_dir_all(path.join("tree")).unwrap();
    fs::write(path.join("tree/note"), label).unwrap();
    let (writer, seen) = generation::make().unwrap();
    Snapshot { path, tells: Writer::of(writer).unwrap(), seen }
}

#[test]
fn a_document_of_one_label_does_not_wait_until_all_that_another_has_changed_is_copied() {
    const MANY: usize = 20_000;
    let place = tempfile::tempdir().unwrap();
    let snapshots = ["A", "B", "C"].map(|label| (label, snapshot(place.path(), label)));
    let copy = place.path().join("copy");
    fs::create_dir(&copy).unwrap();
    chown(&copy, Some(SECOND), Some(SECOND)).unwrap();
    for number in 0..MANY {
        fs::write(snapshots[0].1.path.join(format!("tree/{number}")), b"x").unwrap();
    }
    let stage = Running::start("turns", CopyPart::Copies, File::open(&copy).unwrap().into(), &snapshots);
    let begun = Instant::now();
    while fs::read(copy.join("C/note")).is_err() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    let copied = || fs::read_dir(copy.join("A")).map_or(0, Iterator::count);
    let meanwhile = copied();
    println!("after {:?}, with {meanwhile} of the others", begun.elapsed());
    assert!(meanwhile < MANY / 2, "{meanwhile}");
    while copied() <= MANY {
        assert!(begun.elapsed() < 4 * PATIENCE && stage.child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("all: {:?}", begun.elapsed());
}

/// What somebody at `A` does, and that a document of `C` arrives as ever.
fn others_lose_nothing(name: &str, hostile: impl FnOnce(&Path)) {
    let place = tempfile::tempdir().unwrap();
    let snapshots = ["A", "B", "C"].map(|label| (label, snapshot(place.path(), label)));
    let copy = place.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let stage = Running::start(name, CopyPart::Documents("TOP".parse().unwrap()), far, &snapshots);
    let area = Area::copies(File::open(&copy).unwrap().into()).unwrap();
    let all = Limits { entries: u64::MAX, bytes: u64::MAX, ..Limits::default() };
    let mut receiver = Receiver::new(Stream::new(near), area, all);
    let [(_, hostiles), _, (_, others)] = &snapshots;
    let mut arrives = |text: &str| {
        fs::write(others.path.join("tree/note"), text).unwrap();
        others.tells.advance();
        let begun = Instant::now();
        loop {
            assert!(
                stage.child.try_wait().unwrap().is_none(),
                "it has ended; memory: {}",
                stage.group.ran_out_of_memory()
            );
            let heard = receiver.hear();
            match fs::read(copy.join("C/note")) {
                Ok(is) if is == text.as_bytes() => break,
                Ok(_) => assert!(begun.elapsed() < PATIENCE, "{text} does not arrive: {heard:?}"),
                Err(_) => assert!(text == "first" && begun.elapsed() < PATIENCE, "it was removed: {heard:?}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        println!("{text}: {:?}", begun.elapsed());
    };
    arrives("first");
    hostile(&hostiles.path.join("tree"));
    hostiles.tells.advance();
    ["second", "third", "fourth"].into_iter().for_each(&mut arrives);
}

#[test]
fn a_hole_of_one_label_leaves_room_for_the_documents_of_others_in_a_machine() {
    others_lose_nothing("hole", |tree| {
        // As much as all labels together might have once.
        File::create(tree.join("hollow")).unwrap().set_len(4 << 30).unwrap();
    });
}

#[test]
fn the_longest_names_of_one_label_leave_memory_for_the_documents_of_others_in_a_machine() {
    others_lose_nothing("names", |tree| {
        let mut at: OwnedFd = File::open(tree).unwrap().into();
        let name = "d".repeat(250);
        for _ in 0..15 {
            mkdirat(&at, &name, Mode::from_raw_mode(0o755)).unwrap();
            at = openat(&at, &name, OFlags::RDONLY, Mode::empty()).unwrap();
        }
        for number in 0..24_000 {
            let name = format!("{number:08}{}", "x".repeat(240));
            openat(&at, name, OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o644)).unwrap();
        }
    });
}
