//! Makers: processes of their own that make what need not be made by root, while the warden goes on with everybody else: images
//! (levee-store, levee-programs) and the rules of networks (levee-rules). Their uid is theirs alone, the same for all wardens of a host,
//! since what they make of the host's packages is kept for all.

mod confine;

use crate::waits::{self, Waits, WatchedChild};
use levee_sys::pidfd::{Child, Exit};
use levee_sys::spawn::Program;
use levee_sys::{Error, Result};
use rustix::fs::{Gid, Uid};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Signal};
use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use crate::uids::MAKERS as UID;
pub use confine::confine;

/// So much of what a maker says is kept, in bytes.
const REASON: usize = 512;

/// Of one that has taken longer than it may.
const LATE: &str = "it takes too long";

/// Descriptors that a maker may have.
const DESCRIPTORS: u64 = 1024;

/// A maker at work.
#[derive(Debug)]
pub struct Maker {
    child: Arc<Child>,
    _ended: WatchedChild,
    /// What it says, if it fails.
    said: OwnedFd,
    until: Instant,
}

impl Maker {
    /// Starts one, which may take so long. It has what `program` says, and no network but that one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(program: Program<'_>, patience: Duration, waits: &mut Waits) -> Result<Self> {
        let (child, said) = spawn(program)?;
        let child = Arc::new(child);
        let ended = waits::made(&child, waits)?;
        Ok(Self { child, _ended: ended, said, until: Instant::now() + patience })
    }

    /// Starts one and waits for its end, before anything else is served.
    ///
    /// # Errors
    /// Why it has not made what it should.
    pub fn run(program: Program<'_>, patience: Duration) -> std::result::Result<(), String> {
        let (child, said) = spawn(program).map_err(|e| e.to_string())?;
        match child.wait(patience).map_err(|e| e.to_string())? {
            Some(Exit::Status(0)) => Ok(()),
            Some(how) => Err(reason(&said, how)),
            None => child.kill().map_err(|e| e.to_string()).and(Err(LATE.into())),
        }
    }

    /// What became of it, once it has ended. One that takes too long is ended.
    pub fn over(&self) -> Option<std::result::Result<(), String>> {
        self.so_far().inspect(|_| self.kill())
    }

    /// As [`Maker::over`], but one that takes too long goes on: it is [`Leaving`]'s.
    pub fn so_far(&self) -> Option<std::result::Result<(), String>> {
        Some(match self.child.try_wait() {
            Ok(None) if Instant::now() < self.until => return None,
            Ok(None) => Err(LATE.into()),
            Ok(Some(Exit::Status(0))) => Ok(()),
            Ok(Some(how)) => Err(reason(&self.said, how)),
            Err(e) => Err(e.to_string()),
        })
    }

    /// Ends it. What it had not finished has no name by which it would be taken for finished.
    pub fn kill(&self) {
        let _ = self.child.kill();
    }
}

/// Makers that were told to end, and read what is not levee's: a file system that does not answer keeps who asks it from ending, killed or
/// not (FUSE and NFS do). Nobody waits for that.
#[derive(Debug, Default)]
pub struct Leaving(Vec<Arc<Child>>);

impl Leaving {
    /// Ends one. Its end wakes nobody from now on: who has ended is always ready, and would wake whoever waits again and again.
    pub fn take(&mut self, maker: Maker) {
        // One that cannot be told has ended.
        let _ = maker.child.signal(Signal::KILL);
        self.0.push(maker.child);
    }

    /// Whether all have ended.
    pub fn are_gone(&mut self) -> bool {
        self.0.retain(|child| matches!(child.try_wait(), Ok(None)));
        self.0.is_empty()
    }
}

/// Answers the process, and where it says why it fails.
fn spawn(program: Program<'_>) -> Result<(Child, OwnedFd)> {
    let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
    let (said, says) = pipe.map_err(|e| Error::new("make a pipe", e))?;
    let mut program = program;
    // Where the programs that it runs are looked for.
    let mut path = OsString::from("PATH=");
    path.push(std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into()));
    program.env.push(path);
    program.stdio[2] = Some(says.as_fd());
    program.identity = Some((Uid::from_raw(UID), Gid::from_raw(UID)));
    program.new_namespaces = Program::ISOLATED;
    // What they read may be made to have them take memory: the kernel then ends the largest of them and of labels' programs, and not
    // the smaller.
    program.gives_way = true;
    // Not the warden's own.
    program.limits.push((Resource::Nofile, DESCRIPTORS));
    Ok((program.start()?, said))
}

fn reason(said: &OwnedFd, how: Exit) -> String {
    let mut text = [0; REASON];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(said, &mut text)).unwrap_or(0);
    let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default());
    match text.trim() {
        "" => format!("{how:?}"),
        said => said.to_owned(),
    }
}

/// A directory in which makers keep what they have made: theirs.
///
/// # Errors
/// The kernel's.
pub fn directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path)
        .and_then(|()| std::os::unix::fs::chown(path, Some(UID), Some(UID)))
        .map_err(|e| Error::new(format!("give {} to those who make images", path.display()), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_told_to_end_wakes_nobody_when_it_has() {
        let mut waits = Waits::new().unwrap();
        let maker = Maker::start(Program::new("/bin/true"), Duration::from_secs(9), &mut waits).unwrap();
        while maker.so_far().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ready = |waits: &mut Waits| waits.wait(Some(Duration::ZERO)).unwrap().len();
        assert_eq!(ready(&mut waits), 1);
        let mut leaving = Leaving::default();
        leaving.take(maker);
        assert_eq!(ready(&mut waits), 0);
        assert!(leaving.are_gone());
    }

    #[test]
    fn the_kernel_ends_one_as_soon_as_labels_programs() {
        let mut program = Program::new("/bin/sh");
        program.args.extend(["-c", "cat /proc/self/oom_score_adj >&2; exit 1"].map(Into::into));
        let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        let more = (own.trim().parse::<i32>().unwrap() + 500).min(1_000);
        assert_eq!(Maker::run(program, Duration::from_secs(9)), Err(more.to_string()));
    }

    #[test]
    fn one_that_takes_too_long_does_not_go_on() {
        let mut program = Program::new("/bin/sleep");
        program.args.push("100".into());
        let maker = Maker::start(program, Duration::ZERO, &mut Waits::new().unwrap()).unwrap();
        assert_eq!(maker.so_far(), Some(Err(LATE.to_owned())));
        assert!(matches!(maker.child.try_wait(), Ok(None)));
        assert_eq!(maker.over(), Some(Err(LATE.to_owned())));
        assert!(!matches!(maker.child.try_wait(), Ok(None)));
    }
}
