//! The writing half of a stage whose other half is behind a label's virtual machine: keeps an area as it is told to.
//!
//! It believes nothing. Paths are parsed to names of one directory each and opened one by one; what is too much, too deep or
//! not as it was announced is left out; what is no message ends the stage.

use crate::area::{Area, NEW, UNFINISHED};
use crate::beneath;
use crate::mirror::Limits;
use crate::send::cost;
use levee_ipc::Stream;
use levee_ipc::documents::{Carried, PATH_MAX};
use levee_ipc::warden::UpflowCounters;
use rustix::fs::{
    AtFlags, FileType, Mode, RawDir, SeekFrom, Timespec, Timestamps, fchmod, ftruncate, futimens, mkdirat,
    renameat, seek, unlinkat,
};
use rustix::io::{Errno, write};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most messages taken in one turn, so that the warden is heard.
const TURN: usize = 256;

/// Keeps an area.
pub struct Receiver {
    stream: Stream,
    area: Area,
    limits: Limits,
    /// What there is, of what has been told: files with their sizes.
    kept: BTreeMap<Vec<u8>, Option<u64>>,
    bytes: u64,
    /// Bytes of memory that what is kept takes, by [`cost`]; of what is named it is as much.
    held: u64,
    /// In a pass that names everything: what has been named, and the bytes that it takes.
    named: Option<(BTreeSet<Vec<u8>>, u64)>,
    incoming: Option<Incoming>,
    changed: bool,
    /// The sender's counters, and what has been left out here.
    counters: UpflowCounters,
    failed: u64,
}

/// A path: as it was told, and its names: none empty, none that leads elsewhere.
#[derive(Debug, PartialEq, Eq)]
struct Path {
    told: Vec<u8>,
    names: Vec<CString>,
}

/// A file that is arriving.
struct Incoming {
    path: Path,
    modified: (i64, u32),
    size: u64,
    got: u64,
    /// `None` if it is left out.
    file: Option<OwnedFd>,
}

impl Receiver {
    /// Keeps `area`. What it has already is kept until the first whole pass has said otherwise.
    pub fn new(stream: Stream, area: Area, limits: Limits) -> Self {
        Self {
            stream,
            area,
            limits,
            kept: BTreeMap::new(),
            bytes: 0,
            held: 0,
            named: None,
            incoming: None,
            changed: false,
            counters: UpflowCounters::default(),
            failed: 0,
        }
    }

    /// What has been copied and what was left behind.
    pub fn counters(&self) -> UpflowCounters {
        UpflowCounters { failed: self.counters.failed.saturating_add(self.failed), ..self.counters }
    }

    /// Does what has been told, as far as one turn goes. Whether there may be more at once.
    ///
    /// # Errors
    /// `UnexpectedEof` when the sender is gone; `InvalidData` for what may not be said.
    pub fn hear(&mut self) -> io::Result<bool> {
        for _ in 0..TURN {
            let Some(said) = self.stream.receive::<Carried>()? else { return Ok(false) };
            self.take(said)?;
        }
        Ok(true)
    }

    fn take(&mut self, said: Carried) -> io::Result<()> {
        match (said, self.incoming.take()) {
            (Carried::Begin { whole }, None) => {
                self.named = whole.then(Default::default);
                self.failed = 0;
            }
            (Carried::Directory { path }, None) => {
                let path = parse(path)?;
                self.name(&path);
                self.directory(path);
            }
            (Carried::File { path, modified, size }, None) => {
                let path = parse(path)?;
                self.name(&path);
                let file = self.begin(&path, size);
                self.incoming = Some(Incoming { path, modified, size, got: 0, file });
            }
            (Carried::Piece(piece), Some(incoming)) => {
                let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
                self.comes(incoming, length, |file| put(file, &piece))?;
            }
            (Carried::Hole(length), Some(incoming)) => {
                self.comes(incoming, length, |file| skip(file, length))?;
            }
            (Carried::Done { good }, Some(incoming)) => self.finish(incoming, good),
            (Carried::Same(path), None) => {
                let path = parse(path)?;
                // What was there before anything was told is counted nowhere: it is told anew, or goes.
                if self.kept.contains_key(&path.told) {
                    self.name(&path);
                }
            }
            (Carried::Remove { path }, None) => {
                let path = parse(path)?;
                self.remove(&path);
            }
            (Carried::End { complete, counters }, None) => {
                if let Some((named, _)) = self.named.take().filter(|_| complete) {
                    self.keep_only(&named);
                }
                self.counters = counters;
                if std::mem::take(&mut self.changed) {
                    self.area.advance();
                }
            }
            _ => return Err(invalid("a message that does not belong here")),
        }
        Ok(())
    }

    /// So many more bytes of the file that is arriving.
    fn comes(
        &mut self,
        mut incoming: Incoming,
        length: u64,
        put: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> io::Result<()> {
        incoming.got = incoming.got.saturating_add(length);
        if incoming.got > incoming.size {
            return Err(invalid("a file that is longer than it was said to be"));
        }
        if let Some(file) = &incoming.file
            && put(file).is_err()
        {
            incoming.file = None;
            self.failed += 1;
        }
        self.incoming = Some(incoming);
        Ok(())
    }

    fn name(&mut self, path: &Path) {
        if let Some((named, held)) = &mut self.named {
            // One more than may be kept is never kept, so naming it means nothing.
            let more = held.saturating_add(cost(&path.told));
            let room = u64::try_from(named.len()).is_ok_and(|count| count < self.limits.entries);
            if room && more <= self.limits.memory && named.insert(path.told.clone()) {
                *held = more;
            }
        }
    }

    /// Whether there is room for one more entry at a path.
    fn room(&self, path: &Path) -> bool {
        self.kept.contains_key(&path.told)
            || u64::try_from(self.kept.len()).is_ok_and(|count| count < self.limits.entries)
                && self.held.saturating_add(cost(&path.told)) <= self.limits.memory
    }

    /// The directory that a path's last name is in.
    fn parent<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p CStr), Errno> {
        let (last, above) = path.names.split_last().ok_or(Errno::INVAL)?;
        let mut at = beneath::directory(self.area.tree(), c".")?;
        for name in above {
            at = beneath::directory(at.as_fd(), name)?;
        }
        Ok((at, last))
    }

    fn directory(&mut self, path: Path) {
        let make = |(at, name): (OwnedFd, &CStr)| match mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
            Err(Errno::EXIST) if !is_directory(at.as_fd(), name) => {
                unlinkat(&at, name, AtFlags::empty())?;
                mkdirat(&at, name, Mode::from_raw_mode(0o755))
            }
            Err(Errno::EXIST) => Ok(()),
            made => made,
        };
        if !self.room(&path) || self.parent(&path).and_then(make).is_err() {
            self.failed += 1;
            return;
        }
        self.account(path, None);
    }

    fn begin(&mut self, path: &Path, size: u64) -> Option<OwnedFd> {
        let had = self.kept.get(&path.told).copied().flatten().unwrap_or(0);
        let fits = size <= self.limits.bytes.saturating_sub(self.bytes.saturating_sub(had));
        let file = (fits && self.room(path)).then(|| match beneath::creating(self.area.work(), NEW) {
            Err(Errno::EXIST) => {
                unlinkat(self.area.work(), NEW, AtFlags::empty())?;
                beneath::creating(self.area.work(), NEW)
            }
            made => made,
        });
        let file = file.and_then(Result::ok);
        if file.is_none() {
            self.failed += 1;
        }
        file
    }

    fn finish(&mut self, incoming: Incoming, good: bool) {
        let Incoming { path, modified, size, got, file } = incoming;
        let Some(file) = file else { return };
        let place = |file: OwnedFd| {
            ftruncate(&file, size)?;
            let time = Timespec { tv_sec: modified.0, tv_nsec: modified.1.min(999_999_999).into() };
            // Times that this file system cannot hold are not worth losing a document for.
            let _ = futimens(&file, &Timestamps { last_access: time, last_modification: time });
            fchmod(&file, Mode::from_raw_mode(0o644))?;
            let (at, name) = self.parent(&path)?;
            if is_directory(at.as_fd(), name) {
                remove_tree(at.as_fd(), name)?;
            }
            renameat(self.area.work(), NEW, &at, name)
        };
        if good && got == size && place(file).is_ok() {
            self.account(path, Some(size));
            return;
        }
        if good {
            self.failed += 1;
        }
        // It is in nobody's way but the next one's.
        let _ = unlinkat(self.area.work(), NEW, AtFlags::empty());
    }

    /// There is now this at a path.
    fn account(&mut self, path: Path, size: Option<u64>) {
        self.changed = true;
        let cost = cost(&path.told);
        let before = self.kept.insert(path.told, size);
        self.held = self.held.saturating_add(if before.is_some() { 0 } else { cost });
        let before = before.flatten().unwrap_or(0);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(size.unwrap_or(0));
    }

    fn remove(&mut self, path: &Path) {
        let gone = |(at, name): (OwnedFd, &CStr)| remove_tree(at.as_fd(), name);
        match self.parent(path).and_then(gone) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {
                self.changed = true;
                let had = self.kept.remove(&path.told);
                self.held = self.held.saturating_sub(had.map_or(0, |_| cost(&path.told)));
                let had = had.flatten().unwrap_or(0);
                self.bytes = self.bytes.saturating_sub(had);
            }
            Err(_) => self.failed += 1,
        }
    }

    /// Removes what has not been named. What cannot be removed stays counted, and keeps nothing else there.
    fn keep_only(&mut self, named: &BTreeSet<Vec<u8>>) {
        let Self { area, kept, changed, .. } = self;
        let mut gone = |path: &[u8]| {
            *changed = true;
            kept.remove(path);
        };
        let root = beneath::directory(area.tree(), c".");
        match root.and_then(|root| prune(root.as_fd(), &mut Vec::new(), named, &mut gone)) {
            Ok(()) => self.kept.retain(|path, _| named.contains(path)),
            Err(_) => self.failed += 1,
        }
        self.bytes = self.kept.values().flatten().fold(0, |sum, size| sum.saturating_add(*size));
        self.held = self.kept.keys().fold(0, |sum, path| sum.saturating_add(cost(path)));
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

fn parse(told: Vec<u8>) -> io::Result<Path> {
    let depth = usize::try_from(Limits::default().depth).unwrap_or(0);
    let names: Vec<&[u8]> = told.split(|byte| *byte == b'/').collect();
    // A label's directory is one more.
    if told.len() > PATH_MAX || names.len() > depth + 2 {
        return Err(invalid("a path that is too long or too deep"));
    }
    let name = |name: &[u8]| {
        let bad = name.is_empty() || name == b"." || name == b".." || name.len() > 255;
        CString::new(name).ok().filter(|_| !bad)
    };
    let names: Option<Vec<CString>> = names.into_iter().map(name).collect();
    // The place of unfinished files is the area's own.
    let names = names.filter(|names| names.first().is_some_and(|first| first.as_c_str() != UNFINISHED));
    let names = names.ok_or_else(|| invalid("a path that is none"))?;
    Ok(Path { told, names })
}

fn is_directory(at: BorrowedFd<'_>, name: &CStr) -> bool {
    beneath::look(at, name).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Writes a piece of a file; one without anything in it stays a hole, as it may have been one.
fn put(file: &OwnedFd, mut rest: &[u8]) -> Result<(), Errno> {
    if rest.iter().all(|byte| *byte == 0) {
        return skip(file, u64::try_from(rest.len()).unwrap_or(u64::MAX));
    }
    while !rest.is_empty() {
        match write(file, rest) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(n) => rest = rest.get(n..).ok_or(Errno::IO)?,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn skip(file: &OwnedFd, length: u64) -> Result<(), Errno> {
    let length = i64::try_from(length).map_err(|_| Errno::FBIG)?;
    seek(file, SeekFrom::Current(length)).map(drop)
}

/// Removes a name, with everything beneath it.
fn remove_tree(at: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    if !is_directory(at, name) {
        return unlinkat(at, name, AtFlags::empty());
    }
    let directory = beneath::directory(at, name)?;
    prune(directory.as_fd(), &mut Vec::new(), &BTreeSet::new(), &mut |_| {})?;
    unlinkat(at, name, AtFlags::REMOVEDIR)
}

/// Removes what is not named from a directory, and says what that was. What cannot be removed keeps nothing else there: the last error is told.
fn prune(
    at: BorrowedFd<'_>,
    path: &mut Vec<u8>,
    named: &BTreeSet<Vec<u8>>,
    gone: &mut impl FnMut(&[u8]),
) -> Result<(), Errno> {
    let mut names = Vec::new();
    {
        let view = beneath::directory(at, c".")?;
        let mut space = [MaybeUninit::uninit(); 16 * 1024];
        let mut listing = RawDir::new(&view, &mut space);
        while let Some(entry) = listing.next() {
            let name = entry?.file_name().to_owned();
            let special = name.as_c_str() == c"." || name.as_c_str() == c"..";
            if !(special || path.is_empty() && name.as_c_str() == UNFINISHED) {
                names.push(name);
            }
        }
    }
    let mut done = Ok(());
    for name in names {
        let above = path.len();
        if above > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        let directory = is_directory(at, &name);
        if directory {
            let below = beneath::directory(at, &name);
            done = below.and_then(|below| prune(below.as_fd(), path, named, gone)).and(done);
        }
        if !named.contains(path) {
            match unlinkat(at, &name, if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() }) {
                Ok(()) => gone(path),
                Err(why) => done = Err(why),
            }
        }
        path.truncate(above);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_names_and_nothing_else() {
        let path = parse(b"a/b c/d".to_vec()).unwrap();
        assert_eq!(path.told, b"a/b c/d");
        assert_eq!(path.names, [c"a".to_owned(), c"b c".to_owned(), c"d".to_owned()]);
        let deep = vec!["d"; 40].join("/");
        let long = "x".repeat(256);
        for bad in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\0b", ".unfinished/x", &deep, &long]
        {
            assert!(parse(bad.as_bytes().to_vec()).is_err(), "{bad:?}");
        }
    }
}
