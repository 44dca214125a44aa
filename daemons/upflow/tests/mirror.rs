//! What is copied and what is not, in directories of the real file system.

use levee_sys::generation::{self, Reader, Writer};
use levee_sys::mount::{Attributes, Mount};
use levee_upflow::area::Area;
use levee_upflow::mirror::{Limits, Mirror};
use rustix::fs::{AtFlags, CWD, FileType, Mode, linkat, mknodat};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Stage {
    directory: TempDir,
    generation: (OwnedFd, OwnedFd),
    mirror: Mirror,
}

impl Stage {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["store", "area"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let generation = generation::make().unwrap();
        let mirror = mirror(&directory.path().join("area"), &generation.0, limits);
        Self { directory, generation, mirror }
    }

    fn store(&self, name: &str) -> PathBuf {
        self.directory.path().join("store").join(name)
    }

    fn copy(&self, name: &str) -> PathBuf {
        self.directory.path().join("area/tree").join(name)
    }

    fn pass(&mut self) -> levee_upflow::mirror::Passed {
        let store = open(&self.store(""));
        self.mirror.pass(store.as_fd())
    }

    fn generation(&self) -> u64 {
        Reader::of(&self.generation.1).unwrap().now()
    }
}

fn mirror(area: &Path, generation: &OwnedFd, limits: Limits) -> Mirror {
    Mirror::new(Area::snapshot(open(area), Writer::of(generation).unwrap()).unwrap(), limits)
}

fn open(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

/// Longer than a clock's tick: afterwards, a copy is known to be of the last version.
fn settle() {
    std::thread::sleep(Duration::from_millis(120));
}

#[test]
fn documents_and_directories_are_copied_with_content_and_time_and_plain_modes() {
    let mut stage = Stage::new();
    fs::create_dir_all(stage.store("a/b")).unwrap();
    fs::write(stage.store("a/b/report"), b"all quiet").unwrap();
    fs::set_permissions(stage.store("a/b/report"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(stage.store("a"), fs::Permissions::from_mode(0o2700)).unwrap();
    let big: Vec<u8> = (0..1_000_003u32).flat_map(u32::to_le_bytes).collect();
    fs::write(stage.store("big"), &big).unwrap();
    fs::write(stage.store("empty"), b"").unwrap();
    stage.pass();
    assert_eq!(fs::read(stage.copy("a/b/report")).unwrap(), b"all quiet");
    assert_eq!(fs::read(stage.copy("big")).unwrap(), big);
    assert_eq!(fs::read(stage.copy("empty")).unwrap(), b"");
    let (from, to) =
        (stage.store("a/b/report").metadata().unwrap(), stage.copy("a/b/report").metadata().unwrap());
    assert_eq!(to.mode() & 0o7777, 0o644);
    assert_eq!((to.mtime(), to.mtime_nsec()), (from.mtime(), from.mtime_nsec()));
    assert_ne!(to.ino(), from.ino());
    assert_eq!(stage.copy("a").metadata().unwrap().mode() & 0o7777, 0o755);
    let counters = stage.mirror.counters();
    assert_eq!((counters.files, counters.directories), (3, 2));
    assert_eq!(counters.bytes, 9 + big.len() as u64);
}

#[test]
fn an_unchanged_store_is_copied_once_and_the_generation_stands_still() {
    let mut stage = Stage::new();
    fs::write(stage.store("report"), b"1").unwrap();
    settle();
    assert!(stage.pass().complete);
    let (copied, generation) = (stage.mirror.counters().copied, stage.generation());
    assert!(stage.pass().complete);
    assert_eq!(stage.mirror.counters().copied, copied);
    assert_eq!(stage.generation(), generation);
    fs::write(stage.store("report"), b"2").unwrap();
    stage.pass();
    assert_eq!(fs::read(stage.copy("report")).unwrap(), b"2");
    assert_ne!(stage.generation(), generation);
}

#[test]
fn a_change_that_keeps_size_and_forges_the_time_is_seen() {
    let mut stage = Stage::new();
    fs::write(stage.store("report"), b"good").unwrap();
    let time = stage.store("report").metadata().unwrap().modified().unwrap();
    settle();
    stage.pass();
    fs::write(stage.store("report"), b"evil").unwrap();
    File::options().write(true).open(stage.store("report")).unwrap().set_modified(time).unwrap();
    stage.pass();
    assert_eq!(fs::read(stage.copy("report")).unwrap(), b"evil");
}

#[test]
fn changes_within_one_tick_of_the_clock_are_not_lost() {
    let mut stage = Stage::new();
    for round in 0..200u32 {
        fs::write(stage.store("report"), round.to_le_bytes()).unwrap();
        stage.pass();
        assert_eq!(fs::read(stage.copy("report")).unwrap(), round.to_le_bytes());
    }
}

#[test]
fn what_is_removed_or_renamed_goes_and_a_directory_and_a_file_take_each_others_place() {
    let mut stage = Stage::new();
    fs::create_dir_all(stage.store("d/deep/er")).unwrap();
    fs::write(stage.store("d/deep/er/x"), b"x").unwrap();
    fs::write(stage.store("f"), b"f").unwrap();
    stage.pass();
    fs::remove_dir_all(stage.store("d")).unwrap();
    fs::write(stage.store("d"), b"now a file").unwrap();
    fs::remove_file(stage.store("f")).unwrap();
    fs::create_dir(stage.store("f")).unwrap();
    fs::write(stage.store("f/inside"), b"i").unwrap();
    stage.pass();
    assert_eq!(fs::read(stage.copy("d")).unwrap(), b"now a file");
    assert_eq!(fs::read(stage.copy("f/inside")).unwrap(), b"i");
    fs::rename(stage.store("f"), stage.store("g")).unwrap();
    fs::remove_file(stage.store("d")).unwrap();
    stage.pass();
    let left: Vec<_> = fs::read_dir(stage.copy("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["g"]);
    assert_eq!(fs::read(stage.copy("g/inside")).unwrap(), b"i");
}

#[test]
fn links_fifos_sockets_and_devices_stay_behind_and_are_counted() {
    let mut stage = Stage::new();
    let secret = stage.directory.path().join("secret");
    fs::write(&secret, b"not in the store").unwrap();
    fs::create_dir(stage.store("sub")).unwrap();
    symlink(&secret, stage.store("absolute")).unwrap();
    symlink("../../secret", stage.store("sub/relative")).unwrap();
    symlink("..", stage.store("sub/up")).unwrap();
    let node = |name: &str, kind, device| {
        mknodat(CWD, stage.store(name), kind, Mode::from_raw_mode(0o666), device).unwrap();
    };
    node("fifo", FileType::Fifo, 0);
    node("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    let _socket = std::os::unix::net::UnixListener::bind(stage.store("socket")).unwrap();
    fs::write(stage.store("plain"), b"p").unwrap();
    linkat(CWD, stage.store("plain"), CWD, stage.store("hard"), AtFlags::empty()).unwrap();
    let begun = Instant::now();
    stage.pass();
    assert!(begun.elapsed() < Duration::from_secs(2), "nothing may make a pass wait");
    assert_eq!(stage.mirror.counters().special, 6);
    let mut copied: Vec<_> = fs::read_dir(stage.copy("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    copied.sort();
    assert_eq!(copied, ["hard", "plain", "sub"]);
    assert_eq!(fs::read_dir(stage.copy("sub")).unwrap().count(), 0);
    // Two names of one file become two files: no inode of the copy has a second name.
    assert_eq!(stage.copy("hard").metadata().unwrap().nlink(), 1);
}

#[test]
fn a_file_that_is_replaced_by_a_link_is_not_followed_however_the_timing_falls() {
    let mut stage = Stage::new();
    let secret = stage.directory.path().join("secret");
    fs::write(&secret, b"SECRET").unwrap();
    let (name, stop) = (stage.store("x"), std::sync::atomic::AtomicBool::new(false));
    let other = stage.store("y");
    symlink(&secret, &other).unwrap();
    fs::write(&name, b"open").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // Swap the file and the link, again and again.
                rustix::fs::renameat_with(CWD, &name, CWD, &other, rustix::fs::RenameFlags::EXCHANGE)
                    .unwrap();
            }
        });
        let end = Instant::now() + Duration::from_secs(1);
        let mut copied = 0;
        while Instant::now() < end {
            stage.pass();
            for name in ["x", "y"] {
                if let Ok(content) = fs::read(stage.copy(name)) {
                    assert_eq!(content, b"open");
                    copied += 1;
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(copied > 0, "the race was never won by the file");
    });
}

#[test]
fn a_file_that_grows_while_it_is_copied_never_shows_torn() {
    let mut stage = Stage::new();
    let path = stage.store("log");
    // Each version is one byte value throughout; a mixture would be a torn copy.
    let size = 3 << 20;
    fs::write(&path, vec![0u8; size]).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (mut seen, mut changing) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in (1..=u8::MAX).cycle() {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                let mut file = File::options().write(true).open(&path).unwrap();
                for _ in 0..12 {
                    file.write_all(&vec![version; size / 12]).unwrap();
                }
                drop(file);
                std::thread::sleep(Duration::from_millis(u64::from(version % 16)));
            }
        });
        let (end, limit) =
            (Instant::now() + Duration::from_secs(2), Instant::now() + Duration::from_secs(30));
        // On a busy host the two may not meet for a while.
        while Instant::now() < end || ((seen == 0 || changing == 0) && Instant::now() < limit) {
            stage.pass();
            changing += stage.mirror.counters().changing;
            if let Ok(content) = fs::read(stage.copy("log")) {
                seen += 1;
                // While the writer is half-way through a version, the file itself is mixed; what the copy may not do is
                // mix more than the two versions that a file can hold at one moment.
                let changes = content.windows(2).filter(|pair| pair[0] != pair[1]).count();
                assert!(changes <= 1, "{changes} seams");
            }
            assert!(!stage.directory.path().join("area/new").exists());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(seen > 0 && changing > 0, "{seen} copies, {changing} caught changing");
}

#[test]
fn what_is_beyond_the_limits_stays_behind_and_is_counted() {
    let limits = Limits { entries: 4, bytes: 100, depth: 2, looks: 1_000, ..Limits::default() };
    let mut stage = Stage::with(limits);
    for name in ["1", "2", "3", "4", "5", "6"] {
        fs::write(stage.store(name), b"x").unwrap();
    }
    stage.pass();
    assert_eq!(fs::read_dir(stage.copy("")).unwrap().count(), 4);
    assert_eq!(stage.mirror.counters().excess_entries, 2);

    let mut stage = Stage::with(limits);
    fs::create_dir_all(stage.store("1/2/3")).unwrap();
    stage.pass();
    assert!(stage.copy("1/2").is_dir() && !stage.copy("1/2/3").exists());
    assert_eq!(stage.mirror.counters().too_deep, 1);

    let mut stage = Stage::with(limits);
    fs::write(stage.store("large"), [b'l'; 200]).unwrap();
    fs::write(stage.store("small"), b"x").unwrap();
    stage.pass();
    assert!(stage.copy("small").exists() && !stage.copy("large").exists());
    assert_eq!((stage.mirror.counters().excess_bytes, stage.mirror.counters().bytes), (1, 1));
    // A document that outgrows the limit goes, rather than stay old.
    fs::write(stage.store("small"), [b'x'; 101]).unwrap();
    stage.pass();
    assert!(!stage.copy("small").exists());

    let mut stage = Stage::with(Limits { looks: 10, ..Limits::default() });
    for name in 0..50 {
        fs::write(stage.store(&name.to_string()), b"").unwrap();
    }
    assert_eq!(stage.pass().looked, 10);
}

#[test]
fn what_is_remembered_takes_no_more_memory_than_it_may_and_what_had_no_room_comes_once_there_is_some() {
    let mut stage = Stage::with(Limits { memory: 40_000, ..Limits::default() });
    let names =
        |stage: &Stage, directory: &str| fs::read_dir(stage.copy(directory)).map_or(0, Iterator::count);
    let long = "x".repeat(250);
    for name in 0..200 {
        fs::write(stage.store(&format!("{name:03}{long}")), b"").unwrap();
    }
    settle();
    assert!(stage.pass().complete);
    // Each takes its name and 240 octets more.
    assert_eq!(names(&stage, ""), 40_000 / 493);
    assert_eq!(stage.mirror.counters().excess_entries, 200 - 81);
    for name in fs::read_dir(stage.copy("")).unwrap() {
        fs::remove_file(stage.store(name.unwrap().file_name().to_str().unwrap())).unwrap();
    }
    assert!(!stage.pass().complete, "what had no room beside the others may have some now");
    assert!(stage.pass().complete);
    assert_eq!(names(&stage, ""), 81);

    // So it is of a directory that has another name, with all in it.
    let mut stage = Stage::with(Limits { memory: 40_000, ..Limits::default() });
    fs::create_dir(stage.store("one")).unwrap();
    for name in 0..100 {
        fs::write(stage.store(&format!("one/{name:03}")), b"").unwrap();
    }
    settle();
    assert!(stage.pass().complete);
    assert_eq!(names(&stage, "one"), 100);
    fs::rename(stage.store("one"), stage.store("other")).unwrap();
    assert!(!stage.pass().complete);
    stage.pass();
    assert_eq!((names(&stage, "other"), stage.copy("one").exists()), (100, false));
    assert_eq!(stage.mirror.counters().excess_entries, 0);
    // A new process knows nothing of what it finds, and what has no room there goes.
    stage.mirror = mirror(
        &stage.directory.path().join("area"),
        &stage.generation.0,
        Limits { memory: 10_000, ..Limits::default() },
    );
    stage.pass();
    assert!(names(&stage, "other") <= 10_000 / 243);
}

#[test]
fn so_much_is_done_in_one_pass_and_the_rest_in_the_next_ones_whatever_changes_meanwhile() {
    let mut stage = Stage::with(Limits { acts: 10, ..Limits::default() });
    let count = |stage: &Stage| {
        let trees = [stage.copy(""), stage.copy("d")];
        trees.map(|tree| fs::read_dir(tree).map_or(0, Iterator::count)).iter().sum::<usize>()
    };
    fs::create_dir(stage.store("d")).unwrap();
    for name in 0..40 {
        fs::write(stage.store(&format!("{name}")), b"").unwrap();
        fs::write(stage.store(&format!("d/{name}")), b"").unwrap();
    }
    // Half of them are others in each pass, and the rest come all the same.
    let mut passes = 0;
    while count(&stage) < 81 {
        passes += 1;
        assert!(passes < 40, "{}", count(&stage));
        for name in 0..40 {
            fs::write(stage.store(&format!("{name}")), [0; 9]).unwrap();
        }
        let before = stage.mirror.counters().copied;
        let passed = stage.pass();
        assert!(passed.more && !passed.complete && stage.mirror.counters().copied - before <= 10);
    }
    settle();
    while stage.pass().more {}
    assert!(stage.pass().complete);
    fs::remove_dir_all(stage.store("d")).unwrap();
    fs::write(stage.store("large"), vec![1; 1 << 20]).unwrap();
    passes = 0;
    settle();
    while !stage.pass().complete {
        passes += 1;
        assert!(passes < 20);
    }
    assert!(passes > 3, "{passes}");
    assert_eq!((count(&stage), stage.mirror.counters().failed), (41, 0));
}

#[test]
fn what_has_another_name_takes_no_more_room_meanwhile_than_the_source_may() {
    let mut stage = Stage::with(Limits { bytes: 100 << 10, ..Limits::default() });
    fs::create_dir(stage.store("one")).unwrap();
    for name in 0..9 {
        fs::write(stage.store(&format!("one/{name}")), [7; 8 << 10]).unwrap();
    }
    settle();
    assert!(stage.pass().complete);
    fs::rename(stage.store("one"), stage.store("other")).unwrap();
    assert!(!stage.pass().complete);
    // The nine have gone by now, and three had room beside them.
    assert_eq!((fs::read_dir(stage.copy("other")).unwrap().count(), stage.copy("one").exists()), (3, false));
    assert!(stage.pass().complete);
    assert_eq!(fs::read_dir(stage.copy("other")).unwrap().count(), 9);
    assert_eq!(stage.mirror.counters().excess_bytes, 0);
}

#[test]
fn names_are_bytes() {
    let mut stage = Stage::new();
    let long = "ü".repeat(127);
    let names: [&[u8]; 6] = ["日本語".as_bytes(), b"\xff\xfe", b"a\nb", b" ", b"-rf", long.as_bytes()];
    for name in names {
        let path = stage.store("").join(std::ffi::OsStr::from_bytes(name));
        fs::write(path, name).unwrap();
    }
    fs::write(stage.store("..."), b"dots").unwrap();
    stage.pass();
    for name in names {
        let path = stage.copy("").join(std::ffi::OsStr::from_bytes(name));
        assert_eq!(fs::read(path).unwrap(), name);
    }
    assert_eq!(fs::read(stage.copy("...")).unwrap(), b"dots");
}

#[test]
fn a_new_process_takes_up_an_old_area_and_nothing_of_it_goes_stale() {
    let mut stage = Stage::new();
    fs::create_dir(stage.store("kept")).unwrap();
    fs::write(stage.store("kept/same"), b"same").unwrap();
    fs::create_dir(stage.store("gone")).unwrap();
    fs::write(stage.store("gone/x"), b"x").unwrap();
    fs::write(stage.store("forged"), b"old").unwrap();
    stage.pass();
    let before = stage.generation();
    let time = stage.store("forged").metadata().unwrap().modified().unwrap();
    fs::remove_dir_all(stage.store("gone")).unwrap();
    fs::write(stage.store("forged"), b"new").unwrap();
    File::options().write(true).open(stage.store("forged")).unwrap().set_modified(time).unwrap();
    // A file in the making, as a killed process leaves it.
    fs::write(stage.directory.path().join("area/new"), b"half").unwrap();
    stage.mirror = mirror(&stage.directory.path().join("area"), &stage.generation.0, Limits::default());
    stage.pass();
    assert_eq!(fs::read(stage.copy("kept/same")).unwrap(), b"same");
    assert_eq!(fs::read(stage.copy("forged")).unwrap(), b"new");
    assert!(!stage.copy("gone").exists());
    assert!(!stage.directory.path().join("area/new").exists());
    assert!(stage.generation() > before, "generations go on where they were");
}

#[test]
fn nothing_is_removed_because_the_source_cannot_be_read() {
    let mut stage = Stage::new();
    fs::write(stage.store("report"), b"1").unwrap();
    stage.pass();
    let not_a_directory = open(&stage.store("report"));
    assert!(!stage.mirror.pass(not_a_directory.as_fd()).complete);
    assert_eq!(stage.mirror.counters().failed, 1);
    assert_eq!(fs::read(stage.copy("report")).unwrap(), b"1");
}

#[test]
fn a_pass_over_unchanged_documents_reads_none_of_them() {
    let mut stage = Stage::new();
    for directory in 0..10 {
        fs::create_dir(stage.store(&format!("{directory}"))).unwrap();
        for file in 0..100 {
            fs::write(stage.store(&format!("{directory}/{file}")), b"small").unwrap();
        }
    }
    settle();
    let first = reads(|| assert!(stage.pass().complete));
    assert!(first >= 1_000, "{first}: the first pass reads all");
    let second = reads(|| assert!(stage.pass().complete));
    assert!(second < 10, "{second}");
}

/// System calls by which this thread reads from files while it does this.
fn reads(what: impl FnOnce()) -> u64 {
    let now = || {
        let io = fs::read_to_string("/proc/thread-self/io").unwrap();
        let count = io.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap();
        count.parse::<u64>().unwrap()
    };
    let before = now();
    what();
    now() - before
}

#[test]
fn a_hole_stays_a_hole_and_what_it_hides_is_not_held_against_the_bound() {
    let mut stage = Stage::with(Limits { bytes: 1 << 20, ..Limits::default() });
    let sparse = File::create(stage.store("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    rustix::io::pwrite(&sparse, b"in the middle", 512 << 20).unwrap();
    sparse.sync_all().unwrap();
    let hollow = File::create(stage.store("hollow")).unwrap();
    hollow.set_len(4 << 30).unwrap();
    stage.pass();
    let (from, to) = (sparse.metadata().unwrap(), stage.copy("sparse").metadata().unwrap());
    assert_eq!(to.len(), from.len());
    assert!(to.blocks() <= from.blocks() + 16, "{} blocks became {}", from.blocks(), to.blocks());
    let mut middle = [0; 13];
    rustix::io::pread(File::open(stage.copy("sparse")).unwrap(), &mut middle, 512 << 20).unwrap();
    assert_eq!(&middle, b"in the middle");
    let hollow = stage.copy("hollow").metadata().unwrap();
    assert_eq!((hollow.len(), hollow.blocks()), (4 << 30, 0));
    assert!(stage.mirror.counters().bytes <= 64 << 10, "{:?}", stage.mirror.counters());
}

#[test]
fn a_document_that_leaves_no_room_beside_its_old_copy_takes_its_place() {
    assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
    let small = Mount::new("tmpfs", &[("size", "1m")], Attributes::DATA).unwrap();
    let area = rustix::io::dup(small.root()).unwrap();
    let store = tempfile::tempdir().unwrap();
    let mut mirror = Mirror::new(
        Area::snapshot(area, Writer::of(generation::make().unwrap().0).unwrap()).unwrap(),
        Limits::default(),
    );
    let mut pass = |content: &[u8]| {
        fs::write(store.path().join("large"), content).unwrap();
        mirror.pass(open(store.path()).as_fd());
        let copy = format!("/proc/self/fd/{}/tree/large", small.root().as_raw_fd());
        assert!(fs::read(copy).ok().as_deref() == Some(content), "{:?}", mirror.counters());
    };
    pass(&[1; 600 << 10]);
    pass(&[2; 700 << 10]);
}
