//! The two halves of a stage on the two sides of a virtual machine's edge, joined by a socket.

use levee_ipc::documents::Carried;
use levee_ipc::warden::UpflowCounters;
use levee_ipc::{Full, Stream};
use levee_sys::generation::{self, Reader, Writer};
use levee_upflow::area::{Area, Source};
use levee_upflow::mirror::Limits;
use levee_upflow::receive::Receiver;
use levee_upflow::send::{Sender, Tree};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

fn pair() -> (Stream, Stream) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    (Stream::new(a), Stream::new(b))
}

fn open(path: &Path) -> OwnedFd {
    fs::create_dir_all(path).unwrap();
    File::open(path).unwrap().into()
}

/// A first stage's area, and what tells of changes in it.
fn snapshot(path: &Path) -> (Area, Reader) {
    let (writer, reader) = generation::make().unwrap();
    let area = Area::snapshot(open(path), Writer::of(writer).unwrap()).unwrap();
    (area, Reader::of(reader).unwrap())
}

/// Everything beneath a directory: directories without content.
fn all(root: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if name == ".unfinished" {
                continue;
            }
            let content = path.is_file().then(|| fs::read(&path).unwrap());
            if content.is_none() {
                left.push(path);
            }
            found.insert(name, content);
        }
    }
    found
}

/// A pass, heard while it is told: neither waits for the other for ever.
fn pass(sender: &mut Sender, receiver: &mut Receiver) {
    std::thread::scope(|scope| {
        let told = scope.spawn(|| sender.pass().unwrap());
        while !told.is_finished() {
            receiver.hear().unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
        while receiver.hear().unwrap() {}
    });
}

#[test]
fn what_a_store_has_arrives_changes_and_goes_and_what_was_there_before_goes_too() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let big: Vec<u8> = (0..300_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    fs::create_dir_all(from.join("a/b")).unwrap();
    fs::write(from.join("a/b/big"), &big).unwrap();
    fs::write(from.join("empty"), b"").unwrap();
    File::create(from.join("hollow")).unwrap().set_len(8 << 20).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", from.join("link")).unwrap();
    fs::create_dir_all(to.join("tree/old/deep")).unwrap();
    fs::write(to.join("tree/old/deep/file"), b"of an earlier run").unwrap();
    // In the way of what comes.
    fs::create_dir_all(to.join("tree/empty/x")).unwrap();
    fs::write(to.join("tree/a"), b"a file").unwrap();

    let (a, b) = pair();
    let mut sender = Sender::new(a, vec![(Tree::Store(open(&from)), Limits::default())]);
    let (area, generation) = snapshot(&to);
    let mut receiver = Receiver::new(b, area, Limits::default());
    pass(&mut sender, &mut receiver);
    let mut expected = all(&from);
    expected.remove("link");
    assert_eq!(all(&to.join("tree")), expected);
    let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(modified(&to.join("tree/a/b/big")), modified(&from.join("a/b/big")));
    assert_eq!(receiver.counters().special, 1);
    let hollow = fs::metadata(to.join("tree/hollow")).unwrap();
    assert_eq!((hollow.len(), hollow.blocks()), (8 << 20, 0), "a hole takes no room");
    let before = generation.now();

    // A file takes a directory's place, and the other way round.
    fs::remove_dir_all(from.join("a")).unwrap();
    fs::write(from.join("a"), b"now a file").unwrap();
    fs::remove_file(from.join("empty")).unwrap();
    fs::create_dir(from.join("empty")).unwrap();
    fs::write(from.join("empty/new"), b"x").unwrap();
    pass(&mut sender, &mut receiver);
    let mut expected = all(&from);
    expected.remove("link");
    assert_eq!(all(&to.join("tree")), expected);
    assert_ne!(generation.now(), before, "readers are told");
    assert_eq!(receiver.counters().failed, 0);

    drop(sender);
    assert_eq!(receiver.hear().unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(all(&to.join("tree")), expected, "what was told is kept");
}

#[test]
fn snapshots_of_several_labels_go_each_to_its_own_directory() {
    let place = tempfile::tempdir().unwrap();
    let snapshot = |name: &str| place.path().join(name);
    for name in ["low", "mid"] {
        fs::create_dir_all(snapshot(name).join("tree")).unwrap();
        fs::write(snapshot(name).join("tree/note"), name).unwrap();
    }
    let (writer, reader) = generation::make().unwrap();
    let to = place.path().join("to");
    let tree = |name: &str| {
        let source = Source::new(open(&snapshot(name)), Reader::of(&reader).unwrap());
        (Tree::Snapshot(CString::new(name).unwrap(), source, None), Limits::default())
    };
    let (a, b) = pair();
    let mut sender = Sender::new(a, vec![tree("low"), tree("mid"), tree("not-yet")]);
    let mut receiver = Receiver::new(b, Area::copies(open(&to)).unwrap(), Limits::default());
    pass(&mut sender, &mut receiver);
    assert_eq!(fs::read(to.join("low/note")).unwrap(), b"low");
    assert_eq!(fs::read(to.join("mid/note")).unwrap(), b"mid");
    fs::write(snapshot("mid").join("tree/note"), "changed").unwrap();
    fs::remove_file(snapshot("low").join("tree/note")).unwrap();
    Writer::of(&writer).unwrap().advance();
    pass(&mut sender, &mut receiver);
    assert_eq!(fs::read(to.join("mid/note")).unwrap(), b"changed");
    assert!(!to.join("low/note").exists());
}

#[test]
fn a_sender_that_is_taken_over_reaches_nothing_but_its_area() {
    let place = tempfile::tempdir().unwrap();
    let outside = place.path().join("outside");
    fs::write(&outside, b"untouched").unwrap();
    let file = |path: &str, size| Carried::File { path: path.into(), modified: (0, 0), size };
    let end = || Carried::End { complete: true, counters: UpflowCounters::default() };
    let piece = |bytes: &[u8]| Carried::Piece(bytes.to_vec());
    let done = || Carried::Done { good: true };
    let refused: Vec<Vec<Carried>> = vec![
        vec![file("../outside", 1)],
        vec![file("/outside", 1)],
        vec![Carried::Directory { path: b"a/../../x".to_vec() }],
        vec![Carried::Remove { path: b"..".to_vec() }],
        vec![Carried::Same(b".unfinished".to_vec())],
        vec![piece(b"of no file")],
        vec![file("a", 1), piece(b"too much")],
        vec![file("a", 1), end()],
        vec![done()],
    ];
    for said in refused {
        let to = place.path().join("to");
        let (a, b) = pair();
        let mut receiver = Receiver::new(b, snapshot(&to).0, Limits::default());
        said.iter().for_each(|message| a.send(message, Full::Fails).unwrap());
        let error = receiver.hear().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{said:?}");
    }
    // What is announced and does not come, or is more than may be kept, leaves nothing; a link in the way is not followed.
    let to = place.path().join("to");
    let (a, b) = pair();
    let mut receiver = Receiver::new(b, snapshot(&to).0, Limits::default());
    std::os::unix::fs::symlink(&outside, to.join("tree/link")).unwrap();
    std::os::unix::fs::symlink(place.path(), to.join("tree/up")).unwrap();
    for message in [
        Carried::Begin { whole: false },
        file("short", 2),
        piece(b"1"),
        done(),
        file("huge", u64::MAX),
        done(),
        file("link", 3),
        piece(b"new"),
        done(),
        file("up/outside", 3),
        piece(b"new"),
        done(),
        Carried::Remove { path: b"up/outside".to_vec() },
        end(),
    ] {
        a.send(&message, Full::Fails).unwrap();
    }
    assert!(!receiver.hear().unwrap());
    assert!(!to.join("tree/short").exists() && !to.join("tree/huge").exists());
    assert_eq!(fs::read(to.join("tree/link")).unwrap(), b"new");
    assert_eq!(fs::read(&outside).unwrap(), b"untouched");
    assert!(receiver.counters().failed > 0);
}

/// Its sender names what is in a directory, and not the directory: that cannot be removed.
#[test]
fn what_cannot_be_removed_stays_counted_and_keeps_nothing_else_there() {
    let place = tempfile::tempdir().unwrap();
    let file = |path: &str| {
        let whole = Carried::File { path: path.into(), modified: (0, 0), size: 1 };
        [whole, Carried::Piece(vec![1]), Carried::Done { good: true }]
    };
    let end = || Carried::End { complete: true, counters: UpflowCounters::default() };
    let begin = || Carried::Begin { whole: true };
    let (to, limits) = (place.path().join("to"), Limits { entries: 5, ..Limits::default() });
    let (a, b) = pair();
    let (area, generation) = snapshot(&to);
    let mut receiver = Receiver::new(b, area, limits);
    let mut says = |said: Vec<Carried>| {
        said.iter().for_each(|message| a.send(message, Full::Fails).unwrap());
        assert!(!receiver.hear().unwrap());
        receiver.counters().failed
    };
    fs::write(to.join("tree/of-before"), "x").unwrap();
    let directory = Carried::Directory { path: b"d".to_vec() };
    let files = ["d/in", "x", "y"].into_iter().flat_map(file);
    // Of what was there before nothing is the same as it was told.
    let same = Carried::Same(b"of-before".to_vec());
    let whole = [begin(), same, directory].into_iter().chain(files).chain([end()]).collect();
    assert_eq!(says(whole), 0);
    let is_there = |name: &str| to.join("tree").join(name).exists();
    assert!(is_there("d/in") && is_there("x") && !is_there("of-before"));
    let before = generation.now();
    assert_eq!(says(vec![begin(), Carried::Same(b"d/in".to_vec()), end()]), 1);
    assert!(is_there("d/in") && !is_there("x") && !is_there("y"));
    assert_ne!(generation.now(), before, "readers are told of what went");
    let more = ["p", "q", "r", "s"].into_iter().flat_map(file);
    says([Carried::Begin { whole: false }].into_iter().chain(more).chain([end()]).collect());
    assert!(is_there("p") && is_there("r") && !is_there("s"), "five are five");
}
