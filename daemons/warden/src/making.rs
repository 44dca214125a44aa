//! Stores of labels that run for the first time. Each is made by a process of its own (levee-store), while the warden goes on
//! with everybody else.

use crate::Fatal;
use crate::compartment::Unfinished;
use crate::machine::image::Recipe;
use crate::maker::{self, Maker};
use crate::there::entries;
use crate::waits::Waits;
use levee_policy::LabelName;
use levee_sys::spawn::Program;
use rustix::thread::CapabilitySet;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// So many are made at once; it is the disk that they wait for.
pub const AT_ONCE: usize = 4;

/// How long making a label's images may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// An image that is not there yet: where it is to be, and its size in bytes.
pub type Image = (PathBuf, u64);

/// Bytes of all images in the directory `stores` that are whole.
///
/// # Errors
/// The kernel's.
pub fn made(stores: &Path) -> io::Result<u64> {
    let mut images = entries(stores)?.into_iter().filter(is_whole);
    images.try_fold(0, |sum: u64, image| Ok(sum.saturating_add(image.metadata()?.len())))
}

fn is_whole(entry: &std::fs::DirEntry) -> bool {
    entry.path().extension().is_some_and(|extension| extension == "img")
}

/// The stores that are being made, and those whose turn comes.
#[derive(Debug, Default)]
pub struct Makers {
    running: BTreeMap<LabelName, Making>,
    /// Beside images, what a label with a kernel of its own boots.
    waiting: VecDeque<(LabelName, Vec<Image>, Option<Boot>)>,
}

/// What a label's machine boots, and where it is to be.
pub type Boot = (Recipe, PathBuf);

/// The images of one label, and who makes them.
#[derive(Debug)]
struct Making {
    maker: Maker,
    images: Vec<Image>,
    unfinished: Vec<Unfinished>,
}

impl Makers {
    /// Has images made for a label, now or when its turn comes.
    pub fn want(&mut self, label: LabelName, images: Vec<Image>, boot: Option<Boot>) {
        self.waiting.push_back((label, images, boot));
    }

    /// Whether images are being made for a label or will be.
    pub fn has(&self, label: &LabelName) -> bool {
        self.running.contains_key(label) || self.waiting.iter().any(|(name, ..)| name == label)
    }

    /// Nobody waits for a label any more. An image that has been begun is finished all the same.
    pub fn release(&mut self, label: &LabelName) {
        self.waiting.retain(|(name, ..)| name != label);
    }

    /// Begins what has its turn. Answers the labels for which no maker could be started, and why.
    pub fn begin(&mut self, programs: &Path, waits: &mut Waits) -> Vec<(LabelName, Fatal)> {
        let mut failed = Vec::new();
        while self.running.len() < AT_ONCE
            && let Some((label, images, boot)) = self.waiting.pop_front()
        {
            match Making::start(images, boot.as_ref(), programs, waits) {
                Ok(making) => drop(self.running.insert(label, making)),
                Err(e) => failed.push((label, Fatal::new("make a store", e))),
            }
        }
        failed
    }

    /// Bytes of the images that are to be made and are not there yet.
    pub fn bytes(&self) -> u64 {
        let waiting = self.waiting.iter().flat_map(|(_, images, _)| images);
        let running = self.running.values().flat_map(|making| &making.images);
        let missing = waiting.chain(running.filter(|(path, _)| !path.exists()));
        missing.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Takes those that have ended, each with that all are there, or why not; ends those that take too long.
    pub fn ended(&mut self) -> Vec<(LabelName, Result<(), String>)> {
        let over = |(label, making): (&LabelName, &Making)| Some((label.clone(), making.maker.over()?));
        let over: Vec<_> = self.running.iter().filter_map(over).collect();
        let take = |(label, result): (LabelName, Result<(), String>)| {
            let mut unfinished = self.running.remove(&label)?.unfinished.into_iter();
            let finish = |()| unfinished.try_for_each(Unfinished::finish).map_err(|e| e.to_string());
            let result = result.and_then(finish).map_err(|why| format!("cannot make its images: {why}"));
            Some((label, result))
        };
        over.into_iter().filter_map(take).collect()
    }

    /// Ends all.
    pub fn stop(&mut self) {
        self.waiting.clear();
        for making in std::mem::take(&mut self.running).into_values() {
            making.maker.kill();
        }
    }
}

impl Making {
    fn start(
        images: Vec<Image>,
        boot: Option<&Boot>,
        programs: &Path,
        waits: &mut Waits,
    ) -> levee_sys::Result<Self> {
        let unfinished = images.iter().map(|(path, _)| Unfinished::begin(path, maker::UID));
        let unfinished = unfinished.collect::<levee_sys::Result<Vec<_>>>()?;
        let mut program = Program::new(programs.join("levee-store"));
        if let Some((recipe, place)) = boot {
            maker::directory(place.parent().unwrap_or(place))?;
            program.args.push("--machine".into());
            let paths = [place, &recipe.kernel_root, &recipe.programs];
            program.args.extend(paths.map(|path| path.clone().into_os_string()));
            // Distributions keep their kernels from being read.
            program.capabilities = CapabilitySet::DAC_READ_SEARCH;
        }
        program.args.extend(images.iter().map(|(_, bytes)| bytes.to_string().into()));
        program.fds = unfinished.iter().map(Unfinished::as_fd).collect();
        let maker = Maker::start(program, PATIENCE, waits)?;
        Ok(Self { maker, images, unfinished })
    }
}
