//! The stream of documents that comes out of a label's virtual machine, into an area that is kept as it says.
//!
//! Input: messages, each behind two bytes of length; one with the highest bit of its length is part of the stream as it is.
//! Whatever is said, only the area changes, there is nothing in it but directories and regular files, and a whole pass that
//! went well leaves nothing that it did not name.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use levee_ipc::documents::Carried;
use levee_ipc::{Stream, decode};
use levee_sys::generation::Writer;
use levee_upflow::area::Area;
use levee_upflow::mirror::Limits;
use levee_upflow::receive::Receiver;

/// Everything beneath a directory, which may have nothing in it but directories and regular files.
fn names(at: &Path, root: &Path, all: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(at).expect("a directory") {
        let path = entry.expect("an entry").path();
        let meta = fs::symlink_metadata(&path).expect("it is there");
        assert!(meta.is_dir() || meta.is_file(), "{}: something else", path.display());
        assert_eq!(meta.permissions().mode() & 0o7022, 0, "{}: others may write", path.display());
        all.insert(path.strip_prefix(root).expect("beneath").to_owned());
        if meta.is_dir() {
            names(&path, root, all);
        }
    }
}

/// What a pass that names everything has named; `None` where there is none that has come to its end, as the last thing said.
fn named(said: &[Carried]) -> Option<BTreeSet<PathBuf>> {
    let begin = said.iter().rposition(|said| matches!(said, Carried::Begin { .. }))?;
    let (first, pass) = said.get(begin..)?.split_first()?;
    let (end, pass) = pass.split_last()?;
    if !matches!((first, end), (Carried::Begin { whole: true }, Carried::End { complete: true, .. })) {
        return None;
    }
    let path = |path: &[u8]| PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()));
    pass.iter()
        .filter_map(|said| match said {
            Carried::Directory { path: name } | Carried::File { path: name, .. } | Carried::Same(name) => {
                Some(Some(path(name)))
            }
            Carried::End { .. } => Some(None),
            _ => None,
        })
        .collect()
}

use std::os::unix::ffi::OsStringExt as _;

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let place = place.expect("a directory");
    let root = place.path().join("area");
    fs::create_dir(&root).expect("a directory");
    fs::write(place.path().join("canary"), "unharmed").expect("a file");
    let generation =
        levee_sys::generation::make().and_then(|(writer, _)| Writer::of(writer)).expect("a number");
    let area = Area::snapshot(fs::File::open(&root).expect("the area").into(), generation).expect("an area");
    let (mut guest, host) = UnixStream::pair().expect("a pair");
    host.set_nonblocking(true).expect("it does not wait");
    let mut receiver = Receiver::new(Stream::new(host.into()), area, Limits::default());

    let (mut rest, mut said, mut failed) = (input, Vec::new(), 0);
    while let Some((&[high, low], tail)) = rest.split_first_chunk::<2>() {
        let (part, tail) = tail.split_at(tail.len().min(usize::from(u16::from_be_bytes([high & 0x3f, low]))));
        rest = tail;
        if high & 0x80 == 0 {
            let length = u32::try_from(part.len()).expect("short").to_be_bytes();
            guest.write_all(&length).expect("it is heard");
            match decode::<Carried>(part) {
                Ok(Carried::Piece(piece)) if piece.is_empty() => {}
                Ok(message) => said.push(message),
                Err(_) => said.clear(),
            }
        } else {
            // What this makes of the stream, the model does not know.
            said.push(Carried::Remove { path: Vec::new() });
        }
        guest.write_all(part).expect("it is heard");
        let heard = loop {
            match receiver.hear() {
                Ok(true) => {}
                Ok(false) => break true,
                Err(_) => break false,
            }
        };
        failed += receiver.counters().failed;
        if !heard {
            said.clear();
            break;
        }
    }
    let mut all = BTreeSet::new();
    names(place.path(), place.path(), &mut all);
    let own = ["canary", "area", "area/tree", "area/generation", "area/new"].map(PathBuf::from);
    let mut tree: BTreeSet<PathBuf> = all.into_iter().filter(|path| !own.contains(path)).collect();
    tree = tree
        .into_iter()
        .map(|path| path.strip_prefix("area/tree").expect("nothing but the tree changes").to_owned())
        .collect();
    assert_eq!(fs::read(place.path().join("canary")).expect("it is there"), b"unharmed");
    if let Some(named) = named(&said).filter(|_| failed == 0) {
        assert!(tree.is_subset(&named), "{:?} stays, which was not named", tree.difference(&named).next());
    }
}
