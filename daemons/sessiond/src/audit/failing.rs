//! A disk that takes nothing for a while: what was not written then is read all the same, for as long as memory keeps it.

use super::tests::{START, open_after, read};
use super::*;
use crate::store::Store;
use levee_policy::audit::Action;
use levee_session::{Change, SessionId, Stored};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system on a disk that is larger than what it lies on, gone with the value.
struct Thin {
    at: tempfile::TempDir,
}

fn run(program: &str, arguments: &[&str], place: &Path) {
    let status = Command::new(program).args(arguments).arg(place).status().unwrap();
    assert!(status.success(), "{program} {arguments:?} {}: it needs root", place.display());
}

impl Thin {
    fn new() -> Self {
        let at = tempfile::tempdir().unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=24M", "levee-sessiond-test"], at.path());
        let this = Self { at };
        std::fs::create_dir(this.path()).unwrap();
        File::create(this.image()).unwrap().set_len(64 << 20).unwrap();
        // Without a journal, which has not all of its blocks on the disk below either.
        run("mkfs.ext4", &["-q", "-O", "^has_journal", "-N", "64"], &this.image());
        this.mount();
        this
    }

    fn image(&self) -> PathBuf {
        self.at.path().join("image")
    }

    fn filler(&self) -> PathBuf {
        self.at.path().join("filler")
    }

    fn path(&self) -> PathBuf {
        self.at.path().join("disk")
    }

    fn mount(&self) {
        let image = self.image();
        run("mount", &["-o", "loop", image.to_str().unwrap()], &self.path());
    }

    /// From now on nothing new is written.
    fn fill(&self) {
        run("sync", &["-f"], &self.path());
        let file = File::create(self.filler()).unwrap();
        let (mut at, mut size) = (0, 8u64 << 20);
        while size >= 4096 {
            match fallocate(&file, FallocateFlags::empty(), at, size) {
                Ok(()) => at += size,
                Err(_) => size /= 2,
            }
        }
    }

    /// It is written again; and memory keeps nothing.
    fn mend(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn forget(&self) {
        run("umount", &[], &self.path());
        self.mount();
    }
}

impl Drop for Thin {
    fn drop(&mut self) {
        for place in [self.path(), self.at.path().to_owned()] {
            let _ = Command::new("umount").arg("-l").arg(place).status();
        }
    }
}

#[test]
fn a_log_that_could_not_be_synced_is_on_the_disk_before_another_run_goes_on_with_it() {
    let disk = Thin::new();
    let place = disk.path();
    let mut log = open_after(&place, FULL, Chain::START).unwrap();
    assert!(log.write(&[(Weight::Grant, event("one", Verdict::Granted, String::new()))], START, true));
    disk.fill();
    let long = event("two", Verdict::Granted, "x".repeat(12_000));
    // What it has written over already the disk takes.
    let taken = (0..2_000).take_while(|_| log.write(&[(Weight::Grant, long.clone())], START, true)).count();
    assert!(taken < 2_000, "the disk has taken all");
    drop(log);
    assert!(open_after(&place, FULL, Chain::START).is_err(), "while it takes nothing none goes on");
    disk.mend();
    let mut log = open_after(&place, FULL, Chain::START).unwrap();
    assert!(log.write(&[(Weight::Grant, event("three", Verdict::Granted, String::new()))], START, true));
    let records = log.records();
    drop(log);
    disk.forget();
    let (_, report) = read(&place);
    assert!(report.is_sound() && records >= taken as u64 + 2, "{records}, {taken}: {report:?}");
    open_after(&place, FULL, Chain::START).unwrap();
}

#[test]
fn a_store_that_could_not_be_synced_has_on_the_disk_what_it_says() {
    let disk = Thin::new();
    let directory = File::open(disk.path()).unwrap();
    let put = |n: u16| {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&n.to_be_bytes());
        Change::Put(Stored {
            id: SessionId::from_random(id),
            user: "ann".parse().unwrap(),
            device: "ws1".parse().unwrap(),
            fingerprint: [7; 32],
            label: "SECRET".parse().unwrap(),
            inner: vec!["10.9.0.7".parse().unwrap()],
            opened: START,
            protection: None,
        })
    };
    let mut store = Store::open(directory.as_fd()).unwrap();
    store.apply(&[put(0)], START).unwrap();
    disk.fill();
    let many: Vec<Change> = (1..40_000).map(put).collect();
    assert!(store.apply(&many, START).is_err(), "the disk has taken it");
    assert!(store.apply(&many, START).is_err(), "it is not opened anew while the disk takes nothing");
    assert!(store.alarm().is_some());
    disk.mend();
    store.apply(&[put(50_000)], START).unwrap();
    assert_eq!(store.alarm(), None);
    let (mut before, _) = store.read(START).unwrap();
    drop((store, directory));
    disk.forget();
    let directory = File::open(disk.path()).unwrap();
    let (mut after, _) = Store::open(directory.as_fd()).unwrap().read(START).unwrap();
    for all in [&mut before, &mut after] {
        all.sort_by_key(|record| record.id);
    }
    assert!(before == after && before.len() >= 2, "{} and {}", before.len(), after.len());
}

#[test]
fn an_end_with_the_longest_names_has_room_and_a_note_that_is_too_long_is_told_as_far_as_it_goes() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open_after(place.path(), FULL, Chain::START).unwrap();
    let end = Event {
        user: Some("u".repeat(32).parse().unwrap()),
        host: Some("h".repeat(64).parse().unwrap()),
        label: Some("L".repeat(levee_policy::LabelName::MAX).parse().unwrap()),
        action: Action::End,
        object: SessionId::from_random([7; 16]).to_string(),
        verdict: Verdict::Noted,
        reason: "x".repeat(300),
    };
    let before = log.end;
    assert!(log.write(&[(Weight::End, end.clone())], Time::from_millis(u64::MAX), true));
    assert!(log.end - before <= FOR_END, "{}", log.end - before);
    for (object, reason) in [("o".to_owned(), "x".repeat(20_000)), ("\0".repeat(20_000), String::new())] {
        let long = Event { object, reason, ..end.clone() };
        let before = log.records();
        assert!(!log.write(&[(Weight::Grant, long.clone())], START, true), "what it permits is in it");
        assert!(log.write(&[(Weight::Note, long)], START, true));
        assert_eq!((log.records(), log.lost), (before + 1, 0));
    }
    assert!(read(place.path()).1.is_sound());
}
