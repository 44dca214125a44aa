//! Making the image: what services need of the host's `/usr`, copied together and packed as an EROFS.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};

use levee_sys::lock::Lock;

use super::Wanted;
use super::inventory::{self, ALTERNATIVES, Inventory, entries};
use crate::there::there;

/// So many images are kept in the cache.
const KEPT: usize = 8;

/// Ends the name of the list of files that an image in the cache was made from.
const SEEN: &str = "seen";

/// Where a program's alternatives are inside, `/etc/alternatives` being a link to it.
const INSIDE: &str = "lib/levee/alternatives";

/// Directories with links to alternatives.
const LINKED: [&str; 3] = ["/usr/bin", "/usr/sbin", "/usr/local/bin"];

/// Makes the image of services' programs where it is not there yet, and puts a copy of it into the directory `memory`.
///
/// # Errors
/// Says what is missing or failed. Then nothing of that name is there.
pub(super) fn make(wanted: &Wanted, memory: impl AsFd) -> Result<(), String> {
    let failed = |what: &str, e: &dyn std::fmt::Display| format!("{what}: {e}");
    let alone = Alone::begin()?;
    let cache = Path::new(super::CACHE);
    let image = cache.join(wanted.file_name());
    let seen = image.with_extension(SEEN);
    if image.exists() && is_as_seen(&seen) {
        // The oldest go first. One that somebody else has made keeps its time.
        let _ = touch(&image);
    } else {
        let root = alone.stage().join("root");
        let files = wanted.files()?;
        // What changes from now on is found by who looks next. Directories have others' files, too, but those that the site names.
        let is_named = |file: &Path| wanted.software.iter().any(|path| file.starts_with(path));
        let is_other =
            |file: &Path| file.symlink_metadata().is_ok_and(|file| file.is_dir()) && !is_named(file);
        let copied = files.iter().map(PathBuf::as_path).filter(|file| !is_other(file));
        let now = look_at(copied.chain([Path::new(ALTERNATIVES)]));
        fs::create_dir_all(&root).map_err(|e| failed(&root.display().to_string(), &e))?;
        copy_all(&files, &root)?;
        pack(alone.stage(), &root, &image)?;
        fs::write(&seen, now).map_err(|e| failed(&seen.display().to_string(), &e))?;
    }
    alone.end()?;
    load(&image, wanted, memory).map_err(|e| failed("load the image into memory", &e))?;
    prune(cache, &image).map_err(|e| failed("remove old images", &e))
}

/// Each of these files as it is: what somebody has put in its place without dpkg, however deep, is another one.
fn look_at<'a>(files: impl Iterator<Item = &'a Path>) -> Vec<u8> {
    let mut all = Vec::new();
    for file in files {
        all.extend_from_slice(as_it_is(file).as_bytes());
        all.push(b'\t');
        all.extend_from_slice(file.as_os_str().as_bytes());
        all.push(0);
    }
    // A list that is cut has no such end.
    all.push(0);
    all
}

/// Whether all files are as they are in this list.
fn is_as_seen(list: &Path) -> bool {
    let all = fs::read(list).unwrap_or_default();
    let is_same = |one: &[u8]| {
        let at = one.iter().position(|byte| *byte == b'\t');
        let said = at.and_then(|at| Some((one.get(..at)?, one.get(at + 1..)?)));
        said.is_some_and(|(state, file)| as_it_is(Path::new(OsStr::from_bytes(file))).as_bytes() == state)
    };
    all.ends_with(&[0, 0]) && all.split(|byte| *byte == 0).filter(|one| !one.is_empty()).all(is_same)
}

/// The kernel sets the time of a file's last change itself, whatever is done to hide one.
fn as_it_is(file: &Path) -> String {
    let now = file.symlink_metadata().ok();
    now.map_or_else(String::new, |now| {
        format!("{}.{} {} {}", now.ctime(), now.ctime_nsec(), now.size(), now.ino())
    })
}

/// The cache, which nobody else changes while this lives: another warden of this host may be making the same.
#[derive(Debug)]
pub(super) struct Alone {
    stage: PathBuf,
    _lock: Lock,
}

impl Alone {
    /// Waits for those who have it.
    pub fn begin() -> Result<Self, String> {
        let cache = Path::new(super::CACHE);
        let failed = |e: io::Error| format!("{}: {e}", super::CACHE);
        fs::create_dir_all(cache).map_err(failed)?;
        rustix::fs::chmod(cache, Mode::RWXU).map_err(|e| failed(e.into()))?;
        let lock = Lock::at(cache).map_err(failed)?;
        let stage = cache.join(format!("stage-{}", rustix::process::getuid().as_raw()));
        remove(&stage).map_err(|e| format!("clear the last attempt: {e}"))?;
        Ok(Self { stage, _lock: lock })
    }

    /// Where what is not finished is, once it is made.
    pub fn stage(&self) -> &Path {
        &self.stage
    }

    /// Clears up.
    pub fn end(&self) -> Result<(), String> {
        remove(&self.stage).map_err(|e| format!("clear up: {e}"))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // What is left is removed by the next.
        let _ = remove(&self.stage);
    }
}

/// Packs `root` as `image`.
pub(super) fn pack(stage: &Path, root: &Path, image: &Path) -> Result<(), String> {
    let unfinished = stage.join("image");
    let output = Command::new("mkfs.erofs")
        // No attributes, everything root's; compressed, it would be unpacked by every label that reads it.
        .args(["-x-1", "--all-root"])
        .args([unfinished.as_path(), root])
        .env("TMPDIR", stage)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("run mkfs.erofs (package erofs-utils): {e}"))?;
    if !output.status.success() {
        return Err(format!("mkfs.erofs: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let whole = File::open(&unfinished).and_then(|file| file.sync_all());
    whole.and_then(|()| fs::rename(&unfinished, image)).map_err(|e| format!("keep the image: {e}"))
}

/// Copies files of `/usr`, and the alternatives that belong to them without being any package's.
fn copy_all(files: &BTreeSet<PathBuf>, root: &Path) -> Result<(), String> {
    let one = |from: &Path| copy(from, root).map_err(|e| format!("copy {}: {e}", from.display()));
    for file in files {
        one(file)?;
    }
    let inside = root.join(INSIDE);
    fs::create_dir_all(&inside).map_err(|e| format!("make {}: {e}", inside.display()))?;
    for link in entries(Path::new(ALTERNATIVES)) {
        let Ok(target) = fs::read_link(&link) else { continue };
        let there =
            target.strip_prefix("/usr").is_ok_and(|below| root.join(below).symlink_metadata().is_ok());
        if let Some(name) = link.file_name().filter(|_| there) {
            let linked = std::os::unix::fs::symlink(&target, inside.join(name));
            linked.map_err(|e| format!("link {}: {e}", link.display()))?;
        }
    }
    for link in LINKED.iter().flat_map(|directory| entries(Path::new(directory))) {
        let target = fs::read_link(&link).ok();
        let name = target.as_deref().and_then(|target| target.strip_prefix(ALTERNATIVES).ok());
        if name.is_some_and(|name| inside.join(name).symlink_metadata().is_ok()) {
            one(&link)?;
        }
    }
    Ok(())
}

/// One file, link or directory of `/usr` beneath `root`, with mode and time. What is not there any more is left out.
fn copy(from: &Path, root: &Path) -> io::Result<()> {
    let Ok(below) = from.strip_prefix("/usr") else { return Ok(()) };
    let to = root.join(below);
    let metadata = match from.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    if metadata.is_dir() {
        return fs::create_dir_all(&to);
    }
    if to.symlink_metadata().is_ok() {
        return Ok(());
    }
    if metadata.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, &to);
    }
    if metadata.is_file() {
        // With the mode, and the time that compiled Python is compared by.
        fs::copy(from, &to)?;
        File::options().write(true).open(&to)?.set_modified(metadata.modified()?)?;
    }
    Ok(())
}

/// Ends the name of an image that is not whole.
const UNFINISHED: &str = ".new";

/// Writes the image into the directory in memory, under its name once it is whole. Whoever calls it is [`Alone`].
pub(super) fn load(image: &Path, wanted: &Wanted, memory: impl AsFd) -> io::Result<()> {
    // One that was killed has left what takes everybody's room.
    clear(&memory, |other| other.ends_with(UNFINISHED.as_bytes()))?;
    let unfinished = format!("{}{UNFINISHED}", wanted.name_in_memory());
    if let Err(e) = write(image, &unfinished, wanted, &memory) {
        let _ = rustix::fs::unlinkat(&memory, unfinished.as_str(), AtFlags::empty());
        return Err(e);
    }
    // Of others, the labels that run from them keep what they need.
    clear(&memory, |other| wanted.replaces(other))
}

fn write(image: &Path, unfinished: &str, wanted: &Wanted, memory: impl AsFd) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    let to = rustix::fs::openat(&memory, unfinished, flags, Mode::RUSR | Mode::WUSR)?;
    io::copy(&mut File::open(image)?, &mut File::from(to))?;
    rustix::fs::renameat(&memory, unfinished, &memory, wanted.name_in_memory().as_str())?;
    Ok(())
}

/// Removes what is in the directory in memory under such names.
pub(super) fn clear(memory: impl AsFd, is_gone: impl Fn(&[u8]) -> bool) -> io::Result<()> {
    let listed = rustix::fs::openat(&memory, ".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for entry in rustix::fs::Dir::new(listed)? {
        let entry = entry?;
        if is_gone(entry.file_name().to_bytes()) {
            rustix::fs::unlinkat(&memory, entry.file_name(), AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Keeps the newest images, this one among them.
fn prune(cache: &Path, image: &Path) -> io::Result<()> {
    let images = entries(cache).into_iter().filter(|path| path.extension() == Some(OsStr::new("erofs")));
    let mut others: Vec<_> = images
        .filter(|path| path != image)
        .map(|path| Ok((path.metadata()?.modified()?, path)))
        .collect::<io::Result<_>>()?;
    others.sort();
    let many = others.len().saturating_sub(KEPT.saturating_sub(1));
    others.into_iter().take(many).try_for_each(|(_, path)| {
        // One of a version before has none.
        let _ = fs::remove_file(path.with_extension(SEEN));
        fs::remove_file(path)
    })
}

fn touch(path: &Path) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?;
    Ok(())
}

pub(super) fn remove(stage: &Path) -> io::Result<()> {
    // An image can have directories that nobody may write to, not even whose they are.
    there(open(stage))?;
    match fs::remove_dir_all(stage) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Lets every directory be read and removed: who reads the root has no other rights than anybody.
pub(super) fn open(tree: &Path) -> io::Result<()> {
    let mut directories = vec![tree.to_owned()];
    while let Some(directory) = directories.pop() {
        fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
        let below = entries(&directory).into_iter();
        directories.extend(below.filter(|path| path.symlink_metadata().is_ok_and(|entry| entry.is_dir())));
    }
    Ok(())
}

impl Wanted {
    /// Whether an image of this name is an older one of the same: it goes when this comes.
    pub(super) fn replaces(&self, other: &[u8]) -> bool {
        let is_older = match &self.root {
            // The same path as it was.
            Some(_) => other.strip_prefix(self.path().as_bytes()).is_some_and(|rest| rest.starts_with(b"-")),
            None => other.ends_with(b".erofs"),
        };
        is_older && other != self.name_in_memory().as_bytes()
    }

    /// The files of this host's `/usr` that it is made from.
    ///
    /// # Errors
    /// What is missing, in words.
    fn files(&self) -> Result<BTreeSet<PathBuf>, String> {
        let mut files = match Inventory::read().map_err(|e| format!("read what is installed: {e}"))? {
            Some(inventory) => inventory.closure(&self.programs, &self.software)?,
            None => inventory::everything().map_err(|e| format!("read /usr: {e}"))?,
        };
        files.extend(inventory::compiled(&files));
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_replaced_or_written_over_is_another_whatever_times_it_is_given() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let (file, list) = (at("a\tb"), at("list"));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
        assert!(!is_as_seen(&list), "there is none");
        let look =
            || fs::write(&list, look_at([file.as_path(), &at("link"), &at("gone")].into_iter())).unwrap();
        look();
        assert!(is_as_seen(&list));
        let time = file.metadata().unwrap().modified().unwrap();
        let dated = |file: &Path| File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&file, "after!").unwrap();
        dated(&file);
        assert!(!is_as_seen(&list), "written over");
        look();
        fs::write(at("other"), "after?").unwrap();
        dated(&at("other"));
        fs::rename(at("other"), &file).unwrap();
        assert!(!is_as_seen(&list), "replaced");
        look();
        fs::write(at("gone"), "").unwrap();
        assert!(!is_as_seen(&list), "it was not there");
        look();
        fs::remove_file(&file).unwrap();
        assert!(!is_as_seen(&list), "it is not there any more");
        look();
        let whole = fs::read(&list).unwrap();
        for cut in 0..whole.len() {
            fs::write(&list, &whole[..cut]).unwrap();
            assert!(!is_as_seen(&list), "{cut} octets of the list");
        }
    }
}
