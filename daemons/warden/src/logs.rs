//! Where what processes say goes: each has a pipe of its own, and a logger for each label (and one for levee's own standing
//! processes) drains them into files of its label's. The warden holds both ends of every pipe and reads none, so that a logger that
//! ends costs nobody a line and no writer its life.

use crate::bounds::Group;
use crate::options::Options;
use crate::rest::Rest;
use crate::uids::Uids;
use crate::waits::{Source, Waits, WatchedChild};
use crate::{Fatal, log, voice};
use levee_ipc::Channel;
use levee_ipc::log::{LARGEST, ToLogger};
use levee_policy::LabelName;
use levee_sys::pidfd::Child;
use levee_sys::pipe::{self, Pipe};
use levee_sys::spawn::Program;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::Resource;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The logger's program.
const PROGRAM: &str = "levee-logger";

/// Descriptors that a logger may have: a pipe for each process of its label.
const DESCRIPTORS: u64 = 2_048;

/// How long a logger may take to write down the last of what was said.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The two files of a log.
const FILES: [&str; 2] = ["0.log", "1.log"];

/// A logger, and the pipes that it drains.
#[derive(Debug)]
pub struct Logs {
    name: String,
    programs: PathBuf,
    files: [OwnedFd; 2],
    uid: u32,
    logger: Option<Logger>,
    pipes: RefCell<BTreeMap<String, Pipe>>,
    rest: Rest,
}

#[derive(Debug)]
struct Logger {
    child: Arc<Child>,
    channel: Channel,
    group: Group,
    ended: Option<WatchedChild>,
}

/// A logger that is writing down the last of what was said.
#[derive(Debug)]
pub struct LastWords {
    child: Arc<Child>,
    _group: Group,
    until: Instant,
}

impl Logs {
    /// Starts the logger of a label, or of levee's own standing processes, under this uid.
    ///
    /// # Errors
    /// The step that failed, and why.
    pub fn start(label: Option<&LabelName>, uid: u32, options: &Options) -> Result<Self, Fatal> {
        let name = label.map_or_else(|| "levee".to_owned(), ToString::to_string);
        let directory = directory(&options.state, label);
        let files = files(&directory)
            .map_err(|e| Fatal::new(format!("make the log in {}", directory.display()), e))?;
        let (programs, pipes) = (options.programs.clone(), RefCell::default());
        let mut logs = Self { name, programs, files, uid, logger: None, pipes, rest: Rest::default() };
        logs.begin().map_err(|e| Fatal::new(format!("start the logger of {}", logs.name), e))?;
        Ok(logs)
    }

    fn begin(&mut self) -> levee_sys::Result<()> {
        let (ours, theirs) =
            Channel::pair().map_err(|e| levee_sys::Error::new("make a logger's channel", e))?;
        let (input, output) = pipe::dead_ends()?;
        let mut program = Program::daemon(self.programs.join(PROGRAM), self.uid, DESCRIPTORS);
        program.fds = vec![theirs.as_fd(), self.files[0].as_fd(), self.files[1].as_fd()];
        program.stdio = [Some(input.as_fd()), Some(output.as_fd()), Some(output.as_fd())];
        // One that is taken over fills its two files, and not the disk.
        program.limits.push((Resource::Fsize, LARGEST));
        let group = Group::make("logger", self.uid, None)?;
        program.cgroups = group.cgroup().procs().collect();
        let child = Arc::new(program.start()?);
        self.rest.began(Instant::now());
        for (source, pipe) in self.pipes.borrow().iter() {
            give(&ours, source, pipe);
        }
        self.logger = Some(Logger { child, channel: ours, group, ended: None });
        Ok(())
    }

    /// The end to which `source` writes, whose memory counts as `uid`'s. With `waits`, it waits while the pipe is full; levee's own
    /// processes never do: what does not fit is lost.
    ///
    /// # Errors
    /// The kernel's.
    pub fn end(&self, source: &str, uid: u32, waits: bool) -> levee_sys::Result<OwnedFd> {
        let mut pipes = self.pipes.borrow_mut();
        if !pipes.contains_key(source) {
            let pipe = pipe::charged_to(uid)?;
            if !waits {
                pipe::never_waits(&pipe.write)?;
            }
            if let Some(Logger { channel, .. }) = &self.logger {
                give(channel, source, &pipe);
            }
            pipes.insert(source.to_owned(), pipe);
        }
        let pipe =
            pipes.get(source).ok_or_else(|| levee_sys::Error::invalid("find a log", "no such pipe"))?;
        pipe.write.try_clone().map_err(|e| levee_sys::Error::new(format!("open the log of {source}"), e))
    }

    /// `source` writes no more: the logger has its pipe until whoever else has an end is gone, and no other logger gets it.
    pub fn forget(&self, source: &str) {
        self.pipes.borrow_mut().remove(source);
    }

    /// Has the end of the logger waited for.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&mut self, waits: &mut Waits, source: impl FnOnce() -> Source) -> std::io::Result<()> {
        if let Some(Logger { child, ended: ended @ None, .. }) = &mut self.logger {
            *ended = Some(waits.watch(Arc::clone(child), source())?);
        }
        Ok(())
    }

    /// Its end is nobody's concern any more.
    pub fn unwatch(&mut self) {
        self.logger.iter_mut().for_each(|logger| logger.ended = None);
    }

    /// Sees to a logger that has ended: another takes its place, later each time that one ends at once.
    pub fn see_to(&mut self) {
        let now = Instant::now();
        if let Some(Logger { child, group, .. }) = &self.logger {
            let Some(how) = group.exit(child) else { return };
            self.logger = None;
            let wait = self.rest.ended(now);
            log!("the logger of {} ended ({how}); another in {wait:?}", self.name);
        }
        if self.rest.is_over(now)
            && let Err(e) = self.begin()
        {
            let wait = self.rest.ended(now);
            log!("the logger of {} does not start: {e}; again in {wait:?}", self.name);
        }
    }

    /// Whether no logger runs: [`Logs::see_to`] is to be asked.
    pub fn is_resting(&self) -> bool {
        self.logger.is_none()
    }

    /// Nobody writes any more: the logger ends by itself when it has written down what there is.
    pub fn finish(self) -> Option<LastWords> {
        // The channel is closed with this.
        let Logger { child, group, .. } = self.logger?;
        Some(LastWords { child, _group: group, until: Instant::now() + LAST_WORDS })
    }
}

impl LastWords {
    /// Whether it has ended; one that takes too long is ended.
    pub fn are_over(&self) -> bool {
        if Instant::now() >= self.until {
            // If that fails it has ended.
            let _ = self.child.kill();
            return true;
        }
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has ended.
    pub fn wait(self) {
        let left = self.until.saturating_duration_since(Instant::now());
        if !matches!(self.child.wait(left), Ok(Some(_))) {
            let _ = self.child.kill();
        }
    }
}

/// Starts the logger of levee's own standing processes; from now on the warden's own lines go there, too.
///
/// # Errors
/// As [`Logs::start`].
pub fn own_logs(uids: &Uids, options: &Options) -> Result<Logs, Fatal> {
    let logs = Logs::start(None, uids.logger(None), options)?;
    let pipe = logs.end("warden", 0, false).map_err(|e| Fatal::new("open the log", e))?;
    voice::also_to(pipe);
    Ok(logs)
}

fn give(channel: &Channel, source: &str, pipe: &Pipe) {
    // One that does not read has ended, or will be found not to: its successor is given everything.
    let _ = channel.try_send_with(&ToLogger::Source(source.to_owned()), &[pipe.read.as_fd()]);
}

/// Where the log of a label is, or that of levee's own standing processes.
pub fn directory(state: &Path, label: Option<&LabelName>) -> PathBuf {
    let logs = state.join("logs");
    label.map_or_else(|| logs.join("levee"), |label| logs.join("labels").join(label.file_name()))
}

/// The files of a log, root's, to be written behind what they have.
fn files(directory: &Path) -> std::io::Result<[OwnedFd; 2]> {
    std::fs::create_dir_all(directory)?;
    let open = |name: &str| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, directory.join(name), flags, Mode::RUSR | Mode::WUSR)
    };
    Ok([open(FILES[0])?, open(FILES[1])?])
}
