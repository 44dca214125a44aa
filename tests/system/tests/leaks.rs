//! What the laboratory's recorder finds between two compartments, where a program above does everything that it may.
//!
//! Needs root, e2fsprogs and levee's own programs (`cargo build --workspace --bins`).

mod pair;
mod places;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use levee_lab::leak::differ::{self, Difference};
use levee_policy::site::Needs;
use pair::Pair;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pty::{OpenptFlags, openpt};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

/// Answers that may differ, by how their names end, each with the channel that it is (`docs/CHANNELS.md`).
const KNOWN: [(&str, &str); 2] = [
    (": inode", "numbers of pipes, sockets and memfds"),
    // `fstat` of descriptor 0, which is a pipe: its inode's number.
    ("call 5, 3, word 1", "numbers of pipes, sockets and memfds"),
];

/// What differs below in two batches of rounds.
fn differences(pair: &Pair, rounds: usize, needs: &Needs) -> Vec<Difference> {
    let inherited = pair.planted[1].len();
    let batch = |seed| differ::batch(|side| pair.end(side, needs), rounds, inherited, seed).unwrap();
    let batches = [batch(1), batch(2)];
    let asked = batches[0][0].1.len();
    assert!(asked > 5_000, "{asked} things are asked");
    differ::differences(&batches)
}

/// What a mistake in the start of compartments could give to two labels: its name, and what the one above and the one below has.
type Planted = (&'static str, OwnedFd, OwnedFd);

fn planted(directory: &Path) -> Vec<Planted> {
    let same = |name, fd: OwnedFd| (name, fd.try_clone().unwrap(), fd);
    let opened = |name: &str| OwnedFd::from(File::open(directory.join(name)).unwrap());
    let written = |name: &str| OwnedFd::from(File::create(directory.join(name)).unwrap());
    let (reader, writer) = io::pipe().unwrap();
    let (left, right) = UnixStream::pair().unwrap();
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    vec![
        ("a shared inode", written("inode"), opened("inode")),
        same("an open file", written("open file")),
        ("a lock", written("lock"), opened("lock")),
        same("a counter", eventfd(0, EventfdFlags::CLOEXEC).unwrap()),
        ("a pipe", writer.into(), reader.into()),
        ("a socket", left.into(), right.into()),
        ("a shared tmpfs", opened("."), opened(".")),
        same("a timer", timer),
        same("a terminal", terminal),
        same("memory", memfd_create("planted", MemfdFlags::CLOEXEC).unwrap()),
        same("a list of what is waited for", epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()),
    ]
}

#[test]
fn channels_planted_by_hand_are_found_by_the_recorder() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let all = planted(directory.path());
    let names: Vec<&str> = all.iter().map(|(name, _, _)| *name).collect();
    let (above, below) = all.into_iter().map(|(_, above, below)| (above, below)).unzip();
    let pair = Pair::new(2, &Needs::all(), [above, below]);
    let found = differences(&pair, 3, &Needs::all());
    pair.stop();
    let missed: Vec<&str> = names
        .iter()
        .zip(3..)
        .filter(|(_, fd)| !found.iter().any(|d| d.what.starts_with(&format!("inherited {fd}:"))))
        .map(|(name, _)| *name)
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}; found: {found:#?}");
}

/// Nothing is planted, and services have no group of calls: what is then found is named in `docs/CHANNELS.md`.
#[test]
fn what_a_driver_above_changes_below_is_known() {
    let needs = Needs::default();
    let pair = Pair::new(0, &needs, [Vec::new(), Vec::new()]);
    let found = differences(&pair, 6, &needs);
    pair.stop();
    let known = |d: &&Difference| !KNOWN.iter().any(|(what, _)| d.what.ends_with(what));
    let unknown: Vec<&Difference> = found.iter().filter(known).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Through a whole server: what a person runs, for one channel.
#[test]
fn the_meter_measures_where_the_label_above_has_a_processor_for_itself() {
    let directory = tempfile::tempdir().unwrap();
    let (levee, out) = (levee_system::programs().join("levee"), levee_system::text(directory.path()));
    let arguments =
        ["lab", "leak", "--quick", "--only", "run queue", "--processors", "--json", "--out", &out];
    let said = levee_system::sh(&levee_system::text(&levee), &arguments).ok();
    let run: levee_lab::leak::Run = serde_json::from_str(&said).unwrap();
    assert!(run.processors && run.findings.len() == 1, "{said}");
    // Whoever asks there for a processor that the label has not is refused.
    let carried = run.findings[0].carried.as_ref().unwrap();
    assert!(carried.windows > 100 && carried.overslept.iter().all(|n| *n < carried.windows), "{carried:?}");
    assert!(directory.path().join("run-queue.csv").exists());
}
