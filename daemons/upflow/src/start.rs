//! From the first instruction to the sandbox: what a stage is given says what it does.

use crate::area::{Area, Source};
use crate::mirror::{self, Limits, MEMORY, Mirror, TOLD, TURN};
use crate::receive::Receiver;
use crate::send::{Sender, Tree};
use crate::serve::{From, Job, Work, limits};
use levee_daemon::{Confined, Descriptors, Events, Fatal, Kit, Many, One, Watched, begin};
use levee_ipc::Stream;
use levee_ipc::warden::Part;
use levee_ipc::warden::upflow::{CopyPart, SnapshotPart, UpflowCounters};
use levee_policy::LabelName;
use levee_sys::generation::{Reader, Writer};
use levee_sys::notices::Notices;
use levee_sys::sandbox::{Access, Sandbox};
use std::ffi::CString;
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The system calls that either stage may make.
const FILTER: &str = include_str!("../../../conf/seccomp/upflow.toml");

/// The argument by which the warden starts the second stage.
const COPY: &str = "--copy";

/// The most labels whose snapshots one label reads: there are no more steering slots.
const MOST_LABELS: usize = 4096;

/// A label's directory, or the stream in its place.
type Of = (LabelName, OwnedFd);
/// A label's snapshot, and what tells of changes in it.
type Told<T> = (LabelName, OwnedFd, T);

/// What a first stage is given: two of the three.
#[derive(Default)]
struct First {
    store: One<Of>,
    snapshot: One<Told<Writer>>,
    documents: One<Of>,
}

impl Kit for First {
    type Part = SnapshotPart;

    fn take(&mut self, part: SnapshotPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            SnapshotPart::Store(label) => self.store.put((label, with.one()?)),
            SnapshotPart::Snapshot(label) => {
                let (root, generation) = with.two()?;
                let generation = Writer::of(generation).map_err(laid_out(&label))?;
                self.snapshot.put((label, root, generation))
            }
            SnapshotPart::Documents(label) => self.documents.put((label, with.one()?)),
            SnapshotPart::Report => Err(early()),
        }
    }
}

/// What a second stage is given: two of the three, but there may be no snapshot yet.
#[derive(Default)]
struct Second {
    snapshots: Many<Told<Reader>, MOST_LABELS>,
    copies: One<OwnedFd>,
    documents: One<Of>,
}

impl Kit for Second {
    type Part = CopyPart;

    fn take(&mut self, part: CopyPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            CopyPart::Snapshots(labels) => {
                let mut fds = with.all().into_iter();
                labels.into_iter().try_for_each(|label| {
                    let (Some(root), Some(generation)) = (fds.next(), fds.next()) else {
                        return Err(lacking());
                    };
                    let generation = Reader::of(generation).map_err(laid_out(&label))?;
                    self.snapshots.put((label, root, generation))
                })
            }
            CopyPart::Copies => self.copies.put(with.one()?),
            CopyPart::Documents(label) => self.documents.put((label, with.one()?)),
            CopyPart::Report => Err(early()),
        }
    }
}

fn lacking() -> Fatal {
    Fatal::new("take a part", "a snapshot comes with what tells of changes in it")
}

fn early() -> Fatal {
    Fatal::new("take a part", "there is nothing to report yet")
}

/// Takes what the warden gives, then copies until the warden says stop or is gone.
///
/// # Errors
/// What is missing or wrong with what the warden gave, or a sandbox that cannot be entered.
pub fn serve(mut arguments: impl Iterator<Item = String>) -> Result<(), Fatal> {
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => first(),
        (Some(COPY), None) => second(),
        (Some(other), _) => Err(Fatal::new("begin", format!("there is no stage `{other}`"))),
    }
}

fn first() -> Result<(), Fatal> {
    let Some((given, beginning)) = begin::<First>()? else { return Ok(()) };
    let mut events = Events::new()?;
    let confine = |files: &[_]| beginning.confine(&sandbox(files));
    let (confined, work) = match (given.store.get(), given.snapshot.get(), given.documents.get()) {
        (Some((label, store)), Some((of, snapshot, told)), None) if label == of => {
            // A kernel that tells nothing is looked at all the more often.
            let notices = Notices::new().and_then(|notices| events.watch(notices, ())).ok();
            let confined = confine(&[(store.as_fd(), Access::Read), (snapshot.as_fd(), Access::ReadWrite)])?;
            let area = Area::snapshot(snapshot, told).map_err(laid_out(&label))?;
            let mirror = Mirror::new(area, limits(&store, MEMORY));
            (confined, Work::Copies(vec![Job { from: From::Store(store, notices), mirror }]))
        }
        (Some((label, store)), None, Some((of, stream))) if label == of => {
            let confined = confine(&[(store.as_fd(), Access::Read)])?;
            let limits = limits(&store, TOLD);
            let sender = Box::new(Sender::new(Stream::new(stream), vec![(Tree::Store(store), limits)]));
            (confined, Work::Tells { label, sender, last_pass: true })
        }
        (None, Some((label, snapshot, generation)), Some((of, stream))) if label == of => {
            let told = watched(&stream, &mut events)?;
            let confined = confine(&[(snapshot.as_fd(), Access::ReadWrite)])?;
            let area = Area::snapshot(snapshot, generation).map_err(laid_out(&label))?;
            let limits = Limits { memory: TOLD, ..Limits::default() };
            let receiver = Box::new(Receiver::new(Stream::new(stream), area, limits));
            (confined, Work::IsTold { label, receiver, told })
        }
        _ => return Err(not_two("a store, its snapshot and its documents")),
    };
    at_work(confined, events, work)
}

fn second() -> Result<(), Fatal> {
    let Some((given, beginning)) = begin::<Second>()? else { return Ok(()) };
    let mut events = Events::new()?;
    let confine = |files: &[_]| beginning.confine(&sandbox(files));
    let snapshots = given.snapshots.all();
    let (confined, work) = match (given.copies.get(), given.documents.get()) {
        (Some(copies), None) => {
            let mut files = readable(&snapshots);
            files.push((copies.as_fd(), Access::ReadWrite));
            (confine(&files)?, Work::Copies(copying(snapshots, &copies)?))
        }
        (None, Some((label, stream))) => {
            let confined = confine(&readable(&snapshots))?;
            let part = part(TOLD, snapshots.len());
            let trees = snapshots.into_iter().map(|of| tree(of, part)).collect::<Result<_, _>>()?;
            let sender = Box::new(Sender::new(Stream::new(stream), trees));
            (confined, Work::Tells { label, sender, last_pass: false })
        }
        (Some(copies), Some((label, stream))) if snapshots.is_empty() => {
            let told = watched(&stream, &mut events)?;
            let confined = confine(&[(copies.as_fd(), Access::ReadWrite)])?;
            let area = Area::copies(copies).map_err(laid_out(&label))?;
            let receiver = Box::new(Receiver::new(Stream::new(stream), area, of_all_labels()));
            (confined, Work::IsTold { label, receiver, told })
        }
        _ => return Err(not_two("snapshots, their copies and documents")),
    };
    at_work(confined, events, work)
}

fn at_work<P: Part<Says = UpflowCounters>>(
    confined: Confined<P>,
    mut events: Events<()>,
    work: Work,
) -> Result<(), Fatal> {
    let warden = confined.ready(&mut events, ())?;
    work.run(warden, events)
}

/// Has what comes by the stream waited for.
fn watched(stream: &OwnedFd, events: &mut Events<()>) -> Result<Watched<OwnedFd>, Fatal> {
    let same = stream.try_clone().map_err(|why| Fatal::new("wait for the stream", why))?;
    events.watch(same, ()).map_err(|why| Fatal::new("wait for the stream", why))
}

/// Everything given up but reading and writing beneath these directories.
fn sandbox<'a>(files: &'a [(BorrowedFd<'a>, Access)]) -> Sandbox<'a> {
    Sandbox { filter: FILTER, files, tcp: false }
}

fn readable(snapshots: &[Told<Reader>]) -> Vec<(BorrowedFd<'_>, Access)> {
    snapshots.iter().map(|(_, fd, _)| (fd.as_fd(), Access::Read)).collect()
}

/// A job for each snapshot; copies of labels that this one does not dominate any more are removed.
fn copying(snapshots: Vec<Told<Reader>>, copies: &OwnedFd) -> Result<Vec<Job>, Fatal> {
    let (mut jobs, mut names) = (Vec::new(), Vec::new());
    let part = part(MEMORY, snapshots.len());
    for (label, snapshot, generation) in snapshots {
        let name = file_name(&label)?;
        let area = Area::copy(copies.as_fd(), &name).map_err(laid_out(&label))?;
        names.push(name);
        let limits = Limits { acts: TURN, ..limits(&snapshot, part) };
        let from = From::Snapshot(Source::new(snapshot, generation), None);
        jobs.push(Job { from, mirror: Mirror::new(area, limits) });
    }
    if let Some(job) = jobs.first() {
        let kept = mirror::keep_only(copies.as_fd(), &names, job.mirror.area());
        kept.map_err(|why| Fatal::new("remove what is not dominated", why))?;
    }
    Ok(jobs)
}

fn tree((label, snapshot, told): Told<Reader>, memory: u64) -> Result<(Tree, Limits), Fatal> {
    let limits = limits(&snapshot, memory);
    Ok((Tree::Snapshot(file_name(&label)?, Source::new(snapshot, told), None), limits))
}

/// An equal part for each label.
fn part(of: u64, labels: usize) -> u64 {
    of / u64::try_from(labels).unwrap_or(u64::MAX).max(1)
}

/// What comes of all labels together: each has been held to its own part by who tells of them, which is this label's own, outside. Paths that are
/// to go still are remembered with those that have come in their place.
fn of_all_labels() -> Limits {
    Limits { entries: u64::MAX, bytes: u64::MAX, memory: 2 * TOLD, ..Limits::default() }
}

fn file_name(label: &LabelName) -> Result<CString, Fatal> {
    CString::new(label.file_name()).map_err(laid_out(label))
}

fn laid_out<E: Display>(label: &LabelName) -> impl Fn(E) -> Fatal {
    move |why| Fatal::new("lay out its directories", format!("{label}: {why}"))
}

fn not_two(what: &str) -> Fatal {
    Fatal::new("begin", format!("the warden gave neither two of {what}, nor of one label"))
}
