//! The process: takes its directories from the warden, goes into its sandbox, and keeps the schedule.

use crate::area::{Area, Source};
use crate::mirror::{self, Limits, Mirror, Passed};
use crate::receive::Receiver;
use crate::schedule::Schedule;
use crate::send::{Sender, Tree};
use levee_ipc::warden::{Attachment, CONTROL_FD, FromWarden, ToWarden, UpflowCounters, UpflowReport};
use levee_ipc::{Channel, Received, RecvError, Stream};
use levee_policy::LabelName;
use levee_sys::sandbox::{Access, Sandbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// What the warden has given.
#[derive(Default)]
struct Given {
    store: Option<(LabelName, OwnedFd)>,
    snapshot: Option<(LabelName, OwnedFd)>,
    snapshots: Vec<(LabelName, OwnedFd)>,
    copies: Option<OwnedFd>,
    documents: Option<(LabelName, OwnedFd)>,
}

/// From where a job reads.
enum From {
    /// The label's store itself.
    Store(OwnedFd),
    /// What the first stage wrote. With the generation up to which all of it has been copied.
    Snapshot(Source, Option<u64>),
}

struct Job {
    label: LabelName,
    from: From,
    mirror: Mirror,
}

/// Takes part in the warden's start-up, then copies until the warden says stop or is gone. Asked to stop, a first
/// stage makes one more pass.
///
/// # Errors
/// What is missing or wrong with what the warden gave, or a sandbox that cannot be entered.
pub fn serve() -> Result<(), String> {
    let control = levee_sys::fork::inherited(CONTROL_FD).map_err(|e| e.to_string())?;
    let control = Channel::from_fd(control);
    let Some(given) = attachments(&control)? else { return Ok(()) };
    let mut jobs = match given {
        Given { store: Some(store), snapshot: Some(snapshot), snapshots, copies: None, documents: None }
            if snapshots.is_empty() =>
        {
            first_stage(store, snapshot)?
        }
        Given { store: None, snapshot: None, snapshots, copies: Some(copies), documents: None } => {
            second_stage(snapshots, copies)?
        }
        Given { documents: Some((label, stream)), store, snapshot, snapshots, copies } => {
            let stream = Stream::new(stream);
            return match (store, snapshot, copies) {
                (Some((_, store)), None, None) if snapshots.is_empty() => {
                    confine(&[(store.as_fd(), Access::Read)])?;
                    send(&control, label, Sender::new(stream, vec![Tree::Store(store)]), true)
                }
                (None, None, None) => {
                    let files: Vec<_> = snapshots.iter().map(|(_, fd)| (fd.as_fd(), Access::Read)).collect();
                    confine(&files)?;
                    let trees = snapshots.into_iter().map(tree).collect::<Result<_, _>>()?;
                    send(&control, label, Sender::new(stream, trees), false)
                }
                (None, Some((_, snapshot)), None) if snapshots.is_empty() => {
                    confine(&[(snapshot.as_fd(), Access::ReadWrite)])?;
                    let area = Area::snapshot(snapshot).map_err(|e| format!("lay out the snapshot: {e}"))?;
                    receive(&control, &label, Receiver::new(stream, area))
                }
                (None, None, Some(copies)) if snapshots.is_empty() => {
                    confine(&[(copies.as_fd(), Access::ReadWrite)])?;
                    let area = Area::copies(copies).map_err(|e| format!("lay out the copies: {e}"))?;
                    receive(&control, &label, Receiver::new(stream, area))
                }
                _ => Err("the warden gave documents and more than one place for them".into()),
            };
        }
        _ => {
            return Err(
                "the warden gave neither a store and its snapshot nor snapshots and their copies".into()
            );
        }
    };
    control.send(&ToWarden::Ready).map_err(|e| format!("to the warden: {e}"))?;

    let mut schedule = Schedule::new(Instant::now());
    loop {
        let wait = schedule.wait(Instant::now());
        if !wait.is_zero() {
            let limit = Timespec::try_from(wait).map_err(|e| e.to_string())?;
            match poll(&mut [PollFd::new(&control, PollFlags::IN)], Some(&limit)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(format!("poll: {e}")),
            }
        }
        if !hear(&control, &mut jobs)? {
            return Ok(());
        }
        if schedule.wait(Instant::now()).is_zero() {
            let looked = jobs.iter_mut().map(|job| job.pass().looked).sum();
            schedule.passed(Instant::now(), looked);
        }
    }
}

/// The directories that the warden gives; `None` if it is gone.
fn attachments(control: &Channel) -> Result<Option<Given>, String> {
    let mut given = Given::default();
    loop {
        let received: Received<FromWarden> = match control.recv() {
            Ok(received) => received,
            Err(RecvError::Closed) => return Ok(None),
            Err(e) => return Err(format!("from the warden: {e}")),
        };
        let attachment = match received.message {
            FromWarden::Begin(_) => return Ok(Some(given)),
            FromWarden::Stop => return Ok(None),
            FromWarden::Attach(attachment) => attachment,
            other => return Err(format!("the warden sent {other:?} before it said to begin")),
        };
        let mut fds = received.fds.into_iter();
        let mut one = || match (fds.next(), fds.next()) {
            (Some(fd), None) => Ok(fd),
            _ => Err("the warden sent an attachment without exactly one descriptor".to_owned()),
        };
        match attachment {
            Attachment::Store(label) => given.store = Some((label, one()?)),
            Attachment::Snapshot(label) => given.snapshot = Some((label, one()?)),
            Attachment::Copies => given.copies = Some(one()?),
            Attachment::Documents(label) => given.documents = Some((label, one()?)),
            Attachment::Snapshots(labels) if labels.len() == fds.len() => {
                given.snapshots.extend(labels.into_iter().zip(fds));
            }
            other => return Err(format!("{other:?} is nothing that upflow can use")),
        }
    }
}

fn tree((label, snapshot): (LabelName, OwnedFd)) -> Result<Tree, String> {
    let name = CString::new(label.file_name()).map_err(|e| format!("{label}: {e}"))?;
    Ok(Tree::Snapshot(name, Source::new(snapshot), None))
}

/// Tells the other half, which is on the other side of a virtual machine, of changes, until the warden says stop or one of them
/// is gone. Asked to stop, a first stage makes one more pass.
fn send(control: &Channel, label: LabelName, mut sender: Sender, first: bool) -> Result<(), String> {
    control.send(&ToWarden::Ready).map_err(|e| format!("to the warden: {e}"))?;
    let mut schedule = Schedule::new(Instant::now());
    let gone = |e: std::io::Error| format!("tell of documents at {label}: {e}");
    loop {
        wait(&[control.as_fd()], Some(schedule.wait(Instant::now())))?;
        match asked(control, &label, None)? {
            Asked::Nothing => {}
            Asked::Stop if first => return sender.pass().map(drop).map_err(gone),
            Asked::Stop => return Ok(()),
        }
        if schedule.wait(Instant::now()).is_zero() {
            let looked = sender.pass().map_err(gone)?;
            schedule.passed(Instant::now(), looked);
        }
    }
}

/// Keeps what the other half tells of, until the warden says stop and everything has been told, or one of them is gone.
fn receive(control: &Channel, label: &LabelName, mut receiver: Receiver) -> Result<(), String> {
    control.send(&ToWarden::Ready).map_err(|e| format!("to the warden: {e}"))?;
    let (mut more, mut gone) = (false, false);
    loop {
        let fds = [control.as_fd(), receiver.fd()];
        wait(if gone { &fds[..1] } else { &fds }, more.then_some(Duration::ZERO))?;
        if !gone {
            match receiver.hear() {
                Ok(again) => more = again,
                // The machine has ended, and with it whoever told. What was told is kept.
                Err(e) if e.kind() != std::io::ErrorKind::InvalidData => (more, gone) = (false, true),
                Err(e) => return Err(format!("documents at {label}: {e}")),
            }
        }
        if let Asked::Stop = asked(control, label, Some(receiver.counters()))? {
            while !gone && receiver.hear().is_ok_and(|again| again) {}
            return Ok(());
        }
    }
}

/// Waits until one of these can be read, for at most `limit`.
fn wait(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> Result<(), String> {
    let mut fds: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit = limit.map(Timespec::try_from).transpose().map_err(|e| e.to_string())?;
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(format!("poll: {e}")),
    }
}

/// What the warden wants.
enum Asked {
    /// Nothing that is not done.
    Nothing,
    /// An end; it may be gone itself.
    Stop,
}

/// Hears the warden, and answers what it asks for.
fn asked(control: &Channel, label: &LabelName, counters: Option<UpflowCounters>) -> Result<Asked, String> {
    loop {
        match control.try_recv::<FromWarden>().map(|received| received.message) {
            Ok(FromWarden::Report) => {
                let report = |counters| UpflowReport { label: label.clone(), counters };
                let reports = counters.into_iter().map(report).collect();
                control.send(&ToWarden::Upflow(reports)).map_err(|e| format!("to the warden: {e}"))?;
            }
            Ok(FromWarden::Stop) | Err(RecvError::Closed) => return Ok(Asked::Stop),
            Ok(other) => return Err(format!("the warden sent {other:?}, which is not for upflow")),
            Err(RecvError::Empty) => return Ok(Asked::Nothing),
            Err(e) => return Err(format!("from the warden: {e}")),
        }
    }
}

/// Gives up everything but reading and writing beneath these directories.
fn confine(files: &[(BorrowedFd<'_>, Access)]) -> Result<(), String> {
    let sandbox = Sandbox { filter: levee_sys::seccomp::UPFLOW, files, tcp: false };
    sandbox.enter().map_err(|e| e.to_string())
}

/// What is copied of a tree takes no more room than the file system that it lies in has in all.
fn limits(tree: &OwnedFd) -> Limits {
    // One whose size cannot be had gives nothing.
    let size = rustix::fs::fstatvfs(tree).map_or(0, |fs| fs.f_blocks.saturating_mul(fs.f_frsize));
    Limits { bytes: size, ..Limits::default() }
}

fn first_stage(store: (LabelName, OwnedFd), snapshot: (LabelName, OwnedFd)) -> Result<Vec<Job>, String> {
    let (label, store) = store;
    if label != snapshot.0 {
        return Err(format!("a store at {label}, but a snapshot for {}", snapshot.0));
    }
    confine(&[(store.as_fd(), Access::Read), (snapshot.1.as_fd(), Access::ReadWrite)])?;
    let area = Area::snapshot(snapshot.1).map_err(|e| format!("{label}: lay out the snapshot: {e}"))?;
    let limits = limits(&store);
    Ok(vec![Job { label, from: From::Store(store), mirror: Mirror::new(area, limits) }])
}

fn second_stage(snapshots: Vec<(LabelName, OwnedFd)>, copies: OwnedFd) -> Result<Vec<Job>, String> {
    let mut files = vec![(copies.as_fd(), Access::ReadWrite)];
    files.extend(snapshots.iter().map(|(_, fd)| (fd.as_fd(), Access::Read)));
    confine(&files)?;
    let (mut jobs, mut names) = (Vec::new(), Vec::new());
    for (label, snapshot) in snapshots {
        let failed = |e: &dyn std::fmt::Display| format!("{label}: lay out the copies: {e}");
        let name = CString::new(label.file_name()).map_err(|e| failed(&e))?;
        let area = Area::copy(copies.as_fd(), &name).map_err(|e| failed(&e))?;
        names.push(name);
        let limits = limits(&snapshot);
        let from = From::Snapshot(Source::new(snapshot), None);
        jobs.push(Job { label, from, mirror: Mirror::new(area, limits) });
    }
    if let Some(job) = jobs.first() {
        // Documents of labels that this one does not dominate any more.
        let kept = mirror::keep_only(copies.as_fd(), &names, job.mirror.area());
        kept.map_err(|e| format!("remove what is not dominated: {e}"))?;
    }
    Ok(jobs)
}

/// Does what the warden says; false when it is time to end.
fn hear(control: &Channel, jobs: &mut [Job]) -> Result<bool, String> {
    loop {
        match control.try_recv::<FromWarden>().map(|received| received.message) {
            Ok(FromWarden::Report) => {
                let report =
                    |job: &Job| UpflowReport { label: job.label.clone(), counters: *job.mirror.counters() };
                // In parts, so that no number of labels makes a message too large.
                for jobs in jobs.chunks(64) {
                    let report = jobs.iter().map(report).collect();
                    control.send(&ToWarden::Upflow(report)).map_err(|e| format!("to the warden: {e}"))?;
                }
            }
            Ok(FromWarden::Stop) => {
                for job in jobs {
                    if let From::Store(_) = job.from {
                        job.pass();
                    }
                }
                return Ok(false);
            }
            Ok(other) => return Err(format!("the warden sent {other:?}, which is not for upflow")),
            Err(RecvError::Empty) => return Ok(true),
            Err(RecvError::Closed) => return Ok(false),
            Err(e) => return Err(format!("from the warden: {e}")),
        }
    }
}

impl Job {
    fn pass(&mut self) -> Passed {
        let nothing = Passed { looked: 0, complete: true };
        match &mut self.from {
            From::Store(store) => self.mirror.pass(store.as_fd()),
            From::Snapshot(source, copied) => {
                // Read before the tree is: a change during the pass gives another number after it.
                let generation = source.generation().ok().flatten();
                if generation.is_some() && generation == *copied {
                    return nothing;
                }
                let Ok(Some(tree)) = source.tree() else { return nothing };
                let passed = self.mirror.pass(tree.as_fd());
                *copied = if passed.complete { generation } else { None };
                passed
            }
        }
    }
}
