//! A partition's root: a directory of the site's, or an image, packed anew. The kernel reads an image that levee has made, and no other;
//! what unpacks the site's has no power but to read.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use levee_policy::site::RootImage;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::build::{self, Alone};
use super::inventory::entries;
use super::wanted::FORM;
use super::{MEMORY, Wanted, short};

/// How often what is being unpacked is measured.
const MEASURED: Duration = Duration::from_millis(200);

/// Files, links and directories that a root may have.
const MOST: usize = 1 << 20;

/// Octets of memory that who unpacks an image may have.
const UNPACKS: u64 = 1 << 30;

/// Of what is none.
const NONE: &str = "it is neither a directory nor an image (squashfs or EROFS)";

/// Makes the image where it is not there yet, and puts a copy of it into the directory `memory`; or only looks whether a root's is there.
///
/// # Errors
/// Says what is missing or failed. Then nothing of that name is there.
pub fn make(wanted: &Wanted, memory: impl AsFd) -> Result<(), String> {
    match &wanted.root {
        None => build::make(wanted, memory),
        Some(root) if wanted.only_looks => look(root, wanted, memory),
        Some(root) => pack(root, wanted, memory),
    }
}

/// Packs `root` anew.
fn pack(root: &Path, wanted: &Wanted, memory: impl AsFd) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", root.display());
    // Before anybody else has to wait for this.
    let kind = root.metadata().map_err(|e| failed(&e))?;
    let wanted = wanted.as_is(&kind);
    let alone = Alone::begin()?;
    let tree = alone.stage().join("root");
    fs::create_dir_all(alone.stage()).map_err(|e| format!("make {}: {e}", alone.stage().display()))?;
    if kind.is_dir() {
        copy(root, &tree, &RootBound::ALL).map_err(|e| failed(&e))?;
    } else if !kind.is_file() {
        return Err(failed(&NONE));
    } else {
        unpack(root, &tree, &RootBound::ALL).map_err(|e| failed(&e))?;
        build::open(&tree).map_err(|e| failed(&e))?;
    }
    let image = alone.stage().join("whole");
    build::pack(alone.stage(), &tree, &image)?;
    build::load(&image, &wanted, memory).map_err(|e| format!("load {} into memory: {e}", root.display()))?;
    alone.end()
}

/// Looks whether the image of `root`, as that is now, is in the directory `memory`; there is no older one then.
fn look(root: &Path, wanted: &Wanted, memory: impl AsFd) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", root.display());
    let wanted = wanted.as_is(&root.metadata().map_err(|e| failed(&e))?);
    build::clear(memory, |other| wanted.replaces(other)).map_err(|e| failed(&e))
}

impl Wanted {
    /// A root as what is at its path is now.
    pub(super) fn as_is(&self, now: &Metadata) -> Self {
        let state = (now.dev(), now.ino(), now.mtime(), now.mtime_nsec(), now.size());
        let key = format!("{}-{}", self.key, short(format!("{FORM} {state:?}").as_bytes()));
        Self { key, ..self.clone() }
    }
}

/// What a root may have in all.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootBound {
    /// Octets of all its files together, as they read.
    pub bytes: u64,
    /// Files, links and directories.
    pub files: usize,
}

impl RootBound {
    /// Every root's.
    pub const ALL: Self = Self { bytes: MEMORY, files: MOST };

    fn holds(&self, bytes: u64, files: usize) -> Result<(), String> {
        if bytes <= self.bytes && files <= self.files {
            return Ok(());
        }
        let most = match self.bytes {
            whole if whole >> 30 > 0 => format!("{}G", whole >> 30),
            octets => format!("{octets} octets"),
        };
        Err(format!("it is larger than {most}, or has more than {} files", self.files))
    }
}

/// Unpacks an image to `tree`.
fn unpack(image: &Path, tree: &Path, bound: &RootBound) -> Result<(), String> {
    let mut head = Vec::new();
    let read = File::open(image).and_then(|file| file.take(RootImage::HEAD as u64).read_to_end(&mut head));
    read.map_err(|e| e.to_string())?;
    let mut command = match RootImage::of(&head) {
        None => return Err(NONE.into()),
        Some(RootImage::Squashfs) => {
            let mut command = Command::new("unsquashfs");
            // Whose makes no devices: /dev is levee's. One processor, and 16 MiB for each queue.
            command.args(["-quiet", "-no-progress", "-no-xattrs", "-processors", "1"]);
            command.args(["-data-queue", "16", "-frag-queue", "16", "-excludes", "-dest"]);
            command.arg(tree).arg(image).arg("dev");
            command
        }
        Some(RootImage::Erofs) => {
            let mut command = Command::new("fsck.erofs");
            let mut to = std::ffi::OsString::from("--extract=");
            to.push(tree);
            command.arg(to).args(["--no-preserve-owner", "--preserve-perms"]).arg(image);
            command
        }
    };
    let program = command.get_program().to_string_lossy().into_owned();
    let said = tree.with_file_name("said");
    let to = File::create(&said).map_err(|e| e.to_string())?;
    let child =
        with_memory(UNPACKS, || command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(to).spawn());
    let mut child =
        child.map_err(|e| format!("run {program} (package squashfs-tools or erofs-utils): {e}"))?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break status;
        }
        if let Err(why) = bounded(tree, bound) {
            // It has no child of its own.
            let _ = child.kill().and_then(|()| child.wait());
            return Err(why);
        }
        thread::sleep(MEASURED);
    };
    if !status.success() {
        let said = fs::read(&said).unwrap_or_default();
        return Err(format!("{program}: {status}: {}", String::from_utf8_lossy(&said).trim()));
    }
    bounded(tree, bound)
}

/// What it starts has so many octets of memory at most: what an image says of itself can have its reader take any.
fn with_memory<T>(octets: u64, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = getrlimit(Resource::As);
    let least = before.maximum.map_or(octets, |most| most.min(octets));
    setrlimit(Resource::As, Rlimit { current: Some(least), ..before })?;
    let started = start();
    setrlimit(Resource::As, before)?;
    started
}

/// Copies a directory: plain files, links and directories, which is all that a root is to have.
fn copy(from: &Path, to: &Path, bound: &RootBound) -> io::Result<()> {
    let (mut bytes, mut files) = (0u64, 0);
    let mut directories = vec![PathBuf::new()];
    while let Some(below) = directories.pop() {
        fs::create_dir(to.join(&below))?;
        for entry in fs::read_dir(from.join(&below))? {
            let entry = entry?;
            let (path, metadata) = (below.join(entry.file_name()), entry.metadata()?);
            files += 1;
            if metadata.is_dir() {
                directories.push(path);
            } else if metadata.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(entry.path())?, to.join(path))?;
            } else if metadata.is_file() {
                // What has become a link or a pipe since is an error, and nobody waits for a pipe's other end.
                let source = regular(&entry.path())?;
                let mut copied = File::create(to.join(path))?;
                bytes += io::copy(&mut (&source).take(bound.bytes.saturating_sub(bytes) + 1), &mut copied)?;
                copied.set_modified(metadata.modified()?)?;
                copied.set_permissions(Permissions::from_mode(metadata.permissions().mode() & 0o777))?;
            }
            bound.holds(bytes, files).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

/// Opens what is a file, and nothing else.
fn regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let is_file = file.metadata()?.is_file();
    is_file.then_some(file).ok_or_else(|| io::Error::other(format!("{} is no file", path.display())))
}

/// Whether what is there is not too much.
fn bounded(tree: &Path, bound: &RootBound) -> Result<(), String> {
    let (mut bytes, mut files) = (0u64, 0);
    let mut directories = vec![tree.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in entries(&directory) {
            let Ok(metadata) = entry.symlink_metadata() else { continue };
            // Holes are packed as what they read as.
            let size = metadata.size().max(metadata.blocks().saturating_mul(512));
            (bytes, files) = (bytes.saturating_add(size), files + 1);
            if metadata.is_dir() {
                directories.push(entry);
            }
        }
        bound.holds(bytes, files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_become_a_link_or_a_pipe_is_not_opened_and_keeps_nobody_waiting() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(regular(&at("file")).is_ok());
        for other in ["link", "pipe", "."] {
            assert!(regular(&at(other)).is_err(), "{other}");
        }
    }

    /// A tree of four files, one a directory.
    fn tree(place: &Path, size: usize) -> PathBuf {
        let tree = place.join("tree");
        for name in ["a", "a/b", "c", "d"] {
            fs::create_dir_all(tree.join(name)).unwrap();
            fs::write(tree.join(name).join("file"), vec![7; size]).unwrap();
        }
        tree
    }

    #[test]
    fn all_files_of_a_directory_have_the_bound_together() {
        let place = tempfile::tempdir().unwrap();
        let from = tree(place.path(), 1_000);
        let (copied, mut times) = (|n: u32| place.path().join(format!("copy-{n}")), 0..);
        let mut result = |bytes, files| {
            let to = copied(times.next().unwrap());
            let bound = RootBound { bytes, files };
            copy(&from, &to, &bound).map_err(|e| e.to_string()).map(|()| to)
        };
        let whole = result(4_000, 8).unwrap();
        assert_eq!(fs::read(whole.join("a/b/file")).unwrap(), [7; 1_000]);
        assert!(result(3_999, 8).unwrap_err().contains("it is larger than 3999 octets"));
        assert!(result(4_000, 7).unwrap_err().contains("has more than 7 files"));
        // No more is written than that, and one octet.
        let written = fs::read_dir(place.path()).unwrap().map(|entry| bytes(&entry.unwrap().path()));
        assert!(written.max().unwrap() <= 4_000);
    }

    #[test]
    fn directories_that_an_image_has_forbidden_are_removed_all_the_same() {
        let place = tempfile::tempdir().unwrap();
        let stage = place.path().join("stage");
        fs::create_dir_all(stage.join("root/d1/d2")).unwrap();
        fs::write(stage.join("root/d1/d2/file"), "x").unwrap();
        // Whose they are is nobody who may do all.
        const NOBODY: u32 = 65_534;
        for path in [
            place.path().to_owned(),
            stage.clone(),
            stage.join("root"),
            stage.join("root/d1"),
            stage.join("root/d1/d2"),
        ] {
            std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        for path in ["root/d1/d2", "root/d1"] {
            fs::set_permissions(stage.join(path), Permissions::from_mode(0o0)).unwrap();
        }
        std::thread::scope(|scope| {
            let removed = scope.spawn(|| {
                // For this thread alone.
                rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(NOBODY)).unwrap();
                assert!(fs::read_dir(stage.join("root/d1")).is_err(), "it may not");
                build::remove(&stage)
            });
            removed.join().unwrap().unwrap();
        });
        assert!(!stage.exists());
    }

    #[test]
    fn who_unpacks_an_image_has_so_much_memory_and_who_waits_for_it_as_before() {
        let limit = || {
            let output = Command::new("/bin/sh").args(["-c", "ulimit -v"]).output()?;
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let before = limit().unwrap();
        assert_eq!(with_memory(64 << 30, limit).unwrap(), (64 << 20).to_string());
        assert_eq!(limit().unwrap(), before);
    }

    /// Octets of all files below.
    fn bytes(tree: &Path) -> u64 {
        let of = |path: PathBuf| if path.is_dir() { bytes(&path) } else { path.metadata().unwrap().len() };
        entries(tree).into_iter().map(of).sum()
    }

    /// (Packages squashfs-tools and erofs-utils.)
    #[test]
    fn all_files_of_an_image_have_the_bound_together() {
        const FILE: usize = 256 << 10;
        let place = tempfile::tempdir().unwrap();
        let from = tree(place.path(), FILE);
        let image = |name: &str| place.path().join(name);
        let (squash, erofs) = (image("squash"), image("erofs"));
        let mut commands = [Command::new("mksquashfs"), Command::new("mkfs.erofs")];
        commands[0].arg(&from).arg(&squash).args(["-quiet", "-no-progress"]);
        commands[1].arg(&erofs).arg(&from);
        for command in &mut commands {
            let made = command.output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
        let all = 4 * u64::try_from(FILE).unwrap();
        for (number, image) in [squash, erofs].iter().enumerate() {
            let result = |name: &str, bytes, files| {
                let stage = place.path().join(format!("{name}-{number}"));
                fs::create_dir(&stage).unwrap();
                unpack(image, &stage.join("root"), &RootBound { bytes, files })
            };
            // Directories count as what they take on the disk.
            result("whole", all + (1 << 16), 8).unwrap();
            for (name, bytes, files) in [("large", all - 1, 8), ("many", all + (1 << 16), 7)] {
                let why = result(name, bytes, files).unwrap_err();
                assert!(why.starts_with("it is larger than"), "{}: {why}", image.display());
            }
        }
    }
}
