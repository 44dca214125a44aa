//! Stores of labels that run for the first time. Each is made by a process of its own (levee-store), while the warden goes on
//! with everybody else.

use crate::Fatal;
use crate::machine::image::Recipe;
use crate::waits::{self, Waits, WatchedChild};
use levee_policy::LabelName;
use levee_sys::pidfd::{Child, Exit};
use levee_sys::spawn::Program;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Resource;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many are made at once; it is the disk that they wait for.
const AT_ONCE: usize = 4;

/// How long making a label's images may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Descriptors that a maker may have.
const DESCRIPTORS: u64 = 1024;

/// So much of what a maker says is kept, in bytes.
const REASON: usize = 512;

/// An image that is not there yet: where it is to be, and its size in bytes.
pub type Image = (PathBuf, u64);

/// Bytes of all images in the directory `stores` that are whole.
///
/// # Errors
/// The kernel's.
pub fn made(stores: &Path) -> io::Result<u64> {
    let entries = match std::fs::read_dir(stores) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(e),
    };
    entries.filter(|entry| entry.as_ref().is_ok_and(is_whole)).try_fold(0, |sum: u64, entry| {
        match entry?.metadata() {
            Ok(image) => Ok(sum.saturating_add(image.len())),
            Err(e) => Err(e),
        }
    })
}

fn is_whole(entry: &std::fs::DirEntry) -> bool {
    entry.path().extension().is_some_and(|extension| extension == "img")
}

/// The stores that are being made, and those whose turn comes.
#[derive(Debug, Default)]
pub struct Makers {
    running: BTreeMap<LabelName, Maker>,
    waiting: VecDeque<(LabelName, Vec<Image>)>,
    /// What is to be made beside, for a label with a kernel of its own.
    machines: BTreeMap<LabelName, Boot>,
}

/// What a label's machine boots, and where it is to be.
pub type Boot = (Recipe, PathBuf);

/// A process that makes the images of one label.
#[derive(Debug)]
struct Maker {
    child: Arc<Child>,
    _ended: WatchedChild,
    images: Vec<Image>,
    /// What it says, if it fails.
    said: OwnedFd,
    until: Instant,
    /// Somebody waits for the label.
    wanted: bool,
}

/// What became of a label's images.
#[derive(Debug)]
pub struct Made {
    /// That all are there, or why not.
    pub result: Result<(), String>,
    /// Somebody waits for the label still.
    pub wanted: bool,
}

impl Makers {
    /// Has images made for a label, now or when its turn comes.
    pub fn want(&mut self, label: LabelName, images: Vec<Image>, boot: Option<Boot>) {
        if let Some(boot) = boot {
            self.machines.insert(label.clone(), boot);
        }
        self.waiting.push_back((label, images));
    }

    /// Whether images are being made for a label or will be. If so, it is wanted from now on.
    pub fn keep(&mut self, label: &LabelName) -> bool {
        if let Some(maker) = self.running.get_mut(label) {
            maker.wanted = true;
            return true;
        }
        self.waiting.iter().any(|(name, _)| name == label)
    }

    /// Nobody waits for a label any more. An image that has been begun is finished all the same.
    pub fn release(&mut self, label: &LabelName) {
        self.waiting.retain(|(name, _)| name != label);
        if let Some(maker) = self.running.get_mut(label) {
            maker.wanted = false;
        }
    }

    /// Begins what has its turn. Answers the labels for which no maker could be started, and why.
    pub fn begin(&mut self, programs: &Path, waits: &mut Waits) -> Vec<(LabelName, Fatal)> {
        let mut failed = Vec::new();
        while self.running.len() < AT_ONCE
            && let Some((label, images)) = self.waiting.pop_front()
        {
            match Maker::start(images, self.machines.remove(&label).as_ref(), programs, waits) {
                Ok(maker) => drop(self.running.insert(label, maker)),
                Err(e) => failed.push((label, Fatal::new("make a store", e))),
            }
        }
        failed
    }

    /// Bytes of the images that are to be made and are not there yet.
    pub fn bytes(&self) -> u64 {
        let waiting = self.waiting.iter().flat_map(|(_, images)| images);
        let running = self.running.values().flat_map(|maker| &maker.images);
        let missing = waiting.chain(running.filter(|(path, _)| !path.exists()));
        missing.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Takes those that have ended, and ends those that take too long.
    pub fn ended(&mut self) -> Vec<(LabelName, Made)> {
        let now = Instant::now();
        let over = |maker: &Maker| match maker.child.try_wait() {
            Ok(None) if now < maker.until => None,
            Ok(None) => {
                Some(maker.child.kill().map_err(|e| e.to_string()).and(Err("it takes too long".into())))
            }
            Ok(Some(Exit::Status(0))) => Some(Ok(())),
            Ok(Some(how)) => Some(Err(maker.reason(how))),
            Err(e) => Some(Err(e.to_string())),
        };
        let over: Vec<_> = self
            .running
            .iter()
            .filter_map(|(label, maker)| Some((label.clone(), over(maker)?, maker.wanted)))
            .collect();
        over.into_iter()
            .map(|(label, result, wanted)| {
                self.running.remove(&label);
                (
                    label,
                    Made { result: result.map_err(|why| format!("cannot make its store: {why}")), wanted },
                )
            })
            .collect()
    }

    /// Ends all.
    pub fn stop(&mut self) {
        self.waiting.clear();
        for maker in std::mem::take(&mut self.running).into_values() {
            // What it had not finished has no name by which it would be taken for finished.
            let _ = maker.child.kill();
        }
    }
}

impl Maker {
    fn start(
        images: Vec<Image>,
        boot: Option<&Boot>,
        programs: &Path,
        waits: &mut Waits,
    ) -> levee_sys::Result<Self> {
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        let (said, says) = pipe.map_err(|e| levee_sys::Error::new("make a pipe", e))?;
        let mut program = Program::new(programs.join("levee-store"));
        if let Some((recipe, place)) = boot {
            program.args.push("--machine".into());
            program.args.extend(
                [place, &recipe.kernel_root, &recipe.programs].map(|path| path.clone().into_os_string()),
            );
        }
        for (path, bytes) in &images {
            program.args.extend([path.clone().into_os_string(), bytes.to_string().into()]);
        }
        // Where mkfs.ext4 is looked for.
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into());
        let mut entry = std::ffi::OsString::from("PATH=");
        entry.push(path);
        program.env.push(entry);
        program.stdio[2] = Some(says.as_fd());
        program.privileged = true;
        program.new_namespaces = Program::ISOLATED;
        // Not the warden's own.
        program.limits.push((Resource::Nofile, DESCRIPTORS));
        let child = Arc::new(program.start()?);
        let ended = waits::made(&child, waits)?;
        let until = Instant::now() + PATIENCE;
        Ok(Self { child, _ended: ended, images, said, until, wanted: true })
    }

    fn reason(&self, how: Exit) -> String {
        let mut text = [0; REASON];
        let length = loop {
            match rustix::io::read(&self.said, &mut text) {
                Err(Errno::INTR) => {}
                read => break read.unwrap_or(0),
            }
        };
        let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default());
        match text.trim() {
            "" => format!("{how:?}"),
            said => said.to_owned(),
        }
    }
}
