//! Both stages as the warden runs them: the program itself, under a uid of its own, in its sandbox.

use levee_ipc::Channel;
use levee_ipc::warden::upflow::{CopyPart, SnapshotPart};
use levee_ipc::warden::{Nothing, Order, Part, Place, Said, UpflowCounters};
use levee_policy::LabelName;
use levee_sys::pidfd::{Child, Exit};
use levee_sys::spawn::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::Signal;
use rustix::thread::{Gid, Uid};
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const FIRST: u32 = 0x7ff0_0001;
const SECOND: u32 = 0x7ff0_0002;

fn label() -> LabelName {
    "LOW".parse().unwrap()
}

/// A stage, and how it is asked for a report.
struct Running {
    child: Child,
    channel: Channel,
    ask: fn(&Channel),
}

impl Running {
    fn start(uid: u32, arguments: &[&str], parts: Vec<(impl Part, Vec<OwnedFd>)>, ask: fn(&Channel)) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test gives processes uids of their own: run it as root"
        );
        let (ours, theirs) = Channel::pair().unwrap();
        let errors = std::io::stderr();
        let mut program = Program::new(env!("CARGO_BIN_EXE_levee-upflow"));
        program.args.extend(arguments.iter().map(Into::into));
        program.fds = vec![theirs.as_fd()];
        program.stdio = [None, None, Some(errors.as_fd())];
        program.identity = Some((Uid::from_raw(uid), Gid::from_raw(uid)));
        program.new_namespaces = Program::ISOLATED;
        program.die_with_parent = false; // of the test's thread
        let child = program.start().unwrap();
        for (part, with) in parts {
            let fds: Vec<_> = with.iter().map(AsFd::as_fd).collect();
            ours.send_with(&Order::Give(part), &fds).unwrap();
        }
        ours.send(&Order::<Nothing>::Begin(Place::Server)).unwrap();
        let running = Self { child, channel: ours, ask };
        match running.channel.recv::<Said<Nothing>>().expect("a first message").message {
            Said::Ready => running,
            other => panic!("{other:?}"),
        }
    }

    fn counters(&self) -> UpflowCounters {
        (self.ask)(&self.channel);
        match self.channel.recv::<Said<UpflowCounters>>().unwrap().message {
            Said::Says(counters) => counters,
            other => panic!("{other:?}"),
        }
    }

    fn stop(self) -> Exit {
        self.channel.send(&Order::<Nothing>::Stop).unwrap();
        self.child.wait(Duration::from_secs(10)).unwrap().expect("ends when told to")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.signal(Signal::KILL);
    }
}

/// A store, a snapshot and a copy, each for the uid that may write there.
struct Places {
    directory: tempfile::TempDir,
    generation: (OwnedFd, OwnedFd),
}

impl Places {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Nobody gets here by name: the stages only have descriptors.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        // The store belongs to the first stage's uid, as it does through the warden's id-mapped mount.
        for (name, uid) in [("store", FIRST), ("snapshot", FIRST), ("copy", SECOND)] {
            fs::create_dir(directory.path().join(name)).unwrap();
            chown(directory.path().join(name), Some(uid), Some(uid)).unwrap();
        }
        Self { directory, generation: levee_sys::generation::make().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn first(&self) -> Running {
        let ask = |channel: &Channel| channel.send(&Order::Give(SnapshotPart::Report)).unwrap();
        let store = (SnapshotPart::Store(label()), vec![self.open("store")]);
        let snapshot = vec![self.open("snapshot"), self.generation.0.try_clone().unwrap()];
        Running::start(FIRST, &[], vec![store, (SnapshotPart::Snapshot(label()), snapshot)], ask)
    }

    fn second(&self) -> Running {
        let ask = |channel: &Channel| channel.send(&Order::Give(CopyPart::Report)).unwrap();
        let snapshot = vec![self.open("snapshot"), self.generation.1.try_clone().unwrap()];
        let snapshot = (CopyPart::Snapshots(vec![label()]), snapshot);
        Running::start(SECOND, &["--copy"], vec![snapshot, (CopyPart::Copies, vec![self.open("copy")])], ask)
    }

    fn open(&self, name: &str) -> OwnedFd {
        File::open(self.at(name)).unwrap().into()
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.at("store").join(name);
        fs::write(&path, content).unwrap();
        chown(&path, Some(FIRST), Some(FIRST)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn wait_for(&self, name: &str, content: &[u8]) -> Duration {
        let begun = Instant::now();
        while fs::read(self.at("copy/LOW").join(name)).ok().as_deref() != Some(content) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{name} does not arrive");
            std::thread::sleep(Duration::from_millis(5));
        }
        begun.elapsed()
    }
}

#[test]
fn a_document_is_with_the_reader_within_a_second_and_goes_again_as_fast() {
    let places = Places::new();
    let (first, second) = (places.first(), places.second());
    let mut times = Vec::new();
    for round in 0..8u8 {
        places.write("report", &[round; 1000]);
        times.push(places.wait_for("report", &[round; 1000]));
        std::thread::sleep(Duration::from_millis(37 * u64::from(round)));
    }
    times.sort();
    println!("write to copy: median {:?}, longest {:?}", times[4], times[7]);
    assert!(times[7] < Duration::from_secs(1), "{times:?}");
    // A second stage that has rested looks half as often.
    std::thread::sleep(levee_upflow::schedule::LIVELY + Duration::from_millis(1_500));
    places.write("report", &[9; 1000]);
    let time = places.wait_for("report", &[9; 1000]);
    println!("after a rest: {time:?}");
    assert!(time < Duration::from_secs(1) + Duration::from_millis(200), "{time:?}");
    fs::remove_file(places.at("store/report")).unwrap();
    let begun = Instant::now();
    while places.at("copy/LOW/report").exists() {
        assert!(begun.elapsed() < Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(first.counters().files, 0);
    assert_eq!(second.stop(), Exit::Status(0));
    // What is written just before a label stops is in its snapshot.
    places.write("last", b"words");
    assert_eq!(first.stop(), Exit::Status(0));
    assert_eq!(fs::read(places.at("snapshot/tree/last")).unwrap(), b"words");
}

#[test]
fn a_reader_finds_what_a_label_that_does_not_run_has_left() {
    let places = Places::new();
    places.write("report", b"old");
    let first = places.first();
    first.stop();
    let second = places.second();
    places.wait_for("report", b"old");
    second.stop();
}

#[test]
fn copies_of_a_label_that_is_not_dominated_any_more_are_removed() {
    let places = Places::new();
    for name in ["FORMER/deep", "LOW"] {
        fs::create_dir_all(places.at("copy").join(name)).unwrap();
    }
    fs::write(places.at("copy/FORMER/deep/secret"), b"s").unwrap();
    for name in ["FORMER/deep/secret", "FORMER/deep", "FORMER", "LOW"] {
        chown(places.at("copy").join(name), Some(SECOND), Some(SECOND)).unwrap();
    }
    let second = places.second();
    let mut left: Vec<_> = fs::read_dir(places.at("copy")).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".unfinished", "LOW"]);
    second.stop();
}

#[test]
fn an_idle_second_stage_looks_at_nothing_but_the_generation() {
    let places = Places::new();
    places.write("report", b"r");
    let (_first, second) = (places.first(), places.second());
    places.wait_for("report", b"r");
    // Once more, since a copy this fresh is made again; then nothing.
    std::thread::sleep(Duration::from_millis(1500));
    let passes = second.counters().passes;
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(second.counters().passes, passes);
}

#[test]
fn an_idle_first_stage_sleeps_and_sees_a_change_however_deep_at_once() {
    let places = Places::new();
    fs::create_dir_all(places.at("store/a/b/c")).unwrap();
    for name in ["store/a", "store/a/b", "store/a/b/c"] {
        chown(places.at(name), Some(FIRST), Some(FIRST)).unwrap();
    }
    places.write("report", b"r");
    let (first, _second) = (places.first(), places.second());
    places.wait_for("report", b"r");
    // Once more, since a copy this fresh is made again; then it sleeps for six seconds, when it looks for what nobody told it.
    let passes = || first.counters().passes;
    let quiet = |limit: Duration| {
        let (begun, mut last) = (Instant::now(), passes());
        while begun.elapsed() < limit {
            std::thread::sleep(Duration::from_secs(1));
            if passes() == std::mem::replace(&mut last, passes()) {
                return true;
            }
        }
        false
    };
    assert!(quiet(Duration::from_secs(15)), "it looks on though nothing has changed");
    for (round, name) in ["a/b/c/deep", "report", "a/new"].into_iter().enumerate() {
        places.write(name, &[round as u8; 9]);
        let time = places.wait_for(name, &[round as u8; 9]);
        assert!(time < Duration::from_secs(2), "{name}: {time:?}");
    }
    // A directory that was made is watched as well, once it has been seen.
    fs::create_dir(places.at("store/later")).unwrap();
    chown(places.at("store/later"), Some(FIRST), Some(FIRST)).unwrap();
    assert!(quiet(Duration::from_secs(15)));
    places.write("later/on", b"on");
    let time = places.wait_for("later/on", b"on");
    assert!(time < Duration::from_secs(2), "{time:?}");
}

#[test]
fn what_a_mapping_changes_without_a_notice_is_found_all_the_same() {
    let places = Places::new();
    places.write("mapped", &[b'a'; 4096]);
    let (_first, _second) = (places.first(), places.second());
    places.wait_for("mapped", &[b'a'; 4096]);
    std::thread::sleep(Duration::from_millis(1_500));
    let script = "import mmap,sys,time\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),4096)\nm[:]=b'b'*4096\nm.flush()\nprint(flush=True)\ntime.sleep(60)";
    let mut python = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(places.at("store/mapped"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0];
    std::io::Read::read_exact(python.stdout.as_mut().unwrap(), &mut line).unwrap();
    let time = places.wait_for("mapped", &[b'b'; 4096]);
    python.kill().unwrap();
    python.wait().unwrap();
    println!("{time:?}");
}

#[test]
fn nothing_below_shows_whether_a_reader_runs_and_reads() {
    let places = Places::new();
    places.write("report", b"r");
    let _first = places.first();
    // A copy this fresh is made again; wait until the first stage only looks.
    std::thread::sleep(Duration::from_millis(1500));
    let watch = |path: &Path| {
        let watcher = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watcher, path, inotify::WatchFlags::ALL_EVENTS).unwrap();
        watcher
    };
    let events = |watcher: &rustix::fd::OwnedFd, time: Duration| {
        let (end, mut all) = (Instant::now() + time, Vec::new());
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        while Instant::now() < end {
            let limit = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            poll(&mut [PollFd::new(watcher, PollFlags::IN)], Some(&limit)).unwrap();
            let mut reader = inotify::Reader::new(watcher, &mut space);
            while let Ok(event) = reader.next() {
                // Of the directory: that it was listed is the schedule's, reader or not. Of the document: nothing may show.
                if event.file_name() == Some(c"report") {
                    all.push(event.events());
                }
            }
        }
        all
    };
    let watcher = watch(&places.at("store"));
    let times = |path: PathBuf| {
        use std::os::unix::fs::MetadataExt;
        let m = path.metadata().unwrap();
        (m.atime(), m.atime_nsec(), m.ctime(), m.ctime_nsec(), m.nlink())
    };
    let before = times(places.at("store/report"));
    let second = places.second();
    places.wait_for("report", b"r");
    for _ in 0..50 {
        assert_eq!(fs::read(places.at("copy/LOW/report")).unwrap(), b"r");
    }
    let seen = events(&watcher, Duration::from_secs(1));
    assert!(seen.is_empty(), "{seen:?}");
    assert_eq!(times(places.at("store/report")), before);
    second.stop();
    // The watcher works: the same read of the store itself shows at once.
    fs::read(places.at("store/report")).unwrap();
    assert!(!events(&watcher, Duration::from_millis(200)).is_empty());
}

#[test]
fn a_leased_document_is_left_alone_and_counted_and_follows_when_the_lease_ends() {
    let places = Places::new();
    places.write("report", b"old");
    let (first, _second) = (places.first(), places.second());
    places.wait_for("report", b"old");
    std::thread::sleep(Duration::from_millis(700));
    places.write("report", b"new");
    let lease =
        levee_sys::lease::write(File::options().write(true).open(places.at("store/report")).unwrap().into());
    let lease = lease.unwrap();
    let begun = Instant::now();
    while first.counters().leased == 0 {
        if fs::read(places.at("copy/LOW/report")).unwrap() == b"new" {
            // The pass came between the write and the lease: write again under the lease.
            rustix::io::pwrite(&lease, b"newer", 0).unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(50));
    }
    let held = fs::read(places.at("copy/LOW/report")).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(fs::read(places.at("copy/LOW/report")).unwrap(), held, "an old copy stays");
    drop(lease);
    let now = fs::read(places.at("store/report")).unwrap();
    places.wait_for("report", &now);
}

#[test]
fn a_stage_given_the_wrong_directories_does_not_begin() {
    let places = Places::new();
    let (ours, theirs) = Channel::pair().unwrap();
    let mut program = Program::new(env!("CARGO_BIN_EXE_levee-upflow"));
    program.fds = vec![theirs.as_fd()];
    program.identity = Some((Uid::from_raw(FIRST), Gid::from_raw(FIRST)));
    program.die_with_parent = false;
    let child = program.start().unwrap();
    drop(theirs);
    let store = File::open(places.at("store")).unwrap();
    ours.send_with(&Order::Give(SnapshotPart::Store(label())), &[store.as_fd()]).unwrap();
    ours.send(&Order::<Nothing>::Begin(Place::Server)).unwrap();
    assert!(ours.recv::<Said<Nothing>>().is_err());
    assert_eq!(child.wait(Duration::from_secs(5)).unwrap(), Some(Exit::Status(1)));
}
