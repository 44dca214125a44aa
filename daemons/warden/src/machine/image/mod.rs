//! What a label's virtual machine boots: the distribution's kernel, and an initial file system with levee's process 1 and the modules of
//! its devices. (The programs of services are on a disk.)
//!
//! It is made by a process of its own (levee-store), once for each kernel and each of levee's builds; its directory has its name once it
//! is whole.

mod cpio;
mod libraries;
mod modules;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufWriter};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use super::qemu::INITRAMFS;
use super::qemu::KERNEL;
use crate::compartment::{COPIED, MERGED};
use cpio::Archive;

/// levee's own programs in the machine.
const OWN: [&str; 2] = ["levee-init", "levee-upflow"];

/// Where they lie there.
pub const PROGRAMS: &str = "/levee";

/// Where the modules lie, named in the order in which they are loaded.
pub const MODULES: &str = "/levee/modules";

/// Where images are kept. Not in a state directory, which may be where compartments build their roots.
pub const CACHE: &str = "/var/cache/levee/machine";

/// An image that is older than this is made again.
const LONG_AGO: Duration = Duration::from_secs(7 * 24 * 3600);

/// What an image is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Where the kernel's package is installed or unpacked: `boot/vmlinuz-VERSION` and `lib/modules/VERSION` beneath it.
    pub kernel_root: PathBuf,
    /// Where levee's programs are.
    pub programs: PathBuf,
}

impl Recipe {
    /// The directory in `cache` in which the image of this recipe is or will be: another one when a program or a package
    /// has changed.
    pub fn place(&self, cache: &Path) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        let mut stamp = |path: &Path| {
            path.hash(&mut hasher);
            if let Ok(file) = fs::metadata(path) {
                (file.ino(), file.size(), file.mtime(), file.mtime_nsec()).hash(&mut hasher);
            }
        };
        OWN.iter().for_each(|program| stamp(&self.programs.join(program)));
        stamp(&self.kernel_root.join("boot"));
        cache.join(format!("{:016x}", hasher.finish()))
    }

    /// What is read to make it, beside the host's programs.
    pub fn reads(&self) -> Vec<PathBuf> {
        let kernel = ["boot", "lib/modules", "usr/lib/modules"].map(|place| self.kernel_root.join(place));
        kernel.into_iter().chain([self.programs.clone()]).chain(COPIED.map(PathBuf::from)).collect()
    }

    /// Makes the image at `to`, which must not exist; others beside it, of a week ago, are removed.
    ///
    /// # Errors
    /// What is missing or cannot be read or written, in words; then nothing is at `to`.
    pub fn make(&self, to: &Path) -> Result<(), String> {
        let failed = |e: io::Error| format!("make {}: {e}", to.display());
        let (Some(parent), Some(name)) = (to.parent(), to.file_name()) else {
            return Err(format!("{} is no place for an image", to.display()));
        };
        fs::create_dir_all(parent).map_err(failed)?;
        let unfinished = parent.join(format!(".{}.{}", name.display(), std::process::id()));
        let made = fs::create_dir(&unfinished).map_err(failed).and_then(|()| self.fill(&unfinished));
        let made = made.and_then(|()| match fs::rename(&unfinished, to) {
            // Another label's start has made the same one meanwhile.
            Err(_) if to.join(INITRAMFS).exists() => Ok(()),
            renamed => renamed.map_err(failed),
        });
        // Nothing is there any more if it was renamed; whatever else is left is of an earlier recipe or a maker that was killed.
        let _ = fs::remove_dir_all(&unfinished);
        if made.is_ok() {
            remove_others(parent, to);
        }
        made
    }

    fn fill(&self, directory: &Path) -> Result<(), String> {
        let kernel = modules::Kernel::find(&self.kernel_root)?;
        let failed = |e: io::Error| format!("write into {}: {e}", directory.display());
        fs::copy(&kernel.image, directory.join(KERNEL))
            .map_err(|e| format!("copy {}: {e}", kernel.image.display()))?;
        let mut files = BTreeSet::new();
        for own in OWN {
            libraries::add(&self.programs.join(own), &mut files)?;
        }
        let file = File::create(directory.join(INITRAMFS)).map_err(failed)?;
        let mut archive = Archive::new(BufWriter::new(file));
        let mut write = || -> io::Result<()> {
            for directory in ["dev", "proc", "sys", "tmp", "run", "mnt"] {
                archive.directory(Path::new(directory))?;
            }
            for (link, to) in MERGED {
                archive.link(relative(Path::new(link)), Path::new(to))?;
            }
            for own in OWN {
                archive.file(&in_archive(PROGRAMS, own), &self.programs.join(own))?;
            }
            for (number, module) in kernel.modules.iter().enumerate() {
                let name = module.file_name().unwrap_or_default().display().to_string();
                archive.file(&in_archive(MODULES, &format!("{number:03}-{name}")), module)?;
            }
            for path in COPIED.map(Path::new).into_iter().filter(|path| path.exists()) {
                // As it is read, not as a link to somewhere else.
                archive.file(relative(path), &fs::canonicalize(path)?)?;
            }
            for path in &files {
                archive.entry(relative(path), path)?;
            }
            archive.finish()
        };
        write().map_err(failed)
    }
}

fn in_archive(directory: &str, name: &str) -> PathBuf {
    relative(Path::new(directory)).join(name)
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Removes images that were made long ago, most likely of earlier recipes; what is still wanted is made again. A machine that
/// runs has what it needs of its own in memory.
fn remove_others(parent: &Path, kept: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let age = |entry: &fs::DirEntry| entry.metadata().ok()?.modified().ok()?.elapsed().ok();
    for entry in entries.filter(|entry| entry.path() != kept && age(entry) > Some(LONG_AGO)) {
        // What stays is removed the next time.
        let _ = fs::remove_dir_all(entry.path());
    }
}
