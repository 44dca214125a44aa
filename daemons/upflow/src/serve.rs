//! The process: takes its directories from the warden, goes into its sandbox, and keeps the schedule.

use crate::area::{Area, Source};
use crate::mirror::{Limits, Mirror, Passed};
use crate::schedule::Schedule;
use levee_ipc::warden::{Attachment, CONTROL_FD, FromWarden, ToWarden, UpflowReport};
use levee_ipc::{Channel, Received, RecvError};
use levee_policy::LabelName;
use levee_sys::sandbox::{Access, Sandbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// Where the documents of one label come from and go to.
#[derive(Default)]
struct Ends {
    store: Option<OwnedFd>,
    snapshot: Option<OwnedFd>,
    copy: Option<OwnedFd>,
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
    let Some(ends) = attachments(&control)? else { return Ok(()) };
    confine(&ends)?;
    let mut jobs = ends.into_iter().map(|(label, ends)| job(label, ends)).collect::<Result<Vec<_>, _>>()?;
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

/// The directories that the warden gives, by label; `None` if it is gone.
fn attachments(control: &Channel) -> Result<Option<BTreeMap<LabelName, Ends>>, String> {
    let mut ends: BTreeMap<LabelName, Ends> = BTreeMap::new();
    loop {
        let received: Received<FromWarden> = match control.recv() {
            Ok(received) => received,
            Err(RecvError::Closed) => return Ok(None),
            Err(e) => return Err(format!("from the warden: {e}")),
        };
        let Received { message, mut fds } = received;
        match message {
            FromWarden::Begin(_) => return Ok(Some(ends)),
            FromWarden::Stop => return Ok(None),
            FromWarden::Attach(attachment) => {
                let (Some(fd), true) = (fds.pop(), fds.is_empty()) else {
                    return Err(format!("{attachment:?} came without exactly one descriptor"));
                };
                match attachment {
                    Attachment::Store(label) => ends.entry(label).or_default().store = Some(fd),
                    Attachment::Snapshot(label) => ends.entry(label).or_default().snapshot = Some(fd),
                    Attachment::Copy(label) => ends.entry(label).or_default().copy = Some(fd),
                    other => return Err(format!("{other:?} is nothing that upflow can use")),
                }
            }
            other => return Err(format!("the warden sent {other:?} before it said to begin")),
        }
    }
}

/// Gives up everything but reading beneath the sources and writing beneath the destinations.
fn confine(ends: &BTreeMap<LabelName, Ends>) -> Result<(), String> {
    let mut files = Vec::new();
    for ends in ends.values() {
        let snapshot = if ends.store.is_some() { Access::ReadWrite } else { Access::Read };
        files.extend(ends.store.iter().map(|fd| (fd.as_fd(), Access::Read)));
        files.extend(ends.snapshot.iter().map(|fd| (fd.as_fd(), snapshot)));
        files.extend(ends.copy.iter().map(|fd| (fd.as_fd(), Access::ReadWrite)));
    }
    let sandbox = Sandbox { filter: levee_sys::seccomp::UPFLOW, files: &files, tcp: false };
    sandbox.enter().map_err(|e| e.to_string())
}

fn job(label: LabelName, ends: Ends) -> Result<Job, String> {
    let (from, area) = match ends {
        Ends { store: Some(store), snapshot: Some(snapshot), copy: None } => (From::Store(store), snapshot),
        Ends { store: None, snapshot: Some(snapshot), copy: Some(copy) } => {
            (From::Snapshot(Source::new(snapshot), None), copy)
        }
        _ => return Err(format!("{label}: neither a store and its snapshot, nor a snapshot and its copy")),
    };
    let area = Area::open(area).map_err(|e| format!("{label}: lay out what is written to: {e}"))?;
    Ok(Job { label, from, mirror: Mirror::new(area, Limits::default()) })
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
