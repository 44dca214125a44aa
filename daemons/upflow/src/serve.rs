//! What a stage does once it is confined: it keeps the schedule, and answers the warden.

use crate::area::Source;
use crate::mirror::{Limits, Mirror, Passed};
use crate::receive::Receiver;
use crate::schedule::{COPIES, LIVELY, PERIOD, RESTING, Schedule};
use crate::send::Sender;
use levee_daemon::{Events, Fatal, Order, TURN, Warden, Watched};
use levee_ipc::warden::{Part, UpflowCounters};
use levee_policy::LabelName;
use levee_sys::notices::Notices;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

/// From where a job reads.
pub enum From {
    /// The label's store itself, and where changes in it are told, if the kernel tells them.
    Store(OwnedFd, Option<Watched<Notices>>),
    /// What the first stage wrote. With the generation up to which all of it has been copied.
    Snapshot(Source, Option<u64>),
}

/// The documents of one label, and where they go.
pub struct Job {
    /// From where.
    pub from: From,
    /// Whereto.
    pub mirror: Mirror,
}

/// What there is to do.
pub enum Work {
    /// Copy. At the end a store is copied once more.
    Copies(Vec<Job>),
    /// Tell the other half, which is on the other side of a virtual machine, of changes.
    Tells {
        /// Whose stage this is.
        label: LabelName,
        /// Who tells.
        sender: Box<Sender>,
        /// Whether it tells once more at the end.
        last_pass: bool,
    },
    /// Keep what the other half tells of.
    IsTold {
        /// Whose stage this is.
        label: LabelName,
        /// Who is told.
        receiver: Box<Receiver>,
        /// By this, which is waited for.
        told: Watched<OwnedFd>,
    },
}

/// What the warden wants.
enum Asked {
    /// Nothing that is not done.
    Nothing,
    /// An end; it may be gone itself.
    Stop,
}

impl Work {
    /// Does it until the warden says stop or is gone, or the other half is.
    ///
    /// # Errors
    /// The warden's or the other half's words are none of theirs, or what there is cannot be waited for.
    pub fn run<P: Part<Says = UpflowCounters>>(
        self,
        mut warden: Warden<P>,
        mut events: Events<()>,
    ) -> Result<(), Fatal> {
        match self {
            Self::Copies(jobs) => copy(&mut warden, &mut events, jobs),
            Self::Tells { label, sender, last_pass } => {
                tell(&mut warden, &mut events, &label, *sender, last_pass)
            }
            Self::IsTold { label, receiver, told } => keep(&mut warden, &mut events, &label, *receiver, told),
        }
    }
}

fn copy<P: Part<Says = UpflowCounters>>(
    warden: &mut Warden<P>,
    events: &mut Events<()>,
    mut jobs: Vec<Job>,
) -> Result<(), Fatal> {
    let is_first = jobs.iter().any(Job::is_of_store);
    let began = Instant::now();
    let mut schedule = if is_first {
        Schedule::new(PERIOD, began)
    } else {
        Schedule::joined(COPIES, began, SystemTime::now())
    };
    let mut changed = began;
    loop {
        // Where nothing came, nobody is asked: with all of them at rest a wake is a load for each label below, and to sleep again.
        let heard = !events.wait(Some(schedule.wait(Instant::now())))?.is_empty();
        if jobs.iter_mut().any(Job::has_changed) {
            schedule.noticed(Instant::now());
        }
        let counters = || jobs.iter().map(|job| *job.mirror.counters()).sum();
        if heard && matches!(asked(warden, counters)?, Asked::Stop) {
            for job in jobs.iter_mut().filter(|job| job.is_of_store()) {
                job.pass();
            }
            return Ok(());
        }
        if schedule.wait(Instant::now()).is_zero() {
            let passed: Vec<Passed> = jobs.iter_mut().map(Job::pass).collect();
            let looked = passed.iter().map(|passed| passed.looked).sum();
            if looked > 0 {
                changed = Instant::now();
            }
            if !is_first {
                schedule.be(if changed.elapsed() < LIVELY { COPIES } else { RESTING });
            }
            let noticed = passed.iter().all(|passed| passed.complete && passed.watched);
            schedule.passed(Instant::now(), looked, noticed);
            if passed.iter().any(|passed| passed.more) {
                schedule.goes_on(Instant::now());
            }
        }
    }
}

fn tell<P: Part<Says = UpflowCounters>>(
    warden: &mut Warden<P>,
    events: &mut Events<()>,
    label: &LabelName,
    mut sender: Sender,
    last_pass: bool,
) -> Result<(), Fatal> {
    let mut schedule = Schedule::new(PERIOD, Instant::now());
    let gone = |why| Fatal::new("tell of documents", format!("{label}: {why}"));
    loop {
        events.wait(Some(schedule.wait(Instant::now())))?;
        match asked(warden, UpflowCounters::default)? {
            Asked::Nothing => {}
            Asked::Stop if last_pass => return sender.pass().map(drop).map_err(gone),
            Asked::Stop => return Ok(()),
        }
        if schedule.wait(Instant::now()).is_zero() {
            let looked = sender.pass().map_err(gone)?;
            schedule.passed(Instant::now(), looked, false);
        }
    }
}

fn keep<P: Part<Says = UpflowCounters>>(
    warden: &mut Warden<P>,
    events: &mut Events<()>,
    label: &LabelName,
    mut receiver: Receiver,
    told: Watched<OwnedFd>,
) -> Result<(), Fatal> {
    let (mut told, mut more) = (Some(told), false);
    loop {
        events.wait(more.then_some(Duration::ZERO))?;
        if told.is_some() {
            match receiver.hear() {
                Ok(again) => more = again,
                // The machine has ended, and with it whoever told. What was told is kept.
                Err(why) if why.kind() != std::io::ErrorKind::InvalidData => (more, told) = (false, None),
                Err(why) => return Err(Fatal::new("hear of documents", format!("{label}: {why}"))),
            }
        }
        if let Asked::Stop = asked(warden, || receiver.counters())? {
            while told.is_some() && receiver.hear().is_ok_and(|again| again) {}
            return Ok(());
        }
    }
}

/// Hears the warden, and answers what it asks for.
fn asked<P: Part<Says = UpflowCounters>>(
    warden: &mut Warden<P>,
    report: impl Fn() -> UpflowCounters,
) -> Result<Asked, Fatal> {
    for _ in 0..TURN {
        match warden.hear()? {
            // The one part that may come late is the wish for a report.
            Some(Order::Take(..)) => warden.say(report()),
            Some(Order::Stop) => return Ok(Asked::Stop),
            None => return Ok(Asked::Nothing),
        }
    }
    Ok(Asked::Nothing)
}

/// What is copied of a tree takes no more room than the file system that it lies in has in all, and so much memory.
pub fn limits(tree: &OwnedFd, memory: u64) -> Limits {
    // One whose size cannot be had gives nothing.
    let size = rustix::fs::fstatvfs(tree).map_or(0, |fs| fs.f_blocks.saturating_mul(fs.f_frsize));
    Limits { bytes: size, memory, ..Limits::default() }
}

impl Job {
    fn is_of_store(&self) -> bool {
        matches!(self.from, From::Store(..))
    }

    /// Whether there was a notice since the last pass began. Until the next one begins no other is waited for: however many there
    /// are, they are one.
    fn has_changed(&mut self) -> bool {
        let From::Store(_, Some(notices)) = &self.from else { return false };
        // What cannot be read is as good as changed; the pass then does without.
        let changed = notices.take().unwrap_or(true);
        if changed {
            let _ = notices.wait_for(false, false);
        }
        changed
    }

    fn pass(&mut self) -> Passed {
        let nothing = Passed { looked: 0, complete: true, more: false, watched: false };
        match &mut self.from {
            From::Store(store, notices) => {
                // What was told so far this pass will see.
                let told = notices
                    .as_ref()
                    .is_none_or(|notices| notices.take().is_ok() && notices.wait_for(true, false).is_ok());
                if !told {
                    *notices = None;
                }
                self.mirror.pass_watching(store.as_fd(), notices.as_deref())
            }
            From::Snapshot(source, copied) => {
                // Read before the tree is: a change during the pass gives another number after it.
                let generation = Some(source.generation());
                if generation == *copied {
                    return nothing;
                }
                let tree = match source.tree() {
                    Ok(Some(tree)) => tree,
                    // Its writer has not begun, and will tell of what it writes.
                    Ok(None) => {
                        *copied = generation;
                        return nothing;
                    }
                    Err(_) => return nothing,
                };
                let passed = self.mirror.pass(tree.as_fd());
                *copied = if passed.complete { generation } else { None };
                passed
            }
        }
    }
}
